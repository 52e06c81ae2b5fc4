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

BUDGET_S = 0.005
"""A third of a frame: a plot begun before it is over takes some milliseconds, as does what else is done in a turn."""


class PaintTurn(QObject):
    """Entered by a window around the painting of all that is stale in it, and asked by each plot that is to be painted.

    Outside of that, as where a picture of the window is made, everything is painted.
    """

    def __init__(self, budget_s: float = BUDGET_S, clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__()
        self._budget_s = budget_s
        self._clock = clock
        self._until: float | None = None
        self._painted = False
        self._later: list[tuple[QWidget, QRegion]] = []
        # Not asked for at once: what is stale before the events at hand are all handled is painted with them.
        self._next = QTimer(self, singleShot=True, interval=0)
        self._next.timeout.connect(self._ask_again)

    def __enter__(self) -> None:
        self._until = self._clock() + self._budget_s
        self._painted = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._until = None

    def takes(self, widget: QWidget, region: QRegion) -> bool:
        """True where this part of a widget is to be painted now; else it is stale again in the next turn.

        The first of a turn always is, so that each comes to be painted whatever the others take.
        """
        if self._until is None or not self._painted or self._clock() < self._until:
            self._painted = True
            return True
        self._later.append((widget, QRegion(region)))
        self._next.start()
        return False

    def _ask_again(self) -> None:
        later, self._later = self._later, []
        for widget, region in later:
            widget.update(region)


@cache
def paint_turn() -> PaintTurn:
    """The one of the UI thread."""
    return PaintTurn()
