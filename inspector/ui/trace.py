"""What draws one metric in a plot over steps: its spread as strokes, its line, and dots for points that stand alone."""

from __future__ import annotations

from typing import Any

import pyqtgraph as pg
from PySide6.QtGui import QColor

from inspector.floats import F64Array
from inspector.ui import theme
from inspector.ui.chart import Chart, Dash, dashed_pen, line_pen, set_points
from inspector.ui.curves import EMPTY_CURVE, Curve
from inspector.ui.line_sample import Symbol

FEW_POINTS = 256
SIGNS = 12
"""On a line that has them, about."""


class Trace:
    """What draws one metric: the strokes from low to high, the line, and dots for points that stand alone."""

    def __init__(self, chart: Chart, dash: Dash, *, above: bool = False, symbol: Symbol = "") -> None:
        self.curve = EMPTY_CURVE
        self.dash = dash
        self._marked = bool(symbol)
        """Told from a line of the same dash by signs on it, wherever colours are not enough."""
        self._colour = theme.colours().text
        self.envelope = pg.PlotCurveItem(connect="pairs", antialias=False)
        self.line = pg.PlotCurveItem(connect="finite", antialias=False)
        self.dots = pg.ScatterPlotItem(pxMode=True, size=6 if symbol else 5, symbol=symbol or "o")
        for item in self._items:
            chart.box.addItem(item, ignoreBounds=True)
            if above:
                item.setZValue(10)

    @property
    def _items(self) -> tuple[Any, ...]:
        return self.envelope, self.line, self.dots

    def draw(self, drawn: Curve) -> None:
        self.curve = drawn
        self._set_line_pen()
        set_points(self.line, drawn.x, drawn.last)
        set_points(self.envelope, *drawn.envelope())
        set_points(self.dots, *(self._spread(drawn) if self._marked else drawn.lonely()))

    @staticmethod
    def _spread(drawn: Curve) -> tuple[F64Array, F64Array]:
        every = max(len(drawn.x) // SIGNS, 1)
        return drawn.x[::every], drawn.last[::every]

    def set_colour(self, colour: QColor) -> None:
        self._colour = colour
        self._set_line_pen()
        self.envelope.setPen(line_pen(theme.faded(colour, 0.4), hairline=True))
        self.dots.setPen(None)
        self.dots.setBrush(pg.mkBrush(colour))

    def _set_line_pen(self) -> None:
        # A dense curve fills its band with hairlines as well.
        self.line.setPen(dashed_pen(self._colour, self.dash, hairline=len(self.curve.x) > FEW_POINTS))

    def remove(self, chart: Chart) -> None:
        for item in self._items:
            chart.box.removeItem(item)
