"""Marks across the lanes of the map, however many there are in one stroke: edges of params, and what is not finite."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QColor, QImage, QPainter, QPen, QPolygonF

from inspector.ui import theme
from inspector.ui.map_rows import FLAG

ARROW = 6
"""Half the width of the arrow over an element that is not finite, and its height."""

Mask = npt.NDArray[np.bool_]


def draw_edges(
    painter: QPainter, edges: npt.NDArray[np.int64], width: int, area: QRectF, colour: QColor
) -> None:
    """A line from top to bottom at each pixel of `edges`."""
    row = np.zeros(width + 1, np.uint32)
    row[edges] = premultiplied(colour)
    draw_row(painter, row, QRectF(area.left(), area.top(), width + 1, area.height()))


def draw_row(painter: QPainter, row: npt.NDArray[np.uint32], area: QRectF) -> None:
    """A row of pixels, each as high as `area`."""
    image = QImage(row.data, len(row), 1, 4 * len(row), QImage.Format.Format_ARGB32_Premultiplied)
    painter.drawImage(area, image)


def premultiplied(colour: QColor) -> int:
    """A colour as a pixel: alpha, then red, green and blue each multiplied by it, from the highest byte down."""
    alpha = colour.alphaF()
    red, green, blue = (round(part * alpha) for part in (colour.red(), colour.green(), colour.blue()))
    return colour.alpha() << 24 | red << 16 | green << 8 | blue


def flagged(runs: Iterable[tuple[int, int]], left: float, column: float, width: int) -> Mask:
    """The pixels of runs of columns, the first at `left`, each at least `FLAG` wide."""
    pairs = np.array(tuple(runs), np.float64).reshape(-1, 2)
    first = np.rint(left + pairs[:, 0] * column)
    stop = np.maximum(np.rint(left + pairs[:, 1] * column), first + FLAG)
    change = np.zeros(width + 1, np.int64)
    np.add.at(change, np.clip(first, 0, width).astype(np.int64), 1)
    np.add.at(change, np.clip(stop, 0, width).astype(np.int64), -1)
    return np.asarray(np.cumsum(change[:-1]) > 0)


def draw_flags(painter: QPainter, mask: Mask, area: QRectF) -> None:
    """What is not finite under pixels of a lane: a bar at either edge, and arrows above, apart from any data."""
    if not mask.any():
        return
    row = bar_of(mask)
    for y in (area.top(), area.bottom() - FLAG):
        draw_row(painter, row, QRectF(area.left(), y, len(mask), FLAG))
    painter.setPen(QPen(theme.colours().base, 1))
    painter.setBrush(theme.NONFINITE)
    for middle in _middles(mask):
        x, tip = area.left() + middle, area.top()
        corners = ((x - ARROW, tip - ARROW), (x + ARROW, tip - ARROW), (x, tip))
        painter.drawPolygon(QPolygonF([QPointF(*corner) for corner in corners]))


def bar_of(mask: Mask) -> npt.NDArray[np.uint32]:
    """A row of pixels in vermilion where the mask is set, with a pixel of the background on either side."""
    near = mask.copy()
    near[1:] |= mask[:-1]
    near[:-1] |= mask[1:]
    row = np.zeros(len(mask), np.uint32)
    row[near] = premultiplied(theme.colours().base)
    row[mask] = premultiplied(theme.NONFINITE)
    return row


def _middles(mask: Mask) -> list[float]:
    """Where arrows point, so many that none lies on another."""
    at = np.flatnonzero(mask)
    apart = np.flatnonzero(np.diff(at) > 2 * ARROW)
    first, last = at[np.append(0, apart + 1)], at[np.append(apart, len(at) - 1)]
    middles: list[float] = ((first + last + 1) / 2).tolist()
    return middles
