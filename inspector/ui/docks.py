"""The panels of the window: their names, titles and places, and how the places are kept between runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from PySide6.QtCore import QByteArray, QSettings
from PySide6.QtWidgets import QDockWidget, QMainWindow, QTabWidget, QWidget

from inspector.ui.tab_groups import GroupedTabs, TabGroup
from inspector.ui.view import View

LAYOUT_VERSION = 2
"""Places kept by a window with other panels are not used."""
MOST_NAMES = 50


@dataclass(frozen=True, slots=True)
class Panel:
    """A dock and the views in it, as tabs where there are several."""

    name: str
    title: str
    views: tuple[str, ...]
    key: str
    front: str = ""
    """The view that the key brings to the front; "" for the one that is there."""
    groups: tuple[TabGroup, ...] = ()
    """Of more views than a row of tabs has room for."""


VIEW_GROUPS = (
    TabGroup("Curves", "Numbers over steps", ("plots", "board", "histograms", "ranks")),
    TabGroup(
        "State", "What w, g, m and v hold and take", ("params", "states", "microscope", "lockstep", "memory")
    ),
    TabGroup("Kernels", "The WGSL, and what it costs", ("shaders", "timing", "profile")),
    TabGroup(
        "Compare",
        "One run or rule held against another",
        ("race", "decay", "sweep", "surface", "compare", "verify", "policies"),
    ),
    TabGroup("Window", "What to open, and how the window is set", ("start", "settings")),
)
PANELS = (
    Panel("map", "Mega-buffer map", ("map",), "Alt+1"),
    Panel("pipeline", "Pipeline", ("pipeline",), "Alt+2"),
    Panel("plots", "Views", tuple(name for group in VIEW_GROUPS for name in group.views), "Alt+3", groups=VIEW_GROUPS),
    Panel("values", "Values", ("values",), "Alt+4"),
    Panel("hyper", "Hyper-parameters", ("hyper",), "Alt+5"),
    Panel("findings", "Findings", ("findings", "breakpoints", "bookmarks"), "Alt+6", "findings"),
    Panel("timeline", "Timeline", ("timeline",), "Alt+7"),
)  # fmt: skip
TAB_TITLES = {
    "plots": "Metrics",
    "board": "Plots",
    "histograms": "Histograms",
    "microscope": "Microscope",
    "shaders": "Shaders",
    "lockstep": "8-bit",
    "timing": "GPU time",
    "profile": "Profile",
    "memory": "Memory",
    "params": "Params",
    "states": "Param state",
    "ranks": "Ranks",
    "race": "Race",
    "decay": "Decay",
    "surface": "Surface",
    "sweep": "Sweep",
    "compare": "Compare",
    "verify": "Verify",
    "start": "Start",
    "settings": "Settings",
    "findings": "Findings",
    "policies": "Policies",
    "breakpoints": "Breakpoints",
    "bookmarks": "Bookmarks",
}
TAB_KEYS = {
    "params": "Alt+8", "lockstep": "Alt+9", "compare": "Ctrl+D", "start": "Alt+0", "breakpoints": "Ctrl+Shift+B",
    "bookmarks": "Alt+B", "policies": "Ctrl+Y", "verify": "Ctrl+Shift+K", "memory": "Ctrl+M", "settings": "Ctrl+,",
    "microscope": "Ctrl+E", "shaders": "Ctrl+T", "board": "Ctrl+Shift+G", "plots": "Ctrl+Shift+M",
    "histograms": "Ctrl+H", "timing": "Ctrl+K", "profile": "Ctrl+Shift+F", "ranks": "Ctrl+Shift+N",
    "race": "Ctrl+Shift+E", "surface": "Ctrl+Shift+L", "sweep": "Ctrl+Shift+Y", "decay": "Ctrl+Shift+D",
}  # fmt: skip
"""Of views that share a panel and have a key of their own."""


def view_titles() -> dict[str, str]:
    """What each view is called."""
    return {name: TAB_TITLES.get(name, panel.title) for panel in PANELS for name in panel.views}


def make_docks(window: QMainWindow, views: Mapping[str, View]) -> dict[str, QDockWidget]:
    """A dock for every panel that has a view, in no place yet."""
    docks = {}
    for name, title in view_titles().items():
        # Read out where a view itself has the keys.
        if name in views and not views[name].accessibleName():
            views[name].setAccessibleName(title)
    for panel in PANELS:
        members = {name: views[name] for name in panel.views if name in views}
        if not members:
            continue
        dock = QDockWidget(panel.title, window)
        dock.setObjectName(f"dock_{panel.name}")
        dock.setWidget(_tabs(panel, members) if len(panel.views) > 1 else next(iter(members.values())))
        docks[panel.name] = dock
    return docks


def docks_of(window: QMainWindow) -> dict[str, QDockWidget]:
    """The docks of a window by the names of their panels."""
    made = ((panel.name, window.findChild(QDockWidget, f"dock_{panel.name}")) for panel in PANELS)
    return {name: dock for name, dock in made if dock is not None}


def save(
    window: QMainWindow, settings: QSettings, views: Mapping[str, View], arrangement: str = ""
) -> QSettings:
    """Keep geometry and places; returns the settings written, new ones where the file was damaged.

    `arrangement` names the built-in one that the panels are in, "" where they were moved.
    """
    if settings.status() == QSettings.Status.FormatError:
        # Qt refuses to write over what it cannot read; nothing in there can be used anyway.
        path = settings.fileName()
        Path(path).unlink(missing_ok=True)
        settings = QSettings(path, QSettings.Format.IniFormat)
    settings.setValue("window/version", LAYOUT_VERSION)
    settings.setValue("window/geometry", window.saveGeometry())
    settings.setValue("window/state", window.saveState(LAYOUT_VERSION))
    for name, view in views.items():
        if text := view.kept_text():
            settings.setValue(f"views/{name}", text)
    settings.setValue("window/arrangement", arrangement)
    settings.setValue("window/front", list(views_in_front(views)))
    settings.sync()
    return settings


def load_views(settings: QSettings, views: Mapping[str, View]) -> None:
    """Give each view what was kept of it."""
    for name, view in views.items():
        text = settings.value(f"views/{name}")
        if isinstance(text, str) and text:
            view.load(text)


def restore(window: QMainWindow, settings: QSettings, views: Mapping[str, View]) -> bool:
    """Put everything where it was; False where nothing usable was kept."""
    if settings.status() != QSettings.Status.NoError:
        return False
    if str(settings.value("window/version", "")) != str(LAYOUT_VERSION):
        return False
    geometry, state = settings.value("window/geometry"), settings.value("window/state")
    if not isinstance(geometry, QByteArray) or not isinstance(state, QByteArray):
        return False
    if not window.restoreGeometry(geometry) or not window.restoreState(state, LAYOUT_VERSION):
        return False
    bring_to_front(views, names(settings.value("window/front")))
    return True


def names(value: object) -> tuple[str, ...]:
    """A list of names as it comes back from settings: one entry as text, none as nothing at all."""
    given = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return tuple(each for each in given if isinstance(each, str))[:MOST_NAMES]


def open_settings(path: str | None) -> QSettings:
    """The settings file of the window; `path` for another place than the user's own."""
    if path is not None:
        return QSettings(path, QSettings.Format.IniFormat)
    return QSettings(QSettings.Format.IniFormat, QSettings.Scope.UserScope, "inspector", "inspector")


def show_tab(view: View) -> None:
    """Bring a view that shares its panel with others to the front."""
    if (tabs := tabs_of(view)) is not None:
        tabs.setTabVisible(tabs.indexOf(view), True)
        tabs.setCurrentWidget(view)


def tabs_of(view: QWidget) -> QTabWidget | None:
    """The tabs that a view is one of."""
    above: QWidget | None = view.parentWidget()
    while above is not None and not isinstance(above, QTabWidget):
        above = above.parentWidget()
    return above


def views_in_front(views: Mapping[str, View]) -> tuple[str, ...]:
    """The views that are before others in their panel."""
    shared = ((name, tabs_of(view)) for name, view in views.items())
    return tuple(name for name, tabs in shared if tabs is not None and tabs.currentWidget() is views[name])


def bring_to_front(views: Mapping[str, View], front: Iterable[str]) -> None:
    """Put these before others in their panels; names of no view are passed over."""
    for name in front:
        if name in views:
            show_tab(views[name])


def _show_wanted(tabs: QTabWidget, view: View, wanted: bool) -> None:
    tabs.setTabVisible(tabs.indexOf(view), wanted)


def _tabs(panel: Panel, views: Mapping[str, View]) -> QWidget:
    tabs = GroupedTabs(panel.groups) if panel.groups else QTabWidget()
    tabs.setDocumentMode(True)
    for name, view in views.items():
        if isinstance(tabs, GroupedTabs):
            number = tabs.add_view(name, view, TAB_TITLES[name])
        else:
            number = tabs.addTab(view, TAB_TITLES[name])
        if view.on_demand:
            tabs.setTabVisible(number, False)
            view.wanted.connect(partial(_show_wanted, tabs, view))
    return tabs
