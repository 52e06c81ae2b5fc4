"""Tables of the states of a param: one row a state, and one row a value of the state that is chosen."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from PySide6.QtCore import Qt

from inspector.layout import F32_BYTES
from inspector.runtime.states_look import StateShown
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.tables import AnyIndex, ColumnsModel

COLUMNS = ("state", "shape", "values", "bytes", "least", "mean", "largest", "zeros", "not finite", "buffer")
SAMPLES = (
    "right_factor",
    "158 × 3 × 256 × 256",
    "31,064,064",
    "124,256,256",
    "−8.888e−8",
    "−8.888e−8",
    "−8.888e−8",
    "8,888",
    "8,888",
    "",
)
NAMES = range(2)
BUFFER = len(COLUMNS) - 1
NOT_FINITE = 8
VALUE_COLUMNS = ("flat", "index", "before", "after")
VALUE_SAMPLES = ("262,143", "[157, 2, 255, 255]", "−8.8888888e−38", "−8.8888888e−38")


class StatesModel(ColumnsModel):
    """One row a state, with what its values are like."""

    COLUMNS = COLUMNS
    FIGURE_COLUMNS: ClassVar[frozenset[int]] = frozenset(range(2, BUFFER))
    MEANS = (
        "A state that the optimizer keeps of the param in a shape of its own.",
        "Extents of the state.",
        "How many values it has.",
        "What they take in float32, in bytes.",
        "The lowest finite value.",
        "The mean of the finite values.",
        "The highest finite value.",
        "Values that are exactly 0.",
        "Values that are NaN or infinite.",
        "Where it lies: the buffer, and its first byte there.",
    )

    def __init__(self) -> None:
        super().__init__()
        self.states: tuple[StateShown, ...] = ()

    def show(self, states: tuple[StateShown, ...]) -> None:
        """Take over what was read."""
        same = [s.placed for s in states] == [s.placed for s in self.states]
        if not same:
            self.beginResetModel()
        self.states = states
        if not same:
            self.endResetModel()
        elif states:
            self.dataChanged.emit(self.index(0, 0), self.index(len(states) - 1, BUFFER))

    def row_total(self) -> int:
        """The states."""
        return len(self.states)

    def data(self, index: AnyIndex, role: int = 0) -> Any:
        """The text of a cell."""
        each, column = self.states[index.row()], index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            return _texts(each)[column]
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return self.alignment(column)
        if role == Qt.ItemDataRole.ForegroundRole and column == NOT_FINITE and each.counts.nonfinite.total:
            return theme.ink(theme.NONFINITE)
        if role == Qt.ItemDataRole.ToolTipRole:
            part = "" if each.whole else f" Counts are of the first {len(each.values):,} values."
            return f"{each.placed.name}: {each.title}.{part}"
        return None


def _texts(each: StateShown) -> tuple[str, ...]:
    placed, counts = each.placed, each.counts
    about = "" if each.whole else "≥ "
    return (
        placed.name, fmt.shape(placed.shape), f"{placed.elements:,}", f"{placed.elements * F32_BYTES:,}",
        fmt.number(each.low), fmt.number(each.mean), fmt.number(each.high), f"{about}{counts.zeros:,}",
        f"{about}{counts.nonfinite.total:,}", f"{placed.buffer} from byte {placed.start * F32_BYTES:,}",
    )  # fmt: skip


class StateValuesModel(ColumnsModel):
    """One row a value of a state, before the last dispatch and after it; what changed is bold."""

    COLUMNS = VALUE_COLUMNS
    FIGURE_COLUMNS: ClassVar[frozenset[int]] = frozenset(range(len(VALUE_COLUMNS)))
    MEANS = (
        "The value by its number in the state, counted from 0.",
        "The same by its place along each dimension of the state.",
        "As it was before the last dispatch.",
        "As it is; bold where it changed.",
    )

    def __init__(self) -> None:
        super().__init__()
        self.state: StateShown | None = None

    def show(self, state: StateShown | None) -> None:
        """Take over the values of a state; None for none."""
        rows = 0 if state is None else len(state.values)
        same = rows == self.row_total()
        if not same:
            self.beginResetModel()
        self.state = state
        if not same:
            self.endResetModel()
        elif rows:
            self.dataChanged.emit(self.index(0, 0), self.index(rows - 1, len(VALUE_COLUMNS) - 1))

    def row_total(self) -> int:
        """The values that were read."""
        return 0 if self.state is None else len(self.state.values)

    def data(self, index: AnyIndex, role: int = 0) -> Any:
        """The text of a cell."""
        if self.state is None:
            return None
        row, column = index.row(), index.column()
        before, after = self.state.before[row], self.state.values[row]
        if role == Qt.ItemDataRole.DisplayRole:
            shape = self.state.placed.shape
            return (f"{row:,}", fmt.multi_index(row, shape), fmt.exact(before), fmt.exact(after))[column]
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return self.alignment(column)
        if role == Qt.ItemDataRole.FontRole and column == 3 and before.tobytes() != after.tobytes():
            font = theme.ui_font()
            font.setBold(True)
            return font
        if role == Qt.ItemDataRole.ForegroundRole and column >= 2:
            bad = not np.isfinite((before, after)[column - 2])
            return theme.ink(theme.NONFINITE) if bad else None
        return None
