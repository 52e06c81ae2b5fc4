"""Ways to a step: through memory, by running, or from a state that was kept; and the states that are kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from inspector.stepping import HostState, State

KEPT_STATE_BYTES = 512 << 20
"""Of copies of the state on the host, for going back beyond the memory on the device; one is kept whatever its size."""
MAX_KEPT_STATES = 32


@dataclass(frozen=True, slots=True)
class Way:
    """How the end of step `to` is reached: from the end of step `start`, running what lies between.

    Begins where the run stands, or goes back there (`rewinds`), or puts the state that `state` gives there.
    """

    start: int
    to: int
    rewinds: bool = False
    state: Callable[[], State] | None = None

    @property
    def steps(self) -> int:
        """How many steps have to run."""
        return self.to - self.start

    @property
    def jumps(self) -> bool:
        """True where it begins elsewhere than the run stands."""
        return self.rewinds or self.state is not None

    @property
    def cost(self) -> float:
        """What it takes, about, in steps."""
        return self.steps + (0.25 if self.rewinds else 1.0 if self.state is not None else 0.0)


class KeptStates:
    """States of a run on the host, by step: dense near the newest, sparse further back, bounded in bytes."""

    def __init__(self, limit: int = KEPT_STATE_BYTES) -> None:
        self._limit = limit
        self._states: dict[int, HostState] = {}

    def keep(self, state: HostState) -> None:
        """Add the newest; where there are too many, those go whose neighbours are nearest for their age."""
        self._states[state.finished_steps] = state
        each = max(12 * sum(values.size for values in state.w.values()), 1)
        room = min(max(self._limit // each, 1), MAX_KEPT_STATES)
        while len(self._states) > room:
            steps = sorted(self._states)
            newest = steps[-1]
            # Each is worth the gap it closes beside how far back it lies.
            gaps = {
                step: (after - before) / (newest - step)
                for before, step, after in zip([0, *steps], steps[:-1], steps[1:], strict=False)
            }
            del self._states[min(gaps, key=lambda step: gaps[step])]

    def forget_after(self, step: int) -> None:
        """States after `step` are of a run that went otherwise."""
        for later in [each for each in self._states if each > step]:
            del self._states[later]

    def at(self, step: int) -> HostState:
        """The state after `step`; KeyError where it is not kept."""
        return self._states[step]

    def nearest(self, step: int) -> int | None:
        """The latest step up to `step` whose state is kept."""
        return max((each for each in self._states if each <= step), default=None)
