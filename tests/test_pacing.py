"""The UI thread stays free while a run goes on: views take turns, and the worker waits for a busy window."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from PySide6.QtCore import QPoint
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from inspector.runtime.commands import Command
from inspector.runtime.snapshots import Snapshot
from inspector.ui.bus import Bus
from inspector.ui.pacer import Pacer
from inspector.ui.view import View
from tests.ui_helpers import make_snapshot

pytestmark = pytest.mark.qt


class Recorder(View):
    def __init__(self, seen: list[tuple[str, int]], name: str) -> None:
        super().__init__()
        self.seen, self.name = seen, name

    def show_snapshot(self, snapshot: Snapshot) -> None:
        self.seen.append((self.name, snapshot.serial))


class Slow(Recorder):
    PERIOD_S = 1.0


def running(serial: int) -> Snapshot:
    return replace(make_snapshot(), mode="running", serial=serial)


def test_a_run_at_rest_is_shown_to_every_view_at_once(qtbot: QtBot) -> None:
    seen: list[tuple[str, int]] = []
    pacer = Pacer([Recorder(seen, "a"), Slow(seen, "b")])
    pacer.show_snapshot(replace(make_snapshot(), mode="paused", serial=1))
    assert seen == [("a", 1), ("b", 1)]


def test_at_rest_each_view_that_is_seen_has_a_turn_of_its_own(qtbot: QtBot) -> None:
    seen: list[tuple[str, int]] = []
    views = [Recorder(seen, name) for name in ("a", "b")]
    hidden = Recorder(seen, "hidden")
    for view in views:
        qtbot.addWidget(view)
        view.show()
    pacer = Pacer([*views, hidden])
    pacer.show_snapshot(replace(make_snapshot(), mode="paused", serial=1))
    assert seen == [("hidden", 1)]
    assert not pacer.at_rest
    pacer.show_snapshot(replace(make_snapshot(), mode="paused", serial=2))
    qtbot.waitUntil(lambda: pacer.at_rest)
    assert seen == [("hidden", 1), ("hidden", 2), ("a", 2), ("b", 2)]


def test_what_is_due_can_be_shown_at_once(qtbot: QtBot) -> None:
    seen: list[tuple[str, int]] = []
    view = Recorder(seen, "a")
    qtbot.addWidget(view)
    view.show()
    pacer = Pacer([view])
    pacer.show_snapshot(replace(make_snapshot(), mode="paused", serial=1))
    pacer.finish()
    assert seen == [("a", 1)]
    assert pacer.at_rest


def test_while_running_each_view_has_a_turn_of_its_own_and_sees_the_newest(qtbot: QtBot) -> None:
    seen: list[tuple[str, int]] = []
    pacer = Pacer([Recorder(seen, "a"), Recorder(seen, "b")])
    pacer.show_snapshot(running(1))
    assert seen == []
    pacer.show_snapshot(running(2))
    qtbot.waitUntil(lambda: len(seen) == 2)
    assert seen == [("a", 2), ("b", 2)]


def test_a_slow_view_is_shown_no_more_often_than_it_likes_but_always_the_end(qtbot: QtBot) -> None:
    seen: list[tuple[str, int]] = []
    now = [0.0]
    pacer = Pacer([Slow(seen, "b")], clock=lambda: now[0])
    for serial, at in enumerate((0.0, 0.4, 0.8, 1.2), start=1):
        now[0] = at
        pacer.show_snapshot(running(serial))
        qtbot.wait(5)
    assert seen == [("b", 1), ("b", 4)]
    now[0] = 1.3
    pacer.show_snapshot(replace(make_snapshot(), mode="paused", serial=5))
    assert seen[-1] == ("b", 5)


def test_the_window_is_not_idle_in_the_middle_of_what_it_handles_and_is_afterwards(qtbot: QtBot) -> None:
    bus = Bus(lambda command: None)
    idle_inside: list[bool] = []
    bus.snapshot_arrived.connect(lambda snapshot: idle_inside.append(bus._idle.is_set()))
    # A timer's slot runs inside a turn of the event loop, as a paint does.
    bus.post_from_worker(running(1))
    qtbot.waitUntil(lambda: bool(idle_inside))
    assert idle_inside == [False]
    qtbot.waitUntil(bus._idle.is_set)
    bus.working()
    assert not bus._idle.is_set()
    qtbot.waitUntil(bus._idle.is_set)


def test_a_key_or_the_mouse_makes_the_window_work(qtbot: QtBot) -> None:
    bus = Bus(lambda command: None)
    view = Recorder([], "a")
    qtbot.addWidget(view)
    view.show()
    bus.watch_input(view.windowHandle())
    qtbot.waitUntil(bus._idle.is_set)
    QTest.mouseMove(view.windowHandle(), QPoint(3, 3))
    assert not bus._idle.is_set()
    qtbot.waitUntil(bus._idle.is_set)


def test_the_worker_waits_while_the_window_is_busy(qtbot: QtBot) -> None:
    sent: list[Command] = []
    bus = Bus(sent.append)
    bus.working()
    waited: list[bool] = []
    go, done = threading.Event(), threading.Event()

    def worker() -> None:
        go.wait(5)
        # The window is in the middle of something: this ends by its timeout or when the window rests.
        bus.wait_until_idle(5.0)
        waited.append(busy[0])
        done.set()

    busy = [True]
    thread = threading.Thread(target=worker)
    thread.start()
    go.set()
    done.wait(0.1)
    assert not waited, "the worker went on beside a busy window"
    busy[0] = False
    qtbot.waitUntil(done.is_set)
    thread.join()
    assert waited == [False]
