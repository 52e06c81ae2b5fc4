"""What a recording holds, as data: what it is of, its steps, what was noted beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from inspector.hyper import Hyper
from inspector.layout import F32_BYTES, MAX_ALIGN_BYTES, Layout, Param, Placement, make_layout
from inspector.plan import Limits, Variant
from inspector.statistics import NonFinite, StatsLevel
from inspector.stepping import DeviceInfo, GradStats, KernelTime

CaptureKind = Literal["gradients", "keyframe"]
CAPTURE_KINDS: tuple[CaptureKind, ...] = ("gradients", "keyframe")
State = Literal["complete", "interrupted", "recording"]
NoteKind = Literal["mark", "bookmark", "gap"]


@dataclass(frozen=True, slots=True)
class RecordedLayout:
    """Where the params of a run lay, and the limits of the device that cut its bindings.

    `offsets` has the first element of each param in the mega-buffers, in the order of the session's params;
    `page_elements` the elements of a page where there are several, in elements like what `placement` holds.
    """

    placement: Placement
    page_elements: int | None
    limits: Limits
    offsets: tuple[int, ...]

    @classmethod
    def of(cls, layout: Layout, limits: Limits, params: Sequence[Param]) -> RecordedLayout:
        """What is recorded of `layout`, whose params are `params` in any order."""
        offsets = tuple(layout[p.name].offset for p in params)
        return cls(layout.placement, layout.page_elements, limits, offsets)

    def layout(self, params: Sequence[Param]) -> Layout:
        """The same layout again, of the session's params; ValueError where offsets and placement do not agree."""
        placement = self.placement
        if len(self.offsets) != len(params):
            raise ValueError(f"its layout has places for {len(self.offsets)} of {len(params)} params")
        align = placement.align
        if not 0 < align * F32_BYTES <= MAX_ALIGN_BYTES or not 0 < placement.coded_align <= MAX_ALIGN_BYTES:
            raise ValueError(f"its params are aligned to {align} elements")
        if self.page_elements is not None and self.page_elements <= 0:
            raise ValueError(f"its pages have {self.page_elements} elements")
        # An empty param lies before the one that begins at the same element.
        order = sorted(range(len(params)), key=lambda i: (self.offsets[i], params[i].numel > 0))
        page_bytes = None if self.page_elements is None else self.page_elements * F32_BYTES
        made = make_layout(
            [params[i] for i in order],
            align_bytes=max(align * F32_BYTES, 16),
            max_buffer_bytes=page_bytes,
            placement=placement,
        )
        if RecordedLayout.of(made, self.limits, params) != self:
            raise ValueError("the places of its params do not follow from its placement")
        return made.numbered_as(params)


@dataclass(frozen=True, slots=True)
class Parent:
    """The recording that another was made of, by running steps `first` to `last` of it again.

    `path` is relative to the folder that the new one lies in where that is possible, `id` the parent's `Session.id`
    ("" for one of format 1), and `changes` what was set in place of what was recorded, by name.
    """

    path: str
    id: str
    first: int
    last: int
    changes: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        changed = ", ".join(f"{name} {value}" for name, value in self.changes) or "nothing changed"
        return f"{self.path}, steps {self.first:,} to {self.last:,}, {changed}"


@dataclass(frozen=True, slots=True)
class Shard:
    """The part of a param that one of several processes kept: `offset` is the place of its first element, by axis."""

    global_shape: tuple[int, ...]
    offset: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Added:
    """Params that joined a run while it was recorded: the first `params` of them were there before `step`."""

    step: int
    params: int


@dataclass(frozen=True, slots=True)
class Form:
    """The form that a step ran in; `layout` is the number of its layout, None for the one it began with."""

    variant: Variant
    layout: int | None = None


@dataclass(frozen=True, slots=True)
class About:
    """What a recording is of, as it began. `hyper` has the rate before the schedule; a change later is in the steps.

    `finished_steps` is the step count of the state it starts from; `began` in seconds since 1970, `policy` as text.
    `layout` is None where it was not recorded, as in format 1; `parent` is there for a replay.

    Of a run that another program made, `origin` says which, with its version and kind ("PyTorch 2.13.0 AdamW
    (foreach)"), and `foreign` names its optimizer where that is none of those here; `dtypes` has the type in which it
    kept each param ("f32", "bf16", "f16"), in the order of `params`, () where all are float32; `unreplayable` is a
    sentence on what keeps the kernels here from computing the same ("" where nothing does). One of several processes
    has its `rank` of `world_size`, and in `shards` the part that it kept of each param, None for one that it kept
    whole; () where all are whole. What several processes record of one run has one `run`, "" where that is not known;
    of them joined `world_size` is given and `rank` is None. `added` has the steps in which `params` grew. `kernels` is
    the `KERNELS_REVISION` of what ran it, 1 where that was not recorded.
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
    layout: RecordedLayout | None = None
    parent: Parent | None = None
    origin: str = ""
    foreign: str = ""
    dtypes: tuple[str, ...] = ()
    unreplayable: str = ""
    rank: int | None = None
    world_size: int | None = None
    shards: tuple[Shard | None, ...] = ()
    added: tuple[Added, ...] = ()
    run: str = ""
    kernels: int = 1

    def params_in(self, step: int) -> int:
        """How many of `params`, the first ones, were there in `step`."""
        return next((each.params for each in self.added if step < each.step), len(self.params))

    def with_params(
        self,
        step: int,
        params: tuple[Param, ...],
        dtypes: tuple[str, ...] = (),
        shards: tuple[Shard | None, ...] = (),
    ) -> About:
        """The same with `params` that take part from `step` on. Where they lie is not known of a run that grew."""
        before = len(self.params)
        if dtypes or self.dtypes:
            dtypes = (*(self.dtypes or ("f32",) * before), *(dtypes or ("f32",) * len(params)))
        if shards or self.shards:
            shards = (*(self.shards or (None,) * before), *(shards or (None,) * len(params)))
        return replace(
            self, params=(*self.params, *params), dtypes=dtypes, shards=shards, layout=None,
            added=(*self.added, Added(step, before)),
        )  # fmt: skip

    def before_clipping(self, step: RecordedStep) -> GradStats | None:
        """The norm and clip scale that another program clipped the gradients of `step` by, which are recorded as they
        were after that; None where it did not."""
        if not self.origin or math.isfinite(step.hyper.max_grad_norm):
            return None
        if step.grad_norm is None or step.clip_scale is None or step.clip_scale == 1:
            return None
        return GradStats(step.grad_norm, step.clip_scale)


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
    layout: RecordedLayout | None = None
    """That of the session where it is None: of a step that is read, None where it was not recorded."""
    of_part: bool = False
    """True where `grad_norm` is of what one of several processes keeps, since it saw no norm over all of them."""


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


LOADED_STATE = "the optimizer's state was loaded"
LOADED_WEIGHTS = "the model's weights were loaded"
WRITTEN_WEIGHTS = "weights were written by something other than the optimizer's step"
_PUT_IN_PLACE = LOADED_STATE, LOADED_WEIGHTS, WRITTEN_WEIGHTS


def puts_in_place(note: Note) -> bool:
    """True where it says that the run's script wrote w, m or v before the step of the note.

    What was there after the step before does not lead on to that step.
    """
    return note.kind == "mark" and note.text.startswith(_PUT_IN_PLACE)


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
