"""Which view is shown a snapshot when: one view a turn of the event loop, so that each is painted before the next."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection

from PySide6.QtCore import QObject, QTimer

from inspector.runtime.snapshots import Snapshot
from inspector.ui.paint_turn import paint_turn
from inspector.ui.view import View


class Pacer(QObject):
    """Keeps the turns of the event loop short, so that keys and the mouse come in between.

    What nobody sees is shown at once where the run rests, as it costs nothing; while a run goes on it takes its turn.
    """

    def __init__(
        self,
        views: Collection[View],
        parent: QObject | None = None,
        *,
        working: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`working` is told of each turn that is to come."""
        super().__init__(parent)
        self._views = views
        self._working = working
        self._clock = clock
        self._shown_at: dict[View, float] = {}
        self._due: deque[View] = deque()
        self._snapshot: Snapshot | None = None
        self._turn = QTimer(self, singleShot=True, interval=0)
        self._turn.timeout.connect(self._show_next)

    @property
    def at_rest(self) -> bool:
        """True once every view that is due has been shown the newest moment."""
        return not self._due

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Show this moment in the turns to come; a newer one takes its place."""
        self._snapshot = snapshot
        now = self._clock()
        for view in tuple(self._views):
            if snapshot.mode != "running" and not view.isVisible():
                self._show(view)
            elif view not in self._due and (snapshot.mode != "running" or self._is_due(view, now)):
                self._due.append(view)
        self._go_on()

    def finish(self) -> None:
        """Show what is due at once."""
        while self._due:
            self._show(self._due.popleft())

    def _is_due(self, view: View, now: float) -> bool:
        return now - self._shown_at.get(view, -float("inf")) >= view.period_s

    def _show_next(self) -> None:
        if self._due:
            self._show(self._due.popleft())
        self._go_on()

    def _go_on(self) -> None:
        if self._due:
            self._working()
            self._turn.start()

    def _show(self, view: View) -> None:
        if self._snapshot is not None:
            self._shown_at[view] = self._clock()
            paint_turn().begin()
            view.show_snapshot(self._snapshot)
