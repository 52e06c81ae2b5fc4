"""How many pictures a second a person sees while scrubbing over a long recording, and how late they are.

    python benchmarks/scrub.py [STEPS …] [--seconds S] [--size 1600x1000] [--tab plots|params] [--folder FOLDER]

Makes a recording of so many steps (10,000 and 100,000) with full statistics of 74 params and no tensors, opens it in
the window, and drags the mouse along the timeline, a move every 8 ms, back and forth in 2 s a length. A picture counts
once the timeline has been painted with the cursor at another step; the views beside it are painted in the same turn.
The window is a real one where DISPLAY is set, else off screen.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import resource
import shutil
import statistics
import tempfile
import time
from pathlib import Path

if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import numpy as np
from PySide6.QtCore import QEvent, QObject, QPoint, QPointF, Qt, QTimer
from PySide6.QtGui import QMouseEvent
from PySide6.QtWidgets import QApplication
from session_store import about, step_of

from inspector.cli.window import RunOpener
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.param_statistics import ParamTable, param_stats
from inspector.plan import Variant
from inspector.preset import gpt_116m_params
from inspector.runtime.commands import Seek
from inspector.runtime.worker import Worker
from inspector.session.reader import Session
from inspector.session.recorder import Recorder
from inspector.ui.app import run_window
from inspector.ui.main_window import MainWindow

MOVE_MS = 8
SWEEP_S = 2.0
NUMEL = 256
"""Of each param: what a picture costs depends on how many params there are, not on their sizes."""


def record(path: Path, steps: int) -> None:
    """A recording with full statistics of 74 params at every step."""
    params = tuple(Param(p.name, (NUMEL,), p.decay) for p in gpt_116m_params())
    rng = np.random.default_rng(0)
    tables = []
    for _ in range(8):
        lanes = [rng.normal(size=(4, NUMEL)).astype(np.float32) * 0.01 for _ in params]
        tables.append(
            ParamTable.of(
                param_stats(
                    p.name, "wd", {"w": w, "g": g, "m": m, "v": v * v}, clip_scale=1.0, hyper=Hyper(), step=5
                )
                for p, (w, g, m, v) in zip(params, lanes, strict=True)
            )
        )
    with Recorder.create(path, about(params, "stats")) as recorder:
        for step in range(1, steps + 1):
            recorder.offer(step_of(step), statistics=tables[step % len(tables)])
            while recorder.waiting_bytes > 100 << 20:
                time.sleep(0.001)


class Scrub(QObject):
    """Drags, and notes when which step was painted."""

    def __init__(self, window: MainWindow, seconds: float) -> None:
        super().__init__(window)
        self._window, self._seconds = window, seconds
        self._timeline = window.views["timeline"]
        self.painted: list[tuple[float, int]] = []
        self.asked: dict[int, float] = {}
        self.late_ms: list[float] = []
        self.cpu_s = 0.0
        """CPU time of the whole process, the worker's thread and the software adapter included."""
        self._began = 0.0
        self._moves = QTimer(self, interval=MOVE_MS, timerType=Qt.TimerType.PreciseTimer)
        self._moves.timeout.connect(self._move)
        self._timeline.installEventFilter(self)
        self._timeline.command.connect(self._on_command)

    def start(self) -> None:
        """Press the mouse button and go."""
        self._began, self.cpu_s = time.perf_counter(), -time.process_time()
        self._send(QEvent.Type.MouseButtonPress, 0.0)
        self._moves.start()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Note a paint that shows another step."""
        snapshot = self._window.snapshot
        if (
            event.type() == QEvent.Type.Paint
            and self._began
            and snapshot is not None
            and snapshot.cursor is not None
        ):
            now, step = time.perf_counter(), snapshot.cursor.finished_steps
            if not self.painted or self.painted[-1][1] != step:
                self.painted.append((now, step))
                if step in self.asked:
                    self.late_ms.append((now - self.asked.pop(step)) * 1e3)
        return False

    def _on_command(self, command: object) -> None:
        if isinstance(command, Seek):
            self.asked[command.step] = time.perf_counter()

    def _move(self) -> None:
        at = time.perf_counter() - self._began
        if at > self._seconds:
            self._moves.stop()
            self.cpu_s += time.process_time()
            self._send(QEvent.Type.MouseButtonRelease, 0.0)
            self._window.close()
            return
        self._send(QEvent.Type.MouseMove, 0.5 - 0.5 * math.cos(at / SWEEP_S * math.pi))

    def _send(self, kind: QEvent.Type, share: float) -> None:
        view = self._timeline
        at = QPointF(16 + share * (view.width() - 32), view.height() / 2)
        none, left = Qt.MouseButton.NoButton, Qt.MouseButton.LeftButton
        event = QMouseEvent(
            kind, at, QPointF(view.mapToGlobal(QPoint(int(at.x()), int(at.y())))),
            none if kind == QEvent.Type.MouseMove else left,
            none if kind == QEvent.Type.MouseButtonRelease else left,
            Qt.KeyboardModifier.NoModifier,
        )  # fmt: skip
        QApplication.sendEvent(view, event)


def measure(path: Path, seconds: float, size: tuple[int, int], tab: str) -> None:
    """Open a recording in the window, scrub, and print what was seen."""
    opener = RunOpener(adapter=None, undo_mb=None, schedule=None, seed=None, given={})
    worker = Worker(opener, str(path), Variant())
    scrubs: list[Scrub] = []
    opened = [0.0]
    began = time.perf_counter()

    def ready(window: MainWindow) -> None:
        window.resize(*size)
        window.show_view(tab)

        def look() -> None:
            if (
                worker.mode == "paused"
                and window.snapshot is not None
                and window.snapshot.recorded is not None
            ):
                waiting.stop()
                opened[0] = time.perf_counter() - began
                scrubs.append(Scrub(window, seconds))
                QTimer.singleShot(1000, scrubs[0].start)

        waiting = QTimer(window, interval=10)
        waiting.timeout.connect(look)
        waiting.start()

    with tempfile.TemporaryDirectory() as folder:
        run_window(lambda: worker, settings_path=str(Path(folder) / "window.ini"), on_ready=ready)
    times = [at for at, _ in scrubs[0].painted]
    gaps = sorted((b - a) * 1e3 for a, b in itertools.pairwise(times))
    late = sorted(scrubs[0].late_ms)
    steps = Session.open(path).steps
    print(
        f"{len(steps):,} steps × 74 params, {size[0]}×{size[1]}, {tab} in front, open after {opened[0]:.2f} s: "
        f"{len(times) / seconds:.0f} pictures a second; between two {_spread(gaps)}; from asking to seeing "
        f"{_spread(late)}; {scrubs[0].cpu_s / len(times) * 1e3:.1f} ms of CPU a picture; "
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB"
    )


def _spread(ms: list[float]) -> str:
    return f"{statistics.median(ms):.1f} ms, p95 {ms[int(0.95 * len(ms))]:.1f}, worst {ms[-1]:.1f}"


def main() -> None:
    """Print the figures of each length."""
    parser = argparse.ArgumentParser()
    parser.add_argument("steps", nargs="*", type=int, default=[10_000, 100_000])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--size", default="1600x1000")
    parser.add_argument("--tab", default="plots")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    width, _, height = options.size.partition("x")
    work = Path(tempfile.mkdtemp(prefix="scrub-", dir=options.folder))
    try:
        for steps in options.steps:
            path = work / f"{steps}.session"
            record(path, steps)
            measure(path, options.seconds, (int(width), int(height)), options.tab)
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
