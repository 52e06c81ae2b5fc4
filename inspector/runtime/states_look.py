"""The states of one param in shapes of their own, read back as often as they are cheap."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from inspector.floats import F32Array
from inspector.optimizers import PARAM_STATES
from inspector.param_state import PlacedState
from inspector.statistics import BufferStats, buffer_stats
from inspector.stepping import Cursor, Stepper

MOST_VALUES = 1 << 18
"""Values of a state that are read back: what a person scrolls through, and a millisecond of transfer."""
RUNNING_SHARE = 10
RUNNING_PERIOD_S = 0.2


@dataclass(frozen=True, slots=True, eq=False)
class StateShown:
    """A state: where it is, its first values flat as they are and as they were before the last dispatch, and counts.

    `low`, `mean` and `high` are of finite values, None where there are none; of the values read.
    """

    placed: PlacedState
    title: str
    values: F32Array
    before: F32Array
    counts: BufferStats
    low: float | None
    mean: float | None
    high: float | None

    @property
    def whole(self) -> bool:
        """True where all values were read."""
        return len(self.values) == self.placed.elements


@dataclass(frozen=True, slots=True, eq=False)
class StatesPicture:
    """The states of `param` where the run stands at `cursor`; none where it has none."""

    param: str
    cursor: Cursor
    states: tuple[StateShown, ...]


class StatesLook:
    """Holds which param is asked for and what was last read of it."""

    def __init__(self) -> None:
        self.picture: StatesPicture | None = None
        self._param: str | None = None
        self._stale = True
        self._done_at = -float("inf")
        self._cost = 0.0

    def ask(self, param: str | None) -> None:
        """Remember what is wanted from now on."""
        self._param, self._stale = param, True
        if param is None:
            self.picture = None

    def moved(self) -> None:
        """The run has moved."""
        self._stale = True

    def forget(self) -> None:
        """Another run."""
        self.picture, self._stale = None, True

    def glance(self) -> None:
        """A step is shown that the device does not stand at: nothing is known of its states."""
        self.picture, self._stale = None, True

    def refresh(self, stepper: Stepper, *, running: bool) -> None:
        """Bring the picture up to date; while running only where it is due."""
        if not self._stale or self._param is None:
            return
        started = time.perf_counter()
        wait = max(RUNNING_PERIOD_S, RUNNING_SHARE * self._cost) if running else 0.0
        if started - self._done_at < wait:
            return
        mine = stepper.plan.states_of.get(self._param, ())
        self.picture = StatesPicture(self._param, stepper.cursor, tuple(_shown(stepper, s) for s in mine))
        self._stale = False
        self._done_at = time.perf_counter()
        self._cost = self._done_at - started


def _shown(stepper: Stepper, placed: PlacedState) -> StateShown:
    values, before = (
        stepper.looker.param_state(placed, MOST_VALUES, before=earlier) for earlier in (False, True)
    )
    for array in (values, before):
        array.flags.writeable = False
    finite = values[np.isfinite(values)]
    low, mean, high = (
        (float(finite.min()), float(finite.mean(dtype=np.float64)), float(finite.max()))
        if len(finite)
        else (None, None, None)
    )
    title = PARAM_STATES[placed.name].title
    return StateShown(placed, title, values, before, buffer_stats(values), low, mean, high)
