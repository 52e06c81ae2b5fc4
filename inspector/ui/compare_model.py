"""What two recordings differ in as tables: each param at its worst, settings, and what kernels took."""

from __future__ import annotations

import math
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
from PySide6.QtCore import Qt

from inspector.floats import F64Array, shortest
from inspector.session.diff_report import DiffReport, Worst
from inspector.session.differences import Setting, Timing
from inspector.stores import Lane
from inspector.ui import format as fmt
from inspector.ui.tables import AnyIndex, ColumnsModel

PARAM, ULP, ULP_STEP, RELATIVE, RELATIVE_STEP = range(5)
Row = TypeVar("Row")

SAMPLES = ("h.11.attn.qkv.weight", "max ULP ▾", "at step", "‖Δ‖ / ‖a‖ ▾", "at step")
"""Text about as wide as any in its column."""
NONE = "–"
LONG_ULP = 1_000_000
"""From here on the table gives three digits, and all of them in the tooltip."""
HUGE_ULP = 1 << 32
"""What stands for the distance between a number and NaN."""


class WorstParams(ColumnsModel):
    """One row a param with the largest differences of a lane over all steps; sorted by the column a person chose."""

    COLUMNS = ("param", "max ULP", "at step", "‖Δ‖ / ‖a‖", "at step")
    FIGURE_COLUMNS = frozenset(range(1, 5))
    MEANS = (
        "The param. A click selects it everywhere; a click on a column's name sorts by it.",
        "The most float32 values that an element of b is away from that of a, over all steps captured in both. – where "
        "none is; NaN where only one of them is NaN.",
        "The first step at which it is so many.",
        "The largest ‖b − a‖ / ‖a‖ over all steps captured in both.",
        "The first step at which it is so large.",
    )

    def __init__(self) -> None:
        super().__init__()
        self.names: tuple[str, ...] = ()
        """In the order of the rows."""
        self._report: DiffReport | None = None
        self._worst: Worst | None = None
        self._order: npt.NDArray[np.intp] = np.empty(0, np.intp)
        self._sorted_by: tuple[int, Qt.SortOrder] = (ULP, Qt.SortOrder.DescendingOrder)

    def show(self, report: DiffReport | None, lane: Lane) -> None:
        """Show the params of a comparison in this lane."""
        self.beginResetModel()
        self._report = report
        self._worst = report.worst.get(lane) if report else None
        self._arrange()
        self.endResetModel()

    def row_of(self, name: str) -> int | None:
        """The row of a param; None where it has none."""
        return self.names.index(name) if name in self.names else None

    def sort(self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder) -> None:
        """Sort by a column, now and from now on."""
        self._sorted_by = column, order
        self.layoutAboutToBeChanged.emit()
        self._arrange()
        self.layoutChanged.emit()

    def row_total(self) -> int:
        """One row a param."""
        return len(self.names)

    def data(self, index: AnyIndex, role: int = 0) -> Any:
        """The text of a cell."""
        row, column = index.row(), index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            return self.names[row] if column == PARAM else self._text(int(self._order[row]), column)
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return self.alignment(column)
        if role == Qt.ItemDataRole.ToolTipRole:
            if column == ULP and self._worst is not None:
                return f"{ulp_text(int(self._worst.ulp[self._order[row]]))} ULP. {self.MEANS[ULP]}"
            return self.names[row] if column == PARAM else self.MEANS[column]
        return None

    def _text(self, param: int, column: int) -> str:
        worst = self._worst
        if worst is None:
            return NONE
        if column == ULP:
            ulp = int(worst.ulp[param])
            return ulp_text(ulp) if ulp < LONG_ULP or ulp >= HUGE_ULP else fmt.number(float(ulp), 3)
        if column == RELATIVE:
            relative = float(worst.relative[param])
            return NONE if worst.relative_step[param] < 0 else fmt.number(relative, 3)
        step = int((worst.ulp_step if column == ULP_STEP else worst.relative_step)[param])
        largest = float(worst.ulp[param] if column == ULP_STEP else worst.relative[param])
        # All steps alike: none of them is the worst.
        return NONE if step < 0 or largest == 0 else fmt.count(step)

    def _arrange(self) -> None:
        params = self._report.params if self._report else ()
        column, order = self._sorted_by
        keys = self._keys(column, len(params))
        if column == PARAM:
            keys = (
                np.argsort(np.argsort(np.array(params, dtype=object))).astype(np.float64) if params else keys
            )
        descending = order == Qt.SortOrder.DescendingOrder
        self._order = np.argsort(-keys if descending else keys, kind="stable")
        self.names = tuple(params[i] for i in self._order.tolist())

    def _keys(self, column: int, count: int) -> F64Array:
        worst = self._worst
        if worst is None or column == PARAM:
            return np.zeros(count)
        columns = {
            ULP: worst.ulp,
            ULP_STEP: worst.ulp_step,
            RELATIVE: worst.relative,
            RELATIVE_STEP: worst.relative_step,
        }
        keys = np.asarray(columns[column], np.float64)
        # NaN is the worst of all, what was not compared the least.
        keys = np.where(np.isnan(keys), math.inf, keys)
        return np.where(worst.relative_step < 0, -math.inf, keys)


class _TextRows(ColumnsModel, Generic[Row]):
    """Rows that are shown as they are given, a text a cell."""

    def __init__(self) -> None:
        super().__init__()
        self._rows: tuple[Row, ...] = ()

    def show(self, rows: tuple[Row, ...]) -> None:
        """Show these."""
        self.beginResetModel()
        self._rows = rows
        self.endResetModel()

    def row_total(self) -> int:
        """As many as were given."""
        return len(self._rows)

    def data(self, index: AnyIndex, role: int = 0) -> Any:
        """The text of a cell."""
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return self.alignment(index.column())
        if role not in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole):
            return None
        return self.texts(self._rows[index.row()])[index.column()]

    def texts(self, row: Row) -> tuple[str, ...]:
        """The cells of a row."""
        raise NotImplementedError


class SettingRows(_TextRows[Setting]):
    """Settings that differ, and from which step on."""

    COLUMNS = ("from step", "setting", "a", "b")
    FIGURE_COLUMNS = frozenset((0,))
    MEANS = (
        "The first step from which on the two go with different values.",
        "A hyper-parameter, or a choice of the form of the step.",
        "Its value in recording a.",
        "Its value in recording b.",
    )

    def texts(self, row: Setting) -> tuple[str, ...]:
        """One row a setting and change."""
        return fmt.count(row.step), row.name, _setting(row.a), _setting(row.b)


class TimingRows(_TextRows[Timing]):
    """What kernels took in one beside the other, medians of warm samples."""

    COLUMNS = ("kernel", "a", "b", "b / a")
    FIGURE_COLUMNS = frozenset((1, 2, 3))
    MEANS = (
        "The kernel and its block; its dispatches of a step are added up.",
        "Median time in recording a, of samples that are not cold.",
        "Median time in recording b, of samples that are not cold.",
        "The median of b over that of a: below 1 where b is faster.",
    )

    def texts(self, row: Timing) -> tuple[str, ...]:
        """One row a kernel."""
        return row.kernel, fmt.milliseconds(row.a), fmt.milliseconds(row.b), fmt.ratio(row.ratio)


def ulp_text(ulp: int) -> str:
    """A distance in ULP; NaN beside a number has none, and -1 stands for what was not compared."""
    if ulp < 0:
        return NONE
    return "NaN" if ulp >= HUGE_ULP else fmt.count(ulp)


def _setting(value: object) -> str:
    return shortest(value) if isinstance(value, float) else str(value)
