"""Marks at the edge of a plot for values that have no height in it."""

from __future__ import annotations

import numpy as np
import pyqtgraph as pg

from inspector.floats import F64Array
from inspector.ui import theme
from inspector.ui.chart import Chart, set_points

MARK_SIZE = 9


class EdgeMarks:
    """Values without a height: ▲ +Inf at the top; ▼ -Inf, x NaN and ▽ below the axis at the bottom."""

    def __init__(self, chart: Chart) -> None:
        self._chart = chart
        self._items = {
            name: pg.ScatterPlotItem(pxMode=True, size=MARK_SIZE, symbol=symbol)
            for name, symbol in (("posinf", "t1"), ("neginf", "t"), ("nan", "x"), ("below", "t"))
        }
        for item in self._items.values():
            item.setZValue(500)
            item.hide()
            chart.box.addItem(item, ignoreBounds=True)
        self.restyle()

    def show(self, **steps: F64Array) -> None:
        """Put the marks at these x, by kind."""
        for name, item in self._items.items():
            x = thinned(steps[name], self._chart.pixels_per_x())
            y = self._chart.edge_y(top=name == "posinf")
            if len(x) or len(item.data):
                set_points(item, x, [y] * len(x))

    def drawn(self, name: str) -> list[float]:
        """The x of the marks of that kind."""
        return [float(x) for x in self._items[name].getData()[0]]

    def restyle(self) -> None:
        """Vermilion for what is not finite; what a logarithm cannot show is only outlined."""
        for name, item in self._items.items():
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
