"""What is known of one step right before its update: what the rules look at. The same live, replayed and recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from inspector.coding_error import ParamCodingError
from inspector.floats import BoolArray, F64Array
from inspector.hyper import Hyper
from inspector.layout import Layout, Segment
from inspector.param_hyper import HyperColumns, columns
from inspector.param_statistics import ParamTable
from inspector.plan import Plan, Variant
from inspector.ranks import Parted
from inspector.statistics import BufferStats, NonFinite


@dataclass(frozen=True, slots=True)
class OwnDifference:
    """Where a user's kernel and the built-in one differ most after a step: an element (flat) of `lane` of `param`.

    `lane` may be "w_f16", the half-precision mirror, which is held against the kernel's own w rounded.

    `line` is the first line of the update whose value the kernel's result does not fit, "" where it is not known.
    `difference` is in the lane's unit, `norm` the L2 norm of the lane of that param.
    """

    param: str
    lane: str
    index: int
    own: float
    built_in: float
    difference: float
    norm: float
    line: str = ""


@dataclass(frozen=True, slots=True)
class AfterStep:
    """What was looked at once a step was complete, where a user's own kernels ran in it.

    `gradients` are counts over what is left in g, `padding` the elements between params that are not 0, by lane.
    """

    gradients: BufferStats | None = None
    padding: Mapping[str, int] = field(default_factory=dict)
    differs: OwnDifference | None = None


@dataclass(frozen=True)
class StepFacts:
    """One step. None where something is not known: grad_norm before finalize has run, `table` below level "full".

    `gradients` counts over all of them; its `max_abs` is NaN where only the non-finite ones are known, as of a
    recording without statistics of params. `loss` in nats; `hyper` with the schedule applied to lr.
    """

    step: int
    layout: Layout
    hyper: Hyper
    gradients: BufferStats | None = None
    grad_norm: float | None = None
    clip_scale: float | None = None
    loss: float | None = None
    initial_moments: bool = False
    """True where m or v was not zero before step 1."""
    initial_state: Mapping[str, BufferStats] = field(default_factory=dict)
    """Counts over w, m and v as they were before the first step of the run."""
    variant: Variant = field(default_factory=Variant)
    plan: Plan | None = None
    table: ParamTable | None = None
    coding: Sequence[ParamCodingError] | None = None
    after: AfterStep | None = None
    nonfinite: Mapping[str, NonFinite] = field(default_factory=dict)
    """Of a step whose params were not counted: those with gradients that are not finite, in the order of memory, where
    that was looked into."""
    origin: str = ""
    """What ran the step, where that was not the kernels here: the gradients are as its optimizer took them, clipped
    already, and nothing in them is left out."""
    adam: bool = True
    """False where the update was of another kind than those known here."""
    put_in_place: bool = False
    """True where the run's script wrote w, m or v before the step, as by loading a checkpoint: they do not follow from
    the step before."""
    ranks: int = 0
    """Of a run of several processes how many; 0 of one."""
    parted: Sequence[Parted] = ()
    """What these should have alike and do not."""

    @cached_property
    def numel(self) -> F64Array:
        """Elements of each param of the table, float64[params]."""
        assert self.table is not None
        return self.table.numel.astype("f8")

    @cached_property
    def own(self) -> HyperColumns:
        """What each param of the table takes the step with."""
        assert self.table is not None
        return columns(self.hyper, self.layout, self.table.names, self.step)

    def each(self, name: str) -> F64Array | float:
        """A setting of the params of the table, or `t`, their step count: one number where they share it."""
        if self.hyper.per_param is None:
            return float(self.step if name == "t" else getattr(self.hyper, name))
        values: F64Array = getattr(self.own, name)
        return values

    def of_row(self, name: str, row: int) -> float:
        """The same of one row."""
        found = self.each(name)
        return found if isinstance(found, float) else float(found[row])

    @property
    def idle(self) -> BoolArray:
        """Params of the table that take no part in the step; all False where they share their settings."""
        if self.hyper.per_param is None:
            assert self.table is not None
            return np.zeros(len(self.table), np.bool_)
        return self.own.idle

    def segment(self, row: int) -> Segment:
        """The param of a row of the table."""
        assert self.table is not None
        return self.layout[self.table.names[row]]

    def dispatch_writing(self, buffer: str) -> int | None:
        """The last dispatch that writes a buffer such as "grad_stats"; None without a plan."""
        if self.plan is None:
            return None
        found = (d.index for d in reversed(self.plan.dispatches) if any(b.buffer == buffer for b in d.writes))
        return next(found, None)

    def dispatch_adding(self, *, whole: bool = False) -> int | None:
        """The last dispatch that adds up squares before finalize_grad_stats; None without a plan.

        `whole`: the one behind which their sum is one number, finalize_grad_stats itself where it is given several.
        """
        dispatches = self.plan.dispatches if self.plan is not None else ()
        last = next((d for d in dispatches if d.entry_point == "finalize_grad_stats"), None)
        if last is None:
            return None
        parts = last.bindings[0]
        return last.index if whole and parts.items > 1 else self.dispatch_writing(parts.buffer)

    def dispatch_updating(self, element: int) -> int | None:
        """The dispatch that updates an element of the mega-buffer; None without a plan."""
        if self.plan is None:
            return None
        found = (
            d.index for d in self.plan.dispatches if d.updates and d.elements[0] <= element < d.elements[1]
        )
        return next(found, None)
