"""What the tables of the window have in common: dense rows of one height, read-only, figures to the right."""

from __future__ import annotations

from typing import Any, ClassVar

from PySide6.QtCore import (
    QAbstractItemModel,
    QAbstractTableModel,
    QEvent,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    Qt,
)
from PySide6.QtGui import QFontMetrics
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHeaderView,
    QStyledItemDelegate,
    QStyleOptionHeader,
    QStyleOptionViewItem,
    QTableView,
    QWidget,
)

from inspector.ui import theme

AnyIndex = QModelIndex | QPersistentModelIndex
FIGURES = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
WORDS = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter

NAMES = "param"
"""The column of names of params, which differ at their ends."""
SORT_SIGN = 12
"""Pixels beside the name of a column for the sign that the table is sorted by it."""
LEAST_ROWS = 2
"""A table may become as low as this many rows, so that many fit in a small window."""


class ColumnsModel(QAbstractTableModel):
    """A read-only table whose columns have names and sides of their own; a subclass gives rows and cells."""

    COLUMNS: ClassVar[tuple[str, ...]]
    FIGURE_COLUMNS: ClassVar[frozenset[int]]
    """Flush right."""
    MEANS: ClassVar[tuple[str, ...]] = ()
    """What each column shows, told where its name is pointed at."""

    def row_total(self) -> int:
        """How many rows there are."""
        raise NotImplementedError

    def alignment(self, column: int) -> Qt.AlignmentFlag:
        """The side of a column, of its name as of its cells."""
        return FIGURES if column in self.FIGURE_COLUMNS else WORDS

    def rowCount(self, parent: AnyIndex = QModelIndex()) -> int:  # noqa: B008 - Qt's own signature
        """The rows; none below a cell."""
        return 0 if parent.isValid() else self.row_total()

    def columnCount(self, parent: AnyIndex = QModelIndex()) -> int:  # noqa: B008
        """See COLUMNS."""
        return 0 if parent.isValid() else len(self.COLUMNS)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = 0) -> Any:
        """The column's name, and what it means."""
        if orientation != Qt.Orientation.Horizontal:
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            return self.COLUMNS[section]
        if role in (Qt.ItemDataRole.ToolTipRole, Qt.ItemDataRole.AccessibleDescriptionRole) and self.MEANS:
            return self.MEANS[section]
        return self.alignment(section) if role == Qt.ItemDataRole.TextAlignmentRole else None

    def as_text(self) -> str:
        """All of it, with the names of the columns, and tabs between columns."""
        columns = range(len(self.COLUMNS))
        rows = [
            [str(self.index(row, column).data()) for column in columns] for row in range(self.row_total())
        ]
        return "\n".join("\t".join(cells) for cells in [list(self.COLUMNS), *rows])


class _Header(QHeaderView):
    """Names of columns, clear of the sign that the table is sorted by one."""

    def initStyleOptionForIndex(self, option: QStyleOptionHeader, section: int) -> None:
        """The sign is drawn wider than the room that the style leaves for it: a space holds the name off."""
        super().initStyleOptionForIndex(option, section)
        if self.isSortIndicatorShown() and self.sortIndicatorSection() == section:
            option.text += "\N{NO-BREAK SPACE}"


class _Names(QStyledItemDelegate):
    """Long names lose their beginning, which many share."""

    def initStyleOption(self, option: QStyleOptionViewItem, index: AnyIndex) -> None:
        """As Qt has it."""
        super().initStyleOption(option, index)
        option.textElideMode = Qt.TextElideMode.ElideLeft


def row_height() -> int:
    """Pixels of a row of text."""
    return QFontMetrics(theme.ui_font()).height() + theme.GRID


def dense_table(model: QAbstractItemModel, name: str, parent: QWidget | None = None) -> QTableView:
    """A table that selects whole rows, never wraps, and costs nothing for rows out of sight."""
    table = QTableView(parent)
    table.setObjectName(name)
    table.setAccessibleName(name.replace("-", " "))
    header = _Header(Qt.Orientation.Horizontal, table)
    header.setSectionsClickable(True)
    table.setHorizontalHeader(header)
    table.setModel(model)
    for column in range(model.columnCount()):
        if model.headerData(column, Qt.Orientation.Horizontal) == NAMES:
            table.setItemDelegateForColumn(column, _Names(table))
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


class _RoomTaker(QObject):
    """Gives one column of a table the room that all leave; it keeps its own width where there is none."""

    def __init__(self, table: QTableView, column: int) -> None:
        super().__init__(table)
        self._table, self._column, self._least = table, column, table.columnWidth(column)
        table.viewport().installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Once the table has another size."""
        if event.type() == QEvent.Type.Resize:
            header = self._table.horizontalHeader()
            others = header.length() - header.sectionSize(self._column)
            room = self._table.viewport().width() - others
            header.resizeSection(self._column, max(self._least, room))
        return False


def set_widths(
    table: QTableView, samples: tuple[str, ...], *, stretch: int | None = None, grow: int | None = None
) -> None:
    """Give each column the width of a sample of its text.

    `stretch` takes what is left, be it less than its sample; `grow` too, and never gets narrower than its sample.
    """
    metrics = QFontMetrics(theme.ui_font())
    header = table.horizontalHeader()
    for column, sample in enumerate(samples):
        title = str(table.model().headerData(column, Qt.Orientation.Horizontal) or "")
        width = max(metrics.horizontalAdvance(sample), metrics.horizontalAdvance(title) + SORT_SIGN)
        table.setColumnWidth(column, width + 4 * theme.GRID)
        if column == stretch:
            header.setSectionResizeMode(column, QHeaderView.ResizeMode.Stretch)
    if grow is not None:
        _RoomTaker(table, grow)
