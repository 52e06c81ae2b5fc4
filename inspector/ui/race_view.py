"""A race: loss, gradient norm, update and weights of several optimizers over the same steps, and a row for each."""

from __future__ import annotations

from types import MappingProxyType

from PySide6.QtCore import QEvent, QModelIndex, QObject, Qt
from PySide6.QtGui import QGuiApplication, QResizeEvent
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QGridLayout,
    QHBoxLayout,
    QSplitter,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from inspector.history import EMPTY_HISTORY, History
from inspector.optimizers import OPTIMIZERS
from inspector.runtime.commands import FrontLane, RaceTogether, StartRace, StopRace
from inspector.runtime.race_pictures import RacePicture
from inspector.runtime.snapshots import Snapshot
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.lane_notes import LaneNotes
from inspector.ui.race_model import SAMPLES, STATE, STEP, RaceModel, lane_style, latest
from inspector.ui.readouts import bucket_at, picked_step
from inspector.ui.shortcuts import bind
from inspector.ui.step_chart import StepChart
from inspector.ui.tables import dense_table, set_widths
from inspector.ui.view import LazyView
from inspector.ui.widgets import CentredWords, ElidedLabel

CHARTS = {"loss": "loss", "grad_norm": "‖g‖", "update_norm": "‖Δw‖", "weight_norm": "‖w‖"}
CHART_HELP = {
    "loss": "The loss of each lane, on the same data.",
    "grad_norm": "L2 norm of the gradient of each lane, before clipping. Logarithmic.",
    "update_norm": "L2 norm of what each lane adds to the weights in a step. Logarithmic.",
    "weight_norm": "L2 norm of the weights of each lane.",
}
PRESETS = (
    "adamw adam-l2 lion:lr=3e-4 sgd:lr=0.1",
    "adamw adam-l2",
    "adamw muon:lr=0.02,adamw.lr=3e-3 adafactor:lr=0.01 lion:lr=3e-4",
    "adamw shampoo:lr=0.05,root_block=64,adamw.lr=3e-3 muon:lr=0.02,adamw.lr=3e-3",
    "adamw:lr=1e-3 adamw:lr=3e-3 adamw:lr=1e-2",
    "adamw adamw:kernel=8bit,codec=dynamic",
    "adamw:beta2=0.95 adamw:beta2=0.999",
)
LANES_HELP = (
    "Lanes with spaces between them, two to eight, each OPTIMIZER or OPTIMIZER:KEY=VALUE,… with hyper-parameters, "
    "kernel, codec or numerics. What is left out is as in the run. "
    + "; ".join(
        f"{each.title} takes what is a {each.taken}, {each.rest.title} the rest"
        for each in OPTIMIZERS.values()
        if each.rest is not None
    )
    + "."
)
LOW, NARROW = 150, 180
"""Pixels that a plot takes at least, as long as there is room, with text of usual size."""
CLOSE = 130
"""That wide at least is one of four in a row."""
NOTHING = "Several optimizers from the same start, over the same batches: write them above, then Start (Ctrl+Return)."
OPEN_LOOP = "open loop: the gradients are the same whatever the weights"
ABSENT = "No lane knows it."
KEYS = (
    ("Ctrl+Return", "start the race anew with the lanes written above"),
    ("Return", "bring the selected lane to the front: panels and keys are for it then"),
    ("A", "move all lanes together, or the one in front alone"),
    ("Ctrl+C", "copy the table"),
)


class RaceView(LazyView):
    """Four plots with a line a lane, and a table of the lanes; what is in front is in the accent."""

    LOCAL_KEYS = KEYS
    PERIOD_S = 0.1

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("race")
        self.model = RaceModel()
        self._drawn: dict[tuple[str, int], tuple[History, History]] = {}
        self._ends = (0, 0)
        self._notes = LaneNotes()
        self.lanes = QComboBox()
        self.lanes.setEditable(True)
        self.lanes.addItems(PRESETS)
        self.lanes.setInsertPolicy(QComboBox.InsertPolicy.NoInsert)
        self.lanes.setToolTip(LANES_HELP)
        self.lanes.setAccessibleName("Lanes of the race")
        self.lanes.setMinimumContentsLength(16)
        # What is longer than the field is read from its beginning.
        self.lanes.editTextChanged.connect(self._show_words)
        self.lanes.activated.connect(lambda: self._show_lanes(self.lanes.currentText()))
        self._show_lanes(PRESETS[0])
        self.start_button = _button(
            "Start", "Open the source anew with these lanes (Ctrl+Return)", self.start
        )
        self.stop_button = _button("End", "End the race; the source is opened anew by itself", self._stop)
        self.together = QCheckBox("All lanes")
        self.together.setToolTip("Lanes move together; else the one in front alone (A)")
        self.together.setChecked(True)
        self.together.clicked.connect(lambda on: self.command.emit(RaceTogether(on)))
        self.words = ElidedLabel()
        line = QHBoxLayout()
        line.setContentsMargins(theme.GRID, theme.GRID, theme.GRID, 0)
        line.setSpacing(theme.GRID)
        line.addWidget(self.lanes, 3)
        for widget in (self.start_button, self.stop_button, self.together):
            line.addWidget(widget)
        line.addWidget(self.words, 2)
        self.table = dense_table(self.model, "race-table")
        self.table.activated.connect(self._bring)
        self.table.doubleClicked.connect(self._bring)
        set_widths(self.table, SAMPLES)
        self._all_columns = sum(map(self.table.columnWidth, range(len(SAMPLES))))
        self.table.horizontalHeader().setStretchLastSection(True)
        self.charts = {name: self._chart(name) for name in CHARTS}
        self._plots = QWidget()
        self._plots.installEventFilter(self)
        self.nothing = CentredWords(self._plots)
        self._grid = QGridLayout(self._plots)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setSpacing(0)
        self._columns = 0
        self._splitter = QSplitter(Qt.Orientation.Vertical)
        self._splitter.setChildrenCollapsible(False)
        self._splitter.addWidget(self._plots)
        self._splitter.addWidget(self.table)
        self._splitter.setStretchFactor(0, 1)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(0)
        outer.addLayout(line)
        outer.addWidget(self._splitter, 1)
        self.setFocusProxy(self.table)
        keys = [("Ctrl+Return", self.start), ("A", self.together.click), ("Ctrl+C", self._copy)]
        bind(self, keys, inside=True)
        theme.changes().changed.connect(self._restyle)
        self._show_race(None)

    def kept_text(self) -> str:
        """The lanes as they are written."""
        return self.lanes.currentText()

    def load(self, text: str) -> None:
        """Write those lanes."""
        self._show_lanes(text)

    def _show_lanes(self, text: str) -> None:
        self.lanes.setEditText(text)
        field = self.lanes.lineEdit()
        assert field is not None
        field.setCursorPosition(0)

    def start(self) -> None:
        """Ask for a race of the lanes that are written."""
        self.command.emit(StartRace(tuple(self.lanes.currentText().split())))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The table takes what its rows need, at most two fifths; beside the plots where the view is low."""
        super().resizeEvent(event)
        self._share()

    # --- showing

    def _update(self, snapshot: Snapshot) -> None:
        self._show_race(snapshot.race)
        self._show_words()
        step = snapshot.cursor.step if snapshot.race is not None and snapshot.cursor is not None else None
        for chart in self.charts.values():
            chart.show_current(step)

    def _show_race(self, race: RacePicture | None) -> None:
        fresh = race is not None and len(race.lanes) != len(self.model.lanes)
        self.model.show(race)
        live = race is not None and race.live
        self.stop_button.setEnabled(live)
        self.together.setEnabled(live)
        if race is not None:
            self.together.setChecked(race.together)
        if fresh:
            self._share()
        self._draw()

    def _show_words(self) -> None:
        if self._snapshot is not None:
            words = (self._summary(self._snapshot), self._of_written(self._snapshot))
            self.words.setText(" · ".join(filter(None, words)))

    def _of_written(self, snapshot: Snapshot) -> str:
        """What is to be said of lanes that are written and do not race."""
        if snapshot.plan is None:
            return ""
        racing = {lane.spec for lane in snapshot.race.lanes} if snapshot.race is not None else set()
        texts = (text for text in self.lanes.currentText().split() if text not in racing)
        return self._notes.words(texts, snapshot.plan.layout, snapshot.plan.variant)

    def _summary(self, snapshot: Snapshot) -> str:
        race = snapshot.race
        if race is None:
            return ""
        front = race.lanes[race.front].name
        words = [f"{front} in front" if race.live else f"saved, {front} is open"]
        losses = {lane.name: latest(lane.history, "loss") for lane in race.lanes}
        known = {name: loss for name, loss in losses.items() if loss is not None and loss == loss}
        if len(known) > 1:
            best = min(known, key=known.__getitem__)
            words.append(f"lowest loss {fmt.number(known[best])} ({best})")
        if not race.closed_loop:
            words.append(OPEN_LOOP)
        return " · ".join(words)

    def _draw(self) -> None:
        count = len(self.model.lanes)
        names = [f"lane {number}" for number in range(count)]
        styles = [lane_style(number) for number in range(count)]
        steps = [lane.history for lane in self.model.lanes if len(lane.history)]
        ends = (
            min((int(h.first[0]) for h in steps), default=0),
            max((int(h.first[-1]) + h.stride - 1 for h in steps), default=0),
        )
        for metric, chart in self.charts.items():
            histories = {name: self._of_lane(metric, i) for i, name in enumerate(names)}
            there = [name for name in names if name in histories[name].series]
            chart.show_history(EMPTY_HISTORY, there, [styles[names.index(name)][1] for name in there])
            chart.show_others({name: histories[name] for name in there})
            chart.set_colours({name: styles[names.index(name)][0] for name in there})
            # One that has run away would press all others into a line.
            chart.set_aside(
                [n for n, lane in zip(names, self.model.lanes, strict=True) if lane.diverged is not None]
            )
            chart.select_trace(f"lane {self.model.front}")
            chart.set_message(ABSENT if count and steps and not there else "")
            if ends != self._ends and steps:
                room = max((ends[1] - ends[0]) * 0.01, 0.5)
                chart.box.setXRange(ends[0] - room, ends[1] + room, padding=0)
            chart.draw()
        self._ends = ends
        self._say_nothing()

    def _say_nothing(self) -> None:
        """Over all plots: one alone may be too narrow for a sentence. What has nothing in it has no numbers."""
        if bool(self.nothing.text()) == bool(self.model.lanes):
            for chart in self.charts.values():
                chart.left.setStyle(showValues=bool(self.model.lanes))
                chart.show_bottom_axis("step" if self.model.lanes else None)
        self.nothing.say("" if self.model.lanes else NOTHING, self._plots.rect())
        self.nothing.raise_()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """The plots have another size."""
        if watched is self._plots and event.type() == QEvent.Type.Resize:
            self._say_nothing()
        return super().eventFilter(watched, event)

    def _of_lane(self, metric: str, number: int) -> History:
        """The history of one metric of a lane under the name of its line; the same object while nothing is new."""
        given = self.model.history(number)
        kept = self._drawn.get((metric, number))
        if kept is None or kept[0] is not given:
            series = given.series.get(metric)
            named = {} if series is None else {f"lane {number}": series}
            kept = given, History(given.stride, given.first, MappingProxyType(named), given.version)
            self._drawn[metric, number] = kept
        return kept[1]

    def _restyle(self) -> None:
        self._draw()
        self.table.viewport().update()

    def _share(self) -> None:
        """Plots over the table, or beside it where there is no height for both."""
        room, close, narrow_plot = map(theme.scaled, (LOW, CLOSE, NARROW))
        header = self.table.horizontalHeader()
        row = self.table.verticalHeader().defaultSectionSize()
        rows = header.height() + row * (len(self.model.lanes) or 4) + theme.GRID
        low = self.height() - min(rows, self.height() * 2 // 5) < 2 * room
        beside = low and self.width() >= 4 * close * 5 // 3
        self._splitter.setOrientation(Qt.Orientation.Horizontal if beside else Qt.Orientation.Vertical)
        length = self.width() if beside else self.height()
        table = length * 2 // 5 if beside else min(rows, length * 2 // 5)
        self._splitter.setSizes([max(length - table, 1), max(table, 1)])
        # Where there is no room for all columns, those are at the end that the plots show as well.
        narrow = self._all_columns > (table if beside else self.width())
        header.moveSection(header.visualIndex(STATE), STEP + 1 if narrow else STATE)
        width = length - table if beside else self.width()
        columns = 4 if low and width >= 4 * close else 2 if width >= 2 * narrow_plot else 1
        if columns != self._columns:
            self._columns = columns
            for at, chart in enumerate(self.charts.values()):
                self._grid.addWidget(chart, at // columns, at % columns)

    # --- events

    def _bring(self, index: QModelIndex) -> None:
        if index.isValid():
            self.command.emit(FrontLane(index.row()))

    def _stop(self) -> None:
        self.command.emit(StopRace())

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self.model.as_text())

    def _on_picked(self, at: float) -> None:
        seek = picked_step(self._snapshot, at)
        if seek is not None:
            self.command.emit(seek)

    def _on_hovered(self, metric: str, step: float | None) -> None:
        """Read every lane out at the step under the mouse."""
        title = CHARTS[metric]
        for chart in self.charts.values():
            chart.show_cross(step)
        values = []
        for number, lane in enumerate(self.model.lanes):
            history = self._of_lane(metric, number)
            bucket = bucket_at(history, step) if step is not None and len(history) else None
            series = history.series.get(f"lane {number}")
            if bucket is not None and series is not None:
                values.append((lane.name, fmt.number(float(series.last[bucket]))))
        if step is None or not values:
            self.charts[metric].set_titles(title)
            return
        self.charts[metric].set_titles(
            f"step {step:,.0f}, {title}  " + "  ".join(f"{name} {value}" for name, value in values),
            f"step {step:,.0f}  " + "  ".join(f"{name.partition(':')[0]} {value}" for name, value in values),
            f"{step:,.0f}  " + "  ".join(value for _, value in values),
            title,
        )

    def _chart(self, metric: str) -> StepChart:
        chart = StepChart(log=metric in ("grad_norm", "update_norm"))
        chart.set_titles(CHARTS[metric])
        chart.setToolTip(CHART_HELP[metric])
        chart.show_bottom_axis("step")
        chart.hovered.connect(lambda step, metric=metric: self._on_hovered(metric, step))
        chart.picked.connect(self._on_picked)
        return chart


def _button(text: str, said: str, act: object) -> QToolButton:
    button = QToolButton()
    button.setText(text)
    button.setToolTip(said)
    button.clicked.connect(act)
    return button
