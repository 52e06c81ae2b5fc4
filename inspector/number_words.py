"""Numbers in sentences and tables: the sign that people read, and what of many elements is not finite.

What programs read (JSON, CSV, what is copied, conditions as they are typed) keeps ASCII's hyphen.
"""

from __future__ import annotations

MINUS = "−"


def true_minus(number: str) -> str:
    """A written number with the minus sign of typography before it and its exponent: −Inf, −2.5, 1e−8."""
    return number.replace("-", MINUS)


def nonfinite_counts(nan: int, posinf: int, neginf: int) -> str:
    """How many elements are which: "3 NaN, 0 +Inf, 1 −Inf"."""
    return f"{nan:,} NaN, {posinf:,} +Inf, {neginf:,} {MINUS}Inf"
