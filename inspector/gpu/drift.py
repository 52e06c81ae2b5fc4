"""How far the weights of two steppers on one device are apart, added up on the GPU chunk by chunk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from inspector.drift import ParamDrift
from inspector.gpu.device import Gpu
from inspector.gpu.memory import LaneMemory
from inspector.gpu.pipelines import Pipelines
from inspector.gpu.timing import Timer
from inspector.layout import Layout
from inspector.plan import Access, binding_elements, split_grid
from inspector.stores import store_at

U32Array = npt.NDArray[np.uint32]

CHUNK = 16_384
MAX_CHUNK = 131_072
WANTED_CHUNKS = 4_096
"""From here on chunks become larger rather than more."""

_SLOTS: tuple[tuple[int, Access], ...] = ((0, "read"), (1, "read"), (2, "read_write"))
_ROW_WORDS = 9
_ROW_BYTES = 4 * _ROW_WORDS
_FIRST, _OTHER_FIRST, _COUNT, _ODD_AT, _APART, _NORM, _LARGEST, _LARGEST_AT, _LARGEST_W = range(9)
_NONE = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class _Run:
    """Chunks whose elements lie in one binding of either, from elements `start` and `other_start` on."""

    start: int
    stop: int
    other_start: int
    other_stop: int
    rows: list[tuple[int, int, int]]
    owners: list[tuple[int, int]]
    """By chunk: the number of its param, and its first element in it."""


class DriftKernel:
    """Runs drift over two layouts of the same params."""

    def __init__(self, gpu: Gpu, pipelines: Pipelines, layout: Layout, other: Layout) -> None:
        self._gpu = gpu
        self._pipelines = pipelines
        self._layout = layout
        self._timer = Timer(gpu)
        self._runs = tuple(_runs(layout, other, gpu))
        at = 0
        self._offsets: list[int] = []
        align = max(gpu.limits.min_storage_buffer_offset_alignment, 4)
        for run in self._runs:
            self._offsets.append(at)
            at = -(-(at + _ROW_BYTES * len(run.rows)) // align) * align
        self._nbytes = max(at, 16)
        self._rows = gpu.storage("drift", self._nbytes)
        table = np.zeros(self._nbytes // 4, np.uint32)
        for run, offset in zip(self._runs, self._offsets, strict=True):
            part = table[offset // 4 : offset // 4 + _ROW_WORDS * len(run.rows)].reshape(-1, _ROW_WORDS)
            part[:, :3] = run.rows
        gpu.write(self._rows, 0, table)
        self.ms: float | None = None
        """GPU time of the last run; None where the device has no clock."""

    def close(self) -> None:
        """Release the buffers."""
        self._timer.close()
        self._gpu.release(self._rows)

    def run(self, memory: LaneMemory, other: LaneMemory) -> tuple[ParamDrift, ...]:
        """The drift of every param from `other`, in the order of the layout."""
        pipeline = self._pipelines.get("drift", "drift", _SLOTS)
        encoder = self._gpu.encoder()
        compute = encoder.begin_compute_pass(label="drift", timestamp_writes=self._timer.writes(0))
        compute.set_pipeline(pipeline)
        for run, offset in zip(self._runs, self._offsets, strict=True):
            ranges = [
                _bound(memory, run.start, run.stop),
                _bound(other, run.other_start, run.other_stop),
                (self._rows, offset, _ROW_BYTES * len(run.rows)),
            ]
            compute.set_bind_group(0, self._pipelines.bind(_SLOTS, ranges))
            limit = self._gpu.limits.max_compute_workgroups_per_dimension
            compute.dispatch_workgroups(*split_grid(len(run.rows), limit))
        compute.end()
        self._timer.resolve(encoder, 1)
        words = self._gpu.read(self._rows, 0, self._nbytes, encoder).view(np.uint32)
        self.ms = self._timer.spans_ms(1)[0][1]
        return self._assembled(words)

    def _assembled(self, words: U32Array) -> tuple[ParamDrift, ...]:
        count = len(self._layout.segments)
        apart, norm, largest = np.zeros(count), np.zeros(count), np.zeros(count)
        at = np.zeros(count, np.int64)
        odd = np.full(count, _NONE, np.int64)
        for run, offset in zip(self._runs, self._offsets, strict=True):
            part = words[offset // 4 : offset // 4 + _ROW_WORDS * len(run.rows)].reshape(-1, _ROW_WORDS)
            numbers = np.ascontiguousarray(part).view(np.float32).astype(np.float64)
            who, start = np.array(run.owners, np.int64).T
            np.add.at(apart, who, _unscaled(numbers[:, _APART], part[:, _LARGEST]))
            np.add.at(norm, who, _unscaled(numbers[:, _NORM], part[:, _LARGEST_W]))
            bad = part[:, _ODD_AT] != _NONE
            np.minimum.at(odd, who[bad], start[bad] + part[bad, _ODD_AT])
            places = (start + part[:, _LARGEST_AT]).tolist()
            for i, value, place in zip(who.tolist(), numbers[:, _LARGEST].tolist(), places, strict=True):
                if value > largest[i] or (value == largest[i] and place < at[i]):
                    largest[i], at[i] = value, place
        found = []
        for i, segment in enumerate(self._layout.segments):
            name = segment.name
            if odd[i] != _NONE:
                found.append(ParamDrift(name, np.nan, np.nan, np.nan, name, int(odd[i])))
                continue
            found.append(
                ParamDrift(
                    name,
                    float(np.sqrt(apart[i])),
                    float(np.sqrt(norm[i])),
                    float(largest[i]),
                    name,
                    int(at[i]),
                )
            )
        return tuple(found)


def _bound(memory: LaneMemory, start: int, stop: int) -> tuple[Any, int, int]:
    """What to bind for elements [start, stop) of w: whole vec4s."""
    store = store_at(memory.layout, "w", start)
    return memory.buffers[store.buffer], store.offset(start), -(-(stop - start) // 4) * 16


def _unscaled(sums: npt.NDArray[np.float64], largest: U32Array) -> npt.NDArray[np.float64]:
    """Sums of squares from those of numbers scaled by `scale_below_2` of the largest's bits."""
    biased = np.maximum(254 - (largest >> np.uint32(23)).astype(np.int64), 1)
    return np.asarray(np.ldexp(sums, -2 * (biased - 127)), np.float64)


def _runs(layout: Layout, other: Layout, gpu: Gpu) -> list[_Run]:
    """Chunks of every param, by the pair of bindings they lie in."""
    if {s.name: s.numel for s in layout} != {s.name: s.numel for s in other}:
        raise ValueError("the two hold other params")
    ends = [max((s.stop for s in each.segments), default=0) for each in (layout, other)]
    cuts = [
        tuple(each.pieces(0, end, binding_elements(each, gpu.limits)))
        for each, end in zip((layout, other), ends, strict=True)
    ]
    starts = [np.array([start for start, _ in each] or [0], np.int64) for each in cuts]
    chunk = CHUNK
    while chunk < MAX_CHUNK and layout.elements > chunk * WANTED_CHUNKS:
        chunk *= 2
    runs: dict[tuple[int, int], _Run] = {}
    for number, segment in enumerate(layout.segments):
        there = other[segment.name].offset
        at = 0
        while at < segment.numel:
            here = segment.offset + at
            one = int(np.searchsorted(starts[0], here, side="right")) - 1
            two = int(np.searchsorted(starts[1], there + at, side="right")) - 1
            start, stop = cuts[0][one]
            other_start, other_stop = cuts[1][two]
            n = min(chunk, segment.numel - at, stop - here, other_stop - (there + at))
            run = runs.setdefault((one, two), _Run(start, stop, other_start, other_stop, [], []))
            run.rows.append(((here - start) // 4, (there + at - other_start) // 4, n))
            run.owners.append((number, at))
            at += n
    return list(runs.values())
