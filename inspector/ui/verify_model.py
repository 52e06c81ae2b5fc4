"""A step of another program against the kernels here as a table: each param by its largest difference, and the kind."""

from __future__ import annotations

import math
from typing import Any

from PySide6.QtCore import Qt

from inspector.floats import significant
from inspector.session.verdicts import ParamVerdict, StepVerdict
from inspector.stores import Lane
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.tables import AnyIndex, ColumnsModel

PARAM, KIND, W, M, V, DIFFER, BEYOND = range(7)
LANE_OF: dict[int, Lane] = {W: "w", M: "m", V: "v"}
COLUMNS = ("param", "kind", "w ULP", "m ULP", "v ULP", "w differ", "beyond 2")
MEANS = (
    "The param. A click selects it everywhere; a click on a column's name sorts by it",
    "What accounts for the difference",
    *(
        f"The largest difference of {lane}, in ULP at the larger of the value before the step and after it"
        for lane in "wmv"
    ),
    "Elements of w whose bits are not those that were recorded",
    "Elements of w, m or v that are more than 2 ULP apart",
)
SAMPLES = ("h.11.attn.qkv.weight", "no-correction", "88,888", "888", "888", "100 %", "888,888")
SAME, ROUNDING = "same", "rounding"


def ulp_text(value: float) -> str:
    """So many ULP as people read them."""
    if math.isinf(value):
        return "NaN"
    return significant(value, 2) if value < 10 else f"{value:,.0f}"


class VerdictRows(ColumnsModel):
    """A row a param, sorted by the column a person chose: the farthest off first."""

    COLUMNS = COLUMNS
    FIGURE_COLUMNS = frozenset(range(W, len(COLUMNS)))
    MEANS = MEANS

    def __init__(self) -> None:
        super().__init__()
        self.rows: tuple[ParamVerdict, ...] = ()
        self._sorted_by: tuple[int, Qt.SortOrder] = (W, Qt.SortOrder.DescendingOrder)

    def show(self, verdict: StepVerdict | None) -> None:
        """Show a step."""
        self.beginResetModel()
        self.rows = () if verdict is None else verdict.params
        self._arrange()
        self.endResetModel()

    def row_of(self, name: str) -> int | None:
        """The row of a param; None where it has none."""
        return next((i for i, row in enumerate(self.rows) if row.param == name), None)

    def row_total(self) -> int:
        """One row a param."""
        return len(self.rows)

    def sort(self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder) -> None:
        """Sort by a column, now and from now on."""
        self._sorted_by = column, order
        self.layoutAboutToBeChanged.emit()
        self._arrange()
        self.layoutChanged.emit()

    def data(self, index: AnyIndex, role: int = 0) -> Any:
        """The text of a cell; a difference that is no rounding in its colour."""
        row, column = self.rows[index.row()], index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            return self.text(row, column)
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return self.alignment(column)
        if role == Qt.ItemDataRole.ToolTipRole:
            if (lane := LANE_OF.get(column)) is not None:
                found = row.lanes[lane]
                far = f"{found.max_bits:,} representable float32 apart at most"
                return f"{far}; {found.differing:,} of {found.elements:,} elements differ"
            return str(row)
        if role == Qt.ItemDataRole.ForegroundRole and column == KIND and not row.agrees:
            return theme.ink(theme.NONFINITE)
        return None

    def text(self, row: ParamVerdict, column: int) -> str:
        """What a cell reads."""
        if (lane := LANE_OF.get(column)) is not None:
            return ulp_text(row.lanes[lane].max_ulp)
        if column == DIFFER:
            return fmt.percent(row.lanes["w"].share)
        if column == BEYOND:
            return fmt.count(sum(found.beyond for found in row.lanes.values()))
        return row.param if column == PARAM else f"{row.key}, idle" if row.idle else row.key

    def _arrange(self) -> None:
        column, order = self._sorted_by
        self.rows = tuple(
            sorted(
                self.rows, key=lambda row: _key(row, column), reverse=order == Qt.SortOrder.DescendingOrder
            )
        )


def _key(row: ParamVerdict, column: int) -> tuple[float, str | float]:
    if (lane := LANE_OF.get(column)) is not None:
        return row.lanes[lane].max_ulp, row.max_ulp
    if column == DIFFER:
        return row.lanes["w"].share, 0
    if column == BEYOND:
        return sum(found.beyond for found in row.lanes.values()), 0
    return 0, row.param if column == PARAM else row.key
