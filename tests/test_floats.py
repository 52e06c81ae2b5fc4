"""Bits, ULP distances and numbers as text and JSON."""

from __future__ import annotations

import json
import math
import re
import struct
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import inspector
from inspector.floats import (
    bits,
    finite_mask,
    ordered,
    parse_number,
    plain_exponent,
    shortest,
    significant,
    to_json,
    ulp_distance,
    ulp_size,
)

PACKAGE = Path(inspector.__file__).parent
NO_TEXT = ("plain_exponent(", 'float(f"', "2.0 ** (edge", "{timeout_s:g}", 'f"{name} = {value:g}"')
"""What is read back, is of a kernel, or is never small nor large."""

floats32 = st.floats(width=32)
patterns = st.integers(0, 2**32 - 1)


def from_bits(*raw: int) -> np.ndarray:
    return np.array(raw, np.uint32).view(np.float32)


def test_bits_keep_signalling_nans() -> None:
    raw = [0x7F800001, 0xFFFFFFFF, 0x7FC00000, 0x80000000, 0]
    assert bits(from_bits(*raw)).tolist() == raw


@given(st.lists(patterns, min_size=1, max_size=20))
def test_finite_is_what_the_exponent_says(raw: list[int]) -> None:
    expected = [math.isfinite(struct.unpack("<f", struct.pack("<I", x))[0]) for x in raw]
    assert finite_mask(from_bits(*raw)).tolist() == expected


@pytest.mark.parametrize(
    ("a", "b", "distance"),
    [
        (1.0, 1.0, 0),
        (1.0, 1.0000001192092896, 1),
        (0.0, -0.0, 0),
        (1e-45, -1e-45, 2),
        (0.0, 1.1754943508222875e-38, 1 << 23),
        (3.4028234663852886e38, math.inf, 1),
        (-math.inf, math.inf, 2 * 0x7F800000),
        (math.nan, math.nan, 0),
        (math.nan, 1.0, 1 << 32),
        (1.0, math.nan, 1 << 32),
    ],
)
def test_ulp_distance_counts_the_floats_between(a: float, b: float, distance: int) -> None:
    assert ulp_distance(np.float32([a]), np.float32([b])).tolist() == [distance]


@given(floats32.filter(math.isfinite), st.integers(1, 5))
def test_stepping_to_the_next_float_n_times_is_n_ulp_away(value: float, n: int) -> None:
    x = np.float32(value)
    y = x
    with np.errstate(all="ignore"):
        for _ in range(n):
            y = np.nextafter(y, np.float32(np.inf), dtype=np.float32)
    expected = n if np.isfinite(y) else int(ulp_distance(np.float32([x]), np.float32([np.inf]))[0])
    assert ulp_distance(np.array([x]), np.array([y])).tolist() == [expected]


@given(floats32.filter(lambda x: not math.isnan(x)), floats32.filter(lambda x: not math.isnan(x)))
def test_ordered_integers_sort_as_the_numbers_do(a: float, b: float) -> None:
    x, y = ordered(np.float32([a, b])).tolist()
    assert (x < y, x == y) == (a < b, a == b)


@pytest.mark.parametrize(
    ("value", "spacing"),
    [
        (1.0, 2.0**-23),
        (1.999, 2.0**-23),
        (2.0, 2.0**-22),
        (math.nextafter(2.0, 0.0), 2.0**-23),
        (math.nextafter(2.0**-20, 0.0), 2.0**-44),
        (-3.0, 2.0**-22),
        (0.0, 2.0**-149),
        (1e-44, 2.0**-149),
        (2.0**-126, 2.0**-149),
        (2.0**127, 2.0**104),
        (math.inf, 2.0**104),
    ],
)
def test_ulp_size_is_the_spacing_of_float32_there(value: float, spacing: float) -> None:
    assert float(ulp_size(value)) == spacing


@given(floats32.filter(lambda x: 0 < abs(x) < 1e38))
def test_ulp_size_agrees_with_numpy_spacing(value: float) -> None:
    assert float(ulp_size(value)) == abs(float(np.spacing(np.float32(value))))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1"),
        (1.0, "1.0"),
        (np.float32(0.1), "0.1"),
        (np.float32(1) / np.float32(3), "0.33333334"),
        (float(np.float32(0.1)), "0.10000000149011612"),
        (math.nan, "NaN"),
        (np.float32(math.inf), "Infinity"),
        (-math.inf, "-Infinity"),
        (1, "1.0"),
        (1e-9, "1e-9"),
        (np.float32(1e-9), "1e-9"),
        (np.float32(16777216), "1.6777216e7"),
        (-2.5e300, "-2.5e300"),
    ],
)
def test_shortest_reads_back_as_the_same_number(value: float, text: str) -> None:
    assert shortest(value) == text
    again = parse_number(text)
    assert (math.isnan(again) and math.isnan(value)) or type(value)(again) == value


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (1e-9, 6, "1e-9"),
        (np.float32(-1.25e-8), 3, "-1.25e-8"),
        (1e-10, 4, "1e-10"),
        (123456, 3, "1.23e5"),
        (0.25, 6, "0.25"),
        (0.0001, 3, "0.0001"),
        (math.nan, 6, "nan"),
        (-math.inf, 6, "-inf"),
    ],
)
def test_a_number_in_so_many_digits(value: float, digits: int, text: str) -> None:
    assert significant(value, digits) == text


def test_an_exponent_has_no_plus_and_no_zeros_before_it() -> None:
    texts = ("1e-09", "2.50e+07", "1e-100", "1e+00", "0.1", "NaN", "Infinity", "−2e-05")
    assert [plain_exponent(text) for text in texts] == [
        "1e-9", "2.50e7", "1e-100", "1e0", "0.1", "NaN", "Infinity", "−2e-5",
    ]  # fmt: skip


def test_nobody_else_writes_exponents() -> None:
    """What Python itself makes of a small number, 1e-09, is what nobody is to see beside 1e-9."""
    forms = re.compile(r":[^\s{}\"']*[eg]\}|%\.?\d*[eg]\\b")
    told = [
        f"{path.relative_to(PACKAGE)}: {line.strip()}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line in path.read_text().splitlines()
        if forms.search(line) and not any(kept in line for kept in NO_TEXT)
    ]
    assert told == []


@given(st.floats(width=32, allow_nan=False))
def test_a_float32_survives_its_text_and_its_json(value: float) -> None:
    x = np.float32(value)
    assert np.float32(parse_number(shortest(x))) == x
    back = json.loads(json.dumps(to_json(x), allow_nan=False))
    assert np.float32(parse_number(str(back))) == x


@pytest.mark.parametrize("text", ["", "one", "0x10", "1e", "--1"])
def test_what_is_no_number_is_not_read_as_one(text: str) -> None:
    with pytest.raises(ValueError, match="convert"):
        parse_number(text)


def test_json_takes_everything_a_command_prints() -> None:
    document = {
        "array": np.float32([0.1, math.nan, math.inf]),
        "map": MappingProxyType({"x": -math.inf}),
        "scalars": (np.int64(3), np.bool_(True), None, True, "text", 7, np.float64(0.25)),
    }
    assert to_json(document) == {
        "array": [0.1, "NaN", "Infinity"],
        "map": {"x": "-Infinity"},
        "scalars": [3, True, None, True, "text", 7, 0.25],
    }
    with pytest.raises(TypeError, match="set"):
        to_json({1, 2})
