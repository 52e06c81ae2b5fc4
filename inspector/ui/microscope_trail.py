"""One element over steps as four small plots: w, g, m and v, gaps where a step is not known, marks where not finite."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PySide6.QtCore import QEvent, QPointF, QRectF, Qt, Signal
from PySide6.QtGui import (
    QFontMetrics,
    QHelpEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QPolygonF,
)
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from inspector.floats import F32Array, F64Array
from inspector.runtime.element_trail import NO_TRAIL, ElementTrail
from inspector.stores import LANES, Lane
from inspector.ui import format as fmt
from inspector.ui import theme

LEFT = 20
"""For the names of the lanes, in text of usual size."""
RIGHT = 72
"""For the largest and the least value, in text of usual size."""
GAP = 6
DOT = 2.5
MARK = 4
AFTER = {
    "w": "after the update",
    "g": "as the step was given it",
    "m": "after the update",
    "v": "after the update",
}


@dataclass(frozen=True, slots=True)
class Drawn:
    """What is drawn of a lane: x in steps, y in values, float64, at most two points a pixel; and where not finite.

    `joined` [n-1]: points that are neighbouring steps, so that a line between them leaves nothing out.
    """

    steps: npt.NDArray[np.int64]
    values: F64Array
    joined: npt.NDArray[np.bool_]
    bad: npt.NDArray[np.int64]


def told_apart(low: float, high: float, fits: Callable[[str], bool]) -> tuple[str, str]:
    """Both values in as few digits as tell them apart, from three on; in fewer where more have no room."""
    texts = fmt.number(low, 3), fmt.number(high, 3)
    for digits in range(4, 10):
        more = fmt.number(low, digits), fmt.number(high, digits)
        if texts[0] != texts[1] or not all(fits(text) for text in more):
            break
        texts = more
    return texts


def reduced(steps: npt.NDArray[np.int64], values: F32Array, pixels: int) -> Drawn:
    """The points of a lane, least and largest of each pixel where there are more; none that is not finite."""
    finite = np.isfinite(values)
    bad, steps, values = steps[~finite], steps[finite], values[finite]
    apart = np.diff(steps) == 1
    if len(steps) > 2 * max(pixels, 1):
        first, last = int(steps[0]), int(steps[-1])
        column = (steps - first) * pixels // max(last - first + 1, 1)
        starts = np.flatnonzero(np.diff(column, prepend=-1))
        keep: set[int] = set()
        for low, high in zip(starts, [*starts[1:], len(steps)], strict=True):
            keep |= {int(low + np.argmin(values[low:high])), int(low + np.argmax(values[low:high]))}
        at = np.array(sorted(keep), np.int64)
        # Joined where every step between two of them is known.
        known = np.concatenate([[0], np.cumsum(~apart)])
        return Drawn(steps[at], values[at].astype(np.float64), known[at[1:]] == known[at[:-1]], bad)
    return Drawn(steps, values.astype(np.float64), apart, bad)


class TrailPlot(QWidget):
    """Painted here: the cost is of pixels, whatever the number of steps. `step_wanted` is a step that was picked."""

    step_wanted = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("microscope-trail")
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setMinimumSize(100, 16)
        self.setToolTip(
            "w, g, m and v of the element over steps, each on a scale of its own; to the right its ends. Triangles are "
            "steps at which it is not finite; a click goes to a step."
        )
        self.trail: ElementTrail = NO_TRAIL
        self.current: int | None = None
        self.picked: int | None = None
        """The step that the keys are on."""
        self._drawn: dict[Lane, Drawn] = {}
        self._drawn_for: tuple[object, int] = (None, 0)
        theme.changes().changed.connect(self.update)
        self._name()

    def show_trail(self, trail: ElementTrail, current: int | None) -> None:
        """Show what is known, and the step on show."""
        if trail is not self.trail or current != self.current:
            self.trail, self.current = trail, current
            self._name()
            self.update()

    # --- where things are

    @property
    def span(self) -> tuple[int, int]:
        """The first and last step along the axis."""
        span = self.trail.span or (0, 1)
        current = span[1] if self.current is None else self.current
        return min(span[0], current), max(span[1], current, span[0] + 1)

    def x_of(self, step: float) -> float:
        """The pixel of a step."""
        first, last = self.span
        return theme.scaled(LEFT) + (step - first) / (last - first) * self._width

    def step_at(self, x: float) -> int:
        """The step nearest to a pixel."""
        first, last = self.span
        return min(max(round(first + (x - theme.scaled(LEFT)) / self._width * (last - first)), first), last)

    @property
    def _width(self) -> float:
        return max(self.width() - theme.scaled(LEFT) - theme.scaled(RIGHT), 1)

    def band(self, lane: Lane) -> QRectF:
        """Where a lane is drawn."""
        below = self.fontMetrics().height()
        height = max((self.height() - below - GAP * len(LANES)) / len(LANES), 4)
        return QRectF(theme.scaled(LEFT), GAP / 2 + LANES.index(lane) * (height + GAP), self._width, height)

    # --- painting

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        colours = theme.colours()
        painter.fillRect(self.rect(), colours.base)
        painter.setFont(theme.ui_font(-1))
        key = (self.trail, int(self._width))
        if self._drawn_for != key:
            self._drawn = {lane: reduced(*self.trail.lanes[lane], int(self._width)) for lane in LANES}
            self._drawn_for = key
        for lane in LANES:
            self._paint_lane(painter, lane, self._drawn[lane])
        self._paint_steps(painter)
        if self.hasFocus():
            painter.setRenderHint(QPainter.RenderHint.Antialiasing, on=False)
            painter.setPen(QPen(colours.accent, 1))
            painter.drawRect(self.rect().adjusted(0, 0, -1, -1))
        painter.end()

    def _paint_lane(self, painter: QPainter, lane: Lane, drawn: Drawn) -> None:
        colours, band = theme.colours(), self.band(lane)
        ink = theme.ink(theme.LANE_COLOURS[lane])
        middle = Qt.AlignmentFlag.AlignVCenter
        painter.setPen(ink)
        painter.drawText(
            QRectF(0, band.top(), theme.scaled(LEFT) - 4, band.height()),
            middle | Qt.AlignmentFlag.AlignRight,
            lane,
        )
        painter.setPen(QPen(colours.faint, 1))
        painter.drawLine(band.bottomLeft(), band.bottomRight())
        if len(drawn.values):
            low, high = float(drawn.values.min()), float(drawn.values.max())
            size = (high - low) or 1.0
            level = 0.5 if high == low else 0.0
            xs = [self.x_of(float(s)) for s in drawn.steps]
            ys = [band.bottom() - ((v - low) / size + level) * band.height() for v in drawn.values]
            points = [QPointF(x, y) for x, y in zip(xs, ys, strict=True)]
            self._paint_line(painter, points, drawn.joined, QPen(ink, 1.25))
            painter.setPen(colours.muted)
            beside = QRectF(band.right() + 4, band.top() - 2, theme.scaled(RIGHT) - 6, band.height() + 4)
            if band.height() >= 2 * painter.fontMetrics().height() - 4 and high != low:
                width_of = painter.fontMetrics().horizontalAdvance
                least, largest = told_apart(low, high, lambda text: width_of(text) <= beside.width())
                painter.drawText(beside, Qt.AlignmentFlag.AlignTop, largest)
                painter.drawText(beside, Qt.AlignmentFlag.AlignBottom, least)
            else:
                painter.drawText(beside, middle, fmt.number(high if abs(high) >= abs(low) else low, 3))
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(theme.nonfinite_mark())
        for step in drawn.bad.tolist():
            x = self.x_of(step)
            top = QPointF(x, band.top() + 2 * MARK)
            painter.drawPolygon(
                QPolygonF([top, QPointF(x - MARK, band.top()), QPointF(x + MARK, band.top())])
            )
        painter.setBrush(Qt.BrushStyle.NoBrush)

    def _paint_line(
        self, painter: QPainter, points: list[QPointF], joined: npt.NDArray[np.bool_], pen: QPen
    ) -> None:
        """Lines through neighbouring steps, a dot for each step that has none beside it."""
        painter.setPen(pen)
        # Smooth lines are slow where they are many, and no smoother there.
        dense = len(points) > self._width / 3
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, on=not dense)
        if dense:
            pen.setWidth(0)
            painter.setPen(pen)
        start = 0
        for end in [*(np.flatnonzero(~joined) + 1).tolist(), len(points)]:
            run = points[start:end]
            if len(run) > 1:
                painter.drawPolyline(QPolygonF(run))
            elif run:
                painter.setBrush(pen.color())
                painter.drawEllipse(run[0], DOT / 2, DOT / 2)
                painter.setBrush(Qt.BrushStyle.NoBrush)
            start = end
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)

    def _paint_steps(self, painter: QPainter) -> None:
        colours, (first, last) = theme.colours(), self.span
        bottom = self.band(LANES[-1]).bottom()
        for step, style in ((self.current, Qt.PenStyle.SolidLine), (self.picked, Qt.PenStyle.DotLine)):
            if step is not None and first <= step <= last:
                painter.setPen(QPen(colours.accent, 1, style))
                painter.drawLine(QPointF(self.x_of(step), 0), QPointF(self.x_of(step), bottom))
        painter.setPen(colours.muted)
        below = QRectF(theme.scaled(LEFT), bottom, self._width, self.height() - bottom)
        if self.trail.span is None:
            return
        start, end = self.step_texts(first, last)
        painter.drawText(below, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, start)
        painter.drawText(below, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, end)

    def step_texts(self, first: int, last: int) -> tuple[str, str]:
        """The ends of the axis in words: they are left out before they would lie on each other."""
        metrics, end = QFontMetrics(theme.ui_font(-1)), f"{last:,}"
        starts = (f"step {first:,}", f"{first:,}")
        fitting = (s for s in starts if metrics.horizontalAdvance(f"{s}  {end}") <= self._width)
        return next(fitting, ""), end

    # --- reading

    def text_at(self, step: int) -> str:
        """What is known of the element at a step."""
        lines = [f"step {step:,}"]
        for lane in LANES:
            steps, values = self.trail.lanes[lane]
            at = int(np.searchsorted(steps, step))
            known = at < len(steps) and steps[at] == step
            lines.append(f"{lane} {AFTER[lane]}: {fmt.exact(values[at]) if known else 'not known'}")
        return "\n".join(lines)

    def _name(self) -> None:
        first, last = self.span
        self.setAccessibleName("the element over steps")
        self.setAccessibleDescription(
            ""
            if self.trail.span is None
            else f"Steps {first:,} to {last:,}. Left and right read out a step, Enter goes."
        )

    def event(self, event: QEvent) -> bool:
        """The values of the step under the mouse."""
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            text = self.text_at(self.step_at(event.pos().x())) if self.trail.span else ""
            QToolTip.showText(event.globalPos(), text, self)
            return True
        return super().event(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Go to the step that is clicked."""
        if event.button() == Qt.MouseButton.LeftButton and self.trail.span is not None:
            self.step_wanted.emit(self.step_at(event.position().x()))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Left and right read out a step, Enter goes to it."""
        if self.trail.span is None or event.key() not in (
            Qt.Key.Key_Left, Qt.Key.Key_Right, Qt.Key.Key_Home, Qt.Key.Key_End, Qt.Key.Key_Return, Qt.Key.Key_Enter,
        ):  # fmt: skip
            super().keyPressEvent(event)
            return
        first, last = self.span
        here = self.picked if self.picked is not None else self.current if self.current is not None else last
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.step_wanted.emit(here)
            return
        moves = {
            Qt.Key.Key_Left: here - 1,
            Qt.Key.Key_Right: here + 1,
            Qt.Key.Key_Home: first,
            Qt.Key.Key_End: last,
        }
        self.picked = min(max(moves[Qt.Key(event.key())], first), last)
        self.update()
        at = self.mapToGlobal(QPointF(self.x_of(self.picked), self.height() / 2)).toPoint()
        QToolTip.showText(at, self.text_at(self.picked), self)
