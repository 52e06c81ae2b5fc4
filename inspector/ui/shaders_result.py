"""What an edited kernel came to: what is wrong with its text, and its lanes beside before and float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from PySide6.QtCore import Qt

from inspector.shader_edit import ShaderMessage
from inspector.shader_trial import LaneChange, ShaderTrial
from inspector.ui import theme
from inspector.ui.shaders_model import COLUMNS, ERROR_NOW, LANE, MEANS, WHERE, row_texts
from inspector.ui.tables import AnyIndex, ColumnsModel

SAMPLES = ("clipScale", "22,000", "not finite", "before to f64", "not finite", "h.0.attn.qkv.weight[12, 34]",
           "−1.2345678e−5", "−1.2345678e−5", "−1.234567891e−5")  # fmt: skip
FAR_ULP = 4.0
"""Beyond what rounding in float32 brings a whole update."""


class TrialModel(ColumnsModel):
    """A row a lane."""

    COLUMNS = COLUMNS
    FIGURE_COLUMNS = frozenset(range(1, len(COLUMNS))) - {WHERE}
    MEANS = MEANS

    def __init__(self) -> None:
        super().__init__()
        self.trial: ShaderTrial | None = None
        self._texts: tuple[tuple[str, ...], ...] = ()

    def show_trial(self, trial: ShaderTrial | None, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Take over another one."""
        self.beginResetModel()
        self.trial = trial
        self._texts = tuple(row_texts(row, shapes) for row in trial.rows) if trial is not None else ()
        self.endResetModel()

    def row_total(self) -> int:
        """The lanes."""
        return len(self._texts)

    def row(self, index: int) -> LaneChange | None:
        """The lane of a row."""
        return (
            self.trial.rows[index] if self.trial is not None and 0 <= index < len(self.trial.rows) else None
        )

    def data(self, index: AnyIndex, role: int = 0) -> Any:
        """The text of a cell; what is far from float64 in its colour."""
        row, column = index.row(), index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            return self._texts[row][column]
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return self.alignment(column)
        if role == Qt.ItemDataRole.ToolTipRole:
            return f"{COLUMNS[column]}: {self._texts[row][column]}\n{MEANS[column]}"
        lane = self.row(row)
        if role == Qt.ItemDataRole.ForegroundRole and lane is not None:
            if column == ERROR_NOW and lane.error_now > FAR_ULP:
                return theme.ink(theme.colours().error)
            colour = next((c for name, c in theme.LANE_COLOURS.items() if name == lane.lane), None)
            return theme.ink(colour) if colour is not None and column == LANE else None
        return None

    def as_text(self) -> str:
        """All of it with tabs between columns."""
        return "\n".join("\t".join(cells) for cells in (COLUMNS, *self._texts)) + "\n"


class MessagesModel(ColumnsModel):
    """A row for each thing that is wrong with a text."""

    COLUMNS = ("line", "what is wrong")
    FIGURE_COLUMNS = frozenset({0})
    MEANS = (
        "Where in the text: a click goes there.",
        "What the compiler, or the check of its bindings, says of it.",
    )

    def __init__(self) -> None:
        super().__init__()
        self.messages: tuple[ShaderMessage, ...] = ()

    def show_messages(self, messages: tuple[ShaderMessage, ...]) -> None:
        """Take over others."""
        if messages != self.messages:
            self.beginResetModel()
            self.messages = messages
            self.endResetModel()

    def row_total(self) -> int:
        """How many there are."""
        return len(self.messages)

    def data(self, index: AnyIndex, role: int = 0) -> Any:
        """The text of a cell."""
        message = self.messages[index.row()]
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole):
            return message.place if index.column() == 0 else message.text
        return self.alignment(index.column()) if role == Qt.ItemDataRole.TextAlignmentRole else None
