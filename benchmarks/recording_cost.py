"""What recording costs a run of the live model: runs that are recorded and runs that are not, in turn.

    python benchmarks/recording_cost.py [--source charlm] [--pairs 40] [--steps 5] [--capture stats] [--folder FOLDER]

Four runs of the same source from the same start take turns in one process, a few steps of each at a time, so that a
machine whose speed drifts favours none: with statistics light and full, recorded all along and not. What is told is the
median of the ratios of neighbours with the middle half of them, of the wall clock and of the processor time of all
threads, which other programs disturb less. Three things are told apart: recording alone at the same level of
statistics, the level that a recording takes (full) beside the one without (light), and both. Beside that the
recording's own processor time is told, of the thread that writes and of its calls on the thread that runs steps, which
is the same however busy the machine is. The bytes a step are those on disk.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from inspector.gpu.opener import StepperMaker
from inspector.plan import Variant
from inspector.runtime.engine import Engine
from inspector.runtime.recording import Recording
from inspector.session.policy import Policy
from inspector.sources.open import open_source
from inspector.statistics import StatsLevel

WARM_UP = 20
Kind = tuple[StatsLevel, bool]
"""The level of statistics, and whether it is recorded."""
KINDS: tuple[Kind, ...] = (("light", False), ("light", True), ("full", False), ("full", True))
COMPARED: tuple[tuple[str, Kind, Kind], ...] = (
    ("recording, statistics full in both", ("full", False), ("full", True)),
    ("recording, statistics light in both", ("light", False), ("light", True)),
    ("statistics full beside light", ("light", False), ("full", False)),
    ("recording with full beside light without", ("light", False), ("full", True)),
)


SEEN: set[threading.Thread] = set()


class Run:
    """A run with or without a recording."""

    def __init__(self, source: str, kind: Kind, policy: Policy, folder: Path) -> None:
        level, record = kind
        opened = open_source(source)
        stepper = StepperMaker(None, undo_bytes=0).make(opened.params, Variant(), opened.initial_state())
        self.engine = Engine(opened, stepper, keep_checkpoint=False, stats=level)
        self.recording = Recording.start(self.engine, folder / f"{level}.session", policy) if record else None
        self.took: list[tuple[float, float]] = []
        self.own_s: list[float] = []
        """Processor time of the calls of the recording on the thread that runs steps."""
        if self.recording is not None:
            self.writer = next(
                t for t in threading.enumerate() if t.name == "session-writer" and t not in SEEN
            )
            SEEN.add(self.writer)
            for name in ("begun", "completed"):
                setattr(self.recording, name, self._timed(getattr(self.recording, name)))

    def _timed(self, call: Callable[..., None]) -> Callable[..., None]:
        def timed(*arguments: object) -> None:
            began = time.thread_time()
            call(*arguments)
            self.own_s.append(time.thread_time() - began)

        return timed

    def writer_s(self) -> float:
        """Processor time of the thread that writes, so far."""
        assert self.writer.ident is not None
        return time.clock_gettime(time.pthread_getcpuclockid(self.writer.ident))

    def go(self, steps: int) -> tuple[float, float]:
        """Seconds a step takes, by the wall clock and of processor time, until all of them are on disk."""
        began, worked = time.perf_counter(), time.process_time()
        for _ in range(steps):
            self.engine.step_iteration()
            self.engine.take_findings()
        if self.recording is not None:
            # What is still to be written is part of the work, and none of the next run's.
            self.recording.flush()
        return (time.perf_counter() - began) / steps, (time.process_time() - worked) / steps


def said(one: list[tuple[float, float]], other: list[tuple[float, float]]) -> str:
    """Steps of `other` beside those of `one`: the median of the ratios of neighbours."""
    parts = []
    for clock, name in ((0, "wall clock"), (1, "processor time")):
        ratios = [b[clock] / a[clock] for a, b in zip(one, other, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        base = statistics.median(a[clock] for a in one) * 1e3
        parts.append(
            f"{name} {(middle - 1) * 100:+.1f} % (middle half {(low - 1) * 100:+.1f} to {(high - 1) * 100:+.1f} %) "
            f"on {base:.1f} ms a step"
        )
    return "; ".join(parts)


def main() -> None:
    """Print the costs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", default="charlm")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--capture", default="stats")
    parser.add_argument("--folder", default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        policy = Policy.from_text(options.capture)
        runs = {kind: Run(options.source, kind, policy, Path(folder)) for kind in KINDS}
        for run in runs.values():
            run.go(WARM_UP)
        before = {kind: run.writer_s() for kind, run in runs.items() if run.recording is not None}
        for i in range(options.pairs):
            # There and back, so that none always comes after the same other.
            for kind in KINDS if i % 2 else KINDS[::-1]:
                runs[kind].took.append(runs[kind].go(options.steps))
        device = runs[KINDS[0]].engine.stepper.device.name
        print(f"{options.source} on {device}, --capture {options.capture}, {options.pairs} pairs")
        for what, one, other in COMPARED:
            print(f"  {what}: {said(runs[one].took, runs[other].took)}")
        for kind, writer_s in before.items():
            run, steps = runs[kind], options.pairs * options.steps
            own = sum(run.own_s[-2 * steps :]) / steps
            writing = (run.writer_s() - writer_s) / steps
            base = statistics.median(worked for _, worked in runs[kind[0], False].took)
            print(
                f"  its own work with statistics {kind[0]}: {own * 1e3:.2f} ms a step on the thread that runs them, "
                f"{writing * 1e3:.2f} ms on the one that writes, {(own + writing) / base * 100:.1f} % of a step"
            )
        recording = runs["full", True].recording
        assert recording is not None
        recording.end()
        steps = recording.last_step - recording.first_step + 1
        print(f"  {recording.size() / steps:,.0f} bytes on disk a recorded step with statistics full")
        for run in runs.values():
            if run.recording is not None:
                run.recording.end()
            run.engine.stepper.close()


if __name__ == "__main__":
    main()
