"""The lines of one element's update as a table: formula, float32, float64, and the ULP between."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import Qt

from inspector.ui import theme
from inspector.ui.microscope_model import Row
from inspector.ui.tables import AnyIndex, ColumnsModel

COLUMNS = ("line", "formula", "float32 (GPU)", "float64", "ULP")
NAME, FORMULA, F32, F64, ULP = range(len(COLUMNS))
MEANS = (
    "What is computed, in the order of the kernel",
    "How, as a formula; for what the update reads, where it lies",
    "As this GPU computes it from the element's own values",
    "The same from the same values in float64 on the host",
    "|float32 − float64| in units of float32's spacing there (ULP)",
)
SAMPLES = ("denominato", "m / max(1-β₁ᵗ,", "−8.8888888e−38", "−3.244482724928e−4", "100.00")


class LinesModel(ColumnsModel):
    """A row a line."""

    COLUMNS = COLUMNS
    FIGURE_COLUMNS = frozenset({F32, F64, ULP})
    MEANS = MEANS

    def __init__(self) -> None:
        super().__init__()
        self.rows: tuple[Row, ...] = ()

    def show_rows(self, rows: tuple[Row, ...]) -> None:
        """Take over other rows; the same lines with other numbers keep the selection."""
        if rows == self.rows:
            return
        same = [r.name for r in rows] == [r.name for r in self.rows]
        if not same:
            self.beginResetModel()
        self.rows = rows
        if not same:
            self.endResetModel()
        elif rows:
            self.dataChanged.emit(self.index(0, 0), self.index(len(rows) - 1, len(COLUMNS) - 1))

    def row_total(self) -> int:
        """The lines."""
        return len(self.rows)

    def data(self, index: AnyIndex, role: int = 0) -> Any:
        """The text of a cell; what is not finite in its colour."""
        row, column = self.rows[index.row()], index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            return self.text(index.row(), column)
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return self.alignment(column)
        if role in (Qt.ItemDataRole.ToolTipRole, Qt.ItemDataRole.AccessibleDescriptionRole):
            return f"{row.title} = {row.formula}\n{row.help}\nfloat32 {row.f32}, bits {row.bits}"
        if role == Qt.ItemDataRole.ForegroundRole:
            if row.bad and column == F32:
                return theme.ink(theme.NONFINITE)
            return theme.colours().muted if column == FORMULA else None
        return None

    def text(self, row: int, column: int) -> str:
        """What a cell reads."""
        one = self.rows[row]
        return (one.title, one.formula, one.f32, one.f64, one.ulp)[column]

    def as_text(self) -> str:
        """All of it with tabs between columns, the bits last."""
        lines: list[tuple[str, ...]] = [(*COLUMNS, "bits")]
        lines += [(*(self.text(i, c) for c in range(len(COLUMNS))), r.bits) for i, r in enumerate(self.rows)]
        return "\n".join("\t".join(cells) for cells in lines) + "\n"
