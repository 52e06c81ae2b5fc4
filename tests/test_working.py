"""What takes longer than a moment is told in the status bar, from when it does until the worker answers."""

from __future__ import annotations

from typing import Any

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot
from ui_helpers import make_snapshot

from inspector.mapping import MapRequest
from inspector.runtime.beside import BesidePicture, DiffPicture, WhatIfProgress
from inspector.runtime.commands import (
    CancelCompare,
    CancelDiff,
    CancelPolicies,
    CancelSeek,
    CancelSweep,
    CancelWhatIf,
    CancelWork,
    MeasureCopy,
    OpenSource,
    Pause,
    SetHyper,
    StepDispatch,
    StepIteration,
    ViewMap,
)
from inspector.runtime.snapshots import CloseUp, Comparing, Glance, Heading, Searching, Snapshot
from inspector.runtime.sweeping import SweepPicture
from inspector.runtime.value_finding import Working as At
from inspector.runtime.weighing import Weighing
from inspector.stepping import Cursor
from inspector.ui.going_on import going_on
from inspector.ui.working import AFTER_MS, KEY_AFTER_MS, Working

pytestmark = pytest.mark.qt


@pytest.fixture
def clock() -> list[float]:
    return [100.0]


@pytest.fixture
def working(qtbot: QtBot, clock: list[float]) -> Working:
    made = Working(clock=lambda: clock[0])
    qtbot.addWidget(made)
    return made


def later(working: Working, clock: list[float], ms: float) -> None:
    clock[0] += ms / 1000
    working._tick.timeout.emit()


def test_what_is_done_in_a_moment_is_not_told(working: Working, clock: list[float]) -> None:
    working.sent(MeasureCopy())
    later(working, clock, AFTER_MS - 1)
    assert working.isHidden()
    working.show_snapshot(make_snapshot())
    later(working, clock, 5000)
    assert working.isHidden()
    assert not working._tick.isActive()


def test_a_key_is_answered_within_a_tenth_of_a_second_be_it_that_it_goes_on(
    working: Working, clock: list[float]
) -> None:
    working.sent(StepDispatch())
    assert working._tick.interval() == KEY_AFTER_MS < 100
    later(working, clock, KEY_AFTER_MS + 1)
    assert not working.isHidden()
    assert working.label.text() == "Running a dispatch"
    working.show_snapshot(make_snapshot(moves=1))
    assert working.isHidden()


def test_a_timer_that_comes_early_comes_again_at_once(working: Working, clock: list[float]) -> None:
    working.sent(StepDispatch())
    later(working, clock, KEY_AFTER_MS - 3)
    assert working.isHidden()
    assert working._tick.isActive()
    assert working._tick.interval() <= 4
    later(working, clock, 4)
    assert not working.isHidden()


def test_what_answers_the_key_before_is_no_answer(working: Working, clock: list[float]) -> None:
    working.sent(StepDispatch())
    working.sent(StepIteration())
    working.show_snapshot(make_snapshot(moves=1))
    later(working, clock, KEY_AFTER_MS + 1)
    assert not working.isHidden()
    working.show_snapshot(make_snapshot(moves=2))
    assert working.isHidden()


def test_a_key_that_is_held_down_is_told_of_from_the_first_that_has_no_answer(
    working: Working, clock: list[float]
) -> None:
    for _ in range(4):
        working.sent(StepDispatch())
        later(working, clock, 30)
    assert working.label.text() == "Running a dispatch"
    assert not working.isHidden()


def test_what_takes_longer_is_told_with_its_seconds_until_the_answer(
    working: Working, clock: list[float]
) -> None:
    working.sent(MeasureCopy())
    later(working, clock, AFTER_MS + 1)
    assert not working.isHidden()
    assert working.label.text() == "Measuring a copy"
    later(working, clock, 3000)
    assert working.label.text() == "Measuring a copy, 3 s"
    working.show_snapshot(make_snapshot())
    assert working.isHidden()


def test_a_source_that_is_being_opened_is_told_although_the_worker_says_so_at_once(
    working: Working, clock: list[float]
) -> None:
    working.sent(OpenSource("gpt-116m"))
    for _ in range(3):
        working.show_snapshot(Snapshot(1, "starting", "gpt-116m"))
        later(working, clock, 500)
    assert working.label.text() == "Opening the source, 2 s"
    working.show_snapshot(make_snapshot())
    assert working.isHidden()


def test_how_far_it_is_is_told_and_it_can_be_ended(
    working: Working, clock: list[float], qtbot: QtBot
) -> None:
    working.sent(OpenSource("checkpoint"))
    clock[0] += 0.2
    working.show_snapshot(make_snapshot(working=At("Opening checkpoint", 30, 120)))
    assert working.isHidden(), "it may be done in a moment"
    later(working, clock, AFTER_MS - 190)
    assert not working.isHidden()
    assert working.label.text() == "Opening checkpoint, 25 %"
    assert (working.bar.value(), working.bar.maximum()) == (30, 120)
    assert not working.end.isHidden()
    with qtbot.waitSignal(working.ended) as ended:
        qtbot.mouseClick(working.end, Qt.MouseButton.LeftButton)
    assert ended.args == [CancelWork()]
    working.show_snapshot(make_snapshot(working=At("Opening a new device", 1, 2, ends=False)))
    assert working.end.isHidden(), "it has to come to its end"
    working.show_snapshot(make_snapshot())
    assert working.isHidden()


@pytest.mark.parametrize(
    ("changes", "words", "share", "end"),
    [
        ({"comparing": Comparing(5, 20)}, "Comparing variants", "25 %", CancelCompare()),
        ({"comparing": Comparing()}, "Comparing variants", "", CancelCompare()),
        ({"weighing": Weighing(7, 1, 4)}, "Working out policies", "25 %", CancelPolicies()),
        ({"searching": Searching("a value", 90, 100, 20)}, "Looking for a step", "12 %", CancelSeek()),
        ({"glance": Glance(7, done=3, of=4)}, "Rebuilding step 7", "75 %", CancelSeek()),
        (
            {"beside": BesidePicture(what_if=WhatIfProgress("a.session", 1, 3))},
            "Running the what-if", "33 %", CancelWhatIf(),
        ),
        ({"beside": BesidePicture(diff=DiffPicture("a", "b", 0.5))}, "Comparing recordings", "50 %", CancelDiff()),
        (
            {"beside": BesidePicture(sweep=SweepPicture("a", "charlm", 5, (), 1, 4, True))},
            "Sweeping", "25 %", CancelSweep(),
        ),
        (
            {"mode": "running", "cursor": Cursor(300, 1, 4), "heading": Heading(99, 1099)},
            "Going to step 1,099", "20 %", Pause(),
        ),
        ({"closeup": CloseUp(working=At("Looking for 1 in w", 1, 2))}, "Looking for 1 in w", "50 %", CancelWork()),
    ],
)  # fmt: skip
def test_whatever_goes_on_is_told_in_one_place_with_what_ends_it(
    changes: dict[str, Any], words: str, share: str, end: object
) -> None:
    now = going_on(make_snapshot(**changes))
    assert now is not None
    assert (now.words, now.share, now.end) == (words, share, end)


def test_where_nothing_goes_on_nothing_is_told() -> None:
    assert going_on(make_snapshot()) is None
    ended = SweepPicture("a", "charlm", 5, (), 4, 4, False)
    assert going_on(make_snapshot(beside=BesidePicture(sweep=ended))) is None
    assert going_on(make_snapshot(glance=Glance(7))) is None
    assert going_on(make_snapshot(glance=Glance(7, missing="It is gone.", of=3))) is None


def test_a_map_that_takes_long_is_told_until_it_is_there(working: Working, clock: list[float]) -> None:
    working.sent(ViewMap(MapRequest(0.0, 10.0, 100, 40, "value")))
    later(working, clock, AFTER_MS + 1)
    assert working.label.text() == "Drawing the map"
    working.show_snapshot(make_snapshot())
    assert working.isHidden()
    # The run has moved: where it stands comes first, and what is seen of it after that.
    working.sent(StepDispatch())
    working.show_snapshot(make_snapshot(moves=1, looking=True))
    later(working, clock, AFTER_MS + 1)
    assert working.label.text() == "Drawing the map"
    working.show_snapshot(make_snapshot(moves=1))
    assert working.isHidden()


def test_moving_the_map_says_nothing_else_of_what_goes_on(working: Working, clock: list[float]) -> None:
    working.sent(MeasureCopy())
    later(working, clock, AFTER_MS + 1)
    working.sent(ViewMap(MapRequest(0.0, 10.0, 100, 40, "value")))
    later(working, clock, 1)
    assert working.label.text() == "Measuring a copy"


def test_what_a_run_shows_before_it_has_paused_is_no_answer(working: Working, clock: list[float]) -> None:
    working.sent(Pause())
    working.show_snapshot(make_snapshot(mode="running"))
    later(working, clock, AFTER_MS + 1)
    assert working.label.text() == "Finishing the step"
    working.show_snapshot(make_snapshot(mode="paused"))
    assert working.isHidden()
    working.show_snapshot(make_snapshot(mode="running"))
    later(working, clock, 5000)
    assert working.isHidden()


@pytest.mark.parametrize("command", [SetHyper("lr", 1.0), ViewMap(None)])
def test_what_takes_no_time_starts_nothing(working: Working, clock: list[float], command: object) -> None:
    working.sent(command)  # type: ignore[arg-type]
    later(working, clock, 5000)
    assert working.isHidden()
