"""What a recording holds, as data: what it is of, its steps, what was noted beside them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.plan import Variant
from inspector.statistics import NonFinite, StatsLevel
from inspector.stepping import DeviceInfo, KernelTime

CaptureKind = Literal["gradients", "keyframe"]
CAPTURE_KINDS: tuple[CaptureKind, ...] = ("gradients", "keyframe")
State = Literal["complete", "interrupted", "recording"]
NoteKind = Literal["mark", "bookmark", "gap"]


@dataclass(frozen=True, slots=True)
class About:
    """What a recording is of, as it began. `hyper` has the rate before the schedule; a change later is in the steps.

    `finished_steps` is the step count of the state it starts from; `began` in seconds since 1970, `policy` as text.
    """

    source: str
    params: tuple[Param, ...]
    variant: Variant
    hyper: Hyper
    schedule: str
    device: DeviceInfo
    finished_steps: int
    policy: str
    software: str
    began: float
    description: str = ""
    stats: StatsLevel = "light"
    planned_steps: int | None = None


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One complete step. `hyper` is what it ran with, its `lr` as used, the schedule applied; `variant` its form.

    `loss` in nats, `grad_norm` before clipping and `clip_scale` are float32 widened; None where unknown. `ended` in
    seconds since 1970.
    """

    step: int
    hyper: Hyper
    variant: Variant
    loss: float | None = None
    grad_norm: float | None = None
    clip_scale: float | None = None
    nonfinite: NonFinite = field(default_factory=NonFinite)
    kernels: tuple[KernelTime, ...] = ()
    ended: float = math.nan


@dataclass(frozen=True, slots=True)
class Note:
    """Something about steps `step` to `last`: what a person did or marked, or what could not be captured."""

    kind: NoteKind
    step: int
    text: str
    last: int | None = None

    def __str__(self) -> str:
        if self.last is None or self.last == self.step:
            return f"Step {self.step:,}: {self.text}"
        return f"Steps {self.step:,} to {self.last:,}: {self.text}"


@dataclass(frozen=True, slots=True)
class Ending:
    """How a recording ended, and what it then held: rows that went missing later show in it. `reason` is a sentence."""

    ended: float
    first: int
    last: int
    captures: int
    findings: int
    notes: int
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A tensor file in the index: its name below the folder, its bytes and their CRC-32.

    `parts` has the CRC-32 of each 4 MiB of a larger file, so that a look at one tensor need not read all of it.
    """

    name: str
    size: int
    crc32: int
    parts: tuple[int, ...] = ()
