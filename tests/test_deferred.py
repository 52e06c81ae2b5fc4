"""A view that is made when it is first seen has been told all that one made at once has been told."""

from __future__ import annotations

import subprocess
import sys

import pytest
from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot
from ui_helpers import FakeWorker, make_snapshot

from inspector.runtime.commands import Pause, SetBreakpoint
from inspector.ui.app import AT_ONCE, KINDS, application, deferred_views, make_view, make_views
from inspector.ui.breakpoints_view import BreakpointsView
from inspector.ui.bus import Bus
from inspector.ui.deferred import DeferredView, Gate, Readying, real, when_made
from inspector.ui.docks import PANELS
from inspector.ui.main_window import MainWindow
from inspector.ui.view import View

pytestmark = pytest.mark.qt


class Told(View):
    """A view that keeps what it was told."""

    LOCAL_KEYS = (("K", "do it"),)
    PERIOD_S = 0.5
    made = 0

    def __init__(self) -> None:
        super().__init__()
        Told.made += 1
        self.log: list[object] = []

    def show_snapshot(self, snapshot: object) -> None:
        self.log.append(snapshot)

    def select_param(self, name: str) -> None:
        self.log.append(name)

    def select_element(self, name: str, index: int) -> None:
        self.log.append((name, index))

    def show_range(self, start: float, stop: float) -> None:
        self.log.append((start, stop))

    def load(self, text: str) -> None:
        self.log.append(f"kept: {text}")

    def kept_text(self) -> str:
        return "of its own"


@pytest.fixture
def view(qtbot: QtBot) -> DeferredView:
    Told.made = 0
    made = DeferredView(lambda: Told)
    qtbot.addWidget(made)
    return made


def log(view: DeferredView) -> list[object]:
    there = view.real
    assert isinstance(there, Told)
    return there.log


def test_nothing_is_made_until_it_is_seen(view: DeferredView) -> None:
    view.show_snapshot(make_snapshot())
    view.select_param("a")
    assert view.kind() is Told
    assert view.period_s == 0
    assert Told.made == 0
    view.show()
    assert Told.made == 1
    assert view.real.isVisible()
    assert view.period_s == 0.5


def test_it_catches_up_with_the_newest_of_all_it_missed(view: DeferredView) -> None:
    older, newest = make_snapshot(serial=1), make_snapshot(serial=2)
    view.load("text")
    for snapshot in (older, newest):
        view.show_snapshot(snapshot)
    view.select_param("a")
    view.select_element("b", 7)
    view.show_range(3, 9)
    view.show()
    assert log(view) == ["kept: text", newest, ("b", 7), (3, 9)]
    view.show_snapshot(older)
    assert log(view)[-1] is older


def test_steps_in_view_are_of_one_run(view: DeferredView) -> None:
    view.show_snapshot(make_snapshot(run=1))
    view.show_range(3, 9)
    newest = make_snapshot(run=2)
    view.show_snapshot(newest)
    view.show()
    assert log(view) == [newest]


def test_what_was_kept_of_it_is_kept_again_where_nobody_looked(view: DeferredView) -> None:
    view.load("text")
    assert view.kept_text() == "text"
    view.show()
    assert view.kept_text() == "of its own"


def test_its_signals_are_those_of_the_view(view: DeferredView, qtbot: QtBot) -> None:
    view.show()
    with qtbot.waitSignal(view.command) as sent:
        view.real.command.emit(Pause())
    assert sent.args == [Pause()]
    with qtbot.waitSignal(view.element_selected) as selected:
        view.real.element_selected.emit("a", 3)
    assert selected.args == ["a", 3]


def test_a_shut_gate_holds_back_what_is_seen_but_not_what_is_asked_for(qtbot: QtBot) -> None:
    Told.made = 0
    gate = Gate()
    seen, asked, hidden = (DeferredView(lambda: Told, gate) for _ in range(3))
    for each in (seen, asked, hidden):
        qtbot.addWidget(each)
    seen.show()
    qtbot.wait(5)
    assert Told.made == 0
    assert isinstance(asked.real, Told)
    gate.open()
    qtbot.waitUntil(lambda: seen.is_made)
    assert not hidden.is_made


def test_what_waits_for_a_view_is_told_once_it_is_made(view: DeferredView, qtbot: QtBot) -> None:
    told: list[View] = []
    when_made(view, told.append)
    assert told == []
    there = real(view, Told)
    assert told == [there]
    when_made(view, told.append)
    assert told == [there, there]
    plain = Told()
    qtbot.addWidget(plain)
    when_made(plain, told.append)
    assert told[-1] is plain
    assert real(view, BreakpointsView) is None


def opened(qtbot: QtBot, views: dict[str, View]) -> tuple[MainWindow, FakeWorker]:
    worker = FakeWorker()
    bus = Bus(worker.send)
    window = MainWindow(bus, views)
    qtbot.addWidget(window)
    window.resize(1280, 800)
    window.show()
    qtbot.waitExposed(window)
    worker.start(bus.post_from_worker)
    qtbot.waitUntil(lambda: window.snapshot is not None and window.at_rest)
    return window, worker


def test_the_window_makes_only_what_is_seen_and_the_rest_where_it_is_gone_to(qtbot: QtBot) -> None:
    views = deferred_views()
    window, _ = opened(qtbot, views)
    at_once, _ = opened(qtbot, make_views())

    def unmade() -> set[str]:
        return {name for name, view in views.items() if isinstance(view, DeferredView) and not view.is_made}

    shared = {name for panel in PANELS if len(panel.views) > 1 for name in panel.views}
    assert unmade() == shared - {"plots", "findings", *AT_ONCE}
    for name in sorted(unmade()):
        with_keys: list[str] = []
        for each in (window, at_once):
            each.activateWindow()
            qtbot.waitUntil(each.isActiveWindow)
            each.ways.go_to_view(name)
            focus = each.focusWidget()
            assert focus is not None
            with_keys.append(focus.objectName())
        view = views[name]
        assert isinstance(view, DeferredView)
        assert view.real.isVisible(), name
        assert with_keys[0] == with_keys[1]
    assert unmade() == set()


def test_what_is_shown_on_demand_is_made_with_the_first_moment_that_needs_it(qtbot: QtBot) -> None:
    needed: list[bool] = []
    view = DeferredView(lambda: Told, needed=lambda snapshot: snapshot.source == "ranks")
    qtbot.addWidget(view)
    assert view.on_demand
    view.wanted.connect(needed.append)
    view.show_snapshot(make_snapshot(source="one"))
    assert not view.is_made
    view.show_snapshot(make_snapshot(source="ranks"))
    assert view.is_made
    view.real.wanted.emit(True)
    assert needed == [True]


def test_a_breakpoint_is_offered_in_a_view_that_nobody_has_seen(qtbot: QtBot) -> None:
    window, worker = opened(qtbot, deferred_views())
    window.views["plots"].condition_wanted.emit("clip_scale < 0.1")
    view = real(window.views["breakpoints"], BreakpointsView)
    assert view is not None
    assert view.isVisible()
    QTest.keyClick(view.field, Qt.Key.Key_Return)
    assert any(isinstance(command, SetBreakpoint) for command in worker.sent)


def test_the_palette_lists_the_keys_of_views_that_are_not_made(qtbot: QtBot) -> None:
    lists: list[set[str]] = []
    for views in (deferred_views(), make_views()):
        window = MainWindow(Bus(lambda command: None), views)
        qtbot.addWidget(window)
        lists.append({each.entry.name for each in window.ways.doables()})
    assert lists[0] == lists[1]


def test_classes_are_imported_ahead_one_at_a_time_and_nothing_is_made(qtbot: QtBot) -> None:
    imported: list[str] = []

    def importing(name: str) -> DeferredView:
        def kind() -> type[View]:
            imported.append(name)
            return Told

        return DeferredView(kind)

    views = [importing(name) for name in "abc"]
    plain = Told()
    Told.made = 0
    for view in (*views, plain):
        qtbot.addWidget(view)
    readying = Readying([views[0], plain, *views[1:]], plain)
    assert imported == []
    readying.start()
    qtbot.waitUntil(lambda: imported == ["a", "b", "c"])
    assert Told.made == 0


class Windows(QObject):
    """What was shown as a window of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[str] = []

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Show and isinstance(watched, QWidget) and watched.isWindow():
            self.shown.append(f"{type(watched).__name__} {watched.objectName()}")
        return False


@pytest.mark.parametrize("name", KINDS)
def test_making_a_view_shows_no_window_of_its_own(qtbot: QtBot, name: str) -> None:
    windows = Windows()
    application().installEventFilter(windows)
    view = make_view(name)
    qtbot.addWidget(view)
    view.show_snapshot(make_snapshot())
    application().removeEventFilter(windows)
    assert windows.shown == []


def test_every_view_has_its_class() -> None:
    assert set(KINDS) == {name for panel in PANELS for name in panel.views}


def test_a_window_that_shows_no_plot_imports_no_plotting_library() -> None:
    code = (
        "import sys; from inspector.ui import app; app.application(); views = app.deferred_views(app.Gate()); "
        "print('pyqtgraph' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
