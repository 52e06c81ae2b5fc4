"""The memory bill as stacked bars, one a row, and the legend of their parts."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QBrush, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from inspector.memory_bill import Kind, Part
from inspector.stores import Lane
from inspector.ui import theme
from inspector.ui.memory_model import BillRows
from inspector.ui.tables import AnyIndex, row_height

OTHER_STATE = "other state"
LEGEND: tuple[tuple[Kind, str, str], ...] = (
    ("weights", "weights", "weights"), ("gradients", "gradients", "gradients"), ("state", "m", "m"),
    ("state", "v", "v"), ("state", OTHER_STATE, OTHER_STATE), ("master", "master", "master copy"),
    ("mirror", "mirror", "f16 mirror"),
)  # fmt: skip
"""Kind, name and text of each kind of part, in the order of a bar."""


def brush(kind: Kind, name: str) -> QBrush:
    """What a part is filled with: the colours of the lanes; copies of the weights are hatched."""
    if kind in ("master", "mirror"):
        pattern = Qt.BrushStyle.BDiagPattern if kind == "master" else Qt.BrushStyle.HorPattern
        return QBrush(theme.lane_mark("w"), pattern)
    if kind == "state":
        moments: dict[str, Lane] = {"m": "m", "v": "v"}
        return QBrush(theme.lane_mark(moments[name]) if name in moments else theme.colours().muted)
    return QBrush(theme.lane_mark("w" if kind == "weights" else "g"))


def spans(parts: Iterable[tuple[Part, int]], most: int, width: float) -> list[tuple[Part, float, float]]:
    """Where each part lies on a bar, from and to, in pixels; `most` bytes take the whole width."""
    found, at = [], 0.0
    for part, nbytes in parts:
        end = at + width * nbytes / max(most, 1)
        found.append((part, at, end))
        at = end
    return found


class BarDelegate(QStyledItemDelegate):
    """Draws a row's parts beside each other."""

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: AnyIndex) -> None:
        """The cell as any other, and the bar on it."""
        super().paint(painter, option, index)
        model = index.model()
        assert isinstance(model, BillRows)
        room = QRectF(option.rect).adjusted(theme.GRID, theme.GRID, -theme.GRID, -theme.GRID)
        painter.save()
        for part, low, high in spans(model.parts(index.row()), model.most, room.width()):
            area = QRectF(room.left() + low, room.top(), max(high - low, 1.0), room.height())
            _fill(painter, area, brush(part.kind, part.name))
        painter.restore()


class Legend(QWidget):
    """A swatch and a word for each kind of part."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("memory-legend")
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Maximum)
        self.setToolTip(
            "What the bars are made of. Master copy: weights in float32 beside those in half precision. f16 mirror: "
            "weights rounded to float16 for the forward pass."
        )
        self.setAccessibleName("parts of the bars: " + ", ".join(text for _, _, text in LEGEND))
        theme.changes().changed.connect(self.update)

    def sizeHint(self) -> QSize:
        """One line of text."""
        return QSize(self._width(), row_height())

    def minimumSizeHint(self) -> QSize:
        """As small as one may want it; what does not fit is left out."""
        return QSize(1, 0)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw what fits."""
        if self.height() < self.fontMetrics().height():
            return
        painter = QPainter(self)
        metrics, side, at = self.fontMetrics(), 3 * theme.GRID, float(theme.GRID)
        for kind, name, text in LEGEND:
            end = at + side + theme.GRID + metrics.horizontalAdvance(text)
            if end > self.width():
                break
            middle = self.height() / 2
            _fill(painter, QRectF(at, middle - side / 2, side, side), brush(kind, name))
            painter.setPen(theme.colours().text)
            base = middle + (metrics.ascent() - metrics.descent()) / 2
            painter.drawText(QPointF(at + side + theme.GRID, base), text)
            at = end + 3 * theme.GRID
        painter.end()

    def _width(self) -> int:
        words = sum(self.fontMetrics().horizontalAdvance(text) for _, _, text in LEGEND)
        return words + 7 * theme.GRID * len(LEGEND)


def _fill(painter: QPainter, area: QRectF, fill: QBrush) -> None:
    painter.fillRect(area, fill)
    if fill.style() != Qt.BrushStyle.SolidPattern and area.width() > 2:
        # A hatch alone has no edge.
        painter.setPen(fill.color())
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRect(area.adjusted(0.5, 0.5, -0.5, -0.5))
