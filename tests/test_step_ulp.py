"""ULP of a step: hand-worked units, distances, bins, and types of fewer bits."""

from __future__ import annotations

import math

import numpy as np
import pytest

from inspector.step_ulp import BEYOND, BINS, bin_text, bins_of, compare_step, kept_in, rounded, ulps, unit


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_the_unit_is_that_of_the_larger_of_before_and_after() -> None:
    # 0.1 lies in [2^-4, 2^-3), whose spacing is 2^-27; 1 in [1, 2), 2^-23; nothing is finer than 2^-149.
    before, after = f32(0.1, 1e-9, 1.0, 0.0, -3.0), f32(1e-9, -0.1, 1.5, 0.0, 1e-20)
    np.testing.assert_array_equal(unit(before, after), [2.0**-27, 2.0**-27, 2.0**-23, 2.0**-149, 2.0**-22])
    assert unit(f32(1), f32(1), "bf16")[0] == 2.0**-7
    assert unit(f32(1), f32(1), "f16")[0] == 2.0**-10
    assert unit(f32(1e-7), f32(0), "f16")[0] == 2.0**-24


def test_a_w_that_passes_through_zero_is_not_millions_of_ulp_off() -> None:
    before = f32(0.1)
    a, b = f32(1e-9), f32(1e-9 + 2.0**-28)
    found = compare_step(before, a, b)
    assert found.max_ulp == pytest.approx(0.5, rel=1e-6)
    assert found.max_bits > 1_000_000
    assert (found.differing, found.first, found.max_index, found.beyond) == (1, 0, 0, 0)


def test_what_is_not_finite_is_infinitely_far_from_what_is_and_same_bits_are_0() -> None:
    zero = f32(0, 0, 0, 0, 0)
    apart = ulps(zero, f32(np.nan, np.nan, np.inf, 1, 0.0), f32(np.nan, 1, np.inf, -np.inf, -0.0))
    assert apart.tolist() == [0, math.inf, 0, math.inf, 0]


def test_bins_double_and_say_what_they_hold() -> None:
    apart = np.array([0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 4, 2.0**14, 2.0**14 + 1, math.inf])
    assert bins_of(apart).tolist() == [1, 1, 2, 2, 3, 3, 4, 4, 16, BINS - 1, BINS - 1]
    assert bins_of(np.array([2.5]))[0] == BEYOND
    texts = [bin_text(i) for i in (0, 1, 2, 3, BEYOND, BINS - 1)]
    assert texts == [
        "same bits",
        "at most 0.5 ULP",
        "0.5 to 1 ULP",
        "1 to 2 ULP",
        "2 to 4 ULP",
        "more than 16,384 ULP",
    ]


def test_elements_are_counted_by_distance_over_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inspector.step_ulp.CHUNK", 3)
    a = np.ones(8, np.float32)
    b = a.copy()
    b[[2, 5, 7]] += np.float32(2.0**-23) * np.array([1, 3, 8], np.float32)
    found = compare_step(a, a, b)
    assert (found.elements, found.differing, found.first, found.max_index, found.max_ulp) == (8, 3, 2, 7, 8.0)
    assert found.beyond == 2
    assert found.share == 3 / 8
    assert found.histogram[:7].tolist() == [5, 0, 1, 0, 1, 1, 0]


def test_types_of_fewer_bits_round_to_the_nearest_even() -> None:
    # bfloat16 has 8 bits: between 1 and 1 + 2^-7 lies the tie 1 + 2^-8, which goes to the even 1.
    given = f32(1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-8 + 2.0**-20, -1e-40, np.inf, 3.4e38)
    expected = f32(1, 1 + 2.0**-6, 1 + 2.0**-7)
    np.testing.assert_array_equal(rounded(given, "bf16")[:3], expected)
    assert rounded(given, "bf16")[4] == np.inf
    assert kept_in(rounded(given[:3], "bf16")) == "bf16"
    assert kept_in(rounded(f32(0.1, 3.3), "f16")) == "f16"
    assert kept_in(given) == "f32"
    assert kept_in(f32(0, np.nan)) == "f32"
