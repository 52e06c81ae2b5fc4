"""The plan that a recorded step ran: from the layout and the limits that were recorded with it."""

from __future__ import annotations

from inspector.layout import Layout
from inspector.optimizers import is_between, plan_step
from inspector.param_hyper import segment_classes
from inspector.plan import Limits, Plan, layout_for
from inspector.session.reader import Session
from inspector.session.records import RecordedStep


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
