"""A plot in the window's look: its colours, its axes, a title that reads out values, and edge marks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QEvent, QPoint, QPointF, QRect, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QFontMetricsF,
    QGuiApplication,
    QHideEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QResizeEvent,
)
from PySide6.QtWidgets import QGraphicsRectItem, QGraphicsSimpleTextItem, QLabel, QWidget

from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.paint_turn import paint_turn
from inspector.ui.plot_frame import PlotFrame

RIGHT_MARGIN = 8
"""So that the newest step does not lie on the edge of the view."""
LEFT_WIDTH = 56
"""The same for every plot, so that plots above each other share their x axis to the pixel; for text of usual size."""
EDGE_INSET = 6
MIN_TICK_DISTANCE = 18
MIN_MINOR_DISTANCE = 8
"""Pixels between ticks without a number."""
DOT_RADIUS = 3
"""Pixels, of what is drawn for a value that has no neighbour."""
TITLE_POS = QPointF(theme.GRID, 1)

TickText = Callable[[float], str]
Dash = tuple[float, ...]
"""Lengths of strokes and gaps in logical pixels; () for a solid line."""
DASHES: tuple[Dash, ...] = ((), (7, 3), (2, 2), (9, 3, 2, 3), (9, 2, 2, 2, 2, 2), (14, 4), (4, 4), (2, 5))
"""Line styles of several lines in one plot, in their order; from the ninth on they begin anew."""


class Axis(pg.AxisItem):  # type: ignore[misc]
    """An axis without SI prefixes: of whole numbers, of powers of ten (`log`), or with its own `text`."""

    def __init__(
        self, orientation: str, *, whole: bool = False, log: bool = False, text: TickText | None = None
    ) -> None:
        super().__init__(orientation)
        self._whole = whole
        self._log = log
        self._text = text
        self.enableAutoSIPrefix(False)
        self.setStyle(tickLength=-theme.GRID, hideOverlappingLabels=True)

    def updateAutoSIPrefix(self) -> None:
        """There are none: the label, which pyqtgraph writes anew at each move of the axis, stays as it is."""

    def set_log(self, log: bool) -> None:
        """Take the numbers of the axis as powers of ten, or as they are."""
        self._log = log
        self.picture = None  # pyqtgraph keeps what it drew
        self.update()

    def tickValues(self, low: float, high: float, size: float) -> list[tuple[float, list[float]]]:
        """Where ticks stand, coarse to fine."""
        if not (math.isfinite(low) and math.isfinite(high) and high > low):
            return []
        if self._log:
            return [(1.0, log_ticks(low, high, max(int(size / MIN_TICK_DISTANCE), 1)))]
        found: list[tuple[float, list[float]]] = super().tickValues(low, high, size)
        # Nearer to each other they are a grey edge, and take most of the time that an axis does.
        apart = MIN_MINOR_DISTANCE * (high - low) / max(size, 1.0)
        levels = [level for i, level in enumerate(found) if i == 0 or level[0] >= apart]
        if not self._whole:
            return levels
        # They are sums of fractions, so a whole number among them may miss itself by a rounding.
        near = [
            (spacing, [v for v in ticks if abs(v - round(v)) < spacing * 1e-3]) for spacing, ticks in levels
        ]
        return [(max(spacing, 1.0), [float(round(v)) for v in ticks]) for spacing, ticks in near]

    def tickStrings(self, values: Sequence[float], scale: float, spacing: float) -> list[str]:
        """What is written at the ticks."""
        if self._log:
            return [
                "" if self._whole and v < 0 else text
                for v, text in zip(values, _power_texts(values), strict=True)
            ]
        if self._text is not None:
            return [self._text(value) for value in values]
        if self._whole:
            return [f"{round(value):,}" for value in values]
        return [_tick_text(value, spacing) for value in values]


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Ticks of a logarithmic axis from 10^low to 10^high, as exponents: as many as fit in `most`."""
    decades = range(math.floor(low), math.ceil(high) + 1)
    chosen: list[float] = []
    if len(decades) <= 64:
        for digits in ((1,), (1, 3), (1, 2, 5), (1, 2, 3, 5, 7), tuple(range(1, 10))):
            ticks = [d + math.log10(n) for d in decades for n in digits]
            ticks = [t for t in ticks if low <= t <= high]
            if len(ticks) > most and chosen:
                break
            chosen = ticks or chosen
    if not chosen and len(decades) <= 64:
        # Less than one of the ticks above is in view: even steps will do.
        step = (high - low) / 3
        chosen = [low + step, low + 2 * step] if most > 1 else [(low + high) / 2]
    if len(chosen) > most or not chosen:
        every = max(-(-len(decades) // most), 1)
        chosen = [float(d) for d in decades if d % every == 0 and low <= d <= high]
    return chosen or [(low + high) / 2]


def _tick_text(value: float, spacing: float) -> str:
    """A tick as numbers are written elsewhere, with the digits that tell it from its neighbours."""
    if value == 0 or abs(value) < spacing * 1e-6:
        return "0"
    digits = math.floor(math.log10(abs(value))) - math.floor(math.log10(spacing)) + 1
    return fmt.number(value, min(max(digits, 1) + 1, 12))


def _power_texts(exponents: Sequence[float]) -> list[str]:
    """Powers of ten in three digits, or in as many as tell each from the others."""
    with np.errstate(over="ignore"):
        values = [float(np.float64(10) ** exponent) for exponent in exponents]
    texts: list[str] = []
    for digits in range(3, 16):
        texts = [fmt.number(value, digits) for value in values]
        if len(set(texts)) == len(texts):
            break
    return texts


class Chart(PlotFrame):
    """One plot. The mouse moves x only; y is set by whoever draws, through `set_y_bounds`.

    `hovered` carries the x under the mouse, None when it leaves; `all_wanted` fires on a double click, `picked`
    carries the x of a click with Ctrl, and each one that it is dragged to. `value_picked` carries x and y, in axis
    units, of a click with Alt, `menu_wanted` those of a click with the right button, and its place on the screen.
    """

    hovered = Signal(object)
    all_wanted = Signal()
    picked = Signal(float)
    value_picked = Signal(float, float)
    menu_wanted = Signal(float, float, QPoint)
    _message: QLabel | None = None  # pyqtgraph resizes a plot while it is being built
    _titles: tuple[str, ...] = ()

    def __init__(self, *, left: Axis, bottom: Axis, parent: QWidget | None = None) -> None:
        super().__init__(left=left, bottom=bottom, right=RIGHT_MARGIN, parent=parent)
        left.setWidth(theme.scaled(LEFT_WIDTH))
        self.setFrameShape(self.Shape.NoFrame)
        self.setMinimumSize(120, 24)
        self.box.disableAutoRange()
        self.box.setMouseEnabled(x=True, y=False)
        self.box.setDefaultPadding(0)
        # pyqtgraph leaves it to the next paint, which makes the plot stale while it is painted: it is painted twice.
        self.box.sigRangeChanged.connect(self.box.prepareForPaint)
        self.setMouseTracking(True)
        self._title_back = QGraphicsRectItem(self.box)
        self._title_back.setPen(QPen(Qt.PenStyle.NoPen))
        self._title = QGraphicsSimpleTextItem(self.box)
        for z, item in ((900, self._title_back), (901, self._title)):
            item.setZValue(z)
            item.setPos(TITLE_POS)
        self.setAccessibleName("Plot")
        self._bounds: tuple[float, float] | None = None
        self._painted_at: QRect | None = None
        """Where in the window its pixels are."""
        # It paints all of itself, and what it does not paint in a turn stays.
        self.viewport().setAutoFillBackground(False)
        self.viewport().setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self._picking = False
        self.scene().sigMouseClicked.connect(self._on_scene_clicked)
        self._message = QLabel(self)
        self._message.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._message.setWordWrap(True)
        self._message.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self._message.hide()
        theme.changes().changed.connect(self.restyle)
        self.restyle()

    # --- words

    @property
    def title(self) -> str:
        """The text in the upper left corner: what is plotted, its unit and the value read out."""
        return self._title.text()

    def set_title(self, text: str) -> None:
        """Write the text in the upper left corner."""
        if text != self._title.text():
            self._title.setText(text)
            self.setAccessibleName(f"Plot: {text}" if text.strip() else "Plot")
            self._title_back.setRect(self._title.boundingRect())

    def set_titles(self, *titles: str) -> None:
        """Titles from the longest to the shortest: the first that fits is written, else the last, shortened."""
        self._titles = titles
        self._fit_title()

    def _fit_title(self) -> None:
        if self._titles:
            metrics = QFontMetricsF(theme.ui_font(-1))
            room = self.width() - theme.scaled(LEFT_WIDTH) - RIGHT_MARGIN - 2 * theme.GRID
            fitting = (t for t in self._titles if metrics.horizontalAdvance(t) <= room)
            short = metrics.elidedText(self._titles[-1], Qt.TextElideMode.ElideRight, room)
            self.set_title(next(fitting, short))

    @property
    def message(self) -> str:
        """What is said instead of a plot, "" where there is one."""
        return self._message.text() if self._message else ""

    def set_message(self, text: str) -> None:
        """Say why there is nothing to draw; "" for nothing to say."""
        if self._message and text != self._message.text():
            self._message.setText(text)
            self._message.setVisible(bool(text))
            self._place_message(self._message)
            self.left.setStyle(showValues=not text)
            self._on_message()

    def _on_message(self) -> None:
        """Something is said instead of a plot, or no more."""

    # --- range

    def set_y_bounds(self, bounds: tuple[float, float] | None) -> None:
        """Fit y to the lowest and highest value drawn, with room for the title and the edge marks."""
        self._bounds = bounds
        low, high = bounds or (0.0, 1.0)
        if high <= low:
            # Equal values: a range around them that still shows what the value is.
            margin = abs(low) * 0.5 or 0.5
            low, high = low - margin, high + margin
        height = max(self.box.height(), 24.0)
        line = QFontMetricsF(theme.ui_font(-1)).height()
        # Below the title and its ground, with half a dot of a value of its own.
        top = min(TITLE_POS.y() + math.ceil(line) + DOT_RADIUS, height * 0.4)
        bottom = min(2 * EDGE_INSET, height * 0.2)
        unit = (high - low) / max(height - top - bottom, 8.0)
        self.box.setYRange(low - bottom * unit, high + top * unit, padding=0)

    def edge_y(self, *, top: bool) -> float:
        """The y at which a mark stands just inside the edge."""
        (low, high) = self.box.viewRange()[1]
        inset = EDGE_INSET * (high - low) / max(self.box.height(), 1.0)
        return float(high - inset if top else low + inset)

    def pixels_per_x(self) -> float:
        """Pixels one unit of x takes."""
        (low, high) = self.box.viewRange()[0]
        return float(self.box.width() / (high - low)) if high > low else 1.0

    # --- events

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint what is stale, now or in a turn to come: until then what was painted before stays."""
        viewport = self.viewport()
        place = QRect(viewport.mapTo(viewport.window(), QPoint()), viewport.size())
        if paint_turn().takes(viewport, event.region()):
            super().paintEvent(event)
            self._painted_at = place
        elif self._painted_at != place:
            # Nothing of it has been here yet.
            QPainter(viewport).fillRect(event.rect(), self.backgroundBrush())

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._painted_at = None

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Keep the message in the middle and the margins in pixels."""
        super().resizeEvent(event)
        if self._message is not None:
            self._place_message(self._message)
            self.set_y_bounds(self._bounds)
            self._fit_title()

    def _place_message(self, message: QLabel) -> None:
        """Below the title, and not over the numbers of the axis unless it needs the room."""
        line = round(QFontMetricsF(theme.ui_font(-1)).height())
        place = self.rect().adjusted(theme.scaled(LEFT_WIDTH), line, -theme.GRID, 0)
        above = place.adjusted(0, 0, 0, -round(self.bottom.minimumHeight()) - theme.GRID)
        message.setGeometry(above if message.heightForWidth(place.width()) <= above.height() else place)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """With Ctrl a point is picked, with Alt a value, without them the plot is moved."""
        scene = self.mapToScene(event.position().toPoint())
        left = event.button() == Qt.MouseButton.LeftButton and self.box.sceneBoundingRect().contains(scene)
        self._picking = left and bool(event.modifiers() & Qt.KeyboardModifier.ControlModifier)
        if self._picking:
            self._pick(event)
        elif left and event.modifiers() & Qt.KeyboardModifier.AltModifier:
            at = self.box.mapSceneToView(scene)
            self.value_picked.emit(float(at.x()), float(at.y()))
        else:
            super().mousePressEvent(event)

    def _on_scene_clicked(self, event: Any) -> None:
        # A drag with that button zooms, and is no click.
        if event.button() == Qt.MouseButton.RightButton and self.box.sceneBoundingRect().contains(
            event.scenePos()
        ):
            at = self.box.mapSceneToView(event.scenePos())
            self.menu_wanted.emit(float(at.x()), float(at.y()), event.screenPos().toPoint())

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """The plot stays where it was moved to."""
        if not self._picking:
            super().mouseReleaseEvent(event)
        self._picking = False

    def _pick(self, event: QMouseEvent) -> None:
        at = self.box.mapSceneToView(self.mapToScene(event.position().toPoint()))
        self.picked.emit(float(at.x()))

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Tell what x the mouse is at."""
        if self._picking:
            self._pick(event)
            return
        super().mouseMoveEvent(event)
        at = self.mapToScene(event.position().toPoint())
        inside = self.box.sceneBoundingRect().contains(at)
        self.hovered.emit(float(self.box.mapSceneToView(at).x()) if inside else None)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        """Ask for the whole range again."""
        super().mouseDoubleClickEvent(event)
        self.all_wanted.emit()

    def leaveEvent(self, event: QEvent) -> None:
        """The mouse is gone."""
        super().leaveEvent(event)
        self.hovered.emit(None)

    def show_bottom_axis(self, label: str | None) -> None:
        """Number and name the x axis, or leave that to a plot below."""
        self.bottom.setStyle(showValues=label is not None)
        self.bottom.setLabel(label)
        self.bottom.showLabel(label is not None)
        self.bottom.setHeight(self.bottom_height if label is not None else theme.GRID)
        if self._message is not None:
            self._place_message(self._message)

    @property
    def bottom_height(self) -> int:
        """Pixels of a numbered and named x axis."""
        return round(2 * QFontMetricsF(theme.ui_font(-1)).height()) + theme.GRID

    def restyle(self) -> None:
        """Take the colours and fonts of the theme."""
        c = theme.colours()
        font = theme.ui_font(-1)
        self.setBackground(c.base)
        for axis in (self.left, self.bottom):
            axis.setPen(pg.mkPen(c.line))
            axis.setTextPen(pg.mkPen(c.muted))
            axis.setTickFont(font)
            axis.label.setFont(font)
        self._title.setFont(font)
        self._title.setBrush(c.text)
        self._title_back.setBrush(theme.faded(c.base, 0.75))
        self._title_back.setRect(self._title.boundingRect())


def set_points(item: Any, x: Any, y: Any) -> None:
    """Give a curve or scatter item of pyqtgraph its points; without any it is hidden: painting nothing takes time."""
    item.setData(x, y)
    item.setVisible(len(x) > 0)


def line_pen(colour: QColor, style: Qt.PenStyle = Qt.PenStyle.SolidLine, *, hairline: bool = False) -> QPen:
    """A pen one logical pixel wide, or one device pixel, which is a hundred times faster to draw."""
    app = QGuiApplication.instance()
    # A cosmetic pen counts device pixels.
    ratio = app.devicePixelRatio() if isinstance(app, QGuiApplication) and not hairline else 1.0
    pen = QPen(colour, max(round(ratio), 1), style)
    pen.setCosmetic(True)
    return pen


def dashed_pen(colour: QColor, dash: Dash, *, hairline: bool = False) -> QPen:
    """A pen as by `line_pen`, in strokes and gaps."""
    pen = line_pen(colour, hairline=hairline)
    if dash:
        app = QGuiApplication.instance()
        ratio = app.devicePixelRatio() if isinstance(app, QGuiApplication) else 1.0
        # Qt counts them in widths of the pen.
        pen.setDashPattern([length * ratio / pen.widthF() for length in dash])
        pen.setCapStyle(Qt.PenCapStyle.FlatCap)
    return pen
