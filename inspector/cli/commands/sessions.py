"""Commands on recordings, and on files that become one."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from inspector import codecs, plan
from inspector.cli import options as o
from inspector.cli.shaders import Shaders, with_shaders
from inspector.cli.step_options import SettingOptions, checked, variant_changes
from inspector.hyper import Numerics
from inspector.layout import StateType
from inspector.statistics import StatsLevel


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


def pack(
    session: o.SessionArgument,
    out: Annotated[
        Path | None, typer.Option(help="The zip file to write; NAME.session.zip beside it if left out.")
    ] = None,
    json: o.Json = False,
) -> int:
    """Make one zip file of a session, which opens in place, checking every part on the way."""
    from inspector.byte_sizes import size_text
    from inspector.cli.info import pack_session

    document = pack_session(session, out)
    o.print_json(document) if json else print(f"{document['path']}, {size_text(document['bytes'])}")
    return 0


def replay(
    *,
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
    settings: SettingOptions,
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
    from inspector.cli.recording import check_saved
    from inspector.runtime.replay import Changes
    from inspector.schedule import Schedule
    from inspector.session.policy import Policy
    from inspector.session.reader import Session

    if capture is not None:
        check_saved("--capture", save)
        Policy.from_text(capture)
    form = {
        "optimizer": optimizer, "kernel": kernel, "codec": codec, "small_state": small_state,
        "numerics": numerics, "reduce": reduce, "dispatch": dispatch, "fused": fused,
    }  # fmt: skip
    variant: dict[str, Any] = {name: value for name, value in form.items() if value is not None}
    if shaders is not None:
        with Session.open(session) as opened:
            recorded = opened.about.variant
        made = with_shaders(dataclasses.replace(recorded, **variant), shaders)
        variant |= variant_changes(recorded, made)
    changes = Changes(
        checked(o.as_dict(settings)), variant, None if schedule is None else Schedule.from_text(schedule)
    )
    return command.replay(
        command.Request(
            session, first, last, changes, adapter, verify,
            save, capture, stats, json, tuple(breaks or ()),
        )
    )  # fmt: skip


def diff(
    a: Annotated[Path, typer.Argument(help="A recording.", metavar="A")],
    b: Annotated[Path, typer.Argument(help="Another of the same params.", metavar="B")],
    json: o.Json = False,
) -> int:
    """Say where two recordings differ first, and how far apart they go. Needs no GPU."""
    from inspector.cli import diff as command

    return command.diff(a, b, json=json)


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
