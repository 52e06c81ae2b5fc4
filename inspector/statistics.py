"""Statistics of a float32 buffer: counts by kind and the log₂-magnitude histogram."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from inspector.floats import F32Array, bits

StatsLevel = Literal["off", "light", "full"]
"""What is counted at each step: nothing, the gradients, or every param and its update as well."""

EXPONENT_BIAS = 127
BINS = 255
"""One bin for each biased exponent 0 (denormals) to 254; non-finite values and zeros have counts of their own."""


@dataclass(frozen=True, slots=True)
class NonFinite:
    """How many elements are NaN, +Inf and -Inf, and where the first of them lies (mega-buffer element)."""

    nan: int = 0
    posinf: int = 0
    neginf: int = 0
    first: int | None = None

    @property
    def total(self) -> int:
        """All non-finite elements."""
        return self.nan + self.posinf + self.neginf


@dataclass(frozen=True, slots=True, eq=False)
class BufferStats:
    """Counts over one range of one buffer.

    `exponents` is uint32[255], read-only: finite non-zero elements by biased exponent e, so bin e holds
    magnitudes in [2**(e-127), 2**(e-126)); bin 0 holds denormals. `max_abs` is the largest finite magnitude.
    """

    count: int
    zeros: int
    nonfinite: NonFinite
    max_abs: float
    exponents: npt.NDArray[np.uint32]

    @property
    def binned(self) -> int:
        """Elements in the histogram: the finite ones that are not zero."""
        return int(self.exponents.sum(dtype=np.int64))

    def log2_range(self) -> tuple[int, int] | None:
        """The lowest and highest power of two with any element, None where nothing is binned."""
        filled = np.flatnonzero(self.exponents)
        if not len(filled):
            return None
        return int(filled[0]) - EXPONENT_BIAS, int(filled[-1]) - EXPONENT_BIAS


def buffer_stats(values: F32Array, *, start: int = 0) -> BufferStats:
    """The same statistics by numpy, of a flat array that begins at mega-buffer element `start`."""
    raw = bits(values)
    magnitude = raw & np.uint32(0x7FFF_FFFF)
    exponent = magnitude >> np.uint32(23)
    special = exponent == 255
    is_nan = special & ((magnitude & np.uint32(0x007F_FFFF)) != 0)
    is_inf = special & ~is_nan
    negative = (raw >> np.uint32(31)) != 0
    zero = magnitude == 0
    binned = ~special & ~zero
    counts = np.bincount(exponent[binned], minlength=BINS).astype(np.uint32)
    counts.flags.writeable = False
    where = np.flatnonzero(special)
    largest = magnitude[~special].max(initial=0)
    return BufferStats(
        count=len(raw),
        zeros=int(zero.sum()),
        nonfinite=NonFinite(
            nan=int(is_nan.sum()),
            posinf=int((is_inf & ~negative).sum()),
            neginf=int((is_inf & negative).sum()),
            first=start + int(where[0]) if len(where) else None,
        ),
        max_abs=float(np.uint32(largest).view(np.float32)) if len(raw) else 0.0,
        exponents=counts,
    )


def added_up(parts: Iterable[BufferStats]) -> BufferStats:
    """Statistics of several buffers as of one; `first` is the least of theirs."""
    given = list(parts)
    kinds = [part.nonfinite for part in given]
    counts = np.zeros(BINS, np.uint32)
    for part in given:
        counts += part.exponents
    counts.flags.writeable = False
    return BufferStats(
        count=sum(part.count for part in given),
        zeros=sum(part.zeros for part in given),
        nonfinite=NonFinite(
            nan=sum(kind.nan for kind in kinds),
            posinf=sum(kind.posinf for kind in kinds),
            neginf=sum(kind.neginf for kind in kinds),
            first=min((kind.first for kind in kinds if kind.first is not None), default=None),
        ),
        max_abs=max((part.max_abs for part in given), default=0.0),
        exponents=counts,
    )


NOT_COUNTED = buffer_stats(np.zeros(0, np.float32))
"""Of no elements: where nothing was counted."""


def quantile_log2(stats: BufferStats, q: float) -> float:
    """The power of two at quantile `q` (0 to 1) of the binned magnitudes, NaN where nothing is binned."""
    total = stats.binned
    if total == 0:
        return math.nan
    cumulative = np.cumsum(stats.exponents, dtype=np.int64)
    return float(np.searchsorted(cumulative, max(1, math.ceil(q * total))) - EXPONENT_BIAS)
