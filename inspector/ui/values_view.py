"""The values of one param, element by element, before and after the last dispatch."""

from __future__ import annotations

from PySide6.QtCore import QItemSelection, Qt, QTimer
from PySide6.QtGui import QGuiApplication, QHideEvent, QShowEvent
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QHBoxLayout,
    QLineEdit,
    QVBoxLayout,
    QWidget,
)

from inspector.addresses import parse_index
from inspector.errors import UsageError
from inspector.layout import Layout
from inspector.runtime.commands import ViewValues
from inspector.runtime.snapshots import Snapshot
from inspector.stores import LANES, Lane
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.kept_lanes import show_kept
from inspector.ui.moment import absent_text
from inspector.ui.paged_table import PagedTable
from inspector.ui.tables import set_widths
from inspector.ui.values_model import FORMS, PENDING, ValuesModel
from inspector.ui.view import LazyView
from inspector.ui.widgets import ElidedLabel

FETCH_AFTER_MS = 30
MARGIN_ROWS = 64
"""Fetched beyond either edge, so that a turn of the wheel shows values at once."""
MOST_COPIED = 100_000
KEYS = (
    ("Ctrl+Home / End", "the first, the last element"),
    ("Ctrl+C", "copy the selected rows, tab-separated"),
)
CHOOSE = "Select a param, on the map or in the pipeline, to see its values."
SAMPLES = {
    "decimal": "• −8.8888888e−38",
    "hex": "• 3f800000 ",
    "bits": "• 0 00000000 00000000000000000000000 ",
}


class ValuesView(LazyView):
    """A table as long as the param, of which only a page exists and only what is in sight is fetched."""

    LOCAL_KEYS = KEYS
    PERIOD_S = 0.1

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("values")
        self._layout: Layout | None = None
        self._param = ""
        self._requested: ViewValues | None = None
        self._copy: tuple[int, int] | None = None
        self._absent = ""
        self._wanted: int | None = None
        """An element to go to as soon as the param is shown."""
        self.model = ValuesModel()
        self.paged = PagedTable(self.model)
        self.table = self.paged.table
        self._fetch_timer = QTimer(self, singleShot=True, interval=FETCH_AFTER_MS)
        self._fetch_timer.timeout.connect(self._fetch)
        self.paged.moved.connect(self._fetch_timer.start)
        self.paged.copy_wanted.connect(self.copy_selection)
        self.setFocusProxy(self.paged)
        self.note = ElidedLabel()
        self.note.setText(CHOOSE)
        self.note.setContentsMargins(theme.GRID, 0, theme.GRID, theme.GRID)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(theme.GRID)
        outer.addLayout(self._tool_row())
        outer.addWidget(self.paged, 1)
        outer.addWidget(self.note)
        self._set_widths()

    def _tool_row(self) -> QHBoxLayout:
        row = QHBoxLayout()
        row.setContentsMargins(theme.GRID, theme.GRID, theme.GRID, 0)
        self.form_combo = QComboBox()
        self.form_combo.addItems(FORMS)
        self.form_combo.setToolTip("How float32 values are written: shortest decimal, hex, or their bits.")
        self.form_combo.currentTextChanged.connect(self._on_form_changed)
        self.index_field = QLineEdit()
        self.index_field.setPlaceholderText("go to: 1234 or 12, 3")
        self.index_field.setToolTip("A flat index, or one index a dimension. Enter goes there.")
        self.index_field.setAccessibleName("go to index")
        self.index_field.returnPressed.connect(self._on_index_entered)
        row.addWidget(self.form_combo)
        row.addWidget(self.index_field, 1)
        self.lane_boxes: dict[Lane, QCheckBox] = {}
        for lane in LANES:
            box = QCheckBox(lane)
            box.setChecked(True)
            box.setToolTip(f"Show the columns of {lane}.")
            box.toggled.connect(self._on_lanes_changed)
            self.lane_boxes[lane] = box
            row.addWidget(box)
        return row

    # --- from outside

    def select_param(self, name: str) -> None:
        """Show this param from its first element."""
        if name != self._param:
            self._param = name
            self._copy = None
            self._show_param()

    def select_element(self, name: str, index: int) -> None:
        """Show this param with the element in sight, once its values are."""
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
        self.paged.go_to(element)

    # --- events

    def showEvent(self, event: QShowEvent) -> None:
        """Catch up, and ask for values again."""
        super().showEvent(event)
        self._fetch_timer.start()

    def hideEvent(self, event: QHideEvent) -> None:
        """Nobody looks: no values have to be read back."""
        super().hideEvent(event)
        self._fetch_timer.stop()
        self._requested = None
        self.command.emit(ViewValues(None))

    def _on_form_changed(self, text: str) -> None:
        self.model.set_form(next(f for f in FORMS if f == text))
        self._set_widths()

    def _on_lanes_changed(self) -> None:
        top = self.paged.top
        chosen = (lane for lane, box in self.lane_boxes.items() if box.isChecked() and box.isEnabled())
        self.model.set_lanes(tuple(chosen))
        self._set_widths()
        self.paged.scroll_to(top)

    def _on_index_entered(self) -> None:
        param = self.model.param
        if param is None:
            self.note.setText(CHOOSE)
            return
        try:
            element = parse_index(self.index_field.text(), param)
        except UsageError as error:
            self.note.setText(f"⚠ {error}")
            return
        self.go_to(element)
        self.note.setText(self._summary())

    # --- values

    def _update(self, snapshot: Snapshot) -> None:
        layout = snapshot.plan.layout if snapshot.plan else None
        if layout is not self._layout:
            self._layout = layout
            # What was asked of another source says nothing about this one.
            self._requested = None
            self._show_param()
        if show_kept(self.lane_boxes, snapshot):
            self._on_lanes_changed()
        self.model.show_window(snapshot.values)
        self._show_absence()
        if self._copy and self.model.has(*self._copy):
            self._put_on_clipboard(*self._copy)

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
        if self._snapshot is not None:
            self.model.show_window(self._snapshot.values)
        self.table.verticalScrollBar().setValue(0)
        self.paged.set_bar()
        self._set_widths()
        self._absent = ""
        self._go_to_wanted()
        self.note.setText(self._summary())
        self._show_absence()
        self._fetch_timer.start()

    def _summary(self) -> str:
        param = self.model.param
        if param is None:
            return CHOOSE
        if not param.numel:
            return f"{param.name} is empty: its shape is {fmt.shape(param.shape)}."
        shape, elements = fmt.shape(param.shape), fmt.plural(param.numel, "element")
        state = fmt.STATES[self._layout[param.name].state] if self._layout is not None else ""
        return f"{param.name}: {shape}, {elements}, m and v in {state}. • changed"

    def _fetch(self) -> None:
        """Ask for what is in sight, once scrolling rests."""
        if not self.isVisible():
            return
        if not self.paged.numel:
            wanted = ViewValues(None)
        elif self._copy:
            wanted = ViewValues(self._param, self._copy[0], self._copy[1] - self._copy[0])
        else:
            start = self.paged.top
            stop = min(start + self.paged.visible_rows + 1, self.paged.numel)
            if self._covers(start, stop):
                return
            start, stop = max(start - MARGIN_ROWS, 0), min(stop + MARGIN_ROWS, self.paged.numel)
            wanted = ViewValues(self._param, start, stop - start)
        if wanted != self._requested:
            self._requested = wanted
            self.command.emit(wanted)

    def _covers(self, start: int, stop: int) -> bool:
        """True where the newest request takes in elements [start, stop)."""
        asked = self._requested
        if asked is None or asked.param != self._param:
            return False
        return asked.start <= start and stop <= asked.start + asked.count

    def _set_widths(self) -> None:
        param = self.model.param
        last = max(self.paged.numel - 1, 0)
        multi = fmt.multi_index(last, param.shape) if param else "[0, 0]"
        value = SAMPLES[self.model.form]
        set_widths(self.table, (f"{last:,}", multi, *(value for _ in range(2 * len(self.model.lanes)))))

    # --- copying

    def copy_selection(self) -> None:
        """Put the selected rows on the clipboard as tab-separated text, fetching what is not at hand."""
        selection: QItemSelection = self.table.selectionModel().selection()
        ranges = [selection.at(i) for i in range(selection.count())] if selection.count() else []
        if not ranges:
            return
        start = self.model.base + min(r.top() for r in ranges)
        stop = self.model.base + max(r.bottom() for r in ranges) + 1
        if stop - start > MOST_COPIED:
            self.note.setText(f"⚠ At most {MOST_COPIED:,} rows can be copied: select fewer.")
            return
        if self.model.has(start, stop):
            self._put_on_clipboard(start, stop)
            return
        self._copy = (start, stop)
        self.note.setText(f"Fetching {stop - start:,} rows to copy {PENDING}")
        self._fetch()

    def _put_on_clipboard(self, start: int, stop: int) -> None:
        self._copy = self._requested = None  # back to what is in sight
        columns = range(self.model.columnCount())
        titles = [str(self.model.headerData(c, Qt.Orientation.Horizontal)) for c in columns]
        lines = ["\t".join(titles)]
        lines += ["\t".join(self.model.plain(e, c) for c in columns) for e in range(start, stop)]
        QGuiApplication.clipboard().setText("\n".join(lines) + "\n")
        self.note.setText(f"Copied {fmt.plural(stop - start, 'row')}.")
        self._fetch_timer.start()
