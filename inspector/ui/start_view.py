"""The start page: what can be opened with one key: the live model, the reference layout, examples, recent sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PySide6.QtCore import QModelIndex, Qt, Signal
from PySide6.QtGui import QFont
from PySide6.QtWidgets import QLabel, QVBoxLayout, QWidget

from inspector.files import named_files
from inspector.preset import GPT_116M
from inspector.runtime.commands import OpenSource
from inspector.runtime.snapshots import Snapshot
from inspector.session.examples import EXAMPLES
from inspector.ui import theme
from inspector.ui.tables import AnyIndex, ColumnsModel, dense_table, set_widths
from inspector.ui.view import View

LIVE = "charlm"
BUILT_IN = (
    ("Live model", LIVE, "a small Llama-shaped character model, training on real text from its first step"),
    ("Reference layout", GPT_116M, "116 M elements in 74 tensors, with gradients made on the GPU"),
)
"""Title, source and what it is."""
GUIDE = (
    "Guide",
    "five tasks step by step: step, record your own run, stop at a fault, ask what if, see what kernels cost",
)
KEYS = (("Enter", "open what is selected"),)
HELP = (
    "Enter or a double click opens. A recording, a state file, a dump or the files of a checkpoint (weights and "
    "optimizer state together) can be dropped on the window; Ctrl+O asks for files, Ctrl+Shift+O for a folder."
)
NO_RECENT = "What you open is listed here."


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the page: a heading, a source to open, the guide, or, without any of these, a remark."""

    title: str
    text: str = ""
    spec: str | None = None
    heading: bool = False
    guide: bool = False

    @property
    def chosen(self) -> bool:
        """True where something happens when it is chosen."""
        return self.spec is not None or self.guide


def rows(recent: Sequence[str]) -> list[Row]:
    """What the page lists; a file that is gone is said to be."""
    found = [Row("Start with", heading=True)]
    found += [Row(title, text, spec) for title, spec, text in BUILT_IN]
    found.append(Row(*GUIDE, guide=True))
    examples = [(example, example.path) for example in EXAMPLES]
    if any(path for _, path in examples):
        found.append(Row("Example recordings", heading=True))
        found += [Row(example.name, example.shows, str(path)) for example, path in examples if path]
    found.append(Row("Recent", heading=True))
    found += [_recent(spec) for spec in recent] or [Row(NO_RECENT)]
    return found


def always_listed() -> tuple[str, ...]:
    """The sources that are on the page whatever was opened."""
    return tuple(row.spec for row in rows(()) if row.spec is not None)


def _recent(spec: str) -> Row:
    path = Path(spec)
    if not path.is_absolute():
        return Row(spec, "", spec)
    files = named_files(spec)
    if not files:
        return Row(path.name, f"{path.parent}: not there any more")
    return Row(" + ".join(file.name for file in files), str(files[0].parent), spec)


class StartModel(ColumnsModel):
    """The rows of the page: headings can be neither selected nor opened."""

    COLUMNS = ("source", "what it is")
    FIGURE_COLUMNS = frozenset()

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Row] = []

    def show_rows(self, rows: list[Row]) -> None:
        """List others, where they are others."""
        if rows != self.rows:
            self.beginResetModel()
            self.rows = rows
            self.endResetModel()

    def row_total(self) -> int:
        return len(self.rows)

    def flags(self, index: AnyIndex) -> Qt.ItemFlag:
        if not self.rows[index.row()].chosen:
            return Qt.ItemFlag.NoItemFlags
        return Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable

    def data(self, index: AnyIndex, role: int = 0) -> Any:
        row = self.rows[index.row()]
        if role == Qt.ItemDataRole.DisplayRole:
            return (row.title, row.text)[index.column()]
        if role == Qt.ItemDataRole.ToolTipRole:
            return row.text or None
        if role == Qt.ItemDataRole.ForegroundRole:
            muted = not row.chosen or index.column() == 1
            return theme.colours().muted if muted else None
        if role == Qt.ItemDataRole.FontRole and row.heading:
            font = QFont(theme.ui_font())
            font.setBold(True)
            return font
        return None


class StartView(View):
    """The list with a line of help below it. `left` says that the page has served its purpose, `guide_wanted` that
    somebody wants to be shown about."""

    LOCAL_KEYS = KEYS

    left = Signal()
    guide_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("start")
        self._open = ""
        """The source that is open and works."""
        self.model = StartModel()
        self.table = dense_table(self.model, "start-list")
        self.table.setAlternatingRowColors(False)
        self.table.horizontalHeader().hide()
        self.table.activated.connect(self._on_activated)
        self.setFocusProxy(self.table)
        help_line = QLabel(HELP)
        help_line.setWordWrap(True)
        help_line.setContentsMargins(2 * theme.GRID, theme.GRID, 2 * theme.GRID, theme.GRID)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.table, 1)
        column.addWidget(help_line)
        theme.changes().changed.connect(self.table.viewport().update)
        self.show_recent(())
        set_widths(self.table, ("a recording of mine.session.zip", ""), stretch=1)

    def show_recent(self, recent: Sequence[str]) -> None:
        """List what was opened lately, the newest first."""
        chosen = self._row(self.table.currentIndex())
        self.model.show_rows(rows(recent))
        same = next((i for i, row in enumerate(self.model.rows) if row == chosen), None)
        first = next(i for i, row in enumerate(self.model.rows) if row.chosen)
        self.table.setCurrentIndex(self.model.index(first if same is None else same, 0))

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Remember what is open: to choose it again goes on with it."""
        self._open = snapshot.source if snapshot.mode in ("paused", "running") else ""

    def _row(self, index: QModelIndex) -> Row | None:
        return self.model.rows[index.row()] if index.isValid() else None

    def _on_activated(self, index: QModelIndex) -> None:
        row = self._row(index)
        if row is not None and row.guide:
            self.guide_wanted.emit()
        if row is None or row.spec is None:
            return
        if row.spec != self._open:
            self.command.emit(OpenSource(row.spec))
        self.left.emit()
