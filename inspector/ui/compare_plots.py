"""What two recordings differ in as plots: elements by ULP, and one param over steps."""

from __future__ import annotations

import math
from types import MappingProxyType

import numpy as np
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QVBoxLayout, QWidget

from inspector.floats import F64Array
from inspector.history import EMPTY_HISTORY, History, Series
from inspector.session.diff_report import DiffReport, ParamCurves
from inspector.stores import LANES, Lane
from inspector.ui import format as fmt
from inspector.ui.bars import BarChart, low_axis
from inspector.ui.compare_model import ulp_text
from inspector.ui.magnitudes import LOG_FLOOR, bar_heights, power_of_two
from inspector.ui.readouts import bucket_at, read_out
from inspector.ui.step_chart import StepChart

RELATIVE, ULP = "relative", "ulp"


class UlpHistogram(BarChart):
    """Elements of a lane by how many ULP they are apart: 0, then powers of two; counts on a logarithmic axis."""

    def __init__(self, parent: QWidget | None = None) -> None:
        self._counts: tuple[int, ...] = ()
        self._lane: Lane = "w"
        super().__init__(LANES, counts=True, filled=True, text=_bin_tick, parent=parent)
        self.setToolTip(
            "How many elements are how many float32 values (ULP) apart, over all steps captured in both."
        )
        self.show_report(None, "w", "")

    def show_report(self, report: DiffReport | None, lane: Lane, absent: str) -> None:
        """Draw a lane of a comparison; `absent` says why there is nothing to draw."""
        self._lane = lane
        self._counts = report.histograms.get(lane, ()) if report else ()
        counts = np.array(self._counts, np.int64)
        filled = np.flatnonzero(counts)
        bins = max(int(filled[-1]) + 2 if len(filled) else 0, 8)
        heights = bar_heights(counts[:bins], log=True)
        self.show_bars(
            {lane: np.arange(len(heights) + 1, dtype=np.float64)},
            {lane: heights},
            span=(0, bins),
            bounds=(LOG_FLOOR, float(heights.max(initial=0.0)) or 1.0),
            message="" if len(filled) else absent,
        )

    def _titles_at(self, at: float | None) -> tuple[str, ...]:
        if not self._counts:
            return ("elements by ULP",)
        total = sum(self._counts)
        if at is not None and 0 <= at < len(self._counts):
            count = self._counts[math.floor(at)]
            where = _bin_text(math.floor(at), len(self._counts))
            share = fmt.percent(count / total) if total else fmt.NA
            return (
                f"{where}: {count:,} of {total:,} elements of {self._lane} ({share})",
                f"{where}: {count:,}",
            )
        apart = total - self._counts[0]
        return (
            f"elements of {self._lane} by ULP, over all steps: {apart:,} of {total:,} differ",
            f"by ULP: {apart:,} of {total:,} differ",
            "by ULP",
        )


class ParamOverSteps(QWidget):
    """The difference of one param over steps, relative and in ULP, above each other on one axis of steps."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._curves: ParamCurves | None = None
        self._lane: Lane = "w"
        self._hovered: float | None = None
        self._history: History = EMPTY_HISTORY
        self.charts = {RELATIVE: StepChart(log=True), ULP: StepChart(log=True)}
        self.charts[RELATIVE].setToolTip("‖b − a‖ / ‖a‖ of the selected param in each step captured in both.")
        self.charts[ULP].setToolTip(
            "The most float32 values (ULP) that an element of the param is apart, by step."
        )
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        for chart in self.charts.values():
            chart.setFocusPolicy(Qt.FocusPolicy.NoFocus)
            low_axis(chart)
            chart.hovered.connect(self._on_hovered)
            chart.all_wanted.connect(self.show_all)
            column.addWidget(chart, 1)
        self.charts[ULP].box.setXLink(self.charts[RELATIVE].box)
        self.show_curves(None, "w", "")

    def show_curves(self, curves: ParamCurves | None, lane: Lane, absent: str) -> None:
        """Draw a param in a lane: its captured tensors, or where there are none the norms that were counted."""
        same = curves is not None and self._curves is not None and curves.param == self._curves.param
        self._curves, self._lane = curves, lane
        self._history = _history(curves, lane)
        for name, chart in self.charts.items():
            there = name in self._history.series
            chart.show_history(self._history, [name] if there else [])
            chart.set_lanes({name: lane})
            values = self._history.series[name].last if there else np.empty(0)
            chart.set_message(self._absence(name, values, absent))
            chart.bottom.setStyle(showValues=not chart.message)
        if not same:
            self.show_all()
        for chart in self.charts.values():
            chart.draw()
        self._read_out()

    def show_all(self) -> None:
        """Show every step that was compared."""
        first = self._history.first
        if len(first):
            room = max((float(first[-1]) - float(first[0])) * 0.03, 0.5)
            self.charts[RELATIVE].box.setXRange(float(first[0]) - room, float(first[-1]) + room, padding=0)
        for chart in self.charts.values():
            chart.draw()

    def _absence(self, name: str, values: F64Array, absent: str) -> str:
        if self._curves is None:
            return absent if name == RELATIVE else ""
        if not len(values):
            return (
                f"{self._lane} was not captured in both." if name == ULP else "Nothing was captured in both."
            )
        return "" if np.any(values != 0) else "No difference at any step."

    def _on_hovered(self, step: float | None) -> None:
        self._hovered = step
        self._read_out()

    def _read_out(self) -> None:
        history, curves = self._history, self._curves
        at = self._hovered
        bucket = bucket_at(history, at) if at is not None else None
        what = f"‖Δ{self._lane}‖ / ‖{self._lane}‖"
        if curves is not None and self._lane not in curves.steps:
            what = f"|Δ‖{self._lane}‖| / ‖{self._lane}‖"
        param = f" · {curves.param}" if curves is not None else ""
        for name, chart in self.charts.items():
            title = what if name == RELATIVE else f"max ULP of {self._lane}"
            found = read_out(history, name, bucket) if bucket is not None else None
            if found is None or bucket is None:
                chart.set_titles(f"{title} over steps{param}", f"{title}{param}", title)
                chart.show_cross(None)
                continue
            step = int(history.first[bucket])
            value = ulp_text(int(found.last)) if name == ULP else fmt.number(found.last, 4)
            chart.set_titles(
                f"{title}  {value} · step {step:,}{param}", f"{title}  {value} · step {step:,}", value
            )
            chart.show_cross(float(step))


def _history(curves: ParamCurves | None, lane: Lane) -> History:
    """The curves of a lane as a plot over steps takes them, each step its own bucket."""
    if curves is None:
        return EMPTY_HISTORY
    columns: dict[str, F64Array] = {}
    if lane in curves.steps:
        steps = curves.steps[lane]
        columns = {RELATIVE: curves.relative[lane], ULP: curves.ulp[lane].astype(np.float64)}
    elif (norm := f"‖{lane}‖") in curves.norms:
        steps = curves.norm_steps[norm]
        columns = {RELATIVE: curves.norms[norm]}
    else:
        return EMPTY_HISTORY
    gaps = {name: np.isnan(values).astype(np.uint32) for name, values in columns.items()}
    series = {name: Series(values, values, values, gaps[name]) for name, values in columns.items()}
    return History(1, steps, MappingProxyType(series), 1)


def _bin_tick(at: float) -> str:
    return "0" if at < 1 else power_of_two(round(at) - 1)


def _bin_text(bin_: int, bins: int) -> str:
    if bin_ == 0:
        return "the same bits, or 0 ULP"
    if bin_ == 1:
        return "1 ULP"
    if bin_ == bins - 1:
        return f"{power_of_two(bin_ - 1)} ULP or more, or NaN beside a number"
    return f"{power_of_two(bin_ - 1)} to {power_of_two(bin_)} ULP"
