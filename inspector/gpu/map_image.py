"""Lanes of the map reduced to pixels on the GPU, from cells or close up from elements; only pixels are read back."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from inspector.errors import InspectorError
from inspector.gpu.device import Gpu
from inspector.gpu.map_parts import Part, Runs, Slots
from inspector.gpu.map_pyramid import PART_SLOTS, Levels, Pyramid, bound_part, constants, prepare
from inspector.gpu.pipelines import Pipelines
from inspector.mapping import Kind, MapPixels, MapRequest
from inspector.plan import WORKGROUP_SIZE, Access, split_grid

MAX_PIXELS = 1 << 22
"""Of a lane: their planes fit in the smallest binding that WebGPU promises."""
_PLANES = 5
_AT_A_TIME = 64 << 20
"""Bytes of pixels of one submission."""
_CELL_SLOTS: tuple[tuple[int, Access], ...] = ((0, "read"), (1, "read_write"), (2, "uniform"))
_ELEMENT_SLOTS: tuple[tuple[int, Access], ...] = (*PART_SLOTS, (4, "read_write"), (5, "uniform"))


@dataclass(frozen=True, slots=True)
class Job:
    """One lane as the pixels of one request: from the cells of `source`, or from its parts, as of `step`."""

    request: MapRequest
    source: Pyramid | tuple[Part, ...]
    step: int

    @property
    def words(self) -> int:
        """Of what is read back."""
        return _PLANES * self.request.width * self.request.rows


def check(request: MapRequest) -> None:
    """InspectorError where it asks for no pixels or for too many."""
    if not 0 < request.width * request.height <= MAX_PIXELS:
        raise InspectorError(
            f"A map of {request.width} by {request.height} pixels cannot be drawn: give 1 to {MAX_PIXELS:,} pixels."
        )


class PixelKernels:
    """Runs map_pixels and map_cell_pixels."""

    def __init__(self, gpu: Gpu, pipelines: Pipelines) -> None:
        self._gpu = gpu
        self._pipelines = pipelines
        self._views = Slots(gpu, "map views", 48)
        self._parts = Slots(gpu, "map view parts", 48)
        self._pixels: Any = None

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        pixels = int(self._pixels.size) if self._pixels is not None else 0
        return pixels + self._views.nbytes + self._parts.nbytes

    def close(self) -> None:
        """Release the buffers."""
        self._views.close()
        self._parts.close()
        if self._pixels is not None:
            self._gpu.release(self._pixels)
            self._pixels = None

    def run(self, jobs: Sequence[Job], kind: Kind, levels: Levels, runs: Runs) -> list[MapPixels]:
        """The pixels of every job; those that fit together after one submission and one wait."""
        found: list[MapPixels] = []
        batch: list[Job] = []
        limits = self._gpu.limits
        most = min(_AT_A_TIME, limits.max_buffer_size, limits.max_storage_buffer_binding_size)
        for job in jobs:
            if batch and 4 * sum(each.words for each in (*batch, job)) > most:
                found += self._batch(batch, kind, levels, runs)
                batch = []
            batch.append(job)
        return found + (self._batch(batch, kind, levels, runs) if batch else [])

    def _batch(self, jobs: Sequence[Job], kind: Kind, levels: Levels, runs: Runs) -> list[MapPixels]:
        words = sum(job.words for job in jobs)
        if self._pixels is None or self._pixels.size < 4 * words:
            if self._pixels is not None:
                self._gpu.release(self._pixels)
            self._pixels = self._gpu.storage("map pixels", 4 * words)
        encoder = self._gpu.encoder()
        encoder.clear_buffer(self._pixels, 0, 4 * words)
        compute = encoder.begin_compute_pass(label="map pixels")
        at = 0
        for job in jobs:
            if isinstance(job.source, Pyramid):
                self._from_cells(compute, job, job.source, at)
            else:
                for part in job.source:
                    prepare(compute, part)
                    self._from_elements(compute, job, part, (kind, levels), runs, at)
            at += job.words
        compute.end()
        self._views.write()
        self._parts.write()
        raw = self._gpu.read(self._pixels, 0, 4 * words, encoder).view(np.uint32)
        ends = np.cumsum([job.words for job in jobs])[:-1]
        return [
            _pixels(part, job.request, levels) for part, job in zip(np.split(raw, ends), jobs, strict=True)
        ]

    def _from_cells(self, compute: Any, job: Job, pyramid: Pyramid, to: int) -> None:
        cell = job.request.cell(pyramid.levels.sizes)
        view = self._view(job.request, pyramid.levels, pyramid.levels.start_of(cell), to)
        ranges = [(pyramid.cells, 0, pyramid.nbytes), (self._pixels, 0, int(self._pixels.size)), view]
        compute.set_pipeline(self._pipelines.get("map_cell_pixels", "map_cell_pixels", _CELL_SLOTS))
        compute.set_bind_group(0, self._pipelines.bind(_CELL_SLOTS, ranges))
        self._dispatch(compute, job.request)

    def _from_elements(
        self, compute: Any, job: Job, part: Part, what: tuple[Kind, Levels], runs: Runs, to: int
    ) -> None:
        kind, levels = what
        slots = constants(kind, levels.sizes[0])
        compute.set_pipeline(self._pipelines.get("map_pixels", "map_pixels", _ELEMENT_SLOTS, slots))
        ranges = bound_part(self._parts, part, runs, job.step)
        ranges += [(self._pixels, 0, int(self._pixels.size)), self._view(job.request, levels, 0, to)]
        compute.set_bind_group(0, self._pipelines.bind(_ELEMENT_SLOTS, ranges))
        self._dispatch(compute, job.request)

    def _view(self, request: MapRequest, levels: Levels, at: int, to: int) -> tuple[Any, int, int]:
        cell = 0 if request.elements_per_pixel <= 1 else request.cell(levels.sizes)
        size = request.width, request.height, request.rows
        return self._views.put(struct.pack("<11I", *request.fixed(), *size, cell, levels.end, at, to))

    def _dispatch(self, compute: Any, request: MapRequest) -> None:
        groups = -(-request.width * request.rows // WORKGROUP_SIZE)
        compute.dispatch_workgroups(
            *split_grid(groups, self._gpu.limits.max_compute_workgroups_per_dimension)
        )


def _pixels(raw: npt.NDArray[np.uint32], request: MapRequest, levels: Levels) -> MapPixels:
    planes = raw.reshape(_PLANES, request.rows, request.width)
    finite, nonfinite = planes[3].astype(np.float32), planes[4].astype(np.float32)
    figures = planes[:3].view(np.float32)
    figures[:, (planes[3] | planes[4]) == 0] = np.nan
    found = []
    for plane in (*figures, finite, nonfinite):
        plane.flags.writeable = False
        # A column no wider than an element has the same pixel throughout.
        found.append(np.broadcast_to(plane, (request.height, request.width)))
    low, high, mean, finite, nonfinite = found
    return MapPixels(low, high, mean, finite, nonfinite, request.cell(levels.sizes), levels.end)
