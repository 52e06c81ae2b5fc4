"""Times of dispatches as metrics of a step."""

from __future__ import annotations

import math
from collections.abc import Sequence

from inspector.plan import Plan
from inspector.stepping import KernelTime


def kernel_metrics(plan: Plan, times: Sequence[KernelTime | None]) -> dict[str, float]:
    """Milliseconds of a step by kernel, "ms/KEY", or "cold/KEY" where any of its dispatches was cold.

    Cold samples stand in a series of their own, so that no mean takes them in. NaN where the clock gave nothing.
    """
    total: dict[str, float] = {}
    cold: set[str] = set()
    for dispatch, time_ in zip(plan.dispatches, times, strict=True):
        if time_ is None:
            continue
        key = dispatch.timing_key
        total[key] = total.get(key, 0.0) + (math.nan if time_.ms is None else time_.ms)
        if time_.cold:
            cold.add(key)
    return {f"{'cold' if key in cold else 'ms'}/{key}": ms for key, ms in total.items()}
