"""A rectangle of a matrix reduced to pixels on the GPU; only the pixels are read back."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from inspector.errors import InspectorError
from inspector.gpu.device import Gpu
from inspector.gpu.pieces import Piece
from inspector.gpu.pipelines import Pipelines
from inspector.layout import Segment
from inspector.looking import MatrixPixels, MatrixRequest
from inspector.plan import WORKGROUP_SIZE, Access, split_grid

_SLOTS: tuple[tuple[int, Access], ...] = ((0, "read"), (1, "read"), (2, "read_write"), (3, "uniform"))
_VIEW_BYTES = 64
MAX_PIXELS = 1 << 24


@dataclass(frozen=True, slots=True)
class Part:
    """Elements [start, stop) of the mega-buffer in a piece, and what they were before where that differs."""

    now: Piece
    before: Piece
    start: int
    stop: int


class MatrixKernel:
    """Runs matrix_pixels over the parts of a param."""

    def __init__(self, gpu: Gpu, pipelines: Pipelines) -> None:
        self._gpu = gpu
        self._pipelines = pipelines
        self._pixels: Any = None
        self._views: Any = None

    def close(self) -> None:
        """Release the buffers."""
        for buffer in (self._pixels, self._views):
            if buffer is not None:
                self._gpu.release(buffer)
        self._pixels = self._views = None

    def run(
        self, segment: Segment, request: MatrixRequest, parts: Iterable[Part], *, change: bool
    ) -> MatrixPixels:
        """The pixels of a rectangle, from the parts of its param; 0 where no part has any."""
        gpu, width, height = self._gpu, request.width, request.height
        count = width * height
        if not 0 < count <= MAX_PIXELS or request.columns < 1:
            raise InspectorError(
                f"An image of {width} by {height} pixels cannot be drawn: give 1 to {MAX_PIXELS:,} pixels."
            )
        if self._pixels is None or self._pixels.size < 8 * count:
            if self._pixels is not None:
                gpu.release(self._pixels)
            self._pixels = gpu.storage("matrix pixels", 8 * count)
        if self._views is None:
            self._views = gpu.uniform("matrix view", _VIEW_BYTES)
        pipeline = self._pipelines.get("matrix_pixels", "matrix_pixels", _SLOTS, (("CHANGE", float(change)),))
        groups = split_grid(-(-count // WORKGROUP_SIZE), gpu.limits.max_compute_workgroups_per_dimension)
        encoder = gpu.encoder()
        encoder.clear_buffer(self._pixels)
        for part in parts:
            gpu.submit(encoder)
            gpu.write(self._views, 0, _view(segment, request, part))
            encoder = gpu.encoder()
            compute = encoder.begin_compute_pass()
            for piece in {id(p): p for p in ((part.now, part.before) if change else (part.now,))}.values():
                if piece.prepare is not None:
                    piece.prepare(compute)
            compute.set_pipeline(pipeline)
            bound = [
                (part.now.buffer, part.now.offset, 4 * part.now.count),
                (part.before.buffer, part.before.offset, 4 * part.before.count),
                (self._pixels, 0, 8 * count),
                (self._views, 0, _VIEW_BYTES),
            ]
            compute.set_bind_group(0, self._pipelines.bind(_SLOTS, bound))
            compute.dispatch_workgroups(*groups)
            compute.end()
        raw = gpu.read(self._pixels, 0, 8 * count, encoder).view(np.float32).reshape(height, width, 2)
        values, nonfinite = raw[:, :, 0].copy(), raw[:, :, 1].copy()
        values.flags.writeable = nonfinite.flags.writeable = False
        return MatrixPixels(values, nonfinite)


def _view(segment: Segment, request: MatrixRequest, part: Part) -> np.ndarray[Any, np.dtype[np.uint8]]:
    left, top = max(request.left, 0.0), max(request.top, 0.0)
    whole = struct.pack(
        "<9I4f",
        part.start - segment.offset,
        part.stop - part.start,
        part.start - part.now.first,
        -(-segment.numel // request.columns),
        request.columns,
        request.width,
        request.height,
        int(left),
        int(top),
        left - int(left),
        top - int(top),
        request.across,
        request.down,
    )
    return np.frombuffer(whole.ljust(_VIEW_BYTES, b"\0"), np.uint8)
