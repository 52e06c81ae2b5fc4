"""Steppers for the GPU tests: many on one device, on devices whose limits are made smaller than they are."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from inspector.gpu.device import Gpu
from inspector.gpu.stepper import GpuStepper
from inspector.layout import Param, make_layout
from inspector.plan import Variant
from inspector.stepping import LANES, HostState

F32 = npt.NDArray[np.float32]
Bytes = dict[str, bytes]

ATOMIC = Variant(reduce="atomic")
PUBLISHED_GRID = Variant(reduce="atomic", grid="published")
VARIANTS = [
    Variant(),
    Variant(numerics="precise"),
    Variant(dispatch="per-tensor"),
    ATOMIC,
    Variant(reduce="atomic", dispatch="per-tensor", numerics="precise"),
    PUBLISHED_GRID,
    Variant(reduce="atomic", grid="published", numerics="precise"),
]


def variant_name(variant: Variant) -> str:
    return f"{variant.numerics} {variant.reduce} {variant.dispatch} {variant.grid}"


def params_of(*numels: int, decay: bool | None = None) -> list[Param]:
    """Params p0, p1, … of so many elements each, without decay unless said."""
    return [Param(f"p{i}", (n,), decay) for i, n in enumerate(numels)]


def host(*numels: int, value: float = 0.0) -> dict[str, F32]:
    """Values for params_of(*numels), all the same."""
    return {f"p{i}": np.full(n, value, np.float32) for i, n in enumerate(numels)}


def smaller(
    gpu: Gpu, *, max_binding: int | None = None, max_buffer: int | None = None, groups: int | None = None,
    alignment: int | None = None,
) -> Gpu:  # fmt: skip
    """The same device, taken to have smaller limits, so that what they do shows at small sizes."""
    limits = gpu.limits
    changed = copy.copy(gpu)
    # A staging buffer of its own: each releases what it outgrows.
    changed._staging = None
    changed.limits = replace(
        limits,
        max_storage_buffer_binding_size=max_binding or limits.max_storage_buffer_binding_size,
        max_buffer_size=max_buffer or limits.max_buffer_size,
        max_compute_workgroups_per_dimension=groups or limits.max_compute_workgroups_per_dimension,
        min_storage_buffer_offset_alignment=alignment or limits.min_storage_buffer_offset_alignment,
    )
    return changed


def make_stepper(
    gpu: Gpu,
    params: Sequence[Param],
    variant: Variant | None = None,
    *,
    w: Mapping[str, F32],
    m: Mapping[str, F32] | None = None,
    v: Mapping[str, F32] | None = None,
    finished_steps: int = 0,
    align_bytes: int = 256,
    max_binding: int | None = None,
    max_buffer: int | None = None,
    groups: int | None = None,
    undo_bytes: int = 64 << 20,
) -> GpuStepper:
    """A stepper on `gpu` with the limits given instead of its own. Drop it when done: closing ends the device."""
    used = smaller(gpu, max_binding=max_binding, max_buffer=max_buffer, groups=groups)
    layout = make_layout(params, align_bytes=align_bytes, max_buffer_bytes=used.limits.max_buffer_size)
    state = HostState(w, m or {}, v or {}, finished_steps)
    return GpuStepper(used, layout, variant or Variant(), state, undo_bytes=undo_bytes)


def normal_state(
    params: Sequence[Param], seed: int = 0
) -> tuple[dict[str, F32], dict[str, F32], dict[str, F32], dict[str, F32]]:
    """w, g, m and v as in the middle of a training run: m signed, v positive, both about g's size."""
    rng = np.random.default_rng(seed)

    def normal(scale: float) -> dict[str, F32]:
        return {p.name: (scale * rng.standard_normal(p.numel)).astype(np.float32) for p in params}

    w, g, m = normal(1.0), normal(0.02), normal(0.01)
    v = {p.name: (1e-4 * rng.random(p.numel) ** 4 + 1e-9).astype(np.float32) for p in params}
    return w, g, m, v


def whole(stepper: GpuStepper, lane: str) -> F32:
    """A lane with its gaps, up to the end of the last page."""
    return stepper.read(lane, 0, stepper.layout.padded_elements)


def everything(stepper: GpuStepper) -> Bytes:
    """Every byte of every buffer of the plan but the uniforms, which are written anew for each dispatch."""
    names = [b.name for b in stepper.plan.buffers if b.kind != "uniform"]
    buffers = stepper._buffers
    return {name: stepper._gpu.read(buffers[name], 0, buffers[name].size) for name in names}


def lanes(stepper: GpuStepper) -> Bytes:
    """The bytes of w, g, m, v with their gaps."""
    return {lane: whole(stepper, lane).tobytes() for lane in LANES}
