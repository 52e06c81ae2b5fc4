"""What a recording captures of tensors, as a person writes it, and the bytes to expect of it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from inspector.errors import UsageError
from inspector.layout import F32_BYTES, Layout
from inspector.statistics import StatsLevel

MAX_EVERY = 1_000_000_000
_FORMS = "write stats, grads:N, keyframes:N, flight:K or all, joined by +, as in grads:10+keyframes:100"

STEP_BYTES = 260
"""A step's scalars and kernel times with what the database keeps around them; 222 to 230 were measured with four."""
PARAM_BYTES = 420
"""Statistics of one param at level full, packed; 225 were measured, more where magnitudes are spread further."""
TENSOR_BYTES = 110
"""What a tensor takes in the header of its file, besides its name."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The tensors of one step that its recorder has a use for."""

    gradients: bool = False
    keyframe: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    """Which steps are captured; scalars and statistics are recorded of every step whatever it says.

    Gradients of every step that `gradients_every` divides, w, m, v after every step that `keyframes_every` divides;
    with `flight` the last so many steps' gradients wait in memory, with a keyframe from which they go on, until
    something is found. With any of them the state that the recording starts from is a keyframe.
    """

    gradients_every: int | None = None
    keyframes_every: int | None = None
    flight: int | None = None

    @classmethod
    def from_text(cls, text: str) -> Policy:
        """`stats`, `grads:N`, `keyframes:N`, `flight:K`, `all`, or several joined by +; else UsageError."""
        given: dict[str, int] = {}
        for part in text.strip().split("+"):
            kind, colon, number = (word.strip() for word in part.partition(":"))
            if kind == "stats" and not colon:
                continue
            if kind == "all" and not colon:
                names = {"grads": 1, "keyframes": 1}
            elif kind in ("grads", "keyframes", "flight") and colon:
                names = {kind: _steps(number, text)}
            else:
                raise UsageError(f"{text[:80]!r} is not a capture policy: {_FORMS}.")
            for name in names.keys() & given.keys():
                raise UsageError(f"The capture policy {text[:80]!r} gives {name} twice: give it once.")
            given |= names
        return cls(given.get("grads"), given.get("keyframes"), given.get("flight"))

    def __str__(self) -> str:
        """The text that `from_text` reads back as an equal policy."""
        if self == ALL:
            return "all"
        pairs = (
            ("grads", self.gradients_every),
            ("keyframes", self.keyframes_every),
            ("flight", self.flight),
        )
        return "+".join(f"{name}:{every}" for name, every in pairs if every) or "stats"

    @property
    def captures(self) -> bool:
        """True where it captures any tensor."""
        return bool(self.gradients_every or self.keyframes_every or self.flight)

    def stores(self, step: int, start: int) -> Wanted:
        """What is written of `step` at once, in a recording that starts after step `start`."""
        return Wanted(
            step > start and _divides(self.gradients_every, step),
            (step == start and self.captures) or (step > start and _divides(self.keyframes_every, step)),
        )

    def keeps(self, step: int, start: int) -> Wanted:
        """What waits in memory of `step` for something to be found."""
        if not self.flight:
            return Wanted()
        return Wanted(step > start, (step - start) % self.flight == 0)

    def wants(self, step: int, start: int) -> Wanted:
        """What has to be read back of `step`, for either."""
        stored, kept = self.stores(step, start), self.keeps(step, start)
        return Wanted(stored.gradients or kept.gradients, stored.keyframe or kept.keyframe)

    def expected_bytes(
        self, layout: Layout, steps: int, *, stats: StatsLevel = "full", start: int = 0
    ) -> int:
        """Bytes on disk of a recording of `steps` steps after step `start`; of flight, one find is counted."""
        last = start + steps
        total = steps * (STEP_BYTES + (PARAM_BYTES * len(layout.segments) if stats == "full" else 0))
        gradients, keyframe = gradient_bytes(layout), keyframe_bytes(layout)
        if self.gradients_every:
            total += (last // self.gradients_every - start // self.gradients_every) * gradients
        if self.keyframes_every:
            total += (last // self.keyframes_every - start // self.keyframes_every) * keyframe
        if self.captures:
            total += keyframe
        if self.flight:
            total += keyframe + min(2 * self.flight, steps) * gradients
        return total

    def memory_bytes(self, layout: Layout) -> int:
        """Bytes of host memory that the ring of `flight` may take."""
        if not self.flight:
            return 0
        return 2 * (self.flight * gradient_bytes(layout) + keyframe_bytes(layout))


ALL = Policy(gradients_every=1, keyframes_every=1)
"""`all`: gradients and state of every step."""


def gradient_bytes(layout: Layout) -> int:
    """Bytes of the gradients of a step in a tensor file."""
    return F32_BYTES * layout.elements + sum(TENSOR_BYTES + len(s.name) for s in layout)


def keyframe_bytes(layout: Layout) -> int:
    """Bytes of w, m and v in a tensor file; of coded state the codes and scales. State in other shapes takes less."""
    return sum(
        F32_BYTES * s.numel + s.state_bytes + (5 if s.state == "8bit" else 3) * (TENSOR_BYTES + len(s.name))
        for s in layout
    )


def _divides(every: int | None, step: int) -> bool:
    return every is not None and step % every == 0


def _steps(number: str, text: str) -> int:
    steps = int(number) if re.fullmatch("[0-9]{1,10}", number) else 0
    if not 1 <= steps <= MAX_EVERY:
        raise UsageError(
            f"{number[:20]!r} in the capture policy {text[:80]!r} is not a number of steps: "
            f"give a whole number from 1 to {MAX_EVERY:,}."
        )
    return steps
