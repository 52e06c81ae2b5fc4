"""Hyper-parameters: what may be typed, and the uniforms of a step in float64 then rounded, by hand-worked values."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from inspector.errors import UsageError
from inspector.hyper import (
    HYPER_NAMES,
    Hyper,
    bias_uniform,
    check_hyper,
    check_value,
    hp_uniform,
    max_grad_norm_uniform,
    with_value,
)

F32_MAX = 3.4028234663852886e38


def test_the_defaults_are_the_published_ones() -> None:
    assert Hyper() == Hyper(1e-3, 0.9, 0.999, 1e-8, 0.01, 1.0)
    assert check_hyper(Hyper()) == Hyper()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lr", 0.0),
        ("lr", F32_MAX),
        ("beta1", 0.0),
        ("beta2", 0.9999999),
        ("eps", 0.0),
        ("weight_decay", 0.0),
        ("weight_decay", 5.0),
        ("max_grad_norm", 0.0),
        ("max_grad_norm", math.inf),
    ],
)
def test_what_a_person_can_mean_is_taken(name: str, value: float) -> None:
    check_value(name, value)
    assert getattr(check_hyper(with_value(Hyper(), name, value)), name) == value


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("lr", -1e-3, "--lr -0.001 is negative"),
        ("lr", math.nan, "--lr NaN is not a finite"),
        ("lr", math.inf, "--lr Infinity is not a finite"),
        ("lr", 1e39, "does not fit in a float32"),
        ("beta1", 1.0, r"--beta1 1.0 is outside \[0, 1\)"),
        ("beta1", -0.1, r"outside \[0, 1\)"),
        ("beta2", 2.0, r"--beta2 2.0 is outside"),
        ("beta2", math.nan, "not a finite"),
        ("eps", -1e-8, "--eps -1e-8 is negative"),
        ("weight_decay", -0.1, "--weight-decay -0.1 is negative"),
        ("max_grad_norm", -1.0, "--max-grad-norm -1.0 is not a clip limit"),
        ("max_grad_norm", math.nan, "not a clip limit"),
    ],
)
def test_what_nobody_can_mean_is_refused_by_the_name_of_its_option(
    name: str, value: float, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        check_value(name, value)
    with pytest.raises(UsageError):
        check_hyper(Hyper(**{name: value}))


def test_an_unknown_setting_is_not_made_up() -> None:
    with pytest.raises(KeyError):
        with_value(Hyper(), "momentum", 0.9)
    assert HYPER_NAMES == ("lr", "beta1", "beta2", "eps", "weight_decay", "max_grad_norm")


def test_decay_is_zero_in_the_block_without_it() -> None:
    hyper = Hyper(weight_decay=0.1)
    assert hp_uniform(hyper, decays=True).tolist() == [np.float32(x) for x in (1e-3, 0.9, 0.999, 0.1)]
    assert hp_uniform(hyper, decays=False)[3] == 0
    assert max_grad_norm_uniform(Hyper(max_grad_norm=math.inf)).tolist() == [math.inf]


@pytest.mark.parametrize("step", [1, 2, 3, 10, 1000])
def test_the_published_bias_holds_exact_powers_rounded_once(step: int) -> None:
    """Against rational arithmetic; a float64 power is good to far below half a float32 ULP."""
    hyper = Hyper(beta2=0.95)
    got = bias_uniform(hyper, step, "published")
    assert got.dtype == np.float32
    assert got[0] == np.float32(float(Fraction(0.9) ** step))
    assert got[1] == np.float32(float(Fraction(0.95) ** step))
    assert got[2:].tolist() == [np.float32(1e-8), 0.0]


@pytest.mark.parametrize("step", [1, 2, 3, 10, 1000])
def test_the_precise_bias_holds_the_factors_themselves(step: int) -> None:
    got = bias_uniform(Hyper(), step, "precise")
    expected = [
        1 / (1 - Fraction(0.9) ** step),
        1 / (1 - Fraction(0.999) ** step),
        Fraction(1e-8),
        1 - Fraction(0.999),
    ]
    # 1 - β in float64 keeps 13 digits of 0.999: one float32 ULP at most.
    np.testing.assert_allclose(got, [float(x) for x in expected], rtol=6e-8)


def test_float32_loses_13_parts_in_a_million_of_one_minus_beta2_and_the_precise_form_does_not() -> None:
    published = np.float32(1) - hp_uniform(Hyper(), decays=True)[2]
    assert published == np.float32(9.9998713e-4)
    assert bias_uniform(Hyper(), 1, "precise")[3] == np.float32(1e-3)


@pytest.mark.parametrize("step", [0, -1])
def test_steps_count_from_one(step: int) -> None:
    """tracel-ai/burn#834: a counter of 0 divides by zero."""
    with pytest.raises(UsageError, match="steps count from 1"):
        bias_uniform(Hyper(), step, "published")


def test_odd_settings_make_uniforms_too_as_a_kernel_would_get_them() -> None:
    assert bias_uniform(Hyper(beta2=2.0), 200, "published")[1] == math.inf
    assert bias_uniform(Hyper(beta1=1.0), 5, "precise")[0] == math.inf
    assert hp_uniform(Hyper(lr=1e39), decays=True)[0] == math.inf
