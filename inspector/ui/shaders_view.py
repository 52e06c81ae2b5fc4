"""The WGSL of each kernel to edit: run again from the same state, held against before and float64, reverted, saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from PySide6.QtCore import QSignalBlocker, Qt, QTimer, Signal
from PySide6.QtGui import QGuiApplication, QHideEvent
from PySide6.QtWidgets import QSplitter, QVBoxLayout, QWidget

from inspector.errors import UsageError
from inspector.files import write_text
from inspector.own_shaders import load_own_kernels, texts_by_entry_point
from inspector.runtime.commands import CheckShader, TryShader
from inspector.runtime.shaders import NO_SHADERS, ShadersPicture
from inspector.runtime.snapshots import Snapshot
from inspector.ui import theme
from inspector.ui.actions import blocked
from inspector.ui.shaders_bar import ShadersBar
from inspector.ui.shaders_editor import WgslEditor
from inspector.ui.shaders_model import ShaderTexts, trial_text
from inspector.ui.shaders_result import SAMPLES, MessagesModel, TrialModel
from inspector.ui.shortcuts import bind
from inspector.ui.tables import dense_table, row_height, set_widths
from inspector.ui.view import LazyView
from inspector.ui.widgets import WrappedLabel, ask_file

CHECK_MS = 350
"""So long after the last key a text is checked, and kept."""
SHOWN_MESSAGES = 5
KEYS = (
    ("Ctrl+Enter", "run the step again from its start with the kernel on show"),
    ("Ctrl+Shift+Enter", "revert to the kernel that the run was opened with"),
    ("Ctrl+S", "save the kernel as a file for --shaders"),
    ("F4 / Shift+F4", "the next problem of the compiler, and the one before"),
    ("Ctrl+J", "go to the element of the selected lane where the kernels are furthest apart"),
    ("Ctrl+Shift+C", "copy the comparison"),
)


class ShadersView(LazyView):
    """Which kernel, what its text is to the run, the text itself, and beside it what came of it."""

    LOCAL_KEYS = KEYS
    PERIOD_S = 0.1

    drafts_changed = Signal(object)
    """Texts that were edited and are in no file, by entry point."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("shaders")
        self.texts = ShaderTexts()
        self._picture: ShadersPicture = NO_SHADERS
        self._kept: dict[str, str] = {}
        self._told = ""
        self._checked: tuple[str, str] | None = None
        self.bar = ShadersBar()
        self.kernel, self.state = self.bar.kernel, self.bar.state
        self.kernel.currentTextChanged.connect(self._on_kernel)
        for button, act in (
            (self.bar.run, self.run_again),
            (self.bar.back, self.revert),
            (self.bar.keep, self.save),
        ):
            button.clicked.connect(act)
        self.editor = WgslEditor()
        self.editor.textChanged.connect(self._on_typed)
        self.messages = MessagesModel()
        self.problems = dense_table(self.messages, "shaders-problems")
        self.problems.setAccessibleName("what is wrong with the kernel")
        set_widths(self.problems, ("999:99", "what"), stretch=1)
        self.problems.clicked.connect(lambda index: self._go_to_problem(index.row()))
        self.problems.activated.connect(lambda index: self._go_to_problem(index.row()))
        self.trial = TrialModel()
        self.lanes = dense_table(self.trial, "shaders-lanes")
        self.lanes.setAccessibleName("lanes that the kernel writes")
        set_widths(self.lanes, SAMPLES)
        self.lanes.activated.connect(lambda _index: self.go_to_element())
        self.says = WrappedLabel()
        self._assemble()
        self.setFocusProxy(self.editor)
        self._typed = QTimer(self, singleShot=True, interval=CHECK_MS)
        self._typed.timeout.connect(self._settle)
        keys = (
            ("Ctrl+Return", self.run_again), ("Ctrl+Shift+Return", self.revert), ("Ctrl+S", self.save),
            ("F4", self.next_problem), ("Shift+F4", lambda: self.next_problem(-1)),
            ("Ctrl+J", self.go_to_element), ("Ctrl+Shift+C", self.copy),
        )  # fmt: skip
        bind(self, keys, inside=True)
        theme.changes().changed.connect(self._say)
        self._say()

    def _assemble(self) -> None:
        self.says.setContentsMargins(theme.GRID, 1, theme.GRID, 1)
        beside = QWidget()
        column = QVBoxLayout(beside)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.problems)
        column.addWidget(self.says)
        column.addWidget(self.lanes, 1)
        self.splitter = QSplitter(Qt.Orientation.Horizontal)
        self.splitter.addWidget(self.editor)
        self.splitter.addWidget(beside)
        self.splitter.setStretchFactor(0, 3)
        self.splitter.setStretchFactor(1, 2)
        self.splitter.setSizes([560, 400])
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(0)
        outer.addWidget(self.bar)
        outer.addWidget(self.splitter, 1)

    # --- what a person does

    @property
    def entry(self) -> str:
        """The kernel on show by its entry point; "" while there is none."""
        return self.kernel.currentText()

    def show_kernel(self, entry: str) -> None:
        """Show the text of another kernel."""
        self.kernel.setCurrentText(entry)

    def take_drafts(self, drafts: Mapping[str, str]) -> None:
        """Texts that were edited when the window was open last."""
        self.texts.take_drafts(drafts)
        self._kept = dict(drafts)

    def run_again(self) -> None:
        """Put the kernel on show in place and run the step again with it."""
        if self.bar.run.isEnabled():
            self._told = ""
            self._settle()
            self.command.emit(TryShader(self.entry, self.texts.text(self.entry)))

    def revert(self) -> None:
        """Back to the kernel that the run was opened with; Ctrl+Z brings the text back."""
        if not self.bar.back.isEnabled():
            return
        self._told = ""
        self.texts.revert(self.entry)
        self._show_text()
        self._settle()
        self.command.emit(TryShader(self.entry, None))

    def save(self) -> None:
        """Ask where, and write the text there."""
        entry = self.entry
        if not self.bar.keep.isEnabled():
            return
        own = self._picture.opened_with.get(entry)
        name = own.file if own is not None else f"{entry}.wgsl"
        ask_file(self, "Save the kernel", name, "WGSL (*.wgsl)", lambda path: self.save_to(Path(path), entry))

    def save_to(self, path: Path, entry: str) -> None:
        """Write the text of a kernel, and see what --shaders says of that folder."""
        text = self.texts.text(entry)
        try:
            write_text(path, text)
            self.texts.saved(entry, text)
            self._told = f"saved as {path}: use it with --shaders {path.parent}"
            found = load_own_kernels(path.parent).get(entry)
            if found is None or Path(found.file) != path:
                self._told = f"⚠ saved as {path}, where --shaders does not take it: end the name in .wgsl"
        except UsageError as error:
            saved = not self.texts.is_draft(entry)
            self._told = f"⚠ saved, but {error}" if saved else f"⚠ {error}"
        self._settle()
        self._say()

    def take_files(self, files: Sequence[Path]) -> None:
        """Show the kernels of files in place of the texts that are here; what was typed comes back by undo."""
        try:
            found = texts_by_entry_point(files)
        except UsageError as error:
            self._told = f"⚠ {error}"
            self._say()
            return
        mine = {entry: found[entry] for entry in self.texts.kernels if entry in found}
        for entry, (_, text) in mine.items():
            if not self.texts.fixed(entry):
                self.texts.edit(entry, text)
                self.texts.saved(entry, text)
        if mine:
            entry, (path, _) = next(iter(mine.items()))
            self._told = self.texts.fixed(entry) or f"from {path}: Ctrl+Enter runs the step again with it"
            if entry != self.entry:
                told, self._told = self._told, ""
                self.show_kernel(entry)
                self._told = told
            self._show_text()
            self._settle()
        else:
            runs = ", ".join(self.texts.kernels) or "none, no source is open"
            self._told = f"⚠ {', '.join(list(found)[:5])} is no kernel of this step, whose kernels are {runs}"
        self._say()

    def next_problem(self, by: int = 1) -> None:
        """Go to the next line that something is wrong with, from the caret on, or to the one before it."""
        lines = sorted(self.editor.wrong_lines)
        if not lines:
            return
        here = self.editor.textCursor().blockNumber() + 1
        if by > 0:
            line = next((each for each in lines if each > here), lines[0])
        else:
            line = next((each for each in reversed(lines) if each < here), lines[-1])
        self._go_to_problem(next(i for i, each in enumerate(self.messages.messages) if each.line == line))

    def copy(self) -> None:
        """The lanes on the clipboard, tabs between columns."""
        QGuiApplication.clipboard().setText(f"{self.says.text()}\n{self.trial.as_text()}")

    def _go_to_problem(self, row: int) -> None:
        if 0 <= row < len(self.messages.messages):
            message = self.messages.messages[row]
            self.problems.selectRow(row)
            self.editor.go_to(message.line, message.column)
            self.editor.setFocus(Qt.FocusReason.ShortcutFocusReason)

    def go_to_element(self) -> None:
        """Select the element of the lane that is selected, else of the first, where the kernels are furthest apart."""
        lane = self.trial.row(max(self.lanes.currentIndex().row(), 0))
        if lane is not None and lane.param:
            self.element_selected.emit(lane.param, lane.index)

    def _on_kernel(self, _entry: str) -> None:
        self._settle()
        self._told = ""
        self._show_text()
        self._say()
        self._check()

    def _on_typed(self) -> None:
        if not self.entry or self.editor.text == self.texts.text(self.entry):
            return
        self._told = ""
        self.texts.edit(self.entry, self.editor.text)
        self._typed.start()
        self._say()

    def _settle(self) -> None:
        """Nothing more is typed for now: keep the text, and have it checked."""
        self._typed.stop()
        drafts = self.texts.drafts
        # Those of kernels that are in no run now stay as they were kept.
        others = {e: t for e, t in self._kept.items() if e not in self.texts.kernels}
        if (now := others | drafts) != self._kept:
            self._kept = now
            self.drafts_changed.emit(now)
        self._check()

    def _check(self) -> None:
        asked = (self.entry, self.texts.text(self.entry))
        unknown = self.texts.messages(self.entry, self._picture) is None
        usable = self._snapshot is not None and not blocked(self._snapshot)
        edited = self.texts.text(self.entry) != self.texts.origin(self.entry)
        if unknown and usable and edited and asked != self._checked:
            self._checked = asked
            self.command.emit(CheckShader(*asked))

    def hideEvent(self, event: QHideEvent) -> None:
        """What was typed last is kept, be it that the window closes."""
        super().hideEvent(event)
        if self._typed.isActive():
            self._settle()

    # --- showing

    def _on_new_run(self) -> None:
        self._checked = None

    def _update(self, snapshot: Snapshot) -> None:
        changed = snapshot.plan is not None and self.texts.show_plan(
            snapshot.plan, snapshot.shaders.opened_with
        )
        if changed:
            self._show_kernels()
        trial = snapshot.shaders.trial
        if trial is not self.trial.trial and trial is not None and trial.entry_point in self.texts.kernels:
            self.show_kernel(trial.entry_point)
        self._picture = snapshot.shaders
        if trial is not self.trial.trial or changed:
            shown = trial if trial is not None and trial.entry_point == self.entry else None
            layout = snapshot.plan.layout if snapshot.plan is not None else ()
            names = {row.param for row in shown.rows} if shown is not None else set()
            self.trial.show_trial(shown, {s.name: s.param.shape for s in layout if s.name in names})
        self._say()
        if changed:
            self._check()

    def _show_kernels(self) -> None:
        before, kernels = self.entry, self.texts.kernels
        if tuple(self.kernel.itemText(i) for i in range(self.kernel.count())) != kernels:
            wanted = before if before in kernels else next((k for k in kernels if k.startswith("adamw")), "")
            with QSignalBlocker(self.kernel):
                self.kernel.clear()
                self.kernel.addItems(kernels)
                self.kernel.setCurrentText(wanted or (kernels[-1] if kernels else ""))
        self._show_text()

    def _show_text(self) -> None:
        entry = self.entry
        if entry:
            with QSignalBlocker(self.editor):
                text, fixed = self.texts.text(entry), bool(self.texts.fixed(entry))
                if self.editor.show_text(entry, text, read_only=fixed):
                    self.editor.go_to(self.texts.first_line(entry))

    def _say(self) -> None:
        entry, snapshot = self.entry, self._snapshot
        why = blocked(snapshot) if snapshot is not None else "no source is open"
        messages = self.texts.messages(entry, self._picture) or ()
        self.messages.show_messages(messages)
        self.problems.setVisible(bool(messages))
        rows = min(len(messages), SHOWN_MESSAGES)
        self.problems.setMaximumHeight(
            self.problems.horizontalHeader().sizeHint().height() + rows * row_height() + 2
        )
        self.editor.show_messages(messages)
        self.bar.say(self._told or self.texts.state(entry, self._picture))
        self.says.setText(trial_text(self._picture.trial, entry))
        fixed = self.texts.fixed(entry) or ("" if entry else "there is no kernel")
        same = "" if self.texts.can_revert(entry) else "it is the one that the run was opened with"
        self.bar.allow(run=why or fixed, back=why or fixed or same, keep=fixed)
