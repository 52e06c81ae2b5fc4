"""The window: keys and buttons send commands, reasons are told, places are kept, it closes cleanly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, QSettings, Qt, QTimer
from PySide6.QtGui import QAction, QImage, QShortcut
from PySide6.QtWidgets import QComboBox, QFileDialog, QLabel, QMenu, QPushButton, QToolButton
from pytestqt.qtbot import QtBot
from ui_helpers import FakeWorker, make_findings, make_snapshot, small_layout, small_plan

from inspector.errors import UsageError
from inspector.optimizers import plan_step
from inspector.plan import Limits, Plan, Variant, layout_for
from inspector.runtime.commands import (
    OpenSource,
    Pause,
    RecoverDevice,
    Run,
    Seek,
    SetStats,
    SetVariant,
    StepDispatch,
    StepIteration,
    UndoDispatch,
    UndoIteration,
    ViewMap,
)
from inspector.runtime.snapshots import Notice, Snapshot
from inspector.statistics import StatsLevel
from inspector.stepping import Cursor, UndoInfo
from inspector.ui import docks, theme
from inspector.ui.actions import SPECS, reasons
from inspector.ui.app import WorkerLink, application, make_views, run_window
from inspector.ui.bus import Bus
from inspector.ui.form_bar import COMBO_FRAME
from inspector.ui.keys import KeysDialog
from inspector.ui.main_window import MainWindow
from inspector.ui.map_view import MapView
from inspector.ui.screenshot import grab_window
from inspector.ui.timeline_view import TimelineView
from inspector.ui.toolbar import OPEN_FILE, cursor_text, file_first
from inspector.ui.view import View
from inspector.variants import all_choices

pytestmark = pytest.mark.qt

Key = Qt.Key
Shift, Control = Qt.KeyboardModifier.ShiftModifier, Qt.KeyboardModifier.ControlModifier


class Recording(View):
    """A view that remembers what it was shown."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[Snapshot] = []
        self.selected: list[str] = []

    def show_snapshot(self, snapshot: Snapshot) -> None:
        self.shown.append(snapshot)

    def select_param(self, name: str) -> None:
        self.selected.append(name)


def light_views() -> dict[str, View]:
    """Views of this half of the window, stand-ins for the rest."""
    views: dict[str, View] = {name: Recording() for panel in docks.PANELS for name in panel.views}
    return {**views, "map": MapView(), "timeline": TimelineView()}


class Shown:
    """A window on screen with its worker."""

    def __init__(
        self, qtbot: QtBot, settings: QSettings | None = None, views: dict[str, View] | None = None
    ) -> None:
        self.worker = FakeWorker()
        self.bus = Bus(self.worker.send)
        self.window = MainWindow(self.bus, views or light_views(), settings=settings)
        qtbot.addWidget(self.window)
        self.qtbot = qtbot
        self.window.resize(1280, 800)
        self.window.show()
        qtbot.waitExposed(self.window)
        self.window.activateWindow()
        qtbot.waitUntil(self.window.isActiveWindow)
        self.worker.start(self.bus.post_from_worker)
        self.settle()

    def settle(self) -> None:
        self.qtbot.waitUntil(lambda: self.window.snapshot is self.worker.current and self.window.at_rest)

    def post(self, **changes: object) -> None:
        self.worker.post(**changes)
        self.settle()

    def commands(self) -> list[object]:
        """What was sent, without the pixels the map asks for whenever it likes."""
        return [command for command in self.worker.sent if not isinstance(command, ViewMap)]

    def press(self, key: Qt.Key, modifier: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier) -> None:
        self.qtbot.keyClick(self.window, key, modifier)

    def child(self, kind: type, name: str) -> object:
        found = self.window.findChild(kind, name)
        assert found is not None, name
        return found


@pytest.fixture
def shown(qtbot: QtBot) -> Iterator[Shown]:
    theme.apply(application(), "light")
    made = Shown(qtbot)
    made.worker.sent.clear()
    yield made
    made.bus.blockSignals(True)


@pytest.mark.parametrize(
    ("key", "modifier", "command"),
    [
        (Key.Key_F10, Qt.KeyboardModifier.NoModifier, StepDispatch()),
        (Key.Key_F11, Qt.KeyboardModifier.NoModifier, StepIteration()),
        (Key.Key_F5, Qt.KeyboardModifier.NoModifier, Run()),
        (Key.Key_F10, Shift, UndoDispatch()),
        (Key.Key_F11, Shift, UndoIteration()),
    ],
)
def test_keys_send_commands(
    shown: Shown, key: Qt.Key, modifier: Qt.KeyboardModifier, command: object
) -> None:
    shown.press(key, modifier)
    assert shown.commands() == [command]


@pytest.mark.parametrize("key", [Key.Key_F5, Key.Key_F6])
def test_f5_and_f6_pause_what_runs(shown: Shown, key: Qt.Key) -> None:
    shown.post(mode="running")
    shown.worker.sent.clear()
    shown.press(key)
    assert shown.commands() == [Pause()]
    shown.press(Key.Key_F5, Shift)
    assert shown.commands() == [Pause(), Pause()]


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("step_dispatch", StepDispatch()),
        ("step_iteration", StepIteration()),
        ("run", Run()),
        ("undo_dispatch", UndoDispatch()),
        ("undo_iteration", UndoIteration()),
    ],
)
def test_buttons_send_commands(shown: Shown, name: str, command: object) -> None:
    button = shown.child(QToolButton, f"{name}_button")
    shown.qtbot.mouseClick(button, Qt.MouseButton.LeftButton)
    assert shown.commands() == [command]


def test_every_action_has_a_name_and_a_tooltip_with_its_key(shown: Shown) -> None:
    for spec in SPECS:
        action = shown.window.actions_by_name[spec.name]
        assert action.objectName() == spec.name
        for key in spec.keys:
            assert key in action.toolTip()


def test_no_two_actions_share_a_key(shown: Shown) -> None:
    keys = [key.toString() for action in shown.window.actions() for key in action.shortcuts()]
    assert len(keys) == len(set(keys))


def test_no_key_of_a_panel_is_one_of_the_window(qtbot: QtBot) -> None:
    window = MainWindow(Bus(FakeWorker().send), make_views())
    qtbot.addWidget(window)
    of_window = {key.toString() for action in window.actions() for key in action.shortcuts()}
    of_panels = {shortcut.key().toString() for shortcut in window.findChildren(QShortcut)}
    assert of_panels
    assert not of_window & of_panels, "neither would work"


def test_the_label_says_where_the_run_stands(shown: Shown) -> None:
    label = shown.window.toolbar.cursor_label
    assert label.text() == "step 128 · dispatch 2/4 → adamw_update wd"
    shown.post(cursor=Cursor(128, 4, 4))
    assert label.text() == "step 128 · dispatch 4/4 → step 129"
    shown.post(last_step=128)
    assert label.text() == "step 128 · dispatch 4/4 → end of the source"
    shown.post(mode="running", cursor=Cursor(130, 4, 4))
    assert label.text() == "step 130 · dispatch 4/4 · running"


def test_disabled_actions_say_why() -> None:
    at_end = make_snapshot(cursor=Cursor(9, 4, 4), last_step=9, undo=UndoInfo())
    why = reasons(at_end)
    assert why["step_dispatch"] == "step 9 is the last of this source"
    assert "undo_dispatch" not in why, "what memory does not hold is rebuilt"
    at_start = reasons(make_snapshot(cursor=Cursor(1, 0, 4), undo=UndoInfo()))
    assert at_start["undo_dispatch"] == at_start["undo_iteration"] == "nothing lies before the first step"
    assert "opened" in reasons(make_snapshot(mode="starting"))["run"]
    assert "recover" in reasons(make_snapshot(mode="lost"))["step_dispatch"]
    assert "recover" not in reasons(make_snapshot(mode="lost"))


def test_a_disabled_button_shows_the_reason_and_sends_nothing(shown: Shown) -> None:
    shown.post(cursor=Cursor(1, 0, 4))
    shown.worker.sent.clear()
    action = shown.window.actions_by_name["undo_dispatch"]
    assert not action.isEnabled()
    assert "Not now: nothing lies before the first step" in action.toolTip()
    shown.press(Key.Key_F10, Shift)
    assert shown.commands() == []


def test_choosing_a_form_sends_a_variant_and_keeps_showing_it(shown: Shown) -> None:
    combo = shown.child(QComboBox, "reduce_combo")
    assert isinstance(combo, QComboBox)
    combo.setFocus()
    shown.qtbot.keyClick(combo, Key.Key_Down)
    assert shown.commands() == [SetVariant(Variant(reduce="atomic"))]
    shown.post()
    assert combo.currentText() == "atomic", "the choice holds from the next step on"
    shown.post(plan=small_plan("atomic"), cursor=Cursor(129, 0, 4))
    assert combo.currentText() == "atomic"


def test_a_refused_form_is_shown_as_it_is(shown: Shown) -> None:
    combo = shown.child(QComboBox, "numerics_combo")
    assert isinstance(combo, QComboBox)
    combo.setFocus()
    shown.qtbot.keyClick(combo, Key.Key_Down)
    shown.post(notice=Notice(1, "error", "This device cannot do it."))
    assert combo.currentText() == "published"


def test_choosing_a_source_opens_it(shown: Shown) -> None:
    combo = shown.window.toolbar.source
    combo.setFocus()
    shown.qtbot.keyClick(combo, Key.Key_Down)
    assert shown.commands() == [OpenSource("synthetic:1000000")]
    shown.post(source="/data/run.safetensors")
    assert combo.currentText() == "/data/run.safetensors"


def test_choosing_the_source_that_is_open_does_nothing(shown: Shown) -> None:
    combo = shown.window.toolbar.source
    combo.activated.emit(combo.findText("charlm"))
    assert shown.commands() == []
    shown.post(mode="failed")
    combo.activated.emit(combo.findText("charlm"))
    assert shown.commands() == [OpenSource("charlm")], "it could not be opened: another try"


def test_the_source_is_restarted_by_an_action_of_its_own(shown: Shown) -> None:
    shown.press(Key.Key_R, Control)
    assert shown.commands() == [OpenSource("charlm")]
    assert "opened" in reasons(make_snapshot(mode="starting"))["restart"]
    assert "restart" not in reasons(make_snapshot(mode="failed"))


def test_of_a_long_path_the_file_name_is_seen(shown: Shown) -> None:
    toolbar, combo = shown.window.toolbar, shown.window.toolbar.source
    paths = [f"/home/somebody/experiments/{'x' * 40}/run-{i}.safetensors" for i in range(2)]
    for i, path in enumerate(paths):
        shown.post(source=path)
        assert combo.currentText().startswith("…")
        assert combo.currentText().endswith(f"/run-{i}.safetensors")
        assert path in combo.toolTip()
        assert combo.itemData(combo.currentIndex(), Qt.ItemDataRole.ToolTipRole) == path
    combo.activated.emit(1)
    assert shown.commands() == [OpenSource(paths[0])]
    name = f"{'y' * 60}.safetensors"
    short = file_first(f"/data/{name}", combo.fontMetrics(), 160)
    assert short.startswith("yy")
    assert short.endswith("tensors")
    assert toolbar.source.fontMetrics().horizontalAdvance(short) <= 160


@pytest.mark.parametrize("width", [800, 1000])
def test_in_a_narrow_window_the_buttons_stay(shown: Shown, width: int) -> None:
    shown.post(source=f"/data/{'x' * 80}.safetensors")
    shown.window.resize(width, 700)
    shown.qtbot.wait(20)
    for name in ("step_dispatch", "step_iteration", "run"):
        button = shown.child(QToolButton, f"{name}_button")
        assert isinstance(button, QToolButton)
        assert button.isVisible()
        assert button.mapTo(shown.window, button.rect().topRight()).x() < width
    assert shown.window.toolbar.cursor_label.isVisible()
    combo = shown.window.toolbar.source
    assert combo.fontMetrics().horizontalAdvance(combo.currentText()) + COMBO_FRAME <= combo.width()


@pytest.mark.parametrize("name", ["source", "kernel", "codec", "reduce", "dispatch", "numerics"])
def test_a_choice_by_mouse_leaves_the_keys_where_they_were(shown: Shown, name: str) -> None:
    shown.window.resize(2200, 900)
    show_8bit(shown)
    before = shown.window.focusWidget()
    assert before is shown.window.views["map"].focusProxy()
    combo = shown.child(QComboBox, f"{name}_combo")
    assert isinstance(combo, QComboBox)
    shown.qtbot.waitUntil(combo.isVisible)
    shown.qtbot.mouseClick(combo, Qt.MouseButton.LeftButton)
    shown.qtbot.waitUntil(combo.view().isVisible)
    shown.qtbot.keyClick(combo.view(), Key.Key_Up if combo.currentIndex() else Key.Key_Down)
    shown.qtbot.keyClick(combo.view(), Key.Key_Return)
    shown.qtbot.waitUntil(lambda: len(shown.commands()) == 1)
    shown.qtbot.waitUntil(lambda: not combo.view().isVisible())
    assert shown.window.focusWidget() is before
    shown.worker.sent.clear()
    for key in (Key.Key_Home, Key.Key_8, Key.Key_L):
        shown.qtbot.keyClick(shown.window.focusWidget(), key)
    assert not [c for c in shown.commands() if isinstance(c, SetVariant | OpenSource)]
    assert combo.focusPolicy() == Qt.FocusPolicy.TabFocus


SHOWN_IN_TOOLBAR = ("kernel", "codec", "reduce", "dispatch", "numerics")


@pytest.mark.parametrize("coded", [False, True])
@pytest.mark.parametrize("width", [800, 1024, 1280, 1600, 2200])
def test_the_whole_form_can_be_chosen_in_the_toolbar_at_every_width(
    shown: Shown, width: int, coded: bool
) -> None:
    shown.window.resize(width, 700)
    if coded:
        show_8bit(shown)
    shown.post(cursor=Cursor(8888, 4, 4))
    shown.qtbot.wait(20)
    toolbar, button = shown.window.toolbar, shown.child(QToolButton, "form_button")
    assert isinstance(button, QToolButton)
    more = shown.child(QToolButton, "qt_toolbar_ext_button")
    assert isinstance(more, QToolButton)
    assert not more.isVisible(), "nothing is pushed out of the toolbar"
    wanted = [name for name in SHOWN_IN_TOOLBAR if coded or name != "codec"]
    lists = [name for name, combo in toolbar.form.choices.items() if combo.isVisible()]
    values = [toolbar.form.choices[name].currentText() for name in wanted]
    if lists:
        assert lists == wanted
        assert not button.isVisible()
    else:
        assert button.isVisible()
        assert button.sizeHint().width() <= button.width()
        assert button.menu() is shown.window.form_menu
        assert button.text() in ("Form", f"Form: {' · '.join(values)}")
        assert all(f"{name}: {value}" in button.toolTip() for name, value in zip(wanted, values, strict=True))
    # In windows as they are usual what runs is seen at a glance.
    assert lists or button.text() != "Form" or width < 1280
    assert bool(lists) == (width >= (2200 if coded else 1600)) or width == 1600
    for combo in (toolbar.source, *(toolbar.form.choices[name] for name in lists)):
        for row in range(combo.count()):
            wide = combo.fontMetrics().horizontalAdvance(combo.itemText(row))
            assert wide + COMBO_FRAME <= combo.width(), combo.itemText(row)
        assert combo.mapTo(shown.window, combo.rect().topRight()).x() < width
    label = toolbar.cursor_label
    assert label.isVisible()
    assert label.text() == "step 8,888 · dispatch 4/4 → step 8,889"
    if width >= 1024:
        assert label.fontMetrics().horizontalAdvance(label.text()) <= label.width()


def test_where_there_is_no_room_the_form_is_chosen_from_a_button(shown: Shown) -> None:
    shown.post(choices=tuple(all_choices(small_plan())))
    shown.window.resize(1024, 700)
    button = shown.child(QToolButton, "form_button")
    assert isinstance(button, QToolButton)
    shown.qtbot.waitUntil(button.isVisible)
    assert button.focusPolicy() == Qt.FocusPolicy.TabFocus, "a click leaves the keys where they were"
    menu = shown.window.form_menu
    QTimer.singleShot(0, lambda: shown.child(QAction, "form_numerics_precise").trigger())  # type: ignore[attr-defined]
    QTimer.singleShot(0, menu.close)
    shown.qtbot.mouseClick(button, Qt.MouseButton.LeftButton)
    assert shown.commands() == [SetVariant(Variant(numerics="precise"))]
    assert "numerics: published" in button.toolTip(), "until it runs so"
    shown.post(mode="running")
    assert "Not now: pause first" in button.toolTip()


def test_open_file_asks_for_one_without_stopping_the_window(shown: Shown) -> None:
    shown.press(Key.Key_O, Control)
    dialog = shown.child(QFileDialog, "open_dialog")
    assert isinstance(dialog, QFileDialog)
    assert not dialog.isModal()
    dialog.fileSelected.emit("/data/step.safetensors")
    assert shown.commands() == [OpenSource("/data/step.safetensors")]
    dialog.close()


def test_the_entry_for_a_file_leaves_the_source_shown(shown: Shown) -> None:
    combo = shown.window.toolbar.source
    combo.setCurrentText(OPEN_FILE)
    combo.activated.emit(combo.currentIndex())
    assert combo.currentText() == "charlm"
    dialog = shown.child(QFileDialog, "open_dialog")
    assert isinstance(dialog, QFileDialog)
    dialog.close()


def test_go_to_step_by_keys(shown: Shown) -> None:
    edit = shown.window.toolbar.step_edit
    assert not edit.isVisible()
    shown.press(Key.Key_G, Control)
    assert edit.hasFocus()
    shown.qtbot.keyClicks(edit, "x42")
    shown.qtbot.keyClick(edit, Key.Key_Return)
    assert shown.commands() == [Seek(42)]
    assert not edit.isVisible()
    shown.press(Key.Key_G, Control)
    shown.qtbot.keyClicks(edit, "7")
    shown.qtbot.keyClick(edit, Key.Key_Escape)
    assert not edit.isVisible()
    assert edit.text() == ""
    assert shown.commands() == [Seek(42)]


def test_a_notice_is_shown_once(shown: Shown) -> None:
    banner = shown.window.banner
    assert not banner.isVisible()
    shown.post(notice=Notice(1, "warning", "Memory is short."))
    assert banner.isVisible()
    assert banner.text == "Memory is short."
    assert banner.sign.toolTip() == "Warning"
    shown.qtbot.mouseClick(shown.child(QToolButton, "banner_close"), Qt.MouseButton.LeftButton)
    assert not banner.isVisible()
    shown.post(cursor=Cursor(128, 3, 4))
    assert not banner.isVisible(), "the same notice again"
    shown.post(notice=Notice(2, "info", "The run ended."))
    assert banner.text == "The run ended."
    shown.press(Key.Key_Backspace, Control)
    assert not banner.isVisible()


def test_a_note_goes_by_itself_and_a_warning_does_not(shown: Shown) -> None:
    banner = shown.window.banner
    banner._timer.setInterval(400)
    shown.post(notice=Notice(1, "info", "Step 100 is not in memory."))
    assert banner.isVisible()
    shown.qtbot.waitUntil(lambda: not banner.isVisible())
    shown.post(notice=Notice(2, "info", "A note."))
    shown.post(notice=Notice(3, "warning", "A warning."))
    shown.qtbot.wait(60)
    assert banner.text == "A warning."


@pytest.mark.parametrize("severity", ["info", "warning", "error"])
@pytest.mark.parametrize("changes", [{"cursor": Cursor(129, 1, 4)}, {"run": 2}, {"source": "gpt-116m"}])
def test_a_message_is_gone_once_it_is_over(shown: Shown, severity: str, changes: dict[str, object]) -> None:
    banner = shown.window.banner
    shown.post(notice=Notice(1, severity, "It went wrong."))  # type: ignore[arg-type]
    shown.post()
    assert banner.text == "It went wrong."
    shown.post(mode="starting")
    assert banner.text == "It went wrong.", "nothing has been opened yet"
    shown.post(mode="paused", **changes)
    assert not banner.isVisible()


def test_a_message_about_a_run_that_goes_on_can_be_read(shown: Shown) -> None:
    shown.post(mode="running", notice=Notice(1, "warning", "Memory is short."))
    shown.post(cursor=Cursor(150, 4, 4))
    assert shown.window.banner.text == "Memory is short."


def test_what_the_window_itself_tells_stays_while_the_run_moves_on(shown: Shown) -> None:
    shown.window.tell_problem("Part of the window failed.")
    shown.post(cursor=Cursor(150, 4, 4))
    assert shown.window.banner.text == "Part of the window failed."
    shown.post(run=2)
    assert not shown.window.banner.isVisible()


def test_a_lost_device_is_told_until_it_is_back(shown: Shown) -> None:
    banner = shown.window.banner
    shown.post(mode="lost", stale=True)
    assert banner.height() < 48, "it takes no more than its text"
    assert "stale" in banner.text
    assert not shown.window.actions_by_name["step_dispatch"].isEnabled()
    shown.window.banner.dismiss()
    assert banner.isVisible(), "cannot be dismissed"
    shown.worker.sent.clear()
    shown.qtbot.mouseClick(shown.child(QPushButton, "banner_recover"), Qt.MouseButton.LeftButton)
    assert shown.commands() == [RecoverDevice()]
    shown.post(mode="paused", stale=False)
    assert not banner.isVisible()


def test_the_status_bar_has_units(shown: Shown) -> None:
    status = shown.window.status
    assert status.adapter.text() == "llvmpipe (LLVM 15, 256 bits) · Vulkan · runs on the CPU"
    assert status.memory.text() == "GPU memory 190 MB"
    assert status.speed.text() == "paused"
    shown.post(mode="running")
    assert status.speed.text() == "42.3 steps/s"
    assert status.undo.text() == "undo 24 steps, 3 dispatches · 50.3 MB of 537 MB"
    shown.post(device=None, steps_per_second=None, mode="failed")
    assert status.memory.text() == "GPU memory n/a"
    assert status.speed.text() == "no run"


def test_every_view_is_shown_each_snapshot_and_each_selection(shown: Shown) -> None:
    shown.post(findings=make_findings())
    recording = [v for v in shown.window.views.values() if isinstance(v, Recording)]
    assert all(view.shown[-1] is shown.worker.current for view in recording)
    shown.window.views["map"].param_selected.emit("norm.weight")
    assert all(view.selected == ["norm.weight"] for view in recording)
    assert shown.window.docks["findings"].windowTitle() == "Findings (3)"


def test_the_keys_overview_is_not_modal(shown: Shown) -> None:
    shown.press(Key.Key_F1)
    label = shown.window.findChild(QLabel, "")
    dialog = shown.window.asking.keys
    assert label is not None
    assert isinstance(dialog, KeysDialog)
    assert dialog.isVisible()
    assert not dialog.isModal()
    for spec in SPECS:
        assert all(key in dialog.label.text() for key in spec.keys)
    room = dialog.screen().availableSize()
    assert dialog.width() <= room.width()
    assert dialog.height() <= room.height()
    dialog.close()


def test_alt_and_a_number_give_a_panel_the_keys(shown: Shown) -> None:
    shown.window.docks["timeline"].hide()
    shown.press(Key.Key_7, Qt.KeyboardModifier.AltModifier)
    assert shown.window.docks["timeline"].isVisible()
    assert shown.window.views["timeline"].hasFocus()


def test_places_are_kept_and_can_be_restored(qtbot: QtBot, tmp_path: Path) -> None:
    path = str(tmp_path / "window.ini")
    first = Shown(qtbot, settings=docks.open_settings(path))
    first.window.docks["findings"].close()
    first.window.docks["values"].setFloating(True)
    first.window.close()

    second = Shown(qtbot, settings=docks.open_settings(path))
    assert not second.window.docks["findings"].isVisible()
    assert second.window.docks["values"].isFloating()
    qtbot.waitUntil(second.window.isActiveWindow)
    second.press(Key.Key_R, Control | Shift)
    assert all(dock.isVisible() and not dock.isFloating() for dock in second.window.docks.values())


def test_places_of_another_version_are_not_used(qtbot: QtBot, tmp_path: Path) -> None:
    path = str(tmp_path / "window.ini")
    first = Shown(qtbot, settings=docks.open_settings(path))
    first.window.docks["findings"].close()
    first.window.close()
    settings = docks.open_settings(path)
    settings.setValue("window/version", docks.LAYOUT_VERSION + 1)
    settings.sync()
    second = Shown(qtbot, settings=docks.open_settings(path))
    assert second.window.docks["findings"].isVisible()


@pytest.mark.parametrize(
    "content",
    [
        b"\x00\xff\xfe garbage [[[",
        b"[window]\nversion=1\ngeometry=@ByteArray(zzz)\nstate=@ByteArray(\\0\\0nothing)\n",
        b"[window]\nversion=1\ngeometry=12\nstate=@Variant(\\0\\0\\0\\x7f)\n",
        b"",
    ],
)
@pytest.mark.qt_log_ignore("QVariant::load: unknown user type")
def test_a_damaged_settings_file_does_not_stop_the_window(
    qtbot: QtBot, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "window.ini"
    path.write_bytes(content)
    shown = Shown(qtbot, settings=docks.open_settings(str(path)))
    assert all(dock.isVisible() for dock in shown.window.docks.values())
    shown.window.docks["findings"].close()
    shown.window.close()
    again = Shown(qtbot, settings=docks.open_settings(str(path)))
    assert not again.window.docks["findings"].isVisible(), "written anew"


def test_settings_that_cannot_be_written_do_not_stop_the_window(qtbot: QtBot, tmp_path: Path) -> None:
    shown = Shown(qtbot, settings=docks.open_settings(str(tmp_path)))
    assert shown.window.docks["map"].isVisible()
    shown.window.close()


def test_closing_ends_the_worker_with_code_0(qtbot: QtBot, tmp_path: Path) -> None:
    worker = FakeWorker()
    painted_before_start: list[bool] = []

    def ready(window: MainWindow) -> None:
        painted_before_start.append(window._painted)
        qtbot.keyClick(window, Key.Key_Q, Control)

    code = run_window(
        lambda: worker, settings_path=str(tmp_path / "w.ini"), views=light_views, on_ready=ready
    )
    assert code == 0
    assert painted_before_start == [True]
    assert worker.closed_with is not None
    assert (tmp_path / "w.ini").exists()


def test_a_worker_that_cannot_be_made_is_told_in_the_window(qtbot: QtBot, tmp_path: Path) -> None:
    def make() -> FakeWorker:
        raise UsageError("There is no adapter: install a driver.")

    told: list[str] = []

    def ready(window: MainWindow) -> None:
        told.append(window.banner.text)
        window.close()

    assert run_window(make, settings_path=str(tmp_path / "w.ini"), views=light_views, on_ready=ready) == 0
    assert told == ["There is no adapter: install a driver."]


def test_commands_before_the_worker_wait_for_it() -> None:
    worker = FakeWorker()
    link = WorkerLink(lambda: worker)
    link.send(StepDispatch())
    assert worker.sent == []
    link.start(lambda snapshot: None)
    link.send(Run())
    assert worker.sent == [StepDispatch(), Run()]
    assert link.close(1.0)
    link.send(Run())
    assert worker.sent == [StepDispatch(), Run()]


CTRL_C = """
import os, signal, sys
sys.path.insert(0, "tests")
from ui_helpers import FakeWorker
from test_window import light_views
from inspector.ui.app import run_window
{during}
code = run_window(FakeWorker, settings_path=sys.argv[1], views=light_views, on_ready=ready)
sys.exit(code)
"""


def _run_script(during: str) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run(
            [sys.executable, "-c", CTRL_C.format(during=during), str(Path(folder) / "w.ini")],
            cwd=Path(__file__).parent.parent,
            env={**os.environ, "QT_QPA_PLATFORM": "offscreen"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_closes_the_window(number: signal.Signals) -> None:
    done = _run_script(
        "import threading\n"
        f"def ready(window): threading.Timer(0.3, os.kill, (os.getpid(), {int(number)})).start()"
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "QThread" not in done.stderr


def test_a_fault_in_a_slot_is_told_in_one_sentence() -> None:
    done = _run_script(
        "from PySide6.QtCore import QTimer\n"
        "def ready(window):\n"
        "    QTimer.singleShot(0, lambda: 1 / 0)\n"
        "    QTimer.singleShot(200, lambda: (print(window.banner.text), window.close()))"
    )
    assert done.returncode == 0, done.stderr
    assert "Part of the window failed (ZeroDivisionError: division by zero)" in done.stdout


def test_the_window_fits_a_small_screen(qtbot: QtBot) -> None:
    worker = FakeWorker()
    bus = Bus(worker.send)
    window = MainWindow(bus, make_views())
    qtbot.addWidget(window)
    window.resize(800, 600)
    window.show()
    window.show_snapshot(make_snapshot(findings=make_findings()))
    qtbot.wait(50)
    assert (window.width(), window.height()) == (800, 600)
    for size in ((1000, 640), (800, 600)):
        window.resize(*size)
        qtbot.wait(20)
        assert (window.width(), window.height()) == size
    bus.blockSignals(True)


def test_all_views_take_a_snapshot_of_every_mode(qtbot: QtBot) -> None:
    worker = FakeWorker()
    bus = Bus(worker.send)
    window = MainWindow(bus, make_views())
    qtbot.addWidget(window)
    window.show()
    worker.start(bus.post_from_worker)
    full = make_snapshot(findings=make_findings())
    bare = Snapshot(0, "starting", "charlm")
    for snapshot in (bare, full, replace(full, mode="running"), replace(full, mode="lost", stale=True), bare):
        window.show_snapshot(snapshot)
        qtbot.wait(30)
    assert window.windowTitle() == "charlm — Optimizer inspector"
    bus.blockSignals(True)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_both_schemes(scheme: theme.Scheme) -> None:
    colours = theme.LIGHT if scheme == "light" else theme.DARK
    for ground in (colours.base, colours.window, colours.raised):
        for name in ("text", "muted", "accent", "info", "warning", "error", "ok"):
            assert theme.contrast(getattr(colours, name), ground) >= theme.AA_CONTRAST, name
        for lane in theme.LANE_COLOURS.values():
            assert theme.contrast(theme.ink(lane, ground), ground) >= theme.AA_CONTRAST
    assert theme.contrast(colours.on_accent, colours.accent) >= theme.AA_CONTRAST


def test_a_picture_of_the_window_and_of_one_view(qtbot: QtBot, tmp_path: Path) -> None:
    workers: list[FakeWorker] = []

    def make() -> FakeWorker:
        workers.append(FakeWorker())
        return workers[-1]

    picture = grab_window(make, size=(1280, 800), scheme="dark", views=light_views)
    assert (picture.width(), picture.height()) == (1280, 800)
    path = tmp_path / "map.png"
    grab_window(make, size=(900, 240), view="map", path=str(path), scale=2, views=light_views)
    saved = QImage(str(path))
    assert (saved.width(), saved.height()) == (1800, 480)
    assert all(worker.closed_with is not None for worker in workers)
    with pytest.raises(UsageError, match="no view 'nope'"):
        grab_window(make, view="nope", views=light_views)


def test_where_the_run_stands_in_words() -> None:
    assert cursor_text(Snapshot(0, "starting", "charlm")) == "opening charlm…"
    assert cursor_text(Snapshot(0, "failed", "x")) == "no source is open"


def test_following_the_system_changes_colours(shown: Shown) -> None:
    calls: list[str] = []
    listener: Callable[[], None] = lambda: calls.append(theme.colours().scheme)  # noqa: E731
    theme.changes().changed.connect(listener)
    theme.apply(application(), "dark")
    assert calls == ["dark"]
    theme.changes().changed.disconnect(listener)
    shown.qtbot.wait(10)
    before = shown.window.grab(shown.window.rect()).toImage().pixelColor(QPoint(2, 60))
    theme.apply(application(), "light")
    shown.qtbot.wait(10)
    after = shown.window.grab(shown.window.rect()).toImage().pixelColor(QPoint(2, 60))
    assert before.lightness() < after.lightness()


# --- the form and the level


def small_device(**limits: int) -> Plan:
    return plan_step(small_layout(), Limits(**limits), Variant())


def test_what_the_device_refuses_is_greyed_out_and_says_why(shown: Shown) -> None:
    plan = small_device(max_storage_buffers_per_shader_stage=5)
    choices = tuple(all_choices(plan))
    shown.post(plan=plan, choices=choices)
    refused = next(x for x in choices if (x.field, x.value) == ("kernel", "f16"))
    assert "over this device's limit of 5" in refused.reason
    combo = shown.child(QComboBox, "kernel_combo")
    assert isinstance(combo, QComboBox)
    row = combo.findText("f16")
    model = combo.model()
    assert not model.flags(model.index(row, 0)) & Qt.ItemFlag.ItemIsEnabled
    assert combo.itemData(row, Qt.ItemDataRole.ToolTipRole) == refused.reason
    combo.setFocus()
    shown.qtbot.keyClick(combo, Key.Key_Down)
    assert shown.commands() == [], "it cannot be chosen"
    action = shown.child(QAction, "form_kernel_f16")
    assert isinstance(action, QAction)
    assert not action.isEnabled()
    assert action.toolTip() == refused.reason
    # On another device it can be.
    plan = small_device()
    shown.post(plan=plan, choices=tuple(all_choices(plan)))
    assert model.flags(model.index(row, 0)) & Qt.ItemFlag.ItemIsEnabled
    assert combo.itemData(row, Qt.ItemDataRole.ToolTipRole) is None
    shown.qtbot.keyClick(combo, Key.Key_Down)
    assert shown.commands() == [SetVariant(Variant(kernel="f16"))]


def show_8bit(shown: Shown) -> None:
    """A run with 8-bit state, where every choice can be made."""
    variant = Variant(kernel="8bit")
    plan = plan_step(layout_for(small_plan().layout.params, Limits(), variant), Limits(), variant)
    shown.post(plan=plan, choices=())
    shown.worker.sent.clear()


def test_the_codec_can_be_chosen_where_there_is_one(shown: Shown) -> None:
    shown.window.resize(1900, 900)
    combo = shown.window.toolbar.form.choices["codec"]
    assert not combo.isVisibleTo(shown.window)
    codecs = [x for x in all_choices(small_plan()) if x.field == "codec" and x.value != "linear"]
    assert [x.reason for x in codecs] == ["It changes nothing in this form of the step."] * 2
    variant = Variant(kernel="8bit")
    params = small_plan().layout.params
    plan = plan_step(layout_for(params, Limits(), variant), Limits(), variant)
    shown.post(plan=plan, choices=tuple(all_choices(plan)))
    shown.qtbot.waitUntil(lambda: combo.isVisibleTo(shown.window))
    combo.setFocus()
    shown.qtbot.keyClick(combo, Key.Key_Down)
    assert shown.commands() == [SetVariant(Variant(kernel="8bit", codec="sqrt"))]


def test_while_it_runs_no_form_can_be_chosen_and_the_reason_is_said(shown: Shown) -> None:
    shown.post(choices=tuple(all_choices(small_plan())))
    combos = {name: combo for name, combo in shown.window.toolbar.form.choices.items() if name != "codec"}
    assert all(combo.isEnabled() for combo in combos.values())
    shown.post(mode="running")
    for combo in combos.values():
        assert not combo.isEnabled()
        assert "Not now: pause first" in combo.toolTip()
    action = shown.child(QAction, "form_fused_no")
    assert isinstance(action, QAction)
    assert not action.isEnabled()
    assert "pause first" in action.toolTip()
    shown.post(mode="lost")
    assert "recover it first" in combos["kernel"].toolTip()
    shown.post(mode="paused")
    assert action.isEnabled()
    assert all("Not now" not in combo.toolTip() for combo in combos.values())


def test_the_menu_has_every_field_of_the_form_and_changes_one(shown: Shown) -> None:
    shown.post(choices=tuple(all_choices(small_plan())))
    # Names of params, and numbers, are typed on the command line: there is no list of them to choose from.
    for field in {field.name for field in fields(Variant)} - {"no_muon", "root_block", "root_every"}:
        assert shown.child(QMenu, f"form_{field}")
    now, other = shown.child(QAction, "form_fused_yes"), shown.child(QAction, "form_fused_no")
    assert isinstance(now, QAction)
    assert isinstance(other, QAction)
    assert now.isChecked()
    other.trigger()
    assert shown.commands() == [SetVariant(Variant(fused=False))]
    assert now.isChecked(), "until it runs so"


@pytest.mark.parametrize(("key", "level"), [(Key.Key_1, "off"), (Key.Key_2, "light"), (Key.Key_3, "full")])
def test_the_level_of_statistics_has_keys_and_a_mark_in_the_menu(
    shown: Shown, key: Qt.Key, level: StatsLevel
) -> None:
    assert shown.window.actions_by_name["stats_light"].isChecked()
    shown.press(key, Control)
    assert shown.commands() == [SetStats(level)]
    shown.post(stats=level)
    levels = ("off", "light", "full")
    assert [shown.window.actions_by_name[f"stats_{x}"].isChecked() for x in levels] == [
        x == level for x in levels
    ]


def test_a_key_goes_to_the_tab_of_the_params(shown: Shown) -> None:
    view = shown.window.views["params"]
    assert not view.isVisible()
    shown.press(Key.Key_8, Qt.KeyboardModifier.AltModifier)
    assert view.isVisible()
