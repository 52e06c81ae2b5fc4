"""Disks that are really full or read-only: recording ends in one sentence, and what was written opens.

On file systems in memory of a size of their own; skipped where this user may not mount one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import recordings
from recordings import record_on
from test_recording import wait_for_steps
from test_worker import WAIT_S, Opener, Watched

from inspector.errors import UsageError
from inspector.runtime import commands as c
from inspector.session.reader import Session
from inspector.session.recorder import Recorder
from inspector.session.writer import SessionWriter

Call = Callable[..., tuple[int, str, str]]
POLICIES = {"stats": 5000, "grads:1": 1500, "keyframes:1": 500, "flight:2": 5000, "all": 400}
"""And how many steps of a run there is room for."""
ROOMY = 256 << 20
"""More than what is left free of a disk on purpose."""


def mount(options: str, folder: Path) -> bool:
    if sys.platform != "linux" or shutil.which("mount") is None:
        return False
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=False, capture_output=True
    )
    return done.returncode == 0


@contextmanager
def mounted(folder: Path, nbytes: int) -> Iterator[Path]:
    """A file system of so many bytes at `folder`; skips the test where there is no right to mount one."""
    folder.mkdir(exist_ok=True)
    if not mount(f"size={nbytes}", folder):
        pytest.skip("file systems cannot be mounted here")
    try:
        yield folder
    finally:
        # Lazily: a test that fails may have left files open.
        subprocess.run(["umount", "-l", str(folder)], check=True)


def remount_read_only(folder: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)


def fill(folder: Path, leave: int) -> None:
    """Take all of a file system but `leave` bytes, at once."""
    with (folder / "filler").open("wb") as file:
        size = shutil.disk_usage(folder).free - leave
        while size >= 4096 and (left := shutil.disk_usage(folder).free - leave) > 0:
            try:
                os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), min(size, left))
            except OSError:
                size //= 2


def check_readable(path: Path, *, least: int = 0) -> Session:
    """A session that is sound throughout, and has its steps one after the other from the first."""
    with Session.open(path) as session:
        assert session.verify() == []
        assert session.steps.start == 1
        assert len(session.steps) >= least
        for step in session.captures("gradients"):
            assert session.gradients(step)
        for step in session.captures("keyframe"):
            session.keyframe(step)
    return session


# --- the writer on its own, on disks of every size


def created(path: Path, policy: str) -> Recorder | None:
    """With nothing held in reserve, so that the system itself says that there is no room, wherever that happens."""
    try:
        return Recorder.create(path, recordings.about(policy), reserve_bytes=0)
    except UsageError as error:
        told = str(error)
    assert told.startswith(f"{path} cannot be written: ")
    return None


@pytest.mark.parametrize("policy", POLICIES)
def test_a_disk_of_any_size_keeps_all_that_went_onto_it(tmp_path: Path, policy: str) -> None:
    ended = set()
    for kilobytes in range(120, 700, 44):
        with mounted(tmp_path / "disk", kilobytes << 10) as disk:
            path = disk / "run.session"
            recorder = created(path, policy)
            if recorder is None:
                # No room for an empty session: nothing is left behind.
                assert list(disk.iterdir()) == []
                continue
            if recorder.policy.captures:
                recorder.offer_start(recordings.state(0))
            durable = 0
            for step in range(1, 400):
                if recorder.problem is not None:
                    break
                record_on(recorder, step)
                recorder.flush()
                durable = recorder.durable_step
            recorder.close()
            assert recorder.problem is not None
            assert "has ended" in recorder.problem
            assert "full" in recorder.problem
            assert recorder.problem.count("\n") == 0
            session = check_readable(path)
            assert session.steps.stop - 1 == durable
            with Session.open(path) as kept:
                assert all(kept.step(step) == recordings.recorded(step) for step in kept.steps)
            ended.add(session.state)
            # Once there is room again it goes on, from the last step that is sound.
            subprocess.run(["mount", "-o", "remount,size=8m", str(disk)], check=True)
            with Recorder.resume(path, reserve_bytes=0) as again:
                assert again.last_step == durable
                record_on(again, durable + 3)
            assert check_readable(path).steps.stop - 1 == durable + 3
    assert ended


# --- a run


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("policy", "leave"), [*((policy, 10 << 20) for policy in POLICIES), ("stats", 0), ("all", 0)]
)
def test_a_run_ends_with_its_recording(tmp_path: Path, policy: str, leave: int) -> None:
    with mounted(tmp_path / "disk", ROOMY) as disk:
        path = disk / "run.session"
        words = ("--steps", str(POLICIES[policy]), "--save", str(path), "--capture", policy, "--json")
        process = subprocess.Popen(
            [sys.executable, "-m", "inspector", "run", "synthetic:20000", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        wait_for_steps(process, path, 5)
        fill(disk, leave)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 1
        assert out.startswith("{"), "the document of the steps that ran is printed all the same"
        told = [line for line in err.splitlines() if line.startswith("inspector: ")]
        assert len(told) == 1
        assert f"The recording {path} has ended, " in told[0]
        assert "full" in told[0]
        assert "Traceback" not in err
        session = check_readable(path, least=5)
        if leave:
            assert session.state == "complete"
            assert session.ended_because is not None
            assert session.ended_because in told[0]


@pytest.mark.gpu
def test_in_the_window_the_run_goes_on(tmp_path: Path) -> None:
    watched = Watched(Opener())
    watched.at(1, 0)
    with mounted(tmp_path / "disk", ROOMY) as disk:
        path = disk / "run.session"
        watched.worker.send(c.StartRecording(str(path), "all"))
        watched.until(lambda s: s.recording is not None)
        watched.worker.send(c.Run(until=3))
        watched.at(3, 4)
        fill(disk, 0)
        watched.worker.send(c.Run(until=8))
        shown = watched.until(lambda s: s.notice is not None and "has ended" in s.notice.text)
        assert shown.notice is not None
        assert "full" in shown.notice.text
        assert shown.notice.text.count(str(path)) <= 2
        shown = watched.at(8, 4)
        assert shown.recording is None
        assert watched.worker.close(WAIT_S)
        assert check_readable(path, least=3).steps.stop - 1 < 8


def test_there_is_no_room_to_begin_with(tmp_path: Path, call: Call) -> None:
    with mounted(tmp_path / "disk", 2 << 20) as disk:
        code, out, err = call("run", "synthetic:20000", "--steps", "5", "--save", disk / "run.session")
        assert (code, out) == (2, "")
        assert "would take" in err.splitlines()[-1]
        assert list(disk.iterdir()) == []
        fill(disk, 0)
        recordings.record(tmp_path / "run.session", 30, "grads:1")
        for words in (
            ("pack", tmp_path / "run.session", "--out", disk / "x.zip"),
            ("export", tmp_path / "run.session", "--out", disk / "x.csv"),
            ("export", tmp_path / "run.session", "--format", "tensorboard", "--out", disk / "board"),
            ("export", tmp_path / "run.session", "--format", "safetensors", "--out", disk / "x.safetensors"),
        ):
            code, _, err = call(*words)
            assert code == 2, words
            assert "No space left on device" in err or "full" in err, words
            assert err.count("\n") == 1
        assert [p.name for p in disk.iterdir()] == ["filler"]


# --- read-only


def interrupted(path: Path) -> None:
    """A session as a kill leaves it, its last steps in the log alone."""
    writer = SessionWriter.create(path, recordings.about("grads:1"))
    recorder = Recorder(writer)
    recorder.offer_start(recordings.state(0))
    record_on(recorder, 8)
    recorder.flush()
    for part in ("session.sqlite", "session.sqlite-wal"):
        shutil.copy(path / part, path / f"{part}.kept")
    recorder.close()
    for part in ("session.sqlite", "session.sqlite-wal"):
        (path / f"{part}.kept").replace(path / part)
    for part in path.glob("*.lock"):
        part.unlink()


def test_a_read_only_disk_is_read_and_nothing_else(tmp_path: Path, call: Call) -> None:
    with mounted(tmp_path / "disk", ROOMY) as disk:
        done, broken = disk / "done.session", disk / "broken.session"
        recordings.record(done, 12, "grads:1+keyframes:4")
        interrupted(broken)
        call("pack", done)
        remount_read_only(disk)
        before = sorted(p.relative_to(disk) for p in disk.rglob("*"))
        assert check_readable(done).steps == range(1, 13)
        assert check_readable(disk / "done.session.zip").steps == range(1, 13)
        session = check_readable(broken)
        assert (session.steps, session.state) == (range(1, 9), "interrupted")
        for path in (done, broken):
            code, _, err = call("info", path, "--check")
            assert code == 0, err
            assert call("diff", path, done)[0] in (0, 1)
            assert call("export", path, "--out", tmp_path / "x.csv")[0] == 0
        for words, sentence in (
            (("run", "synthetic:100", "--steps", 2, "--save", disk / "new.session"), "is read-only"),
            (("pack", broken), "is read-only"),
            (("export", done, "--out", disk / "x.csv"), "is read-only"),
            (("export", done, "--format", "tensorboard", "--out", disk / "x"), "is read-only"),
        ):
            code, _, err = call(*words)
            assert code == 2, words
            assert sentence in err.splitlines()[-1], words
            assert err.count("\n") == 1, words
        with pytest.raises(UsageError, match=r"(?i)read-only"):
            Recorder.resume(broken)
        assert sorted(p.relative_to(disk) for p in disk.rglob("*")) == before
