"""The slots that each kernel of the pipeline has to have, and a WGSL entry point held against them.

The table of bindings as published; of a user's own kernel it fixes the slots, not the names.
"""

from __future__ import annotations

from dataclasses import dataclass

from inspector.own_kernels import GridRule
from inspector.plan import Access
from inspector.wgsl import EntryPoint, Module, Resource
from inspector.wgsl_types import Shape, Types


@dataclass(frozen=True, slots=True)
class Slot:
    """What is bound at a slot. `required`: a kernel has to declare it. `written`: it has to be able to write it."""

    number: int
    name: str
    access: Access
    type: str
    """As published: what is bound of `hp` has four more numbers behind those."""
    required: bool = False
    written: bool = False

    @property
    def declaration(self) -> str:
        """How WGSL declares it."""
        space = "uniform" if self.access == "uniform" else f"storage, {self.access}"
        return f"var<{space}> {self.name}: {self.type}"


@dataclass(frozen=True, slots=True)
class KernelSlots:
    """The slots of a kernel, and how its grid is made."""

    grid: GridRule
    slots: tuple[Slot, ...]

    def __getitem__(self, number: int) -> Slot | None:
        return next((s for s in self.slots if s.number == number), None)


def _slots(*rows: tuple[str, Access, str, str]) -> tuple[Slot, ...]:
    """Rows of name, access, type and "required", "written" (and so required) or ""."""
    return tuple(
        Slot(i, name, access, type_, must != "", must == "written")
        for i, (name, access, type_, must) in enumerate(rows)
    )


_STATS: tuple[str, Access, str, str] = ("grad_stats", "read", "array<f32, 2>", "")
_SETTINGS: tuple[tuple[str, Access, str, str], ...] = (
    _STATS,
    ("size", "uniform", "u32", ""),
    ("hp", "uniform", "vec4<f32>", ""),
    ("bias", "uniform", "vec4<f32>", ""),
)
_W_AND_G: tuple[tuple[str, Access, str, str], ...] = (
    ("w", "read_write", "array<f32>", "written"),
    ("g", "read_write", "array<f32>", "required"),
)
_LANES: tuple[tuple[str, Access, str, str], ...] = (
    *_W_AND_G,
    ("m", "read_write", "array<f32>", "required"),
    ("v", "read_write", "array<f32>", "required"),
)
_GRADIENT: tuple[str, Access, str, str] = ("data", "read", "array<f32>", "required")
_COUNT: tuple[str, Access, str, str] = ("n", "uniform", "u32", "")

KERNEL_SLOTS: dict[str, KernelSlots] = {
    "reduce_norm_sq": KernelSlots(
        "items", _slots(_GRADIENT, ("result", "read_write", "atomic<u32>", "written"), _COUNT)
    ),
    "reduce_norm_sq_final": KernelSlots(
        "one", _slots(_GRADIENT, ("result", "read_write", "f32", "written"), _COUNT)
    ),
    "finalize_grad_stats": KernelSlots(
        "one",
        _slots(
            ("norm_sq", "read", "array<f32, 1>", "required"),
            ("grad_stats", "read_write", "array<f32, 2>", "written"),
            ("max_grad_norm", "uniform", "f32", ""),
        ),
    ),
    "adamw_update": KernelSlots("items", _slots(*_LANES, *_SETTINGS)),
    "adamw_update_f16": KernelSlots(
        "items", _slots(*_LANES, ("w_f16", "read_write", "array<f16>", "written"), *_SETTINGS)
    ),
    "adamw_8bit_update": KernelSlots(
        "blocks",
        _slots(
            *_W_AND_G,
            ("m_packed", "read_write", "array<u32>", "required"),
            ("v_packed", "read_write", "array<u32>", "required"),
            ("m_scale", "read_write", "array<f32>", "required"),
            ("v_scale", "read_write", "array<f32>", "required"),
            *_SETTINGS,
        ),
    ),
    "scale": KernelSlots("items", _slots(("data", "read_write", "array<f32>", "written"), _STATS, _COUNT)),
    "cast_f32_to_f16": KernelSlots(
        "items", _slots(_GRADIENT, ("w_f16", "read_write", "array<f16>", "written"), _COUNT)
    ),
    "fill_zero": KernelSlots("items", _slots(("data", "read_write", "array<f32>", "written"), _COUNT)),
}
"""By entry point: those that a WGSL file of a user can replace."""

_SCALARS = {
    "array<f32>": ("f32",),
    "array<u32>": ("u32", "i32"),
    "array<f16>": ("f16", "u32"),
    "atomic<u32>": ("atomic<u32>",),
    "array<f32, 1>": ("f32",),
    "array<f32, 2>": ("f32",),
    "f32": ("f32",),
    "u32": ("u32", "i32"),
    "vec4<f32>": ("f32",),
}
_UNIFORM_BYTES = 16
_HP_BYTES = 32
_STORAGE_BYTES = {"atomic<u32>": 4, "array<f32, 1>": 4, "array<f32, 2>": 8, "f32": 4}
"""The most that a type without a length of its own may take where this is expected."""
_ITEM_ELEMENTS = (1, 2, 4)


def matched(module: Module, entry: EntryPoint, file: str) -> tuple[dict[int, Resource], list[str]]:
    """What `entry` has at each slot, and what is wrong with that, one sentence for each place of `file`."""
    kernel = KERNEL_SLOTS[entry.name]
    found: dict[int, Resource] = {}
    problems: list[str] = []
    # What no function names may stand in for what is missing: the compiler leaves it out.
    spare = [r for r in module.resources if r not in entry.uses]
    for resource in entry.uses:
        where = f"{file}:{resource.line}: {entry.name}"
        if resource.group is None or resource.slot is None:
            problems.append(f"{where} needs both @group(0) and @binding(N), as numbers, on '{resource.name}'")
        elif resource.group != 0:
            problems.append(
                f"{where} binds '{resource.name}' in group {resource.group}: everything is in @group(0)"
            )
        elif resource.slot in found:
            problems.append(
                f"{where} has both '{found[resource.slot].name}' and '{resource.name}' at slot {resource.slot}"
            )
        else:
            found[resource.slot] = resource
    for number, resource in found.items():
        slot = kernel[number]
        where = f"{file}:{resource.line}: {entry.name}"
        if slot is None:
            last = len(kernel.slots) - 1
            problems.append(
                f"{where} binds '{resource.name}' at slot {number}, where nothing is bound: its slots are 0 to {last}"
            )
        elif not _fits(slot, resource, module.types):
            problems.append(
                f"{where} has '{resource.declared}' at slot {number}, where '{slot.declaration}' is expected"
            )
    for slot in kernel.slots:
        if slot.required and slot.number not in found:
            other = next((r for r in spare if (r.group, r.slot) == (0, slot.number)), None)
            if other is not None and _fits(slot, other, module.types):
                found[slot.number] = other
                continue
            problems.append(
                f"{file}:{entry.line}: {entry.name} has nothing at slot {slot.number}: declare "
                f"'@group(0) @binding({slot.number}) {slot.declaration};'"
            )
    return found, problems


def item_elements(module: Module, first: Resource) -> int:
    """Elements in an item of slot 0."""
    shape = module.types.shape(first.type)
    return shape.count if shape is not None and shape.runtime else 1


def _fits(slot: Slot, resource: Resource, types: Types) -> bool:
    access = "uniform" if resource.space == "uniform" else resource.access
    if access != slot.access:
        only_read = access == "read" and slot.access == "read_write" and not slot.written
        if not only_read:
            return False
    shape = types.shape(resource.type)
    return shape is not None and shape.scalar in _SCALARS[slot.type] and _as_large(slot, shape)


def _as_large(slot: Slot, shape: Shape) -> bool:
    if slot.access == "uniform":
        return not shape.runtime and shape.nbytes <= (_HP_BYTES if slot.name == "hp" else _UNIFORM_BYTES)
    if slot.type in _STORAGE_BYTES:
        return shape.runtime or shape.nbytes <= _STORAGE_BYTES[slot.type]
    if slot.type == "array<f32>":
        return shape.runtime and shape.count in _ITEM_ELEMENTS and shape.nbytes == 4 * shape.count
    return shape.runtime
