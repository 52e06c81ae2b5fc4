"""Somebody who does what the guide says, word for word, in a window with a real worker.

`python tests/guided.py` writes the pictures of docs/ anew, as the window looks after the steps that they belong to;
names of pictures as arguments write these alone.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from event_loop import let_run
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QDialog, QFileDialog, QLineEdit, QWidget

from inspector.cli.window import RunOpener
from inspector.runtime.snapshots import Snapshot
from inspector.runtime.worker import Worker
from inspector.ui import theme
from inspector.ui.app import application, make_views
from inspector.ui.breakpoints_view import BreakpointsView
from inspector.ui.bus import Bus
from inspector.ui.main_window import MainWindow
from inspector.ui.screenshot import drawn, save_picture
from inspector.ui.start_view import StartView
from inspector.ui.tasks import TASKS, Step

# Before anything makes the application.
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "pictures"
SIZE = (1440, 900)
LIMIT_S = 300.0
ANSWER_S = 0.3
FEW = 20
"""Steps that a run goes on for before it is paused."""
KEY = re.compile(r"(Ctrl\+|Alt\+|Shift\+)*(F\d+|Enter|Delete|Down|Tab|[A-Z0-9])")
NAMES = {"Enter": "Return", "Delete": "Del"}
TOKEN = re.compile(
    r"choose \*(?P<value>[\w-]+)\* as \*(?P<combo>\w+)\*"
    r"|\*(?P<row>[^*]+)\*"
    r"|choose the folder (?P<folder>\S+)"
    r"|in the field (?P<field>\S+)"
    r"|type `(?P<typed>[^`]+)`"
    r"|(?P<each>Select each breakpoint in the list)"
    r"|`(?P<key>[^`]+)`(?P<times> twice)?"
)


class Person:
    """A window with the start page in front, as it opens; `do` follows one step of the guide."""

    def __init__(self, source: str = "charlm", scheme: theme.Scheme = "light") -> None:
        self.app = application()
        theme.apply(self.app, scheme)
        self.worker = Worker(RunOpener(adapter=None, undo_mb=512, schedule=None, seed=None, given={}), source)
        self.bus = Bus(self.worker.send)
        self.window = MainWindow(self.bus, make_views())
        self.window.resize(*SIZE)
        self.window.begin_with("start")
        self.window.show()
        self.window.activateWindow()
        self.worker.start(self.bus.post_from_worker, self.bus.wait_until_idle)
        self.until(lambda s: s.mode == "paused" and s.plan is not None)

    def close(self) -> None:
        """End the run and the window."""
        self.bus.blockSignals(True)
        for widget in self.app.topLevelWidgets():
            if isinstance(widget, QDialog):
                widget.close()
        assert self.worker.close(LIMIT_S)
        self.window.close()
        self.window.deleteLater()

    # --- what is seen

    @property
    def snapshot(self) -> Snapshot:
        """What is on show."""
        assert self.window.snapshot is not None
        return self.window.snapshot

    def until(self, holds: Callable[[Snapshot], bool], what: str = "") -> Snapshot:
        """The snapshot on show once it is one for which `holds`."""
        deadline = time.monotonic() + LIMIT_S
        while self.window.snapshot is None or not holds(self.window.snapshot):
            if time.monotonic() > deadline:
                seen = self.window.snapshot
                told = seen and (seen.source, seen.mode, seen.cursor, seen.notice, seen.beside.changes)
                raise TimeoutError(f"not seen: {what}; last {told}")
            let_run(10)
        return self.window.snapshot

    def rest(self) -> None:
        """Let what was asked for arrive: the worker answers whatever it is sent, the sooner the less it has to do."""
        before, deadline = self.window.snapshot, time.monotonic() + ANSWER_S
        while self.window.snapshot is before and time.monotonic() < deadline:
            let_run(10)
        let_run(50)
        self.until(lambda s: s.mode != "starting" and (s.glance is None or not s.glance.of or s.following))

    def picture(self, path: Path, widget: QWidget | None = None) -> None:
        """The window as it looks now."""
        let_run(600)
        save_picture(drawn(widget or self.window, 1.0), path)

    # --- what is done

    def do(self, step: Step, folder: Path = Path(), *, rest: bool = True) -> None:
        """Follow a step word for word, to the end of what it begins if `rest`. A file dialog is given what lies in
        `folder`."""
        # What follows "or" is another way to the same.
        text = re.split(r"; or |, or |` or `", step.do)[0]
        text = text if text.count("`") % 2 == 0 else f"{text}`"
        for token in TOKEN.finditer(text):
            self._follow(token, folder)
            self.rest()
        if rest:
            self.until(_at_rest)
        if step.do == "`B`":
            self.until(lambda s: s.copy_gbps is not None)

    def _follow(self, token: re.Match[str], folder: Path) -> None:
        if token["combo"]:
            name, value = token["combo"], token["value"]
            combo = self.window.toolbar.form.choices[name]
            if combo.isVisible():
                combo.setFocus()
                combo.setCurrentText(value)
                combo.activated.emit(combo.currentIndex())
            else:
                assert self.window.toolbar.form.button.isVisible()
                action = self.window.form_menu.findChild(QAction, f"form_{name}_{value}")
                assert action is not None
                action.trigger()
            self.until(lambda s: s.plan is not None and getattr(s.plan.variant, name) == value)
        elif token["row"]:
            self._select(token["row"])
        elif token["folder"]:
            self._choose(folder / token["folder"])
        elif token["field"]:
            self._go_to_field(token["field"])
        elif token["typed"]:
            self._type(token["typed"])
        elif token["each"]:
            self._remove_breakpoints()
        else:
            self._press(token["key"], 2 if token["times"] else 1)

    def _press(self, key: str, times: int) -> None:
        assert KEY.fullmatch(key), f"{key} is no key"
        before = self.snapshot
        if key == "F5" and before.mode == "running":
            assert before.cursor is not None
            enough = before.cursor.step + FEW
            self.until(lambda s: s.mode != "running" or (s.cursor is not None and s.cursor.step >= enough))
        for _ in range(times):
            QTest.keySequence(_target(self.window), QKeySequence(NAMES.get(key, key)))
            self.rest()
        if key in ("F5", "F10", "F11"):
            self.until(lambda s: s.mode != before.mode or s.cursor != before.cursor)
        if key == "Enter":
            # A dialog that has something to do closes once it is done.
            self.until(lambda _: _dialog() is None)

    def _type(self, text: str) -> None:
        target = _target(self.window)
        QTest.keyClicks(target, text)

    def _select(self, title: str) -> None:
        page = self.window.views["start"]
        if isinstance(page, StartView) and page.isVisible():
            row = [row.title for row in page.model.rows].index(title)
            page.table.setCurrentIndex(page.model.index(row, 0))

    def _choose(self, path: Path) -> None:
        dialog = next(w for w in self.app.topLevelWidgets() if isinstance(w, QFileDialog) and w.isVisible())
        field = dialog.findChild(QLineEdit, "fileNameEdit")
        assert field is not None
        field.setText(str(path))
        field.setFocus()
        dialog.activateWindow()

    def _go_to_field(self, symbol: str) -> None:
        """By Tab, from where the keys are."""
        for _ in range(FEW):
            now = QApplication.focusWidget()
            if now is not None and now.accessibleName() == symbol:
                return
            QTest.keySequence(now, QKeySequence("Tab"))
        raise AssertionError(f"Tab does not lead to the field {symbol}")

    def _remove_breakpoints(self) -> None:
        view = self.window.views["breakpoints"]
        assert isinstance(view, BreakpointsView)
        view.table.setFocus()
        while len(self.snapshot.breakpoints) > 1:
            QTest.keySequence(view.table, QKeySequence("Del"))
            self.rest()


def _target(window: QWidget) -> QWidget:
    """What has the keys: in a dialog that is open, or else in the window."""
    dialog = _dialog()
    if dialog is not None:
        return dialog.focusWidget() or dialog
    if not window.isActiveWindow():
        # As a window manager does once a dialog is closed.
        window.activateWindow()
        let_run(50)
    return QApplication.focusWidget() or window.focusWidget() or window


def _dialog() -> QDialog | None:
    tops = (w for w in QApplication.topLevelWidgets() if isinstance(w, QDialog) and w.isVisible())
    return next((w for w in tops if w.objectName() != "guide_window"), None)


@dataclass(frozen=True)
class Shot:
    """A picture: of which task, after which of its steps, counted from 1, in which colours, and of which moment."""

    task: int
    after: int
    scheme: theme.Scheme = "light"
    ready: Callable[[Snapshot], bool] = lambda s: s.mode == "paused"


SHOTS = {
    "step-pipeline": Shot(1, 2),
    "step-values": Shot(1, 4),
    "step-microscope": Shot(1, 7),
    "record-follow": Shot(2, 3),
    "stop-nan": Shot(3, 2, ready=lambda s: s.stop is not None and s.values is not None),
    "stop-policies": Shot(3, 4, "dark", ready=lambda s: s.policies is not None and s.values is not None),
    "what-if": Shot(4, 3),
    "what-if-compare": Shot(
        4, 4, ready=lambda s: s.beside.diff is not None and s.beside.diff.curves is not None
    ),
    "what-if-8bit": Shot(
        4, 6, ready=lambda s: s.eight_bit is not None and (s.eight_bit.drift_step or 0) > 25
    ),
    "profile": Shot(5, 4, ready=lambda s: s.comparison is not None and s.comparing is None),
}


STOPS = 3
"""The task in which a run stops by itself."""


def write_pictures(names: list[str]) -> Iterator[Path]:
    """Make those of SHOTS, or all, each in a folder of its own to work in."""
    PICTURES.mkdir(exist_ok=True)
    if not names or "guide" in names:
        person = Person()
        person.window.asking.show_guide()
        guide = person.window.asking.guide
        assert guide is not None
        person.picture(PICTURES / "guide.png", guide)
        person.picture(PICTURES / "start.png")
        person.close()
        yield PICTURES / "guide.png"
        yield PICTURES / "start.png"
    for name, shot in SHOTS.items():
        if names and name not in names:
            continue
        folder = Path(tempfile.mkdtemp())
        os.chdir(folder)
        script = _train(folder) if shot.task == 2 else None
        person = Person(scheme=shot.scheme)
        try:
            for step in TASKS[shot.task - 1].steps[: shot.after]:
                person.do(step, folder)
                if shot.task == STOPS:
                    # Whoever follows the guide goes on once it has stopped.
                    person.until(lambda s: s.mode == "paused")
            person.until(shot.ready)
            person.picture(PICTURES / f"{name}.png")
        finally:
            person.close()
            if script is not None:
                script.kill()
                script.wait()
            os.chdir(ROOT)
            shutil.rmtree(folder)
        yield PICTURES / f"{name}.png"


def _at_rest(snapshot: Snapshot) -> bool:
    beside = snapshot.beside
    going = beside.what_if is not None or (beside.diff is not None and beside.diff.share is not None)
    return not going and snapshot.comparing is None and snapshot.weighing is None


def _train(folder: Path) -> subprocess.Popen[bytes]:
    """The training script of docs/, under way."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    python = os.environ.get("PYTHON_WITH_TORCH", sys.executable)
    script = subprocess.Popen(
        [python, str(ROOT / "docs" / "train.py")], cwd=folder, env=environment, stdout=subprocess.DEVNULL
    )
    while not (folder / "run.session" / "session.sqlite").exists():
        time.sleep(0.2)
    time.sleep(8)
    return script


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"guide, {', '.join(SHOTS)}")
    for written in write_pictures(parser.parse_args().names):
        print(written)  # noqa: T201
