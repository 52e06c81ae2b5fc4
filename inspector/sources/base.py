"""What a source of gradients is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from inspector.floats import F32Array
from inspector.hyper import Hyper
from inspector.layout import Param
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
