"""SIGTERM, which a scheduler sends before it kills: the recording ends in order, and the script keeps its say."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from inspector.session.reader import Session

torch = pytest.importorskip("torch")

import torch_runs as runs  # noqa: E402

from inspector.integrations.torch import record  # noqa: E402
from inspector.integrations.torch.steps import Steps  # noqa: E402

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="SIGTERM ends a process at once on Windows")

AdamW = torch.optim.AdamW
LOOP = """
    import os, signal, time
    {before}
    recording = record(optimizer, path, model, "flight:2"{options})
    for step in range(1, 400):
        train(model, optimizer, [step])
        print(step, flush=True)
        time.sleep(0.02)
        {after}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.session"


def terminated(
    path: Path, before: str = "pass", options: str = "", after: str = "pass"
) -> tuple[int, int, str]:
    """Of a script that was sent SIGTERM after step 12: its exit code, the last step that it told, and stderr."""
    body = LOOP.format(before=before, options=options, after=after)
    process = subprocess.Popen(
        runs.script(body, path),
        env=runs.environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) == 12:
            process.send_signal(signal.SIGTERM)
            break
    out, err = process.communicate(timeout=120)
    told = [int(line) for line in out.split()]
    return process.returncode, told[-1] if told else 12, err


def test_the_signal_ends_the_process_once_everything_is_written(path: Path) -> None:
    code, told, err = terminated(path)
    assert code == -signal.SIGTERM
    assert err == ""
    with Session.open(path) as session:
        assert session.state == "complete"
        assert session.ended_because == "The run was ended by SIGTERM."
        last = session.steps.stop - 1
        assert last in (told, told + 1)
        assert {last - 1, last} <= set(session.captures("gradients"))


def test_a_handler_of_the_script_is_called_and_says_whether_the_run_goes_on(path: Path) -> None:
    """It only takes note, as scripts do that save a checkpoint at the end of their step."""
    before = "asked = []; signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))"
    after = """
        while step == 12 and not asked: time.sleep(0.01)
        if step == 20: sys.exit(5)
    """
    code, told, err = terminated(path, before, after=after)
    assert (code, told, err) == (5, 20, "")
    with Session.open(path) as session:
        assert session.state == "complete"
        assert session.ended_because is None
        assert session.steps == range(1, 21)
        (mark,) = [note for note in session.notes("mark") if "SIGTERM" in note.text]
        assert mark.step == 13
        assert {11, 12} <= set(session.captures("gradients"))


def test_a_handler_that_leaves_at_once_finds_the_ring_written(path: Path) -> None:
    code, _, _ = terminated(path, "signal.signal(signal.SIGTERM, lambda number, frame: os._exit(9))")
    assert code == 9
    with Session.open(path) as session:
        assert session.state == "interrupted"
        assert session.captures("gradients")


@pytest.mark.parametrize(
    ("before", "options", "code"),
    [
        ("pass", ", sigterm=False", -signal.SIGTERM),
        # What is ignored stays so: the script runs to its end.
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", "", 0),
    ],
)
def test_it_can_be_left_alone(path: Path, before: str, options: str, code: int) -> None:
    found, told, _ = terminated(path, before, options, "if step >= 40: sys.exit(0)")
    assert found == code
    with Session.open(path) as session:
        if code:
            assert session.state == "interrupted"
            assert session.steps.stop - 1 >= told - 1
        else:
            assert (session.state, session.steps) == ("complete", range(1, 41))


def test_a_child_that_is_ended_leaves_the_recording_alone(path: Path) -> None:
    """As workers that load data are, by the process that forked them."""
    body = """
    import os, signal, time
    recording = record(optimizer, path, model, "flight:2")
    train(model, optimizer, range(1, 4))
    begun, begins = os.pipe()
    child = os.fork()
    if not child:
        os.write(begins, b"x")
        time.sleep(60)
    # Python drops a signal that comes while it is still making ready after the fork.
    os.read(begun, 1)
    os.kill(child, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
    train(model, optimizer, range(4, 7))
    """
    done = runs.run_script(body, path)
    assert done.stderr == ""
    with Session.open(path) as session:
        assert (session.state, session.ended_because, session.steps) == ("complete", None, range(1, 7))


def test_the_handler_of_before_is_put_back(path: Path) -> None:
    def mine(number: int, frame: Any) -> None: ...

    was = signal.signal(signal.SIGTERM, mine)
    try:
        model = runs.Net()
        with record(AdamW(model.parameters()), path, model):
            assert signal.getsignal(signal.SIGTERM) is not mine
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, was)


def test_a_signal_within_a_hook_waits_for_its_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut in upon, it would wait for a lock that it holds itself."""
    model = runs.Net()
    optimizer = AdamW(model.parameters())
    seen: list[tuple[bool, int]] = []
    was = signal.signal(
        signal.SIGTERM, lambda number, frame: seen.append((recording.busy, recording._run.step))
    )
    begin = Steps.begin

    def interrupted(self: Steps, *, skipped: bool = False) -> None:
        begin(self, skipped=skipped)
        if self.run.step == 3:
            os.kill(os.getpid(), signal.SIGTERM)
            assert not seen

    monkeypatch.setattr(Steps, "begin", interrupted)
    try:
        with record(optimizer, path, model, "flight:2") as recording:
            runs.train(model, optimizer, range(1, 6))
    finally:
        signal.signal(signal.SIGTERM, was)
    assert recording.problem is None
    assert seen == [(False, 3)]
    with Session.open(path) as session:
        assert session.steps == range(1, 6)
