"""Histograms of the magnitudes of w, g, m and v, in powers of two."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pyqtgraph as pg
from PySide6.QtCore import QSignalBlocker, Qt
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QCheckBox, QComboBox, QHBoxLayout, QLabel, QVBoxLayout, QWidget

from inspector.floats import F64Array
from inspector.layout import Layout
from inspector.runtime.commands import ViewHistograms
from inspector.runtime.snapshots import Histograms, Snapshot
from inspector.statistics import BINS, EXPONENT_BIAS, BufferStats
from inspector.stores import LANES, Lane
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.chart import Axis, Chart, line_pen
from inspector.ui.moment import absent_text
from inspector.ui.view import View

ALL = "all params"
MARGIN_BINS = 2
FEWEST_BINS = 8
NO_COUNTS = np.zeros(BINS, np.uint32)
LOG_FLOOR = math.log10(0.5)
"""Where a logarithmic axis starts, so that a single element still has a height."""
_SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


class HistogramView(View):
    """Counts of elements by magnitude. Zeros and what is not finite stand beside in words, never in a bin."""

    PERIOD_S = 0.1

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("histograms")
        self._snapshot: Snapshot | None = None
        self._layout: Layout | None = None
        self._param = ""
        self._requested: ViewHistograms | None = None
        self._drawn: object = None
        self._eps_log2: float | None = None
        self._absent = ""
        self._hovered: float | None = None
        self.combo = QComboBox()
        self.combo.setToolTip("Whose elements are counted; follows the selection.")
        self.combo.setAccessibleName("param")
        self.combo.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.combo.setMinimumContentsLength(12)
        self.combo.addItem(ALL)
        self.combo.textActivated.connect(self._on_param_chosen)
        self.lane_boxes: dict[Lane, QCheckBox] = {}
        bar = QHBoxLayout()
        bar.setContentsMargins(theme.GRID, theme.GRID, theme.GRID, 0)
        bar.addWidget(self.combo, 1)
        for lane in LANES:
            box = QCheckBox(lane)
            box.setChecked(lane in ("m", "v"))
            box.setToolTip(f"Show the histogram of {lane}.")
            box.toggled.connect(self._on_lanes_changed)
            self.lane_boxes[lane] = box
            bar.addWidget(box)
        self.log_box = QCheckBox("log counts")
        self.log_box.setToolTip("Counts on a logarithmic axis, so that few elements show beside many.")
        self.log_box.toggled.connect(self._redraw)
        bar.addWidget(self.log_box)
        self._count_axis = Axis("left", whole=True)
        self.chart = Chart(left=self._count_axis, bottom=Axis("bottom", whole=True, text=power_of_two))
        self.chart.show_bottom_axis("magnitude")
        self.chart.hovered.connect(self._on_hovered)
        self.chart.box.setMouseEnabled(x=False, y=False)
        self.bars = {lane: pg.PlotCurveItem([0, 1], [0], stepMode="center") for lane in LANES}
        self.eps_line = pg.InfiniteLine(angle=90, label="ε²", labelOpts={"position": 0.82})
        for item in (*self.bars.values(), self.eps_line):
            self.chart.box.addItem(item, ignoreBounds=True)
        self.eps_line.hide()
        self.words = QLabel(" ")
        self.words.setTextFormat(Qt.TextFormat.RichText)
        self.words.setContentsMargins(theme.GRID, 0, theme.GRID, theme.GRID)
        self.words.setWordWrap(True)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(theme.GRID)
        outer.addLayout(bar)
        outer.addWidget(self.chart, 1)
        outer.addWidget(self.words)
        theme.changes().changed.connect(self._restyle)
        self._restyle()
        self._redraw()

    # --- from outside

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Draw the histograms of this moment."""
        self._snapshot = snapshot
        if self.isVisible():
            self._update()

    def select_param(self, name: str) -> None:
        """Count the elements of this param, "" for all."""
        if name == self._param:
            return
        self._param = name
        self._show_in_combo()
        self._request()
        self._redraw()

    # --- events

    def showEvent(self, event: QShowEvent) -> None:
        """Ask for the histograms again, and catch up."""
        super().showEvent(event)
        self._update()
        self._request()

    def hideEvent(self, event: QHideEvent) -> None:
        """Nobody looks: nothing has to be counted."""
        super().hideEvent(event)
        self._requested = None
        self.command.emit(ViewHistograms(self._param or None, lanes=()))

    def _on_param_chosen(self, text: str) -> None:
        self._param = "" if text == ALL and self.combo.currentIndex() == 0 else text
        self.param_selected.emit(self._param)
        self._request()
        self._redraw()

    def _on_lanes_changed(self) -> None:
        self._request()
        self._redraw()

    def _on_hovered(self, at: float | None) -> None:
        self._hovered = at
        self._read_out()

    # --- asking

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """The lanes chosen."""
        return tuple(lane for lane in LANES if self.lane_boxes[lane].isChecked())

    def _request(self) -> None:
        wanted = ViewHistograms(self._param or None, self.lanes)
        if self.isVisible() and wanted != self._requested:
            self._requested = wanted
            self.command.emit(wanted)

    def _show_in_combo(self) -> None:
        with QSignalBlocker(self.combo):
            index = self.combo.findText(self._param) if self._param else 0
            self.combo.setCurrentIndex(max(index, 0))

    # --- drawing

    def _update(self) -> None:
        snapshot = self._snapshot
        if snapshot is None:
            return
        layout = snapshot.plan.layout if snapshot.plan else None
        if layout is not self._layout:
            self._layout = layout
            with QSignalBlocker(self.combo):
                self.combo.clear()
                self.combo.addItem(ALL)
                self.combo.addItems([s.name for s in layout] if layout else [])
            if layout is not None and self._param and self._param not in layout:
                self._param = ""
            self._show_in_combo()
            # What was asked of another source says nothing about this one.
            self._requested = None
            self._request()
        eps = snapshot.hyper.eps
        eps_log2 = 2 * math.log2(eps) if eps > 0 and math.isfinite(eps) else None
        absent = absent_text(snapshot, snapshot.histograms)
        if snapshot.histograms is not self._drawn or (eps_log2, absent) != (self._eps_log2, self._absent):
            self._eps_log2, self._absent = eps_log2, absent
            self._redraw()

    def _redraw(self) -> None:
        histograms = self._snapshot.histograms if self._snapshot else None
        self._drawn = histograms
        stats = self._shown_stats(histograms)
        log = self.log_box.isChecked()
        floor = LOG_FLOOR if log else 0.0
        low, high = x_range(stats, self._eps_log2)
        for lane, item in self.bars.items():
            counts = stats[lane].exponents if lane in stats else NO_COUNTS
            heights = bar_heights(counts[low : high + 1], log=log)
            item.setVisible(lane in stats)
            edges = np.arange(len(heights) + 1) + (low - EXPONENT_BIAS)
            item.setFillLevel(floor)
            item.setData(edges, heights)
        message = self._absence(histograms, stats)
        self.chart.set_message(message)
        eps = self._eps_log2
        in_view = eps is not None and low <= eps + EXPONENT_BIAS <= high + 1
        self.eps_line.setVisible(in_view and "v" in stats and not message)
        if in_view:
            self.eps_line.setValue(eps)
        self._count_axis.set_log(log)
        self.chart.box.setXRange(low - EXPONENT_BIAS, high + 1 - EXPONENT_BIAS, padding=0)
        peak = max((float(bar_heights(s.exponents, log=log).max()) for s in stats.values()), default=0.0)
        self.chart.set_y_bounds((floor, peak or 1.0))
        self.words.setText("<br>".join(_words(lane, s) for lane, s in stats.items()) or " ")
        self._read_out()

    def _shown_stats(self, histograms: Histograms | None) -> dict[Lane, BufferStats]:
        # What is shown has to be what the combo names: an answer to an older question waits unseen.
        if histograms is None or (histograms.param or "") != self._param:
            return {}
        return {lane: histograms.stats[lane] for lane in self.lanes if lane in histograms.stats}

    def _absence(self, histograms: Histograms | None, stats: dict[Lane, BufferStats]) -> str:
        if not self.lanes:
            return "Tick w, g, m or v to see its magnitudes."
        if self._snapshot is None or self._snapshot.plan is None:
            return "Magnitudes of m and v appear here once a source is open."
        if not stats:
            return absent_text(self._snapshot, histograms) or "Counting …"
        if all(s.binned == 0 for s in stats.values()):
            return "Nothing but zeros and non-finite values: no magnitude to count."
        return ""

    def _read_out(self) -> None:
        stats = self._shown_stats(self._snapshot.histograms if self._snapshot else None)
        title = "elements"
        if stats and self._hovered is not None:
            exponent = math.floor(self._hovered)
            bin_ = exponent + EXPONENT_BIAS
            if 0 <= bin_ < BINS:
                counts = "  ".join(f"{lane} {int(s.exponents[bin_]):,}" for lane, s in stats.items())
                title = f"{bin_text(exponent)}: {counts}"
        self.chart.set_title(title)

    def _restyle(self) -> None:
        for lane, item in self.bars.items():
            colour = theme.LANE_COLOURS[lane]
            item.setPen(line_pen(colour))
            item.setBrush(pg.mkBrush(theme.faded(colour, 0.3)))
            self.lane_boxes[lane].setStyleSheet(f"color: {theme.ink(colour, theme.colours().window).name()};")
        self.eps_line.setPen(line_pen(theme.colours().text, style=Qt.PenStyle.DashLine))
        self.eps_line.label.setColor(theme.colours().text)
        if self._snapshot is not None:
            self._redraw()


def bar_heights(counts: npt.NDArray[np.uint32], *, log: bool) -> F64Array:
    """Heights of the bars in axis units: counts, or their log10 with empty bins at the floor."""
    heights = counts.astype(np.float64)
    return np.where(counts > 0, np.log10(np.maximum(heights, 1)), LOG_FLOOR) if log else heights


def x_range(stats: dict[Lane, BufferStats], eps_log2: float | None) -> tuple[int, int]:
    """The first and last bin to show: all that hold elements, and where √v = ε; a few around them."""
    filled = [e + EXPONENT_BIAS for s in stats.values() for e in s.log2_range() or ()]
    if not filled:
        filled = [EXPONENT_BIAS - FEWEST_BINS, EXPONENT_BIAS]
    if "v" in stats and eps_log2 is not None and 0 <= eps_log2 + EXPONENT_BIAS < BINS:
        filled.append(math.floor(eps_log2) + EXPONENT_BIAS)
    low, high = min(filled) - MARGIN_BINS, max(filled) + MARGIN_BINS
    if high - low < FEWEST_BINS:
        low, high = low - FEWEST_BINS // 2, high + FEWEST_BINS // 2
    # Near the ends of float32 the range moves in, and keeps its width.
    shift = max(-low, 0) - max(high - (BINS - 1), 0)
    return max(low + shift, 0), min(high + shift, BINS - 1)


def power_of_two(exponent: float) -> str:
    """2⁻²⁰ and the like."""
    return f"2{str(round(exponent)).translate(_SUPERSCRIPTS)}"


def bin_text(exponent: int) -> str:
    """The magnitudes a bin holds, as powers of two and in decimal."""
    if exponent == -EXPONENT_BIAS:
        return f"denormals, below {power_of_two(-126)} = {fmt.number(2.0**-126, 3)}"
    powers = f"{power_of_two(exponent)} to {power_of_two(exponent + 1)}"
    return f"{powers} = {fmt.number(2.0**exponent, 3)} to {fmt.number(2.0 ** (exponent + 1), 3)}"


def _words(lane: Lane, stats: BufferStats) -> str:
    """What has no magnitude, in words; vermilion where something is not finite."""
    bad = stats.nonfinite
    text = f"<b>{lane}</b>: {fmt.plural(stats.count, 'element')}, {stats.zeros:,} zero"
    text += f", largest {fmt.number(stats.max_abs)}"
    if not bad.total:
        return f"{text}, all finite"
    ink = theme.ink(theme.NONFINITE, theme.colours().window).name()
    counts = f"{bad.nan:,} NaN, {bad.posinf:,} +Inf, {bad.neginf:,} −Inf"
    return f'{text}, <span style="color:{ink}"><b>{counts}</b></span>'
