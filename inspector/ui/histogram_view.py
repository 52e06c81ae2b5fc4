"""Histograms of the magnitudes of w, g, m and v, in powers of two."""

from __future__ import annotations

import math
from html import escape

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QSignalBlocker, Qt
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QCheckBox, QComboBox, QHBoxLayout, QLabel, QVBoxLayout, QWidget

from inspector.layout import Layout
from inspector.runtime.beside import Overlay
from inspector.runtime.commands import ViewHistograms
from inspector.runtime.snapshots import Histograms, Snapshot
from inspector.statistics import BINS, EXPONENT_BIAS, BufferStats
from inspector.stores import LANES, Lane
from inspector.ui import theme
from inspector.ui.bin_picking import BinPicker
from inspector.ui.chart import Axis, Chart, dashed_pen, line_pen
from inspector.ui.kept_lanes import show_kept, words_or
from inspector.ui.magnitudes import (
    LOG_FLOOR,
    bar_heights,
    bin_text,
    counts_text,
    power_of_two,
    x_range,
)
from inspector.ui.moment import absent_text
from inspector.ui.overlay_legend import OverlayLegend
from inspector.ui.overlay_style import DASHES, SIGNS, difference, shown
from inspector.ui.view import LazyView

ALL = "all params"
NO_COUNTS = np.zeros(BINS, np.uint32)


class HistogramView(LazyView):
    """Counts of elements by magnitude. Zeros and what is not finite stand beside in words, never in a bin."""

    PERIOD_S = 0.1

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("histograms")
        self._layout: Layout | None = None
        self._param = ""
        self._requested: ViewHistograms | None = None
        self._drawn: object = None
        self._beside: tuple[Overlay, ...] = ()
        self._overlays: tuple[Overlay, ...] = ()
        self._under: dict[tuple[int, Lane], pg.PlotCurveItem] = {}
        """Outlines of recordings under the run, by slot and lane."""
        self._eps_log2: float | None = None
        self._absent = ""
        self._hovered: float | None = None
        self._bins = BinPicker(self)
        self._bins.command.connect(self.command)
        self._bins.found.connect(self.element_selected)
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
        self.chart.picked.connect(self._on_bin_picked)
        self.chart.setToolTip("Ctrl and a click go to the next element of a bin.")
        self.chart.box.setMouseEnabled(x=False, y=False)
        self.bars = {lane: pg.PlotCurveItem([0, 1], [0], stepMode="center") for lane in LANES}
        self.eps_line = pg.InfiniteLine(angle=90, label="ε²", labelOpts={"position": 0.6})
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
        self.legend = OverlayLegend(coloured=False)
        self.legend.command.connect(self.command)
        outer.addLayout(bar)
        outer.addWidget(self.legend)
        outer.addWidget(self.chart, 1)
        outer.addWidget(self.words)
        theme.changes().changed.connect(self._restyle)
        self._restyle()
        self._redraw()

    # --- from outside

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

    def _on_bin_picked(self, at: float) -> None:
        """Go to an element of the bin, again to the next one."""
        stats = self._shown_stats(self._snapshot.histograms if self._snapshot else None)
        exponent = math.floor(at)
        bin_ = exponent + EXPONENT_BIAS
        lanes = [lane for lane, s in stats.items() if 0 <= bin_ < BINS and s.exponents[bin_]]
        self._bins.pick(exponent, lanes, self._param or None)

    # --- asking

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """The lanes chosen."""
        return tuple(lane for lane, box in self.lane_boxes.items() if box.isChecked() and box.isEnabled())

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

    def _update(self, snapshot: Snapshot) -> None:
        self._bins.take(snapshot.closeup.found)
        layout = snapshot.plan.layout if snapshot.plan else None
        changed = show_kept(self.lane_boxes, snapshot)
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
        if changed:
            self._on_lanes_changed()
        eps = snapshot.hyper.eps
        eps_log2 = 2 * math.log2(eps) if eps > 0 and math.isfinite(eps) else None
        overlays, absent = snapshot.beside.overlays, absent_text(snapshot, snapshot.histograms)
        self.legend.show_overlays(overlays)
        if (
            snapshot.histograms is not self._drawn
            or (eps_log2, absent) != (self._eps_log2, self._absent)
            or overlays is not self._beside
        ):
            self._eps_log2, self._absent = eps_log2, absent
            self._beside, self._overlays = overlays, shown(overlays)
            self._redraw()

    def _redraw(self) -> None:
        histograms = self._snapshot.histograms if self._snapshot else None
        self._drawn = histograms
        stats = self._shown_stats(histograms)
        log = self.log_box.isChecked()
        floor = LOG_FLOOR if log else 0.0
        under = {o.slot: found for o in self._overlays if (found := self._stats_under(o))}
        low, high = x_range(
            [*stats.items(), *(i for found in under.values() for i in found.items())], self._eps_log2
        )
        for lane, item in self.bars.items():
            counts = stats[lane].exponents if lane in stats else NO_COUNTS
            heights = bar_heights(counts[low : high + 1], log=log)
            item.setVisible(lane in stats)
            edges = np.arange(len(heights) + 1) + (low - EXPONENT_BIAS)
            item.setFillLevel(floor)
            item.setData(edges, heights)
        self._draw_under(under, low, high, log=log)
        message = self._absence(histograms, stats)
        self.chart.set_message(message)
        eps = self._eps_log2
        in_view = eps is not None and low <= eps + EXPONENT_BIAS <= high + 1
        self.eps_line.setVisible(in_view and "v" in stats and not message)
        if in_view:
            self.eps_line.setValue(eps)
        self._count_axis.set_log(log)
        self.chart.box.setXRange(low - EXPONENT_BIAS, high + 1 - EXPONENT_BIAS, padding=0)
        all_stats = [*stats.values(), *(s for found in under.values() for s in found.values())]
        peak = max((float(bar_heights(s.exponents, log=log).max()) for s in all_stats), default=0.0)
        self.chart.set_y_bounds((floor, peak or 1.0))
        lines = [counts_text(lane, s) for lane, s in stats.items()]
        lines += [f"{SIGNS[o.slot]} {escape(text)}" for o in self._overlays if (text := self._words_under(o))]
        self.words.setText("<br>".join(lines) or " ")
        self._read_out()

    def _draw_under(
        self, under: dict[int, dict[Lane, BufferStats]], low: int, high: int, *, log: bool
    ) -> None:
        """Outlines of the recordings, in the colour of the lane and the dash of the recording."""
        wanted = {(slot, lane): s for slot, found in under.items() for lane, s in found.items()}
        for key in self._under.keys() - wanted.keys():
            self.chart.box.removeItem(self._under.pop(key))
        for key, stats in wanted.items():
            if key not in self._under:
                self._under[key] = pg.PlotCurveItem([0, 1], [0], stepMode="center")
                self.chart.box.addItem(self._under[key], ignoreBounds=True)
            slot, lane = key
            self._under[key].setPen(dashed_pen(theme.ink(theme.LANE_COLOURS[lane]), DASHES[slot]))
            heights = bar_heights(stats.exponents[low : high + 1], log=log)
            self._under[key].setData(np.arange(len(heights) + 1) + (low - EXPONENT_BIAS), heights)

    def _stats_under(self, overlay: Overlay) -> dict[Lane, BufferStats]:
        found = overlay.histograms
        if found is None or (found.param or "") != self._param:
            return {}
        return {lane: found.stats[lane] for lane in self.lanes if lane in found.stats}

    def _words_under(self, overlay: Overlay) -> str:
        """Of when its histograms are, or why there are none."""
        found = overlay.histograms
        if found is None or (found.param or "") != self._param or not self.lanes:
            return ""
        if found.absent:
            return found.absent
        return f"{overlay.name}: before the update of step {found.step:,}"

    def _shown_stats(self, histograms: Histograms | None) -> dict[Lane, BufferStats]:
        # What is shown has to be what the combo names: an answer to an older question waits unseen.
        if histograms is None or (histograms.param or "") != self._param:
            return {}
        return {lane: histograms.stats[lane] for lane in self.lanes if lane in histograms.stats}

    def _absence(self, histograms: Histograms | None, stats: dict[Lane, BufferStats]) -> str:
        if not self.lanes:
            return f"Tick {words_or(self.lane_boxes)} to see its magnitudes."
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
                plain = "  ".join(f"{lane} {int(s.exponents[bin_]):,}" for lane, s in stats.items())
                full = "  ".join(f"{lane} {self._counts_at(lane, s, bin_)}" for lane, s in stats.items())
                self.chart.set_titles(
                    f"{bin_text(exponent)}: {full}",
                    f"{power_of_two(exponent)}: {full}",
                    f"{bin_text(exponent)}: {plain}",
                )
                return
        self.chart.set_titles(title)

    def _counts_at(self, lane: Lane, stats: BufferStats, bin_: int) -> str:
        """The elements of a lane in a bin, and those of the recordings with the difference."""
        own = int(stats.exponents[bin_])
        words = [f"{own:,}"]
        for overlay in self._overlays:
            under = self._stats_under(overlay).get(lane)
            if under is not None:
                count = int(under.exponents[bin_])
                words.append(f"{SIGNS[overlay.slot]} {count:,} ({difference(own, count)})")
        return " ".join(words)

    def _restyle(self) -> None:
        for lane, item in self.bars.items():
            colour = theme.lane_mark(lane)
            item.setPen(line_pen(colour))
            item.setBrush(pg.mkBrush(theme.faded(colour, 0.3)))
            self.lane_boxes[lane].setStyleSheet(f"color: {theme.ink(colour, theme.colours().window).name()};")
        self.eps_line.setPen(line_pen(theme.colours().text, style=Qt.PenStyle.DashLine))
        self.eps_line.label.setColor(theme.colours().text)
        if self._snapshot is not None:
            self._redraw()
