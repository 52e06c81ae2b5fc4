"""Small signs painted on an axis: what a person did, bookmarks, and findings by severity."""

from __future__ import annotations

from PySide6.QtCore import QLineF, QPointF, QRectF, Qt
from PySide6.QtGui import QBrush, QColor, QPainter, QPen, QPolygonF

from inspector.diagnosis.findings import Severity


def diamond(painter: QPainter, x: float, y: float, colour: QColor) -> None:
    """Something a person did."""
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(QBrush(colour))
    painter.drawPolygon(
        QPolygonF([QPointF(x, y - 5), QPointF(x + 4, y), QPointF(x, y + 5), QPointF(x - 4, y)])
    )


def stop_sign(painter: QPainter, x: float, y: float, colour: QColor) -> None:
    """A breakpoint stopped the run: a dot, larger than any sign of a finding."""
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(QBrush(colour))
    painter.drawEllipse(QPointF(x, y), 5, 5)


def severity_sign(painter: QPainter, x: float, y: float, severity: Severity, colour: QColor) -> None:
    """A circle, triangle or square, so that severity is told without colour."""
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(QBrush(colour))
    if severity == "info":
        painter.drawEllipse(QPointF(x, y), 4, 4)
    elif severity == "warning":
        painter.drawPolygon(QPolygonF([QPointF(x, y - 5), QPointF(x + 5, y + 4), QPointF(x - 5, y + 4)]))
    else:
        painter.drawRect(QRectF(x - 4, y - 4, 8, 8))


def flag(painter: QPainter, x: float, y: float, colour: QColor) -> None:
    """A bookmark."""
    painter.setPen(QPen(colour, 1.5))
    painter.drawLine(QLineF(x, y - 6, x, y + 6))
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(QBrush(colour))
    painter.drawPolygon(QPolygonF([QPointF(x, y - 6), QPointF(x + 8, y - 3), QPointF(x, y)]))
