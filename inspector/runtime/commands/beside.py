"""What goes on beside the run, on threads and in processes of its own."""

from __future__ import annotations

from dataclasses import dataclass


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
class ResumeSweep:
    """Run what is left of the sweep in the folder `path`, as a process of its own."""

    path: str


@dataclass(frozen=True, slots=True)
class CancelSweep:
    """End the sweep that goes on; what is done of it stays."""


@dataclass(frozen=True, slots=True)
class LookBeside:
    """There is something new beside the run."""
