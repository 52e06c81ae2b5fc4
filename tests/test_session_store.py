"""A session gives back what was recorded, bit for bit, while it is written, after it ended, packed, and continued."""

from __future__ import annotations

import errno
import json
import math
import os
import sqlite3
import struct
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recordings import (
    NAMES,
    PARAMS,
    about,
    finding,
    record,
    record_on,
    recorded,
    state,
    table,
    values,
)
from safetensors.numpy import load_file

import inspector
from inspector.errors import UsageError
from inspector.hyper import HYPER_NAMES, Hyper
from inspector.layout import Param
from inspector.own_kernels import OwnKernel, OwnKernels
from inspector.plan import Variant
from inspector.session import database, jsonform, tensor_store
from inspector.session.archive import pack
from inspector.session.recorder import Recorder
from inspector.session.records import About
from inspector.session.writer import SessionWriter
from inspector.statistics import NonFinite
from inspector.stepping import KernelTime
from inspector.stores import LANES, Lane

Session = inspector.Session
TESTS = Path(__file__).parent


def same_bits(a: object, b: object) -> bool:
    x, y = np.asarray(a), np.asarray(b)
    return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()


def tables_are_the_same(a: object, b: object) -> bool:
    parts_a, parts_b = (
        [
            t.names, t.blocks, t.numel.tolist(),
            *(getattr(t.lanes[lane], n).tobytes() for lane in LANES for n in type(t.lanes[lane]).__dataclass_fields__),
            *(getattr(t.update, n).tobytes() for n in type(t.update).__dataclass_fields__),
        ]
        for t in (a, b)
    )  # type: ignore[attr-defined]  # fmt: skip
    return parts_a == parts_b


# --- round trips


def test_everything_recorded_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    record(path, 25, "grads:2+keyframes:5")
    with Session.open(path) as session:
        assert session.about == about("grads:2+keyframes:5")
        assert session.steps == range(1, 26)
        assert session.state == "complete"
        assert session.ended_because is None
        for step in session.steps:
            assert session.step(step) == recorded(step)
            got = session.param_statistics(step)
            assert got is not None
            assert tables_are_the_same(got, table(step))
        assert session.findings() == (finding(10), finding(20))
        assert session.captures("gradients") == tuple(range(2, 26, 2))
        assert session.captures("keyframe") == (0, 5, 10, 15, 20, 25)
        for step in session.captures("gradients"):
            for name, each in session.gradients(step).items():
                assert same_bits(each, values(step, "g")[name])
        for step in session.captures("keyframe"):
            got_state, wanted = session.keyframe(step), state(step)
            assert got_state.finished_steps == step
            for lane in ("w", "m", "v"):
                assert all(same_bits(getattr(got_state, lane)[n], getattr(wanted, lane)[n]) for n in NAMES)
        assert session.verify() == []


def test_metrics_have_a_value_a_step(tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    record(path, 12, statistics=False)
    session = Session.open(path)
    assert same_bits(session.metric("loss"), np.array([recorded(t).loss for t in range(1, 13)]))
    assert same_bits(session.metric("lr"), np.array([1e-3 / t for t in range(1, 13)]))
    assert session.metric("grad_norm")[2] == float(np.float32(1 / 3))
    assert session.metric("nonfinite").tolist() == [t % 3 for t in range(1, 13)]
    assert not session.metric("loss").flags.writeable
    # Cold samples stand in a series of their own, and a clock that gave nothing is NaN, not 0.
    warm, cold = session.metric("ms/adamw_update wd"), session.metric("cold/adamw_update wd")
    assert [math.isnan(x) for x in warm] == [t % 4 == 1 for t in range(1, 13)]
    assert cold[4] == 5.5
    assert np.isnan(session.metric("ms/adamw_update no-wd")).all()
    with pytest.raises(UsageError, match=r"has no metric 'lost'; it has loss, grad_norm"):
        session.metric("lost")


float64_bits = st.integers(0, 2**64 - 1).map(lambda raw: struct.unpack("<d", struct.pack("<Q", raw))[0])
# A float32 is widened and narrowed again, which makes a signalling NaN a quiet one.
float32_bits = st.integers(0, 2**32 - 1).map(
    lambda raw: raw | 0x0040_0000 if raw & 0x7F80_0000 == 0x7F80_0000 and raw & 0x007F_FFFF else raw
)
special = st.sampled_from([math.nan, -math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, -1e308])
counts = st.integers(0, 2**62)


def widened(raw: int) -> float:
    with np.errstate(all="ignore"):
        return float(np.uint32(raw).view(np.float32).astype(np.float64))


def float_bits(value: float | None) -> bytes | None:
    return None if value is None else struct.pack("<d", value)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    loss=st.none() | float64_bits | special,
    hyper=st.tuples(*[float64_bits | special] * 6),
    norm=st.none() | float32_bits,
    clip=st.none() | float32_bits,
    kinds=st.tuples(counts, counts, counts, st.none() | counts),
    ms=st.none() | float64_bits | special,
    began=st.none() | float64_bits | special,
    cold=st.booleans(),
)
def test_every_bit_of_a_number_survives(
    tmp_path_factory: pytest.TempPathFactory,
    loss: float | None,
    hyper: tuple[float, ...],
    norm: int | None,
    clip: int | None,
    kinds: tuple[int, int, int, int | None],
    ms: float | None,
    began: float | None,
    cold: bool,
) -> None:
    path = tmp_path_factory.mktemp("bits") / "run.session"
    step = recorded(
        1,
        loss=loss,
        hyper=Hyper(*hyper),
        grad_norm=None if norm is None else widened(norm),
        clip_scale=None if clip is None else widened(clip),
        nonfinite=NonFinite(*kinds),
        kernels=(KernelTime("k", None, ms, "gpu", cold, began),),
    )
    with Recorder.create(path, about()) as recorder:
        recorder.offer(step)
    session = Session.open(path)
    got = session.step(1)
    assert float_bits(got.loss) == float_bits(loss)
    assert [float_bits(getattr(got.hyper, n)) for n in HYPER_NAMES] == [float_bits(x) for x in hyper]
    for name, raw in (("grad_norm", norm), ("clip_scale", clip)):
        assert float_bits(getattr(got, name)) == (None if raw is None else float_bits(widened(raw)))
        value = session.metric(name)
        assert math.isnan(value[0]) if raw is None else same_bits(value, np.array([widened(raw)]))
    assert got.nonfinite == NonFinite(*kinds)
    kernel = got.kernels[0]
    assert (float_bits(kernel.ms), float_bits(kernel.began_ms)) == (float_bits(ms), float_bits(began))
    assert (kernel.clock, kernel.cold) == ("gpu", cold)
    assert (
        math.isnan(session.metric("loss")[0]) if loss is None else same_bits(session.metric("loss"), [loss])
    )


def test_tensors_keep_every_bit_and_are_mapped_read_only(tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    raw = np.array([0x7F800001, 0xFFC12345, 0x80000000, 0xFF800000, 1, 0x7FBFFFFF, 3], np.uint32)
    odd = {**values(1, "g"), NAMES[1]: raw.view(np.float32)}
    with Recorder.create(path, about("grads:1")) as recorder:
        recorder.offer_start(state(0))
        recorder.offer(recorded(1), gradients=odd)
        recorder.offer(recorded(2), gradients={NAMES[0]: odd[NAMES[0]]})
    session = Session.open(path)
    got = session.tensor("g", step=1, param=NAMES[1])
    assert same_bits(got.view(np.uint32), raw)
    base = got
    while isinstance(base.base, np.ndarray):
        base = base.base
    assert isinstance(base, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        got[0] = 1
    assert [session.tensor("g", 1, p.name).shape for p in PARAMS] == [p.shape for p in PARAMS]
    # A gradient that was not given was 0.
    assert not session.tensor("g", 2, NAMES[1]).any()
    assert list(session.gradients(2)) == [NAMES[0]]
    with pytest.raises(UsageError, match=r"run.session holds no gradients of step 3: they were not captured"):
        session.tensor("g", 3, NAMES[0])
    with pytest.raises(UsageError, match=r"holds no state after step 2"):
        session.tensor("w", 2, NAMES[0])
    with pytest.raises(UsageError, match=r"has no param 'x'"):
        session.tensor("w", 0, "x")


def test_coded_state_comes_back_byte_for_byte(tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    wanted = state(0, coded=True)
    with Recorder.create(
        path, about("keyframes:10", variant=Variant(kernel="8bit", codec="dynamic"))
    ) as recorder:
        recorder.offer_start(wanted)
    session = Session.open(path)
    got = session.keyframe(0)
    assert got.coded.keys() == wanted.coded.keys()
    for name, coded in wanted.coded.items():
        assert got.coded[name].codec == coded.codec
        for which in ("m", "v"):
            a, b = getattr(got.coded[name], which), getattr(coded, which)
            assert same_bits(a.codes, b.codes)
            assert same_bits(a.scales, b.scales)
            decoded = session.tensor(which, 0, name)  # type: ignore[arg-type]
            assert same_bits(decoded.reshape(-1), getattr(wanted, which)[name])
            assert not decoded.flags.writeable


def test_many_small_captures_share_files(tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    odd = tuple(Param(f'{{"a":[{i},,,:]}}', (2,)) for i in range(30))
    gradients = {p.name: np.full(2, i, np.float32) for i, p in enumerate(odd)}
    with Recorder.create(path, about("grads:1", params=odd)) as recorder:
        for step in range(1, 1001):
            recorder.offer(recorded(step), gradients=gradients)
    session = Session.open(path)
    assert len(session.files()) < 500
    assert session.verify() == []
    assert session.tensor("g", 777, odd[7].name).tolist() == [7, 7]


def test_any_tool_of_the_field_opens_the_tensors(tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    record(path, 3, "grads:1")
    for file in sorted(path.glob("tensors/*/*gradients*.safetensors")):
        for key, got in load_file(file).items():
            step, name = key.removeprefix("g@").split("/", 1)
            assert same_bits(got.reshape(-1), values(int(step), "g")[name])


def test_histograms_are_of_statistics_or_else_of_captured_tensors(tmp_path: Path) -> None:
    counted, captured = tmp_path / "counted.session", tmp_path / "captured.session"
    record(counted, 3)
    record(captured, 3, "all", statistics=False)
    lane: Lane
    for lane in LANES:
        stats = Session.open(counted).histogram(lane, step=2, param=NAMES[0])
        assert same_bits(stats.exponents, table(2)[0].lanes[lane].counts.exponents)
    session = Session.open(captured)
    # The statistics of a step are those before its update.
    assert session.histogram("w", 2, NAMES[0]).max_abs == float(np.abs(values(1, "w")[NAMES[0]]).max())
    assert session.histogram("g", 2, NAMES[0]).max_abs == float(np.abs(values(2, "g")[NAMES[0]]).max())
    assert session.histogram("g", 2).count == sum(p.numel for p in PARAMS)
    assert Session.open(counted).histogram("g", 2).count == sum(p.numel for p in PARAMS)
    with pytest.raises(UsageError, match="no step 4; it holds steps 1 to 3"):
        session.histogram("w", 4)


def test_own_kernels_are_part_of_the_variant() -> None:
    kernel = OwnKernel(
        "adamw_update",
        "own/a.wgsl",
        3,
        "@compute fn …",
        256,
        "items",
        4,
        ((0, "read_write"),),
        (("L2", "l2"),),
    )
    variant = Variant(own=OwnKernels((kernel,)))
    assert jsonform.from_text(Variant, jsonform.to_text(variant)) == variant


def test_a_change_in_the_middle_is_in_the_steps(tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    other = Variant(reduce="atomic")
    with Recorder.create(path, about()) as recorder:
        recorder.offer(recorded(1))
        recorder.mark(2, "reduce two-pass → atomic")
        recorder.offer(recorded(2, variant=other, hyper=Hyper(lr=0.5, beta2=0.95)))
        recorder.bookmark(2, "look here")
    session = Session.open(path)
    assert [session.step(t).variant.reduce for t in (1, 2)] == ["two-pass", "atomic"]
    assert session.metric("beta2").tolist() == [0.999, 0.95]
    assert [str(n) for n in session.notes("mark")] == ["Step 2: reduce two-pass → atomic"]
    assert [n.text for n in session.notes("bookmark")] == ["look here"]


def test_following_step_by_step_gives_the_same_as_reading_at_once(tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    with Recorder.create(path, about("grads:3+flight:5")) as recorder:
        recorder.offer_start(state(0))
        recorder.flush()
        follower = Session.open(path)
        assert follower.metric("loss").shape == (0,)
        for step in range(1, 71):
            record_on(recorder, step, statistics=False)
            recorder.flush()
            assert follower.follow()
            assert not follower.follow()
            assert len(follower.metric("ms/adamw_update wd" if step > 1 else "loss")) == step
            assert len(follower.findings()) == step // 10
            assert follower.captures("gradients")[-1:] == (
                () if step < 3 else (max(step // 3 * 3, step // 10 * 10),)
            )
    follower.follow()
    fresh = Session.open(path)
    for name in fresh.metric_names():
        assert same_bits(follower.metric(name), fresh.metric(name))
    assert follower.findings() == fresh.findings()
    assert follower.captures("gradients") == fresh.captures("gradients")


# --- going back, flight, gaps


def test_going_back_drops_what_came_after(tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    with Recorder.create(path, about("grads:1+keyframes:4")) as recorder:
        recorder.offer_start(state(0))
        record_on(recorder, 20)
        recorder.flush()
        follower = Session.open(path)
        assert follower.metric("loss").shape == (20,)
        recorder.offer(recorded(8, loss=99.0), gradients=values(8, "g"))
        recorder.flush()
        assert follower.follow()
        assert follower.metric("loss").tolist()[6:] == [recorded(7).loss, 99.0]
    session = Session.open(path)
    assert session.steps == range(1, 9)
    assert session.findings() == ()
    assert session.captures("keyframe") == (0, 4)
    assert session.captures("gradients") == tuple(range(1, 9))
    assert session.verify() == []
    assert len(list(path.glob("tensors/*/*"))) == len(session.files())


def test_steps_that_do_not_follow_are_a_mistake_of_the_caller(tmp_path: Path) -> None:
    with Recorder.create(tmp_path / "run.session", about()) as recorder:
        with pytest.raises(ValueError, match="step 3 was offered where step 1 comes next"):
            recorder.offer(recorded(3))
        with pytest.raises(ValueError, match="step 2 was offered where step 1 comes next"):
            recorder.offer(recorded(1), keyframe=state(2))


def test_the_flight_recorder_writes_what_led_to_a_find(tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    with Recorder.create(path, about("flight:4")) as recorder:
        recorder.offer_start(state(0))
        for step in range(1, 40):
            wanted = recorder.wants(step)
            assert wanted.gradients
            recorder.offer(
                recorded(step),
                findings=[finding(step)] if step in (22, 23, 24) else [],
                gradients=values(step, "g"),
                keyframe=state(step) if wanted.keyframe else None,
            )
    session = Session.open(path)
    start = session.captures("keyframe")[1]
    assert session.captures("keyframe")[0] == 0
    assert start <= 22 - 4
    # Every step from the keyframe on, through the finds that followed soon after.
    assert session.captures("gradients") == tuple(range(start + 1, 27))
    assert session.verify() == []


def test_a_breakpoint_writes_the_ring_too_and_nothing_is_written_without(tmp_path: Path) -> None:
    for fires in (True, False):
        path = tmp_path / f"{fires}.session"
        with Recorder.create(path, about("flight:2")) as recorder:
            recorder.offer_start(state(0))
            for step in range(1, 8):
                wanted = recorder.wants(step)
                keyframe = state(step) if wanted.keyframe else None
                recorder.offer(recorded(step), gradients=values(step, "g"), keyframe=keyframe)
            if fires:
                recorder.fire()
        assert bool(Session.open(path).captures("gradients")) == fires


def test_a_slow_disk_leaves_gaps_that_are_said_and_keeps_every_scalar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.session"
    gate = threading.Event()
    write = SessionWriter.write

    def slow(self: SessionWriter, items: object) -> None:
        gate.wait(20)
        write(self, items)  # type: ignore[arg-type]

    monkeypatch.setattr(SessionWriter, "write", slow)
    with Recorder.create(path, about("grads:1"), queue_bytes=4 * 328 * 4) as recorder:
        began = time.perf_counter()
        for step in range(1, 101):
            recorder.offer(recorded(step), gradients=values(step, "g"))
        assert time.perf_counter() - began < 5
        gate.set()
        recorder.flush()
        recorder.offer(recorded(101), gradients=values(101, "g"))
    session = Session.open(path)
    assert session.steps == range(1, 102)
    kept = session.captures("gradients")
    assert kept[0] == 1
    assert kept[-1] == 101
    assert len(kept) <= 6
    (gap,) = session.notes("gap")
    assert str(gap) == f"Steps {kept[-2] + 1} to 100: gradients not captured, the disk was too slow"
    assert session.info()["gaps"] == [str(gap)]
    assert session.verify() == []


# --- full disks and failing writes


def test_a_full_disk_ends_the_recording_in_order(tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    left = [1 << 40]
    told: list[str] = []
    recorder = Recorder.create(path, about("grads:1"), free=lambda folder: left[0], on_problem=told.append)
    record_on(recorder, 5)
    recorder.flush()
    left[0] = 65 << 20
    recorder.offer(recorded(6), gradients=values(6, "g"))
    recorder.flush()
    left[0] = 1 << 20
    recorder.offer(recorded(7), gradients=values(7, "g"))
    recorder.flush()
    assert recorder.problem == f"The recording {path} has ended, the disk is full: 1.05 MB were left."
    assert told == [recorder.problem]
    recorder.offer(recorded(8), gradients=values(8, "g"))
    recorder.close()
    session = Session.open(path)
    assert session.state == "complete"
    assert session.ended_because == recorder.problem
    assert session.steps == range(1, 8)
    assert session.captures("gradients") == (1, 2, 3, 4, 5, 6)
    assert [str(n) for n in session.notes("gap")] == ["Step 7: gradients not captured, the disk was full"]
    assert session.verify() == []


def test_a_fault_of_ours_does_not_pass_for_an_end_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: object, items: object) -> None:
        raise KeyError("a mistake")

    noticed: list[object] = []
    monkeypatch.setattr(threading, "excepthook", noticed.append)
    monkeypatch.setattr(SessionWriter, "write", broken)
    recorder = Recorder.create(tmp_path / "run.session", about())
    recorder.offer(recorded(1))
    recorder.flush()
    recorder.close()
    assert recorder.problem is not None
    assert "has ended by a fault of the inspector" in recorder.problem
    assert noticed
    assert Session.open(recorder.path).ended_because == recorder.problem


def test_tensors_that_fit_no_param_are_a_mistake_of_the_caller(tmp_path: Path) -> None:
    with Recorder.create(tmp_path / "run.session", about("grads:1")) as recorder:
        for wrong in (
            {"x": np.zeros(1, np.float32)},
            {NAMES[1]: np.zeros(8, np.float32)},
            {NAMES[1]: np.zeros(7)},
        ):
            with pytest.raises(ValueError, match=r"g of '.*' is float"):
                recorder.offer(recorded(1), gradients=wrong)  # type: ignore[arg-type]
        recorder.offer(recorded(1), gradients=values(1, "g"))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_write_that_fails_leaves_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    path = tmp_path / "run.session"
    recorder = Recorder.create(path, about("grads:1"))
    record_on(recorder, 5)
    recorder.flush()
    written = [0]
    real = os.write

    def failing(handle: int, data: bytes) -> int:
        written[0] += 1
        if written[0] > 1:
            raise OSError(code, os.strerror(code))
        return real(handle, data[:100])

    monkeypatch.setattr(tensor_store.os, "write", failing)
    recorder.offer(recorded(6), gradients=values(6, "g"))
    recorder.flush()
    monkeypatch.undo()
    recorder.close()
    assert recorder.problem is not None
    assert str(path) in recorder.problem
    session = Session.open(path)
    assert session.steps == range(1, 7 if code == errno.ENOSPC else 6)
    assert session.captures("gradients") == (1, 2, 3, 4, 5)
    assert session.verify() == []
    assert len(list(path.glob("tensors/*/*"))) == len(session.files())


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]
    if sys.platform != "linux" or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        for reserve in (0, 1 << 20):
            path = disk / f"{reserve}.session"
            recorder = Recorder.create(path, about("all"), reserve_bytes=reserve)
            recorder.offer_start(state(0))
            for step in range(1, 4000):
                recorder.offer(recorded(step), gradients=values(step, "g"), keyframe=state(step))
                if recorder.problem:
                    break
                if step % 50 == 0:
                    recorder.flush()
            recorder.close()
            assert recorder.problem is not None
            assert "the disk is full" in recorder.problem or "disk is full" in recorder.problem
            session = Session.open(path)
            assert len(session.steps) > 100
            assert session.verify() == []
            assert len(session.captures("gradients")) > 100
            session.close()
            for file in sorted(path.rglob("*"), reverse=True):
                file.rmdir() if file.is_dir() else file.unlink()
    finally:
        subprocess.run(["umount", str(disk)], check=True)


# --- who writes, who reads


def test_readers_follow_a_recording_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    code = (
        "import sys, time; from pathlib import Path; from recordings import *\n"
        "recorder = Recorder.create(Path(sys.argv[1]), about('grads:1'))\n"
        "recorder.offer_start(state(0))\n"
        "for step in range(1, 201):\n"
        "    record_on(recorder, step, statistics=False); time.sleep(0.002)\n"
        "recorder.flush(); print('written', flush=True); sys.stdin.readline(); recorder.close()\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        cwd=TESTS,
        env={**os.environ, "PYTHONPATH": f"{TESTS.parent}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 60
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        readers = [Session.open(path), Session.open(path)]
        seen: list[list[int]] = [[], []]
        while time.monotonic() < deadline and any(len(r.steps) < 200 for r in readers):
            for reader, steps in zip(readers, seen, strict=True):
                reader.follow()
                assert reader.state == "recording"
                steps.append(len(reader.steps))
                got = reader.metric("loss")
                assert got.tolist() == [recorded(t).loss for t in reader.steps]
                if reader.steps:
                    last = reader.steps[-1]
                    assert same_bits(reader.gradients(last)[NAMES[0]], values(last, "g")[NAMES[0]])
        assert all(steps == sorted(steps) and len(set(steps)) > 2 for steps in seen)
        assert child.stdin is not None
        with pytest.raises(UsageError, match=rf"is being recorded by process {child.pid}"):
            SessionWriter.resume(path)
        with pytest.raises(UsageError, match="still being recorded"):
            pack(path)
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.wait(30) == 0
        for reader in readers:
            assert reader.follow()
            assert reader.state == "complete"
            assert reader.verify() == []
    finally:
        child.kill()
        child.communicate()


def test_a_reader_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    record(path, 20, "grads:5")

    def picture() -> dict[str, tuple[bytes, int]]:
        return {
            str(p.relative_to(path)): (p.read_bytes(), p.stat().st_mtime_ns)
            for p in path.rglob("*")
            if p.is_file()
        }

    before = picture()
    with Session.open(path) as session:
        session.verify()
        session.follow()
    assert picture() == before


def test_a_read_only_folder_opens_even_with_a_log(tmp_path: Path) -> None:
    """The folder of an interrupted recording on a medium that takes no index beside the log."""
    path = tmp_path / "run.session"
    writer = interrupted(path, 10)
    (path / "session.sqlite-shm").unlink()
    mount = ["mount", "--bind", "-o", "ro", str(path), str(path)]
    again = ["mount", "-o", "remount,ro,bind", str(path)]
    mounted = (
        sys.platform == "linux" and not subprocess.run(mount, capture_output=True, check=False).returncode
    )
    try:
        if mounted:
            subprocess.run(again, capture_output=True, check=False)
        else:
            path.chmod(0o500)
            if os.access(path, os.W_OK):
                pytest.skip("nothing is read-only to this user, and nothing can be mounted")
        session = Session.open(path)
        assert session.steps == range(1, 11)
        assert session.state == "interrupted"
        assert session.verify() == []
        session.close()
        with pytest.raises(UsageError, match="cannot be written"):
            SessionWriter.resume(path)
    finally:
        if mounted:
            subprocess.run(["umount", str(path)], check=True)
        else:
            path.chmod(0o700)
    assert writer == 10


def interrupted(path: Path, steps: int, policy: str = "grads:1") -> int:
    """Record in a process that ends without closing."""
    code = (
        "import os, sys; from pathlib import Path; from recordings import *\n"
        "recorder = Recorder.create(Path(sys.argv[1]), about(sys.argv[3]))\n"
        "recorder.offer_start(state(0)); record_on(recorder, int(sys.argv[2])); recorder.flush(); os._exit(1)\n"
    )
    subprocess.run(
        [sys.executable, "-c", code, str(path), str(steps), policy],
        cwd=TESTS,
        env={**os.environ, "PYTHONPATH": f"{TESTS.parent}"},
        check=False,
    )
    return steps


def test_an_interrupted_recording_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    interrupted(path, 12)
    lost = sorted(path.glob("tensors/*/*gradients*"))[-1]
    lost.write_bytes(lost.read_bytes()[:-1])
    stranger = path / "tensors" / "0000" / "0000099-gradients-13.safetensors"
    stranger.write_bytes(b"half")
    reader = Session.open(path)
    assert reader.state == "interrupted"
    with Recorder.resume(path) as recorder:
        assert recorder.last_step == 12
        assert not stranger.exists()
        assert reader.follow()
        assert reader.state == "recording"
        record_on(recorder, 15)
    assert reader.follow()
    assert reader.state == "complete"
    assert reader.steps == range(1, 16)
    assert "lost, the file is missing or cut off" in str(reader.notes("gap")[0])
    assert reader.verify() == []
    with Recorder.resume(path) as recorder:
        record_on(recorder, 20)
    assert Session.open(path).steps == range(1, 21)
    assert reader.follow()
    assert reader.steps == range(1, 21)


def test_a_session_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    record(path, 1)
    with pytest.raises(UsageError, match="exists: name another session"):
        Recorder.create(path, about())
    with pytest.raises(UsageError, match=r"the folder .* does not exist"):
        Recorder.create(tmp_path / "no" / "run.session", about())
    assert [p.name for p in tmp_path.iterdir()] == ["run.session"]


# --- packed


def test_a_packed_session_opens_in_place(tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    record(path, 20, "grads:3+keyframes:10")
    packed = pack(path)
    assert packed == tmp_path / "run.session.zip"
    with Session.open(path) as folder, Session.open(packed) as session:
        assert session.verify() == []
        assert session.info() | {"path": "", "size": 0} == folder.info() | {"path": "", "size": 0}
        assert same_bits(session.metric("loss"), folder.metric("loss"))
        got = session.tensor("w", 10, NAMES[0])
        assert same_bits(got, folder.tensor("w", 10, NAMES[0]))
        assert not got.flags.writeable
        assert not session.follow()
    with pytest.raises(UsageError, match="packed already"):
        pack(packed)
    with pytest.raises(UsageError, match="is no session folder"):
        Recorder.resume(packed)


def test_zip_files_by_other_programs(tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    record(path, 5, "grads:1")
    for method, folder in ((zipfile.ZIP_STORED, "run.session/"), (zipfile.ZIP_DEFLATED, "")):
        out = tmp_path / f"{method}.zip"
        with zipfile.ZipFile(out, "w", method) as archive:
            for file in sorted(path.rglob("*")):
                archive.write(file, folder + str(file.relative_to(path)))
        if method == zipfile.ZIP_STORED:
            assert Session.open(out).verify() == []
        else:
            with pytest.raises(UsageError, match="compressed or encrypted"):
                Session.open(out)
    with zipfile.ZipFile(tmp_path / "none.zip", "w") as archive:
        archive.writestr("x.txt", "x")
    with pytest.raises(UsageError, match=r"the zip file holds no session\.sqlite"):
        Session.open(tmp_path / "none.zip")


@pytest.mark.parametrize("left", [0.1, 0.6, 0.99])
def test_a_zip_file_that_was_copied_in_part_says_so(tmp_path: Path, left: float) -> None:
    record(tmp_path / "run.session", 5, "grads:1")
    out = zipped(tmp_path / "run.session")
    whole = out.read_bytes()
    out.write_bytes(whole[: int(left * len(whole))])
    with pytest.raises(UsageError, match=r"is cut off.*Copy it again"):
        Session.open(out)
    out.write_bytes(b"a letter")
    with pytest.raises(UsageError, match="neither a folder nor a zip file"):
        Session.open(out)


def zipped(path: Path) -> Path:
    """As another program stores a folder."""
    out = path.with_suffix(".zip")
    with zipfile.ZipFile(out, "w") as archive:
        for file in sorted(path.rglob("*")):
            archive.write(file, f"{path.name}/{file.relative_to(path)}")
    return out


def test_a_zip_file_of_a_recording_with_its_log(tmp_path: Path) -> None:
    path = tmp_path / "killed.session"
    interrupted(path, 5)
    with pytest.raises(UsageError, match="holds the log of a recording that had not ended: unpack it"):
        Session.open(zipped(path))
    assert Session.open(pack(path)).state == "interrupted"
    # A reader that stays keeps the log beside the database when the recording ends.
    path = tmp_path / "watched.session"
    with Recorder.create(path, about("grads:1")) as recorder:
        reader = Session.open(path)
        record_on(recorder, 5)
    assert reader.follow()
    reader.close()
    if (path / "session.sqlite-wal").exists():
        assert (path / "session.sqlite-wal").stat().st_size == 0
    assert Session.open(path).verify() == []
    assert Session.open(zipped(path)).verify() == []
    assert Session.open(pack(path)).verify() == []


def test_a_damaged_session_is_not_packed(tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    record(path, 3, "grads:1")
    file = next(path.glob("tensors/*/*gradients*"))
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)
    with pytest.raises(UsageError, match="does not match its checksum"):
        pack(path)
    assert not (tmp_path / "run.session.zip").exists()


# --- versions

VERSION_0 = {
    "meta": database.SCHEMAS[1]["meta"],
    "steps": "CREATE TABLE steps (step INTEGER PRIMARY KEY, data BLOB NOT NULL)",
}


def older_session(path: Path) -> bytes:
    """A session of an invented version 0, which had no checksums of steps and nothing beside them."""
    source = path.with_name("source.session")
    record(source, 6, statistics=False)
    old = sqlite3.connect(source / "session.sqlite")
    steps = old.execute("SELECT step, data FROM steps").fetchall()
    text = database.get_meta(old, "about")
    kept = {t: old.execute(f"SELECT * FROM {t}").fetchall() for t in ("forms", "kernels")}
    old.close()
    # Of the variant alone, as in format 1.
    plain = [
        (n, json.dumps(json.loads(data)["variant"], separators=(",", ":"))) for n, data, _ in kept["forms"]
    ]
    kept["forms"] = [(n, data, database.checksum("forms", n, data)) for n, data in plain]
    path.mkdir()
    new = sqlite3.connect(path / "session.sqlite", isolation_level=None)
    for sql in VERSION_0.values():
        new.execute(sql)
    new.executemany("INSERT INTO steps VALUES (?, ?)", steps)
    assert text is not None
    for key, data in {"format": "0", "about": text, "rest": json.dumps(kept)}.items():
        database.set_meta(new, key, data)
    new.close()
    return (path / "session.sqlite").read_bytes()


def from_0(connection: sqlite3.Connection) -> None:
    steps = connection.execute("SELECT step, data FROM steps").fetchall()
    kept = json.loads(database.get_meta(connection, "rest") or "")
    connection.execute("DROP TABLE steps")
    for name, sql in database.SCHEMAS[1].items():
        if name != "meta":
            connection.execute(sql)
    for step, data in steps:
        row = (step, data, database.checksum("steps", step, data))
        connection.execute("INSERT INTO steps VALUES (?, ?, ?)", row)
    for name, rows in kept.items():
        connection.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", rows)
    connection.execute("DELETE FROM meta WHERE key = 'rest'")
    database.set_meta(connection, "generation", "0")


def test_an_older_version_opens_and_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "old.session"
    before = older_session(path)
    with pytest.raises(UsageError, match="format 0, which no version of the inspector wrote"):
        Session.open(path)
    monkeypatch.setitem(database.SCHEMAS, 0, VERSION_0)
    monkeypatch.setitem(database.MIGRATIONS, 0, from_0)
    with Session.open(path) as session:
        assert [session.step(t) for t in session.steps] == [recorded(t) for t in range(1, 7)]
        assert session.verify() == []
        assert session.info()["format"] == 0
        assert session.state == "interrupted"
    assert (path / "session.sqlite").read_bytes() == before
    assert [p.name for p in path.iterdir()] == ["session.sqlite"]
    # Who goes on with it has it upgraded.
    with Recorder.resume(path) as recorder:
        record_on(recorder, 8)
    with Session.open(path) as session:
        assert session.steps == range(1, 9)
        assert session.info()["format"] == database.FORMAT


def test_a_newer_version_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "new.session"
    record(path, 1)
    connection = sqlite3.connect(path / "session.sqlite", isolation_level=None)
    database.set_meta(connection, "format", "12")
    connection.execute("CREATE TABLE novel (x)")
    connection.close()
    for opened in (Session.open, Recorder.resume):
        with pytest.raises(
            UsageError, match=r"new.session has format 12, of a newer version .* reads up to 3"
        ):
            opened(path)


# --- the package


def test_the_package_offers_it_without_loading_it() -> None:
    code = (
        "import sys, inspector; assert 'sqlite3' not in sys.modules and 'numpy' not in sys.modules; "
        "inspector.Session.open; assert 'sqlite3' in sys.modules; "
        "assert not any(m.split('.')[0] in ('wgpu', 'PySide6', 'autograd') for m in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=TESTS.parent, check=True)
    with pytest.raises(AttributeError):
        inspector.Sessions  # type: ignore[attr-defined]  # noqa: B018


def test_what_an_about_holds_is_checked() -> None:
    text = jsonform.to_text(about())
    assert jsonform.from_text(About, text) == about()
    for broken in (
        text.replace('"made-up"', "7"),
        text.replace('"f32"', '"f33"'),
        text.replace("[8,40]", "[8,1e3]"),
        text.replace('"stats":"full"', '"stats":"full","more":1'),
        text.replace('"source":"made-up",', ""),
        text.replace('"finished_steps":0', f'"finished_steps":{10**30}'),
        "[" * 100_000,
        "null",
    ):
        assert broken != text
        with pytest.raises(jsonform.FormError):
            jsonform.from_text(About, broken)


def test_the_start_is_after_the_steps_that_were_finished(tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    with Recorder.create(path, about("grads:1", finished_steps=1000)) as recorder:
        recorder.offer_start(replace(state(1000)))
        record_on(recorder, 1003)
    session = Session.open(path)
    assert session.steps == range(1001, 1004)
    assert session.captures("keyframe") == (1000,)
    assert session.verify() == []


# --- the command


def test_info_says_what_a_session_holds(tmp_path: Path, call: Callable[..., tuple[int, str, str]]) -> None:
    path = tmp_path / "run.session"
    record(path, 12, "grads:4")
    code, out, _ = call("info", path, "--json")
    assert code == 0
    document = json.loads(out)
    assert document["steps"] == {"first": 1, "last": 12, "count": 12}
    assert document["captures"] == {"gradients": 3, "keyframe": 1}
    assert document["state"] == "complete"
    assert document["variant"]["reduce"] == "two-pass"
    assert document["size"] == sum(p.stat().st_size for p in path.rglob("*.s*") if p.is_file())
    code, text, _ = call("info", path, "--check")
    assert code == 0
    assert "12, 1 to 12" in text
    assert "every row and every file is as it was written" in text
    file = next(path.glob("tensors/*/*gradients*"))
    file.write_bytes(file.read_bytes()[:-1])
    code, out, _ = call("info", path, "--check", "--json")
    assert code == 1
    assert len(json.loads(out)["problems"]) == 1
    code, _, err = call("info", tmp_path / "none.session")
    assert code == 2
    assert "none.session cannot be read: No such file or directory." in err
    code, _, err = call("info", tmp_path)
    assert code == 2
    assert "is no session: it holds no session.sqlite" in err
