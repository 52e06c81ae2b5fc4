"""A recording diagnosed again from what it holds: the rows of its steps, and captured tensors where they say more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from inspector.diagnosis.diagnosis import SEVERITIES, Diagnosis
from inspector.diagnosis.facts import StepFacts
from inspector.diagnosis.rules import RULES
from inspector.findings import Finding
from inspector.runtime.recorded_facts import RecordedFacts
from inspector.session.reader import Session


def diagnose_session(
    session: Session, first: int, last: int, progress: Callable[[int, int], None] = lambda done, of: None
) -> tuple[Finding, ...]:
    """Findings of steps `first` to `last` in their order, as the present rules see them.

    Steps before `first` are looked at for what is usual, and not told. What rules found on more than rows hold is taken
    as it was recorded. `progress` is told how many steps are done, of how many; what it raises ends it.
    """
    known = RecordedFacts(session)
    diagnosis = Diagnosis(lambda step: known.at(step) if step < first else None)
    found: list[Finding] = []
    for done, step in enumerate(range(first, last + 1)):
        progress(done, last + 1 - first)
        facts = known.at(step)
        if facts is not None:
            found += diagnosis.observe(with_tensors(session, facts, known))
    progress(last + 1 - first, last + 1 - first)
    places = {(f.rule, f.step, f.param, f.index) for f in found}
    beyond = {rule.name for rule in RULES if rule.beyond_rows}
    for each in session.findings():
        place = (each.rule, each.step, each.param, each.index)
        if first <= each.step <= last and each.rule in beyond and place not in places:
            found.append(each)
    return tuple(sorted(found, key=lambda f: (f.step, SEVERITIES.index(f.severity))))


def with_tensors(session: Session, facts: StepFacts, known: RecordedFacts) -> StepFacts:
    """`facts` with the counts over captured gradients where something is wrong with a step whose params were not
    counted."""
    counts = facts.gradients
    if facts.table is not None or counts is None or not (counts.nonfinite.total or facts.grad_norm == 0):
        return facts
    if facts.step not in session.captures("gradients"):
        return facts
    return replace(facts, gradients=known.counted_gradients(facts))
