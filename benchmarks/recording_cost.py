"""What recording costs a run of the live model: steps that are recorded and steps that are not, in turn.

    python benchmarks/recording_cost.py [--source charlm] [--pairs 40] [--steps 5] [--capture stats] [--folder FOLDER]

One run does both, a few steps of each at a time, so that a machine whose speed drifts favours neither: what is told is
the median of the ratios of neighbours, with the middle half of them, of the wall clock and of the processor time of all
threads, which other programs disturb less. Three things are told apart: recording alone at
the same level of statistics, the level that a recording takes (full) beside the one without (light), and both.
The bytes a step are those on disk.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from inspector.gpu.opener import StepperMaker
from inspector.plan import Variant
from inspector.runtime.engine import Engine
from inspector.runtime.recording import Recording
from inspector.session.policy import Policy
from inspector.sources.open import open_source
from inspector.statistics import StatsLevel

WARM_UP = 30


class Bench:
    """An engine, and a recording that is made anew for each round of recorded steps."""

    def __init__(self, source: str, policy: Policy, folder: Path) -> None:
        opened = open_source(source)
        stepper = StepperMaker(None, undo_bytes=0).make(opened.params, Variant(), opened.initial_state())
        self.engine = Engine(opened, stepper, keep_checkpoint=False)
        self.policy = policy
        self.folder = folder
        self.nbytes = self.recorded = 0
        self._rounds = 0

    def run(self, level: StatsLevel, steps: int, *, record: bool) -> tuple[float, float]:
        """Seconds a step takes, by the wall clock and of processor time; starting and ending are not counted."""
        self.engine.set_stats(level)
        recording = None
        if record:
            self._rounds += 1
            recording = Recording.start(self.engine, self.folder / f"{self._rounds}.session", self.policy)
        began, worked = time.perf_counter(), time.process_time()
        for _ in range(steps):
            self.engine.step_iteration()
            self.engine.take_findings()
        took = time.perf_counter() - began
        if recording is not None:
            # What is still to be written is part of the work.
            recording.end()
            self.nbytes += recording.size()
            self.recorded += steps
        return took / steps, (time.process_time() - worked) / steps


def compare(
    bench: Bench, pairs: int, steps: int, one: tuple[StatsLevel, bool], other: tuple[StatsLevel, bool]
) -> str:
    """The step of `other` beside that of `one`: the median of the ratios of neighbours."""
    took: dict[tuple[StatsLevel, bool], list[tuple[float, float]]] = {one: [], other: []}
    for i in range(pairs):
        for level, record in (one, other) if i % 2 else (other, one):
            took[level, record].append(bench.run(level, steps, record=record))
    said = []
    for clock, name in ((0, "wall clock"), (1, "processor time")):
        pair = zip(took[one], took[other], strict=True)
        low, middle, high = statistics.quantiles([b[clock] / a[clock] for a, b in pair], n=4)
        base = statistics.median(a[clock] for a in took[one]) * 1e3
        said.append(
            f"{name} {(middle - 1) * 100:+.1f} % (middle half {(low - 1) * 100:+.1f} to {(high - 1) * 100:+.1f} %) "
            f"on {base:.1f} ms a step"
        )
    return "; ".join(said)


def main() -> None:
    """Print the three costs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", default="charlm")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--capture", default="stats")
    parser.add_argument("--folder", default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        bench = Bench(options.source, Policy.from_text(options.capture), Path(folder))
        bench.run("full", WARM_UP, record=False)
        device = bench.engine.stepper.device.name
        print(f"{options.source} on {device}, --capture {options.capture}, {options.pairs} pairs")
        for what, one, other in (
            ("recording, statistics full in both", ("full", False), ("full", True)),
            ("recording, statistics light in both", ("light", False), ("light", True)),
            ("statistics full beside light", ("light", False), ("full", False)),
            ("recording with full beside light without", ("light", False), ("full", True)),
        ):
            print(f"  {what}: {compare(bench, options.pairs, options.steps, one, other)}")  # type: ignore[arg-type]
        print(f"  {bench.nbytes / bench.recorded:,.0f} bytes on disk a recorded step")


if __name__ == "__main__":
    main()
