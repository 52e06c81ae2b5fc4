"""What a script that is killed keeps: a step that has run is on disk before the one after the next begins."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from inspector.session import tensor_files, writing_threads
from inspector.session.reader import Session
from inspector.session.writer import SessionWriter

torch = pytest.importorskip("torch")

import torch_runs as runs  # noqa: E402

from inspector.integrations.torch import keeping, record  # noqa: E402

AdamW = torch.optim.AdamW
LOOP = """
    from torch_runs import loss_of
    {start}
    recording = record(optimizer, path, model, sys.argv[2])
    for step in range(1, 100_000):
        optimizer.zero_grad()
        loss = loss_of(model, step)
        loss.backward()
        {before}
        optimizer.step()
        print(step, flush=True)
        {after}
"""
LOSSES = {
    "none": {},
    "before": {"before": "recording.loss(loss)"},
    "after": {"after": "recording.loss(loss)"},
    "now and then": {"after": "recording.loss(loss) if step % 5 == 1 else None"},
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.session"


def body(**parts: str) -> str:
    return LOOP.format(**{"start": "pass", "before": "pass", "after": "pass"} | parts)


@contextmanager
def load(processes: int) -> Iterator[None]:
    """Other programs that want the processor."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for each in busy:
            each.kill()
            each.wait()


def check_killed(path: Path, rng: random.Random, losses: str) -> None:
    policy = rng.choice(("stats", "all", "grads:3+keyframes:5+flight:2"))
    process = subprocess.Popen(
        runs.script(body(**LOSSES[losses]), path, policy),
        env=runs.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "1\n"
    with load(2 * (os.cpu_count() or 1)):
        time.sleep(rng.choice((0.0, rng.uniform(0, 0.1), rng.uniform(0, 1))))
        process.kill()
    # The last line may be cut off.
    printed = [1, *map(int, process.communicate()[0].split("\n")[:-1])]
    with Session.open(path) as session:
        assert session.state == "interrupted"
        assert session.verify() == []
        assert len(session.steps) >= printed[-1] - 1
        if policy == "all":
            assert session.captures("gradients") == tuple(session.steps)


@pytest.mark.parametrize("losses", ["before", "none"])
@pytest.mark.skipif(sys.platform == "win32", reason="a killed process leaves no lock there to tell by")
def test_killed_under_load(tmp_path: Path, losses: str) -> None:
    check_killed(tmp_path / "run.session", random.Random(losses), losses)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("losses", LOSSES)
def test_killed_a_hundred_times_under_load(tmp_path: Path, losses: str) -> None:
    for seed in range(25):
        check_killed(tmp_path / f"{seed}.session", random.Random(f"{losses}{seed}"), losses)


# --- a disk that is slow, so that what waits for it shows


class SlowDisk:
    """Every write takes at least `delay_s`, or waits for `going` where that is cleared."""

    def __init__(self, delay_s: float) -> None:
        self.delay_s = delay_s
        self.going = threading.Event()
        self.going.set()

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        write = SessionWriter.write

        def slowly(writer: SessionWriter, items: Any) -> None:
            time.sleep(self.delay_s)
            self.going.wait(30)
            write(writer, items)

        monkeypatch.setattr(SessionWriter, "write", slowly)


def steps_on_disk(path: Path) -> int:
    with Session.open(path) as session:
        return len(session.steps)


@pytest.mark.parametrize("order", ["before", "after", "none"])
@pytest.mark.parametrize("policy", ["stats", "all"])
def test_the_step_before_is_on_disk_once_a_step_has_run(
    path: Path, monkeypatch: pytest.MonkeyPatch, order: str, policy: str
) -> None:
    SlowDisk(0.03).install(monkeypatch)
    model = runs.Net()
    optimizer = AdamW(runs.split(model), lr=3e-3)
    with record(optimizer, path, model, policy) as recording:
        for step in range(1, 9):
            optimizer.zero_grad()
            loss = runs.loss_of(model, step)
            loss.backward()
            if order == "before":
                recording.loss(loss)
            optimizer.step()
            # As another process would find it, were this one gone now.
            assert steps_on_disk(path) >= step - 1
            if order == "after":
                recording.loss(loss)
    assert steps_on_disk(path) == 8


def test_a_disk_that_hangs_is_waited_for_once_and_the_session_says_so(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "PATIENCE_S", 0.1)
    disk = SlowDisk(0)
    disk.install(monkeypatch)
    model = runs.Net()
    optimizer = AdamW(runs.split(model), lr=3e-3)
    with record(optimizer, path, model) as recording:
        runs.train(model, optimizer, range(1, 4), recording=recording)
        disk.going.clear()
        runs.train(model, optimizer, range(4, 30), recording=recording)
        disk.going.set()
    with Session.open(path) as session:
        assert session.state == "complete"
        assert len(session.steps) == 29
        told = [note for note in session.notes("mark") if "not on disk after" in note.text]
    assert [note.step for note in told] in ([3], [4])


@pytest.mark.timeout(60)
def test_a_recording_that_ends_by_itself_is_not_waited_for(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(writer: SessionWriter, items: Any) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(keeping, "PATIENCE_S", 1e6)
    model = runs.Net()
    optimizer = AdamW(runs.split(model), lr=3e-3)

    def train() -> Any:
        with record(optimizer, path, model) as recording:
            runs.train(model, optimizer, range(1, 4), recording=recording)
            monkeypatch.setattr(SessionWriter, "write", fails)
            runs.train(model, optimizer, range(4, 10), recording=recording)
        return recording

    with pytest.warns(UserWarning, match="Input/output error"):
        assert train().problem is not None


@pytest.mark.timeout(60)
@pytest.mark.parametrize("policy", ["stats+flight:4", "keyframes:3"])
def test_a_script_does_not_wait_for_large_tensors(
    path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    going, write = threading.Event(), tensor_files.write_file

    def held(*arguments: Any) -> Any:
        assert going.wait(50)
        return write(*arguments)

    monkeypatch.setattr(tensor_files, "write_file", held)
    monkeypatch.setattr(writing_threads, "LARGE_BYTES", 1)
    monkeypatch.setattr(keeping, "PATIENCE_S", 1e6)
    model = runs.Net()
    optimizer = AdamW(runs.split(model), lr=3e-3)
    with record(optimizer, path, model, policy) as recording:
        runs.train(model, optimizer, range(1, 13), recording=recording)
        assert steps_on_disk(path) >= 11
        going.set()
    with Session.open(path) as session:
        assert session.captures("keyframe")[0] == 0
        assert session.verify() == []
