"""Whether the window stays smooth while recordings are laid under its run and compared, and how long that takes.

    python benchmarks/beside.py [STEPS …] [--folder FOLDER] [--size 1600x1000]

Makes two recordings of so many steps (10,000 and 100,000), without tensors, and a timer of 1 ms in the UI thread of a
window that stands before the first step of a tiny source. Then the first is laid under the run, and both are compared.
Told are the time from asking to having it in the window, and how late the timer was meanwhile, and before with nothing
going on. The window is a real one where DISPLAY is set, else off screen.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QObject, Qt, QTimer
from session_store import about, step_of

from inspector.cli.window import RunOpener
from inspector.layout import Param
from inspector.plan import Variant
from inspector.runtime.commands import Command, DiffSessions, ShowOverlay
from inspector.runtime.snapshots import Snapshot
from inspector.runtime.worker import Worker
from inspector.session.recorder import Recorder
from inspector.ui.app import run_window
from inspector.ui.main_window import MainWindow

QUIET_S = 2.0


def record(path: Path, steps: int) -> None:
    """A recording of scalars and kernel times."""
    with Recorder.create(path, about((Param("w", (3,)),), "stats")) as recorder:
        for step in range(1, steps + 1):
            recorder.offer(step_of(step))


class Watch(QObject):
    """Asks for one thing after the other and notes how late a timer of 1 ms is meanwhile."""

    def __init__(
        self, window: MainWindow, asks: list[tuple[str, Command | None, Callable[[Snapshot], bool]]]
    ) -> None:
        super().__init__(window)
        self._window, self._asks = window, asks
        self.figures: list[tuple[str, float, list[float]]] = []
        self._late: list[float] = []
        self._began = self._due = time.perf_counter()
        self._timer = QTimer(self, interval=1, timerType=Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self._tick)
        self._timer.start()

    def _tick(self) -> None:
        now = time.perf_counter()
        self._late.append(max(now - self._due - 1e-3, 0.0) * 1e3)
        self._due = now
        name, _, there = self._asks[0]
        snapshot = self._window.snapshot
        if snapshot is None or not there(snapshot):
            return
        self.figures.append((name, now - self._began, sorted(self._late)))
        self._asks.pop(0)
        if not self._asks:
            self._timer.stop()
            self._window.close()
            return
        self._late, self._began = [], now
        command = self._asks[0][1]
        if command is not None:
            self._window.send(command)


def measure(folder: Path, steps: int, size: tuple[int, int]) -> None:
    """Print the figures of one length."""
    a, b = folder / f"a{steps}.session", folder / f"b{steps}.session"
    for path in (a, b):
        record(path, steps)
    opener = RunOpener(adapter=None, undo_mb=None, schedule=None, seed=None, given={})
    worker = Worker(opener, "synthetic:1000", Variant())
    watches: list[Watch] = []
    since = [0.0]

    def quiet(_: Snapshot) -> bool:
        since[0] = since[0] or time.perf_counter()
        return time.perf_counter() - since[0] > QUIET_S

    def overlaid(s: Snapshot) -> bool:
        return bool(s.beside.overlays) and not s.beside.overlays[0].loading

    def compared(s: Snapshot) -> bool:
        return s.beside.diff is not None and s.beside.diff.share is None

    def ready(window: MainWindow) -> None:
        window.resize(*size)
        asks: list[tuple[str, Command | None, Callable[[Snapshot], bool]]] = [
            ("opening", None, lambda s: s.mode == "paused" and s.plan is not None),
            ("nothing", None, quiet),
            ("an overlay", ShowOverlay(str(a)), overlaid),
            ("a comparison", DiffSessions(str(a), str(b)), compared),
        ]
        watches.append(Watch(window, asks))

    run_window(lambda: worker, settings_path=str(folder / "window.ini"), on_ready=ready)
    for name, took, late in watches[0].figures[1:]:
        p99 = late[int(0.99 * (len(late) - 1))]
        print(
            f"{steps:,} steps, {name}: {took:.2f} s, 1 ms timer late by p99 {p99:.1f} ms, worst {late[-1]:.1f} ms"
        )


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("steps", nargs="*", type=int, default=[10_000, 100_000])
    parser.add_argument("--folder", default=tempfile.gettempdir(), type=Path)
    parser.add_argument("--size", default="1600x1000")
    options = parser.parse_args()
    width, _, height = options.size.partition("x")
    work = Path(tempfile.mkdtemp(prefix="beside-", dir=options.folder))
    try:
        for steps in options.steps:
            measure(work, steps, (int(width), int(height)))
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
