"""Policies on non-finite gradients, weighed on the step a run or a source stands at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from inspector.errors import UsageError
from inspector.floats import F32Array
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.optimizers import optimizer
from inspector.param_hyper import step_of
from inspector.plan import Variant
from inspector.policies import PolicyTable, Read, Tensor, weigh
from inspector.sources.base import Source
from inspector.stepping import HostGradients, HostState, Stepper
from inspector.stores import Lane

if TYPE_CHECKING:
    from inspector.runtime.commands import WeighPolicies
    from inspector.runtime.engine import Engine
    from inspector.runtime.snapshots import Glance

GIVEN_LANES = ("w", "g", "m", "v")
MAX_TABLES = 8
"""Kept of a run, for its report."""


@dataclass(frozen=True, slots=True)
class Weighing:
    """How far the policies are weighed for a step, in elements; `of` is 0 while that is not known."""

    step: int
    done: int = 0
    of: int = 0


class Policies:
    """The tables that were worked out for a run, and the one that is."""

    def __init__(self) -> None:
        self.weighing: Weighing | None = None
        self.latest: PolicyTable | None = None
        self._tables: dict[int, PolicyTable] = {}

    @property
    def tables(self) -> tuple[PolicyTable, ...]:
        """By step, the last one made of each, of at most MAX_TABLES."""
        return tuple(self._tables[step] for step in sorted(self._tables))

    def stands_at(self, step: int, engine: Engine, glance: Glance | None) -> bool:
        """True where the device holds what step `step` was given."""
        return glance is None and engine.stepper.cursor.step == step and stands_before(engine.stepper)

    def weigh(self, engine: Engine, asked: WeighPolicies, look_up: Callable[[], None]) -> None:
        """Make the table of the step at the cursor; `look_up` is called in between, and may end it by an exception."""
        element = None
        if asked.param is not None and asked.param in engine.stepper.layout:
            element = asked.param, min(asked.index or 0, engine.stepper.layout[asked.param].numel - 1)

        def progress(done: int, of: int) -> None:
            self.weighing = Weighing(asked.step, done, of)
            look_up()

        try:
            self.latest = weigh_on_device(engine.stepper, engine.step_hyper, element, progress)
        finally:
            self.weighing = None
        self._tables[self.latest.step] = self.latest
        while len(self._tables) > MAX_TABLES:
            del self._tables[next(iter(self._tables))]


def tensors_of(
    params: Sequence[Param], hyper: Hyper | None = None, step: int = 0, numbers: Sequence[int] | None = None
) -> tuple[Tensor, ...]:
    """The params, those with decay first as in the mega-buffers; with what each takes `step` with, if of its own.

    `numbers` are theirs in the order of the source, where they are given in another.
    """
    ordered = sorted(
        zip(range(len(params)) if numbers is None else numbers, params, strict=True),
        key=lambda each: each[1].block != "wd",
    )
    if hyper is None or hyper.per_param is None:
        return tuple(Tensor(p.name, p.numel, p.block == "wd") for _, p in ordered)
    own = ((p, step_of(hyper, number, p.block, step)) for number, p in ordered)
    return tuple(Tensor(p.name, p.numel, each.decays, each) for p, each in own)


def stands_before(stepper: Stepper) -> bool:
    """True where w, m, v and the gradients are still as the step was given them."""
    cursor, plan = stepper.cursor, stepper.plan
    if cursor.at_end and cursor.count:
        return False
    return not any(b.buffer in GIVEN_LANES for d in plan.dispatches[: cursor.dispatch] for b in d.writes)


def weigh_on_device(
    stepper: Stepper,
    hyper: Hyper,
    element: tuple[str, int] | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> PolicyTable:
    """The policies on the step at the cursor; UsageError where it has been updated already."""
    if not stands_before(stepper):
        raise UsageError(
            f"Step {stepper.cursor.step:,} has been updated: go to its start to see what policies make of it."
        )

    def read(lane: Lane, name: str, start: int, stop: int) -> F32Array:
        return stepper.read(lane, stepper.layout[name].offset + start, stop - start)

    layout = stepper.layout
    hyper = optimizer(stepper.plan.variant.optimizer).as_used(hyper)
    tensors = tensors_of(layout.params, hyper, stepper.cursor.step, layout.numbers)
    return _weigh(tensors, read, hyper, stepper.cursor.step, stepper.plan.variant, element, progress)


def weigh_on_host(
    source: Source,
    hyper: Hyper,
    variant: Variant,
    step: int,
    element: tuple[str, int] | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> PolicyTable | None:
    """The same without a device; None where the state before `step` is not at hand and has to be rebuilt on one."""
    state = source.initial_state()
    if not isinstance(state, HostState) or state.finished_steps + 1 != step:
        return None
    shapes = {p.name: p.shape for p in source.params}
    gradients = source.gradients(step, lambda: {n: w.reshape(shapes[n]) for n, w in state.w.items()})
    if not isinstance(gradients, HostGradients):
        return None
    lanes: Mapping[Lane, Mapping[str, F32Array]] = {
        "w": state.w, "m": state.m, "v": state.v, "g": gradients.values,
    }  # fmt: skip

    def read(lane: Lane, name: str, start: int, stop: int) -> F32Array:
        values = lanes[lane].get(name)
        if values is None:
            # A moment or gradient that is not given is 0.
            return np.zeros(stop - start, np.float32)
        return np.asarray(values, np.float32).reshape(-1)[start:stop]

    hyper = optimizer(variant.optimizer).as_used(hyper)
    tensors = tensors_of(source.params, hyper, step)
    return _weigh(tensors, read, hyper, step, variant, element, progress)


def _weigh(
    tensors: Sequence[Tensor],
    read: Read,
    hyper: Hyper,
    step: int,
    variant: Variant,
    element: tuple[str, int] | None,
    progress: Callable[[int, int], None],
) -> PolicyTable:
    rule = optimizer(variant.optimizer)
    if not rule.adam:
        raise UsageError(
            f"Policies are set side by side for AdamW, Adam and Adam with L2; step {step:,} runs {rule.title}, which "
            "keeps no m and v as Adam does: give --optimizer adamw to see what they make of its gradients."
        )
    return weigh(
        tensors, read, hyper=hyper, step=step, numerics=variant.numerics,
        l2=rule.decay_in_gradient, element=element, progress=progress,
    )  # fmt: skip
