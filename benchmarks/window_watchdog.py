"""How long the UI thread is ever busy, how soon the window paints, whether it closes cleanly, and what memory does.

    python benchmarks/window_watchdog.py busy [SOURCE] [SECONDS] [WIDTHxHEIGHT]
    python benchmarks/window_watchdog.py first-paint [RUNS]
    python benchmarks/window_watchdog.py close [TIMES]
    python benchmarks/window_watchdog.py memory [STEPS]
    python benchmarks/window_watchdog.py window-memory [STEPS] [SOURCE]

`busy` counts what a person would feel: a timer of the UI thread's event loop that should fire every
millisecond, and how late it does while the source runs, its map is zoomed and params are selected. The
window is a real one where DISPLAY is set, else off screen.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

PYTHON = [sys.executable]
LIMIT_MS = 50.0
SETTLE_MS = 500
"""From the first picture of an open run to the start of the measurement."""


def busy(source: str, seconds: float, size: tuple[int, int]) -> int:
    """Run `source` in the window and measure every lateness of a 1 ms timer; 1 where one is over the limit."""
    from PySide6.QtCore import QPoint, QPointF, Qt, QTimer
    from PySide6.QtGui import QWheelEvent
    from PySide6.QtWidgets import QApplication

    from inspector.cli.window import RunOpener
    from inspector.plan import Variant
    from inspector.runtime.commands import Run
    from inspector.runtime.worker import Worker
    from inspector.ui.app import run_window
    from inspector.ui.main_window import MainWindow

    opener = RunOpener(adapter=None, undo_mb=None, schedule=None, seed=None, given={})
    late: list[tuple[float, str]] = []
    doing = ["starting"]
    started = time.perf_counter()
    worker = Worker(opener, source, Variant())

    def ready(window: MainWindow) -> None:
        window.resize(*size)
        last = [time.perf_counter()]

        def tick() -> None:
            now = time.perf_counter()
            late.append(((now - last[0]) * 1e3 - 1.0, doing[0]))
            last[0] = now

        timer = QTimer(window, interval=1, timerType=Qt.TimerType.PreciseTimer)
        timer.timeout.connect(tick)
        timer.start()

        def act() -> None:
            from inspector.ui.map_canvas import MapCanvas

            canvas = window.findChild(MapCanvas)
            turn = len(late) // 50 % 4
            doing[0] = ("running", "zooming in", "zooming out", "selecting")[turn]
            if canvas is None or turn == 0:
                return
            at = QPointF(canvas.width() * 0.4, canvas.height() * 0.5)
            if turn in (1, 2):
                delta = QPoint(0, 120 if turn == 1 else -120)
                wheel = QWheelEvent(
                    at, canvas.mapToGlobal(at), QPoint(), delta, Qt.MouseButton.NoButton,
                    Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase, False,
                )  # fmt: skip
                QApplication.sendEvent(canvas, wheel)

        gestures = QTimer(window, interval=40)
        gestures.timeout.connect(act)
        gestures.start()

        def begin() -> None:
            if worker.mode == "paused":
                waiting.stop()
                QTimer.singleShot(SETTLE_MS, run)

        def run() -> None:
            doing[0] = "running"
            late.clear()
            worker.send(Run())
            QTimer.singleShot(int(seconds * 1000), end)

        def end() -> None:
            timer.stop()
            window.close()

        waiting = QTimer(window, interval=50)
        waiting.timeout.connect(begin)
        waiting.start()

    with tempfile.TemporaryDirectory() as folder:
        code = run_window(lambda: worker, settings_path=str(Path(folder) / "window.ini"), on_ready=ready)
    took = time.perf_counter() - started
    times = sorted(ms for ms, _ in late)
    worst = sorted(late, reverse=True)[:5]
    n = len(times)
    print(
        f"{source}: exit {code}, {took:.1f} s, step {worker.finished_steps}, {n:,} ticks, {size[0]}x{size[1]}"
    )
    for q in (0.5, 0.99, 0.999, 1.0):
        print(f"  lateness {q:.1%}: {times[min(int(q * n), n - 1)]:.1f} ms")
    print("  worst: " + ", ".join(f"{ms:.1f} ms while {what}" for ms, what in worst))
    over = sum(ms > LIMIT_MS for ms in times)
    print(f"  over {LIMIT_MS:g} ms: {over}; over 16 ms: {sum(ms > 16 for ms in times)}")
    return int(over > 0)


_FIRST_PAINT = """
import sys, time
from PySide6.QtCore import QTimer
from inspector.cli.window import RunOpener
from inspector.plan import Variant
from inspector.ui import app
from inspector.ui.deferred import DeferredView
opener = RunOpener(adapter=None, undo_mb=None, schedule=None, seed=None, given={})
opener.check("charlm")
def make_worker():
    # Imported only then, as the command does.
    from inspector.runtime.worker import Worker
    return Worker(opener, "charlm", Variant())
def ready(window):
    print(time.time(), time.process_time(), flush=True)
    def look():
        seen = [v for v in window.views.values() if isinstance(v, DeferredView) and v.isVisible()]
        if all(view.is_made for view in seen):
            print(time.time(), time.process_time(), flush=True)
            window.close()
    timer = QTimer(window, interval=0)
    timer.timeout.connect(look)
    timer.start()
sys.exit(app.run_window(make_worker, settings_path=sys.argv[1], on_ready=ready))
"""


def first_paint(runs: int) -> int:
    """Seconds from starting the process, the command line's imports included: to the first painted window, and until
    every panel in it is filled; and of the processor, which on a machine that is shared is what can be compared.

    Bytecode is cached in a folder of its own, as an installed program has it: without, all is compiled at each start.
    """
    with tempfile.TemporaryDirectory() as folder:
        found: list[list[float]] = []
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": f"{folder}/bytecode"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for _ in range(runs + 1):
            started = time.time()
            out = subprocess.run(
                [*PYTHON, "-c", "import inspector.cli.app\n" + _FIRST_PAINT, f"{folder}/window.ini"],
                capture_output=True, text=True, check=True, env=environment,
            )  # fmt: skip
            painted, cpu, filled, cpu_filled = (float(word) for word in out.stdout.split()[:4])
            found.append([painted - started, cpu, filled - started, cpu_filled])
    columns = [sorted(column) for column in zip(*found[1:], strict=True)]
    names = ("first paint", "  of the processor", "every panel filled", "  of the processor")
    for name, values in zip(names, columns, strict=True):
        print(
            f"{name}: min {values[0]:.2f} s, median {values[len(values) // 2]:.2f} s, max {values[-1]:.2f} s"
        )
    return int(columns[0][len(columns[0]) // 2] > 1.0)


_CLOSE = """
import sys
from PySide6.QtCore import QTimer
from inspector.cli.window import RunOpener
from inspector.plan import Variant
from inspector.runtime.commands import Run
from inspector.runtime.worker import Worker
from inspector.ui import app
opener = RunOpener(adapter=None, undo_mb=None, schedule=None, seed=None, given={})
worker = Worker(opener, "charlm", Variant(), paused=False)
def ready(window):
    QTimer.singleShot(int(sys.argv[2]), window.close)
sys.exit(app.run_window(lambda: worker, settings_path=sys.argv[1], on_ready=ready))
"""


def close(times: int) -> int:
    """Close the window at `times` different moments of a run; anything but exit 0 and silence is a failure."""
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for i in range(times):
            delay = int(i * 3000 / times)
            out = subprocess.run(
                [*PYTHON, "-c", _CLOSE, f"{folder}/window.ini", str(delay)],
                capture_output=True,
                text=True,
                check=False,
            )
            noise = [line for line in out.stderr.splitlines() if "propagateSizeHints" not in line]
            if out.returncode or noise:
                failures += 1
                print(f"  after {delay} ms: exit {out.returncode} {noise[:3]}")
    print(f"closed {times} times at different moments: {failures} failures")
    return int(failures > 0)


def memory(steps: int) -> int:
    """Resident memory over `steps` steps of a tiny source at full speed, with snapshots and views as in a window."""
    from inspector.cli.window import RunOpener
    from inspector.mapping import MapRequest
    from inspector.plan import Variant
    from inspector.runtime.commands import Run, ViewHistograms, ViewMap
    from inspector.runtime.worker import Worker

    opener = RunOpener(adapter=None, undo_mb=16, schedule=None, seed=None, given={})
    worker = Worker(opener, "synthetic:64", Variant())
    worker.start(lambda snapshot: None)
    worker.send(ViewMap(MapRequest(0, 0.1, 640, 16, "value")))
    worker.send(ViewHistograms(None))
    worker.send(Run(until=steps))
    started = time.perf_counter()
    marks = [steps // 10 * i for i in range(1, 11)]
    sizes = []
    for mark in marks:
        while worker.finished_steps < mark:
            time.sleep(0.02)
        sizes.append(_resident_mb())
        print(
            f"  {mark:>9,} steps: {sizes[-1]:.1f} MiB resident, {mark / (time.perf_counter() - started):,.0f} steps/s"
        )
    worker.close(10)
    grown = sizes[-1] - sizes[0]
    print(f"grown from a tenth of {steps:,} steps to the end: {grown:+.1f} MiB; peak {_peak_mb():.1f} MiB")
    return int(grown > 16)


def window_memory(steps: int, source: str) -> int:
    """Resident memory over `steps` steps in the window, whose views are gone through all the while."""
    from PySide6.QtCore import QTimer

    from inspector.cli.window import RunOpener
    from inspector.plan import Variant
    from inspector.runtime.commands import Run
    from inspector.runtime.worker import Worker
    from inspector.ui.app import run_window
    from inspector.ui.main_window import MainWindow

    opener = RunOpener(adapter=None, undo_mb=64, schedule=None, seed=None, given={})
    worker = Worker(opener, source, Variant())
    sizes: list[tuple[int, float]] = []
    began = time.perf_counter()

    def ready(window: MainWindow) -> None:
        window.resize(1600, 1000)
        names = list(window.views)
        turn = [0]

        def look() -> None:
            if worker.mode == "starting":
                return
            if turn[0] < len(names):
                # Every view is made and shown once before anything is counted.
                window.ways.go_to_view(names[turn[0]])
            elif turn[0] == len(names):
                worker.send(Run(until=steps))
            elif turn[0] % 8 == 0:
                window.ways.go_to_view(names[turn[0] // 8 % len(names)])
            turn[0] += 1
            done = worker.finished_steps
            if done >= (len(sizes) + 1) * steps // 10:
                sizes.append((done, _resident_mb()))
                speed = done / (time.perf_counter() - began)
                print(
                    f"  {done:>9,} steps: {sizes[-1][1]:.1f} MiB resident, {speed:,.0f} steps/s", flush=True
                )
            if done >= steps:
                window.close()

        timer = QTimer(window, interval=50)
        timer.timeout.connect(look)
        timer.start()

    with tempfile.TemporaryDirectory() as folder:
        run_window(lambda: worker, settings_path=str(Path(folder) / "window.ini"), on_ready=ready)
    grown = sizes[-1][1] - sizes[0][1]
    print(
        f"{source}: grown from a tenth of {steps:,} steps to the end by {grown:+.1f} MiB; peak {_peak_mb():.1f} MiB"
    )
    return int(grown > 16)


def _resident_mb() -> float:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> int:
    """Run the part named first."""
    words = sys.argv[1:] or ["busy"]
    match words:
        case ["busy", *rest]:
            width, _, height = (rest[2] if len(rest) > 2 else "1600x1000").partition("x")
            source = rest[0] if rest else "charlm"
            return busy(source, float(rest[1]) if len(rest) > 1 else 20.0, (int(width), int(height)))
        case ["first-paint", *rest]:
            return first_paint(int(rest[0]) if rest else 5)
        case ["close", *rest]:
            return close(int(rest[0]) if rest else 20)
        case ["window-memory", *rest]:
            return window_memory(
                int(rest[0]) if rest else 10_000, rest[1] if len(rest) > 1 else "synthetic:65536"
            )
        case ["memory", *rest]:
            return memory(int(rest[0]) if rest else 100_000)
    print(__doc__)
    return 2


if __name__ == "__main__":
    raise SystemExit(main())
