"""What w, g and what an optimizer keeps take in bytes: worked out from the params, and as a plan allocates them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from inspector.codecs import blocks
from inspector.layout import F32_BYTES, Param
from inspector.plan import Plan, Variant, required_placement
from inspector.stores import LANES, MOMENTS, Lane

F16_BYTES = 2
MIRROR = "w_f16"
"""The half-precision mirror, among the lanes."""


@dataclass(frozen=True, slots=True)
class LaneBytes:
    """Bytes by lane. `computed` counts elements, codes and scales alone; `allocated` the buffers, gaps included.

    `allocated` is None where no such buffers exist. A half-precision mirror of the weights is in neither.
    """

    computed: MappingProxyType[Lane, int]
    allocated: MappingProxyType[Lane, int] | None = None

    @property
    def total(self) -> int:
        """Bytes computed of all lanes."""
        return sum(self.computed.values())

    @property
    def allocated_total(self) -> int | None:
        """Bytes allocated of all lanes."""
        return None if self.allocated is None else sum(self.allocated.values())


def lane_bytes(params: Iterable[Param], variant: Variant, plan: Plan | None = None) -> LaneBytes:
    """What `params` take in this form of the step; as allocated by `plan`, which is of it, where given."""
    placement = required_placement(variant)
    elements = moments = 0
    for param in params:
        n = param.numel
        elements += n
        coded = placement.state_of(param) == "8bit"
        moments += n + F32_BYTES * blocks(n) if coded else F32_BYTES * n
    computed: dict[Lane, int] = {lane: moments if lane in MOMENTS else F32_BYTES * elements for lane in LANES}
    allocated: dict[Lane, int] = dict.fromkeys(LANES, 0)
    for spec in plan.buffers if plan else ():
        lane = _lane_of(spec.name)
        if spec.kind == "state" and lane is not None and not spec.name.startswith("w_f16"):
            allocated[lane] += spec.size
    return LaneBytes(MappingProxyType(computed), MappingProxyType(allocated) if plan else None)


@dataclass(frozen=True, slots=True)
class BufferUse:
    """Bytes of what is kept of a run under one name: of the elements alone, and as the device allocated its buffers."""

    name: str
    computed: int
    allocated: int

    @property
    def gaps(self) -> int:
        """Bytes between params, so that each can be bound; and of the rounding of buffers to whole words."""
        return self.allocated - self.computed


def run_use(plan: Plan, allocated: Mapping[str, int]) -> tuple[BufferUse, ...]:
    """What a run keeps, lane by lane and state by state; `allocated` are the bytes of the device's buffers by name."""
    computed: dict[str, int] = {}
    found: dict[str, int] = {}
    for spec in plan.buffers:
        if spec.kind == "state":
            mirrored = spec.name.startswith("w_f16")
            name = MIRROR if mirrored else _lane_of(spec.name) or spec.name.partition("[")[0]
            found[name] = found.get(name, 0) + allocated.get(spec.name, 0)
    for segment in plan.layout:
        n = segment.numel
        for name in (name for name in found if name == MIRROR or name in LANES):
            coded = name in MOMENTS and segment.state == "8bit"
            each = F16_BYTES * n if name == MIRROR else n + F32_BYTES * blocks(n) if coded else F32_BYTES * n
            computed[name] = computed.get(name, 0) + each
    for state in plan.states:
        computed[state.name] = computed.get(state.name, 0) + F32_BYTES * state.elements
    return tuple(BufferUse(name, computed.get(name, 0), nbytes) for name, nbytes in found.items())


def _lane_of(buffer: str) -> Lane | None:
    """The lane that a buffer is of; None of a state in a shape of its own."""
    return next((lane for lane in LANES if buffer.split("[")[0].split("_")[0] == lane), None)
