"""The toolbar: what runs, in which form, the stepping buttons, and where the run stands."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from PySide6.QtCore import QRegularExpression, QSignalBlocker, QSize, Qt, Signal
from PySide6.QtGui import QAction, QFontMetrics, QRegularExpressionValidator, QStandardItemModel
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QLabel, QToolBar, QToolButton, QWidget

from inspector.codecs import CODECS
from inspector.hyper import NUMERICS
from inspector.plan import DISPATCH_FORMS, KERNELS, REDUCES, Variant
from inspector.runtime.commands import OpenSource, Seek, SetVariant
from inspector.runtime.snapshots import Snapshot
from inspector.ui.actions import Actions
from inspector.ui.form_menu import form_reason, value_text
from inspector.ui.widgets import ElidedLabel, InlineEdit
from inspector.variants import Choice

SOURCES = ("charlm", "synthetic:1000000", "gpt-116m", "surface:valley")
OPEN_FILE = "open file…"
COMBO_FRAME = 32
"""What frame and arrow take beside the text."""
SOURCE_WIDTH = 160
"""At most, of the text of a source; longer ones are shortened to it."""
LEAST_WHERE = "step 8,888 · dispatch 8/8 → step 8,888"
MAX_STEP = 2_147_483_647
PLACE = r"\d{1,10}(:\d{0,5})?"
"""A step, or one of its dispatches, as typed."""

CHOICES: tuple[tuple[str, Sequence[str], str], ...] = (
    ("kernel", KERNELS, "The update kernel"),
    ("codec", CODECS, "How m and v become 8-bit codes"),
    ("reduce", REDUCES,
     "How the gradient norm is summed: two-pass gives the same bits every run, atomic adds in any order"),
    ("dispatch", DISPATCH_FORMS, "One update for the wd and one for the no-wd block, or one a param"),
    ("numerics", NUMERICS,
     "published: 1-β in float32 as the kernels came; precise: 1-β in float64, rounded as by PyTorch on a CPU"),
)  # fmt: skip
BUTTONS = (
    ("undo_iteration", False),
    ("undo_dispatch", False),
    ("step_dispatch", True),
    ("step_iteration", True),
    ("run", True),
    ("pause", False),
    ("record", False),
)


class StepEdit(InlineEdit):
    """A step to go to, or a dispatch of it; Enter goes, Esc gives up."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("go_to_step_edit")
        self.setPlaceholderText("go to step")
        self.setAccessibleName("Go to step")
        self.setToolTip("Type a step, or a dispatch of it as in 1200:2, and press Enter (Ctrl+G)")
        self.setValidator(QRegularExpressionValidator(QRegularExpression(PLACE), self))
        self.setMaximumWidth(self.fontMetrics().horizontalAdvance("go to step 00"))

    @property
    def place(self) -> Seek | None:
        """Where to go, None where no step stands there yet."""
        step, _, dispatch = self.text().partition(":")
        if not step or int(step) > MAX_STEP:
            return None
        return Seek(int(step), int(dispatch) if dispatch else None)


class MainToolBar(QToolBar):
    """Shows the form of the run and changes it."""

    command = Signal(object)
    open_file = Signal()

    def __init__(self, actions: Actions, parent: QWidget | None = None) -> None:
        super().__init__("Run", parent)
        self.setObjectName("main_toolbar")
        self.setMovable(False)
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.PreventContextMenu)
        self.setIconSize(QSize(16, 16))
        self._shown: Variant | None = None
        self._wanted: Variant | None = None
        self._choices: tuple[Choice, ...] = ()
        self._wanted_until: tuple[int, int | None] = (0, None)
        self._places: dict[str, QAction] = {}
        self._open: tuple[str, bool] = ("", False)
        """The source that is open, and whether it runs."""
        self.source = self._combo("source", SOURCES, "Where gradients come from")
        self.source.addItem(OPEN_FILE)
        self.source.activated.connect(self._on_source)
        # The buttons and where the run stands come before the choices: in a narrow window these go first, the last
        # of them before the others, and the menu of the form has them all.
        self.addSeparator()
        for name, with_key in BUTTONS:
            self._button(actions, name, with_key)
        self.addSeparator()
        self._add_where(actions)
        self.choices: dict[str, QComboBox] = {}
        self._tips: dict[str, str] = {}
        for name, options, tip in CHOICES:
            # A choice of one is no choice.
            if len(options) > 1:
                combo = self._combo(name, options, tip + ". Holds from the next step on.")
                combo.activated.connect(self._on_choice)
                combo.setEnabled(False)
                self.choices[name] = combo
                self._tips[name] = combo.toolTip()
        self._places["codec"].setVisible(False)

    def _add_where(self, actions: Actions) -> None:
        self.step_edit = StepEdit(self)
        self.step_edit.returnPressed.connect(self._on_step_entered)
        self.step_edit.left.connect(lambda: self._show_step_edit(False))
        self.cursor_label = ElidedLabel(self)
        self.cursor_label.setObjectName("cursor_label")
        # In one widget: what a toolbar shows itself appears only at its next layout, too late for the focus.
        where = QWidget(self)
        row = QHBoxLayout(where)
        row.setContentsMargins(4, 0, 4, 0)
        where.setMinimumWidth(self.fontMetrics().horizontalAdvance(LEAST_WHERE) + 8)
        row.addWidget(self.step_edit)
        row.addWidget(self.cursor_label, 1)
        self.addWidget(where)
        self._show_step_edit(False)
        actions["go_to_step"].triggered.connect(lambda: self._show_step_edit(True))

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Show source, form and cursor."""
        self._open = (snapshot.source, snapshot.mode != "failed")
        self._show_source(snapshot.source)
        self._show_variant(snapshot)
        self.cursor_label.setText(cursor_text(snapshot))

    def _combo(self, name: str, options: Sequence[str], tip: str) -> QComboBox:
        label = QLabel(name, self)
        label.setContentsMargins(8, 0, 4, 0)
        label.setToolTip(tip)
        combo = QComboBox(self)
        combo.setObjectName(f"{name}_combo")
        combo.setAccessibleName(name)
        combo.setToolTip(tip)
        combo.addItems(list(options))
        metrics = combo.fontMetrics()
        combo.setFixedWidth(max(metrics.horizontalAdvance(option) for option in options) + COMBO_FRAME)
        # A click leaves the keys where they were: here they would change the run.
        combo.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        label.setBuddy(combo)
        # In one widget, so that a name never stands without its choice.
        both = QWidget(self)
        row = QHBoxLayout(both)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        row.addWidget(label)
        row.addWidget(combo)
        self._places[name] = self.addWidget(both)
        return combo

    def _button(self, actions: Actions, name: str, with_key: bool) -> None:
        button = QToolButton(self)
        button.setObjectName(f"{name}_button")
        action = actions[name]
        button.setDefaultAction(action)
        if with_key:
            key = action.shortcut().toString()
            button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
            # The key says more here than the name, which is in the tooltip.
            action.setIconText(key)
            action.changed.connect(lambda: action.setIconText(key) if action.iconText() != key else None)
        self.addWidget(button)

    def _show_source(self, source: str) -> None:
        if self.source.view().isVisible():
            return
        with QSignalBlocker(self.source):
            if source and self._index_of(source) < 0:
                text = file_first(source, self.source.fontMetrics(), SOURCE_WIDTH)
                self.source.insertItem(0, text, source)
                self.source.setItemData(0, source, Qt.ItemDataRole.ToolTipRole)
                wide = min(self.source.fontMetrics().horizontalAdvance(text), SOURCE_WIDTH)
                # Shortened to what there is room for: not to be cut once more.
                self.source.setFixedWidth(max(self.source.minimumWidth(), wide + COMBO_FRAME))
            self.source.setCurrentIndex(self._index_of(source))
            self.source.setToolTip(f"Where gradients come from: {source or 'nothing yet'}")

    def _spec(self, index: int) -> str:
        return str(self.source.itemData(index) or self.source.itemText(index))

    def _index_of(self, source: str) -> int:
        return next((i for i in range(self.source.count()) if self._spec(i) == source), -1)

    def _show_variant(self, snapshot: Snapshot) -> None:
        variant = snapshot.plan.variant if snapshot.plan else None
        notice = snapshot.notice.serial if snapshot.notice else None
        step = snapshot.cursor.step if snapshot.cursor else 0
        # A choice that waits for the next step stays on screen until it holds or was refused.
        if self._wanted is not None and (variant == self._wanted or (step, notice) != self._wanted_until):
            self._wanted = None
        self._wanted_until = (step, notice)
        self._shown = variant
        reason = form_reason(snapshot)
        self._show_choices(snapshot.choices)
        self._places["codec"].setVisible(variant is not None and (self._wanted or variant).kernel == "8bit")
        for name, combo in self.choices.items():
            combo.setEnabled(not reason)
            combo.setToolTip(self._tips[name] + (f"\nNot now: {reason}" if reason else ""))
            if variant is not None and not combo.view().isVisible():
                combo.setCurrentText(str(getattr(self._wanted or variant, name)))

    def _show_choices(self, choices: tuple[Choice, ...]) -> None:
        """Grey out what this device cannot run, with the reason as its tooltip."""
        if choices is self._choices:
            return
        self._choices = choices
        for combo in self.choices.values():
            for row in range(combo.count()):
                _allow(combo, row, "")
        for choice in choices:
            if choice.field in self.choices:
                combo = self.choices[choice.field]
                _allow(combo, combo.findText(value_text(choice.value)), choice.reason)

    def _on_source(self, index: int) -> None:
        spec = self._spec(index)
        if spec == OPEN_FILE:
            self.open_file.emit()
        elif self._open != (spec, True):
            # The one that is open goes on; to start it anew is an action of its own.
            self.command.emit(OpenSource(spec))

    def _on_choice(self) -> None:
        if self._shown is not None:
            chosen = {name: combo.currentText() for name, combo in self.choices.items()}
            self._wanted = replace(self._shown, **chosen)  # type: ignore[arg-type]
            self.command.emit(SetVariant(self._wanted))

    def _show_step_edit(self, shown: bool) -> None:
        self.step_edit.setVisible(shown)
        if shown:
            self.step_edit.setFocus(Qt.FocusReason.ShortcutFocusReason)

    def _on_step_entered(self) -> None:
        place = self.step_edit.place
        self.step_edit.leave()
        if place is not None:
            self.command.emit(place)


def _allow(combo: QComboBox, row: int, reason: str) -> None:
    model = combo.model()
    if isinstance(model, QStandardItemModel) and row >= 0:
        model.item(row).setEnabled(not reason)
        combo.setItemData(row, reason or None, Qt.ItemDataRole.ToolTipRole)


def file_first(source: str, metrics: QFontMetrics, width: int) -> str:
    """A source in so many pixels: of a path that is too long, the file name is what stays."""
    if metrics.horizontalAdvance(source) <= width:
        return source
    name = re.split(r"[/\\]", source)[-1]
    short = f"…{source[-len(name) - 1 :]}"
    if metrics.horizontalAdvance(short) <= width:
        return metrics.elidedText(source, Qt.TextElideMode.ElideLeft, width)
    return metrics.elidedText(name, Qt.TextElideMode.ElideMiddle, width)


def cursor_text(snapshot: Snapshot) -> str:
    """Where the run stands, in words."""
    if snapshot.mode == "starting":
        return f"opening {snapshot.source}…" if snapshot.source else "starting…"
    if snapshot.mode == "failed":
        return "no source is open"
    cursor, plan = snapshot.cursor, snapshot.plan
    if cursor is None or plan is None:
        return ""
    where = f"step {cursor.step:,} · dispatch {cursor.dispatch}/{cursor.count}"
    if snapshot.glance is not None:
        return f"{where} · as recorded"
    if snapshot.mode == "running":
        return f"{where} · running"
    if cursor.at_end:
        last = snapshot.last_step is not None and cursor.step >= snapshot.last_step
        return f"{where} → {'end of the source' if last else f'step {cursor.step + 1:,}'}"
    return f"{where} → {plan.dispatches[cursor.dispatch].label}"
