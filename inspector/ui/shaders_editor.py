"""A text of WGSL that is edited: line numbers beside it, and lines that something is wrong with marked."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import QEvent, QMimeData, QPointF, QRect, QRectF, QSize, Qt
from PySide6.QtGui import (
    QColor,
    QFont,
    QHelpEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextFormat,
)
from PySide6.QtWidgets import QPlainTextDocumentLayout, QPlainTextEdit, QTextEdit, QToolTip, QWidget

from inspector.shader_edit import ShaderMessage
from inspector.ui import theme
from inspector.ui.tables import row_height
from inspector.ui.wgsl_colours import WgslColours

WRONG_ALPHA = 0.16
LINE_ALPHA = 0.08


class WgslEditor(QPlainTextEdit):
    """Each text has a document of its own, which keeps what can be undone in it."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._messages: tuple[ShaderMessage, ...] = ()
        self._documents: dict[str, tuple[QTextDocument, WgslColours]] = {}
        self._numbers = _Numbers(self)
        self.setObjectName("shaders-editor")
        self.setAccessibleName("WGSL of the kernel")
        self.setFrameShape(QPlainTextEdit.Shape.NoFrame)
        self.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        # Tab goes on to the next widget, as everywhere; Enter indents as the line before.
        self.setTabChangesFocus(True)
        self.setMinimumHeight(2 * row_height())
        self.blockCountChanged.connect(lambda _count: self._make_room())
        self.updateRequest.connect(self._follow)
        self.cursorPositionChanged.connect(self._mark)
        theme.changes().changed.connect(self.restyle)

    def canInsertFromMimeData(self, source: QMimeData) -> bool:
        """A file that is dropped is opened by the window: its address is no part of a kernel."""
        return not source.hasUrls() and super().canInsertFromMimeData(source)

    @property
    def text(self) -> str:
        """What is written."""
        return self.toPlainText()

    def show_text(self, name: str, text: str, *, read_only: bool) -> bool:
        """Show the text of a kernel; where it is another than was typed, that can be undone. True where it is new."""
        new = name not in self._documents
        if new:
            document = QTextDocument(self)
            document.setDocumentLayout(QPlainTextDocumentLayout(document))
            document.setPlainText(text)
            colours = WgslColours(QTextDocument(self))
            colours.setDocument(document)
            self._documents[name] = document, colours
        document = self._documents[name][0]
        document.setDefaultFont(theme.mono_font(-0.5))
        if document is not self.document():
            self._forget_clicked_word()
            self.setDocument(document)
            self.setFont(theme.mono_font(-0.5))
        if (typed := document.toPlainText()) != text:
            # Only what differs, so that undoing it leads to its place.
            start = _alike(typed, text)
            end = _alike(typed[start:][::-1], text[start:][::-1])
            middle = QTextCursor(document)
            middle.setPosition(_units(typed[:start]))
            middle.setPosition(_units(typed[: len(typed) - end]), QTextCursor.MoveMode.KeepAnchor)
            middle.insertText(text[start : len(text) - end])
            self.setTextCursor(middle)
        self.setReadOnly(read_only)
        if read_only:
            # With a caret that the keys move, for those who read without a mouse.
            flags = Qt.TextInteractionFlag
            self.setTextInteractionFlags(flags.TextSelectableByMouse | flags.TextSelectableByKeyboard)
        self._make_room()
        self._mark()
        return new

    def _forget_clicked_word(self) -> None:
        """Qt keeps the word that was double clicked, to select on from it by drags and Shift; in another document it
        would go on from a place of the old one (QWidgetTextControl). A plain click, here beyond the text, ends that."""
        beyond = QPointF(self.width() + 1000.0, self.height() + 1000.0)
        button, none = Qt.MouseButton.LeftButton, Qt.MouseButton.NoButton
        for kind, held, handle in (
            (QEvent.Type.MouseButtonPress, button, self.mousePressEvent),
            (QEvent.Type.MouseButtonRelease, none, self.mouseReleaseEvent),
        ):
            handle(QMouseEvent(kind, beyond, beyond, button, held, Qt.KeyboardModifier.NoModifier))

    def show_messages(self, messages: tuple[ShaderMessage, ...]) -> None:
        """Mark the lines that something is wrong with."""
        if messages != self._messages:
            self._messages = messages
            self._mark()
            self._numbers.update()

    def go_to(self, line: int, column: int = 0) -> None:
        """The caret at a place, from 1, in sight."""
        block = self.document().findBlockByNumber(max(line, 1) - 1)
        if not block.isValid():
            return
        cursor = QTextCursor(block)
        cursor.setPosition(block.position() + min(max(column - 1, 0), max(block.length() - 1, 0)))
        self.setTextCursor(cursor)
        self.centerCursor()

    def said_at(self, line: int) -> str:
        """What is wrong at a line; "" for nothing."""
        return "\n".join(each.text for each in self._messages if each.line == line)

    @property
    def wrong_lines(self) -> frozenset[int]:
        """The lines that are marked, from 1."""
        return frozenset(each.line for each in self._messages if each.line)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Enter begins a line as far in as the one before; Ctrl+Enter belongs to the view."""
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and not self.isReadOnly():
            if event.modifiers() & Qt.KeyboardModifier.ControlModifier:
                event.ignore()
                return
            before = self.textCursor().block().text()[: self.textCursor().positionInBlock()]
            indent = before[: len(before) - len(before.lstrip(" \t"))]
            self.insertPlainText("\n" + indent + ("    " if before.rstrip().endswith("{") else ""))
            self.ensureCursorVisible()
            return
        super().keyPressEvent(event)

    def event(self, event: QEvent) -> bool:
        """On hovering a marked line: what is wrong with it."""
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            inside = self.viewport().mapFrom(self, event.pos())
            said = self.said_at(self.cursorForPosition(inside).blockNumber() + 1)
            QToolTip.showText(event.globalPos(), said, self)
            return True
        return super().event(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The numbers as high as the text."""
        super().resizeEvent(event)
        area = self.contentsRect()
        self._numbers.setGeometry(QRect(area.left(), area.top(), self._numbers.needed(), area.height()))

    def restyle(self) -> None:
        """Other colours or fonts."""
        for document, colours in self._documents.values():
            document.setDefaultFont(theme.mono_font(-0.5))
            colours.rehighlight()
        self._mark()
        self._make_room()

    def _make_room(self) -> None:
        self.setViewportMargins(self._numbers.needed(), 0, 0, 0)
        self._numbers.update()

    def _follow(self, area: QRect, dy: int) -> None:
        if dy:
            self._numbers.scroll(0, dy)
        else:
            self._numbers.update(0, area.y(), self._numbers.width(), area.height())

    def _mark(self) -> None:
        colours = theme.colours()
        found = [self._band(self.textCursor(), theme.faded(colours.accent, LINE_ALPHA))]
        for each in self._messages:
            block = self.document().findBlockByNumber(each.line - 1)
            if not each.line or not block.isValid():
                continue
            found.append(self._band(QTextCursor(block), theme.faded(colours.error, WRONG_ALPHA)))
            if each.column:
                found.append(_underlined(QTextCursor(block), each.column, theme.ink(colours.error)))
        self.setExtraSelections(found)

    @staticmethod
    def _band(cursor: QTextCursor, colour: QColor) -> QTextEdit.ExtraSelection:
        mark = QTextEdit.ExtraSelection()
        mark.cursor = QTextCursor(cursor)
        mark.cursor.clearSelection()
        style = QTextCharFormat()
        style.setBackground(colour)
        style.setProperty(QTextFormat.Property.FullWidthSelection, True)
        mark.format = style
        return mark

    def numbered(self, area: QRect) -> Iterable[tuple[int, QRectF]]:
        """The lines that stand in `area`, and where."""
        block = self.firstVisibleBlock()
        top = self.blockBoundingGeometry(block).translated(self.contentOffset()).top()
        while block.isValid() and top <= area.bottom():
            height = self.blockBoundingRect(block).height()
            yield block.blockNumber() + 1, QRectF(0, top, self._numbers.width(), height)
            block, top = block.next(), top + height


def _alike(a: str, b: str) -> int:
    """How many characters two texts begin with alike."""
    shorter = min(len(a), len(b))
    return next((i for i in range(shorter) if a[i] != b[i]), shorter)


def _units(text: str) -> int:
    """How many places of a document a text takes: Qt counts in UTF-16."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _underlined(cursor: QTextCursor, column: int, colour: QColor) -> QTextEdit.ExtraSelection:
    """The word that begins at a column, from 1."""
    block = cursor.block()
    start = block.position() + min(column - 1, max(block.length() - 2, 0))
    cursor.setPosition(start)
    cursor.movePosition(QTextCursor.MoveOperation.EndOfWord, QTextCursor.MoveMode.KeepAnchor)
    if cursor.position() == start:
        cursor.movePosition(QTextCursor.MoveOperation.Right, QTextCursor.MoveMode.KeepAnchor)
    mark = QTextEdit.ExtraSelection()
    mark.cursor = cursor
    style = QTextCharFormat()
    style.setUnderlineStyle(QTextCharFormat.UnderlineStyle.WaveUnderline)
    style.setUnderlineColor(colour)
    mark.format = style
    return mark


class _Numbers(QWidget):
    """The numbers of the lines; a wrong one has a cross before it, which is seen without colours too."""

    def __init__(self, editor: WgslEditor) -> None:
        super().__init__(editor)
        self._editor = editor

    def needed(self) -> int:
        """Its width in pixels."""
        digits = max(len(str(self._editor.blockCount())), 2)
        return self._editor.fontMetrics().horizontalAdvance("9" * (digits + 1)) + 3 * theme.GRID

    def sizeHint(self) -> QSize:
        """As wide as the largest number."""
        return QSize(self.needed(), 0)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Only the lines in sight."""
        painter = QPainter(self)
        colours, wrong = theme.colours(), self._editor.wrong_lines
        painter.fillRect(event.rect(), colours.window)
        painter.setFont(self._editor.font())
        here = self._editor.textCursor().blockNumber() + 1
        bold = QFont(self._editor.font())
        bold.setBold(True)
        for number, where in self._editor.numbered(event.rect()):
            painter.setFont(bold if number == here else self._editor.font())
            bad = number in wrong
            painter.setPen(theme.ink(colours.error, colours.window) if bad else colours.muted)
            text = f"✕{number}" if bad else str(number)
            painter.drawText(where.adjusted(0, 0, -theme.GRID, 0), Qt.AlignmentFlag.AlignRight, text)
        painter.end()
