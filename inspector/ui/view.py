"""What every view is: a widget that shows snapshots and emits commands, and knows no other view."""

from __future__ import annotations

from typing import ClassVar

from PySide6.QtCore import Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QWidget

from inspector.runtime.snapshots import Snapshot


def same_run(before: Snapshot | None, after: Snapshot) -> bool:
    """False where a source was opened between the two moments, be it the same one again."""
    return before is not None and (before.run, before.source) == (after.run, after.source)


class View(QWidget):
    """Base of all views.

    `command` carries an inspector.runtime.commands.Command for the worker. `param_selected` carries a param's
    name, or "" for all: the window passes it to `select_param` of every view. `element_selected` carries a param's name
    and the flat index of an element of it, which go to `select_element` of every view.
    """

    command = Signal(object)
    param_selected = Signal(str)
    element_selected = Signal(str, int)
    condition_wanted = Signal(str)
    """A breakpoint on this condition, as text, is to be looked over and added."""
    moved = Signal(float, float)
    """Of a view with steps along its x axis: the first and last in view, where they changed and not by `show_range`."""

    range_wanted = Signal(float, float)
    """The first and last step that every view with steps along its x axis should show."""

    wanted = Signal(bool)
    """Of a view that is shown only `ON_DEMAND`: whether there is something for it to show."""

    ON_DEMAND: ClassVar[bool] = False
    """True for a view whose tab is there only where it is wanted or gone to: few runs have anything for it."""

    LOCAL_KEYS: ClassVar[tuple[tuple[str, str], ...]] = ()
    """The keys that mean something in this view alone, as people read them, each with what it does."""
    SHOWS_FOCUS: ClassVar[bool] = False
    """True where the view itself shows that it has the keys."""
    PERIOD_S: ClassVar[float] = 0.0
    """While a run goes on, it is shown a snapshot no more often than this; 0 for every one."""

    def kind(self) -> type[View]:
        """The class that says what the view is like: its keys, for one."""
        return type(self)

    @property
    def on_demand(self) -> bool:
        """ON_DEMAND of the view."""
        return self.ON_DEMAND

    @property
    def period_s(self) -> float:
        """PERIOD_S of the view."""
        return self.PERIOD_S

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Show this moment. Called on the UI thread at most once a frame; cheap where nothing changed."""
        raise NotImplementedError

    def select_param(self, name: str) -> None:
        """A param was selected somewhere; "" for none."""

    def key_target(self) -> QWidget:
        """The widget that LOCAL_KEYS are meant for: that which has the keys when the view is gone to."""
        target: QWidget = self
        while (proxy := target.focusProxy()) is not None:
            target = proxy
        return target

    def show_param(self, name: str) -> None:
        """A param was gone to by its name."""

    def show_spot(self, element: int) -> None:
        """An element of the mega-buffers, be it in a gap between params, was gone to."""

    def show_range(self, start: float, stop: float) -> None:
        """Bring these steps into view, as another axis shows them; of no meaning to a view without such an axis."""

    def is_waiting(self) -> bool:
        """True while what it has asked for to be drawn has not come."""
        return False

    def kept_text(self) -> str:
        """What of it is kept between runs of the program, as text; "" for nothing."""
        return ""

    def load(self, text: str) -> None:
        """Take up what `kept_text` told, be it of another version."""

    def select_element(self, name: str, index: int) -> None:
        """An element of a param, by its flat index, was selected somewhere: for most views that is the param."""
        self.select_param(name)


class LazyView(View):
    """A view that keeps the latest moment, draws it while it is seen, and catches up when it is shown."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._snapshot: Snapshot | None = None

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Show this moment, now or when somebody looks."""
        before, self._snapshot = self._snapshot, snapshot
        if not same_run(before, snapshot):
            self._on_new_run()
        if self.isVisible():
            self._update(snapshot)

    def showEvent(self, event: QShowEvent) -> None:
        """Catch up with what came while nobody looked."""
        super().showEvent(event)
        if self._snapshot is not None:
            self._update(self._snapshot)

    def _on_new_run(self) -> None:
        """Another source was opened, or the same one again, before any of it is shown."""

    def _update(self, snapshot: Snapshot) -> None:
        """Draw this moment; cheap where nothing changed."""
        raise NotImplementedError
