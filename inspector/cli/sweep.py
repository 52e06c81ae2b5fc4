"""`inspector sweep`: lanes at each of several learning rates and seeds, and the rest of a sweep that was ended."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from inspector.cli.options import make_console, print_json
from inspector.cli.race import Outcome, Setup, head, lane_row, run_lanes, show_ends, tell_lanes
from inspector.cli.sweep_table import rate_rows, show_rates
from inspector.errors import InspectorError, UsageError
from inspector.hyper import KERNELS_REVISION
from inspector.race import LaneSpec
from inspector.session.race_file import RaceFile, is_race, lane_folder
from inspector.session.reader import Session
from inspector.sources.base import is_closed_loop
from inspector.sweep import points


def run_sweep(setup: Setup, lanes: Sequence[LaneSpec], save: Path | None, *, json: bool) -> int:
    """Run every lane, some at a time, print and save; 0."""
    source = setup.open(LaneSpec())
    if not is_closed_loop(source):
        raise UsageError(
            f"A sweep compares final losses, and {setup.source} has none that follows from the weights: sweep charlm "
            "or a surface."
        )
    tell_lanes(setup, lanes, "sweep", source)
    _told(_ran(setup, lanes, save), json=json)
    return 0


def resume_sweep(path: Path, adapter: str | None, *, json: bool) -> int:
    """Run what is left of a saved sweep that was ended, print and save; 0."""
    begun = RaceFile.read(path)
    if begun.kind != "sweep":
        raise UsageError(f"{path} is a race: only a sweep, whose runs stand by themselves, is gone on with.")
    for number in range(len(begun.lanes)):
        _check_lane(path / lane_folder(number), done=begun.is_done(number))
    setup = Setup(
        begun.source_from(path),
        begun.steps,
        dict(begun.settings),
        dict(begun.form),
        begun.schedule,
        begun.seed,
        adapter,
    )
    _told(_ran(setup, begun.specs, path, begun), json=json)
    return 0


def _ran(
    setup: Setup, lanes: Sequence[LaneSpec], save: Path | None, begun: RaceFile | None = None
) -> Outcome:
    try:
        return run_lanes(setup, lanes, "sweep", save, begun)
    except KeyboardInterrupt:
        if save is not None and is_race(save):
            print(f"inspector: inspector sweep {save} --resume runs what is left.", file=sys.stderr)
        raise


def _check_lane(folder: Path, *, done: bool) -> None:
    """A problem where a run that is done is of other kernels, or one that is not done still goes on."""
    if done:
        with Session.open(folder) as session:
            if session.about.kernels != KERNELS_REVISION:
                raise UsageError(
                    f"{folder.parent} was begun with another version of the kernels, which rounds otherwise: start "
                    "another sweep."
                )
        return
    # What is damaged is run again.
    with suppress(UsageError), Session.open(folder) as session:
        if session.state == "recording":
            raise InspectorError(f"{folder} is still being recorded: end that sweep first.")


def _told(outcome: Outcome, *, json: bool) -> None:
    document = sweep_document(outcome)
    print_json(document) if json else show_sweep(document)


def sweep_document(outcome: Outcome) -> dict[str, Any]:
    """The document of --json of a sweep: every run, and by optimizer and learning rate the mean over the seeds."""
    runs = [lane_row(str(each.spec), each, outcome.setup) for each in outcome.raced]
    found = points(
        [(each.spec, each.result.final_loss, each.result.diverged is not None) for each in outcome.raced]
    )
    return head(outcome) | {"lanes": runs, **rate_rows(found)}


def show_sweep(document: dict[str, Any]) -> None:
    """Final loss by learning rate for people; the best of each lane is marked."""
    show_rates(make_console(), document)
    show_ends(document)
