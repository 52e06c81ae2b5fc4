"""Each view is a widget of its own: it opens alone with a snapshot, and its file needs no other view's."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PySide6.QtCore import QSize
from PySide6.QtGui import QImage
from pytestqt.qtbot import QtBot
from test_palette import full
from ui_helpers import make_snapshot

from inspector.runtime.snapshots import Snapshot
from inspector.ui import theme
from inspector.ui.app import application, make_view
from inspector.ui.docks import PANELS
from inspector.ui.view import LazyView, View

pytestmark = pytest.mark.qt

UI = Path(theme.__file__).parent
VIEWS = [name for panel in PANELS for name in panel.views]
BASES = (View, LazyView)
SIZES = (QSize(640, 400), QSize(320, 140))
REST_MS = {"board": 1200}
"""Plots are made a few at a time."""
MOST_OTHER = 0.005
"""The share of pixels that a cursor, or a line between two pixels, may change."""
COLOURS = 24
"""A grab of anything but an empty widget has more."""


@pytest.fixture(params=["light", "dark"])
def scheme(request: pytest.FixtureRequest) -> Iterator[str]:
    theme.apply(application(), request.param)
    yield request.param
    theme.apply(application(), "light")


def file_of(name: str) -> Path:
    """The file that the class of a view is in."""
    return UI / f"{type(make_view(name)).__module__.rsplit('.', 1)[1]}.py"


@cache
def imported(path: Path) -> frozenset[Path]:
    """The files of the window that a file imports, wherever in it, and for types only as well."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for each in names:
            if each.startswith("inspector.ui."):
                found.add(UI / f"{each.split('.')[2]}.py")
    return frozenset(file for file in found if file.exists())


def needed(path: Path) -> dict[Path, tuple[str, ...]]:
    """All files that a file needs, at whatever remove, each with the way to it."""
    ways: dict[Path, tuple[str, ...]] = {path: (path.name,)}
    waiting = [path]
    while waiting:
        at = waiting.pop()
        for each in imported(at) - ways.keys():
            ways[each] = (*ways[at], each.name)
            waiting.append(each)
    del ways[path]
    return ways


def test_no_file_of_a_view_needs_that_of_another(qtbot: QtBot) -> None:
    files = {name: file_of(name) for name in VIEWS}
    assert len(set(files.values())) == len(VIEWS), "one file a view"
    others = {file: name for name, file in files.items()}
    wrong = [
        " → ".join(way) for file in files.values() for each, way in needed(file).items() if each in others
    ]
    assert wrong == []


def test_no_file_below_the_window_knows_it(qtbot: QtBot) -> None:
    """Views are put together in main_window.py and app.py, which none of their files needs."""
    for file in {file_of(name) for name in VIEWS}:
        assert not needed(file).keys() & {
            UI / "main_window.py",
            UI / "app.py",
            UI / "docks.py",
            UI / "ways.py",
        }, file


def test_the_reading_of_imports_sees_an_import(tmp_path: Path) -> None:
    text = "def f():\n    from inspector.ui.map_view import MapView\nfrom inspector.ui import theme\n"
    (tmp_path / "one.py").write_text(text)
    assert {file.name for file in imported(tmp_path / "one.py")} == {"map_view.py", "theme.py"}
    assert UI / "chart.py" in needed(UI / "plots_view.py")


def pixels(image: QImage) -> npt.NDArray[np.uint32]:
    rgb = image.convertToFormat(QImage.Format.Format_RGB32)
    return np.frombuffer(rgb.constBits(), np.uint32).reshape(rgb.height(), rgb.bytesPerLine() // 4)


def colours_in(image: QImage) -> int:
    return len(np.unique(pixels(image)))


def others(one: QImage, other: QImage) -> float:
    """The share of pixels that are not the same."""
    return float((pixels(one) != pixels(other)).mean())


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_opens_alone_with_a_snapshot(qtbot: QtBot, name: str, scheme: str) -> None:
    view = make_view(name)
    qtbot.addWidget(view)
    sent: list[object] = []
    view.command.connect(sent.append)
    moments: tuple[Snapshot, ...] = (Snapshot(0, "starting", "charlm"), make_snapshot(), full())
    for size in SIZES:
        view.resize(size)
        view.show()
        for moment in moments:
            view.show_snapshot(moment)
            view.select_param("h.0.attn.qkv.weight")
            view.select_element("h.0.attn.qkv.weight", 5)
            view.show_range(1.0, 20.0)
            qtbot.wait(1)
        assert colours_in(view.grab().toImage()) > COLOURS
    # What it keeps it takes up again, in another window.
    again = make_view(name)
    qtbot.addWidget(again)
    again.load(view.kept_text())
    assert again.kept_text() == view.kept_text()
    # Whatever is in a file of settings, it is no fault of the view.
    again.load("\x00 not what it kept {")
    again.show_snapshot(full())
    view.select_param("")
    view.hide()
    assert all(type(each).__module__.startswith("inspector.runtime.commands.") for each in sent)


def opened(qtbot: QtBot, name: str, *, late: bool) -> View:
    view = make_view(name)
    qtbot.addWidget(view)
    view.resize(SIZES[0])
    if not late:
        view.show()
        qtbot.waitExposed(view)
    view.show_snapshot(full())
    if late:
        view.show()
        qtbot.waitExposed(view)
    return view


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_that_was_not_seen_catches_up_when_it_is(qtbot: QtBot, name: str) -> None:
    """Shown after the snapshot came, it looks as one that was there when it came."""
    theme.apply(application(), "light")
    early = opened(qtbot, name, late=False)
    qtbot.wait(REST_MS.get(name, 250))
    picture = early.grab().toImage()
    # Of two windows only one is active, and looks so.
    early.close()
    late = opened(qtbot, name, late=True)
    qtbot.waitUntil(lambda: others(late.grab().toImage(), picture) <= MOST_OTHER)
