"""IEEE 754 helpers: bit patterns, ULP distances, and numbers as text and JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

EXPONENT_MASK = np.uint32(0x7F80_0000)
MANTISSA_MASK = np.uint32(0x007F_FFFF)

F32Array = npt.NDArray[np.float32]
F64Array = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


def bits(values: F32Array) -> npt.NDArray[np.uint32]:
    """The bit patterns of float32 values, same shape, without conversion (signalling NaNs survive)."""
    return np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)


def finite_mask(values: F32Array) -> BoolArray:
    """True where a float32 is finite, tested on the exponent bits as the kernels do."""
    finite: BoolArray = (bits(values) & EXPONENT_MASK) != EXPONENT_MASK
    return finite


def ordered(values: F32Array) -> npt.NDArray[np.int64]:
    """Float32 values as integers in numeric order, so that neighbours differ by 1 and -0 equals +0."""
    raw = bits(values).astype(np.int64)
    return np.where(raw >= 0x8000_0000, 0x8000_0000 - raw, raw)


def ulp_distance(a: F32Array, b: F32Array) -> npt.NDArray[np.int64]:
    """How many representable float32 values lie between `a` and `b`, element-wise (0 = same value).

    Two NaNs are 0 apart whatever their payload; a NaN and a number are 2**32 apart.
    """
    a32 = np.asarray(a, dtype=np.float32)
    b32 = np.asarray(b, dtype=np.float32)
    a_nan, b_nan = np.isnan(a32), np.isnan(b32)
    distance = np.abs(ordered(a32) - ordered(b32))
    distance = np.where(a_nan & b_nan, 0, distance)
    return np.where(a_nan ^ b_nan, np.int64(1) << 32, distance)


def ulp_size(values: F64Array | float) -> F64Array:
    """The spacing of float32 at the magnitude of `values`, as float64 (at least the least denormal)."""
    magnitude = np.abs(np.asarray(values, dtype=np.float64))
    # frexp rather than log2, which rounds up to the next power of two just below it.
    _, exponent = np.frexp(np.minimum(magnitude, np.finfo(np.float32).max))
    exponent = np.clip(np.where(magnitude > 0, exponent - 1.0, -126.0), -126, 127)
    return np.asarray(np.exp2(exponent - 23), dtype=np.float64)


def shortest(value: float | np.floating[Any]) -> str:
    """The shortest decimal text that reads back as the same number; 'NaN', 'Infinity', '-Infinity'."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return plain_exponent(str(value) if isinstance(value, np.floating) else repr(float(value)))


def significant(value: float | np.floating[Any], digits: int) -> str:
    """A number in at most so many digits, without zeros behind them: 0.25, 1e-9; 'nan', 'inf', '-inf'."""
    return plain_exponent(f"{value:.{digits}g}")


def plain_exponent(number: str) -> str:
    """A written number with its exponent in the one form there is here: 1e-9 and 2.5e7, of 1e-09 and 2.5e+07."""
    mantissa, e, exponent = number.partition("e")
    return f"{mantissa}e{int(exponent)}" if e else number


def parse_number(text: str) -> float:
    """A float from text as people and JSON write it ('inf', 'Infinity', 'nan' and 'NaN' included)."""
    plain = text.strip()
    if "_" in plain or not plain.isascii():
        raise ValueError(f"not a number: {text!r}")
    return float(plain.replace("Infinity", "inf").replace("NaN", "nan"))


def to_json(value: Any) -> Any:
    """`value` with every number in a form strict JSON takes: non-finite ones become strings.

    A float32 is written with the shortest decimal that reads back as the same float32.
    """
    if isinstance(value, (bool, str, int)) or value is None:
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(shortest(value)) if math.isfinite(value) else shortest(value)
    if isinstance(value, np.ndarray):
        return [to_json(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [to_json(item) for item in value]
    raise TypeError(f"no JSON form for {type(value).__name__}")
