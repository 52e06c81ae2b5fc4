"""What the map is worked out from: the parts of a lane, each with what is beside it, and the runs of params in it."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inspector.floats import F64Array
from inspector.gpu.device import Gpu
from inspector.gpu.memory import LaneMemory
from inspector.gpu.pieces import Piece
from inspector.gpu.undo import Entry
from inspector.layout import Layout
from inspector.stores import Lane, stores

RUN_BYTES = 12
LEAST_APART = 64
"""Elements that bindings are apart in a buffer on any device."""


@dataclass(frozen=True, slots=True)
class Extra:
    """Words beside elements: element `first` and those after it share word `at`, 2^shift at a time, `stride` apart."""

    buffer: Any
    offset: int
    nbytes: int
    first: int
    at: int = 0
    shift: int = 0
    stride: int = 1


@dataclass(frozen=True, slots=True)
class Part:
    """Elements [low, high) of the mega-buffer in a piece. `before` is prepared with it, where it has to be."""

    now: Piece
    low: int
    high: int
    extra: Extra
    before: Piece | None = None

    def cut(self, low: int, high: int) -> Part | None:
        """What of it lies in [low, high)."""
        first, last = max(self.low, low), min(self.high, high)
        return Part(self.now, first, last, self.extra, self.before) if first < last else None


def plain_parts(memory: LaneMemory, lane: Lane, start: int, stop: int) -> Iterator[Part]:
    """Elements [start, stop) of a lane as it is, and some before; what is beside an element is the element itself."""
    layout = memory.layout
    apart = max(layout.align, layout.placement.coded_align, LEAST_APART)
    for store in stores(layout, lane):
        low = max(store.origin + (start - store.origin) // apart * apart, store.start)
        for piece in memory.views(lane, low, min(stop, store.stop)):
            if piece.count:
                yield Part(piece, piece.first, piece.first + piece.count, beside(piece))


def changed_parts(memory: LaneMemory, lane: Lane, entries: Sequence[Entry]) -> Iterator[Part]:
    """A lane beside what it was before all of `entries`, the newest first; what they do not keep is as it was."""
    covered: list[tuple[int, int]] = []
    for entry in reversed(entries):
        for now, before in memory.changed_views(entry, lane):
            for low, high in without(now.first, now.first + now.count, covered):
                yield Part(now, low, high, beside(before), before)
        # An entry has an element once.
        covered += [
            (each.first, each.first + each.count) for each in memory.saved(entry, lane, 0, memory.end)
        ]
    for part in plain_parts(memory, lane, 0, memory.end):
        for low, high in without(part.low, part.high, covered):
            yield Part(part.now, low, high, part.extra)


def beside(piece: Piece) -> Extra:
    """The elements of another piece, one each."""
    return Extra(piece.buffer, piece.offset, bound(piece.count), piece.first)


def bound(count: int) -> int:
    """Bytes to bind for so many elements, in whole vec4s."""
    return -(-count // 4) * 16


def without(start: int, stop: int, covered: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """What of [start, stop) none of `covered` has."""
    at = start
    for low, high in sorted(covered):
        if low < stop and high > at:
            if low > at:
                yield at, low
            at = max(at, high)
    if at < stop:
        yield at, stop


class Runs:
    """Runs of params without a gap, that share a learning rate, on the device; gaps belong to no param."""

    def __init__(self, gpu: Gpu, layout: Layout, lr: F64Array | None = None) -> None:
        """`lr` by segment, or one for all."""
        self._gpu = gpu
        cut = np.broadcast_to(np.float64(0) if lr is None else lr, len(layout.segments)).tolist()
        runs: list[tuple[int, int, float]] = []
        for segment, of in zip(layout.segments, cut, strict=True):
            if segment.numel and runs and runs[-1][1:] == (segment.offset, of):
                runs[-1] = (runs[-1][0], segment.stop, of)
            elif segment.numel:
                runs.append((segment.offset, segment.stop, of))
        self.count = len(runs)
        self._starts = np.array([start for start, _, _ in runs], np.int64)
        self._stops = np.array([stop for _, stop, _ in runs], np.int64)
        data = b"".join(struct.pack("<IIf", *run) for run in runs)
        self.nbytes = max(len(data), RUN_BYTES)
        self.buffer = gpu.storage("map runs", self.nbytes)
        gpu.write(self.buffer, 0, np.frombuffer(data, np.uint8))

    def covering(self, low: int, high: int) -> int:
        """The number of the run that has all of [low, high); `count` where none has."""
        at = int(np.searchsorted(self._stops, low, side="right"))
        return at if at < self.count and self._starts[at] <= low and high <= self._stops[at] else self.count

    def close(self) -> None:
        """Release the buffer."""
        self._gpu.drop(self.buffer)


class Slots:
    """Uniforms of one submission: each in a place of its own, written once all are known."""

    PER_BUFFER = 256

    def __init__(self, gpu: Gpu, label: str, nbytes: int) -> None:
        self._gpu = gpu
        self._label = label
        self._nbytes = nbytes
        self._apart = -(-nbytes // gpu.limits.min_uniform_buffer_offset_alignment)
        self._apart *= gpu.limits.min_uniform_buffer_offset_alignment
        self._buffers: list[Any] = []
        self._data: list[bytes] = []

    def put(self, data: bytes) -> tuple[Any, int, int]:
        """Where it will stand: a buffer, the byte in it, and the bytes to bind."""
        which, slot = divmod(len(self._data), self.PER_BUFFER)
        if which >= len(self._buffers):
            self._buffers.append(self._gpu.uniform(self._label, self.PER_BUFFER * self._apart))
        self._data.append(data)
        return self._buffers[which], slot * self._apart, self._nbytes

    def write(self) -> None:
        """Write what was put since the last time; to be called before what uses it is submitted."""
        for which, buffer in enumerate(self._buffers):
            held = self._data[which * self.PER_BUFFER : (which + 1) * self.PER_BUFFER]
            if held:
                block = b"".join(data.ljust(self._apart, b"\0") for data in held)
                self._gpu.write(buffer, 0, np.frombuffer(block, np.uint8))
        self._data.clear()

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        return sum(int(buffer.size) for buffer in self._buffers)

    def close(self) -> None:
        """Release the buffers."""
        for buffer in self._buffers:
            self._gpu.drop(buffer)
        self._buffers.clear()
