"""One plot of the board: a legend that reads out, above lines over steps or a waterfall."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtGui import QMouseEvent
from PySide6.QtWidgets import QFrame, QStackedLayout, QVBoxLayout, QWidget

from inspector.history import EMPTY_HISTORY, History
from inspector.line_store import Waterfall
from inspector.runtime.plotted import Line, meaning, unit
from inspector.runtime.snapshots import Mark
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.board_legend import MOST_ROWS, BoardLegend, Entry
from inspector.ui.board_model import Plot
from inspector.ui.board_style import styles
from inspector.ui.chart import Chart
from inspector.ui.overlay_style import difference
from inspector.ui.readouts import Readout, bucket_at, covers, read_out_at, value_text
from inspector.ui.step_chart import StepChart
from inspector.ui.waterfall_chart import SHOWN, WaterfallChart, cursor_line, quantiles_log2, style_cursor

Cursors = tuple[float | None, float | None]
NO_CURSORS: Cursors = (None, None)
LEAST_POINTS = 128
ALL_ROWS = 100


class BoardPlot(QFrame):
    """Shows whichever plot it is given: as many of them are made as are in sight.

    `hovered` carries the step under the mouse or None, `ranged` the steps that it was moved to, `chosen` that it was
    clicked, `picked` a step to go to, `all_wanted` that all steps are wanted.
    """

    hovered = Signal(object)
    ranged = Signal(float, float)
    chosen = Signal()
    picked = Signal(float)
    all_wanted = Signal()
    menu_wanted = Signal(QPoint)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("board_plot")
        self.plot = Plot()
        self._histories: dict[Line, History] = {}
        self._fall: Waterfall | None = None
        self._chosen = False
        self.legend = BoardLegend()
        self.chart = StepChart()
        self._waterfall: WaterfallChart | None = None
        """Made with the first one that is shown here."""
        self._marks: tuple[Mark, ...] | None = None
        self._stack = QStackedLayout()
        outer = QVBoxLayout(self)
        outer.setContentsMargins(1, 1, 1, 1)
        outer.setSpacing(0)
        outer.addWidget(self.legend)
        # Before anything is in it: what is put into a stack of no widget would be shown as a window.
        outer.addLayout(self._stack, 1)
        self._cursor_lines = [cursor_line(name) for name in "AB"]
        for line in self._cursor_lines:
            line.hide()
            self.chart.box.addItem(line, ignoreBounds=True)
        self._connect(self.chart)
        theme.changes().changed.connect(self._restyle)
        self._restyle()

    @property
    def waterfall(self) -> WaterfallChart:
        """The chart of a histogram over steps."""
        if self._waterfall is None:
            self._waterfall = WaterfallChart()
            for line in self._waterfall.cursor_lines:
                line.hide()
            self._connect(self._waterfall)
        return self._waterfall

    def _connect(self, chart: Chart) -> None:
        chart.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        chart.hovered.connect(self.hovered)
        chart.picked.connect(self.picked)
        chart.all_wanted.connect(self.all_wanted)
        chart.menu_wanted.connect(lambda _x, _y, at: self.menu_wanted.emit(at))
        chart.box.sigRangeChangedManually.connect(self._on_moved)
        chart.scene().sigMouseClicked.connect(lambda _event: self.chosen.emit())
        self._stack.addWidget(chart)

    @property
    def front(self) -> Chart:
        """The chart that is seen."""
        return self.waterfall if self.plot.fall is not None else self.chart

    # --- what is shown

    def show_plot(self, plot: Plot, *, chosen: bool, axis: bool) -> None:
        """Show this plot; `chosen` for the current one, `axis` for steps written below it."""
        if chosen != self._chosen:
            self._chosen = chosen
            self._restyle()
        before, self.plot = self.plot, plot
        self.setAccessibleName(f"Plot: {plot.title}")
        self._stack.setCurrentWidget(self.front)
        self.front.show_bottom_axis("step" if axis else None)
        if plot != before:
            self._histories, self._fall = {}, None
            self.chart.set_log(plot.log)
            self._restyle()

    @contextmanager
    def as_picture(self) -> Iterator[None]:
        """As others are to see it: without the frame of the current plot, higher where all its lines take more rows."""
        chosen, self._chosen = self._chosen, False
        place, rows = self.geometry(), self.legend.height()
        self._restyle()
        self.legend.show_rows(ALL_ROWS)
        self.resize(place.width(), place.height() + self.legend.minimumHeight() - rows)
        try:
            yield
        finally:
            self._chosen = chosen
            self.legend.show_rows(MOST_ROWS)
            self.setGeometry(place)
            self._restyle()

    def show_histories(self, of_run: History, lines: Mapping[Line, History], fall: Waterfall | None) -> None:
        """What is known: of the run, of lines beside it, and of the waterfall."""
        if self.plot.fall is not None:
            self._fall = fall
            self.waterfall.show_fall(fall)
            return
        mine = self.plot.lines
        self._histories = {n: of_run if n.in_history else lines.get(n, EMPTY_HISTORY) for n in mine}
        names, drawn = [str(line) for line in mine], styles(mine)
        self.chart.show_history(of_run, names, [dash for _, dash in drawn])
        self.chart.show_others({str(n): h for n, h in self._histories.items() if not n.in_history})

    @property
    def known(self) -> bool:
        """True where there is anything to draw."""
        if self.plot.fall is not None:
            return self._fall is not None and len(self._fall) > 0
        return any(line.exists and str(line) in h.series for line, h in self._histories.items())

    def show_steps(self, start: float, stop: float) -> None:
        """Bring these steps into view, and draw."""
        self.chart.max_points = max(self.width() // 2, LEAST_POINTS)
        self.front.box.setXRange(start, stop, padding=0)
        if self.plot.fall is None:
            self.chart.draw()

    def show_moment(self, step: int | None, marks: tuple[Mark, ...], cursors: Cursors) -> None:
        """The step on show, what a person did, and the two cursors."""
        if self.plot.fall is None:
            self.chart.show_current(step)
            if marks is not self._marks:
                self._marks = marks
                self.chart.show_marks(marks)
            lines = self._cursor_lines
        else:
            self.waterfall.current_line.setVisible(step is not None and self._fall is not None)
            self.waterfall.current_line.setValue(step or 0)
            lines = self.waterfall.cursor_lines
        for line, at in zip(lines, cursors, strict=True):
            line.setVisible(at is not None)
            if at is not None:
                line.setValue(at)

    def say(self, message: str) -> None:
        """Say why there is nothing to draw."""
        self.front.set_message("" if self.known else message)

    # --- reading out

    def read_out(self, step: float | None, hovered: float | None, cursors: Cursors) -> None:
        """Write the values at the cursors, else under the mouse, else of `step`, into the legend."""
        at = hovered if hovered is not None else step
        if self.plot.fall is not None:
            self.legend.show_entries(self._fall_entries(at))
            return
        self.chart.show_cross(hovered)
        heading, names = self.plot.names()
        entries = [Entry(heading, "", "", theme.colours().text, sample=False)] if heading else []
        for line, (colour, dash) in zip(self.plot.lines, styles(self.plot.lines), strict=True):
            history, of = self._histories.get(line, EMPTY_HISTORY), unit(line.metric)
            # "of g" is what the tooltip says: a figure in units of the gradient has no name after it.
            shown = "" if of.startswith("of ") else of
            if cursors[0] is not None and cursors[1] is not None and hovered is None:
                a, b = (read_out_at(history, str(line), c) for c in cursors if c is not None)
                text = _between(a, b, shown)
            else:
                found = None if at is None else read_out_at(history, str(line), at)
                text = "" if found is None else f"{value_text(found)} {shown}".rstrip()
            if not line.exists:
                text = "no such metric"
            entries.append(
                Entry(names[line], text, meaning(line.metric) + (f" ({of})" if of else ""), colour, dash)
            )
        if not entries:
            entries = [Entry("empty plot: L chooses lines", "", "", theme.colours().text, sample=False)]
        self.legend.show_entries(entries)

    def _fall_entries(self, at: float | None) -> list[Entry]:
        fall, words = self._fall, ""
        if fall is not None and at is not None and len(fall):
            steps = History(fall.stride, fall.first, {}, 0)
            i = bucket_at(steps, at) if covers(steps, at) else None
            if i is not None:
                one = Waterfall(fall.stride, fall.first[i : i + 1], fall.counts[i : i + 1], fall.zeros[i : i + 1],
                                fall.nonfinite[i : i + 1])  # fmt: skip
                found = [(q, float(quantiles_log2(one, q)[0])) for q in SHOWN]
                words = "  ".join(
                    f"{fmt.percent(q, 0)} ≤ {fmt.number(2.0**v, 3)}" for q, v in found if not math.isnan(v)
                )
                total = float(one.counts.sum() + one.zeros[0] + one.nonfinite[0]) or 1.0
                words += f"  zeros {fmt.percent(float(one.zeros[0]) / total)}"
                words += f"  non-finite {int(one.nonfinite[0]):,}" if one.nonfinite[0] else ""
        told = "share of the elements by power of two, 10⁻⁶ dark to 1 bright; the lines are quantiles of those not 0"
        return [Entry(self.plot.title, words, told, theme.colours().text, sample=False)]

    # --- events

    def _on_moved(self) -> None:
        self.ranged.emit(*map(float, self.front.box.viewRange()[0]))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """The plot becomes the current one."""
        super().mousePressEvent(event)
        self.chosen.emit()

    def _restyle(self) -> None:
        colours, lines = theme.colours(), self.plot.lines
        edge = colours.accent if self._chosen else colours.faint
        self.setStyleSheet(
            f"#board_plot {{ border: 1px solid {edge.name()}; background: {colours.base.name()}; }}"
        )
        self.chart.set_colours(
            dict(zip(map(str, lines), (colour for colour, _ in styles(lines)), strict=True))
        )
        for each in self._cursor_lines:
            style_cursor(each)


def _between(a: Readout | None, b: Readout | None, unit: str) -> str:
    """The values at both cursors with their unit, their difference and their ratio."""
    both = " → ".join("–" if each is None else fmt.number(each.last) for each in (a, b))
    both = f"{both} {unit}".rstrip()
    if a is None or b is None:
        return both
    text = f"{both} (Δ {difference(a.last, b.last)}"
    ratio = b.last / a.last if a.last and math.isfinite(a.last) and math.isfinite(b.last) else None
    return text + (f", ×{fmt.number(ratio, 3)})" if ratio is not None else ")")
