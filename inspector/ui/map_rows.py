"""The rows of the map: their places, and what fits in them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QFontMetricsF, QPainter

from inspector.stores import LANES, Lane
from inspector.ui import theme
from inspector.ui.map_geometry import Viewport

LEAST_LANE, LEAST_BRACKET = 14, 4
"""Where the map is low, brackets give way to the lanes, and lose their words."""
CELL_TEXT_FROM = 52.0
"""Pixels an element is wide before its value is written in it, in text of the usual size."""
OVERVIEW_LANE = 3
"""Height of a lane in the row that shows them whole."""
FLAG = 3
"""Least size of a non-finite mark, so that one bad element among millions is seen."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Pixels of what text is written in, the width of the gutters and the height of the rows."""

    left: int
    right: int
    ruler: int
    blocks: int
    names: int
    bracket: int
    overview: int
    """Of the row that shows the lanes whole."""
    overview_from: int
    """Where the map is lower, the lanes need the room."""


def sizes() -> Sizes:
    """Those for the size of text that a person has set."""
    return _sizes(theme.font_scale())


@cache
def _sizes(scale: float) -> Sizes:
    return Sizes(*(round(each * scale) for each in (60, 104, 16, 14, 16, 16, 16, 176)))


def lane_rects(size: QSize) -> dict[Lane, QRectF]:
    """Where each lane's strip lies; every strip is equally high, in whole pixels."""
    top = sizes().ruler + sizes().blocks + sizes().names
    bracket = bracket_height(size)
    height = max((size.height() - top - sizes().ruler - overview_height(size)) // len(LANES) - bracket, 4)
    width = max(size.width() - sizes().left - sizes().right, 1)
    return {
        lane: QRectF(sizes().left, top + i * (height + bracket) + bracket, width, height)
        for i, lane in enumerate(LANES)
    }


def bracket_height(size: QSize) -> int:
    """The height of the row above each lane."""
    rows = sizes().ruler + sizes().blocks + sizes().names + sizes().ruler + overview_height(size)
    each = (size.height() - rows) // len(LANES)
    return min(max(each - LEAST_LANE, LEAST_BRACKET), sizes().bracket)


def overview_height(size: QSize) -> int:
    """The height of the row below the lanes that shows them whole; 0 where there is no room."""
    return sizes().overview if size.height() >= sizes().overview_from else 0


def overview_rect(size: QSize) -> QRectF:
    """Where the lanes are shown whole, the margins above and below left out."""
    top = lane_rects(size)[LANES[-1]].bottom() + sizes().ruler
    height = max(overview_height(size) - 2, 0)
    return QRectF(sizes().left, top, max(size.width() - sizes().left - sizes().right, 1), height)


def span(view: Viewport, start: int, stop: int, y: float, height: float, least: float = 0) -> QRectF:
    """Where elements [start, stop) lie in a row."""
    left = sizes().left + view.x_of(start)
    return QRectF(left, y, max((stop - start) / view.per_pixel, least), height)


def visible(area: QRectF, view: Viewport) -> QRectF:
    """The part of `area` between the gutters."""
    left, right = max(area.left(), sizes().left), min(area.right(), sizes().left + view.width)
    return QRectF(left, area.top(), max(right - left, 0.0), area.height())


def text_width(painter: QPainter, text: str) -> float:
    """Pixels a text takes."""
    return QFontMetricsF(painter.font(), painter.device()).horizontalAdvance(text)


def fits(painter: QPainter, text: str, width: float) -> bool:
    """True where there is room for a text."""
    return text_width(painter, text) <= width


def shortened(name: str, metrics: QFontMetricsF, width: float) -> str:
    """The name, less what says least where room is short, or elided; empty where there is no room."""
    parts = name.removesuffix(".weight").split(".")
    for text in (name, *(".".join(parts[first:]) for first in range(len(parts)))):
        if metrics.horizontalAdvance(text) <= width:
            return text
    text = metrics.elidedText(parts[-1], Qt.TextElideMode.ElideRight, width)
    return text if len(text) > 2 else ""
