"""The plan of a step as data: dispatches with their bindings, grids and uniforms, for a device's limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from types import MappingProxyType
from typing import Literal

from inspector.codecs import BLOCK, Codec
from inspector.errors import UsageError
from inspector.hyper import Numerics
from inspector.layout import (
    DEFAULT_ALIGN_BYTES,
    F32_BYTES,
    BlockName,
    Layout,
    Param,
    Placement,
    StateType,
    make_layout,
)
from inspector.own_kernels import NO_OWN_KERNELS, OwnKernel, OwnKernels
from inspector.param_state import PlacedState
from inspector.stores import LANES, Lane

WORKGROUP_SIZE = 256

Kernel = Literal["f32", "f16", "8bit"]
Reduce = Literal["two-pass", "atomic"]
DispatchForm = Literal["two-block", "single", "per-tensor"]
Grid = Literal["capped", "published"]
Factors = Literal["mean", "sum"]
Access = Literal["read", "read_write", "uniform"]

KERNELS: tuple[Kernel, ...] = ("f32", "f16", "8bit")
REDUCES: tuple[Reduce, ...] = ("two-pass", "atomic")
DISPATCH_FORMS: tuple[DispatchForm, ...] = ("two-block", "single", "per-tensor")
GRIDS: tuple[Grid, ...] = ("capped", "published")
STATE_TYPES: tuple[StateType, ...] = ("f32", "8bit")
FACTORS: tuple[Factors, ...] = ("mean", "sum")
DEFAULT_ROOT_BLOCK = 256
"""Most rows and columns of a block that Shampoo takes roots for."""
DEFAULT_ROOT_EVERY = 10
SMALL_ELEMENTS = 4096
"""A param of fewer elements is small: 8-bit optimizers keep its state in float32 (bitsandbytes: min_8bit_size)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a device that shape a plan; the values WebGPU guarantees by default (W3C WebGPU §3.6.2)."""

    max_storage_buffer_binding_size: int = 128 << 20
    max_buffer_size: int = 256 << 20
    max_compute_workgroups_per_dimension: int = 65_535
    max_storage_buffers_per_shader_stage: int = 8
    min_storage_buffer_offset_alignment: int = 256
    min_uniform_buffer_offset_alignment: int = 256


@dataclass(frozen=True, slots=True)
class Variant:
    """Which form of the step to run.

    `kernel` "f16" keeps a half-precision mirror of the weights; "8bit" keeps m and v in 8 bits by `codec`, those of
    params below `SMALL_ELEMENTS` as `small_state` says. `dispatch` "single" updates both blocks at once.
    Without `fused`, clipping, zeroing and the mirror are passes of their own. `grid` "published" is the scalar
    form with ceil(n/256) groups, kept to measure against; "capped" is the vectorised form with a bounded grid
    for the norm. `no_muon`, patterns of names with commas between them, are matrices that Muon leaves to AdamW.
    Shampoo's blocks are at most `root_block` by `root_block`, their roots are worked out anew every `root_every` steps,
    and `factors` are averages or, as in its paper, sums. `own` kernels take the place of the built-in ones, in their
    published form.
    """

    optimizer: str = "adamw"
    kernel: Kernel = "f32"
    numerics: Numerics = "published"
    reduce: Reduce = "two-pass"
    dispatch: DispatchForm = "two-block"
    grid: Grid = "capped"
    fused: bool = True
    codec: Codec = "linear"
    small_state: StateType = "f32"
    no_muon: str = ""
    root_block: int = DEFAULT_ROOT_BLOCK
    root_every: int = DEFAULT_ROOT_EVERY
    factors: Factors = "mean"
    own: OwnKernels = NO_OWN_KERNELS


def unnamed_glob(patterns: str, names: Iterable[str]) -> str | None:
    """The first of `patterns`, with commas between them, that none of `names` fits; None where each names some."""
    names = tuple(names)
    globs = (glob.strip() for glob in patterns.split(",") if glob.strip())
    return next((glob for glob in globs if not any(fnmatchcase(name, glob) for name in names)), None)


@dataclass(frozen=True, slots=True)
class Binding:
    """A buffer bound at a slot of group 0: `offset` and `size` in bytes."""

    slot: int
    name: str
    buffer: str
    offset: int
    size: int
    access: Access
    one_way: bool = False
    """Bound to read and write, but only read or only written: its bytes move once."""
    item_bytes: int = F32_BYTES
    """Bytes of one of what it holds: a float32, a half, a code."""
    used: int | None = None
    """Bytes of it that are worked on, where not all of them are: of matrices that lie apart from each other."""
    exact: bool = False
    """Bound no longer than it is: its kernel counts what it holds."""

    @property
    def stop(self) -> int:
        """The byte after the last."""
        return self.offset + self.size

    @property
    def items(self) -> int:
        """How many float32 numbers, halves or codes it holds."""
        return self.size // self.item_bytes

    @property
    def bound_size(self) -> int:
        """Bytes to bind: most kernels load whole vec4s, and every range ends in a gap."""
        return self.size if self.exact else -(-self.size // 16) * 16

    @property
    def moved_bytes(self) -> int:
        """Bytes that a dispatch has to move for it: read once, written once where it may be."""
        if self.access == "uniform":
            return 0
        size = self.size if self.used is None else self.used
        return size * (2 if self.access == "read_write" and not self.one_way else 1)


@dataclass(frozen=True, slots=True)
class BufferSpec:
    """A GPU buffer the plan needs, `size` in bytes. "state" buffers outlive the plan, "table" holds `content`."""

    name: str
    size: int
    kind: Literal["state", "scratch", "uniform", "table"]
    content: bytes = b""
    """What a table says to kernels: u32 words, the same in every step of the plan."""


UniformType = Literal["u32", "f32", "vec4<f32>", "array<vec4<f32>, 2>"]
UNIFORM_BYTES: Mapping[UniformType, int] = MappingProxyType(
    {"u32": 4, "f32": 4, "vec4<f32>": 16, "array<vec4<f32>, 2>": 32}
)


@dataclass(frozen=True, slots=True)
class UniformSpec:
    """A value in the uniform buffer at byte `offset`.

    `constant` is its value where the plan alone decides it, else the optimizer gives it for each step by `key`.
    """

    key: str
    type: UniformType
    offset: int
    constant: int | None = None

    @property
    def size(self) -> int:
        """Bytes it takes."""
        return UNIFORM_BYTES[self.type]


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One compute dispatch. `elements` is the range [start, stop) of the mega-buffer it works on."""

    index: int
    kernel: str
    """The shader file's stem, below inspector/shaders/."""
    entry_point: str
    label: str
    block: BlockName | None
    groups: tuple[int, int, int]
    bindings: tuple[Binding, ...]
    elements: tuple[int, int]
    constants: tuple[tuple[str, float], ...] = ()
    clears: tuple[Binding, ...] = ()
    """Ranges set to zero before it runs."""
    own: OwnKernel | None = None
    """The user's kernel that runs in it."""
    written: tuple[Binding, ...] | None = None
    """What it changes, where that is not all of what it binds to write."""
    count: int | None = None
    """The elements it works on, where those are not all of its range."""
    operations: int = 0
    """Additions and multiplications of a product of matrices."""

    @property
    def writes(self) -> tuple[Binding, ...]:
        """What it may change, the ranges it clears included."""
        if self.written is not None:
            return self.written
        return tuple(b for b in self.bindings if b.access == "read_write")

    @property
    def worked(self) -> int:
        """How many elements of the lanes it works on: not those between matrices that lie apart."""
        if self.count is not None:
            return self.count
        return self.elements[1] - self.elements[0]

    @property
    def updates(self) -> bool:
        """True where it changes weights."""
        return any(b.name == "w" and b.access == "read_write" for b in self.bindings)

    @property
    def by_tables(self) -> bool:
        """True where tables say what a workgroup works on, so that its threads are not the elements in order."""
        return any(b.buffer == "tables" for b in self.bindings)

    @property
    def timing_key(self) -> str:
        """What its time is added up under: the kernel and its block, whatever the number of dispatches."""
        block = f" {self.block.replace('_', '-')}" if self.block else ""
        return f"{self.entry_point}{block}{' (own)' if self.own else ''}"

    @property
    def moved_bytes(self) -> int:
        """Bytes it has to move: each storage range read once, and written once where it may be."""
        return sum(b.moved_bytes for b in self.bindings)

    @property
    def storage_bindings(self) -> int:
        """Number of storage buffers it binds."""
        return sum(b.access != "uniform" for b in self.bindings)


Cut = tuple[tuple[int, ...] | None, bool]
"""The classes of params that cut a plan, and whether it is of a step between those that do all there is to do."""


@dataclass(frozen=True)
class Plan:
    """The dispatches of one step, in order, and the buffers and uniforms they bind."""

    layout: Layout
    limits: Limits
    variant: Variant
    dispatches: tuple[Dispatch, ...]
    buffers: tuple[BufferSpec, ...]
    uniforms: tuple[UniformSpec, ...]
    classes: tuple[int, ...] | None = None
    """Of params with settings of their own, as `param_hyper.segment_classes` gives them."""
    states: tuple[PlacedState, ...] = ()
    """State in shapes of its own, by state and in the order of the layout."""
    between: bool = False
    """Of an optimizer whose steps are not all alike: it goes without what only some of them do."""

    @property
    def cut(self) -> Cut:
        """What tells it from other plans of its form and layout."""
        return self.classes, self.between

    @cached_property
    def lanes(self) -> tuple[Lane, ...]:
        """The lanes that the optimizer keeps: w and g, and those of the moments that it has."""
        held = {b.name.partition("[")[0].partition("_")[0] for b in self.buffers if b.kind == "state"}
        return tuple(lane for lane in LANES if lane in held)

    @cached_property
    def states_of(self) -> dict[str, tuple[PlacedState, ...]]:
        """The states in shapes of their own of each param that has any."""
        found: dict[str, list[PlacedState]] = {}
        for state in self.states:
            found.setdefault(state.param, []).append(state)
        return {param: tuple(states) for param, states in found.items()}

    @cached_property
    def uniform_at(self) -> dict[int, UniformSpec]:
        """The uniforms by their byte offset in the uniform buffer."""
        return {u.offset: u for u in self.uniforms}

    def check(self) -> Plan:
        """Return the plan, or raise UsageError naming the first limit of the device that it breaks."""
        limits = self.limits
        for buffer in self.buffers:
            if buffer.size > limits.max_buffer_size:
                raise UsageError(
                    f"Buffer {buffer.name} needs {buffer.size:,} bytes, over this device's buffer limit of "
                    f"{limits.max_buffer_size:,}: use a smaller model or another adapter."
                )
        for dispatch in self.dispatches:
            if dispatch.storage_bindings > limits.max_storage_buffers_per_shader_stage:
                raise UsageError(
                    f"Kernel {dispatch.entry_point} binds {dispatch.storage_bindings} storage buffers, over this "
                    f"device's limit of {limits.max_storage_buffers_per_shader_stage} a stage: use another adapter."
                )
        return self


ELEMENT_BYTES: dict[Kernel, int] = {"f32": 4, "f16": 2, "8bit": 1}
"""The smallest element that a kernel binds at a segment's place."""
BINDING_ALIGN_BYTES = 256


def required_placement(variant: Variant, binding_align: int = BINDING_ALIGN_BYTES) -> Placement:
    """What a form of the step asks of the places of params, so that its buffers can be bound where it binds them.

    `binding_align` is what the device asks of a binding's offset, in bytes; any device takes the default.
    """
    align = binding_align // ELEMENT_BYTES[variant.kernel]
    if variant.kernel != "8bit":
        return Placement(align)
    return Placement(
        # No block of codes holds two params.
        align=max(binding_align // F32_BYTES, BLOCK),
        coded_from=SMALL_ELEMENTS if variant.small_state == "f32" else 1,
        # A float32 scale stands for a block.
        coded_align=max(binding_align // F32_BYTES, 1) * BLOCK,
        bound_alone=variant.dispatch == "per-tensor",
    )


def layout_for(
    params: Iterable[Param],
    limits: Limits,
    variant: Variant,
    align_bytes: int = DEFAULT_ALIGN_BYTES,
    *,
    alone: bool = False,
) -> Layout:
    """The params laid out for a device and a form of the step.

    Aligned as any device needs it, further where this one does; in pages where a buffer is too small. With `alone`
    every param can be bound by itself, as params need that have settings of their own.
    """
    params = tuple(params)
    align = limits.min_storage_buffer_offset_alignment
    placement = required_placement(variant, max(BINDING_ALIGN_BYTES, align))
    if placement.coded_from is not None and (alone or any(p.group for p in params)):
        placement = replace(placement, bound_alone=True)
    return make_layout(
        params,
        align_bytes=max(align_bytes, align),
        max_buffer_bytes=limits.max_buffer_size,
        placement=placement,
    )


def binding_elements(layout: Layout, limits: Limits, *, coded: bool = False) -> int:
    """The most float32 elements of a lane that one binding can hold, a multiple of what bindings are aligned to."""
    align = max(layout.align, layout.placement.coded_align) if coded else layout.align
    return limits.max_storage_buffer_binding_size // (F32_BYTES * align) * align


def split_grid(groups: int, per_dimension: int) -> tuple[int, int, int]:
    """`groups` workgroups as a grid within the limit per dimension: one row where it fits, else several.

    The kernels take the flat id gid.y · groups.x · 256 + gid.x and ignore what lies beyond the size.
    """
    if groups <= per_dimension:
        return max(groups, 1), 1, 1
    rows = -(-groups // per_dimension)
    if rows > per_dimension:
        raise UsageError(
            f"{groups:,} workgroups do not fit in a grid of {per_dimension:,} by {per_dimension:,}."
        )
    return -(-groups // rows), rows, 1
