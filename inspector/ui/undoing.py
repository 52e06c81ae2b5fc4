"""Undo and redo of what a person changed: settings, breakpoints, bookmarks, overlays, closed panels."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from PySide6.QtCore import QEvent, QObject, Signal
from PySide6.QtGui import QUndoCommand, QUndoStack
from PySide6.QtWidgets import QDockWidget

from inspector.runtime.commands import Command
from inspector.runtime.snapshots import Snapshot
from inspector.ui.reversal import change_of
from inspector.ui.view import same_run

MOST_CHANGES = 200


class _Step(QUndoCommand):
    """A change that was made already: it is done again only after it was undone."""

    def __init__(self, text: str, undo: Callable[[], None], redo: Callable[[], None]) -> None:
        super().__init__(text)
        self._undo, self._redo, self._made = undo, redo, True

    def undo(self) -> None:
        self._undo()

    def redo(self) -> None:
        if self._made:
            self._made = False
        else:
            self._redo()


class Undoing(QObject):
    """Watches what is sent and which panels are closed. `changed` says that something else can be undone."""

    changed = Signal()

    def __init__(
        self, send: Callable[[Command], None], docks: Mapping[str, QDockWidget], parent: QObject
    ) -> None:
        super().__init__(parent)
        self._send = send
        self._snapshot: Snapshot | None = None
        self.stack = QUndoStack(self)
        self.stack.setUndoLimit(MOST_CHANGES)
        self.stack.indexChanged.connect(self.changed)
        for dock in docks.values():
            dock.installEventFilter(self)

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """What is there now; changes of a run that is no more cannot be undone."""
        before, self._snapshot = self._snapshot, snapshot
        if before is not None and before.source and not same_run(before, snapshot):
            self.stack.clear()

    def sent(self, command: Command) -> None:
        """A command of a person goes to the worker."""
        change = change_of(command, self._snapshot) if self._snapshot is not None else None
        if change is not None:
            self.stack.push(_Step(change.text, self._sending(change.undo), self._sending(change.redo)))

    def why_not(self) -> dict[str, str]:
        """Why nothing can be undone or done again, "" where something can."""
        return {
            "undo": "" if self.stack.canUndo() else "nothing was changed yet that can be undone",
            "redo": "" if self.stack.canRedo() else "nothing was undone",
        }

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """A panel is closed by its button or from the menu."""
        if event.type() == QEvent.Type.Close and isinstance(watched, QDockWidget) and watched.isVisible():
            title = watched.windowTitle().partition(" (")[0].lower()
            self.stack.push(_Step(f"close the panel {title}", watched.show, watched.hide))
        return False

    def _sending(self, commands: tuple[Command, ...]) -> Callable[[], None]:
        def send() -> None:
            for command in commands:
                self._send(command)

        return send
