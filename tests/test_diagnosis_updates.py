"""Rules over the update, the settings and the state: both sides of each threshold."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from diagnosis_steps import Run, one, rules

from inspector.diagnosis.diagnosis import step_findings
from inspector.diagnosis.rules.updates import second_moment_lag
from inspector.hyper import Hyper
from inspector.layout import Param

FREE = Hyper(max_grad_norm=math.inf)


# --- the size of the update


def test_an_update_of_a_fifth_of_the_weights() -> None:
    """At step 1 every element moves by lr: weights of 1e-2 by 19% and by 21% of them."""
    for lr, told in ((1.9e-3, []), (2.1e-3, ["large-update"])):
        run = Run(hyper=replace(FREE, lr=lr, weight_decay=0.0))
        for name in run.w:
            run.w[name] = np.full(len(run.w[name]), 1e-2, np.float32)
        found = run.go()
        assert rules(found) == told
        if told:
            assert found[0].evidence["update_ratio"] == pytest.approx(0.21, rel=1e-3)
            assert found[0].evidence["params"] == 4


def test_an_update_of_many_times_the_weights_is_told_in_times() -> None:
    """The first update of AdamW is lr in each element: 1e6 · √512 beside a norm of 0.05 · √512 or so."""
    found = one(Run(hyper=Hyper(lr=1e6, max_grad_norm=np.inf, weight_decay=0.0)).go(), "large-update")
    ratio = 1e6 * np.sqrt(512) / found.evidence["w_norm"]
    assert found.evidence["update_ratio"] == pytest.approx(ratio, rel=0.01)
    assert re.search(r"is 2\.\d+e7 times its norm", found.message)


def test_weights_that_begin_at_0_are_small_beside_their_updates() -> None:
    run = Run(hyper=FREE)
    run.w["norm"][:] = 0
    assert run.go(40) == []


def test_an_element_that_moves_by_more_than_two_rates_because_v_lags() -> None:
    """v knows 1e-3; a gradient of 1,000 times that: m = 0.1, v = 1e-6 + 1e-3, so 0.1/√1e-3 = 3.16 rates."""
    run = Run(hyper=replace(FREE, weight_decay=0.0))
    run.warm(5000)
    assert run.go(40, g=lambda t: run.gradients(1e-3)) == []
    g = run.gradients(1e-3)
    g["b.weight"][77] = 1.0
    found = one(run.go(g=g), "lagging-second-moment")
    assert (found.param, found.index, found.dispatch) == ("b.weight", 77, 2)
    assert found.evidence["largest_update"] == pytest.approx(0.1 / math.sqrt(1e-3), rel=0.01)


def test_the_first_gradient_of_an_embedding_row_is_no_lag() -> None:
    """Rows whose token comes for the first time move by up to 3.16 rates in any healthy run."""
    run = Run(hyper=replace(FREE, weight_decay=0.0))
    run.warm(5000)
    run.v["a.weight"][256:] = run.m["a.weight"][256:] = 0

    def sparse(t: int) -> dict[str, np.ndarray]:
        g = run.gradients(1e-3)
        g["a.weight"][:250] = g["a.weight"][310:] = 0
        return g

    assert (
        run.go(40, g=lambda t: sparse(t) | {"a.weight": np.zeros(512, np.float32)})[0].rule == "dead-gradient"
    )
    assert "lagging-second-moment" not in rules(run.go(g=sparse))


def test_the_lag_of_v_behind_g_by_hand() -> None:
    """v̂ = 1e-6 · 256 elements, g² = 4e-6 each: 4, within the third that a histogram by powers of two leaves."""
    run = Run(hyper=FREE)
    run.warm(100)
    g = {s.name: np.full(s.numel, 2e-3, np.float32) for s in run.layout}
    assert second_moment_lag(run.look(g)) == pytest.approx(np.full(4, 4.0), rel=0.4)


def test_updates_that_v_starves() -> None:
    """After a spike of 1e4 times, √v̂ stays at that for 1/(1-β₂) steps: the update is next to nothing."""
    run = Run(hyper=replace(FREE, weight_decay=0.0))
    run.warm(5000)
    run.v["a.weight"][:] = 1.0
    assert "starved-update" not in rules(run.go(31))
    found = one(run.go(), "starved-update")
    assert (found.param, found.evidence["steps"]) == ("a.weight", 32)
    assert found.evidence["update_rms"] < 1e-3


def test_updates_that_are_rounded_away() -> None:
    """Weights of 1,000 have a spacing of 6.1e-5, updates of 1e-5 change nothing."""
    run = Run(hyper=replace(FREE, lr=1e-5, weight_decay=0.0))
    run.w["b.weight"][:] = 1000.0
    run.w["a.weight"][:300] = 1000.0
    assert run.go(7) == []
    found = run.go()
    assert rules(found) == ["unchanged-param", "lost-update"]
    assert (found[0].param, found[0].evidence["lost"]) == ("b.weight", 512)
    assert (found[1].param, found[1].evidence["lost"]) == ("a.weight", 300)


def test_the_end_of_a_schedule_loses_updates_as_it_should() -> None:
    run = Run(hyper=FREE)
    run.go(3)
    assert not {"lost-update", "unchanged-param"} & set(rules(run.go(20, hyper=replace(FREE, lr=1e-13))))
    rising = Run(hyper=FREE)
    found = [f for t in range(1, 20) for f in rising.go(hyper=replace(FREE, lr=1e-13 * t))]
    assert not {"lost-update", "unchanged-param"} & set(rules(found))


def test_epsilon_that_rules_the_update() -> None:
    """√v̂ is the gradient's size: 1e-3 above and below ε."""
    for eps, told in ((5e-4, []), (2e-3, ["eps-dominates"])):
        run = Run(hyper=replace(FREE, eps=eps))
        g = {s.name: np.full(s.numel, 1e-3, np.float32) for s in run.layout}
        found = run.go(7, g=g)
        assert found == []
        assert rules(run.go(g=g)) == told


def test_second_moments_at_0_under_first_ones_that_are_not() -> None:
    run = Run(hyper=FREE)
    run.warm(500)
    run.v["a.weight"][:5] = 0
    assert "zero-second-moment" not in rules(step_findings(run.look(run.gradients())))
    run.v["a.weight"][:6] = 0
    found = one(step_findings(run.look(run.gradients())), "zero-second-moment")
    assert (found.param, found.evidence["elements"]) == ("a.weight", 6)


# --- settings


@pytest.mark.parametrize(
    ("eps", "told"), [(0.0, True), (1e-46, True), (1e-39, True), (1.2e-38, False), (1e-8, False)]
)
def test_an_epsilon_that_float32_does_not_have(eps: float, told: bool) -> None:
    found = step_findings(replace(Run().look(Run().gradients()), hyper=replace(FREE, eps=eps)))
    assert ("zero-eps" in rules(found)) == told


@pytest.mark.parametrize(
    ("beta1", "beta2", "told"),
    [(0.9, 0.999, False), (0.9, 0.66, False), (0.9, 0.65, True), (0.0, 0.0, False), (0.5, 0.07, False),
     (0.5, 0.06, True)],
)  # fmt: skip
def test_betas_that_do_not_go_together(beta1: float, beta2: float, told: bool) -> None:
    """0.9² = 0.81 against √0.66 = 0.812 and √0.65 = 0.806; 0.25 against √0.0625."""
    found = step_findings(
        replace(Run().look(Run().gradients()), hyper=replace(FREE, beta1=beta1, beta2=beta2))
    )
    assert ("unstable-betas" in rules(found)) == told


def test_a_learning_rate_of_0_for_two_steps() -> None:
    run = Run()
    idle = replace(FREE, lr=0.0)
    run.go(3)
    assert run.go(hyper=idle) == []
    assert rules(run.go(hyper=idle)) == ["zero-learning-rate"]
    assert run.go(9, hyper=idle) == []


@pytest.mark.parametrize(
    ("rates", "told"),
    [
        ((1e-4, 2e-4, 3e-4), False),
        ((1e-3, 2.9e-3), False),
        ((1e-3, 3.1e-3), True),
        ((1e-3, 1e-4, 1e-3), False),
        ((1e-3, 1e-4), False),
        ((1e-3, 4e-5), True),
        ((1e-3, 3e-5 * 10, 2e-5 * 10, 1e-7 * 10), False),
        ((0.0, 1e-3), False),
    ],
)
def test_a_learning_rate_that_jumps(rates: tuple[float, ...], told: bool) -> None:
    run = Run()
    found = [f for lr in rates for f in run.go(hyper=replace(FREE, lr=lr))]
    assert rules(found) == ["learning-rate-jump"] * told
    if told:
        assert found[0].step == len(rates)


def test_a_setting_that_stays_wrong_is_told_once() -> None:
    run = Run()
    assert rules(run.go(20, hyper=replace(FREE, lr=-1e-3))) == ["invalid-setting"]


# --- the state


@pytest.mark.parametrize("lane", ["w", "m", "v"])
@pytest.mark.parametrize("kind", [math.nan, math.inf, -math.inf])
def test_a_state_that_is_not_finite_is_told_when_it_appears(lane: str, kind: float) -> None:
    run = Run()
    run.go(3)
    getattr(run, lane)["b.weight"][511] = kind
    found = one(run.go(), "nonfinite-state")
    assert (found.step, found.param, found.index, found.evidence["lane"]) == (4, "b.weight", 511, lane)
    assert "nonfinite-state" not in rules(run.go(5))


def test_second_moments_below_0() -> None:
    run = Run()
    run.warm(100)
    run.v["c.weight"][3] = -1e-9
    found = one(run.go(), "negative-second-moment")
    assert (found.param, found.severity) == ("c.weight", "error")
    assert found.evidence["lowest"] == pytest.approx(-1e-9, rel=1e-6)


def test_a_counter_that_begins_again_with_moments_of_a_long_run() -> None:
    run = Run()
    run.warm(5000)
    run.step = 0
    assert one(run.go(), "step-counter-reset").severity == "warning"
    later = Run()
    later.warm(5000)
    later.step = 2
    found = one(later.go(), "step-counter-reset")
    assert found.evidence["ratio"] == pytest.approx(1 / (1 - 0.999**2), rel=0.5)
    right = Run()
    right.warm(5000)
    assert right.go(3) == []
    young = Run()
    young.go(2)
    young.diagnosis = type(young.diagnosis)()
    assert young.go(3) == []


def test_a_step_beyond_what_float32_counts() -> None:
    run = Run()
    run.warm(2**24 - 2)
    assert run.go() == []
    assert rules(run.go(3)) == ["step-counter-stuck"]


def test_moments_that_were_not_restored() -> None:
    run = Run()
    run.warm(5000)
    run.m["c.weight"][:] = run.v["c.weight"][:] = 0
    found = one(run.go(), "missing-moments")
    assert (found.param, found.step) == ("c.weight", 5001)
    assert found.message.startswith("m and v of c.weight")
    half = Run()
    half.warm(5000)
    half.m["norm"][:] = 0
    assert one(half.go(), "missing-moments").message.startswith("m of norm")
    assert "missing-moments" not in rules(Run().go(3))


def test_moments_of_two_params_of_one_shape_exchanged() -> None:
    """Gradients of a are 1e-3, of b 1e-2: v of each is a hundredth and a hundred times what fits."""

    def start(swapped: bool) -> Run:
        run = Run()
        run.warm(5000)
        of = ("a.weight", "b.weight") if not swapped else ("b.weight", "a.weight")
        run.v[of[0]][:] = 1e-6
        run.v[of[1]][:] = 1e-4
        return run

    def g(run: Run) -> dict[str, np.ndarray]:
        given = run.gradients(1e-3)
        given["b.weight"] *= 10
        return given

    run = start(swapped=True)
    found = one(run.go(g=g(run)), "swapped-moments")
    assert {found.param, found.evidence["other"]} == {"a.weight", "b.weight"}
    assert found.evidence["params"] == 2
    run = start(swapped=False)
    assert run.go(g=g(run)) == []


def test_weights_that_no_dispatch_updated() -> None:
    run = Run()
    run.go(3)
    before = run.w["b.weight"].copy()
    run.go()
    run.w["b.weight"] = before
    found = one(run.go(), "update-not-applied")
    assert (found.param, found.severity, found.dispatch) == ("b.weight", "error", 2)


def test_weights_that_something_else_wrote_to() -> None:
    run = Run()
    run.go(3)
    run.w["a.weight"] *= np.float32(1.5)
    found = one(run.go(), "unexplained-weights")
    assert found.param == "a.weight"
    assert found.evidence["w_norm"] == pytest.approx(1.5 * float(found.evidence["before"]), rel=0.02)
    assert "unexplained-weights" not in rules(run.go(4))


@pytest.mark.parametrize("lane", ["m", "v"])
def test_moments_that_do_not_follow(lane: str) -> None:
    """Without the factor 1 - β the new part of m is ten times, of v a thousand times as large."""
    run = Run()
    run.go(5)
    g = run.gradients()
    run.go(g=g)
    if lane == "m":
        run.m["a.weight"] += np.float32(0.9) * g["a.weight"]
    else:
        run.v["a.weight"] += g["a.weight"] ** 2
    found = one(run.go(), "unexplained-moments")
    assert (found.param, found.evidence["lane"]) == ("a.weight", lane)


@pytest.mark.parametrize("beta2", [0.0, 0.95, 0.99999, 0.9999999])
def test_moments_of_gradients_that_are_all_alike_follow(beta2: float) -> None:
    """‖g²‖ is max|g|·‖g‖ then, the most it can be; 1 - 0.99999 of float32 is 1.4e-3 too large."""
    run = Run(hyper=replace(FREE, beta1=0.0, beta2=beta2))
    g = {s.name: np.full(s.numel, 1e-2, np.float32) for s in run.layout}
    assert not {"unexplained-moments", "unexplained-weights"} & set(rules(run.go(10, g=g)))


def test_moments_that_were_set_to_0() -> None:
    run = Run()
    run.go(20)
    run.v["b.weight"][:] = 0
    found = one(run.go(), "unexplained-moments")
    assert (found.param, found.evidence["lane"], found.evidence["norm"]) == ("b.weight", "v", 0)


def test_steps_in_another_form_are_not_held_against_each_other() -> None:
    run = Run()
    run.go(5)
    run.w["a.weight"] *= np.float32(1.5)
    from inspector.plan import Variant

    assert "unexplained-weights" not in rules(run.go(variant=Variant(dispatch="single")))


def test_params_that_came_in_another_order_are_still_known() -> None:
    run = Run()
    run.go(50)
    facts = run.look(run.gradients())
    assert facts.table is not None
    turned = type(facts.table).of(list(facts.table)[::-1])
    assert run.diagnosis.observe(replace(facts, table=turned)) == []
    g = run.gradients()
    g["b.weight"] *= 100
    facts = run.look(g)
    assert facts.table is not None
    turned = type(facts.table).of(list(facts.table)[::-1])
    assert (
        one(run.diagnosis.observe(replace(facts, table=turned)), "param-gradient-spike").param == "b.weight"
    )


def test_a_norm_gain_that_decays() -> None:
    run = Run((Param("a.weight", (16, 32)), Param("ln.weight", (32,), decay=True)))
    assert rules(run.go(5)) == ["decay-on-norm-or-bias"]
