"""The status bar: adapter, memory, speed, and how much can be undone."""

from __future__ import annotations

from pathlib import PurePath

from PySide6.QtWidgets import QStatusBar, QWidget

from inspector.byte_sizes import size_text
from inspector.runtime.snapshots import Snapshot
from inspector.ui import format as fmt
from inspector.ui.moment import session_text
from inspector.ui.widgets import ElidedLabel, SteadyLabel
from inspector.ui.working import Working


class StatusLine(QStatusBar):
    """Plain figures with their units; n/a where nothing was measured."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setSizeGripEnabled(False)
        self.adapter = ElidedLabel(self)
        self.memory = SteadyLabel(parent=self)
        self.speed = SteadyLabel(parent=self)
        self.undo = SteadyLabel(parent=self)
        self.recording = SteadyLabel(parent=self)
        self.session = SteadyLabel(parent=self)
        self.addWidget(self.adapter, 1)
        self.working = Working(self)
        self.addPermanentWidget(self.working)
        self.working.hide()
        for label, name, tip in (
            (
                self.session,
                "status_session",
                "The recording that is open, whether it is still written, and its steps",
            ),
            (
                self.recording,
                "status_recording",
                "The recording that goes on, its steps and its size on disk",
            ),
            (self.memory, "status_memory", "GPU memory that this run has allocated"),
            (self.speed, "status_speed", "Steps completed a second while running"),
            (self.undo, "status_undo", "How far back memory reaches, and what it takes on the host"),
        ):
            label.setObjectName(name)
            label.setToolTip(tip)
            label.setContentsMargins(8, 0, 8, 0)
            self.addPermanentWidget(label)
        self.adapter.setObjectName("status_adapter")
        self.adapter.setContentsMargins(8, 0, 8, 0)
        self.adapter.setText("no device yet")

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Show the figures of this moment."""
        self.working.show_snapshot(snapshot)
        device = snapshot.device
        if device is not None:
            kind = " · runs on the CPU" if device.software else ""
            times = "" if device.timestamps else " · CPU times only"
            self.adapter.setText(f"{device.name} · {device.backend}{kind}{times}")
        elif snapshot.mode == "starting":
            self.adapter.setText("looking for an adapter…")
        else:
            self.adapter.setText("no device")
        undo = snapshot.undo
        texts = (
            (self.memory, f"GPU memory {size_text(snapshot.memory_bytes) if device else fmt.NA}"),
            (self.speed, _speed(snapshot)),
            (
                self.undo,
                f"undo {fmt.plural(undo.steps, 'step')}, {fmt.plural(undo.dispatches, 'dispatch')} · "
                f"{size_text(undo.nbytes)} of {size_text(undo.limit)}",
            ),
        )
        self._show_recording(snapshot)
        self.session.setVisible(snapshot.recorded is not None)
        if self.session.text() != (text := session_text(snapshot)):
            self.session.setText(text)
        for label, text in texts:
            if label.text() != text:
                label.setText(text)

    def _show_recording(self, snapshot: Snapshot) -> None:
        shown = snapshot.recording
        self.recording.setVisible(shown is not None)
        if shown is not None:
            name = PurePath(shown.path).name
            text = f"recording {name} · {fmt.plural(shown.steps, 'step')} · {size_text(shown.nbytes)}"
            if self.recording.text() != text:
                self.recording.setText(text)


def _speed(snapshot: Snapshot) -> str:
    """Steps a second of a run that goes on; of another, that it rests."""
    if snapshot.mode == "running":
        known = snapshot.steps_per_second is not None
        return fmt.rate(snapshot.steps_per_second) if known else "running"
    return {"paused": "paused", "starting": "starting", "lost": "device lost"}.get(snapshot.mode, "no run")
