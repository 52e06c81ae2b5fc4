"""Each of several processes as a row: what it holds, and its numbers of the step on show."""

from __future__ import annotations

import math
from typing import Any

from PySide6.QtCore import Qt

from inspector.ranks import RankPart, RankStep
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.chart import DASHES, Dash
from inspector.ui.line_sample import line_sample
from inspector.ui.tables import AnyIndex, ColumnsModel

COLUMNS = (
    "rank",
    "elements",
    "last step",
    "loss",
    "from mean",
    "‖g‖ of part",
    "step time",
    "parts in",
)
MEANS = (
    "The process, with the line that it has in the plot.",
    "Elements that it keeps, copies of what others keep as well among them.",
    "The last step that it recorded, and whether its recording goes on or was interrupted: the run is shown as far as "
    "all ranks have it.",
    "Loss of its own batch in the step on show, in nats.",
    "Its loss less the mean over the ranks.",
    "L2 norm of the part of the gradient that it keeps, as the optimizer took it.",
    "From the end of the step before to the end of this one, as its own clock has it.",
    "What all ranks should have alike in this step and this one has otherwise.",
)
SAMPLES = (
    "8,888",
    "888,888,888",
    "888,888",
    "8.888",
    "−8.888e−8",
    "8.888e−8",
    "888 ms",
    "",
)
LAST, PARTED = 2, 7


class RanksModel(ColumnsModel):
    """One row a rank."""

    COLUMNS = COLUMNS
    FIGURE_COLUMNS = frozenset(range(1, 7))
    MEANS = MEANS

    def __init__(self) -> None:
        super().__init__()
        self.parts: tuple[RankPart, ...] = ()
        self.steps: tuple[RankStep, ...] = ()
        self._mean: float | None = None
        self._selected = -1

    @property
    def mean_loss(self) -> float | None:
        """Over the ranks that have one."""
        return self._mean

    def dash(self, rank: int) -> Dash:
        """The line style of a rank."""
        return DASHES[rank % len(DASHES)]

    def show(self, parts: tuple[RankPart, ...], steps: tuple[RankStep, ...]) -> None:
        """Take over this moment."""
        if parts == self.parts and steps is self.steps:
            return
        fresh = len(parts) != len(self.parts)
        if fresh:
            self.beginResetModel()
        self.parts = parts
        self.steps = steps if len(steps) == len(parts) else ()
        losses = [each.loss for each in self.steps if each.loss is not None]
        self._mean = math.fsum(losses) / len(losses) if losses and all(map(math.isfinite, losses)) else None
        if fresh:
            self.endResetModel()
        elif parts:
            self.dataChanged.emit(self.index(0, 0), self.index(len(parts) - 1, len(COLUMNS) - 1))

    def select(self, rank: int) -> None:
        """Take over which rank is drawn in the accent."""
        self._selected = rank
        if self.parts:
            decoration = [Qt.ItemDataRole.DecorationRole]
            self.dataChanged.emit(self.index(0, 0), self.index(len(self.parts) - 1, 0), decoration)

    def row_total(self) -> int:
        """One row a rank."""
        return len(self.parts)

    def text(self, row: int, column: int) -> str:
        """What stands in a cell."""
        part = self.parts[row]
        if column <= LAST:
            last = f"{part.last:,}{'' if part.state == 'complete' else f' {part.state}'}"
            return (str(part.rank), f"{part.elements:,}", last)[column]
        if not self.steps:
            return fmt.NA
        step = self.steps[row]
        away = None if step.loss is None or self._mean is None else step.loss - self._mean
        return (
            _number(step.loss),
            _number(away),
            _number(step.part_norm),
            fmt.NA if step.seconds is None else fmt.milliseconds(1000 * step.seconds),
            step.parted,
        )[column - LAST - 1]

    def data(self, index: AnyIndex, role: int = 0) -> Any:
        """The text of a cell, its sample of the line, and what it means."""
        row, column = index.row(), index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            return self.text(row, column)
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return self.alignment(column)
        if role == Qt.ItemDataRole.DecorationRole and column == 0:
            colours = theme.colours()
            return line_sample(colours.accent if row == self._selected else colours.text, self.dash(row))
        if role == Qt.ItemDataRole.ForegroundRole:
            return self._colour(row, column)
        if role == Qt.ItemDataRole.ToolTipRole:
            more = {LAST: self.parts[row].reason, PARTED: self.text(row, PARTED)}.get(column)
            return f"{more}\n{MEANS[column]}" if more else MEANS[column]
        return None

    def _colour(self, row: int, column: int) -> Any:
        wrong = (column == PARTED and self.steps and self.steps[row].parted) or (
            column == LAST and self.parts[row].state == "interrupted"
        )
        return theme.ink(theme.NONFINITE, theme.colours().base) if wrong else None


def _number(value: float | None) -> str:
    return fmt.NA if value is None else fmt.number(value)
