"""Learning-rate schedules: what the rate of each step is multiplied by, and how a person writes them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from inspector.errors import UsageError
from inspector.floats import shortest

_FORMS = "write constant, warmup:100, cosine:1500 or cosine:1500:warmup=100:floor=0.1"


@dataclass(frozen=True, slots=True)
class Schedule:
    """A factor on the learning rate, a continuous function of the step t (counted from 1):

    - t ≤ warmup: t / warmup, so step 1 has 1 / warmup and step `warmup` the full rate;
    - warmup ≤ t ≤ total: floor + (1 - floor) · (1 + cos(π · (t - warmup) / (total - warmup))) / 2, half a
      cosine from 1 down to `floor` (Loshchilov & Hutter 2017, without restarts);
    - t ≥ total: floor.

    Without `total` the factor stays 1 after the warm-up. `warmup` and `total` are in steps, `floor` is a
    fraction of the full rate. Raises UsageError for values that make no schedule.
    """

    warmup: int = 0
    total: int | None = None
    floor: float = 0.0

    def __post_init__(self) -> None:
        if self.warmup < 0:
            raise UsageError(f"A warm-up of {self.warmup} steps is not possible: give 0 or more.")
        if not 0 <= self.floor <= 1:
            raise UsageError(
                f"A schedule cannot end at {shortest(self.floor)} of its rate: give a floor from 0 to 1."
            )
        if self.total is None:
            if self.floor:
                raise UsageError(
                    "A floor needs a decay to end it: give the total number of steps, as in cosine:1500."
                )
        elif self.total <= self.warmup:
            raise UsageError(
                f"A schedule of {self.total} steps has none left after a warm-up of {self.warmup}: "
                "give a larger total or a shorter warm-up."
            )

    def factor(self, step: int) -> float:
        """The factor of `step`, float64, from 0 to 1; UsageError before step 1."""
        if step < 1:
            raise UsageError(f"Step {step} has no learning rate: steps count from 1.")
        if step <= self.warmup:
            return step / self.warmup
        if self.total is None:
            return 1.0
        if step >= self.total:
            return self.floor
        progress = (step - self.warmup) / (self.total - self.warmup)
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * progress)) / 2

    def __str__(self) -> str:
        """The text that `from_text` reads back as an equal schedule."""
        if self.total is None:
            return f"warmup:{self.warmup}" if self.warmup else "constant"
        text = f"cosine:{self.total}"
        if self.warmup:
            text += f":warmup={self.warmup}"
        if self.floor:
            text += f":floor={shortest(float(self.floor))}"
        return text

    @classmethod
    def from_text(cls, text: str) -> Schedule:
        """`constant`, `warmup:STEPS` or `cosine:TOTAL[:warmup=STEPS][:floor=FRACTION]`; else UsageError."""
        kind, *parts = text.strip().split(":")
        match kind, parts:
            case "constant", []:
                return cls()
            case "warmup", [steps]:
                return cls(warmup=_steps(steps, text))
            case "cosine", [total, *options]:
                given = _options(options, text)
                warmup = _steps(given.get("warmup", "0"), text, least=0)
                return cls(warmup, _steps(total, text), _fraction(given.get("floor", "0"), text))
        raise UsageError(f"{text!r} is not a learning-rate schedule: {_FORMS}.")


def _options(options: list[str], text: str) -> dict[str, str]:
    given: dict[str, str] = {}
    for option in options:
        key, _, value = option.partition("=")
        if key not in ("warmup", "floor"):
            raise UsageError(f"The schedule {text!r} has an unknown part {option!r}: {_FORMS}.")
        if key in given:
            raise UsageError(f"The schedule {text!r} gives {key} twice: give it once.")
        given[key] = value
    return given


def _steps(value: str, text: str, *, least: int = 1) -> int:
    try:
        steps = int(value)
    except ValueError:
        steps = -1
    if steps < least:
        raise UsageError(
            f"{value!r} in the schedule {text!r} is not a number of steps: "
            f"give a whole number, {least} or more."
        )
    return steps


def _fraction(value: str, text: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise UsageError(
            f"{value!r} in the schedule {text!r} is not a fraction of the learning rate: "
            "give a number from 0 to 1."
        ) from None
