"""The mirror of w in half precision that some plans keep: made anew from w, and read back."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from inspector.gpu.device import Gpu
from inspector.gpu.memory import LaneMemory
from inspector.gpu.pipelines import Pipelines
from inspector.plan import WORKGROUP_SIZE, Access, split_grid
from inspector.stores import pieces, store_at


def mirror_weights(gpu: Gpu, pipelines: Pipelines, memory: LaneMemory) -> None:
    """Where the plan keeps a half-precision mirror, make it what the weights are now."""
    if memory.plan.variant.kernel != "f16":
        return
    slots: tuple[tuple[int, Access], ...] = ((0, "read"), (1, "read_write"), (2, "uniform"))
    pipeline = pipelines.get("cast_f32_to_f16", "cast_f32_to_f16", slots)
    size = gpu.uniform("mirrored elements", 4)
    for piece in memory.views("w", 0, memory.end):
        name, offset = _place_of(memory, piece.first)
        nbytes = -(-piece.count // 4) * 16
        ranges = [
            (piece.buffer, piece.offset, nbytes),
            (memory.buffers[name], offset, nbytes // 2),
            (size, 0, 16),
        ]
        gpu.write(size, 0, np.array([piece.count], np.uint32))
        encoder = gpu.encoder()
        compute = encoder.begin_compute_pass()
        compute.set_pipeline(pipeline)
        compute.set_bind_group(0, pipelines.bind(slots, ranges))
        groups = -(-piece.count // (4 * WORKGROUP_SIZE))
        compute.dispatch_workgroups(
            *split_grid(groups, memory.plan.limits.max_compute_workgroups_per_dimension)
        )
        compute.end()
        gpu.submit(encoder)
    gpu.drop(size)


def half_weights(gpu: Gpu, memory: LaneMemory) -> dict[str, npt.NDArray[np.float16]]:
    """The half-precision mirror by param name, each flat; KeyError where the plan keeps none."""
    out: dict[str, npt.NDArray[np.float16]] = {}
    for segment in memory.layout:
        parts = []
        for _, low, high in pieces(memory.layout, "w", segment.offset, segment.stop):
            name, offset = _place_of(memory, low)
            # Read in whole words: a part may end in the middle of one.
            raw = gpu.read(memory.buffers[name], offset, -(-(high - low) * 2 // 4) * 4)
            parts.append(raw.view(np.float16)[: high - low])
        out[segment.name] = np.concatenate(parts) if parts else np.zeros(0, np.float16)
    return out


def half_at(gpu: Gpu, memory: LaneMemory, start: int, count: int) -> npt.NDArray[np.uint16] | None:
    """The bits of the half-precision mirror of w, uint16 [count], from element `start` on; None where there is none."""
    if memory.plan.variant.kernel != "f16":
        return None
    out = np.zeros(count, np.uint16)
    for _, low, high in pieces(memory.layout, "w", start, start + count):
        head = low % 2
        name, offset = _place_of(memory, low - head)
        raw = gpu.read(memory.buffers[name], offset, -(-(head + high - low) * 2 // 4) * 4)
        out[low - start : high - start] = raw.view(np.uint16)[head : head + high - low]
    return out


def _place_of(memory: LaneMemory, element: int) -> tuple[str, int]:
    """The buffer of the mirror that holds an element, and the byte offset in it."""
    store = store_at(memory.layout, "w", element)
    return "w_f16" + store.buffer[1:], store.offset(element) // 2
