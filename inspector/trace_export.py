"""Dispatch times as a trace that ui.perfetto.dev and chrome://tracing open.

The format is the Trace Event Format's JSON object form: complete events ("X") with `ts` and `dur` in µs, here with
nanoseconds behind the point, and metadata events ("M") that name the tracks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inspector.floats import to_json
from inspector.plan import Dispatch
from inspector.stepping import KernelTime

PROCESS = 1
ROWS_A_TRACK = 1 << 16
"""Thread ids kept free for each track: dispatches that overlap lie in rows of their own."""


@dataclass(frozen=True, slots=True)
class Track:
    """The last steps of one variant: the times of `dispatches` for each step, in ms."""

    name: str
    dispatches: tuple[Dispatch, ...]
    steps: Sequence[Sequence[KernelTime]]


@dataclass(frozen=True, slots=True)
class _Placed:
    """A dispatch in time, both ends in whole ns from the beginning of its track; `ms` is what was measured."""

    dispatch: Dispatch
    time: KernelTime
    start: int
    stop: int


def chrome_trace(tracks: Sequence[Track], *, device: str, facts: Mapping[str, Any] | None = None) -> str:
    """The trace as JSON text: one track a variant, each from 0 on, a slice a step and in it one a dispatch.

    Where the device's clock says when a dispatch began it stands there; elsewhere the dispatches of a step
    follow each other. A dispatch whose time is not known is an instant ("i"), one at low clocks says `cold`. `facts`
    go to `otherData`.
    """
    events: list[dict[str, Any]] = [_meta("process_name", 0, {"name": device})]
    for number, track in enumerate(tracks):
        events += _track_events(track, 1 + number * ROWS_A_TRACK)
    document = {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {"device": device, **(facts or {})},
    }
    return json.dumps(to_json(document), ensure_ascii=False, allow_nan=False) + "\n"


def _track_events(track: Track, thread: int) -> list[dict[str, Any]]:
    events = [
        _meta("thread_name", thread, {"name": track.name}),
        _meta("thread_sort_index", thread, {"sort_index": thread}),
    ]
    named = {thread}
    known = [t.began_ms for step in track.steps for t in step if t.began_ms is not None]
    origin = min(known, default=0.0)
    at = 0
    for number, times in enumerate(track.steps, start=1):
        placed = _place(track.dispatches, times, origin, at)
        timed = [p for p in placed if p.time.ms is not None]
        if not timed:
            continue
        start, stop = min(p.start for p in timed), max(p.stop for p in timed)
        at = stop
        events.append(_slice(f"step {number} of {len(track.steps)}", "step", thread, start, stop, {}))
        ends: list[int] = []
        for each in sorted(placed, key=lambda p: (p.start, p.stop)):
            row = next((i for i, end in enumerate(ends) if end <= each.start), len(ends))
            ends[row : row + 1] = [each.stop]
            if thread + row not in named:
                named.add(thread + row)
                events.append(_meta("thread_name", thread + row, {"name": f"{track.name} (overlapping)"}))
                events.append(_meta("thread_sort_index", thread + row, {"sort_index": thread + row}))
            events.append(_dispatch_event(each, thread + row))
    return events


def _place(
    dispatches: Sequence[Dispatch], times: Sequence[KernelTime], origin: float, at: int
) -> list[_Placed]:
    """Where each dispatch of a step lies; those without a beginning follow the one before, the first at `at`."""
    placed = []
    for dispatch, time in zip(dispatches, times, strict=True):
        start = at if time.began_ms is None else round((time.began_ms - origin) * 1e6)
        at = start if time.ms is None else start + round(time.ms * 1e6)
        placed.append(_Placed(dispatch, time, start, at))
    return placed


def _dispatch_event(placed: _Placed, thread: int) -> dict[str, Any]:
    dispatch, time = placed.dispatch, placed.time
    args: dict[str, Any] = {
        "groups": " × ".join(str(n) for n in dispatch.groups),
        "elements": dispatch.elements[1] - dispatch.elements[0],
        "bytes": dispatch.moved_bytes,
        "clock": time.clock,
    }
    if time.cold:
        args["cold"] = True
    if time.ms is None:
        args["time"] = "n/a"
        return {
            "ph": "i",
            "s": "t",
            "name": dispatch.label,
            "cat": dispatch.entry_point,
            "pid": PROCESS,
            "tid": thread,
            "ts": placed.start / 1e3,
            "args": args,
        }
    if time.ms > 0:
        args["GB/s"] = dispatch.moved_bytes / time.ms / 1e6
    return _slice(dispatch.label, dispatch.entry_point, thread, placed.start, placed.stop, args)


def _slice(
    name: str, category: str, thread: int, start: int, stop: int, args: dict[str, Any]
) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": PROCESS,
        "tid": thread,
        "ts": start / 1e3,
        "dur": (stop - start) / 1e3,
        "args": args,
    }


def _meta(name: str, thread: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": PROCESS, "tid": thread, "args": args}
