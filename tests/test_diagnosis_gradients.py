"""Rules over gradients, norm, clipping and spikes: both sides of each threshold, in numbers worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from diagnosis_steps import PARAMS, Run, one, rules

from inspector.diagnosis.diagnosis import step_findings
from inspector.diagnosis.rules.norm import norm_bound
from inspector.diagnosis.rules.spikes import _trends
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.statistics import buffer_stats

KINDS = {"nan": math.nan, "posinf": math.inf, "neginf": -math.inf}


def test_a_healthy_run_says_nothing() -> None:
    assert Run().go(300) == []
    assert Run(hyper=Hyper(max_grad_norm=0.02)).go(160) == []


def test_gradients_as_spiky_as_healthy_training_gives_say_nothing() -> None:
    """Ten times the usual norm every now and then, and a loss that varies by a tenth: charlm has up to 7.6 times."""
    run = Run()
    rng = np.random.default_rng(4)

    def spiky(t: int) -> dict[str, np.ndarray]:
        return run.gradients(1e-3 * (10 if t > 40 and t % 37 == 0 else 1))

    assert run.go(300, g=spiky, loss=lambda t: 3 + 0.3 * float(rng.standard_normal())) == []


# --- not finite


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("param", ["a.weight", "c.weight", "norm"])
@pytest.mark.parametrize("at", ["first", "middle", "last"])
def test_each_kind_is_found_at_its_place(kind: str, param: str, at: str) -> None:
    run = Run()
    g = run.gradients()
    size = len(g[param])
    index = {"first": 0, "middle": size // 2, "last": size - 1}[at]
    g[param][index] = KINDS[kind]
    found = one(run.go(g=g), "nonfinite-gradient")
    assert (found.severity, found.param, found.index, found.step, found.dispatch) == (
        "error",
        param,
        index,
        1,
        0,
    )
    assert {k: found.evidence[k] for k in KINDS} == {k: int(k == kind) for k in KINDS}
    assert found.evidence["param_share"] == 1 / size
    where = [int(i) for i in np.unravel_index(index, run.layout[param].param.shape)]
    assert f"{param}{where}" in found.message


def test_a_tensor_of_one_element() -> None:
    from inspector.layout import Param

    run = Run((*PARAMS, Param("scale", ())))
    g = run.gradients()
    g["scale"][0] = math.nan
    found = one(run.go(g=g), "nonfinite-gradient")
    assert (found.param, found.index, found.evidence["param_share"]) == ("scale", 0, 1.0)
    assert "scale[]" in found.message


def test_what_is_not_finite_between_params_does_not_count() -> None:
    """c.weight has 32 elements and the next param begins 64 on: statistics are of params, gaps are none's."""
    run = Run()
    assert run.layout["norm"].offset - run.layout["c.weight"].stop == 32
    facts = run.look(run.gradients())
    assert facts.gradients is not None
    assert facts.gradients.count == 1088
    assert step_findings(facts) == []


def test_the_param_of_which_the_least_is_hit_comes_first() -> None:
    """What flows back from a NaN fills the params before it; where it began only some elements are hit."""
    run = Run()
    g = run.gradients()
    g["a.weight"][:] = math.nan
    g["b.weight"][100:103] = math.nan
    g["norm"][:] = math.inf
    found = one(run.go(g=g), "nonfinite-gradient")
    assert (found.param, found.index) == ("b.weight", 100)
    assert found.evidence["params"] == 3
    assert found.evidence["nan"] == 515
    assert "a.weight" in found.message


def test_below_full_the_first_element_is_told() -> None:
    run = Run()
    g = run.gradients()
    g["b.weight"][7] = math.nan
    found = one(step_findings(replace(run.look(g), table=None)), "nonfinite-gradient")
    assert (found.param, found.index) == ("b.weight", 7)
    assert "param_share" not in found.evidence


# --- nothing comes


def test_a_param_without_gradients_is_told_after_16_steps() -> None:
    run = Run()

    def dead(t: int) -> dict[str, np.ndarray]:
        return run.gradients() | {"b.weight": np.zeros(512, np.float32)}

    assert run.go(15, g=dead) == []
    found = one(run.go(g=dead), "dead-gradient")
    assert (found.step, found.param, found.evidence["steps"]) == (16, "b.weight", 16)
    assert run.go(20, g=dead) == []


def test_no_gradient_at_all_has_a_rule_of_its_own() -> None:
    run = Run()
    zeros = {s.name: np.zeros(s.numel, np.float32) for s in run.layout}
    assert run.go(7, g=zeros) == []
    assert rules(run.go(20, g=zeros)) == ["no-gradient"]


@pytest.mark.parametrize(
    ("given", "told"),
    [("1111111100000000", False),  # they stopped
     ("0000000011111111", False),  # they began
     ("1010101000000000", False),  # they came every second step and stopped
     ("1010101010101010", True), ("0101010101010101", True), ("0001000100010001", True), ("0010000000100000", True)],
)  # fmt: skip
def test_gradients_that_come_and_go_evenly_are_told_and_those_that_stopped_are_not(
    given: str, told: bool
) -> None:
    run = Run()
    nothing = {s.name: np.zeros(s.numel, np.float32) for s in run.layout}
    found = run.go(16, g=lambda t: run.gradients() if given[t - 1] == "1" else nothing)
    assert ("intermittent-gradient" in rules(found)) == told
    if told:
        assert one(found, "intermittent-gradient").step == 16


def test_an_exploding_norm_is_told_once_eight_steps_are_ten_times_as_large() -> None:
    run = Run()
    run.go(60)
    found = run.go(7, g=lambda t: run.gradients(12e-3))
    assert "exploding-gradient" not in rules(found)
    found = one(run.go(2, g=lambda t: run.gradients(14e-3)), "exploding-gradient")
    assert found.step in (68, 69)
    assert found.evidence["ratio"] == pytest.approx(12, rel=0.15)
    calm = Run()
    calm.go(60)
    assert "exploding-gradient" not in rules(calm.go(12, g=lambda t: calm.gradients(7e-3)))


def test_a_vanishing_norm_is_told_unless_the_loss_came_down_with_it() -> None:
    run = Run()
    run.go(60)
    found = run.go(9, g=lambda t: run.gradients(5e-7))
    assert one(found, "vanishing-gradient").evidence["ratio"] == pytest.approx(5e-4, rel=0.2)
    done = Run()
    done.go(60)
    assert "vanishing-gradient" not in rules(done.go(9, g=lambda t: done.gradients(5e-7), loss=0.2))


# --- the norm


def test_overflow_and_underflow_of_the_norm() -> None:
    run = Run(hyper=Hyper())
    g = {s.name: np.full(s.numel, 1e20, np.float32) for s in run.layout}
    found = one(run.go(g=g), "norm-overflow")
    assert found.evidence["true_norm"] == pytest.approx(1e20 * math.sqrt(1088), rel=1e-6)
    assert found.evidence["clip_scale"] == 0
    assert found.dispatch == 0
    tiny = Run(hyper=Hyper())
    g = {s.name: np.full(s.numel, 1e-25, np.float32) for s in tiny.layout}
    found = one(tiny.go(g=g), "norm-underflow")
    assert (found.severity, found.dispatch) == ("warning", 0)


@pytest.mark.parametrize(("elements", "value", "dispatch"), [
    (4096, 1e19, 0),  # One workgroup adds them all up.
    (8192, 1e19, 1),  # No square of two workgroups is infinite: their sum may be what is.
    (8192, 2e19, 0),
])  # fmt: skip
def test_an_overflow_is_told_where_the_sum_becomes_infinite(
    elements: int, value: float, dispatch: int
) -> None:
    """1e19² is 1e38 and 2e19² is 4e38; float32 ends at 3.4e38."""
    run = Run(hyper=Hyper(), params=(Param("p", (elements,)),))
    found = one(run.go(g={"p": np.full(elements, value, np.float32)}), "norm-overflow")
    assert found.dispatch == dispatch


def test_a_norm_that_leaves_elements_out_is_told_and_rounding_is_not() -> None:
    """Of 1,088 equal gradients 2 are left out: the norm is √(1086/1088) of what it is, 9.2e-4 too small."""
    run = Run()
    g = {s.name: np.full(s.numel, 1e-2, np.float32) for s in run.layout}
    facts = run.look(g)
    true = 1e-2 * math.sqrt(1088)
    found = one(step_findings(replace(facts, grad_norm=1e-2 * math.sqrt(1086))), "norm-mismatch")
    assert found.evidence["true_norm"] == pytest.approx(true, rel=1e-7)
    assert found.evidence["relative_error"] == pytest.approx(1 - math.sqrt(1086 / 1088), rel=1e-3)
    bound = norm_bound(facts)
    assert 1e-5 < bound < 1e-4
    assert step_findings(replace(facts, grad_norm=true * (1 + 0.9 * bound))) == []
    assert rules(step_findings(replace(facts, grad_norm=true * (1 + 1.1 * bound)))) == ["norm-mismatch"]


# --- clipping


def test_a_clip_scale_that_does_not_follow_from_the_norm() -> None:
    run = Run(hyper=Hyper(max_grad_norm=0.5))
    g = {s.name: np.full(s.numel, 0.1, np.float32) for s in run.layout}
    facts = run.look(g)
    assert facts.clip_scale == pytest.approx(0.5 / (0.1 * math.sqrt(1088)), rel=1e-6)
    assert step_findings(facts) == []
    for wrong in (1.0, 0.5, (facts.clip_scale or 0) * (1 + 4e-6), math.nan):
        assert rules(step_findings(replace(facts, clip_scale=wrong))) == ["clip-scale-mismatch"]
    assert step_findings(replace(facts, clip_scale=(facts.clip_scale or 0) * (1 + 4e-7))) == []


def test_a_limit_of_minus_infinity_is_an_invalid_limit_and_no_mismatch() -> None:
    """min(1, -inf / norm) is -inf, which is what the kernel writes."""
    run = Run(hyper=Hyper(max_grad_norm=-math.inf))
    found = step_findings(replace(run.look(run.gradients()), clip_scale=-math.inf))
    assert rules(found).count("invalid-max-grad-norm") == 1
    assert "clip-scale-mismatch" not in rules(found)
    wrong = step_findings(replace(run.look(run.gradients()), clip_scale=0.5))
    assert "clip-scale-mismatch" in rules(wrong)


def test_a_collapsed_clip_scale() -> None:
    """Norms of 999 and 1,001 times the limit."""
    run = Run(hyper=Hyper(max_grad_norm=1.0))
    unit = 1 / math.sqrt(1088)

    def facts(norm: float):
        return run.look({s.name: np.full(s.numel, norm * unit, np.float32) for s in run.layout})

    assert step_findings(facts(999)) == []
    found = one(step_findings(facts(1001)), "clip-collapse")
    assert found.evidence["clip_scale"] == pytest.approx(1 / 1001, rel=1e-5)


def test_clipping_to_less_than_a_tenth_for_a_whole_window() -> None:
    run = Run(hyper=Hyper(max_grad_norm=1e-3))
    assert run.go(127) == []
    assert one(run.go(), "clip-saturated").evidence["largest"] < 0.1
    mild = Run(hyper=Hyper(max_grad_norm=1e-2))
    assert mild.go(140) == []


def test_gradients_that_are_loss_scaled_still() -> None:
    """Norms of about 0.033 · 2^16 at a limit of 1."""
    run = Run(hyper=Hyper(max_grad_norm=1.0))
    found = run.go(7, g=lambda t: run.gradients(65.536))
    assert "loss-scaled-gradient" not in rules(found)
    assert "clip-collapse" in rules(found)
    told = one(run.go(g=lambda t: run.gradients(65.536)), "loss-scaled-gradient")
    assert told.evidence["log2_ratio"] == 11
    assert "unscale" in told.advice


@pytest.mark.parametrize("limit", [0.0, -1.0, math.nan])
def test_a_limit_that_is_none(limit: float) -> None:
    run = Run(hyper=Hyper(max_grad_norm=limit))
    found = one(run.go(3), "invalid-max-grad-norm")
    assert (found.severity, found.step) == ("error", 1)


# --- spikes


def test_a_loss_spike_by_hand() -> None:
    """40 losses of 3 and 2 in turn: mean 2.5, slope -10/5,330, variance about it 1/4 - 1/2,132.

    5.4 is 5.8 standard deviations away, 5.6 is 6.2.
    """
    for loss, told in ((5.4, False), (5.6, True)):
        run = Run()
        run.go(40, loss=lambda t: 2.0 + t % 2)
        found = run.go(loss=loss)
        assert rules(found) == (["loss-spike"] if told else [])
        if told:
            assert found[0].evidence["z"] == pytest.approx(3.1 / math.sqrt(1 / 4 - 1 / 2132), rel=1e-6)
            assert found[0].evidence["mean"] == 2.5


def test_a_loss_spike_is_seen_while_the_loss_falls() -> None:
    """40 losses fall from 5.95 to 4: mean 4.975, standard deviation 0.58, none about the line; 6.5 is a rise by 1.5."""
    for loss, told in ((6.1, []), (6.5, ["loss-spike"])):
        run = Run()
        assert run.go(40, loss=lambda t: 6.0 - 0.05 * t) == []
        assert rules(run.go(loss=loss)) == told


def test_a_loss_that_goes_on_rising_as_it_did_is_no_spike() -> None:
    run = Run()
    assert rules(run.go(60, loss=lambda t: 2.0 + 0.02 * t)) == []


def test_a_loss_that_barely_varies_makes_no_spike_of_a_small_rise() -> None:
    for rise, told in ((0.7, []), (0.8, ["loss-spike"])):
        run = Run()
        run.go(40, loss=lambda t: 3.0)
        assert rules(run.go(loss=3.0 + rise)) == told


def test_a_loss_that_stays_up_diverges() -> None:
    run = Run()
    run.go(60, loss=lambda t: 2.0 + 0.1 * (t % 3))
    found = run.go(8, loss=lambda t: 3.5 + 0.02 * t)
    assert rules(found) == ["loss-spike"]
    (found,) = run.go(12, loss=lambda t: 3.5 + 0.02 * t)
    # From the ninth on more than half of the last 16 are above all before.
    assert (found.rule, found.step) == ("loss-divergence", 69)


def test_a_gradient_spike_of_all_params() -> None:
    for times, told in ((14, []), (40, ["gradient-spike"])):
        run = Run()
        run.go(60)
        run.rng = np.random.default_rng(1)
        found = [r for r in rules(run.go(g=run.gradients(1e-3 * times))) if r == "gradient-spike"]
        assert found == told


def test_a_spike_of_one_param_names_it() -> None:
    run = Run()
    run.go(60)
    g = run.gradients()
    g["b.weight"] *= 100
    found = one(run.go(g=g), "param-gradient-spike")
    assert (found.param, found.step, found.severity) == ("b.weight", 61, "warning")
    assert found.evidence["ratio"] == pytest.approx(100, rel=0.3)
    assert found.evidence["largest_gradient"] == float(np.abs(g["b.weight"]).max())
    milder = Run()
    milder.go(60)
    g = milder.gradients()
    g["b.weight"] *= 20
    assert "param-gradient-spike" not in rules(milder.go(g=g))


def test_a_spike_of_a_param_is_seen_while_its_norm_falls() -> None:
    """From 1e-3 by a half every five steps, with a jump of 100 in step 61: 0.02 of what it was at first."""
    run = Run()

    def falling(t: int) -> dict[str, np.ndarray]:
        g = run.gradients(1e-3)
        g["b.weight"] *= np.float32(2 ** (-t / 5) * (100 if t == 61 else 1))
        return g

    found = one(run.go(70, g=falling), "param-gradient-spike")
    assert (found.param, found.step) == ("b.weight", 61)
    assert found.evidence["ratio"] == pytest.approx(100, rel=0.5)


def test_the_trend_of_a_param_is_that_of_the_steps_in_which_it_has_gradients() -> None:
    """By numpy's least squares, over a row of an expert that is in use every third step."""
    rng = np.random.default_rng(1)
    values = rng.normal(-8, 0.3, (128, 3)) - 0.02 * np.arange(128)[:, None]
    values[np.arange(128) % 3 != 0, 1] = np.nan
    values[:, 2] = np.nan
    expected, deviation, recent = _trends(values)
    for column, known in ((0, values[:, 0]), (1, values[::3, 1])):
        line = np.polynomial.Polynomial.fit(np.arange(len(known)), known, 1)
        off = known - line(np.arange(len(known)))
        assert expected[column] == pytest.approx(line(len(known)), rel=1e-9)
        assert deviation[column] == pytest.approx(off.std(), rel=1e-9)
        assert recent[column] == pytest.approx(known[-8:].mean(), rel=1e-9)
    run = Run()

    def seldom(t: int) -> dict[str, np.ndarray]:
        g = run.gradients()
        g["b.weight"] *= np.float32((t % 3 == 0) * (60 if t == 180 else 1))
        return g

    assert one(run.go(190, g=seldom), "param-gradient-spike").step == 180


def test_the_first_steps_of_a_run_have_no_spikes() -> None:
    """With fewer than 32 steps nothing is usual."""
    run = Run()
    run.go(31)
    assert "param-gradient-spike" not in rules(run.go(g=run.gradients(1.0)))


def test_a_loss_that_is_not_finite() -> None:
    for loss in (math.nan, math.inf, -math.inf):
        assert rules(Run().go(loss=loss)) == ["nonfinite-loss"]
    assert rules(Run().go(loss=None)) == []


def test_nothing_is_made_of_numbers_that_are_not_known() -> None:
    run = Run()
    facts = run.look(run.gradients())
    for none in ("gradients", "grad_norm", "clip_scale", "loss", "plan", "table"):
        assert step_findings(replace(facts, **{none: None})) == []
    assert (
        step_findings(replace(facts, gradients=None, grad_norm=None, clip_scale=None, loss=None, table=None))
        == []
    )
    assert buffer_stats(np.zeros(0, np.float32)).max_abs == 0
