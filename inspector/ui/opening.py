"""Ways to a source from the window: file dialogs, what is dropped on it, and what was opened lately."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import QEvent, QMimeData, QObject, QSettings, Qt, Signal
from PySide6.QtGui import QDropEvent
from PySide6.QtWidgets import QFileDialog, QMainWindow

from inspector.files import named_files
from inspector.runtime.snapshots import Snapshot
from inspector.session.places import TOP_NAMES

FILE_FILTER = (
    "Checkpoints, states, dumps, recordings "
    "(*.safetensors *.pt *.pth *.bin *.ckpt *.json *.zip);;Kernels (*.wgsl);;All files (*)"
)
WGSL = ".wgsl"
CHECKPOINTS = (".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".json")
RECENT_KEY = "recent/sources"
MAX_RECENT = 10
ONE_ONLY = (
    "Drop one recording at a time: only the files of a checkpoint go together, weights and optimizer state."
)


class Opening(QObject):
    """`chosen` carries the source that a person named, `recent_changed` what was opened lately, newest first."""

    chosen = Signal(str)
    recent_changed = Signal(tuple)
    problem = Signal(str)
    kernels_chosen = Signal(list)
    """Paths of WGSL files."""

    def __init__(
        self, window: QMainWindow, settings: Callable[[], QSettings | None], fixed: tuple[str, ...]
    ) -> None:
        """`fixed` are the sources that are always at hand, which need not be remembered."""
        super().__init__(window)
        self._window = window
        self._settings = settings
        self._fixed = fixed
        self._run: tuple[str, int] | None = None
        window.setAcceptDrops(True)
        window.installEventFilter(self)

    def recent(self) -> tuple[str, ...]:
        """What was opened lately, newest first."""
        settings = self._settings()
        value = settings.value(RECENT_KEY) if settings is not None else None
        # One entry comes back as text, none as nothing at all.
        given = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        found = (spec for spec in given if isinstance(spec, str) and spec and spec not in self._fixed)
        return tuple(found)[:MAX_RECENT]

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Remember a source once it is open."""
        run = snapshot.source, snapshot.run
        if snapshot.mode in ("paused", "running") and snapshot.plan is not None and run != self._run:
            self._run = run
            self._remember(snapshot.source)

    def choose_file(self) -> None:
        """Ask for a state file or a packed recording, or for the files of a checkpoint."""
        dialog = QFileDialog(self._window, "Open a file, or those of a checkpoint", "", FILE_FILTER)
        dialog.setObjectName("open_dialog")
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.setFileMode(QFileDialog.FileMode.ExistingFiles)
        dialog.fileSelected.connect(lambda path: self._take([path]))
        dialog.filesSelected.connect(self._take_several)
        dialog.show()

    def choose_recording(self) -> None:
        """Ask for the folder of a recording, or of a checkpoint."""
        from inspector.ui.session_dialog import SessionDialog

        title = "Open the folder of a recording or of a checkpoint"
        SessionDialog(self._window, title, lambda path: self._take([path]), any_folder=True).show()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Take files that are dropped on the window."""
        kinds = (QEvent.Type.DragEnter, QEvent.Type.DragMove, QEvent.Type.Drop)
        if watched is not self._window or event.type() not in kinds or not isinstance(event, QDropEvent):
            return False
        paths = dropped(event.mimeData())
        if not paths:
            return False
        event.setDropAction(Qt.DropAction.CopyAction)
        event.accept()
        if event.type() == QEvent.Type.Drop:
            self._take(paths)
        return True

    def _take(self, paths: list[str]) -> None:
        if kernels := wgsl_files(paths):
            self.kernels_chosen.emit(kernels)
        elif len(paths) == 1:
            self.chosen.emit(session_of(paths[0]))
        elif any(is_recording(Path(path)) for path in paths):
            self.problem.emit(ONE_ONLY)
        else:
            self.chosen.emit("+".join(paths))

    def _take_several(self, paths: list[str]) -> None:
        # One alone comes by its own signal.
        if len(paths) > 1:
            self._take(paths)

    def _remember(self, source: str) -> None:
        settings = self._settings()
        if settings is None or source in self._fixed:
            return
        files = named_files(source)
        spec = "+".join(str(path.absolute()) for path in files) if files else source
        recent = (spec, *(each for each in self.recent() if each != spec))[:MAX_RECENT]
        settings.setValue(RECENT_KEY, list(recent))
        settings.sync()
        self.recent_changed.emit(recent)


def dropped(data: QMimeData) -> list[str]:
    """The paths of what is dragged; none where it is no file of this machine."""
    return [url.toLocalFile() for url in data.urls() if url.isLocalFile()]


def wgsl_files(paths: Sequence[str]) -> list[Path]:
    """The WGSL files that are named, or that lie in a folder that holds nothing else to open; else none."""
    if paths and all(Path(path).suffix.lower() == WGSL for path in paths):
        return [Path(path) for path in paths]
    folder = Path(paths[0]) if len(paths) == 1 else None
    if folder is None or is_recording(folder) or not folder.is_dir():
        return []
    try:
        inside = sorted(path for path in folder.iterdir() if path.is_file())
    except OSError:
        # Whoever opens it says so.
        return []
    others = [path for path in inside if path.suffix.lower() in CHECKPOINTS or path.name in TOP_NAMES]
    return [] if others else [path for path in inside if path.suffix.lower() == WGSL]


def is_recording(path: Path) -> bool:
    """True for a recording by its name, packed or not, and for its database or its list of ranks."""
    return path.suffix in (".session", ".zip") or path.name in TOP_NAMES


def session_of(path: str) -> str:
    """`path`, or the recording that it is the database or the list of ranks of."""
    named = Path(path)
    return str(named.parent) if named.name in TOP_NAMES else path
