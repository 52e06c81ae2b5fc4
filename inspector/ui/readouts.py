"""What is read out of a history at a step, and of the recordings laid under it; and the step that is picked."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from inspector.history import History
from inspector.runtime.commands import Seek
from inspector.runtime.snapshots import Mark, Snapshot, StepRecord
from inspector.ui import format as fmt

OF_RUN = ("grad_norm", "clip_scale")
"""What `StepRecord.of_run` has, in its order."""


@dataclass(frozen=True, slots=True)
class Readout:
    """One metric in the bucket at a step."""

    low: float
    high: float
    last: float
    gaps: int


def bucket_at(history: History, step: float) -> int | None:
    """The bucket that covers the step nearest to `step`; None in an empty history."""
    if not len(history):
        return None
    at = int(np.searchsorted(history.first, step + 0.5, side="right")) - 1
    at = max(at, 0)
    if at + 1 < len(history) and history.stride == 1:
        # Steps that were not recorded leave holes: take the nearer side.
        before, after = step - history.first[at], history.first[at + 1] - step
        at += int(after < before)
    return at


def bucket_steps(history: History, bucket: int) -> str:
    """The steps of a bucket in words: "step 128" or "steps 128 to 135"."""
    first = int(history.first[bucket])
    if history.stride == 1:
        return f"step {first:,}"
    return f"steps {first:,} to {first + history.stride - 1:,}"


def read_out(history: History, name: str, bucket: int) -> Readout | None:
    """The metric in a bucket; None where it was never recorded at all."""
    series = history.series.get(name)
    if series is None or bucket >= len(series.last):
        return None
    return Readout(
        float(series.low[bucket]),
        float(series.high[bucket]),
        float(series.last[bucket]),
        int(series.gaps[bucket]),
    )


def covers(history: History, step: float) -> bool:
    """True from the first step of a history to the last."""
    return bool(len(history) and history.first[0] - 0.5 <= step < history.first[-1] + history.stride - 0.5)


def picked_step(snapshot: Snapshot | None, at: float) -> Seek | None:
    """What to send to go to the step at `at` on the x axis; None where the history has none there."""
    if snapshot is None or snapshot.mode not in ("paused", "running") or not covers(snapshot.history, at):
        return None
    step = round(at)
    return Seek(step) if snapshot.last_step is None or step <= snapshot.last_step else None


def read_out_at(history: History, name: str, step: float) -> Readout | None:
    """The metric at the step nearest to `step`; None beyond the first and last one, and where it is not known."""
    if not covers(history, step):
        return None
    bucket = bucket_at(history, step)
    found = None if bucket is None else read_out(history, name, bucket)
    return None if found is None or (math.isnan(found.last) and not found.gaps) else found


def bookmark_mark(mark: Mark) -> Mark:
    """A bookmark as the plots write it."""
    return Mark(mark.step, f"bookmark: {mark.text}")


def in_progress(snapshot: Snapshot) -> StepRecord | None:
    """The record of a step that has begun and not ended: the history does not have it yet."""
    record, cursor, first = snapshot.record, snapshot.cursor, snapshot.history.first
    if record is None or cursor is None or cursor.at_end or record.step != cursor.step:
        return None
    return record if not len(first) or int(first[-1]) < record.step else None


def known_value(record: StepRecord | None, name: str) -> float | None:
    """A number of a step, None while it is not known."""
    if record is not None and name in OF_RUN:
        value = record.of_run[OF_RUN.index(name)]
    else:
        value = getattr(record, name, None)
    return None if value is None else float(value)


def value_text(value: Readout) -> str:
    """What is read out, with the range and the gaps of a bucket of several steps."""
    text = fmt.number(value.last)
    if value.low < value.high:
        text += f" ({fmt.number(value.low)} to {fmt.number(value.high)})"
    if value.gaps > 1:
        text += f", {value.gaps:,} NaN"
    return text
