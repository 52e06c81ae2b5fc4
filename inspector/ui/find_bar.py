"""Looking for values: what to look for, in which lane and params, and how many there are."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QComboBox, QHBoxLayout, QToolButton, QWidget

from inspector.errors import UsageError
from inspector.runtime.commands import CancelWork, FindValue
from inspector.runtime.snapshots import Snapshot
from inspector.runtime.value_finding import Found
from inspector.stores import LANES, Lane
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.widgets import ElidedLabel, LeftEdit
from inspector.value_search import HELP, parse_query

THIS, ALL = "this param", "all params"


class _QueryEdit(LeftEdit):
    """`entered` carries whether Enter came with Shift, which asks for the one before."""

    entered = Signal(bool)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Enter finds, and leaves the text as it is."""
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.entered.emit(bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier))
        else:
            super().keyPressEvent(event)


class FindBar(QWidget):
    """Sends what is looked for and says what was found; `found` carries the param and index of where that is.

    `place` gives the element that a search goes on from; whoever owns this sets it, and which param is shown.
    """

    command = Signal(object)
    found = Signal(str, int)
    left = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.param = ""
        self.place: Callable[[], tuple[str, int] | None] = lambda: None
        self._asked: FindValue | None = None
        self._working = False
        self._fields = QWidget()
        row = QHBoxLayout(self._fields)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(theme.GRID)
        self.query = _QueryEdit()
        self.query.setPlaceholderText("0.1, −1..1, |x| > 1e3, NaN, changed …")
        self.query.setToolTip(
            f"{HELP} Numbers are read as the nearest float32. Enter finds the next, Shift+Enter the one before."
        )
        self.query.setAccessibleName("value to look for")
        self.query.left.connect(self._on_left)
        self.query.entered.connect(lambda backwards: self.look_for(backwards=backwards))
        self.lane = QComboBox()
        self.lane.addItems(LANES)
        self.lane.setAccessibleName("lane to look in")
        self.lane.setToolTip("The lane to look in, as it is now.")
        self.scope = QComboBox()
        self.scope.addItems([THIS, ALL])
        self.scope.setAccessibleName("params to look in")
        self.scope.setToolTip("Look in the param that is shown, or in all of them.")
        row.addWidget(self.query, 1)
        row.addWidget(self.lane)
        row.addWidget(self.scope)
        for text, tip, backwards in (
            ("▲", "The one before (Shift+F3)", True),
            ("▼", "The next one (F3)", False),
        ):
            button = QToolButton()
            button.setText(text)
            button.setToolTip(tip)
            button.setAccessibleName(tip)
            button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
            button.clicked.connect(
                lambda _checked=False, backwards=backwards: self.look_for(backwards=backwards)
            )
            row.addWidget(button)
        self.status = ElidedLabel()
        self._lines = QBoxLayout(QBoxLayout.Direction.LeftToRight, self)
        self._lines.setContentsMargins(theme.GRID, theme.GRID, theme.GRID, 0)
        self._lines.setSpacing(theme.GRID)
        self._lines.addWidget(self._fields, 1)
        self._lines.addWidget(self.status, 1)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The answer beside the question where there is room for both."""
        super().resizeEvent(event)
        self._place_status()

    def look_for(self, *, backwards: bool, text: str | None = None) -> None:
        """Look for what is typed, or for `text`, from where a person is."""
        wanted = self.query.text() if text is None else text
        if text is not None:
            self.query.setText(text)
        lane: Lane = next(each for each in LANES if each == self.lane.currentText())
        param = None if self.scope.currentText() == ALL else self.param
        if param == "":
            self._say("⚠ Select a param first, or look in all params.", warn=True)
            return
        try:
            query = parse_query(wanted)
        except UsageError as error:
            self._say(f"⚠ {error}", warn=True)
            return
        self._asked = FindValue(query, lane, param, self.place(), backwards)
        self._say("Looking …")
        self.command.emit(self._asked)

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Say how far it is, or what was found."""
        working, found = snapshot.closeup.working, snapshot.closeup.found
        self._working = self._asked is not None and working is not None
        if self._asked is None:
            return
        if found is not None and found.asked == self._asked:
            self._asked = None
            self._working = False
            self._say(found_text(found), warn=found.param is None)
            if found.param is not None:
                self.found.emit(found.param, found.index)
        elif working is not None:
            share = f" {100 * working.done // working.of} %" if working.of else ""
            self._say(f"Looking …{share}, Esc ends it")

    def _on_left(self) -> None:
        if self._working:
            self.command.emit(CancelWork())
        else:
            self.left.emit()

    def _say(self, text: str, *, warn: bool = False) -> None:
        self.status.setText(text)
        ink = theme.ink(theme.colours().warning, theme.colours().window).name() if warn else ""
        self.status.setStyleSheet(f"color: {ink};" if ink else "")
        self._place_status()

    def _place_status(self) -> None:
        """Below the question where it would be cut off beside it; nothing takes no line."""
        words = self.status.fontMetrics().horizontalAdvance(self.status.text())
        half = (self.width() - 3 * theme.GRID) // 2
        beside = words <= half and self._fields.minimumSizeHint().width() <= half
        way = QBoxLayout.Direction.LeftToRight if beside else QBoxLayout.Direction.TopToBottom
        if self._lines.direction() != way:
            self._lines.setDirection(way)
        self.status.setVisible(bool(self.status.text()))


def found_text(found: Found) -> str:
    """What a search came to."""
    asked = found.asked
    where = asked.param or "any param"
    if found.ended:
        return "The search was ended."
    if found.param is None:
        if asked.query.kind == "changed":
            return f"The last dispatch changed nothing of {asked.lane} in {where}."
        return f"No {asked.lane} in {where} matches {asked.query.text}."
    round_ = ", from the other end" if found.wrapped else ""
    count = f"{fmt.count(found.count)} match{'es' if found.count == 1 else ''}"
    return f"{count} in step {found.step:,}; at {found.index:,} of {found.param}{round_}"
