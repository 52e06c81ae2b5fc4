"""What the runtime is handed, and who it tells: shapes of things that are made elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from inspector.comparison import Comparison
from inspector.hyper import Hyper
from inspector.layout import Layout
from inspector.plan import Variant
from inspector.runtime.snapshots import StepRecord
from inspector.sources.base import Source
from inspector.stepping import State, Stepper

if TYPE_CHECKING:
    from inspector.runtime import replay
    from inspector.runtime.engine import Engine


class OpenRun(Protocol):
    """What the runtime is handed: ways to a source and to a stepper for it."""

    def open_source(self, spec: str) -> Source: ...
    def hyper(self, source: Source) -> Hyper:
        """The hyper-parameters to start it with."""
        ...

    def make_stepper(
        self, source: Source, variant: Variant, state: State, layout: Layout | None = None
    ) -> Stepper:
        """The params lie as in `layout` where the device can bind them there."""
        ...

    def replay_maker(self) -> replay.MakeStepper:
        """What makes the steppers of a replay beside a run: each on a device of its own, with nothing kept for undo."""
        ...

    def compare(
        self,
        source: Source,
        stepper: Stepper,
        *,
        samples: int,
        seconds: float,
        copy_gbps: float | None,
        progress: Callable[[int, int], None],
    ) -> Comparison:
        """The form in which `stepper` runs beside those that differ from it in one factor, on its device.

        `stepper` stays as it is. `copy_gbps` is measured where not given. `progress` is told between any two
        steps how many warm samples there are, of how many (0 while all is being prepared); what it raises ends
        the comparison.
        """
        ...


class MakeStepper(Protocol):
    """Makes a stepper for params in a form, from a state; they lie as in `layout` where the device can bind that."""

    def __call__(
        self, source: Source, variant: Variant, state: State, layout: Layout | None = None
    ) -> Stepper: ...


class Follower(Protocol):
    """Who is told as a run moves, on the thread that moves it: a recording."""

    def begun(self, engine: Engine) -> None:
        """The gradients of the step at the cursor are in place."""
        ...

    def completed(self, engine: Engine, record: StepRecord, hyper: Hyper) -> None:
        """A step is complete; `hyper` is what it ran with, its lr as used."""
        ...

    def moved_back(self, engine: Engine) -> None:
        """The cursor went back to where it is."""
        ...

    def marked(self, step: int, text: str) -> None:
        """Something changed that holds from `step` on."""
        ...

    def fire(self) -> None:
        """A breakpoint stopped the run."""
        ...
