"""Seeded normal numbers written into the mega-buffers on the GPU, one scale and mean a param."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from inspector.gpu.device import Gpu
from inspector.gpu.pipelines import Pipelines
from inspector.layout import F32_BYTES, Layout
from inspector.plan import WORKGROUP_SIZE, Access, split_grid

_SLOTS: tuple[tuple[int, Access], ...] = ((0, "read_write"), (1, "uniform"), (2, "uniform"))
GRADIENT_STREAM = 0
WEIGHT_STREAM = 1


class Generator:
    """Fills one lane; the numbers depend on seed, step, stream and element alone."""

    def __init__(self, gpu: Gpu, pipelines: Pipelines, layout: Layout, chunk: int) -> None:
        self._gpu = gpu
        self._pipelines = pipelines
        self._pieces = [
            (segment, start, stop)
            for segment in layout
            for start, stop in layout.pieces(segment.offset, segment.stop, chunk)
        ]
        self._layout = layout
        self._alignment = max(gpu.limits.min_uniform_buffer_offset_alignment, 16)
        self._runs = gpu.uniform("generator runs", max(len(self._pieces), 1) * self._alignment)
        self._draw = gpu.uniform("generator draw", 16)
        self._written: Mapping[str, tuple[float, float]] | None = None
        self._groups: dict[str, list[Any]] = {}

    def close(self) -> None:
        """Release the buffers."""
        self._gpu.release(self._runs)
        self._gpu.release(self._draw)

    def fill(
        self,
        pages: list[Any],
        lane: str,
        normal: Mapping[str, tuple[float, float]],
        *,
        seed: int,
        step: int,
        stream: int,
    ) -> None:
        """Overwrite every param of `lane`, whose pages are `pages`; params not in `normal` become 0."""
        if self._written is not normal:
            runs = bytearray(self._runs.size)
            for i, (segment, start, stop) in enumerate(self._pieces):
                mean, scale = normal.get(segment.name, (0.0, 0.0))
                struct.pack_into("<IIff", runs, i * self._alignment, stop - start, start, scale, mean)
            self._gpu.write(self._runs, 0, np.frombuffer(runs, dtype=np.uint8))
            self._written = normal
        draw = np.array([seed & 0xFFFF_FFFF, step & 0xFFFF_FFFF, stream, 0], dtype=np.uint32)
        self._gpu.write(self._draw, 0, draw)
        encoder = self._gpu.encoder()
        compute = encoder.begin_compute_pass()
        compute.set_pipeline(self._pipelines.get("generate_normal", "generate_normal", _SLOTS))
        for (_, start, stop), group in zip(self._pieces, self._bind_groups(pages, lane), strict=True):
            compute.set_bind_group(0, group)
            threads = -(-(stop - start) // 4)
            grid = split_grid(
                -(-threads // WORKGROUP_SIZE), self._gpu.limits.max_compute_workgroups_per_dimension
            )
            compute.dispatch_workgroups(*grid)
        compute.end()
        self._gpu.submit(encoder)

    def _bind_groups(self, pages: list[Any], lane: str) -> list[Any]:
        if lane not in self._groups:
            size = self._layout.page_elements or max(self._layout.padded_elements, 1)
            self._groups[lane] = [
                self._pipelines.bind(
                    _SLOTS,
                    [
                        (
                            pages[start // size],
                            start % size * F32_BYTES,
                            -(-(stop - start) // 4) * 16,
                        ),
                        (self._runs, i * self._alignment, 16),
                        (self._draw, 0, 16),
                    ],
                )
                for i, (_, start, stop) in enumerate(self._pieces)
            ]
        return self._groups[lane]
