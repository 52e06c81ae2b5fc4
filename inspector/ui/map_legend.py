"""The colour maps of the map as gradients, and the scale of a lane in words."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import QRectF
from PySide6.QtGui import QColor, QLinearGradient

from inspector.colormap import DIVERGING, VIRIDIS
from inspector.runtime.snapshots import MapImage
from inspector.stepping import Quantity
from inspector.stores import Lane
from inspector.ui import format as fmt
from inspector.ui import theme

QUANTITY_TEXT: dict[Quantity, str] = {
    "value": "value",
    "magnitude": "magnitude",
    "change": "change by last dispatch",
    "nonfinite": "non-finite",
}
QUANTITY_HELP: dict[Quantity, str] = {
    "value": "Signed values on a linear scale centred on 0; under a pixel, the largest.",
    "magnitude": "Magnitudes on a logarithmic scale; under a pixel, the largest.",
    "change": "What the last dispatch added to each element, on a linear scale centred on 0.",
    "nonfinite": "Where elements are NaN or infinite.",
}
STOPS = 9
ALL_NONFINITE = "all non-finite"


def gradient(quantity: Quantity, area: QRectF) -> QLinearGradient | QColor:
    """The colour map from left to right; one colour where there is nothing to grade."""
    if quantity == "nonfinite":
        return theme.NONFINITE
    table = VIRIDIS if quantity == "magnitude" else DIVERGING
    result = QLinearGradient(area.topLeft(), area.topRight())
    for i in range(STOPS):
        at = i / (STOPS - 1)
        result.setColorAt(at, QColor(*table[round(at * (len(table) - 1)), :3].tolist()))
    return result


def scale_text(image: MapImage, lane: Lane) -> str:
    """The ends of a lane's colour scale: ±0.08, or 1e-9 … 0.02; "" where it has none.

    Looks at every pixel: once an image.
    """
    quantity = image.request.quantity
    values = image.values[lane]
    if quantity == "nonfinite":
        return "" if np.any(image.nonfinite[lane]) else "all finite"
    if all_nonfinite(image, lane):
        return ""
    if not np.any((values != 0) & ~np.isnan(values)):
        return "finite: all 0" if np.any(image.nonfinite[lane]) else "all 0"
    high = fmt.number(image.scale.get(lane), 2)
    if quantity == "magnitude":
        return f"{fmt.number(image.low.get(lane), 2)} … {high}"
    return f"± {high}"


def nonfinite_text(image: MapImage, lane: Lane) -> str:
    """How many elements of a lane in view are not finite; "" for none."""
    if all_nonfinite(image, lane):
        return ALL_NONFINITE
    count = nonfinite_count(image, lane)
    return f"{fmt.short_count(count)} non-finite" if count else ""


def nonfinite_count(image: MapImage, lane: Lane) -> int:
    """Elements in view that are not finite."""
    counts, request = image.nonfinite[lane], image.request
    if request.elements_per_pixel > request.height:
        return round(float(counts.sum(dtype=np.float64)))
    # Several pixels are one element here, or a row of a column is less than one.
    rows, columns = np.nonzero(counts)
    part = rows / request.height if request.elements_per_pixel > 1 else 0.5
    return len(np.unique(np.floor(request.start + (columns + part) * request.elements_per_pixel)))


def all_nonfinite(image: MapImage, lane: Lane) -> bool:
    """True where no element in view is finite."""
    # From top to bottom, then to the next column: in the order of the elements.
    values, counts = image.values[lane].T.ravel(), image.nonfinite[lane].T.ravel()
    there = ~np.isnan(values)
    if not np.any(counts) or np.any(values[there] != 0):
        return False
    whole = max(int(image.request.elements_per_pixel / max(image.request.height, 1)), 1)
    # A pixel at the end of a param covers fewer elements.
    inner = there & np.append(there[1:], False) & np.append(False, there[:-1])
    return bool(np.all(counts[there] > 0) and np.all(counts[inner] >= whole))
