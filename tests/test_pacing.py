"""The UI thread stays free while a run goes on: views take turns, and the worker waits for a busy window."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
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


def test_the_worker_waits_while_the_window_is_busy(qtbot: QtBot) -> None:
    sent: list[Command] = []
    bus = Bus(sent.append)
    qtbot.wait(5)
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
