"""The start page lists what can be opened and opens it; files dropped on the window are opened and remembered."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from PySide6.QtCore import QMimeData, QPoint, QPointF, QSettings, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QApplication, QFileDialog, QWidget
from pytestqt.qtbot import QtBot
from ui_helpers import FakeWorker, make_snapshot

from inspector.preset import GPT_116M
from inspector.runtime.commands import OpenSource, StepDispatch
from inspector.session import examples
from inspector.session.examples import EXAMPLES
from inspector.ui import docks, theme
from inspector.ui.app import application, make_view, run_window
from inspector.ui.bus import Bus
from inspector.ui.main_window import MainWindow
from inspector.ui.opening import MAX_RECENT
from inspector.ui.options import Options
from inspector.ui.start_view import NO_RECENT, StartView, rows
from inspector.ui.tasks import TASKS
from inspector.ui.view import View

pytestmark = pytest.mark.qt

Key = Qt.Key
Start = Callable[..., "Shown"]


def some_views() -> dict[str, View]:
    return {name: make_view(name) for name in ("map", "plots", "start")}


class Shown:
    """A window with the start page in front and its worker."""

    def __init__(self, qtbot: QtBot, settings: QSettings) -> None:
        theme.apply(application(), "light")
        self.qtbot = qtbot
        self.worker = FakeWorker(make_snapshot(source="charlm"))
        self.bus = Bus(self.worker.send)
        self.window = MainWindow(self.bus, some_views(), settings=settings)
        qtbot.addWidget(self.window)
        self.page = self.window.views["start"]
        assert isinstance(self.page, StartView)
        self.window.show_view("start")
        self.page.setFocus()
        self.window.resize(1280, 800)
        self.window.show()
        qtbot.waitExposed(self.window)
        self.window.activateWindow()
        qtbot.waitUntil(self.window.isActiveWindow)
        self.worker.start(self.bus.post_from_worker)
        qtbot.waitUntil(lambda: self.window.snapshot is self.worker.current and self.window.at_rest)

    def post(self, **changes: object) -> None:
        self.worker.post(**changes)
        self.qtbot.waitUntil(lambda: self.window.snapshot is self.worker.current and self.window.at_rest)

    def titles(self) -> list[str]:
        return [row.title for row in self.page.model.rows]

    def press(self, *keys: Qt.Key) -> None:
        for key in keys:
            self.qtbot.keyClick(QApplication.focusWidget(), key)

    def opened(self) -> list[object]:
        return self.worker.of_type(OpenSource)


@pytest.fixture
def start(qtbot: QtBot, tmp_path: Path) -> Iterator[Start]:
    made: list[Shown] = []

    def show(name: str = "window.ini") -> Shown:
        made.append(Shown(qtbot, docks.open_settings(str(tmp_path / name))))
        return made[-1]

    yield show
    for each in made:
        each.bus.blockSignals(True)


def test_the_page_lists_what_comes_with_it(start: Start) -> None:
    shown = start()
    assert shown.titles() == [
        "Start with", "Live model", "Reference layout", "Guide",
        "Example recordings", *(example.name for example in EXAMPLES),
        "Recent", NO_RECENT,
    ]  # fmt: skip
    assert shown.page.isVisible()
    assert shown.page.table.hasFocus()


@pytest.mark.parametrize("key", [Key.Key_F5, Key.Key_F10, Key.Key_F11])
def test_a_run_that_is_set_going_is_seen_to_go(start: Start, key: Qt.Key) -> None:
    shown = start()
    shown.post()
    shown.press(key)
    assert shown.window.views["plots"].isVisible()
    assert not shown.page.isVisible()


def test_keys_choose_and_enter_opens(start: Start) -> None:
    shown = start()
    shown.press(Key.Key_Down, Key.Key_Return)
    # Headings are passed over.
    assert shown.opened() == [OpenSource(GPT_116M)]
    assert shown.window.views["plots"].isVisible()
    shown.press(Key.Key_F10)
    assert shown.worker.sent[-1] == StepDispatch()
    shown.qtbot.keyClick(shown.window, Key.Key_0, Qt.KeyboardModifier.AltModifier)
    assert shown.page.isVisible()
    shown.press(Key.Key_Down, Key.Key_Down, Key.Key_Return)
    assert shown.opened()[-1] == OpenSource(str(EXAMPLES[0].path))


def test_a_recording_that_is_opened_from_elsewhere_is_seen(start: Start) -> None:
    shown = start()
    shown.post()
    shown.window.opening.chosen.emit("run.session")
    assert shown.opened() == [OpenSource("run.session")]
    assert shown.window.views["plots"].isVisible()
    assert not shown.page.isVisible()


def test_the_guide_opens_beside_the_window_and_leaves_it_the_keys(start: Start) -> None:
    shown = start()
    shown.post()
    shown.press(Key.Key_Down, Key.Key_Down, Key.Key_Return)
    guide = shown.window.asking.guide
    assert guide is not None
    assert guide.isVisible()
    assert shown.opened() == []
    assert shown.page.isVisible(), "nothing was opened, so the page stays"
    for number, task in enumerate(TASKS):
        guide.tasks.setCurrentIndex(number)
        text = guide.text.toPlainText()
        for step in task.steps:
            for said in (step.do, step.see):
                assert re.sub("[`*]", "", said) in text
        assert task.code in text
    guide.activateWindow()
    guide.tasks.setFocus()
    shown.qtbot.waitUntil(guide.isActiveWindow)
    shown.qtbot.keyClick(guide.tasks, Key.Key_F10)
    assert shown.worker.sent[-1] == StepDispatch()
    guide.close()
    shown.window.actions_by_name["guide"].trigger()
    assert guide.isVisible()
    assert guide.tasks.currentIndex() == len(TASKS) - 1, "it is where it was left"


def test_a_double_click_opens(start: Start) -> None:
    shown = start()
    table = shown.page.table
    row = shown.titles().index("diverges")
    where = table.visualRect(shown.page.model.index(row, 1)).center()
    shown.qtbot.mouseClick(table.viewport(), Qt.MouseButton.LeftButton, pos=where)
    shown.qtbot.mouseDClick(table.viewport(), Qt.MouseButton.LeftButton, pos=where)
    assert shown.opened() == [OpenSource(str(EXAMPLES[2].path))]
    heading = table.visualRect(shown.page.model.index(0, 0)).center()
    shown.window.show_view("start")
    shown.qtbot.mouseDClick(table.viewport(), Qt.MouseButton.LeftButton, pos=heading)
    assert len(shown.opened()) == 1


def test_what_is_open_goes_on(start: Start) -> None:
    shown = start()
    shown.press(Key.Key_Return)
    assert shown.opened() == []
    assert shown.window.views["plots"].isVisible()
    # One that could not be opened is tried again.
    shown.window.show_view("start")
    shown.page.setFocus()
    shown.post(mode="failed", plan=None, cursor=None)
    shown.press(Key.Key_Return)
    assert shown.opened() == [OpenSource("charlm")]


def test_what_was_opened_is_remembered(start: Start, tmp_path: Path) -> None:
    shown = start()
    state = tmp_path / "a.safetensors"
    state.write_bytes(b"")
    for i, source in enumerate((str(state), "synthetic:1000", str(EXAMPLES[0].path), "charlm", str(state))):
        shown.post(source=source, run=i + 1)
        shown.post(source=source, run=i + 1)
    # Not what has its own line anyway; the newest first, each once.
    assert shown.titles()[-3:] == ["Recent", "a.safetensors", "synthetic:1000"]
    assert shown.page.model.rows[-2].text == str(tmp_path)
    shown.post(source="never.safetensors", mode="failed", plan=None, cursor=None, run=9)
    assert shown.titles()[-2:] == ["a.safetensors", "synthetic:1000"]
    again = start()
    assert again.titles()[-3:] == ["Recent", "a.safetensors", "synthetic:1000"]
    for i in range(20):
        again.post(source=f"synthetic:{i + 1}", run=20 + i)
    assert again.titles()[-MAX_RECENT:] == [f"synthetic:{20 - i}" for i in range(MAX_RECENT)]
    again.post(source="charlm", run=50)
    state.unlink()
    gone = rows((str(state),))[-1]
    assert gone.spec is None
    assert "not there any more" in gone.text


@pytest.mark.qt_log_ignore("QVariant::load: unknown user type")
def test_a_list_that_was_damaged_is_none(qtbot: QtBot, tmp_path: Path) -> None:
    path = tmp_path / "w.ini"
    path.write_text("[recent]\nsources=@Variant(\\0\\0\\0\\x7f)\n")
    shown = Shown(qtbot, docks.open_settings(str(path)))
    assert shown.titles()[-1] == NO_RECENT
    shown.post(source="synthetic:7", run=1)
    assert shown.titles()[-1] == "synthetic:7"
    shown.bus.blockSignals(True)


def test_one_entry_comes_back_as_one(start: Start) -> None:
    start().post(source="synthetic:7,8", run=1)
    assert start().titles()[-2:] == ["Recent", "synthetic:7,8"]


def test_without_examples_the_page_has_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(examples, "FOLDERS", (tmp_path,))
    assert [row.title for row in rows(())] == [
        "Start with",
        "Live model",
        "Reference layout",
        "Guide",
        "Recent",
        NO_RECENT,
    ]


# --- dropped, and chosen in a dialog


def drop(target: QWidget, *paths: Path, text: str = "") -> bool:
    """Drag files over a widget and let go, as Qt passes that on; whether somebody took it."""
    data = QMimeData()
    if text:
        data.setText(text)
    else:
        data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
    middle, actions = target.rect().center(), Qt.DropAction.CopyAction | Qt.DropAction.MoveAction
    none, left = Qt.KeyboardModifier.NoModifier, Qt.MouseButton.LeftButton
    entering = QDragEnterEvent(QPoint(middle), actions, data, left, none)
    QApplication.sendEvent(target, entering)
    if entering.isAccepted():
        dropping = QDropEvent(QPointF(middle), actions, data, left, none)
        QApplication.sendEvent(target, dropping)
        assert dropping.dropAction() == Qt.DropAction.CopyAction
    return entering.isAccepted()


def test_a_dropped_file_is_opened_wherever_it_lands(start: Start, tmp_path: Path) -> None:
    shown = start()
    assert drop(shown.window, tmp_path / "a b.safetensors")
    assert shown.opened() == [OpenSource(str(tmp_path / "a b.safetensors"))]
    for name in ("map", "start"):
        assert drop(shown.window.views[name], tmp_path / f"{name}.session")
        assert shown.opened()[-1] == OpenSource(str(tmp_path / f"{name}.session"))
    # The database of a recording stands for it.
    assert drop(shown.window, tmp_path / "run.session" / "session.sqlite")
    assert shown.opened()[-1] == OpenSource(str(tmp_path / "run.session"))


def test_dropped_kernels_go_to_where_they_are_edited(start: Start, tmp_path: Path) -> None:
    shown = start()
    taken: list[list[Path]] = []
    shown.window.opening.kernels_chosen.connect(taken.append)
    files = [tmp_path / "a.wgsl", tmp_path / "b.WGSL"]
    for file in files:
        file.write_text("")
    assert drop(shown.window, *files)
    # A folder of them as --shaders takes it; one with a checkpoint in it is opened as that.
    assert drop(shown.window, tmp_path)
    assert taken == [files, files]
    assert shown.opened() == []
    (tmp_path / "model.safetensors").write_text("")
    assert drop(shown.window, tmp_path)
    assert shown.opened() == [OpenSource(str(tmp_path))]


def test_what_is_no_file_is_not_taken(start: Start, tmp_path: Path) -> None:
    shown = start()
    assert not drop(shown.window, text="not a file")
    assert drop(shown.window, tmp_path / "a.session", tmp_path / "b.session")
    assert shown.opened() == []
    assert "Drop one recording at a time" in shown.window.banner.text


def test_the_files_of_a_checkpoint_are_opened_together(start: Start, tmp_path: Path) -> None:
    """Dropped or chosen at once; listed in one line, and gone when one of them is."""
    shown = start()
    files = [tmp_path / "model.safetensors", tmp_path / "optimizer.pt"]
    for file in files:
        file.touch()
    spec = "+".join(map(str, files))
    assert drop(shown.window, *files)
    assert shown.opened() == [OpenSource(spec)]
    shown.qtbot.keyClick(shown.window, Key.Key_O, Qt.KeyboardModifier.ControlModifier)
    dialog = shown.window.findChild(QFileDialog, "open_dialog")
    assert isinstance(dialog, QFileDialog)
    assert dialog.fileMode() == QFileDialog.FileMode.ExistingFiles
    dialog.filesSelected.emit([str(file) for file in files])
    assert shown.opened()[1:] == [OpenSource(spec)]
    dialog.filesSelected.emit([str(files[0])])
    dialog.fileSelected.emit(str(files[0]))
    assert shown.opened()[2:] == [OpenSource(str(files[0]))]
    dialog.close()
    row = rows([spec])[-1]
    assert (row.title, row.text, row.spec) == ("model.safetensors + optimizer.pt", str(tmp_path), spec)
    files[1].unlink()
    assert rows([spec])[-1].spec is None


def test_ctrl_shift_o_asks_for_a_recording(start: Start, tmp_path: Path) -> None:
    shown = start()
    (tmp_path / "run.session").mkdir()
    shown.qtbot.keyClick(
        shown.window, Key.Key_O, Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier
    )
    dialog = shown.window.findChild(QFileDialog, "session_dialog")
    assert isinstance(dialog, QFileDialog)
    assert dialog.fileMode() == QFileDialog.FileMode.Directory
    dialog.fileSelected.emit(str(tmp_path / "run.session"))
    assert shown.opened() == [OpenSource(str(tmp_path / "run.session"))]
    dialog.close()


def test_a_start_without_source_shows_the_page_and_opens_the_live_model(qtbot: QtBot, tmp_path: Path) -> None:
    seen: list[bool] = []

    def ready(window: MainWindow) -> None:
        page = window.views["start"]
        seen.extend((page.isVisible(), page.table.hasFocus() or window.focusWidget() is page.table))  # type: ignore[attr-defined]
        window.close()

    worker = FakeWorker()
    code = run_window(
        lambda: worker,
        settings_path=str(tmp_path / "w.ini"),
        views=some_views,
        on_made=lambda window: window.begin_with("start"),
        on_ready=ready,
    )
    assert code == 0
    assert seen == [True, True]
    assert worker.of_type(OpenSource) == []


@pytest.mark.parametrize(
    ("words", "wanted", "front"),
    [
        ((), True, ["start"]),
        ((), False, []),
        (("--lr", "0.1"), True, ["start"]),
        (("charlm",), True, []),
        (("synthetic:100",), True, []),
        (("--lockstep", "dynamic"), True, []),
    ],
)
def test_the_command_line_decides_what_is_in_front(
    words: tuple[str, ...],
    wanted: bool,
    front: list[str],
    call: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    preferences = SimpleNamespace(options=Options(start_page=wanted), offer=lambda adapters: None)
    window = SimpleNamespace(preferences=preferences, begin_with=asked.append)
    monkeypatch.setattr("inspector.cli.window.display_problem", lambda: None)
    monkeypatch.setattr("inspector.ui.app.run_window", lambda make, **more: more["on_made"](window) or 0)
    assert call(*words)[0] == 0
    assert asked == front
