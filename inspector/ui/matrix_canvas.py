"""A param as an image, painted from the pixels that the worker made; moved, zoomed, read out and picked from."""

from __future__ import annotations

import math

from PySide6.QtCore import QEvent, QPointF, QRect, QRectF, Qt, Signal
from PySide6.QtGui import (
    QFocusEvent,
    QHelpEvent,
    QImage,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QResizeEvent,
    QWheelEvent,
)
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from inspector.layout import Param
from inspector.runtime.snapshots import MatrixImage
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.matrix_geometry import MatrixView, columns_of, whole
from inspector.ui.widgets import CentredWords

ZOOM_STEP = 1.5
DRAG_FROM = 4


class MatrixCanvas(QWidget):
    """Asks for nothing: `moved` says that other pixels are needed, `picked` carries the flat index of an element."""

    moved = Signal()
    picked = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("matrix_canvas")
        self.setAccessibleName("the param as an image")
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setMinimumSize(80, 24)
        self.param: Param | None = None
        self.view: MatrixView | None = None
        self.image: MatrixImage | None = None
        self.current: int | None = None
        """The element that is selected, flat."""
        self.absent = CentredWords(self)
        self._picture: QImage | None = None
        self._pressed: QPointF | None = None
        self._dragged = False
        theme.changes().changed.connect(self.update)

    def show_param(self, param: Param | None) -> None:
        """Show another param, whole."""
        if param is self.param:
            return
        self.param, self.current = param, None
        self.set_image(None)
        self.view = None
        if param is not None and param.numel:
            columns = columns_of(param)
            self.view = whole(-(-param.numel // columns), columns, self.width(), self.height())
        self.moved.emit()
        self.update()

    def set_image(self, image: MatrixImage | None) -> None:
        """New pixels."""
        if image is self.image:
            return
        self.image, self._picture = image, None
        if image is not None:
            height, width = image.rgba.shape[:2]
            self._picture = QImage(image.rgba.data, width, height, 4 * width, QImage.Format.Format_RGBA8888)
        self.update()

    def select(self, element: int) -> None:
        """Mark an element and bring it into sight."""
        if self.view is None or element == self.current:
            return
        self.current = element
        self._move(self.view.revealing(*divmod(element, self.view.columns)))
        self.update()

    def show_all(self) -> None:
        """The whole of the matrix."""
        if self.view is not None:
            self._move(whole(self.view.rows, self.view.columns, self.width(), self.height()))

    def zoom(self, factor: float, at: QPointF | None = None) -> None:
        """Closer about a point, the element that is selected, or the middle."""
        if self.view is None:
            return
        if at is None:
            at = QPointF(self.view.width / 2, self.view.height / 2)
            if self.current is not None:
                row, column = divmod(self.current, self.view.columns)
                at = QPointF(*self.view.place_of(row + 0.5, column + 0.5))
        self._move(self.view.zoomed(factor, at.x(), at.y()))

    def element_at(self, position: QPointF) -> int | None:
        """The flat index of the element under a point."""
        found = self.view.element_at(position.x(), position.y()) if self.view is not None else None
        if found is None or self.view is None or self.param is None:
            return None
        element = found[0] * self.view.columns + found[1]
        return element if element < self.param.numel else None

    def describe(self, position: QPointF) -> str:
        """What a person is told about a point."""
        element, image = self.element_at(position), self.image
        if element is None or self.param is None:
            return ""
        lines = [f"{self.param.name}{fmt.multi_index(element, self.param.shape)}, flat {element:,}"]
        if image is not None and image.request.param == self.param.name and self.view is not None:
            request = image.request
            row, column = divmod(element, self.view.columns)
            y, x = (
                math.floor((row - request.top) / request.down),
                math.floor((column - request.left) / request.across),
            )
            if 0 <= y < request.height and 0 <= x < request.width:
                several = request.across * request.down
                about = f" (largest of {fmt.short_count(math.ceil(several))} here)" if several > 1 else ""
                what = (
                    f"Δ{request.lane}"
                    if request.moment == "difference"
                    else f"{request.lane} {request.moment}"
                )
                lines.append(f"{what} = {fmt.exact(float(image.values[y, x]))}{about}")
                if image.nonfinite[y, x]:
                    lines.append(f"{fmt.count(int(image.nonfinite[y, x]))} non-finite under this pixel")
        return "\n".join(lines)

    def _move(self, view: MatrixView) -> None:
        if view != self.view:
            self.view = view
            self.moved.emit()
            self.update()

    # --- events

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), theme.colours().base)
        image, view = self.image, self.view
        if image is not None and view is not None and self._picture is not None and self.param is not None:
            request = image.request
            if request.param == self.param.name and request.columns == view.columns:
                x, y = view.place_of(request.top, request.left)
                far_x, far_y = view.place_of(
                    request.top + request.height * request.down, request.left + request.width * request.across
                )
                painter.drawImage(QRectF(QPointF(x, y), QPointF(far_x, far_y)), self._picture)
        self._paint_current(painter)
        if self.hasFocus():
            painter.setPen(QPen(theme.colours().accent, 1))
            painter.drawRect(self.rect().adjusted(0, 0, -1, -1))
        painter.end()

    def _paint_current(self, painter: QPainter) -> None:
        if self.view is None or self.current is None:
            return
        row, column = divmod(self.current, self.view.columns)
        x, y = self.view.place_of(row, column)
        size_x, size_y = max(1 / self.view.across, 3.0), max(1 / self.view.down, 3.0)
        box = QRectF(x, y, size_x, size_y).adjusted(-2, -2, 2, 2)
        painter.setPen(QPen(theme.colours().base, 3))
        painter.drawRect(box)
        painter.setPen(QPen(theme.colours().accent, 1.5))
        painter.drawRect(box)

    def resizeEvent(self, event: QResizeEvent) -> None:
        if self.view is not None:
            self.view = self.view.resized(self.width(), self.height())
            self.moved.emit()
        self.absent.say(self.absent.text(), QRect(self.rect()))

    def wheelEvent(self, event: QWheelEvent) -> None:
        self.zoom(1.2 ** (event.angleDelta().y() / 120), event.position())
        event.accept()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            self._pressed, self._dragged = event.position(), False

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if self._pressed is None or self.view is None:
            return
        moved = self._pressed - event.position()
        if self._dragged or moved.manhattanLength() >= DRAG_FROM:
            self._dragged = True
            self._pressed = event.position()
            self._move(self.view.panned(moved.x(), moved.y()))

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if self._pressed is not None and not self._dragged:
            element = self.element_at(event.position())
            if element is not None:
                self._pick(element)
        self._pressed = None

    def _pick(self, element: int) -> None:
        self.select(element)
        self.picked.emit(element)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        view, param = self.view, self.param
        moves = {
            Qt.Key.Key_Left: (0, -1), Qt.Key.Key_Right: (0, 1), Qt.Key.Key_Up: (-1, 0), Qt.Key.Key_Down: (1, 0),
        }  # fmt: skip
        key = event.key()
        if view is None or param is None:
            event.ignore()
        elif key in moves:
            down, right = moves[Qt.Key(key)]
            row, column = divmod(self.current or 0, view.columns)
            target = (row + down) * view.columns + column + right
            if self.current is None:
                target = 0
            if 0 <= column + right < view.columns and 0 <= target < param.numel:
                self._pick(target)
        elif key in (Qt.Key.Key_Plus, Qt.Key.Key_Equal):
            self.zoom(ZOOM_STEP)
        elif key == Qt.Key.Key_Minus:
            self.zoom(1 / ZOOM_STEP)
        elif key == Qt.Key.Key_Home:
            self.show_all()
        else:
            event.ignore()

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            QToolTip.showText(event.globalPos(), self.describe(QPointF(event.pos())), self)
            return True
        return super().event(event)

    def focusInEvent(self, event: QFocusEvent) -> None:
        self.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        self.update()
