"""A list of texts to choose from, kept as plain data: no object of Qt stands for a row, which Qt may delete first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import QAbstractListModel, QModelIndex, QPersistentModelIndex, Qt
from PySide6.QtWidgets import QListView, QWidget

AnyIndex = QModelIndex | QPersistentModelIndex


class TextRows(QAbstractListModel):
    """Texts, each with what is told where it is pointed at."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: tuple[str, ...] = ()
        self._tips: tuple[str, ...] = ()

    def show(self, texts: Sequence[str], tips: Sequence[str] = ()) -> None:
        """Other texts from here on, and a tip for each or for none."""
        self.beginResetModel()
        self.texts, self._tips = tuple(texts), tuple(tips)
        self.endResetModel()

    def rowCount(self, parent: AnyIndex = QModelIndex()) -> int:  # noqa: B008 - Qt's own signature
        """The rows; none below a row."""
        return 0 if parent.isValid() else len(self.texts)

    def data(self, index: AnyIndex, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """The text, and its tip."""
        if role == Qt.ItemDataRole.DisplayRole:
            return self.texts[index.row()]
        if role == Qt.ItemDataRole.ToolTipRole and self._tips:
            return self._tips[index.row()]
        return None


class TextList(QListView):
    """A view of TextRows, one row a text."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.rows = TextRows()
        self.setModel(self.rows)
        self.setEditTriggers(QListView.EditTrigger.NoEditTriggers)
        self.setUniformItemSizes(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setTextElideMode(Qt.TextElideMode.ElideMiddle)

    @property
    def row(self) -> int:
        """The row that the keys are on, -1 for none."""
        return self.currentIndex().row()

    def set_row(self, row: int) -> None:
        """Put the keys on a row, the first or the last where it lies beyond them, and select it alone."""
        count = len(self.rows.texts)
        if count:
            self.setCurrentIndex(self.rows.index(min(max(row, 0), count - 1), 0))

    @property
    def selected(self) -> tuple[str, ...]:
        """The texts that are selected, from the top."""
        rows = sorted(index.row() for index in self.selectionModel().selectedIndexes())
        return tuple(self.rows.texts[row] for row in rows)
