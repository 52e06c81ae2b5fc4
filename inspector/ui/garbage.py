"""Looking for garbage on the UI thread alone.

Python looks for it on whichever thread makes one object too many. Widgets of a closed dialog or a removed plot are
garbage as a rule, since they and their slots know each other; found on a worker's thread they are destroyed there, in
the midst of what Qt does with them on its own, and the process dies of a segmentation fault in the event loop.
"""

from __future__ import annotations

import gc
import time

from PySide6.QtCore import QCoreApplication, QObject, QTimer

EVERY_MS = 50
FULL_EVERY_S = 10.0
"""All objects are gone through at most so often: it takes some milliseconds, in which nothing is painted."""


class GarbageCollector(QObject):
    """Looks for garbage when it is due by Python's own thresholds, in the event loop of its parent's thread."""

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        gc.disable()
        self._last_full = time.monotonic()
        self._timer = QTimer(self)
        self._timer.setInterval(EVERY_MS)
        self._timer.timeout.connect(self.collect_if_due)
        self._timer.start()

    def pause(self) -> None:
        """Leave garbage alone until `resume`."""
        self._timer.stop()

    def resume(self) -> None:
        """Look for it again."""
        self._timer.start()

    def collect_if_due(self) -> None:
        """Collect the oldest generation that has more in it than its threshold, and those younger than it."""
        now = time.monotonic()
        due = [
            i for i, (n, most) in enumerate(zip(gc.get_count(), gc.get_threshold(), strict=True)) if n > most
        ]
        if 2 in due:
            if now - self._last_full >= FULL_EVERY_S:
                self._last_full = now
                gc.collect(2)
                return
            due.remove(2)
        if due:
            gc.collect(due[-1])


def collect_here(app: QCoreApplication) -> GarbageCollector:
    """The collector of an application, made if there is none: from then on no other thread looks for garbage."""
    found = app.findChild(GarbageCollector)
    return found if isinstance(found, GarbageCollector) else GarbageCollector(app)
