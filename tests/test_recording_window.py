"""Recording from the window: the worker starts and ends it, the dialog says what to expect, the status bar shows it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot
from test_worker import WAIT_S, Opener, Tiny, Watched
from ui_helpers import make_race, make_snapshot

from inspector.runtime import commands as c
from inspector.runtime.snapshots import RecordingPicture
from inspector.session.reader import Session
from inspector.ui.actions import Actions, reasons
from inspector.ui.record_dialog import RecordDialog, free_name
from inspector.ui.status import StatusLine


@pytest.fixture
def watched() -> Iterator[Watched]:
    made = Watched(Opener())
    made.at(1, 0)
    yield made
    assert made.worker.close(WAIT_S)


@pytest.mark.gpu
def test_the_worker_records_between_start_and_stop(watched: Watched, tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    watched.worker.send(c.StartRecording(str(path), "all"))
    shown = watched.until(lambda s: s.recording is not None)
    assert shown.stats == "full"
    assert shown.recording is not None
    assert (shown.recording.path, shown.recording.policy) == (str(path), "all")
    watched.worker.send(c.Run(until=4))
    shown = watched.at(4, 4)
    assert shown.recording is not None
    assert shown.recording.steps == 4
    watched.worker.send(c.SetHyper("lr", 0.5))
    watched.worker.send(c.UndoIteration())
    watched.worker.send(c.StepIteration())
    watched.worker.send(c.StopRecording())
    shown = watched.until(
        lambda s: s.recording is None and s.notice is not None and "Recorded" in s.notice.text
    )
    assert shown.stats == "light"
    watched.worker.send(c.StepIteration())
    watched.at(5, 4)
    with Session.open(path) as session:
        assert session.verify() == []
        assert session.state == "complete"
        assert session.steps == range(1, 5)
        assert session.captures("gradients") == (1, 2, 3, 4)


@pytest.mark.gpu
def test_what_cannot_be_recorded_is_told_and_the_run_goes_on(watched: Watched, tmp_path: Path) -> None:
    def told(part: str) -> None:
        shown = watched.until(lambda s: s.notice is not None and part in s.notice.text)
        assert shown.recording is None or part == "is being recorded"
        assert shown.mode == "paused"

    watched.worker.send(c.StartRecording(str(tmp_path / "no" / "run.session")))
    told("does not exist")
    watched.worker.send(c.StartRecording(str(tmp_path)))
    told("exists")
    watched.worker.send(c.StartRecording(str(tmp_path / "x.session"), "everything"))
    told("capture policy")
    watched.worker.send(c.StepDispatch())
    watched.worker.send(c.StartRecording(str(tmp_path / "x.session")))
    told("between steps")
    watched.worker.send(c.StepIteration())
    watched.worker.send(c.StartRecording(str(tmp_path / "x.session")))
    watched.until(lambda s: s.recording is not None)
    watched.worker.send(c.StartRecording(str(tmp_path / "y.session")))
    told("is being recorded")
    watched.worker.send(c.StepIteration())
    watched.at(2, 4)
    watched.worker.send(c.Seek(0))
    told("before step 2")
    with Session.open(tmp_path / "x.session") as session:
        assert session.steps == range(2, 3)


@pytest.mark.gpu
@pytest.mark.parametrize("how", ["close", "open"])
def test_closing_and_another_source_end_it_in_order(tmp_path: Path, how: str) -> None:
    made = Watched(Opener(Tiny), paused=False)
    made.until(lambda s: s.mode == "running")
    path = tmp_path / "run.session"
    made.worker.send(c.StartRecording(str(path), "grads:2"))
    made.until(lambda s: s.recording is not None and s.recording.steps > 3)
    if how == "open":
        made.worker.send(c.OpenSource("tiny"))
        made.until(lambda s: s.run == 2 and s.recording is None)
    assert made.worker.close(WAIT_S)
    with Session.open(path) as session:
        assert session.verify() == []
        assert session.state == "complete"
        assert len(session.steps) > 3


# --- the window


@pytest.mark.qt
def test_the_dialog_says_what_to_expect_and_refuses_what_cannot_work(
    qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    dialog = RecordDialog(make_snapshot())
    qtbot.addWidget(dialog)
    assert dialog.path.text() == str(tmp_path / "charlm.session")
    assert dialog.start.isEnabled()
    assert "for 1,000 steps; the disk has" in dialog.words.text()
    dialog.policy.setCurrentText("grads:0")
    assert not dialog.start.isEnabled()
    assert "not a number of steps" in dialog.words.text()
    dialog.policy.setCurrentText("flight:8")
    assert "of memory" in dialog.words.text()
    for name, part in (
        ("", "Name the session"),
        (str(tmp_path / "no" / "x"), "does not exist"),
        ("/", "names no session"),
        ("~nobody-of-this-name/x", "cannot be used"),
        ("x" * 300, "cannot be used: File name too long"),
        ("a\0b", "cannot be used"),
    ):
        dialog.path.setText(name)
        assert not dialog.start.isEnabled()
        assert part in dialog.words.text()
    (tmp_path / "mine.session").mkdir()
    dialog.path.setText("mine")
    assert "exists" in dialog.words.text()
    dialog.path.setText("yours")
    with qtbot.waitSignal(dialog.command) as sent:
        dialog.start.click()
    assert sent.args == [c.StartRecording(str(tmp_path / "yours.session"), "flight:8")]


@pytest.mark.qt
def test_the_size_of_a_race_is_that_of_all_lanes(
    qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = []
    for race in (None, make_race(), replace(make_race(), live=False)):
        dialog = RecordDialog(make_snapshot(race=race))
        qtbot.addWidget(dialog)
        dialog.policy.setCurrentText("all")
        told.append(dialog.words.text())
    alone, lanes, saved = (float(text.split("About ")[1].split()[0]) for text in told)
    assert lanes == pytest.approx(3 * alone, rel=0.01)
    assert saved == alone
    assert "of each of the 3 lanes" in told[1]


def test_where_nothing_can_be_written_a_name_is_found_at_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) == tmp_path)
    monkeypatch.chdir("/")
    assert free_name("charlm") == tmp_path / "charlm.session"


def test_a_free_name_is_found(tmp_path: Path) -> None:
    assert free_name("synthetic:100", tmp_path).name == "synthetic-100.session"
    (tmp_path / "state.session").mkdir()
    assert free_name("/some/where/state.safetensors", tmp_path).name == "state-2.session"


@pytest.mark.qt
def test_the_action_starts_and_ends_and_the_status_bar_shows_it(qtbot: QtBot) -> None:
    from PySide6.QtWidgets import QMainWindow

    window, sent = QMainWindow(), []
    qtbot.addWidget(window)
    actions, status = Actions(window, sent.append), StatusLine(window)
    window.setStatusBar(status)
    window.show()
    for picture, text in (
        (None, ""),
        (
            RecordingPicture("/a/run.session", "all", 12, 3 << 20),
            "recording run.session · 12 steps · 3.15 MB",
        ),
        (None, ""),
    ):
        snapshot = make_snapshot(recording=picture)
        actions.show_snapshot(snapshot)
        status.show_snapshot(snapshot)
        assert status.recording.isVisible() == bool(text)
        assert not text or status.recording.text() == text
        assert actions["record"].isChecked() == bool(text)
        assert actions["record"].text() == ("Stop recording" if text else "Record…")
        if text:
            actions["record"].trigger()
            assert sent == [c.StopRecording()]
        else:
            with qtbot.waitSignal(actions.record_wanted):
                actions["record"].trigger()
            assert not actions["record"].isChecked()
    assert "record" in reasons(make_snapshot(mode="lost"))
    assert "record" not in reasons(make_snapshot(mode="lost", recording=RecordingPicture("a", "all", 1, 1)))
