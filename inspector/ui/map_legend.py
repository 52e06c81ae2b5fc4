"""The colour maps of the map as gradients, and the scale of a lane in words."""

from __future__ import annotations

from PySide6.QtCore import QRectF
from PySide6.QtGui import QColor, QLinearGradient

from inspector.colormap import DIVERGING, LOGARITHMIC, VIRIDIS
from inspector.mapping import QUANTITIES, Quantity
from inspector.runtime.map_picture import MapImage
from inspector.stores import GIVEN, Lane
from inspector.ui import format as fmt
from inspector.ui import theme

QUANTITY_TEXT: dict[Quantity, str] = {
    "value": "value",
    "magnitude": "magnitude",
    "mean": "mean magnitude",
    "change": "change by last dispatch",
    "step_change": "change since the step began",
    "update": "|update| / lr",
    "coding_error": "8-bit error",
    "age": "age of last change",
    "nonfinite": "non-finite",
}
QUANTITY_HELP: dict[Quantity, str] = {
    "value": "Signed values on a linear scale centred on 0; under a pixel, the one of largest magnitude.",
    "magnitude": "Magnitudes |x| on a logarithmic scale; under a pixel, the largest.",
    "mean": "Magnitudes |x| on a logarithmic scale; under a pixel, the mean over its finite elements.",
    "change": "What the last dispatch added to each element, on a linear scale centred on 0; under a pixel, the "
    "change of largest magnitude.",
    "step_change": "What was added to each element since the gradients of the step were put in place, on a linear "
    "scale centred on 0; under a pixel, the change of largest magnitude.",
    "update": "|w after - w before| / lr of the latest update, as float32 holds both: without weight decay this is "
    "|m̂| / (√v̂ + ε) for Adam, about 1 where gradients keep their sign. A number, on a logarithmic scale; under a "
    "pixel, the largest.",
    "coding_error": "Root mean square, over each block of 256, of what coding m or v in 8 bits changed in the latest "
    "update; in the unit of m or v, on a logarithmic scale; under a pixel, the largest.",
    "age": "Steps since a bit of any element of a cell last changed, 0 where the latest step changed one; a cell is "
    "64 elements, 512 beyond about 400 M. Gradients are compared as each step gets them. Counted from when this is "
    "chosen, so nothing is older than that; costs a reading of all lanes each step. Linear scale; under a pixel, the "
    "oldest.",
    "nonfinite": "Where elements are NaN or infinite.",
}
UNIT: dict[Quantity, str] = {"age": "steps", "update": "× lr"}
"""Of the figures of a quantity; those of the others are in the unit of the lane, which has none."""
STOPS = 9
ALL_NONFINITE = "all non-finite"


def gradient(quantity: Quantity, area: QRectF) -> QLinearGradient | QColor:
    """The colour map from left to right; one colour where there is nothing to grade."""
    if quantity == "nonfinite":
        return theme.NONFINITE
    table = VIRIDIS if quantity in (*LOGARITHMIC, "age") else DIVERGING
    result = QLinearGradient(area.topLeft(), area.topRight())
    for i in range(STOPS):
        at = i / (STOPS - 1)
        result.setColorAt(at, QColor(*table[round(at * (len(table) - 1)), :3].tolist()))
    return result


def scale_text(image: MapImage, lane: Lane, digits: int = 2) -> str:
    """The ends of a lane's colour scale: ±0.08, or 1e-9 … 0.02; "" where it has none."""
    quantity, known = image.request.quantity, image.summaries[lane]
    if quantity == "nonfinite":
        return "" if known.nonfinite else "all finite"
    if known.all_nonfinite:
        return ""
    if known.all_zero and quantity != "age":
        return "finite: all 0" if known.nonfinite else "all 0"
    high = fmt.number(image.scale.get(lane), digits)
    unit = UNIT.get(quantity, "")
    if quantity == "age":
        return f"0 … {high} {unit}"
    if quantity in LOGARITHMIC:
        return f"{fmt.number(image.low.get(lane), digits)} … {high} {unit}".rstrip()
    return f"± {high}"


def nonfinite_text(image: MapImage, lane: Lane) -> str:
    """How many elements of a lane in view are not finite; "" for none."""
    known = image.summaries[lane]
    if known.all_nonfinite:
        return ALL_NONFINITE
    return f"{fmt.short_count(known.nonfinite)} non-finite" if known.nonfinite else ""


def lane_reason(image: MapImage, lane: Lane) -> str:
    """Why there are no pixels of a lane; "" where there are."""
    if lane in image.rgba or image.reason:
        return ""
    if image.request.quantity == "update" and lane != "w":
        return "Only w takes an update."
    if image.request.quantity == "coding_error" and lane in GIVEN:
        return f"{lane} is never coded in 8 bits."
    return f"This optimizer keeps no {lane}."


def under_pixel(image: MapImage, lane: Lane, row: int, column: int) -> list[str]:
    """What is told of one pixel: the figure it shows, the others there are, and how many elements it covers."""
    request = image.request
    pixels = image.pixels[lane]
    value, bad = float(image.values[lane][row, column]), int(image.nonfinite[lane][row, column])
    count = int(pixels.finite[row, column]) + bad
    lines = []
    if request.quantity != "nonfinite":
        unit = UNIT.get(request.quantity, "")
        about = f" ({_OF_SEVERAL[request.quantity]} {fmt.short_count(count)} here)" if count > 1 else ""
        lines.append(f"{_figure(image, lane)} = {fmt.exact(value)} {unit}".rstrip() + about)
        if request.quantity == "age" and image.since is not None:
            lines.append(f"counted from step {image.since:,} on")
        if count > 1:
            low, high, mean = (float(p[row, column]) for p in (pixels.low, pixels.high, pixels.mean))
            lines.append(f"min {fmt.exact(low)}, max {fmt.exact(high)}, mean magnitude {fmt.exact(mean)}")
    if bad or request.quantity == "nonfinite":
        lines.append(f"{fmt.count(bad)} non-finite under this pixel")
    return lines


_OF_SEVERAL: dict[Quantity, str] = dict.fromkeys(QUANTITIES, "largest of") | {
    "mean": "over",
    "age": "oldest of",
}


def _figure(image: MapImage, lane: Lane) -> str:
    names: dict[Quantity, str] = {
        "change": f"change of {lane}",
        "step_change": f"change of {lane} in the step",
        "magnitude": f"|{lane}|",
        "mean": f"mean |{lane}|",
        "update": "|update| / lr",
        "coding_error": f"rms error of coding {lane}",
        "age": f"last change of {lane}",
    }
    return names.get(image.request.quantity, lane)
