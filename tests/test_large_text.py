"""With larger text everything can still be read: in no view is a word cut, in a widget or where it is painted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cut_text import cut_widgets, painted_texts
from PySide6.QtWidgets import QToolButton
from pytestqt.qtbot import QtBot
from test_palette import Shown

from inspector.ui import theme
from inspector.ui.app import KINDS, application, make_views
from inspector.ui.arrangements import STEP

pytestmark = pytest.mark.qt

SIZES = {1.0: (1280, 800), 1.5: (1280, 800), 2.0: (1920, 1080)}


@pytest.fixture(params=SIZES, ids=lambda scale: f"{scale:.0%}")
def large(request: pytest.FixtureRequest, qtbot: QtBot) -> Iterator[Shown]:
    """The window with text of a size, as it is from its start."""
    theme.apply(application(), "light", request.param)
    try:
        made = Shown(qtbot, views=make_views())
        made.window.ways.finder.hide()
        made.window.resize(*SIZES[request.param])
        made.window.ways.layouts.apply(STEP)
        qtbot.wait(20)
        yield made
        made.bus.blockSignals(True)
    finally:
        theme.apply(application(), "light", 1.0)


def test_in_no_view_is_a_word_cut(large: Shown) -> None:
    found: dict[str, None] = {}
    window = large.window
    for name in KINDS:
        with painted_texts() as painted:
            window.ways.go_to_view(name)
            large.qtbot.wait(30)
            window.views[name].grab()
        found |= dict.fromkeys(f"{name}: {line}" for line in (*cut_widgets(window.views[name]), *painted))
    more = window.toolbar.findChild(QToolButton, "qt_toolbar_ext_button")
    assert isinstance(more, QToolButton)
    assert not more.isVisible(), "nothing is pushed out of the toolbar"
    window.ways.go_to_view("plots")
    found |= dict.fromkeys(f"window: {line}" for line in cut_widgets(window))
    assert not found, "\n".join(found)
