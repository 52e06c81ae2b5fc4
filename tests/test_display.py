"""A display that does not answer is told in a sentence, before Qt aborts over it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from inspector.cli import display
from inspector.cli.display import display_problem

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="X11 and Wayland")


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No display, and no server but those a test makes."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(display, "X11_SOCKETS", str(tmp_path))
    monkeypatch.setattr(display, "X11_PORT", 1)
    # The server here only listens.
    monkeypatch.setattr(display, "_lets_in", lambda display: True)


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "X7"))
        server.listen()
        yield server


def test_no_display_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert display_problem().startswith("There is no display")
    monkeypatch.setenv("QT_QPA_PLATFORM", "offscreen")
    assert display_problem() == ""


@pytest.mark.parametrize("name", [":7", ":7.0", "unix:7"])
def test_a_display_that_answers_will_do(
    monkeypatch: pytest.MonkeyPatch, listening: socket.socket, name: str
) -> None:
    monkeypatch.setenv("DISPLAY", name)
    assert display_problem() == ""
    monkeypatch.setattr(display, "_lets_in", lambda display: False)
    assert "not answer" in display_problem()


def test_a_display_that_answers_at_the_second_try_will_do(
    monkeypatch: pytest.MonkeyPatch, listening: socket.socket
) -> None:
    answers = iter((False, True))
    monkeypatch.setattr(display, "_lets_in", lambda display: next(answers))
    monkeypatch.setenv("DISPLAY", ":7")
    assert display_problem() == ""


@pytest.mark.parametrize("name", [":8", "7", ":x", "localhost:1", "::", ":99999999", "no such host:0", ":"])
def test_a_display_that_does_not_answer_is_named(
    monkeypatch: pytest.MonkeyPatch, listening: socket.socket, name: str
) -> None:
    monkeypatch.setenv("DISPLAY", name)
    assert display_problem().startswith(f"The display DISPLAY={name} does not answer: use 'inspector run'")


def test_either_display_is_enough(monkeypatch: pytest.MonkeyPatch, listening: socket.socket) -> None:
    monkeypatch.setenv("WAYLAND_DISPLAY", "X7")
    monkeypatch.setenv("DISPLAY", ":8")
    assert display_problem() == ""
    monkeypatch.setenv("QT_QPA_PLATFORM", "xcb")
    assert "DISPLAY=:8" in display_problem()


def test_the_command_ends_with_a_sentence_and_code_2() -> None:
    env = {k: v for k, v in os.environ.items() if k not in ("QT_QPA_PLATFORM", "WAYLAND_DISPLAY")}
    done = subprocess.run(
        [sys.executable, "-m", "inspector", "window", "charlm"],
        env={**env, "DISPLAY": ":7793"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "DISPLAY=:7793 does not answer" in " ".join(done.stderr.split())
