"""A recording run again: as recorded and held against it number by number, or under other settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from inspector.diagnosis.diagnosis import Diagnosis
from inspector.diagnosis.facts import StepFacts
from inspector.findings import Finding
from inspector.floats import F32Array, shortest
from inspector.hyper import Hyper, with_value, with_values
from inspector.layout import Layout, Param
from inspector.param_hyper import placing
from inspector.param_statistics import ParamTable
from inspector.plan import Variant
from inspector.runtime.breakpoints import (
    Breakpoints,
    before_updates,
    held_after_update,
    moment_of,
    nonfinite_params,
)
from inspector.runtime.recorded_facts import RecordedFacts
from inspector.schedule import Schedule
from inspector.session.compare import (
    ArrayDifference,
    Difference,
    count_differences,
    grad_stats_dispatch,
    state_differences,
    state_writers,
    step_differences,
    table_differences,
    update_dispatches,
)
from inspector.session.records import RecordedLayout, RecordedStep
from inspector.sources.recording import Recording
from inspector.statistics import NOT_COUNTED
from inspector.stepping import DeviceInfo, GradStats, HostGradients, HostState, KernelTime, State, Stepper


class MakeStepper(Protocol):
    """Makes a stepper for params in a form, from a state: the one on a GPU.

    The params lie as in `layout` where the device can bind them there.
    """

    def make(
        self,
        params: tuple[Param, ...],
        variant: Variant,
        state: State,
        layout: Layout | None = None,
        *,
        alone: bool = False,
    ) -> Stepper:
        """With `alone` any param can be bound by itself, as settings of its own ask."""
        ...


@dataclass(frozen=True, slots=True)
class Changes:
    """What a replay runs with in place of what was recorded; nothing where it is held against the recording."""

    hyper: Mapping[str, float] = field(default_factory=dict)
    variant: Mapping[str, Any] = field(default_factory=dict)
    schedule: Schedule | None = None

    def __bool__(self) -> bool:
        return bool(self.hyper or self.variant or self.schedule is not None)

    def hyper_of(self, recorded: Hyper, base_lr: float, step: int) -> Hyper:
        """The settings of a step; a schedule multiplies the given lr, or else `base_lr`."""
        used = with_values(recorded, self.hyper)
        if self.schedule is None:
            return used
        return with_value(used, "lr", self.hyper.get("lr", base_lr) * self.schedule.factor(step))

    def variant_of(self, recorded: Variant) -> Variant:
        """The form of a step."""
        return replace(recorded, **self.variant)

    def named(self) -> tuple[tuple[str, str], ...]:
        """What is set, by name, as text."""
        parts = [(name, shortest(value)) for name, value in self.hyper.items()]
        parts += [(name, str(value)) for name, value in self.variant.items()]
        if self.schedule is not None:
            parts.append(("schedule", str(self.schedule)))
        return tuple(parts)

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.named())


@dataclass(frozen=True, slots=True, eq=False)
class ReplayedStep:
    """One step that ran again, beside what was recorded of it.

    `differences` come in the order in which a step runs. `lanes` is how far w, m and v are from a captured state, where
    there is one; `gradients` are those it ran on, `state` is there where it was compared or asked for. `clipped_by` is
    what the program that was recorded clipped them by before they were captured: the norms are of two things then.
    """

    step: RecordedStep
    recorded: RecordedStep
    differences: tuple[Difference, ...]
    lanes: Mapping[str, ArrayDifference] | None
    table: ParamTable | None
    gradients: Mapping[str, F32Array]
    state: HostState | None
    findings: tuple[Finding, ...] = ()
    clipped_by: GradStats | None = None


class Replay:
    """Runs steps of a recording again on a device. Its stepper is closed with it."""

    def __init__(
        self,
        source: Recording,
        make: MakeStepper,
        changes: Changes | None = None,
        breakpoints: Breakpoints | None = None,
    ) -> None:
        self.source = source
        self.breakpoints = Breakpoints() if breakpoints is None else breakpoints
        self._recorded_facts = RecordedFacts(source.session)
        self._diagnosis = Diagnosis()
        self.changes = changes or Changes()
        self._make = make
        self._stepper: Stepper | None = None
        self._laid: Layout | None = None
        self._recorded: tuple[Layout, RecordedLayout] | None = None
        self.variants: list[Variant] = []
        """The forms it ran in, in order."""

    @property
    def device(self) -> DeviceInfo | None:
        """The adapter in use, None before the first step."""
        return self._stepper.device if self._stepper else None

    @property
    def same_device(self) -> bool:
        """True on an adapter of the recorded one's name and backend."""
        recorded, mine = self.source.session.about.device, self.device
        return mine is None or (mine.name, mine.backend) == (recorded.name, recorded.backend)

    @property
    def layout(self) -> RecordedLayout:
        """Where the params lie now, as a recording of the replay has it."""
        stepper = self._stepper
        assert stepper is not None
        if self._recorded is None or self._recorded[0] is not stepper.layout:
            laid = RecordedLayout.of(stepper.layout, stepper.plan.limits, self.source.params)
            self._recorded = stepper.layout, laid
        return self._recorded[1]

    def close(self) -> None:
        """Destroy the device."""
        if self._stepper is not None:
            self._stepper.close()
            self._stepper = None

    def start(self, first: int) -> HostState:
        """The state before step `first`, rebuilt as recorded; `run` goes on from there."""
        source = self.source.starting_for(first)
        self.close()
        # What came before is as it was recorded.
        self._diagnosis = Diagnosis(lambda step: self._recorded_facts.at(step) if step < first else None)
        form = self._variant(source.first_step, source.first_step == first)
        state = source.initial_state()
        # Laid out as the recorded run was, on which the order of sums hangs.
        layout = self._layout(source.first_step)
        laid = form if layout or self.changes.variant else source.laid_out_for(source.first_step)
        self._stepper = self._make.make(source.params, laid, state, layout, **placing(source.hyper))
        self._laid = layout
        self._take_form(source.first_step, form)
        for step in range(source.first_step, first):
            stepper = self._take_form(step, self._variant(step, False))
            hyper = self._hyper(step, False)
            stepper.begin_step(source.gradients(step, stepper.weights), hyper)
            stepper.run_to_end(hyper)
        if source.first_step < first:
            state = self._stepper.state()
        self._take_form(first, self._variant(first, True))
        return state

    def run(
        self,
        first: int,
        last: int,
        *,
        wants_state: Callable[[int], bool] = lambda step: False,
        statistics: bool = False,
        check: Callable[[], None] = lambda: None,
    ) -> Iterator[ReplayedStep]:
        """Steps `first` to `last`, one after the other; `start` comes before. What changes holds from `first` on.

        `wants_state` says after which steps the state is needed although it is not compared, `statistics` that params
        are counted although none were recorded. `check` is called between steps. It ends where a breakpoint holds, with
        the stepper before the update of that step, or at its end where an update made it hold.
        """
        keyframes = set(self.source.session.captures("keyframe"))
        for step in range(first, last + 1):
            check()
            ran = self._step(step, step in keyframes, wants_state(step), statistics)
            if ran is None:
                return
            yield ran
            if self.breakpoints.stop is not None:
                return

    def begin(self, step: int) -> Stepper:
        """The stepper with the gradients of `step` in place, right after `start` of it."""
        stepper = self._take_form(step, self._variant(step))
        stepper.begin_step(HostGradients(self.source.session.gradients(step)), self._hyper(step))
        return stepper

    # --- inner parts

    def _hyper(self, step: int, changed: bool = True) -> Hyper:
        recorded = self.source.session.step(step).hyper
        return self.changes.hyper_of(recorded, self.source.hyper.lr, step) if changed else recorded

    def _variant(self, step: int, changed: bool = True) -> Variant:
        recorded = self.source.session.step(step).variant
        return self.changes.variant_of(recorded) if changed else recorded

    def _layout(self, step: int) -> Layout | None:
        """Where the params lay in `step`; None where that is not known, or the form is another one."""
        return None if self.changes.variant else self.source.session.layout(step)

    def _take_form(self, step: int, variant: Variant) -> Stepper:
        stepper = self._stepper
        assert stepper is not None
        layout = self._layout(step)
        # As the run did: what it laid out anew is laid out anew, for which codes are read back and written.
        moved = layout is not self._laid and layout is not None and layout != stepper.layout
        if moved or (variant != stepper.plan.variant and not stepper.can_take(variant)):
            state = stepper.state()
            self.close()
            stepper = self._stepper = self._make.make(
                self.source.params, variant, state, layout, **placing(self.source.hyper)
            )
        elif variant != stepper.plan.variant:
            stepper.set_variant(variant)
        self._laid = layout
        if not self.variants or self.variants[-1] != variant:
            self.variants.append(variant)
        return stepper

    def _clipped_by(self, recorded: RecordedStep, hyper: Hyper) -> GradStats | None:
        """What the program that was recorded clipped the gradients by before they were captured: the norm worked out
        here is that of what it left of them."""
        if math.isfinite(hyper.max_grad_norm):
            return None
        return self.source.session.about.before_clipping(recorded)

    def _stops(self, stepper: Stepper, facts: StepFacts, *, updated: bool = False) -> bool:
        """True where a breakpoint holds, `facts` being what is known by now; `updated` after an update."""
        if not self.breakpoints:
            return False
        table, coding = facts.table, facts.coding
        norm, scale = facts.grad_norm, facts.clip_scale
        theirs = self._clipped_by(self.source.session.step(facts.step), facts.hyper)
        if norm is not None and theirs is not None:
            norm, scale = theirs.grad_norm, theirs.clip_scale
        found = [] if updated else self._diagnosis.observe(facts)
        if coding is None and not updated and facts.grad_norm is not None and self.breakpoints.needs_coding:
            coding = stepper.coding_errors(facts.hyper)
        moment = moment_of(
            stepper,
            lr=facts.hyper.lr,
            loss=facts.loss,
            counts=NOT_COUNTED if facts.gradients is None else facts.gradients,
            grad_norm=norm,
            clip_scale=scale,
            table=table,
            whole=None if table is None else table.merged("all"),
            coding=None if coding is None else tuple(coding),
            findings=tuple(found),
            updated=updated,
        )
        return self.breakpoints.judge(moment, stepper.plan, stepper.cursor) is not None

    def _step(self, step: int, keyframe: bool, wanted: bool, statistics: bool) -> ReplayedStep | None:
        """Run a step; None where a breakpoint stops it before its update. After one, it is run to its end."""
        session, changed = self.source.session, bool(self.changes)
        recorded = session.step(step)
        hyper = self._hyper(step)
        stepper = self._take_form(step, self._variant(step))
        given = session.gradients(step)
        stepper.begin_step(HostGradients(given), hyper)
        counts = stepper.counts("g")
        dispatches = stepper.plan.dispatches
        norm_at = grad_stats_dispatch(dispatches)
        # The loss belongs to the weights that the gradients were taken at.
        loss = None if changed else recorded.loss
        initial, moments = self._recorded_facts.initial_state()
        known = session.param_statistics(step)
        statistics = statistics or self.breakpoints.needs == "full"
        counted = statistics or (known is not None and not changed)
        facts = StepFacts(
            step=step, layout=stepper.layout, hyper=hyper, gradients=counts, loss=loss, initial_moments=moments,
            initial_state=initial, variant=stepper.plan.variant, plan=stepper.plan,
            nonfinite={} if counted else nonfinite_params(stepper, hyper, counts),
        )  # fmt: skip
        if self._stops(stepper, facts):
            return None
        times: list[KernelTime] = []
        table: ParamTable | None = None
        if norm_at is not None and (counted or self.breakpoints.wait_for_norm):
            times += stepper.run_until(hyper, norm_at + 1)
            if before_updates(stepper.plan, stepper.cursor):
                table = stepper.param_stats(hyper) if counted else None
                stats = stepper.grad_stats()
                coded = counted and stepper.plan.variant.kernel == "8bit"
                facts = replace(
                    facts,
                    grad_norm=stats.grad_norm,
                    clip_scale=stats.clip_scale,
                    table=table,
                    coding=stepper.coding_errors(hyper) if coded else None,
                )
                if self._stops(stepper, facts):
                    return None
        held = table
        while self.breakpoints.wait_for_updates and not stepper.cursor.at_end:
            times.append(stepper.run_dispatch(hyper))
            if stepper.plan.dispatches[stepper.cursor.dispatch - 1].updates:
                held = held_after_update(stepper, hyper, held)
                if self._stops(stepper, replace(facts, table=held), updated=True):
                    break
        times += stepper.run_to_end(hyper)
        stats = stepper.grad_stats()
        ran = RecordedStep(
            step,
            hyper,
            stepper.plan.variant,
            loss,
            stats.grad_norm,
            stats.clip_scale,
            counts.nonfinite,
            tuple(times),
            layout=self.layout,
        )
        found: list[Difference] = []
        if session.about.stats != "off":
            found += count_differences(recorded, ran)
        theirs = self._clipped_by(recorded, hyper)
        if theirs is None:
            found += step_differences(recorded, ran, norm_at)
        if known is not None and table is not None and not changed:
            found += table_differences(step, known, table, norm_at, places=self.same_device)
        state = stepper.state() if keyframe or wanted else None
        lanes = None
        if keyframe and state is not None:
            places = {s.name: s.offset for s in stepper.layout}
            # What joins the run later has no state before that can be run from.
            there = self.source.params[: session.about.params_in(step)]
            updates = update_dispatches(dispatches, places)
            writers = state_writers(dispatches, stepper.plan.states)
            differing, lanes = state_differences(session.keyframe(step), state, there, updates, writers)
            found += differing
        facts = replace(facts, grad_norm=ran.grad_norm, clip_scale=ran.clip_scale)
        findings = tuple(self._diagnosis.observe(facts))
        return ReplayedStep(ran, recorded, tuple(found), lanes, table, given, state, findings, theirs)
