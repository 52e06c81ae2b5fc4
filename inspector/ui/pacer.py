"""Which view is shown a snapshot when: while a run goes on, one view a turn of the event loop."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable

from PySide6.QtCore import QObject, QTimer

from inspector.runtime.snapshots import Snapshot
from inspector.ui.view import View


class Pacer(QObject):
    """Keeps the turns of the event loop short while a run goes on, so that keys and the mouse come in between.

    A run that rests is shown to every view at once.
    """

    def __init__(
        self,
        views: Iterable[View],
        parent: QObject | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(parent)
        self._views = tuple(views)
        self._clock = clock
        self._shown_at: dict[View, float] = {}
        self._due: deque[View] = deque()
        self._snapshot: Snapshot | None = None
        self._turn = QTimer(self, singleShot=True, interval=0)
        self._turn.timeout.connect(self._show_next)

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Show this moment now or in the turns to come; a newer one takes its place."""
        self._snapshot = snapshot
        if snapshot.mode != "running":
            self._due.clear()
            for view in self._views:
                self._show(view)
            return
        now = self._clock()
        for view in self._views:
            waited = now - self._shown_at.get(view, -float("inf"))
            if waited >= view.PERIOD_S and view not in self._due:
                self._due.append(view)
        self._turn.start()

    def _show_next(self) -> None:
        if self._due:
            self._show(self._due.popleft())
        if self._due:
            self._turn.start()

    def _show(self, view: View) -> None:
        if self._snapshot is not None:
            self._shown_at[view] = self._clock()
            view.show_snapshot(self._snapshot)
