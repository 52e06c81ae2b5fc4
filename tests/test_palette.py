"""The palette holds everything that can be done, each by key and by mouse; and it says why something cannot be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from PySide6.QtCore import QEvent, QSettings, Qt
from PySide6.QtGui import QAction, QKeySequence, QShortcut
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractItemView, QApplication, QDialog, QDockWidget, QMenu, QToolBar
from pytestqt.qtbot import QtBot
from ui_helpers import (
    FakeWorker,
    lane_values,
    make_findings,
    make_race,
    make_recorded,
    make_snapshot,
    small_layout,
)

from inspector.diagnosis.watchpoints import Condition
from inspector.hyper import Hyper
from inspector.optimizers import plan_step
from inspector.param_statistics import ParamStats, ParamTable, param_stats
from inspector.plan import Limits, Variant, layout_for
from inspector.runtime.beside import BesidePicture, Overlay
from inspector.runtime.commands import OpenSource, Seek, SetHyper, StepDispatch, ViewMap, ViewValues
from inspector.runtime.hits import Breakpoint
from inspector.runtime.snapshots import CountedParams, Glance, Mark, Snapshot
from inspector.stepping import Cursor
from inspector.stores import LANES
from inspector.ui import docks, theme
from inspector.ui.actions import SPECS
from inspector.ui.app import application, make_view, make_views
from inspector.ui.bus import Bus
from inspector.ui.command_list import Doable, of_menus, press_in, presses, told_apart
from inspector.ui.main_window import MainWindow
from inspector.ui.palette import NOTHING_FOUND
from inspector.ui.view import View
from inspector.variants import all_choices

pytestmark = pytest.mark.qt

Key = Qt.Key
NAN = Condition("nonfinite", ">", 0.0)


class Shown:
    """The whole window on screen with its worker."""

    def __init__(
        self, qtbot: QtBot, settings: QSettings | None = None, views: dict[str, View] | None = None
    ) -> None:
        self.qtbot = qtbot
        self.worker = FakeWorker(full())
        self.bus = Bus(self.worker.send)
        self.window = MainWindow(self.bus, views or few_views(), settings=settings)
        qtbot.addWidget(self.window)
        self.window.resize(1440, 900)
        self.window.show()
        qtbot.waitExposed(self.window)
        self.activate()
        self.worker.start(self.bus.post_from_worker)
        self.show(self.worker.current)

    def activate(self) -> None:
        self.window.show()
        self.window.activateWindow()
        self.qtbot.waitUntil(self.window.isActiveWindow)

    def show(self, snapshot: Snapshot) -> None:
        self.worker.current = snapshot
        self.window.show_snapshot(snapshot)
        self.qtbot.waitUntil(lambda: self.window.at_rest)

    def commands(self) -> list[object]:
        """What was sent, without what views ask for by themselves."""
        return [each for each in self.worker.sent if not isinstance(each, (ViewMap, ViewValues))]

    def doables(self) -> dict[str, Doable]:
        return {each.entry.name: each for each in self.window.ways.doables()}

    def type_in_palette(self, text: str) -> None:
        self.window.ways.navigator.open_palette()
        assert self.window.ways.finder.field.hasFocus()
        self.window.ways.finder.field.setText(text)

    def click_row(self, row: int = 0) -> None:
        """With the mouse, where it is on screen."""
        finder = self.window.ways.finder
        place = finder.list.visualRect(finder.model.index(row)).center()
        self.qtbot.mouseClick(finder.list.viewport(), Qt.MouseButton.LeftButton, pos=place)

    def clear(self) -> None:
        """Close what an action has opened beside the window."""
        self.window.ways.finder.leave()
        for dialog in self.window.findChildren(QDialog):
            dialog.close()
        self.window.toolbar.step_edit.leave()
        self.window.transport.note.leave()
        QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
        self.activate()
        self.worker.sent.clear()


@cache
def full() -> Snapshot:
    """A run of which there is something of everything."""
    plan = make_snapshot().plan
    assert plan is not None
    overlay = Overlay("/a/b.session", "b", 0)
    return make_snapshot(
        findings=make_findings(),
        breakpoints=(Breakpoint(NAN, True),),
        bookmarks=(Mark(100, "here"),),
        choices=tuple(all_choices(plan)),
        recorded=make_recorded(1000, keyframes=(100,), rebuildable=((1, 1000),), state="recording"),
        beside=BesidePicture(recording="/a/c.session", overlays=(overlay,)),
        last_step=1000,
        counted=CountedParams(128, ParamTable.of(_stats()), 0.7),
        race=make_race(),
    )


def _stats() -> list[ParamStats]:
    made = []
    for s in small_layout().segments:
        lanes = {
            lane: lane_values(lane, small_layout(), s.offset + np.arange(s.numel)).copy() for lane in LANES
        }
        made.append(
            param_stats(s.name, s.block, lanes, clip_scale=0.5, hyper=Hyper(), step=128, start=s.offset)
        )
    return made


@cache
def in_form(**form: str) -> Snapshot:
    """The run in another form of the step, which has choices of its own."""
    variant = Variant(**form)  # type: ignore[arg-type]
    plan = plan_step(layout_for(small_layout().params, Limits(), variant), Limits(), variant)
    return replace(full(), plan=plan, choices=tuple(all_choices(plan)), counted=None)


STATES: tuple[Callable[[], Snapshot], ...] = (
    full,
    lambda: replace(full(), mode="running"),
    lambda: replace(full(), mode="lost", stale=True),
    lambda: replace(full(), glance=Glance(400, of=300, done=20), cursor=Cursor(400, 4, 4)),
    lambda: in_form(kernel="8bit"),
    lambda: in_form(reduce="atomic"),
    lambda: in_form(optimizer="shampoo"),
)
"""In one of these each action can work."""


def few_views() -> dict[str, View]:
    """The views that can be gone to in these tests: a whole window takes its time."""
    return {name: make_view(name) for name in ("map", "timeline", "values", "params", "hyper", "findings")}


@pytest.fixture
def shown(qtbot: QtBot) -> Iterator[Shown]:
    yield from _made(qtbot, few_views())


@pytest.fixture
def whole(qtbot: QtBot) -> Iterator[Shown]:
    """The window with all its views."""
    yield from _made(qtbot, make_views())


def _made(qtbot: QtBot, views: dict[str, View]) -> Iterator[Shown]:
    theme.apply(application(), "light")
    made = Shown(qtbot, views=views)
    made.worker.sent.clear()
    yield made
    made.bus.blockSignals(True)


def test_every_action_of_the_window_is_in_the_palette(whole: Shown) -> None:
    known = {action for menu in whole.window.menuBar().findChildren(QMenu) for action in menu.actions()}
    known |= {action for menu in whole.window.form_menu.findChildren(QMenu) for action in menu.actions()}
    bars = {bar.toggleViewAction() for bar in whole.window.findChildren(QToolBar)}
    own = {action for view in whole.window.views.values() for action in view.findChildren(QAction)}
    tops = set(whole.window.menuBar().actions())
    names = {spec.name for spec in SPECS}
    unlisted = [
        action.objectName() or action.text()
        for action in whole.window.findChildren(QAction)
        if action not in known | bars | own | tops
        # Of Qt's own widgets: what a text field offers, the buttons of a tab bar.
        and (action.objectName() in names or action.parent() is whole.window)
    ]
    assert unlisted == []
    assert names <= set(whole.doables())


def test_nothing_can_be_done_that_has_neither_a_key_nor_a_line_in_the_palette(whole: Shown) -> None:
    """Shortcuts of views as well: each is in LOCAL_KEYS of its view."""
    for name, view in whole.window.views.items():
        told = {QKeySequence(press) for written, _ in view.LOCAL_KEYS for press in presses(written)}
        for shortcut in view.findChildren(QShortcut):
            # A space plays wherever it means nothing else.
            assert shortcut.key() in told or shortcut.key() == QKeySequence(Key.Key_Space), (
                name,
                shortcut.key(),
            )


def test_every_entry_has_a_name_of_its_own_and_says_what_it_does(whole: Shown) -> None:
    listed = [each.entry for each in whole.window.ways.doables()]
    assert len({entry.name for entry in listed}) == len(listed)
    assert len({entry.title + "".join(entry.keys) for entry in listed}) == len(listed)
    for entry in listed:
        assert entry.text
        assert entry.help or entry.name.startswith("toggle_"), entry.name


def test_every_action_is_done_by_mouse_in_the_palette_and_by_its_key(whole: Shown) -> None:
    """Each in a state in which it can work; that each triggers once, and no other does."""
    window = whole.window
    window.ways.layouts.save("mine")
    left = {each.entry.name for each in of_menus(window.menuBar())}
    done: list[str] = []
    for state in STATES:
        whole.show(state())
        actions = _actions(whole)
        for name in sorted(left & set(actions)):
            whole.clear()
            whole.show(state())
            _prepare(whole, name)
            action = actions[name]
            if not action.isEnabled():
                continue
            action.triggered.connect(lambda _checked=False, name=name: done.append(name))
            entry = whole.doables()[name].entry
            whole.type_in_palette(entry.title)
            rows = [(row.text, row.keys) for row in window.ways.finder.model.rows]
            assert rows[0][0] == entry.title, "typed in full, it is the first"
            # What runs is paused by two actions, of two keys.
            whole.click_row(rows.index((entry.title, " or ".join(entry.keys))))
            assert done.count(name) == 1, f"{name} by mouse"
            whole.clear()
            for key in action.shortcuts():
                whole.show(state())
                _prepare(whole, name)
                before = done.count(name)
                QTest.keySequence(window, key)
                assert done.count(name) == before + 1, f"{name} by {key.toString()}"
                whole.clear()
            left.discard(name)
    assert left == set(), "there is no state in which these work"


def _actions(shown: Shown) -> dict[str, QAction]:
    """Every action by name; those of a form that was shown before are gone."""
    shown.clear()
    docks = shown.window.findChildren(QDockWidget)
    found = [*shown.window.findChildren(QAction), *(dock.toggleViewAction() for dock in docks)]
    return {action.objectName(): action for action in found if action.objectName()}


def _prepare(shown: Shown, name: str) -> None:
    """What has to have happened before."""
    window = shown.window
    window.transport.set_loop((1, 5))
    # Any earlier key may have left the window in another layout, with other panels closed.
    if name in ("undo", "redo"):
        window.send(SetHyper("lr", 0.5))
        if name == "redo":
            window.ways.undoing.undo()
    if name == "text_reset":
        window.actions_by_name["text_larger"].trigger()
    if name in ("back", "forward"):
        window.select_param("norm.weight")
        window.select_param("tok_embeddings.weight")
        if name == "forward":
            window.ways.navigator.back()


def test_every_key_of_every_view_is_taken_there_and_listed(whole: Shown) -> None:
    window = whole.window
    window.restore_default_layout()
    for name, view in window.views.items():
        for written, _ in view.LOCAL_KEYS:
            for press in presses(written):
                whole.clear()
                whole.show(full())
                window.select_param("norm.weight")
                window.ways.go_to_view(name)
                target, activated = view.key_target(), []
                if isinstance(target, QAbstractItemView):
                    # Which takes an Enter and says that it did not.
                    target.activated.connect(activated.append)
                assert press_in(view, press) or activated, f"{name}: {press} of {written!r}"
                whole.clear()
                assert f"{name}/{press}" in whole.doables()


def test_a_key_of_a_view_is_pressed_from_the_palette(shown: Shown) -> None:
    shown.window.select_param("norm.weight")
    shown.type_in_palette("timeline ten steps back")
    shown.click_row()
    assert Seek(117) in shown.commands()
    assert shown.window.views["timeline"].hasFocus()
    shown.type_in_palette("map: zoom in")
    before = shown.window.views["map"].canvas.view  # type: ignore[attr-defined]
    shown.qtbot.keyClick(shown.window.ways.finder.field, Key.Key_Return)
    after = shown.window.views["map"].canvas.view  # type: ignore[attr-defined]
    assert after.per_pixel < before.per_pixel


@pytest.mark.parametrize(
    ("written", "keys"),
    [
        ("+ / −, wheel", ("+", "-")),
        ("Ctrl+← / →", ("Ctrl+Left", "Ctrl+Right")),
        ("Page up / down", ("PgUp", "PgDown")),
        ("Ctrl+Home / End", ("Ctrl+Home", "Ctrl+End")),
        ("[ / ]", ("[", "]")),
        ("/", ("/",)),
        ("W G M V", ("W", "G", "M", "V")),
        ("Enter, double-click", ("Return",)),
        ("Shift+wheel", ()),
        ("Esc", ("Esc",)),
    ],
)
def test_keys_as_people_read_them_are_keys_of_qt(written: str, keys: tuple[str, ...]) -> None:
    assert presses(written) == keys
    assert all(QKeySequence(key).toString() for key in keys)


def test_two_keys_of_one_line_are_told_apart() -> None:
    assert told_apart("zoom in or out", 2) == ("zoom in", "zoom out")
    assert told_apart("the finding, bookmark or mark before or after", 2)[1].endswith("mark after")
    assert told_apart("the first step, the last one", 2) == ("the first step", "the last one")
    assert told_apart("the lane", 4) == ("the lane",) * 4


# --- the palette by itself


def test_it_opens_by_its_key_and_gives_the_keys_back(shown: Shown) -> None:
    finder, window = shown.window.ways.finder, shown.window
    before = window.focusWidget()
    QTest.keySequence(window, QKeySequence("Ctrl+Shift+P"))
    assert finder.isVisible()
    assert finder.field.hasFocus()
    assert not finder.isModal()
    shown.qtbot.keyClick(finder.field, Key.Key_Escape)
    assert not finder.isVisible()
    assert window.focusWidget() is before
    assert shown.commands() == [], "Esc means something else in the window"


def test_it_closes_when_the_keys_go_elsewhere(shown: Shown) -> None:
    shown.type_in_palette("run")
    shown.qtbot.mouseClick(shown.window.views["timeline"], Qt.MouseButton.LeftButton)
    assert not shown.window.ways.finder.isVisible()


def test_arrows_choose_and_enter_does_it(shown: Shown) -> None:
    finder = shown.window.ways.finder
    shown.type_in_palette("step")
    texts = [row.text for row in finder.model.rows]
    at = texts.index("Run: Step dispatch")
    for _ in range(at):
        shown.qtbot.keyClick(finder.field, Key.Key_Down)
    shown.qtbot.keyClick(finder.field, Key.Key_Return)
    assert shown.commands() == [StepDispatch()]
    assert not finder.isVisible()


def test_above_the_first_is_the_last(shown: Shown) -> None:
    finder = shown.window.ways.finder
    shown.type_in_palette("layout")
    shown.qtbot.keyClick(finder.field, Key.Key_Up)
    assert finder.list.currentIndex().row() == finder.model.rowCount() - 1
    shown.qtbot.keyClick(finder.field, Key.Key_Down)
    assert finder.list.currentIndex().row() == 0


def test_what_was_done_last_is_first_and_so_at_the_next_start(qtbot: QtBot, tmp_path: Path) -> None:
    path = str(tmp_path / "w.ini")
    first = Shown(qtbot, docks.open_settings(path))
    for title in ("Go: Go to params", "Run: Step dispatch"):
        first.type_in_palette(title)
        first.click_row()
    first.type_in_palette("")
    latest = ["Run: Step dispatch", "Go: Go to params"]
    assert [row.text for row in first.window.ways.finder.model.rows][:2] == latest
    first.window.close()
    second = Shown(qtbot, docks.open_settings(path))
    second.type_in_palette("")
    assert [row.text for row in second.window.ways.finder.model.rows][:2] == latest
    for each in (first, second):
        each.bus.blockSignals(True)


def test_what_cannot_be_done_says_why_and_does_nothing(shown: Shown) -> None:
    finder = shown.window.ways.finder
    shown.show(make_snapshot(cursor=Cursor(1, 0, 4)))
    shown.type_in_palette("Run: Back one dispatch")
    assert finder.note.text() == "Not now: nothing lies before the first step"
    assert "not now: nothing lies" in finder.model.data(
        finder.model.index(0), Qt.ItemDataRole.AccessibleTextRole
    )
    shown.click_row()
    shown.qtbot.keyClick(finder.field, Key.Key_Return)
    assert finder.isVisible()
    assert shown.commands() == []


def test_nothing_found_is_said(shown: Shown) -> None:
    shown.type_in_palette("xyzzy")
    assert shown.window.ways.finder.model.rowCount() == 0
    assert shown.window.ways.finder.note.text() == NOTHING_FOUND
    shown.qtbot.keyClick(shown.window.ways.finder.field, Key.Key_Return)
    assert shown.window.ways.finder.isVisible()


def test_a_source_can_be_opened_by_name(shown: Shown) -> None:
    shown.type_in_palette("Open: Live model")
    shown.click_row()
    assert shown.commands() == [OpenSource("charlm")]


# --- going to places


def test_a_param_is_gone_to_by_a_few_letters(shown: Shown) -> None:
    QTest.keySequence(shown.window, QKeySequence("Ctrl+P"))
    finder = shown.window.ways.finder
    assert finder.field.text() == "@"
    shown.qtbot.keyClicks(finder.field, "h1qkv")
    assert [row.text for row in finder.model.rows] == ["h.1.attn.qkv.weight"]
    assert "12,288 elements" in finder.note.text()
    shown.qtbot.keyClick(finder.field, Key.Key_Return)
    canvas = shown.window.views["map"].canvas  # type: ignore[attr-defined]
    assert canvas.selected == "h.1.attn.qkv.weight"
    # One too narrow to be seen is shown as wide as its name, in the middle; one out of sight is brought there.
    for letters, name in (
        ("h1qkv", "h.1.attn.qkv.weight"),
        ("norm.w", "norm.weight"),
        ("h0qkv", "h.0.attn.qkv.weight"),
    ):
        QTest.keySequence(shown.window, QKeySequence("Ctrl+P"))
        shown.qtbot.keyClicks(finder.field, letters)
        shown.qtbot.keyClick(finder.field, Key.Key_Return)
        assert canvas.selected == name
        segment = small_layout()[name]
        left, right = (canvas.view.x_of(each) for each in (segment.offset, segment.stop))
        assert right - left >= 47
        assert left < canvas.view.width
        assert right > 0


def test_an_offset_is_gone_to_in_elements_and_bytes(shown: Shown) -> None:
    segment = small_layout()["h.1.attn.qkv.weight"]
    canvas = shown.window.views["map"].canvas  # type: ignore[attr-defined]
    for typed in (str(segment.offset + 200), hex(4 * (segment.offset + 200))):
        canvas.show_all()
        QTest.keySequence(shown.window, QKeySequence("Ctrl+L"))
        shown.qtbot.keyClicks(shown.window.ways.finder.field, typed)
        assert shown.window.ways.finder.model.rows[0].text.startswith("h.1.attn.qkv.weight[1, 8]")
        shown.qtbot.keyClick(shown.window.ways.finder.field, Key.Key_Return)
        assert canvas.selected == segment.name
        assert canvas.spot == segment.offset + 200
        assert canvas.view.x_of(canvas.spot + 0.5) == pytest.approx(canvas.view.width / 2)
        assert canvas.view.per_pixel <= 1 / 6, "told from its neighbours"
    QTest.keySequence(shown.window, QKeySequence("Ctrl+L"))
    shown.qtbot.keyClicks(shown.window.ways.finder.field, "999999999")
    assert "end before that" in shown.window.ways.finder.note.text()


def test_a_step_or_a_dispatch_of_it_is_gone_to(shown: Shown) -> None:
    for typed, command in ((":42", Seek(42)), (":1,200:2", Seek(1200, 2))):
        shown.type_in_palette(typed)
        shown.click_row()
        assert shown.commands()[-1] == command
    for typed in (":", ":x", ":1:x", ":99999999999"):
        shown.type_in_palette(typed)
        assert shown.window.ways.finder.model.rowCount() == 0
        assert "1200:2" in shown.window.ways.finder.note.text()


def test_without_a_source_there_is_nothing_to_go_to(shown: Shown) -> None:
    shown.show(Snapshot(0, "failed", "x"))
    assert not shown.window.actions_by_name["go_to_param"].isEnabled()
    for typed in ("@a", "#5"):
        shown.type_in_palette(typed)
        assert "No source is open" in shown.window.ways.finder.note.text()
    shown.window.ways.finder.leave()


# --- back and forward, undo


def test_back_and_forward_through_selections_steps_and_views(shown: Shown) -> None:
    window, places = shown.window, shown.window.ways.navigator.places
    clock = [0.0]
    places.clock = lambda: clock[0]
    back, forward = window.actions_by_name["back"], window.actions_by_name["forward"]
    assert not back.isEnabled()
    for act in (
        lambda: window.views["map"].param_selected.emit("norm.weight"),
        lambda: window.views["values"].element_selected.emit("tok_embeddings.weight", 70),
        lambda: QTest.keySequence(window, QKeySequence("Alt+8")),
        lambda: window.views["timeline"].command.emit(Seek(40)),
    ):
        clock[0] += 10
        act()
    shown.show(replace(shown.worker.current, cursor=Cursor(40, 4, 4)))
    shown.worker.sent.clear()
    canvas = window.views["map"].canvas  # type: ignore[attr-defined]
    QTest.keySequence(window, QKeySequence("Alt+Left"))
    assert shown.commands() == [Seek(128, 2)]
    shown.show(replace(shown.worker.current, cursor=Cursor(128, 2, 4)))
    QTest.keySequence(window, QKeySequence("Alt+Left"))
    assert canvas.selected == "tok_embeddings.weight"
    QTest.keySequence(window, QKeySequence("Alt+Left"))
    assert canvas.selected == "norm.weight"
    QTest.keySequence(window, QKeySequence("Alt+Left"))
    assert canvas.selected == ""
    assert not back.isEnabled()
    for _ in range(3):
        QTest.keySequence(window, QKeySequence("Alt+Right"))
    assert canvas.selected == "tok_embeddings.weight"
    assert window.views["params"].isVisible()
    assert shown.commands() == [Seek(128, 2)], "the step is gone to by the last one only"
    assert forward.isEnabled()
    QTest.keySequence(window, QKeySequence("Alt+Right"))
    assert shown.commands() == [Seek(128, 2), Seek(40)]
    assert not forward.isEnabled()


def test_another_run_has_places_of_its_own(shown: Shown) -> None:
    shown.window.select_param("norm.weight")
    assert shown.window.actions_by_name["back"].isEnabled()
    shown.show(replace(shown.worker.current, run=7))
    assert not shown.window.actions_by_name["back"].isEnabled()


def test_a_setting_is_undone_and_redone(shown: Shown) -> None:
    acts = shown.window.actions_by_name
    shown.window.views["hyper"].command.emit(SetHyper("lr", 0.5))
    assert acts["undo"].text() == "Undo lr 0.001 → 0.5"
    shown.worker.sent.clear()
    QTest.keySequence(shown.window, QKeySequence("Ctrl+Z"))
    assert shown.commands() == [SetHyper("lr", 0.001)]
    assert not acts["undo"].isEnabled()
    QTest.keySequence(shown.window, QKeySequence("Ctrl+Shift+Z"))
    assert shown.commands() == [SetHyper("lr", 0.001), SetHyper("lr", 0.5)]


def test_a_closed_panel_comes_back(shown: Shown) -> None:
    dock = shown.window.docks["findings"]
    dock.close()
    assert not dock.isVisible()
    assert shown.window.actions_by_name["undo"].text() == "Undo close the panel findings"
    QTest.keySequence(shown.window, QKeySequence("Ctrl+Z"))
    assert dock.isVisible()
    QTest.keySequence(shown.window, QKeySequence("Ctrl+Shift+Z"))
    assert not dock.isVisible()


def test_in_a_text_field_undo_is_of_what_was_typed(shown: Shown) -> None:
    shown.window.send(SetHyper("lr", 0.5))
    shown.type_in_palette("")
    shown.qtbot.keyClicks(shown.window.ways.finder.field, "abc")
    shown.worker.sent.clear()
    QTest.keySequence(shown.window.ways.finder.field, QKeySequence("Ctrl+Z"))
    assert shown.window.ways.finder.field.text() == ""
    assert shown.commands() == []
