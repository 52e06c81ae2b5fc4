"""Values looked for in the run or in what was captured of a step, and values written to a file; both can be ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from inspector.errors import UsageError
from inspector.files import replacing
from inspector.floats import F32Array
from inspector.layout import Layout
from inspector.looking import Hits
from inspector.stepping import Stepper
from inspector.stores import Lane
from inspector.value_search import matches

if TYPE_CHECKING:
    from inspector.runtime.commands import FindValue, SaveValues
    from inspector.runtime.recorded import RecordedRun

CHUNK = 1 << 20
"""Captured elements that are looked at between two looks at what else is asked for."""
CSV_ROWS = 1 << 15

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Found:
    """The answer to `asked`, of step `step`: `count` elements match, `index`, flat, of `param` is the one gone to.

    `param` is None where none matches. `wrapped` where the search went on at the other end. `ended` where it was ended
    before it was through.
    """

    asked: FindValue
    step: int
    count: int = 0
    param: str | None = None
    index: int = 0
    wrapped: bool = False
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Working:
    """What is being done, and how far: 0 of 0 at first. `ends` where CancelWork ends it."""

    doing: str
    done: int = 0
    of: int = 0
    ends: bool = True


Find = Callable[[int, int, int | None], Hits]
"""Matches in elements [start, stop) of the mega-buffers, and the nearest to a place."""


def find_on_device(stepper: Stepper, asked: FindValue, progress: Progress) -> Found:
    """Look for values in the buffers as they stand."""
    lane, query = asked.lane, asked.query
    if query.kind == "changed" and lane not in stepper.changed_lanes():
        return Found(asked, stepper.cursor.step)

    def find(start: int, stop: int, at: int | None) -> Hits:
        return stepper.looker.find(lane, query, start, stop, at, progress)

    return _nearest(asked, stepper.layout, stepper.cursor.step, find, progress)


def find_in_capture(
    recorded: RecordedRun, step: int, layout: Layout, asked: FindValue, progress: Progress
) -> Found:
    """Look for values in what was captured of a step; UsageError where that was not."""
    if asked.query.kind == "changed":
        raise UsageError("What a dispatch changed is known once the buffers of the step are rebuilt.")
    if not recorded.has_state(step):
        raise UsageError(
            f"The state after step {step:,} was not captured: go to a captured step, or rebuild this one."
        )
    done = 0

    def find(start: int, stop: int, at: int | None) -> Hits:
        nonlocal done
        found = Hits()
        for segment in layout.between(start, stop):
            for low in range(0, segment.numel, CHUNK):
                high = min(low + CHUNK, segment.numel)
                values = np.zeros(high - low, np.float32)
                if asked.lane != "g":
                    values = recorded.session.window(asked.lane, step, segment.name, low, high)
                where = np.flatnonzero(matches(asked.query, values)) + segment.offset + low
                found = _joined(found, where, at)
                done += high - low
                progress(done, stop - start)
        return found

    return _nearest(asked, layout, step, find, progress)


def _joined(found: Hits, where: np.ndarray, at: int | None) -> Hits:
    """The hits with more, which lie behind all of them."""
    if not len(where):
        return found
    after = where if at is None else where[where > at]
    before = where[:0] if at is None else where[where < at]
    return Hits(
        found.count + len(where),
        int(where[0]) if found.first is None else found.first,
        int(where[-1]),
        int(after[0]) if found.next is None and len(after) else found.next,
        int(before[-1]) if len(before) else found.previous,
    )


def _nearest(asked: FindValue, layout: Layout, step: int, find: Find, progress: Progress) -> Found:
    at = None
    if asked.at is not None and asked.at[0] in layout:
        at = layout[asked.at[0]].offset + asked.at[1]
    if asked.within is not None:
        end = max((s.stop for s in layout.segments), default=0)
        parts = layout.between(*asked.within)
        low, high = max(asked.within[0], 0), min(asked.within[1], end)
        spans = [(max(s.offset, low), min(s.stop, high)) for s in parts if s.numel]
    elif asked.param is not None:
        if asked.param not in layout:
            raise UsageError(f"There is no param {asked.param!r} in this run.")
        segment = layout[asked.param]
        spans = [(segment.offset, segment.stop)]
        if at is not None and not segment.offset <= at < segment.stop:
            at = None
    else:
        end = max((s.stop for s in layout.segments), default=0)
        # Gaps hold zeros, which are nobody's.
        spans = list(layout.filled_runs()) if asked.query.holds_zero else [(0, end)]
    all_of = _over(spans, at, find, progress)
    place = all_of.previous if asked.backwards else all_of.next
    wrapped = place is None and at is not None
    if place is None:
        place = all_of.last if asked.backwards else all_of.first
    if place is None:
        return Found(asked, step, all_of.count)
    segment_at = layout.at(place)
    assert segment_at is not None
    return Found(
        asked, step, all_of.count, segment_at.name, place - segment_at.offset, wrapped and all_of.count > 0
    )


def _over(spans: list[tuple[int, int]], at: int | None, find: Find, progress: Progress) -> Hits:
    """The hits of several spans, in order, as one."""
    count, first, last, after, before = 0, None, None, None, None
    for number, (start, stop) in enumerate(spans):
        if number:
            progress(number, len(spans))
        within = at is not None and start <= at < stop
        part = find(start, stop, at if within else None)
        count += part.count
        first = part.first if first is None else first
        last = last if part.last is None else part.last
        if within:
            after, before = part.next, part.previous if part.previous is not None else before
        elif at is not None and stop <= at:
            before = before if part.last is None else part.last
        elif after is None:
            after = part.first
    return Hits(count, first, last, after, before)


# --- to a file


def save_values(stepper: Stepper, asked: SaveValues, progress: Progress) -> int:
    """Write elements of a param as CSV, before and after the last dispatch; how many rows there are.

    UsageError where the file cannot be written; a search that is ended leaves no file.
    """
    layout = stepper.layout
    if asked.param not in layout:
        raise UsageError(f"There is no param {asked.param!r} in this run.")
    segment = layout[asked.param]
    start = min(max(asked.start, 0), segment.numel)
    stop = segment.numel if asked.count is None else min(start + asked.count, segment.numel)
    changed = stepper.changed_lanes()
    axes = [f"i{axis}" for axis in range(len(segment.param.shape))]
    titles = ["flat", *axes]
    for lane in asked.lanes:
        titles += [f"{lane}_before", f"{lane}_after"] if lane in changed else [lane]
    with replacing(Path(asked.path)) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        file.write(",".join(titles) + "\n")
        for low in range(start, stop, CSV_ROWS):
            progress(low - start, stop - start)
            high = min(low + CSV_ROWS, stop)
            flat = np.arange(low, high)
            columns = [flat.astype(str)]
            if axes:
                columns += [at.astype(str) for at in np.unravel_index(flat, segment.param.shape)]
            for lane in asked.lanes:
                for before in (True, False) if lane in changed else (False,):
                    columns.append(_texts(stepper, lane, segment.offset + low, high - low, before))
            file.write("\n".join(map(",".join, zip(*columns, strict=True))) + "\n")
    return stop - start


def _texts(stepper: Stepper, lane: Lane, first: int, count: int, before: bool) -> np.ndarray:
    values: F32Array = stepper.read(lane, first, count, before=before)
    # The shortest text that reads back as the same float32.
    texts = values.astype(str)
    texts[np.isnan(values)] = "NaN"
    return texts
