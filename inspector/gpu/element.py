"""The lines of one element's update as the GPU computes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from inspector.explaining import LINES, ElementValues
from inspector.floats import F32Array
from inspector.gpu.device import Gpu
from inspector.gpu.pipelines import Pipelines
from inspector.layout import F32_BYTES
from inspector.plan import Access
from inspector.stores import LANES

_SLOTS: tuple[tuple[int, Access], ...] = (
    *((slot, "read") for slot in range(5)),
    *((slot, "uniform") for slot in (5, 6, 7)),
    (8, "read_write"),
)
_APART = 256
"""Bytes between what is bound of one buffer: what any device binds at."""
COPIES = 8
"""How often the kernel is given the element."""


def element_lines(
    gpu: Gpu,
    pipelines: Pipelines,
    values: ElementValues,
    *,
    clip_scale: float,
    hp: F32Array,
    bias: F32Array,
    constants: Sequence[tuple[str, float]],
    rule: Sequence[str] | None = None,
) -> F32Array:
    """The lines of the update of one element, float32[10], from its values: nothing of the run is read or written.

    `hp` and `bias` are the uniforms of its param, λ being 0 where it is not decayed; `constants` those of the
    kernel; `rule` are the files with the update of its optimizer, Adam's if left out.
    """
    pipeline = pipelines.get("explain", "explain", _SLOTS, tuple(constants), rule=rule)
    given: list[F32Array] = [values.as_arrays()[lane] for lane in LANES]
    given.append(np.array([0.0, clip_scale], np.float32))
    read = gpu.storage("explained element", _APART * len(given))
    used = gpu.uniform("explained settings", _APART * 3)
    lines = gpu.storage("explained lines", 64)
    for i, array in enumerate(given):
        # Bits, so that a signalling NaN stays one.
        bits = array.view(np.uint32)
        gpu.write(read, i * _APART, np.repeat(bits, COPIES) if i < len(LANES) else bits)
    for i, uniform in enumerate((np.zeros(2, np.uint32), hp, bias)):
        gpu.write(used, i * _APART, uniform.view(np.uint32))
    ranges: list[tuple[Any, int, int]] = [(read, i * _APART, COPIES * F32_BYTES) for i in range(len(given))]
    ranges += [(used, i * _APART, nbytes) for i, nbytes in enumerate((16, 32, 16))]
    encoder = gpu.encoder()
    compute = encoder.begin_compute_pass()
    compute.set_pipeline(pipeline)
    compute.set_bind_group(0, pipelines.bind(_SLOTS, [*ranges, (lines, 0, 64)]))
    compute.dispatch_workgroups(1)
    compute.end()
    found = gpu.read(lines, 0, 4 * LINES, encoder).view(np.float32)
    for buffer in (read, used, lines):
        gpu.release(buffer)
    return found
