"""In a small window everything can still be read: nothing squeezed, cut off, or pushed out of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import QPoint, QRect
from PySide6.QtGui import QFontMetrics
from PySide6.QtWidgets import QListView, QWidget
from pytestqt.qtbot import QtBot
from test_palette import Shown

from inspector.ui import theme
from inspector.ui.app import application, make_views
from inspector.ui.arrangements import STEP
from inspector.ui.board_view import BoardView
from inspector.ui.microscope_trail import TrailPlot
from inspector.ui.shaders_view import ShadersView
from inspector.ui.tables import row_height

pytestmark = pytest.mark.qt

SMALL = (900, 600)
LONG = (
    "The file run.session cannot be opened: it was written by a newer version of this program, which keeps more of a "
    "step than this one knows. Install that version, or record the run again with this one."
)


@pytest.fixture
def small(qtbot: QtBot) -> Iterator[Shown]:
    theme.apply(application(), "light")
    made = Shown(qtbot, views=make_views())
    made.window.resize(*SMALL)
    made.window.ways.layouts.apply(STEP)
    qtbot.waitUntil(lambda: (made.window.width(), made.window.height()) == SMALL)
    yield made
    made.bus.blockSignals(True)


def in_window(widget: QWidget) -> QRect:
    return QRect(widget.mapTo(widget.window(), QPoint()), widget.size())


def test_no_view_makes_the_window_larger(small: Shown) -> None:
    for name in small.window.views:
        small.window.ways.go_to_view(name)
        small.qtbot.wait(1)
        assert (small.window.width(), small.window.height()) == SMALL, name
        view = small.window.views[name]
        assert view.minimumSizeHint().width() <= 580, name
        assert small.window.rect().contains(in_window(view)), name


def test_every_view_gets_the_room_that_it_needs_for_a_few_rows(small: Shown) -> None:
    for name, view in small.window.views.items():
        small.window.ways.go_to_view(name)
        small.qtbot.wait(1)
        if name not in ("map", "timeline"):
            assert view.height() >= 7 * row_height(), name
            assert view.width() >= 280, name


def test_a_message_of_two_lines_covers_nothing(small: Shown) -> None:
    window = small.window
    window.tell_problem(LONG)
    small.qtbot.waitUntil(window.banner.isVisible)
    small.qtbot.wait(20)
    lines = window.banner.label.height() / QFontMetrics(window.banner.label.font()).height()
    assert lines >= 2
    assert window.height() == SMALL[1]
    timeline = window.views["timeline"]
    assert timeline.height() >= timeline.minimumHeight()
    assert in_window(timeline).bottom() < in_window(window.status).top()
    assert in_window(window.banner).bottom() < in_window(window.views["map"]).top()


def test_the_chooser_of_lines_has_room_for_its_lists(small: Shown) -> None:
    board = small.window.views["board"]
    assert isinstance(board, BoardView)
    small.window.ways.go_to_view("board")
    board.choose(new=True)
    small.qtbot.wait(20)
    chooser = board.chooser
    assert small.window.rect().contains(in_window(chooser))
    for listed in chooser.findChildren(QListView):
        assert listed.viewport().height() >= 8 * listed.sizeHintForRow(0)
    small.window.ways.go_to_view("plots")
    assert not chooser.isVisible(), "it goes with the view that it belongs to"
    small.window.ways.go_to_view("board")
    board.choose(new=True)
    small.window.resize(1000, 640)
    small.qtbot.wait(20)
    assert chooser.isVisible()
    assert small.window.rect().contains(in_window(chooser))


def test_what_a_kernel_came_to_is_told_on_as_many_lines_as_it_takes(small: Shown) -> None:
    shaders = small.window.views["shaders"]
    assert isinstance(shaders, ShadersView)
    small.window.ways.go_to_view("shaders")
    shaders.says.setText("All 12 lanes are as before, bit for bit; the furthest is 3 ULP from float64. " * 2)
    small.qtbot.wait(20)
    needed = shaders.says.heightForWidth(shaders.says.width())
    assert needed > 2 * shaders.says.fontMetrics().height()
    assert shaders.says.height() >= needed


@pytest.mark.parametrize(
    ("width", "shown"), [(260, "step 1,000|2,000"), (180, "1,000|2,000"), (120, "|2,000")]
)
def test_steps_below_a_trail_never_lie_on_each_other(qtbot: QtBot, width: int, shown: str) -> None:
    plot = TrailPlot()
    qtbot.addWidget(plot)
    plot.resize(width, 120)
    plot.setFont(theme.ui_font(-1))
    assert "|".join(plot.step_texts(1000, 2000)) == shown
