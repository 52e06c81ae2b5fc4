"""The commands, one function each; what they do stands in the modules they call."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from inspector import __version__, codecs, plan
from inspector.cli import USAGE
from inspector.cli import options as o
from inspector.cli.shaders import Shaders, with_shaders
from inspector.errors import UsageError
from inspector.files import check_writable
from inspector.hyper import Numerics
from inspector.layout import StateType
from inspector.statistics import StatsLevel

VIEWS = (
    "map, pipeline, plots, board, histograms, microscope, shaders, lockstep, timing, profile, memory, params, "
    "states, ranks, race, decay, sweep, surface, compare, verify, start, settings, values, hyper, findings, "
    "policies, breakpoints, bookmarks or timeline"
)

app = typer.Typer(
    help="Debugger and profiler for the optimizer step. 'inspector [SOURCE]' opens the window.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    pass


@app.command()
def window(
    context: typer.Context,
    source: o.SourceArgument = "charlm",
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
    undo_mb: o.UndoMb = None,
    lockstep: o.Lockstep = None,
    save: o.SavePath = None,
    capture: o.Capture = None,
    breaks: o.Break = None,
) -> int:
    """Open the window on SOURCE, paused before its first dispatch."""
    from inspector.cli.recording import level_of, make_save
    from inspector.cli.window import RunOpener, open_window

    saved = make_save(save, capture)
    given = {
        "lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": weight_decay,
        "max_grad_norm": max_grad_norm,
    }  # fmt: skip
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
    opener = RunOpener(
        adapter=adapter, undo_mb=undo_mb, schedule=schedule, seed=seed, given=given, shaders=shaders
    )
    variant = o.form_for(context, opener.open_source(source), variant)
    opener = dataclasses.replace(opener, adamw=o.adamw_settings(variant, adamw))
    return open_window(
        opener,
        source,
        variant,
        stats or "light",
        lockstep=lockstep,
        save=saved,
        save_stats=level_of(stats, saved),
        breaks=breaks,
        start_page=o.left_out(context, "source") and saved is None and lockstep is None,
    )


@app.command()
def doctor(adapter: o.Adapter = None, json: o.Json = False) -> int:
    """Say which GPU adapters there are, which one is used, and what is missing."""
    from inspector.cli.doctor import examine, show

    report = examine(adapter)
    o.print_json(report) if json else show(report)
    return 0 if report["selected"] is not None else USAGE


@app.command()
def layout(
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
    optimizer: o.Optimizer = "adamw",
    kernel: o.Kernel = "f32",
    codec: o.CodecName = "linear",
    small_state: o.SmallState = "f32",
    no_muon: o.NoMuon = "",
    root_block: o.RootBlock = plan.DEFAULT_ROOT_BLOCK,
    root_every: o.RootEvery = plan.DEFAULT_ROOT_EVERY,
    factors: o.FactorsName = "mean",
    reduce: o.Reduce = "two-pass",
    dispatch: o.DispatchForm = "two-block",
    unfused: o.Unfused = False,
    shaders: Shaders = None,
    json: o.Json = False,
) -> int:
    """Print where every param lies, and the dispatches of a step. Needs no GPU."""
    from inspector.cli.layout import describe, show

    variant = with_shaders(
        o.make_variant(
            optimizer,
            kernel,
            "published",
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
    made = o.open_told(source, steps=False)
    variant = o.form_for(context, made, variant)
    document = describe(made, variant, align=align, max_binding=max_binding, max_buffer=max_buffer)
    o.print_json(document) if json else show(document)
    return 0


@app.command()
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


@app.command()
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
    o.note_idle(variant)
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


@app.command()
def race(
    source: o.SourceArgument = "charlm",
    lane: Annotated[
        list[str] | None,
        typer.Option(
            "--lane",
            metavar="OPTIMIZER[:KEY=VALUE,…]",
            help="What one lane runs, as in adamw or lion:lr=3e-4,weight_decay=1; keys are hyper-parameters, kernel, "
            "codec, numerics and seed. Two to eight.",
        ),
    ] = None,
    steps: Annotated[int, typer.Option(help="Steps that each lane runs.")] = 300,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="SOURCE is a saved race or sweep: run it again and compare the bits."),
    ] = False,
    decay: Annotated[
        bool,
        typer.Option(
            "--decay",
            help="Tell how much of the decay arrived at the elements, by the size of their gradient: for adamw and "
            "adam-l2.",
        ),
    ] = False,
    numerics: o.Numerics = "published",
    stats: o.Stats = None,
    lr: o.Lr = None,
    beta1: o.Beta1 = None,
    beta2: o.Beta2 = None,
    eps: o.Eps = None,
    weight_decay: o.WeightDecay = None,
    max_grad_norm: o.MaxGradNorm = None,
    schedule: o.ScheduleText = None,
    seed: o.Seed = None,
    adapter: o.Adapter = None,
    save: o.SavePath = None,
    capture: o.Capture = None,
    json: o.Json = False,
) -> int:
    """Run several optimizers or settings side by side: the same start, the same batches, own weights each."""
    from inspector.cli.race import Setup, run_again, run_race
    from inspector.race import LaneSpec

    if verify:
        return run_again(Path(source), adapter, json=json)
    lanes = [LaneSpec.from_text(text) for text in lane or ("adamw", "adam-l2", "lion:lr=3e-4", "sgd:lr=0.1")]
    given = o.checked(
        {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": weight_decay,
         "max_grad_norm": max_grad_norm}
    )  # fmt: skip
    o.whole_number("--steps", steps)
    setup = Setup(
        source,
        steps,
        given,
        {"numerics": numerics},
        schedule,
        seed,
        adapter,
        stats or "light",
        capture or "stats",
        decay,
    )
    return run_race(setup, lanes, save, json=json)


@app.command()
def sweep(
    source: o.SourceArgument = "charlm",
    lane: Annotated[
        list[str] | None,
        typer.Option(
            "--lane",
            metavar="OPTIMIZER[:KEY=VALUE,…]",
            help="What is swept, as for race; may be given several times.",
        ),
    ] = None,
    lr: Annotated[
        str,
        typer.Option(help="Learning rates: LOW:HIGH:COUNT on a logarithmic grid, or numbers with commas."),
    ] = "1e-4:1e-1:7",
    seeds: Annotated[int, typer.Option(help="Seeds 0, 1, …: so many runs at each learning rate.", min=1)] = 1,
    steps: Annotated[int, typer.Option(help="Steps of each run.")] = 300,
    numerics: o.Numerics = "published",
    beta1: o.Beta1 = None,
    beta2: o.Beta2 = None,
    eps: o.Eps = None,
    weight_decay: o.WeightDecay = None,
    max_grad_norm: o.MaxGradNorm = None,
    schedule: o.ScheduleText = None,
    adapter: o.Adapter = None,
    save: o.SavePath = None,
    json: o.Json = False,
) -> int:
    """Run optimizers at each of several learning rates and seeds, and print final loss against learning rate."""
    from inspector.cli.race import Setup, run_sweep
    from inspector.race import LaneSpec, log_grid, sweep_lanes

    bases = [LaneSpec.from_text(text) for text in lane or ("adamw",)]
    lanes = sweep_lanes(bases, log_grid(lr), range(seeds))
    given = o.checked(
        {
            "beta1": beta1,
            "beta2": beta2,
            "eps": eps,
            "weight_decay": weight_decay,
            "max_grad_norm": max_grad_norm,
        }
    )
    o.whole_number("--steps", steps)
    setup = Setup(source, steps, given, {"numerics": numerics}, schedule, None, adapter)
    return run_sweep(setup, lanes, save, json=json)


@app.command()
def info(
    session: o.SessionArgument,
    check: Annotated[
        bool, typer.Option("--check", help="Read everything and hold it against its checksums.")
    ] = False,
    json: o.Json = False,
) -> int:
    """Say what a recorded session holds; also while it is being recorded."""
    from inspector.cli.info import describe, show

    document = describe(session, check=check)
    o.print_json(document) if json else show(document)
    return int(bool(document.get("problems")))


@app.command()
def pack(
    session: o.SessionArgument,
    out: Annotated[
        Path | None, typer.Option(help="The zip file to write; NAME.session.zip beside it if left out.")
    ] = None,
    json: o.Json = False,
) -> int:
    """Make one zip file of a session, which opens in place, checking every part on the way."""
    from inspector.cli.info import pack_session
    from inspector.session.recorder import size_text

    document = pack_session(session, out)
    o.print_json(document) if json else print(f"{document['path']}, {size_text(document['bytes'])}")
    return 0


@app.command()
def replay(
    session: Annotated[Path, typer.Argument(help="A recording: a folder or a zip file.", metavar="SESSION")],
    verify: Annotated[
        bool, typer.Option("--verify", help="Exit with 1 where what should be the same bits is not.")
    ] = False,
    first: Annotated[
        int | None, typer.Option("--from", help="First step; the first there is if left out.")
    ] = None,
    last: Annotated[
        int | None, typer.Option("--to", help="Last step; the last there is if left out.")
    ] = None,
    optimizer: Annotated[str | None, typer.Option(**o.OPTIMIZER_OPTION, help="Another optimizer.")] = None,
    kernel: Annotated[plan.Kernel | None, typer.Option(help="Another form of the update kernel.")] = None,
    codec: Annotated[codecs.Codec | None, typer.Option(help="Another codec of 8-bit state.")] = None,
    small_state: Annotated[
        StateType | None, typer.Option(help="Other state of params below 4,096 elements.")
    ] = None,
    numerics: Annotated[Numerics | None, typer.Option(help="Other numerics.")] = None,
    reduce: Annotated[plan.Reduce | None, typer.Option(help="Another way to add up the norm.")] = None,
    dispatch: Annotated[plan.DispatchForm | None, typer.Option(help="Other update dispatches.")] = None,
    fused: Annotated[
        bool | None, typer.Option("--fused/--unfused", help="Clip, zero and mirror in the update, or apart.")
    ] = None,
    shaders: Shaders = None,
    stats: Annotated[
        StatsLevel | None, typer.Option(help="With --save: what is counted; as recorded.")
    ] = None,
    lr: o.Lr = None,
    beta1: o.Beta1 = None,
    beta2: o.Beta2 = None,
    eps: o.Eps = None,
    weight_decay: o.WeightDecay = None,
    max_grad_norm: o.MaxGradNorm = None,
    schedule: o.ScheduleText = None,
    adapter: o.Adapter = None,
    save: Annotated[Path | None, typer.Option(help="Record it as a session of its own.")] = None,
    capture: Annotated[
        str | None, typer.Option(help="With --save: what to capture, as in grads:10+keyframes:100.")
    ] = None,
    breaks: o.Break = None,
    json: o.Json = False,
) -> int:
    """Run a recording again, bit for bit, or its gradients under other settings.

    Exit code 1 if --verify fails, or at a --break.
    """
    from inspector.cli import replay as command
    from inspector.runtime.replay import Changes
    from inspector.schedule import Schedule
    from inspector.session.policy import Policy
    from inspector.session.reader import Session

    if capture is not None:
        Policy.from_text(capture)
    given = {
        "lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": weight_decay,
        "max_grad_norm": max_grad_norm,
    }  # fmt: skip
    form = {
        "optimizer": optimizer, "kernel": kernel, "codec": codec, "small_state": small_state,
        "numerics": numerics, "reduce": reduce, "dispatch": dispatch, "fused": fused,
    }  # fmt: skip
    variant: dict[str, Any] = {name: value for name, value in form.items() if value is not None}
    if shaders is not None:
        with Session.open(session) as opened:
            recorded = opened.about.variant
        made = with_shaders(dataclasses.replace(recorded, **variant), shaders)
        variant |= o.variant_changes(recorded, made)
    changes = Changes(o.checked(given), variant, None if schedule is None else Schedule.from_text(schedule))
    return command.replay(
        command.Request(
            session, first, last, changes, adapter, verify,
            save, capture, stats, json, tuple(breaks or ()),
        )
    )  # fmt: skip


@app.command()
def diff(
    a: Annotated[Path, typer.Argument(help="A recording.", metavar="A")],
    b: Annotated[Path, typer.Argument(help="Another of the same params.", metavar="B")],
    json: o.Json = False,
) -> int:
    """Say where two recordings differ first, and how far apart they go. Needs no GPU."""
    from inspector.cli import diff as command

    return command.diff(a, b, json=json)


@app.command()
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
    o.note_idle(variant)
    return command.diagnose_run(made, hyper, variant, steps, adapter, json=json)


@app.command()
def export(
    session: Annotated[Path, typer.Argument(help="A recording: a folder or a zip file.", metavar="SESSION")],
    out: Annotated[Path, typer.Option(help="The file to write; with tensorboard a new folder.")],
    kind: Annotated[
        Literal["csv", "perfetto", "tensorboard", "safetensors"],
        typer.Option(
            "--format",
            help="A table of steps, a trace of kernel times, a TensorBoard event file, or a captured state.",
        ),
    ] = "csv",
    step: Annotated[
        int | None, typer.Option(help="With safetensors: the state after this step; the last if left out.")
    ] = None,
    json: o.Json = False,
) -> int:
    """Write what a recording holds for other programs."""
    from inspector.cli import export as command

    return command.export(session, kind, out, step=step, json=json)


@app.command("import")
def import_(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="A checkpoint (weights, and the state of the optimizer), the layout file of a dump, or a state file.",
            metavar="FILE…",
        ),
    ],
    save: Annotated[Path, typer.Option("--save", help="The session to write, as NAME.session.")],
    json: o.Json = False,
) -> int:
    """Make a session of what another program saved, and say what it holds."""
    from inspector.cli.importing import import_files
    from inspector.cli.info import describe, show

    import_files(files, save)
    document = describe(save)
    o.print_json(document) if json else show(document)
    return 0


@app.command()
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


@app.command()
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


@app.command()
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


@app.command()
def bench(
    preset: Annotated[str | None, typer.Option(help="A layout by name: gpt-116m.")] = None,
    elements: Annotated[int | None, typer.Option(help="As many elements instead.")] = None,
    samples: Annotated[int, typer.Option(help="Warm steps to time.", min=1)] = 100,
    seconds: Annotated[float, typer.Option(help="Stop after so long even with fewer samples.", min=0)] = 30.0,
    optimizer: o.Optimizer = "adamw",
    kernel: o.Kernel = "f32",
    codec: o.CodecName = "linear",
    small_state: o.SmallState = "f32",
    no_muon: o.NoMuon = "",
    root_block: o.RootBlock = plan.DEFAULT_ROOT_BLOCK,
    root_every: o.RootEvery = plan.DEFAULT_ROOT_EVERY,
    factors: o.FactorsName = "mean",
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
    variant = with_shaders(
        o.make_variant(
            optimizer,
            kernel,
            numerics,
            summed,
            dispatch,
            unfused,
            codec,
            small_state,
            grid,
            no_muon=no_muon,
            root_block=root_block,
            root_every=root_every,
            factors=factors,
        ),
        shaders,
    )
    report = measure(
        Request(
            preset, elements, variant, samples, seconds, seed, adapter,
            every=every, drift_steps=drift_steps, csv=csv, perfetto=perfetto,
        )
    )  # fmt: skip
    o.print_json(report) if json else show(report)
    return 0


@app.command()
def screenshot(
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
    lr: o.Lr = None,
    beta1: o.Beta1 = None,
    beta2: o.Beta2 = None,
    eps: o.Eps = None,
    weight_decay: o.WeightDecay = None,
    max_grad_norm: o.MaxGradNorm = None,
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
    from inspector.cli.window import RunOpener, take_picture

    o.whole_number("--steps", steps)
    o.whole_number("--dispatches", dispatches)
    given = {
        "lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": weight_decay,
        "max_grad_norm": max_grad_norm,
    }  # fmt: skip
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
    opener = RunOpener(
        adapter=adapter, undo_mb=None, schedule=schedule, seed=seed, given=given, shaders=shaders
    )
    variant = o.form_for(context, opener.open_source(source), variant)
    opener = dataclasses.replace(opener, adamw=o.adamw_settings(variant, adamw))
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
