"""Where to record and what of tensors, with the size to expect, before a recording starts."""

from __future__ import annotations

import os
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QComboBox,
    QDialog,
    QDialogButtonBox,
    QFileDialog,
    QFormLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPushButton,
    QWidget,
)

from inspector.byte_sizes import size_text
from inspector.errors import UsageError
from inspector.layout import Layout
from inspector.runtime.commands import StartRecording
from inspector.runtime.snapshots import Snapshot
from inspector.session.new_place import check_new
from inspector.session.policy import Policy
from inspector.session.recorder import free_bytes

POLICIES = (
    ("stats", "scalars, histograms and statistics of every param; no tensors"),
    ("flight:8", "also the gradients of the last 8 steps before something is found"),
    ("grads:10+keyframes:100", "also gradients every 10 steps, and w, m, v every 100"),
    ("grads:1+keyframes:100", "also all gradients, so that every step can be run again"),
    ("all", "also gradients and w, m, v of every step"),
)
STEPS = 1000
"""For so many steps the size is told: how many there will be, nobody knows yet."""
ENDING = ".session"


class RecordDialog(QDialog):
    """Emits one StartRecording; a name or policy that cannot work is told at once."""

    command = Signal(object)

    def __init__(self, snapshot: Snapshot, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        assert snapshot.plan is not None
        self._layout: Layout = snapshot.plan.layout
        self._lanes = len(snapshot.race.lanes) if snapshot.race is not None and snapshot.race.live else 1
        self.setObjectName("record_dialog")
        self.setWindowTitle("Record the run")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.path = QLineEdit(str(free_name(snapshot.source)), self)
        self.path.setObjectName("record_path")
        self.path.setAccessibleName("Session")
        self.path.setMinimumWidth(360)
        browse = QPushButton("Choose…", self)
        browse.clicked.connect(self._browse)
        row = QHBoxLayout()
        row.addWidget(self.path, 1)
        row.addWidget(browse)
        self.policy = QComboBox(self)
        self.policy.setObjectName("record_policy")
        self.policy.setAccessibleName("What is captured")
        self.policy.setEditable(True)
        self.policy.addItems([policy for policy, _ in POLICIES])
        self.policy.setToolTip("stats, grads:N, keyframes:N, flight:K or all, joined by +")
        self.words = QLabel(self)
        self.words.setObjectName("record_words")
        self.words.setWordWrap(True)
        self.buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Cancel, self)
        self.start = self.buttons.addButton("Record", QDialogButtonBox.ButtonRole.AcceptRole)
        self.start.setObjectName("record_start")
        self.buttons.accepted.connect(self._accept)
        self.buttons.rejected.connect(self.reject)
        form = QFormLayout(self)
        form.addRow("Session", row)
        form.addRow("Capture", self.policy)
        form.addRow(self.words)
        form.addRow(self.buttons)
        self.path.textChanged.connect(self._check)
        self.policy.currentTextChanged.connect(self._check)
        self._check()

    def _check(self) -> None:
        try:
            text, works = self._expected(), True
        except UsageError as error:
            text, works = str(error), False
        self.words.setText(text)
        self.start.setEnabled(works)

    def _expected(self) -> str:
        """What is captured and the size to expect; UsageError where it cannot work."""
        policy = Policy.from_text(self.policy.currentText())
        path = session_path(self.path.text())
        check_new(path)
        what = dict(POLICIES).get(self.policy.currentText().strip(), f"also {policy}")
        expected = policy.expected_bytes(self._layout, STEPS) * self._lanes
        ring = policy.memory_bytes(self._layout) * self._lanes
        of_lanes = f", of each of the {self._lanes} lanes" if self._lanes > 1 else ""
        memory = f" Up to {size_text(ring)} of memory hold the latest steps." if ring else ""
        return (
            f"Records {what}{of_lanes}. About {size_text(expected)} for {STEPS:,} steps; the disk has "
            f"{size_text(free_bytes(path.parent))} left.{memory} Every param is counted meanwhile, which takes one "
            "more pass over w, g, m and v a step."
        )

    def _accept(self) -> None:
        path = session_path(self.path.text())
        self.command.emit(StartRecording(str(path), self.policy.currentText().strip()))
        self.accept()

    def _browse(self) -> None:
        name, _ = QFileDialog.getSaveFileName(
            self, "Record to", self.path.text(), f"Sessions (*{ENDING})", "",
            QFileDialog.Option.DontConfirmOverwrite,
        )  # fmt: skip
        if name:
            self.path.setText(name)


def session_path(text: str) -> Path:
    """The path that was typed, with the ending of sessions."""
    if not text.strip():
        raise UsageError("Name the session to record to.")
    try:
        path = Path(text.strip()).expanduser().absolute()
    except RuntimeError as error:
        raise UsageError(f"{text.strip()} cannot be used: {error}") from None
    if not path.name:
        raise UsageError(f"{path} names no session: write a name after it.")
    return path if path.suffix == ENDING else path.with_name(path.name + ENDING)


def free_name(source: str, folder: Path | None = None) -> Path:
    """A session named after the source that does not exist yet, in the folder where the program runs; where nothing
    can be written there, as for a program that was started from a menu, in that of the person."""
    folder = folder or (Path.cwd() if os.access(Path.cwd(), os.W_OK) else Path.home())
    stem = Path(source.replace(":", "-").replace("=", "-").replace(",", "-")).stem or "run"
    names = (f"{stem}{'' if i == 1 else f'-{i}'}{ENDING}" for i in range(1, 10_000))
    return folder / next((name for name in names if not (folder / name).exists()), f"{stem}{ENDING}")
