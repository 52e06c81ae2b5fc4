"""A file is its old content or its new one, whatever happens; only ordinary files are ever replaced."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from inspector.errors import UsageError
from inspector.files import check_writable, replacing, write_text


def listed(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_new_content_takes_the_place_of_the_old(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    for text in ("one\n", "two, µs\r\n"):
        write_text(path, text)
        assert path.read_bytes() == text.encode()
    assert listed(tmp_path) == ["x.csv"]


def test_a_link_is_followed_not_replaced(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    for text in ("new", "newer"):
        write_text(link, text)
        assert link.is_symlink()
        assert target.read_text() == text


@pytest.mark.parametrize("kind", ["fifo", "device", "folder"])
def test_what_is_no_ordinary_file_is_refused_and_left_as_it_is(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "special"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        try:
            os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        except OSError:
            pytest.skip("no device can be made here")
    before = path.stat().st_mode
    link = tmp_path / "link"
    link.symlink_to(path)
    for name in (path, link):
        with pytest.raises(UsageError, match=r"is a folder|no ordinary file"):
            check_writable(name)
        with pytest.raises(UsageError, match=r"is a folder|no ordinary file"):
            write_text(name, "x")
    assert path.stat().st_mode == before
    assert listed(tmp_path) == ["link", "special"]


@pytest.mark.parametrize("name", ["", ".", "/"])
def test_no_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        check_writable(Path(name))


def test_a_link_in_a_circle_is_refused(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.symlink_to(b)
    b.symlink_to(a)
    with pytest.raises(UsageError, match="cannot be written"):
        write_text(a, "x")


def test_an_exception_on_the_way_leaves_the_old_content_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_text(path, "old")

    def half() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        half()
    assert path.read_text() == "old"
    assert listed(tmp_path) == ["x"]


WRITER = """
import sys, time
from pathlib import Path
from inspector.files import replacing
with replacing(Path(sys.argv[1])) as temporary:
    temporary.write_text("half")
    print("in the middle", flush=True)
    time.sleep(60)
"""


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_what_a_killed_writer_left_goes_with_the_next_write(tmp_path: Path, number: signal.Signals) -> None:
    path = tmp_path / "x"
    write_text(path, "old")
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        # One that still writes is left alone.
        write_text(path, "between")
        assert len(listed(tmp_path)) == 2
        writer.send_signal(number)
        writer.wait()
    assert path.read_text() == "between"
    deadline = time.monotonic() + 60
    while len(listed(tmp_path)) > 1 and time.monotonic() < deadline:
        write_text(path, "new")
    assert path.read_text() == "new"
    assert listed(tmp_path) == ["x"]
