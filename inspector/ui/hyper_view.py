"""Hyper-parameters as fields to type in, and the learning-rate schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFocusEvent, QKeyEvent, QMouseEvent, QResizeEvent
from PySide6.QtWidgets import QGridLayout, QLabel, QLineEdit, QScrollArea, QVBoxLayout, QWidget

from inspector.errors import UsageError
from inspector.floats import parse_number, shortest, significant
from inspector.hyper import Hyper, check_value
from inspector.optimizers import optimizer
from inspector.optimizers.definition import Optimizer
from inspector.runtime.commands import SetHyper, SetSchedule
from inspector.runtime.snapshots import Snapshot
from inspector.schedule import Schedule
from inspector.stepping import Cursor
from inspector.ui.group_table import GroupTable
from inspector.ui.view import View, same_run


@dataclass(frozen=True, slots=True)
class _Setting:
    name: str
    symbol: str
    tooltip: str


SETTINGS = (
    _Setting("lr", "lr", "Learning rate, before the schedule. Dimensionless, 0 or more."),
    _Setting("beta1", "β₁", "Decay of the first moment m, from 0 up to but not 1."),
    _Setting("beta2", "β₂", "Decay of the second moment v, from 0 up to but not 1."),
    _Setting("eps", "ε", "Added to √v̂ in the denominator, 0 or more."),
    _Setting("weight_decay", "λ", "Decoupled weight decay, applied to the wd block only. 0 or more."),
    _Setting("max_grad_norm", "max grad norm", "The gradient norm is clipped to this; inf clips nothing."),
)

SCHEDULE = _Setting(
    "schedule",
    "schedule",
    "Factor on lr by step: constant, warmup:100, cosine:1500 or cosine:1500:warmup=100:floor=0.1.",
)
NO_WAY_ON = "Nothing can run on from here with other settings."
TYPING_HINT = "Enter applies, Esc reverts"
NOTE_LINES = 2
LEAST_HEIGHT = 40
_COMES_BACK = (
    Qt.FocusReason.ActiveWindowFocusReason,
    Qt.FocusReason.PopupFocusReason,
    Qt.FocusReason.MenuBarFocusReason,
)


class Field(QLineEdit):
    """A text field that knows what the run has, what was sent, and what a person is still typing."""

    entered = Signal()
    hint_changed = Signal(str)

    def __init__(self, name: str, check: Callable[[str], object], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName(name)
        self._check = check
        self._shown = ""
        self._problem = ""
        self.invalid = False
        self._clicked_into = False
        self.textEdited.connect(self._on_text_edited)
        self.returnPressed.connect(self._on_return_pressed)

    @property
    def being_typed(self) -> bool:
        """True between the first edit and Enter or Escape."""
        return self.isModified() and self.text() != self._shown

    def show_value(self, text: str) -> None:
        """Take over the run's value, unless a person is typing; Escape then goes back to the new one."""
        self._shown = text
        if not self.being_typed:
            self._set(text, "")

    def revert(self) -> None:
        """Drop what was typed."""
        self._set(self._shown, "")

    def focusInEvent(self, event: QFocusEvent) -> None:
        """A click into it selects all, as Tab does: what is typed then takes the place of the number."""
        super().focusInEvent(event)
        self._clicked_into = event.reason() == Qt.FocusReason.MouseFocusReason

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """Unless part of it was selected with the mouse, or it had the keys before."""
        super().mouseReleaseEvent(event)
        if self._clicked_into and not self.hasSelectedText():
            self.selectAll()
        self._clicked_into = False

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """What is not in force stays on screen only while it is being typed."""
        super().focusOutEvent(event)
        # A menu or another window takes the keys for a moment only.
        if event.reason() in _COMES_BACK:
            return
        if self.invalid:
            self._set(self._shown, f"⚠ {self._problem} In force: {self._shown}.")
        elif self.being_typed:
            self.revert()
        # A field scrolls its end into view; what a number begins with matters more.
        self.setCursorPosition(0)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Escape reverts; where nothing was typed it is left to the window."""
        if event.key() == Qt.Key.Key_Escape and (self.being_typed or self.invalid):
            self.revert()
            event.accept()
            return
        super().keyPressEvent(event)

    def _set(self, text: str, hint: str) -> None:
        if self.text() != text:
            self.setText(text)
        self.setModified(False)
        self._mark(hint, invalid=False)

    def _mark(self, hint: str, *, invalid: bool) -> None:
        if invalid != self.invalid:
            self.invalid = invalid
            # The frame and the words beside the field say it; no colour does.
            self.setStyleSheet("QLineEdit { border: 2px solid palette(text); }" if invalid else "")
        self.hint_changed.emit(f"⚠ {hint}" if invalid else hint)

    def _value_shown(self) -> object:
        try:
            return self._check(self._shown)
        except UsageError:
            return None  # a run may hold what nobody may type

    def _on_text_edited(self) -> None:
        self._mark(TYPING_HINT if self.being_typed else "", invalid=False)

    def _on_return_pressed(self) -> None:
        try:
            value = self._check(self.text())
        except UsageError as error:
            self._problem = str(error)
            self._mark(self._problem, invalid=True)
            return
        if not self.being_typed or value == self._value_shown():
            self.revert()
            return
        self._shown = self.text()
        self._set(self.text(), "")
        self.entered.emit()


class HyperView(View):
    """The six hyper-parameters and the schedule; what is typed is checked here and sent on Enter. Below them the groups
    of params, where these have settings of their own."""

    PERIOD_S = 0.2

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("hyper")
        self._before: Snapshot | None = None
        self._hyper: Hyper | None = None
        self._schedule: str | None = None
        self._used: tuple[int, float] | None = None
        self._cursor: Cursor | None = None
        self._why_not = ""
        """Why nothing can be changed at this step; "" where it can."""
        self._optimizer = "adamw"
        self.fields: dict[str, Field] = {}
        self._symbols: dict[str, str] = {}
        self._names: dict[str, QLabel] = {}
        self.hints: dict[str, str] = {}
        """What is to be said about a field, by name; "" for nothing."""
        self._hinted = ""
        body = QWidget()
        grid = QGridLayout(body)
        grid.setContentsMargins(8, 8, 8, 8)
        grid.setHorizontalSpacing(8)
        grid.setVerticalSpacing(4)
        for row, setting in enumerate(SETTINGS):
            field = self._add_row(grid, row, setting, partial(parse_value, setting.name))
            field.entered.connect(partial(self._send_value, setting.name))
        row = len(SETTINGS)
        field = self._add_row(grid, row, SCHEDULE, Schedule.from_text)
        field.setPlaceholderText("constant")
        field.entered.connect(self._send_schedule)
        self.used_label = QLabel("–")
        self.used_label.setToolTip("The learning rate of the step at the cursor, with the schedule applied.")
        used_name = QLabel("lr as used")
        used_name.setToolTip(self.used_label.toolTip())
        grid.addWidget(used_name, row + 1, 0)
        grid.addWidget(self.used_label, row + 1, 1)
        # In a place of its own: words beside or below a field would move the fields under the mouse.
        self.note = QLabel()
        self.note.setWordWrap(True)
        self.note.setContentsMargins(8, 0, 8, 0)
        self.note.setAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        self.note.setFixedHeight(NOTE_LINES * self.note.fontMetrics().lineSpacing() + 4)
        self.note.setMinimumWidth(1)
        grid.setColumnStretch(1, 1)
        grid.setRowStretch(row + 2, 1)
        scroll = QScrollArea()
        scroll.setAccessibleName("Hyper-parameters")
        scroll.setFrameShape(QScrollArea.Shape.NoFrame)
        scroll.setWidgetResizable(True)
        # The keys go to the fields, which it follows.
        scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        scroll.setWidget(body)
        scroll.setMinimumHeight(LEAST_HEIGHT)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(0)
        self.groups = GroupTable()
        outer.addWidget(scroll, 1)
        outer.addWidget(self.groups.table, 1)
        outer.addWidget(self.note)
        self._show_note()

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Show the run's settings; a field that is being typed in keeps its text."""
        before, self._before = self._before, snapshot
        if before is not None and not same_run(before, snapshot):
            # What was typed was meant for another run.
            for field in self.fields.values():
                field.revert()
        # What was sent may have been refused, which a notice tells.
        refused = before is not None and before.notice != snapshot.notice
        if snapshot.hyper is not self._hyper or refused:
            self._hyper = snapshot.hyper
            for setting in SETTINGS:
                self.fields[setting.name].show_value(number_text(getattr(snapshot.hyper, setting.name)))
        if self.groups.show_snapshot(snapshot):
            self._show_note()
        if snapshot.schedule != self._schedule or refused:
            self._schedule = snapshot.schedule
            self.fields["schedule"].show_value(snapshot.schedule)
        record = snapshot.record
        used = None if record is None else (record.step, record.lr)
        if used != self._used:
            self._used = used
            text = "–" if record is None else f"{significant(record.lr, 6)} at step {record.step:,}"
            self.used_label.setText(text)
        why_not = (snapshot.glance.missing if snapshot.glance else None) or ""
        name = snapshot.plan.variant.optimizer if snapshot.plan is not None else "adamw"
        if (snapshot.cursor, why_not, name) != (self._cursor, self._why_not, self._optimizer):
            self._cursor, self._why_not, self._optimizer = snapshot.cursor, why_not, name
            self._show_usable(optimizer(name))
            self._show_note()

    def _show_usable(self, rule: Optimizer) -> None:
        """Grey out what cannot be changed at this step, or is not used by the optimizer."""
        for setting in SETTINGS:
            used = setting.name in rule.settings
            self._allow(setting, "" if used else f"{rule.title} does not use {setting.symbol}.")
        self._allow(SCHEDULE, "")

    def _allow(self, setting: _Setting, unused: str) -> None:
        """Whether a field takes a value; its tooltip, and that of its name, say why where it does not."""
        why_not = unused or (f"{NO_WAY_ON} {self._why_not}" if self._why_not else "")
        self.fields[setting.name].setEnabled(not why_not)
        for widget in (self.fields[setting.name], self._names[setting.name]):
            widget.setToolTip(why_not or setting.tooltip)

    def _add_row(
        self, grid: QGridLayout, row: int, setting: _Setting, check: Callable[[str], object]
    ) -> Field:
        label, field = QLabel(setting.symbol), Field(setting.name, check)
        label.setBuddy(field)
        label.setToolTip(setting.tooltip)
        field.setToolTip(setting.tooltip)
        field.setAccessibleName(setting.symbol)
        field.setMinimumWidth(72)
        # The frame of a rejected text has another height than the style's.
        field.setFixedHeight(field.sizeHint().height())
        field.hint_changed.connect(partial(self._on_hint, setting.name))
        grid.addWidget(label, row, 0)
        grid.addWidget(field, row, 1)
        self.fields[setting.name], self.hints[setting.name] = field, ""
        self._symbols[setting.name], self._names[setting.name] = setting.symbol, label
        return field

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Shorten the note to the width there is."""
        super().resizeEvent(event)
        self._show_note()

    def _send_value(self, name: str) -> None:
        self.command.emit(SetHyper(name, parse_value(name, self.fields[name].text())))

    def _send_schedule(self) -> None:
        self.command.emit(SetSchedule(self.fields["schedule"].text().strip()))

    def _on_hint(self, name: str, hint: str) -> None:
        self.hints[name] = hint
        if hint:
            self._hinted = name
        self._show_note()

    def _show_note(self) -> None:
        """The newest hint about a field, else from when on a change applies."""
        names = [self._hinted, *self.hints] if self._hinted else [*self.hints]
        name = next((n for n in names if self.hints[n]), None)
        text = f"A change applies from step {next_step(self._cursor):,}."
        if self.groups.model.rows:
            text += " lr scales that of every group; another setting replaces the value where a group has the old one."
        if self._why_not:
            text = f"{NO_WAY_ON} {self._why_not}"
        elif name is not None:
            text = f"{self._symbols[name]}: {self.hints[name]}"
        room = NOTE_LINES * self.note.contentsRect().width() - 48
        shown = self.note.fontMetrics().elidedText(text, Qt.TextElideMode.ElideRight, max(room, 100))
        if shown != self.note.text() or text != self.note.toolTip():
            self.note.setText(shown)
            self.note.setToolTip(text)


def next_step(cursor: Cursor | None) -> int:
    """The first step that a change made now reaches: this one if it has not started, else the next."""
    if cursor is None:
        return 1
    return cursor.step if cursor.dispatch == 0 and cursor.count else cursor.step + 1


def number_text(value: float) -> str:
    """A setting as a person would type it: 0.001, 1e-8, inf."""
    text = shortest(value).replace("Infinity", "inf")
    return text.removesuffix(".0")


def parse_value(name: str, text: str) -> float:
    """What was typed for the setting `name`; UsageError, in the words of a form, where it cannot be used."""
    if not text.strip():
        raise UsageError("Give a number, such as 0.001 or 1e-3.")
    try:
        value = parse_number(text)
    except ValueError:
        raise UsageError(f"{text.strip()!r} is not a number: write it as 0.001 or 1e-3.") from None
    try:
        check_value(name, value)
    except UsageError as error:
        # The core names the option of the command line; here the field beside it says which it is.
        raise UsageError(str(error).removeprefix(f"--{name.replace('_', '-')} ")) from None
    return value
