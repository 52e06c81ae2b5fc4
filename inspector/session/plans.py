"""The plan that a recorded step ran: from the layout and the limits that were recorded with it."""

from __future__ import annotations

from inspector.optimizers import plan_step
from inspector.plan import Limits, Plan, layout_for
from inspector.session.reader import Session
from inspector.session.records import RecordedStep


def recorded_plan(session: Session, step: RecordedStep) -> Plan:
    """The plan of a step of `session`; UsageError where a device of these limits cannot run it.

    Where the recording holds no layout (format 1), that of a device of WebGPU's default limits.
    """
    if step.layout is None:
        return plan_step(layout_for(session.about.params, Limits(), step.variant), Limits(), step.variant)
    layout = session.layout(step.step)
    assert layout is not None
    return plan_step(layout, step.layout.limits, step.variant)
