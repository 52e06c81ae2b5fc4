"""The flight recorder's ring: the latest gradients, and a keyframe that they lead on from, in memory until wanted."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from inspector.session.tensor_store import Capture

MAX_WRITTEN = 32
"""Times that a ring is written in one recording: a run that is wrong from some step on would fill the disk."""


@dataclass(slots=True)
class _Leg:
    """A keyframe and the gradients of the steps after it; none at the start of what follows a written ring."""

    keyframe: Capture | None
    gradients: list[Capture] = field(default_factory=list)


class FlightRing:
    """At least the last `steps` steps' gradients once so many have run, at most twice as many.

    What it gives begins with a keyframe, or goes on where it was written before, so it can be run again.
    """

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._legs: deque[_Leg] = deque()
        self._due = False
        self._written_to: int | None = None
        self._times = 0

    @property
    def exhausted(self) -> bool:
        """True once it was written as often as it may be."""
        return self._times >= MAX_WRITTEN

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays it holds."""
        return sum(
            (leg.keyframe.nbytes if leg.keyframe else 0) + sum(g.nbytes for g in leg.gradients)
            for leg in self._legs
        )

    def add(self, gradients: Capture | None, keyframe: Capture | None) -> None:
        """What was captured of a step; the keyframe is the state after it."""
        if gradients is not None:
            if not self._legs:
                self._legs.append(_Leg(None))
            self._legs[-1].gradients.append(gradients)
        if keyframe is not None:
            last = self._legs[-1] if self._legs else None
            if last and last.keyframe and last.keyframe.step == keyframe.step:
                # Another state was put in its place since; nothing has run from the first.
                self._legs.pop()
            self._legs.append(_Leg(keyframe))
        while len(self._legs) > 1 and self._later() >= self._steps:
            self._legs.popleft()

    def fire(self) -> None:
        """Something was found: the ring is wanted."""
        self._due = not self.exhausted

    def take(self, step: int, *, ending: bool = False) -> list[Capture]:
        """All of it after `step` where it is wanted, and then it is empty; else nothing.

        Soon after it was written it waits for `steps` more, so that a step after step of findings is written in turn.
        """
        recent = self._written_to is not None and step - self._written_to < self._steps
        if not self._due or (recent and not ending):
            return []
        captures = [c for leg in self._legs for c in (leg.keyframe, *leg.gradients) if c is not None]
        self._legs.clear()
        self._due, self._written_to = False, step
        self._times += 1
        return captures

    def rewind(self, step: int) -> None:
        """Forget what came after step `step`."""
        for leg in self._legs:
            leg.gradients = [g for g in leg.gradients if g.step <= step]
        while self._legs and (last := self._legs[-1].keyframe) is not None and last.step > step:
            self._legs.pop()
        if self._written_to is not None:
            self._written_to = min(self._written_to, step)

    def _later(self) -> int:
        return sum(len(leg.gradients) for leg in self._legs) - len(self._legs[0].gradients)
