"""A run under control: a source, a stepper and the numbers they give, moved by one call at a time.

Knows no threads; the worker calls it from its own.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from types import MappingProxyType
from typing import TypeVar

from inspector.diagnosis.diagnosis import Diagnosis
from inspector.diagnosis.facts import AfterStep, StepFacts
from inspector.diagnosis.findings import Finding
from inspector.diagnosis.watchpoints import Condition, Moment, judge
from inspector.errors import InspectorError, UsageError
from inspector.floats import F32Array, shortest
from inspector.history import History, HistoryRecorder
from inspector.hyper import Hyper, check_value
from inspector.layout import Layout
from inspector.optimizers import optimizer
from inspector.param_hyper import columns
from inspector.param_statistics import ParamStats, ParamTable
from inspector.plan import Variant, required_placement
from inspector.progress import counting, watched
from inspector.runtime.breakpoints import (
    Breakpoints,
    before_updates,
    held_after_update,
    higher,
    moment_of,
    nonfinite_params,
    norm_known_at,
)
from inspector.runtime.course import Course
from inspector.runtime.decay_watch import DecayWatch
from inspector.runtime.kernel_metrics import kernel_metrics
from inspector.runtime.lockstep import EightBit
from inspector.runtime.own_check import OwnCheck
from inspector.runtime.parts import Follower, MakeStepper
from inspector.runtime.plotting import Plotting
from inspector.runtime.recorded import RecordedRun
from inspector.runtime.recorded_facts import RecordedFacts
from inspector.runtime.snapshots import CountedParams, Mark, StepRecord
from inspector.runtime.ways import KeptStates, Way
from inspector.schedule import Schedule
from inspector.sources.base import Source
from inspector.statistics import NOT_COUNTED, BufferStats, NonFinite, StatsLevel
from inspector.stepping import Cursor, HostGradients, HostState, KernelTime, State, Stepper

RECORDS = 4096
"""Steps whose full records are kept; what lies further back stands in the history only."""
MAX_MARKS = 1000
MAX_FINDINGS = 1000
TIMED_STEPS = 5
"""Steps whose times are kept dispatch by dispatch, for a trace."""
CHECKPOINT_SHARE = 10
"""A copy of the state on the host is made when at least so many times its cost has passed since the last."""
MAX_CHECKPOINT_BYTES = 2 << 30
MAX_CATCH_UP = 256
"""Steps that are run again at most after a device was lost; further back the run goes on from the copy."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Pending:
    """The step at the cursor: what holds for the whole of it."""

    hyper: Hyper
    """With the schedule applied to lr."""
    gradients: BufferStats


class Engine:
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
        stepper where a recording goes on in a form for which the params have to be laid out otherwise."""
        self.source = source
        self.stepper = stepper
        self.recorded = recorded
        self._make = make
        self.record: StepRecord | None = None
        self.breakpoints = Breakpoints() if breakpoints is None else breakpoints
        self.stats_level: StatsLevel = higher(stats, self.breakpoints.needs)
        """As asked for, or more where breakpoints need it."""
        self.eight_bit = EightBit()
        self.eight_bit.wanted = self.breakpoints.needs_coding
        self.decay = DecayWatch()
        self.follower: Follower | None = None
        self.plotting: Plotting | None = None
        self.counted: CountedParams | None = None
        """The latest statistics of the params, which are counted at level "full" once the gradient norm is known."""
        self.dispatch_times: list[KernelTime | None] = [None] * stepper.cursor.count
        self.marks: deque[Mark] = deque(maxlen=MAX_MARKS)
        self.findings: deque[Finding] = deque(maxlen=MAX_FINDINGS)
        self.checkpoint: HostState | None = None
        self.last_times: deque[tuple[KernelTime, ...]] = deque(maxlen=TIMED_STEPS)
        """Of the last complete steps that ran in this form on this stepper, in the order in which they ran."""
        self._keep_checkpoint = keep_checkpoint
        self._checkpoint_cost = 0.0
        self._checkpoint_at = -float("inf")
        self._kept = KeptStates()
        self._began_at = stepper.cursor.finished_steps
        self._laid = stepper.plan.variant
        self._laid_as: Layout | None = None
        """The recorded layout that the stepper was made for; where the device cannot bind it, its own is another."""
        self.nowhere = False
        """True where the device holds no state that any step had: none could be rebuilt."""
        self._form_since = 0
        """The first step that runs in the present form."""
        self._history = HistoryRecorder()
        self._records: OrderedDict[int, StepRecord] = OrderedDict()
        self._pending: _Pending | None = None
        self._pendings: OrderedDict[int, _Pending] = OrderedDict()
        self._recorded_facts = RecordedFacts(recorded.session) if recorded is not None else None
        self._diagnosis = Diagnosis(self._facts_before)
        self._own_check = OwnCheck()
        self._nonfinite: Mapping[str, NonFinite] | None = None
        """Of the step at the cursor, once somebody looked."""
        self._held: tuple[int, ParamTable] | None = None
        """A step, and what its params held after the last update of it that breakpoints were judged after."""
        self._fresh: tuple[Finding, ...] = ()
        """What was found last, in the step at the cursor."""
        self._left: tuple[int, tuple[Finding, ...]] = (0, ())
        """What a step was found to have left behind once it was complete: breakpoints stop in the next."""
        self._initial_state = MappingProxyType({lane: stepper.given_counts(lane) for lane in ("w", "m", "v")})
        self._initial_moments = stepper.cursor.finished_steps == 0 and any(
            self._initial_state[lane].zeros != stepper.layout.elements for lane in ("m", "v")
        )
        first = stepper.cursor.finished_steps + 1
        self.course = Course(source, hyper or source.hyper, source.schedule, first, recorded)
        self.course.choose(first, stepper.plan.variant)
        self._part(first)

    # --- what holds

    @property
    def hyper(self) -> Hyper:
        """What a person set, before the schedule."""
        return self.course.hyper

    def tell_again(self, findings: Iterable[Finding]) -> None:
        """What was found in the step at the cursor before the run went back to it, and would be found again."""
        at = self.stepper.cursor.step
        self.findings.extend(f for f in findings if f.step == at and f not in self.findings)

    @property
    def step_hyper(self) -> Hyper:
        """What the step at the cursor runs with, the schedule applied to its lr."""
        return self._step_hyper()

    @property
    def schedule(self) -> Schedule:
        """What multiplies the lr."""
        return self.course.schedule

    # --- forward

    def begin(self) -> None:
        """Take the gradients of the next step, so that the cursor is before its first dispatch.

        Raises EndOfSourceError where the source has none.
        """
        step = self.stepper.cursor.step + 1
        gradients = self.source.gradients(step, self._weights)
        self._follow_form(step)
        self.stepper.begin_step(gradients, self.course.hyper_at(step))
        self.eight_bit.begun(gradients)
        counts = NOT_COUNTED if self.stats_level == "off" else self.stepper.counts("g")
        if self.stats_level != "full":
            self.counted = None
        self._nonfinite = None
        self.course.begun(step)
        self._pending = _Pending(self.course.hyper_at(step), counts)
        _keep(self._pendings, step, self._pending)
        self._nonfinite_params(self._pending)
        loss = gradients.loss if isinstance(gradients, HostGradients) else None
        self.record = StepRecord(step, self._pending.hyper.lr, loss, nonfinite=counts.nonfinite)
        self.dispatch_times = [None] * self.stepper.cursor.count
        self._own_check.begun(self.stepper, self.stats_level)
        if self.follower is not None:
            self.follower.begun(self)

    def step_dispatch(self) -> None:
        """Run one dispatch, the first of the next step where this one is complete; none where a breakpoint holds."""
        if self._goes_on():
            self._ran((self.stepper.run_dispatch(self._step_hyper()),))
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
            self._ran(self.stepper.run_until(self._step_hyper(), norm_known_at(self.stepper.plan)))
            if self._stops(ran=True):
                return
        while self.breakpoints.wait_for_updates and not self.stepper.cursor.at_end:
            self._ran((self.stepper.run_dispatch(self._step_hyper()),))
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
            self._ran(self.stepper.run_to_end(self._step_hyper()))

    def run_again_to(self, dispatch: int) -> None:
        """Run the step at the cursor on to behind so many dispatches, whatever holds: as far as it had run before."""
        while self.stepper.cursor.dispatch < min(dispatch, self.stepper.cursor.count):
            self._ran((self.stepper.run_dispatch(self._step_hyper()),))

    def ran_beside(self, times: tuple[KernelTime, ...]) -> None:
        """The stepper was run by somebody else up to where it stands, in one go, and these are the times."""
        self._ran(times)

    def _goes_on(self) -> bool:
        """Begin the next step where this one is complete; False where a breakpoint holds before anything runs."""
        self.breakpoints.moved()
        if self.stepper.cursor.at_end:
            self.begin()
        return not self._stops()

    def _stops(self, *, ran: bool = False) -> bool:
        """True where a breakpoint holds that has not stopped the run in this step yet; `ran` right after a dispatch.

        Once an update has run, what the params hold is judged after each: nothing else has changed.
        """
        plan, cursor = self.stepper.plan, self.stepper.cursor
        if not self.breakpoints or self._pending is None or self.record is None:
            return False
        updated = not before_updates(plan, cursor)
        if updated:
            if not (
                ran and self.breakpoints.wait_for_updates and plan.dispatches[cursor.dispatch - 1].updates
            ):
                return False
            known = self._held if self._held is not None and self._held[0] == cursor.step else None
            before = (
                known[1] if known else (self.counted.params if self.counted and self.param_stats else None)
            )
            self._held = cursor.step, held_after_update(self.stepper, self._step_hyper(), before)
        hit = self.breakpoints.judge(self._moment(updated=updated), plan, cursor)
        if hit is None:
            return False
        if not updated:
            self._diagnose()
        for each in (hit, *hit.also):
            if not each.aimed:
                self.mark(each.step, each.mark, stop=True)
        # One that stops once is disabled by now.
        self.breakpoints_changed()
        if self.follower is not None:
            self.follower.fire()
        return True

    def _moment(self, *, updated: bool = False) -> Moment:
        assert self.record is not None
        assert self._pending is not None
        record, counted = self.record, self.counted if self.param_stats else None
        if updated and self._held is not None:
            counted = CountedParams(record.step, self._held[1], None)
        known = record.grad_norm is not None and record.clip_scale is not None
        findings: tuple[Finding, ...] = ()
        if self.breakpoints.want_findings and not updated:
            findings = self._fresh if known else tuple(self._diagnosis.observe(self._facts()))
            if self._left[0] == record.step - 1:
                findings += self._left[1]
        return moment_of(
            self.stepper,
            lr=record.lr,
            loss=record.loss,
            counts=self._pending.gradients,
            grad_norm=record.grad_norm,
            clip_scale=record.clip_scale,
            table=counted.params if counted else None,
            whole=counted.totals[0] if counted else None,
            coding=self.eight_bit.before_update_of(self.stepper),
            findings=findings,
            updated=updated,
        )

    def breakpoints_changed(self) -> None:
        """Count and measure what they need from the next step on, or from the one at the cursor."""
        if higher(self.stats_level, self.breakpoints.needs) != self.stats_level:
            self.set_stats(self.breakpoints.needs)
        self.eight_bit.wanted = self.breakpoints.needs_coding

    def _ran(self, times: tuple[KernelTime, ...]) -> None:
        if not times:
            return
        assert self.record is not None
        cursor = self.stepper.cursor
        first = cursor.dispatch - len(times)
        self.dispatch_times[first : cursor.dispatch] = times
        kernels = tuple(t for t in self.dispatch_times if t is not None)
        self.record = replace(self.record, kernels=kernels)
        written = self.stepper.plan.dispatches[first : cursor.dispatch]
        if any(b.buffer == "grad_stats" for d in written for b in d.writes):
            stats = self.stepper.grad_stats()
            self.record = replace(self.record, grad_norm=stats.grad_norm, clip_scale=stats.clip_scale)
            if self.stats_level == "full" and not any(d.updates for d in written):
                self._count_params()
            if not any(d.updates for d in written):
                self.eight_bit.before_update(self.stepper, self._step_hyper())
                self.decay.before_update(self.stepper, self._step_hyper())
            self._diagnose()
        if cursor.at_end:
            self._finish()

    def _count_params(self) -> None:
        table = self.stepper.param_stats(self._step_hyper())
        step, hyper = self.stepper.cursor.step, self._step_hyper()
        own = None if hyper.per_param is None else columns(hyper, self.stepper.layout, table.names, step)
        self.counted = CountedParams(step, table, self.stepper.param_stats_ms, own)

    def record_of(self, step: int) -> StepRecord | None:
        """The numbers of a step of this run, None where they are kept no longer, or not known yet."""
        known = self._records.get(step)
        if known is None and self.record is not None and self.record.step == step:
            return self.record
        return known

    @property
    def began_at(self) -> int:
        """The step after which it began."""
        return self._began_at

    def judge_here(self, condition: Condition) -> bool:
        """True where a condition on a metric holds at the cursor, before the update of its step."""
        moment = self._moment()
        rows = condition.matches([s.name for s in moment.layout.segments])
        verdict = judge(condition, moment, [row for row in rows if moment.layout.segments[row].numel])
        return verdict is not None and verdict.holds

    @property
    def param_stats(self) -> Sequence[ParamStats]:
        """Statistics of every param for the step at the cursor; empty where they were not counted."""
        counted = self.counted
        return counted.params if counted and counted.step == self.stepper.cursor.step else ()

    def _finish(self) -> None:
        assert self.record is not None
        record = self.record
        metrics = {"lr": record.lr, "nonfinite": float(record.nonfinite.total)}
        for name in ("loss", "grad_norm", "clip_scale"):
            value = getattr(record, name)
            if value is not None:
                metrics[name] = value
        metrics |= kernel_metrics(self.stepper.plan, self.dispatch_times)
        metrics |= self.eight_bit.finished(self.stepper, self._step_hyper())
        self.decay.finished(self.stepper, self._step_hyper())
        if self.course.is_own(record.step):
            self._history.append(record.step, metrics)
            self._plot()
        _keep(self._records, record.step, record)
        if len(record.kernels) == self.stepper.cursor.count:
            self.last_times.append(record.kernels)
        after = self._own_check.finished(self.stepper, self._step_hyper())
        if after is not None:
            before = self._fresh
            self._diagnose(after)
            self._left = record.step, tuple(f for f in self._fresh if f not in before)
        self._make_checkpoint()
        if self.follower is not None:
            self.follower.completed(self, record, self._step_hyper())

    def _plot(self) -> None:
        """Keep what is plotted of the step that is complete."""
        if not self.plotting or self._pending is None or self.record is None:
            return
        step, counted = self.record.step, self.counted
        if counted is not None and counted.step != step:
            counted = None
        whole = counted.totals[0] if counted is not None and self.plotting.needs_whole else None
        table = None if counted is None else counted.params
        self.plotting.finished(step, table, whole, self._pending.gradients)

    def _diagnose(self, after: AfterStep | None = None) -> None:
        """See what is wrong with the step at the cursor; again, in place of what was seen of it before."""
        assert self.record is not None
        own = self.course.is_own(self.record.step)
        self._fresh = ()
        if not own and not self.breakpoints.want_findings:
            # What was found in it is recorded.
            return
        facts = self._facts(after)
        self._fresh = tuple(self._diagnosis.observe(facts))
        if own:
            while self.findings and self.findings[-1].step >= facts.step:
                self.findings.pop()
            self.findings += self._fresh

    def _facts(self, after: AfterStep | None = None) -> StepFacts:
        """What is known of the step at the cursor."""
        assert self.record is not None
        assert self._pending is not None
        record, pending, counted = self.record, self._pending, self.counted
        known = counted is not None and counted.step == record.step and record.grad_norm is not None
        return StepFacts(
            step=record.step,
            layout=self.stepper.layout,
            hyper=pending.hyper,
            gradients=None if pending.gradients is NOT_COUNTED else pending.gradients,
            grad_norm=record.grad_norm,
            clip_scale=record.clip_scale,
            loss=record.loss,
            initial_moments=self._initial_moments,
            initial_state=self._initial_state,
            variant=self.stepper.plan.variant,
            plan=self.stepper.plan,
            table=counted.params if known and counted is not None else None,
            coding=self.eight_bit.before_update_of(self.stepper),
            after=after,
            nonfinite=self._nonfinite_params(pending),
        )

    def _nonfinite_params(self, pending: _Pending) -> Mapping[str, NonFinite]:
        """Where the params are not all counted, those with gradients that are not finite: looked into once a step."""
        if self.stats_level == "full":
            return {}
        if self._nonfinite is None and before_updates(self.stepper.plan, self.stepper.cursor):
            # The update takes them away.
            self._nonfinite = nonfinite_params(self.stepper, pending.hyper, pending.gradients)
        return self._nonfinite or {}

    def _facts_before(self, step: int) -> StepFacts | None:
        """Of a step that a recording tells, where this run goes on from it."""
        if self._recorded_facts is None or self.course.is_own(step):
            return None
        return self._recorded_facts.at(step)

    def take_findings(self) -> list[Finding]:
        """The findings since the last call, which are then forgotten."""
        found = list(self.findings)
        self.findings.clear()
        return found

    # --- back

    def undo_dispatch(self) -> bool:
        """Take the last dispatch back; False where memory does not reach."""
        return self.stepper.undo_dispatch() and self._moved()

    def undo_iteration(self) -> bool:
        """Go to the start of the step, or of the one before; False where memory does not reach."""
        return self.stepper.rewind_step() and self._moved()

    def rewind_to(self, step: int) -> bool:
        """Go back to the end of step `step`; False where memory does not reach."""
        return self.stepper.rewind_to(step) and self._moved()

    def way_to(self, to: int) -> Way | None:
        """The shortest way to the end of step `to`, None where none leads there."""
        cursor, here = self.stepper.cursor, self.stepper.cursor.finished_steps
        ways: list[Way] = []
        if not self.nowhere:
            if cursor.at_end and to == here:
                return Way(here, to)
            oldest = self.stepper.undo_info.oldest_step
            if to <= here and oldest is not None and oldest <= to:
                ways.append(Way(to, to, rewinds=True))
            if to > here and self._leads(here, to):
                ways.append(Way(here, to))
        ways += self.ways_from_states(to)
        return min(ways, key=lambda way: way.cost, default=None)

    def set_off(self, way: Way, progress: Callable[[float], None] = lambda share: None) -> None:
        """Go to where `way` begins; its steps are run by `step_iteration`.

        `progress` is told the share of a state that is on the device; what it raises leaves the run nowhere.
        """
        if way.rewinds:
            self.rewind_to(way.start)
        elif way.state is not None:
            self._restore(way.state(), progress)
        if way.jumps:
            self.course.rerun_to = way.to

    def _leads(self, start: int, to: int) -> bool:
        if self.recorded is not None:
            return self.recorded.leads(start, to)
        last = self.source.last_step
        return last is None or to <= last

    def ways_from_states(self, to: int) -> Iterator[Way]:
        """Ways to the end of step `to` from states that are kept, were captured, or that it began with."""
        own = self._kept.nearest(to)
        if own is not None and own >= self._form_since - 1 and self._leads(own, to):
            yield Way(own, to, state=partial(self._kept.at, own))
        if self.recorded is not None:
            # What was captured later is of a run that went otherwise.
            captured = self.recorded.nearest_state(
                to if self.course.as_recorded else min(to, self.course.own_from - 1)
            )
            if captured is not None and self._leads(captured, to):
                yield Way(captured, to, state=partial(self.recorded.state, captured))
        elif self._began_at <= to and self.began_at >= self._form_since - 1:
            yield Way(self._began_at, to, state=self.source.initial_state)

    def _restore(self, state: State, progress: Callable[[float], None]) -> None:
        self.nowhere = True
        recorded, finished = self.recorded, state.finished_steps
        if recorded is None or self.course.is_own(finished):
            self.stepper.restore(state, progress)
        else:
            step = max(finished, recorded.steps.start)
            layout, laid = self.course.layout_at(step), recorded.source.laid_out_for(finished)
            if self._placed_as(laid, layout):
                self.stepper.restore(state, progress)
            else:
                self._make_anew(laid, state, layout)
            self._take_form(self.course.form_at(step, laid), layout)
        self.nowhere = False
        self._moved()

    def _moved(self) -> bool:
        """The stepper stands elsewhere now."""
        self._forget_later()
        self.breakpoints.moved_back(self.stepper.cursor)
        if self.follower is not None:
            self.follower.moved_back(self)
        return True

    def _forget_later(self) -> None:
        """What was known of steps and dispatches after the cursor is so no longer, unless they were recorded."""
        cursor = self.stepper.cursor
        self._held = self._nonfinite = None
        self.eight_bit.moved_back(self.stepper)
        self.decay.moved_back(self.stepper)
        self._checkpoint_at = -float("inf")
        self.course.rerun_to = 0
        if self.checkpoint is not None and self.checkpoint.finished_steps > cursor.finished_steps:
            self.checkpoint = None
        self._kept.forget_after(cursor.finished_steps)
        self._pending = self._pendings.get(cursor.step)
        for kept in (self._records, self._pendings):
            while kept and next(reversed(kept)) > cursor.step:
                kept.popitem()
        if self.counted is not None and self.counted.step > cursor.step:
            self.counted = None
        if not self.course.as_recorded:
            self._history.truncate(max(cursor.finished_steps, self.course.own_from - 1))
            if self.plotting is not None:
                self.plotting.truncate(max(cursor.finished_steps, self.course.own_from - 1))
            last = max(cursor.step, self.course.own_from - 1)
            self.findings = deque((f for f in self.findings if f.step <= last), maxlen=MAX_FINDINGS)
        record = self._records.get(cursor.step) or self.record
        if self.recorded is not None and (record is None or record.step != cursor.step):
            record = None if self.course.is_own(cursor.step) else self.recorded.record(cursor.step)
            if self.counted is None or self.counted.step != cursor.step:
                self.counted = self.recorded.counted(cursor.step) if record is not None else None
        if record is None or record.step != cursor.step:
            self.record = None
            self.dispatch_times = [None] * cursor.count
            return
        times = list(record.kernels[: cursor.dispatch])
        self.dispatch_times = [*times, *[None] * (cursor.count - len(times))]
        known = any(
            b.buffer == "grad_stats"
            for d in self.stepper.plan.dispatches[: cursor.dispatch]
            for b in d.writes
        )
        if not known and self.counted is not None and self.counted.step == cursor.step:
            self.counted = None
        self.record = replace(
            record,
            kernels=tuple(times),
            grad_norm=record.grad_norm if known else None,
            clip_scale=record.clip_scale if known else None,
        )
        if not cursor.at_end:
            self._records.pop(cursor.step, None)

    def _part(self, step: int) -> None:
        """From `step` on something else holds: a recording tells nothing from there on."""
        recorded = self.recorded
        if not self.course.parts(step, self.stepper.cursor.finished_steps) or recorded is None:
            return
        self._history = recorded.history_to(step - 1)
        if self.plotting is not None:
            self.plotting.truncate(step - 1)
        self._kept.forget_after(step - 1)
        self.findings = deque((f for f in recorded.findings if f.step < step), maxlen=MAX_FINDINGS)
        self._diagnosis = Diagnosis(self._facts_before)

    # --- settings

    def set_hyper(self, name: str, value: float) -> int:
        """Change one setting; returns the first step it holds for. UsageError for a value nobody can mean."""
        check_value(name, value)
        old = getattr(self.hyper, name)
        step = self._takes_setting(self.course.changed(name, value), self.schedule)
        self.mark(step, f"{name} {shortest(old)} → {shortest(value)}")
        return step

    def set_schedule(self, text: str) -> int:
        """Change the schedule; returns the first step it holds for. UsageError for text that is none."""
        old, schedule = self.schedule, Schedule.from_text(text)
        step = self._takes_setting(self.hyper, schedule)
        self.mark(step, f"schedule {old} → {schedule}")
        return step

    def set_stats(self, level: StatsLevel) -> None:
        """Count so much from the next step on, or from the one at the cursor if none of it has run.

        More where breakpoints need it.
        """
        level = higher(level, self.breakpoints.needs)
        self.stats_level = level
        step = self.stepper.cursor.step
        if self.stepper.cursor.dispatch or self._pending is None:
            return
        counts = NOT_COUNTED if level == "off" else self.stepper.counts("g")
        self._pending = replace(self._pending, gradients=counts)
        _keep(self._pendings, step, self._pending)
        if self.record is not None:
            self.record = replace(self.record, nonfinite=counts.nonfinite)

    def set_variant(self, variant: Variant) -> None:
        """Run in another form from here on; UsageError in the middle of a step."""
        old = self.stepper.plan.variant
        self.stepper.set_variant(variant)
        self._reformed()
        self.mark_variant(old, variant)

    def _reformed(self) -> None:
        self.eight_bit.reformed(self.stepper)
        self.decay.reformed(self.stepper)
        self._own_check.reformed()
        self.last_times.clear()
        self.dispatch_times = [None] * self.stepper.cursor.count

    def _take_form(self, wanted: Variant, layout: Layout | None) -> bool:
        """Run in a form that was recorded, on another stepper where the params have to be laid out otherwise."""
        if wanted == self.stepper.plan.variant:
            return True
        if self.stepper.can_take(wanted):
            self.stepper.set_variant(wanted)
            self._reformed()
        elif self._make is not None:
            self._make_anew(wanted, self.stepper.state(), layout)
        else:
            return False
        return True

    def _make_anew(self, variant: Variant, state: State, layout: Layout | None) -> None:
        """Go on with `state` on another stepper, laid out as in `layout`, else for `variant`."""
        if self._make is None:
            raise UsageError("The params are not laid out for this form of the step: lay them out anew.")
        before = self.stepper.plan.variant
        # The old device goes first: two of them may not fit.
        self.stepper.close()
        try:
            self.stepper = self._make(self.source, variant, state, layout)
            self._laid, self._laid_as = variant, layout
        except InspectorError:
            self.stepper = self._make(self.source, before, state)
            self._laid, self._laid_as = before, None
            raise
        finally:
            self.eight_bit.replaced(lost=False)
            self.decay.replaced(lost=False)
            self._own_check.replaced()
            self.last_times.clear()
            self.counted = None
            self.dispatch_times = [None] * self.stepper.cursor.count

    def _placed_as(self, laid: Variant, layout: Layout | None) -> bool:
        """True where the params lie as they do for the form `laid`, or in `layout`, as far as the device can."""
        if layout is not None and layout is not self._laid_as and layout != self.stepper.layout:
            return False
        codecs = {v.codec for v in (laid, self._laid) if v.kernel == "8bit"}
        return required_placement(laid) == required_placement(self._laid) and len(codecs) <= 1

    def _follow_form(self, step: int) -> None:
        """Where a recording that runs again changed its form, change with it, as far as that is possible."""
        if not self._take_form(
            self.course.form_at(step, self.stepper.plan.variant), self.course.layout_at(step)
        ):
            self.mark(
                step, "the recording goes on in another form, for which the params are laid out otherwise"
            )

    def mark_variant(self, old: Variant, new: Variant) -> None:
        """Put a mark where another form begins, with what changed."""
        pairs = [(f.name, getattr(old, f.name), getattr(new, f.name)) for f in fields(Variant)]
        changed = ", ".join(
            # Of a kernel that was edited once more the name stays.
            f"{name} {was} → {now}" if str(was) != str(now) else f"{now} edited"
            for name, was, now in pairs
            if was != now
        )
        if changed:
            self._form_since = self._applies_from()
            self.course.choose(self._form_since, new)
            self._part(self._form_since)
            self._checkpoint_at = -float("inf")
            self.mark(self._form_since, changed)

    def replace_stepper(self, stepper: Stepper, cursor: Cursor, *, chosen: bool = False) -> None:
        """Go on with a new stepper that has the state of the old one; `cursor` is where the old one stood.

        `chosen` where a person wants its form, which a recording then no longer says.
        """
        self.stepper = stepper
        if chosen:
            step = cursor.step + (cursor.dispatch > 0)
            self.course.choose(step, stepper.plan.variant)
            self._part(step)
        self._laid = stepper.plan.variant
        self.eight_bit.replaced(lost=False)
        self.decay.replaced(lost=False)
        self._own_check.replaced()
        self.last_times.clear()
        # Its elements are those of the old layout.
        self.counted = None
        self.dispatch_times = [None] * stepper.cursor.count
        if cursor.dispatch == 0 and cursor.step > stepper.cursor.step:
            hyper = self._step_hyper()
            self.begin()
            self._set_step_hyper(hyper)

    def mark(self, step: int, text: str, *, stop: bool = False) -> None:
        """Put a mark on the time axis; that of a breakpoint once, however often the run goes back before it."""
        mark = Mark(step, text, stop)
        if stop and mark in self.marks:
            return
        self.marks.append(mark)
        if self.follower is not None:
            self.follower.marked(step, text)

    def _takes_setting(self, hyper: Hyper, schedule: Schedule) -> int:
        """Set them; returns the first step that takes them."""
        step = self._applies_from()
        self.course.set(step, hyper, schedule)
        self._part(step)
        if self.stepper.cursor.dispatch == 0:
            self._set_step_hyper(self.course.hyper_at(step))
        return step

    def _applies_from(self) -> int:
        """The first step that takes a changed setting: the one at the cursor if none of it has run."""
        cursor = self.stepper.cursor
        return cursor.step if cursor.dispatch == 0 else cursor.step + 1

    def _set_step_hyper(self, hyper: Hyper) -> None:
        """What the step at the cursor runs with, its lr as used."""
        if self._pending is None:
            return
        self._pending = replace(self._pending, hyper=hyper)
        # Kept for going back to this step as well: it has to run again with what it ran with.
        self._pendings[self.stepper.cursor.step] = self._pending
        if self.record is not None:
            self.record = replace(self.record, lr=hyper.lr)

    def _step_hyper(self) -> Hyper:
        return self._pending.hyper if self._pending else self.course.hyper_at(self.stepper.cursor.step)

    # --- what it shows

    def history(self) -> History:
        """All metrics: of a recording of all its steps, otherwise so far."""
        if self.recorded is not None and self.course.as_recorded:
            return self.recorded.history()
        return self._history.freeze()

    def all_findings(self) -> tuple[Finding, ...]:
        """What was found, in a recording as well."""
        if self.recorded is not None and self.course.as_recorded:
            return self.recorded.findings
        return tuple(self.findings)

    def all_marks(self) -> tuple[Mark, ...]:
        """What was changed at which step, in a recording as well."""
        if self.recorded is None:
            return tuple(self.marks)
        return (*(m for m in self.recorded.marks if not self.course.is_own(m.step)), *self.marks)

    def uniforms(self) -> Mapping[str, tuple[float, ...]]:
        """The uniforms of the step at the cursor, by key; those of step 1 before it."""
        step = self.stepper.cursor.step
        return self.uniforms_of(max(step, 1), self._step_hyper() if step else None)

    def uniforms_of(self, step: int, hyper: Hyper | None = None) -> Mapping[str, tuple[float, ...]]:
        """The uniforms of a step, by key, with what it runs with where `hyper` is not given."""
        variant = self.stepper.plan.variant
        used = self.course.hyper_at(step) if hyper is None else hyper
        values = optimizer(variant.optimizer).uniforms(used, step, variant.numerics)
        return MappingProxyType({key: tuple(float(x) for x in value) for key, value in values.items()})

    @property
    def at_source_end(self) -> bool:
        """True where the source has no gradients for another step."""
        last = self.source.last_step
        return last is not None and self.stepper.cursor.at_end and self.stepper.cursor.step >= last

    # --- state on the host

    def _weights(self) -> Mapping[str, F32Array]:
        kept = self.checkpoint
        if kept is not None and kept.finished_steps == self.stepper.cursor.finished_steps:
            return {s.name: kept.w[s.name].reshape(s.param.shape) for s in self.stepper.layout}
        return self.stepper.weights()

    def _make_checkpoint(self) -> None:
        """Keep the state on the host, as often as that is cheap, so that a lost device loses little."""
        if not self._keep_checkpoint or 12 * self.stepper.layout.padded_elements > MAX_CHECKPOINT_BYTES:
            return
        started = time.perf_counter()
        if started - self._checkpoint_at < CHECKPOINT_SHARE * self._checkpoint_cost:
            return
        self.checkpoint = self.stepper.state()
        self._kept.keep(self.checkpoint)
        self._checkpoint_at = time.perf_counter()
        self._checkpoint_cost = self._checkpoint_at - started

    def recover(self, stepper: Stepper) -> None:
        """Go on with a new stepper that was made from the checkpoint or the source's own state.

        The few steps since then are run again, with the settings they had, up to the last complete one; not where any
        of them ran in another form of the step. It says how far it is; ended, it stands after one of them.
        """
        lost_after = self.stepper.cursor.finished_steps
        settings = {step: pending.hyper for step, pending in self._pendings.items()}
        self.stepper = stepper
        self.eight_bit.replaced(lost=True)
        self.decay.replaced(lost=True)
        self._own_check.replaced()
        self._pending = None
        self.record = None
        self.last_times.clear()
        self.dispatch_times = [None] * stepper.cursor.count
        self._moved()
        self.record = self._records.get(stepper.cursor.step)
        missing = range(stepper.cursor.finished_steps + 1, lost_after + 1)
        same_form = missing.start >= self._form_since
        self._form_since = min(self._form_since, missing.start)
        if same_form and len(missing) <= MAX_CATCH_UP and all(step in settings for step in missing):
            begun = counting(len(missing))
            for step in missing:
                # Ended here, it stands after a step that is complete.
                begun(1)
                with watched(None):
                    self.begin()
                    self._set_step_hyper(settings[step])
                    self._ran(stepper.run_to_end(settings[step]))


def _keep(kept: OrderedDict[int, T], step: int, value: T) -> None:
    kept[step] = value
    while len(kept) > RECORDS:
        kept.popitem(last=False)
