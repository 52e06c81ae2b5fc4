"""The view of a race by itself: a line and a row a lane, and what its keys ask for."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QLabel
from pytestqt.qtbot import QtBot
from ui_helpers import lane_history, make_race, make_snapshot

from inspector.race import MAX_LANES
from inspector.runtime.commands import Command, FrontLane, RaceTogether, StartRace, StopRace
from inspector.ui import theme
from inspector.ui.app import application
from inspector.ui.race_model import COLUMNS, LOSS, STATE, UPDATE, RaceModel, lane_style
from inspector.ui.race_view import PRESETS, RaceView

pytestmark = pytest.mark.qt

RACE = make_race()
Key, Control = Qt.Key, Qt.KeyboardModifier.ControlModifier


@pytest.fixture
def view(qtbot: QtBot) -> RaceView:
    theme.apply(application(), "light")
    made = RaceView()
    qtbot.addWidget(made)
    made.resize(1000, 420)
    made.show()
    return made


@pytest.fixture
def sent(view: RaceView) -> list[Command]:
    got: list[Command] = []
    view.command.connect(got.append)
    return got


def test_each_lane_is_a_line_in_each_plot_and_a_row(view: RaceView) -> None:
    view.show_snapshot(make_snapshot(race=RACE))
    for chart in view.charts.values():
        assert chart.trace_names() == ["lane 0", "lane 1", "lane 2"]
    assert list(view.charts["loss"].drawn("lane 1").last) == [4.0, 9.0, 30.0]
    assert [view.model.text(row, LOSS) for row in range(3)] == ["2.5", "30", "3.5"]
    assert view.model.text(0, STATE) == "runs"
    assert view.model.text(1, STATE).startswith("diverged at step 3: its loss")
    assert view.model.text(2, STATE) == "ended: The device has no memory."
    pens = {view.charts["loss"].pen(f"lane {i}").color().name() for i in range(3)}
    assert len(pens) == 3


def test_where_there_is_no_height_for_both_the_table_is_beside_the_plots(view: RaceView) -> None:
    view.show_snapshot(make_snapshot(race=RACE))
    assert view.table.mapTo(view, view.table.rect().topLeft()).y() > view.charts["loss"].height()
    view.resize(930, 180)
    QApplication.processEvents()
    assert all(chart.height() > 120 and chart.width() >= 130 for chart in view.charts.values())
    assert view.table.height() > view.table.horizontalHeader().height() + 4 * view.table.rowHeight(0)


def test_a_narrow_table_still_says_which_lane_diverged(view: RaceView) -> None:
    """Beside the plots there is no room for all columns: what they show is left to them."""
    view.resize(1400, 220)
    view.show_snapshot(make_snapshot(race=RACE))
    QApplication.processEvents()
    header, room = view.table.horizontalHeader(), view.table.viewport().width()
    assert header.sectionViewportPosition(STATE) + header.sectionSize(STATE) <= room
    view.resize(500, 600)
    QApplication.processEvents()
    room = view.table.viewport().width()
    assert header.sectionViewportPosition(STATE) + header.sectionSize(STATE) <= room
    view.resize(1000, 420)
    QApplication.processEvents()
    assert header.visualIndex(STATE) == len(COLUMNS) - 1


def test_a_lane_of_a_saved_race_does_not_run(view: RaceView) -> None:
    view.show_snapshot(make_snapshot(race=replace(RACE, live=False)))
    assert view.model.text(0, STATE) == "complete"
    assert view.model.text(1, STATE).startswith("diverged at step 3: its loss")


def test_what_is_said_in_a_plot_is_not_said_over_its_axis(view: RaceView) -> None:
    lanes = tuple(replace(lane, history=lane_history(4.0, norms=False)) for lane in RACE.lanes)
    view.show_snapshot(make_snapshot(race=replace(RACE, lanes=lanes)))
    QApplication.processEvents()
    chart = view.charts["update_norm"]
    label = next(each for each in chart.findChildren(QLabel) if each.text() == chart.message)
    assert label.text() == "No lane knows it."
    axis = chart.bottom.sceneBoundingRect()
    assert label.geometry().bottom() <= axis.top() + 1


def test_a_lane_that_diverged_does_not_press_the_others_into_a_line(view: RaceView) -> None:
    lanes = [
        replace(RACE.lanes[0], history=lane_history(y), diverged=None, ended=None) for y in (4.0, 5.0, 1e6)
    ]
    chart = view.charts["loss"]
    view.show_snapshot(make_snapshot(race=replace(RACE, lanes=tuple(lanes))))
    assert chart.box.viewRange()[1][1] > 1e5
    lanes[2] = replace(lanes[2], diverged=(3, "its loss is 1e6"))
    view.show_snapshot(make_snapshot(race=replace(RACE, lanes=tuple(lanes))))
    assert chart.box.viewRange()[1][1] < 100
    # Where all have, there is nothing else to look at.
    lanes[:2] = [replace(lane, diverged=(3, "its loss is 4")) for lane in lanes[:2]]
    view.show_snapshot(make_snapshot(race=replace(RACE, lanes=tuple(lanes))))
    assert chart.box.viewRange()[1][1] > 1e5


def test_what_nobody_knows_is_no_value_and_no_mark(view: RaceView) -> None:
    lanes = (replace(RACE.lanes[0], history=lane_history(4.0, norms=False)), RACE.lanes[1])
    view.show_snapshot(make_snapshot(race=replace(RACE, lanes=lanes, closed_loop=False)))
    assert view.model.text(0, UPDATE) == "n/a"
    assert view.charts["update_norm"].trace_names() == ["lane 1"]


def test_keys_start_it_bring_lanes_to_the_front_and_part_them(
    view: RaceView, sent: list[Command], qtbot: QtBot
) -> None:
    qtbot.keyClick(view.table, Key.Key_Return, Control)
    assert sent.pop() == StartRace(tuple(PRESETS[0].split()))
    view.show_snapshot(make_snapshot(race=RACE))
    view.lanes.setEditText("  adamw   lion:lr=1e-4 ")
    view.start_button.click()
    assert sent.pop() == StartRace(("adamw", "lion:lr=1e-4"))
    view.table.selectRow(2)
    qtbot.keyClick(view.table, Key.Key_Return)
    assert sent.pop() == FrontLane(2)
    qtbot.keyClick(view.table, Key.Key_A)
    assert sent.pop() == RaceTogether(False)
    view.stop_button.click()
    assert sent.pop() == StopRace()
    qtbot.keyClick(view.table, Key.Key_C, Control)
    assert QApplication.clipboard().text().splitlines()[2].split("\t")[0] == "sgd:lr=9"


def test_without_a_race_it_says_how_to_begin_one(view: RaceView) -> None:
    view.show_snapshot(make_snapshot())
    assert "Ctrl+Return" in view.nothing.text()
    assert not view.stop_button.isEnabled()
    view.show_snapshot(make_snapshot(race=RACE))
    assert view.nothing.text() == ""
    view.show_snapshot(make_snapshot())
    assert view.model.row_total() == 0
    assert "Ctrl+Return" in view.nothing.text()


def test_the_lanes_that_were_written_are_kept(view: RaceView, qtbot: QtBot) -> None:
    view.lanes.setEditText("sgd lion")
    other = RaceView()
    qtbot.addWidget(other)
    other.load(view.kept_text())
    assert other.kept_text() == "sgd lion"


def test_every_column_says_what_it_is() -> None:
    model = RaceModel()
    for column in range(model.columnCount()):
        said = model.headerData(column, Qt.Orientation.Horizontal, Qt.ItemDataRole.ToolTipRole)
        assert len(said) > 10


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_eight_lanes_are_told_apart(view: RaceView, scheme: str) -> None:
    theme.apply(application(), scheme)
    styles = [lane_style(number) for number in range(MAX_LANES)]
    for (one, one_dash), (other, other_dash) in combinations(styles, 2):
        apart = math.dist(one.getRgb()[:3], other.getRgb()[:3])
        assert one_dash != other_dash or apart > 60, (one.name(), other.name())


def test_plots_have_room_for_larger_text(qtbot: QtBot) -> None:
    theme.apply(application(), "light", 1.5)
    try:
        view = RaceView()
        qtbot.addWidget(view)
        view.resize(880, 280)
        view.show()
        view.show_snapshot(make_snapshot(race=RACE))
        QApplication.processEvents()
        assert all(chart.width() >= theme.scaled(130) for chart in view.charts.values())
    finally:
        theme.apply(application(), "light", 1.0)
