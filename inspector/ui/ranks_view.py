"""Several processes that trained one run: a line each over steps, and a table of what each holds and where it parts."""

from __future__ import annotations

from PySide6.QtWidgets import QButtonGroup, QHBoxLayout, QToolButton, QVBoxLayout, QWidget

from inspector.runtime.snapshots import Snapshot
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.curves_view import CurvesView
from inspector.ui.ranks_model import PARTED, SAMPLES, RanksModel
from inspector.ui.readouts import bucket_at, bucket_steps, read_out
from inspector.ui.shortcuts import bind
from inspector.ui.step_chart import StepChart
from inspector.ui.tables import dense_table, set_widths
from inspector.ui.widgets import CheckedLook, ElidedLabel

METRICS = {
    "loss": ("L", "loss", "loss (nats)", "The loss of each rank's own batch"),
    "grad_norm": (
        "G",
        "‖g‖ of part",
        "‖g‖ of part",
        "The L2 norm of the part of the gradient that each rank keeps",
    ),
    "seconds": (
        "T",
        "step time",
        "step time (s)",
        "From the end of a step to the end of the next, in each rank",
    ),
}
"""By the start of their names in a history: key, button, title of the axis, what it is."""
KEYS = tuple((key, f"draw {said[0].lower()}{said[1:]}") for key, _, _, said in METRICS.values())
PARTED_WIDTH, LEAST_CURVES = 120, 280
"""Pixels that the column of what a rank parts in is given, and that the curves keep beside the table."""
NOTHING = "A run that several processes recorded, each its part, has a line and a row for each of them here."
ABSENT = {
    "loss": "No rank told a loss.",
    "grad_norm": "All ranks were told one norm over all parts, which Metrics shows; the table has those of the parts.",
    "seconds": "",
}


class RanksView(CurvesView):
    """A curve a rank of one metric, and a table of the ranks; the one selected is in the accent."""

    LOCAL_KEYS = KEYS
    PERIOD_S = 0.2
    ON_DEMAND = True
    BESIDE_FROM = 900

    def __init__(self, parent: QWidget | None = None) -> None:
        self.model = RanksModel()
        super().__init__(StepChart(), dense_table(self.model, "ranks-table"), parent)
        self.setObjectName("ranks")
        self._metric = "loss"
        self.chart.setToolTip(f"{METRICS[self._metric][3]}.")
        self._are_there = False
        self.words = ElidedLabel()
        line = QHBoxLayout()
        line.setContentsMargins(theme.GRID, 0, theme.GRID, 0)
        line.setSpacing(theme.GRID)
        line.addWidget(self.words, 1)
        self._group = QButtonGroup(self)
        self.buttons: dict[str, QToolButton] = {}
        for name, (key, text, _, said) in METRICS.items():
            button = QToolButton()
            button.setText(text)
            button.setToolTip(f"{said} ({key})")
            CheckedLook(button)
            button.setChecked(name == self._metric)
            button.clicked.connect(lambda _checked=False, name=name: self.show_metric(name))
            self._group.addButton(button)
            self.buttons[name] = button
            line.addWidget(button)
            bind(self, [(key, button.click)], inside=True)
        set_widths(self.table, SAMPLES, stretch=PARTED)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(0)
        outer.addLayout(line)
        outer.addWidget(self._splitter, 1)
        self.setFocusProxy(self.table)
        self.chart.set_message(NOTHING)

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Show this moment; the tab comes with a run of several processes, and goes with it."""
        there = snapshot.recorded is not None and bool(snapshot.recorded.ranks)
        if there != self._are_there and snapshot.mode != "starting":
            self._are_there = there
            self.wanted.emit(there)
        super().show_snapshot(snapshot)

    def show_metric(self, name: str) -> None:
        """Draw another metric of each rank."""
        self._metric = name
        self.chart.setToolTip(f"{METRICS[name][3]}.")
        self.buttons[name].setChecked(True)
        self._draw_curves()

    def _table_width(self) -> int:
        # All its columns are seen, as one parts in the last: the curves can be told apart in less.
        rest = sum(self.table.columnWidth(column) for column in range(PARTED))
        return min(rest + theme.scaled(PARTED_WIDTH), self.width() - theme.scaled(LEAST_CURVES))

    # --- showing

    def _update(self, snapshot: Snapshot) -> None:
        parts = snapshot.recorded.ranks if snapshot.recorded is not None else ()
        self.model.show(parts, snapshot.rank_steps)
        self.words.setText(self._summary(snapshot))
        self.chart.show_current(snapshot.cursor.step if parts and snapshot.cursor else None)
        if snapshot.history is not self._history:
            self._history = snapshot.history
            self._draw_curves()
        elif not parts:
            self.chart.set_message(NOTHING)

    def _summary(self, snapshot: Snapshot) -> str:
        ranks, steps = self.model.parts, self.model.steps
        if not ranks:
            return ""
        words = [fmt.plural(len(ranks), "rank")]
        if steps and snapshot.record is not None:
            words.append(f"step {snapshot.record.step:,}")
            losses = [each.loss for each in steps if each.loss is not None]
            if self.model.mean_loss is not None and losses:
                mean, low, high = (
                    fmt.number(each) for each in (self.model.mean_loss, min(losses), max(losses))
                )
                words.append(f"loss {mean} ({low} to {high})")
            times = [each.seconds for each in steps if each.seconds is not None]
            if times:
                words.append(f"the slowest took {fmt.milliseconds(1000 * max(times))}")
            parted = [
                (part.rank, each.parted) for part, each in zip(ranks, steps, strict=True) if each.parted
            ]
            if len(parted) == 1:
                words.append("rank {} parts in {}".format(*parted[0]))
            else:
                words.append(f"{len(parted):,} ranks part" if parted else "all alike in what should be")
        return " · ".join(words)

    def _draw_curves(self) -> None:
        count = len(self.model.parts)
        names = [f"{self._metric}/rank {rank}" for rank in range(count)]
        names = [name for name in names if name in self._history.series]
        self.chart.show_history(self._history, names, [self.model.dash(_rank(name)) for name in names])
        self.chart.set_message("" if names else ABSENT[self._metric] if count else NOTHING)
        self._show_all(self._ends())
        self.chart.draw()
        self._select_trace()
        self._on_hovered(None)

    def _select_trace(self) -> None:
        row = self.table.currentIndex().row()
        self.chart.select_trace(f"{self._metric}/rank {row}" if row >= 0 else "")

    # --- events

    def _on_row_changed(self) -> None:
        self.model.select(self.table.currentIndex().row())
        self._select_trace()
        self._on_hovered(None)

    def _on_hovered(self, step: float | None) -> None:
        """Read out the selected rank, and the lowest and highest, in the title."""
        title = METRICS[self._metric][2]
        bucket = bucket_at(self._history, step) if step is not None and len(self._history) else None
        if bucket is None:
            self.chart.set_titles(title)
            self.chart.show_cross(None)
            return
        values = {
            _rank(name): value.last
            for name in self.chart.trace_names()
            if (value := read_out(self._history, name, bucket)) is not None and value.last == value.last
        }
        where = bucket_steps(self._history, bucket)
        chosen = self.table.currentIndex().row()
        own = f"  rank {chosen} {fmt.number(values[chosen])}" if chosen in values else ""
        spread = span = ""
        if len(values) > 1:
            low, high = min(values, key=values.__getitem__), max(values, key=values.__getitem__)
            span = f"  {fmt.number(values[low])} to {fmt.number(values[high])}"
            spread = f"  {fmt.number(values[low])} (rank {low}) to {fmt.number(values[high])} (rank {high})"
        self.chart.set_titles(
            f"{where}, {title}{own}{spread}",
            f"{where}{own}{spread}",
            f"{where}{own}{span}",
            f"{where}{own or span}",
        )
        self.chart.show_cross(float(self._history.first[bucket]))


def _rank(name: str) -> int:
    return int(name.rpartition(" ")[2])
