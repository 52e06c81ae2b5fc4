"""`inspector info`: what a recorded session holds, without a device."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from inspector.cli.options import make_console, make_table
from inspector.session.reader import Session


def describe(path: Path, *, check: bool) -> dict[str, Any]:
    """The document of --json; `problems` is there with `check`, for which every row and file is read."""
    with Session.open(path) as session:
        document = session.info()
        if check:
            document["problems"] = session.verify()
        return document


def show(document: dict[str, Any]) -> None:
    """Print it for people."""
    console = make_console()
    steps, captures = document["steps"], document["captures"]
    variant = ", ".join(f"{name} {value}" for name, value in document["variant"].items())
    span = f"{steps['count']:,}, {steps['first']:,} to {steps['last']:,}" if steps["count"] else "none"
    began = time.strftime("%Y-%m-%d %H:%M", time.localtime(document["began"]))
    table = make_table("", "")
    for name, text in (
        ("state", document["ended_because"] or document["state"]),
        ("source", " · ".join(filter(None, (document["source"], document["description"])))),
        ("params", f"{document['elements']:,} elements in {document['params']:,}"),
        ("device", f"{document['device']['name']} ({document['device']['backend']})"),
        ("variant", variant),
        ("steps", span),
        ("captures", f"{captures['gradients']:,} gradients, {captures['keyframe']:,} keyframes ({document['policy']})"),
        ("statistics", document["stats"]),
        ("findings", f"{document['findings']:,}"),
        ("size", f"{document['size'] / 1e6:,.1f} MB"),
        ("recorded", f"{began} by {document['software']}, format {document['format']}"),
    ):  # fmt: skip
        table.add_row(name, text)
    console.print(table)
    for line in (*document["gaps"], *document.get("problems", ())):
        console.print(f"- {line}", soft_wrap=True)
    if "problems" in document and not document["problems"]:
        console.print("Every row and every file is as it was written.")
