"""What each kernel costs on this device, on warm clocks, beside the bandwidth that a plain copy reaches."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from inspector.comparison import BenchReport, Comparison, StepCosts
from inspector.cost import span_ms, step_costs
from inspector.drift import Drift, drift_between
from inspector.errors import DeviceLostError, InspectorError, UsageError
from inspector.gpu.copying import copy_gbps
from inspector.gpu.device import Gpu
from inspector.gpu.opener import device_layout
from inspector.gpu.stepper import GpuStepper
from inspector.gpu.timing import Clocks
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.optimizers import plan_step
from inspector.plan import Plan, Variant
from inspector.preset import drawn_gradients, drawn_state
from inspector.stepping import KernelTime
from inspector.variants import Compared, Skipped, comparable, name_of_base

MIN_SAMPLES = 3
TURN_SAMPLES = 5
ROUNDS = 5
TURN_S = 0.5
"""A variant's turn ends after so many warm samples or so long, whichever comes first: fewer samples where there
would be less than so many rounds otherwise."""
PATIENCE_S = 60.0
"""So long, or four times what was asked for, the least number of samples is waited for."""
COLD_TURN_S = 3.0
"""A turn that gets no warm sample ends after so long."""
THROUGH_S = {True: 0.05, False: 0.3}
"""So long steps run with nothing timed inside, by `software`."""
KEPT_STEPS = 5
"""Steps whose times are kept one by one."""

Progress = Callable[[int, int], None]
"""Told between any two steps how many warm samples there are, of how many: of 0 while all is being prepared.

What it raises ends the measurement, and what that had allocated is given back."""


@dataclass(slots=True)
class _Runner:
    """A variant, the stepper that runs it, and what was measured so far."""

    name: str
    variant: Variant
    stepper: GpuStepper
    plan: Plan
    taken: list[tuple[KernelTime, ...]] = field(default_factory=list)
    last: deque[tuple[KernelTime, ...]] = field(default_factory=lambda: deque(maxlen=KEPT_STEPS))
    warm: int = 0
    plan_between: Plan | None = None
    between: list[tuple[KernelTime, ...]] = field(default_factory=list)
    """The same of steps that go without what only some do."""

    def keep(self, times: tuple[KernelTime, ...]) -> None:
        if self.stepper.plan.between:
            # No sample of what was asked for, which are those that do all there is to do.
            self.plan_between = self.stepper.plan
            self.between.append(times)
            return
        self.taken.append(times)
        if not any(t.cold for t in times):
            self.warm += 1
            self.last.append(times)


def bench(
    gpu: Gpu,
    params: tuple[Param, ...],
    variant: Variant,
    *,
    seed: int = 0,
    samples: int = 100,
    seconds: float = 30.0,
    copy: float | None = None,
    progress: Progress = lambda done, of: None,
) -> BenchReport:
    """Time `samples` steps (fewer where `seconds` run out, at least 3) after a warm-up."""
    copied = copy if copy is not None else copy_gbps(gpu, between=lambda: progress(0, 0))
    wanted = (Compared(name_of_base(variant), variant),)
    return _take_turns(gpu, params, wanted, seed, samples, seconds, copied, progress).reports[0]


def compare(
    gpu: Gpu,
    params: tuple[Param, ...],
    base: Variant,
    *,
    seed: int = 0,
    samples: int = 100,
    seconds: float = 30.0,
    copy: float | None = None,
    progress: Progress = lambda done, of: None,
) -> Comparison:
    """Time `base` and every variant that differs from it in one factor, all in one run.

    They take turns of a few steps, each round beginning with another one, so that a device whose speed drifts
    favours none.
    """
    copied = copy if copy is not None else copy_gbps(gpu, between=lambda: progress(0, 0))

    def plan(variant: Variant) -> Plan:
        progress(0, 0)
        return plan_step(device_layout(gpu, params, variant), gpu.limits, variant)

    wanted, skipped = comparable(base, plan)
    made = _take_turns(gpu, params, wanted, seed, samples, seconds, copied, progress)
    return Comparison(made.reports, (*skipped, *made.skipped))


def _take_turns(
    gpu: Gpu,
    params: tuple[Param, ...],
    wanted: Sequence[Compared],
    seed: int,
    samples: int,
    seconds: float,
    copied: float,
    progress: Progress,
) -> Comparison:
    with _runners(gpu, params, wanted, seed, progress) as (runners, skipped):

        def told() -> None:
            progress(sum(r.warm for r in runners), samples * len(runners))

        began = time.perf_counter()
        round_, before = 0, None
        while any(r.warm < samples for r in runners):
            first = round_ % len(runners)
            for runner in (*runners[first:], *runners[:first]):
                if runner.warm < samples:
                    _turn(runner, params, seed, samples, told, settles=runner is not before)
                    before = runner
            round_ += 1
            spent = time.perf_counter() - began
            if spent > seconds and (
                all(r.warm >= MIN_SAMPLES for r in runners) or spent > max(4 * seconds, PATIENCE_S)
            ):
                break
        # Last, since what it leaves in the buffers is no state of a run.
        reports = tuple(_report(gpu, runner, copied, told) for runner in runners)
        return Comparison(reports, tuple(skipped))


@contextmanager
def _runners(
    gpu: Gpu, params: tuple[Param, ...], wanted: Sequence[Compared], seed: int, progress: Progress
) -> Iterator[tuple[list[_Runner], list[Skipped]]]:
    """A runner a variant, and those beside the first that this device cannot run.

    Variants that lay the params out alike share a stepper, and with it the memory.
    """
    clocks = Clocks(gpu.info.software)
    steppers: list[GpuStepper] = []
    runners: list[_Runner] = []
    skipped: list[Skipped] = []
    try:
        for each in wanted:
            progress(0, 0)
            used = gpu.memory_bytes
            layout = device_layout(gpu, params, each.variant)
            try:
                fitting = (s for s in steppers if s.layout == layout and s.can_take(each.variant))
                stepper = next(fitting, None)
                if stepper is None:
                    state = drawn_state(params, seed)
                    stepper = GpuStepper(gpu, layout, each.variant, state, undo_bytes=0, clocks=clocks)
                    steppers.append(stepper)
                else:
                    stepper.set_variant(each.variant)
            except DeviceLostError:
                raise
            except InspectorError as error:
                # What had been allocated for it goes with it.
                gpu.memory_bytes = used
                if not runners:
                    raise
                skipped.append(Skipped(each.name, str(error)))
            else:
                runners.append(_Runner(each.name, each.variant, stepper, stepper.plan))
        yield runners, skipped
    finally:
        for stepper in steppers:
            stepper.release()


def _turn(
    runner: _Runner,
    params: tuple[Param, ...],
    seed: int,
    samples: int,
    told: Callable[[], None],
    *,
    settles: bool,
) -> None:
    """A few steps of one variant, `told` being called after each.

    With `settles` the first is marked cold: another variant ran before it."""
    stepper = runner.stepper
    if stepper.plan.variant != runner.variant:
        stepper.set_variant(runner.variant)
    goal = min(runner.warm + min(TURN_SAMPLES, -(-samples // ROUNDS)), samples)
    before, began = runner.warm, time.perf_counter()
    while runner.warm < goal:
        stepper.begin_step(drawn_gradients(params, seed, stepper.cursor.step + 1))
        times = stepper.run_to_end(Hyper())
        runner.keep(tuple(replace(t, cold=True) for t in times) if settles else times)
        settles = False
        told()
        if time.perf_counter() - began > (TURN_S if runner.warm > before else COLD_TURN_S):
            break


def _report(gpu: Gpu, runner: _Runner, copied: float, told: Callable[[], None]) -> BenchReport:
    stepper, seconds = runner.stepper, THROUGH_S[gpu.info.software]
    if stepper.plan.variant != runner.variant:
        stepper.set_variant(runner.variant)
    kernels, step = step_costs(runner.plan, runner.taken, copied)
    layout, between = runner.plan.layout, None
    if runner.plan_between is not None:
        costs = step_costs(runner.plan_between, runner.between, copied)
        through = stepper.through_ms(runner.plan_between, seconds, told)
        between = StepCosts(*costs, span_ms(runner.between), through)
    return BenchReport(
        device=gpu.info.name,
        elements=layout.elements,
        params=len(layout.segments),
        variant=runner.variant,
        copy_gbps=copied,
        kernels=kernels,
        step=step,
        span_ms=span_ms(runner.taken),
        through_ms=stepper.through_ms(runner.plan, seconds, told),
        plan=runner.plan,
        last_steps=tuple(runner.last),
        name=runner.name,
        between=between,
    )


def drift(
    gpu: Gpu,
    params: tuple[Param, ...],
    one: Variant,
    other: Variant,
    *,
    steps: int,
    seed: int = 0,
    progress: Progress = lambda done, of: None,
) -> Drift:
    """How far apart two variants are after `steps` steps on the same gradients from the same weights."""
    if steps < 1:
        raise UsageError(f"Drift over {steps} steps: give at least 1.")
    weights = []
    start = None
    for number, variant in enumerate((one, other)):
        stepper = GpuStepper(
            gpu, device_layout(gpu, params, variant), variant, drawn_state(params, seed), undo_bytes=0
        )
        try:
            start = start if start is not None else stepper.weights()
            for step in range(1, steps + 1):
                stepper.begin_step(drawn_gradients(params, seed, step))
                stepper.run_to_end(Hyper())
                progress(number * steps + step, 2 * steps)
            weights.append(stepper.weights())
        finally:
            stepper.release()
    assert start is not None
    return drift_between(start, weights[0], weights[1], steps)
