"""What a run is at any moment: its stepper, what its steps gave, what holds for them, and what of it is shown."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from inspector.diagnosis.findings import Finding
from inspector.history import History, HistoryRecorder
from inspector.hyper import Hyper
from inspector.optimizers import optimizer
from inspector.param_statistics import ParamStats
from inspector.runtime.breakpoints import Breakpoints, higher
from inspector.runtime.checkpoints import Checkpoints
from inspector.runtime.course import Course
from inspector.runtime.decay_watch import DecayWatch
from inspector.runtime.lockstep import EightBit
from inspector.runtime.marks import Marks
from inspector.runtime.parts import Follower
from inspector.runtime.plotting import Plotting
from inspector.runtime.recorded import RecordedRun
from inspector.runtime.snapshots import CountedParams, Mark, StepRecord
from inspector.runtime.step_log import StepLog
from inspector.schedule import Schedule
from inspector.sources.base import Source
from inspector.statistics import StatsLevel
from inspector.stepping import HostState, KernelTime, Stepper

MAX_FINDINGS = 1000


class RunState:
    """`source` gives the gradients, `recorded` is the recording that it is, where its steps are at hand."""

    def __init__(
        self,
        source: Source,
        stepper: Stepper,
        *,
        hyper: Hyper | None,
        keep_checkpoint: bool,
        stats: StatsLevel,
        breakpoints: Breakpoints | None,
        recorded: RecordedRun | None,
    ) -> None:
        self.source = source
        self.stepper = stepper
        self.recorded = recorded
        self.breakpoints = Breakpoints() if breakpoints is None else breakpoints
        self.stats_level: StatsLevel = higher(stats, self.breakpoints.needs)
        """As asked for, or more where breakpoints need it."""
        self.eight_bit = EightBit()
        self.eight_bit.wanted = self.breakpoints.needs_coding
        self.decay = DecayWatch()
        self.follower: Follower | None = None
        self.plotting: Plotting | None = None
        self.marks = Marks()
        self.findings: deque[Finding] = deque(maxlen=MAX_FINDINGS)
        self.log = StepLog(stepper.cursor.count)
        self.own_history = HistoryRecorder()
        """Of the steps that no recording tells."""
        self.checkpoints = Checkpoints(keep_checkpoint)
        self.began_at = stepper.cursor.finished_steps
        """The step after which it began."""
        self.form_since = 0
        """The first step that runs in the present form."""
        self.nowhere = False
        """True where the device holds no state that any step had: none could be rebuilt."""
        self.course = Course(source, hyper or source.hyper, source.schedule, self.began_at + 1, recorded)

    # --- what holds

    @property
    def hyper(self) -> Hyper:
        """What a person set, before the schedule."""
        return self.course.hyper

    @property
    def schedule(self) -> Schedule:
        """What multiplies the lr."""
        return self.course.schedule

    @property
    def step_hyper(self) -> Hyper:
        """What the step at the cursor runs with, the schedule applied to its lr."""
        return self.log.given.hyper if self.log.given else self.course.hyper_at(self.stepper.cursor.step)

    # --- what steps gave

    @property
    def record(self) -> StepRecord | None:
        """The numbers of the step at the cursor."""
        return self.log.record

    @property
    def counted(self) -> CountedParams | None:
        """The latest statistics of the params."""
        return self.log.counted

    @property
    def param_stats(self) -> Sequence[ParamStats]:
        """Statistics of every param for the step at the cursor; empty where they were not counted."""
        return self.log.params_of(self.stepper.cursor.step)

    @property
    def dispatch_times(self) -> Sequence[KernelTime | None]:
        """Of the step at the cursor, None for what has not run."""
        return self.log.dispatch_times

    @property
    def last_times(self) -> Sequence[tuple[KernelTime, ...]]:
        """Of the last complete steps that ran in this form on this stepper, in the order in which they ran."""
        return self.log.last_times

    @property
    def checkpoint(self) -> HostState | None:
        """The newest copy of the state on the host."""
        return self.checkpoints.newest

    def record_of(self, step: int) -> StepRecord | None:
        """The numbers of a step of this run, None where they are kept no longer, or not known yet."""
        return self.log.record_of(step)

    def take_findings(self) -> list[Finding]:
        """The findings since the last call, which are then forgotten."""
        found = list(self.findings)
        self.findings.clear()
        return found

    # --- what it shows

    def history(self) -> History:
        """All metrics: of a recording of all its steps, otherwise so far."""
        if self.recorded is not None and self.course.as_recorded:
            return self.recorded.history()
        return self.own_history.freeze()

    def all_findings(self) -> tuple[Finding, ...]:
        """What was found, in a recording as well."""
        if self.recorded is not None and self.course.as_recorded:
            return self.recorded.findings
        return tuple(self.findings)

    def all_marks(self) -> tuple[Mark, ...]:
        """What was changed at which step, in a recording as well."""
        if self.recorded is None:
            return self.marks.all
        return (*(m for m in self.recorded.marks if not self.course.is_own(m.step)), *self.marks.all)

    def uniforms(self) -> Mapping[str, tuple[float, ...]]:
        """The uniforms of the step at the cursor, by key; those of step 1 before it."""
        step = self.stepper.cursor.step
        return self.uniforms_of(max(step, 1), self.step_hyper if step else None)

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

    # --- marks

    def note(self, step: int, text: str) -> None:
        """Put a mark on the time axis, and into a recording."""
        self.marks.note(step, text)
        if self.follower is not None:
            self.follower.marked(step, text)

    def note_stop(self, step: int, text: str) -> None:
        """Put the mark of a breakpoint there, once."""
        if self.marks.stop(step, text) and self.follower is not None:
            self.follower.marked(step, text)
