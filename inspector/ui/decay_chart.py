"""The decay that elements received against the size of their gradient: density, the line of 1 and the medians."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyqtgraph as pg
from PySide6.QtCore import QEvent, QRectF
from PySide6.QtGui import QColor, QMouseEvent, QPen
from PySide6.QtWidgets import QWidget

from inspector.colormap import VIRIDIS
from inspector.decay import X_BINS, Y_BINS, DecayBins, DecayGrid, median_line
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.chart import Axis, Chart, dashed_pen
from inspector.ui.magnitudes import power_of_two

X_LABEL = "RMS of g′ over the steps"
HELP = (
    "Elements by the RMS of their gradient over the steps watched, clipped and without decay, and by the share of the "
    "decay that arrived: what updates took off w because of it, over lr·λ·w added up over the same steps, as "
    "AdamW takes it off. The brighter, the more elements, in logarithms; the line is the median of each column. "
    "A double click shows all."
)
ONE_LABEL = {"position": 0.02, "anchors": [(0, 1), (0, 1)]}
ROOM = 1.0
"""Octaves left free around what is drawn."""


class DecayChart(Chart):
    """Both axes are in octaves; the mouse moves either."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(
            left=Axis("left", whole=True, text=power_of_two),
            bottom=Axis("bottom", whole=True, text=power_of_two),
            parent=parent,
        )
        self.bins: DecayBins | None = None
        self.medians: npt.NDArray[np.float64] = np.zeros(0)
        self.name = ""
        self.box.setMouseEnabled(x=True, y=True)
        self.show_bottom_axis(X_LABEL)
        self.setToolTip(HELP)
        self._image = pg.ImageItem(axisOrder="row-major")
        self._one = pg.InfiniteLine(angle=0, pos=0.0, label="1: as AdamW", labelOpts=ONE_LABEL)
        self._line = pg.PlotCurveItem(connect="finite", antialias=True)
        for item in (self._image, self._one, self._line):
            self.box.addItem(item, ignoreBounds=True)
        theme.changes().changed.connect(self._restyle_items)
        self._restyle_items()

    def show_bins(self, name: str, bins: DecayBins | None) -> None:
        """Draw a run; None for one of which nothing is known."""
        self.name = name
        if bins is not self.bins:
            self.bins = bins
            self._image.setVisible(bins is not None)
            empty = np.zeros(0)
            self.medians = empty if bins is None else median_line(bins)
            x = empty if bins is None else bins.grid.x
            self._line.setData(x, self.medians)
            self._line.setVisible(bins is not None)
            if bins is not None:
                grid = bins.grid
                self._image.setImage(image_of(bins))
                self._image.setRect(QRectF(grid.x0, grid.y0, X_BINS * grid.dx, Y_BINS * grid.dy))
        self.read_out(None)

    def fit(self, area: QRectF) -> None:
        """Bring this area, in octaves, into view."""
        self.box.setRange(area, padding=0)

    def set_y_bounds(self, bounds: tuple[float, float] | None) -> None:
        """y is moved by the mouse here."""

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Read out the bin under the mouse."""
        super().mouseMoveEvent(event)
        at = self.box.mapSceneToView(self.mapToScene(event.position().toPoint()))
        self.read_out((float(at.x()), float(at.y())))

    def leaveEvent(self, event: QEvent) -> None:
        """The mouse is gone."""
        super().leaveEvent(event)
        self.read_out(None)

    def read_out(self, at: tuple[float, float] | None) -> None:
        """Say what lies in the bin at (x, y), in octaves; what is drawn where that is None, or no bin."""
        bins = self.bins
        found = None if at is None or bins is None else bin_at(bins.grid, *at)
        if bins is None or found is None:
            what = f"{self.name}: decay received / lr·λ·w"
            most = "" if bins is None else f", at most {fmt.plural(int(bins.counts.max()), 'element')} a bin"
            self.set_titles(f"{what}{most}", what, self.name)
            return
        i, j = found
        count, size = int(bins.counts[i, j]), 2.0 ** bins.grid.x[i]
        share, median = 2.0 ** bins.grid.y[j], self.medians[i]
        here = f"g′ {fmt.number(size, 3)}, share {fmt.number(share, 3)}: {fmt.plural(count, 'element')}"
        middle = f", median share here {fmt.number(2.0**median, 3)}" if np.isfinite(median) else ""
        self.set_titles(f"{self.name}  {here}{middle}", f"{here}{middle}", here)

    def _restyle_items(self) -> None:
        c = theme.colours()
        pen = dashed_pen(c.text, (7, 3))
        self._one.setPen(pen)
        self._one.label.setColor(c.text)
        self._one.label.fill = pg.mkBrush(theme.faded(c.base, 0.75))
        # Of the ground on either side, so that the line stands out from bright and dark bins.
        self._line.setShadowPen(_wide(c.base, 3.4))
        self._line.setPen(_wide(c.text, 1.4))


def _wide(colour: QColor, width: float) -> QPen:
    pen = QPen(colour, width)
    pen.setCosmetic(True)
    return pen


def bin_at(grid: DecayGrid, x: float, y: float) -> tuple[int, int] | None:
    """The bin at a place in octaves; None outside."""
    i, j = int((x - grid.x0) // grid.dx), int((y - grid.y0) // grid.dy)
    return (i, j) if 0 <= i < X_BINS and 0 <= j < Y_BINS else None


def image_of(bins: DecayBins) -> npt.NDArray[np.uint8]:
    """rgba uint8 [Y_BINS, X_BINS, 4]: elements a bin, in logarithms; transparent where none is."""
    counts = bins.counts.T
    most = float(np.log1p(max(int(counts.max(initial=0)), 1)))
    rgba = VIRIDIS[(np.log1p(counts) / most * 255).astype(np.intp)].copy()
    rgba[counts == 0] = 0
    return rgba


def area_of(all_bins: list[DecayBins]) -> QRectF:
    """What holds every bin with an element in it, and the share of 1, in octaves."""
    low_x, high_x, low_y, high_y = [], [], [0.0], [0.0]
    for bins in all_bins:
        columns, rows = np.flatnonzero(bins.counts.any(axis=1)), np.flatnonzero(bins.counts.any(axis=0))
        if len(columns):
            low_x.append(bins.grid.x[columns[0]])
            high_x.append(bins.grid.x[columns[-1]])
            low_y.append(bins.grid.y[rows[0]])
            high_y.append(bins.grid.y[rows[-1]])
    x0, x1 = min(low_x, default=-16.0) - ROOM, max(high_x, default=0.0) + ROOM
    y0, y1 = min(low_y) - ROOM, max(high_y) + 2 * ROOM
    return QRectF(x0, y0, x1 - x0, y1 - y0)
