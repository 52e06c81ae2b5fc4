"""A stepper that stands before a step of any source, for commands that look at one step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from inspector.errors import UsageError
from inspector.gpu.opener import StepperMaker
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import HYPER_NAMES, Hyper
from inspector.layout import Param
from inspector.param_hyper import placing
from inspector.plan import Variant
from inspector.runtime.replay import Changes, Replay
from inspector.sources.base import EndOfSourceError, Source, hyper_at
from inspector.sources.recording import Recording


@contextmanager
def stepper_at(
    source: Source,
    hyper: Hyper,
    variant: Variant,
    *,
    given: Mapping[str, Any],
    adapter: str | None,
    step: int | None,
    what: str,
) -> Iterator[tuple[GpuStepper, Hyper]]:
    """A stepper with the gradients of `step` in place and nothing of it run, and what the step runs with.

    The first step there is where `step` is None. Of a recording it comes from the nearest state before it, `given`
    being the parts of `variant` that hold over what was recorded. UsageError where there is no such step: it cannot be
    `what`.
    """
    if isinstance(source, Recording) and step is not None:
        yield from _recorded(source, hyper, given, adapter, step, what)
        return
    state = source.initial_state()
    first = state.finished_steps + 1
    wanted = first if step is None else step
    if wanted < first:
        raise UsageError(f"--step {wanted} lies before the first step of {source.name}, which is {first}.")
    stepper = StepperMaker(adapter, undo_bytes=0).make(source.params, variant, state, None, **placing(hyper))
    try:
        for t in range(first, wanted + 1):
            try:
                gradients = source.gradients(t, stepper.weights)
            except EndOfSourceError as error:
                raise UsageError(f"--step {wanted} cannot be {what}: {error}") from None
            used = hyper_at(source, hyper, source.schedule, t)
            stepper.begin_step(gradients, used)
            if t < wanted:
                stepper.run_to_end(used)
        yield stepper, used
    finally:
        stepper.close()


def _recorded(
    source: Recording,
    hyper: Hyper,
    given: Mapping[str, Any],
    adapter: str | None,
    step: int,
    what: str,
) -> Iterator[tuple[GpuStepper, Hyper]]:
    """From the nearest state before the step; what was typed holds for that step alone."""
    if problem := source.missing(step):
        raise UsageError(f"--step {step} cannot be {what}: {problem}")
    used = hyper_at(source, hyper, source.schedule, step)
    recorded = source.recorded_hyper(step)
    assert recorded is not None
    typed = {n: getattr(used, n) for n in HYPER_NAMES if getattr(used, n) != getattr(recorded, n)}
    runner = Replay(source, StepperMaker(adapter, undo_bytes=0), Changes(typed, given))
    try:
        runner.start(step)
        stepper = runner.begin(step)
        assert isinstance(stepper, GpuStepper)
        yield stepper, used
    finally:
        runner.close()


def find_param(source: Source, name: str) -> Param:
    """The param of that name; UsageError, with names that are near, where there is none."""
    for param in source.params:
        if param.name == name:
            return param
    near = [p.name for p in source.params if name.lower() in p.name.lower()][:3]
    hint = f" Did you mean {' or '.join(near)}?" if near else f" 'inspector layout {source.name}' lists them."
    raise UsageError(f"{source.name} has no param {name!r}.{hint}")
