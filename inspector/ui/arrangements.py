"""How the panels of the window are arranged for what a person is at: which are there, where, and how large."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import QDockWidget, QMainWindow

Side = Literal["down", "right"]
Place = Literal["down", "right", "behind"]
_ALONG = {"down": Qt.Orientation.Vertical, "right": Qt.Orientation.Horizontal}

LOW = 860
"""Pixels of height of a window below which the map leaves room to what has to be read below it."""
ROOM = QSize(1100, 700)
"""Of a window in which every panel of an arrangement can be read at once; in less, some stand behind others."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Panels in their places; one that is not named is closed.

    `places` are put one after the other: a panel, the one that it splits off from ("" for none), and on which side, or
    "behind" for a tab with that one. `shares` are parts of a length, in pixels of the window as it is by default;
    `front` the views before others that share their panel. `small` is the form for less than ROOM, `low` are the shares
    in a window lower than LOW.
    """

    name: str
    title: str
    help: str
    places: tuple[tuple[str, str, Place], ...]
    shares: tuple[tuple[Mapping[str, int], Side], ...]
    front: tuple[str, ...] = ()
    small: Arrangement | None = None
    low: tuple[tuple[Mapping[str, int], Side], ...] = ()

    def fitting(self, size: QSize) -> Arrangement:
        """The form of it for a window of this size, in pixels."""
        roomy = size.width() >= ROOM.width() and size.height() >= ROOM.height()
        if not roomy and self.small is not None:
            return self.small
        return replace(self, shares=self.low) if self.low and size.height() < LOW else self


def _small(
    of: Arrangement, places: tuple[tuple[str, str, Place], ...], *shares: tuple[Mapping[str, int], Side]
) -> Arrangement:
    """The same for a small window: its sizes are for one of 900 × 600."""
    return replace(of, small=replace(of, places=places, shares=shares))


STEP = _small(
    Arrangement(
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
            ({"pipeline": 315, "hyper": 155}, "down"),
            ({"pipeline": 330, "plots": 950}, "right"),
            ({"values": 560, "findings": 390}, "right"),
        ),
        ("plots", "findings"),
        # A message takes from these as well: the map keeps its four lanes, a finding more than its first line.
        low=(
            ({"map": 220, "pipeline": 515, "timeline": 96}, "down"),
            ({"plots": 250, "values": 265}, "down"),
            ({"pipeline": 325, "hyper": 190}, "down"),
            ({"pipeline": 330, "plots": 950}, "right"),
            ({"values": 560, "findings": 390}, "right"),
        ),
    ),
    (
        ("map", "", "down"),
        ("pipeline", "map", "down"),
        ("timeline", "pipeline", "down"),
        ("plots", "pipeline", "right"),
        ("hyper", "pipeline", "behind"),
        ("values", "plots", "behind"),
        ("findings", "plots", "behind"),
    ),
    ({"map": 180, "pipeline": 260, "timeline": 70}, "down"),
    ({"pipeline": 326, "plots": 574}, "right"),
)
PROFILE = Arrangement(
    "profile",
    "Profile",
    "What each kernel costs, beside the dispatches of the step",
    (("pipeline", "", "down"), ("timeline", "pipeline", "down"), ("plots", "pipeline", "right")),
    (({"pipeline": 760, "timeline": 96}, "down"), ({"pipeline": 420, "plots": 1000}, "right")),
    ("profile",),
)
DIAGNOSE = _small(
    Arrangement(
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
    ),
    (
        ("map", "", "down"),
        ("findings", "map", "down"),
        ("timeline", "findings", "down"),
        ("plots", "findings", "right"),
        ("values", "plots", "behind"),
    ),
    ({"map": 180, "findings": 260, "timeline": 70}, "down"),
    ({"findings": 380, "plots": 520}, "right"),
)
COMPARE = _small(
    Arrangement(
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
    ),
    (
        ("plots", "", "down"),
        ("timeline", "plots", "down"),
        ("values", "plots", "behind"),
        ("hyper", "plots", "behind"),
    ),
    ({"plots": 440, "timeline": 70}, "down"),
)
BUILT_IN = (STEP, PROFILE, DIAGNOSE, COMPARE)


def place(window: QMainWindow, docks: Mapping[str, QDockWidget], arrangement: Arrangement) -> None:
    """Put every dock where the arrangement has it, and close the others."""
    top = Qt.DockWidgetArea.TopDockWidgetArea
    for dock in docks.values():
        dock.setFloating(False)
        window.removeDockWidget(dock)
    there: set[str] = set()
    for name, beside, side in arrangement.places:
        if name not in docks:
            continue
        if beside not in there:
            window.addDockWidget(top, docks[name])
        elif side == "behind":
            window.tabifyDockWidget(docks[beside], docks[name])
        else:
            window.splitDockWidget(docks[beside], docks[name], _ALONG[side])
        there.add(name)
        docks[name].show()
    for name, beside, _ in STEP.places:
        neighbour = beside if beside in there else "plots"
        if name in docks and name not in there and neighbour in there:
            # Closed, it keeps a place on top of a neighbour: it can be opened again, however small the window is.
            window.tabifyDockWidget(docks[neighbour], docks[name])
            docks[name].hide()
    for _, beside, side in arrangement.places:
        if side == "behind" and beside in there:
            docks[beside].raise_()
    for shares, side in arrangement.shares:
        present = {name: size for name, size in shares.items() if name in there}
        if present:
            window.resizeDocks([docks[name] for name in present], list(present.values()), _ALONG[side])


Topology = frozenset[tuple[str, ...]]
"""Which panels are there: the name of each, "floats" or "", and those that share its place."""


def topology(window: QMainWindow, docks: Mapping[str, QDockWidget]) -> Topology:
    """As the panels are: what a person changes by moving them."""
    found = set()
    for name, dock in docks.items():
        if not dock.isHidden():
            beside = {id(other) for other in window.tabifiedDockWidgets(dock) if not other.isHidden()}
            names = sorted(other for other, each in docks.items() if id(each) in beside)
            found.add((name, "floats" if dock.isFloating() else "", *names))
    return frozenset(found)


def topology_of(arrangement: Arrangement, docks: Iterable[str]) -> Topology:
    """As an arrangement puts those panels that there are."""
    there = set(docks)
    shared: dict[str, set[str]] = {}
    for name, beside, side in arrangement.places:
        if name in there:
            shared[name] = shared[beside] if side == "behind" and beside in shared else set()
            shared[name].add(name)
    return frozenset((name, "", *sorted(place - {name})) for name, place in shared.items())
