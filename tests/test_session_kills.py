"""A recording that is killed at any instant opens with all that was said to be durable, and goes on from there."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from recordings import NAMES, finding, record_on, recorded, table, values

from inspector.session.reader import Session
from inspector.session.recorder import Recorder
from inspector.session.writing_threads import LARGE_BYTES

TESTS = Path(__file__).parent

CHILD = """
import sys, time
from pathlib import Path
from inspector.session import writing_threads
from recordings import *
writing_threads.LARGE_BYTES = int(sys.argv[3])
print('ready', flush=True)
path, every = Path(sys.argv[1]), int(sys.argv[2])
if path.exists():
    recorder = Recorder.resume(path)
else:
    recorder = Recorder.create(path, about('grads:1+keyframes:3+flight:2'))
    recorder.offer_start(state(0))
while True:
    step = recorder.last_step + 1
    record_on(recorder, step, statistics=step % 2 == 0)
    if step % every == 0:
        recorder.flush()
    print(recorder.durable_step, flush=True)
"""


def kill_once(path: Path, rng: random.Random, large_bytes: int) -> int:
    """Record until the process is killed; returns the last step that it said was durable."""
    every = rng.choice((1, 1, 7, 1_000_000))
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path), str(every), str(large_bytes)],
        cwd=TESTS,
        env={**os.environ, "PYTHONPATH": str(TESTS.parent)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    # From before the folder exists on to some dozens of steps.
    time.sleep(rng.choice((rng.uniform(0, 0.03), rng.uniform(0, 0.4))))
    child.kill()
    output = child.communicate()[0].splitlines()
    # The last line may be cut off.
    return max((int(line) for line in output[:-1] if line.strip().isdigit()), default=0)


def check_killed(folder: Path, rng: random.Random, large_bytes: int = LARGE_BYTES) -> None:
    path = folder / "run.session"
    durable = 0
    for _ in range(2):
        durable = max(durable, kill_once(path, rng, large_bytes))
        if not path.exists():
            assert durable == 0
            continue
        with Session.open(path) as session:
            assert session.state == "interrupted", session.ended_because
            assert session.verify() == []
            last = len(session.steps)
            assert last >= durable
            for step in session.steps:
                assert session.step(step) == recorded(step)
            assert session.findings() == tuple(finding(t) for t in session.steps if t % 10 == 0)
            for step in session.captures("gradients"):
                assert session.gradients(step)[NAMES[0]].tobytes() == values(step, "g")[NAMES[0]].tobytes()
            if large_bytes == LARGE_BYTES:
                # What is committed with a step is committed whole.
                assert session.captures("gradients") == tuple(session.steps)
            if last >= 2:
                got = session.param_statistics(2)
                assert got is not None
                assert got.names == table(2).names
        durable = last
    if path.exists():
        with Recorder.resume(path) as recorder:
            assert recorder.last_step == durable
            record_on(recorder, durable + 3)
        with Session.open(path) as session:
            assert session.state == "complete"
            assert session.steps == range(1, durable + 4)
            assert session.verify() == []
            assert len(list(path.glob("tensors/*/*"))) == len(session.files())
    assert [p.name for p in folder.iterdir() if not p.name.endswith(".part")] in (["run.session"], [])


@pytest.mark.parametrize("seed", range(6))
def test_killed_at_a_random_instant(tmp_path: Path, seed: int) -> None:
    check_killed(tmp_path, random.Random(seed))


@pytest.mark.parametrize("large_bytes", [1, 2000])
def test_killed_while_tensors_are_written_beside_the_rows(tmp_path: Path, large_bytes: int) -> None:
    check_killed(tmp_path, random.Random(large_bytes), large_bytes)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(1000, 1100, 10))
def test_killed_at_two_hundred_random_instants(tmp_path: Path, seed: int) -> None:
    for number in range(seed, seed + 10):
        folder = tmp_path / str(number)
        folder.mkdir()
        check_killed(folder, random.Random(number), random.Random(number).choice((LARGE_BYTES, 1, 2000)))
