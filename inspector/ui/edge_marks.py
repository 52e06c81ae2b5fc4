"""Marks at the edge of a plot for values that have no height in it."""

from __future__ import annotations

import numpy as np
import pyqtgraph as pg

from inspector.floats import F64Array
from inspector.ui import theme
from inspector.ui.chart import Chart, set_points

MARK_SIZE = 9


SYMBOLS = {"posinf": "t1", "neginf": "t", "nan": "x", "below": "t"}


class EdgeMarks:
    """Values without a height: ▲ +Inf at the top; ▼ -Inf, x NaN and ▽ below the axis at the bottom.

    What draws a kind is made with the first of its marks: most plots never have any.
    """

    def __init__(self, chart: Chart) -> None:
        self._chart = chart
        self._items: dict[str, pg.ScatterPlotItem] = {}

    def show(self, **steps: F64Array) -> None:
        """Put the marks at these x, by kind."""
        for name in SYMBOLS:
            x = thinned(steps[name], self._chart.pixels_per_x())
            y = self._chart.edge_y(top=name == "posinf")
            if len(x) and name not in self._items:
                self._items[name] = self._made(name)
            if len(x) or (name in self._items and len(self._items[name].data)):
                set_points(self._items[name], x, [y] * len(x))

    def drawn(self, name: str) -> list[float]:
        """The x of the marks of that kind."""
        return [float(x) for x in self._items[name].getData()[0]] if name in self._items else []

    def restyle(self) -> None:
        """Vermilion for what is not finite; what a logarithm cannot show is only outlined."""
        for name, item in self._items.items():
            self._style(name, item)

    def _made(self, name: str) -> pg.ScatterPlotItem:
        item = pg.ScatterPlotItem(pxMode=True, size=MARK_SIZE, symbol=SYMBOLS[name])
        item.setZValue(500)
        self._chart.box.addItem(item, ignoreBounds=True)
        self._style(name, item)
        return item

    def _style(self, name: str, item: pg.ScatterPlotItem) -> None:
        if name == "below":
            item.setPen(pg.mkPen(theme.colours().text))
            item.setBrush(None)
        else:
            item.setPen(pg.mkPen(theme.nonfinite_mark()))
            item.setBrush(pg.mkBrush(theme.nonfinite_mark()))


def thinned(x: F64Array, pixels_per_x: float) -> F64Array:
    """Sorted x with those left out that would lie on the mark before: at most one a few pixels."""
    if len(x) < 2 or pixels_per_x <= 0:
        return x
    cell = (x * pixels_per_x // (MARK_SIZE / 3)).astype(np.int64)
    first_of_cell = np.append(True, cell[1:] != cell[:-1])
    return np.asarray(x[first_of_cell], dtype=np.float64)
