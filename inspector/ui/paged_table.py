"""A table as long as a param: the scroll bar spans all elements, the table underneath a page of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from PySide6.QtCore import QEvent, QItemSelection, QItemSelectionModel, QObject, QSignalBlocker, Qt, Signal
from PySide6.QtGui import QKeyEvent, QKeySequence, QResizeEvent
from PySide6.QtWidgets import QAbstractItemView, QHBoxLayout, QScrollBar, QWidget

from inspector.ui.tables import dense_table, row_height
from inspector.ui.values_model import PAGE_ROWS, ValuesModel

LARGEST_BAR = 2**31 - 1


class PagedTable(QWidget):
    """Scrolling by wheel, keys or bar turns pages unseen. `moved` fires when other elements are in sight."""

    moved = Signal()
    copy_wanted = Signal()

    def __init__(self, model: ValuesModel, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.model = model
        self.table = dense_table(model, "elements")
        self.table.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.table.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerItem)
        self.table.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.table.verticalScrollBar().valueChanged.connect(self._on_table_scrolled)
        self.table.installEventFilter(self)
        self.setFocusProxy(self.table)
        self.bar = QScrollBar(Qt.Orientation.Vertical)
        self.bar.setObjectName("all-elements")
        self.bar.valueChanged.connect(self._on_bar_moved)
        outer = QHBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(0)
        outer.addWidget(self.table, 1)
        outer.addWidget(self.bar)
        self._rows = self.visible_rows
        """Rows in sight as of the last change of size."""

    @property
    def numel(self) -> int:
        """Elements of the param shown."""
        return self.model.param.numel if self.model.param else 0

    @property
    def visible_rows(self) -> int:
        """Whole rows in sight."""
        return max(self.table.viewport().height() // row_height(), 1)

    @property
    def top(self) -> int:
        """The first element in sight."""
        return self.model.base + self.table.verticalScrollBar().value()

    def selected_rows(self) -> tuple[int, int] | None:
        """The first element that is selected and the one after the last; None where none is."""
        selection: QItemSelection = self.table.selectionModel().selection()
        ranges = [selection.at(i) for i in range(selection.count())] if selection.count() else []
        if not ranges:
            return None
        return self.model.base + min(r.top() for r in ranges), self.model.base + max(
            r.bottom() for r in ranges
        ) + 1

    def go_to(self, element: int) -> None:
        """Bring an element to the middle and make it the current one."""
        if not 0 <= element < self.numel:
            return
        self.scroll_to(element - self.visible_rows // 2)
        self.table.setCurrentIndex(self.model.index(element - self.model.base, 0))

    def scroll_to(self, top: int) -> None:
        """Make `top` the first element in sight, on another page where it has to be."""
        top = max(min(top, self.numel - self.visible_rows), 0)
        if top < self.model.base or top + self.visible_rows > self.model.base + PAGE_ROWS:
            self._turn_page(top)
        self.table.verticalScrollBar().setValue(top - self.model.base)
        self.set_bar()
        self.moved.emit()

    def set_bar(self) -> None:
        """Fit the bar to the param and to the height."""
        with QSignalBlocker(self.bar):
            self.bar.setRange(0, max(self.numel - self.visible_rows, 0) // self._bar_scale)
            self.bar.setPageStep(self.visible_rows)
            self.bar.setValue(self.top // self._bar_scale)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """More or fewer rows in sight; the current one stays among them."""
        super().resizeEvent(event)
        before, self._rows = self._rows, self.visible_rows
        current = self.table.currentIndex()
        row = self.model.base + current.row() - self.top
        if current.isValid() and self._rows <= row < before:
            self.scroll_to(self.top + row - self._rows // 2)
        self.set_bar()
        self.moved.emit()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Keys whose meaning spans the pages: a table by itself knows only the one it holds."""
        if isinstance(event, QKeyEvent) and watched is self.table:
            act = self._meaning(event)
            if act is not None and event.type() == QEvent.Type.ShortcutOverride:
                event.accept()  # before any shortcut of the window
            elif act is not None and event.type() == QEvent.Type.KeyPress:
                act()
                return True
        return super().eventFilter(watched, event)

    def _meaning(self, event: QKeyEvent) -> Callable[[], None] | None:
        if event.matches(QKeySequence.StandardKey.Copy):
            return self.copy_wanted.emit
        if event.matches(QKeySequence.StandardKey.MoveToStartOfDocument):
            return partial(self.go_to, 0)
        if event.matches(QKeySequence.StandardKey.MoveToEndOfDocument):
            return partial(self.go_to, self.numel - 1)
        return None

    @property
    def _bar_scale(self) -> int:
        """Elements one unit of the bar stands for: 1 until an int is too small for them."""
        return max(-(-self.numel // LARGEST_BAR), 1)

    def _on_bar_moved(self, value: int) -> None:
        self.scroll_to(value * self._bar_scale)

    def _on_table_scrolled(self) -> None:
        bar = self.table.verticalScrollBar()
        at_start = bar.value() == 0 and self.model.base > 0
        at_end = bar.value() == bar.maximum() and self.model.base + PAGE_ROWS < self.numel
        if at_start or at_end:
            top = self.top
            current = self.model.base + max(self.table.currentIndex().row(), 0)
            self._turn_page(top)
            with QSignalBlocker(bar):
                bar.setValue(top - self.model.base)
            # The keys go on from where they were.
            index = self.model.index(current - self.model.base, 0)
            keep = QItemSelectionModel.SelectionFlag.NoUpdate
            self.table.selectionModel().setCurrentIndex(index, keep)
        self.set_bar()
        self.moved.emit()

    def _turn_page(self, top: int) -> None:
        """Put `top` in the middle of a page."""
        base = max(min(top - PAGE_ROWS // 2, self.numel - PAGE_ROWS), 0)
        with QSignalBlocker(self.table.verticalScrollBar()):
            self.model.show_param(self.model.param, base)
            self.table.doItemsLayout()
