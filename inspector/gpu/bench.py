"""What each kernel costs on this device, on warm clocks, beside the bandwidth that a plain copy reaches."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from inspector.gpu.device import Gpu
from inspector.gpu.opener import device_layout
from inspector.gpu.pipelines import Pipelines
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.plan import WORKGROUP_SIZE, Access, Dispatch, Variant, split_grid
from inspector.preset import drawn_gradients, drawn_state
from inspector.stepping import KernelTime

WARM_UP_S = 1.5
"""A GPU needs more than a second of work to reach its clocks."""
MIN_SAMPLES = 3
MAX_COPIES = 4096
COPY_BYTES = {True: 128 << 20, False: 1 << 30}
"""By `software`: large enough to leave the caches, small enough to be quick."""


@dataclass(frozen=True, slots=True)
class KernelCost:
    """Times in ms over the warm samples; `bytes_per_element` counts bytes read plus written.

    `gbps` is at the median, `share` that over the measured copy bandwidth. NaN where no sample is usable.
    """

    name: str
    dispatches: int
    elements: int
    bytes_per_element: float
    min_ms: float
    median_ms: float
    p95_ms: float
    samples: int
    cold_samples: int
    gbps: float
    share: float
    clock: str


@dataclass(frozen=True, slots=True)
class BenchReport:
    """Costs by kernel, and of the whole step: `step` adds up the kernels of each step."""

    device: str
    elements: int
    params: int
    variant: Variant
    copy_gbps: float
    kernels: tuple[KernelCost, ...]
    step: KernelCost


def copy_gbps(gpu: Gpu, seconds: float = 0.3) -> float:
    """GB/s (bytes read plus written) that a copy reaches on this device, the better of two ways.

    A compute kernel and the queue's own copy: on some GPUs the latter is left to a slower engine, on the
    software adapter it is the faster one.
    """
    nbytes = min(
        COPY_BYTES[gpu.info.software],
        gpu.limits.max_buffer_size,
        gpu.limits.max_storage_buffer_binding_size,
    )
    nbytes = nbytes // 256 * 256
    source, target = gpu.storage("copy source", nbytes), gpu.storage("copy target", nbytes)
    pipelines = Pipelines(gpu)
    slots: tuple[tuple[int, Access], ...] = ((0, "read"), (1, "read_write"))
    pipeline = pipelines.get("copy", "copy", slots)
    group = pipelines.bind(slots, [(source, 0, nbytes), (target, 0, nbytes)])
    grid = split_grid(-(-nbytes // 16 // WORKGROUP_SIZE), gpu.limits.max_compute_workgroups_per_dimension)

    def by_kernel(encoder: Any, count: int) -> None:
        compute = encoder.begin_compute_pass()
        compute.set_pipeline(pipeline)
        compute.set_bind_group(0, group)
        for _ in range(count):
            compute.dispatch_workgroups(*grid)
        compute.end()

    def by_queue(encoder: Any, count: int) -> None:
        for _ in range(count):
            encoder.copy_buffer_to_buffer(source, 0, target, 0, nbytes)

    warm_up = 0.0 if gpu.info.software else WARM_UP_S
    best = max(2 * nbytes / _seconds_each(gpu, way, seconds, warm_up) / 1e9 for way in (by_kernel, by_queue))
    gpu.release(source)
    gpu.release(target)
    return best


def _seconds_each(gpu: Gpu, record: Callable[[Any, int], None], seconds: float, warm_up: float) -> float:
    """Seconds of one of what `record` records, by the CPU's clock over at least `seconds` of them."""

    def run(count: int) -> float:
        encoder = gpu.encoder()
        record(encoder, count)
        started = time.perf_counter()
        gpu.submit(encoder)
        gpu.wait()
        return time.perf_counter() - started

    count, spent = 1, 0.0
    began = time.perf_counter()
    while spent < seconds or time.perf_counter() - began < warm_up:
        spent = run(count)
        if spent < seconds:
            count = min(count * 2, MAX_COPIES)
            if count == MAX_COPIES and time.perf_counter() - began > seconds + warm_up:
                break
    return min(run(count), run(count)) / count


def bench(
    gpu: Gpu,
    params: tuple[Param, ...],
    variant: Variant,
    *,
    seed: int = 0,
    samples: int = 100,
    seconds: float = 30.0,
    copy: float | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> BenchReport:
    """Time `samples` steps (fewer where `seconds` run out, at least 3) after a warm-up."""
    copied = copy if copy is not None else copy_gbps(gpu)
    layout = device_layout(gpu, params, variant)
    stepper = GpuStepper(gpu, layout, variant, drawn_state(params, seed), undo_bytes=0)
    gradients = drawn_gradients(params, seed, 1)
    hyper = Hyper()
    taken: list[tuple[KernelTime, ...]] = []
    warm = step = 0
    began = time.perf_counter()
    while warm < samples:
        step += 1
        stepper.begin_step(replace(gradients, step=step))
        taken.append(stepper.run_to_end(hyper))
        warm += not any(t.cold for t in taken[-1])
        progress(warm)
        spent = time.perf_counter() - began
        if spent > seconds and (warm >= MIN_SAMPLES or spent > 4 * seconds):
            break
    groups: dict[str, list[int]] = {}
    for dispatch in stepper.plan.dispatches:
        groups.setdefault(dispatch.timing_key, []).append(dispatch.index)
    all_dispatches = stepper.plan.dispatches
    kernels = tuple(
        _cost(key, [all_dispatches[i] for i in which], [[t[i] for i in which] for t in taken], copied)
        for key, which in groups.items()
    )
    whole = _cost("step", all_dispatches, [list(t) for t in taken], copied, layout.elements)
    stepper.release()
    return BenchReport(gpu.info.name, layout.elements, len(layout.segments), variant, copied, kernels, whole)


def _cost(
    name: str,
    dispatches: Sequence[Dispatch],
    taken: Sequence[Sequence[KernelTime]],
    copied: float,
    elements: int | None = None,
) -> KernelCost:
    usable = [times for times in taken if all(t.ms is not None for t in times)]
    warm = [sum(t.ms or 0.0 for t in times) for times in usable if not any(t.cold for t in times)]
    cold = sum(any(t.cold for t in times) for times in taken)
    nbytes = sum(moved_bytes(d) for d in dispatches)
    if elements is None:
        elements = sum(d.elements[1] - d.elements[0] for d in dispatches)
    values = np.array(warm) if warm else np.array([np.nan])
    median = float(np.median(values))
    gbps = nbytes / median / 1e6 if median else float("nan")
    return KernelCost(
        name=name,
        dispatches=len(dispatches),
        elements=elements,
        bytes_per_element=nbytes / elements if elements else 0.0,
        min_ms=float(values.min()),
        median_ms=median,
        p95_ms=float(np.quantile(values, 0.95)),
        samples=len(warm),
        cold_samples=cold,
        gbps=gbps,
        share=gbps / copied,
        clock=taken[0][0].clock if taken and taken[0] else "gpu",
    )


def moved_bytes(dispatch: Dispatch) -> int:
    """Bytes a dispatch has to move: each storage range read once, and written once where it may be."""
    return sum(
        b.size * (2 if b.access == "read_write" else 1) for b in dispatch.bindings if b.access != "uniform"
    )
