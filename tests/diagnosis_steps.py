"""Steps for the rules to look at: a run in numpy whose state, statistics and norms come from the float64 oracle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from inspector.diagnosis.diagnosis import Diagnosis
from inspector.diagnosis.facts import StepFacts
from inspector.findings import Finding
from inspector.floats import F32Array
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.optimizers import plan_step
from inspector.optimizers.adamw.oracle import clip_scale, kernel_norm, update
from inspector.param_statistics import ParamTable, counts_of, param_stats
from inspector.plan import Limits, Variant, layout_for

PARAMS = (
    Param("a.weight", (16, 32)),
    Param("b.weight", (16, 32)),
    Param("c.weight", (4, 8)),
    Param("norm", (32,)),
)
"""Two of one shape, a small one, and one without decay."""
Lanes = dict[str, F32Array]


class Run:
    """A healthy run until something is planted. `w`, `m`, `v` are float32 by name, flat; `step` counts finished steps.

    `rows` are what a recording of it would know.
    """

    def __init__(
        self,
        params: Sequence[Param] = PARAMS,
        hyper: Hyper | None = None,
        *,
        variant: Variant | None = None,
        seed: int = 0,
        step: int = 0,
    ) -> None:
        self.variant = variant or Variant()
        self.layout = layout_for(params, Limits(), self.variant)
        self.plan = plan_step(self.layout, Limits(), self.variant)
        self.hyper = hyper or Hyper(max_grad_norm=np.inf)
        self.rng = np.random.default_rng(seed)
        self.step = step
        self.w: Lanes = {p.name: self._normal(p, 0.05) for p in params}
        self.m: Lanes = {p.name: np.zeros(p.numel, np.float32) for p in params}
        self.v: Lanes = {p.name: np.zeros(p.numel, np.float32) for p in params}
        self.diagnosis = Diagnosis()
        self.facts: StepFacts | None = None

    def _normal(self, param: Param, size: float) -> F32Array:
        return (size * self.rng.standard_normal(param.numel)).astype(np.float32)

    def gradients(self, size: float = 1e-3) -> Lanes:
        """Normal ones, whose size varies by about a tenth from step to step as a batch does."""
        batch = size * 2 ** self.rng.normal(0, 0.15)
        return {s.name: self._normal(s.param, batch) for s in self.layout}

    def warm(self, steps: int = 0) -> None:
        """Start with the moments of a run that has gone on for `steps` steps at that size of gradients."""
        for name in self.m:
            self.m[name] = (1e-4 * self.rng.standard_normal(len(self.m[name]))).astype(np.float32)
            self.v[name] = np.full(len(self.v[name]), 1e-6 * (1 - self.hyper.beta2**steps), np.float32)
        self.step = steps

    def look(self, g: Mapping[str, F32Array], loss: float | None = 3.0, **changes: Any) -> StepFacts:
        """The facts of the next step with these gradients, in float32 as the kernels have them."""
        everything = np.concatenate([g[s.name] for s in self.layout])
        with np.errstate(over="ignore"):
            norm = float(np.float32(kernel_norm(everything)))
        hyper = changes.pop("hyper", self.hyper)
        scale = float(clip_scale(norm, hyper.max_grad_norm, np.float32))
        codec = self.variant.codec if self.variant.kernel == "8bit" else None
        table = ParamTable.of(
            param_stats(
                s.name, s.block,
                {"w": self.w[s.name], "g": g[s.name], "m": self.m[s.name], "v": self.v[s.name]},
                clip_scale=scale, hyper=hyper, step=self.step + 1, start=s.offset,
                codec=codec if s.state == "8bit" else None,
            )
            for s in self.layout
        )  # fmt: skip
        facts = StepFacts(
            self.step + 1, self.layout, hyper, counts_of(table, "g"), norm, scale, loss,
            variant=self.variant, plan=self.plan, table=table,
        )  # fmt: skip
        return replace(facts, **changes)

    def update(self, g: Mapping[str, F32Array], facts: StepFacts) -> None:
        """Take the step, by the oracle in float64, kept in float32."""
        for s in self.layout:
            done = update(
                self.w[s.name], g[s.name], self.m[s.name], self.v[s.name], scale=facts.clip_scale or 0.0,
                hyper=facts.hyper, step=self.step + 1, decays=s.block == "wd",
            )  # fmt: skip
            for lane, value in (("w", done.w), ("m", done.m), ("v", done.v)):
                getattr(self, lane)[s.name] = np.asarray(value, np.float32)
        self.step += 1

    def go(
        self,
        steps: int = 1,
        *,
        g: Mapping[str, F32Array] | Callable[[int], Mapping[str, F32Array]] | None = None,
        loss: float | Callable[[int], float] | None = 3.0,
        **changes: Any,
    ) -> list[Finding]:
        """Run and diagnose steps; what was found in them."""
        found: list[Finding] = []
        for _ in range(steps):
            t = self.step + 1
            given = self.gradients() if g is None else g(t) if callable(g) else g
            self.facts = self.look(given, loss(t) if callable(loss) else loss, **changes)
            found += self.diagnosis.observe(self.facts)
            self.update(given, self.facts)
        return found


def rules(found: Iterable[Finding]) -> list[str]:
    """The rules of findings in their order."""
    return [f.rule for f in found]


def one(found: Sequence[Finding], rule: str) -> Finding:
    """The only finding of a rule, among others."""
    (only,) = [f for f in found if f.rule == rule]
    assert only.message.endswith(".")
    assert only.advice.endswith(".")
    assert only.source
    return only
