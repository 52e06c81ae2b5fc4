"""What another program computed in the step on show against the kernels here: how far apart, and why."""

from __future__ import annotations

from PySide6.QtCore import QItemSelectionModel, QModelIndex, QSignalBlocker, Qt
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QSplitter, QVBoxLayout, QWidget

from inspector.floats import significant
from inspector.runtime.beside import NOT_VERIFIED, VerifyPicture
from inspector.runtime.commands import CancelVerify, Seek, VerifyAll, VerifyStep
from inspector.runtime.snapshots import Snapshot
from inspector.session.verdicts import FirstDifference, ParamVerdict, StepVerdict
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.actions import blocked
from inspector.ui.shortcuts import bind
from inspector.ui.tables import dense_table, set_widths
from inspector.ui.verify_model import SAMPLES, VerdictRows, W, ulp_text
from inspector.ui.verify_plots import UlpBars, WorstOverSteps
from inspector.ui.view import LazyView
from inspector.ui.widgets import ElidedLabel

KEYS = (
    ("K", "hold the step on show against the kernels here, again"),
    ("A", "hold all captured steps against them; again ends it"),
    ("D", "select the first element that differs"),
    ("N", "go to the next step that is more than roundings"),
)
NOTHING = "Nothing is compared yet: K does it for the step on show, A for all."


class VerifyView(LazyView):
    """A line of what was found, a table of params, elements by ULP, the worst over steps, and the selected in words.

    While it is seen and the run stands still, the step on show is compared by itself, unless a recording is followed.
    """

    LOCAL_KEYS = KEYS
    PERIOD_S = 0.2

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("verify")
        self._picture: VerifyPicture = NOT_VERIFIED
        self._param = ""
        self._asked: int | None = None
        self.words = ElidedLabel()
        self.all_button = QPushButton()
        self.all_button.setObjectName("verify_all")
        self.all_button.clicked.connect(self.compare_all)
        self.next_button = QPushButton("Next unexplained")
        self.next_button.setToolTip("Go to the next step that is more than roundings (N)")
        self.next_button.clicked.connect(self.go_on)
        line = QHBoxLayout()
        line.setContentsMargins(theme.GRID, theme.GRID, theme.GRID, 0)
        line.setSpacing(theme.GRID)
        line.addWidget(self.words, 1)
        line.addWidget(self.next_button)
        line.addWidget(self.all_button)
        self.rows = VerdictRows()
        self.table = dense_table(self.rows, "verified-params")
        set_widths(self.table, SAMPLES)
        self.table.horizontalHeader().setSortIndicator(W, Qt.SortOrder.DescendingOrder)
        self.table.setSortingEnabled(True)
        self.table.selectionModel().currentRowChanged.connect(self._on_row)
        self.table.activated.connect(self._on_activated)
        self.bars, self.over_steps = UlpBars(), WorstOverSteps()
        across = QSplitter(Qt.Orientation.Horizontal)
        across.setChildrenCollapsible(False)
        for widget, share in ((self.table, 6), (self.bars, 3), (self.over_steps, 3)):
            across.addWidget(widget)
            across.setStretchFactor(across.count() - 1, share)
        # Else each begins with what it asks for, which is little for a table.
        across.setSizes([560, 280, 280])
        self.says = QLabel()
        self.says.setWordWrap(True)
        self.says.setContentsMargins(8, 0, 8, theme.GRID)
        self.says.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(theme.GRID)
        outer.addLayout(line)
        outer.addWidget(across, 1)
        outer.addWidget(self.says)
        self.setFocusProxy(self.table)
        acts = {"K": self.compare_step, "A": self.compare_all, "D": self.go_to_first, "N": self.go_on}
        bind(self, acts.items(), inside=True)
        self._draw()

    # --- from outside

    def select_param(self, name: str) -> None:
        """Show this param's elements and what accounts for them."""
        if name != self._param:
            self._param = name
            self._show_row()
            self._draw_param()

    def compare_step(self) -> None:
        """Compare the step on show, again where it has been."""
        step = self._step()
        if step is not None and self._may_ask():
            self._asked = step
            self.command.emit(VerifyStep(step))

    def compare_all(self) -> None:
        """Compare all steps; while that goes on, end it."""
        if self._picture.of:
            self.command.emit(CancelVerify())
        elif self._may_ask():
            self.command.emit(VerifyAll())

    def go_to_first(self) -> None:
        """Select the first element that differs: of the selected param, or else of the step."""
        row = self._row()
        first = (
            row.first if row is not None else self._picture.verdict.first if self._picture.verdict else None
        )
        if first is not None:
            self.element_selected.emit(first.param, first.index)

    def go_on(self) -> None:
        """Go to the next step that is more than roundings, from the last one to the first."""
        steps = self._picture.unexplained
        if steps:
            here = self._step() or 0
            self.command.emit(Seek(next((step for step in steps if step > here), steps[0])))

    # --- events

    def _on_row(self, current: QModelIndex, _before: QModelIndex) -> None:
        if current.isValid() and (row := self.rows.rows[current.row()]).param != self._param:
            self.param_selected.emit(row.param)
            self.select_param(row.param)

    def _on_activated(self, index: QModelIndex) -> None:
        """A double click or Enter: the element that is farthest off."""
        row = self.rows.rows[index.row()]
        worst = max(row.lanes.values(), key=lambda found: found.max_ulp)
        if worst.max_index is not None:
            self.element_selected.emit(row.param, worst.max_index)

    def _on_new_run(self) -> None:
        self._asked = None

    # --- drawing

    def _update(self, snapshot: Snapshot) -> None:
        if snapshot.beside.verify is not self._picture:
            before, self._picture = self._picture, snapshot.beside.verify
            self._draw(before.verdict)
        step = self._step()
        # One that is followed goes on before a comparison is done.
        ready = (
            self._may_ask() and snapshot.mode == "paused" and not snapshot.following and not self._picture.of
        )
        if step is not None and step >= 1 and step != self._asked and ready:
            self.compare_step()

    def _draw(self, before: StepVerdict | None = None) -> None:
        picture = self._picture
        if picture.verdict is not before or picture.verdict is None:
            with QSignalBlocker(self.table.selectionModel()):
                self.rows.show(picture.verdict)
            self._show_row()
            self._draw_param()
        self.words.setText(words(picture))
        self.all_button.setText("End" if picture.of else "Compare all")
        tip = (
            "Leave it; what was found stays (A)" if picture.of else "Hold all captured steps against here (A)"
        )
        self.all_button.setToolTip(tip)
        self.all_button.setEnabled(bool(picture.origin))
        self.next_button.setVisible(bool(picture.unexplained))
        self.over_steps.show_worst(picture.worst, "The steps that were compared are drawn here.")

    def _draw_param(self) -> None:
        verdict, row = self._picture.verdict, self._row()
        shown = (row,) if row is not None else verdict.params if verdict is not None else ()
        self.bars.show_params(shown, row.param if row is not None else "all params", "")
        self.says.setText("" if row is None else param_words(row))
        self.says.setVisible(row is not None)

    def _row(self) -> ParamVerdict | None:
        at = self.rows.row_of(self._param)
        return None if at is None else self.rows.rows[at]

    def _show_row(self) -> None:
        row = self.rows.row_of(self._param)
        selection = self.table.selectionModel()
        with QSignalBlocker(selection):
            if row is None:
                selection.clear()
            else:
                flags = QItemSelectionModel.SelectionFlag
                selection.setCurrentIndex(self.rows.index(row, 0), flags.ClearAndSelect | flags.Rows)
                self.table.scrollTo(self.rows.index(row, 0))
        self.table.viewport().update()

    def _step(self) -> int | None:
        cursor = self._snapshot.cursor if self._snapshot is not None else None
        return None if cursor is None else cursor.step

    def _may_ask(self) -> bool:
        return self._snapshot is not None and bool(self._picture.origin) and not blocked(self._snapshot)


def words(picture: VerifyPicture) -> str:
    """What was found of a step, in one line."""
    if picture.of > 1:
        return f"Comparing steps: {picture.done:,} of {picture.of:,} …"
    if picture.of:
        return f"Comparing step {picture.step:,} …"
    if picture.problem:
        return picture.problem
    verdict = picture.verdict
    if verdict is None:
        return NOTHING
    start = "" if verdict.anchored else f", run on from the state after step {verdict.start:,}"
    kinds = ", ".join(sorted({p.key for p in verdict.params}))
    worst = max((p.max_ulp for p in verdict.params), default=0.0)
    first = f" · first {first_words(verdict.first)}" if verdict.first is not None else ""
    return f"Step {verdict.step:,} of {picture.origin}{start}: {kinds}; at most {ulp_text(worst)} ULP{first}"


def first_words(first: FirstDifference) -> str:
    """The first difference in words."""
    nearer = {"recorded": ", recorded is nearer", "here": ", here is nearer", "neither": ""}[first.nearer]
    truth = "" if first.truth != first.truth else f", float64 {significant(first.truth, 10)}{nearer}"
    values = f"{fmt.exact(first.recorded)} recorded, {fmt.exact(first.here)} here{truth}"
    return f"{first.buffer} {first.param}[{first.index:,}]: {values}"


def param_words(row: ParamVerdict) -> str:
    """What accounts for a param, and where it is farthest off."""
    text = f"{row.param}: {row}"
    return text if row.first is None else f"{text} First {first_words(row.first)}."
