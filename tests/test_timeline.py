"""The timeline over long recordings: what is drawn where, what is said of a step, and where mouse and keys go."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QEvent, QPoint, QPointF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot
from ui_helpers import make_findings, make_history, make_recorded, make_snapshot

from inspector.runtime.commands import Seek
from inspector.runtime.snapshots import Glance, Mark, Playing, Recorded
from inspector.stepping import Cursor, UndoInfo
from inspector.ui import theme
from inspector.ui.app import application
from inspector.ui.moment import absent_text, glance_text, rebuild_text, session_text, step_text
from inspector.ui.timeline_axis import LEAST_STEPS, Span, covered, pixels_of, tick_steps
from inspector.ui.timeline_paint import TRACK, labels, track, track_top
from inspector.ui.timeline_signs import Signs
from inspector.ui.timeline_view import TimelineView

Left = Qt.MouseButton.LeftButton
Shift, Control = Qt.KeyboardModifier.ShiftModifier, Qt.KeyboardModifier.ControlModifier
Key = Qt.Key
WHOLE = Span(0, 100_000, 1000, 16)

# ── the axis ──


def test_a_pixel_and_its_step_agree() -> None:
    span = Span(200, 300, 1000, 16)
    assert span.x_of(250) == 516
    assert span.step_of(516) == 250
    assert span.pixels_per_step == 10


def test_zooming_keeps_the_step_under_the_mouse_and_ends_where_a_step_is_easily_hit() -> None:
    span = WHOLE
    x = WHOLE.x_of(73_210)
    for _ in range(60):
        span = span.zoomed(1.25, x, WHOLE)
        assert span.step_of(x) == pytest.approx(73_210, abs=1e-6)
    assert span.stop - span.start == pytest.approx(LEAST_STEPS)
    assert span.pixels_per_step > 100
    for _ in range(60):
        span = span.zoomed(0.8, 500, WHOLE)
    assert (span.start, span.stop) == pytest.approx((0, 100_000))


def test_an_axis_is_never_moved_beyond_its_ends() -> None:
    assert replace(WHOLE, start=-50, stop=50).inside(WHOLE) == replace(WHOLE, start=0, stop=100)
    assert replace(WHOLE, start=99_990, stop=100_090).inside(WHOLE) == replace(
        WHOLE, start=99_900, stop=100_000
    )
    near = replace(WHOLE, start=100, stop=200)
    assert near.showing(150, WHOLE) is near
    assert near.showing(500, WHOLE) == replace(WHOLE, start=490, stop=590)
    assert near.showing(50, WHOLE) == replace(WHOLE, start=0, stop=100)


def test_ticks_begin_in_view() -> None:
    assert list(tick_steps(560, 5, 440)) == [450, 500, 550]


steps_of = st.lists(st.integers(0, 3000), unique=True, max_size=400).map(sorted)


@given(steps_of, st.integers(0, 2990), st.integers(1, 3000))
def test_what_is_in_view_has_its_pixel_and_no_pixel_has_two(
    steps: list[int], start: int, length: int
) -> None:
    span = Span(start, start + length, 100, 16)
    shown = pixels_of(np.array(steps, np.int64), span).tolist()
    assert len({int(x) for x in shown}) == len(shown) <= 101
    wanted = {int(span.x_of(step)) for step in steps if start <= step <= start + length}
    drawn = {int(x) for x in shown}
    # Where steps are many, a pixel beside may stand for one: rounding at the edge of a pixel.
    assert all({pixel - 1, pixel, pixel + 1} & drawn for pixel in wanted)
    assert all({pixel - 1, pixel, pixel + 1} & wanted for pixel in drawn)


@given(steps_of, st.integers(0, 2990), st.integers(1, 3000))
def test_what_can_be_rebuilt_is_covered_to_the_pixel(edges: list[int], start: int, length: int) -> None:
    pairs = [(a + 1, b) for a, b in zip(edges[::2], edges[1::2], strict=False)]
    span = Span(start, start + length, 50, 0)
    drawn = covered(np.array(pairs, np.int64).reshape(-1, 2), span)
    assert len(drawn) <= 50
    assert all(0 <= a <= b <= 50.0001 for a, b in drawn)
    for pixel in range(50):
        low, high = span.step_of(pixel), span.step_of(pixel + 1)
        inside = any(a - 1 < high and b > low for a, b in pairs)
        fills = any(a < pixel + 1 - 1e-6 and b > pixel + 1e-6 for a, b in drawn)
        if inside != fills:
            # No more than what lies on the edge between two pixels.
            assert any(
                abs(edge - step) * span.pixels_per_step < 1e-3
                for pair in pairs
                for step in (pair[0] - 1, pair[1])
                for edge in (low, high)
            )


def test_a_hundred_thousand_keyframes_are_no_more_lines_than_pixels() -> None:
    assert len(pixels_of(np.arange(100_001), WHOLE)) == 1000
    every_other = np.column_stack([np.arange(1, 100_000, 2)] * 2)
    assert len(covered(every_other, WHOLE)) <= 500


# ── words ──

SOME = make_recorded(
    1000, keyframes=(0, 100, 500, 700), rebuildable=((1, 40), (501, 650)), policy="grads:1+keyframes:100"
)


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (100, "captured: its tensors are shown at once"),
        (40, "rebuilt from the state after step 0 by running 40 steps"),
        (501, "rebuilt from the state after step 500 by running 1 step"),
        (41, "cannot be rebuilt: the gradients of step 41 were not captured (policy grads:1+keyframes:100)"),
        (
            120,
            "cannot be rebuilt: the gradients of step 101 were not captured (policy grads:1+keyframes:100)",
        ),
        (
            660,
            "cannot be rebuilt: the gradients of step 651 were not captured (policy grads:1+keyframes:100)",
        ),
    ],
)
def test_what_a_step_takes(step: int, text: str) -> None:
    assert rebuild_text(SOME, step) == text


def test_a_recording_of_numbers_only_says_so() -> None:
    assert rebuild_text(make_recorded(1000), 5) == (
        "cannot be rebuilt: no state up to it was captured (policy stats)"
    )


def test_a_stretch_that_goes_on_through_a_keyframe() -> None:
    through = make_recorded(100, (0, 50), ((1, 80),), policy="all")
    assert rebuild_text(through, 70) == "rebuilt from the state after step 50 by running 20 steps"
    assert (
        rebuild_text(through, 90)
        == "cannot be rebuilt: the gradients of step 81 were not captured (policy all)"
    )


def test_a_step_in_memory_is_said_to_be() -> None:
    shown = make_snapshot(cursor=Cursor(128, 4, 4), recorded=SOME, undo=UndoInfo(steps=24))
    assert step_text(shown, 110) == "Step 110: in memory, click to go back to its end"
    assert step_text(shown, 103).startswith("Step 103: cannot be rebuilt")
    assert step_text(replace(shown, glance=Glance(128)), 110).startswith("Step 110: cannot be rebuilt")
    assert step_text(replace(shown, recorded=None), 900) == "Step 900: click to run on to its end"


@pytest.mark.parametrize(
    ("glance", "text"),
    [
        (None, ""),
        (Glance(120, done=12, of=40),
         "Step 120 as recorded; its buffers are being rebuilt: 12 of 40 steps (Esc stays)."),
        (Glance(1120, missing="No gradients were captured."),
         "No gradients were captured. Its numbers are as recorded."),
        (Glance(120),
         "Step 120 as recorded; its buffers have not been rebuilt: go to the step again to rebuild them."),
    ],
)  # fmt: skip
def test_what_is_there_of_a_step_that_is_shown_as_recorded(glance: Glance | None, text: str) -> None:
    shown = make_snapshot(glance=glance)
    assert glance_text(shown) == text
    assert absent_text(shown, None) == text.replace(" (Esc stays)", "")
    assert absent_text(shown, object()) == ""


def test_while_it_goes_on_by_itself_nothing_has_to_be_done_for_buffers() -> None:
    shown = make_snapshot(glance=Glance(120), mode="running", playing=Playing(10.0))
    assert glance_text(shown) == "Step 120 as recorded; its buffers are rebuilt at a pause."
    followed = make_snapshot(glance=Glance(120), following=True)
    assert glance_text(followed).endswith("once it is followed no longer.")


def test_the_recording_that_is_open_is_named_with_what_became_of_it() -> None:
    live = make_recorded(1234, state="recording")
    shown = make_snapshot(source="/data/run.session", recorded=live, following=True)
    assert session_text(shown) == "following run.session · recording · 1,234 steps"
    ended = replace(shown, recorded=replace(live, state="interrupted"), following=False)
    assert session_text(ended) == "run.session · interrupted · 1,234 steps"
    assert session_text(make_snapshot()) == ""


def test_signs_are_found_at_any_zoom() -> None:
    signs = Signs(
        make_snapshot(
            findings=make_findings(), marks=(Mark(40, "β₂"),), bookmarks=(Mark(90, "before the spike"),)
        )
    )
    assert signs.steps.tolist() == [20, 40, 85, 90, 97]
    assert signs.texts[90] == "Bookmark: before the spike"
    span = Span(0, 200, 1000)
    assert signs.near(span.x_of(90) + 4, span) == 90
    assert signs.near(span.x_of(90) + 6, span) is None
    far = Span(0, 2000, 1000)
    assert [signs.near(far.x_of(step), far) for step in (84, 88, 95)] == [85, 90, 97]
    assert (signs.before(85), signs.after(85)) == (40, 90)
    assert (signs.before(20), signs.after(97)) == (None, None)


# ── the view ──


class Line:
    """A timeline on screen over a recording of 100,000 steps."""

    def __init__(self, qtbot: QtBot, recorded: Recorded | None = None, **changes: object) -> None:
        self.sent: list[object] = []
        self.loops: list[object] = []
        self.ranges: list[tuple[float, float]] = []
        self.view = TimelineView()
        qtbot.addWidget(self.view)
        self.view.command.connect(self.sent.append)
        self.view.loop_wanted.connect(self.loops.append)
        self.view.moved.connect(lambda start, stop: self.ranges.append((start, stop)))
        self.view.resize(1032, 64)
        self.view.show()
        qtbot.waitExposed(self.view)
        self.given = {
            "cursor": Cursor(500, 4, 4), "history": make_history(300), "marks": (), "undo": UndoInfo(),
            "last_step": 100_000, "recorded": recorded or make_recorded(100_000, range(0, 100_001, 1000)),
            **changes,
        }  # fmt: skip
        self.show()

    def show(self, **changes: object) -> None:
        self.given |= changes
        self.view.show_snapshot(make_snapshot(**self.given))

    def at(self, step: float, y: int = 30) -> QPoint:
        return QPoint(round(self.view.x_of(step)), y)

    def wheel(
        self, x: float, notches: float, modifier: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier
    ) -> None:
        at = QPointF(x, 30)
        event = QWheelEvent(
            at, self.view.mapToGlobal(at), QPoint(), QPoint(0, round(120 * notches)), Qt.MouseButton.NoButton,
            modifier, Qt.ScrollPhase.NoScrollPhase, False,
        )  # fmt: skip
        QApplication.sendEvent(self.view, event)

    def colours(self, step: float) -> list[QColor]:
        image = self.view.grab().toImage()
        ratio = image.devicePixelRatio()
        x = round(self.view.x_of(step) * ratio)
        return [image.pixelColor(x, y) for y in range(image.height())]


def apart(a: QColor, b: QColor) -> int:
    return abs(a.red() - b.red()) + abs(a.green() - b.green()) + abs(a.blue() - b.blue())


@pytest.mark.qt
def test_the_axis_is_as_long_as_the_recording(qtbot: QtBot) -> None:
    line = Line(qtbot)
    assert (line.view.whole.start, line.view.end) == (0, 100_000)
    qtbot.mouseClick(line.view, Left, pos=line.at(99_999))
    assert line.sent == [Seek(100_000)]
    later = Line(qtbot, make_recorded(2000, first=1501), last_step=2000, cursor=Cursor(1600, 4, 4))
    assert (later.view.whole.start, later.view.end) == (1500, 2000)


@pytest.mark.qt
def test_a_recording_that_grows_has_room_ahead(qtbot: QtBot) -> None:
    line = Line(qtbot, make_recorded(1000, state="recording"), last_step=1000)
    end = line.view.end
    assert end > 1000
    line.show(recorded=make_recorded(1010, state="recording"), last_step=1010)
    assert line.view.end == end


@pytest.mark.qt
def test_the_wheel_comes_close_enough_to_hit_any_single_step(qtbot: QtBot) -> None:
    line = Line(qtbot)
    x = line.view.x_of(73_210)
    for _ in range(40):
        line.wheel(x, 1)
    assert line.view.span.stop - line.view.span.start == pytest.approx(LEAST_STEPS)
    hit = [
        line.view.step_at(line.view.x_of(step) + offset)
        for step in (73_208, 73_211)
        for offset in (-40, 0, 40)
    ]
    assert hit == [73_208] * 3 + [73_211] * 3
    assert line.ranges[-1] == (line.view.span.start, line.view.span.stop)
    for step in (73_209, 73_212):
        qtbot.mouseClick(line.view, Left, pos=line.at(step))
    assert line.sent == [Seek(73_209), Seek(73_212)]
    line.wheel(x, 2, Shift)
    assert line.view.span.start < 73_206
    line.view.setFocus()
    qtbot.keyClick(line.view, Key.Key_A)
    assert line.view.span == line.view.whole


@pytest.mark.qt
def test_the_step_under_the_mouse_is_numbered_before_it_is_clicked(qtbot: QtBot) -> None:
    line = Line(qtbot)
    in_labels = round(track_top(64) + TRACK) + 4
    background = line.colours(43_000)[in_labels]
    qtbot.mouseMove(line.view, line.at(43_000))
    assert line.colours(43_000)[in_labels] != background
    QApplication.sendEvent(line.view, QEvent(QEvent.Type.Leave))
    assert line.colours(43_000)[in_labels] == background
    assert line.sent == []


@pytest.mark.qt
def test_the_view_follows_the_cursor_where_it_leaves(qtbot: QtBot) -> None:
    line = Line(qtbot)
    line.view.show_range(400, 600)
    assert (line.view.span.start, line.view.span.stop) == (400, 600)
    assert line.ranges == []
    line.show(cursor=Cursor(590, 4, 4))
    assert line.view.span.start == 400
    line.show(cursor=Cursor(601, 4, 4))
    assert line.view.span.start == 581
    assert line.ranges == [(581, 781)]
    line.view.show_range(-np.inf, np.inf)
    assert line.view.span == line.view.whole


@pytest.mark.qt
def test_shift_and_a_drag_set_a_range_and_move_nothing(qtbot: QtBot) -> None:
    line = Line(qtbot)
    line.view.show_range(0, 100)
    QTest.mousePress(line.view, Left, Shift, line.at(60))
    QTest.mouseMove(line.view, line.at(40))
    QTest.mouseMove(line.view, line.at(20))
    QTest.mouseRelease(line.view, Left, Shift, line.at(20))
    QTest.mouseMove(line.view, line.at(10))
    assert line.loops[-1] == (20, 60)
    assert line.sent == []


@pytest.mark.qt
def test_what_is_shown_as_recorded_has_a_hollow_cursor_and_progress(qtbot: QtBot) -> None:
    line = Line(qtbot, make_recorded(1000, (0, 400), ((1, 1000),)), last_step=1000)
    accent = theme.colours().accent
    line.show(cursor=Cursor(800, 4, 4), glance=Glance(800, done=100, of=400))
    on_track = round(track_top(64) + TRACK / 2)
    for step, done in ((450, True), (600, False)):
        colour = line.colours(step)[on_track]
        assert (apart(colour, accent) < 60) == done, step
    inside = round(track_top(64)) - 16 + 4  # of the triangle on top of the line
    hollow = line.colours(800)[inside]
    line.show(glance=None)
    solid = line.colours(800)[inside]
    assert apart(solid, accent) < 60 < 150 < apart(hollow, accent)


@pytest.mark.qt
def test_what_can_be_rebuilt_looks_unlike_what_cannot(qtbot: QtBot) -> None:
    line = Line(qtbot, make_recorded(1000, (0,), ((1, 500),)), last_step=1000, cursor=Cursor(999, 4, 4))
    on_track = round(track_top(64) + 2)
    assert line.colours(250)[on_track] != line.colours(750)[on_track]


@pytest.mark.qt
def test_a_step_that_was_given_up_can_be_asked_for_again(qtbot: QtBot) -> None:
    line = Line(qtbot, glance=Glance(500, done=3, of=10))
    qtbot.mouseClick(line.view, Left, pos=line.at(500))
    assert line.sent == [], "it is on its way"
    line.show(glance=Glance(500))
    qtbot.mouseClick(line.view, Left, pos=line.at(500))
    assert line.sent == [Seek(500)]


@pytest.mark.qt
def test_keys_pressed_faster_than_steps_come_go_on_from_where_they_were(qtbot: QtBot) -> None:
    line = Line(qtbot)
    line.view._patience.setInterval(60_000)
    line.view.setFocus()
    qtbot.keyClick(line.view, Key.Key_Left)
    qtbot.keyClick(line.view, Key.Key_Left)
    line.show(cursor=Cursor(499, 4, 4))
    qtbot.keyClick(line.view, Key.Key_Left)
    assert line.sent == [Seek(499), Seek(498), Seek(497)]


@pytest.mark.qt
def test_a_step_that_never_comes_is_forgotten(qtbot: QtBot) -> None:
    line = Line(qtbot)
    line.view._patience.setInterval(10)
    line.view.setFocus()
    qtbot.keyClick(line.view, Key.Key_Left)
    qtbot.wait(40)
    qtbot.keyClick(line.view, Key.Key_Left)
    assert line.sent == [Seek(499), Seek(499)]


@pytest.mark.qt
def test_a_run_on_its_way_is_waited_for(qtbot: QtBot) -> None:
    line = Line(qtbot)
    patience = line.view._patience
    qtbot.mouseClick(line.view, Left, pos=line.at(40_000))
    patience.stop()
    line.show(cursor=Cursor(1000, 4, 4))
    assert patience.isActive(), "it moves: another while"
    qtbot.mouseClick(line.view, Left, pos=line.at(40_000))
    assert line.sent == [Seek(40_000)]
    between = line.colours(20_000)[round(track_top(64)) + 6]
    assert between != line.colours(60_000)[round(track_top(64)) + 6]


@pytest.mark.qt
def test_home_is_the_first_recorded_step_and_signs_are_gone_through(qtbot: QtBot) -> None:
    line = Line(qtbot, bookmarks=(Mark(300, "a"), Mark(700, "b")))
    line.view.setFocus()
    qtbot.keyClick(line.view, Key.Key_Right, Control)
    qtbot.keyClick(line.view, Key.Key_Home)
    qtbot.keyClick(line.view, Key.Key_Right, Control)
    assert line.sent == [Seek(700), Seek(1), Seek(300)]
    assert "Bookmark: b" in line.view.describe(line.view.x_of(700))


@pytest.mark.qt
def test_the_ground_is_painted_once_for_a_whole_scrub(qtbot: QtBot) -> None:
    line = Line(qtbot, findings=make_findings())
    line.view.grab()
    before = line.view._painter._picture
    for step in range(1000, 90_000, 5000):
        line.show(cursor=Cursor(step, 4, 4))
        line.view.grab()
    assert line.view._painter._picture is before
    line.show(findings=make_findings()[:1])
    line.view.grab()
    assert line.view._painter._picture is not before


@pytest.mark.parametrize("scale", [1.0, 1.5, 2.0])
def test_rows_have_room_for_larger_text(qtbot: QtBot, scale: float) -> None:
    theme.apply(application(), "light", scale)
    try:
        text = QFontMetricsF(theme.ui_font(-1)).height()
        assert track() >= text - 1.5
        assert labels() >= text + 2
        view = TimelineView()
        qtbot.addWidget(view)
        assert view.minimumHeight() >= 2 * text + 1
        if scale == 1.0:
            assert (track(), view.minimumHeight()) == (TRACK, 44)
    finally:
        theme.apply(application(), "light", 1.0)
