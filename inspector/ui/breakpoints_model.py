"""Breakpoints as rows: ticked where enabled, with what each has come to; and what may be typed next."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import Qt, Signal

from inspector.diagnosis.metrics import ALIASES, METRICS, FromTable
from inspector.diagnosis.rules import RULE_NAMES
from inspector.runtime.hits import Breakpoint
from inspector.ui import theme
from inspector.ui.tables import AnyIndex, ColumnsModel

COLUMNS = ("condition", "stops", "hits", "last stop")
CONDITION, STOPS, HITS, LAST = range(4)
STOPS_HELP = (
    "When it stops the run: a click, or 1, turns between once and each time; F2 edits it, with , hit N"
)
MOST_PARAMS = 200
"""Of params that complete what is typed so many are offered."""
KNOWN = {
    "gradients": "before the first dispatch",
    "finalize": "before the update",
}


class BreakpointsModel(ColumnsModel):
    """One row a breakpoint. `ticked` asks for one to be enabled or disabled; the run says what came of it."""

    COLUMNS = COLUMNS
    FIGURE_COLUMNS = frozenset({HITS})
    MEANS = (
        "METRIC OP NUMBER, of params as in update_ratio@*.attn.* > 0.01; or finding:RULE. Ticked where it is enabled.",
        STOPS_HELP,
        "In how many steps of this run it has held.",
        "The step of its last stop, and what made it true there.",
    )
    ticked = Signal(object, bool)

    def __init__(self) -> None:
        super().__init__()
        self.breakpoints: tuple[Breakpoint, ...] = ()

    def show_breakpoints(self, breakpoints: tuple[Breakpoint, ...]) -> None:
        """Take over the list; the selection stays where only figures changed."""
        if [b.condition for b in breakpoints] == [b.condition for b in self.breakpoints]:
            self.breakpoints = breakpoints
            if breakpoints:
                self.dataChanged.emit(self.index(0, 0), self.index(len(breakpoints) - 1, len(COLUMNS) - 1))
            return
        self.beginResetModel()
        self.breakpoints = breakpoints
        self.endResetModel()

    def row_total(self) -> int:
        """The breakpoints."""
        return len(self.breakpoints)

    def flags(self, index: AnyIndex) -> Qt.ItemFlag:
        """The condition has a box to tick."""
        flags = super().flags(index)
        return flags | Qt.ItemFlag.ItemIsUserCheckable if index.column() == CONDITION else flags

    def setData(self, index: AnyIndex, value: Any, role: int = Qt.ItemDataRole.EditRole) -> bool:
        """A tick asks for a change, and is shown once the run has made it."""
        if role == Qt.ItemDataRole.CheckStateRole and index.isValid():
            self.ticked.emit(self.breakpoints[index.row()], Qt.CheckState(value) == Qt.CheckState.Checked)
        return False

    def data(self, index: AnyIndex, role: int = 0) -> Any:
        """The text of a cell; what cannot be judged in this run is muted and says why."""
        shown, column = self.breakpoints[index.row()], index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            cells = (
                str(shown.condition),
                shown.stopping.words,
                f"{shown.hits:,}",
                shown.note or last_text(shown),
            )
            return cells[column]
        if role == Qt.ItemDataRole.CheckStateRole and column == CONDITION:
            return Qt.CheckState.Checked if shown.enabled else Qt.CheckState.Unchecked
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return self.alignment(column)
        if role == Qt.ItemDataRole.ForegroundRole and (shown.note or not shown.enabled):
            return theme.colours().muted
        if role == Qt.ItemDataRole.ToolTipRole and column == STOPS:
            return STOPS_HELP
        if role == Qt.ItemDataRole.ToolTipRole:
            sentence = (
                shown.last.sentence
                if shown.last
                else f"Has not stopped this run. {meaning(str(shown.condition))}"
            )
            return f"Not in this run: {shown.note}" if shown.note else sentence
        return None


def last_text(shown: Breakpoint) -> str:
    """The last stop in a few words: "step 128: 3 in head.weight[3, 17]"."""
    last = shown.last
    if last is None:
        return ""
    value = "" if last.value is None else last.value_text
    words = " ".join(filter(None, (value, f"in {last.place}" if last.place else "")))
    return f"step {last.step:,}: {words}".rstrip(": ")


def meaning(text: str) -> str:
    """What the metric at the start of a condition is, when it is judged, and what has to be counted; "" for none."""
    match = re.match(r"\s*(\w+)\s*(@?)", text)
    metric = METRICS.get(ALIASES.get(match[1], match[1])) if match else None
    if match is None or metric is None or (match[2] and metric.each is None):
        return ""
    origin = metric.origin(by_param=bool(match[2]))
    unit = f", {metric.unit}" if metric.unit else ""
    needs = ", needs statistics full" if origin.needs == "full" else ""
    state = isinstance(origin, FromTable) and origin.state
    when = "before the first update of the run and after each" if state else KNOWN[origin.known]
    return f"{metric.name}: {metric.meaning}{unit}. Judged {when}{needs}."


def completions(text: str, names: Sequence[str]) -> list[str]:
    """What `text` may become: metrics and findings, or params once there is an @."""
    metric, at, part = text.partition("@")
    if not at:
        return [*METRICS, *(f"finding:{rule}" for rule in RULE_NAMES)]
    if metric.strip() not in METRICS or METRICS[metric.strip()].each is None:
        return []
    wanted = [name for name in names if part.strip("* ").lower() in name.lower()]
    return [f"{metric}@{name} > " for name in ("*", *wanted[:MOST_PARAMS])]
