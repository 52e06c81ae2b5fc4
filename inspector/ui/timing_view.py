"""What each kernel costs: its time over steps, and a table of last, median and share of the step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from PySide6.QtCore import QAbstractTableModel, QModelIndex, Qt
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QLabel, QSplitter, QVBoxLayout, QWidget

from inspector.history import EMPTY_HISTORY, History
from inspector.plan import Plan
from inspector.runtime.snapshots import Snapshot
from inspector.stepping import KernelTime
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.step_chart import StepChart, bucket_at, bucket_steps, read_out
from inspector.ui.tables import FIGURES, WORDS, AnyIndex, dense_table, set_widths
from inspector.ui.view import View

RECENT = 256
"""Buckets the median is taken over."""
MOST_CURVES = 6
COLUMNS = ("kernel", "clock", "last", "median", "share")


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One line of the table, times in ms; None is n/a. A label that several dispatches share is their sum."""

    label: str
    last: float | None
    median: float | None
    share: float | None
    clock: str


class TimingModel(QAbstractTableModel):
    """The kernels of the plan and what they took."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: tuple[KernelRow, ...] = ()

    def show_rows(self, rows: tuple[KernelRow, ...]) -> None:
        """Replace the lines; the selection stays where their number does."""
        if len(rows) != len(self.rows):
            self.beginResetModel()
            self.rows = rows
            self.endResetModel()
            return
        self.rows = rows
        if rows:
            self.dataChanged.emit(self.index(0, 0), self.index(len(rows) - 1, len(COLUMNS) - 1))

    def rowCount(self, parent: AnyIndex = QModelIndex()) -> int:  # noqa: B008 - Qt's own signature
        """One row a label."""
        return 0 if parent.isValid() else len(self.rows)

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
        row, column = self.rows[index.row()], index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            share = fmt.NA if row.share is None else f"{100 * row.share:.1f} %"
            times = fmt.milliseconds(row.last), fmt.milliseconds(row.median)
            return (row.label, row.clock, *times, share)[column]
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _alignment(column)
        if role == Qt.ItemDataRole.ToolTipRole:
            return _TOOLTIPS[column] if column else row.label
        return None


class TimingView(View):
    """Curves of the costliest kernels over a table of all of them; a selected line is drawn in the accent."""

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
        splitter = QSplitter(Qt.Orientation.Vertical)
        splitter.addWidget(self.chart)
        splitter.addWidget(self.table)
        splitter.setStretchFactor(0, 3)
        splitter.setStretchFactor(1, 2)
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

    def _update(self) -> None:
        snapshot = self._snapshot
        if snapshot is None:
            return
        self.chart.show_current(snapshot.cursor.step if snapshot.cursor else None)
        shown = (snapshot.plan, snapshot.history, snapshot.dispatch_times)
        if len(shown) == len(self._shown) and all(a is b for a, b in zip(shown, self._shown, strict=True)):
            return
        self._shown = shown
        self._history = snapshot.history
        rows = kernel_rows(snapshot.plan, snapshot.dispatch_times, snapshot.history)
        self.model.show_rows(rows)
        self._clock = "CPU" if any(row.clock.startswith("cpu") for row in rows) else "GPU"
        total = sum(row.last for row in rows if row.last is not None)
        missing = sum(row.last is None for row in rows)
        words = f"Step: {fmt.milliseconds(total)} of {self._clock} time" if missing < len(rows) else " "
        if 0 < missing < len(rows):
            words += f", {fmt.plural(missing, 'kernel')} n/a"
        if self._clock == "CPU":
            words += " (no timestamp queries here: wall time seen by the CPU)"
        self.total.setText(words)
        self._draw_curves()

    def _draw_curves(self) -> None:
        rows = [row for row in self.model.rows if f"ms/{row.label}" in self._history.series]
        rows.sort(key=lambda row: -(row.median or row.last or 0.0))
        names = [f"ms/{row.label}" for row in rows[:MOST_CURVES]]
        chosen = self._selected_name()
        if chosen in self._history.series and chosen not in names:
            names.append(chosen)
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
        return f"ms/{self.model.rows[row].label}" if 0 <= row < len(self.model.rows) else ""

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


def kernel_rows(
    plan: Plan | None, times: tuple[KernelTime | None, ...], history: History
) -> tuple[KernelRow, ...]:
    """One row a label in plan order. What is n/a is left out of medians."""
    if plan is None:
        return ()
    groups: dict[str, list[KernelTime | None]] = {}
    for i, dispatch in enumerate(plan.dispatches):
        groups.setdefault(dispatch.label, []).append(times[i] if i < len(times) else None)
    last = {label: _sum(each) for label, each in groups.items()}
    total = sum(ms for ms in last.values() if ms is not None)
    return tuple(
        KernelRow(
            label,
            last[label],
            _median(history, label),
            last_ms / total if (last_ms := last[label]) is not None and total > 0 else None,
            _clock(each),
        )
        for label, each in groups.items()
    )


def _sum(times: list[KernelTime | None]) -> float | None:
    known = [t.ms for t in times if t is not None and t.ms is not None]
    return sum(known) if len(known) == len(times) else None


def _median(history: History, label: str) -> float | None:
    series = history.series.get(f"ms/{label}")
    if series is None:
        return None
    recent = series.last[-RECENT:]
    recent = recent[np.isfinite(recent)]
    return float(np.median(recent)) if len(recent) else None


def _clock(times: list[KernelTime | None]) -> str:
    known = [t for t in times if t is not None]
    if not known:
        return ""
    clock = "cpu" if any(t.clock == "cpu" for t in known) else "gpu"
    return f"{clock}, cold" if any(t.cold for t in known) else clock


def _alignment(column: int) -> Qt.AlignmentFlag:
    return FIGURES if column >= 2 else WORDS


_TOOLTIPS = (
    "",
    "gpu: timestamp queries. cpu: wall time. cold: measured at low clocks, after the GPU had idled.",
    "The latest time of this kernel.",
    f"The median over the last {RECENT} recorded points; n/a is left out.",
    "Its part of the step, by the latest times.",
)
