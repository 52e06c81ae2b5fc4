"""What each kernel took, as rows: last, median and share of the step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from PySide6.QtCore import Qt

from inspector.floats import F64Array
from inspector.history import EMPTY_HISTORY, History
from inspector.plan import Plan
from inspector.stepping import KernelTime
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.chart import DASHES, Dash
from inspector.ui.line_sample import line_sample
from inspector.ui.tables import AnyIndex, ColumnsModel

RECENT = 256
"""Buckets the median is taken over."""
COLUMNS = ("kernel", "clock", "last", "median", "share")


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One line of the table, times in ms; None is n/a. A kernel of several dispatches is their sum."""

    kernel: str
    last: float | None
    median: float | None
    share: float | None
    clock: str


class TimingModel(ColumnsModel):
    """The kernels of the plan and what they took. A row is worked out when it is looked at."""

    COLUMNS = COLUMNS
    FIGURE_COLUMNS = frozenset(range(2, len(COLUMNS)))
    MEANS = (
        "The kernel and its block, with the line that it has in the plot; its dispatches of a step are added up.",
        "gpu: timestamp queries. cpu: wall time. cold: measured at low clocks, after the GPU had idled.",
        "The latest time of this kernel.",
        f"The median over the last {RECENT} recorded points; n/a is left out.",
        "Its part of the step, by the latest times.",
    )

    def __init__(self) -> None:
        super().__init__()
        self.kernels: tuple[str, ...] = ()
        """Dispatch.timing_key: the kernel and its block."""
        self.last: F64Array = np.empty(0)
        """ms a kernel, float64; NaN is n/a."""
        self._rows: dict[int, KernelRow] = {}
        self._plan: Plan | None = None
        self._groups: npt.NDArray[np.intp] = np.empty(0, np.intp)
        self._times: tuple[KernelTime | None, ...] = ()
        self._history: History = EMPTY_HISTORY
        self._selected = -1

    def dash(self, number: int) -> Dash:
        """The line style of a kernel."""
        return DASHES[number % len(DASHES)]

    def select(self, number: int) -> None:
        """Take over which kernel is drawn in the accent."""
        self._selected = number
        if self.kernels:
            decoration = [Qt.ItemDataRole.DecorationRole]
            self.dataChanged.emit(self.index(0, 0), self.index(len(self.kernels) - 1, 0), decoration)

    def show(self, plan: Plan | None, times: tuple[KernelTime | None, ...], history: History) -> None:
        """Take over this moment."""
        if plan is not self._plan:
            self.beginResetModel()
            dispatches = plan.dispatches if plan else ()
            keys = [d.timing_key for d in dispatches]
            self.kernels = tuple(dict.fromkeys(keys))
            number = {kernel: i for i, kernel in enumerate(self.kernels)}
            self._groups = np.array([number[key] for key in keys], np.intp)
            self._plan = plan
            self._take(times, history)
            self.endResetModel()
            return
        self._take(times, history)
        if self.kernels:
            last = self.index(len(self.kernels) - 1, len(COLUMNS) - 1)
            self.dataChanged.emit(self.index(0, 0), last)

    def row(self, number: int) -> KernelRow:
        """One line. n/a is left out of the median."""
        if number in self._rows:
            return self._rows[number]
        kernel = self.kernels[number]
        last, total = float(self.last[number]), self.total
        row = self._rows[number] = KernelRow(
            kernel,
            None if math.isnan(last) else last,
            _median(self._history, kernel),
            last / total if total > 0 and not math.isnan(last) else None,
            _clock([t for i in self._dispatches_of(number) if (t := self._times[i]) is not None]),
        )
        return row

    @property
    def total(self) -> float:
        """ms of all kernels that have a time."""
        return float(np.nansum(self.last))

    @property
    def on_cpu(self) -> bool:
        """True where any time is not the GPU's."""
        return any(t is not None and t.clock == "cpu" for t in self._times)

    def _take(self, times: tuple[KernelTime | None, ...], history: History) -> None:
        self._history = history
        self._rows.clear()
        n = len(self._groups)
        self._times = times if len(times) == n else (None,) * n
        ms = np.array([math.nan if t is None or t.ms is None else t.ms for t in self._times], np.float64)
        # One dispatch without a time makes its kernel n/a.
        sums = np.bincount(self._groups, ms, len(self.kernels)) if n else np.empty(0)
        self.last = np.asarray(sums, np.float64)

    def _dispatches_of(self, number: int) -> npt.NDArray[np.intp]:
        return np.flatnonzero(self._groups == number)

    def row_total(self) -> int:
        """One row a kernel."""
        return len(self.kernels)

    def data(self, index: AnyIndex, role: int = 0) -> Any:
        """The text of a cell."""
        column = index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            row = self.row(index.row())
            share = fmt.NA if row.share is None else f"{100 * row.share:.1f} %"
            times = fmt.milliseconds(row.last), fmt.milliseconds(row.median)
            return (row.kernel, row.clock, *times, share)[column]
        if role == Qt.ItemDataRole.DecorationRole and column == 0:
            c = theme.colours()
            # On the ground of a selected row the accent would not be seen.
            colour = c.on_accent if index.row() == self._selected else c.text
            return line_sample(colour, self.dash(index.row()))
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return self.alignment(column)
        if role == Qt.ItemDataRole.ToolTipRole:
            return self.MEANS[column] if column else self.kernels[index.row()]
        return None


def _median(history: History, kernel: str) -> float | None:
    series = history.series.get(f"ms/{kernel}")
    if series is None:
        return None
    recent = series.last[-RECENT:]
    recent = recent[np.isfinite(recent)]
    return float(np.median(recent)) if len(recent) else None


def _clock(times: list[KernelTime]) -> str:
    if not times:
        return ""
    clock = "cpu" if any(t.clock == "cpu" for t in times) else "gpu"
    return f"{clock}, cold" if any(t.cold for t in times) else clock
