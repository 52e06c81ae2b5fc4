"""What takes longer than a moment is told in the status bar, from when it does until the worker answers."""

from __future__ import annotations

import pytest
from pytestqt.qtbot import QtBot
from ui_helpers import make_snapshot

from inspector.runtime.commands import MeasureCopy, OpenSource, SetHyper, ViewMap
from inspector.runtime.snapshots import Snapshot
from inspector.ui.working import AFTER_MS, Working

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


def test_what_takes_longer_is_told_with_its_seconds_until_the_answer(
    working: Working, clock: list[float]
) -> None:
    working.sent(MeasureCopy())
    later(working, clock, AFTER_MS + 1)
    assert not working.isHidden()
    assert working.label.text() == "measuring a copy…"
    later(working, clock, 3000)
    assert working.label.text() == "measuring a copy, 3 s"
    working.show_snapshot(make_snapshot())
    assert working.isHidden()


def test_a_source_that_is_being_opened_is_told_although_the_worker_says_so_at_once(
    working: Working, clock: list[float]
) -> None:
    working.sent(OpenSource("gpt-116m"))
    for _ in range(3):
        working.show_snapshot(Snapshot(1, "starting", "gpt-116m"))
        later(working, clock, 500)
    assert working.label.text() == "opening the source, 2 s"
    working.show_snapshot(make_snapshot())
    assert working.isHidden()


@pytest.mark.parametrize("command", [SetHyper("lr", 1.0), ViewMap(None)])
def test_what_takes_no_time_starts_nothing(working: Working, clock: list[float], command: object) -> None:
    working.sent(command)  # type: ignore[arg-type]
    later(working, clock, 5000)
    assert working.isHidden()
