"""Commands that run steps, or look closely at one, and tell of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from inspector import plan
from inspector.cli import options as o
from inspector.cli.shaders import Shaders, with_shaders
from inspector.errors import UsageError
from inspector.files import check_writable


def run(
    context: typer.Context,
    source: o.SourceArgument,
    steps: Annotated[int, typer.Option(help="Steps to run.")],
    optimizer: o.Optimizer = "adamw",
    kernel: o.Kernel = "f32",
    codec: o.CodecName = "linear",
    small_state: o.SmallState = "f32",
    no_muon: o.NoMuon = "",
    root_block: o.RootBlock = plan.DEFAULT_ROOT_BLOCK,
    root_every: o.RootEvery = plan.DEFAULT_ROOT_EVERY,
    factors: o.FactorsName = "mean",
    numerics: o.Numerics = "published",
    reduce: o.Reduce = "two-pass",
    dispatch: o.DispatchForm = "two-block",
    unfused: o.Unfused = False,
    shaders: Shaders = None,
    stats: o.Stats = None,
    lr: o.Lr = None,
    beta1: o.Beta1 = None,
    beta2: o.Beta2 = None,
    eps: o.Eps = None,
    weight_decay: o.WeightDecay = None,
    max_grad_norm: o.MaxGradNorm = None,
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
    hyper = o.make_hyper(
        made, lr=lr, beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay, max_grad_norm=max_grad_norm
    )
    variant = with_shaders(
        o.make_variant(
            optimizer,
            kernel,
            numerics,
            reduce,
            dispatch,
            unfused,
            codec,
            small_state,
            no_muon=no_muon,
            root_block=root_block,
            root_every=root_every,
            factors=factors,
        ),
        shaders,
    )
    variant = o.form_for(context, made, variant)
    hyper = o.with_adamw(hyper, made, variant, adamw)
    o.note_idle(context, variant)
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
    optimizer: o.Optimizer = "adamw",
    kernel: o.Kernel = "f32",
    codec: o.CodecName = "linear",
    small_state: o.SmallState = "f32",
    no_muon: o.NoMuon = "",
    root_block: o.RootBlock = plan.DEFAULT_ROOT_BLOCK,
    root_every: o.RootEvery = plan.DEFAULT_ROOT_EVERY,
    factors: o.FactorsName = "mean",
    numerics: o.Numerics = "published",
    reduce: o.Reduce = "two-pass",
    dispatch: o.DispatchForm = "two-block",
    unfused: o.Unfused = False,
    shaders: Shaders = None,
    lr: o.Lr = None,
    beta1: o.Beta1 = None,
    beta2: o.Beta2 = None,
    eps: o.Eps = None,
    weight_decay: o.WeightDecay = None,
    max_grad_norm: o.MaxGradNorm = None,
    adamw: o.AdamwText = None,
    schedule: o.ScheduleText = None,
    seed: o.Seed = None,
    adapter: o.Adapter = None,
    json: o.Json = False,
) -> int:
    """Say what is wrong with a run, since when, and what to try. Exit code 1 where a finding is an error."""
    from inspector.cli import diagnose as command

    if command.is_recorded(source):
        command.check_typed(context)
        return command.diagnose_recording(Path(source), first, last, json=json)
    if first is not None or last is not None:
        raise UsageError(f"--from and --to take a part of a recording, and {source} is none: give --steps.")
    if steps is not None:
        o.whole_number("--steps", steps)
    made = o.open_told(source, schedule, seed)
    hyper = o.make_hyper(
        made, lr=lr, beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay, max_grad_norm=max_grad_norm
    )
    variant = with_shaders(
        o.make_variant(
            optimizer,
            kernel,
            numerics,
            reduce,
            dispatch,
            unfused,
            codec,
            small_state,
            no_muon=no_muon,
            root_block=root_block,
            root_every=root_every,
            factors=factors,
        ),
        shaders,
    )
    variant = o.form_for(context, made, variant)
    hyper = o.with_adamw(hyper, made, variant, adamw)
    o.note_idle(context, variant)
    return command.diagnose_run(made, hyper, variant, steps, adapter, json=json)


def explain(
    context: typer.Context,
    source: o.SourceArgument,
    param: Annotated[str, typer.Option(help="Name of the param.")],
    index: Annotated[str, typer.Option(help="Its element: flat, or as 12,3.")],
    step: Annotated[
        int | None, typer.Option(help="The step to explain; the first there is if left out.")
    ] = None,
    optimizer: o.Optimizer = "adamw",
    kernel: o.Kernel = "f32",
    codec: o.CodecName = "linear",
    small_state: o.SmallState = "f32",
    no_muon: o.NoMuon = "",
    root_block: o.RootBlock = plan.DEFAULT_ROOT_BLOCK,
    root_every: o.RootEvery = plan.DEFAULT_ROOT_EVERY,
    factors: o.FactorsName = "mean",
    numerics: o.Numerics = "published",
    reduce: o.Reduce = "two-pass",
    dispatch: o.DispatchForm = "two-block",
    unfused: o.Unfused = False,
    shaders: Shaders = None,
    lr: o.Lr = None,
    beta1: o.Beta1 = None,
    beta2: o.Beta2 = None,
    eps: o.Eps = None,
    weight_decay: o.WeightDecay = None,
    max_grad_norm: o.MaxGradNorm = None,
    adamw: o.AdamwText = None,
    schedule: o.ScheduleText = None,
    seed: o.Seed = None,
    adapter: o.Adapter = None,
    json: o.Json = False,
) -> int:
    """Print every line of the update of one element: float32 on the GPU, float64, and the ULP between them."""
    from inspector.cli.explain import describe, show

    made = o.open_told(source, schedule, seed)
    hyper = o.make_hyper(
        made, lr=lr, beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay, max_grad_norm=max_grad_norm
    )
    variant = with_shaders(
        o.make_variant(
            optimizer,
            kernel,
            numerics,
            reduce,
            dispatch,
            unfused,
            codec,
            small_state,
            no_muon=no_muon,
            root_block=root_block,
            root_every=root_every,
            factors=factors,
        ),
        shaders,
    )
    variant = o.form_for(context, made, variant)
    hyper = o.with_adamw(hyper, made, variant, adamw)
    document = describe(
        made,
        hyper,
        variant,
        given=o.given_form(context, variant),
        adapter=adapter,
        param=param,
        index=index,
        step=step,
    )
    o.print_json(document) if json else show(document)
    return 0


def policies(
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
    lr: o.Lr = None,
    beta1: o.Beta1 = None,
    beta2: o.Beta2 = None,
    eps: o.Eps = None,
    weight_decay: o.WeightDecay = None,
    max_grad_norm: o.MaxGradNorm = None,
    schedule: o.ScheduleText = None,
    seed: o.Seed = None,
    adapter: o.Adapter = None,
    json: o.Json = False,
) -> int:
    """Print what optimizers that treat non-finite gradients differently would each make of one step."""
    from inspector.cli.policies import describe, show

    made = o.open_told(source, schedule, seed)
    hyper = o.make_hyper(
        made, lr=lr, beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay, max_grad_norm=max_grad_norm
    )
    variant = o.form_for(context, made, plan.Variant(optimizer=optimizer, numerics=numerics))
    document = describe(
        made,
        hyper,
        variant,
        given=o.given_form(context, variant),
        adapter=adapter,
        param=param,
        index=index,
        step=step,
    )
    o.print_json(document) if json else show(document)
    return 0


def report(
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
    optimizer: o.Optimizer = "adamw",
    kernel: o.Kernel = "f32",
    codec: o.CodecName = "linear",
    small_state: o.SmallState = "f32",
    no_muon: o.NoMuon = "",
    root_block: o.RootBlock = plan.DEFAULT_ROOT_BLOCK,
    root_every: o.RootEvery = plan.DEFAULT_ROOT_EVERY,
    factors: o.FactorsName = "mean",
    numerics: o.Numerics = "published",
    reduce: o.Reduce = "two-pass",
    dispatch: o.DispatchForm = "two-block",
    unfused: o.Unfused = False,
    shaders: Shaders = None,
    lr: o.Lr = None,
    beta1: o.Beta1 = None,
    beta2: o.Beta2 = None,
    eps: o.Eps = None,
    weight_decay: o.WeightDecay = None,
    max_grad_norm: o.MaxGradNorm = None,
    adamw: o.AdamwText = None,
    schedule: o.ScheduleText = None,
    seed: o.Seed = None,
    adapter: o.Adapter = None,
    json: o.Json = False,
) -> int:
    """Write the story of a run as one HTML file: findings by cause, plots, settings. Needs nothing else to be read."""
    from inspector.cli.report import Request, show, write_report

    check_writable(out)
    made = o.open_told(source, schedule, seed)
    hyper = o.make_hyper(
        made, lr=lr, beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay, max_grad_norm=max_grad_norm
    )
    variant = with_shaders(
        o.make_variant(
            optimizer,
            kernel,
            numerics,
            reduce,
            dispatch,
            unfused,
            codec,
            small_state,
            no_muon=no_muon,
            root_block=root_block,
            root_every=root_every,
            factors=factors,
        ),
        shaders,
    )
    variant = o.form_for(context, made, variant)
    hyper = o.with_adamw(hyper, made, variant, adamw)
    document = write_report(Request(made, hyper, variant, out, steps, adapter))
    o.print_json(document) if json else show(document)
    return 0
