"""What is being worked at, once it takes longer than a moment: in words, how far it is, and a button that ends it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QProgressBar, QToolButton, QWidget

from inspector.runtime import commands as c
from inspector.runtime.snapshots import Snapshot
from inspector.ui.going_on import GoingOn, going_on

AFTER_MS = 300
"""What is done by then needs no words."""
KEY_AFTER_MS = 70
"""The same of what is asked for with a key again and again: each has an answer on screen within 100 ms, be it that it
goes on."""
TICK_MS = 200
WORDS: dict[type, str] = {
    c.OpenSource: "Opening the source",
    c.SetVariant: "Changing the form",
    c.TryShader: "Running the step again",
    c.MeasureCopy: "Measuring a copy",
    c.SaveReport: "Writing the report",
    c.StartLockstep: "Starting the second run",
    c.StartRecording: "Starting the recording",
    c.StopRecording: "Ending the recording",
    c.RecoverDevice: "Opening a new device",
    c.UndoIteration: "Going back",
    c.UndoDispatch: "Going back",
    c.StepDispatch: "Running a dispatch",
    c.StepIteration: "Running the step",
    c.Pause: "Finishing the step",
}
"""What commands do until the worker tells of it, be it that they have no progress of their own."""


class Working(QWidget):
    """A bar, a few words and a button, there only while something goes on. `ended` carries the command that ends it."""

    ended = Signal(object)

    def __init__(self, parent: QWidget | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(parent)
        self.setObjectName("working")
        self._clock = clock
        self._now: GoingOn | None = None
        self._since = 0.0
        self._after_ms = AFTER_MS
        self._pausing = False
        """What comes before the run has paused is no answer to a pause."""
        self._moves = 0
        """How many of the commands among MOVES were sent."""
        self.bar = QProgressBar(self)
        self.bar.setRange(0, 0)
        self.bar.setTextVisible(False)
        self.bar.setFixedSize(48, 8)
        self.bar.setAccessibleName("The worker is busy")
        self.label = QLabel(self)
        self.label.setObjectName("working_text")
        self.end = QToolButton(self)
        self.end.setObjectName("working_end")
        self.end.setText("End")
        self.end.setToolTip("End what goes on; what was there before stays (Ctrl+.)")
        self.end.setAccessibleName("End what goes on")
        self.end.setAutoRaise(True)
        # No higher than a line of text: a status bar is as high as what is hidden in it.
        self.end.setFixedHeight(self.label.fontMetrics().height())
        self.end.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.end.clicked.connect(self._on_end)
        row = QHBoxLayout(self)
        row.setContentsMargins(8, 0, 8, 0)
        for widget in (self.bar, self.label, self.end):
            row.addWidget(widget)
        self._tick = QTimer(self, interval=TICK_MS, timerType=Qt.TimerType.PreciseTimer)
        self._tick.timeout.connect(self._show)
        self.hide()

    def sent(self, command: c.Command) -> None:
        """A command goes to the worker."""
        self._moves += isinstance(command, c.MOVES)
        if isinstance(command, c.Pause):
            self._pausing = True
        if isinstance(command, c.ViewMap) and command.request is not None and self._now is None:
            self._begin(GoingOn("Drawing the map"))
        words = WORDS.get(type(command))
        if words is None or (self._now is not None and self._now.words == words):
            # Of a key that is held down the first has not been answered yet.
            return
        self._begin(GoingOn(words), KEY_AFTER_MS if isinstance(command, c.MOVES) else AFTER_MS)

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """The worker has answered, or tells how far it is; a source that is being opened is not there yet."""
        now = going_on(snapshot)
        if now is None and snapshot.mode == "starting" and snapshot.source:
            now = self._now or GoingOn(WORDS[c.OpenSource])
        if now is None and snapshot.moves < self._moves:
            # It answers what was sent before.
            return
        self._pausing = self._pausing and snapshot.mode == "running"
        if now is None and self._pausing:
            return
        if now is None:
            self._now = None
            self._tick.stop()
            self.hide()
        elif self._now is None:
            self._begin(now)
        else:
            # What was sent is what is told of now.
            self._now = now
            if self.isVisible():
                self._show()

    def _begin(self, now: GoingOn, after_ms: int = AFTER_MS) -> None:
        self._now, self._since, self._after_ms = now, self._clock(), after_ms
        self._tick.start(after_ms)

    def _show(self) -> None:
        now, waited = self._now, self._clock() - self._since
        if now is None:
            return
        left_ms = self._after_ms - waited * 1000
        if left_ms > 0:
            # A timer may come a little early.
            self._tick.start(math.ceil(left_ms))
            return
        if self._tick.interval() != TICK_MS:
            self._tick.start(TICK_MS)
        seconds = f"{waited:.0f} s" if waited >= 1 else ""
        self.label.setText(", ".join(part for part in (now.words, now.share, seconds) if part))
        self.bar.setMaximum(now.of)
        self.bar.setValue(min(now.done, now.of))
        self.end.setVisible(now.end is not None)
        self.show()

    def _on_end(self) -> None:
        if self._now is not None and self._now.end is not None:
            self.ended.emit(self._now.end)
