"""How the panels of the window are arranged for what a person is at: which are there, where, and how large."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDockWidget, QMainWindow

Side = Literal["down", "right"]
_ALONG = {"down": Qt.Orientation.Vertical, "right": Qt.Orientation.Horizontal}


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Panels in their places; one that is not named is closed.

    `places` are put one after the other: a panel, the one that it splits off from ("" for none), and on which side.
    `shares` are parts of a length, in pixels of the window as it is by default; `front` the views before others that
    share their panel.
    """

    name: str
    title: str
    help: str
    places: tuple[tuple[str, str, Side], ...]
    shares: tuple[tuple[Mapping[str, int], Side], ...]
    front: tuple[str, ...] = ()


STEP = Arrangement(
    "step",
    "Step",
    "Every panel: the map above, what is stepped through below it",
    (
        ("map", "", "down"),
        ("pipeline", "map", "down"),
        ("timeline", "pipeline", "down"),
        ("plots", "pipeline", "right"),
        ("hyper", "pipeline", "down"),
        ("values", "plots", "down"),
        ("findings", "values", "right"),
    ),
    (
        ({"map": 280, "pipeline": 470, "timeline": 96}, "down"),
        ({"plots": 250, "values": 220}, "down"),
        ({"pipeline": 280, "hyper": 190}, "down"),
        ({"pipeline": 330, "plots": 950}, "right"),
        ({"values": 560, "findings": 390}, "right"),
    ),
    ("plots", "findings"),
)
PROFILE = Arrangement(
    "profile",
    "Profile",
    "What each kernel costs, beside the dispatches of the step",
    (("pipeline", "", "down"), ("timeline", "pipeline", "down"), ("plots", "pipeline", "right")),
    (({"pipeline": 760, "timeline": 96}, "down"), ({"pipeline": 420, "plots": 1000}, "right")),
    ("profile",),
)
DIAGNOSE = Arrangement(
    "diagnose",
    "Diagnose",
    "Findings in full beside the plots, the map and the values that they point at",
    (
        ("map", "", "down"),
        ("findings", "map", "down"),
        ("timeline", "findings", "down"),
        ("plots", "findings", "right"),
        ("values", "plots", "down"),
    ),
    (
        ({"map": 190, "findings": 560, "timeline": 96}, "down"),
        ({"findings": 660, "plots": 760}, "right"),
        ({"plots": 330, "values": 230}, "down"),
    ),
    ("findings", "plots"),
)
COMPARE = Arrangement(
    "compare",
    "Compare",
    "Two recordings against each other, with the settings of the run and its values",
    (
        ("plots", "", "down"),
        ("timeline", "plots", "down"),
        ("values", "plots", "right"),
        ("hyper", "values", "down"),
    ),
    (
        ({"plots": 760, "timeline": 96}, "down"),
        ({"plots": 960, "values": 460}, "right"),
        ({"values": 520, "hyper": 240}, "down"),
    ),
    ("compare",),
)
BUILT_IN = (STEP, PROFILE, DIAGNOSE, COMPARE)


def place(window: QMainWindow, docks: Mapping[str, QDockWidget], arrangement: Arrangement = STEP) -> None:
    """Put every dock where the arrangement has it, and close the others."""
    top = Qt.DockWidgetArea.TopDockWidgetArea
    for dock in docks.values():
        dock.setFloating(False)
        window.removeDockWidget(dock)
    there: set[str] = set()
    for name, beside, side in arrangement.places:
        if name not in docks:
            continue
        if beside in there:
            window.splitDockWidget(docks[beside], docks[name], _ALONG[side])
        else:
            window.addDockWidget(top, docks[name])
        there.add(name)
        docks[name].show()
    for name, beside, _ in STEP.places:
        neighbour = beside if beside in there else "plots"
        if name in docks and name not in there and neighbour in there:
            # Closed, it keeps a place on top of a neighbour: it can be opened again, however small the window is.
            window.tabifyDockWidget(docks[neighbour], docks[name])
            docks[name].hide()
    for shares, side in arrangement.shares:
        present = {name: size for name, size in shares.items() if name in there}
        if present:
            window.resizeDocks([docks[name] for name in present], list(present.values()), _ALONG[side])
