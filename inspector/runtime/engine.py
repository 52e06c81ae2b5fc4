"""A run under control: a source, a stepper and the numbers they give, moved by one call at a time.

Knows no threads; the worker calls it from its own.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Protocol, TypeVar

from inspector.comparison import Comparison
from inspector.diagnosis.findings import Finding
from inspector.diagnosis.rules import SETTING_RULES, StepFacts, step_findings
from inspector.floats import F32Array, shortest
from inspector.history import History, HistoryRecorder
from inspector.hyper import Hyper, check_value, with_value
from inspector.optimizers import optimizer
from inspector.param_statistics import ParamStats, totals
from inspector.plan import Plan, Variant
from inspector.runtime.lockstep import EightBit
from inspector.runtime.replay import MakeStepper
from inspector.runtime.snapshots import CountedParams, Mark, StepRecord
from inspector.schedule import Schedule
from inspector.sources.base import AsRecorded, Source, hyper_at
from inspector.statistics import NOT_COUNTED, BufferStats, StatsLevel
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


class OpenRun(Protocol):
    """What the runtime is handed: ways to a source and to a stepper for it."""

    def open_source(self, spec: str) -> Source: ...
    def hyper(self, source: Source) -> Hyper:
        """The hyper-parameters to start it with."""
        ...

    def make_stepper(self, source: Source, variant: Variant, state: State) -> Stepper: ...

    def replay_maker(self) -> MakeStepper:
        """What makes the steppers of a replay beside a run: each on a device of its own, with nothing kept for undo."""
        ...

    def compare(
        self,
        source: Source,
        stepper: Stepper,
        *,
        samples: int,
        seconds: float,
        copy_gbps: float | None,
        progress: Callable[[int, int], None],
    ) -> Comparison:
        """The form in which `stepper` runs beside those that differ from it in one factor, on its device.

        `stepper` stays as it is. `copy_gbps` is measured where not given. `progress` is told between any two
        steps how many warm samples there are, of how many (0 while all is being prepared); what it raises ends
        the comparison.
        """
        ...


class Follower(Protocol):
    """Who is told as a run moves, on the thread that moves it: a recording."""

    def begun(self, engine: Engine) -> None:
        """The gradients of the step at the cursor are in place."""
        ...

    def completed(self, engine: Engine, record: StepRecord, hyper: Hyper) -> None:
        """A step is complete; `hyper` is what it ran with, its lr as used."""
        ...

    def moved_back(self, engine: Engine) -> None:
        """The cursor went back to where it is."""
        ...

    def marked(self, step: int, text: str) -> None:
        """Something changed that holds from `step` on."""
        ...


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
    ) -> None:
        self.source = source
        self.stepper = stepper
        self.hyper = hyper or source.hyper
        self.schedule: Schedule = source.schedule
        self.record: StepRecord | None = None
        self.stats_level: StatsLevel = stats
        self.eight_bit = EightBit()
        self.follower: Follower | None = None
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
        self._form_since = 0
        """The first step that runs in the present form."""
        self._history = HistoryRecorder()
        self._records: OrderedDict[int, StepRecord] = OrderedDict()
        self._pending: _Pending | None = None
        self._pendings: OrderedDict[int, _Pending] = OrderedDict()
        self._reported: set[tuple[str, str]] = set()
        self._initial_state = MappingProxyType({lane: stepper.given_counts(lane) for lane in ("w", "m", "v")})
        self._initial_moments = stepper.cursor.finished_steps == 0 and any(
            self._initial_state[lane].zeros != stepper.layout.elements for lane in ("m", "v")
        )

    # --- forward

    def begin(self) -> None:
        """Take the gradients of the next step, so that the cursor is before its first dispatch.

        Raises EndOfSourceError where the source has none.
        """
        step = self.stepper.cursor.step + 1
        gradients = self.source.gradients(step, self._weights)
        self._follow_form(step)
        self.stepper.begin_step(gradients)
        self.eight_bit.begun(gradients)
        counts = NOT_COUNTED if self.stats_level == "off" else self.stepper.counts("g")
        if self.stats_level != "full":
            self.counted = None
        self._pending = _Pending(self._hyper_at(step), counts)
        _keep(self._pendings, step, self._pending)
        loss = gradients.loss if isinstance(gradients, HostGradients) else None
        self.record = StepRecord(step, self._pending.hyper.lr, loss, nonfinite=counts.nonfinite)
        self.dispatch_times = [None] * self.stepper.cursor.count
        if self.follower is not None:
            self.follower.begun(self)

    def step_dispatch(self) -> None:
        """Run one dispatch, the first of the next step where this one is complete."""
        if self.stepper.cursor.at_end:
            self.begin()
        time_ = self.stepper.run_dispatch(self._step_hyper())
        self._ran((time_,))

    def step_iteration(self) -> None:
        """Run to the end of the step, or the whole next one."""
        if self.stepper.cursor.at_end:
            self.begin()
        if self.stats_level == "full" or self.eight_bit.measures(self.stepper):
            # To where the params are counted, which is between two dispatches.
            while not self.stepper.cursor.at_end and self.record and self.record.grad_norm is None:
                self._ran((self.stepper.run_dispatch(self._step_hyper()),))
        self._ran(self.stepper.run_to_end(self._step_hyper()))

    def _ran(self, times: tuple[KernelTime, ...]) -> None:
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
            self._diagnose()
        if cursor.at_end:
            self._finish()

    def _count_params(self) -> None:
        table = self.stepper.param_stats(self._step_hyper())
        self.counted = CountedParams(
            self.stepper.cursor.step, table, totals(table), self.stepper.param_stats_ms
        )

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
        self._history.append(record.step, metrics)
        _keep(self._records, record.step, record)
        if len(record.kernels) == self.stepper.cursor.count:
            self.last_times.append(record.kernels)
        self._make_checkpoint()
        if self.follower is not None:
            self.follower.completed(self, record, self._step_hyper())

    def _diagnose(self) -> None:
        assert self.record is not None
        assert self._pending is not None
        facts = StepFacts(
            step=self.record.step,
            layout=self.stepper.layout,
            hyper=self._pending.hyper,
            gradients=self._pending.gradients,
            grad_norm=self.record.grad_norm,
            clip_scale=self.record.clip_scale,
            loss=self.record.loss,
            initial_moments=self._initial_moments,
            initial_state=self._initial_state,
        )
        for finding in step_findings(facts):
            if finding.rule in SETTING_RULES:
                if (finding.rule, finding.message) in self._reported:
                    continue
                self._reported.add((finding.rule, finding.message))
            if finding not in self.findings:
                self.findings.append(finding)

    def take_findings(self) -> list[Finding]:
        """The findings since the last call, which are then forgotten."""
        found = list(self.findings)
        self.findings.clear()
        return found

    # --- back

    def undo_dispatch(self) -> bool:
        """Take the last dispatch back; False where memory does not reach."""
        return self.stepper.undo_dispatch() and self._moved_back()

    def undo_iteration(self) -> bool:
        """Go to the start of the step, or of the one before; False where memory does not reach."""
        return self.stepper.rewind_step() and self._moved_back()

    def rewind_to(self, step: int) -> bool:
        """Go back to the end of step `step`; False where memory does not reach."""
        return self.stepper.rewind_to(step) and self._moved_back()

    def _moved_back(self) -> bool:
        self._forget_later()
        if self.follower is not None:
            self.follower.moved_back(self)
        return True

    def _forget_later(self) -> None:
        """What was known of steps and dispatches after the cursor is so no longer."""
        cursor = self.stepper.cursor
        self._history.truncate(cursor.finished_steps)
        self.eight_bit.moved_back(self.stepper)
        self._checkpoint_at = -float("inf")
        if self.checkpoint is not None and self.checkpoint.finished_steps > cursor.finished_steps:
            self.checkpoint = None
        self._pending = self._pendings.get(cursor.step)
        for kept in (self._records, self._pendings):
            while kept and next(reversed(kept)) > cursor.step:
                kept.popitem()
        if self.counted is not None and self.counted.step > cursor.step:
            self.counted = None
        record = self._records.get(cursor.step) or self.record
        self._reported -= {(f.rule, f.message) for f in self.findings if f.step > cursor.step}
        self.findings = deque((f for f in self.findings if f.step <= cursor.step), maxlen=MAX_FINDINGS)
        if record is None or record.step != cursor.step:
            self.record = None
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

    # --- settings

    def set_hyper(self, name: str, value: float) -> int:
        """Change one setting; returns the first step it holds for. UsageError for a value nobody can mean."""
        check_value(name, value)
        old = getattr(self.hyper, name)
        self.hyper = with_value(self.hyper, name, value)
        step = self._applies_from()
        self.mark(step, f"{name} {shortest(old)} → {shortest(value)}")
        about = "invalid-max-grad-norm" if name == "max_grad_norm" else "invalid-setting"
        self._reported = {each for each in self._reported if each[0] != about}
        return step

    def set_schedule(self, text: str) -> int:
        """Change the schedule; returns the first step it holds for. UsageError for text that is none."""
        schedule = Schedule.from_text(text)
        old, self.schedule = self.schedule, schedule
        step = self._applies_from()
        self.mark(step, f"schedule {old} → {schedule}")
        return step

    def set_stats(self, level: StatsLevel) -> None:
        """Count so much from the next step on, or from the one at the cursor if none of it has run."""
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
        self.eight_bit.reformed(self.stepper)
        self.last_times.clear()
        self.dispatch_times = [None] * self.stepper.cursor.count
        self.mark_variant(old, variant)

    def _follow_form(self, step: int) -> None:
        """Where a recording that runs again changed its form, change with it, as far as the layout allows."""
        if not isinstance(self.source, AsRecorded):
            return
        was, now = (self.source.recorded_variant(each) for each in (step - 1, step))
        if was is None or now is None or was == now:
            return
        mine = self.stepper.plan.variant
        names = [f.name for f in fields(Variant) if getattr(was, f.name) != getattr(now, f.name)]
        # What a person chose instead stays.
        wanted = replace(mine, **{n: getattr(now, n) for n in names if getattr(mine, n) == getattr(was, n)})
        if wanted == mine:
            return
        if self.stepper.can_take(wanted):
            self.set_variant(wanted)
        else:
            self.mark(
                step, "the recording goes on in another form, for which the params are laid out otherwise"
            )

    def mark_variant(self, old: Variant, new: Variant) -> None:
        """Put a mark where another form begins, with what changed."""
        pairs = [(f.name, getattr(old, f.name), getattr(new, f.name)) for f in fields(Variant)]
        changed = ", ".join(f"{name} {was} → {now}" for name, was, now in pairs if was != now)
        if changed:
            self._form_since = self._applies_from()
            self._checkpoint_at = -float("inf")
            self.mark(self._form_since, changed)

    def replace_stepper(self, stepper: Stepper, cursor: Cursor) -> None:
        """Go on with a new stepper that has the state of the old one; `cursor` is where the old one stood."""
        self.stepper = stepper
        self.eight_bit.replaced(lost=False)
        self.last_times.clear()
        # Its elements are those of the old layout.
        self.counted = None
        self.dispatch_times = [None] * stepper.cursor.count
        if cursor.dispatch == 0 and cursor.step > stepper.cursor.step:
            hyper = self._step_hyper()
            self.begin()
            self._set_step_hyper(hyper)

    def mark(self, step: int, text: str) -> None:
        """Put a mark on the time axis."""
        self.marks.append(Mark(step, text))
        if self.follower is not None:
            self.follower.marked(step, text)

    def _applies_from(self) -> int:
        """The first step that takes a changed setting: the one at the cursor if none of it has run."""
        cursor = self.stepper.cursor
        if cursor.dispatch == 0:
            self._set_step_hyper(self._hyper_at(cursor.step))
            return cursor.step
        return cursor.step + 1

    def _set_step_hyper(self, hyper: Hyper) -> None:
        """What the step at the cursor runs with, its lr as used."""
        if self._pending is None:
            return
        self._pending = replace(self._pending, hyper=hyper)
        # Kept for going back to this step as well: it has to run again with what it ran with.
        self._pendings[self.stepper.cursor.step] = self._pending
        if self.record is not None:
            self.record = replace(self.record, lr=hyper.lr)

    def _hyper_at(self, step: int) -> Hyper:
        return hyper_at(self.source, self.hyper, self.schedule, step)

    def _step_hyper(self) -> Hyper:
        return self._pending.hyper if self._pending else self._hyper_at(self.stepper.cursor.step)

    # --- what it shows

    def history(self) -> History:
        """All metrics so far."""
        return self._history.freeze()

    def uniforms(self) -> Mapping[str, tuple[float, ...]]:
        """The uniforms of the step at the cursor, by key; those of step 1 before it."""
        variant = self.stepper.plan.variant
        step = max(self.stepper.cursor.step, 1)
        hyper = self._step_hyper() if self.stepper.cursor.step else self._hyper_at(1)
        values = optimizer(variant.optimizer).uniforms(hyper, step, variant.numerics)
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
        self._checkpoint_at = time.perf_counter()
        self._checkpoint_cost = self._checkpoint_at - started

    def recover(self, stepper: Stepper) -> None:
        """Go on with a new stepper that was made from the checkpoint or the source's own state.

        The few steps since then are run again, with the settings they had, up to the last complete one; not where any
        of them ran in another form of the step.
        """
        lost_after = self.stepper.cursor.finished_steps
        settings = {step: pending.hyper for step, pending in self._pendings.items()}
        self.stepper = stepper
        self.eight_bit.replaced(lost=True)
        self._pending = None
        self.record = None
        self.last_times.clear()
        self.dispatch_times = [None] * stepper.cursor.count
        self._moved_back()
        self.record = self._records.get(stepper.cursor.step)
        missing = range(stepper.cursor.finished_steps + 1, lost_after + 1)
        same_form = missing.start >= self._form_since
        self._form_since = min(self._form_since, missing.start)
        if same_form and len(missing) <= MAX_CATCH_UP and all(step in settings for step in missing):
            for step in missing:
                self.begin()
                self._set_step_hyper(settings[step])
                self._ran(stepper.run_to_end(settings[step]))


def kernel_metrics(plan: Plan, times: Sequence[KernelTime | None]) -> dict[str, float]:
    """Milliseconds of a step by kernel, "ms/KEY", or "cold/KEY" where any of its dispatches was cold.

    Cold samples stand in a series of their own, so that no mean takes them in. NaN where the clock gave nothing.
    """
    total: dict[str, float] = {}
    cold: set[str] = set()
    for dispatch, time_ in zip(plan.dispatches, times, strict=True):
        if time_ is None:
            continue
        key = dispatch.timing_key
        total[key] = total.get(key, 0.0) + (math.nan if time_.ms is None else time_.ms)
        if time_.cold:
            cold.add(key)
    return {f"{'cold' if key in cold else 'ms'}/{key}": ms for key, ms in total.items()}


def _keep(kept: OrderedDict[int, T], step: int, value: T) -> None:
    kept[step] = value
    while len(kept) > RECORDS:
        kept.popitem(last=False)
