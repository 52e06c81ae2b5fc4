"""A recording diagnosed again from what it holds: the rows of its steps, and captured tensors where they say more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from inspector.diagnosis.diagnosis import SEVERITIES, Diagnosis
from inspector.diagnosis.facts import StepFacts
from inspector.diagnosis.rules import RULES, RULES_BY_NAME
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
    judging = Judging(session, first, last)
    while not judging.complete:
        progress(judging.next_step - first, last + 1 - first)
        judging.judge_next()
    progress(last + 1 - first, last + 1 - first)
    return judging.findings()


class Judging:
    """The present rules over steps `first` to `last` of a recording, a step at a time."""

    def __init__(self, session: Session, first: int, last: int) -> None:
        self._session = session
        self._first = self.next_step = first
        self._last = last
        self._known = RecordedFacts(session)
        self._diagnosis = Diagnosis(lambda step: self._known.at(step) if step < first else None)
        self._found: list[Finding] = []
        self._recorded: dict[tuple[str, int], Finding] | None = None

    @property
    def complete(self) -> bool:
        """True once the last step was looked at."""
        return self.next_step > self._last

    def extend(self, last: int) -> None:
        """The recording goes on to step `last` now."""
        self._last = max(last, self._last)

    def judge_next(self) -> None:
        """Look at one more step; UsageError where that is damaged."""
        facts = self._known.at(self.next_step)
        if facts is not None:
            found = self._diagnosis.observe(with_tensors(self._session, facts, self._known))
            self._found += found if facts.table is not None else self._as_recorded(found)
        self.next_step += 1

    def _as_recorded(self, found: list[Finding]) -> list[Finding]:
        """In place of what was found, what was recorded of rules that saw more of the step than its row holds."""
        if self._recorded is None:
            self._recorded = {}
            for each in self._session.findings():
                if RULES_BY_NAME[each.rule].beyond_light_rows if each.rule in RULES_BY_NAME else False:
                    self._recorded.setdefault((each.rule, each.step), each)
        kept = [self._recorded.get((each.rule, each.step)) for each in found]
        return [
            new if old is None else self._known.in_plan(old) for new, old in zip(found, kept, strict=True)
        ]

    def findings(self) -> tuple[Finding, ...]:
        """What the rules found so far, and what was recorded of those that look beyond rows and of later steps."""
        places = {(f.rule, f.step, f.param, f.index) for f in self._found}
        beyond = {rule.name for rule in RULES if rule.beyond_rows}
        found = list(self._found)
        for each in self._session.findings():
            told = self._first <= each.step < self.next_step
            place = (each.rule, each.step, each.param, each.index)
            if told and each.rule in beyond and place not in places:
                found.append(self._known.in_plan(each))
            elif self.next_step <= each.step <= self._last:
                # Soon to be looked at, and as it was recorded until then.
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
