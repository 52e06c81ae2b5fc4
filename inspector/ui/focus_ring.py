"""A line around what has the keys, where that does not show it by itself: tables, lists, and whole views."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QRegion
from PySide6.QtWidgets import QAbstractItemView, QApplication, QLabel, QScrollArea, QWidget
from shiboken6 import isValid

from inspector.ui import theme
from inspector.ui.view import View

THICKNESS = 2


class Ring(QWidget):
    """A frame just inside a widget, as large as that is; the mouse does not see it."""

    def __init__(self, around: QWidget) -> None:
        super().__init__(around)
        self.setObjectName("focus_ring")
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        around.installEventFilter(self)
        self._fit()
        self.show()
        self.raise_()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Stay as large as what it is around."""
        if event.type() == QEvent.Type.Resize:
            self._fit()
        return False

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), theme.colours().accent)
        painter.end()

    def _fit(self) -> None:
        around = self.parentWidget()
        if around is not None:
            self.setGeometry(around.rect())
            # Only the frame is there, so that nothing inside is painted again because of it.
            inner = self.rect().adjusted(THICKNESS, THICKNESS, -THICKNESS, -THICKNESS)
            self.setMask(QRegion(self.rect()) - QRegion(inner))


class FocusRing(QObject):
    """Follows the keys through one window."""

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self._window = window
        self._ring: Ring | None = None
        app = QApplication.instance()
        if isinstance(app, QApplication):
            app.focusChanged.connect(self._on_focus_changed)

    def _on_focus_changed(self, _before: QWidget | None, now: QWidget | None) -> None:
        ring, self._ring = self._ring, None
        # It may be gone with what it was around.
        if ring is not None and isValid(ring):
            ring.hide()
            ring.deleteLater()
        if now is not None and now.window() is self._window and needs_ring(now):
            self._ring = Ring(now)


def needs_ring(widget: QWidget) -> bool:
    """False where a widget shows by itself that it has the keys."""
    if isinstance(widget, View):
        return not widget.SHOWS_FOCUS
    return isinstance(widget, QAbstractItemView | QScrollArea | QLabel)
