"""When each cell of the lanes last changed: a hash of each is kept, and compared as steps go by."""

from __future__ import annotations

import struct
from typing import Any

from inspector.gpu.device import Gpu
from inspector.gpu.map_parts import Extra, Slots, bound
from inspector.gpu.map_pyramid import AGE_BYTES, ELEMENTS_A_GROUP, Levels
from inspector.gpu.memory import LaneMemory
from inspector.gpu.pipelines import Pipelines
from inspector.plan import WORKGROUP_SIZE, Access, split_grid
from inspector.stores import Lane

_AGE_WORDS, _CHANGED = AGE_BYTES // 4, 4
_HASH_SLOTS: tuple[tuple[int, Access], ...] = ((0, "read"), (1, "read_write"), (2, "uniform"))
_LOOK_SLOTS: tuple[tuple[int, Access], ...] = ((0, "read_write"), (1, "uniform"))
_SEEN, _BEGIN, _BACK = range(3)


class Ages:
    """Counts from the step in which it is made."""

    def __init__(self, gpu: Gpu, pipelines: Pipelines, memory: LaneMemory, levels: Levels) -> None:
        self._gpu = gpu
        self._pipelines = pipelines
        self._memory = memory
        self._levels = levels
        self._slots = Slots(gpu, "map ages", 16)
        self._ages: dict[Lane, Any] = {}
        self.since: dict[Lane, int] = {}
        """The step from which on each lane is counted: nothing is older."""

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        return sum(int(each.size) for each in self._ages.values()) + self._slots.nbytes

    def close(self) -> None:
        """Release the buffers."""
        for buffer in self._ages.values():
            self._gpu.drop(buffer)
        self._ages.clear()
        self._slots.close()

    def begin(self, lane: Lane, step: int) -> None:
        """Count a lane from `step` on, in which it was given what it holds now."""
        self._ages[lane] = self._gpu.storage("map ages", self._levels.counts[0] * AGE_BYTES)
        self.since[lane] = step
        self._look(lane, step, _BEGIN)

    def seen(self, lane: Lane, step: int) -> None:
        """The lane holds what step `step` gave it."""
        if lane in self._ages:
            self._look(lane, step, _SEEN)

    def back(self, lane: Lane, step: int) -> None:
        """The run has gone back to step `step`: what changed after it has changed by then at the latest."""
        if lane in self._ages:
            self.since[lane] = min(self.since[lane], step)
            self._look(lane, step, _BACK)

    def extra(self, lane: Lane) -> Extra:
        """The step in which each cell last changed."""
        buffer = self._ages[lane]
        shift = self._levels.sizes[0].bit_length() - 1
        return Extra(buffer, 0, int(buffer.size), 0, _CHANGED, shift, _AGE_WORDS)

    def _look(self, lane: Lane, step: int, how: int) -> None:
        gpu, ages = self._gpu, self._ages[lane]
        cell, count = self._levels.sizes[0], self._levels.counts[0]
        most = gpu.limits.max_compute_workgroups_per_dimension
        encoder = gpu.encoder()
        compute = encoder.begin_compute_pass(label="map ages")
        pipeline = self._pipelines.get("map_hash", "map_hash", _HASH_SLOTS, (("CELL", float(cell)),))
        for piece in self._memory.views(lane, 0, self._memory.end):
            if not piece.count:
                continue
            if piece.prepare is not None:
                piece.prepare(compute)
            low, high = piece.first, piece.first + piece.count
            ranges = [
                (piece.buffer, piece.offset, bound(piece.count)),
                (ages, 0, int(ages.size)),
                self._slots.put(struct.pack("<3I", piece.first, low, high)),
            ]
            compute.set_pipeline(pipeline)
            compute.set_bind_group(0, self._pipelines.bind(_HASH_SLOTS, ranges))
            groups = -(-(high - low // cell * cell) // ELEMENTS_A_GROUP)
            compute.dispatch_workgroups(*split_grid(groups, most))
        look = self._slots.put(struct.pack("<3I", count, step, how))
        compute.set_pipeline(self._pipelines.get("map_changed", "map_changed", _LOOK_SLOTS))
        compute.set_bind_group(0, self._pipelines.bind(_LOOK_SLOTS, [(ages, 0, int(ages.size)), look]))
        compute.dispatch_workgroups(*split_grid(-(-count // WORKGROUP_SIZE), most))
        compute.end()
        self._slots.write()
        gpu.submit(encoder)
