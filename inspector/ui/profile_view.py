"""What the step costs on the machine at hand: each kernel beside a copy, the time floor, and variants."""

from __future__ import annotations

import math
from pathlib import Path

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QResizeEvent, QShowEvent
from PySide6.QtWidgets import (
    QHBoxLayout,
    QLabel,
    QPushButton,
    QSplitter,
    QVBoxLayout,
    QWidget,
)

from inspector.errors import UsageError
from inspector.files import check_writable, write_text
from inspector.runtime.commands import CancelCompare, CompareVariants, MeasureCopy
from inspector.runtime.snapshots import Snapshot
from inspector.ui import format as fmt
from inspector.ui import profile_export, theme
from inspector.ui.profile_model import MEASURE_FIRST, SAMPLES, ProfileModel
from inspector.ui.shortcuts import bind
from inspector.ui.tables import LEAST_ROWS, dense_table, row_height, set_widths
from inspector.ui.variants_table import NOTHING_COMPARED, VariantsTable
from inspector.ui.view import View
from inspector.ui.widgets import ElidedLabel, ask_file

KEYS = (
    ("B", "measure the bandwidth of a copy"),
    ("V", "compare variants, or end that"),
    ("E", "export the tables as CSV"),
    ("T", "export the last steps as a trace"),
)
COMPARE_HELP = (
    "Measure this form of the step and those that differ from it in one factor, on copies of their own: "
    "takes about half a minute; stepping ends it (V)"
)
CANCEL_HELP = "End the comparison; what it measured so far is dropped (V)"
LOW = 330
"""Pixels of height below which the tables stand side by side."""
SAID_MS = 8000
"""What became of an export is said for so long."""
NOTHING_TIMED = "No step has been timed warm yet: F11 runs one, F5 many."


class ProfileView(View):
    """The tables of kernels and of variants under a row of buttons, and the step's floor below them."""

    LOCAL_KEYS = KEYS
    PERIOD_S = 0.5

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("profile")
        self._snapshot: Snapshot | None = None
        self._shown: tuple[object, ...] = ()
        self._said = ""
        self._shared: tuple[bool, bool] | None = None
        self._forget = QTimer(self, singleShot=True, interval=SAID_MS)
        self._forget.timeout.connect(self._on_forget)
        self._asked: Snapshot | None = None
        """The moment at which the copy was asked for, until there is an answer."""
        self._asked_compare: Snapshot | None = None
        """The moment at which a comparison was asked for or ended, until there is an answer."""
        self.model = ProfileModel()
        self.table = dense_table(self.model, "kernel-costs")
        set_widths(self.table, SAMPLES)
        self.setFocusProxy(self.table)
        self.measure = QPushButton("Measure copy")
        self.measure.setToolTip(
            "Measure the bandwidth of a plain copy on this device: takes seconds, a run waits for it (B)"
        )
        self.measure.clicked.connect(self._on_measure)
        self.compare = QPushButton("Compare variants")
        self.compare.clicked.connect(self._on_compare)
        self.export = QPushButton("Export CSV…")
        self.export.setToolTip("Write these tables to a file (E)")
        self.export.clicked.connect(self._on_export)
        self.export_trace = QPushButton("Export trace…")
        self.export_trace.setToolTip(
            "Write the last steps, dispatch by dispatch, to a file for ui.perfetto.dev (T)"
        )
        self.export_trace.clicked.connect(self._on_export_trace)
        self.variants = VariantsTable()
        self.copy_label = ElidedLabel()
        self.summary = QLabel(NOTHING_TIMED)
        self.summary.setWordWrap(True)
        self.summary.setMinimumWidth(1)
        self.summary.setContentsMargins(theme.GRID, 0, theme.GRID, theme.GRID)
        buttons = (self.measure, self.compare, self.export, self.export_trace)
        keys = [(key, button.click) for (key, _), button in zip(KEYS, buttons, strict=True)]
        bind(self, keys, inside=True)
        row = QHBoxLayout()
        row.setContentsMargins(theme.GRID, theme.GRID, theme.GRID, 0)
        row.setSpacing(2 * theme.GRID)
        for button in buttons:
            row.addWidget(button)
        row.addWidget(self.copy_label, 1)
        self._split = QSplitter(Qt.Orientation.Vertical)
        self._split.setChildrenCollapsible(False)
        # As small as one table, whichever way it lies now: it turns where the panel is low.
        self._split.setMinimumSize(1, LEAST_ROWS * row_height())
        self._split.addWidget(self.table)
        self._split.addWidget(self.variants)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(theme.GRID)
        outer.addLayout(row)
        outer.addWidget(self._split, 1)
        outer.addWidget(self.summary)
        self._show_state()

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Show what has been measured up to this moment."""
        self._snapshot = snapshot
        self.model.follow(snapshot)
        if self.isVisible():
            self._update()

    def showEvent(self, event: QShowEvent) -> None:
        """Catch up with what came while nobody looked."""
        super().showEvent(event)
        self._update()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Low and wide, the tables stand side by side."""
        super().resizeEvent(event)
        low = event.size().height() < LOW and event.size().width() > 2 * event.size().height()
        self._split.setOrientation(Qt.Orientation.Horizontal if low else Qt.Orientation.Vertical)
        self._share()

    def _update(self) -> None:
        snapshot = self._snapshot
        if snapshot is None:
            return
        if self._asked is not None and _answered(self._asked, snapshot):
            self._asked = None
        if self._asked_compare is not None and _compared(self._asked_compare, snapshot):
            self._asked_compare = None
        shown = (snapshot.plan, snapshot.history, snapshot.copy_gbps, snapshot.device)
        if len(shown) == len(self._shown) and all(a is b for a, b in zip(shown, self._shown, strict=True)):
            self._show_state()
            return
        self._shown = shown
        self.model.show(snapshot)
        self._show_summary()
        self._show_state()

    def _show_state(self) -> None:
        snapshot = self._snapshot
        works = snapshot is not None and snapshot.mode in ("paused", "running")
        comparing = snapshot.comparing if snapshot is not None else None
        self.measure.setEnabled(works and self._asked is None and comparing is None)
        self.export.setEnabled(bool(self.model.costs) or _has_comparison(snapshot))
        self.export_trace.setEnabled(snapshot is not None and profile_export.has_trace(snapshot))
        self._show_compare()
        gbps = snapshot.copy_gbps if snapshot is not None else None
        if comparing is not None:
            done = (
                f"{comparing.done:,} of {comparing.of:,} warm samples" if comparing.of else "preparing them"
            )
            self.copy_label.setText(f"Comparing variants: {done} …")
        elif self._asked is not None:
            self.copy_label.setText("Measuring a copy …")
        elif gbps is None:
            self.copy_label.setText(MEASURE_FIRST)
        else:
            self.copy_label.setText(f"A copy moves {fmt.number(gbps, 4)} GB/s")

    def _show_compare(self) -> None:
        snapshot = self._snapshot
        comparing = snapshot is not None and snapshot.comparing is not None
        reason = _why_not_compare(snapshot)
        self.compare.setText("End comparing" if comparing else "Compare variants")
        self.compare.setEnabled(self._asked_compare is None and (comparing or not reason))
        self.compare.setToolTip(CANCEL_HELP if comparing else reason or COMPARE_HELP)
        comparison = snapshot.comparison if snapshot is not None else None
        still = (
            comparison is None
            or snapshot is None
            or snapshot.plan is None
            or snapshot.plan.variant == comparison.reports[0].variant
        )
        self.variants.show_comparison(comparison, runs_still=still)
        self.variants.say("Measuring …" if comparing else reason or NOTHING_COMPARED)
        self._share()

    def _share(self) -> None:
        """The table of variants takes half of the place once it has rows, until a person moves what parts them."""
        stacked = self._split.orientation() == Qt.Orientation.Vertical
        state = (_has_comparison(self._snapshot), stacked)
        if state != self._shared:
            self._shared = state
            empty_height = 3 * row_height() if stacked and not state[0] else 1 << 20
            self.variants.setMaximumHeight(min(empty_height, (1 << 24) - 1))
            self._split.setSizes([1000, 1000] if state[0] else [3000, 1000])

    def _words(self) -> str:
        step = self.model.step
        if step is None or not step.samples:
            return NOTHING_TIMED
        words = [f"Step {fmt.milliseconds(step.median_ms)}."]
        if self.model.copy_gbps is None:
            words.append(f"Floor {MEASURE_FIRST}.")
        else:
            floor = self.model.floor_ms()
            times = step.median_ms / floor if floor else math.nan
            words.append(
                f"Floor {fmt.milliseconds(floor)}, the time of a copy of {_gigabytes(self.model.step_bytes)}: "
                f"the step takes {fmt.number(times, 3)} × as long."
            )
        if step.cold_samples:
            words.append(f"{fmt.plural(step.cold_samples, 'cold step')} left out.")
        if step.clock == "cpu":
            words.append("No timestamp queries here: wall time seen by the CPU.")
        return " ".join(words)

    # --- buttons

    def _on_measure(self) -> None:
        if self._snapshot is not None and self._asked is None:
            self._asked = self._snapshot
            self._show_state()
            self.command.emit(MeasureCopy())

    def _on_compare(self) -> None:
        if self._snapshot is None or self._asked_compare is not None:
            return
        self._asked_compare = self._snapshot
        going_on = self._snapshot.comparing is not None
        self._show_state()
        self.command.emit(CancelCompare() if going_on else CompareVariants())

    def _on_export(self) -> None:
        ask_file(self, "Export the tables", "profile.csv", "Tables (*.csv);;All files (*)", self.export_to)

    def _on_export_trace(self) -> None:
        ask_file(self, "Export a trace", "trace.json", "Traces (*.json);;All files (*)", self.export_trace_to)

    def export_to(self, name: str) -> None:
        """Write the tables as they stand; what went wrong is said below them."""
        if self._snapshot is not None:
            self._write(name, profile_export.tables_csv(self._snapshot, self.model.costs))

    def export_trace_to(self, name: str) -> None:
        """Write the last steps as a trace; what went wrong is said below the tables."""
        if self._snapshot is not None:
            self._write(name, profile_export.trace(self._snapshot))

    def _write(self, name: str, text: str) -> None:
        try:
            write_text(check_writable(Path(name)), text)
            self._said = f"Written to {name}."
        except UsageError as error:
            self._said = f"⚠ {error}"
        self._forget.start()
        self._show_summary()

    def _show_summary(self) -> None:
        self.summary.setText(f"{self._said} {self._words()}".strip())

    def _on_forget(self) -> None:
        self._said = ""
        self._show_summary()


def _answered(asked: Snapshot, now: Snapshot) -> bool:
    """True where the copy was measured since `asked`, or could not be."""
    return (
        now.copy_gbps is not asked.copy_gbps
        or now.notice is not asked.notice
        or now.mode not in ("paused", "running")
    )


def _compared(asked: Snapshot, now: Snapshot) -> bool:
    """True where the comparison asked for at `asked` has begun, ended or been refused."""
    return (
        (now.comparing is None) is not (asked.comparing is None)
        or now.comparison is not asked.comparison
        or now.notice is not asked.notice
        or now.mode != asked.mode
    )


def _has_comparison(snapshot: Snapshot | None) -> bool:
    return snapshot is not None and snapshot.comparison is not None


def _why_not_compare(snapshot: Snapshot | None) -> str:
    """Why variants cannot be compared now, in a sentence; "" where they can."""
    if snapshot is not None and snapshot.mode == "running":
        return "Variants are compared while the run stands still: pause it first (F6)."
    if snapshot is not None and snapshot.mode == "lost":
        return "The device is lost: recover it first."
    if snapshot is None or snapshot.mode != "paused" or snapshot.plan is None:
        return "No run is open whose variants could be compared."
    return ""


def _gigabytes(nbytes: int) -> str:
    """Bytes in powers of ten, as bandwidth is given."""
    return f"{fmt.short_count(nbytes)}B"
