"""A function of two parameters as a map: its height in shades, contours, minima, and paths over it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QEvent
from PySide6.QtGui import QBrush, QColor, QMouseEvent, QResizeEvent
from PySide6.QtWidgets import QWidget

from inspector.floats import F64Array
from inspector.surfaces import Surface
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.chart import Axis, Chart, Dash, dashed_pen, line_pen, set_points

CELLS = 240
"""Of the grid that heights and contours are worked out on, each way."""
LEVELS = 14
SHADES = 0.16
"""How far the ground goes towards the colour of text where it is highest: paths have to stand out from it."""


@dataclass(frozen=True, slots=True, eq=False)
class Path:
    """Where one run has been: x and y from the start on, float64."""

    x: F64Array
    y: F64Array
    colour: QColor
    dash: Dash


class SurfaceMap(Chart):
    """The mouse moves both axes; a unit of x is as long as one of y as far as the window of the surface allows."""

    surface: Surface | None = None  # pyqtgraph resizes a plot while it is being built

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(left=Axis("left"), bottom=Axis("bottom"), parent=parent)
        self.box.setMouseEnabled(x=True, y=True)
        self.setToolTip(
            "The function as colours and contours, its minima as crosses, and the way that each lane goes over it."
        )
        self.show_bottom_axis("x")
        self.left.setLabel("y")
        self._ground = pg.ImageItem()
        self._ground.setZValue(-20)
        self._contours = pg.PlotCurveItem(connect="finite", antialias=True)
        self._contours.setZValue(-10)
        self._minima = pg.ScatterPlotItem(pxMode=True, size=11, symbol="x")
        self._start = pg.ScatterPlotItem(pxMode=True, size=9, symbol="o")
        self._lines: list[pg.PlotCurveItem] = []
        self._points: list[pg.ScatterPlotItem] = []
        for item in (self._ground, self._contours, self._minima, self._start):
            self.box.addItem(item, ignoreBounds=True)
        theme.changes().changed.connect(self._draw_ground)

    def show_surface(self, surface: Surface | None) -> None:
        """Draw another function, all of its window in view."""
        if surface is not self.surface:
            self.surface = surface
            self._draw_ground()
            self.show_all()

    def show_all(self) -> None:
        """Bring the window of the surface into view."""
        if self.surface is not None:
            x0, x1, y0, y1 = self.surface.window
            self.box.setRange(xRange=(x0, x1), yRange=(y0, y1), padding=0)

    def show_paths(self, paths: Sequence[Path]) -> None:
        """Draw these, the last point of each as a dot."""
        while len(self._lines) < len(paths):
            self._lines.append(pg.PlotCurveItem(connect="finite", antialias=True))
            self._points.append(pg.ScatterPlotItem(pxMode=True, size=9, symbol="o"))
            self.box.addItem(self._lines[-1], ignoreBounds=True)
            self.box.addItem(self._points[-1], ignoreBounds=True)
        for number, (line, point) in enumerate(zip(self._lines, self._points, strict=True)):
            path = paths[number] if number < len(paths) else None
            line.setVisible(path is not None)
            point.setVisible(path is not None)
            if path is None:
                continue
            pen = dashed_pen(path.colour, path.dash)
            pen.setWidthF(1.6)
            line.setPen(pen)
            set_points(line, path.x, path.y)
            point.setPen(line_pen(path.colour))
            point.setBrush(pg.mkBrush(path.colour))
            here = np.isfinite(path.x[-1:]) & np.isfinite(path.y[-1:])
            point.setData(path.x[-1:][here], path.y[-1:][here])

    def paths(self) -> list[tuple[F64Array, F64Array]]:
        """The paths as drawn."""
        return [line.getData() for line in self._lines if line.isVisible()]

    def set_y_bounds(self, bounds: tuple[float, float] | None) -> None:
        """y is moved by the mouse here."""

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Read out the place under the mouse and the height there."""
        super().mouseMoveEvent(event)
        at = self.box.mapSceneToView(self.mapToScene(event.position().toPoint()))
        self.read_out(float(at.x()), float(at.y()))

    def leaveEvent(self, event: QEvent) -> None:
        """The mouse is gone."""
        super().leaveEvent(event)
        self.set_title("")

    def read_out(self, x: float, y: float) -> None:
        """Say where a place is, and what the function is there."""
        if self.surface is not None:
            height = float(self.surface.value(np.array(x), np.array(y)))
            self.set_title(f"x {fmt.number(x)}, y {fmt.number(y)}, f {fmt.number(height)}")

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The whole window stays in view."""
        super().resizeEvent(event)
        self.show_all()

    def _draw_ground(self) -> None:
        surface, colours = self.surface, theme.colours()
        for item in (self._ground, self._contours, self._minima, self._start):
            item.setVisible(surface is not None)
        if surface is None:
            return
        x0, x1, y0, y1 = surface.window
        x, y = np.linspace(x0, x1, CELLS), np.linspace(y0, y1, CELLS)
        height = surface.value(x[:, None], y[None, :])
        # Above the lowest point, in its logarithm: valleys are where it is interesting.
        above = np.log1p(height - min(height.min(), surface.lowest if surface.lowest is not None else np.inf))
        share = above / above.max()
        ground, ink = _rgb(colours.base), _rgb(colours.text)
        image = ground + SHADES * share[..., None] * (ink - ground)
        self._ground.setImage(image.astype(np.uint8), autoLevels=False)
        half_x, half_y = (x1 - x0) / (CELLS - 1) / 2, (y1 - y0) / (CELLS - 1) / 2
        self._ground.setRect(x0 - half_x, y0 - half_y, x1 - x0 + 2 * half_x, y1 - y0 + 2 * half_y)
        self._contours.setPen(line_pen(theme.faded(colours.muted, 0.55), hairline=True))
        set_points(self._contours, *_contours(above, x, y))
        self._minima.setPen(line_pen(colours.text))
        self._minima.setBrush(pg.mkBrush(colours.text))
        self._minima.setData([m[0] for m in surface.minima], [m[1] for m in surface.minima])
        self._start.setPen(line_pen(colours.text))
        self._start.setBrush(QBrush())
        self._start.setData([surface.start[0]], [surface.start[1]])


def _contours(above: F64Array, x: F64Array, y: F64Array) -> tuple[F64Array, F64Array]:
    """Lines of equal height as points, NaN between lines."""
    xs: list[F64Array] = []
    ys: list[F64Array] = []
    gap = np.array([np.nan])
    for level in np.linspace(0, float(above.max()), LEVELS + 2)[1:-1]:
        for line in pg.functions.isocurve(above, float(level), connected=True, extendToEdge=False):
            points = np.asarray(line, np.float64)
            xs += [np.interp(points[:, 0], np.arange(len(x)), x), gap]
            ys += [np.interp(points[:, 1], np.arange(len(y)), y), gap]
    return np.concatenate(xs or [gap]), np.concatenate(ys or [gap])


def _rgb(colour: QColor) -> F64Array:
    return np.array([colour.red(), colour.green(), colour.blue()], np.float64)
