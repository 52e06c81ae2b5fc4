"""Whether a run could go on in another form, or with another kernel, on its device."""

from __future__ import annotations

from dataclasses import replace

from inspector.gpu.memory import LaneMemory
from inspector.gpu.pipelines import Pipelines
from inspector.layout import Param
from inspector.optimizers import plan_step
from inspector.own_kernels import OwnKernel, OwnKernels
from inspector.own_plan import with_own_kernels
from inspector.param_hyper import moved_classes
from inspector.plan import Plan, Variant, layout_for, required_placement


def can_take(plan: Plan, memory: LaneMemory, variant: Variant) -> bool:
    """True where the layout of `plan` and the state in `memory` allow that form; else both have to be made anew."""
    wanted = required_placement(variant, plan.limits.min_storage_buffer_offset_alignment)
    if not plan.layout.placement.covers(wanted):
        return False
    return not memory.coded or variant.codec == plan.variant.codec


def check_form(pipelines: Pipelines, plan: Plan, params: tuple[Param, ...], variant: Variant) -> None:
    """UsageError where params could not run in that form on the device of `plan`; own kernels are compiled for it."""
    classes = plan.classes
    layout = layout_for(params, plan.limits, variant, alone=classes is not None)
    moved = None if classes is None else moved_classes(classes, plan.layout, layout)
    pipelines.check_own(plan_step(layout, plan.limits, variant, moved))


def check_kernel(pipelines: Pipelines, plan: Plan, own: OwnKernel) -> None:
    """UsageError with file and line where an own kernel could not run in the form of `plan`; it is compiled.

    On one dispatch alone: to plan a step of many takes too long while somebody types.
    """
    variant = replace(plan.variant, own=OwnKernels((own,)))
    first = next((d for d in plan.dispatches if d.entry_point == own.entry_point), None)
    one = replace(plan, dispatches=() if first is None else (first,))
    pipelines.check_own(with_own_kernels(one, variant))
