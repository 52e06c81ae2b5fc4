"""Metrics over steps in bounded memory: each bucket covers a run of steps and keeps its extremes."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from inspector.floats import F64Array

Scalar = TypeVar("Scalar", bound=np.generic)

DEFAULT_CAPACITY = 8192
TAIL = 1024
"""Steps kept singly as well, so that going back inside a merged bucket loses nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """One metric, read-only float64 arrays of one value a bucket.

    `low` and `high` are the extremes of the finite and infinite values in the bucket, `last` the value of its
    last step. All three are NaN where every value was NaN or none was recorded; `gaps` counts NaN in it.
    """

    low: F64Array
    high: F64Array
    last: F64Array
    gaps: npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """All metrics, frozen: bucket i covers steps first[i] to first[i] + stride - 1."""

    stride: int
    first: npt.NDArray[np.int64]
    series: Mapping[str, Series]
    version: int

    def __len__(self) -> int:
        return len(self.first)


EMPTY_HISTORY = History(1, np.empty(0, np.int64), MappingProxyType({}), 0)


BoolArray = npt.NDArray[np.bool_]
ALL_KNOWN: Mapping[str, BoolArray] = MappingProxyType({})


class _Column:
    def __init__(self, capacity: int) -> None:
        self.low = np.full(capacity, np.nan)
        self.high = np.full(capacity, np.nan)
        self.last = np.full(capacity, np.nan)
        self.gaps = np.zeros(capacity, np.uint32)

    def add(self, bucket: int, value: float) -> None:
        # fmin and fmax pass over NaN, so one NaN never hides its neighbours.
        self.low[bucket] = np.fmin(self.low[bucket], value)
        self.high[bucket] = np.fmax(self.high[bucket], value)
        self.last[bucket] = value
        self.gaps[bucket] += np.isnan(value)

    def halved(self, buckets: int, capacity: int) -> _Column:
        half = _Column(capacity)
        n = buckets // 2
        pairs = slice(0, 2 * n)
        half.low[:n] = np.fmin.reduce(self.low[pairs].reshape(n, 2), axis=1)
        half.high[:n] = np.fmax.reduce(self.high[pairs].reshape(n, 2), axis=1)
        half.last[:n] = self.last[1 : 2 * n : 2]
        half.gaps[:n] = self.gaps[pairs].reshape(n, 2).sum(axis=1)
        return half

    def copied(self, buckets: int) -> _Column:
        copy = _Column(len(self.low))
        for name in ("low", "high", "last", "gaps"):
            getattr(copy, name)[:buckets] = getattr(self, name)[:buckets]
        return copy


class HistoryRecorder:
    """Collects metrics step by step. When `capacity` buckets are full, neighbours merge and the stride doubles.

    `freeze` hands out views without copying: complete buckets are never written again, and truncation moves
    to fresh arrays first, so a frozen History stays as it was.
    """

    def __init__(self, capacity: int = DEFAULT_CAPACITY) -> None:
        if capacity < 4 or capacity % 2:
            raise ValueError("capacity has to be an even number of at least 4")
        self._capacity = capacity
        self._columns: dict[str, _Column] = {}
        self._first = np.zeros(capacity, np.int64)
        self._buckets = 0
        self._stride = 1
        self._last_step: int | None = None
        self._tail: deque[tuple[int, dict[str, float]]] = deque(maxlen=TAIL)
        self._frozen_to = 0
        self._frozen: History | None = None
        self._version = 0

    @property
    def last_step(self) -> int | None:
        """The latest step, None before there is one."""
        return self._last_step

    def append(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add the metrics of `step`; steps have to come in increasing order."""
        if self._last_step is not None and step <= self._last_step:
            raise ValueError(f"step {step} does not follow step {self._last_step}")
        last = self._buckets - 1
        if last < 0 or step >= self._first[last] + self._stride:
            if self._buckets == self._capacity:
                self._halve()
            if self._buckets == 0 or step >= self._first[self._buckets - 1] + self._stride:
                self._first[self._buckets] = step
                self._buckets += 1
        elif self._frozen_to == self._buckets:
            # The open bucket has been handed out: keep that picture as it was.
            self._move()
        bucket = self._buckets - 1
        for name, value in metrics.items():
            column = self._columns.get(name)
            if column is None:
                column = self._columns[name] = _Column(self._capacity)
            column.add(bucket, value)
        self._tail.append((step, dict(metrics)))
        self._last_step = step
        self._version += 1

    def extend(
        self, first_step: int, columns: Mapping[str, F64Array], known: Mapping[str, BoolArray] = ALL_KNOWN
    ) -> None:
        """Add consecutive steps from `first_step` on, one value of each metric a step: as `append` would, one by one.

        All arrays are of one length. Where `known` has a mask of its name, the values that it leaves out, which are
        NaN, were never recorded: they are no gaps.
        """
        count = max((len(column) for column in columns.values()), default=0)

        def metrics(i: int) -> dict[str, float]:
            there = ((n, column[i]) for n, column in columns.items() if n not in known or known[n][i])
            return {name: float(value) for name, value in there}

        if self._last_step is not None or count <= 1:
            for i in range(count):
                self.append(first_step + i, metrics(i))
            return
        while -(-count // self._stride) > self._capacity:
            self._stride *= 2
        # append merges only when it needs a bucket more than there is room for, and so does this.
        self._buckets = n = -(-count // self._stride)
        self._first[:n] = first_step + self._stride * np.arange(n)
        starts = np.arange(0, count, self._stride)
        ends = np.minimum(starts + self._stride, count) - 1
        for name, values in columns.items():
            column = self._columns[name] = _Column(self._capacity)
            column.low[:n] = np.fmin.reduceat(values, starts)
            column.high[:n] = np.fmax.reduceat(values, starts)
            column.last[:n] = values[ends]
            gaps = np.isnan(values) & known.get(name, True)
            column.gaps[:n] = np.add.reduceat(gaps.astype(np.uint32), starts)
        for i in range(max(count - TAIL, 0), count):
            self._tail.append((first_step + i, metrics(i)))
        self._last_step = first_step + count - 1
        self._version += 1

    def truncate(self, last_step: int) -> None:
        """Forget every step after `last_step`. A merged bucket that it cuts keeps what the tail still holds."""
        if self._last_step is None or self._last_step <= last_step:
            return
        ends = self._first[: self._buckets] + self._stride - 1
        keep = int(np.searchsorted(ends, last_step, side="right"))
        self._buckets = keep
        self._move()
        self._last_step = int(ends[keep - 1]) if keep else None
        kept = self._last_step or 0
        again = [(step, metrics) for step, metrics in self._tail if kept < step <= last_step]
        while self._tail and self._tail[-1][0] > kept:
            self._tail.pop()
        for step, metrics in again:
            self.append(step, metrics)
        self._version += 1

    def freeze(self) -> History:
        """The metrics so far, as read-only views; the same object as long as there is nothing new."""
        n = self._buckets
        self._frozen_to = n
        if self._frozen is not None and self._frozen.version == self._version:
            return self._frozen
        series = {
            name: Series(_view(c.low, n), _view(c.high, n), _view(c.last, n), _view(c.gaps, n))
            for name, c in self._columns.items()
        }
        self._frozen = History(self._stride, _view(self._first, n), MappingProxyType(series), self._version)
        return self._frozen

    def _halve(self) -> None:
        n = self._buckets // 2
        first = np.zeros(self._capacity, np.int64)
        first[:n] = self._first[0 : 2 * n : 2]
        self._first = first
        self._columns = {k: c.halved(self._buckets, self._capacity) for k, c in self._columns.items()}
        self._buckets = n
        self._stride *= 2
        self._frozen_to = 0

    def _move(self) -> None:
        self._columns = {k: c.copied(self._buckets) for k, c in self._columns.items()}
        self._first = self._first.copy()
        self._frozen_to = 0


def _view(array: npt.NDArray[Scalar], n: int) -> npt.NDArray[Scalar]:
    view = array[:n]
    view.flags.writeable = False
    return view
