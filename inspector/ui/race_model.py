"""The lanes of a race as rows: what each runs, and where it stands."""

from __future__ import annotations

import math
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtGui import QColor

from inspector.history import EMPTY_HISTORY, History
from inspector.runtime.race_pictures import LanePicture, RacePicture
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.board_style import DASHES, ROW
from inspector.ui.chart import Dash
from inspector.ui.line_sample import line_sample
from inspector.ui.tables import AnyIndex, ColumnsModel

COLUMNS = ("lane", "step", "loss", "‖g‖", "‖Δw‖", "‖w‖", "lr", "state")
LANE, STEP, LOSS, GRAD, UPDATE, WEIGHT, LR, STATE = range(len(COLUMNS))
METRIC_OF = {LOSS: "loss", GRAD: "grad_norm", UPDATE: "update_norm", WEIGHT: "weight_norm", LR: "lr"}
MEANS = (
    "The optimizer of the lane and its settings that differ from the run's, with the line that it has in the plots; "
    "that in front is in the accent.",
    "Steps that are complete.",
    "Loss of the last step, in the unit of the source: nats a character for charlm.",
    "L2 norm of all gradients before clipping.",
    "L2 norm of what the last step changed in the weights, over all elements, in float64.",
    "L2 norm of the weights that the last step began with, over all elements, in float64.",
    "Learning rate of the last step, the schedule applied.",
    "Whether it runs on or is complete, when and by what it was seen to diverge, or why it ended; and what steps the "
    "params where its optimizer takes none of them.",
)
SAMPLES = (
    "lion:lr=0.0003,weight_decay=1",
    "888,888",
    "8.888e−8",
    "8.888e−8",
    "8.888e−8",
    "8.888e22",
    "8.888e−8",
    "diverged at step 8,888",
)
COLOURS = ROW[:4]
"""The others come too near to these once they are dark enough for a light ground."""


def lane_name(lane: LanePicture) -> str:
    """What it is called, and what steps its params where its optimizer takes none of them."""
    return f"{lane.name} {lane.runs_as.brief}" if lane.runs_as is not None else lane.name


def lane_style(number: int) -> tuple[QColor, Dash]:
    """The colour and the dash of a lane: colours that nobody takes for each other, then the same with other dashes."""
    colour = theme.ink(QColor(COLOURS[number % len(COLOURS)]), theme.colours().base)
    return colour, DASHES[number // len(COLOURS) % len(DASHES)]


class RaceModel(ColumnsModel):
    """One row a lane."""

    COLUMNS = COLUMNS
    FIGURE_COLUMNS = frozenset(range(STEP, STATE))
    MEANS = MEANS

    def __init__(self) -> None:
        super().__init__()
        self.lanes: tuple[LanePicture, ...] = ()
        self.front = 0
        self._live = True

    def show(self, race: RacePicture | None) -> None:
        """Take over this moment."""
        lanes = race.lanes if race is not None else ()
        fresh = len(lanes) != len(self.lanes)
        if fresh:
            self.beginResetModel()
        self.lanes, self.front = lanes, race.front if race is not None else 0
        self._live = race is None or race.live
        if fresh:
            self.endResetModel()
        elif lanes:
            self.dataChanged.emit(self.index(0, 0), self.index(len(lanes) - 1, len(COLUMNS) - 1))

    def history(self, row: int) -> History:
        """That of a lane."""
        return self.lanes[row].history if 0 <= row < len(self.lanes) else EMPTY_HISTORY

    def row_total(self) -> int:
        """One row a lane."""
        return len(self.lanes)

    def text(self, row: int, column: int) -> str:
        """What stands in a cell."""
        lane = self.lanes[row]
        if column == LANE:
            return lane_name(lane)
        if column == STEP:
            return fmt.count(lane.steps)
        if column == STATE:
            return self._state(lane)
        value = latest(lane.history, METRIC_OF[column])
        return fmt.NA if value is None else fmt.number(value)

    def data(self, index: AnyIndex, role: int = 0) -> Any:
        """The text of a cell, its sample of the line, and what it means."""
        row, column = index.row(), index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            return self.text(row, column)
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return self.alignment(column)
        if role == Qt.ItemDataRole.DecorationRole and column == LANE:
            colour, dash = lane_style(row)
            return line_sample(theme.colours().accent if row == self.front else colour, dash)
        if role == Qt.ItemDataRole.ForegroundRole and column == STATE and self._wrong(self.lanes[row]):
            return theme.ink(theme.NONFINITE, theme.colours().base)
        if role == Qt.ItemDataRole.ToolTipRole:
            return f"{self.text(row, column)}\n{MEANS[column]}" if column in (LANE, STATE) else MEANS[column]
        return None

    def _state(self, lane: LanePicture) -> str:
        stands = self._stands(lane)
        return f"{stands}, {lane.runs_as}" if lane.runs_as else stands

    def _stands(self, lane: LanePicture) -> str:
        if lane.ended is not None:
            return f"ended: {lane.ended}"
        if lane.diverged is not None:
            return f"diverged at step {lane.diverged[0]:,}: {lane.diverged[1]}"
        return "runs" if self._live else "complete"

    def _wrong(self, lane: LanePicture) -> bool:
        return lane.ended is not None or lane.diverged is not None


def latest(history: History, metric: str) -> float | None:
    """The last value of a metric; None where there is none, or nobody knows it."""
    series = history.series.get(metric)
    if series is None or not len(history):
        return None
    value = float(series.last[-1])
    return None if math.isnan(value) and not series.gaps[-1] else value
