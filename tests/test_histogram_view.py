"""Histograms: every finite non-zero element is in a bin, the rest is told in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from pytestqt.qtbot import QtBot
from ui_helpers import make_histograms, make_snapshot

from inspector.hyper import Hyper
from inspector.runtime.commands import FindValue, ViewHistograms
from inspector.runtime.snapshots import CloseUp, Histograms
from inspector.runtime.value_finding import Found
from inspector.statistics import BufferStats, buffer_stats
from inspector.stepping import Cursor
from inspector.stores import Lane
from inspector.ui.histogram_view import HistogramView
from inspector.ui.magnitudes import bin_text, power_of_two
from inspector.value_search import matches

pytestmark = pytest.mark.qt

PARAM = "h.0.attn.qkv.weight"


def stats(values: Sequence[float]) -> BufferStats:
    return buffer_stats(np.array(values, np.float32))


def of(param: str | None = None, **lanes: Sequence[float]) -> Histograms:
    return Histograms(param, Cursor(1, 1, 4), {lane: stats(v) for lane, v in lanes.items()})  # type: ignore[misc]


def sent_by(view: HistogramView) -> list[object]:
    sent: list[object] = []
    view.command.connect(sent.append)
    return sent


def shown(qtbot: QtBot, histograms: Histograms | None, **changes: object) -> HistogramView:
    view = HistogramView()
    qtbot.addWidget(view)
    view.resize(900, 400)
    with qtbot.waitExposed(view):
        view.show()
    view.show_snapshot(make_snapshot(histograms=histograms, **changes))
    return view


def bars(view: HistogramView, lane: Lane) -> dict[int, float]:
    """Heights by power of two, empty bins left out."""
    x, y = view.bars[lane].getData()
    floor = float(view.bars[lane].opts["fillLevel"])
    return {int(left): float(h) for left, h in zip(x[:-1], y, strict=True) if h > floor}


def test_elements_stand_over_their_power_of_two(qtbot: QtBot) -> None:
    view = shown(qtbot, of(m=[1, 1.5, -1.99, 2, 0.25], v=[2.0**-100]))
    assert bars(view, "m") == {0: 3, 1: 1, -2: 1}
    assert bars(view, "v") == {-100: 1}


def test_zeros_and_non_finite_are_words_and_never_binned(qtbot: QtBot) -> None:
    view = shown(qtbot, of(m=[0, 0, np.nan, np.inf, np.inf, -np.inf, 4], v=[1]))
    assert bars(view, "m") == {2: 1}
    assert "2 zero" in view.words.text()
    assert "1 NaN, 2 +Inf, 1 −Inf" in view.words.text()
    assert "all finite" in view.words.text()  # of v


@pytest.mark.parametrize("values", [[], [0.0], [0.0] * 9, [np.nan], [0.0, np.inf]])
def test_nothing_to_bin_is_said(qtbot: QtBot, values: list[float]) -> None:
    view = shown(qtbot, of(m=values, v=values))
    assert "no magnitude" in view.chart.message
    assert not view.grab().isNull()


@pytest.mark.parametrize("value", [1e-45, 2.0**-126, 1.0, 3.4e38])
def test_all_equal_is_one_bar_in_view(qtbot: QtBot, value: float) -> None:
    view = shown(qtbot, of(m=[value] * 7, v=[value] * 7), hyper=Hyper(eps=0))
    (power,) = bars(view, "m")
    low, high = view.chart.box.viewRange()[0]
    assert low <= power < high
    assert high - low >= 8
    assert bars(view, "m")[power] == 7


def test_log_counts_keep_a_single_element_visible(qtbot: QtBot) -> None:
    view = shown(qtbot, of(m=[1.0] * 1000 + [64.0]))
    place = QPoint(12, view.log_box.height() // 2)
    qtbot.mouseClick(view.log_box, Qt.MouseButton.LeftButton, pos=place)
    assert view.log_box.isChecked()
    heights = bars(view, "m")
    assert heights[0] == pytest.approx(3)
    assert heights[6] == 0 > view.bars["m"].opts["fillLevel"]


def test_it_asks_when_shown_and_stops_when_hidden(qtbot: QtBot) -> None:
    view = HistogramView()
    qtbot.addWidget(view)
    sent = sent_by(view)
    view.select_param(PARAM)
    view.show_snapshot(make_snapshot())
    assert sent == []
    view.show()
    view.show_snapshot(make_snapshot())
    view.hide()
    assert sent == [ViewHistograms(PARAM, ("m", "v")), ViewHistograms(PARAM, lanes=())]


def test_the_combo_selects_a_param_everywhere_and_asks_for_it(qtbot: QtBot) -> None:
    view = shown(qtbot, make_histograms())
    sent, selected = sent_by(view), []
    view.param_selected.connect(selected.append)
    view.combo.setFocus()
    qtbot.keyClick(view.combo, Qt.Key.Key_Down)
    first = view.combo.itemText(1)
    assert selected == [first]
    assert sent == [ViewHistograms(first, ("m", "v"))]
    assert view.chart.message == "Counting …"  # what is at hand belongs to all params
    qtbot.keyClick(view.combo, Qt.Key.Key_Up)
    assert sent[-1] == ViewHistograms(None, ("m", "v"))
    assert view.chart.message == ""


def test_the_selection_is_followed(qtbot: QtBot) -> None:
    view = shown(qtbot, None)
    sent = sent_by(view)
    view.select_param(PARAM)
    view.select_param(PARAM)
    assert sent == [ViewHistograms(PARAM, ("m", "v"))]
    assert view.combo.currentText() == PARAM
    view.show_snapshot(make_snapshot(histograms=of(PARAM, m=[1.0], v=[1.0])))
    assert bars(view, "m") == {0: 1}


def test_lanes_can_be_added(qtbot: QtBot) -> None:
    view = shown(qtbot, make_histograms())
    sent = sent_by(view)
    place = QPoint(8, view.lane_boxes["g"].height() // 2)
    qtbot.mouseClick(view.lane_boxes["g"], Qt.MouseButton.LeftButton, pos=place)
    assert sent == [ViewHistograms(None, ("g", "m", "v"))]
    assert bars(view, "g")
    assert not view.bars["w"].isVisible()


def test_epsilon_squared_is_marked_where_v_is_shown(qtbot: QtBot) -> None:
    view = shown(qtbot, of(m=[1.0], v=[1e-3]), hyper=Hyper(eps=2.0**-20))
    assert view.eps_line.isVisible()
    assert view.eps_line.value() == -40
    low, high = view.chart.box.viewRange()[0]
    assert low < -40 < high
    view.lane_boxes["v"].setChecked(False)
    assert not view.eps_line.isVisible()


@pytest.mark.parametrize("eps", [0.0, 1e-30, 1e30])
def test_an_epsilon_beyond_float32_is_not_marked(qtbot: QtBot, eps: float) -> None:
    view = shown(qtbot, of(m=[1.0], v=[1.0]), hyper=Hyper(eps=eps))
    assert not view.eps_line.isVisible()


def test_hovering_tells_the_bin(qtbot: QtBot) -> None:
    view = shown(qtbot, of(m=[1.0, 1.5], v=[4.0]))
    scene = view.chart.box.mapViewToScene(QPointF(0.5, 1))
    at = view.chart.mapFromScene(scene)
    qtbot.mouseMove(view.chart.viewport(), QPoint(at.x() - 40, at.y()))
    qtbot.mouseMove(view.chart.viewport(), at)
    assert view.chart.title == "2⁰ to 2¹ = 1 to 2: m 2  v 0"
    assert power_of_two(-20) == "2⁻²⁰"
    assert bin_text(-127).startswith("denormals")
    assert bin_text(127)


def test_a_param_that_is_gone_falls_back_to_all(qtbot: QtBot) -> None:
    view = shown(qtbot, None)
    view.select_param("elsewhere")
    view.show_snapshot(make_snapshot(plan=None, cursor=None))
    view.show_snapshot(make_snapshot())
    assert view.combo.currentIndex() == 0


def test_ctrl_and_a_click_go_through_the_elements_of_a_bin(qtbot: QtBot) -> None:
    view = shown(qtbot, of("p", m=[1, 1.5, 4], v=[2.0, 1.0]))
    view.select_param("p")
    sent, picked = sent_by(view), []
    view.element_selected.connect(lambda name, index: picked.append((name, index)))
    view.chart.picked.emit(2.5)
    asked = sent[-1]
    assert isinstance(asked, FindValue)
    assert (asked.lane, asked.param, asked.at) == ("m", "p", None)
    assert matches(asked.query, np.float32([4, -7.99, 8, 3.9])).tolist() == [True, True, False, False]
    view.chart.picked.emit(2.5)
    assert len(sent) == 1
    view.show_snapshot(
        make_snapshot(histograms=of("p", m=[1]), closeup=CloseUp(found=Found(asked, 1, 2, "p", 7)))
    )
    assert picked == [("p", 7)]
    view.show_snapshot(
        make_snapshot(histograms=of("p", m=[1, 4]), closeup=CloseUp(found=Found(asked, 1, 2, "p", 7)))
    )
    assert picked == [("p", 7)]
    view.chart.picked.emit(2.5)
    assert sent[-1] == replace(asked, at=("p", 7))
    view.show_snapshot(make_snapshot(histograms=of("p", m=[1]), closeup=CloseUp(found=Found(sent[-1], 1, 0))))
    # Only v has anything in this bin, and nothing in the next.
    view.show_snapshot(make_snapshot(histograms=of("p", m=[4], v=[1.0])))
    view.chart.picked.emit(0.5)
    assert (sent[-1].lane, sent[-1].at) == ("v", None)
    count = len(sent)
    view.chart.picked.emit(-30.5)
    assert len(sent) == count
