"""The only place where the worker's callback becomes a Qt signal, and the UI's commands reach the worker."""

from __future__ import annotations

import threading
from collections.abc import Callable

from PySide6.QtCore import QEvent, QObject, QTimer, Signal
from PySide6.QtGui import QWindow

from inspector.runtime.commands import Command
from inspector.runtime.snapshots import Snapshot

QUIET_TURNS = 2
"""Turns of the event loop with nothing else in them after which the window is at rest: in the first a view may have
been shown something that is painted before the second."""

INPUT = (
    QEvent.Type.KeyPress, QEvent.Type.MouseMove, QEvent.Type.MouseButtonPress, QEvent.Type.MouseButtonRelease,
    QEvent.Type.Wheel, QEvent.Type.Resize,
)  # fmt: skip
"""What a person does that makes a window work."""


class Bus(QObject):
    """`snapshot_arrived` fires on the UI thread, newest snapshot only: what came in between is dropped unseen."""

    snapshot_arrived = Signal(object)
    _posted = Signal()

    def __init__(self, send: Callable[[Command], None], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._send = send
        self._newest: Snapshot | None = None
        self._pending = False
        self._idle = threading.Event()
        self._idle.set()
        self._quiet = 0
        # Of interval 0, so that it comes after all that waits to be handled or painted.
        self._turn = QTimer(self, interval=0)
        self._turn.timeout.connect(self._on_turn)
        self._posted.connect(self._deliver)

    def post_from_worker(self, snapshot: Snapshot) -> None:
        """Called on the worker's thread. Queues at most one event however many snapshots come."""
        self._newest = snapshot
        if not self._pending:
            self._pending = True
            self._idle.clear()
            self._posted.emit()

    def wait_until_idle(self, timeout: float) -> None:
        """Called on the worker's thread: let the UI finish what it is at, `timeout` seconds at most.

        The two share one interpreter lock, and a paint takes it hundreds of times: beside a busy worker each
        time may cost a switch interval, and a frame of 10 ms becomes one of 100.
        """
        self._idle.wait(timeout)

    def working(self) -> None:
        """Called on the UI thread: the window has something to do, which is done once its event loop is at rest.

        The event loop does not say so itself: where Qt runs on that of GLib, its signals come before and after all of
        a turn, not around what the turn does.
        """
        self._idle.clear()
        self._quiet = 0
        if not self._turn.isActive():
            self._turn.start()

    def watch_input(self, window: QWindow) -> None:
        """Whatever is done with the mouse or keys in this window makes it work."""
        window.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Look at what comes into a window, and leave it alone."""
        if event.type() in INPUT:
            self.working()
        return False

    def send(self, command: Command) -> None:
        """Send a command to the worker; returns at once."""
        self._send(command)

    def _deliver(self) -> None:
        self._pending = False
        self.working()
        if self._newest is not None:
            self.snapshot_arrived.emit(self._newest)

    def _on_turn(self) -> None:
        self._quiet += 1
        if self._quiet >= QUIET_TURNS and not self._pending:
            self._turn.stop()
            self._idle.set()
