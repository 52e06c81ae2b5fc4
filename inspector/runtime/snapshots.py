"""Immutable pictures of a run, as the worker sends them to the UI."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Literal

import numpy as np
import numpy.typing as npt

from inspector.comparison import Comparison
from inspector.diagnosis.findings import Finding
from inspector.floats import F32Array
from inspector.history import EMPTY_HISTORY, History
from inspector.hyper import Hyper
from inspector.looking import MatrixRequest
from inspector.param_hyper import HyperColumns
from inspector.param_statistics import ParamStats, ParamTable, totals
from inspector.plan import Plan
from inspector.policies import PolicyTable
from inspector.ranks import Held, RankPart, RankStep
from inspector.runtime.beside import NOTHING_BESIDE, BesidePicture
from inspector.runtime.decay_watch import DecayPicture
from inspector.runtime.hits import Breakpoint, Hit
from inspector.runtime.lockstep import EightBitPicture
from inspector.runtime.map_picture import MapImage
from inspector.runtime.memory_picture import MemoryPicture
from inspector.runtime.microscope import ElementPicture
from inspector.runtime.plotted import NOTHING_PLOTTED, OF_RUN, PlotPicture
from inspector.runtime.race_pictures import RacePicture
from inspector.runtime.shaders import NO_SHADERS, ShadersPicture
from inspector.runtime.states_look import StatesPicture
from inspector.runtime.value_finding import Found, Working
from inspector.runtime.weighing import Weighing
from inspector.statistics import BufferStats, NonFinite, StatsLevel
from inspector.stepping import Cursor, DeviceInfo, GradStats, KernelTime, UndoInfo
from inspector.stores import LANES, Lane
from inspector.variants import Choice

Mode = Literal["starting", "paused", "running", "lost", "failed", "closed"]
"""`lost`: the device is gone and what is shown is stale; `failed`: the source could not be opened."""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """The numbers of one step. What no dispatch has produced yet is None.

    `loss` in nats, `lr` as used (schedule applied), `grad_norm` before clipping. `clipped_by` is what another program
    clipped the gradients by before they were recorded: then `grad_norm` is that of what it left of them.
    """

    step: int
    lr: float
    loss: float | None = None
    grad_norm: float | None = None
    clip_scale: float | None = None
    nonfinite: NonFinite = field(default_factory=NonFinite)
    kernels: tuple[KernelTime, ...] = ()
    clipped_by: GradStats | None = None

    @property
    def of_run(self) -> tuple[float | None, float | None]:
        """Gradient norm and clip scale as the run had them, whoever clipped; None before the norm is known."""
        if self.clipped_by is None or self.grad_norm is None:
            return self.grad_norm, self.clip_scale
        return self.clipped_by.grad_norm, self.clipped_by.clip_scale


@dataclass(frozen=True, slots=True)
class Mark:
    """Something a person did at a point of the time axis: it holds from `step` on; or a breakpoint's stop there."""

    step: int
    text: str
    stop: bool = False
    """True of a breakpoint."""


@dataclass(frozen=True, slots=True, eq=False)
class ValuesWindow:
    """Elements [start, start + n) of `param`, flat, by lane, before and after the last dispatch.

    `before` lacks a lane that the last dispatch did not write: its values are those of `after`.
    """

    param: str
    start: int
    after: Mapping[Lane, F32Array]
    before: Mapping[Lane, F32Array]
    codes_after: Mapping[Lane, npt.NDArray[np.int16]] = field(default_factory=lambda: MappingProxyType({}))
    """8-bit codes as they lie, of lanes that have them, where they are asked for."""
    codes_before: Mapping[Lane, npt.NDArray[np.int16]] = field(default_factory=lambda: MappingProxyType({}))
    half: npt.NDArray[np.uint16] | None = None
    """The bits of the half-precision mirror of w, where there is one and it is asked for."""


@dataclass(frozen=True, slots=True, eq=False)
class MatrixImage:
    """A matrix as pixels, arrays of shape [height, width] ([height, width, 4] for rgba), read-only.

    `values` is the element of largest magnitude under each pixel, with its sign, `nonfinite` counts those that are not
    finite; `low` and `high` are the magnitudes at the ends of the colour map.
    """

    request: MatrixRequest
    rgba: npt.NDArray[np.uint8]
    values: F32Array
    nonfinite: F32Array
    low: float
    high: float


@dataclass(frozen=True, slots=True, eq=False)
class CloseUp:
    """What is looked at closely: an element, a matrix, the answer to the latest search, what is being worked on, and
    the states of a param in shapes of their own."""

    element: ElementPicture | None = None
    matrix: MatrixImage | None = None
    found: Found | None = None
    working: Working | None = None
    states: StatesPicture | None = None


NO_CLOSEUP = CloseUp()


@dataclass(frozen=True, slots=True, eq=False)
class Histograms:
    """Statistics by lane of one param, or of all where `param` is None, as of `cursor`."""

    param: str | None
    cursor: Cursor
    stats: Mapping[Lane, BufferStats]


@dataclass(frozen=True, eq=False)
class CountedParams:
    """Statistics of every param right before the update of `step`.

    `ms` is the GPU time of the pass that counted them, None where the device has no clock.
    """

    step: int
    params: ParamTable
    ms: float | None
    own: HyperColumns | None = None
    """What each param takes the step with, where they have settings of their own."""

    @cached_property
    def totals(self) -> tuple[ParamStats, ...]:
        """Added up: all params, then each block. Only where somebody looks, since it takes a while."""
        return totals(self.params)

    def with_totals(self) -> CountedParams:
        """Itself, with the totals worked out on this thread rather than on that of who looks."""
        _ = self.totals
        return self


@dataclass(frozen=True, slots=True)
class RecordingPicture:
    """A recording that goes on: where, by which policy, its steps so far and its bytes on disk."""

    path: str
    policy: str
    steps: int
    nbytes: int


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """What the recording that is open holds; the same object until there is more of it.

    `keyframes` are the steps after which a state was captured, int64 ascending; `rebuildable` int64 [n, 2], first and
    last step of each stretch that captured gradients and a state before them lead through. Both read-only.
    `state` says whether another process still writes it.
    """

    first: int
    last: int
    keyframes: npt.NDArray[np.int64]
    rebuildable: npt.NDArray[np.int64]
    policy: str
    state: Literal["complete", "interrupted", "recording"]
    ranks: tuple[RankPart, ...] = ()
    """What each of several processes recorded; () of one."""
    held: Mapping[str, tuple[Held, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """The part of each param that each of them keeps, by name."""


@dataclass(frozen=True, slots=True)
class Glance:
    """A step on show while the device stands elsewhere: numbers as recorded, and no buffers but captured ones.

    `missing` says why its buffers cannot be shown, as a sentence. `done` of `of` steps have been run again on the way
    there; `of` is 0 while nothing is on its way. `restored` is the share of the state to start from that is on the
    device, None once it is there.
    """

    step: int
    missing: str | None = None
    done: int = 0
    of: int = 0
    restored: float | None = None


@dataclass(frozen=True, slots=True)
class Searching:
    """A step that is looked for, from step `start` towards `end`: which it is in words, and how far that has come."""

    what: str
    at: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Heading:
    """A run that goes on to the end of step `to` and pauses there; it set out from the end of step `start`."""

    start: int
    to: int


@dataclass(frozen=True, slots=True)
class Playing:
    """Going through the steps at a chosen speed; in a loop from `first` to `last` where these are given."""

    steps_per_second: float
    first: int | None = None
    last: int | None = None


@dataclass(frozen=True, slots=True)
class Comparing:
    """A comparison of variants that goes on: warm samples so far, `of` how many; 0 while it is being prepared."""

    done: int = 0
    of: int = 0


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence for the person, shown once: notices are told apart by `serial`."""

    serial: int
    severity: Literal["info", "warning", "error"]
    text: str


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """One moment of a run. Parts that did not change are the same objects as in the snapshot before."""

    serial: int
    mode: Mode
    source: str
    run: int = 0
    """Counts the openings of sources: another number is another run, be it of the same source."""
    description: str = ""
    plan: Plan | None = None
    cursor: Cursor | None = None
    hyper: Hyper = field(default_factory=Hyper)
    step_hyper: Hyper | None = None
    """What the step at the cursor runs with, the schedule applied; of the first step before it."""
    schedule: str = "constant"
    record: StepRecord | None = None
    """The step at the cursor."""
    dispatch_times: tuple[KernelTime | None, ...] = ()
    """The latest time of each dispatch of the plan, None where it has not run yet."""
    uniforms: Mapping[str, tuple[float, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """The values of the plan's uniforms at the cursor, by key."""
    history: History = EMPTY_HISTORY
    plotted: PlotPicture = NOTHING_PLOTTED
    """What is plotted beside the history."""
    marks: tuple[Mark, ...] = ()
    map: MapImage | None = None
    values: ValuesWindow | None = None
    histograms: Histograms | None = None
    closeup: CloseUp = NO_CLOSEUP
    eight_bit: EightBitPicture | None = None
    decay: tuple[DecayPicture, ...] = ()
    """The decay that elements received, one a lane of the race or one of the run; () while nobody watches it."""
    stats: StatsLevel = "light"
    """What is counted at each step from the next one on."""
    counted: CountedParams | None = None
    """The latest statistics of the params, of the step at the cursor or of the one before it."""
    choices: tuple[Choice, ...] = ()
    """What each field of the plan's variant may be, and why not."""
    findings: tuple[Finding, ...] = ()
    breakpoints: tuple[Breakpoint, ...] = ()
    stop: Hit | None = None
    """The breakpoint at which the run stands."""
    undo: UndoInfo = field(default_factory=UndoInfo)
    device: DeviceInfo | None = None
    memory_bytes: int = 0
    memory: MemoryPicture | None = None
    """What the run takes on the device, and what training its params takes at all."""
    steps_per_second: float | None = None
    copy_gbps: float | None = None
    """GB/s, read plus written, that a plain copy reaches on this device; None until it was measured."""
    comparing: Comparing | None = None
    """None while no variants are compared."""
    comparison: Comparison | None = None
    """The latest comparison of variants over the params of this source."""
    weighing: Weighing | None = None
    """None while no policies are worked out."""
    policies: PolicyTable | None = None
    """The latest table of this run."""
    shaders: ShadersPicture = NO_SHADERS
    """What became of kernels whose text was edited."""
    last_times: tuple[tuple[KernelTime, ...], ...] = ()
    """The times of the last complete steps in this form, dispatch by dispatch, the latest last."""
    last_step: int | None = None
    """The last step the source has gradients for."""
    recording: RecordingPicture | None = None
    beside: BesidePicture = NOTHING_BESIDE
    """Recordings laid under the run, and two recordings compared."""
    recorded: Recorded | None = None
    """None where the source is no recording."""
    rank_steps: tuple[RankStep, ...] = ()
    """The numbers of the step of `record` in each of several processes, as recorded; () of one."""
    moves: int = 0
    """How many of the commands among MOVES have been carried out, counted from the start of the program."""
    looking: bool = False
    """True where another snapshot of the same moment follows as soon as what takes long has been looked at; until then
    that is of the moment before, as the map."""
    glance: Glance | None = None
    """Where it is there, `cursor`, `record` and `counted` are of its step, and map, values and histograms of the same
    or None."""
    working: Working | None = None
    """What keeps the worker, where that takes longer than a moment; all else is as it was before."""
    searching: Searching | None = None
    """None while no step is looked for."""
    sought: Finding | None = None
    """The finding of a recording that was gone to last, as the next one."""
    heading: Heading | None = None
    """None where the run stands, or goes on until it is paused."""
    playing: Playing | None = None
    following: bool = False
    """True while each new step of a recording in progress is shown as it comes."""
    bookmarks: tuple[Mark, ...] = ()
    """By step, one a step."""
    race: RacePicture | None = None
    """The lanes, where several race."""
    notice: Notice | None = None
    stale: bool = False
    """True where the device was lost: the numbers are the last that were seen."""


METRICS = OF_RUN
"""Names in Snapshot.history. Beside them stand the kernel times, in ms: "ms/KEY", KEY being Dispatch.timing_key,
and "cold/KEY" for those taken at low clocks; runtime.lockstep.METRICS where they are measured; and of several processes
the metrics of each, such as "loss/rank 0" (session.joined_columns.RANK_METRICS)."""

ALL_LANES = LANES
