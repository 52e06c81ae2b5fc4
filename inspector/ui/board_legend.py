"""The lines of a plot by name, each with a sample of how it is drawn and the value read out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QEvent, QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QHelpEvent, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from inspector.ui import theme
from inspector.ui.chart import Dash, dashed_pen

SAMPLE = 22
SPACE = 12
MOST_ROWS = 3


@dataclass(frozen=True, slots=True)
class Entry:
    """A line: its name, the value read out, what it means, and how it is drawn."""

    name: str
    value: str
    meaning: str
    colour: QColor
    dash: Dash = ()
    sample: bool = True


class BoardLegend(QWidget):
    """Flows into up to three rows; what does not fit is said to be more, and told by the tooltip."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.entries: tuple[Entry, ...] = ()
        self._places: list[tuple[QRectF, int]] = []
        self.hidden = 0
        self.most_rows = MOST_ROWS
        """In a picture there is no tooltip that tells the others: all have their place there."""
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        theme.changes().changed.connect(self._lay)
        self._lay()

    def show_entries(self, entries: Sequence[Entry]) -> None:
        """Show these lines."""
        if tuple(entries) != self.entries:
            self.entries = tuple(entries)
            self.setAccessibleName("; ".join(f"{e.name} {e.value}".strip() for e in entries))
            self._lay()

    def show_rows(self, most: int) -> None:
        """Flow into at most so many rows."""
        self.most_rows = most
        self._lay()

    @property
    def _metrics(self) -> QFontMetricsF:
        return QFontMetricsF(theme.ui_font(-1))

    def _lay(self) -> None:
        line, x, row = self._metrics.height() + 1, float(theme.GRID), 0
        self._places, self.hidden = [], 0
        for i, entry in enumerate(self.entries):
            width = self._metrics.horizontalAdvance(f"{entry.name}  {entry.value}")
            width += (SAMPLE if entry.sample else 0) + theme.GRID
            if x > theme.GRID and x + width > self.width() - theme.GRID:
                if row + 1 == self.most_rows:
                    self.hidden = len(self.entries) - i
                    break
                x, row = float(theme.GRID), row + 1
            room = min(width, self.width() - 2 * theme.GRID)
            self._places.append((QRectF(x, row * line, max(room, 1), line), i))
            x += width + SPACE
        self.setFixedHeight(round((row + 1) * line) + 1)
        self.update()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Flow into the new width."""
        super().resizeEvent(event)
        self._lay()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Sample, name and value of each line."""
        painter = QPainter(self)
        painter.setFont(theme.ui_font(-1))
        text, muted = theme.colours().text, theme.colours().muted
        for place, i in self._places:
            entry = self.entries[i]
            left = place.left()
            if entry.sample:
                painter.setPen(dashed_pen(entry.colour, entry.dash))
                y = place.center().y()
                painter.drawLine(QPointF(left, y), QPointF(left + SAMPLE - theme.GRID, y))
                left += SAMPLE
            room = place.right() - left
            value = self._metrics.horizontalAdvance(entry.value)
            least = min(self._metrics.horizontalAdvance(entry.name), room / 2)
            name = self._metrics.elidedText(
                entry.name, Qt.TextElideMode.ElideMiddle, max(room - value - 8, least)
            )
            painter.setPen(muted)
            area = QRectF(left, place.top(), room, place.height())
            painter.drawText(area, Qt.AlignmentFlag.AlignVCenter, name)
            painter.setPen(text)
            area.setLeft(left + self._metrics.horizontalAdvance(name + "  "))
            words = self._metrics.elidedText(entry.value, Qt.TextElideMode.ElideRight, area.width() + 1)
            painter.drawText(area, Qt.AlignmentFlag.AlignVCenter, words)
        if self.hidden:
            painter.setPen(text)
            painter.fillRect(QRectF(self.width() - 60, self.height() - self._metrics.height() - 1, 60, 99),
                             theme.colours().base)  # fmt: skip
            corner = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignBottom
            painter.drawText(self.rect().adjusted(0, 0, -theme.GRID, -1), corner, f"+{self.hidden} more")
        painter.end()

    def event(self, event: QEvent) -> bool:
        """A line in full, with what it means; beside them all of them."""
        if isinstance(event, QHelpEvent):
            here = (i for place, i in self._places if place.contains(QPointF(event.pos())))
            told = [self.entries[i] for i in here] or list(self.entries)
            QToolTip.showText(
                event.globalPos(), "\n".join(f"{e.name} {e.value} — {e.meaning}" for e in told), self
            )
            return True
        return super().event(event)
