"""Whatever takes long and is ended by a person leaves things in order: a second run, a device, recordings, files."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from checkpoint_files import needs_torch, opened
from recordings import about, recorded, state, values
from test_race import TINY
from test_worker import WAIT_S, Opener, Watched

from inspector.plan import Variant
from inspector.progress import EndedError, advanced, part, watched
from inspector.runtime import commands as c
from inspector.runtime.snapshots import Snapshot
from inspector.session.reader import Session
from inspector.session.recorder import Recorder
from inspector.session.writer import SessionWriter
from inspector.sources.open import open_source


def test_a_part_is_told_as_its_share_of_the_whole() -> None:
    told: list[float] = []
    with watched(lambda done, of: told.append(done / of)):
        with part(0, 0.5):
            advanced(0, 10)
            with part(0.5, 1):
                advanced(5, 10)
        with part(0.5, 1):
            advanced(1, 4)
            advanced(7, 0)
    assert told == pytest.approx([0, 0.375, 0.625, 0.5])
    with part(0, 1):
        advanced(1, 2)


# --- in the worker


class Ended:
    """A worker in which work of one name is ended the `nth` time that it says how far it is."""

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self.told: list[tuple[str, float]] = []
        self._plan: tuple[str, int] | None = None
        self._run = watched.worker._long._advanced
        watched.worker._long._advanced = self._heard  # type: ignore[method-assign]

    def _heard(self, doing: str, ends: bool, outlasts: bool, done: int, of: int) -> None:
        self.told.append((doing, done / of if of else 0.0))
        if self._plan is not None and doing == self._plan[0]:
            left = self._plan[1] - 1
            self._plan = (doing, left) if left else None
            if not left:
                self.watched.worker.send(c.CancelWork())
        self._run(doing, ends, outlasts, done, of)

    def end(self, command: c.Command, doing: str, nth: int) -> Snapshot:
        """The moment at which it is told that what `command` began has ended."""
        before = self.watched.snapshots[-1].notice
        serial = before.serial if before is not None else 0
        self._plan, self.told[:] = (doing, nth), []
        self.watched.worker.send(command)
        return self.watched.until(lambda s: s.notice is not None and s.notice.serial > serial)

    def shares(self, doing: str) -> list[float]:
        return [share for name, share in self.told if name == doing]


def finished(step: int, snapshot: Snapshot) -> bool:
    """Whether that is the last step that is complete."""
    return snapshot.cursor is not None and snapshot.cursor.finished_steps == step


@pytest.fixture
def run() -> Iterator[Ended]:
    made = Watched(Opener())
    made.at(1, 0)
    for step in (1, 2):
        made.worker.send(c.StepIteration())
        made.until(partial(finished, step))
    yield Ended(made)
    assert made.worker.close(WAIT_S)


def said(snapshot: Snapshot) -> str:
    assert snapshot.notice is not None
    return snapshot.notice.text


def weights(run: Ended) -> np.ndarray:
    run.watched.worker.send(c.ViewValues("a", 0, 4))
    shown = run.watched.until(lambda s: s.values is not None and s.mode == "paused")
    assert shown.values is not None
    return shown.values.after["w"].copy()


@pytest.mark.gpu
def test_a_form_that_is_laid_out_anew_is_told_from_its_start_to_its_end_once(run: Ended) -> None:
    run.told.clear()
    run.watched.worker.send(c.SetVariant(Variant(kernel="8bit")))
    run.watched.until(lambda s: s.plan is not None and s.plan.variant.kernel == "8bit" and s.mode == "paused")
    shares = run.shares("Changing the form")
    # Read back and uploaded: one behind the other.
    assert len(shares) > 3
    assert shares == sorted(shares)


@pytest.mark.gpu
@pytest.mark.parametrize("nth", [1, 3, 6])
def test_lockstep_that_is_ended_is_off_and_takes_no_memory(run: Ended, nth: int) -> None:
    before = run.watched.snapshots[-1]
    ended = run.end(c.StartLockstep(), "Starting the second run", nth)
    assert said(ended) == "The second run was not started."
    assert ended.eight_bit is not None
    assert ended.eight_bit.companion is None
    assert not ended.eight_bit.waiting
    assert ended.memory_bytes == before.memory_bytes
    assert run.shares("Starting the second run") == sorted(run.shares("Starting the second run"))
    run.watched.worker.send(c.StartLockstep())
    on = run.watched.until(lambda s: s.eight_bit is not None and s.eight_bit.companion == "8bit")
    assert on.memory_bytes > before.memory_bytes


@pytest.mark.gpu
@pytest.mark.parametrize("nth", [1, 2])
def test_recovering_that_is_ended_can_be_asked_for_again(run: Ended, nth: int) -> None:
    before = weights(run)
    worker = run.watched.worker
    assert worker._run.engine is not None
    worker._run.engine.stepper._gpu.device.destroy()  # type: ignore[attr-defined]
    worker.send(c.StepDispatch())
    run.watched.until(lambda s: s.mode == "lost")
    ended = run.end(c.RecoverDevice(), "Opening a new device", nth)
    assert said(ended) == "No new device was opened. What is shown is stale: recover to go on."
    assert (ended.mode, ended.stale) == ("lost", True)
    worker.send(c.RecoverDevice())
    run.watched.at(3, 0)
    np.testing.assert_array_equal(weights(run), before)


@pytest.mark.gpu
def test_a_recording_that_is_ended_before_it_begins_leaves_nothing(run: Ended, tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    ended = run.end(c.StartRecording(str(path), "all", "full"), "Starting the recording", 2)
    assert said(ended) == "Nothing is recorded."
    assert ended.recording is None
    assert ended.stats == "light"
    assert not path.exists()
    run.watched.worker.send(c.StartRecording(str(path), "all"))
    run.watched.until(lambda s: s.recording is not None)


@pytest.mark.gpu
def test_a_step_is_not_ended_where_a_recording_reads_its_state(run: Ended, tmp_path: Path) -> None:
    """The engine would be left in the middle of it: the step complete on the device, and not in the history."""
    run.watched.worker.send(c.StartRecording(str(tmp_path / "run.session"), "keyframes:1"))
    run.watched.until(lambda s: s.recording is not None)
    run.watched.worker._run.pace.step_s = 10.0
    run._plan = ("Running step 3", 2)
    run.watched.worker.send(c.StepIteration())
    halted = run.watched.until(
        lambda s: s.cursor is not None and s.cursor.step == 3 and s.cursor.dispatch > 0
    )
    assert halted.cursor is not None
    run.watched.worker._run.pace.step_s = 0.0
    run._plan = ("Running step 3", 1)
    run.watched.worker.send(c.StepIteration())
    done = run.watched.until(lambda s: s.cursor is not None and s.cursor.finished_steps == 3)
    assert done.history is not None
    assert done.history.series["loss"].last[-1] == pytest.approx(1 / 3)
    assert done.recording is not None
    assert done.recording.steps == 1


@pytest.mark.gpu
def test_a_race_whose_recording_is_ended_leaves_no_folder(tmp_path: Path) -> None:
    made = Watched(Opener(lambda: open_source(TINY)), TINY)
    made.at(1, 0)
    run = Ended(made)
    made.worker.send(c.StartRace(("adamw", "sgd:lr=0.1")))
    made.until(lambda s: s.race is not None and s.mode == "paused")
    assert run.shares(f"Opening {TINY}") == sorted(run.shares(f"Opening {TINY}"))
    path = tmp_path / "race.session"
    # While the second lane is read: that of the first has begun.
    ended = run.end(c.StartRecording(str(path), "all"), "Starting the recording", 4)
    assert said(ended) == "Nothing is recorded."
    assert list(tmp_path.iterdir()) == []
    made.worker.send(c.StartRecording(str(path), "all"))
    made.until(lambda s: s.recording is not None)
    assert made.worker.close(WAIT_S)


# --- what is written at the end

HELD = threading.Event()
"""The writer has taken something."""


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Nothing is written before it is set."""
    made, write = threading.Event(), SessionWriter.write

    def held(self: SessionWriter, items: object) -> None:
        HELD.set()
        assert made.wait(WAIT_S)
        write(self, items)  # type: ignore[arg-type]

    monkeypatch.setattr(SessionWriter, "write", held)
    return made


def offered(path: Path, steps: int) -> Recorder:
    recorder = Recorder.create(path, about("all"))
    HELD.clear()
    recorder.offer_start(state(0))
    # The writer has taken that, and waits: all else lies in the queue.
    assert HELD.wait(WAIT_S)
    for step in range(1, steps + 1):
        recorder.offer(recorded(step), gradients=values(step, "g"), keyframe=state(step))
    return recorder


def test_of_a_recording_whose_end_a_person_does_not_wait_for_tensors_are_left_out_and_no_number(
    tmp_path: Path, gate: threading.Event
) -> None:
    recorder = offered(tmp_path / "run.session", 4)
    told: list[tuple[int, int]] = []

    def listen(done: int, of: int) -> None:
        told.append((done, of))
        # What has been taken in is written, the rest is in the queue.
        threading.Timer(0.1, gate.set).start()
        raise EndedError

    with watched(listen):
        recorder.close()
    assert len(told) == 1
    assert 0 <= told[0][0] < told[0][1]
    assert recorder.cut_short
    assert recorder.problem is None
    with Session.open(recorder.path) as session:
        assert session.verify() == []
        assert session.state == "complete"
        assert session.steps == range(1, 5)
        assert session.metric("loss").tolist() == [recorded(step).loss for step in range(1, 5)]
        missing = session.notes("gap")
        assert all("the recording was ended before it was written" in note.text for note in missing)
        left_out = {step for note in missing for step in range(note.step, (note.last or note.step) + 1)}
        assert left_out == {1, 2, 3, 4}
        assert session.captures("gradients") == ()
        assert session.captures("keyframe") == (0,)


def test_the_end_of_a_recording_that_is_waited_for_holds_everything_and_says_how_far_it_is(
    tmp_path: Path, gate: threading.Event
) -> None:
    recorder = offered(tmp_path / "run.session", 3)
    told: list[int] = []

    def listen(done: int, of: int) -> None:
        told.append(done)
        gate.set()

    with watched(listen):
        recorder.close()
    assert told == sorted(told)
    assert not recorder.cut_short
    with Session.open(recorder.path) as session:
        assert session.captures("gradients") == (1, 2, 3)
        assert session.notes("gap") == ()


@pytest.mark.gpu
def test_a_window_that_is_closed_waits_for_what_was_captured(
    run: Ended, tmp_path: Path, gate: threading.Event
) -> None:
    path = tmp_path / "run.session"
    run.watched.worker.send(c.StartRecording(str(path), "all"))
    run.watched.until(lambda s: s.recording is not None)
    # A step waits a quarter of a second for the one before it.
    for step in (3, 4):
        run.watched.worker.send(c.StepIteration())
        run.watched.until(partial(finished, step))
    run.watched.worker.send(c.StopRecording())
    threading.Timer(0.3, gate.set).start()
    assert run.watched.worker.close(WAIT_S)
    with Session.open(path) as session:
        assert session.captures("gradients") == (3, 4)
        assert session.notes("gap") == ()


@pytest.mark.gpu
def test_the_end_of_a_recording_can_be_ended_and_is_told(
    run: Ended, tmp_path: Path, gate: threading.Event
) -> None:
    path = tmp_path / "run.session"
    run.watched.worker.send(c.StartRecording(str(path), "all"))
    run.watched.until(lambda s: s.recording is not None)
    for step in (3, 4):
        run.watched.worker.send(c.StepIteration())
        run.watched.until(partial(finished, step))
    threading.Timer(0.5, gate.set).start()
    ended = run.end(c.StopRecording(), "Ending the recording", 3)
    assert ended.recording is None
    assert said(ended) == (
        f"Recorded steps 3 to 4: {path}. Tensors that were still to be written are left out, as its notes say."
    )
    assert any(
        s.working is not None and s.working.doing == "Ending the recording" for s in run.watched.snapshots
    )


# --- files of PyTorch


def test_a_file_that_cannot_be_mapped_says_how_far_it_is_and_can_be_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = needs_torch()
    monkeypatch.setattr("inspector.integrations.torch_files.READ_AT_ONCE", 1 << 16)
    path = tmp_path / "old.pt"
    tensors = {name: torch.full((64, 1024), i + 0.5) for i, name in enumerate(("a.weight", "b.weight"))}
    torch.save(tensors, path, _use_new_zipfile_serialization=False)
    told: list[float] = []
    with watched(lambda done, of: told.append(done / of)):
        source = opened(path)
    assert len(told) > 6
    assert told == sorted(told)
    assert max(told) > 0.8
    state = source.initial_state()
    for i, name in enumerate(tensors):
        np.testing.assert_array_equal(state.w[name], np.full(64 * 1024, i + 0.5, np.float32))

    def end(done: int, of: int) -> None:
        if done > of / 2:
            raise EndedError

    with pytest.raises(EndedError), watched(end):
        opened(path)
