"""What views share that are curves over steps and a table with a row a curve: layout, keys, the steps in view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QSplitter, QTableView, QWidget

from inspector.history import EMPTY_HISTORY, History
from inspector.ui import theme
from inspector.ui.readouts import picked_step
from inspector.ui.step_chart import StepChart
from inspector.ui.view import LazyView


class CurvesView(LazyView):
    """A chart and a table of its curves. All steps are in view until somebody zooms or moves them by hand."""

    BESIDE_FROM: ClassVar[int] = 800
    """Pixels of width from which the table may lie beside the chart, in text of usual size."""

    def __init__(self, chart: StepChart, table: QTableView, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._history: History = EMPTY_HISTORY
        self._follow = True
        self.chart = chart
        self.chart.show_bottom_axis("step")
        self.chart.hovered.connect(self._on_hovered)
        self.chart.all_wanted.connect(self._on_all_wanted)
        self.chart.picked.connect(self._on_picked)
        self.chart.box.sigRangeChangedManually.connect(self._on_moved_by_hand)
        self.table = table
        self.table.selectionModel().currentRowChanged.connect(self._on_row_changed)
        self._splitter = QSplitter(Qt.Orientation.Vertical)
        self._splitter.setChildrenCollapsible(False)
        self._splitter.addWidget(self.chart)
        self._splitter.addWidget(self.table)
        self._splitter.splitterMoved.connect(self._on_parted)
        self._parted_by_hand = False

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Home shows all steps; plus, minus and the arrows zoom and move."""
        if event.key() == Qt.Key.Key_Home:
            self._on_all_wanted()
        elif not self.chart.take_key(event.key()):
            super().keyPressEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The table beside the curves where the view is wide and low, else below."""
        super().resizeEvent(event)
        wide = self.width() > max(2.2 * self.height(), theme.scaled(self.BESIDE_FROM))
        beside = Qt.Orientation.Horizontal if wide else Qt.Orientation.Vertical
        if beside != self._splitter.orientation() or not event.oldSize().isValid():
            self._splitter.setOrientation(beside)
            self._parted_by_hand = False
        if not self._parted_by_hand:
            whole = self.width() if wide else self.height()
            second = self._table_width() if wide else whole * 2 // 5
            self._splitter.setSizes([whole - second, second])

    def _on_parted(self) -> None:
        # What a person chose is kept in its proportion.
        self._parted_by_hand = True

    def _table_width(self) -> int:
        """Pixels that the table takes beside the chart."""
        raise NotImplementedError

    def _draw_curves(self) -> None:
        """Draw what is known; it ends in `_show_all` of the steps there are."""
        raise NotImplementedError

    def _show_all(self, ends: Sequence[float]) -> None:
        """Bring every step from the least to the greatest of `ends` into view, unless somebody chose others."""
        if self._follow and ends:
            room = max((max(ends) - min(ends)) * 0.01, 0.5)
            self.chart.box.setXRange(min(ends) - room, max(ends) + room, padding=0)

    def _ends(self) -> list[float]:
        """The first and the last step of the history; none where it is empty."""
        history = self._history
        if not len(history):
            return []
        return [float(history.first[0]), float(history.first[-1] + history.stride - 1)]

    # --- events

    def _on_new_run(self) -> None:
        self._follow = True

    def _on_moved_by_hand(self) -> None:
        self._follow = False

    def _on_all_wanted(self) -> None:
        self._follow = True
        self._draw_curves()

    def _on_picked(self, at: float) -> None:
        seek = picked_step(self._snapshot, at)
        if seek is not None:
            self.command.emit(seek)

    def _on_row_changed(self) -> None:
        raise NotImplementedError

    def _on_hovered(self, step: float | None) -> None:
        raise NotImplementedError
