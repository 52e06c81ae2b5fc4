"""The command palette: everything that can be done, found by a few letters; and where one can go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QAbstractListModel, QEvent, QModelIndex, QObject, QRect, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QPainter, QPalette
from PySide6.QtWidgets import (
    QApplication,
    QFrame,
    QLabel,
    QLineEdit,
    QListView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QVBoxLayout,
    QWidget,
)

from inspector.ui import theme
from inspector.ui.tables import AnyIndex, row_height

WIDTH, ROWS = 640, 14
MARGIN = 3 * theme.GRID
KEYS_ROLE = Qt.ItemDataRole.UserRole
NOTHING_FOUND = "Nothing has these letters."


@dataclass(frozen=True, slots=True)
class Row:
    """A line to choose: what is done by it, its keys, and why not now ("" where it can be chosen)."""

    text: str
    act: Callable[[], None]
    keys: str = ""
    help: str = ""
    reason: str = ""
    checked: bool | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What the palette shows for a text: rows to choose from, and a line below them."""

    rows: Sequence[Row] = ()
    note: str = ""


class RowsModel(QAbstractListModel):
    """The rows of an answer."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.rows: Sequence[Row] = ()

    def show_rows(self, rows: Sequence[Row]) -> None:
        """List these instead."""
        self.beginResetModel()
        self.rows = rows
        self.endResetModel()

    def rowCount(self, parent: AnyIndex = QModelIndex()) -> int:  # noqa: B008 - Qt's own signature
        """The rows; none below one."""
        return 0 if parent.isValid() else len(self.rows)

    def data(self, index: AnyIndex, role: int = 0) -> Any:
        """Texts and colours; of a row that cannot be chosen the reason stands in its tooltip and name."""
        row = self.rows[index.row()]
        if role == Qt.ItemDataRole.DisplayRole:
            return ("✓ " if row.checked else "") + row.text
        if role == KEYS_ROLE:
            return row.keys
        if role == Qt.ItemDataRole.ToolTipRole:
            return "\n".join(filter(None, (row.help, f"Not now: {row.reason}" if row.reason else "")))
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return ", ".join(
                filter(None, (row.text, row.keys, f"not now: {row.reason}" if row.reason else ""))
            )
        if role == Qt.ItemDataRole.ForegroundRole and row.reason:
            return theme.colours().muted
        return None


class KeysDelegate(QStyledItemDelegate):
    """A row with its keys at the right edge."""

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: AnyIndex) -> None:
        keys = str(index.data(KEYS_ROLE) or "")
        wide = option.fontMetrics.horizontalAdvance(keys) + 2 * theme.GRID if keys else 0
        super().paint(painter, option, index)
        if not keys:
            return
        area: QRect = option.rect
        chosen = bool(option.state & QStyle.StateFlag.State_Selected)
        c = theme.colours()
        at = area.adjusted(area.width() - wide, 0, 0, 0)
        painter.fillRect(at, c.accent if chosen else c.base)
        painter.setPen(c.on_accent if chosen else c.muted)
        side = Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight
        painter.drawText(at.adjusted(0, 0, -theme.GRID, 0), side, keys)

    def sizeHint(self, option: QStyleOptionViewItem, index: AnyIndex) -> QSize:
        return QSize(super().sizeHint(option, index).width(), row_height())


class Palette(QFrame):
    """A line to type in over the window, and what it leads to. It closes by itself when the keys go elsewhere.

    What is listed for a text is asked of `answer`, so that it can be anything one chooses by name.
    """

    closed = Signal()

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self.setObjectName("palette")
        self.setFrameShape(QFrame.Shape.StyledPanel)
        self.setAutoFillBackground(True)
        self.setBackgroundRole(QPalette.ColorRole.Base)
        self._window = window
        self._answer: Callable[[str], Answer] = lambda text: Answer()
        self._said = ""
        self._before: QWidget | None = None
        self.field = QLineEdit(self)
        self.field.setObjectName("palette_field")
        self.field.setAccessibleName("What to do, or where to go")
        self.field.setToolTip("A few letters, in their order; arrows choose, Enter does it, Esc closes")
        self.field.setClearButtonEnabled(True)
        self.model = RowsModel(self)
        self.list = QListView(self)
        self.list.setObjectName("palette_list")
        self.list.setAccessibleName("Matches")
        self.list.setModel(self.model)
        self.list.setItemDelegate(KeysDelegate(self.list))
        self.list.setUniformItemSizes(True)
        self.list.setFrameShape(QFrame.Shape.NoFrame)
        self.list.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        self.note = QLabel(self)
        self.note.setObjectName("palette_note")
        self.note.setWordWrap(True)
        self.note.setTextFormat(Qt.TextFormat.PlainText)
        column = QVBoxLayout(self)
        column.setContentsMargins(2 * theme.GRID, 2 * theme.GRID, 2 * theme.GRID, 2 * theme.GRID)
        column.setSpacing(theme.GRID)
        column.addWidget(self.field)
        column.addWidget(self.list, 1)
        column.addWidget(self.note)
        self.field.textChanged.connect(self._on_text)
        self.field.installEventFilter(self)
        self.list.clicked.connect(self._on_clicked)
        self.list.selectionModel().currentChanged.connect(self._show_note)
        window.installEventFilter(self)
        self.hide()

    def ask(
        self, prompt: str, answer: Callable[[str], Answer], text: str = "", *, replace: bool = False
    ) -> None:
        """Open with `text` typed already, to be gone on with or, with `replace`, to be typed over.

        What `answer` says of a text is listed.
        """
        if not self.isVisible():
            self._before = self._window.focusWidget()
        self._answer = answer
        self.field.setPlaceholderText(prompt)
        self.field.setAccessibleName(prompt)
        self.field.setText(text)
        self._on_text(text)
        self._place()
        self.show()
        self.raise_()
        self.field.setFocus(Qt.FocusReason.ShortcutFocusReason)
        if not replace:
            # A line that is given the keys by one selects all, and the next letter would take its place.
            self.field.end(False)

    def leave(self) -> None:
        """Close, and give the keys back to where they were."""
        if not self.isVisible():
            return
        had_keys = self.field.hasFocus()
        self.hide()
        before, self._before = self._before, None
        if had_keys and before is not None and before.isVisible():
            before.setFocus(Qt.FocusReason.OtherFocusReason)
        self.closed.emit()

    def choose(self) -> None:
        """Do what the current row says, where that can be done."""
        row = self._current()
        if row is None or row.reason:
            return
        self.leave()
        row.act()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Keys of the line that are meant for the list; and the size of the window."""
        if watched is self._window:
            if event.type() == QEvent.Type.Resize and self.isVisible():
                self._place()
            return False
        if event.type() == QEvent.Type.FocusOut:
            # A menu, or another window of the desktop, takes the keys for a moment only.
            elsewhere = QApplication.focusWidget()
            if elsewhere is not None and not self.isAncestorOf(elsewhere):
                self.leave()
            return False
        if isinstance(event, QKeyEvent) and event.type() in (
            QEvent.Type.KeyPress,
            QEvent.Type.ShortcutOverride,
        ):
            return self._on_key(event)
        return False

    def _on_key(self, event: QKeyEvent) -> bool:
        moves = {
            Qt.Key.Key_Down: 1,
            Qt.Key.Key_Up: -1,
            Qt.Key.Key_PageDown: ROWS - 1,
            Qt.Key.Key_PageUp: 1 - ROWS,
        }
        key = Qt.Key(event.key())
        takes = key in moves or key in (Qt.Key.Key_Escape, Qt.Key.Key_Return, Qt.Key.Key_Enter)
        if not takes or event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier:
            return False
        if event.type() == QEvent.Type.ShortcutOverride:
            # Before any shortcut of the window; the press itself follows.
            event.accept()
            return True
        if key in moves:
            self._move(moves[key])
        elif key == Qt.Key.Key_Escape:
            self.leave()
        else:
            self.choose()
        return True

    def _move(self, by: int) -> None:
        total = self.model.rowCount()
        if not total:
            return
        at = self.list.currentIndex().row() + by
        # One beyond an end goes to the other; a page stops there.
        at = at % total if abs(by) == 1 else max(0, min(at, total - 1))
        self.list.setCurrentIndex(self.model.index(at))

    def _current(self) -> Row | None:
        at = self.list.currentIndex().row()
        return self.model.rows[at] if 0 <= at < len(self.model.rows) else None

    def _on_text(self, text: str) -> None:
        answer = self._answer(text)
        self._said = answer.note
        self.model.show_rows(answer.rows)
        if answer.rows:
            self.list.setCurrentIndex(self.model.index(0))
        self._show_note()

    def _show_note(self) -> None:
        row = self._current()
        said = self._said or ("" if self.model.rows else NOTHING_FOUND)
        if row is not None:
            said = f"Not now: {row.reason}" if row.reason else row.help or said
        self.note.setText(said)

    def _on_clicked(self, index: QModelIndex) -> None:
        self.list.setCurrentIndex(index)
        self.choose()

    def _place(self) -> None:
        room = self._window.rect().adjusted(MARGIN, 3 * MARGIN, -MARGIN, -MARGIN)
        line = self.note.fontMetrics().lineSpacing()
        self.note.setFixedHeight(2 * line)
        high = self.field.sizeHint().height() + ROWS * row_height() + 2 * line + 8 * theme.GRID
        wide = min(WIDTH, room.width())
        left = room.x() + (room.width() - wide) // 2
        self.setGeometry(left, room.y(), wide, min(high, room.height()))
