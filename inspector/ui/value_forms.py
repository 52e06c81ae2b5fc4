"""How the elements of a buffer are written: as numbers, halves, codes, or by their bits. No Qt."""

from __future__ import annotations

from typing import Literal

import numpy as np

from inspector.floats import bits, ordered, shortest
from inspector.number_words import true_minus
from inspector.ui import format as fmt

Form = Literal["f32", "f16", "i8 code", "u32", "hex", "bits", "exponent"]
FORMS: tuple[Form, ...] = ("f32", "f16", "i8 code", "u32", "hex", "bits", "exponent")
FORM_HELP: dict[Form, str] = {
    "f32": "float32, the shortest decimal that reads back as the same bits",
    "f16": "half precision: of w the mirror where there is one, else what rounding to nearest even gives",
    "i8 code": "8-bit codes of m and v as they lie in memory; n/a where they are float32",
    "u32": "the 32 bits of the float32 as a whole number",
    "hex": "the 32 bits of the float32 in hex",
    "bits": "sign, exponent and fraction of the float32 in bits",
    "exponent": "the power of two of the float32, without its bias; denormals have −126",
}
SAMPLES: dict[Form, str] = {
    "f32": "• −8.8888888e−38",
    "f16": "• −0.00012234 ",
    "i8 code": "• −127 ",
    "u32": "• 4,294,967,295 ",
    "hex": "• 3f800000 ",
    "bits": "• 0 00000000 00000000000000000000000 ",
    "exponent": "• −126 ",
}
MONO: tuple[Form, ...] = ("u32", "hex", "bits")
"""In a font of fixed width."""


def value_text(value: np.float32, form: Form) -> str:
    """A float32 in one of the forms; a code cannot be told from it."""
    if form == "f32":
        return fmt.exact(value)
    if form == "f16":
        return half_text(half_of(value))
    if form == "i8 code":
        return fmt.NA
    raw = int(bits(np.array([value], np.float32))[0])
    if form == "u32":
        return f"{raw:,}"
    if form == "hex":
        return f"{raw:08x}"
    if form == "bits":
        return f"{raw >> 31:01b} {raw >> 23 & 0xFF:08b} {raw & 0x7F_FFFF:023b}"
    return exponent_text(raw)


def exponent_text(raw: int) -> str:
    """The power of two of a float32 given by its bits."""
    biased, fraction = raw >> 23 & 0xFF, raw & 0x7F_FFFF
    if biased == 0xFF:
        return "NaN" if fraction else "−inf" if raw >> 31 else "inf"
    if not biased and not fraction:
        return "zero"
    return true_minus(str(max(biased, 1) - 127))


def half_of(value: np.float32) -> np.float16:
    """The half nearest to a float32, ties to even."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return np.float16(value)


def half_text(value: np.float16) -> str:
    """The shortest decimal that reads back as the same half."""
    if not np.isfinite(value):
        return fmt.exact(np.float32(value))
    return true_minus(shortest(value))


def difference_text(before: np.float32, after: np.float32, form: Form) -> str:
    """After less before: a number in float64, or for the forms of bits a distance in ULP."""
    if form in ("f32", "f16"):
        if form == "f16":
            before, after = np.float32(half_of(before)), np.float32(half_of(after))
        with np.errstate(invalid="ignore"):
            return fmt.number(float(np.float64(after) - np.float64(before)), 6)
    if np.isnan(before) or np.isnan(after):
        return "0 ULP" if np.isnan(before) and np.isnan(after) else "NaN"
    steps = int(ordered(np.array([after], np.float32))[0] - ordered(np.array([before], np.float32))[0])
    return true_minus(f"{steps:+,} ULP") if steps else "0 ULP"
