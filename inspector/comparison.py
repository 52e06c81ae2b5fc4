"""What measuring forms of the step gives: the costs of each, beside the one they are compared with."""

from __future__ import annotations

import math
from dataclasses import dataclass

from inspector.cost import KernelCost
from inspector.plan import Plan, Variant
from inspector.stepping import KernelTime
from inspector.variants import DEFAULT, Skipped


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Costs by kernel, and of the whole step, of steps that run one plan; members as of `BenchReport`."""

    kernels: tuple[KernelCost, ...]
    step: KernelCost
    span_ms: float
    through_ms: float


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
    span_ms: float
    """Median ms from the beginning of the first dispatch to the end of the last; NaN where it is not known."""
    plan: Plan
    last_steps: tuple[tuple[KernelTime, ...], ...]
    """The times of the last warm steps, dispatch by dispatch."""
    name: str = DEFAULT
    between: StepCosts | None = None
    """Those of steps that go without what only some do, of an optimizer that has such: all else is of the others."""
    through_ms: float = math.nan
    """Ms of a step as an engine runs it, by the CPU's clock: many one behind the other, each in one pass, with no
    timestamp between, as the copy is measured that it is held against."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Reports of variants that took turns, the one they are compared with first, and those that cannot run."""

    reports: tuple[BenchReport, ...]
    skipped: tuple[Skipped, ...]

    def ratio(self, report: BenchReport) -> float:
        """The median step of a report over that of the first; NaN where either has no time."""
        base = self.reports[0].step.median_ms
        return report.step.median_ms / base if base else math.nan
