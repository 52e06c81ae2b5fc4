"""8-bit state beside float32: drift of the weights, errors of coding m and v, and the memory that either takes."""

from __future__ import annotations

from PySide6.QtCore import QItemSelectionModel, QModelIndex, QSignalBlocker, Qt
from PySide6.QtGui import QHideEvent, QResizeEvent
from PySide6.QtWidgets import (
    QComboBox,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QSplitter,
    QVBoxLayout,
    QWidget,
)

from inspector.codecs import CODECS
from inspector.history import EMPTY_HISTORY, History
from inspector.runtime.beside import Overlay
from inspector.runtime.commands import StartLockstep, StopLockstep, ViewEightBit
from inspector.runtime.lockstep import EightBitPicture
from inspector.runtime.snapshots import Snapshot
from inspector.stores import MOMENTS
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.lockstep_grid import LockstepGrid
from inspector.ui.lockstep_model import SAMPLES, V_ERROR, MemoryRows, ParamErrors
from inspector.ui.moment import absent_text
from inspector.ui.overlay_legend import OverlayLegend
from inspector.ui.readouts import picked_step
from inspector.ui.shortcuts import bind
from inspector.ui.tables import dense_table, row_height, set_widths
from inspector.ui.view import LazyView
from inspector.ui.widgets import ElidedLabel

KEYS = (("L", "start or stop 8-bit in lockstep"), ("C", "the next codec"), ("Home", "all steps"))
OPEN_LOOP = (
    "Open loop: the gradients come from the weights of the first run alone, so the second one never answers for its "
    "own weights. The two add the gradient norm up in different orders, which alone makes them differ by about 1e-8."
)
MEMORY_SAMPLES = ("float32", *4 * ("888 MB",), "8.88 GB", "88.8 %", "8.88 GB")
TABLES_WIDTH = 580
"""Pixels at most that the tables take beside the plots, until a person moves what parts them."""
STACKED_BELOW = 620
"""Pixels of width: in less the plots stand under the tables."""


class LockstepView(LazyView):
    """A bar with codec and start over the tables of memory and params, four plots beside them."""

    LOCAL_KEYS = KEYS
    PERIOD_S = 0.2

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("lockstep")
        self._picture: EightBitPicture | None = None
        self._history: History | None = None
        self._overlays: tuple[Overlay, ...] = ()
        self._selected = ""
        self._own_choice = ""
        """Whose blocks are shown while no param with 8-bit state is selected."""
        self._requested: ViewEightBit | None = None
        self._make_bar()
        self._make_tables()
        self.plots = LockstepGrid()
        self.plots.picked.connect(self._on_picked)
        self._absent = ""
        self._split = QSplitter(Qt.Orientation.Horizontal)
        self._split.setChildrenCollapsible(False)
        self._split.addWidget(self._tables)
        self._split.addWidget(self.plots)
        self._split.splitterMoved.connect(self._on_split)
        self._split_by_hand = False
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(theme.GRID)
        self.legend = OverlayLegend(coloured=False)
        self.legend.command.connect(self.command)
        outer.addLayout(self._bar)
        outer.addWidget(self.legend)
        outer.addWidget(self._split, 1)
        acts = (self.button.click, self._next_codec, self.plots.show_all)
        bind(self, [(key, act) for (key, _), act in zip(KEYS, acts, strict=True)], inside=True)
        theme.changes().changed.connect(self._restyle)
        self._restyle()
        self._draw()

    def _make_bar(self) -> None:
        self.codec = QComboBox()
        self.codec.addItems(CODECS)
        self.codec.setAccessibleName("codec")
        self.codec.activated.connect(self._on_codec)
        self.button = QPushButton("Start")
        self.button.clicked.connect(self._on_button)
        self.words = ElidedLabel()
        self._bar = QHBoxLayout()
        self._bar.setContentsMargins(theme.GRID, theme.GRID, theme.GRID, 0)
        self._bar.setSpacing(2 * theme.GRID)
        self._bar.addWidget(self.codec)
        self._bar.addWidget(self.button)
        self._bar.addWidget(self.words, 1)
        self.key_label = QLabel()
        self.key_label.setToolTip("The colours of m and v in the plots.")
        self._bar.addWidget(self.key_label)

    def _make_tables(self) -> None:
        self.memory = MemoryRows()
        memory = dense_table(self.memory, "state-memory")
        set_widths(memory, MEMORY_SAMPLES)
        memory.setSelectionMode(memory.SelectionMode.NoSelection)
        memory.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        memory.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        header = memory.horizontalHeader().sizeHint().height()
        bar = memory.horizontalScrollBar().sizeHint().height()
        memory.setMaximumHeight(header + 2 * row_height() + bar)
        self.memory_table = memory
        self.params = ParamErrors()
        self.table = dense_table(self.params, "param-errors")
        set_widths(self.table, SAMPLES)
        self.table.horizontalHeader().setSortIndicator(V_ERROR, Qt.SortOrder.DescendingOrder)
        self.table.setSortingEnabled(True)
        self.table.selectionModel().currentRowChanged.connect(self._on_row)
        self.setFocusProxy(self.table)
        for table in (memory, self.table):
            # In a small window the panel may become low.
            table.setMinimumHeight(row_height())
        self._tables = QWidget()
        column = QVBoxLayout(self._tables)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(theme.GRID)
        column.addWidget(memory)
        column.addWidget(self.table, 1)

    # --- from outside

    def select_param(self, name: str) -> None:
        """Show the blocks and the histogram of this param; "" for the worst, and for all."""
        if name != self._selected:
            self._selected = name
            self._show_row()
            if (row := self.params.row_of(name)) is not None:
                self.table.scrollTo(self.params.index(row, 0))
            if self.isVisible():
                self._request()
                self._draw_param()

    # --- events

    def hideEvent(self, event: QHideEvent) -> None:
        """Nobody looks: nothing has to be measured for it."""
        super().hideEvent(event)
        self._requested = None
        self.command.emit(ViewEightBit(None, watched=False))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The plots beside the tables, or below them in a narrow panel."""
        super().resizeEvent(event)
        narrow = self.width() < STACKED_BELOW
        self._split.setOrientation(Qt.Orientation.Vertical if narrow else Qt.Orientation.Horizontal)
        if not self._split_by_hand:
            whole = self.height() if narrow else self.width()
            tables = whole // 2 if narrow else min(whole // 2, TABLES_WIDTH)
            self._split.setSizes([tables, whole - tables])

    def _on_split(self) -> None:
        self._split_by_hand = True

    def _on_button(self) -> None:
        on = self._picture is not None and (self._picture.companion is not None or self._picture.waiting)
        self.command.emit(StopLockstep() if on else StartLockstep(CODECS[self.codec.currentIndex()]))

    def _on_codec(self) -> None:
        picture = self._picture
        if picture is not None and picture.companion == "8bit":
            # Another codec is another run.
            self.command.emit(StartLockstep(CODECS[self.codec.currentIndex()]))

    def _next_codec(self) -> None:
        if self.codec.isEnabled():
            self.codec.setCurrentIndex((self.codec.currentIndex() + 1) % len(CODECS))
            self._on_codec()

    def _on_row(self, current: QModelIndex, _before: QModelIndex) -> None:
        if current.isValid() and (name := self.params.names[current.row()]) != self._selected:
            self.param_selected.emit(name)
            self.select_param(name)

    # --- drawing

    def _request(self) -> None:
        wanted = ViewEightBit(self._shown_param() or None)
        if wanted != self._requested:
            self._requested = wanted
            self.command.emit(wanted)

    def _shown_param(self) -> str:
        """The selected param, or where it has no codes the one that was worst."""
        if self.params.has_codes(self._selected):
            return self._selected
        if not self.params.has_codes(self._own_choice):
            self._own_choice = next((n for n in self.params.names if self.params.has_codes(n)), "")
        return self._own_choice

    def _on_new_run(self) -> None:
        self._own_choice, self._requested = "", None
        self.plots.show_all()

    def _update(self, snapshot: Snapshot) -> None:
        picture = snapshot.eight_bit
        absent, overlays = absent_text(snapshot, picture), snapshot.beside.overlays
        known = snapshot.cursor is not None and len(snapshot.history) > 0
        self.plots.show_current(snapshot.cursor.step if snapshot.cursor and known else None, absent)
        before, now = (self._picture, self._history, self._overlays), (picture, snapshot.history, overlays)
        if absent != self._absent or any(a is not b for a, b in zip(before, now, strict=True)):
            self._absent = absent
            self._picture, self._history, self._overlays = now
            self._draw()
        self._request()

    def _draw(self) -> None:
        with QSignalBlocker(self.table.selectionModel()):
            self.params.show(self._picture)
        self.memory.show(self._picture)
        self._show_row()
        self._draw_bar()
        self.legend.show_overlays(tuple(o for o in self._overlays if len(o.coding)))
        self.plots.show_steps(self._picture, self._history or EMPTY_HISTORY, self._overlays)
        self._draw_param()

    def _on_picked(self, at: float) -> None:
        seek = picked_step(self._snapshot, at)
        if seek is not None:
            self.command.emit(seek)

    def _show_row(self) -> None:
        row = self.params.row_of(self._selected)
        selection = self.table.selectionModel()
        with QSignalBlocker(selection):
            if row is None:
                selection.clear()
            else:
                flags = QItemSelectionModel.SelectionFlag
                selection.setCurrentIndex(self.params.index(row, 0), flags.ClearAndSelect | flags.Rows)
        self.table.viewport().update()

    def _draw_bar(self) -> None:
        picture = self._picture
        on = picture is not None and (picture.companion is not None or picture.waiting)
        coded = picture is not None and picture.primary == "8bit"
        with QSignalBlocker(self.codec):
            if picture is not None and (on or coded):
                self.codec.setCurrentText(picture.codec)
        self.codec.setEnabled(not coded)
        self.codec.setToolTip(
            "The run itself has 8-bit state: the toolbar sets its codec."
            if coded
            else "How m and v become codes (C); another one starts anew from here."
        )
        self.button.setText("Stop" if on else "Start")
        self.button.setEnabled(picture is not None)
        second = "float32" if coded else "8-bit"
        self.button.setToolTip(
            "End the second run (L)" if on else f"Run {second} state beside, on the same gradients (L)"
        )
        self.words.setText(self._absent or _words(picture))
        if picture is not None and picture.companion is not None:
            self.words.setToolTip(OPEN_LOOP)

    def _draw_param(self) -> None:
        self.plots.show_param(self._picture, self._selected, self._shown_param())

    def _restyle(self) -> None:
        ground = theme.colours().window
        inks = {lane: theme.ink(theme.LANE_COLOURS[lane], ground).name() for lane in MOMENTS}
        self.key_label.setText(
            "  ".join(f'<b style="color:{ink}">■ {lane}</b>' for lane, ink in inks.items())
        )


def _words(picture: EightBitPicture | None) -> str:
    """What runs, since when, what it costs; why it ended."""
    if picture is None:
        return "No source is open."
    if picture.waiting:
        return "Starts at the end of this step."
    words: list[str] = []
    if picture.companion is None:
        words.append(picture.message)
        if picture.primary == "8bit":
            words.append(f"no second run; this one has 8-bit state ({picture.codec})")
        elif not picture.message:
            words.append("no second run; one takes the memory below and time of each step")
    else:
        first, second = ("8-bit", "float32") if picture.primary == "8bit" else ("float32", "8-bit")
        if picture.primary == "f16":
            first = "half-precision mirror"
        words.append(
            f"{first} and {second} since step {picture.since or 0:,}, on gradients of the first (open loop)"
        )
        if picture.primary == "8bit" and picture.since:
            # A v that had become 0 stays 0 for the float32 run as well, whose ratio nothing limits.
            words.append("from what its codes stood for")
        if picture.drift_step != picture.since:
            words.append(f"costs {fmt.milliseconds(picture.ms)} a step")
    total = picture.drift_total
    if total is not None and total.largest != 0:
        words.append(f"max |Δw| {fmt.number(total.largest, 3)} at {total.param}[{total.index:,}]")
    if picture.coding_total is not None:
        words.append(f"{picture.coding_total.lost:,} v lost to 0")
    text = " · ".join(word for word in words if word)
    return text[:1].upper() + text[1:]
