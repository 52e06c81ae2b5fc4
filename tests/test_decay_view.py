"""The view of the decay received: plots with the same axes, words that need no colour, and what its keys ask for."""

from __future__ import annotations

import numpy as np
import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot
from ui_helpers import make_snapshot

from inspector.decay import DecayGrid, DecaySums, binned
from inspector.runtime.commands import Command, StartRace, WatchDecay
from inspector.runtime.decay_watch import DecayPicture
from inspector.ui import theme
from inspector.ui.app import application
from inspector.ui.decay_view import DecayView

pytestmark = pytest.mark.qt

Key, Control = Qt.Key, Qt.KeyboardModifier.ControlModifier
GRID = DecayGrid(-16.0, 0.125, -2.125, 0.25)
SIZES = 2.0 ** np.linspace(-14, -4, 1000)


def picture(name: str, share: np.ndarray, **changes: object) -> DecayPicture:
    w = np.full(1000, 1e-3)
    w[0] = 0.0
    bins = binned(DecaySums(w, w * share, w, 50 * SIZES**2), 50, GRID)
    given = {"since": 0, "step": 50, "bins": bins, "elements": 1000, "nbytes": 1 << 20, **changes}
    return DecayPicture(name, name, **given)  # type: ignore[arg-type]


ADAMW = picture("adamw", np.ones(1000))
L2 = picture("adam-l2", 2.0**-4 / SIZES)
LION = DecayPicture("lion", "lion", reason="Lion is not followed: only AdamW and Adam with L2 are.")


@pytest.fixture
def view(qtbot: QtBot) -> DecayView:
    theme.apply(application(), "light")
    made = DecayView()
    qtbot.addWidget(made)
    made.resize(1000, 420)
    made.show()
    return made


@pytest.fixture
def sent(view: DecayView) -> list[Command]:
    got: list[Command] = []
    view.command.connect(got.append)
    return got


def test_before_it_is_watched_it_says_how(view: DecayView, sent: list[Command], qtbot: QtBot) -> None:
    view.show_snapshot(make_snapshot())
    assert view.nothing.isVisible()
    assert "Ctrl+Return" in view.nothing.text()
    qtbot.keyClick(view, Key.Key_Return, Control)
    assert sent == [StartRace(("adamw", "adam-l2")), WatchDecay()]
    sent.clear()
    qtbot.keyClick(view, Key.Key_W)
    assert sent == [WatchDecay()]
    view.show_snapshot(make_snapshot(decay=(ADAMW, L2)))
    assert not view.nothing.isVisible()
    view.watch_button.click()
    assert sent[-1] == WatchDecay(on=False)


def test_each_lane_is_a_plot_over_the_same_axes(view: DecayView) -> None:
    view.show_snapshot(make_snapshot(decay=(ADAMW, L2, LION)))
    first, second, third = view.charts
    assert first.box.viewRange() == second.box.viewRange()
    (x0, x1), (y0, y1) = first.box.viewRange()
    assert x0 < -14 < -4 < x1
    assert y0 < 0 < 10 < y1
    assert third.message == LION.reason
    assert not third.isEnabled()
    np.testing.assert_array_equal(first.medians[np.isfinite(first.medians)], 0.0)
    line = second.medians[np.isfinite(second.medians)]
    assert (np.diff(line) <= 0).all()
    assert line[0] - line[-1] == pytest.approx(10, abs=0.3)


def test_it_is_read_without_colour(view: DecayView) -> None:
    view.show_snapshot(make_snapshot(decay=(ADAMW, L2)))
    assert view.labels[0].text().startswith("median share 1 in the smallest tenth of g′, 1 in the largest")
    assert "1 without decay" in view.labels[0].text()
    chart = view.charts[1]
    chart.resize(700, 300)
    chart.read_out((-9.0, 5.0))
    assert "median share here 32" in chart.title
    chart.read_out(None)
    assert "decay received / lr·λ·w" in chart.title
    assert view.words.text() == "steps 1 to 50 · 2.10 MB of GPU memory"


def test_it_says_what_is_not_counted(view: DecayView) -> None:
    view.show_snapshot(make_snapshot(decay=(picture("adam-l2", np.ones(1000), since=20, step=70),)))
    assert "steps 21 to 70 · decay in m from before is not counted" in view.words.text()
    view.show_snapshot(make_snapshot(decay=(picture("adam-l2", np.ones(1000), since=20, again=True),)))
    assert "begun again where the run went back" in view.words.text()


def test_the_medians_are_copied(view: DecayView, qtbot: QtBot) -> None:
    view.show_snapshot(make_snapshot(decay=(ADAMW, L2)))
    qtbot.keyClick(view, Key.Key_C, Control)
    lines = [line.split("\t") for line in QApplication.clipboard().text().splitlines()]
    assert lines[0] == ["decile", "adamw RMS g′", "adamw share", "adam-l2 RMS g′", "adam-l2 share"]
    assert [row[2] for row in lines[1:]] == ["1.0"] * 10
    assert len(lines) == 11


def test_a_narrow_panel_has_them_below_each_other(view: DecayView) -> None:
    view.show_snapshot(make_snapshot(decay=(ADAMW, L2)))
    assert view.charts[0].y() == view.charts[1].y()
    view.resize(400, 600)
    QApplication.processEvents()
    assert view.charts[0].x() == view.charts[1].x()


def test_the_axes_stay_the_same_where_one_plot_is_zoomed(view: DecayView) -> None:
    view.show_snapshot(make_snapshot(decay=(ADAMW, L2)))
    QApplication.processEvents()
    for moved, other in (view.charts, view.charts[::-1]):
        moved.box.setRange(xRange=(-9, -7), yRange=(-3, 1), padding=0)
        QApplication.processEvents()
        for mine, theirs in zip(moved.box.viewRange(), other.box.viewRange(), strict=True):
            assert mine == pytest.approx(theirs, abs=0.2)
        view.show_all()
        QApplication.processEvents()
