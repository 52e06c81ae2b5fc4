"""A short piece of a line as it is drawn in a plot, to tell which is which."""

from __future__ import annotations

from typing import Literal

from PySide6.QtCore import QLineF, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QGuiApplication, QPainter, QPixmap, QPolygonF

from inspector.ui.chart import Dash, dashed_pen

Symbol = Literal["", "o", "s", "t1"]
"""A sign on a line: none, a disc, a square, a triangle."""
SAMPLE = QSize(32, 10)
REACH = 3.0


def line_sample(colour: QColor, dash: Dash, symbol: Symbol = "") -> QPixmap:
    """The line, with its sign in the middle."""
    app = QGuiApplication.instance()
    ratio = app.devicePixelRatio() if isinstance(app, QGuiApplication) else 1.0
    picture = QPixmap(SAMPLE * ratio)
    picture.setDevicePixelRatio(ratio)
    picture.fill(Qt.GlobalColor.transparent)
    painter = QPainter(picture)
    painter.setPen(dashed_pen(colour, dash))
    x, y = SAMPLE.width() / 2, SAMPLE.height() // 2 + 0.5
    painter.drawLine(QLineF(0, y, SAMPLE.width(), y))
    painter.setBrush(colour)
    if symbol == "o":
        painter.drawEllipse(QPointF(x, y), REACH - 1, REACH - 1)
    elif symbol == "s":
        painter.drawRect(QRectF(x - REACH + 1, y - REACH + 1, 2 * REACH - 2, 2 * REACH - 2))
    elif symbol == "t1":
        corners = (x - REACH, y + REACH - 1), (x + REACH, y + REACH - 1), (x, y - REACH)
        painter.drawPolygon(QPolygonF([QPointF(*corner) for corner in corners]))
    painter.end()
    return picture
