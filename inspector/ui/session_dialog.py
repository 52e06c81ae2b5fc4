"""Choosing a recording: a folder NAME.session, or a zip file of one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog, QLineEdit, QWidget

from inspector.session.places import TOP_NAMES

FILTER = f"Recordings (*.session *.zip {' '.join(TOP_NAMES)});;All files (*)"


class SessionDialog(QFileDialog):
    """A file dialog in which to enter the folder of a recording is to choose it."""

    def __init__(
        self,
        parent: QWidget,
        title: str,
        chosen: Callable[[str], None],
        folder: str = "",
        *,
        any_folder: bool = False,
    ) -> None:
        """With `any_folder` folders are chosen, those of checkpoints as well, which are entered like any other."""
        super().__init__(parent, title, "", "" if any_folder else FILTER)
        self.setObjectName("session_dialog")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        # The system's own dialogs know folders and files only.
        self.setOption(QFileDialog.Option.DontUseNativeDialog)
        self.setFileMode(QFileDialog.FileMode.Directory if any_folder else QFileDialog.FileMode.ExistingFile)
        if any_folder:
            self.fileSelected.connect(chosen)
        self.setLabelText(QFileDialog.DialogLabel.Accept, "Choose")
        if folder:
            self.setDirectory(folder)
        self._chosen = chosen
        self.directoryEntered.connect(self._on_entered)
        self.currentChanged.connect(self._on_current)

    def accept(self) -> None:
        """Take what is named, a file or the folder of a recording."""
        selected = self.selectedFiles()
        path = Path(selected[0]) if selected else None
        if path is not None and (recording := recording_of(path)) is not None:
            self._take(recording)
        elif path is not None and path.is_file():
            # Whether it is one is told by whoever opens it.
            self._take(path)
        else:
            super().accept()

    def _on_entered(self, folder: str) -> None:
        if (recording := recording_of(Path(folder))) is not None:
            self._take(recording)

    def _on_current(self, path: str) -> None:
        """A folder that is a recording is named like a file, so that the button takes it."""
        field = self.findChild(QLineEdit, "fileNameEdit")
        if field is not None and Path(path).is_dir() and recording_of(Path(path)) is not None:
            field.setText(Path(path).name)

    def _take(self, path: Path) -> None:
        self.directoryEntered.disconnect(self._on_entered)
        self.done(int(QFileDialog.DialogCode.Accepted))
        self._chosen(str(path))


def recording_of(path: Path) -> Path | None:
    """The recording that a path means: its folder, or what lies in it; None where it means none."""
    if any((path / name).exists() for name in TOP_NAMES):
        return path
    if path.name in TOP_NAMES and path.exists():
        return path.parent
    return None
