"""8-bit codes of m and v turned into float32 on the GPU, for what looks at them, and float32 into codes."""

from __future__ import annotations

from typing import Any

import numpy as np

from inspector.codecs import Codec, Which
from inspector.gpu.device import Gpu
from inspector.gpu.pipelines import Pipelines
from inspector.gpu.pipelines_8bit import CODER_CONSTANTS, DECODE_SLOTS, ELEMENTS_A_GROUP, ENCODE_SLOTS
from inspector.plan import split_grid

Range = tuple[Any, int]
"""A buffer and the byte offset in it."""

_SLOTS_A_BUFFER = 512


class Coder:
    """Records decode_8bit and encode_8bit into passes, the values being float32 in a buffer of one's own."""

    def __init__(self, gpu: Gpu, pipelines: Pipelines, codec: Codec) -> None:
        self._gpu = gpu
        self._pipelines = pipelines
        self._constants = CODER_CONSTANTS[codec]
        self._align = max(gpu.limits.min_uniform_buffer_offset_alignment, 16)
        self._what: list[Any] = []
        self._slots: dict[tuple[int, Which], Range] = {}

    def close(self) -> None:
        """Release the buffers."""
        for buffer in self._what:
            self._gpu.release(buffer)

    def decode(self, compute: Any, which: Which, codes: Range, scales: Range, values: Range, n: int) -> None:
        """In the pass `compute`, write the `n` float32 values of codes to `values`; sets pipeline and bind group."""
        pipeline = self._pipelines.get("decode_8bit", "decode_8bit", DECODE_SLOTS, self._constants)
        self._record(compute, pipeline, DECODE_SLOTS, which, codes, scales, values, n)

    def encode(self, compute: Any, which: Which, codes: Range, scales: Range, values: Range, n: int) -> None:
        """The other way: codes and scales of `n` values from the start of a block; what follows in it counts as 0."""
        pipeline = self._pipelines.get("encode_8bit", "encode_8bit", ENCODE_SLOTS, self._constants)
        self._record(compute, pipeline, ENCODE_SLOTS, which, codes, scales, values, n)

    def _record(
        self,
        compute: Any,
        pipeline: Any,
        slots: Any,
        which: Which,
        codes: Range,
        scales: Range,
        values: Range,
        n: int,
    ) -> None:
        blocks = -(-n // 256)
        ranges = [
            (*codes, -(-n // 16) * 16),
            (*scales, -(-4 * blocks // 16) * 16),
            (*values, -(-n // 4) * 16),
            (*self._slot(n, which), 8),
        ]
        compute.set_pipeline(pipeline)
        compute.set_bind_group(0, self._pipelines.bind(slots, ranges))
        groups = -(-n // ELEMENTS_A_GROUP)
        compute.dispatch_workgroups(
            *split_grid(groups, self._gpu.limits.max_compute_workgroups_per_dimension)
        )

    def _slot(self, n: int, which: Which) -> Range:
        """Where the uniform of such a range stands. Never written over, since what was recorded may not have run."""
        if (n, which) not in self._slots:
            at = len(self._slots) % _SLOTS_A_BUFFER * self._align
            if at == 0:
                self._what.append(self._gpu.uniform("coded ranges", _SLOTS_A_BUFFER * self._align))
            self._gpu.write(self._what[-1], at, np.array([n, which == "v"], np.uint32))
            self._slots[n, which] = self._what[-1], at
        return self._slots[n, which]
