"""What is shown beside a run, as data: recordings laid under it, two recordings compared, a what-if that goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from inspector.history import EMPTY_HISTORY, History
from inspector.statistics import BufferStats
from inspector.stores import Lane

if TYPE_CHECKING:
    # A start of the window needs none of what reads sessions.
    from inspector.runtime.sweeping import SweepPicture
    from inspector.session.diff_report import DiffReport, ParamCurves
    from inspector.session.records import State
    from inspector.session.verdicts import StepVerdict

MAX_OVERLAYS = 3
"""More lines in a plot than the run's and so many are told apart by nobody."""


@dataclass(frozen=True, slots=True, eq=False)
class OverlayHistograms:
    """Statistics by lane of one param of a recording, or of all where `param` is None, at the step of the run.

    w, m and v are of right before the update of `step`, or of after the step before; g of `step`. `absent` says in a
    sentence why a lane is not there.
    """

    param: str | None
    step: int
    stats: Mapping[Lane, BufferStats] = field(default_factory=lambda: MappingProxyType({}))
    absent: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Overlay:
    """A recording laid under the run. `slot` counts from 0 and stays its own while it is shown.

    `history` has the metrics of runtime.snapshots.METRICS and the kernel times.
    """

    path: str
    name: str
    slot: int
    steps: range = range(0)
    history: History = EMPTY_HISTORY
    state: State = "complete"
    loading: bool = False
    histograms: OverlayHistograms | None = None
    coding: History = EMPTY_HISTORY
    """Errors of its own 8-bit state, "coding/m" and the others of runtime.lockstep.METRICS, at a few steps."""


@dataclass(frozen=True, slots=True, eq=False)
class DiffPicture:
    """Two recordings held against each other. `share` of it is done, None once it has ended.

    `problem` says in a sentence why there is no report. `curves` is of the param asked for.
    """

    a: str
    b: str
    share: float | None = 0.0
    report: DiffReport | None = None
    curves: ParamCurves | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class WhatIfProgress:
    """A recording that runs again under other settings: `done` of `of` steps, recorded at `path`."""

    path: str
    done: int
    of: int


@dataclass(frozen=True, slots=True, eq=False)
class VerifyPicture:
    """What is known of the open recording against here.

    `origin` is the program that made it, "" for none. `step` was asked for last, `verdict` is of it, `problem` says in
    a sentence why there is none. `of` steps are being compared, `done` are; both 0 while nothing goes on. `worst` has
    the largest ULP of each step compared so far, by lane; `unexplained` those steps that are not roundings alone.
    """

    origin: str = ""
    step: int | None = None
    verdict: StepVerdict | None = None
    problem: str = ""
    done: int = 0
    of: int = 0
    worst: History = EMPTY_HISTORY
    unexplained: tuple[int, ...] = ()


NOT_VERIFIED = VerifyPicture()


@dataclass(frozen=True, slots=True, eq=False)
class BesidePicture:
    """All that is shown beside a run."""

    overlays: tuple[Overlay, ...] = ()
    diff: DiffPicture | None = None
    recording: str | None = None
    """The path of the recording that is open, None where the source is none."""
    changes: str = ""
    """What the settings and the form differ in from those of the open recording, as a what-if would run it."""
    what_if: WhatIfProgress | None = None
    verify: VerifyPicture = NOT_VERIFIED
    """The open recording against the kernels here."""
    sweep: SweepPicture | None = None
    """The sweep that goes on, or the latest."""


NOTHING_BESIDE = BesidePicture()
