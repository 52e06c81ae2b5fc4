"""The few icons of the toolbar and the banner, drawn so that they look alike on every system."""

from __future__ import annotations

from typing import Literal

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QIcon, QPainter, QPainterPath, QPen, QPixmap, QPolygonF

from inspector.ui import theme

IconName = Literal[
    "step_dispatch", "step_iteration", "run", "pause", "undo_dispatch", "undo_iteration",
    "record", "play", "loop", "bookmark", "info", "warning", "error",
]  # fmt: skip

SIZE = 16.0


def icon(name: IconName, colour: QColor | None = None) -> QIcon:
    """The icon in the text colour, greyed where disabled."""
    colour = colour or theme.colours().text
    result = QIcon()
    for ratio in (1, 2, 3):
        result.addPixmap(_drawn(name, colour, ratio), QIcon.Mode.Normal)
        result.addPixmap(_drawn(name, theme.faded(colour, 0.35), ratio), QIcon.Mode.Disabled)
    return result


def _drawn(name: IconName, colour: QColor, ratio: int) -> QPixmap:
    pixmap = QPixmap(int(SIZE * ratio), int(SIZE * ratio))
    pixmap.setDevicePixelRatio(ratio)
    pixmap.fill(Qt.GlobalColor.transparent)
    painter = QPainter(pixmap)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    if name in ("info", "warning", "error"):
        _sign(painter, name, colour)
    elif name in ("play", "loop"):
        _outline(painter, name, colour)
    else:
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(colour)
        painter.drawPath(_shape(name))
    painter.end()
    return pixmap


def _shape(name: IconName) -> QPainterPath:
    path = QPainterPath()
    if name == "pause":
        path.addRect(QRectF(4, 3, 3, 10))
        path.addRect(QRectF(9, 3, 3, 10))
    elif name == "record":
        path.addEllipse(QRectF(3, 3, 10, 10))
    elif name == "bookmark":
        path.addRect(QRectF(3, 2, 2, 13))
        path.addPolygon(QPolygonF([QPointF(5, 2), QPointF(14, 5.5), QPointF(5, 9), QPointF(5, 2)]))
    elif name == "run":
        path.addPolygon(_triangle(4, 13))
    elif name == "step_dispatch":
        path.addPolygon(_triangle(3, 10))
        path.addRect(QRectF(11, 3, 2, 10))
    elif name == "step_iteration":
        path.addPolygon(_triangle(1, 7))
        path.addPolygon(_triangle(7, 13))
        path.addRect(QRectF(13, 3, 2, 10))
    elif name == "undo_dispatch":
        path.addPolygon(_triangle(13, 4))
    else:
        path.addPolygon(_triangle(13, 6))
        path.addRect(QRectF(3, 3, 2, 10))
    return path


def _triangle(flat: float, tip: float) -> QPolygonF:
    return QPolygonF([QPointF(flat, 3), QPointF(tip, 8), QPointF(flat, 13), QPointF(flat, 3)])


def _outline(painter: QPainter, name: IconName, colour: QColor) -> None:
    painter.setPen(QPen(colour, 1.5))
    if name == "play":
        painter.drawPolygon(_triangle(4, 13))
        return
    painter.drawArc(QRectF(2.5, 2.5, 11, 11), 60 * 16, 300 * 16)
    painter.setBrush(colour)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.drawPolygon(QPolygonF([QPointF(8, 0), QPointF(8, 7), QPointF(13, 3.5)]))


def _sign(painter: QPainter, name: IconName, colour: QColor) -> None:
    # A shape of its own for each severity, so that it is told without colour.
    painter.setPen(QPen(colour, 1.5))
    if name == "info":
        painter.drawEllipse(QRectF(1.5, 1.5, 13, 13))
        mark = "i"
    elif name == "warning":
        painter.drawPolygon(QPolygonF([QPointF(8, 1.5), QPointF(15, 14.5), QPointF(1, 14.5)]))
        mark = "!"
    else:
        points = [(5, 1), (11, 1), (15, 5), (15, 11), (11, 15), (5, 15), (1, 11), (1, 5)]
        painter.drawPolygon(QPolygonF([QPointF(x, y) for x, y in points]))
        mark = "×"
    font = theme.ui_font()
    font.setPixelSize(10)
    font.setBold(True)
    painter.setFont(font)
    down = 2 if name == "warning" else 0
    painter.drawText(QRectF(0, down, SIZE, SIZE), int(Qt.AlignmentFlag.AlignCenter), mark)
