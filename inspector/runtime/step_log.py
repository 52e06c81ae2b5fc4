"""The numbers that the steps of a run gave: of the one at the cursor, and of those before it."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from inspector.hyper import Hyper
from inspector.param_statistics import ParamStats
from inspector.plan import Plan
from inspector.runtime.recorded import RecordedRun
from inspector.runtime.snapshots import CountedParams, StepRecord
from inspector.statistics import BufferStats
from inspector.stepping import Cursor, GradStats, KernelTime

RECORDS = 4096
"""Steps whose full records are kept; what lies further back stands in the history only."""
TIMED_STEPS = 5
"""Steps whose times are kept dispatch by dispatch, for a trace."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Given:
    """What holds for the whole of a step."""

    hyper: Hyper
    """With the schedule applied to lr."""
    gradients: BufferStats
    clipped_by: GradStats | None = None
    """What another program clipped them by before they were recorded."""


class StepLog:
    """`record` and `given` are of the step at the cursor, None where they are not known. `count`: its dispatches."""

    def __init__(self, count: int) -> None:
        self.record: StepRecord | None = None
        self.given: Given | None = None
        self.counted: CountedParams | None = None
        """The latest statistics of the params, which are counted at level "full" once the gradient norm is known."""
        self.dispatch_times: list[KernelTime | None] = [None] * count
        self.last_times: deque[tuple[KernelTime, ...]] = deque(maxlen=TIMED_STEPS)
        """Of the last complete steps that ran in this form on this stepper, in the order in which they ran."""
        self._records: OrderedDict[int, StepRecord] = OrderedDict()
        self._given: OrderedDict[int, Given] = OrderedDict()

    # --- what is known

    def record_of(self, step: int) -> StepRecord | None:
        """The numbers of a step of this run, None where they are kept no longer, or not known yet."""
        known = self._records.get(step)
        if known is None and self.record is not None and self.record.step == step:
            return self.record
        return known

    def params_of(self, step: int) -> Sequence[ParamStats]:
        """Statistics of every param for `step`; empty where they were not counted, or later steps were."""
        return self.counted.params if self.counted and self.counted.step == step else ()

    def hypers(self) -> Mapping[int, Hyper]:
        """What the steps that are kept ran with, by step."""
        return {step: given.hyper for step, given in self._given.items()}

    # --- forward

    def begun(self, step: int, given: Given, loss: float | None, count: int) -> None:
        """A step begins, of `count` dispatches."""
        self.given = given
        _keep(self._given, step, given)
        self.record = StepRecord(
            step, given.hyper.lr, loss, nonfinite=given.gradients.nonfinite, clipped_by=given.clipped_by
        )
        self.dispatch_times = [None] * count

    def ran(self, cursor: Cursor, times: Sequence[KernelTime]) -> None:
        """The dispatches up to the cursor ran, and took so long."""
        assert self.record is not None
        self.dispatch_times[cursor.dispatch - len(times) : cursor.dispatch] = times
        kernels = tuple(t for t in self.dispatch_times if t is not None)
        self.record = replace(self.record, kernels=kernels)

    def took_norm(self, stats: GradStats) -> None:
        """The gradient norm of the step at the cursor is known."""
        assert self.record is not None
        self.record = replace(self.record, grad_norm=stats.grad_norm, clip_scale=stats.clip_scale)

    def finished(self, record: StepRecord, count: int) -> None:
        """A step of `count` dispatches is complete."""
        _keep(self._records, record.step, record)
        if len(record.kernels) == count:
            self.last_times.append(record.kernels)

    # --- changes

    def set_hyper(self, step: int, hyper: Hyper) -> None:
        """What the step at the cursor, `step`, runs with, its lr as used."""
        if self.given is None:
            return
        theirs = None if math.isfinite(hyper.max_grad_norm) else self.given.clipped_by
        self.given = replace(self.given, hyper=hyper, clipped_by=theirs)
        # Kept for going back to this step as well: it has to run again with what it ran with.
        self._given[step] = self.given
        if self.record is not None:
            self.record = replace(self.record, lr=hyper.lr, clipped_by=self.given.clipped_by)

    def recounted(self, step: int, gradients: BufferStats) -> None:
        """The gradients of the step at the cursor, `step`, were counted anew."""
        assert self.given is not None
        self.given = replace(self.given, gradients=gradients)
        _keep(self._given, step, self.given)
        if self.record is not None:
            self.record = replace(self.record, nonfinite=gradients.nonfinite)

    def reformed(self, count: int) -> None:
        """Steps run in another form from here on, of `count` dispatches."""
        self.last_times.clear()
        self.dispatch_times = [None] * count

    def forget_step(self, count: int) -> None:
        """Nothing is known of the step at the cursor, whose numbers went with a device."""
        self.given = self.record = None
        self.reformed(count)

    # --- back

    def forget_after(self, step: int) -> None:
        """Steps after `step`, which is at the cursor now, did not run."""
        self.given = self._given.get(step)
        for kept in (self._records, self._given):
            while kept and next(reversed(kept)) > step:
                kept.popitem()
        if self.counted is not None and self.counted.step > step:
            self.counted = None

    def stand_at(self, cursor: Cursor, plan: Plan, recorded: RecordedRun | None, *, own: bool) -> None:
        """Know what dispatches up to the cursor gave; from a recording, unless the step is the run's `own`."""
        record = self._records.get(cursor.step) or self.record
        if recorded is not None and (record is None or record.step != cursor.step):
            record = None if own else recorded.record(cursor.step, plan)
            if self.counted is None or self.counted.step != cursor.step:
                self.counted = recorded.counted(cursor.step) if record is not None else None
        if record is None or record.step != cursor.step:
            self.record = None
            self.dispatch_times = [None] * cursor.count
            return
        times = list(record.kernels[: cursor.dispatch])
        self.dispatch_times = [*times, *[None] * (cursor.count - len(times))]
        known = any(b.buffer == "grad_stats" for d in plan.dispatches[: cursor.dispatch] for b in d.writes)
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


def _keep(kept: OrderedDict[int, T], step: int, value: T) -> None:
    kept[step] = value
    while len(kept) > RECORDS:
        kept.popitem(last=False)
