"""Policies on non-finite gradients side by side: what each would make of the step on show."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication, QKeySequence
from PySide6.QtWidgets import QHBoxLayout, QLabel, QToolButton, QVBoxLayout, QWidget

from inspector.policies import STATE_LANES, Outcome, PolicyTable
from inspector.runtime.commands import CancelPolicies, WeighPolicies
from inspector.runtime.snapshots import Snapshot
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.actions import blocked
from inspector.ui.shortcuts import bind
from inspector.ui.tables import AnyIndex, ColumnsModel, dense_table, set_widths
from inspector.ui.view import LazyView
from inspector.ui.widgets import ElidedLabel

COLUMNS = (
    "policy", "the step", "gradient norm", "clip scale", "‖Δw‖",
    "w NaN, Inf", "m NaN, Inf", "v NaN, Inf", "params", "w", "m", "v",
)  # fmt: skip
POLICY, COUNTS, NORM, SCALE, MOVED, W_BAD, M_BAD, V_BAD, PARAMS, W, M, V = range(len(COLUMNS))
MEANS = (
    "An optimizer, and what it does with NaN and infinite gradients",
    "Whether the step counts in t", "As this policy computes it, before clipping", "What multiplies gradients",
    "Over weights that are finite before and after", *(f"Elements of {lane} not finite afterwards" for lane in "wmv"),
    "Params with any element not finite afterwards", *(f"{lane} of the element after the step" for lane in "wmv"),
)  # fmt: skip
SAMPLES = (
    "PyTorch clip_grad_norm_ + AdamW", "is skipped", "0.000000", "0.000000", "0.000e−9",
    *["116,017,920"] * 3, "20,000", *["−0.0000e−9"] * 3,
)  # fmt: skip
KEYS = (("Y", "work them out for the step and element on show; again ends it"), ("Ctrl+C", "copy the table"))
WHAT = (
    "What five optimizers that treat NaN and infinite gradients differently would each make of w, m and v in one step. "
    "Work out (Y) does it for the step on show, from its start."
)


class PoliciesModel(ColumnsModel):
    """A row a policy, below one with the element before the step."""

    COLUMNS = COLUMNS
    FIGURE_COLUMNS = frozenset(range(NORM, len(COLUMNS)))
    MEANS = MEANS

    def __init__(self) -> None:
        super().__init__()
        self.table: PolicyTable | None = None

    def show_table(self, table: PolicyTable | None) -> None:
        """Take over a table."""
        self.beginResetModel()
        self.table = table
        self.endResetModel()

    def outcome(self, row: int) -> Outcome | None:
        """The policy of a row; None of the element before the step."""
        return self.table.outcomes[row] if self.table and 0 <= row < len(self.table.outcomes) else None

    def row_total(self) -> int:
        """The policies, and the element before the step where one is shown."""
        return 0 if self.table is None else len(self.table.outcomes) + (self.table.param is not None)

    def data(self, index: AnyIndex, role: int = 0) -> Any:
        """The text of a cell; what is not finite in its colour."""
        row, column = index.row(), index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            return self.text(row, column)
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return self.alignment(column)
        outcome = self.outcome(row)
        if role == Qt.ItemDataRole.ToolTipRole:
            return outcome.says if outcome is not None else "The element as the step was given it"
        if role == Qt.ItemDataRole.ForegroundRole and column >= NORM:
            text = self.text(row, column)
            bad = text in ("NaN", "inf", "−inf") or (W_BAD <= column <= PARAMS and text not in ("", "0"))
            return theme.ink(theme.NONFINITE) if bad else None
        return None

    def text(self, row: int, column: int) -> str:
        """What a cell reads."""
        outcome = self.outcome(row)
        if outcome is None:
            return self._before(column)
        if column < W_BAD:
            return (
                outcome.title,
                "counts" if outcome.counts else "is skipped",
                fmt.number(outcome.grad_norm, 6),
                "none" if outcome.clip_scale is None else fmt.number(outcome.clip_scale, 6),
                fmt.number(outcome.update_norm),
            )[column]
        if column < PARAMS:
            return fmt.count(outcome.nonfinite[STATE_LANES[column - W_BAD]])
        if column == PARAMS:
            return fmt.count(outcome.params)
        return (
            "" if outcome.element is None else fmt.number(outcome.element.after[STATE_LANES[column - W]], 5)
        )

    def _before(self, column: int) -> str:
        first = self.outcome(0)
        if column == POLICY:
            return "Before the step"
        if column < W or first is None or first.element is None:
            return ""
        return fmt.number(first.element.before[STATE_LANES[column - W]], 5)


class PoliciesView(LazyView):
    """What the step holds, the table, and in words what the policy selected does."""

    LOCAL_KEYS = KEYS

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("policies")
        self._selected: tuple[str, int] | None = None
        self.what = ElidedLabel()
        self.work_out = QToolButton()
        self.work_out.setAccessibleName("Work the policies out, or end that")
        self.work_out.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.work_out.clicked.connect(self._on_work_out)
        self.model = PoliciesModel()
        self.table = dense_table(self.model, "policies-table")
        set_widths(self.table, SAMPLES)
        self.table.selectionModel().currentRowChanged.connect(self._say)
        self.says = QLabel()
        self.says.setWordWrap(True)
        self.says.setAlignment(Qt.AlignmentFlag.AlignTop)
        self.empty = QLabel(WHAT)
        self.empty.setWordWrap(True)
        self.empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        for label in (self.says, self.empty):
            label.setContentsMargins(8, theme.GRID, 8, theme.GRID)
        top = QHBoxLayout()
        top.setContentsMargins(theme.GRID, theme.GRID, theme.GRID, theme.GRID)
        top.addWidget(self.what, 1)
        top.addWidget(self.work_out)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(0)
        outer.addLayout(top)
        outer.addWidget(self.table, 1)
        outer.addWidget(self.empty, 1)
        outer.addWidget(self.says)
        bind(self, [("Y", self._on_work_out), (QKeySequence.StandardKey.Copy, self.copy)], inside=True)
        theme.changes().changed.connect(self._say)
        self._show_table(None)

    def select_param(self, name: str) -> None:
        """Its first element is shown next; "" for the first non-finite gradient."""
        if self._selected is None or self._selected[0] != name:
            self._selected = (name, 0) if name else None

    def select_element(self, name: str, index: int) -> None:
        """That element is shown next."""
        self._selected = (name, index)

    def copy(self) -> None:
        """The table on the clipboard, tabs between columns."""
        QGuiApplication.clipboard().setText(self.model.as_text())

    def _on_new_run(self) -> None:
        self._selected = None

    def _update(self, snapshot: Snapshot) -> None:
        if snapshot.policies is not self.model.table:
            self._show_table(snapshot.policies)
        going = snapshot.weighing
        why = blocked(snapshot)
        self.work_out.setText("End" if going is not None else "Work out")
        self.work_out.setEnabled(going is not None or not why)
        cursor = snapshot.cursor
        step = f"step {cursor.step:,}" if cursor is not None else "the step on show"
        self.work_out.setToolTip(
            "Leave it (Y)" if going is not None else why or f"Go to the start of {step} and work it out (Y)"
        )
        if going is not None:
            share = f"{100 * going.done // going.of} %" if going.of else "preparing"
            self.what.setText(f"Working out step {going.step:,}: {share} …")
        else:
            self.what.setText(_headline(snapshot.policies, snapshot))

    def _show_table(self, table: PolicyTable | None) -> None:
        row = max(self.table.currentIndex().row(), 0)
        self.model.show_table(table)
        self.table.setVisible(table is not None)
        # The keys of the view need something in it that has them.
        self.setFocusProxy(self.work_out if table is None else self.table)
        self.says.setVisible(table is not None)
        self.empty.setVisible(table is None)
        if table is not None:
            self.table.selectRow(min(row, self.model.row_total() - 1))
        self._say()

    def _say(self) -> None:
        outcome = self.model.outcome(self.table.currentIndex().row())
        self.says.setText("" if outcome is None else f"{outcome.title}: {outcome.says}")

    def _on_work_out(self) -> None:
        snapshot = self._snapshot
        if snapshot is None or snapshot.cursor is None or blocked(snapshot):
            return
        if snapshot.weighing is not None:
            self.command.emit(CancelPolicies())
        else:
            self.command.emit(WeighPolicies(max(snapshot.cursor.step, 1), *(self._selected or (None, None))))


def _headline(table: PolicyTable | None, snapshot: Snapshot) -> str:
    if table is None:
        return "Nothing is worked out yet."
    text = f"Step {table.step:,}: {table.gradients.total:,} of {table.elements:,} gradients not finite"
    if table.hit_params:
        text += f", in {fmt.plural(table.hit_params, 'param')}"
    if table.param is not None and table.index is not None:
        layout = snapshot.plan.layout if snapshot.plan is not None else None
        known = layout is not None and table.param in layout
        shape = layout[table.param].param.shape if layout is not None and known else ()
        where = fmt.multi_index(table.index, shape) if known else f"[{table.index:,}]"
        text += f" · {table.param}{where}, g = {fmt.exact(table.gradient)}"
    return text
