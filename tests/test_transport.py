"""Going through time by keys and buttons, live and recorded alike; bookmarks; and a step shown as recorded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QLineEdit, QToolButton
from pytestqt.qtbot import QtBot
from test_window import Shown
from ui_helpers import make_histograms, make_history, make_map, make_recorded, make_snapshot, make_values

from inspector.runtime.commands import (
    CancelSeek,
    Follow,
    Pause,
    Play,
    Run,
    Seek,
    SetBookmark,
    StepIteration,
    UndoDispatch,
    UndoIteration,
)
from inspector.runtime.snapshots import Glance, Mark, Playing, StepRecord
from inspector.stepping import Cursor, UndoInfo
from inspector.ui import theme
from inspector.ui.actions import reasons
from inspector.ui.app import application
from inspector.ui.bookmarks_view import BookmarksView
from inspector.ui.histogram_view import HistogramView
from inspector.ui.hyper_view import HyperView
from inspector.ui.lockstep_view import LockstepView
from inspector.ui.map_view import MapView
from inspector.ui.pipeline_view import PipelineView
from inspector.ui.playback import SPEEDS, Playback
from inspector.ui.plots_view import PlotsView
from inspector.ui.timeline_view import TimelineView
from inspector.ui.timing_view import TimingView
from inspector.ui.toolbar import cursor_text
from inspector.ui.values_view import ValuesView

pytestmark = pytest.mark.qt

Key = Qt.Key
Shift, Control = Qt.KeyboardModifier.ShiftModifier, Qt.KeyboardModifier.ControlModifier
MISSING = "Step 50 cannot be rebuilt: its gradients were not captured (policy stats)."
ABSENT = f"{MISSING} Its numbers are as recorded."


@pytest.fixture
def shown(qtbot: QtBot) -> Iterator[Shown]:
    theme.apply(application(), "light")
    made = Shown(qtbot)
    made.worker.sent.clear()
    yield made
    made.bus.blockSignals(True)


# ── playing ──


def test_speeds_end_where_there_is_no_other() -> None:
    playback = Playback(speed=SPEEDS[0])
    assert playback.slower() == playback
    for speed in SPEEDS[1:]:
        playback = playback.faster()
        assert playback.speed == speed
    assert playback.faster() == playback


def test_a_range_loops_once_both_ends_are_set_and_its_ends_never_cross() -> None:
    playback = Playback().from_step(50)
    assert playback.command == Play(10.0)
    playback = playback.to_step(80)
    assert playback.command == Play(10.0, 50, 80)
    assert playback.toggled().command == Play(10.0)
    assert playback.toggled().loop == (50, 80)
    assert playback.from_step(90) == Playback(first=90)
    assert playback.to_step(20) == Playback(last=20)
    assert playback.over(None) == Playback()
    assert Playback().toggled() == Playback()


def test_p_plays_at_the_chosen_speed_and_pauses(shown: Shown) -> None:
    shown.press(Key.Key_BracketRight, Control)
    shown.press(Key.Key_P)
    assert shown.commands() == [Play(30.0)]
    shown.post(mode="running", playing=Playing(30.0))
    assert shown.window.actions_by_name["play"].text() == "Pause"
    shown.press(Key.Key_BracketLeft, Control)
    shown.press(Key.Key_BracketLeft, Control)
    shown.press(Key.Key_P)
    assert shown.commands() == [Play(30.0), Play(10.0), Play(5.0), Pause()]
    assert shown.window.transport.speed.currentText() == "5 steps/s"


def test_a_speed_is_chosen_from_the_list(shown: Shown) -> None:
    speed = shown.window.transport.speed
    speed.setCurrentIndex(SPEEDS.index(100.0))
    speed.activated.emit(speed.currentIndex())
    assert shown.commands() == [], "nothing plays"
    shown.press(Key.Key_P)
    assert shown.commands() == [Play(100.0)]


def test_space_plays_where_it_means_nothing_else(shown: Shown) -> None:
    for name in ("timeline", "map"):
        view = shown.window.views[name]
        target = view.focusProxy() or view
        target.setFocus()
        shown.qtbot.keyClick(target, Key.Key_Space)
    assert shown.commands() == [Play(10.0)] * 2


def test_a_range_is_set_by_keys_and_shown_on_the_timeline(shown: Shown) -> None:
    timeline = shown.window.views["timeline"]
    assert isinstance(timeline, TimelineView)
    loop = shown.window.actions_by_name["loop"]
    assert not loop.isEnabled()
    assert "Shift and a drag" in loop.toolTip()
    shown.post(cursor=Cursor(100, 4, 4))
    shown.press(Key.Key_I)
    assert shown.window.transport.range.text() == "from 100 to …"
    shown.post(cursor=Cursor(120, 4, 4))
    shown.press(Key.Key_O)
    assert shown.window.transport.range.text() == "100 to 120"
    assert (timeline._loop, timeline._looping) == ((100, 120), True)
    assert loop.isChecked()
    shown.press(Key.Key_P)
    shown.press(Key.Key_P, Shift)
    assert not loop.isChecked()
    assert (timeline._loop, timeline._looping) == ((100, 120), False)
    shown.press(Key.Key_P)
    shown.press(Key.Key_I, Shift)
    assert timeline._loop is None
    assert not loop.isEnabled()
    assert shown.commands() == [Play(10.0, 100, 120), Play(10.0)]


def test_a_range_that_changes_while_it_plays_holds_at_once(shown: Shown) -> None:
    shown.post(mode="running", playing=Playing(10.0))
    timeline = shown.window.views["timeline"]
    assert isinstance(timeline, TimelineView)
    timeline.loop_wanted.emit((20, 60))
    shown.press(Key.Key_I, Shift)
    assert shown.commands() == [Play(10.0, 20, 60), Play(10.0)]


def test_another_run_has_no_range(shown: Shown) -> None:
    shown.window.transport.set_loop((20, 60))
    shown.post(run=2)
    assert shown.window.transport.playback == Playback()


def test_the_last_step_can_be_played_from_only_in_a_loop() -> None:
    at_end = make_snapshot(cursor=Cursor(9, 4, 4), last_step=9)
    assert reasons(at_end)["play"] == "step 9 is the last of this source"
    assert "play" not in reasons(at_end, (1, 9), looping=True)
    recorded = replace(at_end, recorded=make_recorded(9))
    assert "play" not in reasons(recorded), "it begins again"


def test_a_dispatch_of_a_step_can_be_typed(shown: Shown) -> None:
    edit = shown.window.toolbar.step_edit
    for text in ("1200:2", "7:", ":3", "99999999999"):
        shown.press(Key.Key_G, Control)
        shown.qtbot.keyClicks(edit, text)
        shown.qtbot.keyClick(edit, Key.Key_Return)
        if edit.isVisible():
            shown.qtbot.keyClick(edit, Key.Key_Escape)
    assert shown.commands() == [Seek(1200, 2), Seek(7), Seek(3)]


# ── a step shown as recorded ──


def as_recorded(**changes: object) -> dict[str, object]:
    """Step 50 of a recording of 1,000, of which only the numbers are at hand."""
    return {
        "cursor": Cursor(50, 4, 4), "record": StepRecord(50, 1e-3, loss=2.5, grad_norm=0.5, clip_scale=1.0),
        "recorded": make_recorded(1000, (0,), ((1, 40),), policy="grads:1"), "last_step": 1000,
        "history": make_history(1000), "map": None, "values": None, "histograms": None, "undo": UndoInfo(),
        **changes,
    }  # fmt: skip


def test_esc_stops_rebuilding_and_only_then_means_that(shown: Shown) -> None:
    shown.press(Key.Key_Escape)
    assert shown.commands() == []
    shown.post(**as_recorded(glance=Glance(50, done=3, of=10)))
    assert shown.window.transport.text.text() == (
        "Step 50 as recorded; its buffers are being rebuilt: 3 of 10 steps (Esc stays)."
    )
    assert shown.window.transport.stay.isVisible()
    shown.press(Key.Key_G, Control)
    shown.qtbot.keyClick(shown.window.toolbar.step_edit, Key.Key_Escape)
    assert shown.commands() == [], "it closed the line"
    shown.press(Key.Key_Escape)
    assert shown.commands() == [CancelSeek()]
    shown.post(glance=None)
    assert shown.window.transport.text.text() == ""
    assert not shown.window.transport.stay.isVisible()


def test_what_needs_buffers_is_greyed_out_where_they_cannot_be_had(shown: Shown) -> None:
    shown.post(**as_recorded(glance=Glance(50, missing=MISSING)))
    for name in ("step_dispatch", "undo_dispatch", "record"):
        action = shown.window.actions_by_name[name]
        assert not action.isEnabled()
        assert f"only the numbers of step 50 are at hand. {MISSING}" in action.toolTip()
    assert not shown.window.actions_by_name["stay"].isEnabled()
    assert MISSING in shown.window.toolbar.form.choices["kernel"].toolTip()
    shown.worker.sent.clear()
    shown.press(Key.Key_F11)
    shown.press(Key.Key_F11, Shift)
    shown.press(Key.Key_F5)
    assert shown.commands() == [StepIteration(), UndoIteration(), Run()], "from one recorded step to the next"
    shown.post(glance=Glance(50, done=1, of=10))
    shown.press(Key.Key_F10, Shift)
    assert shown.commands()[3:] == [UndoDispatch()], "rebuilt steps can be gone on from"


def test_a_recording_goes_back_beyond_memory_up_to_its_first_step() -> None:
    shown = make_snapshot(**as_recorded(recorded=make_recorded(1000, first=41)))
    assert not {"undo_dispatch", "undo_iteration"} & reasons(shown).keys()
    assert (
        reasons(replace(shown, cursor=Cursor(41, 0, 4)))["undo_dispatch"]
        == "nothing lies before the first step"
    )


def test_where_it_stands_says_that_it_is_as_recorded() -> None:
    shown = make_snapshot(**as_recorded(glance=Glance(50)))
    assert cursor_text(shown) == "step 50 · dispatch 4/4 · as recorded"


def test_no_old_pixels_stay_on_the_map(qtbot: QtBot) -> None:
    view = MapView()
    qtbot.addWidget(view)
    view.resize(900, 260)
    view.show()
    qtbot.waitExposed(view)
    view.show_snapshot(make_snapshot())
    request = view.canvas.request("value")
    assert request is not None
    view.show_snapshot(make_snapshot(map=make_map(request)))
    assert view.canvas.image is not None
    view.show_snapshot(make_snapshot(**as_recorded(glance=Glance(50, missing=MISSING))))
    assert view.canvas.image is None
    assert view.canvas.absent.text() == ABSENT
    captured = make_map(request)
    view.show_snapshot(make_snapshot(**as_recorded(glance=Glance(50, done=1, of=2), map=captured)))
    assert view.canvas.image is captured
    assert view.canvas.absent.text() == ""


def test_no_old_values_stay_in_the_table(qtbot: QtBot) -> None:
    view = ValuesView()
    qtbot.addWidget(view)
    view.resize(900, 260)
    view.show()
    qtbot.waitExposed(view)
    view.select_param("norm.weight")
    view.show_snapshot(make_snapshot(values=make_values("norm.weight")))
    assert view.model.text(0, 2) not in ("…", "n/a")
    view.show_snapshot(make_snapshot(**as_recorded(glance=Glance(50, done=1, of=2))))
    assert view.model.text(0, 2) == "…"
    assert view.note.text() == "Step 50 as recorded; its buffers are being rebuilt: 1 of 2 steps."
    view.show_snapshot(make_snapshot(**as_recorded(glance=Glance(50, missing=MISSING))))
    assert view.model.text(0, 2) == "n/a"
    assert view.note.text() == ABSENT
    view.select_param("h.0.attn.out.weight")
    assert view.note.text() == ABSENT
    view.show_snapshot(make_snapshot(values=make_values("h.0.attn.out.weight")))
    assert view.note.text().startswith("h.0.attn.out.weight: ")


def test_no_old_histograms_stay(qtbot: QtBot) -> None:
    view = HistogramView()
    qtbot.addWidget(view)
    view.show()
    qtbot.waitExposed(view)
    view.show_snapshot(make_snapshot(histograms=make_histograms()))
    assert view.chart.message == ""
    for done in (1, 2):
        view.show_snapshot(make_snapshot(**as_recorded(glance=Glance(50, done=done, of=2))))
        assert view.chart.message == f"Step 50 as recorded; its buffers are being rebuilt: {done} of 2 steps."
    view.show_snapshot(make_snapshot(histograms=make_histograms()))
    assert view.chart.message == ""


def test_no_setting_can_be_changed_where_nothing_can_run_with_it(qtbot: QtBot) -> None:
    view = HyperView()
    qtbot.addWidget(view)
    view.show_snapshot(make_snapshot(**as_recorded(glance=Glance(50, missing=MISSING))))
    assert not view.fields["lr"].isEnabled()
    assert view.note.toolTip() == f"Nothing can run on from here with other settings. {MISSING}"
    assert {view.fields[name].toolTip() for name in ("lr", "schedule")} == {view.note.toolTip()}
    view.show_snapshot(make_snapshot(**as_recorded()))
    assert view.fields["lr"].isEnabled()
    assert view.fields["lr"].toolTip().startswith("Learning rate")
    assert "applies from step 51" in view.note.toolTip()


def test_nothing_of_where_the_device_stands_is_shown_as_of_the_step(qtbot: QtBot) -> None:
    lockstep, pipeline = LockstepView(), PipelineView()
    shown = make_snapshot(**as_recorded(glance=Glance(50, missing=MISSING), eight_bit=None))
    for view in (lockstep, pipeline):
        qtbot.addWidget(view)
        view.resize(900, 600)
        view.show()
        qtbot.waitExposed(view)
        view.show_snapshot(shown)
    assert lockstep.words.text() == ABSENT
    assert lockstep.plots.drift.message == ABSENT
    assert lockstep.plots.drift.current_line.value() == 50
    rows = [pipeline.bindings.item(row, 1) for row in range(pipeline.bindings.rowCount())]
    names = [item.text() for item in rows if item is not None]
    assert any(name.endswith("= …") for name in names)
    pipeline.show_snapshot(replace(shown, glance=None))
    rows = [pipeline.bindings.item(row, 1) for row in range(pipeline.bindings.rowCount())]
    assert not any(item is not None and item.text().endswith("= …") for item in rows)


@pytest.mark.parametrize("kind", [TimingView, LockstepView])
def test_ctrl_and_a_click_go_to_the_step_in_every_plot_over_steps(
    qtbot: QtBot, kind: type[TimingView] | type[LockstepView]
) -> None:
    view = kind()
    qtbot.addWidget(view)
    sent: list[object] = []
    view.command.connect(sent.append)
    view.show_snapshot(make_snapshot(**as_recorded()))
    picked = view.chart.picked if isinstance(view, TimingView) else view.plots.picked
    for at in (399.7, -3.0, 1004.0):
        picked.emit(at)
    assert sent == [Seek(400)]
    view.show_snapshot(make_snapshot(**as_recorded(mode="lost")))
    picked.emit(10.0)
    assert sent == [Seek(400)]


# ── the plots ──


def test_nothing_is_drawn_anew_where_only_the_cursor_moves(qtbot: QtBot) -> None:
    view = PlotsView()
    qtbot.addWidget(view)
    view.show()
    qtbot.waitExposed(view)
    given = as_recorded()
    view.show_snapshot(make_snapshot(**given))
    drawn = view.charts["loss"].drawn("loss")
    view.show_snapshot(make_snapshot(**{**given, "cursor": Cursor(60, 4, 4)}))
    assert view.charts["loss"].drawn("loss") is drawn
    assert view.charts["loss"].current_line.value() == 60


def test_the_plots_read_out_the_step_on_show_of_a_recording_that_goes_on(qtbot: QtBot) -> None:
    view = PlotsView()
    qtbot.addWidget(view)
    view.resize(900, 400)
    view.show()
    qtbot.waitExposed(view)
    view.show_snapshot(make_snapshot(**as_recorded(bookmarks=(Mark(50, "look"),))))
    assert view.readout.text() == "step 50 · bookmark: look"
    assert view.charts["loss"].title == "loss (nats/char)  2.5"
    assert view.charts["loss"].current_line.value() == 50
    assert view.charts["loss"].marked_steps() == [40.0, 50.0]
    view.show_snapshot(make_snapshot(**as_recorded(record=None)))
    assert view.readout.text() == "step 50"
    assert view.charts["loss"].box.viewRange()[0][1] > 1000


def test_ctrl_and_a_click_in_a_plot_go_to_the_step(qtbot: QtBot) -> None:
    view = PlotsView()
    qtbot.addWidget(view)
    view.resize(900, 400)
    view.show()
    qtbot.waitExposed(view)
    view.show_snapshot(make_snapshot(**as_recorded()))
    sent: list[object] = []
    view.command.connect(sent.append)
    chart = view.charts["grad_norm"]
    low, high = chart.box.viewRange()[1]

    def at(step: float) -> QPoint:
        return chart.mapFromScene(chart.box.mapViewToScene(QPoint(round(step), round((low + high) / 2))))

    range_before = chart.box.viewRange()[0]
    qtbot.mouseClick(chart.viewport(), Qt.MouseButton.LeftButton, pos=at(400))
    assert sent == []
    qtbot.mouseClick(chart.viewport(), Qt.MouseButton.LeftButton, Control, at(400))
    assert len(sent) == 1
    command = sent[0]
    assert isinstance(command, Seek)
    assert command.step == pytest.approx(400, abs=1 / chart.pixels_per_x())
    assert chart.box.viewRange()[0] == range_before


def test_the_timeline_and_the_plots_show_the_same_steps(qtbot: QtBot) -> None:
    plots, timeline = PlotsView(), TimelineView()
    for view in (plots, timeline):
        qtbot.addWidget(view)
        view.resize(900, 300)
        view.show()
        qtbot.waitExposed(view)
        view.show_snapshot(make_snapshot(**as_recorded()))
    box = plots.charts["loss"].box
    plots.show_range(100, 200)
    assert box.viewRange()[0] == pytest.approx([100, 200])
    plots.show_snapshot(make_snapshot(**as_recorded(cursor=Cursor(60, 4, 4))))
    assert box.viewRange()[0] == pytest.approx([100, 200]), "it does not follow the run"
    moved: list[tuple[float, float]] = []
    plots.moved.connect(lambda start, stop: moved.append((start, stop)))
    plots.setFocus()
    qtbot.keyClick(plots, Key.Key_Plus)
    assert moved == [pytest.approx((125, 175))]
    qtbot.keyClick(plots, Key.Key_Home)
    timeline.show_range(*moved[0])
    assert timeline.span.start == pytest.approx(125)
    timeline.show_range(*moved[1])
    assert timeline.span == timeline.whole
    plots.show_range(timeline.whole.start, timeline.whole.stop)
    assert box.viewRange()[0][1] > 1000


# ── bookmarks ──


def note(shown: Shown) -> QLineEdit:
    edit = shown.child(QLineEdit, "bookmark_edit")
    assert isinstance(edit, QLineEdit)
    return edit


def test_ctrl_b_puts_a_bookmark_with_a_note(shown: Shown) -> None:
    shown.press(Key.Key_B, Control)
    assert note(shown).hasFocus()
    shown.qtbot.keyClicks(note(shown), "bloom of the loss")
    shown.qtbot.keyClick(note(shown), Key.Key_Return)
    assert shown.commands() == [SetBookmark(128, "bloom of the loss")]
    assert not note(shown).isVisible()
    assert shown.window.focusWidget() is shown.window.views["map"].focusProxy()


def test_a_bookmark_needs_no_words_and_loses_what_was_taken_away(shown: Shown) -> None:
    shown.press(Key.Key_B, Control)
    shown.qtbot.keyClick(note(shown), Key.Key_Return)
    shown.post(bookmarks=(Mark(128, "step 128"),))
    shown.press(Key.Key_B, Control)
    assert note(shown).text() == "step 128"
    shown.qtbot.keyClick(note(shown), Key.Key_Delete)
    shown.qtbot.keyClick(note(shown), Key.Key_Return)
    shown.press(Key.Key_B, Control)
    shown.qtbot.keyClick(note(shown), Key.Key_Escape)
    assert shown.commands() == [SetBookmark(128, "step 128"), SetBookmark(128, "")]


def test_a_note_is_of_the_step_at_which_it_was_begun(shown: Shown) -> None:
    shown.press(Key.Key_B, Control)
    shown.post(cursor=Cursor(140, 4, 4))
    shown.qtbot.keyClicks(note(shown), "x")
    shown.qtbot.keyClick(note(shown), Key.Key_Return)
    assert shown.commands() == [SetBookmark(128, "x")]
    shown.press(Key.Key_B, Control)
    shown.post(run=2)
    assert not note(shown).isVisible(), "that run is gone"


def test_the_table_of_bookmarks(qtbot: QtBot) -> None:
    view = BookmarksView()
    qtbot.addWidget(view)
    view.show()
    qtbot.waitExposed(view)
    sent: list[object] = []
    view.command.connect(sent.append)
    view.show_snapshot(make_snapshot())
    assert view.empty.isVisible()
    bookmarks = (Mark(20, "first"), Mark(1500, "second"), Mark(1700, "third"))
    view.show_snapshot(make_snapshot(bookmarks=bookmarks))
    assert not view.empty.isVisible()
    assert view.model.data(view.model.index(1, 0)) == "1,500"
    view.table.selectRow(1)
    view.table.setFocus()
    qtbot.keyClick(view.table, Key.Key_Return)
    assert sent == [Seek(1500)]
    qtbot.keyClick(view.table, Key.Key_F2)
    editor = view.table.findChild(QLineEdit)
    assert isinstance(editor, QLineEdit)
    assert editor.text() == "second"
    qtbot.keyClicks(editor, "better")
    qtbot.keyClick(editor, Key.Key_Return)
    qtbot.waitUntil(lambda: sent[1:] == [SetBookmark(1500, "better")])
    qtbot.keyClick(view.table, Key.Key_Delete)
    assert sent[2:] == [SetBookmark(1500, "")]
    view.show_snapshot(make_snapshot(bookmarks=(bookmarks[0], bookmarks[2])))
    assert view.table.currentIndex().row() == 1, "the next one"


# ── following ──


def test_a_recording_in_progress_is_followed_or_not(shown: Shown) -> None:
    follow = shown.window.actions_by_name["follow"]
    assert "the source is no recording" in follow.toolTip()
    shown.post(source="/data/run.session", recorded=make_recorded(1234, state="recording"), following=True)
    assert follow.isChecked()
    assert shown.window.status.session.text() == "following run.session · recording · 1,234 steps"
    shown.press(Key.Key_F)
    shown.post(following=False)
    assert not follow.isChecked()
    assert shown.window.status.session.text() == "run.session · recording · 1,234 steps"
    shown.press(Key.Key_F)
    assert shown.commands() == [Follow(False), Follow(True)]


def test_a_writer_that_died_is_seen(shown: Shown) -> None:
    growing = make_recorded(1234, state="recording")
    shown.post(source="/data/run.session", recorded=growing, following=True)
    shown.post(recorded=replace(growing, state="interrupted"), following=False)
    follow = shown.window.actions_by_name["follow"]
    assert not follow.isEnabled()
    assert "nobody writes this recording any more" in follow.toolTip()
    assert shown.window.status.session.text() == "run.session · interrupted · 1,234 steps"


def test_the_title_bar_of_the_timeline_has_its_buttons(shown: Shown) -> None:
    dock = shown.window.docks["timeline"]
    shown.qtbot.mouseClick(shown.child(QToolButton, "transport_float"), Qt.MouseButton.LeftButton)
    assert dock.isFloating()
    shown.qtbot.mouseClick(shown.child(QToolButton, "transport_float"), Qt.MouseButton.LeftButton)
    assert not dock.isFloating()
    shown.qtbot.mouseClick(shown.child(QToolButton, "transport_close"), Qt.MouseButton.LeftButton)
    assert not dock.isVisible()
