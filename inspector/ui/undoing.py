"""Undo and redo of what a person changed: settings, breakpoints, bookmarks, overlays, closed panels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from PySide6.QtCore import QEvent, QObject, Signal
from PySide6.QtWidgets import QDockWidget

from inspector.runtime.commands import Command
from inspector.runtime.snapshots import Snapshot
from inspector.ui.reversal import change_of
from inspector.ui.view import same_run

MOST_CHANGES = 200


@dataclass(frozen=True, slots=True)
class Done:
    """A change that was made, in words, and what takes it back and makes it again."""

    text: str
    undo: Callable[[], None]
    redo: Callable[[], None]


class Undoing(QObject):
    """Watches what is sent and which panels are closed. `changed` says that something else can be undone."""

    changed = Signal()

    def __init__(
        self, send: Callable[[Command], None], docks: Mapping[str, QDockWidget], parent: QObject
    ) -> None:
        super().__init__(parent)
        self._send = send
        self._snapshot: Snapshot | None = None
        self._done: list[Done] = []
        self._undone: list[Done] = []
        self._busy = False
        for dock in docks.values():
            dock.installEventFilter(self)

    @property
    def undo_text(self) -> str:
        """What would be undone next; "" for nothing."""
        return self._done[-1].text if self._done else ""

    @property
    def redo_text(self) -> str:
        """What would be done again next; "" for nothing."""
        return self._undone[-1].text if self._undone else ""

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """What is there now; changes of a run that is no more cannot be undone."""
        before, self._snapshot = self._snapshot, snapshot
        if before is not None and before.source and not same_run(before, snapshot):
            self._done.clear()
            self._undone.clear()
            self.changed.emit()

    def sent(self, command: Command) -> None:
        """A command of a person goes to the worker."""
        change = change_of(command, self._snapshot) if self._snapshot is not None else None
        if change is not None:
            self._note(Done(change.text, self._sending(change.undo), self._sending(change.redo)))

    def undo(self) -> None:
        """Take the last change back."""
        if self._done:
            self._undone.append(self._done.pop())
            self._act(self._undone[-1].undo)

    def redo(self) -> None:
        """Make the change again that was taken back last."""
        if self._undone:
            self._done.append(self._undone.pop())
            self._act(self._done[-1].redo)

    def why_not(self) -> dict[str, str]:
        """Why nothing can be undone or done again, "" where something can."""
        return {
            "undo": "" if self._done else "nothing was changed yet that can be undone",
            "redo": "" if self._undone else "nothing was undone",
        }

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """A panel is closed by its button or from the menu."""
        if event.type() == QEvent.Type.Close and isinstance(watched, QDockWidget) and watched.isVisible():
            title = watched.windowTitle().partition(" (")[0].lower()
            self._note(Done(f"close the panel {title}", watched.show, watched.hide))
        return False

    def _note(self, done: Done) -> None:
        if self._busy:
            return
        self._done.append(done)
        del self._done[:-MOST_CHANGES]
        self._undone.clear()
        self.changed.emit()

    def _act(self, act: Callable[[], None]) -> None:
        # What is set off by it is no change of a person.
        self._busy = True
        try:
            act()
        finally:
            self._busy = False
        self.changed.emit()

    def _sending(self, commands: tuple[Command, ...]) -> Callable[[], None]:
        def send() -> None:
            for command in commands:
                self._send(command)

        return send
