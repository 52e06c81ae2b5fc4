"""How soon a step of a recording is on show: from the command to the snapshot with its numbers, and to its values.

    python benchmarks/travel.py [FOLDER] [--steps 10000,100000] [--elements-of-gpt]

One recording of many steps with statistics of 74 params, opened and gone through at random; with --elements-of-gpt
another with keyframes of gpt-116m (needs 4 GB of disk and 8 GB of memory), whose captured steps are jumped between.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from inspector.cli.window import RunOpener
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.param_statistics import ParamTable, param_stats
from inspector.plan import Variant
from inspector.preset import gpt_116m_params
from inspector.runtime.commands import Seek, ViewHistograms, ViewValues
from inspector.runtime.snapshots import Snapshot
from inspector.runtime.worker import Worker
from inspector.session.reader import Session
from inspector.session.recorder import Recorder
from inspector.session.records import About, RecordedStep
from inspector.stepping import DeviceInfo, HostState, KernelTime

JUMPS = 200
KEYFRAMES = 4


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", default=tempfile.gettempdir(), type=Path)
    parser.add_argument("--steps", default="10000,100000")
    parser.add_argument("--elements-of-gpt", action="store_true")
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="travel-", dir=options.folder))
    try:
        for steps in map(int, options.steps.split(",")):
            many_steps(work, steps)
        if options.elements_of_gpt:
            large_states(work)
    finally:
        shutil.rmtree(work)


class Timed:
    """A worker, and when it sent what."""

    def __init__(self, path: Path) -> None:
        opener = RunOpener(None, 0, None, None, {})
        self._came = threading.Condition()
        self._newest: tuple[float, Snapshot] | None = None
        self.began = time.perf_counter()
        self.worker = Worker(opener, str(path))
        self.worker.start(self._take)

    def _take(self, snapshot: Snapshot) -> None:
        with self._came:
            self._newest = time.perf_counter(), snapshot
            self._came.notify_all()

    def until(self, holds: Callable[[Snapshot], bool]) -> float:
        """When the newest snapshot came, once it is one for which `holds`."""
        with self._came:
            while self._newest is None or not holds(self._newest[1]):
                if not self._came.wait(60):
                    raise SystemExit(f"nothing came: {self._newest and self._newest[1].notice}")
            return self._newest[0]


def made_up_table(params: tuple[Param, ...]) -> ParamTable:
    rng = np.random.default_rng(0)
    drawn = {lane: rng.normal(size=64).astype(np.float32) for lane in "wgm"} | {"v": np.ones(64, np.float32)}
    return ParamTable.of(
        param_stats(p.name, p.block, drawn, clip_scale=1.0, hyper=Hyper(), step=1)  # type: ignore[arg-type]
        for p in params
    )


def about(params: tuple[Param, ...], policy: str) -> About:
    device = DeviceInfo("none", "none", True, False)
    return About("benchmark", params, Variant(), Hyper(), "constant", device, 0, policy, "0", time.time())


def step_of(step: int) -> RecordedStep:
    kernels = tuple(
        KernelTime(name, block, 0.1, "gpu")  # type: ignore[arg-type]
        for name, block in (
            ("reduce_norm_sq", None), ("finalize_grad_stats", None),
            ("adamw_update", "wd"), ("adamw_update", "no_wd"),
        )
    )  # fmt: skip
    return RecordedStep(step, Hyper(), Variant(), 4.0, 1.5, 0.5, kernels=kernels, ended=time.time())


def many_steps(work: Path, steps: int) -> None:
    """Open, and jump at random: numbers and statistics of all params."""
    path = work / f"{steps}.session"
    params = tuple(Param(p.name, (64,)) for p in gpt_116m_params())
    table = made_up_table(params)
    with Recorder.create(path, about(params, "stats")) as recorder:
        for step in range(1, steps + 1):
            recorder.offer(step_of(step), statistics=table)
            while recorder.waiting_bytes > 64 << 20:
                time.sleep(0.001)
    began = time.perf_counter()
    with Session.open(path) as session:
        session.metric("grad_norm")
    opened = time.perf_counter() - began
    run = Timed(path)
    shown = run.until(lambda s: s.recorded is not None) - run.began
    run.worker.send(ViewHistograms(params[3].name))
    rng = np.random.default_rng(1)
    took = []
    for step in map(int, rng.integers(1, steps, JUMPS)):
        sent = time.perf_counter()
        run.worker.send(Seek(step))
        took.append(run.until(partial(counted, step)) - sent)
    run.worker.close(30)
    print(
        f"{steps:,} steps, {len(params)} params: session open {opened:.3f} s, in a run with its device {shown:.2f} s; "
        f"a jump {statistics.median(took) * 1e3:.1f} ms (p95 {sorted(took)[int(0.95 * JUMPS)] * 1e3:.1f})"
    )


def counted(step: int, s: Snapshot) -> bool:
    """The numbers of a step are on show."""
    return s.counted is not None and s.counted.step == step


def with_values(step: int, s: Snapshot) -> bool:
    """Values of a step are on show."""
    return s.record is not None and s.record.step == step and s.values is not None


def on_device(step: int, s: Snapshot) -> bool:
    """The device stands in a step."""
    return s.glance is None and s.cursor is not None and s.cursor.step == step


def large_states(work: Path) -> None:
    """Jump between captured states of gpt-116m."""
    path = work / "gpt.session"
    params = tuple(gpt_116m_params())
    rng = np.random.default_rng(0)
    w = {p.name: rng.standard_normal(p.numel, np.float32) for p in params}
    table = made_up_table(params)
    with Recorder.create(path, about(params, "keyframes:1")) as recorder:
        recorder.offer_start(HostState(w, w, w, 0))
        recorder.flush(None)
        for step in range(1, KEYFRAMES):
            recorder.offer(step_of(step), statistics=table, keyframe=HostState(w, w, w, step))
            recorder.flush(None)
    run = Timed(path)
    run.until(lambda s: s.recorded is not None and s.mode == "paused")
    largest = max(params, key=lambda p: p.numel)
    run.worker.send(ViewValues(largest.name, largest.numel // 2, 100))
    run.until(lambda s: s.values is not None)
    for step in (2, 1, 3):
        sent = time.perf_counter()
        run.worker.send(Seek(step))
        numbers = run.until(partial(counted, step))
        values = run.until(partial(with_values, step))
        there = run.until(partial(on_device, step))
        print(
            f"gpt-116m, step {step}: numbers after {(numbers - sent) * 1e3:.0f} ms, values after "
            f"{(values - sent) * 1e3:.0f} ms, on the device after {there - sent:.1f} s"
        )
    run.worker.close(30)


if __name__ == "__main__":
    main()
