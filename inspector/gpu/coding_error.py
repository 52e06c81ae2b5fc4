"""Errors of coding m and v in 8 bits, measured on the GPU in one pass before the update."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from inspector.codecs import BLOCK
from inspector.coding_error import LaneCodingError, ParamCodingError
from inspector.errors import UsageError
from inspector.floats import F32Array
from inspector.gpu.device import Gpu
from inspector.gpu.map_parts import Extra
from inspector.gpu.memory import LaneMemory
from inspector.gpu.pipelines import Pipelines
from inspector.gpu.segment_uniforms import SegmentUniforms
from inspector.gpu.timing import Timer
from inspector.layout import F32_BYTES, Layout, Segment
from inspector.param_hyper import Classes
from inspector.plan import Access, binding_elements, split_grid
from inspector.settings import IDLE
from inspector.statistics import BINS
from inspector.stores import MOMENTS, Lane, Store, store_at, stores

U32Array = npt.NDArray[np.uint32]

CHUNK = 16_384
MAX_CHUNK = 65_536
WANTED_CHUNKS = 4_096
"""From here on chunks become larger rather than more."""

_SLOTS: tuple[tuple[int, Access], ...] = (*((k, "read") for k in range(7)), (7, "read_write"), (8, "uniform"))
_SETTINGS_BYTES = 64
_ALL_BINS = 256
_HISTOGRAM_WORDS = 2 * _ALL_BINS

# The words of a chunk's row, as in coding_error.wgsl.
_ROW_WORDS = 48
_FIRST, _COUNT, _HISTOGRAM, _DECAYS, _LARGEST_ERROR, _, _LOST = range(7)
_PARTS, _PART_WORDS, _PARTS_A_ROW = 8, 10, 4
_ERRORS, _VALUES, _TOP, _WORST, _WORST_AT = range(5)


@dataclass(frozen=True, slots=True)
class _Run:
    """Chunks of one binding, elements [start, stop), whose results go to a buffer of their own.

    There stand a row for each chunk, a histogram for each param, then the errors of blocks from `first_block` of the
    binding on.
    """

    start: int
    stop: int
    table: U32Array
    params: tuple[int, ...]
    """Numbers of the segments, by histogram."""
    first_block: int
    blocks: int
    segment: int
    """One whose settings they are of."""

    @property
    def histograms(self) -> int:
        """The word they begin at."""
        return len(self.table) * _ROW_WORDS

    @property
    def block_errors(self) -> int:
        """The word they begin at."""
        return self.histograms + len(self.params) * _HISTOGRAM_WORDS

    @property
    def nbytes(self) -> int:
        """Bytes of all of it."""
        return 4 * (self.block_errors + 2 * self.blocks)


class CodingErrorKernel:
    """Runs coding_error over a layout with 8-bit state. `constants` are those of the update, with its codec."""

    def __init__(
        self,
        gpu: Gpu,
        pipelines: Pipelines,
        layout: Layout,
        constants: Sequence[tuple[str, float]],
        classes: Classes | None = None,
    ) -> None:
        """`classes` where params have settings of their own; nothing of idle ones is measured."""
        self._gpu = gpu
        self.classes = classes
        self._pipelines = pipelines
        self._layout = layout
        self._constants = tuple(constants)
        self._timer = Timer(gpu)
        self._runs = tuple(_runs(layout, gpu, classes))
        self._align = max(gpu.limits.min_uniform_buffer_offset_alignment, 64)
        self._settings = gpu.uniform("coding errors", max(len(self._runs), 1) * self._align)
        self._results = []
        for run in self._runs:
            self._results.append(gpu.storage("coding errors", run.nbytes))
            rows = np.zeros((len(run.table), _ROW_WORDS), np.uint32)
            rows[:, : run.table.shape[1]] = run.table
            gpu.write(self._results[-1], 0, rows)
        self.ms: float | None = None
        """GPU time of the last run; None where the device has no clock."""

    def close(self) -> None:
        """Release the buffers."""
        self._timer.close()
        for buffer in (self._settings, *self._results):
            self._gpu.release(buffer)

    def run(self, memory: LaneMemory, uniforms: SegmentUniforms) -> tuple[ParamCodingError, ...]:
        """Errors of every param with 8-bit state, in the order of the layout."""
        settings = np.zeros((max(len(self._runs), 1), self._align // 4), np.uint32)
        for row, run in zip(settings, self._runs, strict=False):
            used = 0 if uniforms.of is None else uniforms.of[run.segment]
            row[0:12] = uniforms.rows[used].view(np.uint32)
            row[12:16] = len(run.table), run.histograms, run.block_errors, run.first_block
        self._gpu.write(self._settings, 0, settings)
        pipeline = self._pipelines.get("coding_error", "coding_error", _SLOTS, self._constants)
        encoder = self._gpu.encoder()
        for run, result in zip(self._runs, self._results, strict=True):
            encoder.clear_buffer(result, 4 * run.histograms, 4 * (run.block_errors - run.histograms))
        compute = encoder.begin_compute_pass(label="coding_error", timestamp_writes=self._timer.writes(0))
        compute.set_pipeline(pipeline)
        for i, run in enumerate(self._runs):
            compute.set_bind_group(0, self._pipelines.bind(_SLOTS, self._ranges(i, memory)))
            limit = self._gpu.limits.max_compute_workgroups_per_dimension
            compute.dispatch_workgroups(*split_grid(len(run.table), limit))
        compute.end()
        self._timer.resolve(encoder, 1)
        found = []
        for run, result in zip(self._runs, self._results, strict=True):
            found.append(self._gpu.read(result, 0, 4 * run.block_errors, encoder).view(np.uint32))
            encoder = None
        self.ms = self._timer.spans_ms(1)[0][1] if self._runs else 0.0
        return _assembled(self._layout, self._runs, found, self.classes)

    def _ranges(self, index: int, memory: LaneMemory) -> list[tuple[Any, int, int]]:
        run = self._runs[index]
        n = run.stop - run.start
        values, blocks = -(-n // 4) * 16, -(-n // BLOCK)
        coded = [store_at(self._layout, lane, run.start) for lane in ("m", "v")]
        plain = [store_at(self._layout, lane, run.start) for lane in ("w", "g")]
        ranges = [(memory.buffers[s.buffer], s.offset(run.start), values) for s in plain]
        ranges += [(memory.buffers[s.buffer], s.offset(run.start), blocks * BLOCK) for s in coded]
        for s in coded:
            assert s.scales is not None
            size = -(-blocks * F32_BYTES // 16) * 16
            ranges.append((memory.buffers[s.scales], s.scale_offset(run.start), size))
        ranges.append((memory.buffers["grad_stats"], 0, 8))
        ranges.append((self._results[index], 0, run.nbytes))
        ranges.append((self._settings, index * self._align, _SETTINGS_BYTES))
        return ranges

    def measured(self, lane: Lane) -> tuple[tuple[int, int, Extra], ...]:
        """Elements [low, high) whose blocks were measured, and where the error of each block of a moment stands."""
        found = []
        for run, result in zip(self._runs, self._results, strict=True):
            low = run.start + run.first_block * BLOCK
            high = min(low + run.blocks * BLOCK, run.stop)
            at = run.block_errors + int(lane == MOMENTS[1])
            found.append(
                (low, high, Extra(result, 0, run.nbytes, low, at, BLOCK.bit_length() - 1, len(MOMENTS)))
            )
        return tuple(found)

    def block_errors(self, param: str) -> tuple[F32Array, F32Array]:
        """Root mean square errors of m and v as of the last run, one value a block of 256 of a param."""
        segment = self._layout[param]
        if segment.state != "8bit":
            raise UsageError(f"{param} keeps m and v in float32: there is no error of coding them.")
        parts = []
        for run, result in zip(self._runs, self._results, strict=True):
            low, high = max(segment.offset, run.start), min(segment.stop, run.stop)
            first = (low - run.start) // BLOCK - run.first_block
            last = min(-(-(high - run.start) // BLOCK) - run.first_block, run.blocks)
            first = max(first, 0)
            if low < high and first < last:
                at = 4 * (run.block_errors + 2 * first)
                parts.append(self._gpu.read(result, at, 8 * (last - first)).view(np.float32))
        pairs = np.concatenate(parts).reshape(-1, 2) if parts else np.zeros((0, 2), np.float32)
        return pairs[:, 0].copy(), pairs[:, 1].copy()


# --- which chunks there are

_Cut = tuple[int, int, int, int]
"""A chunk: the number of its segment, whether that decays, its elements [low, high)."""


def _runs(layout: Layout, gpu: Gpu, classes: Classes | None) -> Iterator[_Run]:
    """The chunks of all params with 8-bit state, in order, in runs of one class that this device can bind."""
    binding = min(gpu.limits.max_storage_buffer_binding_size, gpu.limits.max_buffer_size)
    chunk = CHUNK
    while chunk < MAX_CHUNK and layout.elements > chunk * WANTED_CHUNKS:
        chunk *= 2
    numbers = {s.name: i for i, s in enumerate(layout.segments)}
    for start, stop in _bindings(layout, gpu):
        cuts = [
            (numbers[s.name], int(classes is not None or s.block == "wd"), at, min(at + chunk, s.stop, stop))
            for s in layout.between(start, stop)
            if s.state == "8bit"
            for at in range(max(s.offset, start), min(s.stop, stop), chunk)
        ]
        for of, group in groupby(cuts, key=lambda each: 0 if classes is None else classes[each[0]]):
            cut = list(group)
            while cut and of != IDLE:
                taken = _fitting(cut, binding)
                yield _run(start, stop, cut[:taken])
                cut = cut[taken:]


def _fitting(cut: Sequence[_Cut], binding: int) -> int:
    """How many of the chunks have results that one binding can hold; one at least."""
    params: set[int] = set()
    for k, (number, _, _, high) in enumerate(cut):
        params.add(number)
        words = (k + 1) * _ROW_WORDS + len(params) * _HISTOGRAM_WORDS + 2 * -(-(high - cut[0][2]) // BLOCK)
        if k and 4 * words > binding:
            return k
    return len(cut)


def _run(start: int, stop: int, cut: Sequence[_Cut]) -> _Run:
    params = tuple(dict.fromkeys(number for number, _, _, _ in cut))
    places = {number: i for i, number in enumerate(params)}
    table = [((low - start) // 4, high - low, places[n], decays) for n, decays, low, high in cut]
    first, last = (cut[0][2] - start) // BLOCK, -(-(cut[-1][3] - start) // BLOCK)
    return _Run(start, stop, np.array(table, np.uint32), params, first, last - first, cut[0][0])


def _bindings(layout: Layout, gpu: Gpu) -> Iterator[tuple[int, int]]:
    """Elements [start, stop) of coded state that one binding each of w, g, and of the codes can hold."""
    most = binding_elements(layout, gpu.limits, coded=True)
    for store in stores(layout, "m"):
        if store.coded:
            stop = _used(layout, store)
            for low in range(store.start, stop, most or max(stop - store.start, 1)):
                yield low, min(low + (most or stop), stop)


def _used(layout: Layout, store: Store) -> int:
    """The element after the last of any param in a store."""
    inside: Sequence[Segment] = layout.between(store.start, store.stop)
    return min(max((s.stop for s in inside), default=store.start), store.stop)


# --- from the rows of chunks to the params


def _assembled(
    layout: Layout, runs: Sequence[_Run], found: Sequence[U32Array], classes: Classes | None
) -> tuple[ParamCodingError, ...]:
    """Sums of all chunks of a param, in float64 and in order."""
    count = len(layout.segments)
    # By param and lane (m, v): the largest error; sums scaled by the largest top; the worst block.
    largest = np.zeros((count, 2))
    sums = np.zeros((count, 2, 2))
    tops = np.zeros((count, 2), np.int64)
    worst = np.full((count, 2), -1.0)
    worst_at = np.zeros((count, 2), np.int64)
    lost = np.zeros(count, np.int64)
    histograms = np.zeros((count, 2, _ALL_BINS), np.uint32)
    for run, words in zip(runs, found, strict=True):
        rows = words[: run.histograms].reshape(-1, _ROW_WORDS)
        floats = np.ascontiguousarray(rows).view(np.float32).astype(np.float64)
        params = np.array(run.params, np.int64)
        who = params[run.table[:, _HISTOGRAM]]
        counted = words[run.histograms : run.block_errors].reshape(-1, 2, _ALL_BINS)
        histograms[params] += counted
        np.add.at(lost, who, rows[:, _LOST].astype(np.int64))
        offsets = np.array([layout.segments[i].offset for i in who.tolist()], np.int64)
        # The block of the param that a chunk begins with.
        begins = (run.start + 4 * run.table[:, _FIRST].astype(np.int64) - offsets) // BLOCK
        for k in range(2):
            np.maximum.at(largest[:, k], who, floats[:, _LARGEST_ERROR + k])
            for part in range(_PARTS_A_ROW):
                at = _PARTS + _PART_WORDS * part + k * _PART_WORDS // 2
                top = rows[:, at + _TOP].astype(np.int64)
                before = tops[:, k].copy()
                np.maximum.at(tops[:, k], who, top)
                sums[:, k] = np.ldexp(sums[:, k], 2 * (before - tops[:, k])[:, None])
                down = 2 * (top - tops[who, k])
                for which, slot in enumerate((_ERRORS, _VALUES)):
                    np.add.at(sums[:, k, which], who, np.ldexp(floats[:, at + slot], down))
                place = begins + rows[:, at + _WORST_AT]
                _keep_worst(worst[:, k], worst_at[:, k], who, floats[:, at + _WORST], place)
    out = []
    for i, segment in enumerate(layout.segments):
        if segment.state != "8bit" or (classes is not None and classes[i] == IDLE):
            continue
        m, v = (
            _lane(
                float(largest[i, k]),
                sums[i, k],
                int(tops[i, k]),
                segment.numel,
                (int(worst_at[i, k]), float(worst[i, k])),
                histograms[i, k],
            )
            for k in range(2)
        )
        name = segment.name
        out.append(ParamCodingError(name, segment.numel, m, v, int(lost[i]), (name, name)))
    return tuple(out)


def _keep_worst(
    worst: npt.NDArray[np.float64],
    worst_at: npt.NDArray[np.int64],
    who: npt.NDArray[np.int64],
    values: npt.NDArray[np.float64],
    places: npt.NDArray[np.int64],
) -> None:
    """The largest value of each param and its place, of equals the first."""
    order = np.lexsort((places, -values, who))
    first = np.flatnonzero(np.diff(who[order], prepend=-1))
    best = order[first]
    i = who[best]
    better = (values[best] > worst[i]) | ((values[best] == worst[i]) & (places[best] < worst_at[i]))
    worst[i[better]], worst_at[i[better]] = values[best][better], places[best][better]


def _lane(
    largest: float,
    sums: npt.NDArray[np.float64],
    top: int,
    numel: int,
    worst: tuple[int, float],
    counted: U32Array,
) -> LaneCodingError:
    rms, rms_value = np.ldexp(np.sqrt(sums / numel), top - 127).tolist()
    exponents = counted[:BINS].copy()
    exponents.flags.writeable = False
    return LaneCodingError(largest, rms, rms_value, worst[0], max(worst[1], 0.0), exponents)
