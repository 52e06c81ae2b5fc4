"""How the timeline is painted. Cost grows with its width, never with steps, keyframes or findings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from PySide6.QtCore import QLineF, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QFontMetricsF, QPainter, QPen, QPixmap, QPolygonF

from inspector.runtime.snapshots import Glance, Recorded
from inspector.ui import theme
from inspector.ui.signs import diamond, flag, severity_sign, stop_sign
from inspector.ui.timeline_axis import Span, covered, pixels_of, tick_steps
from inspector.ui.timeline_signs import SEVERITIES, Signs

MARGIN = 16
SIGNS, TRACK, LABELS = 16, 12, 16
"""Height of the rows, from top to bottom; the last two grow with text."""
OVERVIEW = 3
"""Height of the line that shows which part of all steps is in view."""
KEYFRAME = 3
"""Height of the notch above the track where a state was captured."""
TICK_DISTANCE = 72


def track() -> int:
    """Height of the track, pixels: a line of text has room in it."""
    return max(TRACK, _text_height(theme.font_scale()) - 1)


def labels() -> int:
    """Height of the row of steps, pixels."""
    return max(LABELS, _text_height(theme.font_scale()) + 3)


@cache
def _text_height(scale: float) -> int:
    return math.ceil(QFontMetricsF(theme.ui_font(-1)).height())


@dataclass(frozen=True, slots=True, eq=False)
class Ground:
    """What stays as it is while the run moves: `known` steps seen, on an axis over `whole` of which `span` is in
    view."""

    span: Span
    whole: Span
    known: int
    signs: Signs
    recorded: Recorded | None

    @property
    def zoomed(self) -> bool:
        """True where not all steps are in view."""
        return self.span.stop - self.span.start < self.whole.stop - self.whole.start

    def is_like(self, other: Ground | None) -> bool:
        """True where the same is painted."""
        return other is not None and (
            self.span == other.span
            and self.whole == other.whole
            and self.known == other.known
            and self.signs is other.signs
            and self.recorded is other.recorded
        )


@dataclass(frozen=True, slots=True, eq=False)
class Moving:
    """What moves: the cursor, how far memory reaches, where a person wants to be, and the loop."""

    at: float
    earliest: int
    finished: int
    target: int | None
    glance: Glance | None
    loop: tuple[int, int] | None
    looping: bool
    hovered: int | None
    """The step that a click would mean."""


class TimelinePainter:
    """Keeps the ground as a picture between paints: a scrub moves only the cursor."""

    def __init__(self) -> None:
        self._ground: Ground | None = None
        self._picture: QPixmap | None = None
        self._of: tuple[object, ...] = ()

    def paint(self, painter: QPainter, size: QSize, ratio: float, ground: Ground, moving: Moving) -> None:
        """Everything, from back to front; `ratio` is device pixels a pixel."""
        of = (size, ratio, theme.colours(), painter.font().key())
        if self._picture is None or self._of != of or not ground.is_like(self._ground):
            self._ground, self._of = ground, of
            self._picture = self._painted(size, ratio, ground, painter)
        painter.drawPixmap(0, 0, self._picture)
        top = track_top(size.height())
        _paint_reach(painter, top, ground.span, moving)
        if moving.loop is not None:
            _paint_loop(painter, top, ground.span, moving.loop, moving.looping)
        if moving.glance is not None and moving.glance.of:
            _paint_progress(painter, top, ground.span, moving.glance)
        elif moving.target is not None:
            low, high = sorted((moving.at, float(moving.target)))
            painter.fillRect(
                _bar(ground.span, low, high, top, track()), theme.faded(theme.colours().accent, 0.25)
            )
        if moving.hovered is not None:
            _paint_hovered(painter, top, ground.span, moving.hovered)
        _paint_cursor(painter, top, ground.span, moving)
        if ground.zoomed:
            x = ground.whole.x_of(moving.at)
            painter.fillRect(QRectF(x - 1, 0, 2, OVERVIEW + 1), theme.colours().accent)

    def _painted(self, size: QSize, ratio: float, ground: Ground, like: QPainter) -> QPixmap:
        picture = QPixmap(size * ratio)
        picture.setDevicePixelRatio(ratio)
        picture.fill(theme.colours().base)
        painter = QPainter(picture)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(like.font())
        top = track_top(size.height())
        _paint_overview(painter, ground)
        _paint_track(painter, top, ground)
        _paint_ticks(painter, top + track(), size.width(), ground.span)
        _paint_signs(painter, top - 8, ground)
        painter.end()
        return picture


def track_top(height: int) -> float:
    """The upper edge of the track in a view of this height."""
    return max((height - SIGNS - track() - labels()) / 2, 0) + SIGNS


def _paint_overview(painter: QPainter, ground: Ground) -> None:
    span, whole = ground.span, ground.whole
    if not ground.zoomed:
        return
    c = theme.colours()
    painter.fillRect(QRectF(whole.left, 0, whole.width, OVERVIEW), c.faint)
    left, right = whole.x_of(span.start), whole.x_of(span.stop)
    painter.fillRect(QRectF(left, 0, max(right - left, 3), OVERVIEW), c.muted)


def _paint_track(painter: QPainter, top: float, ground: Ground) -> None:
    c, span, recorded = theme.colours(), ground.span, ground.recorded
    painter.fillRect(QRectF(span.left, top, span.width, track()), c.faint)
    first = recorded.first - 1 if recorded is not None else 0
    painter.fillRect(_bar(span, first, ground.known, top, track()), c.line)
    if recorded is None:
        return
    for left, right in covered(recorded.rebuildable, span):
        painter.fillRect(QRectF(left, top, max(right - left, 1), track()), theme.faded(c.info, 0.3))
    painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
    painter.setPen(QPen(c.text, 1))
    notches = pixels_of(recorded.keyframes, span).tolist()
    painter.drawLines([QLineF(x, top - KEYFRAME, x, top - 1) for x in notches])
    painter.setRenderHint(QPainter.RenderHint.Antialiasing, True)


def _paint_reach(painter: QPainter, top: float, span: Span, moving: Moving) -> None:
    """What can be gone back to without running again."""
    c = theme.colours()
    reach = _bar(span, moving.earliest, moving.finished, top, track())
    painter.fillRect(reach, c.muted)
    text = f"memory back to {moving.earliest:,}"
    if reach.width() > QFontMetricsF(painter.font()).horizontalAdvance(text) + 12:
        painter.setPen(c.base)
        painter.drawText(reach.adjusted(4, 0, 0, 0), int(Qt.AlignmentFlag.AlignVCenter), text)


def _bar(span: Span, first: float, last: float, top: float, height: float) -> QRectF:
    left = span.x_of(min(max(first, span.start), span.stop))
    right = span.x_of(min(max(last, span.start), span.stop))
    return QRectF(left, top, right - left, height)


def _paint_ticks(painter: QPainter, top: float, width: int, span: Span) -> None:
    c = theme.colours()
    metrics = QFontMetricsF(painter.font())
    for step in tick_steps(
        int(span.stop), int(span.width / (TICK_DISTANCE * theme.font_scale())), max(int(span.start), 0)
    ):
        if step < span.start:
            continue
        x = span.x_of(step)
        painter.setPen(c.line)
        painter.drawLine(QLineF(x, top, x, top + 3))
        text = f"{step:,}" if step else "step 0"
        wide = metrics.horizontalAdvance(text) + 2
        left = min(max(x - wide / 2, 2), width - wide - 2)
        painter.setPen(c.muted)
        painter.drawText(QRectF(left, top + 2, wide, labels() - 2), int(Qt.AlignmentFlag.AlignCenter), text)


def _paint_signs(painter: QPainter, y: float, ground: Ground) -> None:
    c, signs, span = theme.colours(), ground.signs, ground.span
    for x in pixels_of(signs.marks, span).tolist():
        diamond(painter, x, y, c.muted)
    colour = {"info": c.info, "warning": c.warning, "error": c.error}
    # Of several at a pixel the worst lies on top.
    for severity in SEVERITIES:
        for x in pixels_of(signs.findings[severity], span).tolist():
            severity_sign(painter, round(x), y, severity, colour[severity])
    for x in pixels_of(signs.stops, span).tolist():
        stop_sign(painter, x, y, c.error)
    for x in pixels_of(signs.bookmarks, span).tolist():
        flag(painter, x, y, c.text)


def _paint_loop(painter: QPainter, top: float, span: Span, loop: tuple[int, int], looping: bool) -> None:
    c = theme.colours()
    colour = c.accent if looping else c.muted
    area = _bar(span, *loop, top - 3, track() + 6)
    painter.fillRect(area, theme.faded(colour, 0.18))
    painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
    painter.setPen(QPen(colour, 1))
    for x, inward in ((area.left(), 4), (area.right(), -4)):
        painter.drawLine(QLineF(x, area.top(), x, area.bottom()))
        painter.drawLine(QLineF(x, area.top(), x + inward, area.top()))
        painter.drawLine(QLineF(x, area.bottom(), x + inward, area.bottom()))
    painter.setRenderHint(QPainter.RenderHint.Antialiasing, True)


def _paint_hovered(painter: QPainter, top: float, span: Span, step: int) -> None:
    """Its number, before a click goes there."""
    c = theme.colours()
    x = span.x_of(step)
    painter.setPen(QPen(c.muted, 1))
    painter.drawLine(QLineF(x, top - KEYFRAME, x, top + track() + 3))
    text = f"{step:,}"
    wide = QFontMetricsF(painter.font()).horizontalAdvance(text) + 8
    left = min(max(x - wide / 2, span.left), span.left + span.width - wide)
    area = QRectF(left, top + track() + 2, wide, labels() - 2)
    painter.fillRect(area, c.raised)
    painter.setPen(c.text)
    painter.drawText(area, int(Qt.AlignmentFlag.AlignCenter), text)


def _paint_progress(painter: QPainter, top: float, span: Span, glance: Glance) -> None:
    """From the state it is rebuilt from to the step, filled as far as it has come."""
    c = theme.colours()
    start = glance.step - glance.of
    reached = start + glance.done
    painter.fillRect(_bar(span, start, glance.step, top, track()), theme.faded(c.accent, 0.25))
    painter.fillRect(_bar(span, start, reached, top, track()), theme.faded(c.accent, 0.8))
    _dashed(painter, top, span, reached)


def _paint_cursor(painter: QPainter, top: float, span: Span, moving: Moving) -> None:
    c = theme.colours()
    if moving.target is not None:
        _dashed(painter, top, span, moving.target)
    if not span.start <= moving.at <= span.stop:
        return
    x = span.x_of(moving.at)
    painter.setPen(QPen(c.accent, 2))
    painter.drawLine(QLineF(x, top - SIGNS + 2, x, top + track() + 1))
    # Hollow where only the numbers of the step are at hand.
    hollow = moving.glance is not None
    painter.setPen(QPen(c.accent, 1.5) if hollow else Qt.PenStyle.NoPen)
    painter.setBrush(c.base if hollow else c.accent)
    foot = top - SIGNS + 8
    painter.drawPolygon(QPolygonF([QPointF(x - 5, foot - 6), QPointF(x + 5, foot - 6), QPointF(x, foot)]))


def _dashed(painter: QPainter, top: float, span: Span, step: float) -> None:
    if span.start <= step <= span.stop:
        x = span.x_of(step)
        painter.setPen(QPen(theme.colours().accent, 1, Qt.PenStyle.DashLine))
        painter.drawLine(QLineF(x, top - SIGNS, x, top + track()))
