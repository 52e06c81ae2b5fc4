"""The line above the findings: words to filter by, the least severity, and what can be done with the one selected."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QLineEdit, QToolButton, QWidget

from inspector.finding_words import Filter
from inspector.findings import Severity
from inspector.ui import theme

LEAST: tuple[tuple[str, Severity], ...] = (
    ("all", "info"),
    ("▲ and ✖", "warning"),
    ("✖ alone", "error"),
)
NO_POLICIES = "Select a finding on non-finite gradients to set policies side by side for its step (Y)"
POLICIES = "What other optimizers would have made of this step (Y); goes to its start"


class FindingsBar(QWidget):
    """`filtered` fires where another filter holds, `left` where Enter is pressed in the words."""

    filtered = Signal()
    left = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.words = QLineEdit()
        self.words.setPlaceholderText("Filter by words (/)")
        self.words.setToolTip("Words that cause, param or message have, in any order; step 30 finds a step")
        self.words.setAccessibleName("Filter findings by words")
        self.words.setClearButtonEnabled(True)
        self.words.setMinimumWidth(10 * theme.GRID)
        self.words.textChanged.connect(self.filtered)
        self.words.returnPressed.connect(self.left)
        self.least = QComboBox()
        self.least.addItems([text for text, _ in LEAST])
        self.least.setToolTip("Show all, warnings and errors, or errors alone (S)")
        self.least.currentIndexChanged.connect(self.filtered)
        self.copy = QToolButton()
        self.copy.setText("Copy")
        self.copy.setToolTip("Copy the finding as text, of a cause all its findings (Ctrl+C)")
        self.policies = QToolButton()
        self.policies.setText("Policies…")
        row = QHBoxLayout(self)
        row.setContentsMargins(theme.GRID, theme.GRID, theme.GRID, theme.GRID)
        row.setSpacing(theme.GRID)
        row.addWidget(self.words, 1)
        for widget in (self.least, self.copy, self.policies):
            row.addWidget(widget)
        # In a small window the panel may become low and narrow; the keys work without the bar.
        row.setSizeConstraint(QHBoxLayout.SizeConstraint.SetNoConstraint)
        self.setMaximumHeight(row.sizeHint().height())
        self.setMinimumSize(1, 1)

    def filter(self) -> Filter:
        """What is to be shown."""
        return Filter(LEAST[self.least.currentIndex()][1], self.words.text())

    def next_severity(self) -> None:
        """The next least severity, the first after the last."""
        self.least.setCurrentIndex((self.least.currentIndex() + 1) % len(LEAST))

    def allow(self, *, copy: bool, policies: bool) -> None:
        """What can be done with the finding selected."""
        self.copy.setEnabled(copy)
        self.policies.setEnabled(policies)
        self.policies.setToolTip(POLICIES if policies else NO_POLICIES)
