"""The statistics of every param right before its update, as a table; and how much is counted at each step."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from PySide6.QtCore import QModelIndex, QPoint, QSignalBlocker, Qt
from PySide6.QtWidgets import (
    QButtonGroup,
    QComboBox,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPushButton,
    QStackedWidget,
    QTableView,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from inspector.layout import Layout
from inspector.optimizers import optimizer, optimizer_of
from inspector.plan import Plan
from inspector.runtime.commands import SetStats
from inspector.runtime.snapshots import CountedParams, Snapshot
from inspector.statistics import StatsLevel
from inspector.stores import LANES, Lane
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.actions import STATS_HELP
from inspector.ui.break_menu import show_break_menu
from inspector.ui.frozen_table import NAMES_WIDTH, FrozenTable
from inspector.ui.kept_lanes import show_kept
from inspector.ui.params_columns import FIRST_FIGURE, WORD_COLUMNS
from inspector.ui.params_model import NO_PARTS, NO_STEPS, ParamsModel
from inspector.ui.shortcuts import bind
from inspector.ui.tables import set_widths
from inspector.ui.view import LazyView
from inspector.ui.widgets import ElidedLabel

KEYS = (
    ("/", "filter by name"),
    ("Enter", "select the param everywhere"),
    ("B, right click", "a breakpoint on the figure, or on those of the param"),
)
ARROW = "▲ "
"""About as wide as the sign of the column that it is sorted by."""
LEVELS: tuple[StatsLevel, ...] = ("off", "light", "full")
NO_SOURCE = "The statistics of each param appear here once a source is open."
NOT_FULL = (
    "Statistics are counted at level full: for each param and block the norms of w, g, m, v and of the update, "
    "ranges, zeros, NaN and infinities, and what ε, rounding and half precision take away. It takes one more pass "
    "over w, g, m and v before the update. The level is {level} now."
)
NOT_YET = (
    "The params are counted right before their update, once the gradient norm is known: F11 runs the step."
)


class ParamsView(LazyView):
    """One row a param below the sums over all and over each block. Selecting one selects it everywhere."""

    LOCAL_KEYS = KEYS
    PERIOD_S = 0.2

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("params")
        self._param = ""
        self._selecting = False
        self._fitted: Layout | None = None
        """The layout whose names have their room."""
        self.model = ParamsModel()
        self._known_steps: tuple[Plan | None, Mapping[str, str]] = (None, NO_STEPS)
        self.frozen = FrozenTable(self.model, "params-table")
        self.frozen.header_clicked.connect(self._on_header_clicked)
        self.frozen.names.selectionModel().currentRowChanged.connect(self._on_row_changed)
        self.frozen.names.activated.connect(self._on_activated)
        self.frozen.table.activated.connect(self._on_activated)
        self.frozen.setSizes([NAMES_WIDTH, 4 * NAMES_WIDTH])
        self.empty = QLabel(NO_SOURCE)
        self.empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.empty.setWordWrap(True)
        self.count_button = QPushButton("Count at level full")
        self.count_button.setToolTip(f"{STATS_HELP['full']}, from the next step on (Ctrl+3)")
        self.count_button.clicked.connect(lambda: self.command.emit(SetStats("full")))
        nothing = QWidget()
        column = QVBoxLayout(nothing)
        column.setContentsMargins(8, 8, 8, 8)
        column.addStretch(1)
        column.addWidget(self.empty)
        column.addWidget(self.count_button, 0, Qt.AlignmentFlag.AlignHCenter)
        column.addStretch(1)
        self.pages = QStackedWidget()
        self.pages.addWidget(nothing)
        self.pages.addWidget(self.frozen)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(theme.GRID)
        outer.addLayout(self._tool_row())
        outer.addWidget(self.pages, 1)
        self.setFocusProxy(self.frozen)
        bind(self, [("/", self.filter_field.setFocus)], inside=True)
        for table in (self.frozen.names, self.frozen.table):
            table.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
            table.customContextMenuRequested.connect(partial(self._offer_at, table))
        bind(self.frozen, [("B", self._offer_current)], inside=True)
        theme.changes().changed.connect(self._restyle)
        self._restyle()
        self._set_widths()
        self.frozen.names.setColumnWidth(0, NAMES_WIDTH)

    def _tool_row(self) -> QHBoxLayout:
        row = QHBoxLayout()
        row.setContentsMargins(theme.GRID, theme.GRID, theme.GRID, 0)
        row.setSpacing(2 * theme.GRID)
        self.level_combo = QComboBox()
        self.level_combo.addItems(LEVELS)
        for i, level in enumerate(LEVELS):
            self.level_combo.setItemData(i, f"{STATS_HELP[level]}.", Qt.ItemDataRole.ToolTipRole)
        self.level_combo.setAccessibleName("statistics")
        self.level_combo.textActivated.connect(self._on_level_chosen)
        self.filter_field = QLineEdit()
        self.filter_field.setPlaceholderText("filter by name")
        self.filter_field.setToolTip(
            "Shows the params whose name holds this, or matches it where it has * or ?: qkv, h.*.weight (/)"
        )
        self.filter_field.setAccessibleName("filter by name")
        self.filter_field.setClearButtonEnabled(True)
        self.filter_field.textChanged.connect(self._on_filter)
        self.filter_field.setMinimumWidth(60)
        self.filter_field.setMaximumWidth(220)
        self.note = ElidedLabel()
        statistics = QLabel("statistics")
        statistics.setBuddy(self.level_combo)
        for widget in (statistics, self.level_combo, self.filter_field):
            row.addWidget(widget)
        row.addWidget(self.note, 1)
        self.lane_buttons: dict[Lane, QToolButton] = {}
        self._lanes = QButtonGroup(self)
        for lane in LANES:
            button = QToolButton()
            button.setText(lane)
            button.setCheckable(True)
            button.setAutoRaise(True)
            button.setChecked(lane == self.model.lane)
            button.setToolTip(
                f"Show range, norm, zeros and non-finite elements of {lane} in the last columns."
            )
            button.clicked.connect(lambda _checked=False, lane=lane: self._on_lane(lane))
            self._lanes.addButton(button)
            self.lane_buttons[lane] = button
            row.addWidget(button)
        return row

    # --- from outside

    def select_param(self, name: str) -> None:
        """Show this param as the selected one."""
        if name != self._param:
            self._param = name
            self._show_selection(scroll=True)

    # --- events

    def _on_level_chosen(self, text: str) -> None:
        self.command.emit(SetStats(next(level for level in LEVELS if level == text)))

    def _on_lane(self, lane: Lane) -> None:
        self.model.set_lane(lane)
        self._show_selection(scroll=False)

    def _on_filter(self, text: str) -> None:
        self.model.set_filter(text.strip())
        self._show_selection(scroll=True)
        self._show_note()

    def _on_header_clicked(self, column: int) -> None:
        """Figures: largest first, smallest first, as in memory. Words: from a to z, from z to a, as in memory."""
        first = column >= FIRST_FIGURE
        now = self.model.sorted_by
        if now == (column, first):
            self._sort(column, not first)
        elif now == (column, not first):
            self._sort(None, False)
        else:
            self._sort(column, first)

    def _sort(self, column: int | None, largest_first: bool) -> None:
        self.model.sort_by(column, largest_first=largest_first)
        self.frozen.show_sorted(column, largest_first=largest_first)
        self._show_selection(scroll=False)

    def _on_row_changed(self) -> None:
        if not self._selecting:
            self._select_current()

    def _on_activated(self) -> None:
        self._select_current()

    def _select_current(self) -> None:
        row = self.frozen.current_row
        if row >= 0 and (row == 0 or self.model.name_at(row)):
            self._param = self.model.name_at(row)
            self.param_selected.emit(self._param)

    def _offer_current(self) -> None:
        self._offer(self.frozen.names, self.frozen.names.currentIndex())

    def _offer_at(self, table: QTableView, at: QPoint) -> None:
        self._offer(table, table.indexAt(at))

    def _offer(self, table: QTableView, index: QModelIndex) -> None:
        """Breakpoints on a figure of a param, or on all of them."""
        under = table.visualRect(index).bottomLeft()
        offers = self.model.offers(index.row(), index.column())
        show_break_menu(self, table.viewport().mapToGlobal(under), offers, self.condition_wanted.emit)

    def _stepped(self, plan: Plan | None) -> Mapping[str, str]:
        """What steps each param; worked out once a plan, nothing where one optimizer steps all."""
        if plan is None or optimizer(plan.variant.optimizer).rest is None:
            return NO_STEPS
        if self._known_steps[0] is not plan:
            self._known_steps = plan, {s.name: optimizer_of(plan.variant, s.param).name for s in plan.layout}
        return self._known_steps[1]

    # --- showing

    def _update(self, snapshot: Snapshot) -> None:
        counted = snapshot.counted
        layout = snapshot.plan.layout if snapshot.plan else None
        if show_kept(self.lane_buttons, snapshot) and not self.lane_buttons[self.model.lane].isEnabled():
            self.lane_buttons["w"].click()
        columns = self.model.columnCount()
        held = snapshot.recorded.held if snapshot.recorded is not None else NO_PARTS
        self.model.show_counted(counted, layout, held, self._stepped(snapshot.plan))
        if self.model.columnCount() != columns:
            self._set_widths()
        if layout is not self._fitted:
            self._fitted = layout
            self.frozen.fit_names(segment.name for segment in layout or ())
        self._show_selection(scroll=False)
        self.pages.setCurrentIndex(int(self.model.rowCount() > 0))
        if not self.level_combo.view().isVisible():
            with QSignalBlocker(self.level_combo):
                self.level_combo.setCurrentText(snapshot.stats)
        self.level_combo.setToolTip(
            f"What is counted at each step. {snapshot.stats}: {STATS_HELP[snapshot.stats].lower()}."
        )
        self._show_note()
        if counted is None:
            self._show_absence(snapshot)

    def _show_absence(self, snapshot: Snapshot) -> None:
        if snapshot.plan is None:
            text = NO_SOURCE
        else:
            text = NOT_YET if snapshot.stats == "full" else NOT_FULL.format(level=snapshot.stats)
        self.empty.setText(text)
        self.count_button.setVisible(snapshot.plan is not None and snapshot.stats != "full")

    def _show_note(self) -> None:
        snapshot = self._snapshot
        counted = snapshot.counted if snapshot else None
        if snapshot is None or counted is None or not self.model.rowCount():
            self.note.setText("")
            return
        words = [f"step {counted.step:,}", cost_text(counted, snapshot)]
        if snapshot.cursor is not None and snapshot.cursor.step != counted.step:
            words[0] = f"step {counted.step:,}; step {snapshot.cursor.step:,} is not counted yet"
        if self.filter_field.text().strip():
            words.insert(0, f"{self.model.shown:,} of {fmt.plural(len(counted.params), 'param')}")
        self.note.setText(" · ".join(words))

    def _show_selection(self, *, scroll: bool) -> None:
        """Put the selection on the row of the param; one on a sum stays."""
        row, now = self.model.row_of(self._param), self.frozen.current_row
        if row == now or (row < 0 <= now < self.model.total_rows and not self._param):
            return
        self._selecting = True
        self.frozen.select_row(row, scroll=scroll)
        self._selecting = False

    def _set_widths(self) -> None:
        samples = [sample for _, _, sample in WORD_COLUMNS]
        # Beside the title there is room for the arrow.
        samples += [max(c.sample, f"{c.title}{ARROW}", key=len) for c in self.model.columns]
        set_widths(self.frozen.table, tuple(samples))

    def _restyle(self) -> None:
        for lane, button in self.lane_buttons.items():
            colours = theme.colours()
            ink = theme.ink(theme.LANE_COLOURS[lane], colours.window).name()
            button.setStyleSheet(
                f"QToolButton {{ color: {ink}; padding: 1px 6px; border: 1px solid transparent; }}"
                f"QToolButton:checked {{ border: 1px solid {ink}; font-weight: bold; }}"
                f"QToolButton:focus {{ border: 1px solid {colours.accent.name()}; }}"
            )


def cost_text(counted: CountedParams, snapshot: Snapshot) -> str:
    """What the counting took on the GPU, and beside the step."""
    took = (
        f" in {fmt.milliseconds(counted.ms)} of GPU time"
        if counted.ms is not None
        else f", GPU time {fmt.NA}"
    )
    text = f"counted{took}"
    times = [t.ms for t in snapshot.dispatch_times if t is not None and t.ms is not None and t.clock == "gpu"]
    complete = bool(times) and len(times) == len(snapshot.dispatch_times)
    if counted.ms is None or not complete or snapshot.cursor is None or snapshot.cursor.step != counted.step:
        return text
    return f"{text} (step {fmt.milliseconds(sum(times))})"
