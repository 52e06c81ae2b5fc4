"""The form of the step as a menu: each field of the variant and its values, greyed with the reason where refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtGui import QAction, QActionGroup
from PySide6.QtWidgets import QMenu, QWidget

from inspector.plan import Variant
from inspector.runtime.commands import SetVariant
from inspector.runtime.snapshots import Snapshot
from inspector.ui.actions import blocked
from inspector.variants import Choice


class FormMenu(QMenu):
    """`command` carries the variant with one field changed."""

    command = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("F&orm", parent)
        self.setObjectName("form_menu")
        self.setToolTipsVisible(True)
        self._variant: Variant | None = None
        self._choices: tuple[Choice, ...] | None = None
        self._reason = ""
        self._actions: list[tuple[Choice, QAction]] = []
        self._submenus: list[QMenu] = []
        self.show_snapshot(Snapshot(0, "starting", ""))

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Show what runs, and what else can."""
        reason = form_reason(snapshot)
        if snapshot.choices is not self._choices:
            self._variant = snapshot.plan.variant if snapshot.plan else None
            self._choices = snapshot.choices
            self._fill()
        elif reason == self._reason:
            return
        self._reason = reason
        for choice, action in self._actions:
            why = reason or choice.reason
            action.setEnabled(not why)
            action.setToolTip(f"Not now: {why}" if reason else why or "Holds from the next step on.")

    def _fill(self) -> None:
        self.clear()
        self._actions.clear()
        for submenu in self._submenus:
            submenu.deleteLater()
        self._submenus.clear()
        if not self._choices:
            self.addAction("No source is open yet").setEnabled(False)
        groups: dict[str, tuple[QMenu, QActionGroup]] = {}
        for choice in self._choices or ():
            if choice.field not in groups:
                menu = QMenu(choice.field.replace("_", " "), self)
                menu.setObjectName(f"form_{choice.field}")
                menu.setToolTipsVisible(True)
                self.addMenu(menu)
                self._submenus.append(menu)
                groups[choice.field] = (menu, QActionGroup(menu))
            menu, group = groups[choice.field]
            action = QAction(value_text(choice.value), menu)
            action.setObjectName(f"form_{choice.field}_{value_text(choice.value)}")
            action.setWhatsThis(f"The form of the step: {choice.field.replace('_', ' ')}")
            action.setCheckable(True)
            action.setChecked(getattr(self._variant, choice.field) == choice.value)
            action.triggered.connect(lambda _checked=False, choice=choice: self._choose(choice))
            group.addAction(action)
            menu.addAction(action)
            self._actions.append((choice, action))

    def _choose(self, choice: Choice) -> None:
        if self._variant is not None:
            self.command.emit(SetVariant(replace(self._variant, **{choice.field: choice.value})))
            # What is checked is what runs: until the worker says so, nothing has changed.
            for other, action in self._actions:
                action.setChecked(getattr(self._variant, other.field) == other.value)


def form_reason(snapshot: Snapshot) -> str:
    """Why no form can be chosen at this moment; "" where one can."""
    if snapshot.mode == "running":
        return "pause first (F6)"
    if snapshot.glance is not None and snapshot.glance.missing:
        return f"only the numbers of step {snapshot.glance.step:,} are at hand. {snapshot.glance.missing}"
    return blocked(snapshot)


def value_text(value: Any) -> str:
    """A value of a field as a person names it."""
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
