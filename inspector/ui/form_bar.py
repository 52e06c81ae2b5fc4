"""The form of the step in the toolbar: a list a field where there is room, else a button with what is chosen in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QStandardItemModel
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QLabel, QMenu, QToolButton, QWidget

from inspector.codecs import CODECS
from inspector.hyper import NUMERICS
from inspector.plan import DISPATCH_FORMS, KERNELS, REDUCES, Variant
from inspector.runtime.commands import SetVariant
from inspector.runtime.snapshots import Snapshot
from inspector.ui.form_menu import form_reason, value_text
from inspector.variants import Choice

COMBO_FRAME = 32
"""What frame and arrow take beside the text."""
CHOICES: tuple[tuple[str, Sequence[str], str], ...] = (
    ("kernel", KERNELS, "The update kernel"),
    ("codec", CODECS, "How m and v become 8-bit codes"),
    ("reduce", REDUCES,
     "How the gradient norm is summed: two-pass gives the same bits every run, atomic adds in any order"),
    ("dispatch", DISPATCH_FORMS, "One update for the wd and one for the no-wd block, or one a param"),
    ("numerics", NUMERICS,
     "published: 1-β in float32 as the kernels came; precise: 1-β in float64, rounded as by PyTorch on a CPU"),
)  # fmt: skip


def named_combo(name: str, options: Sequence[str], tip: str, parent: QWidget) -> tuple[QWidget, QComboBox]:
    """A list with its name before it, in one widget, so that a name never stands without its choice; and the list."""
    both = QWidget(parent)
    label = QLabel(name, both)
    label.setContentsMargins(8, 0, 4, 0)
    label.setToolTip(tip)
    combo = QComboBox(both)
    combo.setObjectName(f"{name}_combo")
    combo.setAccessibleName(name)
    combo.setToolTip(tip)
    combo.addItems(list(options))
    metrics = combo.fontMetrics()
    combo.setFixedWidth(max(metrics.horizontalAdvance(option) for option in options) + COMBO_FRAME)
    # A click leaves the keys where they were: here they would change the run.
    combo.setFocusPolicy(Qt.FocusPolicy.TabFocus)
    label.setBuddy(combo)
    row = QHBoxLayout(both)
    row.setContentsMargins(0, 0, 0, 0)
    row.setSpacing(0)
    row.addWidget(label)
    row.addWidget(combo)
    return both, combo


class FormBar(QWidget):
    """`menu` has every field of the form; `command` carries the variant with one of those shown changed."""

    command = Signal(object)

    def __init__(self, menu: QMenu, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._shown: Variant | None = None
        self._wanted: Variant | None = None
        self._wanted_until: tuple[int, int | None] = (0, None)
        self._offered: tuple[Choice, ...] = ()
        self.choices: dict[str, QComboBox] = {}
        self._places: dict[str, QWidget] = {}
        self._tips: dict[str, str] = {}
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        for name, options, tip in CHOICES:
            # A choice of one is no choice.
            if len(options) > 1:
                self._tips[name] = f"{tip}. Holds from the next step on."
                place, combo = named_combo(name, options, self._tips[name], self)
                combo.activated.connect(self._on_choice)
                combo.setEnabled(False)
                self.choices[name], self._places[name] = combo, place
                row.addWidget(place)
        self.button = QToolButton(self)
        self.button.setObjectName("form_button")
        self.button.setAccessibleName("Form of the step")
        self.button.setMenu(menu)
        self.button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.button.setAutoRaise(True)
        row.addWidget(self.button)
        self._is_coded = False
        self.fit(0)

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Show the form of this moment, and what can be chosen."""
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
        self._is_coded = variant is not None and (self._wanted or variant).kernel == "8bit"
        for name, combo in self.choices.items():
            combo.setEnabled(not reason)
            combo.setToolTip(self._tips[name] + (f"\nNot now: {reason}" if reason else ""))
            if variant is not None and not combo.view().isVisible():
                combo.setCurrentText(str(getattr(self._wanted or variant, name)))
        lines = [f"{name}: {combo.currentText()}" for name, combo in self._chosen()]
        why = f"\nNot now: {reason}" if reason else "\nHolds from the next step on."
        self.button.setToolTip("The form of the step: how it is computed.\n" + "\n".join(lines) + why)

    def fit(self, room: int) -> int:
        """Show as much as fits in so many pixels; gives what that takes, more where even the least does not fit."""
        wide = sum(self._places[name].sizeHint().width() for name, _ in self._chosen())
        lists = wide <= room
        there = {name for name, _ in self._chosen()} if lists else set()
        if not lists:
            for text in (f"Form: {' · '.join(combo.currentText() for _, combo in self._chosen())}", "Form"):
                self.button.setText(text)
                wide = self.button.sizeHint().width()
                if wide <= room:
                    break
        self.button.setVisible(not lists)
        for name, place in self._places.items():
            place.setVisible(name in there)
        # Else the toolbar may keep what it took half way through.
        self.setFixedWidth(wide)
        return wide

    def _chosen(self) -> list[tuple[str, QComboBox]]:
        """What there is to choose; a codec only where there are codes."""
        return [(name, combo) for name, combo in self.choices.items() if name != "codec" or self._is_coded]

    def _show_choices(self, offered: tuple[Choice, ...]) -> None:
        """Grey out what this device cannot run, with the reason as its tooltip."""
        if offered is self._offered:
            return
        self._offered = offered
        for combo in self.choices.values():
            for row in range(combo.count()):
                _allow(combo, row, "")
        for choice in offered:
            if choice.field in self.choices:
                combo = self.choices[choice.field]
                _allow(combo, combo.findText(value_text(choice.value)), choice.reason)

    def _on_choice(self) -> None:
        if self._shown is not None:
            chosen = {name: combo.currentText() for name, combo in self.choices.items()}
            self._wanted = replace(self._shown, **chosen)  # type: ignore[arg-type]
            self.command.emit(SetVariant(self._wanted))


def _allow(combo: QComboBox, row: int, reason: str) -> None:
    model = combo.model()
    if isinstance(model, QStandardItemModel) and row >= 0:
        model.item(row).setEnabled(not reason)
        combo.setItemData(row, reason or None, Qt.ItemDataRole.ToolTipRole)
