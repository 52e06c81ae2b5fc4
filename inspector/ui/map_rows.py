"""The rows of the map: their places, and what fits in them."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QFontMetricsF, QPainter

from inspector.stores import LANES, Lane
from inspector.ui.map_geometry import Viewport

LEFT, RIGHT = 60, 104
"""Width of the gutters."""
RULER, BLOCKS, NAMES, BRACKET = 16, 14, 16, 16
"""Height of the rows."""
LEAST_LANE, LEAST_BRACKET = 14, 4
"""Where the map is low, brackets give way to the lanes, and lose their words."""
CELL_TEXT_FROM = 52.0
"""Pixels an element is wide before its value is written in it."""
OVERVIEW, OVERVIEW_LANE = 16, 3
"""Height of the row that shows the lanes whole, and of a lane in it."""
OVERVIEW_FROM = 176
"""Where the map is lower, the lanes need the room."""
FLAG = 3
"""Least size of a non-finite mark, so that one bad element among millions is seen."""


def lane_rects(size: QSize) -> dict[Lane, QRectF]:
    """Where each lane's strip lies; every strip is equally high, in whole pixels."""
    top = RULER + BLOCKS + NAMES
    bracket = bracket_height(size)
    height = max((size.height() - top - RULER - overview_height(size)) // len(LANES) - bracket, 4)
    width = max(size.width() - LEFT - RIGHT, 1)
    return {
        lane: QRectF(LEFT, top + i * (height + bracket) + bracket, width, height)
        for i, lane in enumerate(LANES)
    }


def bracket_height(size: QSize) -> int:
    """The height of the row above each lane."""
    rows = RULER + BLOCKS + NAMES + RULER + overview_height(size)
    each = (size.height() - rows) // len(LANES)
    return min(max(each - LEAST_LANE, LEAST_BRACKET), BRACKET)


def overview_height(size: QSize) -> int:
    """The height of the row below the lanes that shows them whole; 0 where there is no room."""
    return OVERVIEW if size.height() >= OVERVIEW_FROM else 0


def overview_rect(size: QSize) -> QRectF:
    """Where the lanes are shown whole, the margins above and below left out."""
    top = lane_rects(size)[LANES[-1]].bottom() + RULER
    height = max(overview_height(size) - 2, 0)
    return QRectF(LEFT, top, max(size.width() - LEFT - RIGHT, 1), height)


def span(view: Viewport, start: int, stop: int, y: float, height: float, least: float = 0) -> QRectF:
    """Where elements [start, stop) lie in a row."""
    left = LEFT + view.x_of(start)
    return QRectF(left, y, max((stop - start) / view.per_pixel, least), height)


def visible(area: QRectF, view: Viewport) -> QRectF:
    """The part of `area` between the gutters."""
    left, right = max(area.left(), LEFT), min(area.right(), LEFT + view.width)
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
