"""Numbers as people read them: units, SI prefixes, and n/a where nothing was measured."""

from __future__ import annotations

import math

import numpy as np

from inspector.floats import plain_exponent, shortest
from inspector.layout import StateType
from inspector.number_words import true_minus

NA = "n/a"
STATES: dict[StateType, str] = {"f32": "float32", "8bit": "8-bit"}
"""How m and v of a param are kept, in words."""

_LARGE = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def number(value: float | None, digits: int = 4) -> str:
    """`digits` significant digits, no trailing zeros; powers of ten where plain digits would be long."""
    if value is None:
        return NA
    if not math.isfinite(value):
        return _special(value)
    if value == 0:
        return "0"
    magnitude = abs(value)
    if 1e-3 <= magnitude < 10 ** max(digits, 5):
        decimals = max(digits - 1 - math.floor(math.log10(magnitude)), 0)
        text = f"{value:,.{decimals}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
    else:
        mantissa, _, exponent = plain_exponent(f"{value:.{digits - 1}e}").partition("e")
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        text = f"{mantissa}e{exponent}"
    return true_minus(text)


def exact(value: float | np.float32 | None) -> str:
    """The shortest text that reads back as the same float32; NaN, inf and −inf by name."""
    if value is None:
        return NA
    as_f32 = np.float32(value)
    return true_minus(shortest(as_f32)) if np.isfinite(as_f32) else _special(float(as_f32))


def count(value: int | None) -> str:
    """A whole number with thousands separators."""
    return NA if value is None else true_minus(f"{value:,}")


def short_count(value: float) -> str:
    """A count in three digits and an SI prefix: 116 M, 20 k, 256."""
    return f"{_scaled(value, _LARGE)}".strip()


def milliseconds(ms: float | None) -> str:
    """A time given in ms, in the unit that suits it; n/a where the clock gave nothing."""
    if ms is None or not math.isfinite(ms):
        return NA
    if abs(ms) >= 1000:
        return f"{_three_digits(ms / 1000)} s"
    if abs(ms) >= 0.1 or ms == 0:
        return f"{_three_digits(ms)} ms"
    if abs(ms) >= 1e-4:
        return f"{_three_digits(ms * 1e3)} µs"
    return f"{_three_digits(ms * 1e6)} ns"


def bandwidth(gbps: float | None) -> str:
    """GB/s in about three digits, without the unit; n/a where it is not known."""
    if gbps is None or not math.isfinite(gbps):
        return NA
    decimals = 0 if gbps >= 99.95 else 1 if gbps >= 9.995 else 2
    return f"{gbps:,.{decimals}f}" if gbps >= 0.005 else "< 0.01"


def percent(share: float | None, decimals: int = 1) -> str:
    """A fraction of 1 in percent; n/a where it is not known."""
    return NA if share is None or not math.isfinite(share) else f"{100 * share:.{decimals}f} %"


def ratio(value: float | None) -> str:
    """How many times as much; n/a where it is not known."""
    return NA if value is None or not math.isfinite(value) else f"{value:,.2f} ×"


def rate(per_second: float | None, what: str = "steps") -> str:
    """So many a second."""
    if per_second is None or not math.isfinite(per_second):
        return f"{NA} {what}/s"
    return f"{_scaled(per_second, _LARGE)} {what}/s"


def plural(value: int, noun: str) -> str:
    """A count and its noun: 1 step, 2 steps, 3 dispatches."""
    ending = "" if value == 1 else "es" if noun.endswith(("ch", "sh", "s", "x")) else "s"
    return f"{value:,} {noun}{ending}"


def shape(extents: tuple[int, ...]) -> str:
    """A shape: 768 × 2,304; "scalar" where there are no dimensions."""
    return " × ".join(f"{n:,}" for n in extents) or "scalar"


def multi_index(flat: int, extents: tuple[int, ...]) -> str:
    """The index of a flat element in C order: [3, 17]."""
    index: list[str] = []
    for extent in reversed(extents):
        flat, at = divmod(flat, extent) if extent else (flat, 0)
        index.append(str(at))
    return "[" + ", ".join(reversed(index)) + "]"


def _special(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return true_minus("inf" if value > 0 else "-inf")


def _scaled(value: float, units: tuple[tuple[float, str], ...]) -> str:
    for unit, name in units:
        # Compare as it will be rounded, so that 999,999 is 1 M and not 1000 k.
        if abs(value) >= unit * 0.9995:
            return f"{_three_digits(value / unit)} {name}"
    return _three_digits(value)


def _three_digits(value: float) -> str:
    magnitude = abs(value)
    decimals = 0 if magnitude >= 99.95 else 1 if magnitude >= 9.995 else 2
    text = f"{value:,.{decimals}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return true_minus(text)
