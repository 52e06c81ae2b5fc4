"""A plot of metrics over steps: spikes and NaN are never lost, marks and the current step are lines."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QPen
from PySide6.QtWidgets import QWidget

from inspector.history import EMPTY_HISTORY, History
from inspector.runtime.beside import Overlay
from inspector.runtime.snapshots import Mark
from inspector.stores import Lane
from inspector.ui import theme
from inspector.ui.chart import Axis, Chart, Dash, line_pen, set_points
from inspector.ui.curves import EMPTY_CURVE, MAX_POINTS, NO_STEPS, Curve, curve
from inspector.ui.edge_marks import EdgeMarks
from inspector.ui.overlay_style import DASHES, SYMBOLS, colour_of, shown
from inspector.ui.trace import Trace

FEW_MARKS = 16
"""Up to so many are drawn a logical pixel wide; more would take too long on a dense screen."""


class StepChart(Chart):
    """Metrics of a history over steps; only what is in view is drawn, at most one point a pixel or two."""

    def __init__(self, *, log: bool = False, parent: QWidget | None = None) -> None:
        super().__init__(left=Axis("left", log=log), bottom=Axis("bottom", whole=True), parent=parent)
        self._log = log
        self._history: History = EMPTY_HISTORY
        self._others: dict[str, History] = {}
        self._aside: frozenset[str] = frozenset()
        self.max_points = MAX_POINTS
        """Of a line; beyond it neighbours are drawn as one, from their least to their largest."""
        self._traces: dict[str, Trace] = {}
        self._overlays: tuple[Overlay, ...] = ()
        self._under: dict[tuple[int, str], Trace] = {}
        """By slot of the recording and metric."""
        self._selected = ""
        self._colours: dict[str, QColor] = {}
        self._marks: tuple[Mark, ...] = ()
        self._stale = True
        self.edges = EdgeMarks(self)
        self._mark_lines = pg.PlotCurveItem(connect="pairs")
        self._progress: tuple[float, float] | None = None
        self._current: int | None = None
        self.progress_dot = pg.ScatterPlotItem(pxMode=True, size=7, symbol="o")
        self.current_line = pg.InfiniteLine(angle=90)
        self.cross_line = pg.InfiniteLine(angle=90)
        for item in (self._mark_lines, self.current_line, self.cross_line, self.progress_dot):
            self.box.addItem(item, ignoreBounds=True)
        for each in (self.current_line, self.cross_line, self.progress_dot, self._mark_lines):
            each.hide()
        self.box.sigXRangeChanged.connect(self._on_x_range_changed)
        self.box.sigYRangeChanged.connect(self._draw_edges)
        theme.changes().changed.connect(self._restyle_items)
        self._restyle_items()

    # --- what is shown

    def show_history(self, history: History, names: Sequence[str], dashes: Sequence[Dash] = ()) -> None:
        """Show these metrics of the history, in these line styles; call `draw` once the x range is set."""
        self._stale |= history is not self._history
        for name in [n for n in self._traces if n not in names]:
            self._traces.pop(name).remove(self)
            self._stale = True
        for i, name in enumerate(names):
            dash = dashes[i] if dashes else ()
            if name not in self._traces or self._traces[name].dash != dash:
                if name in self._traces:
                    self._traces.pop(name).remove(self)
                self._traces[name] = Trace(self, dash)
                self._style_trace(name)
                self._stale = True
        self._history = history

    def show_overlays(
        self,
        overlays: Sequence[Overlay],
        dashes: Mapping[str, Dash] | None = None,
        *,
        names: Sequence[str] | None = None,
    ) -> None:
        """Show the same metrics of recordings, or those of `names`: each recording in its dash, or with its signs in
        the dash of the metric where given.

        They are drawn last, so that where both are the same the run's line shows through the gaps of the dash. Call
        `draw` once the x range is set.
        """
        before, self._overlays = self._overlays, shown(overlays)
        wanted = {
            (o.slot, name): (dashes or {}).get(name, DASHES[o.slot])
            for o in self._overlays
            for name in names or dashes or self._traces
            if name in o.history.series
        }
        for key in [k for k, trace in self._under.items() if wanted.get(k) != trace.dash]:
            self._under.pop(key).remove(self)
            self._stale = True
        for key in wanted.keys() - self._under.keys():
            self._under[key] = Trace(self, wanted[key], above=True, symbol=SYMBOLS[key[0]] if dashes else "")
            self._style_under(key)
            self._stale = True
        self._stale |= [id(o.history) for o in before] != [id(o.history) for o in self._overlays]

    def show_others(self, histories: Mapping[str, History]) -> None:
        """Take these metrics from histories of their own; call it before `draw`."""
        if histories.keys() != self._others.keys() or any(
            self._others[n] is not histories[n] for n in histories
        ):
            self._others = dict(histories)
            self._stale = True

    def set_aside(self, names: Collection[str]) -> None:
        """Metrics that are drawn as far as they fit while others say how far y reaches; call it before `draw`."""
        if (aside := frozenset(names)) != self._aside:
            self._aside, self._stale = aside, True

    def set_log(self, log: bool) -> None:
        """Take y as powers of ten, or as it is; call `draw` then."""
        if log != self._log:
            self._log, self._stale = log, True
            self.left.set_log(log)

    def draw(self) -> None:
        """Reduce what is in view and draw it, if anything changed since."""
        if not self._stale:
            return
        self._stale = False
        start, stop = self.box.viewRange()[0]
        fitted: list[tuple[float, float]] = []
        aside: list[tuple[float, float]] = []
        histories = {o.slot: o.history for o in self._overlays}
        drawn = [(t, self._others.get(name, self._history), name) for name, t in self._traces.items()]
        drawn += [(trace, histories[slot], name) for (slot, name), trace in self._under.items()]
        for trace, history, name in drawn:
            trace.draw(
                curve(history, name, start=start, stop=stop, log=self._log, max_points=self.max_points)
            )
            if (bounds := trace.curve.bounds()) is not None:
                (aside if name in self._aside else fitted).append(bounds)
        lows, highs = ([bounds[end] for bounds in fitted or aside] for end in (0, 1))
        if self._progress is not None:
            lows.append(self._progress[1])
            highs.append(self._progress[1])
        self.set_y_bounds((min(lows), max(highs)) if lows else None)
        self._draw_edges()

    def show_current(self, step: int | None) -> None:
        """Move the line of the current step."""
        self._current = step
        self._on_message()
        if step is not None:
            self.current_line.setValue(step)

    def show_progress(self, step: int | None, value: float | None) -> None:
        """A ring for what the step in progress has produced; None where it has nothing to draw yet."""
        drawn = None
        if step is not None and value is not None and math.isfinite(value) and (value > 0 or not self._log):
            drawn = (float(step), math.log10(value) if self._log else value)
        if drawn != self._progress:
            self._progress = drawn
            set_points(self.progress_dot, *([[x] for x in drawn] if drawn else ([], [])))
            self._stale = True

    @property
    def is_log(self) -> bool:
        """True where y is in powers of ten."""
        return self._log

    def show_marks(self, marks: tuple[Mark, ...]) -> None:
        """Draw the marks as lines."""
        self._marks = marks
        self._mark_lines.setVisible(bool(marks) and not self.message)
        self._style_marks()
        self._draw_edges()

    def show_cross(self, step: float | None) -> None:
        """Move the line under the mouse, None to hide it."""
        self.cross_line.setVisible(step is not None)
        if step is not None:
            self.cross_line.setValue(step)

    def select_trace(self, name: str) -> None:
        """Draw one metric in the colour of the selection; "" for none."""
        previous, self._selected = self._selected, name
        for each in {previous, name} & self._traces.keys():
            self._style_trace(each)

    def take_key(self, key: int) -> bool:
        """Zoom with + and -, move with the arrows; False for any other key."""
        start, stop = self.box.viewRange()[0]
        width = stop - start
        edges = {
            Qt.Key.Key_Plus: (start + width / 4, stop - width / 4),
            Qt.Key.Key_Equal: (start + width / 4, stop - width / 4),
            Qt.Key.Key_Minus: (start - width / 2, stop + width / 2),
            Qt.Key.Key_Left: (start - width / 8, stop - width / 8),
            Qt.Key.Key_Right: (start + width / 8, stop + width / 8),
        }.get(Qt.Key(key))
        if edges is None:
            return False
        self.box.setXRange(*edges, padding=0)
        self.box.sigRangeChangedManually.emit(self.box.mouseEnabled())
        return True

    def set_lanes(self, lanes: Mapping[str, Lane]) -> None:
        """Draw these metrics in the colours of their lanes."""
        self.set_colours({name: theme.LANE_COLOURS[lane] for name, lane in lanes.items()})

    def set_colours(self, colours: Mapping[str, QColor]) -> None:
        """Draw these metrics in colours of their own rather than that of text."""
        self._colours = dict(colours)
        for name in self._traces:
            self._style_trace(name)
        for key in self._under:
            self._style_under(key)

    # --- what is drawn

    def drawn(self, name: str) -> Curve:
        """The metric as drawn, in axis units."""
        return self._traces[name].curve if name in self._traces else EMPTY_CURVE

    def drawn_under(self, slot: int, name: str) -> Curve:
        """The metric of the recording in a slot as drawn, in axis units."""
        return self._under[slot, name].curve if (slot, name) in self._under else EMPTY_CURVE

    def trace_names(self) -> list[str]:
        """The metrics shown, in the order given."""
        return list(self._traces)

    def pen(self, name: str) -> QPen:
        """What a metric is drawn with."""
        return QPen(self._traces[name].line.opts["pen"])

    def marked_steps(self) -> list[float]:
        """Where mark lines stand."""
        x, _ = self._mark_lines.getData()
        return [] if x is None else [float(v) for v in x[::2]]

    def mark_near(self, step: float, *, pixels: float = 4) -> Mark | None:
        """The newest mark within so many pixels."""
        reach = pixels / self.pixels_per_x()
        return next((m for m in reversed(self._marks) if abs(m.step - step) <= reach), None)

    # --- inside

    def _on_message(self) -> None:
        # A line would cross the words.
        self.current_line.setVisible(self._current is not None and not self.message)
        self._mark_lines.setVisible(bool(self._marks) and not self.message)

    def _on_x_range_changed(self) -> None:
        self._stale = True
        self.draw()

    def _draw_edges(self) -> None:
        curves = [trace.curve for trace in (*self._traces.values(), *self._under.values())]
        self.edges.show(
            **{
                kind: np.unique(np.concatenate([getattr(c, kind) for c in curves])) if curves else NO_STEPS
                for kind in ("posinf", "neginf", "nan", "below")
            }
        )
        low, high = self.box.viewRange()[1]
        x = np.repeat(np.array([m.step for m in self._marks], np.float64), 2)
        self._mark_lines.setData(x, np.tile([low, high], len(self._marks)))

    def _style_marks(self) -> None:
        dashes = Qt.PenStyle.DashLine
        hairline = len(self._marks) > FEW_MARKS
        self._mark_lines.setPen(line_pen(theme.colours().muted, dashes, hairline=hairline))

    def _style_trace(self, name: str) -> None:
        colours = theme.colours()
        chosen = name == self._selected
        own = theme.mark(self._colours.get(name, colours.text))
        self._traces[name].set_colour(colours.accent if chosen else own)

    def _style_under(self, key: tuple[int, str]) -> None:
        slot, name = key
        # Where colours say what a line is of, the dash alone says whose it is.
        self._under[key].set_colour(theme.mark(self._colours.get(name, colour_of(slot))))

    def _restyle_items(self) -> None:
        colours = theme.colours()
        self.edges.restyle()
        self._style_marks()
        self.current_line.setPen(line_pen(colours.accent))
        self.cross_line.setPen(line_pen(colours.muted))
        self.progress_dot.setPen(line_pen(colours.text))
        self.progress_dot.setBrush(pg.mkBrush(colours.base))
        for name in self._traces:
            self._style_trace(name)
        for key in self._under:
            self._style_under(key)
