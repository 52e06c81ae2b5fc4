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
SHARE, LEAST_S = 0.02, 0.05
"""Of the time of a run that captures large tensors, and at first, so much is waited at most."""


class Keeping:
    """Between a thread that trains, which waits, and those that write, which tell how far they are.

    `durable_step` gives the last step on disk; `ended` is True once nothing more comes. With `bounded` the script waits
    a small share of its time at most: gigabytes on their way to host and disk hold up what comes behind them.
    """

    def __init__(
        self, durable_step: Callable[[], int], ended: Callable[[], bool], *, bounded: bool = False
    ) -> None:
        self._durable_step, self._ended = durable_step, ended
        self._bounded = bounded
        self._began = time.monotonic()
        self._waited_s = 0.0
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
        limit = PATIENCE_S
        if self._bounded:
            limit = max(LEAST_S + SHARE * (began - self._began) - self._waited_s, 0.0)
        with self._changed:
            kept = self._changed.wait_for(lambda: self._is_kept(step), limit)
        waited_s = time.monotonic() - began
        self._waited_s += waited_s
        self._late = not kept and not self._bounded
        return waited_s if self._late else None

    def _is_kept(self, step: int) -> bool:
        return self._durable_step() >= step or self._ended()
