"""The pyramid of the map: each lane reduced to cells, those to larger cells, kept up to date where the lane changes."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from inspector.gpu.device import Gpu
from inspector.gpu.map_parts import Part, Runs, Slots, bound
from inspector.gpu.pipelines import Pipelines
from inspector.gpu.timing import Timer
from inspector.mapping import CELL, CELLS_A_CELL, Kind, level_sizes
from inspector.plan import WORKGROUP_SIZE, Access, Limits, split_grid

CELL_BYTES = 20
AGE_BYTES = 24
"""Of a lowest cell, where it is kept when it last changed."""
ELEMENTS_A_GROUP = 16 * WORKGROUP_SIZE
MAX_CELL = 4096
"""What a workgroup of `map_cells` looks at."""
MAX_RANGES = 32
"""Stale ranges that are kept apart."""
KIND_NUMBER: dict[Kind, int] = {
    "value": 0, "change": 1, "step_change": 1, "update": 2, "age": 3, "coding_error": 4,
}  # fmt: skip

PART_SLOTS: tuple[tuple[int, Access], ...] = ((0, "read"), (1, "read"), (2, "read"), (3, "uniform"))
_CELL_SLOTS: tuple[tuple[int, Access], ...] = (*PART_SLOTS, (4, "read_write"))
_LEVEL_SLOTS: tuple[tuple[int, Access], ...] = ((0, "read_write"), (1, "uniform"))


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels over `end` elements, the lowest first: elements of a cell, cells, and where each level begins."""

    end: int
    sizes: tuple[int, ...]
    counts: tuple[int, ...]
    starts: tuple[int, ...]

    @classmethod
    def over(cls, end: int, limits: Limits) -> Levels:
        """Levels whose cells one binding can hold."""
        most = min(limits.max_storage_buffer_binding_size, limits.max_buffer_size)
        cell = CELL
        while True:
            sizes = level_sizes(end, cell)
            counts = tuple(-(-end // size) for size in sizes)
            if max(sum(counts) * CELL_BYTES, counts[0] * AGE_BYTES) <= most or cell == MAX_CELL:
                starts = tuple(accumulate(counts, initial=0))[:-1]
                return cls(end, sizes, counts, starts)
            cell *= CELLS_A_CELL

    @property
    def cells(self) -> int:
        """Cells of all levels."""
        return sum(self.counts)

    def start_of(self, size: int) -> int:
        """Where the level begins whose cells have so many elements."""
        return self.starts[self.sizes.index(size)]


class Stale:
    """Ranges of elements that are out of date, apart from each other and in order."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []

    def add(self, start: int, stop: int) -> None:
        """[start, stop) is out of date as well."""
        if start >= stop:
            return
        apart = [each for each in self._ranges if each[1] < start or each[0] > stop]
        near = [each for each in self._ranges if not (each[1] < start or each[0] > stop)]
        joined = min([start, *(low for low, _ in near)]), max([stop, *(high for _, high in near)])
        self._ranges = sorted([*apart, joined])
        if len(self._ranges) > MAX_RANGES:
            # One pass over all costs less than many over parts.
            self._ranges = [(self._ranges[0][0], self._ranges[-1][1])]

    def take(self) -> tuple[tuple[int, int], ...]:
        """All of them; nothing is out of date any more."""
        taken, self._ranges = tuple(self._ranges), []
        return taken

    def __bool__(self) -> bool:
        return bool(self._ranges)


class Pyramid:
    """The cells of one lane on the device."""

    def __init__(self, gpu: Gpu, levels: Levels) -> None:
        self._gpu = gpu
        self.levels = levels
        self.stale = Stale()
        self.cells = gpu.storage("map cells", levels.cells * CELL_BYTES)
        self.stale.add(0, levels.end)

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        return int(self.cells.size)

    def close(self) -> None:
        """Release the cells."""
        self._gpu.drop(self.cells)


class PyramidKernels:
    """Brings pyramids up to date."""

    def __init__(self, gpu: Gpu, pipelines: Pipelines) -> None:
        self._gpu = gpu
        self._pipelines = pipelines
        self._parts = Slots(gpu, "map parts", 48)
        self._levels = Slots(gpu, "map levels", 32)
        self.timer: Timer | None = None
        """Where set, `ms` holds what each level took the last time; None where the device has no clock."""
        self.ms: tuple[float | None, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        return self._parts.nbytes + self._levels.nbytes

    def close(self) -> None:
        """Release the buffers."""
        self._parts.close()
        self._levels.close()

    def refresh(self, pyramid: Pyramid, kind: Kind, parts: Iterable[Part], runs: Runs, step: int) -> None:
        """Work the cells out anew whose elements are out of date; does not wait."""
        levels = pyramid.levels
        cell = levels.sizes[0]
        ranges = [
            (low // cell * cell, min(-(-high // cell) * cell, levels.end))
            for low, high in pyramid.stale.take()
        ]
        if not ranges:
            return
        encoder = self._gpu.encoder()
        for low, high in ranges:
            first, last = low // cell, -(-high // cell)
            encoder.clear_buffer(pyramid.cells, first * CELL_BYTES, (last - first) * CELL_BYTES)
        compute = self._pass(encoder, 0)
        for part in parts:
            cuts = [cut for cut in (part.cut(low, high) for low, high in ranges) if cut is not None]
            if cuts:
                prepare(compute, part)
            for cut in cuts:
                self._run_cells(compute, pyramid, kind, cut, runs, step)
        compute.end()
        for level in range(1, len(levels.sizes)):
            compute = self._pass(encoder, level)
            for low, high in ranges:
                self._run_level(compute, pyramid, level, low, high)
            compute.end()
        self._parts.write()
        self._levels.write()
        if self.timer is None:
            self._gpu.submit(encoder)
            return
        self.timer.resolve(encoder, len(levels.sizes))
        self.ms = tuple(ms for _, ms in self.timer.spans_ms(len(levels.sizes), encoder))

    def _pass(self, encoder: Any, level: int) -> Any:
        writes = None if self.timer is None else self.timer.writes(level)
        return encoder.begin_compute_pass(label=f"map level {level}", timestamp_writes=writes)

    def _run_cells(
        self, compute: Any, pyramid: Pyramid, kind: Kind, part: Part, runs: Runs, step: int
    ) -> None:
        cell = pyramid.levels.sizes[0]
        compute.set_pipeline(
            self._pipelines.get("map_cells", "map_cells", _CELL_SLOTS, constants(kind, cell))
        )
        ranges = bound_part(self._parts, part, runs, step)
        ranges.append((pyramid.cells, 0, pyramid.nbytes))
        compute.set_bind_group(0, self._pipelines.bind(_CELL_SLOTS, ranges))
        groups = -(-(part.high - part.low // cell * cell) // ELEMENTS_A_GROUP)
        compute.dispatch_workgroups(
            *split_grid(groups, self._gpu.limits.max_compute_workgroups_per_dimension)
        )

    def _run_level(self, compute: Any, pyramid: Pyramid, level: int, low: int, high: int) -> None:
        levels = pyramid.levels
        size = levels.sizes[level]
        first, stop = low // size, -(-high // size)
        fields = (levels.starts[level - 1], levels.counts[level - 1], levels.starts[level], first, stop)
        ranges = [(pyramid.cells, 0, pyramid.nbytes), self._levels.put(struct.pack("<5I", *fields))]
        compute.set_pipeline(self._pipelines.get("map_levels", "map_levels", _LEVEL_SLOTS))
        compute.set_bind_group(0, self._pipelines.bind(_LEVEL_SLOTS, ranges))
        groups = -(-(stop - first) // WORKGROUP_SIZE)
        compute.dispatch_workgroups(
            *split_grid(groups, self._gpu.limits.max_compute_workgroups_per_dimension)
        )


def constants(kind: Kind, cell: int) -> tuple[tuple[str, float], ...]:
    """Those of the kernels that look at elements."""
    return ("KIND", float(KIND_NUMBER[kind])), ("CELL", float(cell))


def prepare(compute: Any, part: Part) -> None:
    """Have the float32 values of coded state in place."""
    for piece in (part.now, part.before):
        if piece is not None and piece.prepare is not None:
            piece.prepare(compute)


def bound_part(slots: Slots, part: Part, runs: Runs, step: int) -> list[tuple[Any, int, int]]:
    """What `PART_SLOTS` bind for it."""
    extra = part.extra
    fields = (
        part.now.first,
        part.low,
        part.high,
        runs.count,
        runs.covering(part.low, part.high),
        extra.first,
        extra.at,
        extra.shift,
        extra.stride,
        step,
    )
    return [
        (part.now.buffer, part.now.offset, bound(part.now.count)),
        (extra.buffer, extra.offset, extra.nbytes),
        (runs.buffer, 0, runs.nbytes),
        slots.put(struct.pack("<10I", *fields)),
    ]
