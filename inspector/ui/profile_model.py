"""What each kernel costs on this device, as rows; the whole step last."""

from __future__ import annotations

import math
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtGui import QFont

from inspector.cost import STEP, KernelCost, Work, floor_ms, recent_costs, works_of
from inspector.plan import Plan, Variant
from inspector.runtime.snapshots import Snapshot
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.tables import AnyIndex, ColumnsModel

RECENT = 256
"""Points of the history that the figures are taken over."""
COLUMNS = (
    "kernel", "median", "of step", "GB/s", "of copy", "floor", "B/element", "GFLOP/s", "calls", "last", "min", "p95",
    "warm", "cold",
)  # fmt: skip
SAMPLES = (
    "reduce_norm_sq_final", "88.8 ms", "100.0 %", "8,888", "88.8 %", "88.8 ms", "88.8", "88,888", "888",
    *3 * ("88.8 ms",), "888", "888",
)  # fmt: skip
"""Text about as wide as any in its column."""
MEASURE_FIRST = "n/a: measure the copy first"


class ProfileModel(ColumnsModel):
    """The kernels of the plan and their costs since the form of the step last changed."""

    COLUMNS = COLUMNS
    FIGURE_COLUMNS = frozenset(range(1, len(COLUMNS)))
    MEANS = (
        "The kernel and its block; its dispatches of a step are added up. Last: the whole step.",
        f"The median of the warm times among the last {RECENT} recorded points.",
        "The median over that of the whole step.",
        "Bytes read plus written over the median, in 10⁹ bytes a second.",
        "GB/s over what a plain copy reaches on this device.",
        "The time its bytes take at the bandwidth of a copy.",
        "Bytes read plus written for each element it works on; n/a where it works on none.",
        "10⁹ additions and multiplications a second, of products of matrices; n/a of all other kernels.",
        "Dispatches in one step.",
        "The latest warm time.",
        f"The shortest warm time among the last {RECENT} recorded points.",
        f"95 of 100 warm times among the last {RECENT} recorded points are no longer.",
        "Times that count.",
        "Times at low clocks, after the GPU had idled: left out.",
    )

    def __init__(self) -> None:
        super().__init__()
        self.costs: tuple[KernelCost, ...] = ()
        self.copy_gbps: float | None = None
        self._plan: Plan | None = None
        self._works: dict[str, Work] = {}
        self._variant: Variant | None = None
        self._after = 0
        self._bold = QFont(theme.ui_font())
        self._bold.setBold(True)

    def follow(self, snapshot: Snapshot) -> None:
        """Note from which step on the present form runs: times of another one are not mixed in. Cheap."""
        if snapshot.plan is None or snapshot.cursor is None:
            self._variant, self._after = None, 0
            return
        finished = snapshot.cursor.finished_steps
        if snapshot.plan.variant != self._variant:
            self._after = 0 if self._variant is None else finished
            self._variant = snapshot.plan.variant
        self._after = min(self._after, finished)

    def show(self, snapshot: Snapshot) -> None:
        """Work out the costs of this moment."""
        changed = snapshot.plan is not self._plan
        if changed:
            self.beginResetModel()
            self._plan = snapshot.plan
            self._works = works_of(snapshot.plan) if snapshot.plan and snapshot.plan.dispatches else {}
        self.copy_gbps = snapshot.copy_gbps
        self.costs = ()
        if self._works:
            self.costs = recent_costs(
                self._works,
                snapshot.history,
                after=self._after,
                recent=RECENT,
                copy_gbps=self._gbps,
                clock="cpu" if snapshot.device is not None and not snapshot.device.timestamps else "gpu",
            )
        if changed:
            self.endResetModel()
        elif self.costs:
            self.dataChanged.emit(self.index(0, 0), self.index(len(self.costs) - 1, len(COLUMNS) - 1))

    @property
    def step(self) -> KernelCost | None:
        """The whole step; None without a plan."""
        return self.costs[-1] if self.costs else None

    def floor_ms(self, name: str = STEP) -> float:
        """ms that its bytes take at the bandwidth of a copy; NaN until that was measured."""
        return floor_ms(self._works[name].nbytes, self._gbps)

    @property
    def step_bytes(self) -> int:
        """Bytes a step has to move."""
        return self._works[STEP].nbytes if self._works else 0

    @property
    def _gbps(self) -> float:
        return math.nan if self.copy_gbps is None else self.copy_gbps

    def row_total(self) -> int:
        """One row a kernel, and the step."""
        return len(self._works)

    def data(self, index: AnyIndex, role: int = 0) -> Any:
        """The text of a cell; the step in bold."""
        cost, column = self.costs[index.row()], index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            return self._texts(cost)[column]
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return self.alignment(column)
        if role == Qt.ItemDataRole.FontRole and cost is self.step:
            return self._bold
        if role == Qt.ItemDataRole.ToolTipRole:
            if COLUMNS[column] in ("floor", "of copy") and self.copy_gbps is None:
                return MEASURE_FIRST
            return self.MEANS[column] if column else cost.name
        return None

    def _texts(self, cost: KernelCost) -> tuple[str, ...]:
        return (
            cost.name,
            fmt.milliseconds(cost.median_ms),
            fmt.percent(cost.share_of_step),
            fmt.bandwidth(cost.gbps),
            fmt.percent(cost.share),
            fmt.milliseconds(self.floor_ms(cost.name)),
            fmt.number(cost.bytes_per_element, 3) if cost.elements else fmt.NA,
            fmt.bandwidth(cost.gflops),
            fmt.count(cost.dispatches),
            fmt.milliseconds(cost.last_ms),
            fmt.milliseconds(cost.min_ms),
            fmt.milliseconds(cost.p95_ms),
            fmt.count(cost.samples),
            fmt.count(cost.cold_samples),
        )
