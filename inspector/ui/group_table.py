"""The settings of each group of params in the step on show, where they are not the same for all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QTableView

from inspector.hyper import Hyper
from inspector.layout import Layout
from inspector.runtime.snapshots import Snapshot
from inspector.settings import Settings
from inspector.ui import format as fmt
from inspector.ui.tables import AnyIndex, ColumnsModel, dense_table, set_widths

COLUMNS = ("group", "params", "t", "lr", "λ", "β₁", "β₂", "ε")
MEANS = (
    "The param group. One with several rows has params that have taken fewer steps than others, or sit this one out.",
    "How many params.",
    "The step that this one is to them, which their bias correction counts by. idle: they have no gradient and take no "
    "part, so w, m, v and t stay.",
    "The learning rate as used, with the schedule applied.",
    "Weight decay, as it stands: it counts whatever the block.",
    "Decay of the first moment m.",
    "Decay of the second moment v.",
    "Added to √v̂ in the denominator.",
)
SAMPLES = ("88", "8,888", "8,888 idle", "8.8e−4", "0.08", "0.99", "0.999", "1e−8")


@dataclass(frozen=True, slots=True)
class GroupRow:
    """Params of one group that take a step alike: their settings, how many, and the step that it is to them."""

    group: int
    settings: Settings
    params: int
    t: int
    first: str
    """One of them."""


def group_rows(hyper: Hyper, layout: Layout, step: int) -> tuple[GroupRow, ...]:
    """By group, then by class; none where all params share their settings."""
    own = hyper.per_param
    if own is None:
        return ()
    params = layout.given
    of = np.full(len(params), -1, np.intp)
    known = min(len(own.of), len(params))
    of[:known] = own.of[:known]
    groups = np.array([p.group for p in params], np.intp)
    pairs, first, counts = np.unique(np.stack((groups, of)), axis=1, return_index=True, return_counts=True)
    rows = []
    for (group, _), at, count in zip(pairs.T.tolist(), first.tolist(), counts.tolist(), strict=True):
        used = hyper.of_param(at, decays=True)
        # What has not joined the run yet has taken no step.
        rows.append(GroupRow(group, used, count, used.t(step) if at < known else 0, params[at].name))
    return tuple(rows)


class GroupModel(ColumnsModel):
    """One row a group, or several where its params differ in their step counts."""

    COLUMNS = COLUMNS
    FIGURE_COLUMNS: ClassVar[frozenset[int]] = frozenset(range(1, len(COLUMNS)))
    MEANS = MEANS

    def __init__(self) -> None:
        super().__init__()
        self.rows: tuple[GroupRow, ...] = ()

    def show_rows(self, rows: tuple[GroupRow, ...]) -> None:
        """Take over the groups."""
        if rows == self.rows:
            return
        same = len(rows) == len(self.rows)
        if not same:
            self.beginResetModel()
        self.rows = rows
        if not same:
            self.endResetModel()
        elif rows:
            self.dataChanged.emit(self.index(0, 0), self.index(len(rows) - 1, len(COLUMNS) - 1))

    def row_total(self) -> int:
        """The groups."""
        return len(self.rows)

    def text(self, row: int, column: int) -> str:
        """What stands in a cell."""
        each = self.rows[row]
        s = each.settings
        t = f"{max(each.t, 0):,}{' idle' if s.idle else ''}"
        return (
            str(each.group), f"{each.params:,}", t, fmt.number(s.lr), fmt.number(s.weight_decay),
            fmt.number(s.beta1, 6), fmt.number(s.beta2, 6), fmt.number(s.eps),
        )[column]  # fmt: skip

    def data(self, index: AnyIndex, role: int = 0) -> Any:
        """The text of a cell, and what it means."""
        if role == Qt.ItemDataRole.DisplayRole:
            return self.text(index.row(), index.column())
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return self.alignment(index.column())
        if role == Qt.ItemDataRole.ToolTipRole:
            each = self.rows[index.row()]
            more = f" and {each.params - 1:,} more" if each.params > 1 else ""
            return f"{each.first}{more}\n{MEANS[index.column()]}"
        return None


class GroupTable:
    """The table, hidden where all params share their settings."""

    def __init__(self) -> None:
        self.model = GroupModel()
        self.table = dense_table(self.model, "groups")
        self.table.setSelectionMode(QTableView.SelectionMode.NoSelection)
        set_widths(self.table, SAMPLES)
        self.table.hide()
        self._made_of: tuple[Hyper | None, Layout | None, int] = (None, None, 0)

    def show_snapshot(self, snapshot: Snapshot) -> bool:
        """Worked out where settings, places or the step changed; True where it came or went."""
        used, cursor = snapshot.step_hyper, snapshot.cursor
        layout = None if snapshot.plan is None else snapshot.plan.layout
        step = max(cursor.step, 1) if cursor is not None else 1
        if used is self._made_of[0] and layout is self._made_of[1] and step == self._made_of[2]:
            return False
        self._made_of = used, layout, step
        had = bool(self.model.rows)
        self.model.show_rows(() if used is None or layout is None else group_rows(used, layout, step))
        self.table.setVisible(bool(self.model.rows))
        return had != bool(self.model.rows)
