"""Garbage is found on the UI thread, whichever thread makes the objects that it is due by."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QPushButton, QWidget
from pytestqt.qtbot import QtBot

from inspector.ui.app import application
from inspector.ui.garbage import GarbageCollector


class Cycle:
    """Garbage that only a search finds."""

    def __init__(self) -> None:
        self.me = self


class Knowing(QWidget):
    """A widget with events on their way, in a cycle as one whose slots know it."""

    def __init__(self, destroyed_on: set[int]) -> None:
        super().__init__()
        self.me, self.told = self, Told(destroyed_on)
        QPushButton(self)
        timer = QTimer(self)
        timer.timeout.connect(self.update)
        timer.start(1)


class Told:
    def __init__(self, destroyed_on: set[int]) -> None:
        self._threads = destroyed_on

    def __del__(self) -> None:
        self._threads.add(threading.get_ident())


@pytest.fixture
def searches() -> Iterator[set[int]]:
    """The threads on which garbage was looked for."""
    found: set[int] = set()

    def note(phase: str, info: dict[str, int]) -> None:
        found.add(threading.get_ident())

    gc.callbacks.append(note)
    yield found
    gc.callbacks.remove(note)


def test_a_thread_that_makes_many_objects_destroys_no_widgets(qtbot: QtBot, searches: set[int]) -> None:
    application()
    ended, destroyed_on = threading.Event(), set[int]()

    def make() -> None:
        while not ended.is_set():
            [Cycle() for _ in range(5000)]
            ended.wait(0.001)

    maker = threading.Thread(target=make)
    maker.start()
    try:
        for _ in range(40):
            widget = Knowing(destroyed_on)
            widget.show()
            qtbot.wait(2)
            widget.close()
        del widget
        qtbot.waitUntil(lambda: bool(destroyed_on))
    finally:
        ended.set()
        maker.join()
    assert searches == {threading.get_ident()}
    assert destroyed_on == {threading.get_ident()}


def test_garbage_of_any_age_is_found_in_time(
    qtbot: QtBot, searches: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every ten seconds, in a window.
    monkeypatch.setattr("inspector.ui.garbage.FULL_EVERY_S", 0.5)
    application()
    gc.collect()
    searches.clear()
    before = len(gc.get_objects())
    old: list[list[Cycle]] = []
    for _ in range(60):
        # Some of it has grown old by the time that it is garbage.
        old.append([Cycle() for _ in range(2000)])
        del old[:-4]
        qtbot.wait(60)
    assert len(gc.get_objects()) < before + 60_000
    assert searches == {threading.get_ident()}


def test_the_application_has_one_collector_that_can_be_paused(qtbot: QtBot, searches: set[int]) -> None:
    app = application()
    (collector,) = app.findChildren(GarbageCollector)
    assert application() is app
    assert app.findChildren(GarbageCollector) == [collector]
    collector.pause()
    kept = [Cycle() for _ in range(5000)]
    qtbot.wait(150)
    assert not searches
    collector.resume()
    qtbot.waitUntil(lambda: bool(searches))
    assert len(kept) == 5000
