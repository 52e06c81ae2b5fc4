"""What a source of gradients is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

from inspector.floats import F32Array
from inspector.hyper import HYPER_NAMES, Hyper, scheduled, with_values
from inspector.layout import Param
from inspector.plan import Variant
from inspector.schedule import Schedule
from inspector.stepping import Gradients, State

ReadWeights = Callable[[], Mapping[str, F32Array]]
"""Gives the current weights by param name, each in its param's shape, float32."""


class Source(Protocol):
    """Supplies params, the state to start from, and the gradients of each step.

    `gradients(step, read_weights)` must give the same bits for the same step and weights, so that going back
    and forward again is exact. It may raise EndOfSourceError where there is no such step.
    """

    @property
    def name(self) -> str:
        """How a person names it, as on the command line."""
        ...

    @property
    def description(self) -> str:
        """One line: what it is and how large."""
        ...

    @property
    def params(self) -> tuple[Param, ...]: ...

    @property
    def hyper(self) -> Hyper:
        """The hyper-parameters it comes with."""
        ...

    @property
    def last_step(self) -> int | None:
        """The last step it has gradients for, None if there is no end."""
        ...

    @property
    def schedule(self) -> Schedule:
        """The learning-rate schedule it comes with."""
        ...

    def initial_state(self) -> State: ...

    def gradients(self, step: int, read_weights: ReadWeights) -> Gradients: ...


class EndOfSourceError(Exception):
    """The source holds no gradients for the step asked for."""


@runtime_checkable
class AsRecorded(Protocol):
    """A source whose steps have run before, and go again with what they ran with."""

    @property
    def recorded_schedule(self) -> Schedule: ...

    def recorded_hyper(self, step: int) -> Hyper | None:
        """What `step` ran with, the schedule applied to its lr; None for a step that was not recorded."""
        ...

    def recorded_variant(self, step: int) -> Variant | None:
        """The form that `step` ran in; None for a step that was not recorded."""
        ...


@runtime_checkable
class HasForm(Protocol):
    """A source whose optimizer ran in a form of its own."""

    @property
    def form(self) -> Variant | None:
        """The form that goes on as it did, None where any does."""
        ...


@runtime_checkable
class FromWeights(Protocol):
    """A source whose gradients are worked out from the weights of now; those of any other come whatever they are.

    `gradients` may be called on several threads at once, each with weights of its own.
    """

    closed_loop: bool


def is_closed_loop(source: Source) -> bool:
    """True where what an update does shows in the next gradients."""
    return isinstance(source, FromWeights) and source.closed_loop


@runtime_checkable
class FromSeed(Protocol):
    """A source of which something may be drawn: weights, batches, gradients or their noise."""

    seeded: bool
    """Whether its seed makes a difference."""


def is_seeded(source: Source) -> bool:
    """True where another seed gives another run."""
    return isinstance(source, FromSeed) and source.seeded


@runtime_checkable
class HasRemarks(Protocol):
    """A source that was taken with reservations."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a person should know of how it was read, each a sentence."""
        ...


@runtime_checkable
class MakesGradients(Protocol):
    """A source whose gradients nobody recorded."""

    @property
    def on_gradients(self) -> str:
        """Where those of its steps come from, as a sentence."""
        ...


@runtime_checkable
class HasSeed(Protocol):
    """A source of which something is drawn, the same for the same seed."""

    @property
    def seed(self) -> int | None: ...


def seed_of(source: Source) -> int | None:
    """That of what it draws; None where it draws nothing."""
    return source.seed if isinstance(source, HasSeed) else None


def remarks_of(source: Source, *, steps: bool = True) -> tuple[str, ...]:
    """What a person should be told as a source is opened; with `steps` what matters to its steps alone as well."""
    remarks = source.remarks if isinstance(source, HasRemarks) else ()
    said = source.on_gradients if steps and isinstance(source, MakesGradients) else ""
    return (*remarks, said) if said else remarks


def hyper_at(source: Source, hyper: Hyper, schedule: Schedule, step: int) -> Hyper:
    """What `step` runs with: `hyper` with the schedule applied to its lr.

    Where the source was recorded, settings that are still those it comes with are as recorded of that step.
    """
    used = scheduled(hyper, schedule.factor(step))
    if not isinstance(source, AsRecorded):
        return used
    recorded = source.recorded_hyper(step)
    if recorded is None:
        return used
    kept = {name for name in HYPER_NAMES if getattr(hyper, name) == getattr(source.hyper, name)}
    if schedule != source.recorded_schedule:
        kept -= {"lr"}
    return with_values(recorded, {name: getattr(used, name) for name in HYPER_NAMES if name not in kept})
