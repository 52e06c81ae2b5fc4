"""Variants worth comparing: one factor of the step changed at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, get_args, get_type_hints

from inspector.errors import UsageError
from inspector.optimizers import OPTIMIZERS, plan_step
from inspector.own_kernels import NO_OWN_KERNELS, OwnKernels
from inspector.plan import SMALL_ELEMENTS, Plan, Variant, layout_for

DEFAULT, GIVEN = "default", "as given"
NO_CHANGE = "It changes nothing in this form of the step."


@dataclass(frozen=True, slots=True)
class Compared:
    """A variant and what it is called beside the one it is compared with."""

    name: str
    variant: Variant


@dataclass(frozen=True, slots=True)
class Skipped:
    """A variant that cannot run, and why."""

    name: str
    reason: str


def choices(field: str) -> tuple[Any, ...]:
    """What a field of Variant may be."""
    if field == "optimizer":
        return tuple(OPTIMIZERS)
    kind = get_type_hints(Variant)[field]
    if kind is OwnKernels:
        # A run with own kernels is compared with the built-in ones; there are no others to choose.
        return (NO_OWN_KERNELS,)
    return (True, False) if kind is bool else get_args(kind)


@dataclass(frozen=True, slots=True)
class Choice:
    """A value that a field of Variant may take, the others staying as they are; `reason` says why it cannot."""

    field: str
    value: Any
    reason: str = ""


def all_choices(plan: Plan) -> Iterator[Choice]:
    """Every value of every field of the plan's variant, and why the plan's device cannot run it.

    One at a time: each takes a plan to be laid out, which for tens of thousands of params takes long.
    """
    for name in (f.name for f in fields(Variant)):
        for value in choices(name):
            now = value == getattr(plan.variant, name)
            foreign = any(name in each.form for n, each in OPTIMIZERS.items() if n != plan.variant.optimizer)
            if now:
                reason = ""
            else:
                reason = NO_CHANGE if foreign else refusal(plan, replace(plan.variant, **{name: value}))
            yield Choice(name, value, reason)


def refusal(plan: Plan, variant: Variant) -> str:
    """Why the plan's params cannot run in that form on its device, or need not, in a sentence; "" where they can.

    Where the layout of the plan does not suit that form, the params are laid out anew, as a run does.
    """
    try:
        other = plan_step(plan.layout, plan.limits, variant)
    except UsageError:
        try:
            other = plan_step(layout_for(plan.layout.params, plan.limits, variant), plan.limits, variant)
        except UsageError as error:
            return str(error)
    return "" if _differ(plan, other) else NO_CHANGE


def changes(base: Variant, variant: Variant) -> str:
    """How `variant` differs from `base`, in words: "reduce atomic", "unfused"."""
    words = []
    for name in (f.name for f in fields(Variant)):
        value = getattr(variant, name)
        if value == getattr(base, name):
            continue
        if isinstance(value, OwnKernels):
            words.append(f"own {value}" if value else "built-in kernels")
        else:
            words.append(f"{name} {value}" if not isinstance(value, bool) else ("" if value else "un") + name)
    return ", ".join(words) or DEFAULT


def name_of_base(base: Variant) -> str:
    """What the variant is called that others are compared with."""
    return DEFAULT if base == Variant() else GIVEN


def comparable(
    base: Variant, plan: Callable[[Variant], Plan]
) -> tuple[tuple[Compared, ...], tuple[Skipped, ...]]:
    """`base`, then each variant in which one factor differs from it, and those that `plan` refuses.

    A value that alone is refused or changes nothing takes along the first other factor with which it is
    allowed and changes something: the published grid goes with the atomic sum only.
    """
    first = plan(base)
    found = [Compared(name_of_base(base), base)]
    skipped: list[Skipped] = []
    for field in fields(Variant):
        for value in choices(field.name):
            if value == getattr(base, field.name):
                continue
            variant = replace(base, **{field.name: value})
            try:
                made = plan(variant)
                if field.name == "kernel" and value == "8bit" and not _has_codes(made):
                    skipped.append(Skipped(changes(base, variant), _NO_CODES))
                    continue
                if _differ(first, made):
                    found.append(Compared(changes(base, variant), variant))
                    continue
                reason = ""
            except UsageError as error:
                reason = str(error)
            other = next(_with_another(base, field.name, variant, plan), None)
            if other is not None:
                found.append(Compared(changes(base, other), other))
            elif reason:
                skipped.append(Skipped(changes(base, variant), reason))
    return tuple(found), tuple(skipped)


def _with_another(
    base: Variant, taken: str, variant: Variant, plan: Callable[[Variant], Plan]
) -> Iterator[Variant]:
    """Variants that change one more factor, allowed and different from changing that factor alone."""
    for field in fields(Variant):
        # What another optimizer alone has is none of this one's.
        if field.name in (taken, "optimizer"):
            continue
        for value in choices(field.name):
            if value == getattr(base, field.name):
                continue
            try:
                alone = plan(replace(base, **{field.name: value}))
                both = replace(variant, **{field.name: value})
                if _differ(alone, plan(both)):
                    yield both
            except UsageError:
                continue


_NO_CODES = f"No param has {SMALL_ELEMENTS:,} elements, so none would have 8-bit state."


def _has_codes(plan: Plan) -> bool:
    return any(segment.state == "8bit" for segment in plan.layout.segments)


def _differ(a: Plan, b: Plan) -> bool:
    # Two optimizers may differ in nothing but the values of uniforms.
    other = a.variant.optimizer != b.variant.optimizer
    return other or a.dispatches != b.dispatches or a.buffers != b.buffers
