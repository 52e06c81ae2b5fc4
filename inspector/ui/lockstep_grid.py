"""The four plots of 8-bit state: drift and errors over steps, errors by block, and their histogram."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QGridLayout, QWidget

from inspector.floats import F64Array
from inspector.history import EMPTY_HISTORY, History
from inspector.runtime.beside import Overlay
from inspector.runtime.lockstep import EightBitPicture
from inspector.ui import format as fmt
from inspector.ui.bars import low_axis
from inspector.ui.curves import has_values
from inspector.ui.lockstep_model import percent
from inspector.ui.lockstep_plots import BlockChart, ErrorHistogram
from inspector.ui.overlay_style import SIGNS, difference, shown
from inspector.ui.readouts import bucket_at, bucket_steps, read_out, read_out_at
from inspector.ui.step_chart import StepChart

DRIFT, M_ERROR, V_ERROR = "lockstep/drift", "coding/m", "coding/v"
START = "L starts 8-bit state beside."
NEXT_STEP = "After the next step (F11)."


MEANS = (
    "‖Δw‖ / ‖w‖: how far the weights of the run with 8-bit state are from those of the run with float32 state.",
    "Root mean square error of m and v in each block of 256 elements of the param; ▼ marks the worst block.",
    "Root mean square error of coding m and v, over the root mean square of each.",
    "How many elements of m and v err by how much, in powers of two. Logarithmic counts.",
)


class LockstepGrid(QWidget):
    """Two plots over steps that share their x axis and follow the run until it is moved by hand, and two of a param.

    `picked` carries the x of a click with Ctrl in a plot over steps.
    """

    picked = Signal(float)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._picture: EightBitPicture | None = None
        self._history: History = EMPTY_HISTORY
        self._overlays: tuple[Overlay, ...] = ()
        self._follow = True
        self._hovered: float | None = None
        self._absent = ""
        self.drift, self.errors = StepChart(log=True), StepChart(log=True)
        self.blocks, self.histogram = BlockChart(), ErrorHistogram()
        self.errors.box.setXLink(self.drift.box)
        for chart in self._over_steps:
            low_axis(chart)
            chart.hovered.connect(self._on_hovered)
            chart.all_wanted.connect(self.show_all)
            chart.picked.connect(self.picked)
            chart.box.sigRangeChangedManually.connect(self._on_moved_by_hand)
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setSpacing(0)
        for i, each in enumerate((self.drift, self.blocks, self.errors, self.histogram)):
            each.setToolTip(MEANS[i])
            each.setFocusPolicy(Qt.FocusPolicy.NoFocus)
            grid.addWidget(each, i // 2, i % 2)
        for i in range(2):
            grid.setRowStretch(i, 1)
            grid.setColumnStretch(i, 1)
        self.drift.set_lanes({DRIFT: "w"})
        self.errors.set_lanes({M_ERROR: "m", V_ERROR: "v"})

    @property
    def _over_steps(self) -> tuple[StepChart, StepChart]:
        return self.drift, self.errors

    def show_current(self, step: int | None, absent: str) -> None:
        """Move the line of the step on show; `absent` says why no errors of it are at hand, "" where they are."""
        self._absent = absent
        for chart in self._over_steps:
            chart.show_current(step)

    def show_steps(
        self, picture: EightBitPicture | None, history: History, overlays: Sequence[Overlay] = ()
    ) -> None:
        """Draw what was measured over steps, and the errors of recordings with 8-bit state."""
        self._picture, self._history = picture, history
        self._overlays = tuple(replace(o, history=o.coding) for o in shown(overlays) if len(o.coding))
        for chart, names in ((self.drift, (DRIFT,)), (self.errors, (M_ERROR, V_ERROR))):
            chart.show_history(history, [name for name in names if name in history.series])
            under = self._overlays if chart is self.errors else ()
            chart.show_overlays(under, names=names)
            some = bool(under) or any(has_values(history.series.get(name)) for name in names)
            chart.set_message("" if some else self._absence(drift=chart is self.drift))
            chart.bottom.setStyle(showValues=not chart.message)
        self._set_range()
        self._read_out()

    def show_param(self, picture: EightBitPicture | None, selected: str, shown: str) -> None:
        """Draw the blocks of the param `shown`, and the histogram of the one selected or of all."""
        self._picture = picture
        blocks = picture.blocks if picture else None
        if blocks is not None and blocks.param != shown:
            # An answer to an older question waits unseen.
            blocks = None
        absent = self._absence(drift=False)
        self.blocks.show_blocks(blocks, "Reading …" if shown else absent)
        error = None
        if picture is not None:
            own = next((e for e in picture.coding if e.name == selected), None)
            error = own or picture.coding_total
        self.histogram.show_error(error if error and error.numel else None, absent)

    def show_all(self) -> None:
        """Show every step that was measured, and follow the run again."""
        self._follow = True
        self._set_range()

    def _on_hovered(self, step: float | None) -> None:
        self._hovered = step
        self._read_out()

    def _on_moved_by_hand(self) -> None:
        self._follow = False

    def _set_range(self) -> None:
        history = self._history
        known = [history.series[n].last for n in (DRIFT, M_ERROR) if n in history.series]
        ends = [float(o.history.first[i]) for o in self._overlays for i in (0, -1)]
        if known and len(history):
            # From where it was measured first: what ran before has nothing to show.
            seen = [first for first in (_first_known(values) for values in known) if first is not None]
            ends.append(float(history.first[min(seen)]) if seen else float(history.first[0]))
            ends.append(float(history.first[-1]) + max(history.stride - 1, 0))
        if self._follow and ends:
            room = max((max(ends) - min(ends)) * 0.01, 0.5)
            self.drift.box.setXRange(min(ends) - room, max(ends) + room, padding=0)
        for chart in self._over_steps:
            chart.draw()

    def _absence(self, *, drift: bool) -> str:
        picture = self._picture
        if picture is None:
            return self._absent or "No source is open."
        if picture.companion is not None or picture.waiting or (picture.primary == "8bit" and not drift):
            return NEXT_STEP
        if picture.primary == "8bit":
            return "L starts float32 state beside."
        return START

    def _read_out(self) -> None:
        history = self._history
        at = self._hovered
        if at is None and len(history):
            at = float(history.first[-1])
        elif at is None and self._overlays:
            at = max(float(o.history.first[-1]) for o in self._overlays)
        bucket = bucket_at(history, at) if at is not None else None
        values = {}
        measured = {}
        for name in (DRIFT, M_ERROR, V_ERROR):
            found = read_out(history, name, bucket) if bucket is not None else None
            values[name] = None if found is None else found.last
            measured[name] = found is not None and not (math.isnan(found.last) and not found.gaps)
        where = (
            f" · {bucket_steps(history, bucket)}" if bucket is not None and self._hovered is not None else ""
        )
        drift = (
            "" if values[DRIFT] is None else f"  {fmt.number(values[DRIFT] if measured[DRIFT] else None, 3)}"
        )
        long, short = "drift ‖Δw‖ / ‖w‖ over steps", "drift"
        self.drift.set_titles(*(f"{text}{drift}{where}" for text in (long, short)), f"{short}{drift}")
        m, v = values[M_ERROR], values[V_ERROR]
        errors = "" if m is None or v is None else f"  m {percent(m)}  v {percent(v)}"
        long, short = "rms error / rms over steps", "rms error"
        step = None if at is None else float(round(at) if bucket is None else history.first[bucket])
        under = "".join(self._under_text(name, step, values[name]) for name in (M_ERROR, V_ERROR))
        texts = (
            *((f"{short}{errors}{under}{where}", f"{errors}{under}".strip()) if under else ()),
            f"{long}{errors}{where}",
            f"{short}{errors}{where}",
            f"{short}{errors}",
            errors.strip() or short,
        )
        self.errors.set_titles(*texts)
        for chart in self._over_steps:
            there = bucket is not None and self._hovered is not None
            chart.show_cross(float(history.first[bucket]) if there and bucket is not None else None)

    def _under_text(self, name: str, step: float | None, value: float | None) -> str:
        """What the recordings have of an error at the step nearest to `step`, and the difference at the same one."""
        words: list[str] = []
        for overlay in self._overlays if step is not None else ():
            assert step is not None
            found = read_out_at(overlay.history, name, step)
            bucket = bucket_at(overlay.history, step)
            if found is None or bucket is None:
                continue
            text = f"{SIGNS[overlay.slot]} {percent(found.last)}"
            at = int(overlay.history.first[bucket])
            if at != step:
                text += f" at {at:,}"
            elif value is not None and not math.isnan(value):
                text += f" ({difference(100 * value, 100 * found.last)})"
            words.append(text)
        lane = name.rpartition("/")[2]
        return f"  {lane} {' '.join(words)}" if words else ""


def _first_known(values: F64Array) -> int | None:
    known = np.flatnonzero(~np.isnan(values))
    return int(known[0]) if len(known) else None
