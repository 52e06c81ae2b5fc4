"""The diagnosis of a run as it goes: what the rules find in the step at the cursor, and what own kernels left."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from inspector.diagnosis.diagnosis import Diagnosis
from inspector.diagnosis.facts import AfterStep, StepFacts
from inspector.diagnosis.findings import Finding
from inspector.runtime.breakpoints import before_updates, nonfinite_params
from inspector.runtime.own_check import OwnCheck
from inspector.runtime.recorded_facts import RecordedFacts
from inspector.runtime.run_state import MAX_FINDINGS, RunState
from inspector.runtime.step_log import Given
from inspector.statistics import NOT_COUNTED, NonFinite


class RunDiagnosis:
    """Shown every step of `run`, adds what it finds to `run.findings`."""

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._diagnosis = Diagnosis(self._facts_before)
        self._recorded_facts = RecordedFacts(run.recorded.session) if run.recorded is not None else None
        self._own_check = OwnCheck()
        self.fresh: tuple[Finding, ...] = ()
        """What was found last, in the step at the cursor."""
        self._left: tuple[int, tuple[Finding, ...]] = (0, ())
        """What a step was found to have left behind once it was complete: breakpoints stop in the next."""
        self._nonfinite: Mapping[str, NonFinite] | None = None
        """Of the step at the cursor, once somebody looked."""
        stepper = run.stepper
        self._initial_state = MappingProxyType({lane: stepper.given_counts(lane) for lane in ("w", "m", "v")})
        self._initial_moments = stepper.cursor.finished_steps == 0 and any(
            self._initial_state[lane].zeros != stepper.layout.elements for lane in ("m", "v")
        )

    # --- as the run moves

    def given(self, given: Given) -> None:
        """The gradients of a step are in place: see which params hold some that are not finite."""
        self._nonfinite = None
        self._nonfinite_params(given)

    def begun(self) -> None:
        """The step at the cursor begins."""
        self._own_check.begun(self._run.stepper, self._run.stats_level)

    def finished(self) -> None:
        """The step at the cursor is complete: hold what own kernels left against the built-in ones."""
        run = self._run
        after = self._own_check.finished(run.stepper, run.step_hyper)
        if after is not None:
            before = self.fresh
            self.observe(after)
            self._left = run.stepper.cursor.step, tuple(f for f in self.fresh if f not in before)

    def moved_back(self) -> None:
        """The run stands elsewhere now."""
        self._nonfinite = None

    def reformed(self) -> None:
        """Steps run in another form from here on."""
        self._own_check.reformed()

    def replaced(self) -> None:
        """Another stepper has the state."""
        self._own_check.replaced()

    # --- what is found

    def observe(self, after: AfterStep | None = None) -> None:
        """See what is wrong with the step at the cursor; again, in place of what was seen of it before."""
        run = self._run
        assert run.record is not None
        own = run.course.is_own(run.record.step)
        self.fresh = ()
        if not own and not run.breakpoints.want_findings:
            # What was found in it is recorded.
            return
        facts = self._facts(after)
        self.fresh = tuple(self._diagnosis.observe(facts))
        if own:
            while run.findings and run.findings[-1].step >= facts.step:
                run.findings.pop()
            run.findings += self.fresh

    def found_so_far(self) -> tuple[Finding, ...]:
        """For breakpoints before the update of the step at the cursor: in it, and what the one before left behind."""
        record = self._run.record
        assert record is not None
        known = record.grad_norm is not None and record.clip_scale is not None
        found = self.fresh if known else tuple(self._diagnosis.observe(self._facts()))
        return found + self._left[1] if self._left[0] == record.step - 1 else found

    def tell_again(self, findings: Iterable[Finding]) -> None:
        """What was found in the step at the cursor before the run went back to it, and would be found again."""
        at = self._run.stepper.cursor.step
        self._run.findings.extend(f for f in findings if f.step == at and f not in self._run.findings)

    def part(self, step: int) -> None:
        """The run goes otherwise than recorded from `step` on: what was found from there on is not so."""
        recorded = self._run.recorded
        assert recorded is not None
        self._run.findings = deque((f for f in recorded.findings if f.step < step), maxlen=MAX_FINDINGS)
        self._diagnosis = Diagnosis(self._facts_before)

    # --- what the rules look at

    def _facts(self, after: AfterStep | None = None) -> StepFacts:
        """What is known of the step at the cursor."""
        run = self._run
        record, given, counted = run.record, run.log.given, run.counted
        assert record is not None
        assert given is not None
        known = counted is not None and counted.step == record.step and record.grad_norm is not None
        return StepFacts(
            step=record.step,
            layout=run.stepper.layout,
            hyper=given.hyper,
            gradients=None if given.gradients is NOT_COUNTED else given.gradients,
            grad_norm=record.grad_norm,
            clip_scale=record.clip_scale,
            loss=record.loss,
            initial_moments=self._initial_moments,
            initial_state=self._initial_state,
            variant=run.stepper.plan.variant,
            plan=run.stepper.plan,
            table=counted.params if known and counted is not None else None,
            coding=run.eight_bit.before_update_of(run.stepper),
            after=after,
            nonfinite=self._nonfinite_params(given),
        )

    def _nonfinite_params(self, given: Given) -> Mapping[str, NonFinite]:
        """Where the params are not all counted, those with gradients that are not finite: looked into once a step."""
        stepper = self._run.stepper
        if self._run.stats_level == "full":
            return {}
        if self._nonfinite is None and before_updates(stepper.plan, stepper.cursor):
            # The update takes them away.
            self._nonfinite = nonfinite_params(stepper, given.hyper, given.gradients)
        return self._nonfinite or {}

    def _facts_before(self, step: int) -> StepFacts | None:
        """Of a step that a recording tells, where this run goes on from it."""
        if self._recorded_facts is None or self._run.course.is_own(step):
            return None
        return self._recorded_facts.at(step)
