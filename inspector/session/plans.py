"""The plan that a recorded step ran: from the layout and the limits that were recorded with it.

What ran as a dispatch of its own may be a part of another one in the plan that there is now: `reduce_norm_sq_final`
was in every step once, and is a part of finalize_grad_stats where that is given parts of the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from inspector.layout import Layout
from inspector.optimizers import is_between, plan_step
from inspector.param_hyper import segment_classes
from inspector.plan import Dispatch, Limits, Plan, layout_for
from inspector.session.reader import Session
from inspector.session.records import RecordedStep
from inspector.stepping import KernelTime

_PART, _WHOLE = "reduce_norm_sq_final", "finalize_grad_stats"


def default_layout(session: Session, step: RecordedStep) -> Layout:
    """The params of a step whose layout was not recorded, laid out for a device of WebGPU's default limits."""
    alone = step.hyper.per_param is not None
    return layout_for(session.about.params, Limits(), step.variant, alone=alone)


def recorded_plan(session: Session, step: RecordedStep, layout: Layout | None = None) -> Plan:
    """The plan of a step of `session`; UsageError where a device of these limits cannot run it.

    Where the recording holds no layout that is `layout`, or the default one.
    """
    between = is_between(step.variant, step.step)
    if step.layout is None:
        layout = layout or default_layout(session, step)
        return plan_step(layout, Limits(), step.variant, segment_classes(layout, step.hyper), between=between)
    laid = session.layout(step.step)
    assert laid is not None
    return plan_step(
        laid, step.layout.limits, step.variant, segment_classes(laid, step.hyper), between=between
    )


def times_in_plan(
    kernels: Sequence[KernelTime], dispatches: Sequence[Dispatch]
) -> tuple[KernelTime, ...] | None:
    """The recorded times of a step, one for each dispatch of its plan; None where other dispatches ran.

    A dispatch that is a part of the one behind it by now took its time with that.
    """
    if [k.name for k in kernels] == [d.entry_point for d in dispatches]:
        return tuple(kernels)
    part = part_of_another(kernels, dispatches)
    if part is None:
        return None
    first, second = kernels[part : part + 2]
    ms = None if first.ms is None or second.ms is None else first.ms + second.ms
    both = replace(second, ms=ms, cold=first.cold or second.cold, began_ms=first.began_ms)
    return (*kernels[:part], both, *kernels[part + 2 :])


def part_of_another(kernels: Sequence[KernelTime], dispatches: Sequence[Dispatch]) -> int | None:
    """Which of the dispatches of a recorded step is a part of the one behind it in its plan.

    None where the same dispatches ran, or quite other ones. Those behind it have a number less in the plan.
    """
    names = [k.name for k in kernels]
    if _WHOLE not in names:
        return None
    part = names.index(_WHOLE) - 1
    if part < 0 or names[part] != _PART:
        return None
    del names[part]
    return part if names == [d.entry_point for d in dispatches] else None
