"""What is open: a source, a race of several runs of it, a device after one was lost; and the end."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OpenSource:
    """Leave the current source and start on another, named as on the command line."""

    spec: str


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
class RecoverDevice:
    """Make a new device after the old one was lost and go on from the last state kept on the host."""


@dataclass(frozen=True, slots=True)
class Shutdown:
    """End the worker; nothing follows."""
