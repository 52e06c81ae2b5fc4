"""The panels of the window: their names, titles and places, and how the places are kept between runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QByteArray, QSettings, Qt
from PySide6.QtWidgets import QDockWidget, QMainWindow, QTabWidget, QWidget

from inspector.ui.view import View

LAYOUT_VERSION = 2
"""Places kept by a window with other panels are not used."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A dock and the views in it, as tabs where there are several."""

    name: str
    title: str
    views: tuple[str, ...]
    key: str
    front: str = ""
    """The view that the key brings to the front; "" for the one that is there."""


PANELS = (
    Panel("map", "Mega-buffer map", ("map",), "Alt+1"),
    Panel("pipeline", "Pipeline", ("pipeline",), "Alt+2"),
    Panel(
        "plots",
        "Plots",
        (
            "plots",
            "histograms",
            "lockstep",
            "timing",
            "profile",
            "memory",
            "params",
            "compare",
            "verify",
            "policies",
            "start",
        ),
        "Alt+3",
    ),
    Panel("values", "Values", ("values",), "Alt+4"),
    Panel("hyper", "Hyper-parameters", ("hyper",), "Alt+5"),
    Panel("findings", "Findings", ("findings", "breakpoints", "bookmarks"), "Alt+6", "findings"),
    Panel("timeline", "Timeline", ("timeline",), "Alt+7"),
)
TAB_TITLES = {
    "plots": "Metrics",
    "histograms": "Histograms",
    "lockstep": "8-bit",
    "timing": "GPU time",
    "profile": "Profile",
    "memory": "Memory",
    "params": "Params",
    "compare": "Compare",
    "verify": "Recorded vs here",
    "start": "Start",
    "findings": "Findings",
    "policies": "Policies",
    "breakpoints": "Breakpoints",
    "bookmarks": "Bookmarks",
}
TAB_KEYS = {
    "params": "Alt+8", "lockstep": "Alt+9", "compare": "Ctrl+D", "start": "Alt+0", "breakpoints": "Ctrl+Shift+B",
    "bookmarks": "Alt+B", "policies": "Ctrl+Y", "verify": "Ctrl+Shift+K", "memory": "Ctrl+M",
}  # fmt: skip
"""Of views that share a panel and have a key of their own."""


def make_docks(window: QMainWindow, views: Mapping[str, View]) -> dict[str, QDockWidget]:
    """A dock for every panel that has a view, in no place yet."""
    docks = {}
    for panel in PANELS:
        members = {name: views[name] for name in panel.views if name in views}
        if not members:
            continue
        dock = QDockWidget(panel.title, window)
        dock.setObjectName(f"dock_{panel.name}")
        dock.setWidget(_tabs(members) if len(panel.views) > 1 else next(iter(members.values())))
        docks[panel.name] = dock
    return docks


def place(window: QMainWindow, docks: Mapping[str, QDockWidget]) -> None:
    """Put every dock in its default place: map above, timeline below, the rest between."""
    top, down, right = Qt.DockWidgetArea.TopDockWidgetArea, Qt.Orientation.Vertical, Qt.Orientation.Horizontal
    for dock in docks.values():
        dock.setFloating(False)
        window.removeDockWidget(dock)
    for name, beside, direction in (
        ("map", "", down),
        ("pipeline", "map", down),
        ("timeline", "pipeline", down),
        ("plots", "pipeline", right),
        ("hyper", "pipeline", down),
        ("values", "plots", down),
        ("findings", "values", right),
    ):
        if name not in docks:
            continue
        if beside in docks:
            window.splitDockWidget(docks[beside], docks[name], direction)
        else:
            window.addDockWidget(top, docks[name])
        docks[name].show()
    _share(window, docks, {"map": 280, "pipeline": 470, "timeline": 96}, down)
    _share(window, docks, {"plots": 250, "values": 220}, down)
    _share(window, docks, {"pipeline": 280, "hyper": 190}, down)
    _share(window, docks, {"pipeline": 330, "plots": 950}, right)
    _share(window, docks, {"values": 560, "findings": 390}, right)


def save(window: QMainWindow, settings: QSettings) -> QSettings:
    """Keep geometry and places; returns the settings written, new ones where the file was damaged."""
    if settings.status() == QSettings.Status.FormatError:
        # Qt refuses to write over what it cannot read; nothing in there can be used anyway.
        path = settings.fileName()
        Path(path).unlink(missing_ok=True)
        settings = QSettings(path, QSettings.Format.IniFormat)
    settings.setValue("window/version", LAYOUT_VERSION)
    settings.setValue("window/geometry", window.saveGeometry())
    settings.setValue("window/state", window.saveState(LAYOUT_VERSION))
    settings.sync()
    return settings


def restore(window: QMainWindow, settings: QSettings) -> bool:
    """Put everything where it was; False where nothing usable was kept."""
    if settings.status() != QSettings.Status.NoError:
        return False
    if str(settings.value("window/version", "")) != str(LAYOUT_VERSION):
        return False
    geometry, state = settings.value("window/geometry"), settings.value("window/state")
    if not isinstance(geometry, QByteArray) or not isinstance(state, QByteArray):
        return False
    return window.restoreGeometry(geometry) and window.restoreState(state, LAYOUT_VERSION)


def open_settings(path: str | None) -> QSettings:
    """The settings file of the window; `path` for another place than the user's own."""
    if path is not None:
        return QSettings(path, QSettings.Format.IniFormat)
    return QSettings(QSettings.Format.IniFormat, QSettings.Scope.UserScope, "inspector", "inspector")


def show_tab(view: View) -> None:
    """Bring a view that shares its panel with others to the front."""
    above: QWidget | None = view.parentWidget()
    while above is not None and not isinstance(above, QTabWidget):
        above = above.parentWidget()
    if above is not None:
        above.setCurrentWidget(view)


def _tabs(views: Mapping[str, View]) -> QWidget:
    tabs = QTabWidget()
    tabs.setDocumentMode(True)
    for name, view in views.items():
        tabs.addTab(view, TAB_TITLES[name])
    return tabs


def _share(
    window: QMainWindow, docks: Mapping[str, QDockWidget], sizes: Mapping[str, int], along: Qt.Orientation
) -> None:
    present = {name: size for name, size in sizes.items() if name in docks}
    window.resizeDocks([docks[name] for name in present], list(present.values()), along)
