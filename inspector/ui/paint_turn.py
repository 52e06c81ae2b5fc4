"""How much is painted in one turn of the event loop: what is over the budget keeps its old pixels until the next turn.

A window with many plots in it would else be painted for tens of milliseconds at a time, and a key or the mouse wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from types import TracebackType

from PySide6.QtCore import QObject, QTimer
from PySide6.QtGui import QRegion
from PySide6.QtWidgets import QWidget
from shiboken6 import isValid

BUDGET_S = 0.005
"""A third of a frame: a plot begun before it is over takes some milliseconds, as does what else is done in a turn."""


class PaintTurn(QObject):
    """Entered by a window around the painting of all that is stale in it, and asked by each plot that is to be painted.

    A turn is all that the event loop does before it comes to its timers: a scene of plots has the window painted by
    itself, so it may be painted several times in one. Where a turn begins with work, `begin` counts that as well.
    Outside of that, as where a picture of the window is made, everything is painted.
    """

    def __init__(self, budget_s: float = BUDGET_S, clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__()
        self._budget_s = budget_s
        self._clock = clock
        self._painting = False
        self._until = 0.0
        self._painted = False
        self._waiting: dict[QWidget, QRegion] = {}
        """What is to be painted in the next turn, by widget."""
        self._waited: set[QWidget] = set()
        """The widgets whose painting was put off before this turn."""
        self._end = QTimer(self, singleShot=True, interval=0)
        self._end.timeout.connect(self._on_end)

    def begin(self) -> None:
        """Something is about to take time in this turn."""
        if not self._end.isActive():
            self._until = self._clock() + self._budget_s
            self._painted = False
            self._end.start()

    def __enter__(self) -> None:
        self.begin()
        self._painting = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._painting = False

    def takes(self, widget: QWidget, region: QRegion) -> bool:
        """True where this part of a widget is to be painted now; else it is stale again in the next turn.

        Of those that were put off, the first of a turn is painted whatever the rest of the turn has taken.
        """
        if (
            not self._painting
            or self._clock() < self._until
            or (widget in self._waited and not self._painted)
        ):
            self._painted = True
            self._waited.discard(widget)
            return True
        self._waiting[widget] = self._waiting.get(widget, QRegion()).united(region)
        return False

    def _on_end(self) -> None:
        waiting, self._waiting = self._waiting, {}
        self._waited = set(waiting)
        for widget, region in waiting.items():
            # It may be gone by now.
            if isValid(widget):
                widget.update(region)


@cache
def paint_turn() -> PaintTurn:
    """The one of the UI thread."""
    return PaintTurn()
