"""What the tables of the window have in common: dense rows of one height, read-only, figures to the right."""

from __future__ import annotations

from PySide6.QtCore import QAbstractItemModel, QModelIndex, QPersistentModelIndex, Qt
from PySide6.QtGui import QFontMetrics
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QTableView, QWidget

from inspector.ui import theme

AnyIndex = QModelIndex | QPersistentModelIndex
FIGURES = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
WORDS = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter

LEAST_ROWS = 2
"""A table may become as low as this many rows, so that many fit in a small window."""


def row_height() -> int:
    """Pixels of a row of text."""
    return QFontMetrics(theme.ui_font()).height() + theme.GRID


def dense_table(model: QAbstractItemModel, name: str, parent: QWidget | None = None) -> QTableView:
    """A table that selects whole rows, never wraps, and costs nothing for rows out of sight."""
    table = QTableView(parent)
    table.setObjectName(name)
    table.setModel(model)
    table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
    table.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
    table.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
    table.setTabKeyNavigation(False)
    table.setWordWrap(False)
    table.setShowGrid(False)
    table.setAlternatingRowColors(True)
    table.setFrameShape(QTableView.Shape.NoFrame)
    table.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
    table.setMinimumHeight(LEAST_ROWS * row_height())
    rows = table.verticalHeader()
    rows.setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
    rows.setMinimumSectionSize(1)
    rows.setDefaultSectionSize(row_height())
    rows.hide()
    columns = table.horizontalHeader()
    columns.setHighlightSections(False)
    columns.setDefaultAlignment(WORDS)
    columns.setMinimumSectionSize(3 * theme.GRID)
    return table


def set_widths(table: QTableView, samples: tuple[str, ...], *, stretch: int | None = None) -> None:
    """Give each column the width of a sample of its text; `stretch` takes what is left."""
    metrics = QFontMetrics(theme.ui_font())
    header = table.horizontalHeader()
    for column, sample in enumerate(samples):
        title = str(table.model().headerData(column, Qt.Orientation.Horizontal) or "")
        width = max(metrics.horizontalAdvance(sample), metrics.horizontalAdvance(title))
        table.setColumnWidth(column, width + 4 * theme.GRID)
        if column == stretch:
            header.setSectionResizeMode(column, QHeaderView.ResizeMode.Stretch)
