"""Curves over steps: no spike, no NaN and no infinity is lost on the way to the screen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot
from ui_helpers import make_snapshot

from inspector.history import EMPTY_HISTORY, History, HistoryRecorder
from inspector.runtime.snapshots import Mark, StepRecord
from inspector.stepping import Cursor, GradStats
from inspector.ui import theme
from inspector.ui.chart import DOT_RADIUS, Axis, log_ticks
from inspector.ui.curves import MAX_POINTS, curve
from inspector.ui.plots_view import PlotsView
from inspector.ui.step_chart import StepChart

pytestmark = pytest.mark.qt


def history_of(metrics: Mapping[str, Sequence[float]], capacity: int = 8192) -> History:
    recorder = HistoryRecorder(capacity)
    for i in range(len(next(iter(metrics.values())))):
        recorder.append(i + 1, {name: float(values[i]) for name, values in metrics.items()})
    return recorder.freeze()


def shown(qtbot: QtBot, history: History, *, source: str = "charlm", **changes: object) -> PlotsView:
    view = PlotsView()
    qtbot.addWidget(view)
    view.resize(900, 400)
    with qtbot.waitExposed(view):
        view.show()
    view.show_snapshot(replace(make_snapshot(source=source, **{"record": None, **changes}), history=history))
    return view


def test_one_nan_leaves_the_other_999_points(qtbot: QtBot) -> None:
    loss = np.linspace(4, 2, 1000)
    loss[0] = math.nan
    view = shown(qtbot, history_of({"loss": loss}))
    drawn = view.charts["loss"].drawn("loss")
    assert len(drawn.x) == 1000
    assert drawn.drawn == 999
    assert view.charts["loss"].edges.drawn("nan") == [1.0]


def test_infinities_are_marked_and_do_not_flatten_the_curve(qtbot: QtBot) -> None:
    loss = [2.0, math.inf, 2.5, -math.inf, 3.0]
    view = shown(qtbot, history_of({"loss": loss}))
    chart = view.charts["loss"]
    assert chart.edges.drawn("posinf") == [2.0]
    assert chart.edges.drawn("neginf") == [4.0]
    low, high = chart.box.viewRange()[1]
    assert 1 < low < 2
    assert 3 < high < 4


def test_equal_values_stay_in_the_middle(qtbot: QtBot) -> None:
    view = shown(qtbot, history_of({"clip_scale": [1.0] * 20}))
    chart = view.charts["clip_scale"]
    low, high = chart.box.viewRange()[1]
    assert low < 1 < high
    assert chart.drawn("clip_scale").drawn == 20


def test_a_single_step_is_a_dot(qtbot: QtBot) -> None:
    view = shown(qtbot, history_of({"loss": [2.0]}))
    chart = view.charts["loss"]
    x, y = chart.drawn("loss").lonely()
    assert (list(x), list(y)) == ([1.0], [2.0])


@pytest.mark.parametrize("height", [90, 160, 400])
def test_the_highest_dot_is_clear_of_the_title(qtbot: QtBot, height: int) -> None:
    chart = StepChart()
    qtbot.addWidget(chart)
    chart.resize(300, height)
    chart.set_title("loss of the run, in full words")
    chart.show()
    qtbot.waitExposed(chart)
    chart.show_history(history_of({"loss": [2.0]}), ("loss",))
    chart.set_y_bounds((1.0, 2.0))
    highest = chart.box.mapFromView(QPointF(1.0, 2.0)).y() - DOT_RADIUS
    title = chart._title_back.mapRectToParent(chart._title_back.rect())
    assert highest >= title.bottom()


@pytest.mark.parametrize("steps", [5_000, 40_000])
def test_a_spike_of_one_step_survives(steps: int) -> None:
    loss = np.full(steps, 2.0)
    loss[steps // 3] = 50.0
    loss[steps // 2] = math.nan
    drawn = curve(history_of({"loss": loss}), "loss")
    assert len(drawn.x) <= MAX_POINTS + 1
    assert drawn.bounds() == (2.0, 50.0)
    _, y = drawn.envelope()
    assert list(y) == [2.0, 50.0]
    assert len(drawn.nan) == 1


def test_the_norm_is_logarithmic_and_marks_what_has_no_logarithm(qtbot: QtBot) -> None:
    view = shown(qtbot, history_of({"grad_norm": [0.01, 0.0, 100.0]}))
    chart = view.charts["grad_norm"]
    np.testing.assert_allclose(chart.drawn("grad_norm").last, [-2, math.nan, 2])
    assert chart.edges.drawn("below") == [2.0]
    assert log_ticks(-2, 2, 5) == [-2, -1, 0, 1, 2]
    assert len(log_ticks(-300, 300, 5)) <= 5
    assert log_ticks(0.61, 0.62, 4)


@pytest.mark.parametrize("huge", [3.4e38, 1e-40])
def test_extreme_values_are_drawn(qtbot: QtBot, huge: float) -> None:
    view = shown(qtbot, history_of({"loss": [huge, 2 * huge, -huge], "grad_norm": [huge] * 3}))
    assert not view.grab().isNull()
    assert view.charts["loss"].drawn("loss").drawn == 3


def test_a_source_without_loss_says_so(qtbot: QtBot) -> None:
    view = shown(qtbot, history_of({"grad_norm": [1.0, 2.0]}), source="synthetic:1000")
    assert view.charts["loss"].message == "This source gives no loss."
    assert view.charts["grad_norm"].message == ""
    assert view.charts["loss"].title == "loss"


def test_before_the_first_step_it_says_what_to_do(qtbot: QtBot) -> None:
    view = shown(qtbot, EMPTY_HISTORY)
    assert "F11" in view.charts["loss"].message
    view.show_snapshot(replace(make_snapshot(record=None), history=history_of({"loss": [2.0], "lr": [0.1]})))
    assert view.charts["loss"].message == ""
    assert view.charts["loss"].title == "loss (nats/char)  2"


def test_x_axes_are_linked_and_home_shows_all_again(qtbot: QtBot) -> None:
    view = shown(qtbot, history_of({"loss": np.ones(100), "lr": np.ones(100)}))
    box = view.charts["lr"].box
    box.setXRange(10, 20, padding=0)
    box.sigRangeChangedManually.emit(box.mouseEnabled())
    np.testing.assert_allclose(view.charts["loss"].box.viewRange()[0], (10, 20), atol=0.5)
    assert len(view.charts["loss"].drawn("loss").x) < 20
    view.show_snapshot(
        replace(make_snapshot(), history=history_of({"loss": np.ones(200), "lr": np.ones(200)}))
    )
    np.testing.assert_allclose(view.charts["loss"].box.viewRange()[0], (10, 20), atol=0.5)
    view.setFocus()
    qtbot.keyClick(view, Qt.Key.Key_Plus)
    np.testing.assert_allclose(view.charts["lr"].box.viewRange()[0], (12.5, 17.5), atol=0.5)
    qtbot.keyClick(view, Qt.Key.Key_Home)
    assert view.charts["loss"].box.viewRange()[0][1] > 200


def test_the_mouse_reads_out_every_metric_at_its_step(qtbot: QtBot) -> None:
    history = history_of({"loss": np.arange(1.0, 101), "grad_norm": np.arange(2.0, 102)})
    view = shown(qtbot, history, marks=(Mark(40, "β₂ 0.999 → 0.95"),))
    chart = view.charts["loss"]
    at = chart.mapFromScene(chart.box.mapViewToScene(QPoint(40, 50)))
    qtbot.mouseMove(chart.viewport(), QPoint(at.x() - 60, at.y()))
    qtbot.mouseMove(chart.viewport(), at)
    assert view.readout.text().startswith("step 40 · β₂ 0.999 → 0.95")
    assert chart.title == "loss (nats/char)  40"
    assert view.charts["grad_norm"].title == "gradient norm  41"
    assert chart.cross_line.isVisible()
    assert chart.mark_near(40.0) == Mark(40, "β₂ 0.999 → 0.95")


def test_marks_and_the_current_step_are_lines(qtbot: QtBot) -> None:
    view = shown(
        qtbot,
        history_of({"loss": np.ones(50)}),
        marks=(Mark(5, "lr"), Mark(9, "ε")),
        cursor=Cursor(50, 0, 4),
    )
    assert view.charts["loss"].marked_steps() == [5.0, 9.0]
    assert view.charts["loss"].current_line.value() == 50


def test_a_hidden_view_draws_nothing_until_it_is_shown(qtbot: QtBot) -> None:
    view = PlotsView()
    qtbot.addWidget(view)
    view.show_snapshot(make_snapshot())
    assert len(view.charts["loss"].drawn("loss").x) == 0
    view.show()
    assert len(view.charts["loss"].drawn("loss").x) == 128


def test_buckets_of_many_steps_are_named_as_such(qtbot: QtBot) -> None:
    view = shown(qtbot, history_of({"loss": np.arange(100.0)}, capacity=32))
    assert view.readout.text().startswith("steps 97 to 100")
    assert view.charts["loss"].title == "loss (nats/char)  99 (96 to 99)"


def test_the_colours_follow_the_theme(qtbot: QtBot, qapp: QApplication) -> None:
    view = shown(qtbot, history_of({"loss": [1.0, 2.0]}))
    chart = view.charts["loss"]
    try:
        theme.apply(qapp, "dark")
        assert chart.pen("loss").color() == theme.DARK.text
        assert chart.backgroundBrush().color() == theme.DARK.base
    finally:
        theme.apply(qapp, "light")
    assert chart.pen("loss").color() == theme.LIGHT.text


def test_what_the_step_in_progress_has_produced_is_shown_at_once(qtbot: QtBot) -> None:
    history = history_of(
        {"loss": [2.0, 1.5], "grad_norm": [9.0, 8.0], "clip_scale": [0.5, 0.6], "lr": [0.1, 0.1]}
    )
    begun = StepRecord(3, 0.2, loss=1.25)
    view = shown(qtbot, history, cursor=Cursor(3, 1, 4), record=begun)
    assert view.readout.text() == "step 3 (in progress)"
    assert view.charts["loss"].title == "loss (nats/char)  1.25"
    assert view.charts["grad_norm"].title == "gradient norm  not yet"
    known = replace(begun, grad_norm=1000.0, clip_scale=0.125)
    snapshot = replace(make_snapshot(cursor=Cursor(3, 2, 4), record=known), history=history)
    view.show_snapshot(snapshot)
    chart = view.charts["grad_norm"]
    assert chart.title == "gradient norm  1,000"
    assert view.charts["clip_scale"].title == "clip scale  0.125"
    x, y = chart.progress_dot.getData()
    assert (list(x), list(y)) == ([3.0], [3.0])
    assert chart.box.viewRange()[0][1] > 3
    assert chart.box.viewRange()[1][1] > 3
    ended = history_of(
        {"loss": [2, 1.5, 1.25], "grad_norm": [9, 8, 1000], "clip_scale": [1] * 3, "lr": [0.1] * 3}
    )
    view.show_snapshot(replace(snapshot, cursor=Cursor(3, 4, 4), history=ended))
    assert view.readout.text() == "step 3"
    assert len(chart.progress_dot.getData()[0]) == 0


def test_the_first_step_in_progress_is_shown_too(qtbot: QtBot) -> None:
    record = StepRecord(1, 0.2, loss=4.5)
    view = shown(qtbot, EMPTY_HISTORY, cursor=Cursor(1, 1, 4), record=record)
    assert view.charts["loss"].message == ""
    assert view.charts["loss"].title == "loss (nats/char)  4.5"
    assert "F11" in view.charts["grad_norm"].message


def test_a_new_run_is_shown_whole(qtbot: QtBot) -> None:
    history = history_of({"loss": np.ones(100)})
    view = shown(qtbot, history)
    box = view.charts["loss"].box
    box.setXRange(10, 20, padding=0)
    box.sigRangeChangedManually.emit(box.mouseEnabled())
    view.show_snapshot(replace(make_snapshot(record=None, run=2), history=history_of({"loss": np.ones(50)})))
    assert box.viewRange()[0][0] < 1
    assert 50 < box.viewRange()[0][1] < 52


def test_no_line_crosses_the_words_of_an_empty_plot(qtbot: QtBot) -> None:
    view = shown(qtbot, history_of({"grad_norm": [1.0, 2.0]}), source="synthetic:1000")
    assert not view.charts["loss"].current_line.isVisible()
    assert view.charts["grad_norm"].current_line.isVisible()
    loss = history_of({"loss": [1.0, 2.0]})
    view.show_snapshot(replace(make_snapshot(record=None), history=loss))
    assert view.charts["loss"].current_line.isVisible()


def test_ticks_are_written_as_numbers_elsewhere() -> None:
    axis = Axis("left")
    assert axis.tickStrings([0, 2e-5, 4e-5], 1, 2e-5) == ["0", "2e−5", "4e−5"]
    assert axis.tickStrings([0.0, 0.5, 1.0], 1, 0.5) == ["0", "0.5", "1"]
    assert axis.tickStrings([3.25, 3.5, 3.75], 1, 0.25) == ["3.25", "3.5", "3.75"]
    assert axis.tickStrings([1.0001, 1.0002], 1, 1e-4) == ["1.0001", "1.0002"]
    assert axis.tickStrings([1e6, 1.5e6], 1, 5e5) == ["1e6", "1.5e6"]
    assert axis.tickStrings([-2e-5], 1, 2e-5) == ["−2e−5"]


@pytest.mark.parametrize("size", [20, 60, 150, 400, 1200])
def test_an_axis_with_one_point_has_a_tick_there(qtbot: QtBot, size: int) -> None:
    axis = Axis("bottom", whole=True)
    for step in (*range(200), 1001, 99_999, 123_457):
        for room in (0.5, 0.51, 0.7):
            levels = axis.tickValues(step - room, step + room, size)
            assert [round(v) for _, ticks in levels for v in ticks].count(step) == 1, (step, room)


@pytest.mark.parametrize("size", [20, 60, 150, 400])
def test_a_logarithmic_axis_has_ticks_and_no_two_that_read_the_same(qtbot: QtBot, size: int) -> None:
    axis = Axis("left", log=True)
    rng = np.random.default_rng(8)
    for low in rng.uniform(-12, 4, 60):
        for height in 10.0 ** np.arange(-9, 2):
            levels = axis.tickValues(low, low + height, size)
            values = [v for _, ticks in levels for v in ticks]
            assert 1 <= len(values) <= max(size // 18, 1)
            words = axis.tickStrings(values, 1, 1)
            assert len(set(words)) == len(words), (low, height, words)
            assert all(words)


def test_the_newest_step_is_not_at_the_edge(qtbot: QtBot) -> None:
    view = shown(qtbot, history_of({"loss": [1.0, 2.0]}))
    chart = view.charts["loss"]
    assert chart.box.sceneBoundingRect().right() <= chart.width() - 8


def test_the_norm_of_a_step_is_that_of_its_line_where_the_program_clipped(qtbot: QtBot) -> None:
    """The kernels found 1 in what a program had left of 16 before it was recorded."""
    history = history_of({"grad_norm": [14.0, 16.0], "clip_scale": [1 / 14, 0.0625]})
    record = StepRecord(2, 1e-3, grad_norm=1.0, clip_scale=1.0, clipped_by=GradStats(16.0, 0.0625))
    view = shown(qtbot, history, record=record, cursor=Cursor(2, 4, 4))
    assert view.charts["grad_norm"].title == "gradient norm  16"
    assert view.charts["clip_scale"].title == "clip scale  0.0625"
