"""What is known of a step that PyTorch ran, as the rules look at it: the same as is read from the recording later."""

from __future__ import annotations

from inspector.diagnosis.facts import StepFacts
from inspector.layout import Layout
from inspector.param_statistics import ParamTable, counts_of
from inspector.session.reader import Session
from inspector.session.records import About, RecordedStep
from inspector.statistics import BufferStats


def facts_of(
    ran: RecordedStep,
    table: ParamTable | None,
    layout: Layout,
    about: About,
    gradients: BufferStats | None = None,
    *,
    put_in_place: bool = False,
) -> StepFacts:
    """The facts of a step. No dispatch ran of a plan, so there is none.

    `gradients` are what `table` comes to, where that was worked out already; or all that is known without one.
    """
    return StepFacts(
        step=ran.step,
        layout=layout,
        hyper=ran.hyper,
        gradients=counts_of(table, "g") if gradients is None and table is not None else gradients,
        grad_norm=ran.grad_norm,
        clip_scale=ran.clip_scale,
        loss=ran.loss,
        variant=ran.variant,
        table=table,
        origin=about.origin,
        adam=not about.foreign,
        put_in_place=put_in_place,
    )


def recorded_facts(session: Session, step: int, layout: Layout) -> StepFacts | None:
    """Those of a step that was recorded, None where it was not or lay otherwise."""
    if step not in session.steps:
        return None
    ran = session.step(step)
    there = step in session.put_in_place()
    table, laid = session.param_statistics(step), session.layout(step) or layout
    return facts_of(ran, table, laid, session.about, put_in_place=there)
