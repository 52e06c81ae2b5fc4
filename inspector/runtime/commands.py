"""What the UI may ask of the worker: frozen dataclasses, carried out in the order sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from inspector.codecs import Codec
from inspector.diagnosis.stopping import Stopping
from inspector.diagnosis.watchpoints import Condition
from inspector.layout import StateType
from inspector.looking import MatrixRequest
from inspector.mapping import MapRequest
from inspector.plan import Variant
from inspector.runtime.plotted import Fall, Line
from inspector.statistics import StatsLevel
from inspector.stores import Lane
from inspector.value_search import Query


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
class SetBookmark:
    """Put a bookmark with a note at a step, in place of the one that is there; an empty note takes it away."""

    step: int
    text: str


@dataclass(frozen=True, slots=True)
class Follow:
    """Show each new step of a recording that another process still writes, or stay where it stands."""

    on: bool = True


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
class OpenSource:
    """Leave the current source and start on another, named as on the command line."""

    spec: str


@dataclass(frozen=True, slots=True)
class ViewMap:
    """What the map shows, and the whole of the lanes beside it; None while nobody sees it. A newer one replaces it."""

    request: MapRequest | None
    overview: MapRequest | None = None
    """Of the same quantity."""


@dataclass(frozen=True, slots=True)
class ViewValues:
    """Which elements of `param` the value table shows; None while nobody sees it. A newer one replaces it."""

    param: str | None
    start: int = 0
    count: int = 0
    raw: Literal["", "codes", "half"] = ""
    """What is read beside the values: 8-bit codes of m and v, or the half-precision mirror of w."""


@dataclass(frozen=True, slots=True)
class ViewElement:
    """Which element, flat, of `param` the microscope shows; None while nobody looks. A newer one replaces it."""

    param: str | None
    index: int = 0


@dataclass(frozen=True, slots=True)
class ViewMatrix:
    """Which matrix is shown as an image; None while nobody sees one. A newer one replaces it."""

    request: MatrixRequest | None


@dataclass(frozen=True, slots=True)
class ViewStates:
    """Of which param states in shapes of their own are shown; None while nobody sees them. A newer one replaces it."""

    param: str | None


@dataclass(frozen=True, slots=True)
class FindValue:
    """Go to the next element of a lane that matches `query`, after `at` (param, flat index) or from the start.

    In `param`, or in all where it is None; where there is none up to the end it goes on at the other end. `asker` is
    who takes the answer. Ended by the next command that is not among BESIDE_COMPARISON.
    """

    query: Query
    lane: Lane
    param: str | None = None
    at: tuple[str, int] | None = None
    backwards: bool = False
    within: tuple[int, int] | None = None
    """Elements [start, stop) of the mega-buffers that it is among, whatever `param`."""
    asker: str = "values"


@dataclass(frozen=True, slots=True)
class SaveValues:
    """Write elements of `param` from `start` on, all where `count` is None, to a CSV file at `path`."""

    path: str
    param: str
    lanes: tuple[Lane, ...]
    start: int = 0
    count: int | None = None


@dataclass(frozen=True, slots=True)
class CancelWork:
    """End what keeps the worker, whatever it is; what was there before stays."""


@dataclass(frozen=True, slots=True)
class ViewHistograms:
    """Whose histograms are shown: a param, or None for all; `lanes` empty while nobody sees them."""

    param: str | None
    lanes: tuple[Lane, ...] = ("m", "v")


@dataclass(frozen=True, slots=True)
class ViewLines:
    """What is plotted over steps beside the history of the run; kept from now on, until it is asked for no more.

    `seen` are those of them that are in sight: only they are sent. A newer one replaces it.
    """

    lines: tuple[Line, ...] = ()
    falls: tuple[Fall, ...] = ()
    seen: frozenset[Line | Fall] = frozenset()


@dataclass(frozen=True, slots=True)
class MeasureCopy:
    """Measure the bandwidth of a plain copy, which takes seconds; a run waits for it. One at a time is enough."""


@dataclass(frozen=True, slots=True)
class CompareVariants:
    """Measure the form that runs and every one that differs from it in one factor, while the run stands still.

    Ends after `samples` warm steps of each or about `seconds`, or with the next command that is not among
    BESIDE_COMPARISON, which is carried out then. Nothing happens while a run goes on.
    """

    samples: int = 100
    seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class CancelCompare:
    """End the comparison of variants; what it measured is dropped."""


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
class ViewEightBit:
    """Whose errors by block are shown, None for nobody's; `watched` False while nobody looks at any. A newer one
    replaces it."""

    param: str | None
    watched: bool = True


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
class ShowOverlay:
    """Lay a recording under the run, in every plot; nothing where it is there already."""

    path: str


@dataclass(frozen=True, slots=True)
class DropOverlay:
    """Take a recording from under the run, all of them where `path` is None."""

    path: str | None = None


@dataclass(frozen=True, slots=True)
class DiffSessions:
    """Hold two recordings against each other, the open one where `a` is empty. Ends a comparison that goes on."""

    a: str
    b: str


@dataclass(frozen=True, slots=True)
class CancelDiff:
    """End the comparison of two recordings."""


@dataclass(frozen=True, slots=True)
class ViewDiff:
    """Whose differences over steps are shown, "" for nobody's. A newer one replaces it."""

    param: str


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Run the open recording again under the present settings and form, recorded at `path`, while the run stands still.

    What of tensors is captured says `policy`, as much as in the recording where it is None. The next command that is
    not among BESIDE_COMPARISON ends it.
    """

    path: str
    policy: str | None = None


@dataclass(frozen=True, slots=True)
class CancelWhatIf:
    """End the what-if; the steps that it recorded stay."""


@dataclass(frozen=True, slots=True)
class VerifyStep:
    """Hold step `step` of the open recording, which another program made, against the kernels here.

    While the run stands still, on a device of its own. The next command that is not among BESIDE_COMPARISON ends it. A
    newer one replaces it.
    """

    step: int


@dataclass(frozen=True, slots=True)
class VerifyAll:
    """Hold every captured step against the kernels here, as VerifyStep does one; what was found until its end stays."""


@dataclass(frozen=True, slots=True)
class CancelVerify:
    """End the comparison with the kernels here."""


@dataclass(frozen=True, slots=True)
class WeighPolicies:
    """Go to the start of step `step` and work out what policies on non-finite gradients would each make of it.

    Element `index`, flat, of `param` is shown before and after, or the first non-finite gradient where it is None. The
    next command that is not among BESIDE_COMPARISON ends it.
    """

    step: int
    param: str | None = None
    index: int | None = None


@dataclass(frozen=True, slots=True)
class CancelPolicies:
    """End the working out of policies; the table of before stays."""


@dataclass(frozen=True, slots=True)
class SaveReport:
    """Write the story of the run to an HTML file at `path`; the run goes on."""

    path: str


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
class LookBeside:
    """There is something new beside the run."""


@dataclass(frozen=True, slots=True)
class RecoverDevice:
    """Make a new device after the old one was lost and go on from the last state kept on the host."""


@dataclass(frozen=True, slots=True)
class StartRace:
    """Open the source anew with these lanes, each as LaneSpec.from_text reads it, all from the same start."""

    lanes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StopRace:
    """End the race: the source is opened anew by itself."""


@dataclass(frozen=True, slots=True)
class FrontLane:
    """Bring a lane of the race to the front, counted from 0: what is shown and moved is its run."""

    number: int


@dataclass(frozen=True, slots=True)
class RaceTogether:
    """Whether the other lanes keep up with the one in front."""

    on: bool


@dataclass(frozen=True, slots=True)
class StartSweep:
    """Run each lane at every learning rate of the grid `lr` and every seed below `seeds`, as a process of its own.

    The source is the one that is open; what comes of it is saved to `path`.
    """

    lanes: tuple[str, ...]
    lr: str
    seeds: int
    steps: int
    path: str


@dataclass(frozen=True, slots=True)
class CancelSweep:
    """End the sweep that goes on; what is done of it stays."""


@dataclass(frozen=True, slots=True)
class Shutdown:
    """End the worker; nothing follows."""


Command = (
    StepDispatch
    | StepIteration
    | Run
    | RunToDispatch
    | RunToFinding
    | RunBack
    | Pause
    | UndoDispatch
    | UndoIteration
    | Seek
    | CancelSeek
    | Play
    | SetBookmark
    | Follow
    | SetHyper
    | SetSchedule
    | SetVariant
    | SetStats
    | OpenSource
    | ViewMap
    | ViewValues
    | ViewHistograms
    | ViewElement
    | ViewMatrix
    | ViewStates
    | ViewLines
    | FindValue
    | SaveValues
    | CancelWork
    | MeasureCopy
    | CompareVariants
    | CancelCompare
    | StartLockstep
    | StopLockstep
    | ViewEightBit
    | WatchDecay
    | StartRecording
    | StopRecording
    | SetBreakpoint
    | RemoveBreakpoint
    | ShowOverlay
    | DropOverlay
    | DiffSessions
    | CancelDiff
    | ViewDiff
    | WhatIf
    | CancelWhatIf
    | VerifyStep
    | VerifyAll
    | CancelVerify
    | WeighPolicies
    | CancelPolicies
    | SaveReport
    | CheckShader
    | TryShader
    | LookBeside
    | StartRace
    | StopRace
    | FrontLane
    | RaceTogether
    | StartSweep
    | CancelSweep
    | RecoverDevice
    | Shutdown
)

REPLACES_QUEUED = (
    Seek,
    ViewMap,
    ViewValues,
    ViewHistograms,
    ViewElement,
    ViewMatrix,
    ViewStates,
    ViewLines,
    FindValue,
    ViewEightBit,
    ViewDiff,
    LookBeside,
    MeasureCopy,
    VerifyStep,
    CheckShader,
)
"""Of these only the newest in the queue matters; all others are each carried out."""

BESIDE = (
    ShowOverlay,
    DropOverlay,
    DiffSessions,
    CancelDiff,
    ViewDiff,
    ViewLines,
    StartSweep,
    CancelSweep,
    LookBeside,
)
"""About what goes on beside the run, which they leave as it is."""

BESIDE_COMPARISON = (
    ViewMap, ViewValues, ViewHistograms, ViewElement, ViewMatrix, ViewStates, ViewEightBit, SetHyper, SetSchedule,
    SetStats, SetBreakpoint, RemoveBreakpoint, CheckShader,
    *BESIDE,
)  # fmt: skip
"""These are carried out while variants are compared or a what-if runs; any other ends it."""
