"""What a sweep tells: final loss by learning rate, over its seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from inspector.race import LaneSpec


@dataclass(frozen=True, slots=True)
class Point:
    """One lane at one learning rate: the final losses of its runs that are done, in the unit of the source.

    `diverged` is how many of them did, `runaways` their losses; `runs` is how many there will be.
    """

    lane: str
    lr: float
    losses: tuple[float, ...]
    diverged: int
    runs: int
    runaways: tuple[float, ...] = ()

    @property
    def mean(self) -> float:
        """Over the seeds; NaN where none is done, or one is not finite."""
        return math.fsum(self.losses) / len(self.losses) if self.losses and self.finite else math.nan

    @property
    def low(self) -> float:
        """The least final loss of any seed; NaN where none has one."""
        return min((loss for loss in self.losses if not math.isnan(loss)), default=math.nan)

    @property
    def high(self) -> float:
        """The greatest, of which there is none greater than one that is no number; NaN where none is done."""
        return math.nan if any(map(math.isnan, self.losses)) else max(self.losses, default=math.nan)

    @property
    def finite(self) -> bool:
        """True where every loss is."""
        return all(map(math.isfinite, self.losses))


def base_of(spec: LaneSpec) -> str:
    """What is swept: a lane without its learning rate and seed."""
    return str(replace(spec, hyper={k: v for k, v in spec.hyper.items() if k != "lr"}, seed=None))


def points(runs: Sequence[tuple[LaneSpec, float | None, bool]]) -> tuple[Point, ...]:
    """Those of runs: what each ran, its final loss (None where it is not done or has none), whether it diverged."""
    found: dict[tuple[str, float], Point] = {}
    for spec, loss, diverged in runs:
        key = base_of(spec), spec.hyper["lr"]
        point = found.get(key) or Point(*key, (), 0, 0)
        done = () if loss is None else (loss,)
        found[key] = Point(
            *key, (*point.losses, *done), point.diverged + diverged, point.runs + 1,
            (*point.runaways, *(done if diverged else ())),
        )  # fmt: skip
    return tuple(found.values())


def best_of(all_points: Sequence[Point]) -> dict[str, Point]:
    """By lane the point of the lowest mean; one of which a run diverged only where there is no other."""
    best: dict[str, Point] = {}
    for point in all_points:
        known = best.get(point.lane)
        if not math.isnan(point.mean) and (known is None or _rank(point) < _rank(known)):
            best[point.lane] = point
    return best


def _rank(point: Point) -> tuple[bool, float]:
    return point.diverged > 0, point.mean
