"""What each kernel costs: its time over steps, and a table of last, median and share of the step."""

from __future__ import annotations

import math

import numpy as np
from PySide6.QtCore import Qt
from PySide6.QtGui import QKeyEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QLabel, QSplitter, QVBoxLayout, QWidget

from inspector.history import EMPTY_HISTORY, History
from inspector.runtime.snapshots import Snapshot
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.step_chart import StepChart, bucket_at, bucket_steps, picked_step, read_out
from inspector.ui.tables import dense_table, set_widths
from inspector.ui.timing_model import TimingModel
from inspector.ui.view import View, same_run

BESIDE_FROM = 800
TABLE_WIDTH = 440


class TimingView(View):
    """A curve a kernel, and a table of them that has a sample of each line; the one selected is in the accent."""

    PERIOD_S = 0.2

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("timing")
        self._snapshot: Snapshot | None = None
        self._shown: tuple[object, ...] = ()
        self._history: History = EMPTY_HISTORY
        self._clock = "GPU"
        self._follow = True
        self.chart = StepChart(log=True)
        self.chart.show_bottom_axis("step")
        self.chart.hovered.connect(self._on_hovered)
        self.chart.all_wanted.connect(self._on_all_wanted)
        self.chart.picked.connect(self._on_picked)
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
        if not same_run(self._snapshot, snapshot):
            self._follow = True
        self._snapshot = snapshot
        if self.isVisible():
            self._update()

    def showEvent(self, event: QShowEvent) -> None:
        """Catch up with what came while nobody looked."""
        super().showEvent(event)
        self._update()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Home shows all steps; plus, minus and the arrows zoom and move."""
        if event.key() == Qt.Key.Key_Home:
            self._on_all_wanted()
        elif not self.chart.take_key(event.key()):
            super().keyPressEvent(event)

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
        kinds = ("ms", "cold")
        styles = [
            (f"{kind}/{k}", self.model.dash(i)) for kind in kinds for i, k in enumerate(self.model.kernels)
        ]
        styles = [style for style in styles if style[0] in self._history.series]
        names = [name for name, _ in styles]
        self.chart.show_history(self._history, names, [dash for _, dash in styles])
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
        self.model.select(self.table.currentIndex().row())
        self.chart.select_trace(self._selected_name())
        self._on_hovered(None)

    def _on_moved_by_hand(self) -> None:
        self._follow = False

    def _on_all_wanted(self) -> None:
        self._follow = True
        self._draw_curves()

    def _on_picked(self, at: float) -> None:
        seek = picked_step(self._snapshot, at)
        if seek is not None:
            self.command.emit(seek)

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
                title += f"  {_kernel(each)} {text}"
        elif name:
            title += f"  {_kernel(name)}"
        self.chart.set_title(title)
        self.chart.show_cross(float(history.first[bucket]) if bucket is not None else None)


def _kernel(name: str) -> str:
    """A series as a person names it."""
    kind, _, kernel = name.partition("/")
    return f"{kernel} (cold)" if kind == "cold" else kernel
