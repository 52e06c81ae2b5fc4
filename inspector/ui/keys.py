"""All keys at a glance, grouped by what is done with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import QDialog, QDialogButtonBox, QLabel, QScrollArea, QVBoxLayout, QWidget

from inspector.ui.palette_entries import Entry

MOST_COLUMNS = 3

Group = tuple[str, tuple[tuple[str, str], ...]]
"""A title, and its keys each with what it does."""


class KeysDialog(QDialog):
    """Stays open beside the window while a person tries the keys."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("keys_dialog")
        self.setWindowTitle("Keys")
        # Of a tool window the keys of the window behind it go on working.
        self.setWindowFlag(Qt.WindowType.Tool)
        self.setModal(False)
        self.label = QLabel(self)
        self.label.setTextFormat(Qt.TextFormat.RichText)
        self.label.setAccessibleName("Keys")
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Close, self)
        buttons.rejected.connect(self.reject)
        scroll = QScrollArea(self)
        scroll.setFrameShape(QScrollArea.Shape.NoFrame)
        scroll.setWidget(self.label)
        scroll.setAccessibleName("All keys")
        column = QVBoxLayout(self)
        column.setContentsMargins(16, 12, 16, 12)
        column.addWidget(scroll)
        column.addWidget(buttons)

    def show_groups(self, groups: Sequence[Group]) -> None:
        """Show these, all of them where the screen is large enough; never wider than the screen."""
        margins, room = QSize(56, 80), self.screen().availableSize() * 0.95
        for columns in range(MOST_COLUMNS, 0, -1):
            self.label.setText(keys_text(groups, columns))
            self.label.adjustSize()
            if self.label.sizeHint().width() + margins.width() <= room.width():
                break
        self.resize((self.label.sizeHint() + margins).boundedTo(room))


def groups_of(entries: Iterable[Entry], views: Iterable[Group]) -> list[Group]:
    """Actions that have a key, by their menus, then the keys of each view."""
    found: dict[str, list[tuple[str, str]]] = {}
    for entry in entries:
        if entry.keys:
            found.setdefault(entry.group, []).append((" or ".join(entry.keys), entry.text.rstrip("…")))
    groups: list[Group] = [(title, tuple(rows)) for title, rows in found.items()]
    return groups + [group for group in views if group[1]]


def keys_text(groups: Sequence[Group], most: int = MOST_COLUMNS) -> str:
    """The groups in at most so many columns of about one height, as rich text."""
    total = sum(len(rows) + 2 for _, rows in groups)
    columns: list[list[str]] = [[]]
    height = 0
    for title, rows in groups:
        if height >= total * len(columns) / most and len(columns) < most:
            columns.append([])
        columns[-1].append(_group(title, rows))
        height += len(rows) + 2
    cells = "".join(f"<td valign='top'>{''.join(column)}</td>" for column in columns)
    return f"<table cellpadding='0' cellspacing='12'><tr>{cells}</tr></table>"


def _group(title: str, rows: tuple[tuple[str, str], ...]) -> str:
    lines = "".join(
        f"<tr><td><b>{escape(key)}</b>&nbsp;&nbsp;</td><td>{escape(what)}</td></tr>" for key, what in rows
    )
    return f"<p><i>{escape(title)}</i></p><table cellpadding='2'>{lines}</table>"
