"""WGSL to read, with the lines lit that compute the line of the update that is looked at."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import (
    QResizeEvent,
    QShowEvent,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextFormat,
)
from PySide6.QtWidgets import QPlainTextEdit, QTextEdit, QVBoxLayout, QWidget

from inspector.shader_lines import UpdateCode
from inspector.ui import theme
from inspector.ui.microscope_model import plain
from inspector.ui.tables import row_height
from inspector.ui.wgsl_colours import WgslColours
from inspector.ui.widgets import ElidedLabel

LIT_ALPHA = 0.22


class _Editor(QPlainTextEdit):
    """Keeps the line of its caret in the middle as it becomes larger or smaller."""

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The line that is lit stays in sight."""
        super().resizeEvent(event)
        self.centerCursor()


class CodePane(QWidget):
    """The text of a kernel, read-only; above it which file and line are lit, or why none is."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._code: UpdateCode | None = None
        self._line = ""
        self._text: object = None
        self.title = ElidedLabel()
        self.title.setContentsMargins(theme.GRID, 0, theme.GRID, 0)
        self.editor = _Editor()
        self.editor.setObjectName("microscope-code")
        self.editor.setAccessibleName("WGSL of the update")
        self.editor.setReadOnly(True)
        # With a caret that the keys move, for those who read without a mouse.
        self.editor.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        self.editor.setTabChangesFocus(True)
        self.editor.setMinimumHeight(row_height())
        self.editor.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.editor.setFrameShape(QPlainTextEdit.Shape.NoFrame)
        self.editor.setFont(theme.mono_font(-0.5))
        self._colours = WgslColours(QTextDocument(self))
        self._colours.setDocument(self.editor.document())
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(0)
        outer.addWidget(self.title)
        outer.addWidget(self.editor, 1)
        theme.changes().changed.connect(self._restyle)

    def show_code(self, code: UpdateCode | None, line: str) -> None:
        """Show the kernel that computes a line of the update, with that line lit and in sight."""
        if (code, line) == (self._code, self._line) and code is not None:
            return
        self._code, self._line = code, line
        if code is None:
            self._text = None
            self.editor.setPlainText("")
            self.title.setText("")
            return
        shown, lit = code.of(line) if line else (code.shown[-1], ())
        if shown.unit is not self._text:
            self._text = shown.unit
            self.editor.setPlainText(shown.unit.text)
        places = " and ".join(dict.fromkeys(shown.unit.place(number) for number in lit))
        unknown = code.note or f"{shown.title}: no line of its own computes {plain(line)}"
        self.title.setText(f"{plain(line)}: {places}" if lit else unknown if line else shown.title)
        self._light(lit)

    def showEvent(self, event: QShowEvent) -> None:
        """The lit line in sight, once there is room for lines."""
        super().showEvent(event)
        self.editor.centerCursor()

    @property
    def lit_text(self) -> tuple[str, ...]:
        """The lines that are lit, as they are written."""
        blocks = (s.cursor.block().text().strip() for s in self.editor.extraSelections())
        return tuple(blocks)

    def _light(self, lines: tuple[int, ...]) -> None:
        selections = []
        for number in lines:
            block = self.editor.document().findBlockByNumber(number - 1)
            mark = QTextEdit.ExtraSelection()
            mark.cursor = QTextCursor(block)
            style = QTextCharFormat()
            style.setBackground(theme.faded(theme.colours().accent, LIT_ALPHA))
            style.setProperty(QTextFormat.Property.FullWidthSelection, True)
            mark.format = style
            selections.append(mark)
        self.editor.setExtraSelections(selections)
        if lines:
            self.editor.setTextCursor(QTextCursor(self.editor.document().findBlockByNumber(lines[-1] - 1)))
            self.editor.centerCursor()

    def _restyle(self) -> None:
        self._colours.rehighlight()
        code, line = self._code, self._line
        self._code = None
        if code is not None:
            self.show_code(code, line)
