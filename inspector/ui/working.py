"""What is being worked at, once it takes longer than a moment: in words, with the seconds it has taken."""

from __future__ import annotations

import time
from collections.abc import Callable

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QHBoxLayout, QLabel, QProgressBar, QWidget

from inspector.runtime import commands as c
from inspector.runtime.snapshots import Snapshot

AFTER_MS = 300
"""What is done by then needs no words."""
TICK_MS = 200
WORDS: dict[type, str] = {
    c.OpenSource: "opening the source",
    c.SetVariant: "changing the form",
    c.TryShader: "running the step again",
    c.MeasureCopy: "measuring a copy",
    c.SaveReport: "writing the report",
    c.StartLockstep: "starting the second run",
    c.StartRecording: "starting the recording",
    c.StopRecording: "ending the recording",
    c.RecoverDevice: "opening a new device",
    c.UndoIteration: "going back",
    c.UndoDispatch: "going back",
    c.StepDispatch: "running a dispatch",
    c.StepIteration: "running the step",
    c.Pause: "finishing the step",
}
"""What commands do that may take longer and have no progress of their own."""


class Working(QWidget):
    """A bar that moves and a few words, there only while the worker is at something and has not answered."""

    def __init__(self, parent: QWidget | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(parent)
        self.setObjectName("working")
        self._clock = clock
        self._what = ""
        self._since = 0.0
        self.bar = QProgressBar(self)
        self.bar.setRange(0, 0)
        self.bar.setTextVisible(False)
        self.bar.setFixedSize(48, 8)
        self.bar.setAccessibleName("The worker is busy")
        self.label = QLabel(self)
        self.label.setObjectName("working_text")
        row = QHBoxLayout(self)
        row.setContentsMargins(8, 0, 8, 0)
        row.addWidget(self.bar)
        row.addWidget(self.label)
        self._tick = QTimer(self, interval=TICK_MS)
        self._tick.timeout.connect(self._show)
        self.hide()

    def sent(self, command: c.Command) -> None:
        """A command goes to the worker."""
        words = WORDS.get(type(command))
        if words is not None:
            self._begin(words)

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """The worker has answered; a source that is still being opened is not there yet."""
        if snapshot.mode == "starting" and snapshot.source:
            if self._what != WORDS[c.OpenSource]:
                self._begin(WORDS[c.OpenSource])
            return
        self._what = ""
        self._tick.stop()
        self.hide()

    def _begin(self, words: str) -> None:
        self._what, self._since = words, self._clock()
        self._tick.start()

    def _show(self) -> None:
        waited = self._clock() - self._since
        if self._what and waited * 1000 >= AFTER_MS:
            self.label.setText(f"{self._what}, {waited:.0f} s" if waited >= 1 else f"{self._what}…")
            self.show()
