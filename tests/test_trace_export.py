"""The trace: parsed again, every slice stands where the clock said, in µs, inside its step, one row a time."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from ui_helpers import small_plan

from inspector.stepping import KernelTime
from inspector.trace_export import ROWS_A_TRACK, Track, chrome_trace

PLAN = small_plan()
DISPATCHES = PLAN.dispatches[:3]

Span = tuple[float | None, float | None]


def step(*spans: Span) -> tuple[KernelTime, ...]:
    """Times of (began, ms)."""
    return tuple(
        KernelTime(d.entry_point, d.block, ms, "gpu" if began is not None else "cpu", began_ms=began)
        for d, (began, ms) in zip(DISPATCHES, spans, strict=True)
    )


def events(*tracks: Track, **facts: Any) -> list[dict[str, Any]]:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    document = json.loads(chrome_trace(tracks, device="a GPU", facts=facts), parse_constant=refuse)
    assert set(document) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert document["otherData"] == {"device": "a GPU", **facts}
    return list(document["traceEvents"])


def slices(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [e for e in found if e["ph"] == "X"]


def test_dispatches_stand_where_the_clock_says_in_microseconds() -> None:
    found = events(Track("default", DISPATCHES, [step((100.0, 0.25), (100.5, 0.001), (100.501, 2.0))]))
    whole, *inner = slices(found)
    assert (whole["name"], whole["ts"], whole["dur"]) == ("step 1 of 1", 0.0, 2501.0)
    assert [(e["name"], e["ts"], e["dur"]) for e in inner] == [
        (DISPATCHES[0].label, 0.0, 250.0),
        (DISPATCHES[1].label, 500.0, 1.0),
        (DISPATCHES[2].label, 501.0, 2000.0),
    ]


def test_arguments_say_what_a_dispatch_did() -> None:
    found = events(Track("default", DISPATCHES, [step((0.0, 0.5), (1.0, 0.0), (2.0, 1.0))]))
    first = slices(found)[1]
    d = DISPATCHES[0]
    assert first["args"] == {
        "groups": f"{d.groups[0]} × 1 × 1",
        "elements": PLAN.layout.padded_elements,
        "bytes": d.moved_bytes,
        "clock": "gpu",
        "GB/s": pytest.approx(d.moved_bytes / 0.5e-3 / 1e9),
    }
    # A time of zero has no bandwidth.
    assert "GB/s" not in slices(found)[2]["args"]


def test_steps_of_a_track_keep_their_distance_and_tracks_begin_together() -> None:
    one = Track(
        "one",
        DISPATCHES,
        [step(*((t, 1.0) for t in (5.0, 6.0, 7.0))), step(*((t, 1.0) for t in (10.0, 11.0, 12.0)))],
    )
    two = Track("two", DISPATCHES, [step(*((t, 0.5) for t in (900.0, 901.0, 902.0)))])
    found = events(one, two)
    steps = [(e["tid"], e["ts"], e["dur"]) for e in slices(found) if e["cat"] == "step"]
    assert steps == [(1, 0.0, 3000.0), (1, 5000.0, 3000.0), (1 + ROWS_A_TRACK, 0.0, 2500.0)]
    names = {e["tid"]: e["args"]["name"] for e in found if e["name"] == "thread_name"}
    assert names == {1: "one", 1 + ROWS_A_TRACK: "two"}
    assert [e["args"]["name"] for e in found if e["name"] == "process_name"] == ["a GPU"]


def test_without_the_device_s_clock_dispatches_follow_each_other() -> None:
    spans: list[Span] = [(None, 1.0), (None, 0.5), (None, 0.25)]
    found = slices(events(Track("cpu", DISPATCHES, [step(*spans), step(*spans)])))
    assert [(e["ts"], e["dur"]) for e in found if e["cat"] != "step"] == [
        (0.0, 1000.0), (1000.0, 500.0), (1500.0, 250.0), (1750.0, 1000.0), (2750.0, 500.0), (3250.0, 250.0),
    ]  # fmt: skip
    assert {e["args"]["clock"] for e in found if e["cat"] != "step"} == {"cpu"}


def test_a_time_that_is_not_known_is_an_instant_and_no_slice() -> None:
    found = events(
        Track("a", DISPATCHES, [step((1.0, 1.0), (None, None), (2.0, 1.0)), step(*3 * [(None, None)])])
    )
    instants = [e for e in found if e["ph"] == "i"]
    assert [(e["name"], e["ts"], e["args"]["time"]) for e in instants] == [
        (DISPATCHES[1].label, 1000.0, "n/a")
    ]
    assert len(slices(found)) == 3


def test_dispatches_that_overlap_lie_in_rows_of_their_own() -> None:
    found = events(Track("a", DISPATCHES, [step((0.0, 2.0), (1.0, 2.0), (2.5, 1.0))]))
    rows = {e["name"]: e["tid"] for e in slices(found)[1:]}
    assert [rows[d.label] for d in DISPATCHES] == [1, 2, 1]
    assert sum(e["name"] == "thread_name" for e in found) == 2


def test_slices_of_a_row_nest_whatever_the_times() -> None:
    """ts and dur in whole nanoseconds: rounding never makes a dispatch stick out of its step."""
    at, steps = 1e9 / 3, []
    for _ in range(20):
        spans: list[Span] = []
        for i in range(3):
            spans.append((at, 0.1 + i / 7e5))
            at += 0.1 + i / 7e5
        steps.append(step(*spans))
        at += math.pi
    by_row: dict[int, list[tuple[int, int]]] = {}
    for e in slices(events(Track("a", DISPATCHES, steps))):
        start, length = e["ts"] * 1e3, e["dur"] * 1e3
        assert abs(start - round(start)) < 1e-3
        by_row.setdefault(e["tid"], []).append((round(start), round(start) + round(length)))
    for row in by_row.values():
        opened: list[int] = []
        for start, stop in sorted(row, key=lambda s: (s[0], -s[1])):
            while opened and opened[-1] <= start:
                opened.pop()
            assert not opened or stop <= opened[-1]
            opened.append(stop)


def test_names_with_quotes_and_line_breaks_are_kept() -> None:
    found = events(Track('a "b"\n<c>', DISPATCHES, []), source="naïve [x]", elements=3)
    assert found[1]["args"]["name"] == 'a "b"\n<c>'
