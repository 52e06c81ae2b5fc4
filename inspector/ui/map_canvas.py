"""What the map draws and how it is moved: lanes, params, bindings, selection; zoom, pan and hover."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QPointF, QRect, QRectF, Qt, Signal
from PySide6.QtGui import (
    QFocusEvent,
    QHelpEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
    QWheelEvent,
)
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from inspector.layout import Layout, Segment
from inspector.mapping import MapRequest, Quantity
from inspector.runtime.map_picture import MapImage
from inspector.stores import Lane, store_at
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.map_geometry import Bracket, SegmentIndex, Viewport, whole
from inspector.ui.map_legend import under_pixel
from inspector.ui.map_overview import element_under
from inspector.ui.map_paint import MapPainter
from inspector.ui.map_rows import lane_rects, overview_height, overview_rect, sizes
from inspector.ui.widgets import CentredWords

EMPTY_TEXT = (
    "The mega-buffers w, g, m and v appear here once a source is open: choose one in the toolbar, "
    "or a file with Ctrl+O."
)
KEYS = (
    ("+ / −, wheel", "zoom in or out"),
    ("← / →, drag", "move along the buffers"),
    ("Page up / down", "one screen back or forward"),
    ("Home", "show everything"),
    ("[ / ]", "select the param before or after"),
    ("Enter, double-click", "zoom to the param"),
    ("Esc", "select no param"),
)
OVERVIEW_TEXT = (
    "The whole of every lane, the largest of each column; the frame is around what is in sight.\n"
    "A press goes there. Vermilion: not finite."
)
ZOOM_STEP = 1.5
PARAM_PIXELS = 48
"""So wide a param is shown that was gone to: its name has room."""
SPOT_PIXELS = 6
"""So wide an element is shown that was gone to."""
DRAG_FROM = 4
"""Pixels the pointer moves before a click becomes a drag."""


class MapCanvas(QWidget):
    """Paints the lanes and follows the mouse and the keys; emits what a person picked."""

    viewport_changed = Signal()
    param_picked = Signal(str)
    element_picked = Signal(str, int, object)
    """An element of a param, flat, and the lane that was clicked, None beside the lanes; the first under the pixel."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("map_canvas")
        self.setAccessibleName("Mega-buffer map")
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setMouseTracking(True)
        self.setMinimumSize(320, theme.scaled(142))
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.index: SegmentIndex | None = None
        self.view: Viewport | None = None
        self.image: MapImage | None = None
        self.selected = ""
        self.spot: int | None = None
        """The element that was gone to."""
        self.empty_text = EMPTY_TEXT
        self.absent = CentredWords(self)
        """Why the lanes have no pixels."""
        self._painter = MapPainter()
        self._brackets: tuple[Bracket, ...] = ()
        self._pressed_at: QPointF | None = None
        self._dragged_from: float | None = None
        self._over_overview = False
        """True while a press on the overview lasts."""
        self.clicked_at = QPointF()

    # ── what is shown ──

    def set_layout(self, layout: Layout | None) -> None:
        """Show another layout, whole; the same one leaves the view where it is."""
        old = self.index.layout if self.index else None
        if layout is old:
            return
        if layout is not None and old is not None and layout.segments == old.segments:
            self.index = SegmentIndex(layout)
            return
        self.image = self.spot = None
        self._painter.set_image(None)
        self.index = SegmentIndex(layout) if layout is not None and layout.padded_elements else None
        self.view = whole(layout.padded_elements, self.lanes_width()) if self.index and layout else None
        self.viewport_changed.emit()
        self.update()

    def set_image(self, image: MapImage | None) -> None:
        """New pixels, ready to draw."""
        if image is not self.image:
            self.image = image
            self._painter.set_image(image)
            self.update()

    def set_absent(self, text: str) -> None:
        """Say across the lanes why they are empty; "" for nothing to say."""
        self.absent.say(text, self._lanes())

    def _lanes(self) -> QRect:
        rects = list(lane_rects(self.size()).values())
        return rects[0].united(rects[-1]).toRect()

    def set_brackets(self, brackets: tuple[Bracket, ...]) -> None:
        """The bindings to mark."""
        if brackets != self._brackets:
            self._brackets = brackets
            self.update()

    def set_selected(self, name: str) -> None:
        """Mark a param; "" for none."""
        if name != self.selected:
            self.selected, self.spot = name, None
            self.update()

    def request(self, quantity: Quantity) -> MapRequest | None:
        """The pixels that are needed now, None while there is nothing to show."""
        if self.view is None:
            return None
        height = max(int(lane_rects(self.size())["w"].height()), 1)
        return self.view.request(height, quantity, self.devicePixelRatioF())

    def overview_request(self, quantity: Quantity) -> MapRequest | None:
        """The pixels of the whole lanes below, None while they are not shown."""
        if self.view is None or not overview_height(self.size()):
            return None
        return whole(self.view.total, self.view.width).request(1, quantity, self.devicePixelRatioF())

    def lanes_width(self) -> int:
        """Pixels between the gutters."""
        return max(self.width() - sizes().left - sizes().right, 1)

    # ── moving about ──

    def show_all(self) -> None:
        """The whole of every lane."""
        if self.view is not None:
            self._move(whole(self.view.total, self.lanes_width()))

    def zoom(self, factor: float, x: float | None = None) -> None:
        """Closer by `factor` about pixel `x` of the lanes, or their middle."""
        if self.view is not None:
            self._move(self.view.zoomed(factor, self.view.width / 2 if x is None else x))

    def zoom_to(self, name: str) -> None:
        """Show one param from edge to edge."""
        if self.view is not None and self.index is not None and name in self.index.layout:
            segment = self.index.layout[name]
            self._move(self.view.around(segment.offset, segment.stop))

    def reveal(self, name: str) -> None:
        """Bring a param into view, at the zoom there is."""
        if self.view is None or self.index is None or name not in self.index.layout:
            return
        segment = self.index.layout[name]
        if segment.stop <= self.view.start or segment.offset >= self.view.stop:
            middle = self.view.x_of((segment.offset + segment.stop) / 2)
            self._move(self.view.panned(middle - self.view.width / 2))

    def show_param(self, name: str) -> None:
        """Bring a param into sight, at least `PARAM_PIXELS` wide."""
        if self.view is None or self.index is None or name not in self.index.layout:
            return
        segment = self.index.layout[name]
        closer = PARAM_PIXELS * self.view.per_pixel / max(segment.numel, 1)
        if closer <= 1:
            self.reveal(name)
            return
        view = self.view.zoomed(closer, self.view.width / 2)
        middle = view.x_of((segment.offset + segment.stop) / 2)
        self._move(view.panned(middle - view.width / 2))

    def show_element(self, element: int) -> None:
        """Bring an element into the middle, at least `SPOT_PIXELS` wide, and mark where it is."""
        if self.view is None or not 0 <= element < self.view.total:
            return
        closer = max(self.view.per_pixel * SPOT_PIXELS, 1.0)
        view = self.view.zoomed(closer, self.view.width / 2)
        self.spot = element
        self._move(view.panned(view.x_of(element + 0.5) - view.width / 2))
        self.update()

    def _show_under(self, position: QPointF) -> None:
        """Bring what a point of the overview stands for into the middle."""
        if self.view is not None:
            element = element_under(position, self.view, overview_rect(self.size()))
            self._move(self.view.panned(self.view.x_of(element) - self.view.width / 2))

    def _move(self, view: Viewport) -> None:
        if view != self.view:
            self.view = view
            self.viewport_changed.emit()
            self.update()

    # ── what lies where ──

    def element_at(self, position: QPointF) -> tuple[int, Lane | None] | None:
        """The element under a point, and the lane if the point is on one."""
        if self.view is None or not sizes().left <= position.x() < sizes().left + self.view.width:
            return None
        lane, part = None, 0.0
        for name, rect in lane_rects(self.size()).items():
            if rect.top() <= position.y() < rect.bottom():
                lane, part = name, (position.y() - rect.top()) / rect.height()
        element = self.view.element_at(position.x() - sizes().left, part)
        return None if element is None else (element, lane)

    def segment_at(self, position: QPointF) -> Segment | None:
        """The param under a point."""
        found = self.element_at(position)
        return self.index.layout.at(found[0]) if found and self.index else None

    def describe(self, position: QPointF) -> str:
        """What a person is told about a point."""
        if self.view is not None and overview_rect(self.size()).contains(position):
            return OVERVIEW_TEXT
        found = self.element_at(position)
        if found is None or self.index is None:
            return ""
        element, lane = found
        if lane is not None and (reason := self._painter.reason(lane)):
            return reason
        layout = self.index.layout
        store = store_at(layout, lane or "w", element)
        kept = f"buffer {store.buffer}" if lane else "each float32 buffer"
        where = f"element {element:,}, byte {store.offset(element):,} of {kept}"
        if store.scales is not None:
            where += f", scale at byte {store.scale_offset(element):,} of {store.scales}"
        segment = layout.at(element)
        if segment is None:
            return f"Gap between params: nothing is stored here.\n{where}"
        block = "weight decay" if segment.block == "wd" else "no weight decay"
        index = fmt.multi_index(element - segment.offset, segment.param.shape)
        state = fmt.STATES[segment.state]
        lines = [
            segment.name,
            f"{fmt.shape(segment.param.shape)}, {block}, {state} state",
            f"{index}: {where}",
        ]
        return "\n".join([*lines, *(self._pixel_lines(position, lane) if lane else ())])

    def pixel_at(self, position: QPointF, lane: Lane) -> tuple[int, int] | None:
        """Row and column of the image under a point on a lane."""
        if self.image is None or self.view is None:
            return None
        request = self.image.request
        at = self.view.start + (position.x() - sizes().left) * self.view.per_pixel
        column = int((at - request.start) // request.elements_per_pixel)
        rect = lane_rects(self.size())[lane]
        row = int((position.y() - rect.top()) / rect.height() * request.height)
        inside = 0 <= column < request.width and 0 <= row < request.height
        return (row, column) if inside else None

    def _pixel_lines(self, position: QPointF, lane: Lane) -> list[str]:
        pixel = self.pixel_at(position, lane)
        if pixel is None or self.image is None or lane not in self.image.values:
            return []
        return under_pixel(self.image, lane, *pixel)

    # ── events ──

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        if self.view is None or self.index is None:
            self._painter.paint_empty(painter, self.size(), self.empty_text)
        else:
            self._painter.paint(
                painter, self.size(), self.view, self.index, self._brackets, self.selected, self.spot
            )
        if self.hasFocus():
            self._painter.paint_focus(painter, self.size())
        painter.end()

    def resizeEvent(self, event: QResizeEvent) -> None:
        if self.view is not None:
            self.view = self.view.resized(self.lanes_width())
        self.absent.say(self.absent.text(), self._lanes())
        self.viewport_changed.emit()

    def wheelEvent(self, event: QWheelEvent) -> None:
        delta = event.angleDelta()
        sideways = delta.x() if abs(delta.x()) > abs(delta.y()) else 0
        if event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            sideways = delta.x() or delta.y()
        if sideways and self.view is not None:
            self._move(self.view.panned(-sideways))
        elif delta.y():
            self.zoom(1.2 ** (delta.y() / 120), event.position().x() - sizes().left)
        event.accept()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self._pressed_at = event.position()
            self._dragged_from = None
            self._over_overview = overview_rect(self.size()).contains(event.position())
            if self._over_overview:
                self._show_under(event.position())

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if self._pressed_at is None or self.view is None:
            return
        if self._over_overview:
            self._show_under(event.position())
            return
        if self._dragged_from is None:
            if abs(event.position().x() - self._pressed_at.x()) < DRAG_FROM:
                return
            self._dragged_from = self._pressed_at.x()
            self.setCursor(Qt.CursorShape.ClosedHandCursor)
        self._move(self.view.panned(self._dragged_from - event.position().x()))
        self._dragged_from = event.position().x()

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if event.button() != Qt.MouseButton.LeftButton or self._pressed_at is None:
            return
        if self._dragged_from is None and self.index is not None and not self._over_overview:
            segment, found = self.segment_at(event.position()), self.element_at(event.position())
            self.param_picked.emit(segment.name if segment else "")
            if segment is not None and found is not None:
                self.clicked_at = event.position()
                self.element_picked.emit(segment.name, found[0] - segment.offset, found[1])
        self._pressed_at = self._dragged_from = None
        self._over_overview = False
        self.unsetCursor()

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        segment = self.segment_at(event.position())
        if segment is not None and not overview_rect(self.size()).contains(event.position()):
            self.zoom_to(segment.name)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key = event.key()
        if self.view is None or self.index is None:
            event.ignore()
        elif key in (Qt.Key.Key_Plus, Qt.Key.Key_Equal):
            self.zoom(ZOOM_STEP)
        elif key == Qt.Key.Key_Minus:
            self.zoom(1 / ZOOM_STEP)
        elif key in (Qt.Key.Key_Left, Qt.Key.Key_Right):
            self._move(self.view.panned(self.view.width / (8 if key == Qt.Key.Key_Right else -8)))
        elif key in (Qt.Key.Key_PageUp, Qt.Key.Key_PageDown):
            self._move(self.view.panned(self.view.width * (1 if key == Qt.Key.Key_PageDown else -1)))
        elif key == Qt.Key.Key_Home:
            self.show_all()
        elif key in (Qt.Key.Key_BracketLeft, Qt.Key.Key_BracketRight):
            near = self.index.neighbour(self.selected, 1 if key == Qt.Key.Key_BracketRight else -1)
            self.param_picked.emit(near.name if near else "")
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.zoom_to(self.selected)
        elif key == Qt.Key.Key_Escape:
            self.param_picked.emit("")
        else:
            event.ignore()

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            text = self.describe(QPointF(event.pos()))
            QToolTip.showText(event.globalPos(), text, self, QRectF(event.pos(), event.pos()).toRect())
            return True
        return super().event(event)

    def focusInEvent(self, event: QFocusEvent) -> None:
        self.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        self.update()
