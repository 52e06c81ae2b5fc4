"""What makes an optimizer: a name, its state buffers, its plan and the values of its uniforms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from inspector.floats import F32Array
from inspector.hyper import Hyper, Numerics
from inspector.layout import Layout
from inspector.param_hyper import Classes
from inspector.plan import Limits, Plan, Variant


@dataclass(frozen=True, slots=True)
class Optimizer:
    """`uniforms(hyper, step, numerics)` gives the values of every uniform that is not constant, by key."""

    name: str
    state: tuple[str, ...]
    plan: Callable[[Layout, Limits, Variant, Classes | None], Plan]
    uniforms: Callable[[Hyper, int, Numerics], Mapping[str, F32Array]]
    decay_in_gradient: bool = False
    """Weight decay is added to the gradient (L2) rather than to the update."""
