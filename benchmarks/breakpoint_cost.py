"""What breakpoints cost a run in which none of them holds: steps with them and steps without, in turn.

    python benchmarks/breakpoint_cost.py [--source charlm] [--pairs 40] [--steps 5]

One run does both, a few steps of each at a time, so that a machine whose speed drifts favours neither: what is told is
the median of the ratios of neighbours, with the middle half of them, of the wall clock and of the processor time of all
threads. Those that need statistics full are held against the same level without breakpoints. The last line is what
judging alone takes on the processor, over as many params as given.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

from inspector.diagnosis.watchpoints import parse_condition
from inspector.gpu.opener import StepperMaker
from inspector.plan import Variant
from inspector.runtime.breakpoints import Breakpoints
from inspector.runtime.engine import Engine
from inspector.sources.open import open_source
from inspector.statistics import StatsLevel

WARM_UP = 20
ON_GRADIENTS = ("nonfinite > 0", "nan@* > 0", "loss > 1e9", "finding:norm-overflow")
ON_NORM = ("clip_scale < 0", "grad_norm > 1e30")
ON_PARAMS = ("update_ratio@* > 1e9", "update_max@*.weight > 1e9")
ON_STATE = ("w_nonfinite > 0", "v_max@* > 1e30")
CASES: tuple[tuple[str, StatsLevel, tuple[str, ...]], ...] = (
    ("one on the gradients", "light", ON_GRADIENTS[:1]),
    ("two on the norm", "light", ON_NORM),
    ("all on gradients and norm", "light", (*ON_GRADIENTS, *ON_NORM)),
    ("two on params, statistics full in both", "full", ON_PARAMS),
    ("two on the state after each update, statistics full in both", "full", ON_STATE),
)


def steps_s(engine: Engine, steps: int, level: StatsLevel, texts: tuple[str, ...]) -> tuple[float, float]:
    """Seconds a step takes with these breakpoints, by the wall clock and of processor time."""
    engine.breakpoints = Breakpoints(parse_condition(text) for text in texts)
    engine.set_stats(level)
    began, worked = time.perf_counter(), time.process_time()
    for _ in range(steps):
        engine.step_iteration()
        engine.take_findings()
        assert engine.breakpoints.stop is None
    return (time.perf_counter() - began) / steps, (time.process_time() - worked) / steps


def judging_s(engine: Engine, texts: tuple[str, ...], times: int = 200) -> float:
    """Seconds that judging these takes where the run stands before its update."""
    engine.breakpoints = Breakpoints(parse_condition(text) for text in texts)
    engine.breakpoints_changed()
    while engine.record is None or engine.record.grad_norm is None or engine.stepper.cursor.at_end:
        engine.step_dispatch()
    took = []
    for _ in range(times):
        began = time.perf_counter()
        engine._stops()
        took.append(time.perf_counter() - began)
    return float(np.median(took))


def main() -> None:
    """Print what each set of breakpoints costs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", default="charlm")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    opened = open_source(options.source)
    stepper = StepperMaker(None, undo_bytes=0).make(opened.params, Variant(), opened.initial_state())
    engine = Engine(opened, stepper, keep_checkpoint=False)
    print(f"{options.source} on {stepper.device.name}, {options.pairs} pairs of {options.steps} steps")
    for name, level, texts in CASES:
        steps_s(engine, WARM_UP, level, texts)
        took: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
        for i in range(options.pairs):
            for broken in (True, False) if i % 2 else (False, True):
                took[broken].append(steps_s(engine, options.steps, level, texts if broken else ()))
        said = []
        for clock, of in ((0, "wall clock"), (1, "processor time")):
            pairs = zip(took[False], took[True], strict=True)
            low, middle, high = statistics.quantiles([b[clock] / a[clock] for a, b in pairs], n=4)
            base = statistics.median(a[clock] for a in took[False]) * 1e3
            said.append(
                f"{of} {(middle - 1) * 100:+.1f} % (middle half {(low - 1) * 100:+.1f} to {(high - 1) * 100:+.1f} %) "
                f"on {base:.1f} ms a step"
            )
        print(f"  {name}: {'; '.join(said)}")
    every = (*ON_GRADIENTS, *ON_NORM, *ON_PARAMS)
    took_s = judging_s(engine, every)
    print(f"  judging {len(every)} over {len(opened.params):,} params: {took_s * 1e3:.3f} ms")


if __name__ == "__main__":
    main()
