"""Plots that a person puts together: any metric of any params, several in one plot, and histograms over steps."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

from PySide6.QtCore import QPoint, QRect, QSize, Qt
from PySide6.QtGui import QHideEvent, QKeyEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QMenu, QVBoxLayout, QWidget

from inspector.layout import Layout
from inspector.runtime.commands import SetStats, ViewLines
from inspector.runtime.plotted import MEASURES, OF_RUN
from inspector.runtime.snapshots import Snapshot
from inspector.ui import theme
from inspector.ui.board_bar import BoardBar
from inspector.ui.board_export import save_plot
from inspector.ui.board_model import (
    Board,
    Plot,
    choices,
    needs_counting,
    told,
)
from inspector.ui.board_pane import BoardPane
from inspector.ui.board_plot import NO_CURSORS
from inspector.ui.line_chooser import LineChooser
from inspector.ui.readouts import picked_step
from inspector.ui.view import LazyView
from inspector.ui.widgets import ask_file

KEYS = (
    ("N / L", "a new plot / lines for this one"),
    ("G", "logarithmic or linear y"),
    ("↑ / ↓", "another plot"),
    ("A / B", "put a cursor there: with both, values and differences; Esc takes them away"),
    ("Del / U", "take the plot away / put it back"),
    ("E", "write to a file: PNG, SVG, CSV"),
    ("+ / −, ← / →", "zoom and move"),
    ("Home", "all steps, and follow the run"),
)
CHOOSER = QSize(620, 380)
"""As large as the chooser of lines is where there is room for it."""


class BoardView(LazyView):
    """A column or more of plots over the same steps. Only those in sight have widgets, and are sent anything."""

    LOCAL_KEYS = KEYS
    PERIOD_S = 0.2

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("board")
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName("Plots put together")
        self._layout: Layout | None = None
        self._offered: frozenset[str] = frozenset()
        self._param = ""
        self._asked: ViewLines | None = None
        self.bar = BoardBar()
        self.bar.add.clicked.connect(lambda: self.choose(new=True))
        self.bar.log.clicked.connect(self.toggle_log)
        self.bar.remove.clicked.connect(self.remove)
        self.bar.export.clicked.connect(lambda: self._show_menu(self.bar.export.mapToGlobal(QPoint(0, 20))))
        self.bar.count.clicked.connect(lambda: self.command.emit(SetStats("full")))
        self.pane = BoardPane()
        self.pane.seen_changed.connect(self._ask)
        self.pane.selected.connect(self._on_selected)
        self.pane.ranged.connect(self.moved)
        self.pane.all_wanted.connect(self._on_all_wanted)
        self.pane.picked.connect(self._on_picked)
        self.pane.menu_wanted.connect(self._show_menu)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(0)
        outer.addWidget(self.bar)
        outer.addWidget(self.pane, 1)
        self.chooser = LineChooser(self)
        self.chooser.chosen.connect(self._on_chosen)
        self.chooser.left.connect(self.setFocus)
        self._tell()

    @property
    def board(self) -> Board:
        """The plots that are there."""
        return self.pane.board

    # --- from outside

    def kept_text(self) -> str:
        """The plots."""
        return self.board.to_text()

    def load(self, text: str) -> None:
        """Take up these plots."""
        self.pane.board = Board.from_text(text)
        self.pane.select(0)

    def select_param(self, name: str) -> None:
        """The param that the chooser offers first."""
        self._param = name

    def show_all(self) -> None:
        """Show every step, and follow the run again."""
        self.pane.follow = True
        self.pane.draw()

    def show_range(self, start: float, stop: float) -> None:
        """Bring these steps into view, and follow the run where they are all."""
        first, last = self.pane.extent()
        self.pane.follow = start <= first and stop >= last
        if not self.pane.follow:
            self.pane.range = start, stop
        if self.isVisible():
            self.pane.draw()

    # --- the plots

    def choose(self, *, new: bool = False) -> None:
        """Choose lines, for a plot of their own or for the current one."""
        plot = self.board.plot
        self._offer()
        self._place_chooser()
        self.chooser.open(can_add=not new and plot is not None and plot.fall is None, param=self._param)

    def toggle_log(self) -> None:
        """The y axis of the current plot as powers of ten, or as it is."""
        plot = self.board.plot
        if plot is not None and plot.fall is None:
            self.board.change(replace(plot, log=not plot.log))
        self._changed()

    def remove(self) -> None:
        """Take the current plot away."""
        self.board.remove()
        self._changed()

    def _take_back(self) -> None:
        if self.board.take_back():
            self._changed()

    def _on_chosen(self, plot: Plot, new: bool) -> None:
        current = self.board.plot
        if new or current is None or current.fall is not None:
            if not self.board.add(plot):
                self.chooser.words.setText(
                    "There are as many plots as there may be: take one away first (Del)."
                )
                return
        else:
            self.board.change(current.with_lines(plot.lines))
        self.chooser.hide()
        self.setFocus()
        self._changed()

    def _changed(self) -> None:
        self.pane.select(self.board.current)

    # --- drawing

    def _on_new_run(self) -> None:
        self.pane.follow = True

    def _update(self, snapshot: Snapshot) -> None:
        self.pane.show_snapshot(snapshot)
        if self.chooser.isVisible():
            self._offer()
        self._tell()

    def _offer(self) -> None:
        snapshot = self._snapshot
        layout = snapshot.plan.layout if snapshot is not None and snapshot.plan is not None else None
        names = frozenset(snapshot.history.series) if snapshot is not None else frozenset()
        if layout is not self._layout or names != self._offered or not self._offered:
            self._layout, self._offered = layout, names
            first = [name for name in OF_RUN if name not in MEASURES]
            of_run = [*first, *sorted(n for n in names if n not in OF_RUN)]
            self.chooser.offer(choices(of_run), [s.name for s in layout] if layout is not None else [])

    def _tell(self) -> None:
        """What is to be known of the plots as a whole, and what may be done with the current one."""
        plot, snapshot = self.board.plot, self._snapshot
        self.bar.log.setEnabled(plot is not None and plot.fall is None)
        self.bar.log.setChecked(plot is not None and plot.log)
        for button in (self.bar.remove, self.bar.export):
            button.setEnabled(plot is not None)
        counting = snapshot is not None and any(needs_counting(p, snapshot) for p in self.board.plots)
        self.bar.count.setVisible(counting)
        if snapshot is not None:
            self.bar.say(told(self.board, snapshot, self.pane.cursors))

    def _on_selected(self) -> None:
        self._tell()
        if not self.chooser.isVisible():
            self.setFocus()

    def _ask(self) -> None:
        """Say what is wanted: what is plotted, for as long as it is there, and what of it is in sight."""
        wanted = self.board.wanted(self.pane.seen() if self.isVisible() else ())
        # Nobody has looked yet: nothing has to be kept.
        if wanted != self._asked and (self.isVisible() or self._asked is not None):
            self._asked = wanted
            self.command.emit(wanted)

    def _place_chooser(self) -> None:
        """Below the bar, over whatever of the window it needs: the panel itself may be too low for a list."""
        window = self.window()
        if self.chooser.parentWidget() is not window:
            self.chooser.setParent(window)
        room = window.rect().adjusted(*(2 * theme.GRID,) * 2, *(-2 * theme.GRID,) * 2)
        place = QRect(
            self.mapTo(window, QPoint(2 * theme.GRID, self.bar.height())), CHOOSER.boundedTo(room.size())
        )
        place.moveRight(min(place.right(), room.right()))
        place.moveBottom(min(place.bottom(), room.bottom()))
        self.chooser.setGeometry(place)

    # --- files

    def _show_menu(self, at: QPoint) -> None:
        if self.board.plot is None:
            return
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        for kind, words in (("png", "Picture (PNG)…"), ("svg", "Drawing (SVG)…"), ("csv", "Numbers (CSV)…")):
            menu.addAction(words, partial(self._ask_file, kind))
        menu.popup(at)

    def _ask_file(self, kind: str) -> None:
        # A plot that was scrolled out of sight has no picture; by the time that a file is chosen it has.
        self.pane.select(self.board.current)
        ask_file(self, "Write the plot", f"plot.{kind}", f"{kind.upper()} (*.{kind})", self.save)

    def save(self, path: str) -> None:
        """Write the current plot, as the ending of `path` says, and tell."""
        cell = self.pane.cell_of_current()
        if cell is None:
            self.bar.say("No plot is in sight: make the panel larger, and write it then.")
            return
        problem = save_plot(cell, self._snapshot, path)
        self.bar.say(problem or f"Written to {path}.")

    # --- events

    def showEvent(self, event: QShowEvent) -> None:
        """Ask for what is in sight."""
        super().showEvent(event)
        self.pane.refresh()

    def hideEvent(self, event: QHideEvent) -> None:
        """Nobody looks: nothing has to be sent. What is plotted goes on being kept."""
        super().hideEvent(event)
        self.chooser.hide()
        self._ask()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The chooser stays inside."""
        super().resizeEvent(event)
        if self.chooser.isVisible():
            self._place_chooser()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """See LOCAL_KEYS."""
        acts = {
            Qt.Key.Key_N: lambda: self.choose(new=True), Qt.Key.Key_L: self.choose, Qt.Key.Key_G: self.toggle_log,
            Qt.Key.Key_Down: lambda: self.pane.select(self.board.current + 1),
            Qt.Key.Key_Up: lambda: self.pane.select(self.board.current - 1),
            Qt.Key.Key_A: lambda: self.put_cursor(0), Qt.Key.Key_B: lambda: self.put_cursor(1),
            Qt.Key.Key_Delete: self.remove, Qt.Key.Key_U: self._take_back, Qt.Key.Key_Home: self._on_all_wanted,
            Qt.Key.Key_E: lambda: self._show_menu(self.mapToGlobal(self.rect().center())),
            Qt.Key.Key_Escape: self._clear_cursors,
        }  # fmt: skip
        plain = not event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier
        act = acts.get(Qt.Key(event.key())) if plain else None
        if act is not None:
            act()
        elif not self._zoomed(event.key()):
            super().keyPressEvent(event)

    def put_cursor(self, which: int) -> None:
        """Put one of the two cursors where the mouse is, else at the step on show."""
        self.pane.put_cursor(which)
        self._tell()

    def _zoomed(self, key: int) -> bool:
        (start, stop), width = self.pane.range, self.pane.range[1] - self.pane.range[0]
        edges = {
            Qt.Key.Key_Plus: (0.25, -0.25), Qt.Key.Key_Equal: (0.25, -0.25), Qt.Key.Key_Minus: (-0.5, 0.5),
            Qt.Key.Key_Left: (-0.125, -0.125), Qt.Key.Key_Right: (0.125, 0.125),
        }.get(Qt.Key(key))  # fmt: skip
        if edges is not None:
            start, stop = start + edges[0] * width, stop + edges[1] * width
            self.show_range(start, stop)
            self.moved.emit(start, stop)
        return edges is not None

    def _clear_cursors(self) -> None:
        self.pane.cursors = NO_CURSORS
        self.pane.draw()
        self._tell()

    def _on_all_wanted(self) -> None:
        self.show_all()
        self.moved.emit(-math.inf, math.inf)

    def _on_picked(self, at: float) -> None:
        seek = picked_step(self._snapshot, at)
        if seek is not None:
            self.command.emit(seek)
