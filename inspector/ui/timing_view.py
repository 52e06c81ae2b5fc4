"""What each kernel costs: its time over steps, and a table of last, median and share of the step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from PySide6.QtCore import QAbstractTableModel, QModelIndex, Qt
from PySide6.QtGui import QResizeEvent, QShowEvent
from PySide6.QtWidgets import QLabel, QSplitter, QVBoxLayout, QWidget

from inspector.floats import F64Array
from inspector.history import EMPTY_HISTORY, History
from inspector.plan import Plan
from inspector.runtime.snapshots import Snapshot
from inspector.stepping import KernelTime
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.step_chart import StepChart, bucket_at, bucket_steps, read_out
from inspector.ui.tables import FIGURES, WORDS, AnyIndex, dense_table, set_widths
from inspector.ui.view import View

BESIDE_FROM = 800
TABLE_WIDTH = 440
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


class TimingModel(QAbstractTableModel):
    """The kernels of the plan and what they took. A row is worked out when it is looked at."""

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

    def rowCount(self, parent: AnyIndex = QModelIndex()) -> int:  # noqa: B008 - Qt's own signature
        """One row a kernel."""
        return 0 if parent.isValid() else len(self.kernels)

    def columnCount(self, parent: AnyIndex = QModelIndex()) -> int:  # noqa: B008
        """See COLUMNS."""
        return 0 if parent.isValid() else len(COLUMNS)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = 0) -> Any:
        """The column's name."""
        if orientation != Qt.Orientation.Horizontal:
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            return COLUMNS[section]
        return _alignment(section) if role == Qt.ItemDataRole.TextAlignmentRole else None

    def data(self, index: AnyIndex, role: int = 0) -> Any:
        """The text of a cell."""
        column = index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            row = self.row(index.row())
            share = fmt.NA if row.share is None else f"{100 * row.share:.1f} %"
            times = fmt.milliseconds(row.last), fmt.milliseconds(row.median)
            return (row.kernel, row.clock, *times, share)[column]
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _alignment(column)
        if role == Qt.ItemDataRole.ToolTipRole:
            return _TOOLTIPS[column] if column else self.kernels[index.row()]
        return None


class TimingView(View):
    """A curve a kernel, and a table of them; the one selected is drawn in the accent."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("timing")
        self._snapshot: Snapshot | None = None
        self._shown: tuple[object, ...] = ()
        self._history: History = EMPTY_HISTORY
        self._clock = "GPU"
        self._follow = True
        self.chart = StepChart(log=True, named=True)
        self.chart.show_bottom_axis("step")
        self.chart.hovered.connect(self._on_hovered)
        self.chart.all_wanted.connect(self._on_all_wanted)
        self.chart.box.sigRangeChangedManually.connect(self._on_moved_by_hand)
        self.model = TimingModel()
        self.table = dense_table(self.model, "kernel-times")
        set_widths(self.table, ("", "gpu, cold", "88.8 ms", "88.8 ms", "88.8 %"), stretch=0)
        self.table.selectionModel().currentRowChanged.connect(self._on_row_changed)
        self.total = QLabel(" ")
        self.total.setContentsMargins(theme.GRID, 0, theme.GRID, theme.GRID)
        self.total.setMinimumWidth(1)
        self.total.setWordWrap(True)
        self._splitter = splitter = QSplitter(Qt.Orientation.Vertical)
        splitter.addWidget(self.chart)
        splitter.addWidget(self.table)
        splitter.setChildrenCollapsible(False)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(0)
        outer.addWidget(splitter, 1)
        outer.addWidget(self.total)
        self.chart.set_message("No step has been timed yet: F11 runs one.")

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Draw what has been measured up to this moment."""
        self._snapshot = snapshot
        if self.isVisible():
            self._update()

    def showEvent(self, event: QShowEvent) -> None:
        """Catch up with what came while nobody looked."""
        super().showEvent(event)
        self._update()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The table beside the curves where the view is wide and low, else below."""
        super().resizeEvent(event)
        wide = self.width() > max(2.2 * self.height(), BESIDE_FROM)
        beside = Qt.Orientation.Horizontal if wide else Qt.Orientation.Vertical
        if beside != self._splitter.orientation() or not event.oldSize().isValid():
            self._splitter.setOrientation(beside)
            whole = self.width() if wide else self.height()
            second = TABLE_WIDTH if wide else whole * 2 // 5
            self._splitter.setSizes([whole - second, second])

    def _update(self) -> None:
        snapshot = self._snapshot
        if snapshot is None:
            return
        known = snapshot.cursor is not None and len(snapshot.history) > 0
        self.chart.show_current(snapshot.cursor.step if known and snapshot.cursor else None)
        shown = (snapshot.plan, snapshot.history, snapshot.dispatch_times)
        if len(shown) == len(self._shown) and all(a is b for a, b in zip(shown, self._shown, strict=True)):
            return
        self._shown = shown
        self._history = snapshot.history
        self.model.show(snapshot.plan, snapshot.dispatch_times, snapshot.history)
        self._clock = "CPU" if self.model.on_cpu else "GPU"
        kernels, missing = len(self.model.kernels), int(np.isnan(self.model.last).sum())
        words = " "
        if missing < kernels:
            words = f"Step: {fmt.milliseconds(self.model.total)} of {self._clock} time"
        if 0 < missing < kernels:
            words += f", {fmt.plural(missing, 'kernel')} n/a"
        if self._clock == "CPU":
            words += " (no timestamp queries here: wall time seen by the CPU)"
        self.total.setText(words)
        self._draw_curves()

    def _draw_curves(self) -> None:
        names = [n for k in self.model.kernels if (n := f"ms/{k}") in self._history.series]
        self.chart.show_history(self._history, names)
        self.chart.set_message("" if names else "No step has been timed yet: F11 runs one.")
        if self._follow and len(self._history):
            first = float(self._history.first[0])
            last = float(self._history.first[-1] + self._history.stride - 1)
            room = max((last - first) * 0.01, 0.5)
            self.chart.box.setXRange(first - room, last + room, padding=0)
        self.chart.draw()
        self._on_hovered(None)

    def _selected_name(self) -> str:
        row = self.table.currentIndex().row()
        return f"ms/{self.model.kernels[row]}" if 0 <= row < len(self.model.kernels) else ""

    def _on_row_changed(self) -> None:
        self._draw_curves()
        self.chart.select_trace(self._selected_name())
        self._on_hovered(None)

    def _on_moved_by_hand(self) -> None:
        self._follow = False

    def _on_all_wanted(self) -> None:
        self._follow = True
        self._draw_curves()

    def _on_hovered(self, step: float | None) -> None:
        """Read out the selected kernel, or the costliest, in the title."""
        title = f"{self._clock} time (ms)"
        history = self._history
        name = self._selected_name()
        bucket = bucket_at(history, step) if step is not None else None
        if bucket is not None:
            title = f"{bucket_steps(history, bucket)}, {title}"
            names = [name] if name else self.chart.trace_names()[:2]
            for each in names:
                value = read_out(history, each, bucket)
                text = fmt.NA if value is None or math.isnan(value.last) else fmt.milliseconds(value.last)
                title += f"  {each.removeprefix('ms/')} {text}"
        elif name:
            title += f"  {name.removeprefix('ms/')}"
        self.chart.set_title(title)
        self.chart.show_cross(float(history.first[bucket]) if bucket is not None else None)


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


def _alignment(column: int) -> Qt.AlignmentFlag:
    return FIGURES if column >= 2 else WORDS


_TOOLTIPS = (
    "",
    "gpu: timestamp queries. cpu: wall time. cold: measured at low clocks, after the GPU had idled.",
    "The latest time of this kernel.",
    f"The median over the last {RECENT} recorded points; n/a is left out.",
    "Its part of the step, by the latest times.",
)
