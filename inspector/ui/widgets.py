"""Small widgets that several views share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QEvent, QObject, QPoint, QRect, QSize, Qt, Signal
from PySide6.QtGui import QFocusEvent, QKeyEvent, QPainter, QPaintEvent, QPalette, QResizeEvent, QTextLayout
from PySide6.QtWidgets import QAbstractButton, QFileDialog, QLabel, QLineEdit, QSizePolicy, QWidget

from inspector.ui import theme


class SteadyLabel(QLabel):
    """A line of words that change all the time. Its place is laid out anew only for longer ones than it had before.

    To QLabel every word is a reason to lay out all of the window again. It is told the longest words so far; those on
    show are painted here.
    """

    def __init__(self, text: str = "", parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._words = ""
        self.setText(text)

    def text(self) -> str:
        """The words on show."""
        return self._words

    def setText(self, text: str) -> None:
        if text == self._words:
            return
        self._words = text
        self.setAccessibleName(text)
        metrics = self.fontMetrics()
        if metrics.horizontalAdvance(text) > metrics.horizontalAdvance(super().text()):
            super().setText(text)
        else:
            self.update()

    def shown_text(self, width: int) -> str:
        """What is painted in so many pixels."""
        return self._words

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setPen(self.palette().color(self.foregroundRole()))
        area = self.contentsRect()
        painter.drawText(area, int(self.alignment()), self.shown_text(area.width()))
        painter.end()


class ElidedLabel(SteadyLabel):
    """A line of text that shortens itself with an ellipsis; the whole text is its tooltip."""

    def __init__(
        self, parent: QWidget | None = None, *, mode: Qt.TextElideMode = Qt.TextElideMode.ElideRight
    ) -> None:
        super().__init__("", parent)
        self._mode = mode
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)

    def setText(self, text: str) -> None:
        if text != self.text():
            super().setText(text)
            self.setToolTip(text)

    def minimumSizeHint(self) -> QSize:
        return QSize(self.fontMetrics().horizontalAdvance("…") * 2, super().minimumSizeHint().height())

    def shown_text(self, width: int) -> str:
        return self.fontMetrics().elidedText(self.text(), self._mode, width)


class WrappedLabel(QLabel):
    """A sentence on as many lines as it takes, in a column that may become narrow."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWordWrap(True)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)

    def minimumSizeHint(self) -> QSize:
        """As small as one may want it: in a panel that is too low for all, what is below it matters more."""
        return QSize(1, 0)


class FewLinesLabel(WrappedLabel):
    """A sentence on at most so many lines, the last of which ends with an ellipsis; the whole text is its tooltip."""

    def __init__(self, lines: int, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._lines = lines
        self._words = ""
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Maximum)

    def text(self) -> str:
        """All of it, be it on show or not."""
        return self._words

    def setText(self, text: str) -> None:
        self._words = text
        self.setToolTip(text)
        self.setAccessibleName(text)
        self._fit()

    def minimumSizeHint(self) -> QSize:
        """All that is on show: half a line is worse than none."""
        return QSize(1, self.heightForWidth(max(self.width(), 1)))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Other words are the last that fit."""
        super().resizeEvent(event)
        self._fit()

    def shown_text(self) -> str:
        """The words that have a place."""
        return super().text()

    def _fit(self) -> None:
        width, metrics = max(self.contentsRect().width(), 1), self.fontMetrics()
        layout = QTextLayout(self._words, self.font())
        layout.beginLayout()
        starts = []
        while (line := layout.createLine()).isValid():
            line.setLineWidth(width)
            starts.append(line.textStart())
        layout.endLayout()
        shown = self._words
        if len(starts) > self._lines:
            last = starts[self._lines - 1]
            rest = metrics.elidedText(self._words[last:], Qt.TextElideMode.ElideRight, width)
            shown = f"{self._words[:last].rstrip()}\n{rest}"
        if shown != super().text():
            super().setText(shown)


class CheckedLook(QObject):
    """A button that stays down is in the accent while it is: only pressed in, it is hardly told from others."""

    def __init__(self, button: QAbstractButton) -> None:
        super().__init__(button)
        self._button = button
        button.setCheckable(True)
        button.toggled.connect(self._dress)
        theme.changes().changed.connect(self._dress)

    def _dress(self) -> None:
        c, palette = theme.colours(), QPalette()
        if self._button.isChecked():
            palette.setColor(QPalette.ColorRole.Button, c.accent)
            palette.setColor(QPalette.ColorRole.ButtonText, c.on_accent)
        self._button.setPalette(palette)


class CentredWords(QLabel):
    """Words in the middle of a painted widget. Opaque and of its own: what lies below is not painted with each word."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.setAutoFillBackground(True)
        self.setBackgroundRole(QPalette.ColorRole.Base)
        self.setContentsMargins(8, 4, 8, 4)
        self.setWordWrap(True)
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.hide()

    def say(self, text: str, area: QRect) -> None:
        """Say it in the middle of `area`; "" for nothing to say."""
        self.setText(text)
        self.setVisible(bool(text))
        width = min(self.fontMetrics().horizontalAdvance(text) + 20, max(area.width() - 16, 1))
        size = QSize(width, min(self.heightForWidth(width), area.height()))
        self.setGeometry(QRect(area.center() - QPoint(size.width() // 2, size.height() // 2), size))


class LeftEdit(QLineEdit):
    """A line in which Esc gives up what was typed, whatever else that key means in the window."""

    left = Signal()

    def event(self, event: QEvent) -> bool:
        # Before any shortcut of the window.
        if (
            isinstance(event, QKeyEvent)
            and event.type() == QEvent.Type.ShortcutOverride
            and event.key() == Qt.Key.Key_Escape
        ):
            event.accept()
            return True
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.leave()
        else:
            super().keyPressEvent(event)

    def leave(self) -> None:
        """Give up; what was typed is forgotten."""
        self.clear()
        self.left.emit()


class InlineEdit(LeftEdit):
    """A line that is there only while something is typed; Enter takes it, Esc and a click elsewhere give up."""

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        # A menu or another window takes the keys for a moment only.
        if event.reason() in (Qt.FocusReason.MouseFocusReason, Qt.FocusReason.TabFocusReason):
            self.leave()


def ask_file(parent: QWidget, title: str, name: str, kinds: str, act: Callable[[str], None]) -> None:
    """Ask for a file to write, `name` if nothing else is typed, and call `act` with it."""
    dialog = QFileDialog(parent, title, name, kinds)
    dialog.setObjectName("export_dialog")
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
    dialog.setDefaultSuffix(Path(name).suffix[1:])
    dialog.fileSelected.connect(act)
    dialog.open()
