"""Numbers to colours for the map: magnitude in viridis, signed values diverging about 0, non-finite vermilion."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from inspector.floats import F32Array
from inspector.mapping import Quantity

U8Array = npt.NDArray[np.uint8]

NONFINITE_RGB = (0xD5, 0x5E, 0x00)
FINITE_GREY = (0x80, 0x80, 0x80, 0x50)
"""Where only non-finite elements are looked for, every other one is a faint grey on either theme."""

QUANTILE = 0.99
LOGARITHMIC: tuple[Quantity, ...] = ("magnitude", "mean", "update", "coding_error")
"""Magnitudes drawn on a logarithmic scale."""
LOG_DECADES = 6
"""Magnitudes are drawn over at most so many powers of ten below the largest."""

# Nine equidistant colours of viridis (Smith & van der Walt, CC0) and five of RdBu (Brewer, Apache 2.0).
_VIRIDIS = ("440154", "472d7b", "3b528b", "2c728e", "21918c", "28ae80", "5ec962", "addc30", "fde725")
_DIVERGING = ("2166ac", "92c5de", "f7f7f7", "f4a582", "b2182b")


def _table(colours: tuple[str, ...]) -> U8Array:
    anchors = np.array([[int(c[i : i + 2], 16) for i in (0, 2, 4)] for c in colours], dtype=np.float64)
    at = np.linspace(0, len(colours) - 1, 256)
    table = np.full((256, 4), 255, np.uint8)
    for channel in range(3):
        table[:, channel] = np.rint(np.interp(at, np.arange(len(colours)), anchors[:, channel]))
    return table


VIRIDIS = _table(_VIRIDIS)
DIVERGING = _table(_DIVERGING)


def colour_range(values: F32Array, quantity: Quantity) -> tuple[float, float]:
    """The values at the start and the end of the colour scale: (0, s), or (s·10⁻⁶ or more, s) in logarithms.

    s is the 0.99 quantile of the magnitudes drawn, so that a few outliers do not darken the rest, and of ages the
    largest; 1 where all are zero.
    """
    if quantity == "age":
        return 0.0, max(float(np.nanmax(values, initial=0.0)), 1.0)
    magnitude = np.abs(values.reshape(-1)[:: max(values.size // 65_536, 1)])
    magnitude = magnitude[np.isfinite(magnitude) & (magnitude > 0)]
    if not magnitude.size:
        return 0.0, 1.0
    rank = min(int(QUANTILE * magnitude.size), magnitude.size - 1)
    high = float(np.partition(magnitude, rank)[rank])
    if quantity not in LOGARITHMIC:
        return 0.0, high
    low = max(float(magnitude.min()), high * 10.0**-LOG_DECADES)
    return (low, high) if low < high else (high / 10, high)


def colour(values: F32Array, nonfinite: F32Array, quantity: Quantity, low: float, high: float) -> U8Array:
    """Pixels as rgba uint8 [height, width, 4]; transparent where `values` is NaN (no element there)."""
    nothing = np.isnan(values)
    if quantity == "nonfinite":
        rgba = np.empty((*values.shape, 4), np.uint8)
        rgba[:] = FINITE_GREY
    elif quantity in LOGARITHMIC:
        scale = 255 / (math.log2(high) - math.log2(low)) if low > 0 else 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            index = (np.log2(values) - np.float32(math.log2(low or 1.0))) * np.float32(scale)
        rgba = VIRIDIS[_index(index)]
    elif quantity == "age":
        rgba = VIRIDIS[_index(values * np.float32(255 / high))]
    else:
        rgba = DIVERGING[_index(values * np.float32(127.5 / high) + np.float32(127.5))]
    rgba[nothing] = 0
    bad = nonfinite > 0
    if bad.any():
        rgba[bad] = (*NONFINITE_RGB, 255)
    return rgba


def _index(values: F32Array) -> npt.NDArray[np.intp]:
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(np.clip(values, 0, 255), nan=0.0).astype(np.intp)
