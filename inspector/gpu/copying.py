"""The bandwidth that a plain copy reaches on this device: what every kernel is measured against."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from inspector.gpu.device import Gpu
from inspector.gpu.pipelines import Pipelines
from inspector.gpu.repeating import seconds_each
from inspector.plan import WORKGROUP_SIZE, Access, split_grid

WARM_UP_S = 1.5
"""A GPU needs more than a second of work to reach its clocks."""
COPY_BYTES = {True: 128 << 20, False: 1 << 30}
"""By `software`: large enough to leave the caches, small enough to be quick."""


def copy_gbps(gpu: Gpu, seconds: float = 0.3, *, between: Callable[[], None] = lambda: None) -> float:
    """GB/s (bytes read plus written) that a copy reaches on this device, the better of two ways.

    A compute kernel and the queue's own copy: on some GPUs the latter is left to a slower engine, on the
    software adapter it is the faster one. `between` is called between any two batches; what it raises ends it.
    """
    nbytes = min(
        COPY_BYTES[gpu.info.software],
        gpu.limits.max_buffer_size,
        gpu.limits.max_storage_buffer_binding_size,
    )
    nbytes = nbytes // 256 * 256
    with ExitStack() as held:
        source = gpu.storage("copy source", nbytes)
        held.callback(gpu.release, source)
        target = gpu.storage("copy target", nbytes)
        held.callback(gpu.release, target)
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

        # The first way warms the clocks for the second.
        warm_up = 0.0 if gpu.info.software else WARM_UP_S
        first = seconds_each(gpu, by_kernel, seconds, warm_up, between)
        return 2 * nbytes / min(first, seconds_each(gpu, by_queue, seconds, 0.0, between)) / 1e9
