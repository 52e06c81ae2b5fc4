"""A plan in which a user's own kernels take the place of the built-in ones, in the grid as published."""

from __future__ import annotations

from dataclasses import replace

from inspector.errors import UsageError
from inspector.own_kernels import OwnKernel
from inspector.plan import Dispatch, Limits, Plan, Variant, split_grid

REDUCE = "reduce_norm_sq"

AS_PUBLISHED = {"PRECISE": 0.0, "L2": 0.0, "FUSED": 1.0, "CODEC": 0.0}
"""The pipeline constants at which a kernel does what it was published to do; WD_ELEMENTS has no such value."""
OPTIONS = {
    "PRECISE": ("--numerics precise", "PRECISE: bool = false"),
    "L2": ("--optimizer adam-l2", "L2: bool = false"),
    "FUSED": ("--unfused", "FUSED: bool = true"),
    "WD_ELEMENTS": ("--dispatch single", "WD_ELEMENTS: u32 = 0xffffffffu"),
    "CODEC": ("a codec other than linear", "CODEC: u32 = 0u"),
}
"""What asks for another value, and how a kernel declares that it can take one."""


def planned_as(variant: Variant) -> Variant:
    """The variant to lay out: an own reduction adds up in one word, as published."""
    if variant.own.get(REDUCE) is None or variant.reduce == "atomic":
        return variant
    return replace(variant, reduce="atomic")


def with_own_kernels(plan: Plan, variant: Variant) -> Plan:
    """The plan of `variant`, made from the plan of `planned_as(variant)`.

    Raises UsageError for a form that an own kernel declares no pipeline constant for.
    """
    if not variant.own:
        return plan
    dispatches = []
    for dispatch in plan.dispatches:
        own = variant.own.get(dispatch.entry_point)
        dispatches.append(dispatch if own is None else _replaced(dispatch, own, plan.limits))
    return replace(plan, variant=variant, dispatches=tuple(dispatches))


def _replaced(dispatch: Dispatch, own: OwnKernel, limits: Limits) -> Dispatch:
    access = dict(own.access)
    bindings = tuple(
        # What it does not declare is bound all the same, where it cannot be changed.
        b if b.access == "uniform" else replace(b, access=access.get(b.slot, "read"), exact=False)
        for b in dispatch.bindings
    )
    start, stop = dispatch.elements
    return replace(
        dispatch,
        kernel=f"own/{dispatch.entry_point}",
        label=f"{dispatch.label} (own)",
        groups=split_grid(own.groups(stop - start), limits.max_compute_workgroups_per_dimension),
        bindings=bindings,
        constants=_constants(dispatch, own),
        own=own,
    )


def _constants(dispatch: Dispatch, own: OwnKernel) -> tuple[tuple[str, float], ...]:
    """Those that the kernel declares; one that it does not has to be at its published value."""
    declared = {name for name, _ in own.overrides}
    for name, value in dispatch.constants:
        if name not in declared and AS_PUBLISHED.get(name) != value:
            option, declaration = OPTIONS.get(name, (f"{name} = {value:g}", name))
            raise UsageError(
                f"{own.place}: {own.entry_point} cannot take {option}: run without it, or declare "
                f"'override {declaration};' and follow it."
            )
    return tuple((name, value) for name, value in dispatch.constants if name in declared)
