"""Sizes have one form everywhere: powers of ten for how much there is, powers of two for limits and places."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import inspector
from inspector.byte_sizes import GB, limit_text, size_text

PACKAGE = Path(inspector.__file__).parent
OWN = {"byte_sizes.py", "ui/offsets.py"}
"""Where the binary units are written, and where they are read."""


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (999_499, "999 kB"),
        (999_500, "1.00 MB"),
        (464_071_680, "464 MB"),
        (1 << 30, "1.07 GB"),
        (560 * GB, "560 GB"),
        (12_345 * GB, "12.3 TB"),
        (-2_500_000, "-2.50 MB"),
    ],
)
def test_how_much_there_is_in_powers_of_ten(nbytes: int, text: str) -> None:
    assert size_text(nbytes) == text


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (12, "12 bytes"),
        (64 << 10, "64 KiB"),
        (128 << 20, "128 MiB"),
        (2 << 30, "2 GiB"),
        # What some drivers bind: four bytes less than 2 GiB.
        (2_147_483_644, "2,147,483,644 bytes"),
    ],
)
def test_a_limit_is_told_to_the_byte(nbytes: int, text: str) -> None:
    assert limit_text(nbytes) == text


def test_nothing_else_words_sizes_in_binary_units() -> None:
    told = [
        f"{path.relative_to(PACKAGE)}: {line.strip()}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if str(path.relative_to(PACKAGE)) not in OWN
        for line in path.read_text().splitlines()
        # Comments may speak of limits.
        if re.search(r"\b[KMGT]iB\b", line) and "{" in line
    ]
    assert told == []


def test_nothing_else_words_sizes_at_all() -> None:
    """A unit of bytes straight after a computed number comes from one place."""
    told = [
        f"{path.relative_to(PACKAGE)}: {line.strip()}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.name != "byte_sizes.py"
        for line in path.read_text().splitlines()
        if re.search(r"\} (kB|MB|TB|KB)\b", line)
    ]
    assert told == ['ui/options.py: raise ValueError(f"{UNDO_MB[0]} to {UNDO_MB[1]:,} MB")']
