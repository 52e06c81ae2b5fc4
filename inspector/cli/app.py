"""The command line as a whole: which commands there are, in the order in which help tells them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from inspector import __version__
from inspector.cli.commands import measuring, racing, running, sessions, window
from inspector.cli.option_groups import with_options_apart

COMMANDS: dict[str, Callable[..., int]] = {
    "window": window.window,
    "doctor": measuring.doctor,
    "layout": measuring.layout,
    "memory": measuring.memory,
    "run": running.run,
    "race": racing.race,
    "sweep": racing.sweep,
    "info": sessions.info,
    "pack": sessions.pack,
    "replay": sessions.replay,
    "diff": sessions.diff,
    "diagnose": running.diagnose,
    "export": sessions.export,
    "import": sessions.import_,
    "explain": running.explain,
    "policies": running.policies,
    "report": running.report,
    "bench": measuring.bench,
    "screenshot": window.screenshot,
}

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


for name, command in COMMANDS.items():
    app.command(name)(with_options_apart(command))
