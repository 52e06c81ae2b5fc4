"""Many lines over steps in bounded memory, all of them taken in at once; and histograms over steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from inspector.floats import F64Array
from inspector.history import EMPTY_HISTORY, History, Series
from inspector.statistics import BINS

Key = TypeVar("Key", bound=Hashable)
Scalar = TypeVar("Scalar", bound=np.generic)
BoolArray = npt.NDArray[np.bool_]

CAPACITY = 4096
"""Buckets of a line: more than a screen has pixels across."""
TAIL = 512
"""Steps kept singly as well, so that going back inside a merged bucket loses nothing."""
FALL_CAPACITY = 512


class LineStore(Generic[Key]):
    """As `HistoryRecorder`, for lines that are asked for and given up while a run goes on.

    A step costs a few numpy calls however many lines there are. 28 bytes a bucket and line, 9 a line and step of the
    tail.
    """

    def __init__(self, keys: Iterable[Key] = (), capacity: int = CAPACITY) -> None:
        if capacity < 4 or capacity % 2:
            raise ValueError("capacity has to be an even number of at least 4")
        self._capacity = capacity
        self.keys: tuple[Key, ...] = ()
        """The lines, in the order in which `append` takes their values."""
        self._first = np.zeros(capacity, np.int64)
        self._buckets = 0
        self._stride = 1
        self.last_step: int | None = None
        self._bands = np.empty((3, 0, capacity))
        """low, high and last, each [lines, buckets]."""
        self._gaps = np.empty((0, capacity), np.uint32)
        self._tail: deque[tuple[int, F64Array, BoolArray]] = deque(maxlen=TAIL)
        self.version = 0
        self.set_keys(keys)

    def __len__(self) -> int:
        return self._buckets

    def set_keys(self, keys: Iterable[Key]) -> None:
        """Which lines there are from now on; those that stay keep what they have."""
        wanted = tuple(dict.fromkeys(keys))
        if wanted == self.keys:
            return
        at = {key: i for i, key in enumerate(self.keys)}
        source = np.array([at.get(key, -1) for key in wanted], np.int64)
        old = source >= 0
        bands = np.full((3, len(wanted), self._capacity), np.nan)
        gaps = np.zeros((len(wanted), self._capacity), np.uint32)
        bands[:, old], gaps[old] = self._bands[:, source[old]], self._gaps[source[old]]
        self._bands, self._gaps = bands, gaps
        tail = [(step, _picked(v, source, np.nan), _picked(k, source, False)) for step, v, k in self._tail]
        self._tail = deque(tail, maxlen=TAIL)
        self.keys = wanted
        self.version += 1

    def append(self, step: int, values: F64Array, known: BoolArray) -> None:
        """Add a step, a value a line in the order of `keys`; what is not `known` was not recorded, and is no gap."""
        if self.last_step is not None and step <= self.last_step:
            raise ValueError(f"step {step} does not follow step {self.last_step}")
        while not self._buckets or step >= self._first[self._buckets - 1] + self._stride:
            if self._buckets < self._capacity:
                self._first[self._buckets] = step
                self._buckets += 1
                break
            self._halve()
        b = self._buckets - 1
        low, high, last = self._bands[:, :, b]
        values = np.where(known, values, np.nan)
        # fmin and fmax pass over NaN, so one NaN never hides its neighbours.
        np.fmin(low, values, out=low)
        np.fmax(high, values, out=high)
        last[known] = values[known]
        self._gaps[:, b] += known & np.isnan(values)
        self._tail.append((step, values, np.asarray(known)))
        self.last_step = step
        self.version += 1

    def truncate(self, last_step: int) -> None:
        """Forget every step after `last_step`. A merged bucket that it cuts keeps what the tail still holds."""
        if self.last_step is None or self.last_step <= last_step:
            return
        ends = self._first[: self._buckets] + self._stride - 1
        keep = int(np.searchsorted(ends, last_step, side="right"))
        self._bands[:, :, keep : self._buckets] = np.nan
        self._gaps[:, keep : self._buckets] = 0
        self._buckets = keep
        kept = int(ends[keep - 1]) if keep else -1
        again = [entry for entry in self._tail if kept < entry[0] <= last_step]
        while self._tail and self._tail[-1][0] > kept:
            self._tail.pop()
        self.last_step = kept if keep else None
        for entry in again:
            self.append(*entry)
        self.version += 1

    def history(self, key: Key) -> History:
        """A line so far, as a copy: one series, named as the key is written, with a bucket for each of this store's."""
        n = self._buckets
        if key not in self.keys or not n:
            return EMPTY_HISTORY
        i = self.keys.index(key)
        low, high, last = (_frozen(band[i, :n]) for band in self._bands)
        series = Series(low, high, last, _frozen(self._gaps[i, :n]))
        return History(
            self._stride, _frozen(self._first[:n]), MappingProxyType({str(key): series}), self.version
        )

    @property
    def nbytes(self) -> int:
        """Memory of the lines."""
        return self._bands.nbytes + self._gaps.nbytes + self._first.nbytes

    def _halve(self) -> None:
        half = self._buckets // 2
        low, high, last = self._bands[:, :, : 2 * half].reshape(3, -1, half, 2)
        newest = np.where(np.isnan(last[..., 1]), last[..., 0], last[..., 1])
        merged = np.fmin(*np.moveaxis(low, -1, 0)), np.fmax(*np.moveaxis(high, -1, 0)), newest
        gaps = self._gaps[:, : 2 * half].reshape(-1, half, 2).sum(axis=-1, dtype=np.uint32)
        self._bands[:], self._gaps[:] = np.nan, 0
        self._bands[:, :, :half], self._gaps[:, :half] = np.stack(merged), gaps
        self._first[:half] = self._first[0 : 2 * half : 2].copy()
        self._buckets, self._stride = half, 2 * self._stride


def joined(before: History, after: History, own_from: int) -> History:
    """One line: what is known of the steps before `own_from`, then what is known from there on."""
    keep = int(np.searchsorted(before.first + before.stride, own_from, side="right"))
    if not keep:
        return after
    parts = [(before, slice(keep)), (after, slice(None))] if len(after) else [(before, slice(keep))]
    name = next(iter(before.series))
    low, high, last, gaps = (
        _frozen(np.concatenate([getattr(h.series[name], each)[part] for h, part in parts]))
        for each in ("low", "high", "last", "gaps")
    )
    first = _frozen(np.concatenate([h.first[part] for h, part in parts]))
    series = MappingProxyType({name: Series(low, high, last, gaps)})
    return History(max(h.stride for h, _ in parts), first, series, before.version + after.version)


@dataclass(frozen=True, slots=True, eq=False)
class Waterfall:
    """Magnitudes over steps: `counts` float32 [buckets, 255] of the finite elements that are not 0, by biased
    exponent, `zeros` and `nonfinite` float32 [buckets], all added up over the `stride` steps of a bucket; `first` its
    first step. Read-only."""

    stride: int
    first: npt.NDArray[np.int64]
    counts: npt.NDArray[np.float32]
    zeros: npt.NDArray[np.float32]
    nonfinite: npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.first)


class FallStore:
    """Histograms over steps; where `capacity` buckets are full, neighbours are added up. A bucket that going back cuts
    is forgotten whole."""

    def __init__(self, capacity: int = FALL_CAPACITY) -> None:
        self._capacity = capacity
        self._first = np.zeros(capacity, np.int64)
        # Counts of the bins, then zeros and non-finite ones: float64 holds sums of whole numbers exactly.
        self._counts = np.zeros((capacity, BINS + 2))
        self._buckets = 0
        self._stride = 1
        self.last_step: int | None = None

    def append(self, step: int, exponents: npt.NDArray[np.uint32], zeros: int, nonfinite: int) -> None:
        """Add a step, which has to follow the last."""
        while not self._buckets or step >= self._first[self._buckets - 1] + self._stride:
            if self._buckets < self._capacity:
                self._first[self._buckets] = step
                self._buckets += 1
                break
            half = self._buckets // 2
            self._counts[:half] = self._counts[: 2 * half].reshape(half, 2, -1).sum(axis=1)
            self._counts[half:] = 0
            self._first[:half] = self._first[0 : 2 * half : 2].copy()
            self._buckets, self._stride = half, 2 * self._stride
        row = self._counts[self._buckets - 1]
        row[:BINS] += exponents
        row[BINS:] += zeros, nonfinite
        self.last_step = step

    def truncate(self, last_step: int) -> None:
        """Forget every step after `last_step`."""
        if self.last_step is None or self.last_step <= last_step:
            return
        ends = self._first[: self._buckets] + self._stride - 1
        keep = int(np.searchsorted(ends, last_step, side="right"))
        self._counts[keep:] = 0
        self._buckets = keep
        self.last_step = int(ends[keep - 1]) if keep else None

    def picture(self) -> Waterfall:
        """What there is so far, as a copy."""
        n = self._buckets
        counts = self._counts[:n].astype(np.float32)
        counts.flags.writeable = False
        return Waterfall(
            self._stride, _frozen(self._first[:n]), counts[:, :BINS], counts[:, BINS], counts[:, BINS + 1]
        )


def quantiles(
    exponents: npt.NDArray[np.uint32], zeros: npt.NDArray[np.int64], largest: F64Array, q: float | F64Array
) -> F64Array:
    """The magnitude that a share `q` of the finite elements does not exceed, zeros among them; NaN of no elements.

    A row each, `q` one for all or one a row. `exponents` [rows, 255] counts the elements by biased exponent, as in
    BufferStats; inside a power of two they are taken as evenly spread over its logarithm, so it is off by less than a
    factor of 2. Never above `largest`.
    """
    upto = np.cumsum(exponents, axis=1, dtype=np.int64)
    total = upto[:, -1] + zeros
    rank = np.maximum(np.ceil(q * total), 1).astype(np.int64) - zeros
    bins = np.minimum((upto < rank[:, None]).sum(axis=1), BINS - 1)
    rows = np.arange(len(bins))
    count = np.maximum(exponents[rows, bins], 1).astype(np.float64)
    share = (rank - (upto[rows, bins] - exponents[rows, bins]) - 0.5) / count
    # Bin 0 are the denormals: they begin at 0.
    value = np.where(bins == 0, share * 2.0**-126, np.exp2(bins - 127 + share))
    value = np.where(rank <= 0, 0.0, np.minimum(value, largest))
    return np.where(total > 0, value, np.nan)


def _picked(values: npt.NDArray[Scalar], source: npt.NDArray[np.int64], absent: float) -> npt.NDArray[Scalar]:
    out = np.full(len(source), absent, values.dtype)
    there = source >= 0
    out[there] = values[source[there]]
    return out


def _frozen(values: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    copy = values.copy()
    copy.flags.writeable = False
    return copy
