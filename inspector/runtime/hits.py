"""A breakpoint as it is shown, and the stop that it made: where, why, and in words."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from inspector.diagnosis.metrics import METRICS, Scalar
from inspector.diagnosis.rules import multi_index
from inspector.diagnosis.stopping import EACH_TIME, Stopping
from inspector.diagnosis.watchpoints import Condition, Verdict
from inspector.findings import Finding
from inspector.floats import shortest, significant
from inspector.layout import Layout
from inspector.number_words import true_minus
from inspector.plan import Plan
from inspector.stepping import Cursor

STOPPED = "stopped by "
"""How every mark of a stop begins: recordings keep it as a note, which nothing else tells from what a person did."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A stop: the condition that held and its value, None for a finding; and where the run stands.

    `dispatch` of `count` counts from 0; `kernel` is its entry point and `label` what it is called on screen. The run
    stands before it, and nothing of the state has changed in this step; or, with `after`, right after it, since it made
    the condition true. `index` is flat in `param`, of `shape`; all None where the value belongs to no param or element.
    `several` is how many params satisfy the condition, `aimed` where the run was sent there rather than stopped by a
    breakpoint, `also` what else held at the same moment.
    """

    condition: Condition
    value: float | None
    step: int
    dispatch: int
    count: int
    kernel: str
    label: str
    param: str | None = None
    index: int | None = None
    shape: tuple[int, ...] | None = None
    several: int = 1
    finding: Finding | None = None
    after: bool = False
    aimed: bool = False
    also: tuple[Hit, ...] = ()

    @property
    def multi_index(self) -> tuple[int, ...] | None:
        """The element by one index a dimension."""
        if self.index is None or self.shape is None:
            return None
        return tuple(int(i) for i in np.unravel_index(self.index, self.shape))

    @property
    def place(self) -> str:
        """Param and element as people write them; "" where there is none."""
        if self.param is None:
            return ""
        at = "" if self.index is None or self.shape is None else multi_index(self.index, self.shape)
        return f"{self.param}{at}"

    @property
    def value_text(self) -> str:
        """The value with its unit; for a finding its message."""
        if self.value is None:
            return self.finding.message if self.finding else ""
        metric = METRICS[self.condition.metric]
        single = isinstance(metric.whole, Scalar) and metric.whole.single and self.condition.glob is None
        if self.value.is_integer() and abs(self.value) < 1e15:
            text = true_minus(f"{int(self.value):,}")
        elif single or not math.isfinite(self.value):
            text = true_minus(shortest(np.float32(self.value)))
        else:
            text = true_minus(significant(self.value, 6))
        return f"{text} {metric.unit}" if metric.unit in ("lr", "nats") else text

    @property
    def mark(self) -> str:
        """In few words, for the time axis."""
        value = "" if self.value is None else self.value_text
        words = (value, f"in {self.place}" if self.place else "")
        return f"{STOPPED}{self.condition}: {' '.join(filter(None, words))}".rstrip(": ")

    @property
    def where(self) -> str:
        """Where the run stands, as "before adamw_update wd (dispatch 3/5)"."""
        if self.after:
            return f"after {self.label} (dispatch {self.dispatch + 1}/{self.count})"
        return f"before {self.label} (dispatch {self.dispatch}/{self.count})"

    @property
    def sentence(self) -> str:
        """Where it stopped and why, all conditions that held with their values."""
        if self.aimed and self.finding is not None:
            at = f"Ran on to the next finding, in step {self.step:,} {self.where}"
            return f"{at}: {self.finding.rule}: {self.finding.message}"
        stopped = f"Stopped in step {self.step:,} {self.where} by {self._why}"
        return " ".join((stopped, *(f"Also by {each._why}" for each in self.also)))

    @property
    def _why(self) -> str:
        if self.finding is not None:
            rule = "" if self.finding.rule == self.condition.rule else f"{self.finding.rule}: "
            return f"{self.condition}: {rule}{self.finding.message}"
        others = f" and {self.several - 1:,} more param{'s' * (self.several > 2)}" if self.several > 1 else ""
        place = f" in {self.place}{others}" if self.place else ""
        return f"{self.condition}: {self.condition.metric} is {self.value_text}{place}."


@dataclass(frozen=True, slots=True)
class Breakpoint:
    """A condition that stops the run while `enabled`, what it has come to so far, and why it cannot be judged here.

    `hits` counts how often it held, which is at most once a step; `last` is the last time that it stopped the run.
    """

    condition: Condition
    enabled: bool = True
    hits: int = 0
    last: Hit | None = None
    note: str = ""
    stopping: Stopping = EACH_TIME

    @property
    def text(self) -> str:
        """As it is typed."""
        return f"{self.condition}{self.stopping}"


def hit_of(condition: Condition, verdict: Verdict, layout: Layout, plan: Plan, cursor: Cursor) -> Hit:
    """The stop of a condition that holds where the run stands."""
    after = any(d.updates for d in plan.dispatches[: cursor.dispatch])
    dispatch = plan.dispatches[cursor.dispatch - after]
    return Hit(
        condition,
        verdict.value,
        cursor.step,
        dispatch.index,
        cursor.count,
        dispatch.entry_point,
        dispatch.label,
        verdict.param,
        verdict.index,
        layout[verdict.param].param.shape if verdict.param is not None else None,
        verdict.several,
        verdict.finding,
        after,
    )
