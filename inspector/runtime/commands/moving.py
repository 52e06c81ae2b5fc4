"""Where the run is to go: on, back, to a step, and what ends that."""

from __future__ import annotations

from dataclasses import dataclass

from inspector.diagnosis.watchpoints import Condition


@dataclass(frozen=True, slots=True)
class StepDispatch:
    """Run one dispatch; at the end of a step, take the next gradients and run its first."""


@dataclass(frozen=True, slots=True)
class StepIteration:
    """Run to the end of the step, or the whole next one when at the end."""


@dataclass(frozen=True, slots=True)
class Run:
    """Run until paused, or to the end of step `until`."""

    until: int | None = None


@dataclass(frozen=True, slots=True)
class RunToDispatch:
    """Run until the step stands before its dispatch `dispatch`, counted from 0: in this step, or in the next."""

    dispatch: int


@dataclass(frozen=True, slots=True)
class RunToFinding:
    """Run until a warning or an error is found; in a recording go to the next one."""


@dataclass(frozen=True, slots=True)
class RunBack:
    """Go back to the end of the last step before `condition` began to hold, up to where the run stands."""

    condition: Condition


@dataclass(frozen=True, slots=True)
class Pause:
    """Stop at the end of the step that is running."""


@dataclass(frozen=True, slots=True)
class UndoDispatch:
    """Take the last dispatch back."""


@dataclass(frozen=True, slots=True)
class UndoIteration:
    """Go back to the start of the step, or from there to the start of the step before."""


@dataclass(frozen=True, slots=True)
class Seek:
    """Go to step `step`, after its dispatch number `dispatch`, to its end where that is None. A newer one replaces it.

    By way of memory or of a captured state where that is nearer than running on; what was recorded of the step is
    shown at once.
    """

    step: int
    dispatch: int | None = None


@dataclass(frozen=True, slots=True)
class CancelSeek:
    """Give up rebuilding a step, of which what was recorded stays on show, or looking for one."""


@dataclass(frozen=True, slots=True)
class Play:
    """Go through the steps at `steps_per_second` until paused or at the end; from `first` to `last` in a loop where
    these are given."""

    steps_per_second: float
    first: int | None = None
    last: int | None = None


@dataclass(frozen=True, slots=True)
class Follow:
    """Show each new step of a recording that another process still writes, or stay where it stands."""

    on: bool = True


@dataclass(frozen=True, slots=True)
class SetBookmark:
    """Put a bookmark with a note at a step, in place of the one that is there; an empty note takes it away."""

    step: int
    text: str


@dataclass(frozen=True, slots=True)
class CancelWork:
    """End what keeps the worker, whatever it is; what was there before stays."""
