"""What an edited kernel made of a step beside the one before it, and beside float64: lane by lane."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from inspector.floats import F32Array, F64Array, bits
from inspector.step_ulp import Dtype, ulps


@dataclass(frozen=True, slots=True)
class LaneChange:
    """What is written in one lane (or one number, as gradNorm), by the kernel before the edit and by the edited one.

    `changed` counts elements whose bits differ between the two. ULP are of float32 at the larger of the values before
    and after the step; infinite where one is NaN or infinite and the other is not. The errors are the largest distances
    from float64, NaN where there is none to compare with. `param`, `index` (flat), `before`, `now` and `exact` are of
    the element where the two kernels are furthest apart; without any difference where the edited one is furthest from
    float64.
    """

    lane: str
    elements: int = 0
    changed: int = 0
    apart_ulp: float = 0.0
    error_before: float = math.nan
    error_now: float = math.nan
    param: str = ""
    index: int = 0
    before: float = math.nan
    now: float = math.nan
    exact: float = math.nan


@dataclass(frozen=True, slots=True)
class ShaderTrial:
    """A step run again by an edited kernel from the same state: what changed, lane by lane.

    `elements` of `of` were compared. `note` says in a sentence what could not be done, "" where all was.
    """

    entry_point: str
    step: int
    rows: tuple[LaneChange, ...] = ()
    elements: int = 0
    of: int = 0
    note: str = ""
    against: str = ""
    """The kernel before, in words."""
    now: str = ""
    """The kernel that runs now, in words."""

    @property
    def changed(self) -> int:
        """Elements, of all lanes, whose bits are other ones."""
        return sum(row.changed for row in self.rows)


@dataclass(slots=True)
class LaneSum:
    """Adds up what is compared of one lane, part by part."""

    lane: str
    dtype: Dtype = "f32"
    """What its ULP are of."""
    row: LaneChange = field(init=False)
    _score: tuple[float, float] = (-1.0, -1.0)

    def __post_init__(self) -> None:
        self.row = LaneChange(self.lane)

    def add(
        self,
        param: str,
        first: int,
        given: F32Array,
        before: F32Array,
        now: F32Array,
        exact: F64Array | None,
    ) -> None:
        """Elements from `first` of a param, flat: as the step was given them, by either kernel, and in float64."""
        if not len(now):
            return
        apart = np.where(bits(before) == bits(now), 0.0, ulps(given, before, now, self.dtype))
        row = self.row
        error_before, error_now = row.error_before, row.error_now
        errors = np.zeros(len(now))
        if exact is not None:
            with np.errstate(over="ignore"):
                right = exact.astype(np.float32)
            errors = ulps(given, right, now, self.dtype)
            error_before = _larger(error_before, float(ulps(given, right, before, self.dtype).max()))
            error_now = _larger(error_now, float(errors.max()))
        changed = int(np.count_nonzero(bits(before) != bits(now)))
        worst = int(apart.argmax()) if changed else int(errors.argmax())
        score = (float(apart[worst]) if changed else -1.0, float(errors[worst]))
        if score > self._score:
            self._score = score
            at = (param, first + worst, float(before[worst]), float(now[worst]))
            value = math.nan if exact is None else float(exact[worst])
        else:
            at, value = (row.param, row.index, row.before, row.now), row.exact
        self.row = LaneChange(
            self.lane, row.elements + len(now), row.changed + changed,
            max(row.apart_ulp, float(apart.max())), error_before, error_now, *at, value,
        )  # fmt: skip


def _larger(a: float, b: float) -> float:
    return b if math.isnan(a) else max(a, b)


def shares(sizes: list[int], most: int) -> list[int]:
    """How many elements of each of several params are looked at, from its start, where `most` are in all."""
    total = sum(sizes)
    if total <= most:
        return sizes
    return [min(size, max(1, size * most // total)) for size in sizes]
