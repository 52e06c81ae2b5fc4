"""Steps that a person wants to find again, each with a note."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QKeyEvent, QShowEvent
from PySide6.QtWidgets import QAbstractItemView, QLabel, QStackedLayout, QVBoxLayout, QWidget

from inspector.runtime.commands import Seek, SetBookmark
from inspector.runtime.snapshots import Mark, Snapshot
from inspector.ui.tables import AnyIndex, ColumnsModel, dense_table, set_widths
from inspector.ui.view import View

COLUMNS = ("step", "note")
STEP, NOTE = range(2)
EMPTY = "No bookmarks yet: Ctrl+B puts one at the step on show."
KEYS = (
    ("Enter", "go to the step of the bookmark"),
    ("F2", "change its note"),
    ("Del", "remove it"),
)


class BookmarksModel(ColumnsModel):
    """One row a bookmark, by step. `noted` carries step and note once one was changed."""

    COLUMNS = COLUMNS
    FIGURE_COLUMNS = frozenset({STEP})
    MEANS = ("The step that is marked; Enter goes there.", "What somebody wrote down for it; F2 changes it.")
    noted = Signal(int, str)

    def __init__(self) -> None:
        super().__init__()
        self.bookmarks: tuple[Mark, ...] = ()

    def show_bookmarks(self, bookmarks: tuple[Mark, ...]) -> None:
        """Take over the list."""
        self.beginResetModel()
        self.bookmarks = bookmarks
        self.endResetModel()

    def row_total(self) -> int:
        """The bookmarks."""
        return len(self.bookmarks)

    def row_of(self, step: int) -> int:
        """The row of the bookmark at `step`, or of the next after it; the last where there is none."""
        after = sum(mark.step < step for mark in self.bookmarks)
        return min(after, len(self.bookmarks) - 1)

    def flags(self, index: AnyIndex) -> Qt.ItemFlag:
        """The note can be changed."""
        flags = super().flags(index)
        return flags | Qt.ItemFlag.ItemIsEditable if index.column() == NOTE else flags

    def data(self, index: AnyIndex, role: int = 0) -> Any:
        """The text of a cell."""
        mark, column = self.bookmarks[index.row()], index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            return f"{mark.step:,}" if column == STEP else mark.text
        if role in (Qt.ItemDataRole.EditRole, Qt.ItemDataRole.ToolTipRole) and column == NOTE:
            return mark.text
        return self.alignment(column) if role == Qt.ItemDataRole.TextAlignmentRole else None

    def setData(self, index: AnyIndex, value: Any, role: int = Qt.ItemDataRole.EditRole) -> bool:
        """Ask for another note; the row shows it once the run has it."""
        mark, text = self.bookmarks[index.row()], str(value).strip()
        if role != Qt.ItemDataRole.EditRole or index.column() != NOTE or text == mark.text:
            return False
        self.noted.emit(mark.step, text)
        return True


class BookmarksView(View):
    """A table of bookmarks, or how to put one."""

    LOCAL_KEYS = KEYS
    PERIOD_S = 0.1

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("bookmarks")
        self._snapshot: Snapshot | None = None
        self.model = BookmarksModel()
        self.model.noted.connect(lambda step, text: self.command.emit(SetBookmark(step, text)))
        self.table = dense_table(self.model, "bookmarks-list")
        self.table.setEditTriggers(QAbstractItemView.EditTrigger.EditKeyPressed)
        set_widths(self.table, ("100,000", ""))
        self.table.horizontalHeader().setStretchLastSection(True)
        self.table.activated.connect(self._on_activated)
        self.table.installEventFilter(self)
        self.setFocusProxy(self.table)
        self.empty = QLabel(EMPTY)
        self.empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.empty.setWordWrap(True)
        self.empty.setContentsMargins(8, 8, 8, 8)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        self._pages = QStackedLayout()
        # In its place first: it shows the first page at once, which would else be a window of its own.
        outer.addLayout(self._pages)
        self._pages.addWidget(self.empty)
        self._pages.addWidget(self.table)

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """List the bookmarks of this moment."""
        self._snapshot = snapshot
        if self.isVisible():
            self._update()

    def showEvent(self, event: QShowEvent) -> None:
        """Catch up with what came while nobody looked."""
        super().showEvent(event)
        self._update()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Keys of the table that a table by itself does not know."""
        if watched is self.table and isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress:
            mark = self._current()
            if mark is not None and event.key() == Qt.Key.Key_Delete:
                self.command.emit(SetBookmark(mark.step, ""))
                return True
            if mark is not None and event.key() == Qt.Key.Key_F2:
                row = self.table.currentIndex().row()
                self.table.edit(self.model.index(row, NOTE))
                return True
        return super().eventFilter(watched, event)

    def _update(self) -> None:
        bookmarks = self._snapshot.bookmarks if self._snapshot else ()
        if bookmarks is self.model.bookmarks:
            return
        current = self._current()
        self.model.show_bookmarks(bookmarks)
        self._pages.setCurrentWidget(self.table if bookmarks else self.empty)
        if bookmarks:
            self.table.selectRow(self.model.row_of(current.step) if current is not None else 0)

    def _current(self) -> Mark | None:
        row = self.table.currentIndex().row()
        return self.model.bookmarks[row] if 0 <= row < len(self.model.bookmarks) else None

    def _on_activated(self) -> None:
        mark = self._current()
        if mark is not None:
            self.command.emit(Seek(mark.step))
