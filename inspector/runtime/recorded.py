"""A recording that is open, as a run sees it: the numbers of every step at hand, and followed while it is written."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from inspector.diagnosis.findings import Finding
from inspector.errors import UsageError
from inspector.floats import F64Array
from inspector.history import BoolArray, History, HistoryRecorder
from inspector.param_hyper import HyperColumns, numbered_columns
from inspector.param_statistics import ParamTable
from inspector.plan import Plan
from inspector.ranks import Held, RankStep
from inspector.runtime.diagnosing import Judging
from inspector.runtime.hits import STOPPED
from inspector.runtime.snapshots import METRICS, CountedParams, Mark, Recorded, StepRecord
from inspector.session.joined_columns import rank_metrics
from inspector.session.plans import times_in_plan
from inspector.session.reader import Session
from inspector.session.records import NoteKind
from inspector.sources.recording import Recording
from inspector.stepping import GradStats, HostState

DRAWN_RANKS = 64
"""So many processes, the first ones, have curves of their own."""
SHOWN_FINDINGS = 1000
"""The latest of them; a recording may hold more."""


class RecordedRun:
    """What `source` holds of its steps, without running any."""

    def __init__(self, source: Recording) -> None:
        self.source = source
        self._recorder = HistoryRecorder()
        self._history_of: str | None = None
        self._history = self._recorder.freeze()
        self._counted: deque[CountedParams] = deque(maxlen=4)
        self._judging: Judging | None = None
        self._rank_steps: tuple[int, tuple[RankStep, ...]] | None = None
        self._parts: Mapping[str, tuple[Held, ...]] = MappingProxyType({})
        self.findings: tuple[Finding, ...] = ()
        """What the present rules find, and of steps that were not looked at yet what was found as it was recorded."""
        self._take_in()

    @property
    def session(self) -> Session:
        """The session it is read from."""
        return self.source.session

    @property
    def steps(self) -> range:
        """The steps that were recorded."""
        return self.session.steps

    # --- what it shows

    def history(self) -> History:
        """All metrics of all steps."""
        return self._history

    def history_to(self, step: int) -> HistoryRecorder:
        """Metrics up to `step`, to be gone on with."""
        recorder = HistoryRecorder()
        steps = self.steps
        count = min(max(step + 1 - steps.start, 0), len(steps))
        recorder.extend(steps.start, *metric_columns(self.session, slice(count)))
        return recorder

    def record(self, step: int, plan: Plan) -> StepRecord | None:
        """The numbers of a step, None where it was not recorded; times where it ran the dispatches of that plan."""
        if step not in self.steps:
            return None
        r = self.session.step(step)
        theirs = self.session.about.before_clipping(r)
        times = times_in_plan(r.kernels, plan.dispatches) or ()
        return StepRecord(step, r.hyper.lr, r.loss, r.grad_norm, r.clip_scale, r.nonfinite, times, theirs)

    def before_clipping(self, step: int) -> GradStats | None:
        """What the program that was recorded clipped the gradients of a step by, before they were captured."""
        if step not in self.steps:
            return None
        return self.session.about.before_clipping(self.session.step(step))

    def counted(self, step: int) -> CountedParams | None:
        """Statistics of the params of a step, None where they were not recorded."""
        known = next((c for c in self._counted if c.step == step), None)
        if known is None and step in self.steps:
            table = self.session.param_statistics(step)
            if table is not None:
                known = CountedParams(step, table, None, self._own(step, table)).with_totals()
                self._counted.append(known)
        return known

    def _own(self, step: int, table: ParamTable) -> HyperColumns | None:
        hyper = self.session.step(step).hyper
        if hyper.per_param is None:
            return None
        numbers = {p.name: i for i, p in enumerate(self.session.about.params)}
        return numbered_columns(hyper, [numbers[name] for name in table.names], step)

    def rank_steps(self, step: int) -> tuple[RankStep, ...]:
        """The numbers of a step in each of several processes; () of one, and of a step that was not recorded."""
        if not self.session.ranks or step not in self.steps:
            return ()
        if self._rank_steps is None or self._rank_steps[0] != step:
            self._rank_steps = step, self.session.rank_steps(step)
        return self._rank_steps[1]

    def _held(self) -> Mapping[str, tuple[Held, ...]]:
        held = self.session.held()
        self._parts = self._parts if held == self._parts else MappingProxyType(held)
        return self._parts

    # --- states

    def nearest_state(self, step: int) -> int | None:
        """The latest step up to `step` after which a state was captured, None without."""
        at = int(np.searchsorted(self.picture.keyframes, step, "right"))
        return int(self.picture.keyframes[at - 1]) if at else None

    def has_state(self, step: int) -> bool:
        """True where the state after `step` was captured."""
        return self.nearest_state(step) == step

    def state(self, step: int) -> HostState:
        """The captured state after `step`, 8-bit codes byte for byte."""
        return self.session.keyframe(step)

    def leads(self, start: int, to: int) -> bool:
        """True where the gradients of all steps after `start` up to `to` were captured."""
        return start == to or (start < to and self.source.captured_through(start + 1, to))

    # --- keeping up

    def follow(self) -> bool:
        """Take in what was written since; True where there is anything new."""
        if not self.session.follow():
            return False
        self._take_in()
        return True

    def _take_in(self) -> None:
        session, source = self.session, self.source
        source.look_again()
        generation = session.generation
        if generation != self._history_of:
            # The run that is recorded went back: what was read may be otherwise now.
            self._history_of, self._recorder = generation, HistoryRecorder()
            self._counted.clear()
            self._judging = self._rank_steps = None
        have = self._recorder.last_step
        start = session.steps.start if have is None else have + 1
        self._recorder.extend(start, *metric_columns(session, slice(start - session.steps.start, None)))
        self._history = self._recorder.freeze()
        if self._judging is None:
            self._judging = Judging(session, session.steps.start, session.steps.stop - 1)
        self._judging.extend(session.steps.stop - 1)
        self._show_findings()
        self.marks = self._notes("mark")
        keyframes = np.array(session.captures("keyframe"), np.int64)
        rebuildable = np.array([(s.first, s.last) for s in source.stretches], np.int64).reshape(-1, 2)
        for array in (keyframes, rebuildable):
            array.flags.writeable = False
        steps = session.steps
        self.picture = Recorded(
            steps.start, steps.stop - 1, keyframes, rebuildable, session.about.policy, session.state,
            session.rank_parts(), self._held(),
        )  # fmt: skip

    # --- findings

    @property
    def judged(self) -> bool:
        """True once the present rules have seen every step."""
        return self._judging is None or self._judging.complete

    def judge(self, seconds: float) -> None:
        """Let the present rules look at more steps, for so long; UsageError where one is damaged, which ends it."""
        judging, until = self._judging, time.perf_counter() + seconds
        if judging is None:
            return
        try:
            while not judging.complete and time.perf_counter() < until:
                judging.judge_next()
        except UsageError:
            # What was recorded is shown.
            self._judging, self.findings = None, self.session.findings()[-SHOWN_FINDINGS:]
            raise
        self._show_findings()

    def all_findings(self) -> tuple[Finding, ...]:
        """All that is known by now, the latest of which `findings` are."""
        return self._judging.findings() if self._judging is not None else self.session.findings()

    @property
    def judged_to(self) -> int:
        """The last step that the present rules have seen."""
        return self._judging.next_step - 1 if self._judging is not None else self.steps.stop - 1

    def _show_findings(self) -> None:
        if self._judging is not None:
            found = self._judging.findings()[-SHOWN_FINDINGS:]
            self.findings = self.findings if found == self.findings else found

    def _notes(self, kind: NoteKind) -> tuple[Mark, ...]:
        notes = self.session.notes(kind)
        return tuple(Mark(note.step, note.text, note.text.startswith(STOPPED)) for note in notes)


def metric_columns(
    session: Session, part: slice = slice(None)
) -> tuple[dict[str, F64Array], dict[str, BoolArray]]:
    """The metrics that a recording has, float64 with a value a step, and in which steps it has those that may lack.

    `part` is of its steps, counted from 0.
    """
    # Of kernels, and of each of several processes.
    kernels = [name for name in session.metric_names() if name.startswith(("ms/", "cold/"))]
    kernels += rank_metrics(min(len(session.ranks), DRAWN_RANKS))
    columns = {name: session.metric(name) for name in (*METRICS, *kernels)}
    known = {name: session.known(name) for name in ("loss", "grad_norm", "clip_scale")}
    for name, mask in known.items():
        if not mask.any():
            del columns[name]
    # A kernel that did not run in a step, or ran cold, has no time there, which is no gap.
    known |= {name: ~np.isnan(columns[name]) for name in kernels}
    return {n: v[part] for n, v in columns.items()}, {n: v[part] for n, v in known.items()}
