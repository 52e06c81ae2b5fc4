"""How fast steps go by: the speed of a run, and whether a step is so slow that it runs by dispatches."""

from __future__ import annotations

import time

from inspector.runtime.engine import Engine

SLOW_STEP_S = 0.1
"""A step that takes longer runs one dispatch at a time, so that a pause or a look need not wait for all of it."""
SLOW_ELEMENTS = 1 << 24
"""On a software device a step over more elements is taken to be slow until it has been timed."""
RATE_WINDOW_S = 1.0


class Pace:
    """Of the run that is open. Steps are counted over all runs; speed is measured from `restart` on."""

    def __init__(self) -> None:
        self.step_s = 0.0
        """What a step takes, as measured last; 0 where that is not to count."""
        self.rate: float | None = None
        """Steps a second over the last window, None before the first has passed."""
        self._steps_run = 0
        self._rate_from: tuple[float, int] = (0.0, 0)

    @property
    def slow(self) -> bool:
        """True where a step is to run by dispatches."""
        return self.step_s > SLOW_STEP_S

    def opened(self, engine: Engine) -> None:
        """Another run is open, of which no step has been timed."""
        stepper = engine.stepper
        slow = stepper.device.software and stepper.layout.elements > SLOW_ELEMENTS
        self.step_s = 2 * SLOW_STEP_S if slow else 0.0
        self.rate = None

    def time_slow_step(self, engine: Engine) -> None:
        """A slow step may be complete, which ran by dispatches: what it took is what they took."""
        if engine.stepper.cursor.at_end and engine.record is not None:
            times = [t.ms for t in engine.record.kernels]
            self.step_s = sum(ms for ms in times if ms is not None) / 1e3

    def ran(self, steps: int) -> None:
        """So many steps were completed, fewer than none where they were taken back."""
        self._steps_run += steps

    def restart(self) -> None:
        """Measure the speed from here on."""
        self._rate_from = (time.perf_counter(), self._steps_run)

    def count(self) -> None:
        """A step, or a part of one, has run: work the speed out anew where a window is over."""
        now = time.perf_counter()
        since, steps = self._rate_from
        # A step that is longer than the window is waited for: its parts are no speed of 0.
        if now - since >= RATE_WINDOW_S and self._steps_run != steps:
            self.rate = (self._steps_run - steps) / (now - since)
            self._rate_from = (now, self._steps_run)
