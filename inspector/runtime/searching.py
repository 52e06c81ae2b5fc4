"""Looking for a step to go to: back to before a condition began to hold, or on to the next finding of a recording.

A search takes its time in pieces, between which the worker looks into its queue; the run stays where it is.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from inspector.diagnosis.facts import StepFacts
from inspector.diagnosis.findings import Finding
from inspector.diagnosis.metrics import METRICS, Counted, Scalar
from inspector.diagnosis.watchpoints import Condition, Moment, check_params, judge
from inspector.errors import UsageError
from inspector.floats import BoolArray
from inspector.param_statistics import ParamTable
from inspector.runtime import commands as c
from inspector.runtime.breakpoints import before_updates, moment_of, norm_known_at
from inspector.runtime.engine import Engine
from inspector.runtime.recorded import RecordedRun
from inspector.runtime.recorded_facts import RecordedFacts
from inspector.runtime.snapshots import Searching
from inspector.statistics import BufferStats
from inspector.stepping import Cursor, Stepper

AT_GRADIENTS = ("nonfinite-gradient",)
"""Rules whose findings are seen best before any dispatch: the update takes away what they are about."""
IN_ROWS = ("loss", "grad_norm", "clip_scale", "lr", "nonfinite")
"""Metrics of which a recording gives all steps at once."""
MAY_LACK = ("loss", "grad_norm", "clip_scale")


def place_of(finding: Finding) -> c.Seek:
    """Where a finding is seen: at its dispatch, non-finite gradients before the update takes them away."""
    at_gradients = finding.dispatch is None and finding.rule in AT_GRADIENTS
    return c.Seek(finding.step, 0 if at_gradients else finding.dispatch)


class Search:
    """What is looked for in pieces. Once `advance` is true, `target` says where to go, None for nowhere, and `sentence`
    what was found."""

    what: ClassVar[str] = ""

    def __init__(self, start: int, end: int) -> None:
        self.start = self.at = start
        self.end = end
        self.target: c.Seek | None = None
        self.sentence = ""
        self._work = self._look()

    @property
    def words(self) -> str:
        """What is looked for."""
        return self.what

    @property
    def picture(self) -> Searching:
        """How far it has come."""
        return Searching(self.words, self.at, self.start, self.end)

    def advance(self, seconds: float) -> bool:
        """Look for so long; True once it is known. UsageError where it cannot be."""
        until = time.perf_counter() + seconds
        return all(time.perf_counter() < until for _ in self._work)

    def close(self) -> None:
        """Give back what it took."""

    def _look(self) -> Iterator[None]:
        """A piece of the work a turn."""
        raise NotImplementedError


class NextFinding(Search):
    """What is found next in a recording, after the place on show, as the present rules see it."""

    what = "the next finding"

    def __init__(self, recorded: RecordedRun, start: Cursor) -> None:
        self._recorded = recorded
        self._start = start
        self.found: Finding | None = None
        super().__init__(start.step, recorded.steps.stop - 1)

    def _is_later(self, finding: Finding) -> bool:
        if finding.step != self.start:
            return finding.step > self.start
        dispatch = place_of(finding).dispatch
        return self._start.dispatch < (self._start.count if dispatch is None else dispatch)

    def _look(self) -> Iterator[None]:
        recorded = self._recorded
        while True:
            self.at = max(recorded.judged_to, self.start)
            later = (f for f in recorded.all_findings() if f.severity != "info" and self._is_later(f))
            found = next(later, None)
            # What was recorded of steps that were not looked at yet may be otherwise.
            if recorded.judged or (found is not None and found.step <= recorded.judged_to):
                break
            seen, wanted = recorded.judged_to, 2 * max(recorded.judged_to - self.start, 64)
            while not recorded.judged and recorded.judged_to - seen < wanted:
                recorded.judge(0.01)
                self.at = max(recorded.judged_to, self.start)
                yield
        if found is None:
            self.sentence = f"Nothing is found after step {self.start:,}, up to the last step {self.end:,}."
        else:
            self.found, self.target = found, place_of(found)
            self.sentence = f"The next finding is in step {found.step:,}, {found.rule}: {found.message}"


class LookBack(Search):
    """The end of the last step before a condition began to hold: from `start` back to the step in which it held last,
    and on back to the first of those in a row.

    Known steps are answered from the rows of a recording, or from what a live run remembers. Others run again, beside
    the run, from the states that are kept. Of w, m and v a step is judged by what it leaves behind.
    """

    def __init__(self, engine: Engine, condition: Condition, start: int) -> None:
        """`start` is the last step that is judged."""
        check_params(condition, [s.name for s in engine.stepper.layout.segments])
        self._engine = engine
        self._condition = condition
        self._recorded = engine.recorded
        self._facts = RecordedFacts(self._recorded.session) if self._recorded is not None else None
        self._told: set[int] = set()
        self._rows_hold: BoolArray | None = None
        self._beside: Stepper | None = None
        self._again: dict[int, bool] = {}
        first = engine.began_at + 1 if self._recorded is None else self._recorded.steps.start
        super().__init__(start, first)

    @property
    def words(self) -> str:
        """What is looked for."""
        return f"the step before {self._condition}"

    def close(self) -> None:
        """Give back the memory of what ran again."""
        if self._beside is not None:
            self._beside.release()
            self._beside = None

    def _look(self) -> Iterator[None]:
        condition = self._condition
        yield from self._prepare()
        since: int | None = None
        for step in range(self.start, self.end - 1, -1):
            self.at = step
            holds = self._known(step)
            if holds is None:
                yield from self._run_again(step)
                holds = self._again[step]
            if holds:
                since = step
            elif since is not None:
                self.target = c.Seek(step)
                before = f"Back at the end of step {step:,}, the last before {condition}"
                self.sentence = f"{before}, which holds from step {since:,} on."
                return
            yield
        steps = f"step {self.start:,} back to step {self.end:,}"
        if since is None:
            self.sentence = f"{condition} holds in no step from {steps}: the run stays where it is."
        else:
            self.sentence = (
                f"{condition} holds in every step from step {since:,} on, the first there is: none lies before it."
                if since == self.end
                else f"{condition} holds in every step from {steps}: none lies before them."
            )

    # --- what is known

    def _prepare(self) -> Iterator[None]:
        """What answers many steps at once."""
        condition, recorded = self._condition, self._recorded
        if condition.rule is not None:
            while recorded is not None and not recorded.judged:
                recorded.judge(0.01)
                yield
            found = [] if recorded is None else list(recorded.all_findings())
            own = self._engine.course.is_own
            found = [f for f in found if not own(f.step)] + [f for f in self._engine.findings if own(f.step)]
            self._told = {f.step for f in found if condition.is_met_by(f)}
        elif recorded is not None and condition.glob is None and condition.metric in IN_ROWS:
            values = recorded.session.metric(condition.metric).tolist()
            self._rows_hold = np.array([condition.holds_for(value) for value in values], bool)
            if condition.metric in MAY_LACK:
                self._rows_hold &= recorded.session.known(condition.metric)

    def _known(self, step: int) -> bool | None:
        """Whether it holds in a step, None where that takes running it again."""
        condition, engine = self._condition, self._engine
        if condition.rule is not None:
            return step in self._told
        origin = METRICS[condition.metric].origin(by_param=condition.glob is not None)
        if isinstance(origin, Scalar) and origin.name == "step":
            return condition.holds_for(step)
        if not engine.course.is_own(step):
            return self._in_rows(step)
        cursor = engine.stepper.cursor
        if step == cursor.step and not condition.of_state and before_updates(engine.stepper.plan, cursor):
            return engine.judge_here(condition)
        record = engine.record_of(step)
        if record is None:
            return None
        if isinstance(origin, Scalar):
            value = getattr(record, origin.name)
            return value is not None and condition.holds_for(float(value))
        if isinstance(origin, Counted) and origin.kind is not None and condition.glob is None:
            kinds = record.nonfinite
            count = kinds.total if origin.kind == "nonfinite" else getattr(kinds, origin.kind)
            return condition.holds_for(float(count))
        return None

    def _in_rows(self, step: int) -> bool | None:
        recorded, condition = self._recorded, self._condition
        assert recorded is not None
        assert self._facts is not None
        if self._rows_hold is not None:
            return bool(self._rows_hold[step - recorded.steps.start])
        # What a step leaves behind is what the next one finds.
        facts = self._facts.at(step + condition.of_state)
        if facts is None or (facts.table is None and not _counted(condition, facts)):
            return None
        moment = _moment(facts)
        rows = condition.matches([s.name for s in facts.layout.segments])
        verdict = judge(condition, moment, [row for row in rows if facts.layout.segments[row].numel])
        return None if verdict is None else verdict.holds

    # --- what runs again

    def _run_again(self, step: int) -> Iterator[None]:
        """Judge the steps from the nearest state before `step` up to it, on a stepper of their own."""
        engine, condition = self._engine, self._condition
        way = max(engine.ways_from_states(step - 1), key=lambda way: way.start, default=None)
        form = engine.stepper.plan.variant
        forms = (
            () if way is None else (engine.course.form_at(s, form) for s in range(way.start + 1, step + 1))
        )
        if way is None or way.state is None or any(other != form for other in forms):
            raise UsageError(
                f"Whether {condition} held in step {step:,} is not known, and the step cannot run again: no state from "
                "which it could, in the form of now, was kept."
            )
        state = way.state()
        if self._beside is None:
            self._beside = engine.stepper.another(state)
        else:
            self._beside.restore(state)
        for each in range(way.start + 1, step + 1):
            self._again[each] = self._run(self._beside, each)
            yield

    def _run(self, stepper: Stepper, step: int) -> bool:
        """Run a step; True where the condition holds in it."""
        engine, condition = self._engine, self._condition
        recorded = engine.recorded
        hyper = engine.course.ran_with(step)
        gradients = engine.source.gradients(step, stepper.weights)
        stepper.begin_step(gradients, hyper)
        table: ParamTable | None = None
        if condition.of_state:
            stepper.run_to_end(hyper)
            table = stepper.lane_stats(hyper, (0, stepper.layout.padded_elements))
            counts = stepper.counts("g")
            coding, stats = None, None
        else:
            counts = stepper.counts("g")
            stepper.run_until(hyper, norm_known_at(stepper.plan))
            stats = stepper.grad_stats()
            if recorded is not None and not math.isfinite(hyper.max_grad_norm):
                stats = recorded.before_clipping(step) or stats
            if before_updates(stepper.plan, stepper.cursor):
                table = stepper.param_stats(hyper) if condition.needs == "full" else None
                coding = tuple(stepper.coding_errors(hyper)) if condition.needs_coding else None
            else:
                coding = None
        moment = moment_of(
            stepper,
            lr=hyper.lr,
            loss=gradients.loss,
            counts=counts,
            grad_norm=stats.grad_norm if stats else None,
            clip_scale=stats.clip_scale if stats else None,
            table=table,
            whole=None if table is None else table.merged("all"),
            coding=coding,
            updated=condition.of_state,
        )
        rows = condition.matches([s.name for s in stepper.layout.segments])
        verdict = judge(condition, moment, [row for row in rows if stepper.layout.segments[row].numel])
        stepper.run_to_end(hyper)
        return verdict is not None and verdict.holds


def _counted(condition: Condition, facts: StepFacts) -> bool:
    """True where all that a condition needs was counted in a step whose params were not: elements not finite alone."""
    origin = METRICS[condition.metric].origin(by_param=condition.glob is not None)
    if isinstance(origin, Scalar):
        return True
    if not isinstance(origin, Counted) or origin.kind is None or facts.gradients is None:
        return False
    return condition.glob is None or not facts.gradients.nonfinite.total


def _moment(facts: StepFacts) -> Moment:
    """A recorded step as a moment. Its gradients are not at hand: where the first of a kind is, is not found."""
    table = facts.table

    def count(name: str) -> BufferStats:
        assert table is not None
        return table[table.names.index(name)].lanes["g"].counts

    return Moment(
        facts.layout,
        facts.step,
        facts.hyper.lr,
        facts.loss,
        facts.gradients,
        count,
        lambda start, count: np.zeros(0, np.float32),
        facts.grad_norm,
        facts.clip_scale,
        table,
        None if table is None else table.merged("all"),
    )
