"""What is told of each of several processes that trained one run together: what it holds, its numbers, and where it
parts from the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Held:
    """The part of a param that a rank keeps: a box of `shape` whose first element is at `offset`, by axis."""

    rank: int
    offset: tuple[int, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RankPart:
    """What one rank recorded: its last step, its elements, and why it ended, "" where it did in order or has not."""

    rank: int
    last: int
    state: Literal["complete", "interrupted", "recording"]
    elements: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RankStep:
    """The numbers of one step in one rank, None where unknown: its own loss, the L2 norm of its part of the gradient as
    the optimizer took it, the seconds since the step before ended; and how it parts from the others, "" where it does
    not."""

    loss: float | None
    part_norm: float | None
    seconds: float | None
    parted: str = ""


@dataclass(frozen=True, slots=True)
class Parted:
    """A number of a step that all ranks should have alike: `what` it is, what one rank has, and what the others have.

    `param` is whose it is, None for one of the run.
    """

    rank: int
    what: str
    value: float
    others: float
    param: str | None = None


def _differ(a: object, b: object) -> bool:
    return a != b and not (a != a and b != b)


def odd_one(
    values: Sequence[tuple[int, T]], differ: Callable[[T, T], bool] = _differ
) -> tuple[int, T, T] | None:
    """Of (rank, value) pairs the first that differs from the value that most have: its rank, its value, and that one.

    None where none does; of values that equally many have, that of the first rank counts. NaN equals NaN.
    """
    counts: dict[object, list[T]] = {}
    for _, value in values:
        counts.setdefault("NaN" if value != value else value, []).append(value)
    if len(counts) < 2:
        return None
    usual = max(counts.values(), key=len)[0]
    return next(((rank, value, usual) for rank, value in values if differ(value, usual)), None)
