"""Optimizers as data: each in a folder of its own with its plan, its uniforms and its float64 oracle."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from inspector.errors import UsageError
from inspector.layout import Layout, Param
from inspector.optimizers.adafactor import ADAFACTOR
from inspector.optimizers.adam import ADAM
from inspector.optimizers.adam_l2 import ADAM_L2
from inspector.optimizers.adamw import ADAMW
from inspector.optimizers.definition import Optimizer
from inspector.optimizers.lion import LION
from inspector.optimizers.momentum import MOMENTUM
from inspector.optimizers.muon import MUON
from inspector.optimizers.sgd import SGD
from inspector.optimizers.shampoo import SHAMPOO
from inspector.own_plan import planned_as, with_own_kernels
from inspector.param_hyper import Classes
from inspector.param_state import ParamState
from inspector.plan import Limits, Plan, Variant

OPTIMIZERS: dict[str, Optimizer] = {
    each.name: each for each in (ADAMW, ADAM_L2, ADAM, SGD, MOMENTUM, LION, ADAFACTOR, MUON, SHAMPOO)
}

PARAM_STATES: dict[str, ParamState] = {s.name: s for each in OPTIMIZERS.values() for s in each.param_states}
"""States in shapes of their own, of all optimizers: one name means the same to each that has it."""


def optimizer(name: str) -> Optimizer:
    """The optimizer of that name; UsageError naming those there are."""
    try:
        return OPTIMIZERS[name]
    except KeyError:
        raise UsageError(f"There is no optimizer {name!r}: choose one of {', '.join(OPTIMIZERS)}.") from None


def optimizer_of(variant: Variant, param: Param) -> Optimizer:
    """What steps a param in that form: of Muon AdamW, for all but the hidden matrices."""
    return optimizer(variant.optimizer).of(param, variant)


@dataclass(frozen=True, slots=True)
class Instead:
    """The optimizer that steps all params in another's place, by its title, and why."""

    title: str
    why: str

    @property
    def brief(self) -> str:
        """What stands behind the name of the one that was chosen."""
        return f"as {self.title}"

    def __str__(self) -> str:
        return f"{self.brief}: {self.why}"


def runs_as(variant: Variant, params: Iterable[Param]) -> Instead | None:
    """What steps all params where the optimizer that was chosen takes none of them itself; else None."""
    chosen = optimizer(variant.optimizer)
    if chosen.rest is None or any(chosen.takes(param, variant) for param in params):
        return None
    return Instead(chosen.rest.title, f"no param is a {chosen.taken}")


def is_between(variant: Variant, step: int) -> bool:
    """True for a step that goes without what its optimizer does in some steps only, as Shampoo takes roots."""
    between = optimizer(variant.optimizer).between
    return between is not None and between(variant, step)


def plan_step(
    layout: Layout, limits: Limits, variant: Variant, classes: Classes | None = None, *, between: bool = False
) -> Plan:
    """The dispatches of one step on a device with these limits; `classes` where params have settings of their own.

    With `between` they are those of a step for which `is_between` is true, over the same buffers. Raises UsageError
    where the device cannot run it, naming what it needs and the limit.
    """
    chosen = optimizer(variant.optimizer)
    if between and chosen.plan_between is not None:
        plan = replace(chosen.plan_between(layout, limits, planned_as(variant), classes), between=True)
    else:
        plan = chosen.plan(layout, limits, planned_as(variant), classes)
    return with_own_kernels(plan, variant).check()
