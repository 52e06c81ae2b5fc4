"""Numbers as people read them, by hand-written pairs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from inspector.ui import format as fmt


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "n/a"),
        (0.0, "0"),
        (1.0, "1"),
        (-0.5, "−0.5"),
        (0.01, "0.01"),
        (123456.0, "1.235e5"),
        (12345.0, "12,345"),
        (0.000999, "9.99e-4".replace("-", "−")),
        (-1e-8, "−1e−8"),
        (math.nan, "NaN"),
        (math.inf, "inf"),
        (-math.inf, "−inf"),
    ],
)
def test_numbers(value: float | None, text: str) -> None:
    assert fmt.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.1, "0.1"), (1e-45, "1e−45"), (16777216.0, "1.6777216e7"), (math.nan, "NaN"), (None, "n/a")],
)
def test_exact_numbers_read_back_as_the_same_float32(value: float | None, text: str) -> None:
    assert fmt.exact(value) == text
    if value is not None and math.isfinite(value):
        assert np.float32(text.replace("−", "-")) == np.float32(value)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, "n/a"),
        (math.nan, "n/a"),
        (1014.2, "1.01 s"),
        (0.89, "0.89 ms"),
        (0.0115, "11.5 µs"),
        (0.00002, "20 ns"),
    ],
)
def test_times(ms: float | None, text: str) -> None:
    assert fmt.milliseconds(ms) == text


def test_counts() -> None:
    assert fmt.count(116_017_920) == "116,017,920"
    assert fmt.short_count(116_017_920) == "116 M"
    assert fmt.short_count(999_999) == "1 M"
    assert fmt.short_count(256) == "256"
    assert fmt.rate(42.31) == "42.3 steps/s"
    assert fmt.rate(None) == "n/a steps/s"
    assert [fmt.plural(n, "dispatch") for n in (0, 1, 2)] == ["0 dispatches", "1 dispatch", "2 dispatches"]


def test_shapes_and_indices() -> None:
    assert fmt.shape((768, 2304)) == "768 × 2,304"
    assert fmt.shape(()) == "scalar"
    assert fmt.multi_index(7, ()) == "[]"
    assert fmt.multi_index(2304 * 3 + 17, (768, 2304)) == "[3, 17]"
