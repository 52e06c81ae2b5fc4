"""--shaders: a user's own kernels in place of the built-in ones, and how the commands speak of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from inspector.errors import UsageError
from inspector.layout import Param, make_layout
from inspector.optimizers import plan_step
from inspector.own_kernels import OwnKernel
from inspector.own_plan import planned_as
from inspector.own_shaders import load_own_kernels
from inspector.plan import Limits, Variant, required_placement

Shaders = Annotated[
    Path | None,
    typer.Option("--shaders", help="Folder of own .wgsl files that replace kernels by entry point."),
]

_GOES_WITH = {
    "adamw_update_f16": "--kernel f16",
    "adamw_8bit_update": "--kernel 8bit",
    "reduce_norm_sq_final": "--reduce two-pass and the built-in reduce_norm_sq",
    "scale": "--unfused",
    "fill_zero": "--unfused",
    "cast_f32_to_f16": "--kernel f16 --unfused",
    "adamw_update": "--kernel f32",
}


def with_shaders(variant: Variant, folder: Path | None) -> Variant:
    """`variant` with the own kernels of `folder`; UsageError where they cannot be used or none would run."""
    if folder is None:
        return variant
    made = planned_as(replace(variant, own=load_own_kernels(folder)))
    idle = tuple(idle_kernels(made))
    if len(idle) == len(made.own.kernels):
        with_ = "; ".join(f"{k.entry_point} goes with {_GOES_WITH.get(k.entry_point, '')}" for k in idle)
        raise UsageError(f"No kernel of --shaders {folder} runs in this form of the step: {with_}.")
    return made


def idle_kernels(variant: Variant) -> Iterator[OwnKernel]:
    """The own kernels that no dispatch of this form of the step runs."""
    # Large and small ones: where m and v are kept in 8 bits, those of small params may not be.
    params = (Param("matrix", (128, 128)), Param("vector", (2,)))
    layout = make_layout(params, placement=required_placement(variant))
    run = {dispatch.entry_point for dispatch in plan_step(layout, Limits(), variant).dispatches}
    return (k for k in variant.own.kernels if k.entry_point not in run)


def form_of(variant: Variant) -> dict[str, Any]:
    """The variant as it stands in a document of --json; its own kernels stand beside it, under "shaders"."""
    return {f.name: getattr(variant, f.name) for f in fields(variant) if f.name != "own"}


def shaders_of(variant: Variant) -> dict[str, str]:
    """The file of each own kernel by its entry point."""
    return dict(variant.own.files)


def own_kernel_lines(variant: Variant) -> Iterator[str]:
    """What people are told of them, line by line: which run, and which do not in this form."""
    idle = tuple(idle_kernels(variant))
    for kernel in variant.own.kernels:
        runs = "" if kernel not in idle else f", not run here: goes with {_GOES_WITH[kernel.entry_point]}"
        yield f"own kernel {kernel.entry_point} from {kernel.place}{runs}"
