"""The colour maps of the map as gradients, and the scale of a lane in words."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import QRectF
from PySide6.QtGui import QColor, QLinearGradient

from inspector.colormap import DIVERGING, VIRIDIS
from inspector.runtime.snapshots import MapImage
from inspector.stepping import Lane, Quantity
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
    """The ends of a lane's colour scale: ±0.08, or 1e-9 … 0.02. Looks at every pixel: once an image."""
    quantity = image.request.quantity
    if quantity == "nonfinite":
        return "non-finite"
    values = image.values[lane]
    if not np.any((values != 0) & ~np.isnan(values)):
        return "all 0"
    high = fmt.number(image.scale.get(lane), 2)
    if quantity == "magnitude":
        return f"{fmt.number(image.low.get(lane), 2)} … {high}"
    return f"± {high}"
