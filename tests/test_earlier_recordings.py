"""Recordings of when adding up the partial sums was a dispatch of its own, five a step: the examples are such ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recordings
from test_travel import OpenRecording
from test_worker import Watched

from inspector.layout import Param, make_layout
from inspector.optimizers import plan_step
from inspector.plan import Dispatch, Limits, Variant
from inspector.runtime import commands as c
from inspector.runtime.diagnosing import diagnose_session
from inspector.session.plans import part_of_another, recorded_plan, times_in_plan
from inspector.session.reader import Session
from inspector.session.recorder import Recorder
from inspector.stepping import KernelTime

Call = Any
HEALTHY = Path(__file__).parent.parent / "sessions" / "healthy.session.zip"
FIVE = ("reduce_norm_sq", "reduce_norm_sq_final", "finalize_grad_stats", "adamw_update", "adamw_update")
FOUR = (FIVE[0], *FIVE[2:])


def times(names: Sequence[str], **changes: Any) -> tuple[KernelTime, ...]:
    """Dispatch i, from 1 on, takes i ms and begins at 10 i."""
    return tuple(
        KernelTime(name, None, float(i), "gpu", began_ms=10.0 * i, **changes)
        for i, name in enumerate(names, 1)
    )


def dispatches(variant: Variant | None = None) -> tuple[Dispatch, ...]:
    return plan_step(make_layout(recordings.PARAMS), Limits(), variant or Variant()).dispatches


def test_the_time_of_the_last_pass_is_a_part_of_that_of_finalize() -> None:
    fitted = times_in_plan(times(FIVE), dispatches())
    assert fitted is not None
    assert [(k.name, k.ms, k.began_ms) for k in fitted] == [
        ("reduce_norm_sq", 1, 10), ("finalize_grad_stats", 5, 20), ("adamw_update", 4, 40),
        ("adamw_update", 5, 50),
    ]  # fmt: skip
    unknown = [*times(FIVE)]
    unknown[1] = KernelTime(FIVE[1], None, None, "gpu", cold=True)
    fitted = times_in_plan(unknown, dispatches())
    assert fitted is not None
    assert (fitted[1].ms, fitted[1].cold, fitted[1].began_ms) == (None, True, None)


def test_times_of_the_same_dispatches_are_as_they_were_and_of_others_there_are_none() -> None:
    assert times_in_plan(times(FOUR), dispatches()) == times(FOUR)
    for ran in ((), FIVE[:4], (*FIVE, "fill_zero"), ("reduce_norm_sq_final", *FOUR), FIVE[3:]):
        assert times_in_plan(times(ran), dispatches()) is None
        assert part_of_another(times(ran), dispatches()) is None
    assert times_in_plan(times(FIVE), dispatches(Variant(dispatch="single"))) is None
    # With more partial sums than a binding holds there are others of the name before it.
    limits = Limits(max_storage_buffer_binding_size=64 << 10, min_storage_buffer_offset_alignment=1024)
    params = [Param("p", (1_640_000,))]
    plan = plan_step(make_layout(params, align_bytes=1024), limits, Variant())
    names = [d.entry_point for d in plan.dispatches]
    at = names.index("finalize_grad_stats")
    assert names[at - 1] == "reduce_norm_sq_final"
    assert times_in_plan(times(names), plan.dispatches) == times(names)
    assert part_of_another(times([*names[:at], "reduce_norm_sq_final", *names[at:]]), plan.dispatches) == at


def test_an_example_shows_a_time_of_each_dispatch() -> None:
    run = Watched(OpenRecording(), str(HEALTHY))
    try:
        run.at(1, 0)
        run.worker.send(c.Seek(20))
        with Session.open(HEALTHY) as session:
            recorded = session.step(20).kernels
        assert tuple(k.name for k in recorded) == FIVE
        shown = run.until(
            lambda s: s.cursor is not None and s.cursor.finished_steps == 20 and s.glance is None
        )
        assert shown.cursor is not None
        assert (shown.cursor.dispatch, shown.cursor.count) == (4, 4)
        assert shown.record is not None
        assert [k.name for k in shown.record.kernels] == list(FOUR)
        # What was recorded, unless the step has run here by now.
        glanced = [
            s for s in run.all if s.glance is not None and s.record is not None and s.record.step == 20
        ]
        for snapshot in glanced:
            finalize = snapshot.dispatch_times[1]
            assert finalize is not None
            assert (recorded[1].ms, recorded[2].ms, finalize.ms) != (None, None, None)
            assert finalize.ms == pytest.approx(recorded[1].ms + recorded[2].ms)  # type: ignore[operator]
        # A place in a step that has no such dispatch any more is its end, in words.
        run.worker.send(c.Seek(12, 5))
        told = run.until(lambda s: s.notice is not None and "no dispatch 5" in s.notice.text)
        assert told.notice is not None
        assert told.notice.text == (
            "Step 12 has dispatches 1 to 4, and no dispatch 5: this is the end of the step."
        )
    finally:
        assert run.worker.close(60)


def test_an_example_is_a_trace(call: Call, tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    code, told, _ = call("export", HEALTHY, "--format", "perfetto", "--out", out, "--json")
    assert (code, json.loads(told)["steps"]) == (0, 48)
    events = json.loads(out.read_text(encoding="utf-8"))["traceEvents"]
    assert sum(e["ph"] == "X" and e["name"] == "finalize_grad_stats" for e in events) == 48


def test_what_differs_from_it_is_numbered_as_in_the_plan(call: Call, tmp_path: Path) -> None:
    """Two copies of five dispatches a step; the m of one differs in an element after step 4."""
    paths = [tmp_path / name for name in ("a.session", "b.session")]
    for path, off in zip(paths, (0.0, 1.0), strict=True):
        with Recorder.create(path, recordings.about("keyframes:1")) as recorder:
            recorder.offer_start(recordings.state(0))
            for step in range(1, 5):
                state = recordings.state(step)
                if step == 4:
                    name = recordings.PARAMS[0].name
                    state.m[name].reshape(-1)[3] += np.float32(off)
                recorder.offer(recordings.recorded(step, kernels=times(FIVE)), keyframe=state)
    _, told, _ = call("diff", *paths, "--json")
    first = json.loads(told)["first_difference"]
    assert (first["step"], first["buffer"], first["param"], first["index"]) == (
        4,
        "m",
        recordings.PARAMS[0].name,
        3,
    )
    with Session.open(paths[0]) as session:
        update = recorded_plan(session, session.step(4)).dispatches[first["dispatch"]]
    assert update.label == "adamw_update wd"


@pytest.mark.parametrize(
    ("names", "dispatch", "now"), [(FIVE, 4, 3), (FIVE, 2, 1), (FIVE, 1, 1), (FIVE, 0, 0), (FOUR, 3, 3)]
)
def test_a_finding_taken_as_recorded_names_the_dispatch_that_it_is_now(
    tmp_path: Path, names: tuple[str, ...], dispatch: int, now: int
) -> None:
    path = tmp_path / "run.session"
    found = replace(recordings.finding(3), rule="padding-not-zero", dispatch=dispatch)
    with Recorder.create(path, recordings.about("stats")) as recorder:
        for step in range(1, 5):
            recorder.offer(
                recordings.recorded(step, kernels=times(names)), findings=[found] if step == 3 else []
            )
    with Session.open(path) as session:
        told = [f for f in diagnose_session(session, 1, 4) if f.rule == "padding-not-zero"]
        assert session.findings()[0].dispatch == dispatch
    assert [f.dispatch for f in told] == [now]
