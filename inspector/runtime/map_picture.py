"""The map's lanes as pictures, ready to draw, with what can be said of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from inspector.colormap import colour, colour_range
from inspector.floats import F32Array
from inspector.mapping import MapPixels, MapRequest, Quantity
from inspector.stores import Lane


@dataclass(frozen=True, slots=True)
class LaneSummary:
    """What is told of a lane in view without looking at its pixels again.

    `nonfinite` counts its elements that are not finite, `columns` are runs [first, stop) of columns with any.
    """

    nonfinite: int
    all_nonfinite: bool
    all_zero: bool
    """True where nothing that is drawn differs from 0."""
    columns: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class MapImage:
    """The map's lanes as pixels, arrays of shape [height, width] ([height, width, 4] for rgba), read-only.

    `rgba` is ready to draw; `values` and `nonfinite` are what lies under each pixel, `pixels` all that is known of it
    (see MapPixels). `scale` is the magnitude drawn at the end of the colour map, one a lane; `low` the one at its
    start. Where the quantity cannot be shown there are no lanes, and `reason` says why.
    """

    request: MapRequest
    rgba: Mapping[Lane, npt.NDArray[np.uint8]]
    values: Mapping[Lane, F32Array]
    nonfinite: Mapping[Lane, F32Array]
    low: Mapping[Lane, float]
    scale: Mapping[Lane, float]
    summaries: Mapping[Lane, LaneSummary]
    pixels: Mapping[Lane, MapPixels]
    reason: str = ""
    since: int | None = None
    """The step from which on ages are counted: none is older."""
    reasons: Mapping[Quantity, str] = field(default_factory=lambda: MappingProxyType({}))
    """Why a quantity cannot be shown at this moment, of those that cannot."""
    overview: MapImage | None = None
    """The whole of the lanes."""


def map_image(
    request: MapRequest,
    pixels: Mapping[Lane, MapPixels],
    *,
    reason: str = "",
    since: int | None = None,
    reasons: Mapping[Quantity, str] | None = None,
    overview: MapImage | None = None,
) -> MapImage:
    """The picture of what lies under each pixel."""
    quantity = request.quantity
    values = {lane: each.shown(quantity) for lane, each in pixels.items()}
    ranges = {lane: colour_range(each, quantity) for lane, each in values.items()}
    rgba = {}
    for lane, each in pixels.items():
        rgba[lane] = colour(values[lane], each.nonfinite, quantity, *ranges[lane])
        rgba[lane].flags.writeable = False
    return MapImage(
        request=request,
        rgba=MappingProxyType(rgba),
        values=MappingProxyType(values),
        nonfinite=MappingProxyType({lane: each.nonfinite for lane, each in pixels.items()}),
        low=MappingProxyType({lane: low for lane, (low, _) in ranges.items()}),
        scale=MappingProxyType({lane: high for lane, (_, high) in ranges.items()}),
        summaries=MappingProxyType(
            {lane: summary(each, values[lane], request) for lane, each in pixels.items()}
        ),
        pixels=MappingProxyType(dict(pixels)),
        reason=reason,
        since=since,
        reasons=MappingProxyType(dict(reasons or {})),
        overview=overview,
    )


def summary(pixels: MapPixels, values: F32Array, request: MapRequest) -> LaneSummary:
    """Looks at every pixel: once an image."""
    bad = pixels.nonfinite > 0
    columns = np.any(bad, axis=0)
    any_bad = bool(columns.any())
    with np.errstate(invalid="ignore"):
        # NaN is where no element is.
        all_zero = not bool(np.any(np.abs(values) > 0))
    return LaneSummary(
        nonfinite=nonfinite_count(pixels, request) if any_bad else 0,
        all_nonfinite=any_bad and not bool(np.any(pixels.finite > 0)),
        all_zero=all_zero,
        columns=runs(columns),
    )


def nonfinite_count(pixels: MapPixels, request: MapRequest) -> int:
    """Elements in view that are not finite."""
    if request.each > 1:
        return round(float(pixels.nonfinite.sum(dtype=np.float64)))
    # Several pixels are one element here.
    rows, columns = np.nonzero(pixels.nonfinite[: request.rows])
    shown = request.edges(0, request.rows * request.width - 1, 1, pixels.end)
    return len(np.unique(shown[columns * request.rows + rows]))


def runs(flags: npt.NDArray[np.bool_]) -> tuple[tuple[int, int], ...]:
    """Runs of True as (first, after the last)."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags.view(np.int8), [0]))))
    return tuple(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
