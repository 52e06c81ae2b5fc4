"""Going through a recording in the window, by its keys: what is shown is held against what the run itself had."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLineEdit
from pytestqt.qtbot import QtBot
from replays import record
from test_travel import Here

from inspector import Session
from inspector.gpu.device import Gpu
from inspector.runtime.snapshots import Mark, Snapshot
from inspector.runtime.worker import Worker
from inspector.ui import theme
from inspector.ui.app import application, make_views
from inspector.ui.bus import Bus
from inspector.ui.main_window import MainWindow
from inspector.ui.plots_view import PlotsView
from inspector.ui.timeline_view import TimelineView
from inspector.ui.values_view import ValuesView

pytestmark = [pytest.mark.gpu, pytest.mark.qt]

Key = Qt.Key
Shift, Control = Qt.KeyboardModifier.ShiftModifier, Qt.KeyboardModifier.ControlModifier
STEPS = 12
PARAM = "h.0.attn.weight"
WAIT_MS = 60_000


class Opened:
    """A window with a worker of its own on a recording."""

    def __init__(self, qtbot: QtBot, gpu: Gpu, path: Path) -> None:
        theme.apply(application(), "light")
        self.qtbot = qtbot
        self.seen: list[Snapshot] = []
        self.worker = Worker(Here(gpu), str(path))
        self.bus = Bus(self.worker.send)
        self.window = MainWindow(self.bus, make_views())
        qtbot.addWidget(self.window)
        self.window.resize(1280, 800)
        self.window.show()
        qtbot.waitExposed(self.window)
        self.window.activateWindow()
        qtbot.waitUntil(self.window.isActiveWindow)
        self.bus.snapshot_arrived.connect(self.seen.append)
        self.worker.start(self.bus.post_from_worker, self.bus.wait_until_idle)
        self.until(lambda s: s.mode == "paused" and s.recorded is not None)
        self.window.select_param(PARAM)

    def until(self, holds: Callable[[Snapshot], bool]) -> Snapshot:
        self.qtbot.waitUntil(
            lambda: bool(self.seen) and holds(self.seen[-1]) and self.window.at_rest, timeout=WAIT_MS
        )
        return self.seen[-1]

    def at(self, step: int, dispatch: int, *, numbers_only: bool = False) -> Snapshot:
        """Once it stands there: with the buffers of that step, or only its numbers."""
        return self.until(
            lambda s: (
                s.mode == "paused"
                and s.cursor is not None
                and (s.cursor.step, s.cursor.dispatch) == (step, dispatch)
                and (s.glance is not None) == numbers_only
            )
        )

    def press(self, key: Qt.Key, modifier: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier) -> None:
        self.qtbot.keyClick(self.window, key, modifier)

    def go(self, text: str) -> None:
        self.press(Key.Key_G, Control)
        edit = self.window.toolbar.step_edit
        self.qtbot.keyClicks(edit, text)
        self.qtbot.keyClick(edit, Key.Key_Return)

    @property
    def timeline(self) -> TimelineView:
        view = self.window.views["timeline"]
        assert isinstance(view, TimelineView)
        return view

    @property
    def values(self) -> ValuesView:
        view = self.window.views["values"]
        assert isinstance(view, ValuesView)
        return view

    def close(self) -> None:
        self.bus.blockSignals(True)
        assert self.worker.close(WAIT_MS / 1000)


@pytest.fixture
def open_it(qtbot: QtBot, gpu: Gpu) -> Iterator[Callable[[Path], Opened]]:
    made: list[Opened] = []

    def opened(path: Path) -> Opened:
        made.append(Opened(qtbot, gpu, path))
        return made[-1]

    yield opened
    for each in made:
        each.close()


def test_a_rebuilt_step_is_what_the_run_had(
    gpu: Gpu, tmp_path: Path, open_it: Callable[[Path], Opened]
) -> None:
    record(gpu, tmp_path / "sparse.session", STEPS, "keyframes:5+grads:1")
    record(gpu, tmp_path / "all.session", STEPS, "all")
    shown = open_it(tmp_path / "sparse.session")
    truth = Session.open(tmp_path / "all.session")
    assert (shown.timeline.whole.start, shown.timeline.end) == (0, STEPS)
    model = shown.values.model
    for step in (9, 2, 12, 4):
        shown.go(str(step))
        shown.until(
            lambda s, step=step: s.cursor is not None and s.cursor.finished_steps == step and not s.glance
        )  # type: ignore[misc]
        shown.qtbot.waitUntil(lambda: model.has(0, 16), timeout=WAIT_MS)
        meant = truth.keyframe(step).w[PARAM].ravel()

        def same(meant: np.ndarray = meant) -> bool:
            found = [model.value("w", i, before=False) for i in range(16)]
            return all(a is not None and a.tobytes() == meant[i].tobytes() for i, a in enumerate(found))

        shown.qtbot.waitUntil(same, timeout=WAIT_MS)
    record_4 = truth.step(4)
    plots = shown.window.views["plots"]
    assert isinstance(plots, PlotsView)
    assert plots.readout.text().startswith("step 4")
    assert shown.seen[-1].record is not None
    assert shown.seen[-1].record.grad_norm == record_4.grad_norm


def test_dispatches_are_taken_back_across_steps_and_gone_to(
    gpu: Gpu, tmp_path: Path, open_it: Callable[[Path], Opened]
) -> None:
    record(gpu, tmp_path / "a.session", STEPS, "keyframes:5+grads:1")
    shown = open_it(tmp_path / "a.session")
    cursor = shown.seen[-1].cursor
    assert cursor is not None
    count = cursor.count
    shown.go("8:1")
    shown.at(8, 1)
    shown.press(Key.Key_F10, Shift)
    shown.at(8, 0)
    shown.press(Key.Key_F10, Shift)
    shown.at(7, count - 1)
    shown.press(Key.Key_F10)
    shown.at(7, count)
    shown.press(Key.Key_F11, Shift)
    shown.at(7, 0)
    assert "step 7 · dispatch 0" in shown.window.toolbar.cursor_label.text()


def test_a_recording_of_numbers_is_gone_through_and_played(
    gpu: Gpu, tmp_path: Path, open_it: Callable[[Path], Opened]
) -> None:
    record(gpu, tmp_path / "numbers.session", STEPS, "stats")
    shown = open_it(tmp_path / "numbers.session")
    truth = Session.open(tmp_path / "numbers.session")
    shown.go("6")
    snapshot = shown.until(lambda s: s.glance is not None and s.glance.step == 6)
    assert snapshot.record is not None
    assert snapshot.record.grad_norm == truth.step(6).grad_norm
    assert "Its numbers are as recorded." in shown.window.transport.text.text()
    assert shown.values.model.text(0, 2) == "n/a"
    assert not shown.window.actions_by_name["step_dispatch"].isEnabled()
    shown.press(Key.Key_F11)
    shown.until(lambda s: s.glance is not None and s.glance.step == 7)
    shown.press(Key.Key_F11, Shift)
    shown.until(lambda s: s.glance is not None and s.glance.step == 6)
    shown.press(Key.Key_I)
    shown.go("8")
    shown.until(lambda s: s.glance is not None and s.glance.step == 8)
    shown.press(Key.Key_O)
    shown.seen.clear()
    shown.press(Key.Key_BracketRight, Control)
    shown.press(Key.Key_P)
    steps: list[int] = []

    def looped() -> bool:
        steps[:] = [s.glance.step for s in shown.seen if s.playing is not None and s.glance is not None]
        return any(a > b for a, b in itertools.pairwise(steps))

    shown.qtbot.waitUntil(looped, timeout=WAIT_MS)
    shown.press(Key.Key_P)
    shown.until(lambda s: s.mode == "paused" and s.playing is None)
    assert set(steps) <= {6, 7, 8}


def test_a_picture_of_a_recording_of_numbers(
    gpu: Gpu, tmp_path: Path, call: Callable[..., tuple[int, str, str]]
) -> None:
    path, out = tmp_path / "numbers.session", tmp_path / "picture.png"
    record(gpu, path, STEPS, "stats")
    sizes = []
    for steps in ((), ("--steps", 5), ("--steps", 6), ("--steps", 99)):
        out.unlink(missing_ok=True)
        code, _, err = call(
            "screenshot", path, "--out", out, "--view", "timeline", "--size", "600x150", *steps
        )
        assert code == 0, err
        sizes.append(out.read_bytes())
    assert sizes[0] == sizes[3], "its end"
    assert len({*sizes}) == 3
    code, _, err = call("screenshot", path, "--out", out, "--dispatches", 2)
    assert code == 2
    assert "its gradients were not captured (policy stats). Leave --dispatches out." in err


def test_a_bookmark_is_in_the_recording(gpu: Gpu, tmp_path: Path, open_it: Callable[[Path], Opened]) -> None:
    path = tmp_path / "marked.session"
    record(gpu, path, STEPS, "stats")
    shown = open_it(path)
    shown.go("5")
    shown.until(lambda s: s.glance is not None and s.glance.step == 5)
    shown.press(Key.Key_B, Control)
    edit = shown.window.findChild(QLineEdit, "bookmark_edit")
    assert isinstance(edit, QLineEdit)
    shown.qtbot.keyClicks(edit, "here it falls")
    shown.qtbot.keyClick(edit, Key.Key_Return)
    shown.until(lambda s: s.bookmarks == (Mark(5, "here it falls"),))
    assert shown.timeline._signs.texts[5].endswith("Bookmark: here it falls")
    with Session.open(path) as session:
        assert [(b.step, b.text) for b in session.bookmarks().all] == [(5, "here it falls")]
