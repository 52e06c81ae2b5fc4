"""The toolbar: what runs, in which form, the stepping buttons, and where the run stands."""

from __future__ import annotations

import re

from PySide6.QtCore import QRegularExpression, QSignalBlocker, QSize, Qt, Signal
from PySide6.QtGui import QFontMetrics, QRegularExpressionValidator, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QMenu, QStyle, QToolBar, QToolButton, QWidget

from inspector.runtime.commands import OpenSource, Seek
from inspector.runtime.snapshots import Snapshot
from inspector.ui.actions import Actions
from inspector.ui.form_bar import COMBO_FRAME, FormBar, named_combo
from inspector.ui.widgets import ElidedLabel, InlineEdit

SOURCES = ("charlm", "synthetic:1000000", "gpt-116m", "surface:valley")
OPEN_FILE = "open file…"
SOURCE_WIDTH = 160
"""At most, of the text of a source; longer ones are shortened to it."""
LEAST_WHERE = ("step 8,888 · dispatch 8/8 → step 8,888", "step 8,888 · dispatch 8/8", "step 8,888", "")
"""For so much of where the run stands there is room, the more the wider the toolbar is."""
MAX_STEP = 2_147_483_647
PLACE = r"\d{1,10}(:\d{0,5})?"
"""A step, or one of its dispatches, as typed."""

BUTTONS = (
    ("undo_iteration", False),
    ("undo_dispatch", False),
    ("step_dispatch", True),
    ("step_iteration", True),
    ("run", True),
    ("pause", False),
    ("record", False),
)


class StepEdit(InlineEdit):
    """A step to go to, or a dispatch of it; Enter goes, Esc gives up."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("go_to_step_edit")
        self.setPlaceholderText("go to step")
        self.setAccessibleName("Go to step")
        self.setToolTip("Type a step, or a dispatch of it as in 1200:2, and press Enter (Ctrl+G)")
        self.setValidator(QRegularExpressionValidator(QRegularExpression(PLACE), self))
        self.setMaximumWidth(self.fontMetrics().horizontalAdvance("go to step 00"))

    @property
    def place(self) -> Seek | None:
        """Where to go, None where no step stands there yet."""
        step, _, dispatch = self.text().partition(":")
        if not step or int(step) > MAX_STEP:
            return None
        return Seek(int(step), int(dispatch) if dispatch else None)


class MainToolBar(QToolBar):
    """Shows the form of the run and changes it."""

    command = Signal(object)
    open_file = Signal()

    def __init__(self, actions: Actions, form_menu: QMenu, parent: QWidget | None = None) -> None:
        super().__init__("Run", parent)
        self.setObjectName("main_toolbar")
        self.setMovable(False)
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.PreventContextMenu)
        self.setIconSize(QSize(16, 16))
        self._open: tuple[str, bool] = ("", False)
        """The source that is open, and whether it runs."""
        self._fitted: tuple[object, ...] = ()
        place, self.source = named_combo("source", SOURCES, "Where gradients come from", self)
        self.source.addItem(OPEN_FILE)
        self.source.activated.connect(self._on_source)
        self.addWidget(place)
        self.addSeparator()
        for name, with_key in BUTTONS:
            self._button(actions, name, with_key)
        self.addSeparator()
        self._add_where(actions)
        self.form = FormBar(form_menu, self)
        self.form.command.connect(self.command)
        self._form_place = self.addWidget(self.form)

    def _add_where(self, actions: Actions) -> None:
        self.step_edit = StepEdit(self)
        self.step_edit.returnPressed.connect(self._on_step_entered)
        self.step_edit.left.connect(lambda: self._show_step_edit(False))
        self.cursor_label = ElidedLabel(self)
        self.cursor_label.setObjectName("cursor_label")
        # In one widget: what a toolbar shows itself appears only at its next layout, too late for the focus.
        self._where = where = QWidget(self)
        row = QHBoxLayout(where)
        row.setContentsMargins(4, 0, 4, 0)
        row.addWidget(self.step_edit)
        row.addWidget(self.cursor_label, 1)
        self.addWidget(where)
        self._show_step_edit(False)
        actions["go_to_step"].triggered.connect(lambda: self._show_step_edit(True))

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Show source, form and cursor."""
        self._open = (snapshot.source, snapshot.mode != "failed")
        self._show_source(snapshot.source)
        self.form.show_snapshot(snapshot)
        self.cursor_label.setText(cursor_text(snapshot))
        self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        """As much of the form and of where the run stands as there is room for: nothing is pushed out of sight."""
        key = (
            self.width(),
            self.source.width(),
            *(combo.currentText() for combo in self.form.choices.values()),
        )
        if key == self._fitted:
            return
        self._fitted = key
        others = [a for a in self.actions() if a.isVisible() and a is not self._form_place]
        widgets = [self.widgetForAction(action) for action in others]
        space = self.style().pixelMetric(QStyle.PixelMetric.PM_ToolBarItemSpacing, None, self)
        layout = self.layout()
        assert layout is not None
        margins = layout.contentsMargins()
        room = self.width() - margins.left() - margins.right() - len(others) * space
        room -= sum(widget.sizeHint().width() for widget in widgets if widget is not self._where)
        for text in LEAST_WHERE:
            least = self.fontMetrics().horizontalAdvance(text) + 8
            if self.form.fit(room - least) <= room - least:
                break
        self._where.setMinimumWidth(least)
        layout.invalidate()

    def _button(self, actions: Actions, name: str, with_key: bool) -> None:
        button = QToolButton(self)
        button.setObjectName(f"{name}_button")
        action = actions[name]
        button.setDefaultAction(action)
        if with_key:
            key = action.shortcut().toString()
            button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
            # The key says more here than the name, which is in the tooltip.
            action.setIconText(key)
            action.changed.connect(lambda: action.setIconText(key) if action.iconText() != key else None)
        self.addWidget(button)

    def _show_source(self, source: str) -> None:
        if self.source.view().isVisible():
            return
        with QSignalBlocker(self.source):
            if source and self._index_of(source) < 0:
                text = file_first(source, self.source.fontMetrics(), SOURCE_WIDTH)
                self.source.insertItem(0, text, source)
                self.source.setItemData(0, source, Qt.ItemDataRole.ToolTipRole)
                wide = min(self.source.fontMetrics().horizontalAdvance(text), SOURCE_WIDTH)
                # Shortened to what there is room for: not to be cut once more.
                self.source.setFixedWidth(max(self.source.minimumWidth(), wide + COMBO_FRAME))
            self.source.setCurrentIndex(self._index_of(source))
            self.source.setToolTip(f"Where gradients come from: {source or 'nothing yet'}")

    def _spec(self, index: int) -> str:
        return str(self.source.itemData(index) or self.source.itemText(index))

    def _index_of(self, source: str) -> int:
        return next((i for i in range(self.source.count()) if self._spec(i) == source), -1)

    def _on_source(self, index: int) -> None:
        spec = self._spec(index)
        if spec == OPEN_FILE:
            self.open_file.emit()
        elif self._open != (spec, True):
            # The one that is open goes on; to start it anew is an action of its own.
            self.command.emit(OpenSource(spec))

    def _show_step_edit(self, shown: bool) -> None:
        self.step_edit.setVisible(shown)
        if shown:
            self.step_edit.setFocus(Qt.FocusReason.ShortcutFocusReason)

    def _on_step_entered(self) -> None:
        place = self.step_edit.place
        self.step_edit.leave()
        if place is not None:
            self.command.emit(place)


def file_first(source: str, metrics: QFontMetrics, width: int) -> str:
    """A source in so many pixels: of a path that is too long, the file name is what stays."""
    if metrics.horizontalAdvance(source) <= width:
        return source
    name = re.split(r"[/\\]", source)[-1]
    short = f"…{source[-len(name) - 1 :]}"
    if metrics.horizontalAdvance(short) <= width:
        return metrics.elidedText(source, Qt.TextElideMode.ElideLeft, width)
    return metrics.elidedText(name, Qt.TextElideMode.ElideMiddle, width)


def cursor_text(snapshot: Snapshot) -> str:
    """Where the run stands, in words."""
    if snapshot.mode == "starting":
        return f"opening {snapshot.source}…" if snapshot.source else "starting…"
    if snapshot.mode == "failed":
        return "no source is open"
    cursor, plan = snapshot.cursor, snapshot.plan
    if cursor is None or plan is None:
        return ""
    where = f"step {cursor.step:,} · dispatch {cursor.dispatch}/{cursor.count}"
    if snapshot.glance is not None:
        return f"{where} · as recorded"
    if snapshot.mode == "running":
        return f"{where} · running"
    if cursor.at_end:
        last = snapshot.last_step is not None and cursor.step >= snapshot.last_step
        return f"{where} → {'end of the source' if last else f'step {cursor.step + 1:,}'}"
    return f"{where} → {plan.dispatches[cursor.dispatch].label}"
