"""What two sessions differ in, as data."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from inspector.floats import F64Array
from inspector.session.compare import ULP_BINS, ArrayDifference, Difference
from inspector.stores import Lane

METRICS = ("loss", "grad_norm", "clip_scale")
STATE: tuple[Lane, ...] = ("w", "m", "v")

I64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting that differs from step `step` on, until another entry of its name: `a` in one, `b` in the other."""

    step: int
    name: str
    a: object
    b: object


@dataclass(frozen=True, slots=True)
class Timing:
    """What a kernel took: medians over warm steps in ms, NaN where there are none, and b / a."""

    kernel: str
    a: float
    b: float

    @property
    def ratio(self) -> float:
        """b / a; NaN where either is unknown or took no time."""
        return self.b / self.a if self.a > 0 else math.nan


@dataclass(slots=True, eq=False)
class ParamDifference:
    """One param over time: relative differences ‖b - a‖ / ‖a‖ of captured tensors, by lane and step.

    `ulps` are the largest distance of any of their elements. `norms` are of the statistics, (b - a) / a of the norm of
    a lane or of the update, by step.
    """

    name: str
    tensors: dict[str, dict[int, float]] = field(default_factory=dict)
    ulps: dict[str, dict[int, int]] = field(default_factory=dict)
    norms: dict[str, dict[int, float]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class SessionDiff:
    """What two sessions differ in. `ulp` has one value a common step and metric, -1 where either does not know it."""

    steps: range
    first: Difference | None = None
    a: dict[str, F64Array] = field(default_factory=dict)
    b: dict[str, F64Array] = field(default_factory=dict)
    ulp: dict[str, I64Array] = field(default_factory=dict)
    settings: list[Setting] = field(default_factory=list)
    params: list[ParamDifference] = field(default_factory=list)
    keyframes: dict[int, dict[str, ArrayDifference]] = field(default_factory=dict)
    """By step, the differences of w, m, v and states in other shapes over all params."""
    gradients: dict[int, ArrayDifference] = field(default_factory=dict)
    """By step, of the gradients that both captured."""
    timings: list[Timing] = field(default_factory=list)

    @property
    def same(self) -> bool:
        """True where every number and tensor that both hold has the same bits. Times and settings do not count."""
        return self.first is None


def histogram(found: SessionDiff, lane: str = "w") -> list[int]:
    """Elements of a lane by how many ULP they are apart, over all common captures: 0, then [2**(i-1), 2**i)."""
    total = np.zeros(ULP_BINS, np.int64)
    captured = found.gradients.values() if lane == "g" else (k[lane] for k in found.keyframes.values())
    for each in captured:
        total += each.histogram
    return [int(count) for count in total]
