"""A recording run again: as recorded and held against it number by number, or under other settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from inspector.diagnosis.rules import StepFacts, step_findings
from inspector.findings import Finding
from inspector.floats import F32Array
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.param_statistics import ParamTable
from inspector.plan import Variant
from inspector.schedule import Schedule
from inspector.session.compare import (
    ArrayDifference,
    Difference,
    count_differences,
    grad_stats_dispatch,
    state_differences,
    step_differences,
    table_differences,
    update_dispatches,
)
from inspector.session.records import RecordedStep
from inspector.sources.recording import Recording
from inspector.stepping import DeviceInfo, HostGradients, HostState, State, Stepper


class MakeStepper(Protocol):
    """Makes a stepper for params in a form, from a state: the one on a GPU."""

    def make(self, params: tuple[Param, ...], variant: Variant, state: State) -> Stepper: ...


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
        used = replace(recorded, **self.hyper)
        if self.schedule is None:
            return used
        return replace(used, lr=self.hyper.get("lr", base_lr) * self.schedule.factor(step))

    def variant_of(self, recorded: Variant) -> Variant:
        """The form of a step."""
        return replace(recorded, **self.variant)

    def __str__(self) -> str:
        parts = [f"{name} {value}" for name, value in {**self.hyper, **self.variant}.items()]
        if self.schedule is not None:
            parts.append(f"schedule {self.schedule}")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, eq=False)
class ReplayedStep:
    """One step that ran again, beside what was recorded of it.

    `differences` come in the order in which a step runs. `lanes` is how far w, m and v are from a captured state, where
    there is one; `gradients` are those it ran on, `state` is there where it was compared or asked for.
    """

    step: RecordedStep
    recorded: RecordedStep
    differences: tuple[Difference, ...]
    lanes: Mapping[str, ArrayDifference] | None
    table: ParamTable | None
    gradients: Mapping[str, F32Array]
    state: HostState | None
    findings: tuple[Finding, ...] = ()


class Replay:
    """Runs steps of a recording again on a device. Its stepper is closed with it."""

    def __init__(self, source: Recording, make: MakeStepper, changes: Changes | None = None) -> None:
        self.source = source
        self.changes = changes or Changes()
        self._make = make
        self._stepper: Stepper | None = None
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

    def close(self) -> None:
        """Destroy the device."""
        if self._stepper is not None:
            self._stepper.close()
            self._stepper = None

    def start(self, first: int) -> HostState:
        """The state before step `first`, rebuilt as recorded; `run` goes on from there."""
        source = self.source.starting_for(first)
        self.close()
        form = self._variant(source.first_step, source.first_step == first)
        state = source.initial_state()
        # Laid out as the recorded run was, on which the order of sums hangs.
        laid = self.source.laid_out_for(source.first_step) if not self.changes.variant else form
        self._stepper = self._make.make(source.params, laid, state)
        self._take_form(form)
        for step in range(source.first_step, first):
            self._take_form(self._variant(step, False))
            self._stepper.begin_step(source.gradients(step, self._stepper.weights))
            self._stepper.run_to_end(self._hyper(step, False))
        if source.first_step < first:
            state = self._stepper.state()
        self._take_form(self._variant(first, True))
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
        are counted although none were recorded. `check` is called between steps.
        """
        keyframes = set(self.source.session.captures("keyframe"))
        for step in range(first, last + 1):
            check()
            yield self._step(step, step in keyframes, wants_state(step), statistics)

    def begin(self, step: int) -> Stepper:
        """The stepper with the gradients of `step` in place, right after `start` of it."""
        stepper = self._take_form(self._variant(step))
        stepper.begin_step(HostGradients(self.source.session.gradients(step)))
        return stepper

    # --- inner parts

    def _hyper(self, step: int, changed: bool = True) -> Hyper:
        recorded = self.source.session.step(step).hyper
        return self.changes.hyper_of(recorded, self.source.hyper.lr, step) if changed else recorded

    def _variant(self, step: int, changed: bool = True) -> Variant:
        recorded = self.source.session.step(step).variant
        return self.changes.variant_of(recorded) if changed else recorded

    def _take_form(self, variant: Variant) -> Stepper:
        stepper = self._stepper
        assert stepper is not None
        if variant != stepper.plan.variant:
            if stepper.can_take(variant):
                stepper.set_variant(variant)
            else:
                state = stepper.state()
                self.close()
                stepper = self._stepper = self._make.make(self.source.params, variant, state)
        if not self.variants or self.variants[-1] != variant:
            self.variants.append(variant)
        return stepper

    def _step(self, step: int, keyframe: bool, wanted: bool, statistics: bool) -> ReplayedStep:
        session, changed = self.source.session, bool(self.changes)
        recorded = session.step(step)
        hyper = self._hyper(step)
        stepper = self._take_form(self._variant(step))
        given = session.gradients(step)
        stepper.begin_step(HostGradients(given))
        counts = stepper.counts("g")
        dispatches = stepper.plan.dispatches
        norm_at = grad_stats_dispatch(dispatches)
        times = []
        table: ParamTable | None = None
        known = session.param_statistics(step)
        if norm_at is not None and (statistics or (known is not None and not changed)):
            while stepper.cursor.dispatch <= norm_at:
                times.append(stepper.run_dispatch(hyper))
            if not any(d.updates for d in dispatches[: stepper.cursor.dispatch]):
                table = stepper.param_stats(hyper)
        times += stepper.run_to_end(hyper)
        stats = stepper.grad_stats()
        ran = RecordedStep(
            step,
            hyper,
            stepper.plan.variant,
            # The loss belongs to the weights that the gradients were taken at.
            None if changed else recorded.loss,
            stats.grad_norm,
            stats.clip_scale,
            counts.nonfinite,
            tuple(times),
        )
        found: list[Difference] = []
        if session.about.stats != "off":
            found += count_differences(recorded, ran)
        found += step_differences(recorded, ran, norm_at)
        if known is not None and table is not None and not changed:
            found += table_differences(step, known, table, norm_at, places=self.same_device)
        state = stepper.state() if keyframe or wanted else None
        lanes = None
        if keyframe and state is not None:
            places = {s.name: s.offset for s in stepper.layout}
            updates = update_dispatches(dispatches, places)
            differing, lanes = state_differences(session.keyframe(step), state, self.source.params, updates)
            found += differing
        facts = StepFacts(
            step=step, layout=stepper.layout, hyper=hyper, gradients=counts, grad_norm=ran.grad_norm,
            clip_scale=ran.clip_scale, loss=ran.loss, initial_moments=False, initial_state={},
        )  # fmt: skip
        findings = tuple(step_findings(facts))
        return ReplayedStep(ran, recorded, tuple(found), lanes, table, given, state, findings)
