"""The plots of the board that are in sight: as many widgets as there is room for, over the same steps."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from functools import partial

from PySide6.QtCore import QPoint, Qt, QTimer, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QScrollBar, QWidget

from inspector.history import History
from inspector.line_store import Waterfall
from inspector.runtime.snapshots import Mark, Snapshot
from inspector.ui import theme
from inspector.ui.board_model import Board, absence
from inspector.ui.board_plot import NO_CURSORS, BoardPlot, Cursors
from inspector.ui.readouts import bookmark_mark

LEAST_HEIGHT, COLUMN_WIDTH = 120, 400
"""Of a plot; more columns where there is room."""
DRAW_S = 0.003
"""Painting what was drawn takes about as long again."""


class BoardPane(QWidget):
    """Scrolls through the plots of a board. A plot out of sight has no widget, and costs nothing here.

    `seen_changed` is told when others come into sight, `selected` when another plot is the current one.
    """

    seen_changed = Signal()
    selected = Signal()
    ranged = Signal(float, float)
    all_wanted = Signal()
    picked = Signal(float)
    menu_wanted = Signal(QPoint)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.board = Board()
        self.cells: list[BoardPlot] = []
        self.cursors: Cursors = NO_CURSORS
        self.range = (0.5, 1.5)
        self.follow = True
        self._snapshot: Snapshot | None = None
        self._hovered: float | None = None
        self._waiting: deque[tuple[int, BoardPlot]] = deque()
        """Plots in sight that are still to be drawn."""
        self._columns = self._rows = 0
        self._marks: tuple[Mark, ...] = ()
        self._marks_of: tuple[object, object] = (None, None)
        self._grid = QGridLayout()
        self._grid.setContentsMargins(2, 0, 2, 0)
        self._grid.setSpacing(2)
        self.scroll_bar = QScrollBar(Qt.Orientation.Vertical)
        self.scroll_bar.setAccessibleName("Plots above and below")
        self.scroll_bar.valueChanged.connect(self._on_scrolled)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        row.addLayout(self._grid, 1)
        row.addWidget(self.scroll_bar)
        # Several changes at once are drawn once, and none while a chart handles the mouse.
        self._soon = QTimer(self)
        self._soon.setSingleShot(True)
        self._soon.timeout.connect(self.refresh)
        self._turn = QTimer(self)
        self._turn.setSingleShot(True)
        self._turn.timeout.connect(self._draw_next)
        theme.changes().changed.connect(self._soon.start)

    # --- which are in sight

    def seen(self) -> range:
        """The places of the plots in sight."""
        first = self.scroll_bar.value() * max(self._columns, 1)
        return range(first, min(first + self._columns * self._rows, len(self.board.plots)))

    def _shown(self) -> Iterator[tuple[int, BoardPlot]]:
        return zip(self.seen(), self.cells, strict=False)

    def cell_of_current(self) -> BoardPlot | None:
        """The widget of the current plot, which is brought into sight; None where nothing is seen."""
        self.select(self.board.current)
        return next((cell for i, cell in self._shown() if i == self.board.current), None)

    def select(self, index: int) -> None:
        """Make a plot the current one, and bring it into sight."""
        self.board.select(index)
        if self.isVisible():
            self.lay_out()
        row, top = self.board.current // max(self._columns, 1), self.scroll_bar.value()
        if not top <= row < top + self._rows:
            self.scroll_bar.setValue(row if row < top else row - self._rows + 1)
        self.refresh()
        self.selected.emit()

    def lay_out(self) -> None:
        """Make room for as many plots as fit, none smaller than can be read."""
        count = len(self.board.plots)
        columns = min(max(self.width() // COLUMN_WIDTH, 1), max(count, 1))
        rows = min(max(self.height() // LEAST_HEIGHT, 1), max(-(-count // columns), 1))
        below = max(-(-count // columns) - rows, 0)
        self.scroll_bar.setRange(0, below)
        self.scroll_bar.setPageStep(rows)
        self.scroll_bar.setVisible(below > 0)
        until = time.perf_counter() + DRAW_S
        made = len(self.cells)
        while len(self.cells) < min(columns * rows, count):
            if time.perf_counter() > until and len(self.cells) > made:
                # The others come in later turns: one takes a few milliseconds to make.
                self._soon.start()
                break
            self.cells.append(self._made_cell())
        if (columns, rows) == (self._columns, self._rows) and made == len(self.cells):
            return
        self._columns, self._rows = columns, rows
        for i, cell in enumerate(self.cells):
            self._grid.removeWidget(cell)
            if i < columns * rows:
                self._grid.addWidget(cell, i // columns, i % columns)
        for i in range(max(self._grid.rowCount(), self._grid.columnCount())):
            self._grid.setRowStretch(i, 1 if i < rows else 0)
            self._grid.setColumnStretch(i, 1 if i < columns else 0)

    def _made_cell(self) -> BoardPlot:
        cell = BoardPlot(self)
        cell.hovered.connect(self._on_hovered)
        cell.ranged.connect(self._on_ranged)
        cell.all_wanted.connect(self.all_wanted)
        cell.picked.connect(self.picked)
        cell.chosen.connect(partial(self._on_chosen, cell))
        cell.menu_wanted.connect(partial(self._on_menu, cell))
        return cell

    # --- drawing

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Draw this moment."""
        self._snapshot = snapshot
        if (snapshot.marks, snapshot.bookmarks) != self._marks_of:
            self._marks_of = snapshot.marks, snapshot.bookmarks
            self._marks = snapshot.marks + tuple(bookmark_mark(mark) for mark in snapshot.bookmarks)
        self.draw()

    def refresh(self) -> None:
        """Give each widget its plot again; widgets are made when somebody looks."""
        if not self.isVisible():
            return
        self.lay_out()
        seen = self.seen()
        for i, cell in enumerate(self.cells):
            cell.setVisible(i < len(seen))
            if i < len(seen):
                last = i + self._columns >= len(seen)
                cell.show_plot(self.board.plots[seen[i]], chosen=seen[i] == self.board.current, axis=last)
        self.seen_changed.emit()
        self.draw()

    def draw(self) -> None:
        """Draw what is known of the plots in sight."""
        snapshot = self._snapshot
        if not self.isVisible():
            return
        if snapshot is None:
            for _, cell in self._shown():
                cell.say(absence(cell.plot, None))
            return
        if self.follow:
            first, last = self.extent()
            room = max((last - first) * 0.01, 0.5)
            self.range = first - room, last + room
        # Those that wait already go first, so that no plot is left out while moments come faster than they are drawn.
        shown = list(self._shown())
        waiting = [each for each in self._waiting if each in shown]
        self._waiting = deque(waiting + [each for each in shown if each not in waiting])
        self._draw_next()

    def _draw_next(self) -> None:
        """Draw as many of the plots as take no longer than a part of a frame; the others in later turns of the event
        loop, so that many plots never keep it busy."""
        until = time.perf_counter() + DRAW_S
        while self._waiting and (snapshot := self._snapshot) is not None:
            i, cell = self._waiting.popleft()
            if i >= len(self.board.plots) or cell.plot != self.board.plots[i]:
                # It was given another plot since, and waits again for that.
                continue
            fall = None if cell.plot.fall is None else snapshot.plotted.falls.get(cell.plot.fall)
            cell.show_histories(snapshot.history, snapshot.plotted.lines, fall)
            cell.show_steps(*self.range)
            cell.show_moment(self.on_show(), self._marks, self.cursors)
            cell.say(absence(cell.plot, snapshot))
            self._read_out(cell)
            if time.perf_counter() > until:
                break
        if self._waiting:
            self._turn.start()

    def extent(self) -> tuple[float, float]:
        """The first and last step of the run, or of what is in sight."""
        snapshot = self._snapshot
        if snapshot is None:
            return 0.5, 1.5
        plotted = snapshot.plotted
        known: list[History | Waterfall] = [
            snapshot.history,
            *plotted.lines.values(),
            *plotted.falls.values(),
        ]
        ends = [(float(h.first[0]), float(h.first[-1] + h.stride - 1)) for h in known if len(h)]
        return (min(a for a, _ in ends), max(b for _, b in ends)) if ends else (0.5, 1.5)

    def on_show(self) -> int | None:
        """The step at the cursor of the run."""
        cursor = self._snapshot.cursor if self._snapshot is not None else None
        return None if cursor is None else cursor.step

    def read_out(self) -> None:
        """Write the values into the legends."""
        for _, cell in self._shown():
            self._read_out(cell)

    def _read_out(self, cell: BoardPlot) -> None:
        step = self.on_show()
        cell.read_out(None if step is None else float(step), self._hovered, self.cursors)

    def put_cursor(self, which: int) -> None:
        """Put one of the two cursors where the mouse is, else at the step on show."""
        at = self._hovered if self._hovered is not None else self.on_show()
        if at is not None:
            a, b = self.cursors
            self.cursors = (float(round(at)), b) if which == 0 else (a, float(round(at)))
            self.draw()

    # --- events

    def resizeEvent(self, event: QResizeEvent) -> None:
        """As many plots as there is room for."""
        super().resizeEvent(event)
        self.refresh()

    def _on_scrolled(self) -> None:
        self._soon.start()

    def _on_hovered(self, step: float | None) -> None:
        self._hovered = step
        self.read_out()

    def _on_ranged(self, start: float, stop: float) -> None:
        self.follow, self.range = False, (start, stop)
        self.draw()
        self.ranged.emit(start, stop)

    def _on_chosen(self, cell: BoardPlot) -> None:
        at = next((i for i, each in self._shown() if each is cell), None)
        if at is not None and at != self.board.current:
            self.board.select(at)
            self._soon.start()
        self.selected.emit()

    def _on_menu(self, cell: BoardPlot, at: QPoint) -> None:
        self._on_chosen(cell)
        self.menu_wanted.emit(at)
