"""The title bar of the timeline: play, loop and bookmark; and what of the step on show is there."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import QSignalBlocker, QSize, Qt, Signal
from PySide6.QtGui import QPalette
from PySide6.QtWidgets import QComboBox, QDockWidget, QHBoxLayout, QLabel, QStyle, QToolButton, QWidget

from inspector.runtime.commands import Pause, SetBookmark
from inspector.runtime.snapshots import Snapshot
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.actions import Actions
from inspector.ui.moment import glance_text, search_text
from inspector.ui.playback import SPEEDS, Playback
from inspector.ui.view import same_run
from inspector.ui.widgets import ElidedLabel, InlineEdit

NOTE_WIDTH = 280
MOST_NOTE = 200


class NoteEdit(InlineEdit):
    """The note of a bookmark."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("bookmark_edit")
        self.setAccessibleName("Note of the bookmark")
        self.setMaxLength(MOST_NOTE)
        self.setFixedWidth(NOTE_WIDTH)
        self.step = 0
        self.setToolTip("The note of a bookmark at this step")

    def ask(self, step: int, note: str) -> None:
        """Begin with the note that is there."""
        self.step = step
        self.setPlaceholderText(f"note for step {step:,}")
        self.setToolTip(
            f"Enter puts the bookmark at step {step:,}; an empty note takes one away; Esc gives up"
        )
        self.setText(note)
        self.selectAll()


class Transport(QWidget):
    """Live and recorded runs are played with the same keys; the range to loop over is kept here."""

    command = Signal(object)
    loop_changed = Signal(object, bool)
    """(first, last) or None, and whether playing begins again at its end."""
    left = Signal()
    """Nothing is typed any more."""

    def __init__(self, actions: Actions, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("transport")
        self._row = QHBoxLayout(self)
        self._row.setContentsMargins(theme.GRID, 0, 2, 0)
        self._row.setSpacing(theme.GRID)
        self._title = QLabel(self)
        self._row.addWidget(self._title)
        self.playback = Playback()
        self._snapshot: Snapshot | None = None
        for name in ("play", "loop", "bookmark"):
            self._button(actions, name)
            if name == "play":
                self._add_speed()
            elif name == "loop":
                self._add_range()
        self._add_note()
        self._add_text(actions)
        actions["play"].triggered.connect(self._toggle_play)
        actions["slower"].triggered.connect(lambda: self._play_by(self.playback.slower()))
        actions["faster"].triggered.connect(lambda: self._play_by(self.playback.faster()))
        actions["loop"].triggered.connect(lambda: self._play_by(self.playback.toggled()))
        actions["loop_start"].triggered.connect(lambda: self._play_by(self.playback.from_step(self._here)))
        actions["loop_end"].triggered.connect(lambda: self._play_by(self.playback.to_step(self._here)))
        actions["loop_clear"].triggered.connect(lambda: self.set_loop(None))
        actions["bookmark"].triggered.connect(self._ask_note)
        self.loop_changed.connect(actions.show_loop)
        theme.changes().changed.connect(self._dress)
        self._dress()

    def crown(self, dock: QDockWidget) -> None:
        """Become the title bar of `dock`, with its name and the buttons that one has."""
        self._title.setText(dock.windowTitle())
        icons = QStyle.StandardPixmap
        for shape, name, tip, act in (
            (icons.SP_TitleBarNormalButton, "float", "Take out of the window, or put back", _float),
            (icons.SP_TitleBarCloseButton, "close", "Close the panel", QDockWidget.close),
        ):
            button = QToolButton(self)
            button.setObjectName(f"transport_{name}")
            button.setAutoRaise(True)
            button.setToolTip(tip)
            button.setAccessibleName(tip)
            button.setIcon(self.style().standardIcon(shape))
            button.setIconSize(QSize(10, 10))
            button.setFocusPolicy(Qt.FocusPolicy.NoFocus)
            button.clicked.connect(lambda _checked=False, act=act: act(dock))
            self._row.addWidget(button)
        dock.setTitleBarWidget(self)

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Show what of the step is there; another run has no range yet."""
        before, self._snapshot = self._snapshot, snapshot
        if before is not None and not same_run(before, snapshot):
            self._play_by(self.playback.over(None))
            self._leave()
        glance = snapshot.glance
        self.text.setText(search_text(snapshot) or glance_text(snapshot))
        rebuilds = glance is not None and bool(glance.of) and not glance.missing
        self.stay.setVisible(rebuilds or snapshot.searching is not None)

    def set_loop(self, loop: tuple[int, int] | None) -> None:
        """Loop over these steps, None for none."""
        self._play_by(self.playback.over(loop))

    @property
    def _here(self) -> int:
        cursor = self._snapshot.cursor if self._snapshot else None
        return cursor.step if cursor else 0

    def _toggle_play(self) -> None:
        playing = self._snapshot is not None and self._snapshot.playing is not None
        self.command.emit(Pause() if playing else self.playback.command)

    def _play_by(self, playback: Playback) -> None:
        """Play so from now on; what plays already goes on in the new way."""
        before, self.playback = self.playback, playback
        with QSignalBlocker(self.speed):
            self.speed.setCurrentIndex(SPEEDS.index(playback.speed))
        self.range.setText(_range_text(playback))
        self.loop_changed.emit(playback.loop, playback.looping)
        playing = self._snapshot is not None and self._snapshot.playing is not None
        if playing and playback.command != before.command:
            self.command.emit(playback.command)

    def _ask_note(self) -> None:
        bookmarks = self._snapshot.bookmarks if self._snapshot else ()
        step = self._here
        self.note.ask(step, next((mark.text for mark in bookmarks if mark.step == step), ""))
        self.note.show()
        self.note.setFocus(Qt.FocusReason.ShortcutFocusReason)

    def _on_note_entered(self) -> None:
        step, text = self.note.step, self.note.text().strip()
        bookmarks = self._snapshot.bookmarks if self._snapshot else ()
        there = any(mark.step == step for mark in bookmarks)
        # A bookmark without words is still one, unless its words were taken away.
        self.command.emit(SetBookmark(step, text or ("" if there else f"step {step:,}")))
        self.note.leave()

    def _leave(self) -> None:
        if self.note.isVisible():
            self.note.hide()
            self.left.emit()

    def _button(self, actions: Actions, name: str) -> None:
        button = QToolButton(self)
        button.setObjectName(f"{name}_button")
        action = actions[name]
        button.setDefaultAction(action)
        button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        # The key says more here than the name, which is in the tooltip.
        key = action.shortcut().toString()
        action.setIconText(key)
        action.changed.connect(lambda: action.setIconText(key) if action.iconText() != key else None)
        button.setAutoRaise(True)
        button.setIconSize(QSize(14, 14))
        self._row.addWidget(button)

    def _add_speed(self) -> None:
        self.speed = QComboBox(self)
        self.speed.setObjectName("speed_combo")
        self.speed.setAccessibleName("speed")
        self.speed.setToolTip("How fast to play, at most as fast as steps can run (Ctrl+[ and Ctrl+])")
        self.speed.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        for speed in SPEEDS:
            self.speed.addItem(fmt.plural(int(speed), "step") + "/s", speed)
        self.speed.setCurrentIndex(SPEEDS.index(self.playback.speed))
        self.speed.activated.connect(self._on_speed)
        self._row.addWidget(self.speed)

    def _on_speed(self) -> None:
        self._play_by(replace(self.playback, speed=float(self.speed.currentData())))

    def _add_range(self) -> None:
        self.range = QLabel(_range_text(self.playback), self)
        self.range.setObjectName("loop_range")
        self.range.setContentsMargins(4, 0, 8, 0)
        self.range.setToolTip(
            "I and O set its ends at this step, Shift and a drag on the timeline both, Shift+I none"
        )
        self._row.addWidget(self.range)

    def _add_note(self) -> None:
        self.note = NoteEdit(self)
        self.note.returnPressed.connect(self._on_note_entered)
        self.note.left.connect(self._leave)
        self.note.hide()

    def _add_text(self, actions: Actions) -> None:
        self.text = ElidedLabel(self)
        self.text.setObjectName("glance_text")
        self.text.setContentsMargins(8, 0, 8, 0)
        self._row.addWidget(self.note)
        self._row.addWidget(self.text, 1)
        self.stay = QToolButton(self)
        self.stay.setObjectName("stay_button")
        self.stay.setDefaultAction(actions["stay"])
        self.stay.hide()
        self._row.addWidget(self.stay)

    def _dress(self) -> None:
        palette = self.text.palette()
        palette.setColor(
            QPalette.ColorRole.WindowText, theme.ink(theme.colours().accent, theme.colours().window)
        )
        self.text.setPalette(palette)


def _float(dock: QDockWidget) -> None:
    dock.setFloating(not dock.isFloating())


def _range_text(playback: Playback) -> str:
    first, last = playback.first, playback.last
    if first is None and last is None:
        return "no range"
    if first is None or last is None:
        return f"from {first:,} to …" if first is not None else f"from … to {last:,}"
    return f"{first:,} to {last:,}"
