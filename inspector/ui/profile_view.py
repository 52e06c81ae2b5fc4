"""What the step costs on the machine at hand: each kernel beside the bandwidth of a copy, and the time floor."""

from __future__ import annotations

import math
from pathlib import Path

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QKeySequence, QShortcut, QShowEvent
from PySide6.QtWidgets import QFileDialog, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from inspector.cost import costs_csv
from inspector.errors import UsageError
from inspector.files import check_writable, write_text
from inspector.plan import Variant
from inspector.runtime.commands import MeasureCopy
from inspector.runtime.snapshots import Snapshot
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.profile_model import MEASURE_FIRST, SAMPLES, ProfileModel
from inspector.ui.tables import dense_table, set_widths
from inspector.ui.view import View
from inspector.ui.widgets import ElidedLabel
from inspector.variants import changes

KEYS = (("B", "measure the bandwidth of a copy"), ("E", "export the table as CSV"))
SAID_MS = 8000
"""What became of an export is said for so long."""
NOTHING_TIMED = "No step has been timed warm yet: F11 runs one, F5 many."


class ProfileView(View):
    """The table of kernels under two buttons, and the step's floor below it."""

    PERIOD_S = 0.5

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("profile")
        self._snapshot: Snapshot | None = None
        self._shown: tuple[object, ...] = ()
        self._said = ""
        self._forget = QTimer(self, singleShot=True, interval=SAID_MS)
        self._forget.timeout.connect(self._on_forget)
        self._asked: Snapshot | None = None
        """The moment at which the copy was asked for, until there is an answer."""
        self.model = ProfileModel()
        self.table = dense_table(self.model, "kernel-costs")
        set_widths(self.table, SAMPLES)
        self.setFocusProxy(self.table)
        self.measure = QPushButton("Measure copy")
        self.measure.setToolTip(
            "Measure the bandwidth of a plain copy on this device: takes seconds, a run waits for it (B)"
        )
        self.measure.clicked.connect(self._on_measure)
        self.export = QPushButton("Export CSV…")
        self.export.setToolTip("Write this table to a file (E)")
        self.export.clicked.connect(self._on_export)
        self.copy_label = ElidedLabel()
        self.summary = QLabel(NOTHING_TIMED)
        self.summary.setWordWrap(True)
        self.summary.setMinimumWidth(1)
        self.summary.setContentsMargins(theme.GRID, 0, theme.GRID, theme.GRID)
        for key, act in zip((k for k, _ in KEYS), (self.measure.click, self.export.click), strict=True):
            shortcut = QShortcut(QKeySequence(key), self)
            shortcut.setContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
            shortcut.activated.connect(act)
        row = QHBoxLayout()
        row.setContentsMargins(theme.GRID, theme.GRID, theme.GRID, 0)
        row.setSpacing(2 * theme.GRID)
        row.addWidget(self.measure)
        row.addWidget(self.export)
        row.addWidget(self.copy_label, 1)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(theme.GRID)
        outer.addLayout(row)
        outer.addWidget(self.table, 1)
        outer.addWidget(self.summary)
        self._show_copy()

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

    def _update(self) -> None:
        snapshot = self._snapshot
        if snapshot is None:
            return
        if self._asked is not None and _answered(self._asked, snapshot):
            self._asked = None
        shown = (snapshot.plan, snapshot.history, snapshot.copy_gbps, snapshot.device)
        if len(shown) == len(self._shown) and all(a is b for a, b in zip(shown, self._shown, strict=True)):
            self._show_copy()
            return
        self._shown = shown
        self.model.show(snapshot)
        self._show_summary()
        self._show_copy()

    def _show_copy(self) -> None:
        snapshot = self._snapshot
        works = snapshot is not None and snapshot.mode in ("paused", "running")
        self.measure.setEnabled(works and self._asked is None)
        self.export.setEnabled(bool(self.model.costs))
        gbps = snapshot.copy_gbps if snapshot is not None else None
        if self._asked is not None:
            self.copy_label.setText("Measuring a copy …")
        elif gbps is None:
            self.copy_label.setText(MEASURE_FIRST)
        else:
            self.copy_label.setText(f"A copy moves {fmt.number(gbps, 4)} GB/s")

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
            self._show_copy()
            self.command.emit(MeasureCopy())

    def _on_export(self) -> None:
        if not self.model.costs:
            return
        dialog = QFileDialog(self, "Export the table", "profile.csv", "Tables (*.csv);;All files (*)")
        dialog.setObjectName("export_dialog")
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setDefaultSuffix("csv")
        dialog.fileSelected.connect(self.export_to)
        dialog.open()

    def export_to(self, name: str) -> None:
        """Write the table as it stands; what went wrong is said below the table."""
        plan = self._snapshot.plan if self._snapshot is not None else None
        variant = changes(Variant(), plan.variant) if plan is not None else ""
        try:
            write_text(check_writable(Path(name)), costs_csv([(variant, self.model.costs)]))
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


def _gigabytes(nbytes: int) -> str:
    """Bytes in powers of ten, as bandwidth is given."""
    return f"{fmt.short_count(nbytes)}B"
