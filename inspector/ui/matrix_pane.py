"""A param as an image, and what of it is shown: which lane, before or after, by value or by magnitude."""

from __future__ import annotations

from PySide6.QtCore import QRect, Qt, QTimer, Signal
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QVBoxLayout, QWidget

from inspector.layout import Param
from inspector.looking import MOMENTS_SHOWN, MatrixRequest
from inspector.runtime.commands import ViewMatrix
from inspector.runtime.snapshots import Snapshot
from inspector.stores import LANES
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.matrix_canvas import MatrixCanvas
from inspector.ui.moment import absent_text
from inspector.ui.values_model import MOMENT_HELP
from inspector.ui.widgets import ElidedLabel

FRAME_MS = 16
SCALES = ("by value", "by magnitude, log")
SCALE_HELP = (
    "Signed values about 0: blue below, red above; non-finite vermilion",
    "Magnitudes over up to six powers of ten; non-finite vermilion",
)


class MatrixPane(QWidget):
    """Asks the worker for the pixels on screen, at most once a frame, while it is seen."""

    command = Signal(object)
    picked = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._asked: MatrixRequest | None = None
        self.lane, self.moment, self.scale = QComboBox(), QComboBox(), QComboBox()
        self.lane.addItems(LANES)
        self.moment.addItems(MOMENTS_SHOWN)
        self.scale.addItems(SCALES)
        for i, moment in enumerate(MOMENTS_SHOWN):
            self.moment.setItemData(i, f"The lane {MOMENT_HELP[moment]}", Qt.ItemDataRole.ToolTipRole)
        for i, text in enumerate(SCALE_HELP):
            self.scale.setItemData(i, text, Qt.ItemDataRole.ToolTipRole)
        self.note = ElidedLabel()
        row = QHBoxLayout()
        row.setContentsMargins(theme.GRID, theme.GRID, theme.GRID, 0)
        row.setSpacing(theme.GRID)
        for combo, name, tip in (
            (self.lane, "lane shown", "Which of w, g, m and v is drawn"),
            (self.moment, "moment shown", "Before or after the last dispatch, or their difference"),
            (self.scale, "colours", "What the colours span"),
        ):
            combo.setAccessibleName(name)
            combo.setToolTip(tip)
            combo.currentIndexChanged.connect(self._ask_soon)
            row.addWidget(combo)
        row.addWidget(self.note, 1)
        self.canvas = MatrixCanvas()
        self.canvas.picked.connect(self.picked)
        self.setFocusProxy(self.canvas)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(theme.GRID)
        outer.addLayout(row)
        outer.addWidget(self.canvas, 1)
        self._frame = QTimer(self, singleShot=True, interval=FRAME_MS)
        self._frame.timeout.connect(self._ask)
        self.canvas.moved.connect(self._ask_soon)

    def show_param(self, param: Param | None) -> None:
        """Show another param."""
        self.canvas.show_param(param)

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Show what arrived, or say why nothing will."""
        image = snapshot.closeup.matrix
        absent = absent_text(snapshot, image) if self.canvas.param is not None else ""
        if not absent and self.canvas.param is not None and not self.canvas.param.numel:
            absent = f"{self.canvas.param.name} is empty."
        self.canvas.absent.say(absent, QRect(self.canvas.rect()))
        if absent:
            self.canvas.set_image(None)
        elif image is not None:
            self.canvas.set_image(image)
            self._say(image.low, image.high)

    def forget(self) -> None:
        """What was asked of another source says nothing about this one."""
        self._asked = None
        self._ask_soon()

    def _say(self, low: float, high: float) -> None:
        view, image = self.canvas.view, self.canvas.image
        if view is None or image is None:
            return
        signed = not image.request.logarithmic
        colours = f"± {fmt.number(high, 3)}" if signed else f"{fmt.number(low, 3)} to {fmt.number(high, 3)}"
        each = view.across * view.down
        size = f"1 px = {fmt.short_count(each)} elements"
        if each <= 1:
            size = f"1 element = {fmt.short_count(1 / view.across)} px"
        self.note.setText(f"{view.rows:,} rows × {view.columns:,} · {size} · colours {colours}")

    def showEvent(self, event: QShowEvent) -> None:
        """Ask again."""
        super().showEvent(event)
        self._frame.start()

    def hideEvent(self, event: QHideEvent) -> None:
        """Nobody looks: nothing has to be drawn."""
        super().hideEvent(event)
        self._frame.stop()
        if self._asked is not None:
            self._asked = None
            self.command.emit(ViewMatrix(None))

    def _ask_soon(self) -> None:
        if self.isVisible() and not self._frame.isActive():
            self._frame.start()

    def _ask(self) -> None:
        view, param = self.canvas.view, self.canvas.param
        request = None
        if view is not None and param is not None and self.isVisible():
            request = view.request(
                param.name, LANES[self.lane.currentIndex()], MOMENTS_SHOWN[self.moment.currentIndex()],
                self.devicePixelRatioF(), logarithmic=self.scale.currentIndex() == 1,
            )  # fmt: skip
        if request != self._asked:
            self._asked = request
            self.command.emit(ViewMatrix(request))
