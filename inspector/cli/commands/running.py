"""Commands that run steps, or look closely at one, and tell of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from inspector import plan
from inspector.cli import options as o
from inspector.cli.shaders import Shaders
from inspector.cli.step_options import (
    FormOptions,
    OptimizerOptions,
    SettingOptions,
    given_form,
    how_to_step,
    make_variant,
    refuse_all_but,
)
from inspector.errors import UsageError
from inspector.files import check_writable


def run(
    *,
    context: typer.Context,
    source: o.SourceArgument,
    steps: Annotated[int, typer.Option(help="Steps to run.")],
    chosen: OptimizerOptions,
    form: FormOptions,
    shaders: Shaders = None,
    stats: o.Stats = None,
    settings: SettingOptions,
    adamw: o.AdamwText = None,
    schedule: o.ScheduleText = None,
    seed: o.Seed = None,
    adapter: o.Adapter = None,
    lockstep: o.Lockstep = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the state after the last step to this state file.")
    ] = None,
    save: o.SavePath = None,
    capture: o.Capture = None,
    resume: o.Resume = False,
    breaks: o.Break = None,
    json: o.Json = False,
) -> int:
    """Run steps without a window and print their numbers. Exit code 1 where a finding is an error, or at a --break."""
    from inspector.cli.breakpoints import make_conditions
    from inspector.cli.recording import level_of, make_save
    from inspector.cli.run import Request, run_steps

    o.whole_number("--steps", steps)
    saved = make_save(save, capture, resume)
    made = o.open_told(source, schedule, seed)
    hyper, variant = how_to_step(context, made, make_variant(chosen, form, shaders), settings, adamw)
    return run_steps(
        Request(
            made,
            steps,
            hyper,
            variant,
            adapter,
            None if out is None else check_writable(out),
            json,
            level_of(stats, saved),
            lockstep,
            saved,
            stats is not None,
            make_conditions(breaks, made.params, variant),
        )
    )


def diagnose(
    *,
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            help="A recording, which is read; or what run takes, which is run.", metavar="SOURCE_OR_SESSION"
        ),
    ],
    steps: Annotated[
        int | None,
        typer.Option(
            help="Steps to run; 100, or all that a state file holds, if left out.", show_default=False
        ),
    ] = None,
    first: Annotated[int | None, typer.Option("--from", help="Of a recording: the first step.")] = None,
    last: Annotated[int | None, typer.Option("--to", help="Of a recording: the last step.")] = None,
    chosen: OptimizerOptions,
    form: FormOptions,
    shaders: Shaders = None,
    settings: SettingOptions,
    adamw: o.AdamwText = None,
    schedule: o.ScheduleText = None,
    seed: o.Seed = None,
    adapter: o.Adapter = None,
    json: o.Json = False,
) -> int:
    """Say what is wrong with a run, since when, and what to try. Exit code 1 where a finding is an error."""
    from inspector.cli import diagnose as command

    if command.is_recorded(source):
        refuse_all_but(
            context,
            ("source", "first", "last", "json"),
            "A recording is diagnosed as it was recorded: leave {option} out, or run it again with inspector replay.",
        )
        return command.diagnose_recording(Path(source), first, last, json=json)
    if first is not None or last is not None:
        raise UsageError(f"--from and --to take a part of a recording, and {source} is none: give --steps.")
    if steps is not None:
        o.whole_number("--steps", steps)
    made = o.open_told(source, schedule, seed)
    hyper, variant = how_to_step(context, made, make_variant(chosen, form, shaders), settings, adamw)
    return command.diagnose_run(made, hyper, variant, steps, adapter, json=json)


def explain(
    *,
    context: typer.Context,
    source: o.SourceArgument,
    param: Annotated[str, typer.Option(help="Name of the param.")],
    index: Annotated[str, typer.Option(help="Its element: flat, or as 12,3.")],
    step: Annotated[
        int | None, typer.Option(help="The step to explain; the first there is if left out.")
    ] = None,
    chosen: OptimizerOptions,
    form: FormOptions,
    shaders: Shaders = None,
    settings: SettingOptions,
    adamw: o.AdamwText = None,
    schedule: o.ScheduleText = None,
    seed: o.Seed = None,
    adapter: o.Adapter = None,
    json: o.Json = False,
) -> int:
    """Print every line of the update of one element: float32 on the GPU, float64, and the ULP between them."""
    from inspector.cli.explain import describe, show

    made = o.open_told(source, schedule, seed)
    hyper, variant = how_to_step(context, made, make_variant(chosen, form, shaders), settings, adamw)
    document = describe(
        made,
        hyper,
        variant,
        given=given_form(context, variant),
        adapter=adapter,
        param=param,
        index=index,
        step=step,
    )
    o.print_json(document) if json else show(document)
    return 0


def policies(
    *,
    context: typer.Context,
    source: o.SourceArgument,
    step: Annotated[
        int | None, typer.Option(help="The step to look at; the first there is if left out.")
    ] = None,
    param: Annotated[
        str | None,
        typer.Option(help="Show an element of this param; of the first non-finite gradient if left out."),
    ] = None,
    index: Annotated[
        str | None, typer.Option(help="The element of --param: flat, or as 12,3; the first if left out.")
    ] = None,
    optimizer: o.Optimizer = "adamw",
    numerics: o.Numerics = "published",
    settings: SettingOptions,
    schedule: o.ScheduleText = None,
    seed: o.Seed = None,
    adapter: o.Adapter = None,
    json: o.Json = False,
) -> int:
    """Print what optimizers that treat non-finite gradients differently would each make of one step."""
    from inspector.cli.policies import describe, show

    made = o.open_told(source, schedule, seed)
    variant = plan.Variant(optimizer=optimizer, numerics=numerics)
    hyper, variant = how_to_step(context, made, variant, settings)
    document = describe(
        made,
        hyper,
        variant,
        given=given_form(context, variant),
        adapter=adapter,
        param=param,
        index=index,
        step=step,
    )
    o.print_json(document) if json else show(document)
    return 0


def report(
    *,
    context: typer.Context,
    source: o.SourceArgument,
    out: Annotated[Path, typer.Option(help="The HTML file to write.")],
    steps: Annotated[
        int | None,
        typer.Option(
            help="Steps to run, 50 if left out; of a recording its last so many steps, all if left out.",
            min=1,
        ),
    ] = None,
    chosen: OptimizerOptions,
    form: FormOptions,
    shaders: Shaders = None,
    settings: SettingOptions,
    adamw: o.AdamwText = None,
    schedule: o.ScheduleText = None,
    seed: o.Seed = None,
    adapter: o.Adapter = None,
    json: o.Json = False,
) -> int:
    """Write the story of a run as one HTML file: findings by cause, plots, settings. Needs nothing else to be read."""
    from inspector.cli.report import Request, show, write_report
    from inspector.sources.recording import is_recording

    check_writable(out)
    if is_recording(Path(source)):
        refuse_all_but(
            context,
            ("source", "out", "steps", "adapter", "json"),
            "A report on a recording tells it as it was recorded: leave {option} out, or record it again under other "
            "settings with inspector replay … --save.",
        )
    made = o.open_told(source, schedule, seed)
    hyper, variant = how_to_step(context, made, make_variant(chosen, form, shaders), settings, adamw)
    document = write_report(Request(made, hyper, variant, out, steps, adapter))
    o.print_json(document) if json else show(document)
    return 0
