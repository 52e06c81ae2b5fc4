"""How far a script may be ahead of its recording on disk, which is what a process loses that is killed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

BEHIND_HOST = 1
"""Steps of a CPU: once step k has run, step k-1 is on disk, so that a kill loses what is in progress."""
BEHIND_DEVICE = 2
"""Steps of a device, which may still be at the one before last when the host has enqueued the next."""
PATIENCE_S = 60.0


class Keeping:
    """Between a thread that trains, which waits, and those that write, which tell how far they are.

    `durable_step` gives the last step on disk; `ended` is True once nothing more comes.
    """

    def __init__(self, durable_step: Callable[[], int], ended: Callable[[], bool]) -> None:
        self._durable_step, self._ended = durable_step, ended
        self._late = False
        """Once it took longer than the patience: nobody waits again until the disk has caught up."""
        self._changed = threading.Condition()

    def advanced(self) -> None:
        """More is on disk, or nothing comes any more. From any thread."""
        with self._changed:
            self._changed.notify_all()

    def wait_for(self, step: int) -> float | None:
        """Wait until `step` is on disk; how long in s, where it was given up for the first time in a row."""
        if self._is_kept(step):
            self._late = False
            return None
        if self._late:
            return None
        began = time.monotonic()
        with self._changed:
            self._late = not self._changed.wait_for(lambda: self._is_kept(step), PATIENCE_S)
        return time.monotonic() - began if self._late else None

    def _is_kept(self, step: int) -> bool:
        return self._durable_step() >= step or self._ended()
