"""A run is recorded as it goes: what the session holds is what the stepper had, bit for bit, wherever the run went."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_helpers import make_engine, normal_state

from inspector.codecs import CODECS
from inspector.errors import UsageError
from inspector.floats import to_json
from inspector.gpu.device import Gpu
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.plan import Variant
from inspector.runtime.engine import Engine
from inspector.runtime.recording import Recording
from inspector.runtime.snapshots import StepRecord
from inspector.schedule import Schedule
from inspector.session import recorder as recorder_module
from inspector.session.policy import Policy
from inspector.session.reader import Session
from inspector.stepping import HostState

pytestmark = pytest.mark.gpu

Call = Callable[..., tuple[int, str, str]]

PARAMS = [Param("a", (65, 64)), Param("b", (5,)), Param("empty", (0, 3))]
W, _, M, V = normal_state(PARAMS)
G = [normal_state(PARAMS, seed=i)[1] for i in range(1, 13)]
FORMS = [
    Variant(),
    Variant(kernel="f16"),
    Variant(fused=False),
    Variant(dispatch="per-tensor", reduce="atomic"),
    *(Variant(kernel="8bit", codec=codec) for codec in CODECS),
    Variant(kernel="8bit", codec="dynamic", small_state="8bit"),
]


def engine_of(gpu: Gpu, steps: Any = G, **options: Any) -> Engine:
    return make_engine(gpu, PARAMS, steps, w=W, **{"m": M, "v": V, "stats": "full", **options})


def same_state(a: HostState, b: HostState) -> bool:
    def parts(state: HostState) -> list[bytes]:
        found = [lane[p.name].tobytes() for lane in (state.w, state.m, state.v) for p in PARAMS]
        for name in sorted(state.coded):
            coded = state.coded[name]
            for moments in (coded.m, coded.v):
                found += [name.encode(), moments.codes.tobytes(), moments.scales.tobytes()]
        return found

    return a.finished_steps == b.finished_steps and parts(a) == parts(b)


def run_and_look(
    engine: Engine, steps: int
) -> tuple[dict[int, StepRecord], dict[int, dict[str, bytes]], dict[int, HostState]]:
    """The records, gradients and states of the next `steps` steps, taken beside the recording."""
    records, gradients, states = {}, {}, {}
    for _ in range(steps):
        if engine.stepper.cursor.at_end:
            engine.begin()
        step = engine.stepper.cursor.step
        gradients[step] = {name: g.tobytes() for name, g in engine.stepper.gradients().items()}
        engine.step_iteration()
        assert engine.record is not None
        records[step] = engine.record
        states[step] = engine.stepper.state()
    return records, gradients, states


@pytest.mark.parametrize(
    "variant", FORMS, ids=lambda v: f"{v.kernel} {v.codec} {v.small_state} {v.dispatch} {v.fused}"
)
def test_what_is_recorded_is_what_the_stepper_had(gpu: Gpu, tmp_path: Path, variant: Variant) -> None:
    path = tmp_path / "run.session"
    engine = engine_of(
        gpu, variant=variant, losses={1: 2.5, 3: float("nan")}, schedule=Schedule.from_text("warmup:4")
    )
    start = engine.stepper.state()
    recording = Recording.start(engine, path, Policy.from_text("grads:2+keyframes:3"), planned_steps=6)
    records, gradients, states = run_and_look(engine, 6)
    recording.end()
    with Session.open(path) as session:
        assert session.verify() == []
        assert session.state == "complete"
        assert session.about.planned_steps == 6
        assert session.captures("gradients") == (2, 4, 6)
        assert session.captures("keyframe") == (0, 3, 6)
        assert same_state(session.keyframe(0), start)
        for step, record in records.items():
            got = session.step(step)
            assert got.kernels == record.kernels
            assert (got.hyper.lr, got.variant, got.nonfinite) == (record.lr, variant, record.nonfinite)
            for name in ("loss", "grad_norm", "clip_scale"):
                a, b = getattr(got, name), getattr(record, name)
                assert np.array_equal(
                    np.float64(np.nan if a is None else a),
                    np.float64(np.nan if b is None else b),
                    equal_nan=True,
                )
            table = session.param_statistics(step)
            assert table is not None
            assert set(table.names) == {p.name for p in PARAMS}
        for step in (2, 4, 6):
            assert {n: g.tobytes() for n, g in session.gradients(step).items()} == gradients[step]
        for step in (3, 6):
            assert same_state(session.keyframe(step), states[step])


def test_statistics_are_those_that_were_counted(gpu: Gpu, tmp_path: Path) -> None:
    engine = engine_of(gpu)
    recording = Recording.start(engine, tmp_path / "run.session", Policy())
    engine.step_iteration()
    assert engine.counted is not None
    counted = engine.counted.params
    engine.set_stats("light")
    engine.step_iteration()
    recording.end()
    with Session.open(tmp_path / "run.session") as session:
        table = session.param_statistics(1)
        assert table is not None
        got = {stats.name: stats for stats in table}
        for stats in counted:
            assert got[stats.name].lanes["v"].norm == stats.lanes["v"].norm
            assert got[stats.name].update == stats.update
        assert session.param_statistics(2) is None


def test_changes_in_between_are_recorded_with_the_step_they_hold_from(gpu: Gpu, tmp_path: Path) -> None:
    engine = engine_of(gpu, hyper=Hyper(lr=1e-3))
    recording = Recording.start(engine, tmp_path / "run.session", Policy.from_text("all"))
    engine.step_iteration()
    engine.set_hyper("lr", 5e-3)
    engine.step_iteration()
    engine.set_variant(replace(engine.stepper.plan.variant, numerics="precise"))
    engine.set_schedule("warmup:100")
    engine.step_iteration()
    recording.end()
    with Session.open(tmp_path / "run.session") as session:
        steps = [session.step(t) for t in (1, 2, 3)]
        assert [s.hyper.lr for s in steps] == [1e-3, 5e-3, 5e-3 * Schedule.from_text("warmup:100").factor(3)]
        assert [s.variant.numerics for s in steps] == ["published", "published", "precise"]
        assert [(n.step, n.text) for n in session.notes("mark")] == [
            (2, "lr 0.001 → 0.005"),
            (3, "numerics published → precise"),
            (3, "schedule constant → warmup:100"),
        ]


def test_a_recording_is_told_of_changes_once_and_with_the_step_that_takes_them(
    gpu: Gpu, tmp_path: Path
) -> None:
    engine = engine_of(gpu, hyper=Hyper(lr=1e-3))
    recording = Recording.start(engine, tmp_path / "run.session", Policy.from_text("all"))
    engine.step_iteration()
    engine.set_hyper("lr", 0.5)
    engine.set_hyper("lr", 1e-3)
    engine.set_hyper("beta2", 0.9)
    engine.step_iteration()
    engine.step_iteration()
    for finished in (1, 0):
        assert engine.rewind_to(finished)
        for _ in range(3 - finished):
            engine.step_iteration()
    engine.set_hyper("lr", 0.25)
    recording.end()
    with Session.open(tmp_path / "run.session") as session:
        assert [(n.step, n.text) for n in session.notes("mark")] == [(2, "beta2 0.999 → 0.9")]


def test_going_back_drops_what_came_later(gpu: Gpu, tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    engine = engine_of(gpu)
    recording = Recording.start(engine, path, Policy.from_text("all"))
    run_and_look(engine, 6)
    assert engine.rewind_to(3)
    assert recording.last_step == 3
    engine.set_hyper("weight_decay", 0.5)
    records, gradients, states = run_and_look(engine, 2)
    recording.end()
    with Session.open(path) as session:
        assert session.verify() == []
        assert session.steps == range(1, 6)
        assert session.captures("keyframe") == (0, 1, 2, 3, 4, 5)
        assert [session.step(t).hyper.weight_decay for t in (3, 4, 5)][1:] == [0.5, 0.5]
        for step in (4, 5):
            assert session.step(step).grad_norm == records[step].grad_norm
            assert {n: g.tobytes() for n, g in session.gradients(step).items()} == gradients[step]
            assert same_state(session.keyframe(step), states[step])


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("back", [1, 2, 3])
def test_a_step_gone_back_into_is_recorded_with_its_gradients(
    gpu: Gpu, tmp_path: Path, back: int, fused: bool
) -> None:
    path = tmp_path / "run.session"
    engine = engine_of(gpu, variant=Variant(fused=fused))
    recording = Recording.start(engine, path, Policy.from_text("all"))
    _, gradients, states = run_and_look(engine, 2)
    for _ in range(back):
        assert engine.undo_dispatch()
    assert recording.last_step == 1
    engine.step_iteration()
    recording.end()
    with Session.open(path) as session:
        assert session.verify() == []
        assert session.steps == range(1, 3)
        assert {n: g.tobytes() for n, g in session.gradients(2).items()} == gradients[2]
        assert same_state(session.keyframe(2), states[2])
        assert session.notes("gap") == ()


def test_going_back_to_before_its_start_ends_it_and_keeps_it(gpu: Gpu, tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    engine = engine_of(gpu)
    run_and_look(engine, 2)
    recording = Recording.start(engine, path, Policy.from_text("all"))
    run_and_look(engine, 2)
    assert engine.rewind_to(1)
    assert not recording.open
    assert recording.ended is not None
    assert "before step 3" in recording.ended
    assert engine.follower is None
    engine.step_iteration()
    recording.end()
    with Session.open(path) as session:
        assert session.verify() == []
        assert (session.state, session.ended_because) == ("complete", recording.ended)
        assert session.steps == range(3, 5)
        assert session.captures("keyframe") == (2, 3, 4)


def test_it_starts_between_steps_only(gpu: Gpu, tmp_path: Path) -> None:
    engine = engine_of(gpu)
    engine.step_dispatch()
    with pytest.raises(UsageError, match="between steps"):
        Recording.start(engine, tmp_path / "run.session", Policy())
    assert list(tmp_path.iterdir()) == []
    engine.step_iteration()
    engine.begin()
    recording = Recording.start(engine, tmp_path / "run.session", Policy.from_text("all"))
    engine.step_iteration()
    recording.end()
    with Session.open(tmp_path / "run.session") as session:
        assert session.steps == range(2, 3)
        assert session.captures("gradients") == (2,)
        assert session.captures("keyframe") == (1, 2)


def test_the_flight_recorder_writes_what_led_to_a_finding(gpu: Gpu, tmp_path: Path) -> None:
    bad = {name: g.copy() for name, g in G[6].items()}
    bad["a"][17] = np.nan
    engine = engine_of(gpu, [*G[:6], bad, *G[7:]], m=None, v=None)
    recording = Recording.start(engine, tmp_path / "run.session", Policy.from_text("flight:3"))
    _, gradients, _ = run_and_look(engine, 9)
    recording.end()
    with Session.open(tmp_path / "run.session") as session:
        assert ("nonfinite-gradient", 7) in [(f.rule, f.step) for f in session.findings()]
        captured = session.captures("gradients")
        assert {5, 6, 7} <= set(captured)
        assert 9 not in captured
        assert any(step < min(captured) for step in session.captures("keyframe"))
        for step in captured:
            assert {n: g.tobytes() for n, g in session.gradients(step).items()} == gradients[step]
    engine = engine_of(gpu, m=None, v=None)
    recording = Recording.start(engine, tmp_path / "quiet.session", Policy.from_text("flight:3"))
    run_and_look(engine, 9)
    recording.end()
    with Session.open(tmp_path / "quiet.session") as session:
        assert session.captures("gradients") == ()


def test_only_what_the_policy_wants_is_read_back(
    gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(gpu)
    read: list[tuple[str, int]] = []
    for name in ("gradients", "state"):
        real = getattr(engine.stepper, name)
        monkeypatch.setattr(
            engine.stepper, name,
            lambda real=real, name=name: (read.append((name, engine.stepper.cursor.step)), real())[1],
        )  # fmt: skip
    engine.checkpoints.wanted = False
    recording = Recording.start(engine, tmp_path / "a.session", Policy())
    for _ in range(3):
        engine.step_iteration()
    recording.end()
    assert read == []
    recording = Recording.start(engine, tmp_path / "b.session", Policy.from_text("grads:4+keyframes:6"))
    for _ in range(5):
        engine.step_iteration()
    recording.end()
    assert read == [("state", 3), ("gradients", 4), ("state", 6), ("gradients", 8)]


def test_what_is_complete_is_on_disk_before_the_next_step_is(gpu: Gpu, tmp_path: Path) -> None:
    engine = engine_of(gpu)
    recording = Recording.start(engine, tmp_path / "run.session", Policy.from_text("all"))
    for step in range(1, 9):
        engine.step_iteration()
        assert recording._recorder.durable_step >= step - 1
    recording.end()


def test_a_lost_device_leaves_a_recording_that_goes_on_from_the_copy(gpu: Gpu, tmp_path: Path) -> None:
    engine = engine_of(gpu)
    recording = Recording.start(engine, tmp_path / "run.session", Policy.from_text("all"))
    _, gradients, states = run_and_look(engine, 4)
    kept = states[2]
    again = make_engine(gpu, PARAMS, G, w=kept.w, m=kept.m, v=kept.v, finished_steps=2)
    engine.recover(again.stepper)
    run_and_look(engine, 1)
    recording.end()
    with Session.open(tmp_path / "run.session") as session:
        assert session.verify() == []
        assert session.steps == range(1, 6)
        for step in (3, 4):
            assert same_state(session.keyframe(step), states[step])
            assert {n: g.tobytes() for n, g in session.gradients(step).items()} == gradients[step]


# --- the commands


def recorded_run(call: Call, path: Path, *words: object, code: int = 0) -> dict[str, Any]:
    got, out, err = call("run", *words, "--save", path, "--json")
    assert got == code, err
    return json.loads(out)  # type: ignore[no-any-return]


def test_the_session_of_a_run_has_the_numbers_of_its_document(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "charlm.session"
    words = ["charlm", "--steps", 6, "--stats", "full", "--capture", "grads:3"]
    code, out, err = call("run", *words, "--save", path, "--json")
    assert code == 0
    first, last = err.strip().splitlines()
    assert first.startswith(f"Recording 6 steps (grads:3) to {path}: about ")
    assert last.startswith(f"Recorded steps 1 to 6: {path}, ")
    document = json.loads(out)
    assert document["stats"] == "full"
    with Session.open(path) as session:
        assert document["session"] == {
            "path": str(path),
            "bytes": session.info()["size"],
            "policy": "grads:3",
        }
        assert session.captures("keyframe") == (0,)
        for row in document["steps"]:
            got = session.step(row["step"])
            for name in ("loss", "grad_norm", "clip_scale"):
                assert to_json(getattr(got, name)) == row[name]
            assert got.hyper.lr == row["lr"]
            assert [k.ms for k in got.kernels] == [k["ms"] for k in row["kernels"]]
            table = session.param_statistics(row["step"])
            assert table is not None
            norms = {stats.name: stats.lanes["g"].norm for stats in table}
            assert norms == {p["name"]: p["lanes"]["g"]["norm"] for p in row["params"]}


def test_a_run_continued_ends_as_one_that_was_not_interrupted(call: Call, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole.session", tmp_path / "parts.session"
    words = ["charlm", "--kernel", "8bit", "--capture", "all"]
    recorded_run(call, whole, *words, "--steps", 5)
    recorded_run(call, parts, *words, "--steps", 3)
    document = recorded_run(call, parts, *words, "--steps", 5, "--resume")
    assert [row["step"] for row in document["steps"]] == [4, 5]
    # Counted for the recording alone, so the document has the last of them only.
    assert document["stats"] == "full"
    assert ["params" in row for row in document["steps"]] == [False, True]
    with Session.open(whole) as a, Session.open(parts) as b:
        assert b.verify() == []
        assert b.steps == range(1, 6)
        for step in range(1, 6):
            assert a.step(step).loss == b.step(step).loss
            one, other = a.keyframe(step), b.keyframe(step)
            assert {n: x.tobytes() for n, x in one.w.items()} == {n: x.tobytes() for n, x in other.w.items()}
            for name, coded in one.coded.items():
                assert coded.v.codes.tobytes() == other.coded[name].v.codes.tobytes()


def test_info_and_pack(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "tiny.session"
    recorded_run(call, path, "synthetic:1000", "--steps", 4, "--capture", "keyframes:2", "--lr", 0.01)
    code, out, err = call("info", path, "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["source"] == "synthetic:1000"
    assert document["state"] == "complete"
    assert document["steps"] == {"first": 1, "last": 4, "count": 4}
    assert document["captures"] == {"gradients": 0, "keyframe": 3}
    assert document["hyper"]["lr"] == 0.01
    assert document["followable"] is False
    assert call("info", path)[1].startswith(f"session     {path}\n")
    code, out, err = call("pack", path, "--json")
    assert (code, err) == (0, "")
    packed = json.loads(out)
    assert packed["path"] == f"{path}.zip"
    again = json.loads(call("info", packed["path"], "--json")[1])
    same = document.keys() - {"path", "size"}
    assert {k: again[k] for k in same} == {k: document[k] for k in same}
    assert call("pack", path, "--out", tmp_path / "other.zip")[0] == 0
    assert (tmp_path / "other.zip").exists()


def test_bad_input_is_told_in_a_sentence(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "tiny.session"
    recorded_run(call, path, "synthetic:100", "--steps", 2, "--capture", "all")
    bare = tmp_path / "bare.session"
    recorded_run(call, bare, "synthetic:100", "--steps", 2)
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "one.jpg").write_bytes(b"x")
    file = tmp_path / "note.txt"
    file.write_text("x")
    tiny = ["run", "synthetic:100", "--steps", 3]
    for words, told in (
        ([*tiny, "--save", path], "exists"),
        ([*tiny, "--save", folder], "exists"),
        ([*tiny, "--save", file], "exists"),
        ([*tiny, "--save", folder, "--resume"], "is no session"),
        ([*tiny, "--save", file, "--resume"], "is no session"),
        ([*tiny, "--save", tmp_path / "no" / "x.session"], "does not exist"),
        ([*tiny, "--save", tmp_path / "no.session", "--resume"], "does not exist"),
        ([*tiny, "--capture", "all"], "--save"),
        ([*tiny, "--resume"], "--save"),
        ([*tiny, "--save", tmp_path / "x.session", "--capture", "everything"], "capture policy"),
        ([*tiny, "--save", path, "--resume", "--capture", "stats"], "--capture all"),
        ([*tiny, "--save", bare, "--resume"], "no keyframe"),
        ([*tiny, "--save", path, "--resume", "--kernel", "f16"], "kernel f32"),
        ([*tiny, "--save", path, "--resume", "--lr", "1"], "lr 0.001"),
        ([*tiny, "--save", path, "--resume", "--schedule", "warmup:9"], "schedule constant"),
        ([*tiny, "--save", path, "--resume", "--seed", "3"], "seed 3"),
        (["run", "synthetic:200", "--steps", 3, "--save", path, "--resume"], "recording of synthetic:100"),
        (["run", "synthetic:100", "--steps", 2, "--save", path, "--resume"], "2 steps already"),
        (["run", "synthetic:9000000", "--steps", 1000000000, "--save", tmp_path / "x.session", "--capture", "all"],
         "the disk has"),
        (["info", folder], "is no session"),
        (["info", tmp_path / "nowhere"], "cannot be read"),
        (["pack", folder], "is no session"),
    ):  # fmt: skip
        code, out, err = call(*words)
        assert (code, out) == (2, ""), (words, err)
        last = err.strip().splitlines()[-1]
        assert last.startswith("inspector: "), (words, err)
        assert told in last, (words, err)
        assert "Traceback" not in err
    assert sorted(p.name for p in folder.iterdir()) == ["one.jpg"]
    assert file.read_text() == "x"
    with Session.open(path) as session:
        assert session.verify() == []
        assert session.steps == range(1, 3)
    assert not (tmp_path / "x.session").exists()


def test_a_schedule_that_was_written_with_another_exponent_is_gone_on_with(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.session"
    words = ["synthetic:100", "--capture", "all", "--schedule", "cosine:9:floor=1e-05"]
    with monkeypatch.context() as before:
        before.setattr(Schedule, "__str__", lambda self: "cosine:9:floor=1e-05")
        recorded_run(call, path, *words, "--steps", 1)
    code, _, err = call("run", *words, "--steps", 2, "--save", path, "--resume")
    assert code == 0, err
    code, _, err = call("run", *words, "--steps", 3, "--save", path, "--resume", "--eps", 1e-6)
    assert (code, "recorded with eps 1e-8 and would go on with 1e-6" in err) == (2, True)


def test_a_full_disk_ends_the_run_with_a_sentence_and_all_so_far(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "full.session"
    left = iter([1 << 40] * 8)
    monkeypatch.setattr(recorder_module, "free_bytes", lambda folder: next(left, 0))
    monkeypatch.setitem(
        recorder_module.Recorder.__init__.__kwdefaults__, "free", lambda folder: next(left, 0)
    )
    code, out, err = call(
        "run", "synthetic:1000", "--steps", 50, "--save", path, "--capture", "all", "--json"
    )
    assert code == 1
    assert "the disk is full" in err.strip().splitlines()[-1]
    assert err.count("the disk is full") == 1
    document = json.loads(out)
    assert 3 < len(document["steps"]) < 50
    with Session.open(path) as session:
        assert session.verify() == []
        assert session.state == "complete"
        assert "disk is full" in str(session.ended_because)
        assert len(session.steps) >= len(document["steps"]) - 2


def started(path: Path, *words: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-m", "inspector", "run", *map(str, words), "--save", str(path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_an_interrupt_ends_the_recording_in_order(tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    with started(path, "charlm", "--steps", 2000, "--capture", "grads:10") as process:
        wait_for_steps(process, path, 3)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 130, told
    assert "Traceback" not in told
    *_, last, stopped = told.strip().splitlines()
    assert stopped == "inspector: Stopped."
    with Session.open(path) as session:
        assert session.verify() == []
        assert session.state == "complete"
        assert session.ended_because == "The run was stopped."
        assert last.startswith(f"Recorded steps 1 to {session.steps.stop - 1:,}: ")


def wait_for_steps(process: subprocess.Popen[str], path: Path, steps: int, timeout_s: float = 60.0) -> int:
    """Follow a recording until it has so many steps; returns how many it has."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and process.poll() is None:
        if path.exists():
            with Session.open(path) as session:
                if len(session.steps) >= steps:
                    assert session.state == "recording"
                    return len(session.steps)
        time.sleep(0.02)
    if process.poll() is None:
        process.send_signal(signal.SIGABRT)
    raise AssertionError(f"{path} does not come to {steps} steps: {process.communicate()[1]}")


def kill_and_go_on(folder: Path, rng: random.Random) -> None:
    path = folder / "run.session"
    words = ["charlm", "--capture", rng.choice(["all", "grads:3+keyframes:5", "grads:1+flight:4"])]
    with started(path, *words, "--steps", 2000) as process:
        seen = wait_for_steps(process, path, rng.randrange(1, 12))
        time.sleep(rng.uniform(0, 0.1))
        process.kill()
        process.communicate()
    with Session.open(path) as session:
        assert session.state == "interrupted"
        assert session.verify() == []
        last = len(session.steps)
        assert last >= seen
        losses = [session.step(step).loss for step in session.steps]
    with started(path, *words, "--steps", last + 2, "--resume") as process:
        _, told = process.communicate(timeout=60)
    assert process.returncode == 0, told
    with Session.open(path) as session:
        assert session.verify() == []
        assert session.state == "complete"
        assert session.steps == range(1, last + 3)
        # What was run again from the keyframe gave the same.
        assert [session.step(step).loss for step in session.steps][:last] == losses


@pytest.mark.parametrize("seed", range(2))
def test_a_killed_run_loses_the_step_in_progress_at_most_and_goes_on(tmp_path: Path, seed: int) -> None:
    kill_and_go_on(tmp_path, random.Random(seed))


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(100, 130))
def test_killed_at_many_random_instants(tmp_path: Path, seed: int) -> None:
    kill_and_go_on(tmp_path, random.Random(seed))
