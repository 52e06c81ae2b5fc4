"""Copies of a run's state on the host, made as often as that is cheap: a lost device loses little."""

from __future__ import annotations

import time

from inspector.runtime.ways import KeptStates
from inspector.stepping import HostState, Stepper

SHARE = 10
"""A copy is made when at least so many times its cost has passed since the last."""
MAX_BYTES = 2 << 30


class Checkpoints:
    """The newest copy, and older ones for going back to. None is made where they are not `wanted`."""

    def __init__(self, wanted: bool) -> None:
        self.wanted = wanted
        self.newest: HostState | None = None
        self.kept = KeptStates()
        self._cost_s = 0.0
        self._made_at = -float("inf")

    def make(self, stepper: Stepper) -> None:
        """Keep the state at the end of a step, if that is cheap by now."""
        if not self.wanted or 12 * stepper.layout.padded_elements > MAX_BYTES:
            return
        started = time.perf_counter()
        if started - self._made_at < SHARE * self._cost_s:
            return
        self.newest = stepper.state()
        self.kept.keep(self.newest)
        self._made_at = time.perf_counter()
        self._cost_s = self._made_at - started

    def hurry(self) -> None:
        """Keep the next state that there is, whatever that takes: the ones from before lead no longer on."""
        self._made_at = -float("inf")

    def forget_after(self, step: int) -> None:
        """The run went back to the end of `step`."""
        self.hurry()
        if self.newest is not None and self.newest.finished_steps > step:
            self.newest = None
        self.kept.forget_after(step)
