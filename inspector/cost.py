"""What kernels cost: times over warm samples, bytes moved a second, shares of a plain copy and of the step."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from inspector.floats import F64Array
from inspector.history import History
from inspector.plan import Dispatch, Plan
from inspector.stepping import KernelTime

STEP = "step"
"""The name under which the whole step stands beside its kernels."""
NA = "n/a"


@dataclass(frozen=True, slots=True)
class KernelCost:
    """Times in ms over the warm samples; `bytes_per_element` counts bytes read plus written.

    `gbps` is at the median, `share` that over the measured copy bandwidth, `share_of_step` the median over
    that of the whole step. NaN where no sample is usable, or where there is nothing to divide by.
    """

    name: str
    dispatches: int
    """In one step."""
    elements: int
    bytes_per_element: float
    last_ms: float
    min_ms: float
    median_ms: float
    p95_ms: float
    samples: int
    cold_samples: int
    gbps: float
    share: float
    share_of_step: float
    clock: str
    gflops: float = math.nan
    """10⁹ additions and multiplications of products of matrices a second, at the median; NaN where there are none."""


@dataclass(frozen=True, slots=True)
class Work:
    """What some dispatches do in one step: how many they are, the elements and bytes they work on, and additions and
    multiplications of products of matrices."""

    dispatches: int
    elements: int
    nbytes: int
    operations: int = 0

    @staticmethod
    def of(dispatches: Sequence[Dispatch], elements: int | None = None) -> Work:
        """That of some dispatches; `elements` are those of their ranges where not given."""
        if elements is None:
            elements = sum(d.worked for d in dispatches)
        operations = sum(d.operations for d in dispatches)
        return Work(len(dispatches), elements, sum(d.moved_bytes for d in dispatches), operations)


def works_of(plan: Plan) -> dict[str, Work]:
    """The work by timing key, in the order in which the kernels first run, and last that of the whole step."""
    works = {name: Work.of(group) for name, group in kernels_of(plan).items()}
    return works | {STEP: Work.of(plan.dispatches, plan.layout.elements)}


def kernel_cost(
    name: str,
    work: Work,
    warm_ms: F64Array,
    *,
    cold: int,
    copy_gbps: float = math.nan,
    step_ms: float = math.nan,
    clock: str = "gpu",
) -> KernelCost:
    """The cost of some work from its times in each step, float64 [samples] in ms, oldest first.

    NaN among them is a time that the clock did not give: it is left out. `step_ms` is the median of the
    whole step.
    """
    values = warm_ms[np.isfinite(warm_ms)]
    samples = len(values)
    if not samples:
        values = np.array([np.nan])
    median = float(np.median(values))
    gbps = work.nbytes / median / 1e6 if median else math.nan
    return KernelCost(
        name=name,
        dispatches=work.dispatches,
        elements=work.elements,
        bytes_per_element=work.nbytes / work.elements if work.elements else 0.0,
        last_ms=float(values[-1]),
        min_ms=float(values.min()),
        median_ms=median,
        p95_ms=float(np.quantile(values, 0.95)),
        samples=samples,
        cold_samples=cold,
        gbps=gbps,
        share=gbps / copy_gbps if copy_gbps else math.nan,
        share_of_step=median / step_ms if step_ms else math.nan,
        clock=clock,
        gflops=work.operations / median / 1e6 if median and work.operations else math.nan,
    )


def kernels_of(plan: Plan) -> dict[str, tuple[Dispatch, ...]]:
    """The dispatches by timing key, in the order in which they first run."""
    groups: dict[str, list[Dispatch]] = {}
    for dispatch in plan.dispatches:
        groups.setdefault(dispatch.timing_key, []).append(dispatch)
    return {key: tuple(group) for key, group in groups.items()}


def step_costs(
    plan: Plan, taken: Sequence[Sequence[KernelTime]], copy_gbps: float
) -> tuple[tuple[KernelCost, ...], KernelCost]:
    """The costs by kernel and of the whole step, from the times of every dispatch of each step `taken`.

    The step is the sum of its kernels. One dispatch without a time leaves its kernel and the step out.
    """
    groups, works = {**kernels_of(plan), STEP: plan.dispatches}, works_of(plan)

    def cost(name: str, step_ms: float) -> KernelCost:
        rows = [[times[d.index] for d in groups[name]] for times in taken]
        warm = [sum(_ms(t) for t in row) for row in rows if not any(t.cold for t in row)]
        return kernel_cost(
            name,
            works[name],
            np.array(warm, np.float64),
            cold=len(rows) - len(warm),
            copy_gbps=copy_gbps,
            step_ms=step_ms,
            clock=next((t.clock for row in rows for t in row), "gpu"),
        )

    whole = cost(STEP, math.nan)
    kernels = tuple(cost(name, whole.median_ms) for name in works if name != STEP)
    return kernels, replace(whole, share_of_step=1.0 if whole.samples else math.nan)


def recent_costs(
    works: Mapping[str, Work],
    history: History,
    *,
    after: int,
    recent: int,
    copy_gbps: float = math.nan,
    clock: str = "gpu",
) -> tuple[KernelCost, ...]:
    """The costs by kernel, the whole step last, from the last `recent` points of a history after step `after`.

    The step is the sum of its kernels where all of them have a warm time. Of several steps in one point the
    last one counts.
    """
    rows = np.flatnonzero(history.first > after)[-recent:]
    nothing = np.full(len(rows), np.nan)
    names = [name for name in works if name != STEP]
    warm, cold = {}, {}
    for name in names:
        series = history.series.get(f"ms/{name}")
        warm[name] = series.last[rows] if series is not None else nothing
        series = history.series.get(f"cold/{name}")
        # A cold time that the clock did not give is counted too.
        cold[name] = (
            np.isfinite(series.last[rows]) | (series.gaps[rows] > 0)
            if series is not None
            else np.zeros(len(rows), np.bool_)
        )
    every = np.sum([warm[name] for name in names], axis=0) if names else nothing
    any_cold = np.any([cold[name] for name in names], axis=0) if names else np.zeros(0, np.bool_)
    step = kernel_cost(STEP, works[STEP], every, cold=int(np.sum(any_cold)), copy_gbps=copy_gbps, clock=clock)
    return (
        *(
            kernel_cost(
                name,
                works[name],
                warm[name],
                cold=int(np.sum(cold[name])),
                copy_gbps=copy_gbps,
                step_ms=step.median_ms,
                clock=clock,
            )
            for name in names
        ),
        replace(step, share_of_step=1.0 if step.samples else math.nan),
    )


def span_ms(taken: Sequence[Sequence[KernelTime]]) -> float:
    """Median ms from the beginning of a step's first dispatch to the end of its last, over warm steps.

    Beside the sum of the kernels it shows what lies between them. NaN where the device's clock cannot be read.
    """
    spans = []
    for times in taken:
        if not times or any(t.cold for t in times):
            continue
        known = [
            (t.began_ms, t.began_ms + t.ms) for t in times if t.began_ms is not None and t.ms is not None
        ]
        if len(known) == len(times):
            spans.append(max(end for _, end in known) - min(start for start, _ in known))
    return float(np.median(spans)) if spans else math.nan


def floor_ms(nbytes: float, copy_gbps: float) -> float:
    """ms that moving `nbytes` takes at the bandwidth of a copy; NaN where that is not known."""
    return nbytes / copy_gbps / 1e6 if copy_gbps > 0 else math.nan


CSV_COLUMNS = {
    "dispatches": "calls_per_step",
    "elements": "elements",
    "bytes_per_element": "bytes_per_element",
    "last_ms": "last_ms",
    "min_ms": "min_ms",
    "median_ms": "median_ms",
    "p95_ms": "p95_ms",
    "samples": "warm_samples",
    "cold_samples": "cold_samples",
    "gbps": "GB_per_s",
    "share": "share_of_copy_bandwidth",
    "share_of_step": "share_of_step",
    "clock": "clock",
    "gflops": "GFLOP_per_s",
}
"""Fields of a KernelCost and their headings in a CSV file. Shares are fractions of 1."""


def costs_csv(variants: Iterable[tuple[str, Iterable[KernelCost]]]) -> str:
    """A CSV table, one row a variant and kernel; what is not known stands as n/a."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("variant", "kernel", *CSV_COLUMNS.values()))
    for variant, costs in variants:
        for cost in costs:
            writer.writerow((variant, cost.name, *(_cell(getattr(cost, name)) for name in CSV_COLUMNS)))
    return out.getvalue()


def _cell(value: float | int | str) -> str:
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else NA
    return str(value)


def _ms(time: KernelTime) -> float:
    return math.nan if time.ms is None else time.ms
