"""Two recordings held against each other: where they differ first, by how much, param by param and over steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from PySide6.QtCore import QItemSelectionModel, QModelIndex, QSignalBlocker, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import (
    QButtonGroup,
    QHBoxLayout,
    QPushButton,
    QSplitter,
    QTabWidget,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from inspector.codecs import BLOCK
from inspector.runtime.beside import DiffPicture
from inspector.runtime.commands import Seek, ViewDiff
from inspector.runtime.snapshots import Snapshot
from inspector.session.compare import Difference
from inspector.session.diff_report import DiffReport, difference_words
from inspector.stores import LANES, Lane
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.compare_bar import CompareBar, is_same
from inspector.ui.compare_model import (
    SAMPLES,
    ULP,
    SettingRows,
    TimingRows,
    WorstParams,
)
from inspector.ui.compare_plots import ParamOverSteps, UlpHistogram
from inspector.ui.shortcuts import bind
from inspector.ui.tables import dense_table, row_height, set_widths
from inspector.ui.view import LazyView
from inspector.ui.widgets import CheckedLook, ElidedLabel

KEYS = (
    ("Enter", "compare the two"),
    ("D", "go to the first difference"),
    ("W G M V", "the lane that is compared"),
)
HELP = "Two recordings of the same params are held against each other: name them and press Compare."
GOING = "Comparing …"
NOTHING = "Nothing is compared yet."
BY_ULP, SETTINGS, TIMES = "By ULP", "Settings", "Times"
TAB_TIPS = (
    "Elements by how many ULP they are apart, over all steps captured in both",
    "Settings that differ, and from which step on",
    "What kernels took, medians of warm samples",
)
TABLE_WIDTH = 560
"""Pixels at most that the params take beside the plots, until a person moves what parts them."""


class CompareView(LazyView):
    """A bar that names the two, a line that says where they differ first, tables and plots of by how much."""

    LOCAL_KEYS = KEYS
    PERIOD_S = 0.2

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("compare")
        self._picture: DiffPicture | None = None
        self._param = ""
        self._requested = ""
        self._recording: str | None = None
        self.lane: Lane = "w"
        self.bar = CompareBar()
        self.bar.command.connect(self.command)
        self._make_words()
        self._make_tables()
        self.over_steps, self.histogram = ParamOverSteps(), UlpHistogram()
        self.details = QTabWidget()
        self.details.setDocumentMode(True)
        self.details.addTab(self.histogram, BY_ULP)
        self.details.addTab(self.setting_table, SETTINGS)
        self.details.addTab(self.timing_table, TIMES)
        for tab, tip in enumerate(TAB_TIPS):
            self.details.setTabToolTip(tab, tip)
        self._across = QSplitter(Qt.Orientation.Horizontal)
        self._across.setChildrenCollapsible(False)
        for widget in (self.table, self.over_steps, self.details):
            self._across.addWidget(widget)
        # In a small window the panel may become low.
        self._across.setMinimumHeight(row_height())
        self._across.splitterMoved.connect(self._on_parted)
        self._parted = False
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(theme.GRID)
        outer.addWidget(self.bar)
        outer.addLayout(self._line)
        outer.addWidget(self._across, 1)
        self.setFocusProxy(self.table)
        self._add_keys()
        self._draw(None)

    def _make_words(self) -> None:
        self.words = ElidedLabel()
        self.go_button = QPushButton("Go there")
        self.go_button.setObjectName("go_to_difference")
        self.go_button.clicked.connect(self.go_to_first)
        self._line = QHBoxLayout()
        self._line.setContentsMargins(theme.GRID, 0, theme.GRID, 0)
        self._line.setSpacing(theme.GRID)
        self._line.addWidget(self.words, 1)
        self._line.addWidget(self.go_button)
        self._lanes = QButtonGroup(self)
        self.lane_buttons: dict[Lane, QToolButton] = {}
        for lane in LANES:
            button = QToolButton()
            button.setText(lane)
            CheckedLook(button)
            button.setChecked(lane == self.lane)
            button.setAutoRaise(True)
            button.setToolTip(f"Compare {lane} ({lane.upper()})")
            button.clicked.connect(lambda _checked=False, lane=lane: self.show_lane(lane))
            self._lanes.addButton(button)
            self.lane_buttons[lane] = button
            self._line.addWidget(button)

    def _make_tables(self) -> None:
        self.params, self.settings, self.timings = WorstParams(), SettingRows(), TimingRows()
        self.table = dense_table(self.params, "compared-params")
        set_widths(self.table, SAMPLES)
        self.table.horizontalHeader().setSortIndicator(ULP, Qt.SortOrder.DescendingOrder)
        self.table.setSortingEnabled(True)
        self.table.selectionModel().currentRowChanged.connect(self._on_row)
        self.setting_table = dense_table(self.settings, "compared-settings")
        set_widths(self.setting_table, ("88,888", "max_grad_norm", "0.99999", "0.99999"))
        self.timing_table = dense_table(self.timings, "compared-times")
        set_widths(self.timing_table, ("adamw_update no-wd", "88.8 ms", "88.8 ms", "88.88 ×"))
        for table in (self.table, self.setting_table, self.timing_table):
            table.setMinimumHeight(row_height())
        for table in (self.setting_table, self.timing_table):
            table.setSelectionMode(table.SelectionMode.NoSelection)

    def _add_keys(self) -> None:
        acts: dict[str, Callable[[], None]] = {"D": self.go_to_first}
        acts |= {lane.upper(): partial(self.show_lane, lane) for lane in LANES}
        bind(self, acts.items(), inside=True)
        bind(self.table, [("Return", self.bar.start)])

    # --- from outside

    def select_param(self, name: str) -> None:
        """Show this param over steps."""
        if name != self._param:
            self._param = name
            self._show_row()
            self._request()
            self._draw_plots()

    def show_lane(self, lane: Lane) -> None:
        """Compare this lane."""
        self.lane = lane
        self.lane_buttons[lane].setChecked(True)
        with QSignalBlocker(self.table.selectionModel()):
            self.params.show(self._report, lane)
        self._show_row()
        self._draw_plots()

    def go_to_first(self) -> None:
        """Select the first element that differs, and go to its step where one of the two is open."""
        first = self._report.first if self._report else None
        if first is None:
            return
        if first.param is not None:
            self.param_selected.emit(first.param)
            if (element := element_of(first)) is not None:
                self.element_selected.emit(first.param, element)
        if self._one_is_open():
            # Gradients are seen before anything has run, what a step writes after all of it.
            before = first.dispatch is None and first.buffer == "g"
            self.command.emit(Seek(first.step, 0 if before else None))

    # --- events

    def resizeEvent(self, event: QResizeEvent) -> None:
        """A column each for params, steps and details, until a person moves what parts them."""
        super().resizeEvent(event)
        if not self._parted:
            whole = self.width()
            table = min(whole * 38 // 100, TABLE_WIDTH)
            self._across.setSizes([table, (whole - table) // 2, (whole - table) // 2])

    def _on_parted(self) -> None:
        self._parted = True

    def _on_row(self, current: QModelIndex, _before: QModelIndex) -> None:
        if current.isValid() and (name := self.params.names[current.row()]) != self._param:
            self.param_selected.emit(name)
            self.select_param(name)

    # --- drawing

    @property
    def _report(self) -> DiffReport | None:
        return self._picture.report if self._picture else None

    def _update(self, snapshot: Snapshot) -> None:
        self.bar.show_beside(snapshot.beside)
        self._recording = snapshot.beside.recording
        if snapshot.beside.diff is not self._picture:
            self._draw(snapshot.beside.diff)
        self._show_go()

    def _draw(self, picture: DiffPicture | None) -> None:
        before = self._report
        self._picture = picture
        if self._report is not before:
            if self._report is not None and self.lane not in self._report.worst and self._report.worst:
                self.lane = next(iter(self._report.worst))
                self.lane_buttons[self.lane].setChecked(True)
            with QSignalBlocker(self.table.selectionModel()):
                self.params.show(self._report, self.lane)
            settings = self._report.settings if self._report else ()
            self.settings.show(settings)
            self.details.setTabText(1, f"{SETTINGS} ({len(settings):,})" if settings else SETTINGS)
            self.timings.show(self._report.timings if self._report else ())
            self._show_row()
            self._requested = ""
        self.words.setText(words(picture))
        self._request()
        self._draw_plots()
        self._show_go()

    def _draw_plots(self) -> None:
        picture = self._picture
        absent = NOTHING if picture is None or picture.problem else GOING
        curves = picture.curves if picture else None
        shown = self._shown_param()
        if curves is not None and curves.param != shown:
            # An answer to an older question waits unseen.
            curves = None
        self.over_steps.show_curves(curves, self.lane, "Reading …" if self._report else absent)
        uncaptured = f"{self.lane} was captured in both at no step."
        self.histogram.show_report(self._report, self.lane, uncaptured if self._report else "")

    def _shown_param(self) -> str:
        """The selected param, or where that was not compared the worst one."""
        names = self.params.names
        return self._param if self._param in names else names[0] if names else ""

    def _request(self) -> None:
        wanted = self._shown_param()
        if self._report is not None and wanted != self._requested:
            self._requested = wanted
            self.command.emit(ViewDiff(wanted))

    def _show_row(self) -> None:
        row = self.params.row_of(self._param)
        selection = self.table.selectionModel()
        with QSignalBlocker(selection):
            if row is None:
                selection.clear()
            else:
                flags = QItemSelectionModel.SelectionFlag
                selection.setCurrentIndex(self.params.index(row, 0), flags.ClearAndSelect | flags.Rows)
                self.table.scrollTo(self.params.index(row, 0))
        self.table.viewport().update()

    def _one_is_open(self) -> bool:
        report = self._report
        return report is not None and any(is_same(path, self._recording) for path in (report.a, report.b))

    def _show_go(self) -> None:
        report = self._report
        self.go_button.setVisible(report is not None and report.first is not None)
        tip = "Select the element, and go to its step (D)"
        if not self._one_is_open():
            tip = "Select the param and element (D); neither recording is open, so the run stays at its step"
        self.go_button.setToolTip(tip)


def element_of(first: Difference) -> int | None:
    """The flat index of the element that a difference is about; a scale stands for the first of its block."""
    if first.index is None or first.param is None:
        return None
    return first.index * BLOCK if first.buffer.endswith("_scale") else first.index


def words(picture: DiffPicture | None) -> str:
    """What came of a comparison, in one line."""
    if picture is None:
        return HELP
    if picture.share is not None:
        return GOING
    report = picture.report
    if report is None:
        return picture.problem
    steps = fmt.plural(len(report.steps), "step")
    both = f"compared {steps}, {report.gradients:,} captured gradients and {report.keyframes:,} states"
    if report.first is None:
        return f"Every number and tensor in both has the same bits · {both}"
    return f"First difference {difference_words(report.first)} · {both}"
