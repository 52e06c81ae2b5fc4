"""Ways about the window: its panels by key, the palette, places visited and changes undone, joined with its actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from PySide6.QtCore import QObject, QSettings, Qt, Signal
from PySide6.QtWidgets import QDockWidget, QMainWindow, QWidget

from inspector.runtime.commands import Command
from inspector.runtime.snapshots import Snapshot
from inspector.ui import docks as panels
from inspector.ui.actions import Actions
from inspector.ui.command_list import Doable, of_menus, of_source, of_views
from inspector.ui.keys import Group, groups_of
from inspector.ui.layouts import Layouts
from inspector.ui.navigator import Navigator
from inspector.ui.palette import Palette
from inspector.ui.start_view import rows
from inspector.ui.undoing import Undoing
from inspector.ui.view import View


class Ways(QObject):
    """Where one can go and what can be taken back. `param_wanted` and `element_wanted` carry what to select."""

    param_wanted = Signal(str)
    element_wanted = Signal(str, int)

    def __init__(
        self,
        window: QMainWindow,
        actions: Actions,
        docks: Mapping[str, QDockWidget],
        views: Mapping[str, View],
        send: Callable[[Command], None],
        settings: Callable[[], QSettings | None],
    ) -> None:
        """`send` takes commands of a person, `sent` is told of each."""
        super().__init__(window)
        self._window, self._actions, self._docks, self._views = window, actions, docks, views
        self._send = send
        self.recent_sources: Callable[[], tuple[str, ...]] = tuple
        self.finder = Palette(window)
        self.undoing = Undoing(send, docks, self)
        self.layouts = Layouts(window, docks, views, self.finder, settings)
        self.navigator = Navigator(self.finder, send, self.doables)
        self._connect()

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """The run stands elsewhere, or is another one."""
        self.undoing.show_snapshot(snapshot)
        self.navigator.show_snapshot(snapshot)

    def sent(self, command: Command) -> None:
        """A command of a person goes to the worker."""
        self.undoing.sent(command)
        self.navigator.sent(command)

    def doables(self) -> list[Doable]:
        """Everything that can be done, now or at another time."""
        sources = ((row.title, row.spec, row.text) for row in rows(self.recent_sources()))
        return [
            *of_menus(self._window.menuBar()),
            *of_views(self._views, panels.view_titles(), self.go_to_view),
            *(of_source(title, spec, text, self._send) for title, spec, text in sources if spec),
        ]

    def keys(self) -> list[Group]:
        """All keys, by what is done with them."""
        titles = panels.view_titles()
        of_views = (
            (f"In {titles[name].lower()}", view.kind().LOCAL_KEYS) for name, view in self._views.items()
        )
        return groups_of((each.entry for each in of_menus(self._window.menuBar())), of_views)

    def go_to_view(self, name: str) -> None:
        """Show a view and give it the keys."""
        self.go_to(next(panel.name for panel in panels.PANELS if name in panel.views), name)

    def go_to(self, panel: str, view: str = "") -> None:
        """Show a panel, with `view` before others in it, and give it the keys."""
        if panel not in self._docks:
            return
        self.navigator.viewed(view or panel)
        dock = self._docks[panel]
        dock.show()
        dock.raise_()
        if view:
            panels.show_tab(self._views[view])
            self._views[view].setFocus(Qt.FocusReason.ShortcutFocusReason)
            return
        inside = [w for w in dock.widget().findChildren(QWidget) if _takes_keys(w)]
        target = dock.widget() if _takes_keys(dock.widget()) else next(iter(inside), None)
        if target is not None:
            target.setFocus(Qt.FocusReason.ShortcutFocusReason)

    def _connect(self) -> None:
        acts, ways = self._actions, self.navigator
        for name, act in (
            ("palette", ways.open_palette),
            ("go_to_param", ways.ask_param),
            ("go_to_offset", ways.ask_offset),
            ("back", ways.back),
            ("forward", ways.forward),
            ("undo", self.undoing.undo),
            ("redo", self.undoing.redo),
        ):
            acts[name].triggered.connect(lambda _checked=False, act=act: act())
        ways.param_wanted.connect(self.param_wanted)
        ways.element_wanted.connect(self.element_wanted)
        ways.spot_wanted.connect(self._show_spot)
        ways.param_sought.connect(self._show_param)
        ways.view_wanted.connect(self._return_to)
        ways.moved.connect(self._show_ways)
        self.undoing.changed.connect(self._show_undo)
        self._show_ways()
        self._show_undo()
        for view in self._views.values():
            if (tabs := panels.tabs_of(view)) is not None and tabs.currentWidget() is view:
                tabs.tabBarClicked.connect(lambda at, tabs=tabs: self._tab_chosen(tabs.widget(at)))

    def _show_ways(self) -> None:
        self._actions.disable(self.navigator.why_not())

    def _show_undo(self) -> None:
        self._actions["undo"].setText(f"Undo {self.undoing.undo_text}".strip())
        self._actions["redo"].setText(f"Redo {self.undoing.redo_text}".strip())
        self._actions.disable(self.undoing.why_not())

    def _show_param(self, name: str) -> None:
        for view in self._views.values():
            view.show_param(name)

    def _show_spot(self, element: int) -> None:
        for view in self._views.values():
            view.show_spot(element)

    def _tab_chosen(self, widget: QWidget | None) -> None:
        for name, view in self._views.items():
            if view is widget:
                self.navigator.viewed(name)

    def _return_to(self, name: str) -> None:
        if name in self._docks:
            self.go_to(name)
        elif name in self._views:
            self.go_to_view(name)


def _takes_keys(widget: QWidget) -> bool:
    tabbed = widget.focusPolicy().value & Qt.FocusPolicy.TabFocus.value
    return bool(tabbed) and widget.isVisible() and widget.isEnabled()
