"""The dispatches of the step, which have run, what each takes, and what each binds."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QEvent, QModelIndex, QObject, QSignalBlocker, Qt, QTimer
from PySide6.QtGui import QAction, QFont, QShowEvent
from PySide6.QtWidgets import QAbstractItemView, QLabel, QSplitter, QVBoxLayout, QWidget

from inspector.floats import significant
from inspector.plan import Dispatch, Plan
from inspector.runtime.commands import RunToDispatch
from inspector.runtime.snapshots import Snapshot
from inspector.stepping import Cursor, KernelTime
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.binding_table import BindingTable, clipped_texts, norm_texts
from inspector.ui.tables import AnyIndex, ColumnsModel, dense_table, row_height, set_widths
from inspector.ui.view import View
from inspector.ui.widgets import ElidedLabel

COLUMNS = ("state", "dispatch", "time", "groups", "elements", "block")
SAMPLES = ("· pending", "adamw_update no-wd", "88.8 µs cold", "65,535·2·1", "116,017,920", "no-wd")
STATE, LABEL, TIME, GROUPS, ELEMENTS, BLOCK = range(6)
GRADIENTS = "gradients"
KEYS = (("Enter, double click", "run to before the dispatch, in this step or the next"),)
NO_BINDINGS = "Gradients bind nothing: the source puts them in g."
BLOCK_NAMES = {"wd": "wd", "no_wd": "no-wd", None: ""}


class PipelineModel(ColumnsModel):
    """Row 0 is the source of the gradients, row i + 1 dispatch i of the plan."""

    COLUMNS = COLUMNS
    FIGURE_COLUMNS = frozenset({TIME, GROUPS, ELEMENTS, BLOCK})
    MEANS = (
        "Whether it has run in this step, runs next, or is to come.",
        "The entry point that is dispatched, and the block that it works on.",
        "What it took the last time: GPU time by timestamp queries; cpu where there are none. Cold: at low clocks.",
        "Workgroups of 256 threads, along x, y and z.",
        "Elements of the mega-buffers that it works on.",
        "wd: weight decay applies. no-wd: it does not.",
    )

    def __init__(self) -> None:
        super().__init__()
        self.plan: Plan | None = None
        self._cursor: Cursor | None = None
        self._times: tuple[KernelTime | None, ...] = ()
        self._source = ""

    def show(
        self,
        plan: Plan | None,
        cursor: Cursor | None,
        times: tuple[KernelTime | None, ...],
        source: str,
    ) -> None:
        """Take over this moment; only what changed is told to the table."""
        if plan is not self.plan:
            self.beginResetModel()
            self.plan, self._cursor, self._times, self._source = plan, cursor, times, source
            self.endResetModel()
            return
        changed = cursor != self._cursor or times is not self._times or source != self._source
        self._cursor, self._times, self._source = cursor, times, source
        if changed and self.rowCount():
            self.dataChanged.emit(self.index(0, 0), self.index(self.rowCount() - 1, len(COLUMNS) - 1))

    def current_row(self) -> int:
        """The row that runs next, or the last one at the end of a step; -1 without a plan."""
        if self.plan is None or self._cursor is None:
            return -1
        return min(self._cursor.dispatch + 1, self.rowCount() - 1)

    def dispatch(self, row: int) -> Dispatch | None:
        """The dispatch of a row; None for the gradients."""
        if self.plan is None or not 1 <= row <= len(self.plan.dispatches):
            return None
        return self.plan.dispatches[row - 1]

    def row_total(self) -> int:
        """The gradients and the dispatches."""
        return 0 if self.plan is None else len(self.plan.dispatches) + 1

    def data(self, index: AnyIndex, role: int = 0) -> Any:
        """The text, weight and explanation of a cell."""
        row, column = index.row(), index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            return self._text(row, column)
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return self.alignment(column)
        if role == Qt.ItemDataRole.ForegroundRole:
            colours = theme.colours()
            # Only what runs next is in the accent; text and glyph say the same.
            if self._state(row) == "next" and column in (STATE, LABEL):
                return colours.accent
            return colours.muted if self._state(row) == "pending" else None
        if role == Qt.ItemDataRole.FontRole and self._state(row) == "next":
            font = QFont(theme.ui_font())
            font.setBold(True)
            return font
        if role == Qt.ItemDataRole.ToolTipRole:
            return self._tooltip(row, column)
        return None

    def _state(self, row: int) -> str:
        done = self._cursor.dispatch if self._cursor else -1
        return "done" if row <= done else "next" if row == done + 1 and self._cursor else "pending"

    def _text(self, row: int, column: int) -> str:
        if column == STATE:
            return {"done": "✓ done", "next": "▶ next", "pending": "· pending"}[self._state(row)]
        dispatch = self.dispatch(row)
        if dispatch is None:
            return GRADIENTS if column == LABEL else ""
        if column == LABEL:
            return dispatch.label
        if column == TIME:
            return time_text(self._times[row - 1] if row - 1 < len(self._times) else None)
        if column == BLOCK:
            return BLOCK_NAMES[dispatch.block]
        if column == GROUPS:
            return "·".join(f"{n:,}" for n in dispatch.groups)
        return fmt.count(dispatch.elements[1] - dispatch.elements[0]) if dispatch.elements[1] else ""

    def _tooltip(self, row: int, column: int) -> str | None:
        dispatch = self.dispatch(row)
        if dispatch is None:
            return f"The gradients of the step, from {self._source}."
        if column == TIME:
            time = self._times[row - 1] if row - 1 < len(self._times) else None
            return time_tooltip(time)
        if column == ELEMENTS and dispatch.elements[1]:
            return f"Elements {dispatch.elements[0]:,} to {dispatch.elements[1] - 1:,}."
        file = dispatch.own.place if dispatch.own else f"{dispatch.kernel}.wgsl"
        return f"{dispatch.label}\nEntry point {dispatch.entry_point}, shader {file}"


class PipelineView(View):
    """The plan over the bindings of one dispatch: the one that runs next, until another is selected."""

    LOCAL_KEYS = KEYS
    PERIOD_S = 0.1

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("pipeline")
        self._snapshot: Snapshot | None = None
        self._followed: Cursor | None = None
        self.model = PipelineModel()
        self.table = dense_table(self.model, "dispatches")
        set_widths(self.table, SAMPLES)
        self.table.selectionModel().currentRowChanged.connect(self._on_row_changed)
        self.table.clicked.connect(self._on_clicked)
        self.table.activated.connect(self.run_to_here)
        here = QAction("Run to here", self.table)
        here.setToolTip("Run until the step stands before this dispatch (Ctrl+F10)")
        here.triggered.connect(self.run_to_here)
        self.table.addAction(here)
        self.table.setContextMenuPolicy(Qt.ContextMenuPolicy.ActionsContextMenu)
        self.setFocusProxy(self.table)
        self.heading = ElidedLabel()
        self.heading.setText("Bindings")
        self.heading.setContentsMargins(theme.GRID, theme.GRID, theme.GRID, theme.GRID)
        self.results = ElidedLabel()
        self.results.setObjectName("step_results")
        self.results.setContentsMargins(theme.GRID, theme.GRID, theme.GRID, 0)
        self.results.hide()
        self.clipped = ElidedLabel()
        self.clipped.setContentsMargins(theme.GRID, 0, theme.GRID, 0)
        self.clipped.hide()
        self.bindings = BindingTable()
        self._lower = lower = QWidget()
        column = QVBoxLayout(lower)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.results)
        column.addWidget(self.clipped)
        column.addWidget(self.heading)
        column.addWidget(self.bindings, 1)
        splitter = QSplitter(Qt.Orientation.Vertical)
        splitter.addWidget(self.table)
        splitter.addWidget(lower)
        splitter.setStretchFactor(1, 1)
        splitter.setChildrenCollapsible(False)
        self.empty = QLabel("The dispatches of a step appear here once a source is open.")
        self.empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.empty.setWordWrap(True)
        self._splitter = splitter
        # What a person moved stays.
        self._moved = False
        splitter.splitterMoved.connect(self._on_moved)
        for watched in (splitter, self.table.viewport()):
            watched.installEventFilter(self)
        splitter.hide()
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(splitter, 1)
        outer.addWidget(self.empty)

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Show where the run stands."""
        self._snapshot = snapshot
        if self.isVisible():
            self._update()

    def showEvent(self, event: QShowEvent) -> None:
        """Catch up with what came while nobody looked."""
        super().showEvent(event)
        self._update()

    def _update(self) -> None:
        snapshot = self._snapshot
        if snapshot is None:
            return
        new_plan = snapshot.plan is not self.model.plan
        self.model.show(snapshot.plan, snapshot.cursor, snapshot.dispatch_times, snapshot.source)
        self._splitter.setVisible(snapshot.plan is not None)
        self.empty.setVisible(snapshot.plan is None)
        if new_plan or snapshot.cursor != self._followed:
            # The selection follows the run; a dispatch selected by hand stays until the run moves on.
            self._followed = snapshot.cursor
            row = self.model.current_row()
            with QSignalBlocker(self.table.selectionModel()):
                self.table.selectRow(row)
            if row >= 0:
                self._show_current()
            self.table.viewport().update()
        if new_plan:
            self._share_height()
        self._show_results()
        self._show_bindings()

    def _show_results(self) -> None:
        """What the step has produced so far, whichever dispatch is selected."""
        record = self._snapshot.record if self._snapshot else None
        texts = norm_texts(record)
        self.results.setVisible(bool(texts))
        if record is not None and texts:
            self.results.setText(f"Step {record.step:,}: {' · '.join(texts)}")
        line, sentences = clipped_texts(record) if record is not None and texts else ("", "")
        self.clipped.setVisible(bool(line))
        self.clipped.setText(line)
        self.clipped.setToolTip(sentences)

    def _share_height(self) -> None:
        """The dispatches take what they need up to half, the bindings the rest. Where not all are seen at once, those
        seen are seen whole, what runs next among them."""
        needed = (self.model.rowCount() + 1) * row_height() + 5 * theme.GRID
        total, lower = self.height(), self._lower.minimumSizeHint().height()
        top = min(needed, total // 2, total - lower)
        if top < needed:
            around = self.table.height() - self.table.viewport().height()
            top = around + max((top - around) // row_height(), 1) * row_height()
        self._splitter.setSizes([top, total - top])
        if self.table.currentIndex().row() == self.model.current_row():
            self._show_current()

    def _show_current(self) -> None:
        index = self.model.index(self.model.current_row(), 0)
        self.table.scrollTo(index, QAbstractItemView.ScrollHint.EnsureVisible)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Once the view or its list has another height, in a turn of its own: the splitter is not done with it yet."""
        if event.type() == QEvent.Type.Resize and not self._moved:
            QTimer.singleShot(0, self, self._share_height)
        return super().eventFilter(watched, event)

    def _on_moved(self) -> None:
        self._moved = True

    def run_to_here(self) -> None:
        """Run until the step stands before the dispatch selected; at the gradients before the first."""
        row = self.table.currentIndex().row()
        if row >= 0:
            self.command.emit(RunToDispatch(max(row - 1, 0)))

    @property
    def kernel(self) -> str:
        """The entry point of the dispatch selected; "" where it is none."""
        dispatch = self.model.dispatch(self.table.currentIndex().row())
        return "" if dispatch is None else dispatch.entry_point

    def _on_row_changed(self) -> None:
        self._show_bindings()

    def _on_clicked(self, index: QModelIndex) -> None:
        """A dispatch of one param selects it everywhere."""
        dispatch, plan = self.model.dispatch(index.row()), self.model.plan
        if dispatch is None or plan is None or dispatch.block is None:
            return
        names = {s.name for s in plan.layout.between(*dispatch.elements)}
        if len(names) == 1:
            self.param_selected.emit(names.pop())

    def _show_bindings(self) -> None:
        row = self.table.currentIndex().row()
        dispatch, plan, snapshot = self.model.dispatch(row), self.model.plan, self._snapshot
        if dispatch is None or plan is None or snapshot is None:
            self.heading.setText(NO_BINDINGS if row == 0 else "Bindings")
            self.bindings.show_dispatch(None, None, {})
            return
        self.heading.setText(f"Bindings of {dispatch.label} (dispatch {dispatch.index + 1})")
        # Those of a step shown as recorded are not at hand.
        uniforms = snapshot.uniforms if snapshot.glance is None else {}
        self.bindings.show_dispatch(plan, dispatch, uniforms, snapshot.record)


def time_text(time: KernelTime | None) -> str:
    """The time of a dispatch; "cpu" and "cold" are said, "" where it has not run."""
    if time is None:
        return ""
    words = [fmt.milliseconds(time.ms)]
    if time.ms is not None:
        words += ["cpu"] * (time.clock == "cpu") + ["cold"] * time.cold
    return " ".join(words)


def time_tooltip(time: KernelTime | None) -> str:
    """What kind of time it is."""
    if time is None:
        return "This dispatch has not run yet."
    if time.ms is None:
        return "n/a: the clock gave no usable pair of timestamps."
    clock = "GPU time, by timestamp queries."
    if time.clock == "cpu":
        clock = "CPU time: this device has no timestamp queries."
    cold = " Cold: measured after the GPU had idled, at low clocks; left out of means." if time.cold else ""
    return f"{significant(time.ms, 6)} ms. {clock}{cold}"
