"""The whole step bare, and with the full statistics of each param, in one run.

    python benchmarks/statistics_cost.py [ELEMENTS | gpt-116m]

One stepper runs both, a step of each in turn, so that a machine whose speed drifts does not favour either. GPU
time is that of all passes of a step; the wall clock adds submissions, and with statistics their reading back.
Beside it stands the floor: 16 bytes an element read at the speed of a copy.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace

import numpy as np

from inspector.gpu.copying import copy_gbps
from inspector.gpu.device import Gpu
from inspector.gpu.opener import device_layout
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import Hyper
from inspector.plan import Variant
from inspector.preset import drawn_gradients, drawn_state, gpt_116m_params, synthetic_params

STEPS = {True: 15, False: 100}
"""By `software`: how many of each are measured."""
WARM_UP_S = {True: 0.0, False: 1.5}
"""By `software`: a GPU needs more than a second of work to reach its clocks."""
BETWEEN = {True: 0, False: 20}
"""Steps run before each that is measured, so that a GPU does not idle while the host works on statistics."""
BYTES_READ = 16


def main() -> None:
    """Print the medians of both."""
    wanted = sys.argv[1] if len(sys.argv) > 1 else "8000000"
    params = gpt_116m_params() if wanted == "gpt-116m" else synthetic_params(int(wanted))
    gpu = Gpu()
    copied = copy_gbps(gpu)
    layout = device_layout(gpu, params, Variant())
    stepper = GpuStepper(gpu, layout, Variant(), drawn_state(params, 0), undo_bytes=0)
    gradients, hyper = drawn_gradients(params, 0, 1), Hyper()
    taken: dict[str, list[tuple[float, float, float]]] = {"bare": [], "full": []}
    began = time.perf_counter()
    step = warm = 0
    while warm < 2 * STEPS[gpu.info.software]:
        for _ in range(BETWEEN[gpu.info.software]):
            stepper.begin_step(replace(gradients, step=step))
            stepper.run_to_end(hyper)
        step += 1
        form = ("bare", "full")[step % 2]
        stepper.begin_step(replace(gradients, step=step))
        gpu.wait()
        started = time.perf_counter()
        counted: float | None = 0.0
        times = ()
        if form == "full":
            while not stepper.plan.dispatches[stepper.cursor.dispatch].updates:
                times += (stepper.run_dispatch(hyper),)
            stepper.param_stats(hyper)
            counted = stepper.param_stats_ms
        times += stepper.run_to_end(hyper)
        wall = (time.perf_counter() - started) * 1e3
        if time.perf_counter() - began < WARM_UP_S[gpu.info.software] or step <= 2:
            continue
        warm += 1
        passes = sum(t.ms if t.ms is not None else float("nan") for t in times)
        counted = float("nan") if counted is None else counted
        taken[form].append((passes + counted, counted, wall))
    bare, full = (np.median(np.array(taken[form]), axis=0) for form in ("bare", "full"))
    floor = BYTES_READ * layout.elements / copied / 1e6
    what = f"{layout.elements:,} elements in {len(layout.segments):,} params"
    print(f"{what} on {gpu.info.name}; a copy moves {copied:.1f} GB/s")
    print(f"  bare: GPU {bare[0]:8.3f} ms, wall {bare[2]:8.3f} ms")
    print(
        f"  full: GPU {full[0]:8.3f} ms, wall {full[2]:8.3f} ms, statistics {full[1]:.3f} ms (floor {floor:.3f} ms)"
    )
    print(f"  GPU time: +{full[0] - bare[0]:.3f} ms, {full[0] / bare[0]:.2f} times")


if __name__ == "__main__":
    main()
