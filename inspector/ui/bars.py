"""The frame of small plots of values over whole numbers: stepped curves, read out under the mouse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyqtgraph as pg
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QWidget

from inspector.floats import F64Array
from inspector.stores import Lane
from inspector.ui import theme
from inspector.ui.chart import Axis, Chart, TickText, line_pen


class BarChart(Chart):
    """Values over whole numbers on a logarithmic axis, one stepped curve a lane in its colour; the mouse moves nothing.

    A subclass says by `_titles_at(x)` what is read out at x, None for nowhere.
    """

    def __init__(
        self,
        lanes: Sequence[Lane],
        *,
        counts: bool,
        filled: bool,
        text: TickText | None = None,
        parent: QWidget | None = None,
    ) -> None:
        """`counts`: whole numbers on the left axis; `filled`: down to its floor; `text` writes the ticks below."""
        super().__init__(
            left=Axis("left", whole=counts, log=True),
            bottom=Axis("bottom", whole=True, text=text),
            parent=parent,
        )
        self._filled = filled
        self._hovered: float | None = None
        self.bars = {lane: pg.PlotCurveItem([0, 1], [0], stepMode="center") for lane in lanes}
        for item in self.bars.values():
            self.box.addItem(item, ignoreBounds=True)
        low_axis(self)
        self.box.setMouseEnabled(x=False, y=False)
        self.hovered.connect(self._on_hovered)
        theme.changes().changed.connect(self._restyle_items)
        self._restyle_items()

    def colour(self, lane: Lane) -> QColor:
        """What the bars of a lane are drawn in."""
        return theme.lane_mark(lane)

    def show_bars(
        self,
        edges: Mapping[Lane, F64Array],
        heights: Mapping[Lane, F64Array],
        *,
        span: tuple[float, float],
        bounds: tuple[float, float] | None,
        message: str = "",
    ) -> None:
        """Draw each lane between its edges, one more than heights; NaN is left out. `message` instead where given."""
        for lane, item in self.bars.items():
            there = lane in heights and len(heights[lane]) > 0
            item.setVisible(there)
            if there:
                item.setFillLevel(bounds[0] if self._filled and bounds else None)
                item.setData(edges[lane], heights[lane], connect="finite")
        self.set_message(message)
        self.bottom.setStyle(showValues=not message)
        self.box.setXRange(*span, padding=0)
        self.set_y_bounds(bounds)
        self._read_out()

    def _on_hovered(self, at: float | None) -> None:
        self._hovered = at
        self._read_out()

    def _read_out(self) -> None:
        self.set_titles(*self._titles_at(self._hovered))

    def _titles_at(self, at: float | None) -> tuple[str, ...]:
        """What is plotted, and what is read at `at`, from the longest text to the shortest."""
        raise NotImplementedError

    def _restyle_items(self) -> None:
        for lane, bars in self.bars.items():
            colour = self.colour(lane)
            bars.setPen(line_pen(colour))
            bars.setBrush(pg.mkBrush(theme.faded(colour, 0.3)) if self._filled else None)


def low_axis(chart: Chart) -> None:
    """Numbers on the x axis, its name left to the title: several plots share a low panel."""
    chart.show_bottom_axis("")
    chart.bottom.showLabel(False)
    chart.bottom.setHeight(chart.bottom_height // 2 + theme.GRID)


def log10_of(values: F64Array) -> F64Array:
    """Logarithms for a plot; what has none is left out, as NaN."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(values > 0, np.log10(values), np.nan)
