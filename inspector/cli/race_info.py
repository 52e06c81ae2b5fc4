"""`inspector info` of a race or a sweep: what it ran, how much of that is done, and what came of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from rich.console import Console

from inspector.byte_sizes import size_text
from inspector.cli.options import make_console, make_table
from inspector.cli.sweep_table import loss_text, rate_rows, show_rates
from inspector.errors import UsageError
from inspector.floats import shortest
from inspector.race import lane_names
from inspector.session.places import open_places
from inspector.session.race_file import RACE_NAME, RaceFile, lane_folder
from inspector.session.reader import Session
from inspector.sweep import base_of, points

MAX_LISTED = 20
"""Rates, seeds and problems that are listed for people; --json has all."""


def describe_race(path: Path, *, check: bool = False) -> dict[str, Any]:
    """The document; UsageError where its file is damaged. With `check` every session of it is read, see `problems`."""
    file = RaceFile.read(path)
    lanes = _lanes(path, file)
    document = {
        "path": str(path),
        "kind": file.kind,
        "source": file.source,
        "closed_loop": file.closed_loop,
        "device": file.device,
        "software": file.software,
        "steps": file.steps,
        "began_at": file.began_at,
        "settings": dict(file.settings),
        "form": dict(file.form),
        "schedule": file.schedule,
        "seed": file.seed,
        "lanes": lanes,
        "done": sum(lane["state"] == "done" for lane in lanes),
        "diverged": sum(lane["diverged"] is not None for lane in lanes),
        "size": (path / RACE_NAME).stat().st_size + sum(lane["size"] for lane in lanes),
        "state": _state(lanes),
        **(_of_sweep(file) if file.kind == "sweep" else {"best": _best_lanes(lanes)}),
    }
    if check:
        document["problems"] = _problems(path, lanes)
    return document


def _lanes(path: Path, file: RaceFile) -> list[dict[str, Any]]:
    rows = []
    names = lane_names(file.specs)
    for number, (name, spec, lane) in enumerate(zip(names, file.specs, file.lanes, strict=True)):
        folder = path / lane_folder(number)
        result, done = lane.result, file.is_done(number)
        state, steps = ("done", result.steps) if done and result is not None else _unfinished(folder)
        rows.append(
            {
                "name": name,
                "session": folder.name,
                "optimizer": spec.optimizer,
                "hyper": dict(spec.hyper),
                "form": dict(spec.form),
                "seed": file.seed if spec.seed is None else spec.seed,
                "state": state,
                "steps": steps,
                "final_loss": result.final_loss if done and result is not None else None,
                "diverged": None if result is None else result.diverged,
                "why": "" if result is None else result.why,
                "weights_sha256": result.weights_sha256 if done and result is not None else None,
                "size": _size(folder),
            }
        )
    return rows


def _unfinished(folder: Path) -> tuple[str, int]:
    """How a lane stands that is not done, and the steps there are of it."""
    if not folder.exists():
        return "waiting", 0
    try:
        with Session.open(folder) as session:
            going = session.state == "recording"
            return ("recording" if going else "interrupted"), session.steps.stop - 1
    except UsageError:
        return "damaged", 0


def _size(folder: Path) -> int:
    try:
        return open_places(folder).nbytes()
    except (OSError, UsageError):
        return 0


def _state(lanes: list[dict[str, Any]]) -> str:
    states = {lane["state"] for lane in lanes}
    if states == {"done"}:
        return "complete"
    # Whether a sweep goes on is not seen between two of its runs.
    return "recording" if "recording" in states else "incomplete"


def _of_sweep(file: RaceFile) -> dict[str, Any]:
    specs = file.specs
    return {
        "bases": list(dict.fromkeys(base_of(spec) for spec in specs)),
        "learning_rates": list(dict.fromkeys(spec.hyper["lr"] for spec in specs if "lr" in spec.hyper)),
        "seeds": list(dict.fromkeys(spec.seed for spec in specs if spec.seed is not None)),
        **rate_rows(points(file.runs)),
    }


def _best_lanes(lanes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lane of the lowest final loss, if any has one; a lane that diverged only where there is no other."""
    ended = [lane for lane in lanes if lane["final_loss"] is not None and not math.isnan(lane["final_loss"])]
    best = min(ended, key=lambda lane: (lane["diverged"] is not None, lane["final_loss"]), default=None)
    return [] if best is None else [{"lane": best["name"], "final_loss": best["final_loss"]}]


def _problems(path: Path, lanes: list[dict[str, Any]]) -> list[str]:
    found = []
    for lane in lanes:
        folder = path / lane["session"]
        if lane["state"] == "waiting":
            continue
        try:
            with Session.open(folder) as session:
                found += [f"{lane['session']}: {problem}" for problem in session.verify()]
        except UsageError as error:
            found.append(str(error))
    return found


def show_race_info(document: dict[str, Any]) -> None:
    """The same for people."""
    console = make_console()
    for name, text in _lines(document):
        console.print(f"{name:<11} {text}", soft_wrap=True)
    if document["kind"] == "sweep":
        show_rates(console, document)
    else:
        _show_lanes(console, document)


def _lines(document: dict[str, Any]) -> list[tuple[str, str]]:
    sweep = document["kind"] == "sweep"
    runs, steps = document["lanes"], document["steps"]
    lines = [("session", document["path"])]
    if sweep:
        bases, rates, seeds = (document[name] for name in ("bases", "learning_rates", "seeds"))
        lines += [
            ("holds", f"a sweep of {_count(len(runs), 'run')}, {_count(steps, 'step')} each"),
            ("lanes", ", ".join(bases)),
            ("rates", _listed([shortest(rate) for rate in rates])),
            ("seeds", _listed([str(seed) for seed in seeds])),
        ]
    else:
        each = f"{_count(steps, 'step')} each" if steps else "for as long as it goes on"
        since = f" from step {document['began_at'] + 1:,} on" if document["began_at"] else ""
        lines.append(("holds", f"a race of {_count(len(runs), 'lane')}, {each}{since}"))
    settings = ", ".join(f"{name} {shortest(value)}" for name, value in document["settings"].items())
    form = ", ".join(f"{name} {value}" for name, value in document["form"].items())
    loop = (
        "" if document["closed_loop"] else ", an open loop: the gradients are the same whatever the weights"
    )
    lines += [
        ("source", f"{document['source']}{loop}"),
        ("settings", settings or "those of the source, but for what a lane says"),
        ("variant", form),
        ("schedule", document["schedule"] or "that of the source"),
        ("device", document["device"]),
        ("software", document["software"]),
        ("finished", _finished(document)),
        *(("best", _best(row)) for row in document["best"]),
        ("size", size_text(document["size"])),
        ("sessions", f"{runs[0]['session']} to {runs[-1]['session']}, each a recording like any other"),
        ("state", _state_words(document)),
    ]
    if (problems := document.get("problems")) is not None:
        lines += [("problem", text) for text in problems[:MAX_LISTED]] or [
            ("checked", "every row and every file is as it was written")
        ]
        if len(problems) > MAX_LISTED:
            lines.append(("problem", f"and {len(problems) - MAX_LISTED:,} more: --json has all"))
    return lines


def _state_words(document: dict[str, Any]) -> str:
    if document["state"] == "recording":
        return "still being recorded: there is more the next time it is read"
    if document["state"] == "incomplete":
        left = "not complete, and nothing of what is left is being recorded now"
        # The runs of a sweep stand by themselves; lanes of a race keep step with each other.
        again = (
            f": inspector sweep {document['path']} --resume runs it" if document["kind"] == "sweep" else ""
        )
        return left + again
    if document["began_at"]:
        return "complete"
    return f"complete: inspector race {document['path']} --verify runs it again and compares the bits"


def _finished(document: dict[str, Any]) -> str:
    what = "run" if document["kind"] == "sweep" else "lane"
    text = f"{document['done']:,} of {_count(len(document['lanes']), what)}"
    return f"{text}; {document['diverged']:,} diverged" if document["diverged"] else text


def _best(row: dict[str, Any]) -> str:
    if "lr" not in row:
        return f"{row['lane']}, final loss {loss_text(row['final_loss'])}"
    text = f"{row['lane']} at lr {shortest(row['lr'])}, final loss {loss_text(row['final_loss'])}"
    if row["seeds"] > 1:
        text += (
            f", the mean of {row['seeds']:,} seeds from {loss_text(row['low'])} to {loss_text(row['high'])}"
        )
    return f"{text}; {_count(row['diverged'], 'run')} diverged" if row["diverged"] else text


def _show_lanes(console: Console, document: dict[str, Any]) -> None:
    table = make_table("lane", "session", right=("steps", "final loss", "seed"))
    table.add_column("")
    for lane in document["lanes"]:
        seed = "–" if lane["seed"] is None else str(lane["seed"])
        table.add_row(
            lane["name"], lane["session"], f"{lane['steps']:,}", loss_text(lane["final_loss"]), seed, _note(lane)
        )  # fmt: skip
    console.print(table)


def _note(lane: dict[str, Any]) -> str:
    if lane["diverged"] is not None:
        return f"diverged at step {lane['diverged']:,}: {lane['why']}"
    return lane["why"] or ("" if lane["state"] == "done" else str(lane["state"]))


def _listed(texts: list[str]) -> str:
    if len(texts) <= MAX_LISTED:
        return ", ".join(texts)
    return f"{len(texts):,}, from {texts[0]} to {texts[-1]}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
