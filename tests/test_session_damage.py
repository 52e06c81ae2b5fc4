"""A damaged or hostile session is refused or opened with what is sound, in one sentence; never a wrong number."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from recordings import record

from inspector.errors import UsageError
from inspector.session.archive import pack
from inspector.session.reader import Session

TESTS = Path(__file__).parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(TESTS.parent)}
UNCLOSED = (
    "import os, sys; from pathlib import Path; from recordings import *\n"
    "recorder = Recorder.create(Path(sys.argv[1]), about('grads:2+keyframes:5'))\n"
    "recorder.offer_start(state(0)); record_on(recorder, 13); recorder.flush(); os._exit(0)\n"
)


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete session, an interrupted one with its log, and a packed one, all of the same 13 steps."""
    work = tmp_path_factory.mktemp("bases")
    record(work / "complete.session", 13, "grads:2+keyframes:5")
    pack(work / "complete.session", work / "packed.zip")
    unclosed = [sys.executable, "-c", UNCLOSED, str(work / "interrupted.session")]
    subprocess.run(unclosed, cwd=TESTS, env=ENVIRONMENT, check=True)
    return work


def damaged(work: Path, first: int, last: int) -> list[dict[str, object]]:
    run = subprocess.run(
        [sys.executable, "session_damage.py", str(work), str(first), str(last)],
        cwd=TESTS,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, f"{run.returncode}: {run.stderr[-3000:]}"
    return [json.loads(line) for line in run.stdout.splitlines()]


def test_sixty_damaged_sessions(bases: Path) -> None:
    results = damaged(bases, 0, 60)
    assert len(results) == 60
    # Most of what is done to one is noticed; the rest hits what nothing is read from.
    assert sum(bool(each["problems"]) for each in results) > 40


def test_statistics_of_a_step_whose_row_is_gone_are_not_said_to_be_uncounted(tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    record(path, 5)
    connection = sqlite3.connect(path / "session.sqlite", isolation_level=None)
    for table in ("steps", "statistics"):
        connection.execute(f"DELETE FROM {table} WHERE step = 3")
    connection.close()
    session = Session.open(path)
    with pytest.raises(UsageError, match=r"run\.session is damaged: the row of step 3 is missing"):
        session.param_statistics(3)
    with pytest.raises(UsageError, match="the row of step 3 is missing"):
        session.metric("loss")
    assert session.step(4).step == 4


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(1000, 2000, 100))
def test_a_thousand_damaged_sessions(bases: Path, first: int) -> None:
    assert len(damaged(bases, first, first + 100)) == 100
