"""What if: the open recording run again under the settings of now, with what is changed, progress and an end."""

from __future__ import annotations

import os
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QComboBox,
    QDialog,
    QDialogButtonBox,
    QFormLayout,
    QLabel,
    QLineEdit,
    QProgressBar,
    QWidget,
)

from inspector.errors import UsageError
from inspector.runtime.commands import CancelWhatIf, WhatIf
from inspector.runtime.snapshots import Snapshot
from inspector.session.examples import FOLDERS
from inspector.session.new_place import check_new
from inspector.session.policy import Policy
from inspector.ui.record_dialog import ENDING, free_name, session_path

AS_RECORDED = "as the recording"
POLICIES = (AS_RECORDED, "stats", "keyframes:10", "all")


class WhatIfDialog(QDialog):
    """Emits one WhatIf, shows how far it is, and closes once it is done."""

    command = Signal(object)

    def __init__(self, snapshot: Snapshot, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("what_if_dialog")
        self.setWindowTitle("What if")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        recording = Path(snapshot.beside.recording or "")
        self._changes = snapshot.beside.changes
        self._asked = self._ran = False
        self.path = QLineEdit(str(free_name(f"{_stem(recording)}-what-if", folder_for(recording))), self)
        self.path.setObjectName("what_if_path")
        self.path.setAccessibleName("Session")
        self.path.setMinimumWidth(400)
        self.policy = QComboBox(self)
        self.policy.setEditable(True)
        self.policy.addItems(POLICIES)
        self.policy.setAccessibleName("What is captured")
        self.policy.setToolTip(
            "What of tensors the new session holds: stats, grads:N, keyframes:N or all, joined by +"
        )
        self.words = QLabel(self)
        self.words.setWordWrap(True)
        self.progress = QProgressBar(self)
        self.progress.hide()
        self.buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Cancel, self)
        self.start = self.buttons.addButton("Run", QDialogButtonBox.ButtonRole.AcceptRole)
        self.start.setObjectName("what_if_start")
        self.buttons.accepted.connect(self._begin)
        self.buttons.rejected.connect(self.reject)
        form = QFormLayout(self)
        form.addRow("Recording", QLabel(str(recording), self))
        self.changed = QLabel(self._changes or "nothing", self)
        form.addRow("Changed", self.changed)
        form.addRow("New session", self.path)
        form.addRow("Capture", self.policy)
        form.addRow(self.words)
        form.addRow(self.progress)
        form.addRow(self.buttons)
        self.path.textChanged.connect(self._check)
        self.policy.currentTextChanged.connect(self._check)
        self._check()

    @property
    def running(self) -> bool:
        """True from when it was asked for until it is done."""
        return self._asked

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Follow what was asked for."""
        going = snapshot.beside.what_if
        if not self._asked:
            if snapshot.beside.changes != self._changes:
                # What was set right before may take a moment.
                self._changes = snapshot.beside.changes
                self.changed.setText(self._changes or "nothing")
                self._check()
            return
        if going is None:
            # Before it has begun there is none either, unless something was wrong with it.
            refused = snapshot.notice is not None and snapshot.notice.severity == "error"
            if self._ran or refused:
                self.close()
            return
        self._ran = True
        self.progress.setMaximum(max(going.of, 1))
        self.progress.setValue(going.done)
        self.words.setText(f"Step {going.done:,} of {going.of:,}")

    def reject(self) -> None:
        """Cancel what runs, else close."""
        if self._asked:
            self.command.emit(CancelWhatIf())
        super().reject()

    def _begin(self) -> None:
        policy = self.policy.currentText().strip()
        self._asked = True
        self.command.emit(
            WhatIf(str(session_path(self.path.text())), None if policy == AS_RECORDED else policy)
        )
        for widget in (self.path, self.policy, self.start):
            widget.setEnabled(False)
        self.progress.setMaximum(0)
        self.progress.show()
        self.words.setText("Preparing …")

    def _check(self) -> None:
        try:
            text, works = self._expected(), bool(self._changes)
        except UsageError as error:
            text, works = str(error), False
        self.words.setText(text)
        self.start.setEnabled(works)

    def _expected(self) -> str:
        policy = self.policy.currentText().strip()
        if policy != AS_RECORDED:
            Policy.from_text(policy)
        path = session_path(self.path.text())
        check_new(path)
        if not self._changes:
            return (
                "Settings and form are those of the recording: change hyper-parameters, the schedule or the form "
                "first, then ask what if."
            )
        return (
            "The recorded gradients run again under the changed settings, from the first step on (an open loop: they "
            "stay those of the recorded weights). Both are then laid under the run."
        )


def folder_for(recording: Path) -> Path:
    """Where a run of it under other settings is offered to be put: beside it, or where the program runs if it is one of
    the examples, whose folder belongs to the program, or nothing may be written there."""
    beside = recording.absolute().parent
    own = beside.resolve() in (folder.resolve() for folder in FOLDERS)
    return Path.cwd() if own or not os.access(beside, os.W_OK) else beside


def _stem(path: Path) -> str:
    name = path.name
    for ending in (".zip", ENDING):
        name = name.removesuffix(ending)
    return name or "run"
