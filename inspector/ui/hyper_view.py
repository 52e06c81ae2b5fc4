"""Hyper-parameters as fields to type in, and the learning-rate schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QGridLayout, QLabel, QLineEdit, QScrollArea, QSizePolicy, QVBoxLayout, QWidget

from inspector.errors import UsageError
from inspector.floats import parse_number, shortest
from inspector.hyper import Hyper, check_value
from inspector.runtime.commands import SetHyper, SetSchedule
from inspector.runtime.snapshots import Snapshot
from inspector.schedule import Schedule
from inspector.stepping import Cursor
from inspector.ui.view import View


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

TYPING_HINT = "Enter applies, Esc reverts"


class Field(QLineEdit):
    """A text field that knows what the run has, what was sent, and what a person is still typing."""

    entered = Signal()
    hint_changed = Signal(str)

    def __init__(self, name: str, check: Callable[[str], object], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName(name)
        self._check = check
        self._shown = ""
        self.invalid = False
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
            self._mark(str(error), invalid=True)
            return
        if not self.being_typed or value == self._value_shown():
            self.revert()
            return
        self._shown = self.text()
        self._set(self.text(), "")
        self.entered.emit()


class HyperView(View):
    """The six hyper-parameters and the schedule; what is typed is checked here and sent on Enter."""

    PERIOD_S = 0.2

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("hyper")
        self._hyper: Hyper | None = None
        self._schedule: str | None = None
        self._used: tuple[int, float] | None = None
        self._cursor: Cursor | None = None
        self.fields: dict[str, Field] = {}
        self.hints: dict[str, QLabel] = {}
        body = QWidget()
        grid = QGridLayout(body)
        grid.setContentsMargins(8, 8, 8, 8)
        grid.setHorizontalSpacing(8)
        grid.setVerticalSpacing(4)
        for row, setting in enumerate(SETTINGS):
            field = self._add_row(grid, row, setting, partial(parse_value, setting.name))
            field.entered.connect(partial(self._send_value, setting.name))
        row = len(SETTINGS)
        schedule = _Setting(
            "schedule",
            "schedule",
            "Factor on lr by step: constant, warmup:100, cosine:1500 or cosine:1500:warmup=100:floor=0.1.",
        )
        field = self._add_row(grid, row, schedule, Schedule.from_text)
        field.setPlaceholderText("constant")
        field.entered.connect(self._send_schedule)
        self.used_label = QLabel("–")
        self.used_label.setToolTip("The learning rate of the step at the cursor, with the schedule applied.")
        used_name = QLabel("lr as used")
        used_name.setToolTip(self.used_label.toolTip())
        grid.addWidget(used_name, row + 1, 0)
        grid.addWidget(self.used_label, row + 1, 1, 1, 2)
        self.when_label = QLabel()
        self.when_label.setWordWrap(True)
        grid.addWidget(self.when_label, row + 2, 0, 1, 3)
        grid.setColumnStretch(1, 2)
        grid.setColumnStretch(2, 3)
        grid.setRowStretch(row + 3, 1)
        scroll = QScrollArea()
        scroll.setFrameShape(QScrollArea.Shape.NoFrame)
        scroll.setWidgetResizable(True)
        scroll.setWidget(body)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(scroll)
        self._show_when()

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Show the run's settings; a field that is being typed in keeps its text."""
        if snapshot.hyper is not self._hyper:
            self._hyper = snapshot.hyper
            for setting in SETTINGS:
                self.fields[setting.name].show_value(number_text(getattr(snapshot.hyper, setting.name)))
        if snapshot.schedule != self._schedule:
            self._schedule = snapshot.schedule
            self.fields["schedule"].show_value(snapshot.schedule)
        record = snapshot.record
        used = None if record is None else (record.step, record.lr)
        if used != self._used:
            self._used = used
            text = "–" if record is None else f"{record.lr:.6g} at step {record.step:,}"
            self.used_label.setText(text)
        if snapshot.cursor != self._cursor:
            self._cursor = snapshot.cursor
            self._show_when()

    def _add_row(
        self, grid: QGridLayout, row: int, setting: _Setting, check: Callable[[str], object]
    ) -> Field:
        label, field, hint = QLabel(setting.symbol), Field(setting.name, check), QLabel()
        label.setBuddy(field)
        label.setToolTip(setting.tooltip)
        field.setToolTip(setting.tooltip)
        field.setAccessibleName(setting.symbol)
        field.setMinimumWidth(72)
        hint.setWordWrap(True)
        hint.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        field.hint_changed.connect(hint.setText)
        # A field scrolls its end into view; what a number begins with matters more.
        field.installEventFilter(self)
        grid.addWidget(label, row, 0)
        grid.addWidget(field, row, 1)
        grid.addWidget(hint, row, 2)
        self.fields[setting.name], self.hints[setting.name] = field, hint
        return field

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Show a field from its start once it is left."""
        if event.type() == QEvent.Type.FocusOut and isinstance(watched, Field):
            watched.setCursorPosition(0)
        return super().eventFilter(watched, event)

    def _send_value(self, name: str) -> None:
        self.command.emit(SetHyper(name, parse_value(name, self.fields[name].text())))

    def _send_schedule(self) -> None:
        self.command.emit(SetSchedule(self.fields["schedule"].text().strip()))

    def _show_when(self) -> None:
        self.when_label.setText(f"A change applies from step {next_step(self._cursor):,}.")


def next_step(cursor: Cursor | None) -> int:
    """The first step that a change made now reaches: this one if it has not started, else the next."""
    if cursor is None:
        return 1
    return cursor.step if cursor.dispatch == 0 and cursor.count else cursor.step + 1


def number_text(value: float) -> str:
    """A setting as a person would type it: 0.001, 1e-08, inf."""
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
