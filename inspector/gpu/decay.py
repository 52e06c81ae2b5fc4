"""The decay that each element received, kept on the GPU beside a run; only bins of it are read back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from inspector.decay import X_BINS, Y_BINS, DecayBins, DecayGrid, DecaySums
from inspector.errors import InspectorError, UsageError
from inspector.gpu.device import Gpu, explained
from inspector.gpu.memory import LaneMemory
from inspector.gpu.pipelines import Pipelines
from inspector.gpu.segment_uniforms import SegmentUniforms
from inspector.hyper import Hyper
from inspector.plan import WORKGROUP_SIZE, Access, split_grid
from inspector.stores import LANES

_ADD_SLOTS: tuple[tuple[int, Access], ...] = (
    *((k, "read") for k in range(5)),
    (5, "read_write"),
    (6, "uniform"),
)
_BIN_SLOTS: tuple[tuple[int, Access], ...] = ((5, "read_write"), (6, "uniform"), (7, "read_write"))
_SUM_BYTES = 16
_SETTINGS_BYTES = 80
_BINS = X_BINS * Y_BINS
_WORDS = _BINS + 4
_ALIGN = 16_384
"""Elements at whose multiples a part may begin."""

Constants = tuple[tuple[str, float], ...]
Uniforms = Callable[[Hyper], tuple[Constants, SegmentUniforms]]
"""Constants of the update to come and what each segment takes it with; UsageError but right before it."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Elements [start, stop) of one binding of each lane, the segment whose settings they take, and their sums."""

    start: int
    stop: int
    segment: int
    sums: Any

    @property
    def size(self) -> int:
        return self.stop - self.start


class GpuDecayMeter:
    """See `inspector.decay.DecayMeter`. Made between steps; `uniforms` are those of the stepper's next update."""

    def __init__(
        self,
        gpu: Gpu,
        pipelines: Pipelines,
        memory: LaneMemory,
        uniforms: Uniforms,
        *,
        classes: tuple[int, ...] | None,
    ) -> None:
        """`classes` where params have settings of their own: all params are watched then, else those that decay."""
        self._gpu = gpu
        self._pipelines = pipelines
        self._memory = memory
        self._uniforms = uniforms
        self._classes = classes
        self._steps = 0
        self._parts: list[_Part] = []
        self._owned: list[Any] = []
        self._align = max(gpu.limits.min_uniform_buffer_offset_alignment, 128)
        try:
            for start, stop, segment in _ranges(memory, gpu, classes):
                sums = self._made(gpu.storage("decay sums", (stop - start) * _SUM_BYTES))
                self._parts.append(_Part(start, stop, segment, sums))
            self._settings = self._made(gpu.uniform("decay", max(len(self._parts), 1) * self._align))
            self._bins = self._made(gpu.storage("decay bins", 4 * _WORDS))
        except InspectorError:
            self.close()
            raise
        watched = [s for s in memory.layout.segments if classes is not None or s.block == "wd"]
        self.elements = sum(s.numel for s in watched)
        self._gaps = sum(part.size for part in self._parts) - self.elements

    def _made(self, buffer: Any) -> Any:
        self._owned.append(buffer)
        return buffer

    @property
    def nbytes(self) -> int:
        """Bytes that it takes on the device."""
        return sum(int(buffer.size) for buffer in self._owned)

    def close(self) -> None:
        """Release the buffers."""
        while self._owned:
            self._gpu.release(self._owned.pop())

    def clear(self) -> None:
        """All sums 0."""
        encoder = self._gpu.encoder()
        for part in self._parts:
            encoder.clear_buffer(part.sums)
        self._gpu.submit(encoder)
        self._steps = 0

    def add(self, hyper: Hyper) -> None:
        """Add the update to come."""
        constants, uniforms = self._uniforms(hyper)
        if (self._classes is None) != (uniforms.of is None):
            raise UsageError("params have settings of their own now, or no longer: watch the decay anew.")
        settings = np.zeros((max(len(self._parts), 1), self._align // 4), np.uint32)
        for row, part in zip(settings, self._parts, strict=False):
            used = 0 if uniforms.of is None else uniforms.of[part.segment]
            row[0:12] = uniforms.rows[used].view(np.uint32)
            row[16] = part.size
        self._gpu.write(self._settings, 0, settings)
        own = [each for each in constants if each[0] != "CODEC"]
        pipeline = self._pipelines.get("decay", "add_decay", _ADD_SLOTS, own)
        encoder = self._gpu.encoder()
        with explained("adding up the decay"):
            compute = encoder.begin_compute_pass(label="add_decay")
            compute.set_pipeline(pipeline)
            for i, part in enumerate(self._parts):
                views = [next(self._memory.views(lane, part.start, part.stop)) for lane in LANES]
                nbytes = -(-part.size // 4) * 16
                ranges = [(view.buffer, view.offset, nbytes) for view in views]
                ranges.append((self._memory.buffers["grad_stats"], 0, 8))
                ranges += [(part.sums, 0, part.size * _SUM_BYTES), self._row(i)]
                compute.set_bind_group(0, self._pipelines.bind(_ADD_SLOTS, ranges))
                self._dispatch(compute, -(-part.size // 4))
            compute.end()
        self._gpu.submit(encoder)
        self._steps += 1

    def bins(self, grid: DecayGrid) -> DecayBins:
        """Sort the elements into bins."""
        settings = np.zeros((max(len(self._parts), 1), self._align // 4), np.uint32)
        for row, part in zip(settings, self._parts, strict=False):
            row[12:16] = np.array([grid.x0, grid.dx, grid.y0, grid.dy], np.float32).view(np.uint32)
            row[16] = part.size
            row[17:18] = np.array([max(self._steps, 1)], np.float32).view(np.uint32)
        self._gpu.write(self._settings, 0, settings)
        pipeline = self._pipelines.get("decay", "bin_decay", _BIN_SLOTS)
        encoder = self._gpu.encoder()
        encoder.clear_buffer(self._bins)
        with explained("sorting the decay into bins"):
            compute = encoder.begin_compute_pass(label="bin_decay")
            compute.set_pipeline(pipeline)
            for i, part in enumerate(self._parts):
                ranges = [(part.sums, 0, part.size * _SUM_BYTES), self._row(i), (self._bins, 0, 4 * _WORDS)]
                compute.set_bind_group(0, self._pipelines.bind(_BIN_SLOTS, ranges))
                self._dispatch(compute, part.size)
            compute.end()
        words = self._gpu.read(self._bins, 0, 4 * _WORDS, encoder).view(np.uint32)
        counts = words[:_BINS].reshape(X_BINS, Y_BINS).copy()
        counts.flags.writeable = False
        undecayed, silent, against, outside = words[_BINS:].tolist()
        # The gaps between params are 0 throughout.
        return DecayBins(grid, self._steps, counts, undecayed - self._gaps, silent, against, outside)

    def read(self, param: str) -> DecaySums:
        """The sums of a param that is watched, float32 [numel] each, read back."""
        segment = self._memory.layout[param]
        found = []
        for part in self._parts:
            low, high = max(part.start, segment.offset), min(part.stop, segment.stop)
            if low < high:
                at = (low - part.start) * _SUM_BYTES
                found.append(self._gpu.read(part.sums, at, (high - low) * _SUM_BYTES).view(np.float32))
        sums = np.concatenate(found).reshape(-1, 4)
        return DecaySums(*(sums[:, k].copy() for k in range(4)))

    def _row(self, number: int) -> tuple[Any, int, int]:
        return self._settings, number * self._align, _SETTINGS_BYTES

    def _dispatch(self, compute: Any, threads: int) -> None:
        limit = self._gpu.limits.max_compute_workgroups_per_dimension
        compute.dispatch_workgroups(*split_grid(-(-threads // WORKGROUP_SIZE), limit))


def _ranges(memory: LaneMemory, gpu: Gpu, classes: tuple[int, ...] | None) -> Iterator[tuple[int, int, int]]:
    """Elements [start, stop) that one binding of each lane and of the sums holds, and a segment of theirs."""
    binding = min(gpu.limits.max_storage_buffer_binding_size, gpu.limits.max_buffer_size)
    most = max(binding // _SUM_BYTES // _ALIGN * _ALIGN, _ALIGN)
    watched = [(i, s) for i, s in enumerate(memory.layout.segments) if classes is not None or s.block == "wd"]
    if classes is None:
        # Those that decay lie next to each other.
        ends = [(watched[0][0], watched[0][1].offset, watched[-1][1].stop)] if watched else []
    else:
        # Which params take a step alike may change from step to step.
        ends = [(i, s.offset, s.stop) for i, s in watched]
    for number, start, stop in ends:
        for low, high in memory.spans():
            for at in range(max(low, start), min(high, stop), most):
                yield at, min(at + most, high, stop), number
