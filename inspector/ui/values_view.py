"""The values of one param, element by element or as an image, before and after the last dispatch; looked for in."""

from __future__ import annotations

from PySide6.QtCore import QModelIndex, Qt
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QStackedLayout, QVBoxLayout, QWidget

from inspector.addresses import parse_index
from inspector.errors import UsageError
from inspector.layout import Layout
from inspector.optimizers import optimizer_of
from inspector.runtime.commands import SaveValues
from inspector.runtime.snapshots import Snapshot
from inspector.stores import LANES, MOMENTS
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.find_bar import ALL, FindBar
from inspector.ui.kept_lanes import show_kept
from inspector.ui.matrix_pane import MatrixPane
from inspector.ui.moment import absent_text
from inspector.ui.paged_table import PagedTable
from inspector.ui.shortcuts import bind
from inspector.ui.tables import set_widths
from inspector.ui.value_forms import FORMS, SAMPLES
from inspector.ui.values_bar import ValuesBar
from inspector.ui.values_fetch import ValuesFetch
from inspector.ui.values_model import PENDING, ValuesModel
from inspector.ui.view import LazyView
from inspector.ui.widgets import ElidedLabel, ask_file

KEYS = (
    ("Ctrl+Home / End", "the first, the last element"),
    ("Ctrl+C", "copy the selected rows, tab-separated"),
    ("F3, Shift+F3", "look for the next value, the one before"),
    ("N, Shift+N", "the next value that is not finite, the one before"),
    ("C, Shift+C", "the next that the last dispatch changed, the one before"),
    ("M", "as an image; arrows, + − and Home move in it"),
    ("E", "write to a CSV file"),
)
CHOOSE = "Select a param, on the map or in the pipeline, to see its values."


class ValuesView(LazyView):
    """A table as long as the param, of which only a page exists and only what is in sight is fetched."""

    LOCAL_KEYS = KEYS
    PERIOD_S = 0.1

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("values")
        self._layout: Layout | None = None
        self._param = ""
        self._absent = ""
        self._wanted: int | None = None
        """An element to go to as soon as the param is shown."""
        self._going = False
        self.model = ValuesModel()
        self.paged = PagedTable(self.model)
        self.table = self.paged.table
        self._fetch = ValuesFetch(self.paged, self)
        self._fetch.command.connect(self.command)
        self._fetch.said.connect(self._say)
        self.setFocusProxy(self.paged)
        # Whoever goes to the panel has its rows, not what stands above them.
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.table.selectionModel().currentRowChanged.connect(self._on_row_changed)
        self._assemble()
        self._set_widths()

    def _assemble(self) -> None:
        self.bar = ValuesBar()
        self.form_combo, self.index_field = self.bar.form_combo, self.bar.index_field
        self.lane_boxes = self.bar.lane_boxes
        self.bar.form_chosen.connect(self._on_form_changed)
        self.bar.index_entered.connect(self._on_index_entered)
        self.bar.columns_chosen.connect(self._on_columns_changed)
        self.bar.image_wanted.connect(self._on_image_wanted)
        self.bar.find_wanted.connect(self.open_find)
        self.bar.save_wanted.connect(self._choose_file)
        self.find_bar = FindBar()
        self.find_bar.command.connect(self.command)
        self.find_bar.found.connect(self._on_found)
        self.find_bar.left.connect(self._close_find)
        self.find_bar.place = lambda: None if self.current is None else (self._param, self.current)
        self.find_bar.hide()
        self.matrix = MatrixPane()
        self.matrix.command.connect(self.command)
        self.matrix.picked.connect(self._pick)
        inside = QWidget()
        self._stack = QStackedLayout(inside)
        self._stack.addWidget(self.paged)
        self._stack.addWidget(self.matrix)
        self.note = ElidedLabel()
        self.note.setText(CHOOSE)
        self.note.setContentsMargins(theme.GRID, 0, theme.GRID, theme.GRID)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(0)
        outer.addWidget(self.bar)
        outer.addWidget(self.find_bar)
        outer.addWidget(inside, 1)
        outer.addWidget(self.note)
        look_for = self.find_bar.look_for
        bind(
            self,
            (
                ("F3", lambda: look_for(backwards=False)),
                ("Shift+F3", lambda: look_for(backwards=True)),
            ),
            inside=True,
        )
        for where in (self.table, self.matrix.canvas):
            bind(
                where,
                (
                    ("N", lambda: self._find_word("nonfinite", backwards=False)),
                    ("Shift+N", lambda: self._find_word("nonfinite", backwards=True)),
                    ("C", lambda: self._find_word("changed", backwards=False)),
                    ("Shift+C", lambda: self._find_word("changed", backwards=True)),
                    ("M", self.bar.image.toggle),
                    ("E", self._choose_file),
                ),
            )

    # --- from outside

    def select_param(self, name: str) -> None:
        """Show this param from its first element."""
        if name != self._param:
            self._param = name
            self._fetch.show_param(name)
            self._show_param()

    def select_element(self, name: str, index: int) -> None:
        """Show this param with the element in sight, once its values are."""
        if (name, index) == (self._param, self.current):
            return
        self._wanted = index
        if name == self._param and self.model.param is not None:
            self._go_to_wanted()
        else:
            self.select_param(name)

    def _go_to_wanted(self) -> None:
        if self._wanted is not None and self.model.param is not None:
            # A table that has just been given its rows has not laid them out, and would not scroll.
            self.table.doItemsLayout()
            self.go_to(self._wanted)
            self._wanted = None

    def go_to(self, element: int) -> None:
        """Scroll to an element and select it."""
        self._going = True
        self.paged.go_to(element)
        self._going = False
        self.matrix.canvas.select(element)

    @property
    def current(self) -> int | None:
        """The element that is selected, flat."""
        index = self.table.currentIndex()
        return self.model.base + index.row() if index.isValid() and self.model.param is not None else None

    # --- events

    def showEvent(self, event: QShowEvent) -> None:
        """Catch up, and ask for values again."""
        super().showEvent(event)
        self._fetch.seen = True
        self._fetch.soon()

    def hideEvent(self, event: QHideEvent) -> None:
        """Nobody looks: no values have to be read back."""
        super().hideEvent(event)
        self._fetch.stop()

    def _on_form_changed(self, text: str) -> None:
        self.model.set_form(next(f for f in FORMS if f == text))
        self._set_widths()
        self._fetch.soon()

    def _on_columns_changed(self) -> None:
        top, current = self.paged.top, self.current
        self.model.set_lanes(self.bar.lanes)
        self.model.set_moments(self.bar.moments)
        self._set_widths()
        if current is not None:
            self.go_to(current)
        self.paged.scroll_to(top)

    def _on_row_changed(self, now: QModelIndex, _before: QModelIndex) -> None:
        # Only what a person does with the keys or the mouse picks an element; a table that is given the keys makes its
        # first row the current one and selects nothing.
        picked = now.isValid() and self.table.selectionModel().isSelected(now)
        if picked and not self._going and self.table.hasFocus() and self.model.param is not None:
            element = self.model.base + now.row()
            self.matrix.canvas.select(element)
            self.element_selected.emit(self._param, element)

    def _pick(self, element: int) -> None:
        """An element of the image was picked."""
        self.go_to(element)
        self.element_selected.emit(self._param, element)

    def _on_image_wanted(self, wanted: bool) -> None:
        had = self.table.hasFocus() or self.matrix.canvas.hasFocus() or self.bar.image.hasFocus()
        self._fetch.shown = not wanted
        self._stack.setCurrentWidget(self.matrix if wanted else self.paged)
        self.setFocusProxy(self.matrix if wanted else self.paged)
        if had:
            (self.matrix.canvas if wanted else self.table).setFocus()
        self._fetch.soon()

    # --- finding

    def open_find(self) -> None:
        """Show the line in which to type what to look for."""
        self.find_bar.show()
        self.find_bar.query.setFocus()
        self.find_bar.query.selectAll()

    def find_everywhere(self, text: str) -> None:
        """Look for it in all params, from where a person is."""
        self.find_bar.scope.setCurrentText(ALL)
        self.find_bar.look_for(backwards=False, text=text)

    def _close_find(self) -> None:
        self.find_bar.hide()
        (self.matrix.canvas if self.bar.image.isChecked() else self.table).setFocus()

    def _find_word(self, word: str, *, backwards: bool) -> None:
        self.find_bar.show()
        self.find_bar.look_for(backwards=backwards, text=word)

    def _on_found(self, name: str, index: int) -> None:
        self.element_selected.emit(name, index)
        self.select_element(name, index)

    # --- to a file

    def _choose_file(self) -> None:
        param = self.model.param
        if param is None:
            self.note.setText(CHOOSE)
            return
        rows = self.paged.selected_rows()
        start, stop = rows if rows is not None and rows[1] - rows[0] > 1 else (0, param.numel)
        what = f"{fmt.plural(stop - start, 'row')} of {param.name}"
        lanes = self.bar.lanes or LANES
        ask_file(
            self, f"Write {what}", f"{param.name}.csv", "Tables (*.csv)",
            lambda path: self.command.emit(SaveValues(path, param.name, lanes, start, stop - start)),
        )  # fmt: skip

    def _on_index_entered(self, text: str) -> None:
        param = self.model.param
        if param is None:
            self.note.setText(CHOOSE)
            return
        try:
            element = parse_index(text, param)
        except UsageError as error:
            self.note.setText(f"⚠ {error}")
            return
        self.go_to(element)
        self.element_selected.emit(param.name, element)
        self.note.setText(self._summary())

    # --- values

    def _update(self, snapshot: Snapshot) -> None:
        layout = snapshot.plan.layout if snapshot.plan else None
        if layout is not self._layout:
            self._layout = layout
            # What was asked of another source says nothing about this one.
            self._fetch.forget()
            self.matrix.forget()
            self._show_param()
        if show_kept(self.bar.lane_boxes, snapshot):
            self._on_columns_changed()
            self.note.setText(self._summary())
        self.model.show_window(snapshot.values)
        self._show_absence()
        self.find_bar.param = self._param
        self.find_bar.show_snapshot(snapshot)
        self.matrix.show_snapshot(snapshot)
        self._fetch.arrived()

    def _say(self, text: str) -> None:
        self.note.setText(text)

    def _show_absence(self) -> None:
        snapshot = self._snapshot
        absent = absent_text(snapshot, snapshot.values if snapshot else None) if self.model.param else ""
        coming = not absent or (
            snapshot is not None and snapshot.glance is not None and snapshot.glance.of > 0
        )
        self.model.set_pending(PENDING if coming else fmt.NA)
        if absent != self._absent:
            self._absent = absent
            self.note.setText(absent or self._summary())

    def _show_param(self) -> None:
        known = self._layout is not None and self._param in self._layout
        segment = self._layout[self._param] if self._layout is not None and known else None
        self.model.show_param(segment.param if segment else None)
        self.matrix.show_param(segment.param if segment else None)
        self.find_bar.param = self._param
        if self._snapshot is not None:
            self.model.show_window(self._snapshot.values)
        self.table.verticalScrollBar().setValue(0)
        self.paged.set_bar()
        self._set_widths()
        self._absent = ""
        self._go_to_wanted()
        self.note.setText(self._summary())
        self._show_absence()
        self._fetch.soon()

    def _summary(self) -> str:
        param = self.model.param
        if param is None:
            return CHOOSE
        if not param.numel:
            return f"{param.name} is empty: its shape is {fmt.shape(param.shape)}."
        shape, elements = fmt.shape(param.shape), fmt.plural(param.numel, "element")
        kept = " and ".join(lane for lane in MOMENTS if self.bar.lane_boxes[lane].isEnabled())
        state = fmt.STATES[self._layout[param.name].state] if self._layout is not None else ""
        plan = self._snapshot.plan if self._snapshot is not None else None
        in_place = optimizer_of(plan.variant, param).in_place if plan is not None else {}
        held = "".join(f" In place of {lane} stands {what}." for lane, what in in_place.items())
        return f"{param.name}: {shape}, {elements}{f', {kept} in {state}' if kept else ''}.{held} • changed"

    def _set_widths(self) -> None:
        param = self.model.param
        last = max(self.paged.numel - 1, 0)
        multi = fmt.multi_index(last, param.shape) if param else "[0, 0]"
        value = SAMPLES[self.model.form]
        set_widths(
            self.table,
            (f"{last:,}", multi, *(value for _ in range(len(self.model.moments) * len(self.model.lanes)))),
        )
