"""Tensors that take a disk long are written beside the rows, which do not wait for them; the session is the same."""

from __future__ import annotations

import errno
import random
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from recordings import NAMES, about, finding, record_on, recorded, state, table, values

from inspector.session import tensor_files, writing_threads
from inspector.session.reader import Session
from inspector.session.recorder import Recorder
from inspector.session.tensor_store import write_file

GRADIENTS = 4 * (8 * 40 + 7 + 1)
"""Bytes of the gradients of a step."""
WAIT_S = 60.0


class SlowFiles:
    """Every tensor file waits for `going`, or ends as `error` says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, large_bytes: int = 1) -> None:
        self.going, self.begun = threading.Event(), threading.Event()
        self.error: OSError | None = None
        monkeypatch.setattr(tensor_files, "write_file", self.write)
        monkeypatch.setattr(writing_threads, "LARGE_BYTES", large_bytes)

    def write(self, *arguments: Any) -> Any:
        self.begun.set()
        assert self.going.wait(WAIT_S)
        if self.error is not None:
            raise self.error
        return write_file(*arguments)


def until(recorder: Recorder, step: int) -> None:
    end = time.monotonic() + WAIT_S
    while recorder.durable_step < step:
        assert time.monotonic() < end, recorder.durable_step
        time.sleep(0.005)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.session"


def test_rows_do_not_wait_for_the_start_or_for_a_flight_recorder(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = SlowFiles(monkeypatch)
    # Room for little more than the ring: statistics do not count what waits of tensors.
    with Recorder.create(path, about("flight:2"), queue_bytes=20_000) as recorder:
        recorder.offer_start(state(0))
        assert files.begun.wait(WAIT_S)
        # Every tenth fires it.
        for step in range(1, 31):
            record_on(recorder, step)
            until(recorder, step)
        with Session.open(path) as session:
            assert session.steps == range(1, 31)
            assert session.captures("gradients") == session.captures("keyframe") == ()
        files.going.set()
    with Session.open(path) as session:
        assert session.captures("keyframe")[0] == 0
        assert {9, 10, 19, 20, 29, 30} <= set(session.captures("gradients"))
        assert session.notes("gap") == ()
        assert all(session.param_statistics(step) is not None for step in session.steps)
        assert session.verify() == []


def test_gradients_of_a_step_come_after_its_row_and_a_slow_disk_leaves_gaps(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = SlowFiles(monkeypatch)
    with Recorder.create(path, about("grads:1"), queue_bytes=3 * GRADIENTS) as recorder:
        record_on(recorder, 40, statistics=False)
        until(recorder, 40)
        files.going.set()
        assert recorder.flush(WAIT_S)
        record_on(recorder, 41, statistics=False)
    with Session.open(path) as session:
        assert session.steps == range(1, 42)
        assert session.captures("gradients") == (1, 2, 3, 41)
        assert [str(n) for n in session.notes("gap")] == [
            "Steps 4 to 40: gradients not captured, the disk was too slow"
        ]


def test_small_ones_are_committed_with_their_step(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SlowFiles(monkeypatch, large_bytes=GRADIENTS + 1).going.set()
    names = []
    monkeypatch.setattr(writing_threads.WritingThreads, "_write_large", lambda self: names.append("large"))
    with Recorder.create(path, about("grads:1")) as recorder:
        record_on(recorder, 5)
    assert names == []
    assert Session.open(path).captures("gradients") == (1, 2, 3, 4, 5)


def test_going_back_waits_for_what_is_under_way_and_drops_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = SlowFiles(monkeypatch)
    with Recorder.create(path, about("grads:1")) as recorder:
        record_on(recorder, 4)
        assert files.begun.wait(WAIT_S)
        recorder.rewind(2)
        recorder.offer(recorded(3, loss=9.0), gradients={name: -g for name, g in values(3, "g").items()})
        files.going.set()
    with Session.open(path) as session:
        assert session.steps == range(1, 4)
        assert session.step(3).loss == 9.0
        assert session.captures("gradients") == (1, 2, 3)
        assert session.gradients(3)[NAMES[0]].tobytes() == (-values(3, "g")[NAMES[0]]).tobytes()
        assert session.verify() == []
        assert len(list(path.glob("tensors/*/*"))) == len(session.files())


@pytest.mark.parametrize(
    ("error", "gap", "reason"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "the disk was full", "the disk is full"),
        (OSError(errno.EIO, "Input/output error"), "it could not be written", "Input/output error"),
    ],
)
def test_a_write_that_fails_ends_the_recording_with_all_rows_before_it(
    path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, gap: str, reason: str
) -> None:
    files = SlowFiles(monkeypatch)
    told: list[str] = []
    recorder = Recorder.create(path, about("grads:1"), on_problem=told.append)
    record_on(recorder, 3)
    until(recorder, 3)
    files.error = error
    files.going.set()
    assert recorder.flush(WAIT_S)
    assert recorder.problem is not None
    assert reason in recorder.problem
    assert told == [recorder.problem]
    recorder.close()
    with Session.open(path) as session:
        assert session.steps == range(1, 4)
        assert session.ended_because == recorder.problem
        assert str(session.notes("gap")[0]).endswith(f"gradients not captured, {gap}")
        assert session.verify() == []
    assert list(path.glob("tensors/*/*")) == []


def test_no_room_for_them_is_found_before_they_are_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SlowFiles(monkeypatch).going.set()
    left = [1 << 40]
    recorder = Recorder.create(path, about("grads:1"), free=lambda folder: left[0])
    record_on(recorder, 2)
    assert recorder.flush(WAIT_S)
    left[0] = 64 << 20
    record_on(recorder, 3)
    assert recorder.flush(WAIT_S)
    assert recorder.problem == f"The recording {path} has ended, the disk is full: 67.1 MB were left."
    with Session.open(path) as session:
        assert session.steps == range(1, 4)
        assert session.captures("gradients") == (1, 2)
        assert [str(n) for n in session.notes("gap")] == ["Step 3: gradients not captured, the disk was full"]


class Actions:
    """The same things done to any recorder, from a seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def do(self, recorder: Recorder) -> None:
        rng = random.Random(self.seed)
        recorder.offer_start(state(0))
        for _ in range(60):
            step = recorder.last_step + 1
            action = rng.random()
            if action < 0.08 and step > 3:
                recorder.rewind(rng.randrange(max(0, step - 5), step - 1))
            elif action < 0.12:
                recorder.put_in_place(state(step - 1))
            elif action < 0.2:
                recorder.fire(state(step - 1) if rng.random() < 0.5 else None)
            elif action < 0.25:
                recorder.flush(WAIT_S)
            elif action < 0.3:
                recorder.mark(step, f"mark {step}")
            else:
                wanted = recorder.wants(step)
                recorder.offer(
                    recorded(step),
                    statistics=table(step),
                    findings=[finding(step)] if rng.random() < 0.05 else [],
                    gradients=values(step, "g") if wanted.gradients else None,
                    keyframe=state(step) if wanted.keyframe else None,
                )


@pytest.mark.parametrize("seed", range(8))
def test_a_session_is_the_same_whichever_thread_wrote_its_tensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng, lock = random.Random(seed), threading.Lock()

    def sometimes_slow(folder: Path, serial: int, captures: Sequence[Any], shapes: Any) -> Any:
        with lock:
            delay = rng.choice((0, 0, 0, 0.002, 0.01))
        time.sleep(delay)
        return write_file(folder, serial, captures, shapes)

    monkeypatch.setattr(tensor_files, "write_file", sometimes_slow)
    policy = rng.choice(("all", "grads:1+flight:3", "grads:2+keyframes:5", "flight:4"))
    sessions = []
    for name, large in (("rows", 1 << 40), ("beside", 1), ("both", 2 * GRADIENTS)):
        monkeypatch.setattr(writing_threads, "LARGE_BYTES", large)
        with Recorder.create(tmp_path / f"{name}.session", about(policy)) as recorder:
            Actions(seed).do(recorder)
        assert recorder.problem is None
        sessions.append(Session.open(tmp_path / f"{name}.session"))
    first = sessions[0]
    for other in sessions[1:]:
        assert other.verify() == []
        assert other.steps == first.steps
        assert other.findings() == first.findings()
        assert other.notes("mark") == first.notes("mark")
        assert other.notes("gap") == first.notes("gap")
        for kind in ("gradients", "keyframe"):
            assert other.captures(kind) == first.captures(kind)  # type: ignore[arg-type]
        for step in first.captures("gradients"):
            assert other.gradients(step)[NAMES[0]].tobytes() == values(step, "g")[NAMES[0]].tobytes()
        for step in first.captures("keyframe"):
            assert other.keyframe(step).v[NAMES[1]].tobytes() == state(step).v[NAMES[1]].tobytes()
