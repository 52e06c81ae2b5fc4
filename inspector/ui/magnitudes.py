"""Counts of elements by magnitude, in powers of two, on a plot: bins, the heights of bars, and both in words."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from inspector.floats import F64Array
from inspector.number_words import nonfinite_counts
from inspector.statistics import BINS, EXPONENT_BIAS, BufferStats
from inspector.stores import Lane
from inspector.ui import format as fmt
from inspector.ui import theme

MARGIN_BINS = 2
FEWEST_BINS = 8
LOG_FLOOR = math.log10(0.5)
"""Where a logarithmic axis starts, so that a single element still has a height."""
_SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def bar_heights(counts: npt.NDArray[np.integer[Any]], *, log: bool) -> F64Array:
    """Heights of the bars in axis units: counts, or their log10 with empty bins at the floor."""
    heights = counts.astype(np.float64)
    return np.where(counts > 0, np.log10(np.maximum(heights, 1)), LOG_FLOOR) if log else heights


def x_range(stats: Iterable[tuple[Lane, BufferStats]], eps_log2: float | None) -> tuple[int, int]:
    """The first and last bin to show: all that hold elements, and where √v = ε; a few around them."""
    stats = list(stats)
    filled = [e + EXPONENT_BIAS for _, s in stats for e in s.log2_range() or ()]
    if not filled:
        filled = [EXPONENT_BIAS - FEWEST_BINS, EXPONENT_BIAS]
    if (
        any(lane == "v" for lane, _ in stats)
        and eps_log2 is not None
        and 0 <= eps_log2 + EXPONENT_BIAS < BINS
    ):
        filled.append(math.floor(eps_log2) + EXPONENT_BIAS)
    low, high = min(filled) - MARGIN_BINS, max(filled) + MARGIN_BINS
    if high - low < FEWEST_BINS:
        low, high = low - FEWEST_BINS // 2, high + FEWEST_BINS // 2
    # Near the ends of float32 the range moves in, and keeps its width.
    shift = max(-low, 0) - max(high - (BINS - 1), 0)
    return max(low + shift, 0), min(high + shift, BINS - 1)


def power_of_two(exponent: float) -> str:
    """2⁻²⁰ and the like."""
    return f"2{str(round(exponent)).translate(_SUPERSCRIPTS)}"


def bin_text(exponent: int) -> str:
    """The magnitudes a bin holds, as powers of two and in decimal."""
    if exponent == -EXPONENT_BIAS:
        return f"denormals, below {power_of_two(-126)} = {fmt.number(2.0**-126, 3)}"
    powers = f"{power_of_two(exponent)} to {power_of_two(exponent + 1)}"
    return f"{powers} = {fmt.number(2.0**exponent, 3)} to {fmt.number(2.0 ** (exponent + 1), 3)}"


def counts_text(lane: Lane, stats: BufferStats) -> str:
    """What has no magnitude, in words; vermilion where something is not finite."""
    bad = stats.nonfinite
    text = f"<b>{lane}</b>: {fmt.plural(stats.count, 'element')}, {stats.zeros:,} zero"
    text += f", largest {fmt.number(stats.max_abs)}"
    if not bad.total:
        return f"{text}, all finite"
    ink = theme.ink(theme.NONFINITE, theme.colours().window).name()
    counts = nonfinite_counts(bad.nan, bad.posinf, bad.neginf)
    return f'{text}, <span style="color:{ink}"><b>{counts}</b></span>'
