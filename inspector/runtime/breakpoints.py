"""Breakpoints of a run: which there are, what each has come to, and the stop that one makes. No threads, no device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from inspector.coding_error import ParamCodingError
from inspector.diagnosis.stopping import EACH_TIME, Stopping
from inspector.diagnosis.watchpoints import Condition, Moment, judge
from inspector.findings import Finding
from inspector.hyper import Hyper
from inspector.layout import Layout
from inspector.optimizers import optimizer
from inspector.param_statistics import ParamStats, ParamTable
from inspector.plan import Plan
from inspector.runtime.hits import Breakpoint, Hit, hit_of
from inspector.statistics import NOT_COUNTED, BufferStats, NonFinite, StatsLevel
from inspector.stepping import Cursor, Stepper

LEVELS: tuple[StatsLevel, ...] = ("off", "light", "full")


@dataclass(slots=True)
class _Kept:
    shown: Breakpoint
    judged: int = 0
    passed: tuple[int, int] | None = None
    """Step and dispatch of the last stop that the run has not gone back before: it goes on from there."""
    ended: int | None = None
    """The last step after whose updates it was judged: until the next of them nothing of the state changes."""
    layout: Layout | None = None
    rows: Sequence[int] = field(default_factory=list)


class Breakpoints:
    """The breakpoints of a run in the order in which they were set."""

    def __init__(self, given: Iterable[Condition | tuple[Condition, Stopping]] = ()) -> None:
        self._kept: dict[str, _Kept] = {}
        self._aim: _Kept | None = None
        self._told: set[tuple[object, ...]] = set()
        self._aside = 0
        self._picture: tuple[Breakpoint, ...] | None = ()
        self.stop: Hit | None = None
        """The stop at which the run stands, until it moves."""
        for each in given:
            condition, stopping = (each, EACH_TIME) if isinstance(each, Condition) else each
            self.set(condition, stopping=stopping)

    # --- which there are

    def set(self, condition: Condition, *, enabled: bool = True, stopping: Stopping | None = None) -> None:
        """Add a breakpoint, or enable or disable the one there is; hits are counted anew where it stops otherwise."""
        kept = self._kept.get(str(condition))
        if kept is None:
            made = Breakpoint(condition, enabled, stopping=stopping or EACH_TIME)
            self._kept[str(condition)] = _Kept(made)
        else:
            kept.shown = replace(kept.shown, enabled=enabled)
            if stopping is not None and stopping != kept.shown.stopping:
                kept.shown = replace(kept.shown, stopping=stopping, hits=0)
        self._picture = None

    def aim(self, condition: Condition | None, told: tuple[Finding, ...] = ()) -> None:
        """Stop where this holds next, once, beside the breakpoints, `told` being no news; None to aim at nothing."""
        self._aim = None if condition is None else _Kept(Breakpoint(condition))
        self._told = {_place(finding) for finding in told}

    def remove(self, condition: Condition) -> None:
        """Take a breakpoint away; nothing where there is none."""
        self._kept.pop(str(condition), None)
        self._picture = None

    def forget(self) -> None:
        """Another run begins: what they came to in the one before says nothing of it."""
        self.stop = self._aim = None
        for key, kept in self._kept.items():
            shown = kept.shown
            self._kept[key] = _Kept(Breakpoint(shown.condition, shown.enabled, stopping=shown.stopping))
        self._picture = None

    @contextmanager
    def set_aside(self) -> Iterator[None]:
        """Within the block none stops: steps run again only to get somewhere."""
        self._aside += 1
        try:
            yield
        finally:
            self._aside -= 1

    def _enabled(self) -> list[_Kept]:
        enabled = [kept for kept in self._kept.values() if kept.shown.enabled]
        return enabled if self._aim is None else [*enabled, self._aim]

    def _armed(self) -> list[_Kept]:
        return [] if self._aside else self._enabled()

    def __bool__(self) -> bool:
        return bool(self._armed())

    @property
    def needs(self) -> StatsLevel:
        """How much has to be counted so that those enabled can be judged."""
        return max((kept.shown.condition.needs for kept in self._enabled()), key=LEVELS.index, default="off")

    def who_needs(self, level: StatsLevel) -> str:
        """The first of those enabled that needs more than `level`; "" where none does."""
        enabled = (kept.shown.condition for kept in self._enabled())
        return next((str(c) for c in enabled if LEVELS.index(c.needs) > LEVELS.index(level)), "")

    @property
    def needs_coding(self) -> bool:
        """True where errors of coding m and v have to be measured."""
        return any(kept.shown.condition.needs_coding for kept in self._enabled())

    @property
    def wait_for_norm(self) -> bool:
        """True where a step has to be looked at between finalize_grad_stats and its first update."""
        return any(kept.shown.condition.known == "finalize" for kept in self._armed())

    @property
    def wait_for_updates(self) -> bool:
        """True where a step has to be looked at after each of its updates."""
        return any(kept.shown.condition.of_state for kept in self._armed())

    @property
    def want_findings(self) -> bool:
        """True where findings have to be looked for as soon as the gradients are in place."""
        return any(kept.shown.condition.rule is not None for kept in self._armed())

    # --- as the run goes on

    def judge(self, moment: Moment, plan: Plan, cursor: Cursor) -> Hit | None:
        """The stop of this moment, with all that hold and have not stopped the run in this step before.

        Each counts a hit, and none of them stops the run again in this step as it goes on.
        """
        stops: list[Hit] = []
        for kept in self._armed():
            if kept.passed is not None and kept.passed[0] == cursor.step:
                continue
            if not moment.updated and kept.ended == cursor.step - 1:
                continue
            seen = moment
            if kept is self._aim:
                new = tuple(f for f in moment.findings if _place(f) not in self._told)
                seen = replace(moment, findings=new)
            verdict = judge(kept.shown.condition, seen, self._rows(kept, moment.layout))
            if verdict is None:
                continue
            kept.judged += 1
            if moment.updated and cursor.at_end:
                kept.ended = cursor.step
            if not verdict.holds:
                continue
            kept.passed = (cursor.step, cursor.dispatch)
            kept.shown = replace(kept.shown, hits=kept.shown.hits + 1)
            stopping = kept.shown.stopping
            if kept.shown.hits >= stopping.hit:
                hit = hit_of(kept.shown.condition, verdict, moment.layout, plan, cursor)
                stops.append(replace(hit, aimed=kept is self._aim))
                kept.shown = replace(kept.shown, last=hit, enabled=not stopping.once)
            self._picture = None
        if not stops:
            return None
        self._aim = None
        self.stop = replace(stops[0], also=tuple(stops[1:]))
        return self.stop

    def moved(self) -> None:
        """The run goes on, or back: it no longer stands where it was stopped."""
        self.stop = None

    def moved_back(self, cursor: Cursor) -> None:
        """The run is at `cursor` now: what stopped it after that stops it again."""
        self.stop = None
        for kept in self._kept.values():
            kept.ended = None
            if kept.passed is not None and kept.passed > (cursor.step, cursor.dispatch):
                kept.passed = None

    def _rows(self, kept: _Kept, layout: Layout) -> Sequence[int]:
        if kept.layout is not layout:
            names = [segment.name for segment in layout.segments]
            some = kept.shown.condition.matches(names)
            kept.rows = [i for i in some if layout.segments[i].numel]
            kept.layout = layout
        return kept.rows

    # --- what is shown

    def never_judged(self) -> list[Condition]:
        """Those enabled of which nothing was known at any moment so far: a loss where the source gives none."""
        return [kept.shown.condition for kept in self._enabled() if not kept.judged]

    def picture(self, plan: Plan | None) -> tuple[Breakpoint, ...]:
        """All of them; the same object while nothing has changed. `plan` says what cannot be judged in this run."""
        made = tuple(replace(kept.shown, note=self._note(kept, plan)) for kept in self._kept.values())
        if self._picture is None or self._picture != made:
            self._picture = made
        return self._picture

    def _note(self, kept: _Kept, plan: Plan | None) -> str:
        condition = kept.shown.condition
        if plan is None:
            return ""
        if condition.glob is not None and not self._rows(kept, plan.layout):
            return f"no param here matches {condition.glob}"
        if condition.needs_coding and plan.variant.kernel != "8bit":
            return "needs 8-bit state (--kernel 8bit)"
        if condition.moment is not None and condition.moment not in optimizer(plan.variant.optimizer).state:
            return f"{plan.variant.optimizer} keeps no {condition.moment}"
        return ""


def _place(finding: Finding) -> tuple[object, ...]:
    return finding.rule, finding.step, finding.param, finding.index


def moment_of(
    stepper: Stepper,
    *,
    lr: float,
    loss: float | None,
    counts: BufferStats,
    grad_norm: float | None = None,
    clip_scale: float | None = None,
    table: ParamTable | None = None,
    whole: ParamStats | None = None,
    coding: tuple[ParamCodingError, ...] | None = None,
    findings: tuple[Finding, ...] = (),
    updated: bool = False,
) -> Moment:
    """What is known where a stepper stands; counts of no elements are not known."""
    return Moment(
        stepper.layout,
        stepper.cursor.step,
        lr,
        loss,
        counts if counts is not NOT_COUNTED else None,
        lambda name: stepper.stats("g", name),
        lambda start, count: stepper.read("g", start, count),
        grad_norm,
        clip_scale,
        table,
        whole,
        coding,
        findings,
        updated,
    )


def held_after_update(stepper: Stepper, hyper: Hyper, before: ParamTable | None) -> ParamTable:
    """What the params hold after the update that ran last: counted are those that it wrote, all where `before` it
    nothing was known."""
    layout, cursor = stepper.layout, stepper.cursor
    start, stop = stepper.plan.dispatches[cursor.dispatch - 1].elements
    if before is None:
        return stepper.lane_stats(hyper, (0, layout.padded_elements))
    rows = np.array([start <= s.offset < stop for s in layout.segments], bool)
    return before.with_lanes(stepper.lane_stats(hyper, (start, stop)), np.flatnonzero(rows))


def nonfinite_params(stepper: Stepper, hyper: Hyper, counts: BufferStats) -> dict[str, NonFinite]:
    """Params with gradients that are not finite, in the order of memory: one pass over all, where `counts` says that
    there are any."""
    if not counts.nonfinite.total:
        return {}
    table = stepper.lane_stats(hyper, (0, stepper.layout.padded_elements))
    g = table.lanes["g"]
    return {
        table.names[row]: NonFinite(
            int(g.nan[row]), int(g.posinf[row]), int(g.neginf[row]), int(g.first[row])
        )
        for row in np.flatnonzero(g.nonfinite)
    }


def before_updates(plan: Plan, cursor: Cursor) -> bool:
    """True where nothing has been updated in the step at the cursor."""
    return not any(d.updates for d in plan.dispatches[: cursor.dispatch])


def norm_known_at(plan: Plan) -> int:
    """How many dispatches of a step have run when the gradient norm is known."""
    writes = (i for i, d in enumerate(plan.dispatches) if any(b.buffer == "grad_stats" for b in d.writes))
    return next(writes, len(plan.dispatches) - 1) + 1


def higher(a: StatsLevel, b: StatsLevel) -> StatsLevel:
    """The level that counts more."""
    return max(a, b, key=LEVELS.index)
