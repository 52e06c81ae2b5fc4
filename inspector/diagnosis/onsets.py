"""Which conditions have begun, which go on and which got much worse, so that each is told when it begins."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from inspector.diagnosis.memory import I64Array, order_of
from inspector.floats import BoolArray, F64Array

WORSE = 10.0
"""A condition that goes on is told again once it is so many times what it was when it was told last."""
LONGEST_QUIET = 128
"""What comes and goes is told again after it was away for 1, 2, 4, … steps, at most so many."""
_KEPT_BYTES = 8 << 20

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Told:
    """What holds of one rule after a step, an element a subject: a param, a lane, a setting, or the step itself.

    `since` is the step in which it began, `last` the last step in which an earlier one held, `size` how bad it was when
    it was told, `times` how often it has been.
    """

    names: Names
    hit: BoolArray
    since: I64Array
    last: I64Array
    size: F64Array
    times: I64Array

    @classmethod
    def nothing(cls, names: Names, count: int) -> Told:
        """Of a rule that has found nothing."""
        zero = np.zeros(count, np.int64)
        return cls(names, np.zeros(count, bool), zero, zero, np.zeros(count), zero)

    def ordered_as(self, names: Names, count: int) -> Told:
        """With its subjects in another order; anew where they are others."""
        if names == self.names and len(self.hit) == count:
            return self
        if len(names) != len(self.names) or set(names) != set(self.names):
            return Told.nothing(names, count)
        order = order_of(self.names, names)
        columns = {name: getattr(self, name)[order] for name in ("hit", "since", "last", "size", "times")}
        return replace(self, names=names, **columns)


class Onsets:
    """What was told of one rule, step by step, so that a run can go back."""

    def __init__(self) -> None:
        self._states: list[tuple[int, Told]] = []

    @property
    def now(self) -> Told | None:
        """What holds after the last step that was looked at; None before any."""
        return self._states[-1][1] if self._states else None

    def truncate(self, step: int) -> None:
        """Forget what came after `step`."""
        while self._states and self._states[-1][0] > step:
            self._states.pop()

    def look(self, step: int, names: Names, hit: BoolArray, size: F64Array) -> BoolArray:
        """Take in what holds in `step`; True for what is to be told: it began, or became ten times as bad."""
        before = self.now
        if before is None:
            if not hit.any():
                return hit
            before = Told.nothing(names, len(hit))
        was = before
        before = before.ordered_as(names, len(hit))
        if before is was and not hit.any() and not before.hit.any():
            return hit
        began = hit & ~before.hit
        quiet = step - before.last - 1
        wanted = np.minimum(2 ** np.minimum(np.maximum(before.times - 1, 0), 7), LONGEST_QUIET)
        fresh = began & ((before.times == 0) | (quiet >= wanted))
        with np.errstate(invalid="ignore", over="ignore"):
            worse = hit & ~fresh & (size >= WORSE * before.size) & (before.size > 0)
        told: BoolArray = fresh | worse
        ended = before.hit & ~hit
        if before is not was or told.any() or began.any() or ended.any():
            self._keep(
                step,
                Told(
                    names,
                    hit,
                    np.where(fresh, step, before.since),
                    np.where(ended, step - 1, before.last),
                    np.where(told, size, before.size),
                    before.times + fresh,
                ),
            )
        return told

    def _keep(self, step: int, told: Told) -> None:
        self._states.append((step, told))
        each = max(40 * len(told.hit), 200)
        if len(self._states) * each > _KEPT_BYTES and len(self._states) > 2:
            del self._states[: len(self._states) // 2]
