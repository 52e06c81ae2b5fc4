"""The bar of the comparison: which two recordings, start and end, and how far it is."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QLineEdit, QProgressBar, QPushButton, QToolButton, QWidget

from inspector.runtime.beside import BesidePicture
from inspector.runtime.commands import CancelDiff, DiffSessions
from inspector.ui import theme
from inspector.ui.session_dialog import SessionDialog

PER_CENT = 100
FIELD_HELP = "The folder of a recording, or the zip file that one was packed in"


class CompareBar(QWidget):
    """Emits DiffSessions or CancelDiff by `command`. An empty first field means the recording that is open."""

    command = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._beside = BesidePicture()
        self._row = QHBoxLayout(self)
        self._row.setContentsMargins(theme.GRID, theme.GRID, theme.GRID, 0)
        self._row.setSpacing(theme.GRID)
        self.a = self._field("a", "a recording")
        self.b = self._field("b", "another of the same params")
        self.button = QPushButton("Compare")
        self.button.setObjectName("compare_button")
        self.button.clicked.connect(self.toggle)
        self.progress = QProgressBar()
        self.progress.setMaximum(PER_CENT)
        self.progress.setMaximumWidth(160)
        self.progress.hide()
        self._row.addWidget(self.button)
        self._row.addWidget(self.progress)
        self._show_button()

    def show_beside(self, beside: BesidePicture) -> None:
        """What is open, and how far a comparison is."""
        before, self._beside = self._beside, beside
        open_ = beside.recording
        self.a.setPlaceholderText(f"{Path(open_).name} (open)" if open_ else "a recording")
        self.a.setToolTip(self.a.text() or open_ or FIELD_HELP)
        if not self.b.text():
            under = [o.path for o in beside.overlays if not is_same(o.path, open_)]
            before_under = [o.path for o in before.overlays]
            if under and under[0] not in before_under:
                self.b.setText(under[0])
        diff = beside.diff
        going = diff is not None and diff.share is not None
        self.progress.setVisible(going)
        if diff is not None and diff.share is not None:
            self.progress.setValue(round(PER_CENT * diff.share))
        self._show_button()

    def toggle(self) -> None:
        """Start what is named, or end what goes on."""
        if self._going:
            self.command.emit(CancelDiff())
        else:
            self.start()

    def start(self) -> None:
        """Hold the two against each other, where both are named and it does not go on yet."""
        if not self._going and not self._missing():
            self.command.emit(DiffSessions(self.a.text().strip(), self.b.text().strip()))

    @property
    def _going(self) -> bool:
        return self._beside.diff is not None and self._beside.diff.share is not None

    def _missing(self) -> str:
        if not self.a.text().strip() and self._beside.recording is None:
            return "name the first recording, or open it"
        return "" if self.b.text().strip() else "name the second recording"

    def _show_button(self) -> None:
        self.button.setText("Cancel" if self._going else "Compare")
        missing = "" if self._going else self._missing()
        self.button.setEnabled(not missing)
        tip = "End the comparison" if self._going else "Hold the two against each other (Enter)"
        self.button.setToolTip(f"{tip}\nNot now: {missing}" if missing else tip)

    def _field(self, name: str, hint: str) -> QLineEdit:
        label = QLabel(name)
        field = QLineEdit()
        field.setObjectName(f"compare_{name}")
        field.setPlaceholderText(hint)
        field.setToolTip(FIELD_HELP)
        field.setAccessibleName(f"recording {name}")
        field.setMinimumWidth(80)
        field.textChanged.connect(self._show_button)
        field.returnPressed.connect(self.toggle)
        label.setBuddy(field)
        choose = QToolButton()
        choose.setText("…")
        choose.setToolTip(f"Choose recording {name}")
        choose.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        choose.clicked.connect(lambda: self._choose(name, field))
        self._row.addWidget(label)
        self._row.addWidget(field, 1)
        self._row.addWidget(choose)
        return field

    def _choose(self, name: str, field: QLineEdit) -> None:
        folder = str(Path(field.text() or self._beside.recording or ".").absolute().parent)
        SessionDialog(self, f"Recording {name}", field.setText, folder).show()


def is_same(a: str | None, b: str | None) -> bool:
    """True where two paths name one place."""
    return a is not None and b is not None and Path(a).absolute() == Path(b).absolute()
