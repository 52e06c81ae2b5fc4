"""Somebody who presses, clicks, types and chooses at random, on a window with a real worker; and what is left."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from event_loop import let_run
from PySide6.QtCore import QEvent, QObject, QPoint, QPointF, Qt, QTimer, QtMsgType, qInstallMessageHandler
from PySide6.QtGui import QKeySequence, QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QAbstractScrollArea,
    QApplication,
    QDialog,
    QFileDialog,
    QHeaderView,
    QMenu,
    QScrollBar,
    QSplitterHandle,
    QTabBar,
    QWidget,
)

from inspector.cli.window import RunOpener
from inspector.runtime.commands import CancelSeek, OpenSource, Pause
from inspector.runtime.snapshots import Snapshot
from inspector.runtime.worker import Worker
from inspector.ui.app import application, make_views
from inspector.ui.bus import Bus
from inspector.ui.main_window import MainWindow
from inspector.ui.map_canvas import MapCanvas
from inspector.ui.timeline_view import TimelineView

# Before any test makes the application.
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

LEFT_ALONE = {"quit", "open", "open_recording", "overlay"}
"""Closing the window ends the test; dialogs of the system ask for files that are not there."""
KEYS = (
    *"abcdefghijklmnopqrstuvwxyz0123456789+-[]/@#:.,*",
    "Up", "Down", "Left", "Right", "Home", "End", "PgUp", "PgDown", "Tab", "Shift+Tab", "Return", "Esc", "Space", "Del",
    "F2", "Backspace", "Ctrl+C", "Ctrl+A", "Ctrl+Home", "Ctrl+End", "Shift+Down", "Ctrl+Left", "Ctrl+Right",
)  # fmt: skip
ANSWER_S = 60.0
OPEN_SOURCES = (
    "synthetic:5000", "charlm:width=16,layers=1,heads=2,ffn=44,context=16,rows=2", "surface:valley",
)  # fmt: skip
"""What an opening of another source is replaced by: some of them take long."""
QUIET = ("This plugin does not support", "propagateSizeHints")


@dataclass
class Monkey:
    """One window and one worker on a recording; `act` does something, `problems` says what went wrong."""

    source: Path
    seed: int
    size: tuple[int, int] = (1280, 800)
    problems: list[str] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    log: list[str] = field(default_factory=list)
    kinds: list[Counter[str]] = field(default_factory=list)
    """The objects of the window by class, each time that they were counted."""

    def __post_init__(self) -> None:
        self.app = application()
        self.random = random.Random(self.seed)
        self._before_hook = sys.excepthook
        sys.excepthook = self._on_exception
        self._before_handler = qInstallMessageHandler(self._on_message)
        opener = RunOpener(adapter=None, undo_mb=16, schedule=None, seed=None, given={})
        self.worker = Worker(opener, str(self.source))
        self.bus = Bus(self._send)
        self.bus.snapshot_arrived.connect(self._on_snapshot)
        self.window = MainWindow(self.bus, make_views())
        self.window.resize(*self.size)
        self.window.show()
        self.window.activateWindow()
        self.worker.start(self.bus.post_from_worker, self.bus.wait_until_idle)
        if not self.until(lambda s: s.mode == "paused" and s.plan is not None):
            self.problems.append("the recording was not opened")

    def _send(self, command: object) -> None:
        if isinstance(command, OpenSource) and command.spec != str(self.source):
            # Those that are listed may be large, or gone.
            command = OpenSource(self.random.choice((*OPEN_SOURCES, str(self.source), "no such file")))
        self.worker.send(command)  # type: ignore[arg-type]

    # --- what it does

    def act(self) -> None:
        """One random thing."""
        kinds: tuple[tuple[Callable[[], str], int], ...] = (
            (self._press, 30),
            (self._shortcut, 15),
            (self._click, 25),
            (self._choose, 12),
            (self._form, 3),
            (self._wheel, 6),
            (self._drag, 6),
            (self._resize, 2),
            (self._tab, 4),
        )
        act = self.random.choices([k for k, _ in kinds], [w for _, w in kinds])[0]
        what = ""
        try:
            what = act()
        except RuntimeError as error:
            # A widget that is gone once the action was done is no fault; anything else is.
            if "already deleted" not in str(error):
                raise
        self.done[act.__name__] += 1
        self.log.append(f"{act.__name__} {what}")
        del self.log[:-12]
        self.app.processEvents()
        self._close_what_blocks()

    def _target(self) -> QWidget:
        return QApplication.focusWidget() or self.window

    def _press(self) -> str:
        key = self.random.choice(KEYS)
        QTest.keySequence(self._target(), QKeySequence(key))
        return f"{key} in {self._target().objectName()}"

    def _shortcut(self) -> str:
        actions = [a for a in self.window.actions() if a.shortcuts() and a.objectName() not in LEFT_ALONE]
        action = self.random.choice(actions)
        QTest.keySequence(self._target(), self.random.choice(action.shortcuts()))
        return action.objectName()

    def _somewhere(self) -> tuple[QWidget, QPoint]:
        tops = [w for w in self.app.topLevelWidgets() if w.isVisible() and not isinstance(w, QFileDialog)]
        top = self.random.choice([self.window] * 6 + tops)
        place = QPoint(
            self.random.randrange(max(top.width(), 1)), self.random.randrange(max(top.height(), 1))
        )
        widget = top.childAt(place) or top
        return widget, widget.mapFrom(top, place)

    def _click(self) -> str:
        widget, place = self._somewhere()
        modifier = self.random.choice(
            [Qt.KeyboardModifier.NoModifier] * 4 + [Qt.KeyboardModifier.ControlModifier]
        )
        button = self.random.choice([Qt.MouseButton.LeftButton] * 8 + [Qt.MouseButton.RightButton])
        click = QTest.mouseDClick if self.random.random() < 0.15 else QTest.mouseClick
        name = f"{type(widget).__name__} {widget.objectName()}"
        # A menu that opens runs a loop of its own: it is closed from inside.
        QTimer.singleShot(0, self._close_what_blocks)
        click(widget, button, modifier, place)
        return name

    def _choose(self) -> str:
        ways = self.window.ways
        doables = [d for d in ways.doables() if d.entry.name not in LEFT_ALONE]
        doable = self.random.choice(doables)
        ways.navigator.open_palette()
        ways.finder.field.setText(doable.entry.title)
        QTest.keyClick(ways.finder.field, Qt.Key.Key_Return)
        return doable.entry.name

    def _form(self) -> str:
        """Another optimizer, kernel or the like, as by the menu: of some of them alone a view has something to show."""
        menus = self.window.form_menu.findChildren(QMenu)
        there = [a for menu in menus for a in menu.actions() if a.isEnabled() and not a.isChecked()]
        if not there:
            return "nothing"
        action = self.random.choice(there)
        action.trigger()
        return action.objectName()

    def _wheel(self) -> str:
        widget, place = self._somewhere()
        delta = QPoint(0, self.random.choice((-360, -120, 120, 360)))
        event = QWheelEvent(
            QPointF(place), QPointF(widget.mapToGlobal(place)), QPoint(), delta, Qt.MouseButton.NoButton,
            self.random.choice((Qt.KeyboardModifier.NoModifier, Qt.KeyboardModifier.ShiftModifier)),
            Qt.ScrollPhase.NoScrollPhase, False,
        )  # fmt: skip
        QApplication.sendEvent(widget, event)
        return widget.objectName()

    def _drag(self) -> str:
        widget, place = self._somewhere()
        if not _can_be_dragged(widget):
            return "nothing"
        to = place + QPoint(self.random.randrange(-300, 300), self.random.randrange(-60, 60))
        modifier = self.random.choice((Qt.KeyboardModifier.NoModifier, Qt.KeyboardModifier.ShiftModifier))
        QTest.mousePress(widget, Qt.MouseButton.LeftButton, modifier, place)
        QTest.mouseMove(widget, to)
        QTest.mouseRelease(widget, Qt.MouseButton.LeftButton, modifier, to)
        return f"{type(widget).__name__} {widget.objectName()}"

    def _resize(self) -> str:
        width, height = self.random.choice(((900, 600), (1280, 800), (1600, 1000), (640, 480)))
        self.window.resize(width, height)
        return f"{width}x{height}"

    def _tab(self) -> str:
        bars = [bar for bar in self.window.findChildren(QTabBar) if bar.isVisible() and bar.count()]
        if bars:
            bar = self.random.choice(bars)
            bar.setCurrentIndex(self.random.randrange(bar.count()))
        return ""

    def _close_what_blocks(self) -> None:
        popup = QApplication.activePopupWidget()
        while popup is not None:
            popup.close()
            popup = QApplication.activePopupWidget()
        for widget in self.app.topLevelWidgets():
            if isinstance(widget, QFileDialog) and widget.isVisible():
                widget.reject()
            elif isinstance(widget, QMenu) and widget.isVisible():
                widget.close()
        if not self.window.isVisible():
            self.window.show()

    # --- what is looked at

    def until(self, holds: Callable[[Snapshot], bool]) -> bool:
        """Whether it comes to hold in time."""
        deadline = time.monotonic() + ANSWER_S
        while self.window.snapshot is None or not (holds(self.window.snapshot) and self.window.at_rest):
            if time.monotonic() > deadline:
                return False
            let_run(5)
        return True

    def calm(self) -> None:
        """Close what is open beside the window, and end what goes on."""
        self.window.ways.finder.leave()
        for dialog in self.app.topLevelWidgets():
            if isinstance(dialog, QDialog):
                dialog.close()
        for command in (CancelSeek(), Pause()):
            self.worker.send(command)
        QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
        self.app.processEvents()

    def answers(self) -> bool:
        """Whether the worker still does what it is told."""
        self.calm()
        before = self.window.snapshot.serial if self.window.snapshot is not None else 0
        self.worker.send(Pause())
        return self.until(lambda s: s.serial > before and s.mode != "running")

    def reopen(self) -> None:
        """Bring the window to where it was at first, so that what is counted can be compared."""
        self.calm()
        self.window.resize(*self.size)
        self.window.restore_default_layout()
        self.worker.send(OpenSource(str(self.source)))
        before = self.window.snapshot.run if self.window.snapshot is not None else 0
        if not self.until(lambda s: s.run > before and s.mode == "paused"):
            self.problems.append("the worker is stuck: the recording cannot be opened again")
        for name in self.window.views:
            self.window.ways.go_to_view(name)
            let_run(1)
        self.calm()

    def counts(self) -> dict[str, int]:
        """What there is of things that leak."""
        objects = Counter(type(o).__name__ for o in self.window.findChildren(QObject))
        self.kinds.append(objects)
        return {
            "threads": threading.active_count(),
            "timers": objects["QTimer"],
            # Of this window alone: those of other tests may be half gone, which ends a process that looks at them.
            "widgets": len(self.window.findChildren(QWidget)),
            "dialogs": len(self.window.findChildren(QDialog)),
            "objects": sum(objects.values()),
        }

    def end(self) -> None:
        """Close the window and the worker; what is left then is a leak."""
        self.calm()
        self.bus.blockSignals(True)
        if not self.worker.close(ANSWER_S):
            self.problems.append("the worker did not end")
        self.window.close()
        self.window.deleteLater()
        QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
        self.app.processEvents()
        sys.excepthook = self._before_hook
        qInstallMessageHandler(self._before_handler)

    def _on_snapshot(self, snapshot: Snapshot) -> None:
        notice = snapshot.notice
        if (
            notice is not None
            and "Something went wrong here" in notice.text
            and notice.text not in self.problems
        ):
            self.problems.append(notice.text)

    def _on_exception(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        last = "".join(traceback.format_exception(kind, error, trace)[-4:])
        self.problems.append(f"{last}after {'; '.join(self.log)}")

    def _on_message(self, kind: QtMsgType, _context: object, text: str) -> None:
        if kind != QtMsgType.QtDebugMsg and not any(each in text for each in QUIET):
            ours = [each for each in traceback.format_stack() if "inspector/" in each]
            self.problems.append(f"Qt: {text} in {''.join(ours[-3:])} after {'; '.join(self.log)}")


def _can_be_dragged(widget: QWidget) -> bool:
    """True where a drag means something inside a view.

    A panel taken by its title is moved by the window system, which no made-up event stands for: Qt is left in the
    middle of it, and ends the process at the next change of the layout.
    """
    parent = widget.parentWidget()
    viewport = isinstance(parent, QAbstractScrollArea) and parent.viewport() is widget
    return viewport or isinstance(
        widget, QScrollBar | QSplitterHandle | QHeaderView | MapCanvas | TimelineView
    )
