"""8-bit state in tables: each param's drift and errors, the worst first; and the bytes that either state takes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from PySide6.QtCore import Qt

from inspector.byte_sizes import size_text
from inspector.coding_error import ParamCodingError
from inspector.drift import ParamDrift
from inspector.floats import F64Array
from inspector.runtime.lockstep import EightBitPicture
from inspector.state_memory import LaneBytes
from inspector.stores import LANES
from inspector.ui import format as fmt
from inspector.ui.tables import AnyIndex, ColumnsModel

PARAM, DRIFT, LARGEST, M_ERROR, V_ERROR, LOST, WORST = range(7)
SAMPLES = (
    "h.11.attn.qkv.weight",
    "8.88e−8",
    "8.88e−8",
    "m error   ▾",
    "v error   ▾",
    "8,888",
    "8,888 · 8,888",
)
"""Text about as wide as any in its column."""


class ParamErrors(ColumnsModel):
    """One row a param: those in lockstep, or those with 8-bit state; sorted by the column a person chose."""

    COLUMNS = ("param", "drift", "max |Δw|", "m error", "v error", "lost", "worst m · v")
    FIGURE_COLUMNS = frozenset(range(1, 7))
    MEANS = (
        "The param. A click selects it everywhere; a click on a column's name sorts by it.",
        "‖Δw‖ / ‖w‖: how far the weights of the two runs are apart.",
        "The largest |Δw| of any element.",
        "Root mean square error of coding m, over the root mean square of m. – where m is float32.",
        "Root mean square error of coding v, over the root mean square of v. – where v is float32.",
        "Elements whose v became 0 while m did not: their next update divides by little more than ε.",
        "The blocks of 256 elements whose m and whose v err most.",
    )

    def __init__(self) -> None:
        super().__init__()
        self.names: tuple[str, ...] = ()
        """In the order of the rows."""
        self._drift: dict[str, ParamDrift] = {}
        self._coding: dict[str, ParamCodingError] = {}
        self._column, self._order = V_ERROR, Qt.SortOrder.DescendingOrder

    def show(self, picture: EightBitPicture | None) -> None:
        """Show the params of this moment."""
        self._drift = {d.name: d for d in picture.drift} if picture else {}
        self._coding = {e.name: e for e in picture.coding} if picture else {}
        names = tuple(self._drift or self._coding)
        if len(names) != len(self.names):
            self.beginResetModel()
            self.names = self._sorted(names)
            self.endResetModel()
        elif names:
            self.names = self._sorted(names)
            self.dataChanged.emit(self.index(0, 0), self.index(len(names) - 1, len(self.COLUMNS) - 1))

    def has_codes(self, name: str) -> bool:
        """True where errors of that param's codes were measured."""
        return name in self._coding

    def row_of(self, name: str) -> int | None:
        """The row of a param; None where it has none."""
        return self.names.index(name) if name in self._drift or name in self._coding else None

    def sort(self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder) -> None:
        """Sort by a column, now and from now on."""
        self._column, self._order = column, order
        self.layoutAboutToBeChanged.emit()
        self.names = self._sorted(self.names)
        self.layoutChanged.emit()

    def row_total(self) -> int:
        """One row a param."""
        return len(self.names)

    def data(self, index: AnyIndex, role: int = 0) -> Any:
        """The text of a cell."""
        name, column = self.names[index.row()], index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            return name if column == PARAM else self._text(name, column)
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return self.alignment(column)
        if role == Qt.ItemDataRole.ToolTipRole:
            return name if column == PARAM else self.MEANS[column]
        return None

    def _text(self, name: str, column: int) -> str:
        drift, coding = self._drift.get(name), self._coding.get(name)
        if column in (DRIFT, LARGEST):
            if drift is None:
                return "–"
            return fmt.number(drift.relative if column == DRIFT else drift.largest, 3)
        if coding is None:
            # Its state is float32.
            return "–"
        if column in (M_ERROR, V_ERROR):
            return percent((coding.m if column == M_ERROR else coding.v).relative)
        if column == LOST:
            return fmt.count(coding.lost)
        return f"{coding.m.worst_block:,} · {coding.v.worst_block:,}"

    def _sorted(self, names: tuple[str, ...]) -> tuple[str, ...]:
        descending = self._order == Qt.SortOrder.DescendingOrder
        if self._column == PARAM:
            return tuple(sorted(names, reverse=descending))
        keys = self._keys(names)
        # What is not a number is the worst of all, what has no value the least.
        keys = np.where(np.isnan(keys), math.inf, keys)
        order = np.argsort(-keys if descending else keys, kind="stable")
        return tuple(names[i] for i in order.tolist())

    def _keys(self, names: tuple[str, ...]) -> F64Array:
        def key(name: str) -> float:
            drift, coding = self._drift.get(name), self._coding.get(name)
            if self._column in (DRIFT, LARGEST):
                if drift is None:
                    return -math.inf
                return drift.relative if self._column == DRIFT else drift.largest
            if coding is None:
                return -math.inf
            if self._column == LOST:
                return float(coding.lost)
            if self._column == WORST:
                return float(coding.v.worst_block)
            return (coding.m if self._column == M_ERROR else coding.v).relative

        return np.array([key(name) for name in names], np.float64)


class MemoryRows(ColumnsModel):
    """Bytes of w, g, m and v in float32 and in 8 bits, what is allocated of it, and what the codes save."""

    COLUMNS = ("state", *LANES, "total", "of float32", "allocated")
    FIGURE_COLUMNS = frozenset(range(1, 8))
    MEANS = (
        "How m and v are kept.",
        *(f"Bytes of the elements of {lane}, its codes and scales." for lane in LANES),
        "Bytes of all elements, codes and scales; gaps between params are not counted.",
        "The total over that of float32 state.",
        "Bytes of the buffers on the device, gaps between params included.",
    )

    def __init__(self) -> None:
        super().__init__()
        self._rows: tuple[tuple[str, LaneBytes | None], ...] = (("float32", None), ("8-bit", None))

    def show(self, picture: EightBitPicture | None) -> None:
        """Show what this moment takes."""
        found = (picture.f32_bytes, picture.coded_bytes) if picture else (None, None)
        rows = (("float32", found[0]), ("8-bit", found[1]))
        if rows != self._rows:
            self._rows = rows
            self.dataChanged.emit(self.index(0, 0), self.index(1, len(self.COLUMNS) - 1))

    def row_total(self) -> int:
        """float32, and 8-bit."""
        return 2

    def data(self, index: AnyIndex, role: int = 0) -> Any:
        """The text of a cell, exact bytes as its tooltip."""
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return self.alignment(index.column())
        if role not in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole):
            return None
        (name, found), column = self._rows[index.row()], self.COLUMNS[index.column()]
        if column == "state":
            return name
        base = self._rows[0][1]
        if found is None or base is None:
            return fmt.NA
        if column == "of float32":
            return percent(found.total / base.total if base.total else math.nan)
        nbytes = found.total if column == "total" else found.allocated_total
        if column in LANES:
            nbytes = found.computed[column]
        if nbytes is None:
            return "–" if role == Qt.ItemDataRole.DisplayRole else "No such run is on the device."
        return size_text(nbytes) if role == Qt.ItemDataRole.DisplayRole else f"{nbytes:,} bytes"


def percent(share: float) -> str:
    """A share in three digits: 0.412 %, 12.3 %."""
    return f"{fmt.number(100 * share, 3)} %" if math.isfinite(share) else fmt.NA
