"""The line below the toolbar: one sentence at a time, with an icon for its severity; never in the way."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, QTimer, Signal
from PySide6.QtGui import QPalette, QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QToolButton, QWidget

from inspector.diagnosis.findings import Severity
from inspector.runtime.snapshots import Snapshot
from inspector.ui import theme
from inspector.ui.icons import icon
from inspector.ui.view import same_run

LOST_TEXT = "The device was lost: what is shown is the last that was seen, and stale."
ROOM_FOR_BUTTONS = 260
INFO_MS = 8000
"""A note that asks for nothing goes by itself after so long."""
SEVERITY_WORD: dict[Severity, str] = {"info": "Note", "warning": "Warning", "error": "Error"}


class Banner(QFrame):
    """Shows a lost device until it is back, and each notice once, until it is over or dismissed."""

    recover = Signal()
    opened = Signal(bool)
    """True when there is something to show, False when there is nothing more."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("banner")
        self._severity: Severity = "info"
        self._lost = False
        self._last_serial: int | None = None
        self._notice: tuple[Severity, str] | None = None
        self._since: Snapshot | None = None
        """The moment the notice came with; of the window's own, the last one before."""
        self._own = False
        self._seen: Snapshot | None = None
        self._timer = QTimer(self, singleShot=True, interval=INFO_MS)
        self._timer.timeout.connect(self.dismiss)
        self.sign = QLabel(self)
        self.label = QLabel(self)
        self.label.setObjectName("banner_text")
        self.label.setWordWrap(True)
        self.recover_button = QPushButton("&Recover", self)
        self.recover_button.setObjectName("banner_recover")
        self.recover_button.setToolTip("Make a new device and go on from the last state kept in memory")
        self.recover_button.clicked.connect(self.recover)
        self.close_button = QToolButton(self)
        self.close_button.setObjectName("banner_close")
        self.close_button.setText("Dismiss")
        self.close_button.setToolTip("Close this message (Ctrl+Backspace)")
        self.close_button.clicked.connect(self.dismiss)
        row = QHBoxLayout(self)
        row.setContentsMargins(8, 4, 8, 4)
        row.setSpacing(8)
        row.addWidget(self.sign)
        row.addWidget(self.label, 1)
        row.addWidget(self.recover_button)
        row.addWidget(self.close_button)
        theme.changes().changed.connect(self._dress)
        self._show()

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Take a notice that is new, drop one that is over, and take the loss of the device."""
        notice, self._seen = snapshot.notice, snapshot
        if notice is not None and notice.serial != self._last_serial:
            self._last_serial = notice.serial
            self._take(notice.severity, notice.text, own=False)
        elif self._notice is not None and self._is_over(snapshot):
            self.dismiss()
        if (snapshot.mode == "lost") != self._lost:
            self._lost = snapshot.mode == "lost"
            self._show()

    def tell(self, severity: Severity, text: str) -> None:
        """Show a sentence of the window's own."""
        self._take(severity, text, own=True)

    def dismiss(self) -> None:
        """Close the notice; the loss of the device stays until it is recovered."""
        self._notice = None
        self._timer.stop()
        self._show()

    def _take(self, severity: Severity, text: str, *, own: bool) -> None:
        self._notice, self._since, self._own = (severity, text), self._seen, own
        if severity == "info":
            self._timer.start()
        else:
            self._timer.stop()
        self._show()

    def _is_over(self, snapshot: Snapshot) -> bool:
        """True once a source has been opened, the device is back, or the run has moved on since."""
        since = self._since
        if since is None or snapshot.mode not in ("paused", "running"):
            return False
        if not same_run(since, snapshot) or since.mode == "lost":
            return True
        # What was told while a run goes on would be gone before it is read.
        return not self._own and since.mode != "running" and snapshot.cursor != since.cursor

    @property
    def text(self) -> str:
        """What is said now."""
        return self.label.text()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        # A toolbar does not ask how high a text of several lines is, and a hidden one has no width yet.
        room = self.window().width() - ROOM_FOR_BUTTONS
        flags = int(Qt.TextFlag.TextWordWrap)
        text = self.fontMetrics().boundingRect(0, 0, max(room, 200), 10_000, flags, self.label.text())
        self.label.setFixedHeight(max(text.height(), 16))

    def _show(self) -> None:
        severity, text = self._notice or ("error" if self._lost else "info", LOST_TEXT if self._lost else "")
        self._severity = "error" if self._lost else severity
        self.label.setText(text)
        self.recover_button.setVisible(self._lost)
        self.close_button.setVisible(self._notice is not None)
        self._fit()
        self.opened.emit(bool(text))
        self._dress()

    def _dress(self) -> None:
        c = theme.colours()
        colour = {"info": c.info, "warning": c.warning, "error": c.error}[self._severity]
        word = SEVERITY_WORD[self._severity]
        self.sign.setPixmap(icon(self._severity, colour).pixmap(QSize(16, 16), self.devicePixelRatioF()))
        self.sign.setAccessibleName(word)
        self.sign.setToolTip(word)
        self.setAutoFillBackground(True)
        palette = self.palette()
        palette.setColor(QPalette.ColorRole.Window, c.raised)
        palette.setColor(QPalette.ColorRole.WindowText, c.text)
        self.setPalette(palette)
