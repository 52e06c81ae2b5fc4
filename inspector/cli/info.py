"""`inspector info`: what a recorded session holds; `inspector pack`: one zip file of it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from inspector.byte_sizes import limit_text, size_text
from inspector.cli.options import make_console
from inspector.cli.race_info import describe_race, show_race_info
from inspector.errors import UsageError
from inspector.floats import shortest
from inspector.hyper import HYPER_NAMES
from inspector.session.archive import pack
from inspector.session.race_file import is_race
from inspector.session.reader import Session
from inspector.session.session_info import how_to_go_on
from inspector.settings import SETTING_NAMES

MAX_SHOWN = 20
"""Changes, and gaps, that are listed for people; --json has all."""
_STATES = {
    "complete": "complete",
    "recording": "still being recorded: it can be followed, and has more the next time it is read",
}


def describe(path: Path, *, check: bool = False) -> dict[str, Any]:
    """The document; UsageError where there is no session, or it is damaged. Of a race and of a sweep it is another one.

    `problems` is there with `check`, for which every row and file is read.
    """
    if is_race(path):
        return describe_race(path, check=check)
    with Session.open(path) as session:
        document = _document(session)
        if check:
            document["problems"] = [*document.get("problems", []), *session.verify()]
        return document


def _document(session: Session) -> dict[str, Any]:
    about = session.about
    return {
        **session.info(),
        "hyper": {name: getattr(about.hyper, name) for name in HYPER_NAMES},
        "schedule": about.schedule,
        "clipped_before": _clipped_before(session),
        "planned_steps": about.planned_steps,
        "capture_steps": {
            "gradients": list(session.captures("gradients")),
            "keyframes": list(session.captures("keyframe")),
        },
        "changes": [{"step": note.step, "text": note.text} for note in session.notes("mark")],
        **_bookmarks(session),
        "followable": session.state == "recording",
    }


def _clipped_before(session: Session) -> int:
    """The steps whose gradients the program that was recorded had clipped before they were captured."""
    if not session.about.origin or not len(session.steps):
        return 0
    known = session.known("grad_norm") & session.known("clip_scale")
    clipped = known & (session.metric("clip_scale") != 1)
    return int((clipped & ~np.isfinite(session.metric("max_grad_norm"))).sum())


def _state(document: dict[str, Any]) -> str:
    if document["state"] == "interrupted":
        how = how_to_go_on(document["source"], document["path"])
        return f"interrupted: all up to its last step can be used, and {how}"
    return _STATES[document["state"]]


def _bookmarks(session: Session) -> dict[str, Any]:
    """Those that were set, or what is wrong with their file: the rest of the session is as sound as it was."""
    try:
        found = session.bookmarks().all
    except UsageError as error:
        return {"bookmarks": [], "problems": [str(error)]}
    return {"bookmarks": [{"step": each.step, "text": each.text} for each in found]}


def pack_session(path: Path, out: Path | None) -> dict[str, Any]:
    """Write the zip file and say where it is; UsageError where the session is damaged or still recorded."""
    packed = pack(path, out)
    return {"path": str(packed), "bytes": packed.stat().st_size}


def show(document: dict[str, Any]) -> None:
    """The same for people."""
    if "kind" in document:
        show_race_info(document)
        return
    console = make_console()
    for name, text in _lines(document):
        console.print(f"{name:<11} {text}", soft_wrap=True)


def _parent_words(parent: dict[str, Any]) -> str:
    steps = parent["steps"]
    changes = ", ".join(f"{name} {text}" for name, text in parent["changes"].items()) or "nothing changed"
    return f"steps {steps['first']:,} to {steps['last']:,} of {parent['path']} again, {changes}"


def _layout_words(layout: dict[str, Any] | None, *, grown: bool) -> str:
    if layout is None:
        return "another once params joined" if grown else "not recorded by the version that made it"
    pages = len(layout["pages"])
    blocks = ", ".join(
        f"{b['name'].replace('_', '-')} {b['start']:,} to {b['stop']:,}" for b in layout["blocks"]
    )
    coded = sum(p["state"] == "8bit" for p in layout["params"])
    when = "" if layout["step"] is None else f"in step {layout['step']:,}, with all params: "
    state = f"; m and v of {coded:,} params in 8 bits" if coded else ""
    return (
        f"{when}aligned to {layout['align_bytes']:,} bytes, {layout['padded_elements']:,} elements with gaps in "
        f"{pages} page{'s' if pages != 1 else ''}, {blocks}{state}; bindings of at most "
        f"{limit_text(layout['max_binding_bytes'])}"
    )


def _origin_words(document: dict[str, Any]) -> list[tuple[str, str]]:
    """What is there to say of a run that another program made."""
    lines = []
    if document["origin"]:
        lines.append(("origin", document["origin"]))
    if document["dtypes"]:
        kept = ", ".join(f"{count:,} in {name}" for name, count in document["dtypes"].items())
        lines.append(("kept as", f"params: {kept}"))
    if rank := document["rank"]:
        sharded = rank["sharded_params"]
        part = f", with a part each of {sharded:,} params" if sharded else ""
        lines.append(("process", f"rank {rank['rank']} of {rank['of']}{part}"))
    if ranks := document["ranks"]:
        lines.append(("processes", f"{len(ranks):,} ranks, joined"))
        for each in ranks[:MAX_SHOWN]:
            why = f": {each['ended_because']}" if each["ended_because"] else ""
            lines.append(
                (
                    f"rank {each['rank']}",
                    f"{each['elements']:,} elements, to step {each['last']:,}, {each['state']}{why}",
                )
            )
        if len(ranks) > MAX_SHOWN:
            lines.append(("rank", f"and {len(ranks) - MAX_SHOWN:,} more: --json has all"))
    for each in document["added"]:
        lines.append(
            ("joined", f"params after the first {each['params']:,} take part from step {each['step']:,} on")
        )
    if clipped := document["clipped_before"]:
        lines.append(
            (
                "norm",
                f"of {clipped:,} step{'s' if clipped != 1 else ''} before clipping, which the program did itself: "
                "captured gradients are those after it, and the kernels here work out their norm",
            )
        )
    if document["unreplayable"]:
        lines.append(("replay", document["unreplayable"]))
    return lines


def _group_words(groups: list[dict[str, Any]] | None) -> list[tuple[str, str]]:
    return [
        (
            f"settings {i}",
            ", ".join(f"{name} {shortest(group[name])}" for name in SETTING_NAMES)
            + f": {group['params']:,} param{'s' if group['params'] != 1 else ''}",
        )
        for i, group in enumerate(groups or ())
    ]


def _lines(document: dict[str, Any]) -> list[tuple[str, str]]:
    device, steps, captures = document["device"], document["steps"], document["captures"]
    first, last, count, planned = steps["first"], steps["last"], steps["count"], document["planned_steps"]
    variant = ", ".join(f"{name} {value}" for name, value in document["variant"].items() if value != "")
    if document["foreign"]:
        variant = f"optimizer {document['foreign']}, which is none of those here"
    hyper = ", ".join(f"{name} {shortest(value)}" for name, value in document["hyper"].items())
    lines = [
        ("session", document["path"]),
        ("source", f"{document['source']}: {document['description']}"),
        *([("parent", _parent_words(document["parent"]))] if document["parent"] else []),
        ("params", f"{document['params']:,}, {document['elements']:,} elements"),
        *_origin_words(document),
        ("layout", _layout_words(document["layout"], grown=bool(document["added"]))),
        ("device", f"{device['name']} ({device['backend']}{', on the CPU' if device['software'] else ''})"),
        ("variant", variant),
        ("hyper", f"{hyper}, schedule {document['schedule']}"),
        *_group_words(document["groups"]),
        (
            "steps",
            (f"{count:,}, {first:,} to {last:,}" if count else "none")
            + (f", of {planned:,} planned" if planned is not None and planned > count else ""),
        ),
        (
            "captures",
            f"{document['policy']}: gradients of {captures['gradients']:,} steps, {captures['keyframe']:,} keyframes",
        ),
        ("statistics", document["stats"]),
        ("findings", f"{document['findings']:,}"),
        ("size", size_text(document["size"])),
        ("state", _state(document)),
        ("began", f"{datetime.fromtimestamp(document['began']).astimezone():%Y-%m-%d %H:%M:%S %z}"),
    ]
    if document["ended_because"]:
        lines.append(("ended", document["ended_because"]))
    changes = [f"step {each['step']:,}: {each['text']}" for each in document["changes"]]
    for name, texts in (("change", changes), ("gap", document["gaps"])):
        lines += [(name, text) for text in texts[:MAX_SHOWN]]
        if len(texts) > MAX_SHOWN:
            lines.append((name, f"and {len(texts) - MAX_SHOWN:,} more: --json has all"))
    problems = document.get("problems")
    if problems is not None:
        lines += [("problem", text) for text in problems] or [
            ("checked", "every row and every file is as it was written")
        ]
    return lines
