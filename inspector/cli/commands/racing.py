"""Commands that run several optimizers or settings side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from inspector.cli import options as o
from inspector.cli.step_options import SettingOptions, checked, note_idle_lanes, refuse_all_but
from inspector.errors import UsageError
from inspector.race import LaneSpec


def race(
    *,
    context: typer.Context,
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
    steps: Annotated[
        int | None,
        typer.Option(
            help="Steps that each lane runs; 300 if left out, or as many as SOURCE has gradients for."
        ),
    ] = None,
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
    settings: SettingOptions,
    schedule: o.ScheduleText = None,
    seed: o.Seed = None,
    adapter: o.Adapter = None,
    save: o.SavePath = None,
    capture: o.Capture = None,
    json: o.Json = False,
) -> int:
    """Run several optimizers or settings side by side: the same start, the same batches, own weights each."""
    from inspector.cli.race import DEFAULT_STEPS, Setup, run_race, steps_of
    from inspector.cli.race_again import run_again
    from inspector.cli.recording import check_saved

    if verify:
        _refuse_beside(context, "verify", "runs a race again as it was saved")
        return run_again(Path(source), adapter, json=json)
    if capture is not None:
        check_saved("--capture", save)
    lanes = _lanes(lane or ("adamw", "adam-l2", "lion:lr=3e-4", "sgd:lr=0.1"))
    given = _settings_of(lanes, settings)
    if steps is None:
        there = steps_of(o.make_source(source, schedule, seed))
        steps = DEFAULT_STEPS if there is None else min(DEFAULT_STEPS, there)
    setup = Setup(
        source,
        o.whole_number("--steps", steps),
        given,
        {"numerics": numerics},
        schedule,
        seed,
        adapter,
        stats,
        capture or "stats",
        decay,
    )
    return run_race(setup, lanes, save, json=json)


def sweep(
    *,
    context: typer.Context,
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
    settings: SettingOptions,
    schedule: o.ScheduleText = None,
    adapter: o.Adapter = None,
    save: o.SavePath = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="SOURCE is a saved sweep that was ended: run what is left of it."),
    ] = False,
    json: o.Json = False,
) -> int:
    """Run optimizers at each of several learning rates and seeds, and print final loss against learning rate."""
    from inspector.cli.race import Setup
    from inspector.cli.sweep import resume_sweep, run_sweep
    from inspector.race import log_grid, sweep_lanes

    if resume:
        _refuse_beside(context, "resume", "runs what is left of a sweep as it was saved")
        return resume_sweep(Path(source), adapter, json=json)
    bases = _lanes(lane or ("adamw",))
    lanes = sweep_lanes(bases, log_grid(lr), range(seeds))
    given = _settings_of(bases, settings)
    o.whole_number("--steps", steps)
    if not steps:
        raise UsageError("--steps 0 leaves no loss to compare: give at least 1.")
    setup = Setup(source, steps, given, {"numerics": numerics}, schedule, None, adapter)
    return run_sweep(setup, lanes, save, json=json)


def _refuse_beside(context: typer.Context, option: str, what: str) -> None:
    """UsageError where an option that says how to run stands beside --verify or --resume, which does `what`."""
    used = ("source", option, "adapter", "json")
    refuse_all_but(context, used, f"--{option} {what}: leave {{option}} out.")


def _lanes(texts: Iterable[str]) -> list[LaneSpec]:
    return [LaneSpec.from_text(text) for text in texts]


def _settings_of(lanes: Sequence[LaneSpec], settings: SettingOptions) -> dict[str, float]:
    """The hyper-parameters that were typed for all lanes; what does nothing, there or in a lane, is told."""
    given = checked(o.as_dict(settings))
    note_idle_lanes(lanes, given)
    return given
