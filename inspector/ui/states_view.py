"""What an optimizer keeps of a param in shapes of its own: a row a state, its values, and a curve of them."""

from __future__ import annotations

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import Qt
from PySide6.QtGui import QHideEvent
from PySide6.QtWidgets import QSplitter, QVBoxLayout, QWidget

from inspector.floats import F32Array, F64Array
from inspector.runtime.commands import ViewStates
from inspector.runtime.snapshots import Snapshot
from inspector.runtime.states_look import StateShown, StatesPicture
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.chart import Axis, Chart, line_pen, set_points
from inspector.ui.states_model import BUFFER, SAMPLES, VALUE_SAMPLES, StatesModel, StateValuesModel
from inspector.ui.tables import dense_table, row_height, set_widths
from inspector.ui.view import LazyView
from inspector.ui.widgets import ElidedLabel

CHOOSE = "Select a param, on the map or in the pipeline, to see what the optimizer keeps of it."
NOTHING = (
    "An optimizer that keeps more of a param than a number an element, as Adafactor does, has it shown here."
)
MOST_POINTS = 4096
"""Of a curve: the least and the largest of each run of values where there are more."""


class StatesView(LazyView):
    """Tables to the left, the curve of the chosen state to the right. The tab is there where a run has such states."""

    ON_DEMAND = True
    PERIOD_S = 0.2

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("states")
        self._param = ""
        self._asked: tuple[int, str] | None = None
        self._are_there = False
        self._picture: StatesPicture | None = None
        self.said = ElidedLabel()
        self.said.setContentsMargins(theme.GRID, 0, theme.GRID, 0)
        self.model = StatesModel()
        self.table = dense_table(self.model, "states-table")
        set_widths(self.table, SAMPLES, stretch=BUFFER)
        self.table.selectionModel().currentRowChanged.connect(self._show_state)
        self.values_model = StateValuesModel()
        self.values = dense_table(self.values_model, "state-values")
        set_widths(self.values, VALUE_SAMPLES)
        self.chart = Chart(left=Axis("left"), bottom=Axis("bottom", whole=True))
        self.chart.show_bottom_axis("flat index")
        self.chart.setToolTip(
            "The values of the chosen state over their numbers, before and after the last dispatch."
        )
        self.chart.box.setMouseEnabled(x=False, y=False)
        self._before, self._after = pg.PlotDataItem(), pg.PlotDataItem()
        for item in (self._before, self._after):
            self.chart.box.addItem(item)
        theme.changes().changed.connect(self._restyle)
        self._restyle()
        beside = QSplitter(Qt.Orientation.Horizontal)
        beside.setChildrenCollapsible(False)
        beside.addWidget(self.values)
        beside.addWidget(self.chart)
        beside.setStretchFactor(1, 1)
        room = sum(self.values.columnWidth(i) for i in range(len(VALUE_SAMPLES)))
        beside.setSizes([room + 6 * theme.GRID, 2 * room])
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(0)
        outer.addWidget(self.said)
        outer.addWidget(self.table)
        outer.addWidget(beside, 1)
        self.table.setMaximumHeight(4 * row_height())
        self.setFocusProxy(self.table)
        self._say(None)

    # --- what is asked for

    def select_param(self, name: str) -> None:
        """Show the states of another param."""
        self._param = name
        if self.isVisible() and self._snapshot is not None:
            self._update(self._snapshot)

    def hideEvent(self, event: QHideEvent) -> None:
        """Nobody looks: nothing has to be read back."""
        super().hideEvent(event)
        if self._asked is not None:
            self._asked = None
            self.command.emit(ViewStates(None))

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Show this moment; the tab comes with a run that has such states, and goes with it."""
        there = snapshot.plan is not None and bool(snapshot.plan.states)
        if there != self._are_there and snapshot.mode != "starting":
            self._are_there = there
            self.wanted.emit(there)
        super().show_snapshot(snapshot)

    # --- showing

    def _update(self, snapshot: Snapshot) -> None:
        asked = (snapshot.run, self._param)
        if self._param and self._are_there and asked != self._asked:
            self._asked = asked
            self.command.emit(ViewStates(self._param))
        picture = snapshot.closeup.states
        if picture is not None and picture.param != self._param:
            # Of the param before, still on its way.
            return
        if picture is self._picture and picture is not None:
            return
        self._picture = picture
        row = max(self.table.currentIndex().row(), 0)
        self.model.show(picture.states if picture is not None else ())
        if self.model.states and not self.table.currentIndex().isValid():
            self.table.selectRow(min(row, len(self.model.states) - 1))
        self._say(snapshot)
        self._show_state()

    def _say(self, snapshot: Snapshot | None) -> None:
        picture, where = self._picture, ""
        if not self._are_there:
            where = NOTHING
        elif not self._param:
            where = CHOOSE
        elif picture is None:
            where = f"What is kept of {self._param} comes once its buffers are there."
        elif not picture.states:
            where = f"Nothing is kept of {self._param} in a shape of its own."
        else:
            at = picture.cursor
            done = f"after dispatch {at.dispatch}" if at.dispatch else "before its first dispatch"
            where = f"{picture.param} in step {at.step:,}, {done}; before and after are of the last dispatch"
        self.said.setText(where)

    def _show_state(self) -> None:
        row = self.table.currentIndex().row()
        state = self.model.states[row] if 0 <= row < len(self.model.states) else None
        self.values_model.show(state)
        self._draw(state)

    def _draw(self, state: StateShown | None) -> None:
        nothing = np.zeros(0)
        if state is None or not len(state.values):
            for item in (self._before, self._after):
                set_points(item, nothing, nothing)
            self.chart.set_titles("")
            self.chart.set_message("" if state is None else "It has no values.")
            return
        values, before = state.values, state.before
        finite = np.concatenate([x[np.isfinite(x)] for x in (values, before)])
        log = bool(len(finite)) and bool((finite > 0).all())
        self.chart.left.set_log(log)
        self.chart.set_message("" if len(finite) else "None of its values is finite.")
        drawn = [_points(x, log) for x in (values, before)]
        for item, points in zip((self._after, self._before), drawn, strict=True):
            set_points(item, *points)
        heights = np.concatenate([y[np.isfinite(y)] for _, y in drawn])
        self.chart.box.setXRange(-0.5, max(len(values) - 0.5, 0.5), padding=0)
        self.chart.set_y_bounds((float(heights.min()), float(heights.max())) if len(heights) else None)
        name, what = state.placed.name, f"{state.placed.name}, {state.title}"
        spread = f"{fmt.number(state.low)} to {fmt.number(state.high)}"
        self.chart.set_titles(f"{what}: {spread}", f"{name}: {spread}", name)

    def _restyle(self) -> None:
        c = theme.colours()
        self._before.setPen(line_pen(c.muted, Qt.PenStyle.DotLine))
        self._after.setPen(line_pen(c.accent))


def _points(values: F32Array, log: bool) -> tuple[F64Array, F64Array]:
    """Where a curve goes: flat indices, and values or their powers of ten; a gap where one is not finite."""
    y = np.where(np.isfinite(values), values, np.nan).astype(np.float64)
    if log:
        y = np.log10(y)
    x = np.arange(len(y), dtype=np.float64)
    if len(y) <= MOST_POINTS:
        return x, y
    each = -(-2 * len(y) // MOST_POINTS)
    starts = np.arange(0, len(y), each)
    low, high = np.fmin.reduceat(y, starts), np.fmax.reduceat(y, starts)
    return np.repeat(starts.astype(np.float64), 2), np.stack([low, high], axis=1).reshape(-1)
