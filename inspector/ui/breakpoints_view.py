"""Breakpoints: conditions to type, enable and remove, and where each stopped the run last."""

from __future__ import annotations

import re
from dataclasses import replace

from PySide6.QtCore import QModelIndex, QStringListModel, Qt
from PySide6.QtGui import QAction, QPalette, QShowEvent
from PySide6.QtWidgets import (
    QCompleter,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from inspector.diagnosis.stopping import parse_breakpoint
from inspector.diagnosis.watchpoints import check_params
from inspector.errors import UsageError
from inspector.runtime.commands import RemoveBreakpoint, RunBack, SetBreakpoint
from inspector.runtime.hits import Breakpoint, Hit
from inspector.runtime.snapshots import Snapshot
from inspector.ui import theme
from inspector.ui.breakpoints_model import STOPS, BreakpointsModel, completions, meaning
from inspector.ui.tables import dense_table, set_widths
from inspector.ui.view import View
from inspector.ui.widgets import FewLinesLabel, LeftEdit

KEYS = (
    ("Space", "enable or disable the breakpoint"),
    ("1", "stop once, or each time"),
    ("F2", "edit it in the field; , hit N behind it stops from its Nth hit on"),
    ("R", "go back to the last step before it held"),
    ("Delete", "remove it"),
    ("Enter", "select the param of its last stop"),
)
EMPTY = (
    "No breakpoints. A condition stops the run in the step in which it holds: nonfinite > 0, clip_scale < 0.1, "
    "update_ratio@*.attn.* > 0.01, finding:norm-overflow. With “, once” behind it the run stops once, with "
    "“, hit 3” from the third time on."
)
HINT = "METRIC OP NUMBER, or METRIC@PARAM-GLOB OP NUMBER, or finding:RULE; then , once or , hit N"
NOTE_LINES = 3


class BreakpointsView(View):
    """A field over the list. What is typed is checked here, against the params of the run."""

    LOCAL_KEYS = KEYS
    PERIOD_S = 0.1

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("breakpoints")
        self._snapshot: Snapshot | None = None
        self._shown: tuple[Breakpoint, ...] | None = None
        self._selected: Hit | None = None
        self._edited: Breakpoint | None = None
        """What the text in the field takes the place of."""
        self.model = BreakpointsModel()
        self.model.ticked.connect(self._on_ticked)
        self.table = dense_table(self.model, "breakpoints-list")
        set_widths(self.table, ("☑ update_ratio@*.attn.* > 0.0001", "from hit 888", "8,888", ""))
        self.table.horizontalHeader().setStretchLastSection(True)
        self.table.activated.connect(self._on_activated)
        self.table.clicked.connect(self._on_clicked)
        self.table.selectionModel().currentRowChanged.connect(self._on_row_changed)
        self.model.modelReset.connect(self._on_row_changed)
        self._make_row_actions()
        self.field = LeftEdit()
        self.field.setObjectName("breakpoint_field")
        self.field.setAccessibleName("Condition of a new breakpoint")
        self.field.setPlaceholderText("nonfinite > 0")
        self.field.setToolTip(f"{HINT}. Enter adds the breakpoint (F9 comes here).")
        self.field.textEdited.connect(self._on_edited)
        self.field.returnPressed.connect(self._add)
        self.field.left.connect(self._leave_field)
        self._words = QStringListModel(self)
        completer = QCompleter(self._words, self)
        completer.setCaseSensitivity(Qt.CaseSensitivity.CaseInsensitive)
        completer.setFilterMode(Qt.MatchFlag.MatchContains)
        completer.activated.connect(self._on_edited)
        self.field.setCompleter(completer)
        self.add_button = QPushButton("Add")
        self.add_button.setToolTip("Stop the run in every step in which the condition holds (Enter)")
        self.add_button.clicked.connect(self._add)
        self.remove_button = QPushButton("Remove")
        self.remove_button.setToolTip("Remove the selected breakpoint (Delete)")
        self.remove_button.clicked.connect(self._remove)
        self.note = FewLinesLabel(NOTE_LINES)
        self.note.setAlignment(Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignLeft)
        self.note.setContentsMargins(theme.GRID, 0, theme.GRID, 0)
        self.empty = QLabel(EMPTY)
        self.empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.empty.setWordWrap(True)
        self.empty.setContentsMargins(8, 8, 8, 8)
        self.stack = QStackedWidget()
        self.stack.addWidget(self.empty)
        self.stack.addWidget(self.table)
        self.setFocusProxy(self.field)
        self._lay_out()
        self._on_row_changed()
        theme.changes().changed.connect(self._frame_boxes)
        self._frame_boxes()

    def _make_row_actions(self) -> None:
        """What can be done with the row selected: by key, and in the menu of the table."""
        self.table.setContextMenuPolicy(Qt.ContextMenuPolicy.ActionsContextMenu)
        for text, key, act in (
            ("Enable or disable", "Space", self._toggle),
            ("Stop once, or each time", "1", self._toggle_once),
            ("Edit", "F2", self._edit),
            ("Run back to before it", "R", self._run_back),
            ("Remove", "Delete", self._remove),
        ):
            action = QAction(text, self.table)
            action.setShortcut(key)
            action.setShortcutContext(Qt.ShortcutContext.WidgetShortcut)
            action.triggered.connect(act)
            self.table.addAction(action)

    def _lay_out(self) -> None:
        row = QHBoxLayout()
        row.setContentsMargins(theme.GRID, theme.GRID, theme.GRID, 0)
        row.addWidget(self.field, 1)
        row.addWidget(self.add_button)
        row.addWidget(self.remove_button)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(theme.GRID)
        outer.addLayout(row)
        outer.addWidget(self.note)
        outer.addWidget(self.stack, 1)
        self.note.hide()

    def _frame_boxes(self) -> None:
        # The style frames a box in a darker shade of the window, which on a dark one is not seen.
        palette = self.table.palette()
        palette.setColor(QPalette.ColorRole.Window, theme.colours().muted)
        self.table.setPalette(palette)

    # --- from outside

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Show what the breakpoints have come to."""
        self._snapshot = snapshot
        if self.isVisible():
            self._update()

    def showEvent(self, event: QShowEvent) -> None:
        """Catch up with what came while nobody looked."""
        super().showEvent(event)
        self._update()

    def _update(self) -> None:
        shown = self._snapshot.breakpoints if self._snapshot else ()
        if shown is not self._shown:
            row = self.table.currentIndex().row()
            self._shown = shown
            self.model.show_breakpoints(shown)
            if shown and not self.table.currentIndex().isValid():
                self.table.setCurrentIndex(self.model.index(min(max(row, 0), len(shown) - 1), 0))
            self.stack.setCurrentWidget(self.table if shown else self.empty)
        self._select_stop()

    def _select_stop(self) -> None:
        """Select the breakpoint that stopped the run, once."""
        stop = self._snapshot.stop if self._snapshot else None
        selected, self._selected = self._selected, stop
        if stop is None or stop is selected:
            return
        for row, each in enumerate(self.model.breakpoints):
            if each.condition == stop.condition and not stop.aimed:
                self.table.setCurrentIndex(self.model.index(row, 0))

    def key_target(self) -> QWidget:
        """The list: in the field keys are letters of a condition."""
        return self.table

    # --- typing

    def offer(self, text: str) -> None:
        """Put a condition into the field, to be changed and added; its number is selected."""
        self._leave_field()
        self.field.setText(text)
        self._on_edited(text)
        number = re.search(r"[<>=!]=?\s*([^\s,]+)", text)
        self.field.setFocus(Qt.FocusReason.ShortcutFocusReason)
        if number is not None:
            self.field.setSelection(number.start(1), number.end(1) - number.start(1))

    @property
    def _names(self) -> list[str]:
        plan = self._snapshot.plan if self._snapshot else None
        return [segment.name for segment in plan.layout.segments] if plan else []

    def _on_edited(self, text: str) -> None:
        wanted = completions(text, self._names)
        if wanted != self._words.stringList():
            self._words.setStringList(wanted)
        self._tell(meaning(text) or (HINT if text else ""))

    def _add(self) -> None:
        if not self.field.text().strip():
            return
        try:
            condition, stopping = parse_breakpoint(self.field.text())
            if names := self._names:
                check_params(condition, names)
        except UsageError as error:
            self._tell(f"⚠ {error}")
            return
        edited, enabled = self._edited, True
        self._leave_field()
        if edited is not None:
            enabled = edited.enabled
            if edited.condition != condition:
                self.command.emit(RemoveBreakpoint(edited.condition))
        self.command.emit(SetBreakpoint(condition, enabled, stopping))

    def _leave_field(self) -> None:
        """Nothing is being typed any more."""
        self._edited = None
        self.field.clear()
        self._tell("")
        self.add_button.setText("Add")

    def _tell(self, text: str) -> None:
        self.note.setText(text)
        self.note.setVisible(bool(text))

    # --- the list

    def _current(self) -> Breakpoint | None:
        row = self.table.currentIndex().row()
        return self.model.breakpoints[row] if 0 <= row < len(self.model.breakpoints) else None

    def _on_row_changed(self) -> None:
        self.remove_button.setEnabled(self._current() is not None)

    def _on_clicked(self, index: QModelIndex) -> None:
        if index.column() == STOPS:
            self._toggle_once()

    def _toggle_once(self) -> None:
        if (shown := self._current()) is not None:
            other = replace(shown.stopping, once=not shown.stopping.once)
            self.command.emit(SetBreakpoint(shown.condition, shown.enabled, other))

    def _edit(self) -> None:
        if (shown := self._current()) is not None:
            self.offer(shown.text)
            self._edited = shown
            self.add_button.setText("Change")

    def _run_back(self) -> None:
        if (shown := self._current()) is not None:
            self.command.emit(RunBack(shown.condition))

    def _on_ticked(self, shown: Breakpoint, enabled: bool) -> None:
        self.command.emit(SetBreakpoint(shown.condition, enabled))

    def _toggle(self) -> None:
        if (shown := self._current()) is not None:
            self._on_ticked(shown, not shown.enabled)

    def _remove(self) -> None:
        if (shown := self._current()) is not None:
            self.command.emit(RemoveBreakpoint(shown.condition))

    def _on_activated(self) -> None:
        shown = self._current()
        if shown is not None and shown.last is not None and shown.last.param:
            self.param_selected.emit(shown.last.param)
