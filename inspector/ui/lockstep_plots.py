"""Errors of 8-bit state as plots: by block of a param, and as a histogram of magnitudes."""

from __future__ import annotations

import math

import numpy as np
import pyqtgraph as pg
from PySide6.QtGui import QFontMetricsF, QResizeEvent
from PySide6.QtWidgets import QWidget

from inspector.coding_error import LaneCodingError, ParamCodingError
from inspector.floats import F32Array, F64Array
from inspector.runtime.lockstep import BlockErrors
from inspector.statistics import BINS, EXPONENT_BIAS
from inspector.stores import MOMENTS
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.chart import LEFT_WIDTH, RIGHT_MARGIN, Axis, Chart, line_pen
from inspector.ui.histogram_view import bar_heights, bin_text, power_of_two
from inspector.ui.step_chart import StepChart

MARGIN_BINS = 2


class FittedTitle(Chart):
    """A chart whose title is the longest of several that fits in its width."""

    _titles: tuple[str, ...] = ()

    def set_titles(self, *titles: str) -> None:
        """Titles from the longest to the shortest, which is written where none fits."""
        self._titles = titles
        self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Another width, perhaps another title."""
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        if self._titles:
            metrics = QFontMetricsF(theme.ui_font(-1))
            room = self.width() - LEFT_WIDTH - RIGHT_MARGIN - 2 * theme.GRID
            fitting = (t for t in self._titles if metrics.horizontalAdvance(t) <= room)
            self.set_title(next(fitting, self._titles[-1]))


class FittedStepChart(FittedTitle, StepChart):
    """Metrics over steps under such a title."""


class BlockChart(FittedTitle):
    """Rms error of m and v in each block of a param, on a logarithmic axis, the worst block of either marked."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(left=Axis("left", log=True), bottom=Axis("bottom", whole=True), parent=parent)
        self.blocks: BlockErrors | None = None
        self._hovered: float | None = None
        self.curves = {lane: pg.PlotCurveItem([0, 1], [0], stepMode="center") for lane in MOMENTS}
        self.worst = {lane: pg.ScatterPlotItem(pxMode=True, size=9, symbol="t") for lane in MOMENTS}
        for item in (*self.curves.values(), *self.worst.values()):
            self.box.addItem(item, ignoreBounds=True)
        low_axis(self)
        self.box.setMouseEnabled(x=False, y=False)
        self.hovered.connect(self._on_hovered)
        theme.changes().changed.connect(self._restyle_items)
        self._restyle_items()
        self.show_blocks(None, "")

    def show_blocks(self, blocks: BlockErrors | None, absent: str) -> None:
        """Draw the blocks of a param; `absent` says why there are none."""
        self.blocks = blocks
        self.set_message(absent if blocks is None else "" if self._some(blocks) else _EXACT)
        self.bottom.setStyle(showValues=not self.message)
        bounds: list[float] = []
        for lane in MOMENTS:
            logs = _log10(_lane(blocks, lane)) if blocks else np.zeros(0)
            group = blocks.group if blocks else 1
            edges = np.minimum(np.arange(len(logs) + 1) * group, blocks.blocks if blocks else 0) - 0.5
            self.curves[lane].setVisible(len(logs) > 0)
            if len(logs):
                self.curves[lane].setData(edges, logs, connect="finite")
            drawn = logs[np.isfinite(logs)]
            bounds += [float(drawn.min()), float(drawn.max())] if len(drawn) else []
            at = int(np.nanargmax(logs)) if len(drawn) else None
            middle = 0.0 if at is None else float((edges[at] + edges[at + 1]) / 2)
            self.worst[lane].setData(*(([], []) if at is None else ([middle], [float(logs[at])])))
        last = blocks.blocks if blocks else 1
        self.box.setXRange(-0.5, max(last - 0.5, 0.5), padding=0.01)
        self.set_y_bounds((min(bounds), max(bounds)) if bounds else None)
        self._read_out()

    @staticmethod
    def _some(blocks: BlockErrors) -> bool:
        return bool(blocks.m.any() or blocks.v.any())

    def _on_hovered(self, at: float | None) -> None:
        self._hovered = at
        self._read_out()

    def _read_out(self) -> None:
        blocks = self.blocks
        if blocks is None or not len(blocks.m):
            self.set_titles("rms error by block of 256", "by block")
            return
        at = None if self._hovered is None else round(self._hovered) // blocks.group
        if at is not None and 0 <= at < len(blocks.m):
            first, last = at * blocks.group, min((at + 1) * blocks.group, blocks.blocks) - 1
            where = f"block {first:,}" if first == last else f"worst of blocks {first:,} to {last:,}"
            values = "  ".join(f"{lane} {fmt.number(float(_lane(blocks, lane)[at]), 3)}" for lane in MOMENTS)
            self.set_titles(f"{where}: {values}", values)
            return
        self.set_titles(
            f"rms error by block of 256, ▼ worst · {blocks.param}",
            f"by block, ▼ worst · {blocks.param}",
            f"by block · {blocks.param}",
            "by block, ▼ worst",
            "by block",
        )

    def _restyle_items(self) -> None:
        for lane in MOMENTS:
            colour = theme.LANE_COLOURS[lane]
            self.curves[lane].setPen(line_pen(colour))
            self.worst[lane].setBrush(pg.mkBrush(colour))
            self.worst[lane].setPen(line_pen(theme.colours().text))


class ErrorHistogram(FittedTitle):
    """How many elements err by how much: |error| of m and v in powers of two, counts on a logarithmic axis."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(
            left=Axis("left", whole=True, log=True),
            bottom=Axis("bottom", whole=True, text=power_of_two),
            parent=parent,
        )
        self.error: ParamCodingError | None = None
        self._hovered: float | None = None
        self.bars = {lane: pg.PlotCurveItem([0, 1], [0], stepMode="center") for lane in MOMENTS}
        for item in self.bars.values():
            self.box.addItem(item, ignoreBounds=True)
        low_axis(self)
        self.box.setMouseEnabled(x=False, y=False)
        self.hovered.connect(self._on_hovered)
        theme.changes().changed.connect(self._restyle_items)
        self._restyle_items()
        self.show_error(None, "")

    def show_error(self, error: ParamCodingError | None, absent: str) -> None:
        """Draw the errors of a param, or of all as one; `absent` says why there are none."""
        self.error = error
        lanes = {"m": error.m, "v": error.v} if error else {}
        filled = [e for lane in lanes.values() for e in lane.log2_range() or ()]
        self.set_message(absent if error is None else "" if filled else _EXACT)
        self.bottom.setStyle(showValues=not self.message)
        low = max((min(filled) if filled else 0) - MARGIN_BINS, -EXPONENT_BIAS)
        high = (max(filled) if filled else 1) + MARGIN_BINS
        floor = math.log10(0.5)
        peak = 0.0
        for lane, bars in self.bars.items():
            heights = np.full(high - low + 1, floor)
            if lane in lanes:
                part = lanes[lane].exponents[low + EXPONENT_BIAS : high + EXPONENT_BIAS + 1]
                heights[: len(part)] = bar_heights(part, log=True)
                peak = max(peak, float(heights.max()))
            bars.setVisible(lane in lanes)
            bars.setFillLevel(floor)
            bars.setData(np.arange(len(heights) + 1) + low, heights)
        self.box.setXRange(low, high + 1, padding=0)
        self.set_y_bounds((floor, peak or 1.0))
        self._read_out()

    def _on_hovered(self, at: float | None) -> None:
        self._hovered = at
        self._read_out()

    def _read_out(self) -> None:
        error = self.error
        if error is None:
            self.set_titles("elements by |error|", "by |error|")
            return
        if self._hovered is not None and -EXPONENT_BIAS <= self._hovered < BINS - EXPONENT_BIAS:
            exponent = math.floor(self._hovered)
            counts = "  ".join(
                f"{name} {_count(lane, exponent):,}" for name, lane in (("m", error.m), ("v", error.v))
            )
            self.set_titles(f"{bin_text(exponent)}: {counts}", f"{power_of_two(exponent)}: {counts}", counts)
            return
        whose = error.name or "all params"
        self.set_titles(f"elements by |error| · {whose}", f"by |error| · {whose}", "by |error|")

    def _restyle_items(self) -> None:
        for lane, bars in self.bars.items():
            colour = theme.LANE_COLOURS[lane]
            bars.setPen(line_pen(colour))
            bars.setBrush(pg.mkBrush(theme.faded(colour, 0.3)))


def low_axis(chart: Chart) -> None:
    """Numbers on the x axis, its name left to the title: four plots share a low panel."""
    chart.show_bottom_axis("")
    chart.bottom.showLabel(False)
    chart.bottom.setHeight(chart.bottom_height // 2 + theme.GRID)


_EXACT = "No element has an error."


def _lane(blocks: BlockErrors, lane: str) -> F32Array:
    return blocks.m if lane == "m" else blocks.v


def _count(lane: LaneCodingError, exponent: int) -> int:
    return int(lane.exponents[exponent + EXPONENT_BIAS])


def _log10(values: F32Array) -> F64Array:
    """Blocks without an error are left out."""
    wide = values.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(wide > 0, np.log10(wide), np.nan)
