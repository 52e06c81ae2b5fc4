"""A step of another program against here as plots: elements by ULP, and the worst of each step that was compared."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from PySide6.QtWidgets import QWidget

from inspector.history import EMPTY_HISTORY, History
from inspector.session.verdicts import ParamVerdict
from inspector.step_ulp import BINS, bin_text
from inspector.stores import Lane
from inspector.ui import format as fmt
from inspector.ui.bars import BarChart, low_axis
from inspector.ui.magnitudes import LOG_FLOOR, bar_heights
from inspector.ui.readouts import bucket_at, read_out
from inspector.ui.step_chart import StepChart
from inspector.ui.verify_model import ulp_text

LANES: tuple[Lane, ...] = ("w", "m", "v")


class UlpBars(BarChart):
    """Elements of each lane by how many ULP they are apart, doubling; counts on a logarithmic axis."""

    def __init__(self, parent: QWidget | None = None) -> None:
        self._counts: dict[Lane, np.ndarray] = {}
        self._of = ""
        super().__init__(LANES, counts=True, filled=False, text=_tick, parent=parent)
        self.setToolTip("How many elements of w, m and v are apart by how many ULP, recorded against here.")
        self.show_params((), "", "")

    def show_params(self, params: Sequence[ParamVerdict], of: str, absent: str) -> None:
        """Draw these params together, which are `of` what; `absent` says why there is nothing to draw."""
        self._of = of
        self._counts = {
            lane: np.sum([p.lanes[lane].histogram for p in params], axis=0) for lane in LANES if params
        }
        filled = [int(np.flatnonzero(counts)[-1]) for counts in self._counts.values() if counts.any()]
        bins = max(max(filled, default=0) + 2, 8)
        edges = np.arange(bins + 1, dtype=np.float64)
        heights = {lane: bar_heights(counts[:bins], log=True) for lane, counts in self._counts.items()}
        edges_of = {lane: edges[: len(each) + 1] for lane, each in heights.items()}
        top = max((float(each.max(initial=0.0)) for each in heights.values()), default=0.0)
        self.show_bars(
            edges_of,
            heights,
            span=(0, bins),
            bounds=(LOG_FLOOR, top or 1.0),
            message="" if filled else absent,
        )

    def _titles_at(self, at: float | None) -> tuple[str, ...]:
        if not self._counts:
            return ("elements by ULP",)
        total = int(self._counts["w"].sum())
        if at is not None and 0 <= at < BINS:
            counts = " · ".join(f"{lane} {int(self._counts[lane][math.floor(at)]):,}" for lane in LANES)
            return (f"{bin_text(math.floor(at))}: {counts} of {total:,} elements of {self._of}", counts)
        return (f"elements of {self._of} by ULP: {total:,} in each of w, m and v", "elements by ULP")


class WorstOverSteps(StepChart):
    """The largest ULP of w, m and v in each step that was compared."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(log=True, parent=parent)
        self._shown: History = EMPTY_HISTORY
        self._at: float | None = None
        low_axis(self)
        self.set_lanes({lane: lane for lane in LANES})
        self.hovered.connect(self._on_hovered)
        self.all_wanted.connect(self.show_all)
        self.setToolTip("The largest difference of w, m and v in ULP, of each step that was compared.")
        self.show_worst(EMPTY_HISTORY, "")

    def show_worst(self, history: History, absent: str) -> None:
        """Draw these steps; `absent` says why there are none."""
        grown = len(history) != len(self._shown)
        self._shown = history
        self.show_history(history, list(LANES) if len(history) else [])
        self.set_message("" if len(history) else absent)
        self.bottom.setStyle(showValues=bool(len(history)))
        if grown:
            self.show_all()
        self.draw()
        self._read()

    def show_all(self) -> None:
        """Show every step that was compared."""
        first = self._shown.first
        if len(first):
            room = max((float(first[-1]) - float(first[0])) * 0.03, 0.5)
            self.box.setXRange(float(first[0]) - room, float(first[-1]) + room, padding=0)
        self.draw()

    def _on_hovered(self, at: float | None) -> None:
        self._at = at
        self._read()

    def _read(self) -> None:
        bucket = bucket_at(self._shown, self._at) if self._at is not None else None
        if bucket is None or not len(self._shown):
            compared = fmt.plural(len(self._shown), "step")
            self.set_titles(
                f"largest ULP of w, m and v over steps · {compared} compared", "largest ULP over steps"
            )
            self.show_cross(None)
            return
        step = int(self._shown.first[bucket])
        found = {lane: read_out(self._shown, lane, bucket) for lane in LANES}
        texts = (f"{lane} {ulp_text(each.last)}" for lane, each in found.items() if each is not None)
        self.set_titles(f"step {step:,}: {' · '.join(texts)} ULP at most")
        self.show_cross(float(step))


def _tick(at: float) -> str:
    """The edge of two bins, in ULP."""
    edge = round(at)
    return "0" if edge == 1 else f"{2.0 ** (edge - 3):g}" if 1 < edge < BINS else ""
