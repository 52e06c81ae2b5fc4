"""One element under the microscope: its update line by line beside the WGSL, where it is worked on, and over steps."""

from __future__ import annotations

from PySide6.QtCore import QModelIndex, QStringListModel, Qt
from PySide6.QtGui import QGuiApplication, QHideEvent, QShowEvent
from PySide6.QtWidgets import (
    QCompleter,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QSplitter,
    QStackedLayout,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from inspector.addresses import FORMS, address, parse_address
from inspector.errors import UsageError
from inspector.layout import Layout
from inspector.runtime.commands import Seek, ViewElement
from inspector.runtime.microscope import ElementPicture
from inspector.runtime.snapshots import Snapshot
from inspector.shader_lines import UpdateCode, update_code
from inspector.ui import theme
from inspector.ui.microscope_code import CodePane
from inspector.ui.microscope_lines import FORMULA, SAMPLES, LinesModel
from inspector.ui.microscope_model import (
    CHOOSE,
    bindings_text,
    rows,
    stage_text,
    trail_text,
    where_text,
    wrote_differently,
)
from inspector.ui.microscope_trail import TrailPlot
from inspector.ui.shortcuts import bind
from inspector.ui.tables import dense_table, set_widths
from inspector.ui.view import LazyView
from inspector.ui.widgets import ElidedLabel

KEYS = (
    ("[ / ]", "the element before or after"),
    ("A", "type an address: name[12, 3]"),
    ("Ctrl+C", "copy the lines, tab-separated"),
)


class MicroscopeView(LazyView):
    """The worker is asked for one element while this is seen; any view may pick another."""

    LOCAL_KEYS = KEYS
    PERIOD_S = 0.1

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("microscope")
        self._layout: Layout | None = None
        self._element: tuple[str, int] | None = None
        self._asked: tuple[str, int] | None = None
        self._shown: ElementPicture | None = None
        self._code: tuple[object, UpdateCode] | None = None
        self._problem = ""
        self.model = LinesModel()
        self.table = dense_table(self.model, "microscope-lines")
        self.table.setAccessibleName("lines of the update")
        set_widths(self.table, SAMPLES, grow=FORMULA)
        self.table.selectionModel().currentRowChanged.connect(self._on_row_changed)
        self.code = CodePane()
        self.trail = TrailPlot()
        self.trail.step_wanted.connect(lambda step: self.command.emit(Seek(step)))
        self.trail_note = ElidedLabel()
        self.trail_note.setContentsMargins(theme.GRID, 0, theme.GRID, 0)
        self.where = ElidedLabel()
        self.stage = ElidedLabel()
        for label in (self.where, self.stage):
            label.setContentsMargins(theme.GRID, 1, theme.GRID, 1)
        self._assemble()
        self.setFocusProxy(self.address)
        for where in (self.table, self.trail):
            bind(
                where,
                (
                    ("[", lambda: self.step_element(-1)),
                    ("]", lambda: self.step_element(1)),
                    ("A", self._type_address),
                    ("Ctrl+C", self.copy),
                ),
            )
        theme.changes().changed.connect(self._colour_stage)
        self._say_empty()

    def _assemble(self) -> None:
        self.address = QLineEdit()
        self.address.setObjectName("microscope-address")
        self.address.setAccessibleName("address of the element")
        self.address.setPlaceholderText("name[12, 3]")
        self.address.setToolTip(f"Which element: {FORMS}. Enter goes there.")
        self.address.returnPressed.connect(self._on_address)
        self._names = QStringListModel(self)
        completer = QCompleter(self._names, self)
        completer.setFilterMode(Qt.MatchFlag.MatchContains)
        completer.setCaseSensitivity(Qt.CaseSensitivity.CaseInsensitive)
        self.address.setCompleter(completer)
        top = QHBoxLayout()
        top.setContentsMargins(theme.GRID, theme.GRID, theme.GRID, 0)
        top.addWidget(self.address, 2)
        self.neighbours = []
        for text, move, tip in (("‹", -1, "The element before ([)"), ("›", 1, "The element after (])")):
            button = QToolButton()
            button.setText(text)
            button.setToolTip(tip)
            button.setAccessibleName(tip)
            button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
            button.clicked.connect(lambda _checked=False, move=move: self.step_element(move))
            self.neighbours.append(button)
            top.addWidget(button)
        top.addWidget(self.stage, 5)
        over_steps = QWidget()
        column = QVBoxLayout(over_steps)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.trail_note)
        column.addWidget(self.trail, 1)
        self.splitter = QSplitter(Qt.Orientation.Horizontal)
        for widget, share in ((self.table, 10), (self.code, 9), (over_steps, 7)):
            self.splitter.addWidget(widget)
            self.splitter.setStretchFactor(self.splitter.count() - 1, share)
        self.splitter.setSizes([560, 230, 180])
        self.empty = QLabel(CHOOSE)
        self.empty.setWordWrap(True)
        self.empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.empty.setContentsMargins(16, 8, 16, 8)
        inside = QWidget()
        self._stack = QStackedLayout(inside)
        self._stack.addWidget(self.empty)
        self._stack.addWidget(self.splitter)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(0)
        outer.addLayout(top)
        outer.addWidget(self.where)
        outer.addWidget(inside, 1)

    # --- which element

    def select_param(self, name: str) -> None:
        """Another param: its first element; the same one stays where it is."""
        if name and (self._element is None or self._element[0] != name):
            self.select_element(name, 0)

    def select_element(self, name: str, index: int) -> None:
        """Look at this element."""
        if (name, index) != self._element:
            self._element, self._problem = (name, index), ""
            self.trail.picked = None
            self._show_address()
            self._ask()

    def step_element(self, by: int) -> None:
        """The element so many after this one in its param."""
        if self._element is None or self._layout is None or self._element[0] not in self._layout:
            return
        name, index = self._element
        target = index + by
        if 0 <= target < self._layout[name].numel:
            self.element_selected.emit(name, target)
            self.select_element(name, target)

    def _on_address(self) -> None:
        if self._layout is None:
            return
        try:
            found = parse_address(
                self.address.text(), self._layout, self._element[0] if self._element else ""
            )
            if not self._layout[found[0]].numel:
                raise UsageError(f"{found[0]} is empty: it has no element to look at.")
        except UsageError as error:
            self._problem = f"⚠ {error}"
            self._say_stage()
            return
        self._problem = ""
        self.element_selected.emit(*found)
        self._element = None
        self.select_element(*found)
        self._say_stage()

    def _type_address(self) -> None:
        self.address.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.address.selectAll()

    def _show_address(self) -> None:
        if self._element is None or self._layout is None or self._element[0] not in self._layout:
            self.empty.setText(CHOOSE)
            return
        self.address.setText(address(self._layout[self._element[0]].param, self._element[1]))
        # Until the first answer, which a step of a large model may hold up.
        self.empty.setText(f"Looking at {self.address.text()} …")
        self.address.setCursorPosition(0)

    # --- asking

    def showEvent(self, event: QShowEvent) -> None:
        """Catch up, and ask again."""
        super().showEvent(event)
        self._ask()

    def hideEvent(self, event: QHideEvent) -> None:
        """Nobody looks: nothing has to be worked out."""
        super().hideEvent(event)
        self._asked = None
        self.command.emit(ViewElement(None))

    def _ask(self) -> None:
        if self.isVisible() and self._element is not None and self._element != self._asked:
            self._asked = self._element
            self.command.emit(ViewElement(*self._element))

    # --- showing

    def _update(self, snapshot: Snapshot) -> None:
        layout = snapshot.plan.layout if snapshot.plan else None
        if layout is not self._layout:
            self._layout = layout
            self._names.setStringList([s.name for s in layout] if layout else [])
            self._show_address()
        self._ask()
        picture = snapshot.closeup.element
        if picture is not None and (picture.param, picture.index) != self._element:
            # The answer to an older question.
            return
        if picture is self._shown:
            return
        self._shown = picture
        if picture is None:
            self._say_empty()
            return
        self._show(picture)

    def _show(self, picture: ElementPicture) -> None:
        place = picture.place
        self.where.setText(where_text(picture))
        self.where.setToolTip(f"{where_text(picture)}\n{bindings_text(picture)}")
        self._say_stage()
        row = self.table.currentIndex().row()
        self.model.show_rows(rows(picture))
        if self.model.rows and not self.table.currentIndex().isValid():
            # The gradient as clipped: the first line of the update itself.
            self.table.selectRow(row if 0 <= row < len(self.model.rows) else min(6, len(self.model.rows) - 1))
        key = (picture.plan, place.dispatch.index if place is not None else None)
        if self._code is None or self._code[0] != key:
            code = update_code(picture.plan, place.dispatch) if place is not None else None
            self._code = (key, code) if code is not None else None
        self._show_code()
        self.trail.show_trail(picture.trail, picture.step)
        self.trail_note.setText(trail_text(picture.trail))
        self._stack.setCurrentWidget(self.splitter)

    def _show_code(self) -> None:
        at = self.table.currentIndex().row()
        name = self.model.rows[at].name.removesuffix(" kept") if 0 <= at < len(self.model.rows) else ""
        self.code.show_code(self._code[1] if self._code is not None else None, name)

    def _on_row_changed(self, _now: QModelIndex, _before: QModelIndex) -> None:
        self._show_code()

    def _say_stage(self) -> None:
        self.stage.setText(self._problem or (stage_text(self._shown) if self._shown is not None else ""))
        self._colour_stage()

    def _colour_stage(self) -> None:
        bad = bool(self._problem) or (self._shown is not None and wrote_differently(self._shown))
        ink = theme.ink(theme.colours().warning, theme.colours().window).name() if bad else ""
        self.stage.setStyleSheet(f"color: {ink};" if ink else "")

    def _say_empty(self) -> None:
        self.model.show_rows(())
        self.where.setText("")
        self._say_stage()
        self._stack.setCurrentWidget(self.empty)

    def copy(self) -> None:
        """The lines on the clipboard, tabs between columns; above them where the element is and at which step."""
        if self._shown is None:
            return
        lines = [
            self.address.text(),
            where_text(self._shown),
            stage_text(self._shown),
            bindings_text(self._shown),
        ]
        QGuiApplication.clipboard().setText("\n".join([*lines, self.model.as_text()]))
