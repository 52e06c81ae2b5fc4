"""What each kernel costs: its time over steps, and a table of last, median and share of the step."""

from __future__ import annotations

import math

import numpy as np
from PySide6.QtWidgets import QLabel, QVBoxLayout, QWidget

from inspector.runtime.beside import Overlay
from inspector.runtime.snapshots import Snapshot
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.curves_view import CurvesView
from inspector.ui.overlay_legend import OverlayLegend
from inspector.ui.overlay_style import beside, shown
from inspector.ui.readouts import bucket_at, bucket_steps, covers, read_out
from inspector.ui.step_chart import StepChart
from inspector.ui.tables import dense_table, set_widths
from inspector.ui.timing_model import TimingModel

TABLE_WIDTH = 440


class TimingView(CurvesView):
    """A curve a kernel, and a table of them that has a sample of each line; the one selected is in the accent."""

    PERIOD_S = 0.2

    def __init__(self, parent: QWidget | None = None) -> None:
        self.model = TimingModel()
        super().__init__(StepChart(log=True), dense_table(self.model, "kernel-times"), parent)
        self.setObjectName("timing")
        self.chart.setToolTip(
            "What each kernel took in each step, those at low clocks (cold) as dots. Logarithmic."
        )
        self._shown: tuple[object, ...] = ()
        self._overlays: tuple[Overlay, ...] = ()
        self._clock = "GPU"
        set_widths(self.table, ("", "gpu, cold", "88.8 ms", "88.8 ms", "88.8 %"), stretch=0)
        self.total = QLabel(" ")
        self.total.setContentsMargins(theme.GRID, 0, theme.GRID, theme.GRID)
        self.total.setMinimumWidth(1)
        self.total.setWordWrap(True)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(0)
        self.legend = OverlayLegend(dashed=False)
        self.legend.command.connect(self.command)
        outer.addWidget(self.legend)
        outer.addWidget(self._splitter, 1)
        outer.addWidget(self.total)
        self.chart.set_message("No step has been timed yet: F11 runs one.")

    def _table_width(self) -> int:
        return theme.scaled(TABLE_WIDTH)

    def _update(self, snapshot: Snapshot) -> None:
        known = snapshot.cursor is not None and len(snapshot.history) > 0
        self.chart.show_current(snapshot.cursor.step if known and snapshot.cursor else None)
        parts = (snapshot.plan, snapshot.history, snapshot.dispatch_times, snapshot.beside.overlays)
        if len(parts) == len(self._shown) and all(a is b for a, b in zip(parts, self._shown, strict=True)):
            return
        self._shown = parts
        self._history, self._overlays = snapshot.history, shown(snapshot.beside.overlays)
        self.legend.show_overlays(snapshot.beside.overlays)
        self.model.show(snapshot.plan, snapshot.dispatch_times, snapshot.history)
        self._clock = "CPU" if self.model.on_cpu else "GPU"
        kernels, missing = len(self.model.kernels), int(np.isnan(self.model.last).sum())
        words = " "
        if missing < kernels:
            words = f"Step: {fmt.milliseconds(self.model.total)} of {self._clock} time"
        if 0 < missing < kernels:
            words += f", {fmt.plural(missing, 'kernel')} n/a"
        if self._clock == "CPU":
            words += " (no timestamp queries here: wall time seen by the CPU)"
        self.total.setText(words)
        self._draw_curves()

    def _draw_curves(self) -> None:
        kinds = ("ms", "cold")
        styles = [
            (f"{kind}/{k}", self.model.dash(i)) for kind in kinds for i, k in enumerate(self.model.kernels)
        ]
        styles = [style for style in styles if style[0] in self._history.series]
        names = [name for name, _ in styles]
        self.chart.show_history(self._history, names, [dash for _, dash in styles])
        # A kernel that only a recording ran comes after those of this form.
        kernels = (*self.model.kernels, *self._only_under())
        dashes = {f"{kind}/{k}": self.model.dash(i) for kind in kinds for i, k in enumerate(kernels)}
        chosen = self._selected_name().partition("/")[2]
        if chosen:
            # One kernel is looked at: those of the recordings would only hide it.
            dashes = {name: dash for name, dash in dashes.items() if name.partition("/")[2] == chosen}
        self.chart.show_overlays(self._overlays, dashes)
        under = any(name in o.history.series for o in self._overlays for name in dashes)
        self.chart.set_message("" if names or under else "No step has been timed yet: F11 runs one.")
        ends = [float(end) for o in self._overlays if o.steps for end in (o.steps[0], o.steps[-1])]
        self._show_all([*ends, *self._ends()])
        self.chart.draw()
        self._on_hovered(None)

    def _only_under(self) -> tuple[str, ...]:
        names = [name.partition("/") for o in self._overlays for name in o.history.series]
        found = (kernel for kind, _, kernel in names if kind in ("ms", "cold"))
        return tuple(k for k in dict.fromkeys(found) if k not in self.model.kernels)

    def _selected_name(self) -> str:
        row = self.table.currentIndex().row()
        return f"ms/{self.model.kernels[row]}" if 0 <= row < len(self.model.kernels) else ""

    def _on_row_changed(self) -> None:
        self._draw_curves()
        self.model.select(self.table.currentIndex().row())
        self.chart.select_trace(self._selected_name())
        self._on_hovered(None)

    def _on_hovered(self, step: float | None) -> None:
        """Read out the selected kernel, or the costliest, in the title."""
        title = f"{self._clock} time (ms)"
        history = self._history
        name = self._selected_name()
        names = [name] if name else [n for n in self.chart.trace_names() if n.startswith("ms/")][:2]
        here = step is not None and (not self._overlays or covers(history, step))
        bucket = bucket_at(history, step) if step is not None and here else None
        if step is None or (bucket is None and not self._overlays):
            self.chart.set_titles(f"{title}  {_kernel(name)}" if name else title)
            self.chart.show_cross(None)
            return
        at = float(round(step)) if bucket is None else float(history.first[bucket])
        where = f"step {round(step):,}" if bucket is None else bucket_steps(history, bucket)
        plain = full = f"{where}, {title}"
        for each in names:
            value = read_out(history, each, bucket) if bucket is not None else None
            known = None if value is None or math.isnan(value.last) else value.last
            text = f"  {_kernel(each)}" + ("" if bucket is None else f" {fmt.milliseconds(known)}")
            plain += text
            full += text + beside(self._overlays, each, at, known)[0]
        self.chart.set_titles(full, plain)
        self.chart.show_cross(at)


def _kernel(name: str) -> str:
    """A series as a person names it."""
    kind, _, kernel = name.partition("/")
    return f"{kernel} (cold)" if kind == "cold" else kernel
