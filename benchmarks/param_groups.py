"""What settings of params of their own cost on the host: thousands of tensors in three groups, some of them idle.

    python benchmarks/param_groups.py [TENSORS]

Planning alone, then whole steps on the device: all params alike, three groups, and three groups of which another tenth
of the params has no gradient in each step, so that each step is planned anew. Smallest of several runs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from inspector.gpu.device import Gpu
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.optimizers import plan_step
from inspector.param_hyper import segment_classes
from inspector.plan import DISPATCH_FORMS, Limits, Variant, layout_for
from inspector.settings import ParamSettings, Settings
from inspector.stepping import HostGradients, HostState

CLASSES = (
    Settings(1e-3, 0.9, 0.999, 1e-8, 0.1),
    Settings(3e-4, 0.9, 0.95, 1e-8, 0.0),
    Settings(1e-4, 0.8, 0.9, 1e-6, 0.2),
    Settings(1e-4, 0.8, 0.9, 1e-6, 0.2, behind=3, idle=True),
)
IDLE = 3
RUNS = 9
STEPS = 12


def least_ms(work: Callable[[], object]) -> float:
    """The smallest of several times, in ms."""
    times = []
    for _ in range(RUNS):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return 1e3 * min(times)


def planning(params: list[Param], own: Hyper) -> None:
    """Times of planning a step without the device."""
    for dispatch in DISPATCH_FORMS:
        variant = Variant(dispatch=dispatch)
        layout = layout_for(params, Limits(), variant)
        alike = least_ms(lambda: plan_step(layout, Limits(), variant))  # noqa: B023
        line = f"plan, {dispatch}: {alike:.1f} ms where all share their settings"
        if dispatch != "single":
            classes = segment_classes(layout, own)
            count = len(plan_step(layout, Limits(), variant, classes).dispatches)
            grouped = least_ms(lambda: plan_step(layout, Limits(), variant, classes))  # noqa: B023
            line += f", {grouped:.1f} ms in three groups ({count:,} dispatches)"
        print(line)


def stepping(gpu: Gpu, params: list[Param], settings: Callable[[int], Hyper], what: str) -> None:
    """Times of whole steps on the device."""
    ones = {p.name: np.ones(p.numel, np.float32) for p in params}
    gradients = HostGradients({name: 0.01 * values for name, values in ones.items()})
    variant = Variant()
    stepper = GpuStepper(
        gpu, layout_for(params, gpu.limits, variant), variant, HostState(ones, {}, {}), undo_bytes=0
    )
    times = []
    for step in range(1, STEPS + 1):
        stepper.begin_step(gradients)
        hyper = settings(step)
        started = time.perf_counter()
        stepper.run_to_end(hyper)
        times.append(time.perf_counter() - started)
    print(f"step, {what}: {1e3 * min(times[1:]):.1f} ms, the first {1e3 * times[0]:.1f} ms")
    stepper.release()


def main() -> None:
    """Measure and print."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    params = [Param(f"p{i}", (8, 16) if i % 2 else (16,), group=i % 3) for i in range(count)]
    of = np.arange(count) % 3
    own = Hyper(per_param=ParamSettings(CLASSES, tuple(of.tolist())))

    def changing_rate(step: int) -> Hyper:
        assert own.per_param is not None
        return replace(own, per_param=own.per_param.each(lambda each: replace(each, lr=each.lr / step)))

    def others_idle(step: int) -> Hyper:
        now = of.copy()
        now[np.random.default_rng(step).choice(count, count // 10, replace=False)] = IDLE
        return Hyper(per_param=ParamSettings(CLASSES, tuple(now.tolist())))

    planning(params, own)
    gpu = Gpu()
    stepping(gpu, params, lambda step: Hyper(), "all alike")
    stepping(gpu, params, changing_rate, "three groups, another rate each step")
    stepping(gpu, params, others_idle, "three groups, another tenth idle each step")
    gpu.close()


if __name__ == "__main__":
    main()
