"""What is worked out on the run's thread while the run stays as it is, and what ends that."""

from __future__ import annotations

from dataclasses import dataclass

from inspector.stores import Lane
from inspector.value_search import Query


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
class SaveReport:
    """Write the story of the run to an HTML file at `path`; the run goes on."""

    path: str


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
