"""Each view stands by itself: its file needs no other view, and it can be opened alone with a snapshot."""

from __future__ import annotations

import ast
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot
from test_palette import full, in_form

from inspector.runtime.beside import BesidePicture, VerifyPicture
from inspector.runtime.snapshots import Snapshot
from inspector.ui import theme
from inspector.ui.app import KINDS, application, make_view

pytestmark = pytest.mark.qt

UI = Path(theme.__file__).parent
MODULES = {name: place.partition(".")[0] for name, place in KINDS.items()}
OF_NO_RUN = {"settings"}
"""What it shows is of the window, whatever runs."""


def moment_for(name: str) -> Snapshot:
    """A moment of which the view has something to show."""
    if name == "states":
        return replace(full(), plan=in_form(optimizer="adafactor").plan)
    if name == "surface":
        return replace(full(), source="surface:valley")
    if name == "verify":
        return replace(full(), beside=BesidePicture(verify=VerifyPicture("PyTorch 2.13.0 AdamW", 128)))
    return full()


@cache
def imported(module: str) -> frozenset[str]:
    """Modules of the ui that a module imports by itself, at any place in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((UI / f"{module}.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "inspector.ui":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("inspector.ui."):
            found.add(str(node.module).split(".")[2])
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[2] for a in node.names if a.name.startswith("inspector.ui.")}
    return frozenset(name for name in found if (UI / f"{name}.py").exists())


def needs(module: str) -> set[str]:
    """All modules of the ui that are loaded with a module."""
    found, left = set(), [module]
    while left:
        for name in imported(left.pop()) - found:
            found.add(name)
            left.append(name)
    return found


@pytest.mark.parametrize("name", KINDS)
def test_the_file_of_a_view_needs_no_other_view(name: str) -> None:
    others = set(MODULES.values()) - {MODULES[name]}
    assert needs(MODULES[name]) & others == set()


def test_what_is_needed_is_found_through_others() -> None:
    assert {"map_canvas", "map_paint", "theme"} <= needs("map_view")
    assert set(MODULES.values()) & needs("main_window"), "the window does know some of them"


@pytest.mark.parametrize("name", KINDS)
def test_a_view_can_be_opened_alone_with_a_snapshot(qtbot: QtBot, name: str) -> None:
    theme.apply(application(), "light")
    view = make_view(name)
    qtbot.addWidget(view)
    sent: list[object] = []
    view.command.connect(sent.append)
    view.resize(900, 500)
    view.show_snapshot(Snapshot(0, "starting", "charlm"))
    view.show()
    qtbot.waitExposed(view)
    empty = view.grab().toImage()
    assert not empty.isNull()
    moment = moment_for(name)
    for each in (moment, replace(moment, mode="running"), replace(moment, mode="lost", stale=True), moment):
        view.show_snapshot(replace(each, serial=each.serial + 1))
        qtbot.wait(5)
    view.select_element("h.1.attn.qkv.weight", 17)
    view.show_range(10.0, 100.0)
    view.load(view.kept_text())
    qtbot.wait(5)
    assert view.key_target() is not None
    if name not in OF_NO_RUN:
        assert view.grab().toImage() != empty, "nothing of the moment is seen"
