"""Errors of 8-bit state as plots: by block of a param, and as a histogram of magnitudes."""

from __future__ import annotations

import math

import numpy as np
import pyqtgraph as pg
from PySide6.QtWidgets import QWidget

from inspector.coding_error import LaneCodingError, ParamCodingError
from inspector.floats import F32Array, F64Array
from inspector.runtime.lockstep import BlockErrors
from inspector.statistics import BINS, EXPONENT_BIAS
from inspector.stores import MOMENTS, Lane
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.bars import BarChart, log10_of
from inspector.ui.chart import line_pen
from inspector.ui.magnitudes import LOG_FLOOR, bar_heights, bin_text, power_of_two

MARGIN_BINS = 2
_EXACT = "No element has an error."


class BlockChart(BarChart):
    """Rms error of m and v in each block of a param, on a logarithmic axis, the worst block of either marked."""

    def __init__(self, parent: QWidget | None = None) -> None:
        self.blocks: BlockErrors | None = None
        self.worst = {lane: pg.ScatterPlotItem(pxMode=True, size=9, symbol="t") for lane in MOMENTS}
        super().__init__(MOMENTS, counts=False, filled=False, parent=parent)
        for item in self.worst.values():
            self.box.addItem(item, ignoreBounds=True)
        self.show_blocks(None, "")

    def show_blocks(self, blocks: BlockErrors | None, absent: str) -> None:
        """Draw the blocks of a param; `absent` says why there are none."""
        self.blocks = blocks
        edges: dict[Lane, F64Array] = {}
        heights: dict[Lane, F64Array] = {}
        bounds: list[float] = []
        for lane in MOMENTS:
            logs = log10_of(_lane(blocks, lane).astype(np.float64)) if blocks else np.zeros(0)
            group = blocks.group if blocks else 1
            at = np.minimum(np.arange(len(logs) + 1) * group, blocks.blocks if blocks else 0) - 0.5
            edges[lane], heights[lane] = at, logs
            drawn = logs[np.isfinite(logs)]
            bounds += [float(drawn.min()), float(drawn.max())] if len(drawn) else []
            top = int(np.nanargmax(logs)) if len(drawn) else None
            middle = 0.0 if top is None else float((at[top] + at[top + 1]) / 2)
            self.worst[lane].setData(*(([], []) if top is None else ([middle], [float(logs[top])])))
        last = max((blocks.blocks if blocks else 1) - 0.5, 0.5)
        self.show_bars(
            edges,
            heights,
            span=(-0.5 - 0.01 * last, last * 1.01),
            bounds=(min(bounds), max(bounds)) if bounds else None,
            message=absent if blocks is None else "" if bounds else _EXACT,
        )

    def _titles_at(self, at: float | None) -> tuple[str, ...]:
        blocks = self.blocks
        if blocks is None or not len(blocks.m):
            return "rms error by block of 256", "by block"
        row = None if at is None else round(at) // blocks.group
        if row is not None and 0 <= row < len(blocks.m):
            first, last = row * blocks.group, min((row + 1) * blocks.group, blocks.blocks) - 1
            where = f"block {first:,}" if first == last else f"worst of blocks {first:,} to {last:,}"
            values = "  ".join(f"{lane} {fmt.number(float(_lane(blocks, lane)[row]), 3)}" for lane in MOMENTS)
            return f"{where}: {values}", values
        return (
            f"rms error by block of 256, ▼ worst · {blocks.param}",
            f"by block, ▼ worst · {blocks.param}",
            f"by block · {blocks.param}",
            "by block, ▼ worst",
            "by block",
        )

    def _restyle_items(self) -> None:
        super()._restyle_items()
        for lane, item in self.worst.items():
            item.setBrush(pg.mkBrush(theme.lane_mark(lane)))
            item.setPen(line_pen(theme.colours().text))


class ErrorHistogram(BarChart):
    """How many elements err by how much: |error| of m and v in powers of two, counts on a logarithmic axis."""

    def __init__(self, parent: QWidget | None = None) -> None:
        self.error: ParamCodingError | None = None
        super().__init__(MOMENTS, counts=True, filled=True, text=power_of_two, parent=parent)
        self.show_error(None, "")

    def show_error(self, error: ParamCodingError | None, absent: str) -> None:
        """Draw the errors of a param, or of all as one; `absent` says why there are none."""
        self.error = error
        lanes: dict[Lane, LaneCodingError] = {"m": error.m, "v": error.v} if error else {}
        filled = [e for lane in lanes.values() for e in lane.log2_range() or ()]
        low = max((min(filled) if filled else 0) - MARGIN_BINS, -EXPONENT_BIAS)
        high = (max(filled) if filled else 1) + MARGIN_BINS
        edges: dict[Lane, F64Array] = {}
        heights: dict[Lane, F64Array] = {}
        for lane, errors in lanes.items():
            part = errors.exponents[low + EXPONENT_BIAS : high + EXPONENT_BIAS + 1]
            heights[lane] = bar_heights(part, log=True)
            edges[lane] = np.arange(low, low + len(part) + 1, dtype=np.float64)
        peak = max((float(each.max()) for each in heights.values()), default=0.0)
        self.show_bars(
            edges,
            heights,
            span=(low, high + 1),
            bounds=(LOG_FLOOR, max(peak, 0.0) or 1.0),
            message=absent if error is None else "" if filled else _EXACT,
        )

    def _titles_at(self, at: float | None) -> tuple[str, ...]:
        error = self.error
        if error is None:
            return "elements by |error|", "by |error|"
        if at is not None and -EXPONENT_BIAS <= at < BINS - EXPONENT_BIAS:
            exponent = math.floor(at)
            counts = "  ".join(
                f"{name} {_count(lane, exponent):,}" for name, lane in (("m", error.m), ("v", error.v))
            )
            return f"{bin_text(exponent)}: {counts}", f"{power_of_two(exponent)}: {counts}", counts
        whose = error.name or "all params"
        return f"elements by |error| · {whose}", f"by |error| · {whose}", "by |error|"


def _lane(blocks: BlockErrors, lane: str) -> F32Array:
    return blocks.m if lane == "m" else blocks.v


def _count(lane: LaneCodingError, exponent: int) -> int:
    return int(lane.exponents[exponent + EXPONENT_BIAS])
