"""The only place where the worker's callback becomes a Qt signal, and the UI's commands reach the worker."""

from __future__ import annotations

import threading
from collections.abc import Callable

from PySide6.QtCore import QAbstractEventDispatcher, QObject, QThread, Signal

from inspector.runtime.commands import Command
from inspector.runtime.snapshots import Snapshot


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
        self._posted.connect(self._deliver)
        dispatcher = QAbstractEventDispatcher.instance(QThread.currentThread())
        if dispatcher is not None:
            dispatcher.awake.connect(self._idle.clear)
            dispatcher.aboutToBlock.connect(self._idle.set)

    def post_from_worker(self, snapshot: Snapshot) -> None:
        """Called on the worker's thread. Queues at most one event however many snapshots come."""
        self._newest = snapshot
        if not self._pending:
            self._pending = True
            self._posted.emit()

    def wait_until_idle(self, timeout: float) -> None:
        """Called on the worker's thread: let the UI finish what it is at, `timeout` seconds at most.

        The two share one interpreter lock, and a paint takes it hundreds of times: beside a busy worker each
        time may cost a switch interval, and a frame of 10 ms becomes one of 100.
        """
        self._idle.wait(timeout)

    def send(self, command: Command) -> None:
        """Send a command to the worker; returns at once."""
        self._send(command)

    def _deliver(self) -> None:
        self._pending = False
        if self._newest is not None:
            self.snapshot_arrived.emit(self._newest)
