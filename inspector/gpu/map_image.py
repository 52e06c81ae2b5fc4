"""A lane of the map reduced to pixels on the GPU; only the pixels are read back."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from typing import Any

import numpy as np

from inspector.errors import InspectorError
from inspector.gpu.device import Gpu
from inspector.gpu.memory import Piece
from inspector.gpu.pipelines import Pipelines
from inspector.layout import Layout
from inspector.plan import WORKGROUP_SIZE, Access, split_grid
from inspector.stepping import MapPixels, MapRequest

_SLOTS: tuple[tuple[int, Access], ...] = ((0, "read"), (1, "read"), (2, "read_write"), (3, "uniform"))
_VIEW_BYTES = 32
MAX_PIXELS = 1 << 24


class MapKernel:
    """Runs map_pixels over the pieces of a lane that are in view."""

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
        self, layout: Layout, request: MapRequest, pairs: Iterable[tuple[Piece, Piece]], *, change: bool
    ) -> MapPixels:
        """The pixels of one lane, from what it is and what it was before, of the same elements."""
        width, height = request.width, request.height
        count = width * height
        if not 0 < count <= MAX_PIXELS:
            raise InspectorError(
                f"A map of {width} by {height} pixels cannot be drawn: give 1 to {MAX_PIXELS:,} pixels."
            )
        if self._pixels is None or self._pixels.size < 8 * count:
            if self._pixels is not None:
                self._gpu.release(self._pixels)
            self._pixels = self._gpu.storage("map pixels", 8 * count)
        pieces = [pair for pair in pairs if pair[0].count]
        alignment = max(self._gpu.limits.min_uniform_buffer_offset_alignment, _VIEW_BYTES)
        if self._views is None or self._views.size < len(pieces) * alignment:
            if self._views is not None:
                self._gpu.release(self._views)
            self._views = self._gpu.uniform("map views", max(len(pieces), 16) * alignment)
        start = max(request.start, 0.0)
        views = bytearray(len(pieces) * alignment)
        for i, (piece, _) in enumerate(pieces):
            fields = (
                piece.first,
                piece.count,
                int(start),
                start - int(start),
                request.elements_per_pixel,
                width,
                height,
            )
            struct.pack_into("<IIIffII", views, i * alignment, *fields)
        self._gpu.write(self._views, 0, np.frombuffer(views, dtype=np.uint8))

        encoder = self._gpu.encoder()
        encoder.clear_buffer(self._pixels)
        compute = encoder.begin_compute_pass()
        pipeline = self._pipelines.get("map_pixels", "map_pixels", _SLOTS, (("CHANGE", float(change)),))
        groups = split_grid(
            -(-count // WORKGROUP_SIZE), self._gpu.limits.max_compute_workgroups_per_dimension
        )
        for i, (now, before) in enumerate(pieces):
            for piece in (now, before) if change else (now,):
                if piece.prepare is not None:
                    piece.prepare(compute)
            compute.set_pipeline(pipeline)
            ranges = [
                (now.buffer, now.offset, 4 * now.count),
                (before.buffer, before.offset, 4 * now.count),
                (self._pixels, 0, 8 * count),
                (self._views, i * alignment, _VIEW_BYTES),
            ]
            compute.set_bind_group(0, self._pipelines.bind(_SLOTS, ranges))
            compute.dispatch_workgroups(*groups)
        compute.end()
        raw = self._gpu.read(self._pixels, 0, 8 * count, encoder).view(np.float32)
        columns = raw.reshape(width, height, 2)
        values = columns[:, :, 0].copy()
        blank_gaps(values.reshape(-1), layout, request)
        values = np.ascontiguousarray(values.T)
        nonfinite = np.ascontiguousarray(columns[:, :, 1].T)
        if request.quantity == "magnitude":
            np.abs(values, out=values)
        values.flags.writeable = nonfinite.flags.writeable = False
        return MapPixels(values, nonfinite)


def blank_gaps(pixels: np.ndarray[Any, np.dtype[np.float32]], layout: Layout, request: MapRequest) -> None:
    """Set to NaN the pixels, numbered down each column, that cover no element of any param."""
    per_pixel = request.elements_per_pixel
    run = per_pixel / request.height if per_pixel > 1 else per_pixel
    group = 1 if per_pixel > 1 else request.height
    start = max(request.start, 0.0)

    def blank(low: float, high: float) -> None:
        """Blank the pixels whose elements all lie in [low, high)."""
        middle = 0.5 if group > 1 else 0.0
        first = max(math.ceil((low - start) / run - middle), 0)
        last = math.floor((high - start) / run) if run > 1 else math.ceil((high - start) / run - middle)
        if last > first:
            pixels[first * group : last * group] = np.nan

    stop = start + request.width * per_pixel
    end = max((s.stop for s in layout.segments), default=0)
    if stop > end:
        blank(end, stop + per_pixel)
    if run >= layout.align:
        return
    at = None
    for segment in layout.between(int(start), math.ceil(stop)):
        if at is not None and segment.offset > at:
            blank(at, segment.offset)
        at = max(at or 0, segment.stop)
