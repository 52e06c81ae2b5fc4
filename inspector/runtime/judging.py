"""Breakpoints judged on the step at the cursor, from what is known of it by then."""

from __future__ import annotations

from inspector.diagnosis.findings import Finding
from inspector.diagnosis.watchpoints import Condition, Moment, judge
from inspector.param_statistics import ParamTable
from inspector.runtime.breakpoints import before_updates, held_after_update, moment_of
from inspector.runtime.hits import Hit
from inspector.runtime.run_diagnosis import RunDiagnosis
from inspector.runtime.run_state import RunState
from inspector.runtime.snapshots import CountedParams


class Judging:
    """Judges `run` at each stop between two dispatches."""

    def __init__(self, run: RunState, diagnosis: RunDiagnosis) -> None:
        self._run = run
        self._diagnosis = diagnosis
        self.held: tuple[int, ParamTable] | None = None
        """A step, and what its params held after the last update of it that breakpoints were judged after."""

    def moved_back(self) -> None:
        """The run stands elsewhere now."""
        self.held = None

    def hit(self, *, ran: bool) -> Hit | None:
        """The breakpoint that holds and has not stopped the run in this step yet; `ran` right after a dispatch.

        Once an update has run, what the params hold is judged after each: nothing else has changed.
        """
        run = self._run
        plan, cursor = run.stepper.plan, run.stepper.cursor
        if not run.breakpoints or run.log.given is None or run.record is None:
            return None
        updated = not before_updates(plan, cursor)
        if updated:
            if not (
                ran and run.breakpoints.wait_for_updates and plan.dispatches[cursor.dispatch - 1].updates
            ):
                return None
            known = self.held if self.held is not None and self.held[0] == cursor.step else None
            counted = run.counted
            before = known[1] if known else (counted.params if counted and run.param_stats else None)
            self.held = cursor.step, held_after_update(run.stepper, run.step_hyper, before)
        hit = run.breakpoints.judge(self._moment(updated=updated), plan, cursor)
        if hit is not None and not updated:
            self._diagnosis.observe()
        return hit

    def holds(self, condition: Condition) -> bool:
        """True where a condition on a metric holds at the cursor, before the update of its step."""
        moment = self._moment()
        rows = condition.matches([s.name for s in moment.layout.segments])
        verdict = judge(condition, moment, [row for row in rows if moment.layout.segments[row].numel])
        return verdict is not None and verdict.holds

    def _moment(self, *, updated: bool = False) -> Moment:
        run = self._run
        record, given, counted = run.record, run.log.given, run.counted if run.param_stats else None
        assert record is not None
        assert given is not None
        if updated and self.held is not None:
            counted = CountedParams(record.step, self.held[1], None)
        findings: tuple[Finding, ...] = ()
        if run.breakpoints.want_findings and not updated:
            findings = self._diagnosis.found_so_far()
        norm, scale = record.of_run
        return moment_of(
            run.stepper,
            lr=record.lr,
            loss=record.loss,
            counts=given.gradients,
            grad_norm=norm,
            clip_scale=scale,
            table=counted.params if counted else None,
            whole=counted.totals[0] if counted else None,
            coding=run.eight_bit.before_update_of(run.stepper),
            findings=findings,
            updated=updated,
        )
