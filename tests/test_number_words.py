"""Numbers in sentences have one minus sign, whoever says them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import inspector
from inspector.diagnosis.rules import rule
from inspector.finding_words import number
from inspector.number_words import nonfinite_counts, true_minus
from inspector.ui import format as fmt

PACKAGE = Path(inspector.__file__).parent


def test_a_minus_is_one_before_the_number_and_in_its_exponent() -> None:
    assert true_minus("-2.5e-08") == "−2.5e−08"
    assert true_minus("12") == "12"


@pytest.mark.parametrize("value", [-0.25, -3.0, -1.5e-7, float("-inf")])
def test_findings_and_the_window_write_the_same_sign(value: float) -> None:
    for text in (rule.number(value), rule.exact(value), number(value), fmt.number(value), fmt.exact(value)):
        assert text.startswith("−")
        assert "-" not in text


def test_counts_of_what_is_not_finite() -> None:
    assert nonfinite_counts(3, 0, 1200) == "3 NaN, 0 +Inf, 1,200 −Inf"


def test_nobody_else_words_those_counts() -> None:
    told = [
        f"{path.relative_to(PACKAGE)}: {line.strip()}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.name != "number_words.py"
        for line in path.read_text().splitlines()
        if re.search(r"\} (\+|-|−)Inf", line) and "column(" not in line
    ]
    assert told == []
