"""A wide table whose first column stays in place while the others scroll."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import QAbstractItemModel, QModelIndex, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QHeaderView, QSplitter, QTableView, QWidget

from inspector.ui import theme
from inspector.ui.tables import dense_table

NAMES_WIDTH = 190
"""Pixels that the first column has at least."""


class FrozenTable(QSplitter):
    """Two tables over one model and one selection: `names` shows the first column, `table` the others.

    `header_clicked` carries the column that was clicked, in the numbers of the model.
    """

    header_clicked = Signal(int)

    def __init__(self, model: QAbstractItemModel, name: str, parent: QWidget | None = None) -> None:
        super().__init__(Qt.Orientation.Horizontal, parent)
        self.names = dense_table(model, f"{name}-names")
        self.table = dense_table(model, name)
        self.table.setSelectionModel(self.names.selectionModel())
        self.table.setColumnHidden(0, True)
        # Both have it or neither, so that their rows are as many.
        self.names.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOn)
        self.table.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOn)
        self.names.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        bars = self.names.verticalScrollBar(), self.table.verticalScrollBar()
        bars[0].valueChanged.connect(bars[1].setValue)
        bars[1].valueChanged.connect(bars[0].setValue)
        for table in (self.names, self.table):
            header = table.horizontalHeader()
            header.setSectionsClickable(True)
            header.sectionClicked.connect(self.header_clicked)
            header.setSortIndicatorShown(False)
            self.addWidget(table)
        self.setChildrenCollapsible(False)
        self.setHandleWidth(3)
        self.setStretchFactor(1, 1)
        self._longest = 0
        self._moved = False
        self.splitterMoved.connect(self._on_moved)
        self._hide_others(model)
        model.modelReset.connect(lambda: self._hide_others(model))
        self.setFocusProxy(self.names)

    def fit_names(self, names: Iterable[str]) -> None:
        """Give the first column the width of the longest of these, at most its share of the table."""
        longest = max(names, key=len, default="")
        self._longest = self.fontMetrics().horizontalAdvance(longest) + 4 * theme.GRID
        self._share_room()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The names take their share of the new width."""
        super().resizeEvent(event)
        self._share_room()

    def _share_room(self) -> None:
        # What a person moved stays.
        if self._moved or not self._longest:
            return
        width = max(min(self._longest, self.width() * 2 // 5), NAMES_WIDTH)
        self.names.setColumnWidth(0, width)
        self.setSizes([width, max(self.width() - width, 1)])

    def _on_moved(self) -> None:
        self._moved = True

    def show_sorted(self, column: int | None, *, largest_first: bool = False) -> None:
        """Put the arrow over the column that it is sorted by."""
        order = Qt.SortOrder.DescendingOrder if largest_first else Qt.SortOrder.AscendingOrder
        for table in (self.names, self.table):
            header = table.horizontalHeader()
            header.setSortIndicatorShown(column is not None)
            header.setSortIndicator(-1 if column is None else column, order)

    def select_row(self, row: int, *, scroll: bool) -> None:
        """Make a row the current one, -1 for none."""
        selection = self.names.selectionModel()
        if row < 0:
            selection.clear()
            return
        index: QModelIndex = self.names.model().index(row, max(selection.currentIndex().column(), 0))
        for table in self._tables:
            table.setAutoScroll(scroll)
        flags = selection.SelectionFlag.ClearAndSelect | selection.SelectionFlag.Rows
        selection.setCurrentIndex(index, flags)
        for table in self._tables:
            table.setAutoScroll(True)

    @property
    def current_row(self) -> int:
        """The selected row, -1 for none."""
        return self.names.selectionModel().currentIndex().row()

    @property
    def _tables(self) -> tuple[QTableView, QTableView]:
        return self.names, self.table

    def _hide_others(self, model: QAbstractItemModel) -> None:
        for column in range(1, model.columnCount()):
            self.names.setColumnHidden(column, True)
        header = self.names.horizontalHeader()
        header.setSectionResizeMode(0, QHeaderView.ResizeMode.Interactive)
