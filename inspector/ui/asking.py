"""What the window asks for before something is done: files, recordings, a what-if; and the overview of keys."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, SignalInstance
from PySide6.QtWidgets import QWidget

from inspector.runtime.commands import Command, SaveReport, ShowOverlay
from inspector.runtime.snapshots import Snapshot
from inspector.ui.widgets import ask_file

if TYPE_CHECKING:
    from inspector.ui.guide_window import GuideWindow
    from inspector.ui.keys import Group, KeysDialog


class Asking(QObject):
    """Dialogs that stand beside the window and stop nothing. Each is loaded when it is wanted: a start needs none."""

    def __init__(self, window: QWidget, send: Callable[[Command], None], arrived: SignalInstance) -> None:
        """`arrived` is a signal that carries each snapshot."""
        super().__init__(window)
        self._window = window
        self._send = send
        self._arrived = arrived
        self._snapshot: Snapshot | None = None
        self.keys: KeysDialog | None = None
        self.guide: GuideWindow | None = None

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """What the next question is about."""
        self._snapshot = snapshot

    def show_guide(self) -> None:
        """Five tasks step by step, in a window of their own."""
        from inspector.ui.guide_window import GuideWindow

        if self.guide is None:
            self.guide = GuideWindow(self._window)
        if not self.guide.isVisible():
            self.guide.place(self._window)
        self.guide.show()
        self.guide.raise_()

    def show_keys(self, groups: list[Group]) -> None:
        """All keys in a window of their own."""
        from inspector.ui.keys import KeysDialog

        if self.keys is None:
            self.keys = KeysDialog(self._window)
        self.keys.show_groups(groups)
        self.keys.show()
        self.keys.raise_()

    def ask_recording(self) -> None:
        """Where to record, and what of tensors."""
        if self._snapshot is None or self._snapshot.plan is None:
            return
        from inspector.ui.record_dialog import RecordDialog

        dialog = RecordDialog(self._snapshot, self._window)
        dialog.command.connect(self._send)
        dialog.show()

    def ask_run_back(self) -> None:
        """To the last step before what condition held to go back."""
        if self._snapshot is None or self._snapshot.plan is None:
            return
        from inspector.ui.run_back_dialog import RunBackDialog

        dialog = RunBackDialog(self._snapshot, self._window)
        dialog.command.connect(self._send)
        dialog.show()

    def ask_report(self) -> None:
        """Where to write the story of the run."""
        name = Path(self._snapshot.source).name if self._snapshot is not None else ""
        suggested = f"{name.split('.')[0].split(':')[0] or 'report'}.html"
        ask_file(
            self._window,
            "Save the report",
            suggested,
            "Web pages (*.html)",
            lambda p: self._send(SaveReport(p)),
        )

    def ask_overlay(self) -> None:
        """Which recording to lay under the run."""
        from inspector.ui.session_dialog import SessionDialog

        open_ = self._snapshot.beside.recording if self._snapshot is not None else None
        folder = "" if open_ is None else str(Path(open_).absolute().parent)
        SessionDialog(
            self._window, "Overlay a recording", lambda path: self._send(ShowOverlay(path)), folder
        ).show()

    def ask_what_if(self) -> None:
        """What to run the open recording again with."""
        if self._snapshot is None or self._snapshot.beside.recording is None:
            return
        from inspector.ui.what_if_dialog import WhatIfDialog

        before = self._window.findChild(WhatIfDialog)
        if before is not None and before.isVisible():
            if before.running:
                before.raise_()
                return
            # What it says of changes may be over.
            before.close()
        dialog = WhatIfDialog(self._snapshot, self._window)
        dialog.command.connect(self._send)
        self._arrived.connect(dialog.show_snapshot)
        dialog.show()
