"""What may be looked for among float32 values, as text and as intervals of bit patterns; and the same by numpy."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import numpy as np

from inspector.errors import UsageError
from inspector.floats import BoolArray, F32Array, bits, ordered, parse_number

Kind = Literal["values", "magnitudes", "nan", "nonfinite", "changed", "bits"]
KIND_NUMBER: dict[Kind, int] = {
    "values": 0, "magnitudes": 1, "nan": 2, "nonfinite": 3, "changed": 4, "bits": 5,
}  # fmt: skip
"""The `KIND` constant of the kernel."""
ZERO = 0x8000_0000
"""The key of 0: values are compared by whole numbers in their order, those below 0 from here down."""
INFINITY = 0x7F80_0000
_MAX_ULP = 1 << 24
HELP = (
    "A number (0.1), one with a distance (0.1 ± 4 ulp), a range (−1..1), > 2, <= 0, |x| > 1e3, |x| 1e-8..1e-6, "
    "NaN, inf, -inf, nonfinite, changed, or the bits (0x3f800000)."
)
_NUMBER = r"[-+−]?\s*(?:\d[\d_]*\.?\d*(?:[eE][-+−]?\d+)?|\.\d+(?:[eE][-+−]?\d+)?|inf(?:inity)?)"
_ULP = re.compile(rf"(?P<x>{_NUMBER})\s*(?:±|\+/?-)\s*(?P<n>\d+)\s*(?:ulp)?", re.IGNORECASE)
_RANGE = re.compile(rf"(?P<low>{_NUMBER})\s*(?:\.\.|…|to)\s*(?P<high>{_NUMBER})", re.IGNORECASE)
_COMPARED = re.compile(rf"(?P<op><=|>=|<|>|=|≤|≥)\s*(?P<x>{_NUMBER})", re.IGNORECASE)
_SIZE = re.compile(r"(?:\|\s*x?\s*\||abs\b)\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Query:
    """Elements to look for: keys from `low` to `high`, both included, of values or magnitudes; `text` as it was asked.

    The key of a value is its place in the order of float32 from ZERO, -0 and 0 sharing one; of a magnitude, its bits.
    NaN has none. The other kinds take no bounds but "bits", which is one pattern.
    """

    kind: Kind
    text: str
    low: int = 0
    high: int = 0

    @property
    def holds_zero(self) -> bool:
        """True where 0 matches, as it stands in the gaps between params."""
        return {
            "values": self.low <= ZERO <= self.high,
            "magnitudes": self.low == 0,
            "bits": self.low == 0,
        }.get(self.kind, False)


def parse_query(text: str) -> Query:
    """The query that `text` says; UsageError where it says none, with what may be written."""
    bare = " ".join(text.strip().split())
    word = bare.lower().replace("−", "-").replace("-finite", "finite")
    if not bare:
        raise UsageError(f"Type what to look for. {HELP}")
    if word in ("nan", "nonfinite", "changed"):
        kind: Kind = "nan" if word == "nan" else "nonfinite" if word == "nonfinite" else "changed"
        return Query(kind, bare)
    if re.fullmatch(r"0x[0-9a-f]{1,8}", word):
        return Query("bits", bare, int(word, 16), int(word, 16))
    if word in ("±inf", "+-inf", "infinite"):
        return Query("magnitudes", bare, INFINITY, INFINITY)
    sized = _SIZE.match(bare)
    rest = bare[sized.end() :] if sized else bare
    span = _span(rest, size=sized is not None)
    if span is None:
        raise UsageError(f"{bare!r} is nothing to look for. {HELP}")
    low, high = span
    if low > high:
        raise UsageError(f"No value is in {bare!r}: the lower bound comes first.")
    return Query("magnitudes" if sized else "values", bare, low, high)


def exponent_query(exponent: int) -> Query:
    """Elements whose magnitude is at least 2^`exponent` and less than the next power of two; -127 for denormals."""
    low = max((exponent + 127) << 23, 1)
    return Query("magnitudes", f"|x| in [2^{exponent}, 2^{exponent + 1})", low, ((exponent + 128) << 23) - 1)


def matches(query: Query, values: F32Array, before: F32Array | None = None) -> BoolArray:
    """Which elements match, bool of the shape of `values`; `before` is what "changed" is held against."""
    raw = bits(values)
    magnitude = raw & 0x7FFF_FFFF
    if query.kind == "nan":
        return np.asarray(magnitude > INFINITY)
    if query.kind == "nonfinite":
        return np.asarray(magnitude >= INFINITY)
    if query.kind == "bits":
        return np.asarray(raw == query.low)
    if query.kind == "changed":
        return np.zeros(raw.shape, np.bool_) if before is None else np.asarray(raw != bits(before))
    keys = magnitude.astype(np.int64) if query.kind == "magnitudes" else ordered(values) + ZERO
    return np.asarray((keys >= query.low) & (keys <= query.high) & (magnitude <= INFINITY))


def _span(text: str, *, size: bool) -> tuple[int, int] | None:
    """The keys that a number, a distance, a range or a comparison stands for, both ends included."""
    least, most = (0, INFINITY) if size else (ZERO - INFINITY, ZERO + INFINITY)
    if found := _ULP.fullmatch(text):
        key, apart = _key(found["x"], size), int(found["n"])
        if apart > _MAX_ULP:
            raise UsageError(f"{apart:,} ULP are more than {_MAX_ULP:,}: give a range instead.")
        return max(key - apart, least), min(key + apart, most)
    if found := _RANGE.fullmatch(text):
        return _key(found["low"], size), _key(found["high"], size)
    if found := _COMPARED.fullmatch(text):
        op, key = found["op"], _key(found["x"], size)
        if op in (">", ">=", "≥"):
            return key + (op == ">"), most
        if op in ("<", "<=", "≤"):
            return least, key - (op == "<")
        return key, key
    if re.fullmatch(_NUMBER, text, re.IGNORECASE):
        key = _key(text, size)
        return key, key
    return None


def _key(text: str, size: bool) -> int:
    """The key of the float32 nearest to a number: what is shown as 0.1 is equal to 0.1 and not above it."""
    value = _number(text)
    if size and value < 0:
        raise UsageError(f"No magnitude is {text.strip()}: give a number of 0 or more.")
    with np.errstate(over="ignore"):
        near = np.array([value], np.float64).astype(np.float32)
    return int(ordered(near)[0]) + (0 if size else ZERO)


def _number(text: str) -> float:
    return parse_number(text.replace("−", "-").replace(" ", "").replace("_", "").lower())
