"""The diagnosis of a run: every step is shown to it in order, and it says what began to be wrong in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from inspector.diagnosis.facts import StepFacts
from inspector.diagnosis.memory import WINDOW, Memory
from inspector.diagnosis.onsets import Onsets
from inspector.diagnosis.rules import HELD, NOTHING, RULES, Rule, Seen, the_same_in
from inspector.findings import Finding, Severity
from inspector.floats import BoolArray
from inspector.optimizers import optimizer

Earlier = Callable[[int], StepFacts | None]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")

OF_ADAM = frozenset(
    {
        "negative-second-moment", "update-not-applied", "unexplained-weights", "unexplained-moments", "invalid-setting",
        "zero-eps", "unstable-betas", "step-counter-reset", "missing-moments", "swapped-moments",
        "lagging-second-moment", "large-update", "starved-update", "unchanged-param", "lost-update", "eps-dominates",
        "zero-second-moment", "zeroed-second-moment",
    }
)  # fmt: skip
"""Rules that say nothing where the update was of another kind: they look at m, v, ε, β, or the update Adam makes."""
OF_TWO_MOMENTS = frozenset(
    {
        "negative-second-moment", "unexplained-moments", "zero-eps", "unstable-betas", "step-counter-reset",
        "step-counter-stuck", "missing-moments", "swapped-moments", "lagging-second-moment", "starved-update",
        "eps-dominates", "zero-second-moment",
    }
)  # fmt: skip
"""Rules that say nothing of an optimizer here that has no second moment, ε or bias correction, or another m."""


@dataclass(frozen=True, slots=True)
class Ongoing:
    """A condition that holds: of what, since which step, and the last step in which it was seen."""

    rule: str
    param: str | None
    since: int
    last_seen: int


class Diagnosis:
    """Findings of a run, step by step. `earlier` gives the steps before one that does not follow the last one seen.

    A condition is told in the step in which it begins, and again when it has gone and come back, or has become ten
    times as bad. Steps may be shown again: what came after is then forgotten.
    """

    def __init__(self, earlier: Earlier | None = None, rules: Iterable[Rule] = RULES) -> None:
        self.rules = tuple(rules)
        self._earlier = earlier
        self._memory = Memory(HELD)
        self._onsets = {rule.name: Onsets() for rule in self.rules}

    def observe(self, facts: StepFacts) -> list[Finding]:
        """What is told of a step: errors first, and of one severity in the order of the rules."""
        self.truncate(facts.step - 1)
        last = self._memory.last_step
        if last is None or last != facts.step - 1:
            self._begin_at(facts.step)
        return self._look(facts)

    def truncate(self, step: int) -> None:
        """The run stands after `step` now: what came later is forgotten."""
        if not self._memory.truncate(step):
            self._begin_at(step + 1)
            return
        for onsets in self._onsets.values():
            onsets.truncate(step)

    def ongoing(self) -> list[Ongoing]:
        """What holds in the last step that was shown."""
        step = self._memory.last_step or 0
        found = []
        for rule in self.rules:
            told = self._onsets[rule.name].now
            for at in np.flatnonzero(told.hit) if told is not None else ():
                assert told is not None
                name = told.names[at] if told.names and not rule.each else None
                found.append(Ongoing(rule.name, name, int(told.since[at]), step))
        return found

    # --- inner parts

    def _begin_at(self, step: int) -> None:
        """Start from nothing, or from the steps that are known from before: they are looked at and not told again."""
        self._memory = Memory(HELD)
        self._onsets = {rule.name: Onsets() for rule in self.rules}
        before: list[StepFacts] = []
        while self._earlier is not None and len(before) < WINDOW + 1 and step - len(before) > 1:
            facts = self._earlier(step - len(before) - 1)
            if facts is None:
                break
            before.append(facts)
        for facts in reversed(before):
            self._look(facts)

    def _look(self, facts: StepFacts) -> list[Finding]:
        self._memory.take(facts)
        found: list[Finding] = []
        unfit = OF_ADAM if not facts.adam else frozenset()
        if not optimizer(facts.variant.optimizer).adam:
            unfit |= OF_TWO_MOMENTS
        with np.errstate(all="ignore"):
            for rule in self.rules:
                if rule.name in unfit:
                    continue
                seen = rule.judge(facts, self._memory)
                onsets = self._onsets[rule.name]
                if seen is not None and (seen is not NOTHING or onsets.now is not None):
                    told = onsets.look(facts.step, seen.names, seen.hit, seen.size)
                    if told.any():
                        found += self._told(rule, seen, told, facts)
        return sorted(found, key=lambda f: SEVERITIES.index(f.severity))

    def _told(self, rule: Rule, seen: Seen, told: BoolArray, facts: StepFacts) -> list[Finding]:
        rows = np.flatnonzero(told)
        if rule.each or len(rows) == 1:
            return [self._finding(rule, seen, int(row), [], facts) for row in rows]
        rank = seen.size if seen.rank is None else seen.rank
        # Of equals the first in memory.
        order = rows[np.argsort(-rank[rows], kind="stable")]
        others = [seen.names[row] for row in order[1:]]
        return [self._finding(rule, seen, int(order[0]), others, facts)]

    def _finding(self, rule: Rule, seen: Seen, row: int, others: list[str], facts: StepFacts) -> Finding:
        story = seen.tell(row)
        onsets = self._onsets[rule.name].now
        assert onsets is not None
        evidence = dict(story.evidence)
        message = story.message
        since = int(onsets.since[row])
        if others:
            evidence["params"] = len(others) + 1
            message += f" {the_same_in(others)}"
        if since != facts.step:
            evidence["since"] = since
            message += f" It has been so since step {since:,}, and is ten times as bad now."
        return Finding(
            rule.name, story.severity or rule.severity, facts.step, message, story.advice, story.dispatch, story.param,
            story.index, evidence, rule.source,
        )  # fmt: skip


def step_findings(facts: StepFacts) -> list[Finding]:
    """What a step shows that is looked at alone."""
    return Diagnosis().observe(facts)
