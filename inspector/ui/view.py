"""What every view is: a widget that shows snapshots and emits commands, and knows no other view."""

from __future__ import annotations

from typing import ClassVar

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from inspector.runtime.snapshots import Snapshot


def same_run(before: Snapshot | None, after: Snapshot) -> bool:
    """False where a source was opened between the two moments, be it the same one again."""
    return before is not None and (before.run, before.source) == (after.run, after.source)


class View(QWidget):
    """Base of all views.

    `command` carries an inspector.runtime.commands.Command for the worker. `param_selected` carries a param's
    name, or "" for all: the window passes it to `select_param` of every view.
    """

    command = Signal(object)
    param_selected = Signal(str)

    PERIOD_S: ClassVar[float] = 0.0
    """While a run goes on, it is shown a snapshot no more often than this; 0 for every one."""

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Show this moment. Called on the UI thread at most once a frame; cheap where nothing changed."""
        raise NotImplementedError

    def select_param(self, name: str) -> None:
        """A param was selected somewhere; "" for none."""


class StepAxisView(View):
    """A view with steps along its x axis, which others like it may share."""

    moved = Signal(float, float)
    """The first and last step in view, where they changed and not by `show_range`."""

    def show_range(self, start: float, stop: float) -> None:
        """Bring these steps into view, as another axis shows them."""
        raise NotImplementedError
