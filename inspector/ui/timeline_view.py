"""The step axis: where the run stands, what happened where, what can be gone to and how."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QPoint, QRect, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QHelpEvent, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen, QWheelEvent
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from inspector.runtime.commands import Seek
from inspector.runtime.snapshots import Snapshot
from inspector.ui import theme
from inspector.ui.moment import memory_reaches, position_text, step_text
from inspector.ui.timeline_axis import Span, axis_end, position
from inspector.ui.timeline_paint import MARGIN, SIGNS, Ground, Moving, TimelinePainter, labels, track
from inspector.ui.timeline_signs import Signs
from inspector.ui.view import View, same_run

KEYS = (
    ("← / →", "one step back or forward"),
    ("Page up / down", "ten steps back or forward"),
    ("Home / End", "the first step at hand, the latest seen"),
    ("Ctrl+← / →", "the finding, bookmark or mark before or after"),
    ("+ / −, wheel", "zoom; A shows all steps"),
    ("Shift+wheel", "move along the axis"),
    ("Shift+drag", "set the range to loop over"),
    ("Space", "play or pause"),
)
EMPTY_TEXT = "The steps of the run appear here once a source is open."
ZOOM_STEP = 1.5
FRAME_MS = 16
"""While the mouse drags, no more than one step is asked for in this time."""
PATIENCE_MS = 500
"""So long a paused run may take to show a sign of being on its way."""


class TimelineView(View):
    """A scrubber over steps. Position x is the number of finished steps; a step in progress lies between."""

    LOCAL_KEYS = KEYS
    SHOWS_FOCUS = True

    loop_wanted = Signal(object)
    """(first, last) of the steps to loop over."""

    PERIOD_S = 0.1

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("timeline")
        self.setAccessibleName("Timeline")
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setMouseTracking(True)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self.setMinimumHeight(SIGNS + track() + labels())
        self._snapshot: Snapshot | None = None
        self._known = 0
        self._span: tuple[float, float] | None = None
        """The steps in view, None for all."""
        self._target: int | None = None
        self._wanted: Seek | None = None
        self._dragging = False
        self._hovered: float | None = None
        self._loop_from: int | None = None
        self._loop: tuple[int, int] | None = None
        self._looping = False
        self._signs = Signs()
        self._painter = TimelinePainter()
        self._frame = QTimer(self, singleShot=True, interval=FRAME_MS)
        self._frame.timeout.connect(self._send_wanted)
        self._patience = QTimer(self, singleShot=True, interval=PATIENCE_MS)
        self._patience.timeout.connect(self._forget_target)
        theme.changes().changed.connect(self.update)

    def sizeHint(self) -> QSize:
        return QSize(600, 64)

    def show_snapshot(self, snapshot: Snapshot) -> None:
        before, self._snapshot = self._snapshot, snapshot
        if not same_run(before, snapshot):
            self._known = 0
            self._span = self._target = None
        cursor = snapshot.cursor
        finished = cursor.finished_steps if cursor else 0
        self._known = max(self._known, finished, _last_seen(snapshot))
        if cursor is not None and self._target == finished and cursor.at_end:
            self._target = None
        elif self._target is not None and before is not None and before.cursor != cursor:
            self._patience.start()
        if not self._signs.is_of(snapshot):
            self._signs = Signs(snapshot)
        if before is None or _what_is_drawn(before) != _what_is_drawn(snapshot):
            if cursor is not None and self._span is not None and (before is None or before.cursor != cursor):
                self._keep_in_view(position(cursor))
            self.setAccessibleDescription(position_text(snapshot, self._known) or EMPTY_TEXT)
            self.update()

    def show_loop(self, loop: tuple[int, int] | None, looping: bool) -> None:
        """Mark the steps that are looped over, or would be."""
        if (loop, looping) != (self._loop, self._looping):
            self._loop, self._looping = loop, looping
            self.update()

    def show_range(self, start: float, stop: float) -> None:
        """Bring these steps into view."""
        whole = self.whole
        self._set_span(Span(start, max(stop, start + 1e-3), whole.width, whole.left).inside(whole))

    # ── where things are ──

    @property
    def end(self) -> int:
        """The step at the right edge when all are in view."""
        s = self._snapshot
        last = s.last_step if s else None
        growing = s is not None and s.recorded is not None and s.recorded.state == "recording"
        return max(axis_end(self._known) if last is None or growing else last, 1)

    @property
    def whole(self) -> Span:
        """The axis with all steps in view."""
        recorded = self._snapshot.recorded if self._snapshot else None
        start = min(recorded.first - 1, self.end - 1) if recorded else 0
        return Span(start, self.end, max(self.width() - 2 * MARGIN, 1), MARGIN)

    @property
    def span(self) -> Span:
        """The axis as it is shown."""
        whole = self.whole
        return Span(*self._span, whole.width, whole.left).inside(whole) if self._span else whole

    @property
    def earliest(self) -> int:
        """The earliest step that memory reaches."""
        return memory_reaches(self._snapshot) if self._snapshot else 0

    def x_of(self, step: float) -> float:
        """The pixel of a number of finished steps."""
        return self.span.x_of(step)

    def step_at(self, x: float) -> int:
        """The step nearest to a pixel, one where something happened if it is close."""
        span, whole = self.span, self.whole
        near = self._signs.near(x, span)
        return near if near is not None else round(min(max(span.step_of(x), whole.start), whole.stop))

    def describe(self, x: float) -> str:
        """What a person is told about a point of the axis."""
        s = self._snapshot
        if s is None or s.cursor is None:
            return EMPTY_TEXT
        sign = self._signs.near(x, self.span)
        lines = [self._signs.texts[sign]] if sign is not None else []
        return "\n".join([*lines, step_text(s, self.step_at(x))])

    # ── going there ──

    def _go(self, step: int, *, at_once: bool = True) -> None:
        s = self._snapshot
        if s is None or s.cursor is None or s.mode not in ("paused", "running"):
            return
        if s.last_step is not None:
            step = min(step, s.last_step)
        step = max(step, 0)
        here = self._target if self._target is not None else s.cursor.finished_steps
        # A step that is shown as recorded, with nothing on its way, is asked for again.
        idle = self._target is None and (not s.cursor.at_end or (s.glance is not None and not s.glance.of))
        if step != here or idle:
            self._target = step
            self._wanted = Seek(step)
            if at_once or not self._frame.isActive():
                self._send_wanted()
            self.update()

    def _send_wanted(self) -> None:
        wanted, self._wanted = self._wanted, None
        if wanted is not None:
            self._frame.start()
            self._patience.start()
            self.command.emit(wanted)

    def _forget_target(self) -> None:
        s = self._snapshot
        if self._dragging or (s is not None and (s.mode == "running" or (s.glance and s.glance.of))):
            self._patience.start()
        else:
            self._target = None
            self.update()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() != Qt.MouseButton.LeftButton:
            return
        step = self.step_at(event.position().x())
        if event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            self._loop_from = step
        else:
            self._dragging = True
            self._go(step)

    def leaveEvent(self, event: QEvent) -> None:
        self._hovered = None
        self.update()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._hovered = event.position().x()
        self.update()
        step = self.step_at(event.position().x())
        if self._loop_from is not None:
            first, last = sorted((self._loop_from, step))
            if last > first:
                self.loop_wanted.emit((first, last))
        elif self._dragging:
            self._go(step, at_once=False)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self._dragging = False
            self._loop_from = None
            self._send_wanted()

    def wheelEvent(self, event: QWheelEvent) -> None:
        delta = event.angleDelta()
        shift = bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier)
        sideways = (delta.x() or delta.y()) if shift or abs(delta.x()) > abs(delta.y()) else 0
        if sideways:
            span = self.span
            by = -sideways / 120 * (span.stop - span.start) / 8
            self._move(Span(span.start + by, span.stop + by, span.width, span.left))
        elif delta.y():
            self.zoom(ZOOM_STEP ** (delta.y() / 120), event.position().x())
        event.accept()

    def zoom(self, factor: float, x: float | None = None) -> None:
        """Closer by `factor` about pixel `x`, or about where the run stands."""
        cursor = self._snapshot.cursor if self._snapshot else None
        if x is None:
            x = self.x_of(position(cursor)) if cursor is not None else self.width() / 2
        self._move(self.span.zoomed(factor, x, self.whole))

    def _move(self, span: Span) -> None:
        self._set_span(span.inside(self.whole))
        self.moved.emit(self.span.start, self.span.stop)

    def _keep_in_view(self, step: float) -> None:
        span = self.span.showing(step, self.whole)
        if span != self.span:
            self._move(span)

    def _set_span(self, span: Span) -> None:
        whole = self.whole
        everything = span.stop - span.start >= (whole.stop - whole.start) * 0.999
        self._span = None if everything else (span.start, span.stop)
        self.update()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        s = self._snapshot
        if s is None or s.cursor is None:
            event.ignore()
            return
        here = self._target if self._target is not None else s.cursor.finished_steps
        key, control = Qt.Key(event.key()), bool(event.modifiers() & Qt.KeyboardModifier.ControlModifier)
        before, after = self._signs.before(here), self._signs.after(here)
        targets = {
            Qt.Key.Key_Left: before if control else here - 1,
            Qt.Key.Key_Right: after if control else here + 1,
            Qt.Key.Key_PageUp: here - 10,
            Qt.Key.Key_PageDown: here + 10,
            Qt.Key.Key_Home: s.recorded.first if s.recorded else self.earliest,
            Qt.Key.Key_End: self._known,
        }
        factors = {Qt.Key.Key_Plus: ZOOM_STEP, Qt.Key.Key_Equal: ZOOM_STEP, Qt.Key.Key_Minus: 1 / ZOOM_STEP}
        if key in factors:
            self.zoom(factors[key])
        elif key == Qt.Key.Key_A:
            self._move(self.whole)
        elif (target := targets.get(key)) is not None:
            self._go(target)
        else:
            event.setAccepted(key in targets)

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
        painter.setFont(theme.ui_font(-1))
        s = self._snapshot
        if s is None or s.cursor is None:
            painter.fillRect(self.rect(), c.base)
            painter.setPen(c.muted)
            painter.drawText(self.rect(), int(Qt.AlignmentFlag.AlignCenter), EMPTY_TEXT)
        else:
            ground = Ground(self.span, self.whole, self._known, self._signs, s.recorded)
            self._painter.paint(painter, self.size(), self.devicePixelRatioF(), ground, self._moving(s))
        if self.hasFocus():
            painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
            painter.setPen(QPen(c.accent, 1))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRect(self.rect().adjusted(0, 0, -1, -1))
        painter.end()

    def _moving(self, s: Snapshot) -> Moving:
        assert s.cursor is not None
        finished = s.cursor.finished_steps
        # What memory holds is of the step the device stands at, which a glance does not show.
        earliest = finished if s.glance is not None else self.earliest
        at = position(s.cursor)
        hovered = None if self._hovered is None or self._dragging else self.step_at(self._hovered)
        return Moving(at, earliest, finished, self._target, s.glance, self._loop, self._looping, hovered)


def _last_seen(s: Snapshot) -> int:
    """The last step whose numbers are at hand."""
    if s.recorded is not None:
        return s.recorded.last
    history = s.history
    # A merged bucket of the history may end after the run does.
    if not len(history) or history.stride > 1:
        return 0
    return min(int(history.first[-1]), s.last_step) if s.last_step is not None else int(history.first[-1])


def _what_is_drawn(s: Snapshot) -> tuple[object, ...]:
    return (
        s.cursor, s.mode, s.last_step, s.undo, s.history.version, s.marks, s.findings, s.bookmarks, s.glance,
        id(s.recorded),
    )  # fmt: skip


def _around(point: QPoint) -> QRect:
    return QRect(point.x() - 1, 0, 3, 1000)
