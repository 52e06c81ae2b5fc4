"""Two processes follow a third that records as fast as it can: no step is missed, nothing is locked, all is right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from inspector.session.reader import Session

PROGRAM = Path(__file__).with_name("session_following.py")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(PROGRAM.parent.parent)}
READERS = 2


def started(*words: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
    )  # fmt: skip


def result(process: subprocess.Popen[str], timeout_s: float) -> Any:
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert process.returncode == 0, err
    return json.loads(out)


def follow_for(folder: Path, seconds: float) -> None:
    path = folder / "run.session"
    readers = [started("read", path) for _ in range(READERS)]
    writer = started("write", path, seconds)
    try:
        wrote = result(writer, seconds + 60)
        # One that fell behind may take its time.
        reports = [result(reader, 4 * seconds + 60) for reader in readers]
    finally:
        for process in (writer, *readers):
            if process.poll() is None:
                process.kill()
    sys.stdout.write(f"{wrote} {reports}\n")
    assert wrote["problem"] is None
    for report in reports:
        assert report["wrong"] == []
        assert report["seen"] == wrote["last"] > 100
        assert report["state"] == "complete"
        # It followed, and did not just read it all at the end.
        assert report["live_looks"] > 10
        assert report["most_at_once"] < wrote["last"] / 2
    with Session.open(path) as session:
        assert session.verify() == []
        assert session.steps.stop - 1 == wrote["last"]


def test_two_readers_follow_one_writer(tmp_path: Path) -> None:
    follow_for(tmp_path, 8)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_two_readers_follow_one_writer_for_ten_minutes(tmp_path: Path) -> None:
    follow_for(tmp_path, 600)
