"""The board of plots: what is chosen is asked for, drawn without losing a spike or a NaN, read out, and written."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QImage
from pytestqt.qtbot import QtBot
from ui_helpers import make_snapshot, small_layout, wide_layout

from inspector.history import EMPTY_HISTORY, History, Series
from inspector.line_store import FallStore, Waterfall
from inspector.optimizers import plan_step
from inspector.plan import Limits, Variant
from inspector.runtime.commands import Seek, SetStats, ViewLines
from inspector.runtime.plotted import MEASURES, Fall, Line, PlotPicture
from inspector.runtime.snapshots import Snapshot
from inspector.statistics import BINS
from inspector.ui import theme
from inspector.ui.board_model import MOST_IN_ONE, Board, Plot, choices, lines_csv, percentiles
from inspector.ui.board_view import BoardView
from inspector.ui.waterfall_chart import image_of, quantiles_log2

pytestmark = pytest.mark.qt
Key, CTRL = Qt.Key, Qt.KeyboardModifier.ControlModifier
NORM = Line("grad_norm", "norm.weight")


def history(line: Line, values: np.ndarray, first: int = 1) -> History:
    values = np.asarray(values, np.float64)
    series = Series(values, values, values, np.isnan(values).astype(np.uint32))
    return History(1, first + np.arange(len(values)), MappingProxyType({str(line): series}), 1)


def waterfall(steps: int = 20, capacity: int = 512) -> Waterfall:
    """100 elements around 2⁻⁷ and, in step 13, one of 2⁴⁰ and three that are not finite."""
    store = FallStore(capacity)
    for step in range(1, steps + 1):
        counts = np.zeros(BINS, np.uint32)
        counts[119:122] = 25, 50, 25
        counts[167] = step == 13
        store.append(step, counts, 0, 3 * (step == 13))
    return store.picture()


def moment(
    lines: Mapping[Line, np.ndarray] | None = None,
    falls: Mapping[Fall, Waterfall] | None = None,
    **changes: Any,
) -> Snapshot:
    made = {line: history(line, values) for line, values in (lines or {}).items()}
    plotted = PlotPicture(MappingProxyType(made), MappingProxyType(dict(falls or {})))
    return make_snapshot(**{"record": None, "plotted": plotted, "stats": "full", **changes})


def board_of(
    qtbot: QtBot, *plots: Plot, snapshot: Snapshot | None = None, size: tuple[int, int] = (900, 520)
) -> tuple[BoardView, list[Any]]:
    view, sent = BoardView(), []
    qtbot.addWidget(view)
    view.command.connect(sent.append)
    view.load(Board(plots).to_text())
    view.resize(*size)
    with qtbot.waitExposed(view):
        view.show()
    if snapshot is not None:
        view.show_snapshot(snapshot)
    drawn(qtbot, view)
    return view, sent


def drawn(qtbot: QtBot, view: BoardView) -> None:
    """Plots are drawn a few at a time."""
    qtbot.waitUntil(lambda: len(view.pane.cells) >= len(view.pane.seen()) and not view.pane._waiting)


def legend(view: BoardView, cell: int = 0) -> dict[str, str]:
    return {e.name: e.value for e in view.pane.cells[cell].legend.entries}


# --- what is drawn


def test_a_spike_and_a_nan_among_100_000_steps_are_seen_at_any_zoom(qtbot: QtBot) -> None:
    values = np.full(100_000, 2.0)
    values[54_321], values[77_777] = 900.0, math.nan
    view, _ = board_of(qtbot, Plot((NORM,)), snapshot=moment({NORM: values}, history=EMPTY_HISTORY))
    chart = view.pane.cells[0].chart
    for start, stop in ((0, 100_001), (50_000, 60_000), (54_300, 54_340)):
        view.show_range(start, stop)
        drawn(qtbot, view)
        assert chart.drawn(str(NORM)).high[np.isfinite(chart.drawn(str(NORM)).high)].max() == 900
        assert len(chart.drawn(str(NORM)).x) <= 2048
    view.show_range(70_000, 80_000)
    drawn(qtbot, view)
    assert len(chart.edges.drawn("nan")) == 1
    assert chart.edges.drawn("nan")[0] == pytest.approx(77_778, abs=20)


def test_lines_of_the_run_and_of_params_stand_in_one_plot_on_either_axis(qtbot: QtBot) -> None:
    loss = Line("loss")
    view, sent = board_of(qtbot, Plot((loss, NORM)), snapshot=moment({NORM: np.array([0.0, 10.0, 1000.0])}))
    chart = view.pane.cells[0].chart
    assert chart.drawn("loss").drawn > 0
    assert chart.drawn(str(NORM)).last.tolist() == [0, 10, 1000]
    qtbot.keyClick(view, Key.Key_G)
    assert chart.drawn(str(NORM)).last[1:].tolist() == [1, 3]
    assert chart.edges.drawn("below") == [1.0]
    # The history has the loss anyway.
    assert sent[-1] == ViewLines((NORM,), (), frozenset({loss, NORM}))


def test_a_waterfall_has_the_one_element_that_left_and_marks_what_is_not_finite(qtbot: QtBot) -> None:
    fall = waterfall()
    view, _ = board_of(qtbot, Plot(fall=Fall("g")), snapshot=moment(falls={Fall("g"): fall}))
    chart = view.pane.cells[0].waterfall
    assert chart.image is not None
    assert (chart.image.low, chart.image.start, chart.image.width) == (-8, 1, 1)
    alpha = chart.image.rgba[..., 3]
    assert alpha[40 + 8].nonzero()[0].tolist() == [12]
    assert alpha[:3].all()
    assert chart.edges.drawn("nan") == [13.0]
    # Half of the elements that are not 0 lie up to the middle of the middle bin.
    assert quantiles_log2(fall, 0.5)[0] == pytest.approx(-7 + 24.5 / 50)


def test_a_waterfall_of_many_steps_is_no_larger_than_a_screen() -> None:
    image = image_of(waterfall(100_000))
    assert image is not None
    assert image.rgba.shape[1] <= 1024
    assert image.rgba[48, :, 3].any()
    assert image.width * image.rgba.shape[1] >= 100_000


# --- choosing


def test_by_keys_alone_a_plot_is_made_and_lines_are_added_to_it(qtbot: QtBot) -> None:
    view, sent = board_of(qtbot, snapshot=moment())
    qtbot.keyClick(view, Key.Key_N)
    chooser = view.chooser
    assert chooser.isVisible()
    assert view.focusWidget() is chooser.metric_edit
    qtbot.keyClicks(chooser.metric_edit, "update_ratio")
    qtbot.keyClicks(chooser.param_edit, "h.1.ffn.down")
    qtbot.keyClick(chooser.param_edit, Key.Key_Return)
    ratio = Line("update_ratio", "h.1.ffn.down.weight")
    assert view.board.plots == [Plot((ratio,), log=True)]
    assert not chooser.isVisible()
    assert sent[-1] == ViewLines((ratio,), (), frozenset({ratio}))
    qtbot.keyClick(view, Key.Key_L)
    chooser.metric_edit.setText("g percentiles")
    chooser.param_edit.clear()
    qtbot.keyClick(chooser.metric_edit, Key.Key_Return)
    assert view.board.plots[0].lines == (ratio, *percentiles("g"))
    qtbot.keyClick(view, Key.Key_Delete)
    assert sent[-1] == ViewLines()
    qtbot.keyClick(view, Key.Key_U)
    assert len(view.board.plots[0].lines) == 7


def test_by_mouse_several_params_become_lines_of_a_plot_of_their_own(qtbot: QtBot) -> None:
    view, _ = board_of(qtbot, Plot((NORM,)), snapshot=moment())
    qtbot.mouseClick(view.bar.add, Qt.MouseButton.LeftButton)
    chooser = view.chooser
    chooser.metric_edit.setText("v_max")
    assert not chooser.add_button.isEnabled()
    for row, modifier in ((1, Qt.KeyboardModifier.NoModifier), (3, CTRL)):
        place = chooser.params.visualRect(chooser.params.rows.index(row, 0)).center()
        qtbot.mouseClick(chooser.params.viewport(), Qt.MouseButton.LeftButton, modifier, place)
    qtbot.mouseClick(chooser.new_button, Qt.MouseButton.LeftButton)
    names = [s.name for s in small_layout()]
    assert view.board.plots[1].lines == (Line("v_max", names[0]), Line("v_max", names[2]))


def test_escape_leaves_the_chooser_and_a_plot_takes_no_more_lines_than_are_told_apart(qtbot: QtBot) -> None:
    plan = plan_step(wide_layout(400), Limits(), Variant())
    view, _ = board_of(qtbot, snapshot=moment(plan=plan))
    view.select_param("blocks.350.weight")
    view.choose(new=True)
    assert view.chooser.made() == Plot((Line("loss"),))
    view.chooser.metric_edit.setText("lost")
    assert view.chooser.made() == Plot((Line("lost", "blocks.350.weight"),))
    view.chooser.params.selectAll()
    assert len(view.chooser.made().lines) == MOST_IN_ONE  # type: ignore[union-attr]
    assert f"{MOST_IN_ONE} lines at most" in view.chooser.words.text()
    qtbot.keyClick(view.chooser.metric_edit, Key.Key_Escape)
    assert not view.chooser.isVisible()
    assert not view.board.plots


def test_every_choice_says_what_it_is_and_kernel_times_are_among_them() -> None:
    found = {c.text: c for c in choices(["loss", "ms/adamw", "grad_norm"])}
    assert found["ms/adamw"].of_run
    assert not found["grad_norm"].of_run
    assert all(c.meaning for c in found.values())
    assert {"w waterfall", "v percentiles", "m_p50", "update_ratio", "nan"} <= found.keys()


# --- many


def test_of_200_plots_only_those_in_sight_have_widgets_and_are_sent(qtbot: QtBot) -> None:
    plots = [Plot((Line("w_norm", f"h.{i}.x"),)) for i in range(200)]
    view, sent = board_of(qtbot, *plots, snapshot=moment())
    assert len(view.pane.cells) < 20
    asked = sent[-1]
    assert len(asked.lines) == 200
    assert asked.seen == {plots[i].lines[0] for i in view.pane.seen()}
    for _ in range(20):
        qtbot.keyClick(view, Key.Key_Down)
    drawn(qtbot, view)
    assert plots[20].lines[0] in sent[-1].seen
    assert plots[0].lines[0] not in sent[-1].seen
    assert len(view.pane.cells) < 20
    view.hide()
    assert sent[-1].seen == frozenset()
    assert len(sent[-1].lines) == 200


def test_nothing_is_asked_for_before_anybody_looked(qtbot: QtBot) -> None:
    view, sent = BoardView(), []
    qtbot.addWidget(view)
    view.command.connect(sent.append)
    view.load(Board().to_text())
    view.show_snapshot(moment())
    assert sent == []
    assert view.pane.cells == []


# --- reading out


def test_two_cursors_read_out_values_difference_and_ratio(qtbot: QtBot) -> None:
    view, _ = board_of(qtbot, Plot((NORM,)), snapshot=moment({NORM: np.arange(1.0, 201.0)}))
    pane = view.pane
    assert legend(view) == {str(NORM): "128"}
    pane._on_hovered(50.0)
    assert legend(view) == {str(NORM): "50"}
    qtbot.keyClick(view, Key.Key_A)
    pane._on_hovered(150.2)
    qtbot.keyClick(view, Key.Key_B)
    pane._on_hovered(None)
    assert legend(view) == {str(NORM): "50 → 150 (Δ +100, ×3)"}
    assert "A at step 50 · B at step 150 · 100 steps apart" in view.bar.words.text()
    qtbot.keyClick(view, Key.Key_Escape)
    assert legend(view) == {str(NORM): "128"}


def test_time_axes_are_linked_here_and_with_other_views(qtbot: QtBot) -> None:
    snapshot = moment({NORM: np.arange(1.0, 201.0)}, {Fall("g"): waterfall(200)})
    view, _ = board_of(qtbot, Plot((NORM,)), Plot(fall=Fall("g")), snapshot=snapshot)
    first, second = (cell.front.box for cell in view.pane.cells[:2])
    moved: list[tuple[float, float]] = []
    view.moved.connect(lambda a, b: moved.append((a, b)))
    first.setXRange(20, 60, padding=0)
    first.sigRangeChangedManually.emit(first.mouseEnabled())
    drawn(qtbot, view)
    assert second.viewRange()[0] == pytest.approx([20, 60])
    assert moved == [pytest.approx((20, 60))]
    view.show_range(30, 40)
    drawn(qtbot, view)
    assert first.viewRange()[0] == second.viewRange()[0] == pytest.approx([30, 40])
    qtbot.keyClick(view, Key.Key_Home)
    drawn(qtbot, view)
    start, stop = first.viewRange()[0]
    assert start < 1
    assert stop > 200


def test_a_ctrl_click_goes_to_the_step(qtbot: QtBot) -> None:
    view, sent = board_of(qtbot, Plot((Line("loss"),)), snapshot=moment())
    view.pane.cells[0].chart.picked.emit(7.2)
    assert sent[-1] == Seek(7)


# --- why there is nothing


def test_what_is_not_counted_can_be_counted_by_one_click(qtbot: QtBot) -> None:
    view, sent = board_of(qtbot, Plot((NORM,)), snapshot=moment(stats="light"))
    assert "not counted" in view.pane.cells[0].chart.message
    qtbot.mouseClick(view.bar.count, Qt.MouseButton.LeftButton)
    assert sent[-1] == SetStats("full")
    view.show_snapshot(moment())
    assert not view.bar.count.isVisible()
    assert "from the next step on" in view.pane.cells[0].chart.message


@pytest.mark.parametrize("stats", ["light", "full"])
@pytest.mark.parametrize("kept", [False, True])
def test_a_plot_of_a_metric_that_there_is_not_says_so_and_how_to_be_rid_of_it(
    qtbot: QtBot, stats: str, kept: bool
) -> None:
    """A layout or a session keeps it: another version had it, or somebody wrote it."""
    gone, of_param = Line("grad_nrom"), Line("sharpness", "norm.weight")
    nothing = np.full(3, math.nan)
    found = {gone: nothing, of_param: nothing} if kept else {}
    known = {NORM: np.array([1.0, 2.0, 3.0])}
    plots = Plot((gone,)), Plot((of_param,)), Plot((gone, of_param)), Plot((NORM, gone))
    view, _ = board_of(qtbot, *plots, snapshot=moment(found | known, stats=stats))
    said = [cell.chart.message for cell in view.pane.cells[:4]]
    how = "Del takes the plot away, L chooses what is in it."
    assert said == [
        f"There is no metric grad_nrom: {how}",
        f"There is no metric sharpness of params: {how}",
        f"There is no metric grad_nrom or sharpness: {how}",
        "",
    ]
    assert legend(view, 3)["grad_nrom"] == "no such metric"
    assert view.bar.count.isVisible() is (stats == "light"), "for what there is of params"
    only, _ = board_of(qtbot, plots[0], snapshot=moment(stats=stats))
    assert not only.bar.count.isVisible()
    qtbot.keyClick(view, Qt.Key.Key_Delete)
    assert list(view.board.plots) == list(plots[1:])


def test_the_gradients_as_a_whole_need_no_counting(qtbot: QtBot) -> None:
    view, _ = board_of(qtbot, Plot((Line("grad_max"),)), snapshot=moment(stats="light"))
    assert not view.bar.count.isVisible()


# --- files


def test_csv_reads_back_as_it_was_with_gaps_and_buckets(tmp_path: Path, qtbot: QtBot) -> None:
    view, _ = board_of(qtbot, Plot((NORM,)), snapshot=moment({NORM: np.array([0.1, math.nan, math.inf])}))
    view.save(str(tmp_path / "p.csv"))
    rows = list(csv.DictReader((tmp_path / "p.csv").read_text().splitlines()))
    assert [row["step"] for row in rows] == ["1", "2", "3"]
    assert float(rows[0]["last"]) == 0.1
    assert (rows[1]["nan"], float(rows[2]["high"])) == ("1", math.inf)
    assert lines_csv({}).count("\n") == 1


def test_pictures_are_drawn_at_twice_the_size_and_as_lines(tmp_path: Path, qtbot: QtBot) -> None:
    view, _ = board_of(qtbot, Plot((NORM,)), snapshot=moment({NORM: np.arange(1.0, 50.0)}))
    png, svg = tmp_path / "p.png", tmp_path / "p.svg"
    view.save(str(png))
    view.save(str(svg))
    image = QImage(str(png))
    assert image.width() == 2 * view.pane.cells[0].width()
    assert svg.read_text().count("<polyline") + svg.read_text().count("<path") > 10
    view.save(str(tmp_path / "no" / "p.csv"))
    assert "choose another place" in view.bar.words.text()


def test_a_picture_has_no_frame_of_the_current_plot(tmp_path: Path, qtbot: QtBot) -> None:
    """It says nothing to whom the picture is shown."""
    view, _ = board_of(qtbot, Plot((NORM,)), snapshot=moment({NORM: np.arange(1.0, 50.0)}))
    cell, png = view.pane.cells[0], tmp_path / "p.png"
    accent = theme.colours().accent
    assert cell.grab().toImage().pixelColor(0, 40) == accent
    view.save(str(png))
    assert QImage(str(png)).pixelColor(0, 80) == theme.colours().faint
    assert cell.grab().toImage().pixelColor(0, 40) == accent, "it is the current one still"


def test_a_picture_names_all_of_its_lines(tmp_path: Path, qtbot: QtBot) -> None:
    """On screen the tooltip tells those for which there is no room: a picture has none."""
    lines = [Line(metric, "norm.weight") for metric in list(MEASURES)[:MOST_IN_ONE]]
    values = {line: np.arange(1.0, 50.0) for line in lines}
    view, _ = board_of(qtbot, Plot(tuple(lines)), snapshot=moment(values))
    view.resize(320, 400)
    cell, png = view.pane.cells[0], tmp_path / "p.png"
    qtbot.waitUntil(lambda: cell.legend.hidden > 0, timeout=3000)
    before = cell.geometry(), cell.legend.height()
    with cell.as_picture():
        assert cell.legend.hidden == 0
        assert cell.height() > before[0].height()
        assert cell.front.height() >= before[0].height() - before[1] - 4, "the plot keeps its room"
    view.save(str(png))
    assert QImage(str(png)).height() > 2 * before[0].height()
    assert (cell.geometry(), cell.legend.height()) == before


def test_values_read_out_have_their_units(qtbot: QtBot) -> None:
    loss = Line("loss")
    view, _ = board_of(qtbot, Plot((loss, NORM)), snapshot=moment({NORM: np.arange(1.0, 50.0)}))
    cell = view.pane.cells[0]
    values = {entry.name: entry.value for entry in cell.legend.entries}
    assert values["loss"].endswith(" nats")
    assert "of g" not in values[str(NORM)]
    cell.read_out(1.0, None, (1.0, 3.0))
    told = next(entry.value for entry in cell.legend.entries if entry.name == "loss")
    assert " nats" in told.partition("(Δ")[0] or "–" in told


# --- kept


def test_the_board_is_kept_as_text_and_what_cannot_be_read_is_left_out() -> None:
    board = Board((Plot((NORM, Line("loss")), log=True), Plot(fall=Fall("v", "norm.weight"))))
    assert Board.from_text(board.to_text()).plots == board.plots
    assert Board.from_text("nonsense").plots == Board().plots
    damaged = json.dumps([{"lines": ["loss"], "log": False}, {"waterfall": "z"}, 7, {"lines": 5, "log": 1}])
    assert Board.from_text(damaged).plots == [Plot((Line("loss"),))]


def test_another_run_keeps_the_plots_and_follows_it(qtbot: QtBot) -> None:
    view, _ = board_of(qtbot, Plot((NORM,)), snapshot=moment({NORM: np.arange(50.0)}))
    view.show_range(10, 20)
    view.show_snapshot(replace(moment({NORM: np.arange(300.0)}), run=5))
    drawn(qtbot, view)
    assert view.pane.cells[0].front.box.viewRange()[0][1] > 299
