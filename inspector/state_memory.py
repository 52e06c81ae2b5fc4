"""What w, g, m and v take in bytes: worked out from the params, and as a plan allocates them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType

from inspector.codecs import blocks
from inspector.layout import F32_BYTES, Param
from inspector.plan import Plan, Variant, required_placement
from inspector.stores import LANES, MOMENTS, Lane


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
        if spec.kind == "state" and not spec.name.startswith("w_f16"):
            allocated[_lane_of(spec.name)] += spec.size
    return LaneBytes(MappingProxyType(computed), MappingProxyType(allocated) if plan else None)


def _lane_of(buffer: str) -> Lane:
    return next(lane for lane in LANES if buffer.split("[")[0].split("_")[0] == lane)
