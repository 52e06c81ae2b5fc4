"""The step axis: where the run stands, what happened where, and how far memory reaches back."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QLineF, QPoint, QPointF, QRect, QRectF, QSize, Qt
from PySide6.QtGui import (
    QFontMetricsF,
    QHelpEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QPolygonF,
)
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from inspector.diagnosis.findings import Finding, Severity
from inspector.runtime.commands import Seek
from inspector.runtime.snapshots import Snapshot
from inspector.stepping import Cursor
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.signs import diamond, severity_sign, stop_sign
from inspector.ui.timeline_axis import axis_end, position, sign_texts, tick_steps
from inspector.ui.view import View, same_run

KEYS = (
    ("← / →", "one step back or forward"),
    ("Page up / down", "ten steps back or forward"),
    ("Home / End", "the earliest step in memory, the latest seen"),
    ("Ctrl+← / →", "the finding or mark before or after"),
)
EMPTY_TEXT = "The steps of the run appear here once a source is open."
MARGIN = 16
SIGNS, TRACK, LABELS = 16, 12, 16
"""Height of the rows, from top to bottom."""
SNAP = 5
"""Pixels within which a finding or mark is meant."""
RANK: dict[Severity, int] = {"info": 0, "warning": 1, "error": 2}


class TimelineView(View):
    """A scrubber over steps. Position x is the number of finished steps; a step in progress lies between."""

    PERIOD_S = 0.1

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("timeline")
        self.setAccessibleName("Timeline")
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self.setMinimumHeight(SIGNS + TRACK + LABELS)
        self._snapshot: Snapshot | None = None
        self._known = 0
        self._target: int | None = None
        self._dragging = False
        self._signs: dict[int, str] = {}
        self._signs_of: tuple[object, object] = (None, None)
        theme.changes().changed.connect(self.update)

    def sizeHint(self) -> QSize:
        return QSize(600, 64)

    def show_snapshot(self, snapshot: Snapshot) -> None:
        before, self._snapshot = self._snapshot, snapshot
        if snapshot.mode != "running" and not self._dragging:
            self._target = None
        if before is not None and not same_run(before, snapshot):
            self._known = 0
            self._target = None
        history = snapshot.history
        seen = int(history.first[-1]) + history.stride - 1 if len(history) else 0
        if snapshot.last_step is not None:
            seen = min(seen, snapshot.last_step)
        finished = snapshot.cursor.finished_steps if snapshot.cursor else 0
        # A merged bucket of the history may end after the run does.
        self._known = max(self._known, finished, seen if history.stride == 1 else 0)
        if self._signs_of != (snapshot.findings, snapshot.marks):
            self._signs_of = (snapshot.findings, snapshot.marks)
            self._signs = sign_texts(snapshot)
        if before is None or _what_is_drawn(before) != _what_is_drawn(snapshot):
            self.setAccessibleDescription(self.describe_position())
            self.update()

    # ── where things are ──

    @property
    def end(self) -> int:
        """The step at the right edge."""
        last = self._snapshot.last_step if self._snapshot else None
        return max(axis_end(self._known) if last is None else last, 1)

    @property
    def earliest(self) -> int:
        """The earliest step that memory reaches."""
        if self._snapshot is None or self._snapshot.cursor is None:
            return 0
        cursor = self._snapshot.cursor
        # Memory counts the starts of steps: that of the step in progress is one once a dispatch has run.
        newest = cursor.step if cursor.dispatch else cursor.step - 1
        return min(max(newest - self._snapshot.undo.steps, 0), cursor.finished_steps)

    def x_of(self, step: float) -> float:
        """The pixel of a number of finished steps."""
        return MARGIN + step / self.end * max(self.width() - 2 * MARGIN, 1)

    def step_at(self, x: float) -> int:
        """The step nearest to a pixel, a finding or mark if one is close."""
        step = (x - MARGIN) / max(self.width() - 2 * MARGIN, 1) * self.end
        near = self._sign_near(x)
        return near if near is not None else min(max(round(step), 0), self.end)

    def describe_position(self) -> str:
        """Where the run stands, as a sentence."""
        s = self._snapshot
        if s is None or s.cursor is None:
            return EMPTY_TEXT
        return (
            f"{fmt.plural(s.cursor.finished_steps, 'step')} finished of {self._known:,} seen; "
            f"memory reaches back to step {self.earliest:,}."
        )

    def describe(self, x: float) -> str:
        """What a person is told about a point of the axis."""
        s = self._snapshot
        if s is None or s.cursor is None:
            return EMPTY_TEXT
        step = self.step_at(x)
        sign = self._sign_near(x)
        lines = [self._signs[sign]] if sign is not None else []
        finished = s.cursor.finished_steps
        if step > finished:
            lines.append(f"Step {step:,}: click to run on to its end")
        elif step < self.earliest:
            lines.append(f"Step {step:,}: before what memory reaches (step {self.earliest:,})")
        else:
            lines.append(f"Step {step:,}: click to go back to its end")
        return "\n".join(lines)

    def _sign_near(self, x: float) -> int | None:
        near = [step for step in self._signs if abs(self.x_of(step) - x) <= SNAP and step <= self.end]
        return min(near, key=lambda step: abs(self.x_of(step) - x), default=None)

    # ── going there ──

    def _go(self, step: int) -> None:
        s = self._snapshot
        if s is None or s.cursor is None or s.mode not in ("paused", "running"):
            return
        step = min(max(step, 0), self.end if s.last_step is not None else max(step, 0))
        here = self._target if self._target is not None else s.cursor.finished_steps
        if step != here or (self._target is None and not s.cursor.at_end):
            self._target = step
            self.command.emit(Seek(step))
            self.update()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self._dragging = True
            self._go(self.step_at(event.position().x()))

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if self._dragging:
            self._go(self.step_at(event.position().x()))

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self._dragging = False

    def keyPressEvent(self, event: QKeyEvent) -> None:
        s = self._snapshot
        if s is None or s.cursor is None:
            event.ignore()
            return
        here = self._target if self._target is not None else s.cursor.finished_steps
        key, control = event.key(), bool(event.modifiers() & Qt.KeyboardModifier.ControlModifier)
        if control and key in (Qt.Key.Key_Left, Qt.Key.Key_Right):
            before = max((step for step in self._signs if step < here), default=here)
            after = min((step for step in self._signs if step > here), default=here)
            self._go(before if key == Qt.Key.Key_Left else after)
            return
        target = {
            Qt.Key.Key_Left: here - 1,
            Qt.Key.Key_Right: here + 1,
            Qt.Key.Key_PageUp: here - 10,
            Qt.Key.Key_PageDown: here + 10,
            Qt.Key.Key_Home: self.earliest,
            Qt.Key.Key_End: self._known,
        }.get(Qt.Key(key))
        if target is None:
            event.ignore()
        else:
            self._go(target)

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            QToolTip.showText(event.globalPos(), self.describe(event.pos().x()), self, _around(event.pos()))
            return True
        if event.type() in (QEvent.Type.FocusIn, QEvent.Type.FocusOut):
            self.update()
        return super().event(event)

    # ── painting ──

    def paintEvent(self, event: QPaintEvent) -> None:
        c = theme.colours()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.fillRect(self.rect(), c.base)
        painter.setFont(theme.ui_font(-1))
        s = self._snapshot
        if s is None or s.cursor is None:
            painter.setPen(c.muted)
            painter.drawText(self.rect(), int(Qt.AlignmentFlag.AlignCenter), EMPTY_TEXT)
        else:
            top = max((self.height() - SIGNS - TRACK - LABELS) / 2, 0) + SIGNS
            self._paint_track(painter, top, s.cursor)
            self._paint_ticks(painter, top + TRACK)
            self._paint_signs(painter, top, s)
            self._paint_cursor(painter, top, s.cursor)
        if self.hasFocus():
            painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
            painter.setPen(QPen(c.accent, 1))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRect(self.rect().adjusted(0, 0, -1, -1))
        painter.end()

    def _paint_track(self, painter: QPainter, top: float, cursor: Cursor) -> None:
        c = theme.colours()
        painter.fillRect(self._bar(0, self.end, top), c.faint)
        painter.fillRect(self._bar(0, self._known, top), c.line)
        # What can be gone back to without running again.
        reach = self._bar(self.earliest, cursor.finished_steps, top)
        painter.fillRect(reach, c.muted)
        text = f"memory back to {self.earliest:,}"
        width = QFontMetricsF(painter.font(), self).horizontalAdvance(text)
        if reach.width() > width + 12:
            painter.setPen(c.base)
            painter.drawText(reach.adjusted(4, 0, 0, 0), int(Qt.AlignmentFlag.AlignVCenter), text)

    def _bar(self, first: float, last: float, top: float) -> QRectF:
        return QRectF(self.x_of(first), top, self.x_of(last) - self.x_of(first), TRACK)

    def _paint_ticks(self, painter: QPainter, top: float) -> None:
        c = theme.colours()
        metrics = QFontMetricsF(painter.font(), self)
        for step in tick_steps(self.end, (self.width() - 2 * MARGIN) // 72):
            x = self.x_of(step)
            painter.setPen(c.line)
            painter.drawLine(QLineF(x, top, x, top + 3))
            text = f"{step:,}" if step else "step 0"
            width = metrics.horizontalAdvance(text) + 2
            left = min(max(x - width / 2, 2), self.width() - width - 2)
            painter.setPen(c.muted)
            painter.drawText(
                QRectF(left, top + 2, width, LABELS - 2), int(Qt.AlignmentFlag.AlignCenter), text
            )

    def _paint_signs(self, painter: QPainter, top: float, snapshot: Snapshot) -> None:
        c = theme.colours()
        y = top - 8
        for mark in snapshot.marks:
            if mark.step <= self.end and not mark.stop:
                diamond(painter, self.x_of(mark.step), y, c.muted)
        worst: dict[int, Finding] = {}
        for finding in snapshot.findings:
            pixel = round(self.x_of(finding.step))
            if finding.step <= self.end and (
                pixel not in worst or RANK[finding.severity] > RANK[worst[pixel].severity]
            ):
                worst[pixel] = finding
        colour = {"info": c.info, "warning": c.warning, "error": c.error}
        for pixel, finding in worst.items():
            severity_sign(painter, pixel, y, finding.severity, colour[finding.severity])
        for mark in snapshot.marks:
            if mark.stop and mark.step <= self.end:
                stop_sign(painter, self.x_of(mark.step), y, c.error)

    def _paint_cursor(self, painter: QPainter, top: float, cursor: Cursor) -> None:
        c = theme.colours()
        if self._target is not None:
            x = self.x_of(min(self._target, self.end))
            painter.setPen(QPen(c.accent, 1, Qt.PenStyle.DashLine))
            painter.drawLine(QLineF(x, top - SIGNS, x, top + TRACK))
        x = self.x_of(min(position(cursor), self.end))
        painter.setPen(QPen(c.accent, 2))
        painter.drawLine(QLineF(x, top - SIGNS + 2, x, top + TRACK + 1))
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(c.accent)
        foot = top - SIGNS + 8
        painter.drawPolygon(QPolygonF([QPointF(x - 5, foot - 6), QPointF(x + 5, foot - 6), QPointF(x, foot)]))


def _what_is_drawn(s: Snapshot) -> tuple[object, ...]:
    return (s.cursor, s.mode, s.last_step, s.undo, s.history.version, s.marks, s.findings)


def _around(point: QPoint) -> QRect:
    return QRect(point.x() - 1, 0, 3, 1000)
