"""The menus of the window: which action stands where, in groups."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMainWindow, QMenu, QMenuBar

from inspector.ui import docks as panels
from inspector.ui.actions import STATS_HELP, Actions
from inspector.ui.arrangements import BUILT_IN
from inspector.ui.form_menu import FormMenu
from inspector.ui.layouts import Layouts

Groups = tuple[tuple[str, ...], ...]

FILE: Groups = (
    ("open", "open_recording", "restart", "record", "follow"),
    ("overlay", "drop_overlays", "what_if"),
    ("save_report",),
    ("quit",),
)
RUN: Groups = (
    ("step_dispatch", "step_iteration", "run", "pause"),
    ("run_to_dispatch", "run_to_finding", "run_back"),
    ("undo_dispatch", "undo_iteration", "go_to_step"),
    ("breakpoint", "break_nonfinite"),
    tuple(f"stats_{level}" for level in STATS_HELP),
    ("recover",),
)
TIME: Groups = (
    ("play", "slower", "faster"),
    ("loop", "loop_start", "loop_end", "loop_clear"),
    ("stay", "end_work", "bookmark"),
)
EDIT: Groups = (("undo", "redo"),)
GO: Groups = (
    ("palette",),
    ("go_to_param", "go_to_offset"),
    ("find_value", "next_nonfinite"),
    ("edit_kernel",),
    ("back", "forward"),
)
HELP: Groups = (("guide", "keys"),)
THEMES: Groups = (("theme_system", "theme_light", "theme_dark"),)
TEXT_SIZES: Groups = (("text_larger", "text_smaller", "text_reset"),)
LAYOUTS: Groups = (
    ("layout_step", "layout_profile", "layout_diagnose", "layout_compare"),
    ("save_layout", "rename_layout", "delete_layout", "restore_layout"),
)


def add_menu(bar: QMenuBar | QMenu, title: str, groups: Groups, actions: Actions) -> QMenu:
    """A menu with these actions, a line between groups."""
    menu = bar.addMenu(title)
    menu.setToolTipsVisible(True)
    for i, group in enumerate(groups):
        if i:
            menu.addSeparator()
        menu.addActions([actions[name] for name in group])
    return menu


class Menus(QObject):
    """The menu bar: whatever can be done stands in it, and the palette and the overview of keys read it.

    `panel_wanted` carries the panel to go to, and the view in it or "".
    """

    panel_wanted = Signal(str, str)

    def __init__(self, window: QMainWindow, actions: Actions, form: FormMenu, layouts: Layouts) -> None:
        super().__init__(window)
        self._window = window
        self._layouts = layouts
        self._kept: list[QAction] = []
        bar = window.menuBar()
        for title, groups in (("&File", FILE), ("&Edit", EDIT), ("&Run", RUN), ("&Time", TIME)):
            add_menu(bar, title, groups, actions)
        bar.addMenu(form)
        self._go = add_menu(bar, "&Go", GO, actions)
        self._go.addSeparator()
        self.view = add_menu(bar, "&View", (), actions)
        self._layout_menu = add_menu(self.view, "&Layout", LAYOUTS, actions)
        self._layout_menu.setObjectName("layout_menu")
        self._layout_menu.addSeparator()
        add_menu(self.view, "&Theme", THEMES, actions)
        add_menu(self.view, "Te&xt size", TEXT_SIZES, actions)
        self._actions = actions
        add_menu(bar, "&Help", HELP, actions)
        layouts.changed.connect(self._show_layouts)
        for arrangement in BUILT_IN:
            action = actions[f"layout_{arrangement.name}"]
            action.triggered.connect(lambda _checked=False, which=arrangement: layouts.apply(which))
        for name, act in (
            ("save_layout", layouts.ask_save),
            ("rename_layout", layouts.ask_rename),
            ("delete_layout", layouts.ask_delete),
        ):
            actions[name].triggered.connect(lambda _checked=False, act=act: act())
        self._show_layouts()
        self._add_panels()

    def _add_panels(self) -> None:
        docks = panels.docks_of(self._window)
        for panel in panels.PANELS:
            if panel.name in docks:
                self._go.addAction(self._go_action(panel.name, panel.title, panel.key, panel.front))
                for view in panel.views:
                    if len(panel.views) > 1 and view != panel.front:
                        title, key = panels.TAB_TITLES[view], panels.TAB_KEYS.get(view, "")
                        self._go.addAction(self._go_action(panel.name, title, key, view))
        self.view.addSeparator()
        for name, dock in docks.items():
            action = dock.toggleViewAction()
            action.setObjectName(f"toggle_{name}")
            self.view.addAction(action)
        self.view.addSeparator()
        self.view.addAction(self._actions["dismiss"])

    def _go_action(self, panel: str, title: str, key: str, view: str = "") -> QAction:
        action = QAction(f"Go to {title.lower()}", self._window)
        # The panel of the plots and the metrics in it share a name.
        action.setObjectName(f"go_to_{view}" if view == panel else f"go_{view or panel}")
        action.setShortcut(key)
        action.setToolTip("Show the panel and give it the keys" + (f" ({key})" if key else ""))
        action.triggered.connect(lambda: self.panel_wanted.emit(panel, view))
        self._window.addAction(action)
        return action

    def _show_layouts(self) -> None:
        for action in self._kept:
            self._layout_menu.removeAction(action)
            action.deleteLater()
        self._kept = []
        for kept in self._layouts.kept:
            action = QAction(kept.name.replace("&", "&&"), self._layout_menu)
            action.setObjectName(f"kept_layout_{kept.name}")
            action.setToolTip("Put the panels as they were when this layout was saved")
            action.triggered.connect(lambda _checked=False, name=kept.name: self._layouts.apply_kept(name))
            self._layout_menu.addAction(action)
            self._kept.append(action)
        why = "" if self._layouts.kept else "no layout was saved yet"
        self._actions.disable({"rename_layout": why, "delete_layout": why})
