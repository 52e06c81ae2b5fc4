"""A view that is made when somebody first looks at it: most of those that share a panel are never seen in a run."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

from PySide6.QtCore import QObject, QTimer
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from inspector.runtime.snapshots import Snapshot
from inspector.ui.view import View, same_run

V = TypeVar("V", bound=View)
READY_MS = 100


class Gate:
    """Holds back what is to be made until it opens: the window is painted first, then filled."""

    def __init__(self) -> None:
        self.is_open = False
        self._waiting: list[Callable[[], None]] = []

    def wait(self, act: Callable[[], None]) -> None:
        """Do this once it is open."""
        self._waiting.append(act)

    def open(self) -> None:
        """Do what waits, one thing a turn of the event loop, and hold back nothing from now on."""
        self.is_open = True
        waiting, self._waiting = self._waiting, []
        for act in waiting:
            QTimer.singleShot(0, act)


class DeferredView(View):
    """Stands in the place of a view, takes what is sent to it, and passes all of it on once there is one.

    `kind` imports the class of the view, which is called without arguments. Where a gate is shut a view that is seen
    waits for it; one that is asked for by `real` is made at once. A view that is shown on demand says so itself: it is
    made with the first moment that `needed` holds for.
    """

    def __init__(
        self,
        kind: Callable[[], type[View]],
        gate: Gate | None = None,
        needed: Callable[[Snapshot], bool] | None = None,
    ) -> None:
        super().__init__()
        self._kind = kind
        self._gate = gate
        self._needed = needed
        self._real: View | None = None
        self._is_behind = False
        """From when the view is made until it is told what it has missed: each has a turn, as both take long."""
        self._waits = False
        self._snapshot: Snapshot | None = None
        self._selected: tuple[str, int | None] | None = None
        self._range: tuple[float, float] | None = None
        self._kept = ""
        self._once: list[Callable[[View], None]] = []
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(0, 0, 0, 0)

    @property
    def is_made(self) -> bool:
        """True once there is a view."""
        return self._real is not None

    @property
    def real(self) -> View:
        """The view, which is made where there is none, and has been told all that it missed."""
        made = self._real or self._make()
        self._catch_up()
        return made

    def when_made(self, act: Callable[[View], None]) -> None:
        """Do this with the view as soon as there is one."""
        if self._real is not None:
            act(self.real)
        else:
            self._once.append(act)

    def showEvent(self, event: QShowEvent) -> None:
        """It is looked at for the first time."""
        super().showEvent(event)
        if self._real is None:
            self._make_if_seen()

    # --- what every view does

    def kind(self) -> type[View]:
        return self._kind() if self._real is None else type(self._real)

    @property
    def on_demand(self) -> bool:
        return self._needed is not None

    @property
    def period_s(self) -> float:
        return 0.0 if self._real is None else self._real.period_s

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Pass the moment on, or keep it."""
        if self._real is not None and not self._is_behind:
            self._real.show_snapshot(snapshot)
            return
        if not same_run(self._snapshot, snapshot):
            self._range = None
        self._snapshot = snapshot
        if self._real is None and self._needed is not None and self._needed(snapshot):
            self._make()
            self._catch_up()

    def select_param(self, name: str) -> None:
        if self._real is not None:
            self.real.select_param(name)
        else:
            self._selected = (name, None)

    def select_element(self, name: str, index: int) -> None:
        if self._real is not None:
            self.real.select_element(name, index)
        else:
            self._selected = (name, index)

    def show_spot(self, element: int) -> None:
        if self._real is not None:
            self.real.show_spot(element)

    def show_range(self, start: float, stop: float) -> None:
        if self._real is not None:
            self.real.show_range(start, stop)
        else:
            self._range = (start, stop)

    def key_target(self) -> QWidget:
        return self.real.key_target()

    def kept_text(self) -> str:
        return self._kept if self._real is None else self.real.kept_text()

    def load(self, text: str) -> None:
        if self._real is not None:
            self.real.load(text)
        else:
            self._kept = text

    # --- inside

    def _make_if_seen(self) -> None:
        if self._gate is not None and not self._gate.is_open:
            if not self._waits:
                self._waits = True
                self._gate.wait(self._make_if_seen)
        elif self._real is None and self.isVisible():
            self._make()

    def _make(self) -> View:
        made = self._real = self._kind()()
        # In its place before anything in it is shown, which would be a window of its own.
        made.hide()
        self._layout.addWidget(made)
        for mine, its in (
            (self.command, made.command),
            (self.param_selected, made.param_selected),
            (self.element_selected, made.element_selected),
            (self.condition_wanted, made.condition_wanted),
            (self.moved, made.moved),
            (self.range_wanted, made.range_wanted),
            (self.wanted, made.wanted),
        ):
            its.connect(mine)
        if not made.accessibleName():
            made.setAccessibleName(self.accessibleName())
        had_keys = self.hasFocus()
        self.setFocusProxy(made)
        # Of what it shows before it is told anything nothing is seen.
        made.setUpdatesEnabled(False)
        # What is scrolled to as it is shown is scrolled to in the size that it has.
        made.setGeometry(self.rect())
        made.show()
        if had_keys:
            made.setFocus()
        self._is_behind = True
        QTimer.singleShot(0, self, self._catch_up)
        return made

    def _catch_up(self) -> None:
        """Tell the view what it has missed."""
        made = self._real
        if made is None or not self._is_behind:
            return
        self._is_behind = False
        if self._kept:
            made.load(self._kept)
        if self._snapshot is not None:
            made.show_snapshot(self._snapshot)
        if self._selected is not None:
            name, index = self._selected
            if index is None:
                made.select_param(name)
            else:
                made.select_element(name, index)
        if self._range is not None:
            made.show_range(*self._range)
        self._snapshot = None
        for act in self._once:
            act(made)
        self._once.clear()
        made.setUpdatesEnabled(True)


class Readying(QObject):
    """Imports the classes of views that are not made yet, one at a time and now and then: the first look at one, or the
    list of all keys, need not wait for that. For as long as the parent lives."""

    def __init__(self, views: Iterable[View], parent: QObject) -> None:
        super().__init__(parent)
        self._views = deque(view for view in views if isinstance(view, DeferredView))
        self._timer = QTimer(self, interval=READY_MS)
        self._timer.timeout.connect(self._import_next)

    def start(self) -> None:
        """Begin."""
        self._timer.start()

    def _import_next(self) -> None:
        if self._views:
            self._views.popleft().kind()
        else:
            self._timer.stop()


def real(view: View | None, kind: type[V]) -> V | None:
    """A view of this kind, made where it was not yet; None where it is of another."""
    there = view.real if isinstance(view, DeferredView) else view
    return there if isinstance(there, kind) else None


def when_made(view: View | None, act: Callable[[View], None]) -> None:
    """Do this with a view as soon as it is there; nothing where there is none to come."""
    if isinstance(view, DeferredView):
        view.when_made(act)
    elif view is not None:
        act(view)
