"""The only place where the worker's callback becomes a Qt signal, and the UI's commands reach the worker."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, Signal

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
        self._posted.connect(self._deliver)

    def post_from_worker(self, snapshot: Snapshot) -> None:
        """Called on the worker's thread. Queues at most one event however many snapshots come."""
        self._newest = snapshot
        if not self._pending:
            self._pending = True
            self._posted.emit()

    def send(self, command: Command) -> None:
        """Send a command to the worker; returns at once."""
        self._send(command)

    def _deliver(self) -> None:
        self._pending = False
        if self._newest is not None:
            self.snapshot_arrived.emit(self._newest)
