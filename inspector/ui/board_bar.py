"""The line above the plots of the board: what to do with them, and what is to be known of them."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QToolButton, QWidget

from inspector.ui import theme
from inspector.ui.widgets import CheckedLook, ElidedLabel


class BoardBar(QWidget):
    """`count` is there where what is plotted is not counted."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        row = QHBoxLayout(self)
        row.setContentsMargins(theme.GRID, 2, theme.GRID, 2)
        row.setSpacing(theme.GRID)
        self.add = self._button(
            "+ Plot", "A new plot: any metric of any params (N); L adds lines to this one"
        )
        self.log = self._button("Log", "The y axis of the current plot as powers of ten, or as it is (G)")
        CheckedLook(self.log)
        self.remove = self._button("Remove", "Take the current plot away (Del); U puts it back")
        self.export = self._button("Export", "Write the current plot as PNG, SVG or CSV (E)")
        self.count = self._button(
            "Count params", "Count every param at each step from the next one on: level full"
        )
        for button in (self.add, self.log, self.remove, self.export, self.count):
            row.addWidget(button)
        self.count.hide()
        self.words = ElidedLabel()
        row.addWidget(self.words, 1)

    def say(self, text: str) -> None:
        """Write a sentence."""
        self.words.setText(text)

    def _button(self, text: str, tip: str) -> QToolButton:
        button = QToolButton(self)
        button.setText(text)
        button.setToolTip(tip)
        button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        return button
