"""One element under the microscope: its update line by line at the step on show, and itself over steps."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from inspector.errors import UsageError
from inspector.explaining import (
    CodedLine,
    ElementCodes,
    ElementValues,
    ExplainedLine,
    Place,
    coded_line,
    exact_lines,
    explained,
    line_values,
    place_of,
    prepared_by,
    same_bits,
    written_lanes,
)
from inspector.floats import F32Array
from inspector.hyper import Hyper
from inspector.layout import Layout, Segment
from inspector.optimizers import optimizer
from inspector.optimizers.adamw.oracle import clip_scale, kernel_norm
from inspector.param_hyper import ParamStep, param_step
from inspector.plan import Plan, Variant
from inspector.runtime.element_trail import NO_TRAIL, ElementTrail, Trail
from inspector.session.plans import recorded_plan
from inspector.stepping import GradStats, Stepper
from inspector.stores import MOMENTS, Lane

if TYPE_CHECKING:
    from inspector.runtime.engine import Engine
    from inspector.runtime.recorded import RecordedRun
    from inspector.runtime.snapshots import Glance

Stage = Literal["ahead", "given", "done", "captured"]
"""Of the update: gradNorm worked out ahead of its dispatches; norm in place, update to come; it has run; or all of it
is worked out from what a recording captured, the device being elsewhere."""

EXACT_NORM_ELEMENTS = 1 << 22
"""Up to so many gradients are read back for their norm in float64."""
RUNNING_SHARE = 5
RUNNING_PERIOD_S = 0.1
READING_S = 0.015
"""So long at a time captured tensors are read."""


@dataclass(frozen=True, slots=True, eq=False)
class ElementPicture:
    """Element `index`, flat, of `param` in step `step`; `element` is its place in the mega-buffers.

    `given` is what its update is given, None where that is not known: `missing` says why, as a sentence. `now` is what
    the buffers hold. `lines` are as this GPU computes them, those of the built-in kernel also where a user's own runs;
    gradNorm and clipScale have no float64 (NaN) where `exact_norm` is False, and the others take the clip scale as the
    kernel left it. `agrees`, once the update has run: True where w, m and v of the lines, or the codes made of them,
    are what it wrote.
    """

    param: str
    index: int
    element: int
    step: int
    stage: Stage
    plan: Plan
    place: Place | None
    given: ElementValues | None = None
    now: ElementValues | None = None
    lines: tuple[ExplainedLine, ...] = ()
    coded: tuple[CodedLine, ...] = ()
    agrees: bool | None = None
    exact_norm: bool = True
    missing: str = ""
    trail: ElementTrail = NO_TRAIL


class Microscope:
    """Holds which element is looked at, and what was last shown of it."""

    def __init__(self) -> None:
        self.picture: ElementPicture | None = None
        self._asked: tuple[str, int] | None = None
        self._trail: Trail | None = None
        self._stale = True
        self._hurried = False
        self._done_at = -float("inf")
        self._cost = 0.0
        self._trailed_to = 0
        self._norm: tuple[object, float | None] = (None, None)
        self._plans: tuple[object, Plan] | None = None

    def ask(self, param: str | None, index: int) -> None:
        """Look at this element from now on, None for none."""
        asked = None if param is None else (param, index)
        if asked != self._asked:
            self._asked, self._stale = asked, True
            self._trail = None if asked is None else Trail(*asked)
            self._trailed_to = 0
        if asked is None:
            self.picture = None

    def moved(self) -> None:
        """The run has moved."""
        self._stale = True

    def forget(self) -> None:
        """Another run."""
        self.picture, self._stale = None, True
        self._norm, self._plans = (None, None), None
        if self._asked is not None:
            self._trail, self._trailed_to = Trail(*self._asked), 0

    # --- captured tensors, while nothing else is to do

    @property
    def reads_on(self) -> bool:
        """True while there is more of a recording to read."""
        return self._trail is not None and self._trail.reads_on

    def read_on(self, recorded: RecordedRun) -> None:
        """Read more of what was captured of the element."""
        if self._trail is not None:
            self._trail.read_on(recorded, READING_S)
            self._stale = True

    # --- where the device stands

    def refresh(self, engine: Engine, *, running: bool) -> None:
        """Bring the picture up to date; while running only where it is due, and without what takes long."""
        due = self._stale or (self._hurried and not running)
        if not due or self._asked is None or self._trail is None:
            return
        started = time.perf_counter()
        wait = max(RUNNING_PERIOD_S, RUNNING_SHARE * self._cost) if running else 0.0
        if started - self._done_at < wait:
            return
        found = self._found(engine.stepper.layout)
        self.picture = None if found is None else self._look(engine, *found, running=running)
        self._stale = False
        # What was left out on the way is made up for once the run has stopped, be it where the last look was.
        self._hurried = running and self.picture is not None and not self.picture.exact_norm
        self._done_at = time.perf_counter()
        self._cost = self._done_at - started

    def _found(self, layout: Layout) -> tuple[Segment, int] | None:
        if self._asked is None or self._asked[0] not in layout:
            return None
        segment, index = layout[self._asked[0]], self._asked[1]
        return (segment, index) if 0 <= index < segment.numel else None

    def _look(self, engine: Engine, segment: Segment, index: int, *, running: bool) -> ElementPicture:
        stepper = engine.stepper
        plan, cursor, looker = stepper.plan, stepper.cursor, stepper.looker
        element = segment.offset + index
        place = place_of(plan, segment.name, index)
        now = looker.element(element)
        trail = self._follow(engine, element)
        stage: Stage = "ahead"
        if place is not None and cursor.dispatch > place.dispatch.index:
            stage = "done"
        elif any(d.entry_point == "finalize_grad_stats" for d in plan.dispatches[: cursor.dispatch]):
            stage = "given"
        picture = ElementPicture(
            segment.name, index, element, cursor.step, stage, plan, place, now=now, trail=trail
        )
        if place is None:
            own = param_step(engine.step_hyper, plan.layout, segment.name, cursor.step)
            return replace(
                picture, missing=_takes_no_part(picture, own) or "No dispatch of this plan updates it."
            )
        if cursor.step < 1 or (cursor.at_end and cursor.step == engine.began_at):
            return replace(picture, missing=_no_step(cursor.step))
        given = looker.element(element, given_to=place.dispatch.index)
        if given is None and engine.recorded is not None and not engine.course.is_own(cursor.step):
            # The device came from a captured state; the one before it may be captured as well.
            captured = self._captured(engine, engine.recorded, cursor.step, segment, index)
            if captured.lines:
                return captured
        if given is None:
            return replace(
                picture,
                missing=f"What step {cursor.step:,} was given is no longer in memory: run the step again from its "
                "start (Shift+F11), or start with a larger --undo-mb.",
            )
        prepared = prepared_by(plan, element)
        if prepared is not None and cursor.dispatch <= prepared.index:
            return replace(
                picture, missing=f"What is subtracted from it is worked out from its whole matrix up to dispatch "
                f"{prepared.index + 1} of this step ({prepared.label}): run the step up to there.",
            )  # fmt: skip
        hyper = engine.step_hyper
        stats = looker.stats_ahead(hyper)
        # Not fused, a pass of its own clips the gradient: it has by now, or its element will be clipped by it.
        clipped = not plan.variant.fused and _clipped(plan, stage, cursor.dispatch, element)
        norm = self._exact_norm(stepper, place, running=running)
        picture = replace(picture, given=given)
        return _with_lines(
            picture, stepper, segment, hyper, stats, norm, clipped=clipped, variant=plan.variant
        )

    def _follow(self, engine: Engine, element: int) -> ElementTrail:
        """The element over steps, with what memory has beyond what is known."""
        trail, cursor = self._trail, engine.stepper.cursor
        assert trail is not None
        if cursor.finished_steps < self._trailed_to:
            trail.forget_after(cursor.finished_steps, began=cursor.step)
            self._trailed_to = 0
        trail.remember(engine.stepper.looker.trail(element, self._trailed_to))
        self._trailed_to = cursor.finished_steps
        if engine.recorded is not None:
            course = engine.course
            trail.list_captured(engine.recorded, cursor.step, None if course.as_recorded else course.own_from)
        return trail.picture()

    def _exact_norm(self, stepper: Stepper, place: Place, *, running: bool) -> float | None:
        """The norm of the step's gradients in float64; None where that would take long."""
        if stepper.layout.elements > EXACT_NORM_ELEMENTS:
            return None
        key = (stepper, stepper.cursor.step, place.dispatch.index)
        if self._norm[0] == key:
            return self._norm[1]
        if running:
            return None
        first = min((d.index for d in stepper.plan.dispatches if _changes_g(d.writes)), default=0)
        gradients = stepper.looker.gradients_given(first)
        self._norm = key, None if gradients is None else kernel_norm(gradients)
        return self._norm[1]

    # --- where only a recording tells

    def glance(self, engine: Engine, recorded: RecordedRun, glance: Glance) -> None:
        """Show the element at a step that the device does not stand at, from what was captured of it."""
        self._stale = True
        found = self._found(engine.stepper.layout)
        if found is None or self._trail is None:
            self.picture = None
            return
        try:
            self.picture = self._captured(engine, recorded, glance.step, *found, lost=glance.missing)
        except UsageError as error:
            old = self.picture
            self.picture = old and replace(old, missing=str(error), given=None, now=None, lines=(), coded=())

    def _captured(
        self,
        engine: Engine,
        recorded: RecordedRun,
        step: int,
        segment: Segment,
        index: int,
        *,
        lost: str | None = None,
    ) -> ElementPicture:
        """The element at a recorded step; `lost` says why its buffers cannot be rebuilt, None where they can."""
        assert self._trail is not None
        session, old = recorded.session, self.picture
        row = session.step(step)
        key = (row.variant, row.layout)
        if self._plans is None or self._plans[0] != key:
            self._plans = key, recorded_plan(session, row)
        plan = self._plans[1]
        segment = plan.layout[segment.name]
        self._trail.list_captured(recorded, step, None)
        trail = self._trail.picture()
        if (
            old is not None and (old.param, old.index, old.step, old.stage) == (segment.name, index, step, "captured")
            and old.plan is plan
        ):  # fmt: skip
            return replace(old, trail=trail) if trail is not old.trail else old
        picture = ElementPicture(
            segment.name, index, segment.offset + index, step, "captured", plan,
            place_of(plan, segment.name, index), trail=trail,
        )  # fmt: skip
        if recorded.has_state(step):
            picture = replace(picture, now=_from_capture(recorded, step, None, segment, index))
        if not recorded.has_state(step - 1) or not recorded.leads(step - 1, step):
            lacks = "gradients were" if recorded.has_state(step - 1) else "starting state was"
            coming = (
                f"Its {lacks} not captured for step {step:,}: its lines come once its buffers are rebuilt."
            )
            return replace(picture, missing=lost or coming)
        if prepared_by(plan, segment.offset + index) is not None:
            return replace(
                picture, missing=lost or "What is subtracted from it is worked out from its whole matrix: its lines "
                "come once its buffers are rebuilt.",
            )  # fmt: skip
        if row.grad_norm is None or row.clip_scale is None:
            return replace(picture, missing=f"The gradient norm of step {step:,} was not recorded.")
        given = _from_capture(recorded, step - 1, step, segment, index)
        stats = GradStats(row.grad_norm, row.clip_scale)
        return _with_lines(
            replace(picture, given=given), engine.stepper, segment, row.hyper, stats, None, clipped=False,
            variant=row.variant,
        )  # fmt: skip


def _takes_no_part(picture: ElementPicture, own: ParamStep) -> str:
    """Why there are no lines of an idle param; "" of one that is not."""
    if not own.idle:
        return ""
    return (
        f"{picture.param} takes no part in step {picture.step:,}: it has no gradient there, and w, m and v stay as "
        f"they are. The last step that it took was number {max(own.step, 0):,}."
    )


def _with_lines(
    picture: ElementPicture,
    stepper: Stepper,
    segment: Segment,
    hyper: Hyper,
    stats: GradStats,
    norm: float | None,
    *,
    clipped: bool,
    variant: Variant,
) -> ElementPicture:
    """The picture with the lines of the update that is given what it is given."""
    given = picture.given
    assert given is not None
    own = param_step(hyper, picture.plan.layout, picture.param, picture.step)
    if why := _takes_no_part(picture, own):
        return replace(picture, missing=why)
    rule = optimizer(variant.optimizer)
    if rule.update is None:
        why = f"{rule.title} updates an element by sums over its whole param: there are no lines of it alone."
        return replace(picture, missing=why)
    coded = segment.state == "8bit"
    on_gpu = stepper.looker.update_lines(
        given, clip_scale=stats.clip_scale, clipped=clipped, hyper=own.hyper, step=own.step,
        decays=own.decays, coded=coded, variant=variant, param=segment.param,
    )  # fmt: skip
    scale = stats.clip_scale if norm is None else float(clip_scale(norm, hyper.max_grad_norm))
    exact = exact_lines(
        given.as_arrays(), norm=np.nan if norm is None else norm, scale=scale, codec=variant.codec if coded else None,
        clipped=clipped, hyper=own.hyper, step=own.step, decays=own.decays, variant=variant, param=segment.param,
    )  # fmt: skip
    lines = explained(exact, line_values(exact, (stats.grad_norm, stats.clip_scale), on_gpu))
    if norm is None:
        unknown = [replace(line, f64=float("nan"), ulp=float("nan")) for line in lines[:2]]
        lines = (*unknown, *lines[2:])
    found = replace(picture, lines=lines, exact_norm=norm is not None)
    done = picture.stage == "done" or (picture.stage == "captured" and picture.now is not None)
    if picture.now is None or not done:
        return found
    by_name = {line.name: line.f32 for line in lines}
    kept: tuple[CodedLine, ...] = ()
    if picture.now.codes is not None:
        kept = tuple(coded_line(lane, by_name[lane], picture.now.codes) for lane in MOMENTS)
    written = written_lanes(picture.plan, coded=bool(kept))
    agrees = all(each.agrees for each in kept) and all(
        same_bits(by_name[lane], picture.now[lane]) for lane in written
    )
    return replace(found, coded=kept, agrees=agrees)


def _from_capture(
    recorded: RecordedRun, state: int, gradients: int | None, segment: Segment, index: int
) -> ElementValues:
    """w, m and v after step `state`; g of step `gradients`, 0 as the update leaves it without."""
    session, name = recorded.session, segment.name

    def one(lane: Lane, step: int) -> np.float32:
        values: F32Array = session.window(lane, step, name, index, index + 1)
        return np.float32(values[0])

    codes = None
    if segment.state == "8bit":
        kept = session.codes(state, name)
        block = index // 256
        codes = ElementCodes(
            kept.codec, int(kept.m.codes[index]), int(kept.v.codes[index]),
            np.float32(kept.m.scales[block]), np.float32(kept.v.scales[block]),
        )  # fmt: skip
    g = np.float32(0) if gradients is None else one("g", gradients)
    return ElementValues(one("w", state), g, one("m", state), one("v", state), codes)


def _no_step(step: int) -> str:
    begun = f"after step {step:,}" if step else "before its first step"
    return f"The run stands {begun} and has run nothing yet: F10 runs a dispatch of the next step."


def _clipped(plan: Plan, stage: Stage, dispatch: int, element: int) -> bool:
    if stage == "done":
        return True
    done = plan.dispatches[:dispatch]
    return any(d.entry_point == "scale" and d.elements[0] <= element < d.elements[1] for d in done)


def _changes_g(writes: tuple[object, ...]) -> bool:
    return any(getattr(b, "buffer", "").split("[")[0] == "g" for b in writes)
