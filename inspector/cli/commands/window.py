"""The window, and pictures of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inspector.cli import options as o
from inspector.cli.shaders import Shaders
from inspector.cli.step_options import (
    FormOptions,
    OptimizerOptions,
    SettingOptions,
    adamw_settings,
    form_for,
    left_out,
    make_variant,
    note_idle,
)
from inspector.files import check_writable
from inspector.plan import Variant
from inspector.statistics import StatsLevel

if TYPE_CHECKING:
    from inspector.cli.window import RunOpener

VIEWS = (
    "map, pipeline, plots, board, histograms, microscope, shaders, lockstep, timing, profile, memory, params, "
    "states, ranks, race, decay, sweep, surface, compare, verify, start, settings, values, hyper, findings, "
    "policies, breakpoints, bookmarks or timeline"
)
"""What may be drawn alone, as `--view` tells it."""


def window(
    *,
    context: typer.Context,
    source: o.SourceArgument = "charlm",
    chosen: OptimizerOptions,
    form: FormOptions,
    shaders: Shaders = None,
    stats: o.Stats = None,
    settings: SettingOptions,
    adamw: o.AdamwText = None,
    schedule: o.ScheduleText = None,
    seed: o.Seed = None,
    adapter: o.Adapter = None,
    undo_mb: o.UndoMb = None,
    lockstep: o.Lockstep = None,
    save: o.SavePath = None,
    capture: o.Capture = None,
    breaks: o.Break = None,
) -> int:
    """Open the window on SOURCE, paused before its first dispatch."""
    from inspector.cli.recording import level_of, make_save
    from inspector.cli.window import open_window

    saved = make_save(save, capture)
    opener, variant = _opening(
        context,
        source,
        make_variant(chosen, form, shaders),
        settings,
        adamw,
        adapter=adapter,
        undo_mb=undo_mb,
        schedule=schedule,
        seed=seed,
        shaders=shaders,
    )
    return open_window(
        opener,
        source,
        variant,
        stats or "light",
        lockstep=lockstep,
        save=saved,
        save_stats=level_of(stats, saved),
        breaks=breaks,
        start_page=left_out(context, "source") and saved is None and lockstep is None,
    )


def screenshot(
    *,
    context: typer.Context,
    source: o.SourceArgument,
    out: Annotated[Path, typer.Option(help="The PNG file to write.")],
    steps: Annotated[int, typer.Option(help="Steps to run first.")] = 0,
    size: Annotated[str, typer.Option(help="Width and height in pixels.")] = "1600x1000",
    view: Annotated[str | None, typer.Option(help=f"One view instead of the whole window: {VIEWS}.")] = None,
    theme: Annotated[str, typer.Option(help="light or dark.")] = "light",
    scale: Annotated[
        float, typer.Option(help="Device pixels a pixel, 2 for a sharp picture.", min=0.5, max=4)
    ] = 1.0,
    dispatches: Annotated[int, typer.Option(help="Dispatches to run after the steps.")] = 0,
    chosen: OptimizerOptions,
    form: FormOptions,
    settings: SettingOptions,
    adamw: o.AdamwText = None,
    lockstep: o.Lockstep = None,
    beside: Annotated[
        Path | None,
        typer.Option(
            "--with",
            metavar="SESSION",
            help="A recording to lay under the run; with --view compare also to compare with the one drawn.",
        ),
    ] = None,
    shaders: Shaders = None,
    stats: Annotated[
        StatsLevel | None, typer.Option(help="As for run; what the view needs if left out.")
    ] = None,
    schedule: o.ScheduleText = None,
    seed: o.Seed = None,
    adapter: o.Adapter = None,
) -> int:
    """Draw the window, or one view, without a display."""
    from inspector.cli.window import take_picture

    o.whole_number("--steps", steps)
    o.whole_number("--dispatches", dispatches)
    opener, variant = _opening(
        context,
        source,
        make_variant(chosen, form, shaders),
        settings,
        adamw,
        adapter=adapter,
        schedule=schedule,
        seed=seed,
        shaders=shaders,
    )
    take_picture(
        opener,
        source,
        check_writable(out),
        variant=variant,
        steps=steps,
        dispatches=dispatches,
        lockstep=lockstep,
        beside=beside,
        size=size,
        view=view,
        theme=theme,
        scale=scale,
        stats=stats,
    )
    return 0


def _opening(
    context: typer.Context,
    source: str,
    variant: Variant,
    settings: SettingOptions,
    adamw: str | None,
    *,
    adapter: str | None,
    schedule: str | None,
    seed: int | None,
    shaders: Path | None,
    undo_mb: int | None = None,
) -> tuple[RunOpener, Variant]:
    """What opens sources as was asked for, and the form that `source` is opened in; what does nothing is told."""
    from inspector.cli.window import RunOpener

    opener = RunOpener(
        adapter=adapter,
        undo_mb=undo_mb,
        schedule=schedule,
        seed=seed,
        given=o.as_dict(settings),
        shaders=shaders,
    )
    opened = opener.open_source(source)
    variant = form_for(context, opened, variant)
    opener = dataclasses.replace(opener, adamw=adamw_settings(variant, adamw))
    note_idle(context, variant, opened)
    return opener, variant
