"""Loss, gradient norm, clip scale and learning rate over steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QGridLayout, QToolTip, QVBoxLayout, QWidget

from inspector.history import EMPTY_HISTORY, History
from inspector.runtime.beside import Overlay
from inspector.runtime.snapshots import Mark, Snapshot, StepRecord
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.break_menu import Offer, conditions_of, show_break_menu
from inspector.ui.curves import has_values
from inspector.ui.overlay_legend import OverlayLegend
from inspector.ui.overlay_style import beside, shown
from inspector.ui.readouts import (
    bookmark_mark,
    bucket_at,
    bucket_steps,
    covers,
    in_progress,
    known_value,
    picked_step,
    read_out,
    value_text,
)
from inspector.ui.step_chart import StepChart
from inspector.ui.view import LazyView
from inspector.ui.widgets import SteadyLabel


@dataclass(frozen=True, slots=True)
class _Metric:
    name: str
    title: str
    log: bool
    absent: str
    means: str


METRICS = (
    _Metric(
        "loss",
        "loss",
        False,
        "This source gives no loss.",
        "What the source says that the model loses, in its own unit; as training steps are taken it should fall.",
    ),
    _Metric(
        "grad_norm",
        "gradient norm",
        True,
        "No gradient norm has been recorded.",
        "L2 norm of all finite gradients together, before clipping (gradNorm). Logarithmic.",
    ),
    _Metric(
        "clip_scale",
        "clip scale",
        False,
        "No clip scale has been recorded.",
        "What multiplies all gradients: min(1, max grad norm / gradNorm). Below 1 the step was clipped.",
    ),
    _Metric(
        "lr",
        "lr",
        False,
        "No learning rate has been recorded.",
        "The learning rate as used, with the schedule applied.",
    ),
)
NOT_YET = "not yet"
NO_STEPS_YET = "No step has finished yet: F11 runs one."
KEYS = (
    ("+ / −", "zoom"),
    ("← / →", "move"),
    ("Home", "all steps, and follow the run"),
    ("Ctrl+click", "go to the step"),
    ("Alt+click, B", "a breakpoint on the value of the step"),
)
TWO_COLUMNS_FROM = 680
LOW, NARROW = 240, 320
HELP = (
    "Wheel, + and −: zoom · drag or arrows: move · double click or Home: all steps · Ctrl+click: go to the step · "
    "Alt+click or B: a breakpoint on the value; a right click offers more"
)


class PlotsView(LazyView):
    """Four plots that share their x axis. They follow the run until the x range is moved by hand."""

    LOCAL_KEYS = KEYS
    PERIOD_S = 0.2

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("plots")
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self._history: History = EMPTY_HISTORY
        self._recorded: set[str] = set()
        """The metrics of which there are values."""
        self._overlays: tuple[Overlay, ...] = ()
        self._marks: tuple[Mark, ...] = ()
        self._marks_of: tuple[tuple[Mark, ...], tuple[Mark, ...]] = ((), ())
        self._picked: int | None = None
        """The step that was last gone to from here, while the run has not moved from it since."""
        self._progress: StepRecord | None = None
        self._follow = True
        self._hovered: float | None = None
        self._loss_unit = ""
        self.setAccessibleName("Metrics over steps")
        self.readout = SteadyLabel(" ")
        self.readout.setTextInteractionFlags(Qt.TextInteractionFlag.NoTextInteraction)
        self.readout.setToolTip(HELP)
        self.readout.setMinimumWidth(1)
        self.charts: dict[str, StepChart] = {}
        for metric in METRICS:
            chart = StepChart(log=metric.log)
            chart.setFocusPolicy(Qt.FocusPolicy.NoFocus)
            chart.hovered.connect(self._on_hovered)
            chart.all_wanted.connect(self._on_all_wanted)
            chart.picked.connect(self._on_picked)
            chart.value_picked.connect(partial(self._on_value_picked, metric.name))
            chart.menu_wanted.connect(partial(self._on_menu_wanted, metric.name))
            chart.box.sigRangeChangedManually.connect(self._on_moved_by_hand)
            chart.set_title(metric.title)
            chart.setToolTip(metric.means)
            self.charts[metric.name] = chart
        self._first = self.charts[METRICS[0].name]
        for chart in list(self.charts.values())[1:]:
            chart.box.setXLink(self._first.box)
        self._grid = QGridLayout()
        self._grid.setSpacing(0)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(0)
        self.readout.setContentsMargins(theme.GRID, 0, theme.GRID, 0)
        self.legend = OverlayLegend()
        self.legend.command.connect(self.command)
        outer.addWidget(self.readout)
        outer.addWidget(self.legend)
        outer.addLayout(self._grid, 1)
        self._columns = 0
        self._arrange(2)
        self._first.box.setXRange(0.5, 1.5, padding=0)

    # --- from outside

    def show_all(self) -> None:
        """Show every step, and follow the run again."""
        self._follow = True
        self._set_range()
        self._read_out()

    def show_range(self, start: float, stop: float) -> None:
        """Bring these steps into view, and follow the run where they are all."""
        first = self._history.first
        if not len(first) or (start <= first[0] and stop >= first[-1]):
            self.show_all()
            return
        self._follow = False
        self._first.box.setXRange(start, stop, padding=0)
        self._read_out()

    # --- events

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Two columns where there is room, or none for four plots above each other; else one."""
        super().resizeEvent(event)
        wide = self.width() >= TWO_COLUMNS_FROM and self.width() > 1.2 * self.height()
        wide |= self.height() < LOW and self.width() >= NARROW
        self._arrange(2 if wide else 1)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Home shows all steps; plus, minus and the arrows zoom and move."""
        if event.key() == Qt.Key.Key_Home:
            self._on_all_wanted()
        elif event.key() == Qt.Key.Key_B and not event.modifiers():
            self._offer_all()
        elif self._first.take_key(event.key()):
            self._read_out()
        else:
            super().keyPressEvent(event)

    def _on_picked(self, at: float) -> None:
        seek = picked_step(self._snapshot, at)
        if seek is not None and seek.step != self._picked:
            self._picked = seek.step
            self.command.emit(seek)

    # --- breakpoints

    def _offers(self, name: str, step: float | None) -> list[Offer]:
        """Conditions on the value that a metric has at a step."""
        record = self._snapshot.record if self._snapshot is not None and step is None else None
        at = self._on_show() if step is None else step
        value = self._value(name, at, record)[0]
        if value is None:
            return []
        where = f"step {record.step if record is not None else round(at or 0):,}"
        return [(text, where) for text in conditions_of(name, value)]

    def _on_value_picked(self, name: str, step: float, _y: float) -> None:
        for text, _ in self._offers(name, step)[:1]:
            self.condition_wanted.emit(text)

    def _on_menu_wanted(self, name: str, step: float, y: float, at: QPoint) -> None:
        """The value of the step, and that under the mouse."""
        here = 10**y if self.charts[name].is_log else y
        offers = self._offers(name, step) + [
            (t, "the height here") for t in conditions_of(name, float(f"{here:.3g}"))
        ]
        show_break_menu(self, at, offers, self.condition_wanted.emit)

    def _offer_all(self) -> None:
        """On every metric, the value of the step under the mouse or on show."""
        offers = [offer for metric in METRICS for offer in self._offers(metric.name, self._hovered)[:1]]
        show_break_menu(self, self.readout.mapToGlobal(QPoint(0, self.readout.height())), offers,
                        self.condition_wanted.emit)  # fmt: skip

    def _on_moved_by_hand(self) -> None:
        self._follow = False
        self.moved.emit(*self._first.box.viewRange()[0])

    def _on_all_wanted(self) -> None:
        self.show_all()
        self.moved.emit(-math.inf, math.inf)

    def _on_hovered(self, step: float | None) -> None:
        self._hovered = step
        self._read_out()
        chart = self.sender()
        mark = chart.mark_near(step) if step is not None and isinstance(chart, StepChart) else None
        if mark is not None:
            QToolTip.showText(self.cursor().pos(), f"step {mark.step:,}: {mark.text}", self)
        else:
            QToolTip.hideText()

    # --- drawing

    def _on_new_run(self) -> None:
        self._follow = True

    def _update(self, snapshot: Snapshot) -> None:
        self._loss_unit = " (nats/char)" if snapshot.source.startswith("charlm") else ""
        if snapshot.cursor is None or snapshot.cursor.step != self._picked:
            self._picked = None
        if snapshot.marks is not self._marks_of[0] or snapshot.bookmarks is not self._marks_of[1]:
            self._marks_of = (snapshot.marks, snapshot.bookmarks)
            self._marks = snapshot.marks + tuple(bookmark_mark(mark) for mark in snapshot.bookmarks)
            for chart in self.charts.values():
                chart.show_marks(self._marks)
        self._progress = in_progress(snapshot)
        step = self._progress.step if self._progress else None
        known = snapshot.cursor is not None and len(snapshot.history) > 0
        for name, chart in self.charts.items():
            chart.show_current(snapshot.cursor.step if known and snapshot.cursor else None)
            chart.show_progress(step, known_value(self._progress, name))
        if snapshot.history is not self._history:
            series = snapshot.history.series
            self._recorded = {metric.name for metric in METRICS if has_values(series.get(metric.name))}
        self._history, self._overlays = snapshot.history, shown(snapshot.beside.overlays)
        self.legend.show_overlays(snapshot.beside.overlays)
        for metric in METRICS:
            self.charts[metric.name].show_history(self._history, [metric.name])
            self.charts[metric.name].show_overlays(self._overlays)
        self._say_what_is_absent()
        self._set_range()
        self._read_out()

    def _say_what_is_absent(self) -> None:
        for metric in METRICS:
            message = ""
            if known_value(self._progress, metric.name) is not None or self._has_under(metric.name):
                pass
            elif not len(self._history):
                message = NO_STEPS_YET
            elif metric.name not in self._recorded:
                message = metric.absent
            self.charts[metric.name].set_message(message)

    def _has_under(self, name: str) -> bool:
        return any(has_values(o.history.series.get(name)) for o in self._overlays)

    def _set_range(self) -> None:
        ends: list[float] = [end for o in self._overlays if o.steps for end in (o.steps[0], o.steps[-1])]
        if len(self._history):
            first = self._history.first
            ends += [float(first[0]), float(first[-1]) + max(self._history.stride - 1, 0)]
        if self._progress is not None:
            ends.append(float(self._progress.step))
        if self._follow and ends:
            room = max((max(ends) - min(ends)) * 0.01, 0.5)
            self._first.box.setXRange(min(ends) - room, max(ends) + room, padding=0)
        for chart in self.charts.values():
            chart.draw()

    def _arrange(self, columns: int) -> None:
        rows = -(-len(METRICS) // columns)
        # Equal heights for the plots: the last row also holds the numbers of the x axis.
        axis = self._first.bottom_height
        height = max((self.height() - self.readout.sizeHint().height() - axis) // rows, 1)
        for i in range(len(METRICS)):
            self._grid.setRowStretch(i, 0 if i >= rows else height + (axis if i == rows - 1 else 0))
        if columns == self._columns:
            return
        self._columns = columns
        for i, chart in enumerate(self.charts.values()):
            row, column = i % rows, i // rows
            self._grid.addWidget(chart, row, column)
            self._grid.setColumnStretch(i, 1 if i < columns else 0)
            chart.show_bottom_axis("step" if row == rows - 1 else None)

    # --- reading out

    def _read_out(self) -> None:
        """Values under the mouse, else those of the step on show, in progress or not, else the newest."""
        history, progress, hovered = self._history, self._progress, self._hovered
        at = self._on_show() if hovered is None else hovered
        cursor, record = (self._snapshot.cursor, self._snapshot.record) if self._snapshot else (None, None)
        if progress is not None and self._is_at(progress, hovered):
            self._read_out_at(float(progress.step), f"step {progress.step:,} (in progress)", progress)
        elif hovered is None and record is not None and cursor is not None and cursor.at_end:
            # The history may hold several steps as one.
            self._read_out_at(float(record.step), f"step {record.step:,}", record)
        elif at is None:
            self._read_out_at(None, "", None)
        else:
            bucket = bucket_at(history, at) if self._covers(at) else None
            step = round(at) if bucket is None else int(history.first[bucket])
            where = f"step {step:,}" if bucket is None else bucket_steps(history, bucket)
            self._read_out_at(float(step), where, None)

    def _read_out_at(self, step: float | None, where: str, record: StepRecord | None) -> None:
        words = [where] if where else []
        words += [m.text for m in self._marks if step is not None and m.step == step]
        if not self._follow and words:
            words.append("Home shows all steps")
        self.readout.setText(" · ".join(words) or " ")
        for metric in METRICS:
            title = metric.title + (self._loss_unit if metric.name == "loss" else "")
            value, text = self._value(metric.name, step, record)
            under = beside(self._overlays, metric.name, step, value)
            self.charts[metric.name].set_titles(*(f"{title}{text}{more}" for more in under))
            cross = step is not None and record is None and self._hovered is not None
            self.charts[metric.name].show_cross(step if cross else None)

    def _value(self, name: str, step: float | None, record: StepRecord | None) -> tuple[float | None, str]:
        """What the run has of a metric at a step, and the same in words."""
        if record is not None:
            value = known_value(record, name)
            if value is not None:
                return value, f"  {fmt.number(value)}"
            # Every step comes to have the others; a source without a loss never has one.
            return None, f"  {NOT_YET}" if record is self._progress and name != "loss" else ""
        bucket = bucket_at(self._history, step) if step is not None and self._covers(step) else None
        found = read_out(self._history, name, bucket) if bucket is not None else None
        return (None, "") if found is None else (found.last, f"  {value_text(found)}")

    def _is_at(self, progress: StepRecord, hovered: float | None) -> bool:
        """True where the step in progress is meant; beyond it too, where nothing else goes on there."""
        if hovered is None:
            return True
        return hovered > progress.step - 0.5 and (not self._overlays or hovered < progress.step + 0.5)

    def _covers(self, step: float) -> bool:
        """True where the run has something to read out at a step: anywhere, where nothing lies under it."""
        return len(self._history) > 0 and (not self._overlays or covers(self._history, step))

    def _on_show(self) -> float | None:
        """The step at the cursor, which a recording goes on beyond; else the newest there is."""
        newest = float(self._history.first[-1]) if len(self._history) else self._newest_under()
        cursor = self._snapshot.cursor if self._snapshot else None
        return newest if newest is None or cursor is None else min(newest, float(cursor.step))

    def _newest_under(self) -> float | None:
        return max((float(o.steps[-1]) for o in self._overlays if o.steps), default=None)
