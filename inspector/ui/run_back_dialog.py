"""Back to before what: a condition chosen among the breakpoints or typed, checked against the params of the run."""

from __future__ import annotations

from PySide6.QtCore import QStringListModel, Qt, Signal
from PySide6.QtWidgets import QComboBox, QCompleter, QDialog, QDialogButtonBox, QFormLayout, QLabel, QWidget

from inspector.diagnosis.watchpoints import check_params, parse_condition
from inspector.errors import UsageError
from inspector.runtime.commands import RunBack
from inspector.runtime.snapshots import Snapshot
from inspector.ui.breakpoints_model import completions, meaning

ALWAYS = ("nonfinite > 0", "finding:*")
HELP = (
    "Goes to the end of the last step before it began to hold, looking back from the step on show. Esc ends the "
    "search; the run stays where it is until the step is known."
)


class RunBackDialog(QDialog):
    """Emits one RunBack and closes; stays open where what is typed is no condition."""

    command = Signal(object)

    def __init__(self, snapshot: Snapshot, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("run_back_dialog")
        self.setWindowTitle("Run back to before")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self._names = [s.name for s in snapshot.plan.layout.segments] if snapshot.plan else []
        self.field = QComboBox(self)
        self.field.setObjectName("run_back_field")
        self.field.setAccessibleName("Condition")
        self.field.setEditable(True)
        self.field.setMinimumWidth(360)
        self.field.addItems(suggested(snapshot))
        self._words = QStringListModel(self)
        completer = QCompleter(self._words, self)
        completer.setCaseSensitivity(Qt.CaseSensitivity.CaseInsensitive)
        completer.setFilterMode(Qt.MatchFlag.MatchContains)
        self.field.setCompleter(completer)
        self.field.editTextChanged.connect(self._on_edited)
        self.note = QLabel(self)
        self.note.setWordWrap(True)
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Cancel, self)
        self.go = buttons.addButton("Run back", QDialogButtonBox.ButtonRole.AcceptRole)
        self.go.setObjectName("run_back_go")
        self.go.setDefault(True)
        buttons.accepted.connect(self._begin)
        buttons.rejected.connect(self.reject)
        form = QFormLayout(self)
        form.addRow("To before", self.field)
        form.addRow(self.note)
        form.addRow(buttons)
        self._on_edited(self.field.currentText())
        edit = self.field.lineEdit()
        if edit is not None:
            edit.selectAll()

    def _on_edited(self, text: str) -> None:
        wanted = completions(text, self._names)
        if wanted != self._words.stringList():
            self._words.setStringList(wanted)
        self.note.setText(" ".join(filter(None, (meaning(text), HELP))))

    def _begin(self) -> None:
        try:
            condition = parse_condition(self.field.currentText())
            if self._names:
                check_params(condition, self._names)
        except UsageError as error:
            self.note.setText(f"⚠ {error}")
            return
        self.command.emit(RunBack(condition))
        self.accept()


def suggested(snapshot: Snapshot) -> list[str]:
    """Conditions to begin with: what stopped the run, then the breakpoints, then what one asks for often."""
    stop = snapshot.stop
    stops = (
        [str(each.condition) for each in (stop, *stop.also)] if stop is not None and not stop.aimed else []
    )
    return list(dict.fromkeys([*stops, *(str(b.condition) for b in snapshot.breakpoints), *ALWAYS]))
