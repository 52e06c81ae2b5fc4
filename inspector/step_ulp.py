"""How far apart two results of one step are, in units in the last place that mean something where w passes through 0.

A step adds a change to what was there, so its rounding is that of the larger of the two: a w that goes from 0.1 to
1e-9 is right to half a unit of 0.1, which is millions of units of 1e-9. So the unit of an element is the spacing of its
type at the larger of the magnitudes before and after. The distance in bit patterns is kept beside it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from inspector.floats import F32Array, F64Array, bits, significant, ulp_distance

Dtype = Literal["f32", "bf16", "f16"]
DTYPES: tuple[Dtype, ...] = ("f32", "bf16", "f16")
LOST_BITS: dict[Dtype, int] = {"f32": 0, "bf16": 16, "f16": 13}
"""Bits of a float32 mantissa that the type does not have."""
LEAST_F16 = 2.0**-24
MAGNITUDE = np.uint32(0x7FFF_FFFF)
SPACING = np.exp2(np.clip(np.arange(256.0), 1, 254) - 150)
"""Of float32 by biased exponent; for NaN and infinities that of the largest number."""
BINS = 18
"""Of a histogram: same bits; at most 1/2, 1, 2, 4, … ULP apart; the last takes all beyond, and NaN beside a number."""
BEYOND = 4
"""The first bin of more than 2 ULP."""
CHUNK = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class LaneUlp:
    """Two flat arrays of one lane after a step, element by element.

    `max_ulp` is in the unit of this module, infinite where one is NaN and the other is not; `max_index` is where.
    `first` is the first element whose bits differ, `max_bits` the largest distance in representable float32 values.
    """

    elements: int = 0
    differing: int = 0
    max_ulp: float = 0.0
    max_index: int | None = None
    first: int | None = None
    max_bits: int = 0
    histogram: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(BINS, np.int64))

    @property
    def beyond(self) -> int:
        """Elements that are more than 2 ULP apart."""
        return int(self.histogram[BEYOND:].sum())

    @property
    def share(self) -> float:
        """Of the elements, how many differ: 0 to 1."""
        return self.differing / self.elements if self.elements else 0.0


def unit(before: F32Array, after: F32Array, dtype: Dtype = "f32") -> F64Array:
    """The spacing of `dtype` at the larger of |before| and |after|, float64, of their shape."""
    exponent = (np.maximum(bits(before) & MAGNITUDE, bits(after) & MAGNITUDE) >> np.uint32(23)).astype(
        np.intp
    )
    size = SPACING[exponent]
    if dtype != "f32":
        size = size * 2.0 ** LOST_BITS[dtype]
    return np.asarray(np.maximum(size, LEAST_F16) if dtype == "f16" else size, np.float64)


def ulps(before: F32Array, a: F32Array, b: F32Array, dtype: Dtype = "f32") -> F64Array:
    """|a - b| in units at the larger of |before| and |a|, float64; infinite for NaN or ±∞ beside something else."""
    with np.errstate(all="ignore"):
        off = np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64))
        same = (bits(a) == bits(b)) | (np.isnan(a) & np.isnan(b))
        off = np.where(same, 0.0, np.where(np.isnan(off), math.inf, off))
        return np.asarray(off / unit(before, a, dtype), np.float64)


def compare_step(before: F32Array, a: F32Array, b: F32Array, dtype: Dtype = "f32") -> LaneUlp:
    """Two flat float32 arrays of one length that came of `before`, in chunks."""
    differing, max_ulp, max_index, first, max_bits = 0, 0.0, None, None, 0
    histogram = np.zeros(BINS, np.int64)
    for start in range(0, len(a), CHUNK):
        x, y, old = (each[start : start + CHUNK] for each in (a, b, before))
        at = np.flatnonzero(bits(x) != bits(y))
        histogram[0] += len(x) - len(at)
        if not len(at):
            continue
        apart = ulps(old[at], x[at], y[at], dtype)
        differing += len(at)
        first = start + int(at[0]) if first is None else first
        worst = int(apart.argmax())
        if max_index is None or apart[worst] > max_ulp:
            max_ulp, max_index = float(apart[worst]), start + int(at[worst])
        with np.errstate(all="ignore"):
            max_bits = max(max_bits, int(ulp_distance(x[at], y[at]).max()))
        histogram += np.bincount(bins_of(apart), minlength=BINS)
    return LaneUlp(len(a), differing, max_ulp, max_index, first, max_bits, histogram)


def bins_of(apart: F64Array) -> npt.NDArray[np.int64]:
    """The bin of each distance of elements that differ: 1 for at most half a ULP, then doubling."""
    with np.errstate(all="ignore"):
        exponent = np.ceil(np.log2(np.maximum(np.minimum(apart, 2.0**BINS), 2.0**-1))) + 2
    return np.asarray(np.clip(exponent, 1, BINS - 1), np.int64)


def bin_text(index: int) -> str:
    """What a bin holds, in words."""
    if index == 0:
        return "same bits"
    if index == BINS - 1:
        return f"more than {2 ** (BINS - 4):,} ULP"
    top = 2.0 ** (index - 2)
    return (
        f"at most {significant(top, 6)} ULP"
        if index == 1
        else f"{significant(top / 2, 6)} to {significant(top, 6)} ULP"
    )


def rounded(values: npt.NDArray[Any], dtype: Dtype) -> F32Array:
    """`values` to the nearest number of `dtype`, ties to even, as float32; NaN and infinities stay."""
    with np.errstate(all="ignore"):
        wide = np.asarray(values, np.float32)
        if dtype == "f16":
            return wide.astype(np.float16).astype(np.float32)
        if dtype == "f32":
            return wide
        raw = bits(wide)
        up = (raw + np.uint32(0x7FFF) + ((raw >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF_0000)
        return np.where(np.isfinite(wide), up.view(np.float32), wide)


def kept_in(values: F32Array) -> Dtype:
    """The narrowest type that holds every one of these: "f32" for most; zeros, NaN and infinities say nothing."""
    told = values[np.isfinite(values) & (values != 0)]
    if len(told):
        for dtype in ("bf16", "f16"):
            if (bits(rounded(told, dtype)) == bits(told)).all():
                return dtype
    return "f32"
