"""GPU time of each compute pass, from timestamp queries times the queue's timestamp period."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import wgpu

from inspector.gpu.device import Gpu

PAIRS_A_SET = 1024
"""WebGPU allows 4096 queries in a set; 1024 pairs keep its resolve buffer at 16 KiB."""
WARM_AFTER_S = 1.0
"""A GPU that idled needs about a second of work to raise its clocks."""
IDLE_GAP_S = 0.1

Span = tuple[float | None, float | None]
"""When a pass began and what it took, in ms."""


class Clocks:
    """Tells whether a sample was taken at low clocks: after a pause, until the device was busy for a while."""

    def __init__(self, software: bool) -> None:
        self._software = software
        self._busy_since = -float("inf") if software else float("inf")
        self._last = -float("inf")

    def cold_at(self, now: float) -> bool:
        """Note that work starts at `now` (seconds, monotonic); True where clocks are still low."""
        if self._software:
            return False
        if now - self._last > IDLE_GAP_S:
            self._busy_since = now
        self._last = now
        return now - self._busy_since < WARM_AFTER_S

    def done_at(self, now: float) -> None:
        """Note that the work was finished at `now`."""
        self._last = now


class Timer:
    """Timestamp pairs for the passes of one submission. Without the feature every duration is None."""

    def __init__(self, gpu: Gpu, clocks: Clocks | None = None) -> None:
        self._gpu = gpu
        self._sets: list[tuple[Any, Any]] = []
        self._origin: int | None = None
        self.clocks = clocks or Clocks(gpu.info.software)

    def writes(self, index: int) -> dict[str, Any] | None:
        """The `timestamp_writes` of pass number `index` of this submission."""
        if not self._gpu.info.timestamps:
            return None
        which, pair = divmod(index, PAIRS_A_SET)
        while which >= len(self._sets):
            usage = wgpu.BufferUsage
            queries = self._gpu.device.create_query_set(type="timestamp", count=2 * PAIRS_A_SET)
            resolved = self._gpu.buffer("timestamps", 16 * PAIRS_A_SET, usage.QUERY_RESOLVE | usage.COPY_SRC)
            self._sets.append((queries, resolved))
        return {
            "query_set": self._sets[which][0],
            "beginning_of_pass_write_index": 2 * pair,
            "end_of_pass_write_index": 2 * pair + 1,
        }

    def resolve(self, encoder: Any, count: int) -> None:
        """Record the resolving of the first `count` pairs."""
        if not self._gpu.info.timestamps:
            return
        for which in range(-(-count // PAIRS_A_SET)):
            queries, resolved = self._sets[which]
            pairs = min(PAIRS_A_SET, count - which * PAIRS_A_SET)
            encoder.resolve_query_set(queries, 0, 2 * pairs, resolved, 0)

    def ranges(self, count: int) -> list[tuple[Any, int, int]]:
        """What has to be read for `spans_of`: buffer, offset and bytes; nothing without the feature."""
        if not self._gpu.info.timestamps:
            return []
        sets = range(-(-count // PAIRS_A_SET))
        return [(self._sets[i][1], 0, 16 * min(PAIRS_A_SET, count - i * PAIRS_A_SET)) for i in sets]

    def spans_ms(self, count: int, encoder: Any | None = None) -> list[Span]:
        """As `spans_of`, read after what `encoder` records, which is submitted; waits for the device."""
        return self.spans_of(self._gpu.read_all(self.ranges(count), encoder), count)

    def spans_of(self, raw: Sequence[npt.NDArray[np.uint8]], count: int) -> list[Span]:
        """When the first `count` passes began, in ms after the first pass ever timed here, and what they took.

        Both are None where a pair reads zero or ends before it starts. `raw` is what `ranges` named.
        """
        if not raw:
            return [(None, None)] * count
        ticks = np.concatenate(raw).view(np.uint64).reshape(-1, 2).tolist()
        if self._origin is None:
            self._origin = next((start for start, _ in ticks if start), None)
        return spans_ms(ticks, self._gpu.timestamp_period_ns, self._origin or 0)

    def close(self) -> None:
        """Release the query buffers."""
        for _, resolved in self._sets:
            self._gpu.release(resolved)
        self._sets.clear()


def durations_ms(pairs: Sequence[Sequence[int]], period_ns: float) -> list[float | None]:
    """Milliseconds between the ticks of each pair, one tick being `period_ns` (not 1 on every vendor's GPU)."""
    return [
        (end - start) * period_ns / 1e6 if start and end and end >= start else None for start, end in pairs
    ]


def spans_ms(pairs: Sequence[Sequence[int]], period_ns: float, origin: int) -> list[Span]:
    """Beginning after the tick `origin` and duration of each pair, in ms; (None, None) where it is unusable."""
    durations = durations_ms(pairs, period_ns)
    return [
        ((start - origin) * period_ns / 1e6, ms) if ms is not None else (None, None)
        for (start, _), ms in zip(pairs, durations, strict=True)
    ]


def now() -> float:
    """Seconds of the monotonic clock used here."""
    return time.perf_counter()
