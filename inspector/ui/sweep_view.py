"""A sweep in the background: final loss against learning rate, a line a lane, and a row a learning rate."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import (
    QComboBox,
    QHBoxLayout,
    QLineEdit,
    QSpinBox,
    QSplitter,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from inspector.plan import Variant
from inspector.runtime.commands import CancelSweep, ResumeSweep, StartSweep
from inspector.runtime.snapshots import Snapshot
from inspector.sweep import Point, best_of
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.lane_notes import LaneNotes
from inspector.ui.line_sample import line_sample
from inspector.ui.race_model import lane_style
from inspector.ui.record_dialog import free_name
from inspector.ui.shortcuts import bind
from inspector.ui.sweep_chart import SweepChart
from inspector.ui.tables import AnyIndex, ColumnsModel, dense_table, set_widths
from inspector.ui.view import LazyView
from inspector.ui.widgets import ElidedLabel

COLUMNS = ("lane", "lr", "final loss", "lowest", "highest", "runs", "diverged")
LANE, LR, LOSS, LOW, HIGH, RUNS, DIVERGED = range(len(COLUMNS))
MEANS = (
    "What is swept, without its learning rate and seed.",
    "Learning rate of the run, before the schedule.",
    "Final loss, the mean over the last tenth of the steps, as the mean over the seeds; the least of a lane is bold.",
    "The least final loss of any seed.",
    "The greatest final loss of any seed.",
    "Runs that are done, of those there will be.",
    "Runs that diverged.",
)
SAMPLES = ("lion:weight_decay=1", "8.888e−8", "8.8888e88", "8.8888e88", "8.8888e88", "88 of 88", "88")
PRESETS = ("adamw", "adamw adam-l2", "adamw lion sgd", "adamw adamw:beta2=0.95")
LANES_HELP = (
    "Lanes with spaces between them, as in a race, without lr and seed. What is left out is as the source was opened "
    "with."
)
KEYS = (
    ("Ctrl+Return", "start the sweep, or end the one that goes on"),
    ("G", "go on with a sweep that was ended"),
    ("Ctrl+C", "copy the table"),
)
NOTHING = (
    "Final loss against learning rate: write what to sweep above, then Start (Ctrl+Return). The run goes on."
)


class SweepModel(ColumnsModel):
    """One row a lane and learning rate."""

    COLUMNS = COLUMNS
    FIGURE_COLUMNS = frozenset(range(LR, len(COLUMNS)))
    MEANS = MEANS

    def __init__(self) -> None:
        super().__init__()
        self.points: tuple[Point, ...] = ()
        self.lanes: tuple[str, ...] = ()
        self._best: dict[str, Point] = {}

    def show(self, points: tuple[Point, ...]) -> None:
        """Take over this moment."""
        if points == self.points:
            return
        self.beginResetModel()
        self.points = points
        self.lanes = tuple(dict.fromkeys(point.lane for point in points))
        self._best = best_of(points)
        self.endResetModel()

    def row_total(self) -> int:
        """One row a point."""
        return len(self.points)

    def text(self, row: int, column: int) -> str:
        """What stands in a cell."""
        point = self.points[row]
        if column == LANE:
            return point.lane
        if column == LR:
            return fmt.number(point.lr)
        if column == RUNS:
            return f"{len(point.losses)} of {point.runs}"
        if column == DIVERGED:
            return str(point.diverged)
        if not point.losses:
            return fmt.NA
        return fmt.number({LOSS: point.mean, LOW: point.low, HIGH: point.high}[column], 5)

    def data(self, index: AnyIndex, role: int = 0) -> Any:
        """The text of a cell, its sample of the line, and what it means."""
        row, column = index.row(), index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            return self.text(row, column)
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return self.alignment(column)
        if role == Qt.ItemDataRole.DecorationRole and column == LANE:
            return line_sample(*lane_style(self.lanes.index(self.points[row].lane)))
        if role == Qt.ItemDataRole.FontRole and self._best.get(self.points[row].lane) == self.points[row]:
            font = theme.ui_font()
            font.setBold(True)
            return font
        if role == Qt.ItemDataRole.ForegroundRole and column == DIVERGED and self.points[row].diverged:
            return theme.ink(theme.NONFINITE, theme.colours().base)
        return MEANS[column] if role == Qt.ItemDataRole.ToolTipRole else None


class SweepView(LazyView):
    """The chart and the table, and above them what to sweep."""

    LOCAL_KEYS = KEYS
    PERIOD_S = 0.3

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("sweep")
        self._running = False
        self._source = "run"
        self._notes = LaneNotes()
        self.model = SweepModel()
        self.lanes = QComboBox()
        self.lanes.setEditable(True)
        self.lanes.addItems(PRESETS)
        self.lanes.setMinimumContentsLength(10)
        self.lanes.editTextChanged.connect(self._show_words)
        self.rates = QLineEdit("1e-4:1e-1:7")
        self.seeds, self.steps = QSpinBox(), QSpinBox()
        self.seeds.setRange(1, 100)
        self.steps.setRange(1, 1_000_000)
        self.steps.setValue(300)
        self.button = QToolButton()
        self.button.clicked.connect(self.start)
        self.resume_button = QToolButton()
        self.resume_button.setText("Go on")
        self.resume_button.clicked.connect(self.resume)
        self.resume_button.hide()
        self.words = ElidedLabel()
        fields = (
            (self.lanes, "Lanes", LANES_HELP),
            (self.rates, "Learning rates", "LOW:HIGH:COUNT on a logarithmic grid, or numbers with commas"),
            (self.seeds, "Seeds", "Runs at each learning rate, of seeds 0, 1, …"),
            (self.steps, "Steps", "Steps of each run"),
        )
        line = QHBoxLayout()
        line.setContentsMargins(theme.GRID, theme.GRID, theme.GRID, 0)
        line.setSpacing(theme.GRID)
        for widget, name, said in fields:
            widget.setToolTip(said)
            widget.setAccessibleName(name)
        self.rates.setMaximumWidth(self.fontMetrics().horizontalAdvance("1e-4:1e-1:100000"))
        self.seeds.setPrefix("seeds ")
        self.steps.setPrefix("steps ")
        line.addWidget(self.lanes, 2)
        for field in (self.rates, self.seeds, self.steps, self.button, self.resume_button):
            line.addWidget(field)
        line.addWidget(self.words, 3)
        self.chart = SweepChart()
        self.table = dense_table(self.model, "sweep-table")
        set_widths(self.table, SAMPLES, grow=LANE)
        splitter = QSplitter(Qt.Orientation.Horizontal)
        splitter.setChildrenCollapsible(False)
        splitter.addWidget(self.chart)
        splitter.addWidget(self.table)
        splitter.setSizes([450, 550])
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(0)
        outer.addLayout(line)
        outer.addWidget(splitter, 1)
        self.setFocusProxy(self.table)
        bind(self, [("Ctrl+Return", self.start), ("G", self.resume), ("Ctrl+C", self._copy)], inside=True)
        theme.changes().changed.connect(self._draw)
        self._show_running(False)
        self.chart.set_message(NOTHING)

    def kept_text(self) -> str:
        """What is written in the fields."""
        fields = self.lanes.currentText(), self.rates.text(), str(self.seeds.value()), str(self.steps.value())
        return "\n".join(fields)

    def load(self, text: str) -> None:
        """Write that into the fields."""
        lines = text.split("\n")
        if len(lines) == 4 and lines[2].isdigit() and lines[3].isdigit():
            self.lanes.setEditText(lines[0])
            self.rates.setText(lines[1])
            self.seeds.setValue(int(lines[2]))
            self.steps.setValue(int(lines[3]))

    def start(self) -> None:
        """Ask for the sweep, saved beside the recordings; or end the one that goes on."""
        if self._running:
            self.command.emit(CancelSweep())
            return
        path = free_name(f"sweep-{self._source}")
        lanes = tuple(self.lanes.currentText().split())
        self.command.emit(
            StartSweep(lanes, self.rates.text().strip(), self.seeds.value(), self.steps.value(), str(path))
        )

    def resume(self) -> None:
        """Ask for what is left of the sweep that is shown, if it was ended."""
        sweep = self._snapshot.beside.sweep if self._snapshot is not None else None
        if sweep is not None and sweep.left:
            self.command.emit(ResumeSweep(sweep.path))

    # --- showing

    def _update(self, snapshot: Snapshot) -> None:
        self._source = snapshot.source
        sweep = snapshot.beside.sweep
        self._show_running(sweep is not None and sweep.running)
        left = 0 if sweep is None else sweep.left
        self.resume_button.setVisible(bool(left))
        self.resume_button.setToolTip(f"Run what is left of this sweep, {fmt.plural(left, 'run')} (G)")
        self._show_words()
        points = () if sweep is None else sweep.points
        if points != self.model.points:
            self.model.show(points)
            self._draw()
        done = any(point.losses for point in points)
        waiting = "The first runs are on their way." if sweep is not None and sweep.running else NOTHING
        self.chart.set_message("" if done else waiting)

    def _show_words(self) -> None:
        snapshot = self._snapshot
        if snapshot is not None:
            summary = "" if snapshot.beside.sweep is None else self._summary(snapshot)
            # A sweep is a run of its own, in the usual form.
            texts, plan = self.lanes.currentText().split(), snapshot.plan
            notes = "" if plan is None else self._notes.words(texts, plan.layout, Variant())
            self.words.setText(" · ".join(filter(None, (notes, summary))))

    def _summary(self, snapshot: Snapshot) -> str:
        sweep = snapshot.beside.sweep
        assert sweep is not None
        words = [f"{sweep.done} of {sweep.runs} runs of {sweep.source}"]
        if sweep.problem:
            words.append(sweep.problem)
        words += [f"{lane} best at lr {fmt.number(p.lr)}" for lane, p in best_of(sweep.points).items()]
        words.append(sweep.path)
        return " · ".join(words)

    def _show_running(self, running: bool) -> None:
        self._running = running
        self.button.setText("End" if running else "Start")
        said = (
            "End the sweep; what is done of it stays"
            if running
            else "Run it in the background, the run stays"
        )
        self.button.setToolTip(f"{said} (Ctrl+Return)")

    def _draw(self) -> None:
        self.chart.show_points(self.model.points, [lane_style(i) for i in range(len(self.model.lanes))])

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self.model.as_text())
