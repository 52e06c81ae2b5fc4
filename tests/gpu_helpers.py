"""Steppers for the GPU tests: many on one device, on devices whose limits are made smaller than they are."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from inspector.codecs import Moments8bit
from inspector.gpu.device import Gpu
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import Hyper
from inspector.layout import Param, make_layout
from inspector.plan import Variant, required_placement
from inspector.runtime.engine import Engine
from inspector.schedule import Schedule
from inspector.sources.base import EndOfSourceError, ReadWeights
from inspector.statistics import StatsLevel
from inspector.stepping import HostGradients, HostState
from inspector.stores import LANES

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
    coded: Mapping[str, Moments8bit] | None = None,
) -> GpuStepper:
    """A stepper on `gpu` with the limits given instead of its own. Drop it when done: closing ends the device."""
    used = smaller(gpu, max_binding=max_binding, max_buffer=max_buffer, groups=groups)
    variant = variant or Variant()
    layout = make_layout(
        params,
        align_bytes=align_bytes,
        max_buffer_bytes=used.limits.max_buffer_size,
        placement=required_placement(variant, used.limits.min_storage_buffer_offset_alignment),
    )
    state = HostState(w, m or {}, v or {}, finished_steps, coded or {})
    return GpuStepper(used, layout, variant, state, undo_bytes=undo_bytes)


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
    buffers = stepper._memory.buffers
    return {name: stepper._gpu.read(buffers[name], 0, buffers[name].size).tobytes() for name in names}


def lanes(stepper: GpuStepper) -> Bytes:
    """The bytes of w, g, m, v with their gaps."""
    return {lane: whole(stepper, lane).tobytes() for lane in LANES}


class ListedSource:
    """A source that gives the gradients it was handed, one dictionary a step, or the same ones for ever."""

    def __init__(
        self,
        params: Sequence[Param],
        steps: Sequence[Mapping[str, F32]] | Mapping[str, F32],
        *,
        state: HostState,
        hyper: Hyper | None = None,
        losses: Mapping[int, float] | None = None,
        schedule: Schedule | None = None,
    ) -> None:
        self.name = "listed"
        self.description = "gradients of a test"
        self.params = tuple(params)
        self.hyper = hyper or Hyper()
        self.schedule = schedule or Schedule()
        self.last_step = None if isinstance(steps, Mapping) else len(steps)
        self.asked: list[tuple[int, dict[str, F32]]] = []
        self._steps = steps
        self._state = state
        self._losses = losses or {}

    def initial_state(self) -> HostState:
        return self._state

    def gradients(self, step: int, read_weights: ReadWeights) -> HostGradients:
        self.asked.append((step, {name: w.copy() for name, w in read_weights().items()}))
        if isinstance(self._steps, Mapping):
            return HostGradients(self._steps, self._losses.get(step))
        if step > len(self._steps):
            raise EndOfSourceError(f"There is no step {step}.")
        return HostGradients(self._steps[step - 1], self._losses.get(step))


def make_engine(
    gpu: Gpu,
    params: Sequence[Param],
    steps: Sequence[Mapping[str, F32]] | Mapping[str, F32],
    *,
    w: Mapping[str, F32] | None = None,
    m: Mapping[str, F32] | None = None,
    v: Mapping[str, F32] | None = None,
    finished_steps: int = 0,
    hyper: Hyper | None = None,
    variant: Variant | None = None,
    losses: Mapping[int, float] | None = None,
    schedule: Schedule | None = None,
    stats: StatsLevel = "light",
) -> Engine:
    """An engine over a ListedSource and a stepper on `gpu`."""
    state = HostState(w or {}, m or {}, v or {}, finished_steps)
    source = ListedSource(params, steps, state=state, hyper=hyper, losses=losses, schedule=schedule)
    stepper = make_stepper(
        gpu, params, variant, w=state.w, m=state.m, v=state.v, finished_steps=finished_steps
    )
    return Engine(source, stepper, stats=stats)
