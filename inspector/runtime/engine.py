"""A run under control: a source, a stepper and the numbers they give, moved by one call at a time.

Knows no threads; the worker calls it from its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping

from inspector.diagnosis.findings import Finding
from inspector.diagnosis.watchpoints import Condition
from inspector.floats import F32Array
from inspector.hyper import Hyper
from inspector.param_hyper import columns
from inspector.plan import Variant
from inspector.progress import counting, watched
from inspector.runtime.breakpoints import Breakpoints, higher, norm_known_at
from inspector.runtime.changing import Changing
from inspector.runtime.judging import Judging
from inspector.runtime.kernel_metrics import kernel_metrics
from inspector.runtime.parts import MakeStepper
from inspector.runtime.placing import Placing
from inspector.runtime.recorded import RecordedRun
from inspector.runtime.returning import Returning
from inspector.runtime.run_diagnosis import RunDiagnosis
from inspector.runtime.run_state import RunState
from inspector.runtime.snapshots import CountedParams
from inspector.runtime.step_log import Given
from inspector.runtime.ways import Way
from inspector.sources.base import Source
from inspector.statistics import NOT_COUNTED, StatsLevel
from inspector.stepping import Cursor, HostGradients, HostState, KernelTime, Stepper

MAX_CATCH_UP = 256
"""Steps that are run again at most after a device was lost; further back the run goes on from the copy."""


class Engine(RunState):
    """A run that moves forward, back and between settings, and what its steps gave.

    `hyper` is what a person set; the schedule multiplies its lr.
    """

    def __init__(
        self,
        source: Source,
        stepper: Stepper,
        *,
        hyper: Hyper | None = None,
        keep_checkpoint: bool = True,
        stats: StatsLevel = "light",
        breakpoints: Breakpoints | None = None,
        recorded: RecordedRun | None = None,
        make: MakeStepper | None = None,
    ) -> None:
        """`recorded` is the recording that `source` is, where its steps are to be at hand; `make` makes another
        stepper where the run goes on in a form for which the params have to be laid out otherwise."""
        super().__init__(
            source, stepper, hyper=hyper, keep_checkpoint=keep_checkpoint, stats=stats, breakpoints=breakpoints,
            recorded=recorded,
        )  # fmt: skip
        self._placing = Placing(source, make, stepper.plan.variant)
        self._diagnosis = RunDiagnosis(self)
        self._judging = Judging(self, self._diagnosis)
        self._changing = Changing(self, self._placing, self._diagnosis)
        self._returning = Returning(
            self, self._placing, self._changing, self._diagnosis, self._judging, self._went_back
        )
        first = stepper.cursor.finished_steps + 1
        self.course.choose(first, stepper.plan.variant)
        self._changing.part(first)

    # --- forward

    def begin(self) -> None:
        """Take the gradients of the next step, so that the cursor is before its first dispatch.

        Raises EndOfSourceError where the source has none.
        """
        step = self.stepper.cursor.step + 1
        gradients = self.source.gradients(step, self._weights)
        self._changing.follow_form(step)
        self.stepper.begin_step(gradients, self.course.hyper_at(step))
        self.eight_bit.begun(gradients)
        counts = NOT_COUNTED if self.stats_level == "off" else self.stepper.counts("g")
        if self.stats_level != "full":
            self.log.counted = None
        self.course.begun(step)
        hyper, theirs = self.course.hyper_at(step), None
        if self.recorded is not None and not math.isfinite(hyper.max_grad_norm):
            theirs = self.recorded.before_clipping(step)
        given = Given(hyper, counts, theirs)
        self._diagnosis.given(given)
        loss = gradients.loss if isinstance(gradients, HostGradients) else None
        self.log.begun(step, given, loss, self.stepper.cursor.count)
        self._diagnosis.begun()
        if self.follower is not None:
            self.follower.begun(self)

    def step_dispatch(self) -> None:
        """Run one dispatch, the first of the next step where this one is complete; none where a breakpoint holds."""
        if self._goes_on():
            self.ran_beside((self.stepper.run_dispatch(self.step_hyper),))
            self._stops(ran=True)

    def step_iteration(self) -> None:
        """Run to the end of the step, or the whole next one; to where a breakpoint holds."""
        if not self._goes_on():
            return
        if (
            self.stats_level == "full"
            or self.breakpoints.wait_for_norm
            or self.eight_bit.measures(self.stepper)
            or self.decay.on
        ):
            # To where the params are counted and breakpoints judged, which is between two dispatches.
            self.ran_beside(self.stepper.run_until(self.step_hyper, norm_known_at(self.stepper.plan)))
            if self._stops(ran=True):
                return
        while self.breakpoints.wait_for_updates and not self.stepper.cursor.at_end:
            self.ran_beside((self.stepper.run_dispatch(self.step_hyper),))
            if self._stops(ran=True):
                return
        self.finish_step()

    def step_towards(self, place: Cursor) -> None:
        """Run towards a place: the rest of a step before it, then dispatch by dispatch; to where a breakpoint holds."""
        cursor = self.stepper.cursor
        if cursor.step < place.step and not cursor.at_end:
            self.step_iteration()
        elif cursor.at_end and place.dispatch == 0:
            self._goes_on()
        else:
            self.step_dispatch()

    def finish_step(self) -> None:
        """Run what is left of the step, whatever holds."""
        if not self.stepper.cursor.at_end:
            self.ran_beside(self.stepper.run_to_end(self.step_hyper))

    def run_again_to(self, dispatch: int) -> None:
        """Run the step at the cursor on to behind so many dispatches, whatever holds: as far as it had run before."""
        while self.stepper.cursor.dispatch < min(dispatch, self.stepper.cursor.count):
            self.ran_beside((self.stepper.run_dispatch(self.step_hyper),))

    # --- what came of it

    def ran_beside(self, times: tuple[KernelTime, ...]) -> None:
        """The stepper ran up to where it stands, in one go, and these are the times; whoever had it run."""
        if not times:
            return
        cursor, plan = self.stepper.cursor, self.stepper.plan
        self.log.ran(cursor, times)
        written = plan.dispatches[cursor.dispatch - len(times) : cursor.dispatch]
        if any(b.buffer == "grad_stats" for d in written for b in d.writes):
            self.log.took_norm(self.stepper.grad_stats())
            if not any(d.updates for d in written):
                if self.stats_level == "full":
                    self._count_params()
                self.eight_bit.before_update(self.stepper, self.step_hyper)
                self.decay.before_update(self.stepper, self.step_hyper)
            self._diagnosis.observe()
        if cursor.at_end:
            self._finish()

    def _count_params(self) -> None:
        table = self.stepper.param_stats(self.step_hyper)
        step, hyper = self.stepper.cursor.step, self.step_hyper
        own = None if hyper.per_param is None else columns(hyper, self.stepper.layout, table.names, step)
        self.log.counted = CountedParams(step, table, self.stepper.param_stats_ms, own)

    def _finish(self) -> None:
        record = self.record
        assert record is not None
        metrics = {"lr": record.lr, "nonfinite": float(record.nonfinite.total)}
        for name, value in zip(
            ("loss", "grad_norm", "clip_scale"), (record.loss, *record.of_run), strict=True
        ):
            if value is not None:
                metrics[name] = value
        metrics |= kernel_metrics(self.stepper.plan, self.dispatch_times)
        metrics |= self.eight_bit.finished(self.stepper, self.step_hyper)
        self.decay.finished(self.stepper, self.step_hyper)
        if self.course.is_own(record.step):
            self.own_history.append(record.step, metrics)
            self._plot(record.step)
        self.log.finished(record, self.stepper.cursor.count)
        self._diagnosis.finished()
        self.checkpoints.make(self.stepper)
        if self.follower is not None:
            self.marks.tell(record.step, self.follower.marked)
            self.follower.completed(self, record, self.step_hyper)

    def _plot(self, step: int) -> None:
        """Keep what is plotted of the step that is complete."""
        given, counted = self.log.given, self.counted
        if not self.plotting or given is None:
            return
        if counted is not None and counted.step != step:
            counted = None
        whole = counted.totals[0] if counted is not None and self.plotting.needs_whole else None
        table = None if counted is None else counted.params
        self.plotting.finished(step, table, whole, given.gradients)

    # --- breakpoints

    def _goes_on(self) -> bool:
        """Begin the next step where this one is complete; False where a breakpoint holds before anything runs."""
        self.breakpoints.moved()
        if self.stepper.cursor.at_end:
            self.begin()
        return not self._stops()

    def _stops(self, *, ran: bool = False) -> bool:
        """True where a breakpoint holds that has not stopped the run in this step yet; `ran` right after a dispatch."""
        hit = self._judging.hit(ran=ran)
        if hit is None:
            return False
        for each in (hit, *hit.also):
            if not each.aimed:
                self.note_stop(each.step, each.mark)
        # One that stops once is disabled by now.
        self.breakpoints_changed()
        if self.follower is not None:
            self.follower.fire()
        return True

    def breakpoints_changed(self) -> None:
        """Count and measure what they need from the next step on, or from the one at the cursor."""
        if higher(self.stats_level, self.breakpoints.needs) != self.stats_level:
            self.set_stats(self.breakpoints.needs)
        self.eight_bit.wanted = self.breakpoints.needs_coding

    def judge_here(self, condition: Condition) -> bool:
        """True where a condition on a metric holds at the cursor, before the update of its step."""
        return self._judging.holds(condition)

    def tell_again(self, findings: Iterable[Finding]) -> None:
        """What was found in the step at the cursor before the run went back to it, and would be found again."""
        self._diagnosis.tell_again(findings)

    # --- back, and to a step

    def undo_dispatch(self) -> bool:
        """Take the last dispatch back; False where memory does not reach."""
        return self._returning.undo_dispatch()

    def undo_iteration(self) -> bool:
        """Go to the start of the step, or of the one before; False where memory does not reach."""
        return self._returning.undo_iteration()

    def rewind_to(self, step: int) -> bool:
        """Go back to the end of step `step`; False where memory does not reach."""
        return self._returning.rewind_to(step)

    def way_to(self, to: int) -> Way | None:
        """The shortest way to the end of step `to`, None where none leads there."""
        return self._returning.way_to(to)

    def ways_from_states(self, to: int) -> Iterator[Way]:
        """Ways to the end of step `to` from states that are kept, were captured, or that it began with."""
        return self._returning.ways_from_states(to)

    def set_off(self, way: Way, progress: Callable[[float], None] = lambda share: None) -> None:
        """Go to where `way` begins; its steps are run by `step_iteration`.

        `progress` is told the share of a state that is on the device; what it raises leaves the run nowhere.
        """
        self._returning.set_off(way, progress)

    def _went_back(self) -> None:
        if self.follower is not None:
            self.follower.moved_back(self)

    # --- what holds from here on

    def set_hyper(self, name: str, value: float) -> int:
        """Change one setting; returns the first step it holds for. UsageError for a value nobody can mean."""
        return self._changing.set_hyper(name, value)

    def set_schedule(self, text: str) -> int:
        """Change the schedule; returns the first step it holds for. UsageError for text that is none."""
        return self._changing.set_schedule(text)

    def set_stats(self, level: StatsLevel) -> None:
        """Count so much from the next step on, or from the one at the cursor if none of it has run.

        More where breakpoints need it.
        """
        self._changing.set_stats(level)

    def set_variant(self, variant: Variant) -> None:
        """Run in another form from here on; UsageError in the middle of a step."""
        self._changing.set_variant(variant)

    def lay_out_anew(self, variant: Variant) -> HostState:
        """Run in a form that needs another layout from here on; gives the state that it goes on from.

        UsageError in the middle of a step. Where that form cannot run, or a person ends the making of it, the run
        stands as it stood before the reason is raised.
        """
        return self._changing.lay_out_anew(variant, self.begin)

    # --- the state on the host

    def _weights(self) -> Mapping[str, F32Array]:
        kept = self.checkpoint
        if kept is not None and kept.finished_steps == self.stepper.cursor.finished_steps:
            return {s.name: kept.w[s.name].reshape(s.param.shape) for s in self.stepper.layout}
        return self.stepper.weights()

    def recover(self, stepper: Stepper) -> None:
        """Go on with a new stepper that was made from the checkpoint or the source's own state.

        The few steps since then are run again, with the settings they had, up to the last complete one; not where any
        of them ran in another form of the step. It says how far it is; ended, it stands after one of them.
        """
        lost_after = self.stepper.cursor.finished_steps
        settings = self.log.hypers()
        self.stepper = stepper
        self.eight_bit.replaced(lost=True)
        self.decay.replaced(lost=True)
        self._diagnosis.replaced()
        self.log.forget_step(stepper.cursor.count)
        self._returning.stands_elsewhere()
        self.log.record = self.log.record_of(stepper.cursor.step)
        missing = range(stepper.cursor.finished_steps + 1, lost_after + 1)
        same_form = missing.start >= self.form_since
        self.form_since = min(self.form_since, missing.start)
        if same_form and len(missing) <= MAX_CATCH_UP and all(step in settings for step in missing):
            begun = counting(len(missing))
            for step in missing:
                # Ended here, it stands after a step that is complete.
                begun(1)
                with watched(None):
                    self.begin()
                    self.log.set_hyper(step, settings[step])
                    self.ran_beside(stepper.run_to_end(settings[step]))
