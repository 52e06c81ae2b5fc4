"""Playing through the steps: speed and loop, as data and the commands made of them. No Qt."""

from __future__ import annotations

from dataclasses import dataclass, replace

from inspector.runtime.commands import Play

SPEEDS = (1.0, 2.0, 5.0, 10.0, 30.0, 100.0)
"""Steps a second that can be chosen."""


@dataclass(frozen=True, slots=True)
class Playback:
    """How to play: `speed` in steps a second; `first` and `last` step of the loop where one is set."""

    speed: float = 10.0
    first: int | None = None
    last: int | None = None
    looping: bool = False
    """False keeps the range and plays on past its end."""

    @property
    def loop(self) -> tuple[int, int] | None:
        """First and last step of the range, None where one of them is not set."""
        return None if self.first is None or self.last is None else (self.first, self.last)

    @property
    def command(self) -> Play:
        """What is sent to play so."""
        if self.loop is None or not self.looping:
            return Play(self.speed)
        return Play(self.speed, *self.loop)

    def slower(self) -> Playback:
        """At the next lower speed, if there is one."""
        return replace(self, speed=max((s for s in SPEEDS if s < self.speed), default=SPEEDS[0]))

    def faster(self) -> Playback:
        """At the next higher speed, if there is one."""
        return replace(self, speed=min((s for s in SPEEDS if s > self.speed), default=SPEEDS[-1]))

    def from_step(self, step: int) -> Playback:
        """With the range beginning at `step`; an end before it goes."""
        last = self.last if self.last is not None and self.last >= step else None
        return self._ranged(step, last)

    def to_step(self, step: int) -> Playback:
        """With the range ending at `step`; a beginning after it goes."""
        first = self.first if self.first is not None and self.first <= step else None
        return self._ranged(first, step)

    def over(self, loop: tuple[int, int] | None) -> Playback:
        """With this range, None for none; a range is looped at once."""
        return self._ranged(*(loop or (None, None)))

    def toggled(self) -> Playback:
        """Loop where it did not, and the other way round."""
        return replace(self, looping=not self.looping and self.loop is not None)

    def _ranged(self, first: int | None, last: int | None) -> Playback:
        return replace(self, first=first, last=last, looping=first is not None and last is not None)
