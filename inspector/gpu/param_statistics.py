"""Statistics of each param right before its update, counted on the GPU in one pass over w, g, m and v."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from inspector.gpu.chunk_rows import ROW_SLOTS, U32Array, assembled
from inspector.gpu.device import Gpu
from inspector.gpu.memory import LaneMemory
from inspector.gpu.pieces import Piece, Prepare
from inspector.gpu.pipelines import Pipelines
from inspector.gpu.segment_uniforms import SegmentUniforms
from inspector.gpu.timing import Timer
from inspector.optimizers.definition import ADAM_RULE
from inspector.param_statistics import ParamTable
from inspector.plan import Access, split_grid
from inspector.statistics import BINS
from inspector.stores import LANES, Lane

SLOTS: tuple[tuple[int, Access], ...] = (
    (0, "read"), (1, "read"), (2, "read"), (3, "read"), (4, "read"), (5, "read"), (6, "read_write"),
    (7, "read_write"), (8, "uniform"),
)  # fmt: skip
_SETTINGS_BYTES = 64
_CHUNK_BYTES = 16
_HISTOGRAM_BYTES = 4 * 4 * 256
_DECAYS = 0x8000_0000

Views = Callable[[Lane, int, int], Iterator[Piece]]
"""As `LaneMemory.views`."""

CHUNK = {True: 32_768, False: 4_096}
"""By `software`: elements of a chunk, enough of them to be worth the clearing of its counts."""
FORM = {True: {"GROUP": 8.0, "ON_CPU": 1.0}, False: {"GROUP": 128.0}}
"""By `software`: threads of a workgroup, and how they count."""
MAX_CHUNK = 32_768
WANTED_CHUNKS = 4_096
"""From here on chunks become larger rather than more."""
MAX_PARAMS = 4_096
MAX_CHUNKS = 65_536
"""Rows of one submission: what they take is bounded, however large the model."""


@dataclass(frozen=True, slots=True)
class _Run:
    """Chunks of one binding: elements [start, stop), the first of the chunks in the batch, and how many."""

    start: int
    stop: int
    first: int
    count: int


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    """Chunks counted in one submission; `params` are those of the segments that they belong to."""

    table: U32Array
    params: tuple[int, int]
    runs: tuple[_Run, ...]


@dataclass(frozen=True, slots=True)
class _Part:
    """Chunks `first` to `first + count` of a batch, of one run and with one row of settings, updated by one rule."""

    run: int
    first: int
    count: int
    row: int
    rule: int = 0


@dataclass(frozen=True, slots=True)
class _Bound:
    """The bind group of a run, and what has to be recorded before it."""

    group: Any
    prepared: tuple[Prepare, ...]


class ParamStatsKernel:
    """Runs param_stats over a layout. `constants` are those of the update."""

    def __init__(
        self,
        gpu: Gpu,
        pipelines: Pipelines,
        memory: LaneMemory,
        constants: Sequence[tuple[str, float]],
        *,
        rules: Sequence[Sequence[str]] = (ADAM_RULE,),
        rule_of: npt.NDArray[np.intp] | None = None,
    ) -> None:
        """`rules` are the files of each update there is among the params; `rule_of` the number of its rule by segment.

        Without `rule_of` all have the first.
        """
        self._rules = rules
        self._rule_of = rule_of
        self._gpu = gpu
        self._pipelines = pipelines
        self._memory = memory
        self._layout = memory.layout
        self._constants = (*constants, *FORM[gpu.info.software].items())
        self._timer = Timer(gpu)
        self._batches = tuple(_batches(memory, gpu))
        chunks = max((len(b.table) for b in self._batches), default=0)
        params = max((b.params[1] - b.params[0] for b in self._batches), default=0)
        self._settings_rows = max((len(b.runs) for b in self._batches), default=0)
        self._align = max(gpu.limits.min_uniform_buffer_offset_alignment, 64)
        self._table = gpu.storage("chunks", chunks * _CHUNK_BYTES)
        self._histograms = gpu.storage("param histograms", params * _HISTOGRAM_BYTES)
        self._rows = gpu.storage("chunk statistics", chunks * 4 * ROW_SLOTS)
        self._settings = gpu.uniform("param statistics", self._settings_rows * self._align)
        self._views: Views = memory.views
        self._in_table: tuple[_Batch, bool] | None = None
        self.ms: float | None = None
        """GPU time of the last run; None where the device has no clock."""

    def close(self) -> None:
        """Release the buffers."""
        self._timer.close()
        for buffer in (self._table, self._histograms, self._rows, self._settings):
            self._gpu.release(buffer)

    def run(
        self,
        grad_stats: Any,
        uniforms: SegmentUniforms,
        elements: tuple[int, int] | None = None,
        views: Views | None = None,
    ) -> ParamTable:
        """Statistics of every param, in the order of the layout.

        With `elements`, [start, stop) of the mega-buffer, only params within are counted; of others nothing is known.
        `views` gives something else to bind than the lanes are.
        """
        self._views = views or self._memory.views
        segments = self._layout.segments
        histograms = np.zeros((len(segments), 4, 256), np.int64)
        rows = []
        times: list[float | None] = []
        batches = [b if elements is None else _within(b, *elements) for b in self._batches]
        batches = [b for b in batches if b.runs]
        for batch in batches:
            low, high = batch.params
            counted, chunk_rows = self._run_batch(batch, grad_stats, uniforms, times)
            histograms[low:high] += counted
            rows.append(chunk_rows)
        self.ms = None if None in times else sum(t for t in times if t is not None)
        owners = np.concatenate(
            [
                np.zeros(0, np.int64),
                *(b.params[0] + (b.table[:, 0] & ~np.uint32(_DECAYS)) for b in batches),
            ]
        )
        return assembled(
            self._layout, histograms, np.concatenate(rows) if rows else None, owners, uniforms.idle
        )

    def _run_batch(
        self,
        batch: _Batch,
        grad_stats: Any,
        uniforms: SegmentUniforms,
        times: list[float | None],
    ) -> tuple[U32Array, U32Array]:
        gpu = self._gpu
        if self._in_table is None or self._in_table[0] is not batch or self._in_table[1] != uniforms.own:
            table = batch.table
            if uniforms.own:
                table = table.copy()
                table[:, 0] |= np.uint32(_DECAYS)
            gpu.write(self._table, 0, table)
            self._in_table = batch, uniforms.own
        parts = _parts(batch, uniforms, self._rule_of)
        settings = np.zeros((len(parts), self._align // 4), np.uint32)
        settings[:, 0:12] = uniforms.rows.view(np.uint32)[[part.row for part in parts]]
        settings[:, 12] = [part.first for part in parts]
        settings[:, 13] = [part.count for part in parts]
        self._make_room(len(parts))
        gpu.write(self._settings, 0, settings)
        params = batch.params[1] - batch.params[0]
        groups = [self._bind(batch, i, part, grad_stats) for i, part in enumerate(parts)]
        encoder = gpu.encoder()
        encoder.clear_buffer(self._histograms, 0, params * _HISTOGRAM_BYTES)
        self._record(encoder, "param_stats", parts, groups)
        of_rows = (self._rows, 0, len(batch.table) * 4 * ROW_SLOTS)
        of_histograms = (self._histograms, 0, params * _HISTOGRAM_BYTES)
        histograms, rows, *spans = gpu.read_all([of_histograms, of_rows, *self._timer.ranges(1)], encoder)
        times += [ms for _, ms in self._timer.spans_of(spans, 1)]
        counted = histograms.view(np.uint32).reshape(-1, 4, 256)
        if counted[:, :, BINS].any():
            encoder = gpu.encoder()
            self._record(encoder, "param_nonfinite", parts, groups)
            rows, *spans = gpu.read_all([of_rows, *self._timer.ranges(1)], encoder)
            times += [ms for _, ms in self._timer.spans_of(spans, 1)]
        return counted, rows.view(np.uint32).reshape(-1, ROW_SLOTS)

    def _make_room(self, parts: int) -> None:
        """Settings of so many parts."""
        if parts > self._settings_rows:
            self._gpu.release(self._settings)
            self._settings_rows = parts
            self._settings = self._gpu.uniform("param statistics", parts * self._align)

    def _bind(self, batch: _Batch, index: int, part: _Part, grad_stats: Any) -> _Bound:
        """What a part of a run binds, and what puts the values of coded lanes there before."""
        run = batch.runs[part.run]
        nbytes = -(-(run.stop - run.start) // 4) * 16
        views = [next(self._views(lane, run.start, run.stop)) for lane in LANES]
        ranges = [(view.buffer, view.offset, nbytes) for view in views]
        ranges += [
            (grad_stats, 0, 8),
            (self._table, 0, len(batch.table) * _CHUNK_BYTES),
            (self._histograms, 0, (batch.params[1] - batch.params[0]) * _HISTOGRAM_BYTES),
            (self._rows, 0, len(batch.table) * 4 * ROW_SLOTS),
            (self._settings, index * self._align, _SETTINGS_BYTES),
        ]
        prepared = tuple(view.prepare for view in views if view.prepare is not None)
        return _Bound(self._pipelines.bind(SLOTS, ranges), prepared)

    def _record(
        self, encoder: Any, entry_point: str, parts: Sequence[_Part], bound: Sequence[_Bound]
    ) -> None:
        compute = encoder.begin_compute_pass(label=entry_point, timestamp_writes=self._timer.writes(0))
        ready = -1
        for part, each in zip(parts, bound, strict=True):
            # What was decoded for a run stays for all of its parts.
            for prepare in each.prepared if part.run != ready else ():
                prepare(compute)
            ready = part.run
            # The update from coded state may differ, see coded_adam.
            constants = (*self._constants, ("CODED", float(bool(each.prepared))))
            rule = self._rules[part.rule]
            compute.set_pipeline(self._pipelines.get("param_stats", entry_point, SLOTS, constants, rule=rule))
            compute.set_bind_group(0, each.group)
            compute.dispatch_workgroups(
                *split_grid(part.count, self._gpu.limits.max_compute_workgroups_per_dimension)
            )
        compute.end()
        self._timer.resolve(encoder, 1)


# --- what is counted by whom


def _batches(memory: LaneMemory, gpu: Gpu) -> Iterator[_Batch]:
    """The chunks of a layout, in order, in batches that this device can bind."""
    layout = memory.layout
    binding = min(gpu.limits.max_storage_buffer_binding_size, gpu.limits.max_buffer_size)
    max_params = min(MAX_PARAMS, binding // _HISTOGRAM_BYTES)
    max_chunks = min(MAX_CHUNKS, binding // (4 * ROW_SLOTS))
    chunk = CHUNK[gpu.info.software]
    while chunk < MAX_CHUNK and layout.elements > chunk * WANTED_CHUNKS:
        chunk *= 2
    table: list[tuple[int, int, int, int]] = []
    runs: list[_Run] = []
    first_param = last_param = 0

    def batch() -> _Batch:
        return _Batch(np.array(table, np.uint32), (first_param, last_param + 1), tuple(runs))

    pieces = memory.spans()
    at = 0
    for number, segment in enumerate(layout.segments):
        for low in range(segment.offset, segment.stop, chunk):
            stop = min(low + chunk, segment.stop)
            while low < stop:
                while low >= pieces[at][1]:
                    at += 1
                start, piece_stop = pieces[at]
                high = min(stop, piece_stop)
                if table and (number - first_param >= max_params or len(table) >= max_chunks):
                    yield batch()
                    table, runs = [], []
                if not table:
                    first_param = number
                last_param = number
                decays = _DECAYS if segment.block == "wd" else 0
                table.append((number - first_param | decays, (low - start) // 4, high - low, low))
                if runs and runs[-1].start == start:
                    last = runs.pop()
                    runs.append(_Run(start, piece_stop, last.first, last.count + 1))
                else:
                    runs.append(_Run(start, piece_stop, len(table) - 1, 1))
                low = high
    if table:
        yield batch()


def _parts(
    batch: _Batch, uniforms: SegmentUniforms, rule_of: npt.NDArray[np.intp] | None = None
) -> list[_Part]:
    """The runs of a batch, cut where the settings of params change, or the rule that they are updated by."""
    of = uniforms.of
    if of is None and rule_of is None:
        return [_Part(i, run.first, run.count, 0) for i, run in enumerate(batch.runs)]
    owners = batch.params[0] + (batch.table[:, 0] & ~np.uint32(_DECAYS)).astype(np.intp)
    rows, rules = (np.zeros_like(owners) if each is None else each[owners] for each in (of, rule_of))
    found = []
    for i, run in enumerate(batch.runs):
        mine = slice(run.first, run.first + run.count)
        change = np.diff(rows[mine], prepend=-1) | np.diff(rules[mine], prepend=-1)
        starts = [*np.flatnonzero(change).tolist(), run.count]
        for low, high in pairwise(starts):
            at = run.first + low
            found.append(_Part(i, at, high - low, int(rows[at]), int(rules[at])))
    return found


def _within(batch: _Batch, start: int, stop: int) -> _Batch:
    """The chunks of a batch that lie in [start, stop), where no param lies across the ends."""
    at = batch.table[:, 3].astype(np.int64)
    first, last = (int(np.searchsorted(at, edge)) for edge in (start, stop))
    runs = []
    for run in batch.runs:
        low, high = max(run.first, first), min(run.first + run.count, last)
        if low < high:
            runs.append(_Run(run.start, run.stop, low - first, high - low))
    return _Batch(batch.table[first:last], batch.params, tuple(runs))
