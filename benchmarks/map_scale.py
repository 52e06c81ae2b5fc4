"""How smoothly the map is moved, and how soon its picture follows: a window under real mouse and key events.

    python benchmarks/map_scale.py [SOURCE | --preset gpt-116m | --params COUNT] [--seconds S] [--size WxH]

SOURCE is as on the command line, `synthetic:8000000` unless said; `--params` is a layout of so many params of 400
elements. `lateness` is what a person feels as stutter: how late a timer of the UI thread fires that should each
millisecond, while the map is zoomed with the wheel, dragged, and moved by keys, the run at rest and running. `key to
picture` is from a key that moves the map to the first paint of it with the pixels that belong there. The window is a
real one where DISPLAY is set, else off screen.

    python benchmarks/map_scale.py --pyramid [--preset gpt-116m] [SOURCE]

times the GPU alone: each level of the pyramid and the pixels of a screen, beside what a copy reaches.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

if TYPE_CHECKING:
    from inspector.ui.main_window import MainWindow

GESTURE_MS = 16
"""A wheel or a dragged mouse reports about once a frame."""
KEY_EVERY_MS = 400
SETTLE_MS = 1500


def many_params(folder: Path, count: int) -> str:
    """A state file of `count` params of 400 elements, every 20th a gain of 400 without decay."""
    import numpy as np
    from safetensors.numpy import save_file

    rng = np.random.default_rng(1)
    tensors = {}
    for i in range(count):
        name = f"layers.{i // 100}.experts.{i % 100}.weight"
        shape = (400,) if i % 20 == 0 else (20, 20)
        tensors[f"w/{name}"] = rng.normal(0, 0.02, shape).astype(np.float32)
        tensors[f"g/{name}"] = rng.normal(0, 1e-3, shape).astype(np.float32)
    path = folder / "many.safetensors"
    save_file(tensors, path)
    return str(path)


class Watch:
    """Lateness of a timer by what was being done, and the times from keys to pictures."""

    def __init__(self, window: MainWindow) -> None:
        from PySide6.QtCore import QEvent, QObject, Qt, QTimer

        from inspector.ui.map_view import MapView

        watch = self
        self.window = window
        found = window.findChild(MapView)
        assert found is not None
        self.view = found
        self.doing = ""
        self.late: dict[str, list[float]] = {}
        self.pictures: dict[str, list[float]] = {}
        self.paints: dict[str, list[float]] = {}
        self.busy: dict[str, list[float]] = {}
        """Seconds of processor time of the UI thread and of the process, and pictures, by what was being done."""
        self._last = time.perf_counter()
        self._spent = (time.thread_time(), time.process_time())
        self._key_at: float | None = None
        self._seen: Any = None

        class Paints(QObject):
            """Sees the paints of the canvas."""

            def eventFilter(self, watched: QObject, event: QEvent) -> bool:
                if event.type() == QEvent.Type.Paint:
                    watch.painted()
                return False

        self._filter = Paints(window)
        self.view.canvas.installEventFilter(self._filter)
        self.timer = QTimer(window, interval=1, timerType=Qt.TimerType.PreciseTimer)
        self.timer.timeout.connect(self._tick)
        self.timer.start()

    def _tick(self) -> None:
        now = time.perf_counter()
        if self.doing:
            self.late.setdefault(self.doing, []).append((now - self._last) * 1e3 - 1.0)
        self._last = now
        spent, image = (time.thread_time(), time.process_time()), self.view.canvas.image
        busy = self.busy.setdefault(self.doing, [0.0, 0.0, 0.0])
        for i in range(2):
            busy[i] += spent[i] - self._spent[i]
        busy[2] += image is not self._seen
        self._spent, self._seen = spent, image

    def painted(self) -> None:
        """The canvas is about to be painted: with the pixels that belong there, or with older ones."""
        now = time.perf_counter()
        self.paints.setdefault(self.doing, []).append(now)
        canvas = self.view.canvas
        wanted = canvas.request(self.view.shown_quantity())
        if self._key_at is not None and canvas.image is not None and canvas.image.request == wanted:
            self.pictures.setdefault(self.doing, []).append((now - self._key_at) * 1e3)
            self._key_at = None

    def wait_no_more(self) -> None:
        """The last key's picture has not come yet, and something else begins."""
        self._key_at = None

    def key(self, key: Any) -> None:
        """Press and release a key on the map."""
        from PySide6.QtTest import QTest

        self._key_at = time.perf_counter()
        QTest.keyClick(self.view.canvas, key)

    def wheel(self, steps: int) -> None:
        """Turn the wheel over the map."""
        from PySide6.QtCore import QPoint, QPointF, Qt
        from PySide6.QtGui import QWheelEvent
        from PySide6.QtWidgets import QApplication

        canvas = self.view.canvas
        at = QPointF(canvas.width() * 0.4, canvas.height() * 0.5)
        event = QWheelEvent(
            at, canvas.mapToGlobal(at), QPoint(), QPoint(0, 120 * steps), Qt.MouseButton.NoButton,
            Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase, False,
        )  # fmt: skip
        QApplication.sendEvent(canvas, event)

    def report(self) -> int:
        """Print all of it; 1 where a key took over 100 ms or the thread was late by over 50."""
        failed = False
        for doing, times in self.late.items():
            ordered = sorted(times)
            n = len(ordered)
            figures = ", ".join(f"{q:.1%} {ordered[min(int(q * n), n - 1)]:.1f}" for q in (0.5, 0.99, 0.999))
            paints = self.paints.get(doing, [])
            rate = (len(paints) - 1) / (paints[-1] - paints[0]) if len(paints) > 1 else 0.0
            print(
                f"  lateness, {doing}: {figures}, most {ordered[-1]:.1f} ms; over 16 ms "
                f"{sum(t > 16 for t in ordered)} of {n:,} ticks; {rate:.0f} paints/s"
            )
            thread, process, pictures = self.busy[doing]
            print(
                f"    processor time: {1e3 * thread / max(len(paints), 1):.1f} ms of the UI thread a paint, "
                f"{1e3 * process / max(pictures, 1):.0f} ms of all threads a picture of {pictures:.0f}"
            )
            failed |= ordered[-1] > 50
        for doing, times in self.pictures.items():
            ordered = sorted(times)
            print(
                f"  key to picture, {doing}: median {statistics.median(ordered):.1f}, most {ordered[-1]:.1f} ms of "
                f"{len(ordered)} keys"
            )
            failed |= ordered[-1] > 100
        return int(failed)


def gestures(watch: Watch, name: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """What is done, one event a frame; without end."""
    from PySide6.QtCore import QPoint, Qt
    from PySide6.QtTest import QTest

    canvas = watch.view.canvas
    while True:
        for step in (1, -1):
            for _ in range(40):
                yield f"zooming, {name}", partial(watch.wheel, step)
        for _ in range(12):
            yield f"zooming, {name}", lambda: watch.wheel(1)
        start = QPoint(canvas.width() // 2, canvas.height() // 2)
        QTest.mousePress(canvas, Qt.MouseButton.LeftButton, pos=start)
        for i in range(120):
            at = start + QPoint(round(300 * (abs(i % 80 - 40) / 40 - 1)), 0)
            yield f"dragging, {name}", partial(QTest.mouseMove, canvas, at)
        QTest.mouseRelease(canvas, Qt.MouseButton.LeftButton, pos=start)
        yield f"dragging, {name}", canvas.show_all


def keys(watch: Watch) -> Iterator[Callable[[], None]]:
    """Keys that each ask for another picture, without end."""
    from PySide6.QtCore import Qt

    while True:
        pressed = [Qt.Key.Key_Plus] * 8 + [Qt.Key.Key_Right] * 4 + [Qt.Key.Key_Minus] * 4 + [Qt.Key.Key_Home]
        for key in pressed:
            yield partial(watch.key, key)


def in_window(source: str, seconds: float, size: tuple[int, int]) -> int:
    """Gestures and keys, the run at rest and then running."""
    from PySide6.QtCore import QTimer

    from inspector.cli.window import RunOpener
    from inspector.plan import Variant
    from inspector.runtime.commands import Run
    from inspector.runtime.worker import Worker
    from inspector.ui.app import run_window

    opener = RunOpener(adapter=None, undo_mb=None, schedule=None, seed=None, given={})
    worker = Worker(opener, source, Variant())
    watches: list[Watch] = []

    def ready(window: MainWindow) -> None:
        window.resize(*size)
        timer = QTimer(window)
        acts: list[Iterator[Any]] = []

        def begin() -> None:
            if worker.mode != "paused":
                QTimer.singleShot(50, begin)
                return
            watches.append(Watch(window))
            QTimer.singleShot(SETTLE_MS, lambda: part(0))

        def part(number: int) -> None:
            watch = watches[0]
            names = ("at rest", "running")
            if number == 2:
                worker.send(Run())
                QTimer.singleShot(SETTLE_MS, lambda: part_of(number, names[1]))
            elif number == 4:
                watch.timer.stop()
                timer.stop()
                window.close()
            else:
                part_of(number, names[number // 2])

        def part_of(number: int, name: str) -> None:
            watch = watches[0]
            watch.wait_no_more()
            watch.view.canvas.show_all()
            watch.view.canvas.setFocus()
            if number % 2 == 0:
                acts[:] = [gestures(watch, name)]
                timer.start(GESTURE_MS)
            else:
                acts[:] = [keys(watch)]
                watch.doing = f"keys, {name}"
                timer.start(KEY_EVERY_MS)
            QTimer.singleShot(int(seconds * 1000 / 4), lambda: part(number + 1))

        def act() -> None:
            found = next(acts[0])
            if isinstance(found, tuple):
                watches[0].doing, found = found
            found()

        timer.timeout.connect(act)
        begin()

    with tempfile.TemporaryDirectory() as folder:
        code = run_window(lambda: worker, settings_path=str(Path(folder) / "window.ini"), on_ready=ready)
    print(f"{source}: exit {code}, {size[0]}x{size[1]}, step {worker.finished_steps}")
    return watches[0].report() or code


def pyramid(source: str) -> int:
    """Each level of the pyramid of a lane, and the pixels of a screen of four lanes, on this device."""
    from inspector.gpu.opener import StepperMaker
    from inspector.gpu.timing import Timer
    from inspector.plan import Variant
    from inspector.sources.open import open_source

    opened = open_source(source)
    stepper = StepperMaker().make(opened.params, Variant(), opened.initial_state())
    copy = stepper.copy_gbps()
    mapper, levels = stepper.mapper, stepper.mapper.refreshed("w").levels
    mapper.kernels.timer = Timer(stepper.gpu)
    rounds = []
    for _ in range(40):
        mapper.wrote_lane("w")
        mapper.refreshed("w")
        rounds.append(mapper.kernels.ms)
    mapper.kernels.timer = None
    print(f"{source}: {levels.end:,} elements, {stepper.device.name}, a copy moves {copy:,.0f} GB/s")
    print(f"  cells of a lane take {20 * levels.cells / 1e6:,.1f} MB of {4 * levels.end / 1e6:,.1f}")
    moved = [4 * levels.end + 40 * levels.counts[0]]
    moved += [20 * (a + b) for a, b in zip(levels.counts, levels.counts[1:], strict=False)]
    for i, (size, count, nbytes) in enumerate(zip(levels.sizes, levels.counts, moved, strict=True)):
        times = [each[i] for each in rounds[10:] if each[i] is not None]
        if times:
            ms = statistics.median(times)
            gbps = nbytes / ms / 1e6
            print(
                f"  cells of {size:,}: {count:,}, {ms:.4f} ms, {gbps:,.0f} GB/s, {gbps / copy:.0%} of a copy"
            )
    for quantity in ("value", "age"):
        _screen(mapper, levels.end, quantity)
    return 0


def _screen(mapper: Any, end: int, quantity: Any) -> None:
    from inspector.mapping import MapRequest

    width, height = 1700, 60
    for zoom in (1, 10, 100, 1000, 10_000, 1_000_000):
        each = end / width / zoom
        requests = [MapRequest(end * 0.4 if zoom > 1 else 0.0, each, width, height, quantity),
                    MapRequest(0.0, end / width, width, 1, quantity)]  # fmt: skip
        times = []
        for _ in range(12):
            started = time.perf_counter()
            mapper.pixels(requests)
            times.append((time.perf_counter() - started) * 1e3)
        print(f"  {quantity}, {width}x{height} pixels of every lane at {each / height:,.4g} elements a pixel: "
              f"{statistics.median(times[2:]):.2f} ms with reading back, {times[0]:.2f} the first time")  # fmt: skip


def main() -> int:
    """Run what the arguments say."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", nargs="?", default="synthetic:8000000")
    parser.add_argument("--preset")
    parser.add_argument("--params", type=int)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--size", default="1600x1000")
    parser.add_argument("--pyramid", action="store_true")
    given = parser.parse_args()
    width, _, height = given.size.partition("x")
    with tempfile.TemporaryDirectory() as folder:
        source = given.preset or given.source
        if given.params:
            source = many_params(Path(folder), given.params)
        if given.pyramid:
            return pyramid(source)
        return in_window(source, given.seconds, (int(width), int(height)))


if __name__ == "__main__":
    raise SystemExit(main())
