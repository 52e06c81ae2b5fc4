"""The decay that elements received, by the size of their gradient: the document, and the same for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from inspector.cli.options import make_table
from inspector.decay import deciles
from inspector.floats import significant
from inspector.runtime.decay_watch import DecayPicture


def decay_document(picture: DecayPicture) -> dict[str, Any]:
    """Medians by decile of the RMS gradient, and the elements that are in none; "reason" where it was not watched."""
    bins = picture.bins
    if bins is None:
        return {"reason": picture.reason or "no step was measured", "deciles": []}
    return {
        "reason": picture.reason,
        "since": picture.since,
        "steps": bins.steps,
        "elements": picture.elements,
        "in_bins": bins.total,
        "without_decay": bins.undecayed,
        "without_gradient": bins.silent,
        "opposite_sign": bins.reversed,
        "outside": bins.outside,
        "bin_octaves": {"gradient": bins.grid.dx, "share": bins.grid.dy},
        "deciles": [
            {"decile": k, "rms_gradient": row.gradient, "share": row.share}
            for k, row in enumerate(deciles(bins), 1)
        ],
    }


def show_decay(console: Console, lanes: Sequence[dict[str, Any]]) -> None:
    """A table with the medians of each lane beside each other; nothing where none was watched."""
    watched = [lane for lane in lanes if lane.get("decay", {}).get("deciles")]
    if watched:
        table = make_table(
            right=("decile", *(f"{lane['name']} {what}" for lane in watched for what in ("RMS g'", "share"))),
            title="Decay received, as a share of lr·λ·w: medians",
        )  # fmt: skip
        for k in range(len(watched[0]["decay"]["deciles"])):
            rows = [lane["decay"]["deciles"][k] for lane in watched]
            table.add_row(
                str(k + 1), *(significant(row[key], 3) for row in rows for key in ("rms_gradient", "share"))
            )
        console.print(table)
    for lane in lanes:
        if lane.get("decay", {}).get("reason"):
            console.print(f"Decay of {lane['name']}: {lane['decay']['reason']}")
