"""Final loss against learning rate: a dot a run, a line through the means, and what diverged apart from both."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyqtgraph as pg
from PySide6.QtGui import QColor, QResizeEvent
from PySide6.QtWidgets import QWidget

from inspector.floats import F64Array
from inspector.sweep import Point
from inspector.ui import format as fmt
from inspector.ui.chart import Axis, Chart, Dash, dashed_pen, line_pen, set_points
from inspector.ui.edge_marks import EdgeMarks

TITLE = ("final loss: mean over the last tenth of the steps", "final loss")
HELP = (
    "The final loss of each run over its learning rate: a dot a run, a line through the means. A run that diverged is "
    "a cross, or a triangle at the upper edge where its loss is above all others; one without a number is a cross at "
    "the lower edge."
)


class RateAxis(Axis):
    """Powers of ten along x, where labels lie beside each other and not above."""

    def tickValues(self, low: float, high: float, size: float) -> list[tuple[float, list[float]]]:
        """As many as have room."""
        return super().tickValues(low, high, size / 3)


class _Lane:
    """What is drawn of one: the line, the dots of its runs, and the crosses of those that diverged."""

    def __init__(self, chart: Chart) -> None:
        self.line = pg.PlotCurveItem(connect="finite")
        self.dots = pg.ScatterPlotItem(pxMode=True, size=6)
        self.crosses = pg.ScatterPlotItem(pxMode=True, size=8, symbol="x")
        for item in (self.line, self.dots, self.crosses):
            chart.box.addItem(item, ignoreBounds=True)

    def show(self, points: Sequence[Point], high: float) -> None:
        """Draw these; what diverged to above `high` is left to the edge."""
        there = [point for point in points if point.lr > 0]
        x = np.array([math.log10(point.lr) for point in there])
        means = np.array([math.nan if point.diverged else point.mean for point in there], np.float64)
        set_points(self.line, x, means)
        steady = [(at, loss) for at, point in zip(x, there, strict=True) for loss in _steady(point)]
        lost = [(at, y) for at, point in zip(x, there, strict=True) for y in point.runaways if y <= high]
        for item, found in ((self.dots, steady), (self.crosses, lost)):
            set_points(item, np.array([each[0] for each in found]), np.array([each[1] for each in found]))

    def style(self, colour: QColor, dash: Dash) -> None:
        """Its colour and dash."""
        self.line.setPen(dashed_pen(colour, dash))
        self.dots.setPen(line_pen(colour))
        for item in (self.dots, self.crosses):
            item.setBrush(pg.mkBrush(colour))
        self.crosses.setPen(line_pen(colour))


class SweepChart(Chart):
    """log10 of the learning rate along x, final loss along y. How far y reaches, what did not diverge says."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(left=Axis("left"), bottom=RateAxis("bottom", log=True), parent=parent)
        self.show_bottom_axis("learning rate")
        self.setToolTip(HELP)
        self.set_titles(*TITLE)
        self._lanes: list[_Lane] = []
        self._points: tuple[Point, ...] = ()
        self._high = math.inf
        self.edges = EdgeMarks(self)
        self.hovered.connect(self._on_hovered)
        self.all_wanted.connect(self.show_all)
        self.box.sigRangeChanged.connect(self._mark_edges)

    def show_points(self, points: tuple[Point, ...], styles: Sequence[tuple[QColor, Dash]]) -> None:
        """Draw these; `styles` one a lane, in the order in which lanes appear."""
        fresh = {p.lr for p in points} != {p.lr for p in self._points}
        self._points = points
        names = self._names()
        while len(self._lanes) < len(names):
            self._lanes.append(_Lane(self))
        steady = [loss for point in points for loss in _steady(point)]
        losses = steady or [y for point in points for y in point.losses if math.isfinite(y)]
        # A run that has run away would press all others into a line.
        self._high = max(losses) if losses else math.inf
        for number, lane in enumerate(self._lanes):
            mine = [p for p in points if number < len(names) and p.lane == names[number]]
            lane.show(mine, self._high)
            if number < len(names):
                lane.style(*styles[number])
        self.set_y_bounds((min(losses), max(losses)) if losses else None)
        if fresh:
            self.show_all()
        self._mark_edges()

    def means(self, lane: str) -> tuple[F64Array, F64Array]:
        """The line of a lane as drawn: log10 of the learning rate, mean final loss, NaN where a run diverged."""
        x, y = self._lanes[self._names().index(lane)].line.getData()
        return x, y

    def crosses(self, lane: str) -> list[tuple[float, float]]:
        """The runs of a lane that diverged and are drawn where they are."""
        x, y = self._lanes[self._names().index(lane)].crosses.getData()
        return list(zip(x, y, strict=True))

    def show_all(self) -> None:
        """Bring every learning rate into view."""
        rates = [math.log10(point.lr) for point in self._points if point.lr > 0]
        if rates:
            room = max((max(rates) - min(rates)) * 0.08, 0.05)
            self.box.setXRange(min(rates) - room, max(rates) + room, padding=0)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The marks stay at the edge."""
        super().resizeEvent(event)
        if hasattr(self, "edges"):
            self._mark_edges()

    def restyle(self) -> None:
        """Take the colours of the theme."""
        super().restyle()
        if hasattr(self, "edges"):
            self.edges.restyle()

    def _names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(point.lane for point in self._points))

    def _mark_edges(self) -> None:
        none = np.empty(0)
        lost = [(p.lr, y) for p in self._points if p.lr > 0 for y in p.losses if not y <= self._high]
        above, no_number = (
            np.unique([math.log10(lr) for lr, y in lost if math.isnan(y) is nan]) for nan in (False, True)
        )
        self.edges.show(posinf=above, neginf=none, nan=no_number, below=none)

    def _on_hovered(self, at: float | None) -> None:
        done = [p for p in self._points if p.losses and p.lr > 0]
        if at is None or not done:
            self.set_titles(*TITLE)
            return
        rate = min((p.lr for p in done), key=lambda lr: abs(math.log10(lr) - at))
        read = [f"{p.lane} {fmt.number(p.mean, 5)}{_lost(p)}" for p in done if p.lr == rate]
        self.set_titles(f"lr {fmt.number(rate)}, final loss  " + "  ".join(read), f"lr {fmt.number(rate)}")


def _steady(point: Point) -> list[float]:
    """The losses of runs that did not diverge."""
    left = list(point.losses)
    for loss in point.runaways:
        left.pop(
            next(i for i, other in enumerate(left) if other == loss or (other != other and loss != loss))
        )
    return [loss for loss in left if math.isfinite(loss)]


def _lost(point: Point) -> str:
    return f" ({point.diverged} of {len(point.losses)} diverged)" if point.diverged else ""
