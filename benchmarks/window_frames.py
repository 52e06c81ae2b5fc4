"""A person at the window: which frames take over 16 ms and why, and how long a key takes to the screen.

    python benchmarks/window_frames.py [SOURCE] [--size 1600x1000] [--seconds 4] [--only NAME]

Steps, runs, pans, zooms, scrubs, goes through the tabs, sorts, and opens the palette, with the real worker and device.
The window is a real one where DISPLAY is set, else off screen. How frames are judged says frame_watch.py. Exit code 1
where a frame took longer than 16 ms, or an answer to a key longer than 100 ms to be on screen.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from frame_watch import FRAME_MS, FrameWatch, NamingApplication, quantile, table
from PySide6.QtCore import QEvent, QObject, QPoint, QPointF, Qt, QTimer
from PySide6.QtGui import QKeySequence, QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QTableView, QWidget

from inspector.cli.window import RunOpener
from inspector.plan import Variant
from inspector.runtime.commands import Pause, Run
from inspector.runtime.worker import Worker
from inspector.ui.app import run_window
from inspector.ui.deferred import DeferredView
from inspector.ui.docks import PANELS
from inspector.ui.main_window import MainWindow
from inspector.ui.map_canvas import MapCanvas

ANSWER_MS = 100.0
GESTURE_MS = 16
KEY_MS = 250
"""Between two keys: a person's fast pace."""
Act = Callable[[int], None]


class Keys(QObject):
    """How long it takes from a key to the paint that shows its answer, in milliseconds by key."""

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self._window = window
        self._waiting: tuple[str, float, float, Callable[[], bool]] | None = None
        self.took: dict[str, list[tuple[float, float]]] = {}
        window.installEventFilter(self)

    @property
    def is_waiting(self) -> bool:
        """True while a key has no answer."""
        return self._waiting is not None

    def press(self, name: str, keys: str, answered: Callable[[], bool], at: QWidget | None = None) -> None:
        """Press `keys` unless another one still waits for its answer, which is there once `answered` holds."""
        if self._waiting is None:
            self._waiting = (name, time.perf_counter(), time.process_time(), answered)
            QTest.keySequence(at or self._window, QKeySequence(keys))

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """The window is about to paint: looked at again once it has."""
        if self._waiting is not None and event.type() == QEvent.Type.UpdateRequest and self._waiting[3]():
            waiting, self._waiting = self._waiting, None
            QTimer.singleShot(0, lambda: self._painted(waiting))
        return False

    def _painted(self, waiting: tuple[str, float, float, Callable[[], bool]]) -> None:
        name, since, cpu, _ = waiting
        wall_ms = (time.perf_counter() - since) * 1e3
        self.took.setdefault(name, []).append((wall_ms, (time.process_time() - cpu) * 1e3))

    def lines(self) -> list[str]:
        """A line a key: from the key to its answer on screen."""
        found = [
            "  key to screen           times   p50    p90  worst ms   (processor of all threads: p50 ms)"
        ]
        for name, took in self.took.items():
            ms = [wall for wall, _ in took]
            cpu = quantile([used for _, used in took], 0.5)
            p50, p90 = quantile(ms, 0.5), quantile(ms, 0.9)
            found.append(f"  {name:<24}{len(ms):>5}{p50:>6.0f}{p90:>7.0f}{max(ms):>7.0f}      ({cpu:.0f})")
        return found


class Person:
    """What is done at the window, an activity after the other."""

    def __init__(self, window: MainWindow, worker: Worker, seconds: float, only: str) -> None:
        self.window, self.worker, self.seconds = window, worker, seconds
        self.watch, self.keys, self.done = FrameWatch(window), Keys(window), Keys(window)
        self.acts = [each for each in self._activities() if only in each[0]]
        self._beat = QTimer(window)
        self._next: Iterator[tuple[str, int, Act, bool]] = iter(self.acts)

    def begin(self) -> None:
        """Do it all; the window is closed at the end."""
        self.watch.start()
        self._go_on()

    def _activities(self) -> list[tuple[str, int, Act, bool]]:
        """Name, milliseconds between two gestures, the gesture, whether the run goes on meanwhile."""
        return [
            ("step a dispatch", KEY_MS, self._press_f10, False),
            ("step an iteration", KEY_MS, self._press_f11, False),
            ("go back", KEY_MS, self._press_back, False),
            ("zoom the map", GESTURE_MS, self._zoom, False),
            ("pan the map", GESTURE_MS, self._pan, False),
            ("select params", 200, self._select, False),
            ("run", 1000, lambda i: None, True),
            ("run and zoom", GESTURE_MS, self._zoom, True),
            ("run and pan", GESTURE_MS, self._pan, True),
            ("scrub", GESTURE_MS, self._scrub, False),
            ("zoom the plots", GESTURE_MS, self._zoom_plot, False),
            ("change tabs", 400, self._tab, False),
            ("change tabs again", 400, self._tab, False),
            ("run, change tabs", 400, self._tab, True),
            ("sort tables", 400, self._sort, False),
            ("open the palette", 400, self._palette, False),
        ]

    def _go_on(self) -> None:
        activity = next(self._next, None)
        self._beat.stop()
        if activity is None:
            self.watch.stop()
            self.window.close()
            return
        name, period, act, running = activity
        self.worker.send(Run() if running else Pause())
        self.watch.doing = "(between)"
        self._beat = QTimer(self.window, interval=period, timerType=Qt.TimerType.PreciseTimer)
        beats = [0]

        def beat() -> None:
            beats[0] += 1
            act(beats[0])

        self._beat.timeout.connect(beat)

        def start() -> None:
            self.watch.doing = name
            self._beat.start()
            QTimer.singleShot(int(self.seconds * 1000), self._go_on)

        QTimer.singleShot(500, start)

    # --- keys

    def _cursor_moves(self) -> Callable[[], bool]:
        window = self.window
        before = window.snapshot.cursor if window.snapshot else None
        return lambda: window.snapshot is not None and window.snapshot.cursor != before

    def _step(self, keys: str) -> None:
        if self.done.is_waiting:
            # What is said to go on would be the key before.
            return
        moved, working = self._cursor_moves(), self.window.status.working
        self.done.press(f"{keys}, its result", "", moved)
        # Where it goes on, that is said.
        self.keys.press(keys, keys, lambda: moved() or working.isVisible())

    def _press_f10(self, _i: int) -> None:
        self._step("F10")

    def _press_f11(self, _i: int) -> None:
        self._step("F11")

    def _press_back(self, _i: int) -> None:
        self._step("Shift+F10")

    def _palette(self, i: int) -> None:
        finder = self.window.ways.finder
        if i % 4 == 1:
            self.keys.press("Ctrl+Shift+P", "Ctrl+Shift+P", finder.isVisible)
        elif i % 4 == 0:
            finder.leave()
        else:
            self.keys.press("a letter in the palette", "ts"[i % 2], lambda: True, finder.field)

    def _tab(self, i: int) -> None:
        panel = max(PANELS, key=lambda each: len(each.views))
        name = panel.views[i % len(panel.views)]
        view = self.window.views[name]
        first = isinstance(view, DeferredView) and not view.is_made
        self.keys.press("a view, first time" if first else "a view", "", view.isVisible)
        self.window.ways.go_to_view(name)

    # --- the mouse

    def _canvas(self) -> MapCanvas:
        canvas = self.window.findChild(MapCanvas)
        assert canvas is not None
        return canvas

    def _zoom(self, i: int) -> None:
        _wheel(self._canvas(), 0.4, 120 if i // 40 % 2 == 0 else -120)

    def _pan(self, i: int) -> None:
        canvas = self._canvas()
        if i == 1:
            for _ in range(6):
                _wheel(canvas, 0.5, 120)
        _drag(canvas, i, 0.5)

    def _scrub(self, i: int) -> None:
        _drag(self.window.views["timeline"], i, 0.4)

    def _select(self, i: int) -> None:
        canvas = self._canvas()
        at = QPoint(int(canvas.width() * (0.15 + 0.07 * (i % 10))), canvas.height() // 2)
        QTest.mouseClick(canvas, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier, at)

    def _zoom_plot(self, i: int) -> None:
        if i == 1:
            self.window.show_view("plots")
        for view in self.window.views["plots"].findChildren(QWidget, "qt_scrollarea_viewport"):
            if view.isVisible():
                _wheel(view, 0.5, 120 if i // 30 % 2 == 0 else -120)
                return

    def _sort(self, i: int) -> None:
        if i == 1:
            self.window.show_view("params")
        for each in self.window.views["params"].findChildren(QTableView):
            if each.isVisible() and each.isSortingEnabled() and each.model().columnCount():
                header = each.horizontalHeader()
                columns = [k for k in range(header.count()) if not header.isSectionHidden(k)]
                if columns:
                    order = Qt.SortOrder.AscendingOrder if i % 2 else Qt.SortOrder.DescendingOrder
                    each.sortByColumn(columns[i // 2 % len(columns)], order)
                    return


def _wheel(widget: QWidget, across: float, delta: int) -> None:
    at = QPointF(widget.width() * across, widget.height() * 0.5)
    event = QWheelEvent(
        at, QPointF(widget.mapToGlobal(at)), QPoint(), QPoint(0, delta), Qt.MouseButton.NoButton,
        Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase, False,
    )  # fmt: skip
    QApplication.sendEvent(widget, event)


def _drag(widget: QWidget, i: int, down: float) -> None:
    """One move of a drag that goes to and fro over the middle of a widget."""
    width, turn = widget.width(), i % 120
    share = turn / 60 if turn < 60 else (120 - turn) / 60
    at = QPoint(int(width * (0.2 + 0.6 * share)), int(widget.height() * down))
    if turn == 0:
        QTest.mouseRelease(widget, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier, at)
    if turn in (0, 1):
        QTest.mousePress(widget, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier, at)
    QTest.mouseMove(widget, at)


def main() -> int:
    """Watch, then tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("source", nargs="?", default="charlm")
    parser.add_argument("--size", default="1600x1000")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each activity")
    parser.add_argument("--only", default="", help="activities with this in their name")
    parser.add_argument(
        "--events", action="store_true", help="name the events of long frames; costs time itself"
    )
    given = parser.parse_args()
    application = NamingApplication(sys.argv[:1]) if given.events else None
    width, _, height = given.size.partition("x")
    opener = RunOpener(adapter=None, undo_mb=None, schedule=None, seed=None, given={})
    worker = Worker(opener, given.source, Variant())
    people: list[Person] = []

    def ready(window: MainWindow) -> None:
        window.resize(int(width), int(height))
        # Keys go to the window that is active, be there no window manager to make it so.
        window.activateWindow()
        person = Person(window, worker, given.seconds, given.only)
        people.append(person)
        waiting = QTimer(window, interval=50)

        def begin() -> None:
            if worker.mode == "paused":
                waiting.stop()
                QTimer.singleShot(1000, person.begin)

        waiting.timeout.connect(begin)
        waiting.start()

    load = os.getloadavg()[0]
    assert application is None or application is QApplication.instance()
    with tempfile.TemporaryDirectory() as folder:
        code = run_window(lambda: worker, settings_path=str(Path(folder) / "window.ini"), on_ready=ready)
    person = people[0]
    words = f"step {worker.finished_steps:,}, load {load:.1f} before and {os.getloadavg()[0]:.1f} after"
    print(f"{given.source}: exit {code}, {given.size} on {QApplication.platformName()}, {words}")
    print("\n".join([*table(person.watch), *person.keys.lines(), *person.done.lines()[1:]]))
    watched = {name: each for name, each in person.watch.by_doing.items() if name != "(between)"}
    long = sum(len(each.long) for each in watched.values())
    slow = sum(wall > ANSWER_MS for took in person.keys.took.values() for wall, _ in took)
    print(f"  over {FRAME_MS:g} ms: {long}; answers after {ANSWER_MS:g} ms: {slow}")
    return int(bool(long or slow))


if __name__ == "__main__":
    sys.exit(main())
