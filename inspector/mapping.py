"""What a map of the mega-buffers shows: the quantities, the pixels that are asked for, and the elements under each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from inspector.floats import F32Array
from inspector.stores import MOMENTS, Lane

Quantity = Literal[
    "value", "magnitude", "mean", "change", "step_change", "update", "coding_error", "age", "nonfinite"
]
QUANTITIES: tuple[Quantity, ...] = (
    "value", "magnitude", "mean", "change", "step_change", "update", "coding_error", "age", "nonfinite",
)  # fmt: skip
Kind = Literal["value", "change", "step_change", "update", "coding_error", "age"]
"""What a quantity is worked out from; quantities of one kind are read from the same cells."""

CELL = 64
"""Elements of a cell of the lowest level, where one binding can hold them all: what params are aligned to."""
CELLS_A_CELL = 8
"""Cells of one level under a cell of the next."""
_FRACTION = 1 << 32
_UP = 1 + 2.0**-50
"""A few roundings of float64."""


def kind_of(quantity: Quantity) -> Kind:
    """The kind of a quantity."""
    match quantity:
        case "value" | "magnitude" | "mean" | "nonfinite":
            return "value"
        case _:
            return quantity


def lanes_of(quantity: Quantity, kept: Sequence[Lane]) -> tuple[Lane, ...]:
    """Of the lanes that are kept those that have such a quantity."""
    having: dict[Quantity, tuple[Lane, ...]] = {"update": ("w",), "coding_error": MOMENTS}
    return tuple(lane for lane in kept if lane in having.get(quantity, kept))


def level_sizes(end: int, cell: int = CELL) -> tuple[int, ...]:
    """Elements of a cell of each level, from the lowest to the one whose only cell covers all `end` elements."""
    sizes = [cell]
    while sizes[-1] < end:
        sizes.append(sizes[-1] * CELLS_A_CELL)
    return tuple(sizes)


@dataclass(frozen=True, slots=True)
class MapRequest:
    """The part of the mega-buffers a map shows.

    Column x of `width` covers elements start + [x, x+1) · elements_per_pixel; the `height` pixels of a
    column cut that run into equal parts from top to bottom, all of them the same where it is shorter.
    """

    start: float
    elements_per_pixel: float
    width: int
    height: int
    quantity: Quantity

    @property
    def rows(self) -> int:
        """Different pixels of a column."""
        return self.height if self.elements_per_pixel > 1 else 1

    @property
    def each(self) -> float:
        """Elements under one of them."""
        return self.elements_per_pixel / self.rows

    def cell(self, sizes: Sequence[int]) -> int:
        """What the edges of pixels are multiples of: the largest cell that a pixel covers, 1 where it covers none."""
        return max((size for size in sizes if size <= self.each), default=1)

    def fixed(self) -> tuple[int, int, int, int]:
        """Start and length of a pixel in whole elements and 2⁻³² of one: where edges lie has to be exact everywhere.

        Both are rounded up by more than they may be off, so that the last edge of what reaches to the end of a buffer
        never falls short of it.
        """
        start = math.ceil(max(self.start, 0.0) * _UP * _FRACTION)
        each = math.ceil(self.each * _UP * _FRACTION) + 1
        if self.elements_per_pixel <= 1:
            # The element in the middle of the pixel.
            start += each // 2
        return (*divmod(start, _FRACTION), *divmod(each, _FRACTION))

    def edges(self, first: int, last: int, cell: int, end: int) -> npt.NDArray[np.int64]:
        """The element at which pixels `first` to `last` begin, numbered down each column of `rows`, cut at `end`.

        Where a pixel is no wider than an element, the one that it shows.
        """
        whole, part, each, each_part = self.fixed()
        # A pixel number has 24 bits, the rest 32.
        p = np.arange(first, last + 1, dtype=np.uint64)
        at = (p * np.uint64(each_part) + np.uint64(part)) >> np.uint64(32)
        at += np.uint64(whole) + p * np.uint64(each)
        found = at.astype(np.int64)
        found = np.where(found >= end, end, found // cell * cell)
        return np.asarray(found, np.int64)

    def under(self, row: int, column: int, cell: int, end: int) -> tuple[int, int]:
        """Elements [low, high) under a pixel."""
        pixel = column * self.rows + (row if self.rows > 1 else 0)
        if self.elements_per_pixel <= 1:
            low = int(self.edges(pixel, pixel, 1, end)[0])
            return low, min(low + 1, end)
        low, high = self.edges(pixel, pixel + 1, cell, end).tolist()
        return low, min(max(high, low + 1), end)


@dataclass(frozen=True, eq=False)
class MapPixels:
    """One lane reduced to pixels: float32 [height, width] arrays, read-only.

    `low`, `high` and `mean` are the least and the largest value under a pixel and the mean of the magnitudes, in what
    the quantity is of: over finite elements of params, 0 where there are none, NaN where the pixel covers no element of
    any param. `finite` and `nonfinite` count elements of the lane. `cell` and `end`: see `MapRequest.edges`.
    """

    low: F32Array
    high: F32Array
    mean: F32Array
    finite: F32Array
    nonfinite: F32Array
    cell: int
    end: int

    @cached_property
    def extreme(self) -> F32Array:
        """The value of largest magnitude under each pixel, with its sign."""
        found: F32Array = np.where(self.high >= -self.low, self.high, self.low)
        found.flags.writeable = False
        return found

    def shown(self, quantity: Quantity) -> F32Array:
        """What is drawn: the value of largest magnitude, or that magnitude, or the mean one."""
        if quantity == "mean":
            return self.mean
        if quantity in ("magnitude", "update", "coding_error", "age"):
            return np.abs(self.extreme)
        return self.extreme


@dataclass(frozen=True, slots=True)
class MapPictures:
    """Pixels of each request by lane. `reason` says why there are none; `since` from which step ages are counted."""

    pixels: tuple[Mapping[Lane, MapPixels], ...]
    reason: str = ""
    since: int | None = None


class Mapper(Protocol):
    """Reduces the mega-buffers of a run to pixels. Used on the thread of its stepper."""

    def reasons(self) -> dict[Quantity, str]:
        """Why a quantity cannot be shown now, of those that cannot; not of what is measured once it is asked for."""
        ...

    def pixels(
        self, requests: Sequence[MapRequest], stop: Callable[[], bool] = lambda: False, *, stale: bool = False
    ) -> MapPictures | None:
        """The lanes as pixels, all requests being of one quantity; None once `stop`, asked between lanes, says so.

        With `stale` what was worked out of the lanes before is good enough, where there is any.
        """
        ...

    def rest(self) -> None:
        """Nobody looks any more: give the memory back, and count no ages."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of device memory that the map holds."""
        ...
