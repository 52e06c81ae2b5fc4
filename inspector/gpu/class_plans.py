"""Plans of one form and layout by what cuts them, ready to run; and which step ran by which."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inspector.gpu.undo import MAX_ENTRIES, Range
from inspector.optimizers import plan_step
from inspector.plan import Cut, Dispatch, Plan

MAX_PLANS = 16
MAX_DISPATCHES = 32_768
"""Of all plans that are kept: runs in which other params are idle from step to step come back to the same few."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A dispatch with its pipeline and bind group."""

    dispatch: Dispatch
    pipeline: Any
    group: Any
    ranges: tuple[Range, ...]
    """What it may overwrite."""


def record_dispatches(
    encoder: Any, dispatches: Sequence[Prepared], buffers: Mapping[str, Any], why: str
) -> None:
    """Record dispatches one behind the other, a pass each, with what they clear before."""
    for each in dispatches:
        for clear in each.dispatch.clears:
            encoder.clear_buffer(buffers[clear.buffer], clear.offset, clear.size)
        compute = encoder.begin_compute_pass(label=f"{each.dispatch.label} {why}")
        compute.set_pipeline(each.pipeline)
        compute.set_bind_group(0, each.group)
        compute.dispatch_workgroups(*each.dispatch.groups)
        compute.end()


def record_step(encoder: Any, dispatches: Sequence[Prepared], buffers: Mapping[str, Any]) -> None:
    """Record dispatches as an engine would: in one pass, but for what has to be cleared before one."""
    compute = None
    for each in dispatches:
        if each.dispatch.clears and compute is not None:
            compute.end()
            compute = None
        for clear in each.dispatch.clears:
            encoder.clear_buffer(buffers[clear.buffer], clear.offset, clear.size)
        if compute is None:
            compute = encoder.begin_compute_pass(label="step")
        compute.set_pipeline(each.pipeline)
        compute.set_bind_group(0, each.group)
        compute.dispatch_workgroups(*each.dispatch.groups)
    if compute is not None:
        compute.end()


class ClassPlans:
    """What was planned lately, and what each step that can be gone back to ran with."""

    def __init__(self, prepare: Callable[[Plan], list[Prepared]]) -> None:
        self._prepare = prepare
        self._plans: OrderedDict[Cut, Plan] = OrderedDict()
        self._prepared: dict[Cut, list[Prepared]] = {}
        self._since: list[tuple[int, Cut]] = [(0, (None, False))]

    def plan(self, like: Plan, cut: Cut) -> Plan:
        """The plan of the same form and layout as `like` that is cut so; UsageError where there is none."""
        found = like if like.cut == cut else self._plans.get(cut)
        if found is None:
            classes, between = cut
            found = plan_step(like.layout, like.limits, like.variant, classes, between=between)
        self._keep(found)
        return found

    def prepared(self, plan: Plan) -> list[Prepared]:
        """Its dispatches, ready to run with the buffers there are."""
        self._keep(plan)
        found = self._prepared.get(plan.cut)
        if found is None:
            found = self._prepared[plan.cut] = self._prepare(plan)
        return found

    def _keep(self, plan: Plan) -> None:
        self._plans[plan.cut] = plan
        self._plans.move_to_end(plan.cut)
        while len(self._plans) > 1 and (
            len(self._plans) > MAX_PLANS
            or sum(len(each.dispatches) for each in self._plans.values()) > MAX_DISPATCHES
        ):
            dropped, _ = self._plans.popitem(last=False)
            self._prepared.pop(dropped, None)

    def buffers_changed(self) -> None:
        """A buffer that plans bind was made anew."""
        self._prepared.clear()

    def forget(self, step: int, plan: Plan) -> None:
        """The form has changed: `plan` is that of step `step`, and nothing before it can be gone back to."""
        self._plans.clear()
        self._prepared.clear()
        self._since = [(step, plan.cut)]

    def other_kernels(self) -> None:
        """Other kernels run in the same dispatches: every plan is made anew when it is wanted."""
        self._plans.clear()
        self._prepared.clear()

    # --- which step ran with which

    def begin(self, step: int, plan: Plan) -> None:
        """Step `step`, and those after it, run by `plan`."""
        while len(self._since) > 1 and self._since[-1][0] >= step:
            self._since.pop()
        if self._since[-1][1] != plan.cut:
            self._since.append((step, plan.cut))
            # As far as any undo memory reaches.
            del self._since[:-MAX_ENTRIES]

    def cut_of(self, step: int) -> Cut:
        """How the plan was cut by which step `step` ran."""
        return next((cut for since, cut in reversed(self._since) if since <= step), self._since[0][1])
