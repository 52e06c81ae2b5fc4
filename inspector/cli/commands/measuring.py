"""Commands about this machine and about sizes: adapters, layouts, memory, and what kernels cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from inspector.cli import USAGE
from inspector.cli import options as o
from inspector.cli.shaders import Shaders
from inspector.cli.step_options import FormOptions, OptimizerOptions, form_for, make_variant, note_idle
from inspector.errors import UsageError


def doctor(adapter: o.Adapter = None, json: o.Json = False) -> int:
    """Say which GPU adapters there are, which one is used, and what is missing."""
    from inspector.cli.doctor import examine, show

    report = examine(adapter)
    o.print_json(report) if json else show(report)
    return 0 if report["selected"] is not None else USAGE


def layout(
    *,
    context: typer.Context,
    source: o.SourceArgument,
    align: Annotated[
        int | None,
        typer.Option(
            help="Bytes that every segment starts at a multiple of; what the kernel needs if left out."
        ),
    ] = None,
    max_binding: Annotated[
        int | None, typer.Option(help="Largest binding in bytes; WebGPU's default if left out.")
    ] = None,
    max_buffer: Annotated[
        int | None, typer.Option(help="Largest buffer in bytes; what is beyond it makes more pages.")
    ] = None,
    chosen: OptimizerOptions,
    reduce: o.Reduce = "two-pass",
    dispatch: o.DispatchForm = "two-block",
    unfused: o.Unfused = False,
    shaders: Shaders = None,
    json: o.Json = False,
) -> int:
    """Print where every param lies, and the dispatches of a step. Needs no GPU."""
    from inspector.cli.layout import describe, show

    form = FormOptions(reduce=reduce, dispatch=dispatch, unfused=unfused)
    variant = make_variant(chosen, form, shaders)
    made = o.open_told(source, steps=False)
    variant = form_for(context, made, variant)
    note_idle(context, variant, made)
    document = describe(made, variant, align=align, max_binding=max_binding, max_buffer=max_buffer)
    o.print_json(document) if json else show(document)
    return 0


def memory(
    source: Annotated[
        str,
        typer.Argument(
            help="charlm, gpt-116m, the path of a state file, a recording or a safetensors model, of which only the "
            "header is read; or a number of elements, as in 70e9 or 70B.",
            metavar="SOURCE_OR_COUNT",
        ),
    ],
    devices: Annotated[int, typer.Option(help="Devices that it is spread over.")] = 1,
    zero: Annotated[
        int,
        typer.Option(
            help="ZeRO stage: 0 shards nothing, 1 the optimizer's state, 2 gradients too, 3 weights too."
        ),
    ] = 3,
    precision: Annotated[
        str | None, typer.Option(help="Only this precision; all if left out.", show_default=False)
    ] = None,
    json: o.Json = False,
) -> int:
    """Print what training a model takes in memory, by optimizer and precision, and how many devices hold it."""
    from inspector.cli.memory import describe, show
    from inspector.memory_bill import PRECISION_NAMES

    if precision is not None and precision not in PRECISION_NAMES:
        raise UsageError(f"There is no precision {precision!r}: choose one of {', '.join(PRECISION_NAMES)}.")
    document = describe(source, devices=devices, zero=zero, precision=precision)
    o.print_json(document) if json else show(document)
    return 0


def bench(
    *,
    context: typer.Context,
    preset: Annotated[str | None, typer.Option(help="A layout by name: gpt-116m.")] = None,
    elements: Annotated[int | None, typer.Option(help="As many elements instead.")] = None,
    samples: Annotated[int, typer.Option(help="Warm steps to time.", min=1)] = 100,
    seconds: Annotated[float, typer.Option(help="Stop after so long even with fewer samples.", min=0)] = 30.0,
    chosen: OptimizerOptions,
    numerics: o.Numerics = "published",
    reduce: o.ReduceOrNone = None,
    dispatch: o.DispatchForm = "two-block",
    unfused: o.Unfused = False,
    shaders: Shaders = None,
    grid: o.Grid = "capped",
    every: Annotated[
        bool,
        typer.Option("--all", help="All variants that differ from this one in one factor, taking turns."),
    ] = False,
    drift_steps: Annotated[
        int,
        typer.Option(help="With --all: run so many steps and compare the weights of both numerics.", min=0),
    ] = 0,
    csv: Annotated[Path | None, typer.Option(help="Write the table to this file, one row a kernel.")] = None,
    perfetto: Annotated[
        Path | None, typer.Option(help="Write the last steps to this file, for ui.perfetto.dev.")
    ] = None,
    seed: o.Seed = None,
    adapter: o.Adapter = None,
    json: o.Json = False,
) -> int:
    """Time each kernel on this GPU, beside the bandwidth of a copy."""
    from inspector.cli.bench import Request, measure, show

    # What the grid goes with, where nothing else was asked for.
    summed = reduce or ("atomic" if grid == "published" else "two-pass")
    form = FormOptions(numerics, summed, dispatch, unfused)
    variant = make_variant(chosen, form, shaders, grid=grid)
    note_idle(context, variant)
    report = measure(
        Request(
            preset, elements, variant, samples, seconds, seed, adapter,
            every=every, drift_steps=drift_steps, csv=csv, perfetto=perfetto,
        )
    )  # fmt: skip
    o.print_json(report) if json else show(report)
    return 0
