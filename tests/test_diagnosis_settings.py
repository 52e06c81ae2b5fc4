"""Rules where params have settings of their own: each is judged by its own rate, β, ε, λ and t, or sits out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from diagnosis_steps import Run, one, rules

from inspector.diagnosis.facts import StepFacts
from inspector.floats import F32Array
from inspector.hyper import Hyper
from inspector.optimizers import plan_step
from inspector.optimizers.adamw.oracle import clip_scale, kernel_norm, update
from inspector.param_hyper import segment_classes
from inspector.param_statistics import ParamTable, counts_of, param_stats
from inspector.plan import Limits
from inspector.settings import ParamSettings, Settings

BASE = Settings(1e-3, 0.9, 0.999, 1e-8, 0.01)
NO_DECAY = replace(BASE, weight_decay=0.0)
SLOW = replace(BASE, lr=1e-4, beta2=0.95)
IDLE = replace(BASE, idle=True)
NAMES = ("a.weight", "b.weight", "c.weight", "norm")
By = Callable[[int], Mapping[str, Settings]]


class GroupedRun(Run):
    """A run in which `by(step)` says what each param takes a step with, given and taken by hand."""

    def __init__(self, by: By, **settings: Any) -> None:
        super().__init__(hyper=Hyper(max_grad_norm=np.inf), **settings)
        self.by = by

    def given(self, step: int) -> Hyper:
        own = self.by(step)
        classes = tuple(dict.fromkeys(own[name] for name in NAMES))
        of = tuple(classes.index(own[name]) for name in NAMES)
        return replace(self.hyper, per_param=ParamSettings(classes, of))

    def _alone(self, own: Settings) -> dict[str, Any]:
        hyper = Hyper(own.lr, own.beta1, own.beta2, own.eps, own.weight_decay, np.inf)
        return {"hyper": hyper, "step": self.step + 1 - own.behind}

    def look(self, g: Mapping[str, F32Array], loss: float | None = 3.0, **changes: Any) -> StepFacts:
        step, by = self.step + 1, self.by(self.step + 1)
        hyper = self.given(step)
        heard = {s.name: np.zeros_like(g[s.name]) if by[s.name].idle else g[s.name] for s in self.layout}
        norm = float(np.float32(kernel_norm(np.concatenate([heard[s.name] for s in self.layout]))))
        scale = float(clip_scale(norm, np.inf, np.float32))
        rows = []
        for s in self.layout:
            own = by[s.name]
            lanes: Any = {"w": self.w[s.name], "g": heard[s.name], "m": self.m[s.name], "v": self.v[s.name]}
            # What takes no part moves by nothing, as of a rate of 0.
            used = replace(own, lr=0.0, eps=0.0, behind=0) if own.idle else own
            rows.append(
                param_stats(s.name, "wd", lanes, clip_scale=scale, start=s.offset, **self._alone(used))
            )
        table = ParamTable.of(rows)
        plan = plan_step(self.layout, Limits(), self.variant, segment_classes(self.layout, hyper))
        return replace(
            StepFacts(step, self.layout, hyper, counts_of(table, "g"), norm, scale, loss, variant=self.variant,
                      plan=plan, table=table), **changes,
        )  # fmt: skip

    def update(self, g: Mapping[str, F32Array], facts: StepFacts) -> None:
        for s in self.layout:
            own = self.by(self.step + 1)[s.name]
            if own.idle:
                continue
            done = update(
                self.w[s.name], g[s.name], self.m[s.name], self.v[s.name], scale=facts.clip_scale or 0.0,
                decays=True, **self._alone(own),
            )  # fmt: skip
            for lane, value in (("w", done.w), ("m", done.m), ("v", done.v)):
                getattr(self, lane)[s.name] = np.asarray(value, np.float32)
        self.step += 1


def usual(**changes: Settings) -> By:
    own = {"a.weight": BASE, "b.weight": SLOW, "c.weight": BASE, "norm": NO_DECAY}
    return lambda step: {**own, **{name.replace("_", "."): each for name, each in changes.items()}}


def test_a_healthy_run_of_several_groups_is_told_nothing() -> None:
    assert rules(GroupedRun(usual()).go(40)) == []


def test_a_param_that_sits_out_is_neither_stuck_nor_unwritten_nor_unexplained() -> None:
    def by(step: int) -> Mapping[str, Settings]:
        missed = min(max(step - 11, 0), 20)
        return {**usual()(step), "b.weight": replace(SLOW, behind=missed, idle=11 <= step <= 30)}

    found = GroupedRun(by).go(60)
    # It is told once that it gets no gradient.
    assert set(rules(found)) <= {"dead-gradient"}
    if found:
        assert "has had no gradient" in found[0].message


def test_a_param_without_a_gradient_is_told_in_words_of_its_own() -> None:
    idle = one(GroupedRun(usual(b_weight=IDLE)).go(140), "dead-gradient")
    assert idle.param == "b.weight"
    assert "takes no part" in idle.message


def test_an_update_is_small_or_large_in_units_of_its_own_rate() -> None:
    # 1e-9 of the run's rate would be starved; of its own rate it is an update like any other.
    tiny = replace(BASE, lr=1e-6)
    assert "starved-update" not in rules(GroupedRun(usual(b_weight=tiny)).go(60))
    large = replace(BASE, lr=0.5)
    found = one(GroupedRun(usual(c_weight=large)).go(1), "large-update")
    assert found.param == "c.weight"
    assert found.evidence["lr"] == 0.5


def test_a_rate_that_jumps_is_that_of_its_group() -> None:
    def by(step: int) -> Mapping[str, Settings]:
        return usual(b_weight=replace(SLOW, lr=1e-4 if step < 12 else 5e-4))(step)

    found = one(GroupedRun(by).go(20), "learning-rate-jump")
    assert (found.step, found.param) == (12, "b.weight")
    assert found.evidence == {"lr": 5e-4, "before": 1e-4, "peak": 1e-4}

    def falls(step: int) -> Mapping[str, Settings]:
        return usual(b_weight=replace(SLOW, lr=1e-4 if step < 12 else 2e-6))(step)

    assert "fell from" in one(GroupedRun(falls).go(20), "learning-rate-jump").message

    def rises(step: int) -> Mapping[str, Settings]:
        return usual(b_weight=replace(SLOW, lr=1e-4 if step < 12 else 2.9e-4))(step)

    assert "learning-rate-jump" not in rules(GroupedRun(rises).go(20))


@pytest.mark.parametrize(
    ("own", "rule", "says"),
    [
        (replace(BASE, beta2=1.5), "invalid-setting", "beta2 of b.weight 1.5 is outside"),
        (replace(BASE, eps=0.0), "zero-eps", "ε of b.weight is 0"),
        (replace(BASE, beta1=0.99, beta2=0.9), "unstable-betas", "of b.weight is not below"),
    ],
)
def test_a_setting_that_one_group_has_is_told_with_a_param_of_it(own: Settings, rule: str, says: str) -> None:
    with np.errstate(all="ignore"):
        found = one(GroupedRun(usual(b_weight=own)).go(1), rule)
    assert says in found.message
    assert found.param == "b.weight"
    # Nobody is idle with it: what takes no part is of no concern.
    assert rule not in rules(GroupedRun(usual(b_weight=replace(own, idle=True))).go(1))


def test_decay_of_a_norm_is_that_of_its_group() -> None:
    found = one(GroupedRun(usual(norm=BASE)).go(1), "decay-on-norm-or-bias")
    assert (found.param, found.evidence["weight_decay"]) == ("norm", 0.01)
    assert "decay-on-norm-or-bias" not in rules(GroupedRun(usual()).go(1))


def test_eps_is_held_against_its_own() -> None:
    large = replace(BASE, eps=1.0)
    found = one(GroupedRun(usual(b_weight=large)).go(20), "eps-dominates")
    assert (found.param, found.evidence["eps"]) == ("b.weight", 1.0)


def test_moments_are_followed_with_their_own_betas() -> None:
    run = GroupedRun(usual(b_weight=replace(BASE, beta1=0.5, beta2=0.6)))
    assert rules(run.go(20)) == []
    run.m["b.weight"] *= np.float32(3)
    assert one(run.go(1), "unexplained-moments").param == "b.weight"
    # What sits out keeps its moments.
    still = GroupedRun(lambda step: usual(b_weight=replace(BASE, idle=step > 10))(step))
    still.go(15)
    still.m["b.weight"] *= np.float32(1.01)
    assert one(still.go(1), "unexplained-moments").param == "b.weight"
