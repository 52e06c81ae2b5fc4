"""The oracle judged: by numbers worked by hand, and by a second AdamW written apart from it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from adamw_peer import PeerAdamW, PeerParam

from inspector.hyper import NUMERICS, Hyper
from inspector.layout import Param, make_layout
from inspector.optimizers.adamw.oracle import (
    Updated,
    clip_scale,
    kernel_norm,
    oracle_step,
    true_norm,
    update,
)


def one(w: float, g: float, m: float = 0.0, v: float = 0.0, **options: object) -> Updated:
    arguments = {"scale": 1.0, "hyper": Hyper(), "step": 1, "decays": False, "numerics": "precise"} | options
    return update(*(np.array([x]) for x in (w, g, m, v)), **arguments)  # type: ignore[arg-type]


def test_the_first_step_moves_by_the_learning_rate() -> None:
    """tracel-ai/burn#834: w = 1, g = 1, so m̂ = v̂ = 1 and w = 1 - 1e-3/(1 + 1e-8) = 0.99900000001."""
    done = one(1.0, 1.0)
    assert done.w[0] == pytest.approx(0.99900000001, abs=1e-15)
    assert done.m[0] == pytest.approx(0.1, rel=1e-15)
    assert done.v[0] == pytest.approx(0.001, rel=1e-12)
    assert done.line("m̂")[0] == pytest.approx(1.0, rel=1e-15)
    assert done.line("v̂")[0] == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize(("beta2", "ratio"), [(0.95, 2.2360679274997923), (0.999, 0.3162277650168382)])
def test_moments_with_a_counter_back_at_1_move_too_far_or_too_little(beta2: float, ratio: float) -> None:
    """allenai/OLMo-core PR#317: g = m = 0.1, v = 0.01; a healthy step would move by the learning rate."""
    done = one(0.0, 0.1, 0.1, 0.01, hyper=Hyper(beta2=beta2))
    assert done.line("ratio")[0] == pytest.approx(ratio, rel=1e-12)


def test_every_line_by_hand() -> None:
    """β₁ = ½, β₂ = ¾, step 2, clip scale ½: all lines are short fractions."""
    hyper = Hyper(lr=0.125, beta1=0.5, beta2=0.75, eps=0.25, weight_decay=0.5)
    for numerics in NUMERICS:
        done = one(4.0, 8.0, 1.0, 7.0, scale=0.5, hyper=hyper, step=2, decays=True, numerics=numerics)
        lines = {line.name: float(line.value[0]) for line in done.lines}
        # v = ¾·7 + ¼·16 = 37/4, of which 1 - ¾² = 7/16 makes v̂ = 148/7; 1/(1-β²) is rounded to float32.
        v_hat = 148 / 7
        ratio = (2.5 / 0.75) / (math.sqrt(v_hat) + 0.25)
        assert (lines["g'"], lines["m"], lines["v"], lines["decay"]) == (4.0, 2.5, 9.25, 2.0)
        expected = {"m̂": 10 / 3, "v̂": v_hat, "denominator": math.sqrt(v_hat) + 0.25, "ratio": ratio}
        expected |= {"update": 0.125 * (ratio + 2.0), "w": 4 - 0.125 * (ratio + 2.0)}
        assert {k: lines[k] for k in expected} == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_fifty_steps_agree_with_a_second_implementation(decay: float) -> None:
    """Both in float64; they sum in different orders, so a few of its 53 bits may differ."""
    rng = np.random.default_rng(3)
    sizes = {"a": 7, "b": 5}
    layout = make_layout([Param("a", (7, 1)), Param("b", (5,))])
    w = {k: rng.standard_normal(n) for k, n in sizes.items()}
    peer = PeerAdamW(
        [PeerParam(w["a"].tolist(), True), PeerParam(w["b"].tolist(), False)], weight_decay=decay, lr=0.01
    )
    state = (dict(w), {}, {})
    for step in range(1, 51):
        scale = 10.0 if step % 2 else 0.01
        g = {k: (scale * rng.standard_normal(n)).astype(np.float32) for k, n in sizes.items()}
        if step == 7:
            g["a"][2] = np.nan
        done = oracle_step(
            layout, state, g, hyper=Hyper(lr=0.01, weight_decay=decay), step=step, numerics="precise"
        )
        norm, clip = peer.step([g["a"].tolist(), g["b"].tolist()])
        # The kernels' norm is stored in float32: half an ULP is 6e-8.
        assert done.grad_norm == pytest.approx(norm, rel=6e-8)
        assert done.clip_scale == pytest.approx(clip, rel=6e-8)
        state = (done.w, done.m, done.v)
    for name, p in zip("ab", peer.params, strict=True):
        np.testing.assert_allclose(state[0][name], p.w, rtol=1e-6)
        np.testing.assert_allclose(state[1][name], p.m, rtol=1e-6, atol=1e-12)
        np.testing.assert_allclose(state[2][name], p.v, rtol=1e-6)


def test_published_and_precise_differ_by_13_parts_in_a_million_of_v_and_no_more() -> None:
    published = one(1.0, 1.0, 0.1, 0.01, numerics="published", step=3)
    precise = one(1.0, 1.0, 0.1, 0.01, numerics="precise", step=3)
    assert published.v[0] == pytest.approx(precise.v[0], rel=1.4e-5)
    share = (np.float64(published.v[0]) - 0.01 * np.float64(np.float32(0.999))) / 1e-3
    assert share == pytest.approx(1 - 1.29e-5, abs=1e-7)


def test_float32_is_the_float64_evaluation_but_for_rounding() -> None:
    rng = np.random.default_rng(5)
    w, g, m = (rng.standard_normal(200).astype(np.float32) for _ in range(3))
    v = rng.random(200).astype(np.float32)
    for numerics in NUMERICS:
        single, double = (
            update(w, g, m, v, scale=0.5, hyper=Hyper(), step=4, decays=True, numerics=numerics, dtype=dtype)
            for dtype in (np.float32, np.float64)
        )
        assert single.w.dtype == single.lines[5].value.dtype == np.float32
        np.testing.assert_allclose(single.v, double.v, rtol=1e-6)
        np.testing.assert_allclose(single.w, double.w, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_gradient_that_is_not_finite_counts_as_zero(bad: float) -> None:
    done = one(2.0, bad, 0.5, 0.25)
    assert done.m[0] == pytest.approx(0.45, rel=1e-15)
    assert done.v[0] == pytest.approx(0.24975, rel=1e-15)


def test_an_update_that_is_not_finite_leaves_w_and_nothing_else() -> None:
    done = one(2.0, 1.0, math.inf, 0.25)
    assert done.w[0] == 2.0
    # m + (1-β₁)·(g'-m), as PyTorch has it, in which ∞ - ∞ is no number; β₁·m + (1-β₁)·g' as published.
    assert math.isnan(done.m[0])
    assert one(2.0, 1.0, math.inf, 0.25, numerics="published").m[0] == math.inf
    # ε = 0 with nothing at all is 0/0.
    assert one(2.0, 0.0, hyper=Hyper(eps=0.0)).w[0] == 2.0


def test_zero_gradients_and_moments_leave_w_exactly() -> None:
    """google-deepmind/optax#1754: where ε were 0, 0/0."""
    assert one(1.0, 0.0).w[0] == 1.0


def test_without_gradients_a_decayed_weight_shrinks_by_lr_times_decay_and_a_gain_stays() -> None:
    """ServiceNow/Fast-LLM#542: 1000 steps of λ = 0.1 would leave 0.9048328935585462 of a norm gain."""
    w = {"wd": np.ones(1), "no_wd": np.ones(1)}
    for step in range(1, 1001):
        for name, value in w.items():
            options = {"hyper": Hyper(weight_decay=0.1), "step": step, "decays": name == "wd"}
            w[name] = one(float(value[0]), 0.0, **options).w
    assert w["no_wd"][0] == 1.0
    assert w["wd"][0] == pytest.approx(0.9048328935585462, rel=1e-13)


@pytest.mark.parametrize(
    ("limit", "scale", "after"), [(1, 0.2, 1.0), (math.inf, 1.0, 5.0), (0, 0.0, 0.0), (-1, -0.2, -1.0)]
)
def test_the_clip_scale_of_a_norm_of_5(limit: float, scale: float, after: float) -> None:
    """strands-labs/robots PR#2028, huggingface/open-r1#609."""
    assert float(clip_scale(5.0, limit)) == pytest.approx(scale, rel=1e-15)
    assert 5 * float(clip_scale(5.0, limit)) == pytest.approx(after, rel=1e-15)


@pytest.mark.parametrize(
    ("norm", "limit", "scale"),
    [(0.0, 1.0, 1.0), (0.5, 1.0, 1.0), (1e-9, 1e-7, 0.1), (math.inf, 1.0, 0.0), (2.0, 1.0, 0.5)],
)
def test_the_clip_scale_never_enlarges_and_has_a_floor_of_a_millionth(
    norm: float, limit: float, scale: float
) -> None:
    assert float(clip_scale(norm, limit)) == pytest.approx(scale, rel=1e-7)


@pytest.mark.parametrize(
    ("g", "true", "kernel"),
    [
        ([3, 4], 5.0, 5.0),
        ([3, 4, math.nan, math.inf, -math.inf], 5.0, 5.0),
        ([1e20] * 100, 1e21, math.inf),
        ([1e-25] * 10_000, 1e-23, 0.0),
        # Each square vanishes before it is added, though their sum would not.
        ([1e-23] * 100_000, 3.1622777e-21, 0.0),
        ([math.inf] * 16, 0.0, 0.0),
        ([], 0.0, 0.0),
        ([0.0, -0.0], 0.0, 0.0),
        ([3.4e38], 3.4e38, math.inf),
    ],
)
def test_the_true_norm_and_what_float32_squares_make_of_it(
    g: list[float], true: float, kernel: float
) -> None:
    """pytorch/pytorch#46849, gpuweb/gpuweb#349."""
    with np.errstate(all="ignore"):
        values = np.array(g, np.float32)
    assert true_norm(values) == pytest.approx(true, rel=1e-6, abs=0)
    assert kernel_norm(values) == pytest.approx(kernel, rel=1e-6, abs=0)


def test_a_step_over_a_layout_clips_by_the_norm_of_all_params_and_takes_a_missing_one_as_zero() -> None:
    layout = make_layout([Param("a", (2, 1)), Param("b", (2,)), Param("c", (1,))])
    ones = {name: np.ones(layout[name].numel) for name in "abc"}
    g = {"a": np.float32([3, 0]), "b": np.float32([0, 4])}
    done = oracle_step(layout, (ones, {}, {}), g, hyper=Hyper(weight_decay=0.5), step=1, numerics="precise")
    assert (done.grad_norm, done.clip_scale) == (5.0, 0.2)
    assert done.m["b"].tolist() == pytest.approx([0, 0.08], rel=1e-15)
    assert done.w["c"].tolist() == [1.0]
    assert done.w["a"][1] == pytest.approx(1 - 1e-3 * 0.5, rel=1e-15)
