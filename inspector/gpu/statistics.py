"""Statistics of a buffer's range, counted on the GPU; only the counts are read back."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from inspector.gpu.device import Gpu
from inspector.gpu.pieces import Piece
from inspector.gpu.pipelines import Pipelines
from inspector.plan import Access
from inspector.statistics import BINS, BufferStats, NonFinite

_SLOTS: tuple[tuple[int, Access], ...] = ((0, "read"), (1, "read_write"), (2, "uniform"))
_WORDS = 264
_ZEROS, _NANS, _POSINFS, _NEGINFS, _FIRST, _LARGEST = range(256, 262)
_NONE = 0xFFFF_FFFF
_ELEMENTS_PER_GROUP = 4096
_MAX_GROUPS = 512


class StatsKernel:
    """Runs buffer_stats over pieces of a buffer."""

    def __init__(self, gpu: Gpu, pipelines: Pipelines) -> None:
        self._gpu = gpu
        self._pipelines = pipelines
        self._result = gpu.storage("statistics", 4 * _WORDS)
        self._ranges = gpu.uniform("statistics ranges", 256 * 64)
        start = np.zeros(_WORDS, np.uint32)
        start[_FIRST] = _NONE
        self._start = start

    def close(self) -> None:
        """Release the buffers."""
        self._gpu.release(self._result)
        self._gpu.release(self._ranges)

    def run(self, pieces: Iterable[Piece], *, histogram: bool = True, padding: int = 0) -> BufferStats:
        """Statistics over all pieces; `padding` zeros in them belong to no param and are left out.

        Without `histogram` the exponent counts are all zero; the rest is cheaper and the same.
        """
        pieces = [piece for piece in pieces if piece.count]
        alignment = max(self._gpu.limits.min_uniform_buffer_offset_alignment, 16)
        if len(pieces) * alignment > self._ranges.size:
            self._gpu.release(self._ranges)
            self._ranges = self._gpu.uniform("statistics ranges", len(pieces) * alignment)
        ranges = np.zeros((max(len(pieces), 1), alignment // 4), np.uint32)
        for row, piece in zip(ranges, pieces, strict=False):
            row[:2] = piece.count, piece.first
        self._gpu.write(self._ranges, 0, ranges)
        self._gpu.write(self._result, 0, self._start)
        pipeline = self._pipelines.get(
            "buffer_stats", "buffer_stats", _SLOTS, (("HISTOGRAM", float(histogram)),)
        )
        encoder = self._gpu.encoder()
        compute = encoder.begin_compute_pass()
        for i, piece in enumerate(pieces):
            values = (piece.buffer, piece.offset, -(-piece.count // 4) * 16)
            group = self._pipelines.bind(
                _SLOTS, [values, (self._result, 0, 4 * _WORDS), (self._ranges, i * alignment, 8)]
            )
            if piece.prepare is not None:
                piece.prepare(compute)
            compute.set_pipeline(pipeline)
            compute.set_bind_group(0, group)
            compute.dispatch_workgroups(min(-(-piece.count // _ELEMENTS_PER_GROUP), _MAX_GROUPS))
        compute.end()
        words = self._gpu.read(self._result, 0, 4 * _WORDS, encoder).view(np.uint32)
        counts = words[:BINS].copy()
        counts.flags.writeable = False
        first = int(words[_FIRST])
        return BufferStats(
            count=sum(piece.count for piece in pieces) - padding,
            zeros=int(words[_ZEROS]) - padding,
            nonfinite=NonFinite(
                nan=int(words[_NANS]),
                posinf=int(words[_POSINFS]),
                neginf=int(words[_NEGINFS]),
                first=None if first == _NONE else first,
            ),
            max_abs=float(words[_LARGEST : _LARGEST + 1].view(np.float32)[0]),
            exponents=counts,
        )
