"""A histogram over steps as an image: steps to the right, powers of two upwards, the share of elements as colour."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyqtgraph as pg
from PySide6.QtCore import QRectF
from PySide6.QtWidgets import QWidget

from inspector.colormap import VIRIDIS
from inspector.floats import F64Array
from inspector.line_store import Waterfall
from inspector.statistics import EXPONENT_BIAS
from inspector.ui import theme
from inspector.ui.chart import Axis, Chart, dashed_pen
from inspector.ui.curves import NO_STEPS
from inspector.ui.edge_marks import EdgeMarks
from inspector.ui.magnitudes import power_of_two

LEAST_SHARE = 1e-6
"""At the dark end of the colours; a single element is never left out."""
MOST_COLUMNS = 1024
SHOWN = (0.05, 0.5, 0.95)


@dataclass(frozen=True, slots=True, eq=False)
class Image:
    """`rgba` uint8 [powers, columns, 4]: column i are `width` steps from `start` + i·`width` on, row j the magnitudes
    of 2^(`low` + j). Transparent where nothing was counted."""

    rgba: npt.NDArray[np.uint8]
    start: int
    width: int
    low: int


def image_of(fall: Waterfall) -> Image | None:
    """The image of a waterfall, None where no element is in a power of two."""
    filled = np.flatnonzero(fall.counts.any(axis=0))
    if not len(filled):
        return None
    start, last = int(fall.first[0]), int(fall.first[-1])
    columns = (last - start) // fall.stride + 1
    group = -(-columns // MOST_COLUMNS)
    width = fall.stride * group
    at = (fall.first - start) // width
    low, high = int(filled[0]), int(filled[-1]) + 1
    counts = np.zeros((int(at[-1]) + 1, high - low))
    totals = np.zeros(len(counts))
    np.add.at(counts, at, fall.counts[:, low:high])
    np.add.at(totals, at, fall.counts.sum(axis=1) + fall.zeros + fall.nonfinite)
    with np.errstate(divide="ignore", invalid="ignore"):
        index = 1 - np.log10(counts / totals[:, None]) / np.log10(LEAST_SHARE)
    rgba = VIRIDIS[np.nan_to_num(np.clip(index * 255, 0, 255), nan=0.0).astype(np.intp)].copy()
    rgba[counts == 0] = 0
    return Image(np.ascontiguousarray(rgba.swapaxes(0, 1)), start, width, low - EXPONENT_BIAS)


def quantiles_log2(fall: Waterfall, q: float) -> F64Array:
    """log₂ of the magnitude that a share `q` of the finite elements that are not 0 does not exceed, a bucket each."""
    upto = np.cumsum(fall.counts, axis=1, dtype=np.float64)
    total = upto[:, -1]
    rank = np.maximum(np.ceil(q * total), 1)
    bins = (upto < rank[:, None]).sum(axis=1)
    bins = np.minimum(bins, fall.counts.shape[1] - 1)
    rows = np.arange(len(bins))
    count = np.maximum(fall.counts[rows, bins], 1)
    share = (rank - (upto[rows, bins] - fall.counts[rows, bins]) - 0.5) / count
    return np.where(total > 0, bins - EXPONENT_BIAS + share, np.nan)


def cursor_line(name: str) -> pg.InfiniteLine:
    """A cursor that a person puts at a step, with its name on it."""
    return pg.InfiniteLine(angle=90, label=name, labelOpts={"position": 0.94})


def style_cursor(line: pg.InfiniteLine) -> None:
    """Take the colours of the theme."""
    line.setPen(dashed_pen(theme.colours().text, (4, 2)))
    line.label.setColor(theme.colours().text)


class WaterfallChart(Chart):
    """Its x axis is that of the plots over steps. Lines are the 5, 50 and 95 % quantiles, vermilion marks non-finite
    elements."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(
            left=Axis("left", whole=True, text=power_of_two), bottom=Axis("bottom", whole=True), parent=parent
        )
        self._fall: Waterfall | None = None
        self.image: Image | None = None
        self._item = pg.ImageItem(axisOrder="row-major")
        self.lines = [pg.PlotCurveItem(connect="finite") for _ in SHOWN]
        self.current_line = pg.InfiniteLine(angle=90)
        self.cursor_lines = [cursor_line(name) for name in "AB"]
        for item in (self._item, *self.lines, self.current_line, *self.cursor_lines):
            self.box.addItem(item, ignoreBounds=True)
        self.edges = EdgeMarks(self)
        self.box.sigXRangeChanged.connect(self._draw_edges)
        self.box.sigYRangeChanged.connect(self._draw_edges)
        theme.changes().changed.connect(self._restyle_items)
        self._restyle_items()

    def show_fall(self, fall: Waterfall | None) -> None:
        """Draw a waterfall; nothing where it is the one that is drawn."""
        if fall is self._fall:
            return
        self._fall = fall
        self.image = None if fall is None else image_of(fall)
        if fall is None or self.image is None:
            self._item.clear()
            for line in self.lines:
                line.setData([], [])
            self.set_y_bounds(None)
        else:
            image = self.image
            height, width = image.rgba.shape[:2]
            self._item.setImage(image.rgba)
            self._item.setRect(QRectF(image.start - 0.5, image.low, width * image.width, height))
            x = fall.first + (fall.stride - 1) / 2
            for line, q in zip(self.lines, SHOWN, strict=True):
                line.setData(x, quantiles_log2(fall, q))
            self.set_y_bounds((image.low, image.low + height))
        self._draw_edges()

    def _draw_edges(self) -> None:
        fall = self._fall
        steps = NO_STEPS if fall is None else fall.first[fall.nonfinite > 0].astype(np.float64)
        self.edges.show(nan=steps, posinf=NO_STEPS, neginf=NO_STEPS, below=NO_STEPS)

    def _restyle_items(self) -> None:
        self.edges.restyle()
        for line, dash in zip(self.lines, ((3, 3), (), (3, 3)), strict=True):
            line.setPen(dashed_pen(theme.colours().text, dash))
        self.current_line.setPen(dashed_pen(theme.colours().accent, ()))
        for line in self.cursor_lines:
            style_cursor(line)
