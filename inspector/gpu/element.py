"""The lines of one element's update as the GPU computes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from inspector.codecs import BLOCK
from inspector.floats import F32Array
from inspector.gpu.device import Gpu
from inspector.gpu.memory import LaneMemory
from inspector.gpu.pipelines import Pipelines
from inspector.plan import Access, Dispatch
from inspector.stores import MOMENTS

LINES = 10
_SLOTS: tuple[tuple[int, Access], ...] = (
    *((slot, "read") for slot in range(5)),
    *((slot, "uniform") for slot in (5, 6, 7)),
    (8, "read_write"),
)


def element_lines(
    gpu: Gpu,
    pipelines: Pipelines,
    memory: LaneMemory,
    dispatch: Dispatch,
    element: int,
    rule: Sequence[str],
) -> F32Array:
    """The lines of the update of one element by `dispatch`, float32[10], from the buffers as they are.

    `rule` are the files of the optimizer's update.
    """
    coded = any(b.name == "m_packed" for b in dispatch.bindings)
    constants = (*dispatch.constants, ("CODED", float(coded)))
    pipeline = pipelines.get("explain", "explain", _SLOTS, constants, rule=rule)
    bound = {b.name: (memory.buffers[b.buffer], b.offset, b.bound_size) for b in dispatch.bindings}
    at = element - dispatch.elements[0]
    made: list[Any] = []
    of_moments = at
    if coded:
        # Of coded state only the block is needed, decoded.
        of_moments = at % BLOCK
        for lane in MOMENTS:
            block = memory.read(lane, element - of_moments, of_moments + 1)
            made.append(gpu.storage(f"explained {lane}", 4 * BLOCK))
            gpu.write(made[-1], 0, block)
            bound[lane] = (made[-1], 0, 4 * BLOCK)
    elif any(lane not in bound for lane in MOMENTS):
        # One that the optimizer does not keep is 0; both are read at one index.
        of_moments = 0
        for lane in MOMENTS:
            made.append(gpu.storage(f"explained {lane}", 16))
            gpu.write(made[-1], 0, memory.read(lane, element, 1))
            bound[lane] = (made[-1], 0, 16)
    index = gpu.uniform("explained index", 8)
    lines = gpu.storage("explained lines", 64)
    gpu.write(index, 0, np.array([at, of_moments], np.uint32))
    ranges = [bound[name] for name in ("w", "g", *MOMENTS, "grad_stats")]
    ranges += [(index, 0, 16), bound["hp"], bound["bias"], (lines, 0, 64)]
    encoder = gpu.encoder()
    compute = encoder.begin_compute_pass()
    compute.set_pipeline(pipeline)
    compute.set_bind_group(0, pipelines.bind(_SLOTS, ranges))
    compute.dispatch_workgroups(1)
    compute.end()
    values = gpu.read(lines, 0, 4 * LINES, encoder).view(np.float32)
    for buffer in (*made, index, lines):
        gpu.release(buffer)
    return values
