"""What the rules of the diagnosis cost a step on the CPU: the reference layout, and one of many params.

    python benchmarks/diagnosis_cost.py [--steps 400] [--params 20000] [--by-rule]

No GPU: statistics are drawn, as healthy training gives them. Median and 95th percentile of
the processor time of `Diagnosis.observe` over the steps after a full window.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from inspector.diagnosis.diagnosis import Diagnosis
from inspector.diagnosis.facts import StepFacts
from inspector.diagnosis.memory import WINDOW
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.optimizers import plan_step
from inspector.param_statistics import LaneColumns, ParamTable, UpdateColumns, counts_of
from inspector.plan import Limits, Plan, Variant, layout_for
from inspector.preset import gpt_116m_params
from inspector.statistics import BINS


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--params", type=int, default=20_000)
    parser.add_argument("--by-rule", action="store_true")
    given = parser.parse_args()
    reference = gpt_116m_params()
    many = tuple(Param(f"p.{i}.weight", (64, 64)) for i in range(given.params))
    for params in (reference, many):
        measure(params, given.steps, given.by_rule)


def measure(params: tuple[Param, ...], steps: int, by_rule: bool) -> None:
    """Observe so many steps of a made-up run of `params`."""
    limits = Limits(max_storage_buffer_binding_size=1 << 31, max_buffer_size=1 << 31)
    plan = plan_step(layout_for(params, limits, Variant()), limits, Variant())
    rng = np.random.default_rng(0)
    diagnosis = Diagnosis()
    times = []
    found = 0
    by: dict[str, float] = {}
    # Step 1 begins without moments.
    for step in range(2, steps + 2):
        facts = drawn(plan, step, rng)
        if by_rule and step > WINDOW:
            diagnosis.rules = tuple(replace(r, judge=_timed(r.judge, r.name, by)) for r in Diagnosis().rules)
        started = time.thread_time()
        found += len(diagnosis.observe(facts))
        times.append(time.thread_time() - started)
    ms = 1e3 * np.array(times[WINDOW:])
    print(
        f"{len(params):,} params, {len(ms)} steps: {np.median(ms):.2f} ms median, {np.percentile(ms, 95):.2f} p95, "
        f"{ms.min():.2f} least; {found} findings"
    )
    for name, seconds in sorted(by.items(), key=lambda item: -item[1])[:15]:
        print(f"  {name:28s} {1e6 * seconds / len(ms):8.1f} us")


def _timed(judge, name, by):
    def run(facts, memory):
        started = time.perf_counter()
        seen = judge(facts, memory)
        by[name] = by.get(name, 0.0) + time.perf_counter() - started
        return seen

    return run


def drawn(plan: Plan, step: int, rng: np.random.Generator) -> StepFacts:
    """A step whose statistics are as healthy training has them."""
    layout = plan.layout
    numel = np.array([s.numel for s in layout], np.int64)
    count = len(numel)
    spread = np.exp2(rng.normal(0, 0.1, count))
    norms = {"w": 0.02, "g": 1e-3, "m": 3e-4, "v": 1e-6}

    def lane(name: str) -> LaneColumns:
        norm = norms[name] * np.sqrt(numel) * (spread if name == "g" else 1.0)
        if name == "w":
            norm = norm * (1 + 1e-6 * step)
        high = 5 * norm / np.sqrt(numel)
        whole = np.zeros(count, np.int64)
        exponents = np.zeros((count, BINS), np.uint32)
        exponents[:, 127 + int(np.log2(norms[name]))] = numel
        low = np.zeros(count) if name == "v" else -high
        return LaneColumns(whole, whole, whole, whole - 1, whole, low, high, norm, exponents)

    whole = np.zeros(count, np.int64)
    offsets = np.array([s.offset for s in layout], np.int64)
    update = UpdateColumns(
        2e-4 * np.sqrt(numel), rng.uniform(0.8, 1.2, count), offsets, whole, whole, whole, whole, whole
    )
    lanes = MappingProxyType({name: lane(name) for name in ("w", "g", "m", "v")})
    table = ParamTable(
        tuple(s.name for s in layout), tuple(s.block for s in layout), numel, lanes, update
    )  # fmt: skip
    norm = float(np.sqrt(np.sum(np.square(lanes["g"].norm))))
    return StepFacts(
        step, layout, Hyper(max_grad_norm=math.inf), counts_of(table, "g"), norm, 1.0, 3.0,
        plan=plan, table=table,
    )  # fmt: skip


if __name__ == "__main__":
    main()
