"""What open plots cost: a run with none and with 200 on the board, step by step in turns, and the UI thread's frames.

    python benchmarks/plots_cost.py [SOURCE] [SECONDS]

`kept`: time to take a step of 74 params in, for 0 and 512 lines with 16 waterfalls, with numpy alone. `run`: steps a
second at level full without plots and with 200 of 2 lines each, in turns of the same run. `frames`: how long drawing a
moment of full histories takes on the UI thread with 12 plots in sight.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from types import MappingProxyType

import numpy as np

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")


def table(params: int = 74):  # type: ignore[no-untyped-def]
    """A table of made-up statistics."""
    from inspector.param_statistics import ParamStats, ParamTable, UpdateStats, lane_stats

    rng = np.random.default_rng(1)
    rows = []
    for i in range(params):
        lanes = {lane: lane_stats(rng.normal(size=4096).astype(np.float32)) for lane in "wgmv"}
        rows.append(ParamStats(f"h.{i}.weight", "wd", 4096, lanes, UpdateStats(1.0, 1.0, 0, 0, 0, 0, 0, 0)))
    return ParamTable.of(rows)


def kept(steps: int = 2000) -> None:
    """Print the cost of taking a step in."""
    from inspector.runtime.kept_lines import Kept
    from inspector.runtime.plotted import MEASURES, Fall, Line

    of = table()
    whole = of.merged("all")
    metrics = [name for name in MEASURES if "_p" not in name]
    lines = [Line(metrics[i % len(metrics)], of.names[i // 7 % 74]) for i in range(600)]
    percentiles = [Line("g_p50", name) for name in of.names] + [Line("v_p99", name) for name in of.names]
    falls = [Fall("g", name) for name in of.names[:16]]
    for name, asked in (
        ("no plot", ((), ())),
        ("512 lines, 16 waterfalls", (list(dict.fromkeys(lines))[:512], falls)),
        ("148 percentiles", (percentiles, ())),
    ):
        store = Kept(*asked)
        start = time.perf_counter()
        for step in range(1, steps + 1):
            if store:
                store.take(step, of, whole, None)
        us = (time.perf_counter() - start) / steps * 1e6
        print(f"kept: {name}: {us:,.1f} µs a step, {store.nbytes / 1e6:,.1f} MB of lines")


def run(source: str, seconds: float) -> None:
    """Print steps a second with and without plots, in turns."""
    import threading

    from inspector.cli.window import RunOpener
    from inspector.runtime.commands import Pause, Run, SetStats, Shutdown, ViewLines
    from inspector.runtime.plotted import MEASURES, Line
    from inspector.runtime.snapshots import Snapshot
    from inspector.runtime.worker import Worker

    latest: list[Snapshot] = []
    came = threading.Event()

    def take(snapshot: Snapshot) -> None:
        latest[:] = [snapshot]
        came.set()

    worker = Worker(RunOpener(adapter=None, undo_mb=16, schedule=None, seed=None, given={}), source)
    worker.start(take)
    while not latest or latest[0].mode != "paused":
        came.wait(1)
    names = [s.name for s in latest[0].plan.layout]  # type: ignore[union-attr]
    lines = tuple(Line(metric, name) for name in names for metric in MEASURES)[:400]
    plots = ViewLines(lines, (), frozenset(lines[:24]))
    worker.send(SetStats("full"))
    rates: dict[bool, list[float]] = {False: [], True: []}
    for turn in range(8):
        worker.send(plots if turn % 2 else ViewLines())
        worker.send(Run())
        time.sleep(0.3)
        first, at = latest[0].cursor.step, time.perf_counter()  # type: ignore[union-attr]
        time.sleep(seconds / 8)
        rates[bool(turn % 2)].append((latest[0].cursor.step - first) / (time.perf_counter() - at))  # type: ignore[union-attr]
    worker.send(Pause())
    worker.send(Shutdown())
    worker.close(10)
    without, with_ = (statistics.median(rates[each]) for each in (False, True))
    print(
        f"run: {without:,.2f} steps/s without, {with_:,.2f} with {len(lines)} lines: {with_ / without - 1:+.1%}"
    )


def frames() -> None:
    """Print how long the UI thread draws."""
    sys.path.insert(0, "tests")
    from ui_helpers import make_snapshot

    from inspector.history import HistoryRecorder
    from inspector.line_store import LineStore
    from inspector.runtime.plotted import Line, PlotPicture
    from inspector.ui.app import application
    from inspector.ui.board_model import Board, Plot
    from inspector.ui.board_view import BoardView

    app = application()
    lines = [Line("w_norm", f"h.{i}.x") for i in range(400)]
    board = Board([Plot((lines[2 * i], lines[2 * i + 1]), log=True) for i in range(200)])
    view = BoardView()
    view.load(board.to_text())
    view.resize(1280, 1000)
    view.show()
    made_in = []
    while len(view.pane.cells) < len(view.pane.seen()):
        start = time.thread_time()
        app.processEvents()
        made_in.append((time.thread_time() - start) * 1e3)
    print(
        f"frames: a turn that makes plots takes {statistics.median(made_in):.1f} ms, most {max(made_in):.1f}"
    )
    shown = [line for i in view.pane.seen() for line in board.plots[i].lines]
    store = LineStore(shown)
    rng = np.random.default_rng(2)
    recorder = HistoryRecorder()
    for step in range(1, 8001):
        store.append(step, rng.lognormal(size=len(shown)), np.ones(len(shown), bool))
        recorder.append(step, {"loss": 1.0})
    lines_of = {line: store.history(line) for line in shown}

    def drawn(act) -> None:  # type: ignore[no-untyped-def]
        """Every turn of the event loop until all is drawn, in ms of this thread."""
        start = time.thread_time()
        act()
        turns.append((time.thread_time() - start) * 1e3)
        for _ in range(200):
            start = time.thread_time()
            app.processEvents()
            turns.append((time.thread_time() - start) * 1e3)
            if not view.pane._waiting:
                break

    turns: list[float] = []
    for i in range(40):
        lines_of = {line: store.history(line) for line in shown}
        made = make_snapshot(history=recorder.freeze(), plotted=PlotPicture(MappingProxyType(lines_of)))
        drawn(lambda made=made: view.show_snapshot(made))
        drawn(lambda i=i: view.show_range(i * 10, 6000 + i * 20))
    turns = sorted(turns[20:])
    print(
        f"frames: {len(list(view.pane.seen()))} plots of 200 in sight, {len(shown)} lines of 4,000 points: a turn of "
        f"the event loop takes {statistics.median(turns):.1f} ms, 99 % up to {turns[len(turns) * 99 // 100]:.1f}, most "
        f"{turns[-1]:.1f}"
    )


if __name__ == "__main__":
    kept()
    run(sys.argv[1] if len(sys.argv) > 1 else "charlm", float(sys.argv[2]) if len(sys.argv) > 2 else 40.0)
    frames()
