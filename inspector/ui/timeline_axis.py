"""The step axis of the timeline: its length, its ticks, and what happened where. No Qt."""

from __future__ import annotations

import math
from collections.abc import Iterator

from inspector.runtime.snapshots import Snapshot
from inspector.stepping import Cursor


def position(cursor: Cursor) -> float:
    """A cursor on the axis: finished steps, and the part of the one in progress."""
    if cursor.at_end or not cursor.count:
        return float(cursor.finished_steps)
    return cursor.finished_steps + cursor.dispatch / cursor.count


def axis_end(known: int) -> int:
    """A round number of steps with some room ahead, so that the axis rarely changes while it runs."""
    room = max(known * 1.1, 20)
    decade = 10 ** math.floor(math.log10(room))
    return int(next(decade * m for m in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if decade * m >= room))


def tick_steps(end: int, most: int) -> Iterator[int]:
    """Round steps from 0 to `end`, at most about `most`."""
    least = max(end / max(most, 1), 1)
    decade = 10 ** math.floor(math.log10(least))
    step = int(next(decade * m for m in (1, 2, 5, 10) if decade * m >= least * 0.999))
    return iter(range(0, end + 1, step))


def sign_texts(snapshot: Snapshot) -> dict[int, str]:
    """What happened at a step, by step."""
    texts: dict[int, str] = {}
    for mark in snapshot.marks:
        texts[mark.step] = "\n".join(
            filter(
                None,
                (texts.get(mark.step), f"{'Step' if mark.stop else 'From step'} {mark.step:,}: {mark.text}"),
            )
        )
    for finding in snapshot.findings:
        # One step may have hundreds; the findings view lists them.
        if texts.get(finding.step, "").count("\n") < 4:
            texts[finding.step] = "\n".join(filter(None, (texts.get(finding.step), finding.message)))
    return texts
