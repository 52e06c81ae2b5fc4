"""The lanes whole below the map, the part in sight framed: painted here, and where a point of it lies."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QImage, QPainter, QPen

from inspector.runtime.map_picture import MapImage
from inspector.stores import LANES, Lane
from inspector.ui import theme
from inspector.ui.map_geometry import Viewport, whole
from inspector.ui.map_marks import bar_of, draw_row, flagged, premultiplied
from inspector.ui.map_rows import OVERVIEW_LANE, overview_rect, sizes

LEAST_FRAME = 6
"""Pixels that the frame is wide however little is in sight."""


class Overview:
    """Holds the pictures of the whole lanes between paints."""

    def __init__(self) -> None:
        self._source: MapImage | None = None
        self._images: dict[Lane, QImage] = {}
        # A QImage made of an array does not keep it alive.
        self._pixels: list[npt.NDArray[np.uint8]] = []

    def set_image(self, image: MapImage | None) -> None:
        """Take the worker's pixels over; those of a quantity that is not known now are taken away."""
        if image is self._source:
            return
        self._source, self._images, self._pixels = image, {}, []
        for lane, rgba in image.rgba.items() if image is not None else ():
            row = np.ascontiguousarray(rgba[:1])
            width = row.shape[1]
            self._images[lane] = QImage(row.data, width, 1, 4 * width, QImage.Format.Format_RGBA8888)
            self._pixels.append(row)

    def paint(self, painter: QPainter, size: QSize, view: Viewport) -> None:
        """Lanes, marks of what is not finite, and the frame; nothing where there is no room."""
        area = overview_rect(size)
        if area.height() <= 0:
            return
        c = theme.colours()
        painter.fillRect(area, c.window)
        for i, lane in enumerate(LANES):
            row = lane_row(area, i)
            mark = QRectF(area.left() - 10, row.top(), 6, row.height())
            painter.fillRect(mark, theme.lane_mark(lane))
            if lane in self._images:
                painter.drawImage(row, self._images[lane])
        frame = in_sight(view, area)
        shade = theme.faded(c.base, 0.55)
        painter.fillRect(QRectF(area.left(), area.top(), frame.left() - area.left(), area.height()), shade)
        painter.fillRect(
            QRectF(frame.right(), area.top(), area.right() - frame.right(), area.height()), shade
        )
        painter.setBrush(Qt.BrushStyle.NoBrush)
        for colour, width in ((c.base, 3), (c.accent, 1)):
            painter.setPen(QPen(colour, width))
            painter.drawRect(frame.adjusted(0.5, 0.5, -0.5, -0.5))
        # What is not finite shows through the shade and the frame.
        self._flags(painter, area)

    def _flags(self, painter: QPainter, area: QRectF) -> None:
        """A bar in each lane where it is not finite, and one through all that says where to look."""
        if self._source is None:
            return
        width = int(area.width())
        each = width / self._source.request.width
        masks = {
            lane: flagged(known.columns, 0.0, each, width)
            for lane, known in self._source.summaries.items()
            if known.columns
        }
        if not masks:
            return
        through = np.any(list(masks.values()), axis=0)
        shade = np.where(through, premultiplied(theme.faded(theme.colours().base, 0.8)), 0).astype(np.uint32)
        draw_row(painter, shade, area)
        for i, lane in enumerate(LANES):
            if lane in masks:
                draw_row(painter, bar_of(masks[lane]), lane_row(area, i))
        for y in (area.top(), area.bottom() - 2):
            draw_row(painter, bar_of(through), QRectF(area.left(), y, width, 2))


def lane_row(area: QRectF, lane: int) -> QRectF:
    """Where the lane of that number lies in the overview."""
    return QRectF(area.left(), area.top() + 1 + lane * OVERVIEW_LANE, area.width(), OVERVIEW_LANE)


def in_sight(view: Viewport, area: QRectF) -> QRectF:
    """The frame around the part of the lanes that is in sight."""
    every = whole(view.total, max(int(area.width()), 1))
    left, right = (area.left() + every.x_of(each) for each in (view.start, min(view.stop, view.total)))
    right = min(right, area.right())
    if right - left < LEAST_FRAME:
        middle = (left + right) / 2
        left = min(max(middle - LEAST_FRAME / 2, area.left()), area.right() - LEAST_FRAME)
        right = left + LEAST_FRAME
    return QRectF(left, area.top(), right - left, area.height())


def element_under(position: QPointF, view: Viewport, area: QRectF) -> float:
    """The element that a point of the overview stands for, wherever the pointer has been dragged to."""
    every = whole(view.total, max(int(area.width()), 1))
    at = every.start + (position.x() - sizes().left) * every.per_pixel
    return min(max(at, 0.0), float(view.total))
