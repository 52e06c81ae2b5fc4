"""How long work takes a device when it is repeated without a pause, and nothing is timed inside."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from inspector.gpu.device import Gpu
from inspector.progress import advanced

MAX_TIMES = 4096


def seconds_each(
    gpu: Gpu,
    record: Callable[[Any, int], None],
    seconds: float,
    warm_up: float,
    between: Callable[[], None],
) -> float:
    """Seconds of one of what `record` records as often as it is told, by the CPU's clock over at least `seconds` of it.

    Devices that idle run at low clocks: it goes on for `warm_up` s before that counts. `between` is called between any
    two submissions; what it raises ends it.
    """

    def run(count: int) -> float:
        between()
        advanced(
            int(1e3 * min(time.perf_counter() - began, seconds + warm_up)), int(1e3 * (seconds + warm_up))
        )
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
            count = min(count * 2, MAX_TIMES)
            if count == MAX_TIMES and time.perf_counter() - began > seconds + warm_up:
                break
    return min(run(count), run(count)) / count
