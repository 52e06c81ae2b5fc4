"""What holds for the run from here on: its settings and form, kernels, what is counted, watched and recorded."""

from __future__ import annotations

from dataclasses import dataclass

from inspector.codecs import Codec
from inspector.diagnosis.stopping import Stopping
from inspector.diagnosis.watchpoints import Condition
from inspector.layout import StateType
from inspector.plan import Variant
from inspector.statistics import StatsLevel


@dataclass(frozen=True, slots=True)
class SetHyper:
    """Change one hyper-parameter from the next step on (now, where the step has not started)."""

    name: str
    value: float


@dataclass(frozen=True, slots=True)
class SetSchedule:
    """Change the learning-rate schedule, as text (`constant`, `warmup:100`, …)."""

    text: str


@dataclass(frozen=True, slots=True)
class SetVariant:
    """Run in another form from the next step on."""

    variant: Variant


@dataclass(frozen=True, slots=True)
class SetStats:
    """Count so much at each step from the next one on (now, where the step has not started)."""

    level: StatsLevel


@dataclass(frozen=True, slots=True)
class SetBreakpoint:
    """Stop where `condition` holds; or, where there is a breakpoint on it, enable or disable that.

    `stopping` says at which hits, each time or as before where it is None.
    """

    condition: Condition
    enabled: bool = True
    stopping: Stopping | None = None


@dataclass(frozen=True, slots=True)
class RemoveBreakpoint:
    """Take the breakpoint on `condition` away."""

    condition: Condition


@dataclass(frozen=True, slots=True)
class CheckShader:
    """See whether `text` compiles as the kernel `entry_point`; nothing else changes. A newer one replaces it."""

    entry_point: str
    text: str


@dataclass(frozen=True, slots=True)
class TryShader:
    """Put the kernel `entry_point` of `text` in place and run the step again as far as it has run, from its start.

    The kernel that the source was opened with where `text` is None. Where it does not compile nothing changes.
    """

    entry_point: str
    text: str | None


@dataclass(frozen=True, slots=True)
class StartLockstep:
    """Run a second one on the same gradients from here on: 8-bit state beside float32, or float32 beside 8-bit.

    `codec` and `small_state` are of the 8-bit one where that is the second. Takes the place of one that runs.
    """

    codec: Codec = "linear"
    small_state: StateType = "f32"


@dataclass(frozen=True, slots=True)
class StopLockstep:
    """End the second run and give its memory back."""


@dataclass(frozen=True, slots=True)
class WatchDecay:
    """Add up the decay that each element receives from here on, in every lane of a race that can be watched.

    Where it is on already, it begins again. Off, it ends and its memory is given back.
    """

    on: bool = True


@dataclass(frozen=True, slots=True)
class StartRecording:
    """Record from here on to a new session, what `policy` says of tensors; a run finishes its step first.

    As much is counted as `stats` says while it goes on, as before where that is None.
    """

    path: str
    policy: str = "stats"
    stats: StatsLevel | None = "full"


@dataclass(frozen=True, slots=True)
class StopRecording:
    """End the recording once everything is written."""
