"""The line above a kernel's text: which kernel, what the text is to the run, and what can be done with it."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QToolButton, QWidget

from inspector.ui import theme
from inspector.ui.widgets import ElidedLabel

RUN = "Run the step again from its start with this kernel (Ctrl+Enter)"
BACK = "Back to the kernel that the run was opened with (Ctrl+Shift+Enter)"
KEEP = "Save it as a file that --shaders takes (Ctrl+S)"


class ShadersBar(QWidget):
    """Says and offers; knows nothing of kernels."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.kernel = QComboBox()
        self.kernel.setObjectName("shaders-kernel")
        self.kernel.setAccessibleName("kernel")
        self.kernel.setToolTip("Which kernel of the step is shown")
        self.kernel.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToContents)
        self.state = ElidedLabel()
        self.state.setContentsMargins(theme.GRID, 1, theme.GRID, 1)
        self.run = _button("Run again")
        self.back = _button("Revert")
        self.keep = _button("Save…")
        row = QHBoxLayout(self)
        row.setContentsMargins(theme.GRID, theme.GRID, theme.GRID, theme.GRID)
        row.addWidget(self.kernel)
        row.addWidget(self.state, 1)
        for button in (self.run, self.back, self.keep):
            row.addWidget(button)

    def say(self, text: str) -> None:
        """What the text on show is to the run, or what was just done; a sign in front of what needs a look."""
        self.state.setText(text)
        ink = (
            theme.ink(theme.colours().warning, theme.colours().window).name() if text.startswith("⚠") else ""
        )
        style = f"color: {ink};" if ink else ""
        if style != self.state.styleSheet():
            # Which lays out anew, be it the same.
            self.state.setStyleSheet(style)

    def allow(self, *, run: str, back: str, keep: str) -> None:
        """Why each cannot be done, "" where it can."""
        for button, tip, why in ((self.run, RUN, run), (self.back, BACK, back), (self.keep, KEEP, keep)):
            button.setEnabled(not why)
            button.setToolTip(f"{tip}: {why}" if why else tip)


def _button(text: str) -> QToolButton:
    button = QToolButton()
    button.setText(text)
    button.setAccessibleName(text.rstrip("…"))
    button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
    return button
