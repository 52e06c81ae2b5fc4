"""The map and the timeline under real mouse and keys, and what drawing them costs."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest
from PySide6.QtCore import QPoint, QPointF, QSize, Qt
from PySide6.QtGui import QColor, QImage, QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot
from ui_helpers import (
    llama_params,
    make_findings,
    make_history,
    make_map,
    make_snapshot,
    map_pixels_of,
    reference_layout,
    small_layout,
    wide_layout,
)

from inspector.layout import Layout, make_layout
from inspector.mapping import QUANTITIES, MapRequest
from inspector.optimizers import plan_step
from inspector.plan import Limits, Variant, required_placement
from inspector.runtime.commands import FindValue, Seek, ViewMap
from inspector.runtime.map_picture import MapImage, map_image
from inspector.runtime.snapshots import CloseUp, Mark, Snapshot
from inspector.runtime.value_finding import Found
from inspector.stepping import Cursor, UndoInfo
from inspector.stores import Lane
from inspector.ui import theme
from inspector.ui.map_legend import nonfinite_text, scale_text
from inspector.ui.map_rows import lane_rects, sizes
from inspector.ui.map_view import MapView, shown_under
from inspector.ui.timeline_view import TimelineView
from inspector.value_search import matches

pytestmark = pytest.mark.qt

Key, Left = Qt.Key, Qt.MouseButton.LeftButton
MAX_CALLS = 8_000
"""Twice what the densest picture takes: a call a param would be 20,000 at the least."""
"""The UI thread is never busy for longer; on a loaded machine the best of several counts."""


class Map:
    """A map on screen, its requests answered by `answer` where given."""

    def __init__(self, qtbot: QtBot, layout: Layout | None = None, *, dispatch: int = 3) -> None:
        self.layout = layout or small_layout()
        self.plan = plan_step(self.layout, Limits(1 << 30, 1 << 31), Variant())
        self.sent: list[ViewMap] = []
        self.picked: list[str] = []
        self.elements: list[tuple[str, int]] = []
        self.finds: list[FindValue] = []
        self.nonfinite: list[tuple[Lane, int]] = []
        self.answering = True
        self.view = MapView()
        self.canvas = self.view.canvas
        self.cursor = Cursor(5, dispatch, len(self.plan.dispatches))
        self.qtbot = qtbot
        qtbot.addWidget(self.view)
        self.view.command.connect(self._on_command)
        self.view.param_selected.connect(self.picked.append)
        self.view.element_selected.connect(lambda name, index: self.elements.append((name, index)))
        self.view.resize(1000 + sizes().left + 104, 300)
        self.view.show()
        qtbot.waitExposed(self.view)
        self.view.show_snapshot(self.snapshot())
        qtbot.waitUntil(lambda: len(self.sent) > 0)

    def snapshot(self, **changes: object) -> Snapshot:
        return make_snapshot(plan=self.plan, cursor=self.cursor, **changes)

    def _on_command(self, command: ViewMap | FindValue) -> None:
        if isinstance(command, FindValue):
            self.finds.append(command)
            return
        self.sent.append(command)
        if command.request and self.answering:
            image = make_map(command.request, self.layout, nonfinite=self.nonfinite)
            self.view.show_snapshot(self.snapshot(map=image))

    def asked(self) -> MapRequest:
        request = self.sent[-1].request
        assert request is not None
        return request

    def wait_for_request(self, act: Callable[[], object]) -> MapRequest:
        before = len(self.sent)
        act()
        self.qtbot.waitUntil(lambda: len(self.sent) > before)
        return self.asked()

    def point(self, element: float, lane: Lane = "w") -> QPoint:
        assert self.canvas.view is not None
        rect = lane_rects(self.canvas.size())[lane]
        return QPoint(round(sizes().left + self.canvas.view.x_of(element)), round(rect.center().y()))

    def picture(self) -> QImage:
        return self.canvas.grab().toImage()


@pytest.fixture
def shown(qtbot: QtBot) -> Map:
    return Map(qtbot)


def wheel(widget: QWidget, at: QPoint, steps: int) -> None:
    position = QPointF(at)
    event = QWheelEvent(
        position,
        QPointF(widget.mapToGlobal(at)),
        QPoint(),
        QPoint(0, 120 * steps),
        Qt.MouseButton.NoButton,
        Qt.KeyboardModifier.NoModifier,
        Qt.ScrollPhase.NoScrollPhase,
        False,
    )
    QApplication.sendEvent(widget, event)


def test_the_whole_buffer_is_asked_for_first(shown: Map) -> None:
    request = shown.asked()
    ratio = shown.canvas.devicePixelRatioF()
    assert request.start == 0
    assert request.width == round(1000 * ratio)
    assert request.elements_per_pixel * request.width == pytest.approx(small_layout().padded_elements)
    assert request.height == round(lane_rects(shown.canvas.size())["w"].height() * ratio)
    assert request.quantity == "value"


def test_many_moves_in_one_frame_ask_once(shown: Map) -> None:
    before = len(shown.sent)
    for _ in range(50):
        shown.canvas.zoom(1.1)
    assert len(shown.sent) == before
    shown.qtbot.waitUntil(lambda: len(shown.sent) > before)
    shown.qtbot.wait(60)
    assert len(shown.sent) == before + 1


def test_the_wheel_zooms_about_the_pointer(shown: Map) -> None:
    element = small_layout()["h.1.attn.qkv.weight"].offset
    at = shown.point(element)
    before = shown.canvas.element_at(QPointF(at))
    shown.wait_for_request(lambda: wheel(shown.canvas, at, 5))
    after = shown.canvas.element_at(QPointF(at))
    assert before is not None
    assert after is not None
    view = shown.canvas.view
    assert view is not None
    assert not view.shows_all
    assert abs(after[0] - before[0]) <= 100, "the same column of 90 elements"


def test_dragging_moves_and_does_not_select(shown: Map) -> None:
    shown.canvas.zoom(8)
    view = shown.canvas.view
    assert view is not None
    start = view.start
    at = shown.point(start + 200 * view.per_pixel)
    QTest.mousePress(shown.canvas, Left, pos=at)
    QTest.mouseMove(shown.canvas, at - QPoint(50, 0))
    QTest.mouseMove(shown.canvas, at - QPoint(100, 0))
    QTest.mouseRelease(shown.canvas, Left, pos=at - QPoint(100, 0))
    assert shown.canvas.view is not None
    assert shown.canvas.view.start == pytest.approx(start + 100 * view.per_pixel)
    assert shown.picked == []


def test_a_click_selects_the_param_and_a_gap_selects_none(qtbot: QtBot) -> None:
    layout = make_layout(llama_params(dim=36, layers=1))
    shown = Map(qtbot, layout)
    segment = layout["h.0.attn.out.weight"]
    shown.qtbot.mouseClick(shown.canvas, Left, pos=shown.point((segment.offset + segment.stop) / 2))
    assert shown.picked == ["h.0.attn.out.weight"]
    assert shown.canvas.selected == "h.0.attn.out.weight"
    norm = layout["norm.weight"]
    shown.canvas.zoom_to("norm.weight")
    shown.canvas.zoom(0.5)
    shown.qtbot.mouseClick(shown.canvas, Left, pos=shown.point(norm.stop + 10))
    assert shown.picked[-1] == ""


def test_a_click_picks_the_element_that_the_pixel_shows(shown: Map) -> None:
    """Of several under a pixel the one of largest magnitude, which the worker finds; close up the one that is there."""
    segment = small_layout()["h.0.attn.out.weight"]
    middle = (segment.offset + segment.stop) // 2
    point = shown.point(middle)
    shown.qtbot.mouseClick(shown.canvas, Left, pos=point)
    (asked,) = shown.finds
    image, lane = shown.canvas.image, asked.lane
    assert image is not None
    pixel = shown.canvas.pixel_at(point.toPointF(), lane)
    assert pixel is not None
    value = image.values[lane][pixel]
    low, high = asked.within or (0, 0)
    assert low <= middle + image.request.elements_per_pixel
    assert high - low <= image.request.elements_per_pixel / image.request.height + 3
    assert matches(asked.query, np.array([value, -value, value * 2], np.float32)).tolist() == [
        True,
        True,
        False,
    ]
    assert shown.elements == []
    answer = Found(asked, 5, 1, segment.name, 77)
    shown.view.show_snapshot(shown.snapshot(map=image, closeup=CloseUp(found=answer)))
    shown.view.show_snapshot(shown.snapshot(map=image, closeup=CloseUp(found=answer)))
    assert shown.elements == [(segment.name, 77)]
    shown.canvas.zoom(5000, shown.canvas.view.x_of(middle) if shown.canvas.view else 0)
    shown.qtbot.waitUntil(lambda: shown.asked().elements_per_pixel < 1)
    shown.qtbot.mouseClick(shown.canvas, Left, pos=shown.point(middle + 0.5))
    assert shown.elements[-1] == (segment.name, middle - segment.offset)
    assert len(shown.finds) == 1


def test_a_click_on_a_pixel_with_a_nan_picks_that(qtbot: QtBot) -> None:
    shown = Map(qtbot, small_layout())
    segment = small_layout()["h.0.attn.out.weight"]
    shown.nonfinite = [("g", segment.offset + 500)]
    shown.wait_for_request(lambda: shown.canvas.zoom(1.01))
    image, view = shown.canvas.image, shown.canvas.view
    assert image is not None
    assert view is not None
    row, column = np.argwhere(image.nonfinite["g"] > 0)[0].tolist()
    element = image.request.start + column * image.request.elements_per_pixel
    rect = lane_rects(shown.canvas.size())["g"]
    # The first whole pixel of the screen that lies on it.
    x = math.ceil(sizes().left + view.x_of(element) + 1e-3)
    y = math.ceil(rect.top() + row / image.request.height * rect.height() - 1e-3)
    shown.qtbot.mouseClick(shown.canvas, Left, pos=QPoint(x, y))
    assert [f.query.kind for f in shown.finds] == ["nonfinite"]


def test_a_double_click_shows_the_param_from_edge_to_edge(shown: Map) -> None:
    segment = small_layout()["h.0.attn.out.weight"]
    at = shown.point((segment.offset + segment.stop) / 2)
    request = shown.wait_for_request(lambda: shown.qtbot.mouseDClick(shown.canvas, Left, pos=at))
    assert request.start <= segment.offset
    assert request.start + request.width * request.elements_per_pixel >= segment.stop
    assert request.width * request.elements_per_pixel <= segment.numel * 1.2


def test_keys_move_the_map(shown: Map) -> None:
    canvas = shown.canvas
    canvas.setFocus()
    near = shown.wait_for_request(lambda: shown.qtbot.keyClick(canvas, Key.Key_Plus))
    right = shown.wait_for_request(lambda: shown.qtbot.keyClick(canvas, Key.Key_Right))
    assert right.start > near.start
    left = shown.wait_for_request(lambda: shown.qtbot.keyClick(canvas, Key.Key_Left))
    assert left == near
    shown.wait_for_request(lambda: shown.qtbot.keyClick(canvas, Key.Key_Minus))
    home = shown.wait_for_request(
        lambda: (shown.qtbot.keyClick(canvas, Key.Key_Plus), shown.qtbot.keyClick(canvas, Key.Key_Plus))
    )
    assert home.elements_per_pixel < near.elements_per_pixel * 1.01
    all_of_it = shown.wait_for_request(lambda: shown.qtbot.keyClick(canvas, Key.Key_Home))
    assert all_of_it.start == 0
    shown.qtbot.keyClick(canvas, Key.Key_BracketRight)
    shown.qtbot.keyClick(canvas, Key.Key_BracketRight)
    assert shown.picked == [s.name for s in small_layout().segments[:2]]
    shown.qtbot.keyClick(canvas, Key.Key_Escape)
    assert shown.picked[-1] == ""


def test_the_closest_zoom_shows_single_elements(shown: Map) -> None:
    shown.canvas.zoom(1e9, 400)
    view = shown.canvas.view
    assert view is not None
    assert view.per_pixel == 1 / 64
    shown.qtbot.waitUntil(lambda: shown.asked().elements_per_pixel < 1)
    element = int(view.start) + 3
    text = shown.canvas.describe(QPointF(shown.point(element + 0.5)))
    assert f"element {element:,}" in text
    assert "largest of" not in text


def test_hovering_explains(shown: Map) -> None:
    segment = small_layout()["h.0.attn.qkv.weight"]
    shown.nonfinite = [("g", segment.offset + 200)]
    shown.wait_for_request(lambda: shown.canvas.zoom_to(segment.name))
    shown.wait_for_request(lambda: shown.canvas.zoom(1e9, 100))
    view = shown.canvas.view
    assert view is not None
    element = int(view.start) + 2
    lines = shown.canvas.describe(QPointF(shown.point(element + 0.5, "m"))).splitlines()
    row, column = divmod(element - segment.offset, 192)
    assert lines[0] == segment.name
    assert lines[1] == "64 × 192, weight decay, float32 state"
    assert lines[2] == f"[{row}, {column}]: element {element:,}, byte {element * 4:,} of buffer m"
    assert lines[3].startswith("m = ")
    assert shown.canvas.describe(QPointF(5, 5)) == ""


def test_hovering_says_where_codes_and_their_scale_lie(shown: Map) -> None:
    """h.0.attn.qkv.weight begins at a multiple of 256; element 200 is a code in its first block."""
    layout = make_layout(llama_params(), placement=required_placement(Variant(kernel="8bit")))
    shown.plan = plan_step(layout, Limits(), Variant(kernel="8bit"))
    shown.layout = layout
    segment = layout["h.0.attn.qkv.weight"]
    shown.wait_for_request(lambda: shown.canvas.zoom_to(segment.name))
    shown.wait_for_request(lambda: shown.canvas.zoom(1e9, 100))
    view = shown.canvas.view
    assert view is not None
    element = int(view.start) + 2
    lines = shown.canvas.describe(QPointF(shown.point(element + 0.5, "v"))).splitlines()
    assert lines[1].endswith("8-bit state")
    assert lines[2].endswith(
        f"element {element:,}, byte {element:,} of buffer v_packed, scale at byte {element // 256 * 4:,} of v_scale"
    )


def test_non_finite_elements_are_told_and_seen(shown: Map) -> None:
    element = small_layout()["h.1.ffn.down.weight"].offset + 5000
    shown.nonfinite = [("g", element)]
    shown.wait_for_request(lambda: shown.view.quantity.setCurrentIndex(QUANTITIES.index("nonfinite")))
    at = shown.point(element, "g")
    rect = lane_rects(shown.canvas.size())["g"]
    shown.qtbot.wait(20)
    image = shown.picture()
    ratio = image.devicePixelRatio()
    top = round((rect.top() + 1) * ratio)
    colours = {image.pixelColor(round((at.x() + dx) * ratio), top).name() for dx in range(-2, 3)}
    assert theme.NONFINITE.name() in colours, "one among 100,000 is drawn"
    found = [
        shown.canvas.describe(QPointF(at.x() + dx, y))
        for dx in range(-2, 3)
        for y in range(int(rect.top()), int(rect.bottom()))
    ]
    assert any("1 non-finite under this pixel" in text for text in found)


def test_choosing_a_quantity_asks_for_it_and_its_scale_is_shown(shown: Map) -> None:
    shown.view.quantity.setFocus()
    request = shown.wait_for_request(lambda: shown.qtbot.keyClick(shown.view.quantity, Key.Key_Down))
    assert request.quantity == "magnitude"


def test_hidden_it_asks_for_nothing(shown: Map) -> None:
    shown.view.hide()
    assert shown.sent[-1] == ViewMap(None)
    count = len(shown.sent)
    shown.canvas.zoom(3)
    shown.qtbot.wait(50)
    assert len(shown.sent) == count
    shown.view.show()
    shown.qtbot.waitUntil(lambda: len(shown.sent) > count)
    assert shown.sent[-1].request is not None


def test_until_new_pixels_come_the_old_are_drawn_in_their_place(shown: Map) -> None:
    shown.qtbot.wait(40)
    shown.answering = False
    segment = small_layout()["h.0.ffn.gate_up.weight"]
    shown.wait_for_request(lambda: shown.canvas.zoom_to(segment.name))
    rect = lane_rects(shown.canvas.size())["w"].toRect()
    image = shown.picture().copy(rect.adjusted(20, 2, -20, -2))
    colours = {image.pixelColor(x, image.height() // 2).name() for x in range(0, image.width(), 7)}
    assert len(colours) > 10, "data is drawn, not an empty lane"


def test_the_current_dispatch_is_bracketed_on_the_lanes_it_binds(qtbot: QtBot) -> None:
    accent = theme.colours().accent.name()

    def marked(shown: Map, lane: Lane) -> bool:
        rect = lane_rects(shown.canvas.size())[lane]
        image = shown.picture()
        ratio = image.devicePixelRatio()
        y = round((rect.top() - 2) * ratio)
        return any(image.pixelColor(x, y).name() == accent for x in range(sizes().left, image.width(), 3))

    shown = Map(qtbot, dispatch=0)
    assert [lane for lane in lane_rects(shown.canvas.size()) if marked(shown, lane)] == ["g"]
    assert shown.view.note.text() == "next: reduce_norm_sq; off the map: result (1)"
    shown.cursor = Cursor(5, 2, 4)
    shown.view.show_snapshot(shown.snapshot())
    assert [lane for lane in lane_rects(shown.canvas.size()) if marked(shown, lane)] == ["w", "g", "m", "v"]
    shown.cursor = Cursor(5, 4, 4)
    shown.view.show_snapshot(shown.snapshot())
    assert shown.view.note.text().startswith("last: adamw_update no-wd")


def test_another_source_is_shown_whole(shown: Map) -> None:
    shown.canvas.zoom(10)
    shown.layout = make_layout(llama_params(layers=1))
    shown.plan = plan_step(shown.layout, Limits(), Variant())
    shown.view.show_snapshot(shown.snapshot())
    assert shown.canvas.view is not None
    assert shown.canvas.view.total == shown.layout.padded_elements
    assert shown.canvas.view.shows_all
    assert shown.canvas.image is None, "pixels of the old one are gone"


def test_another_form_leaves_the_view_where_it_is(shown: Map) -> None:
    shown.canvas.zoom(10)
    view = shown.canvas.view
    shown.plan = plan_step(make_layout(llama_params()), Limits(), Variant(reduce="atomic"))
    shown.view.show_snapshot(shown.snapshot())
    assert shown.canvas.view == view


def test_empty_it_says_what_would_fill_it(qtbot: QtBot) -> None:
    view = MapView()
    qtbot.addWidget(view)
    view.show()
    view.show_snapshot(Snapshot(0, "starting", "charlm"))
    assert "once a source is open" in view.canvas.empty_text
    image = view.canvas.grab().toImage()
    drawn = {
        image.pixelColor(x, y).name() for x in range(0, image.width(), 2) for y in range(0, image.height(), 3)
    }
    assert len(drawn) > 2, "the text is drawn"


def calls(act: Callable[[], None]) -> int:
    """Calls, of Python and of what it calls into, that `act` makes: its work, whatever else the machine does."""
    count = 0

    def counted(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        act()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("layout", [reference_layout(), wide_layout()], ids=["74 params", "20,000 params"])
@pytest.mark.parametrize("zoom", [1, 3, 200])
def test_a_snapshot_and_its_painting_cost_the_pixels_not_the_params(
    qtbot: QtBot, layout: Layout, zoom: int
) -> None:
    shown = Map(qtbot, layout)
    shown.view.resize(1920, 320)
    shown.canvas.zoom(zoom)
    shown.qtbot.wait(60)
    image = make_map(shown.asked(), layout)

    def paint(dispatch: int) -> None:
        shown.cursor = Cursor(6, dispatch, len(shown.plan.dispatches))
        shown.view.show_snapshot(shown.snapshot(map=image))
        shown.canvas.repaint()

    paint(0)
    assert calls(lambda: paint(1)) < MAX_CALLS


# ── timeline ──


class Line:
    """A timeline on screen, after 128 steps with 24 in memory."""

    def __init__(self, qtbot: QtBot, **changes: object) -> None:
        self.sent: list[object] = []
        self.view = TimelineView()
        qtbot.addWidget(self.view)
        self.view.command.connect(self.sent.append)
        self.view.resize(1000, 64)
        self.view.show()
        qtbot.waitExposed(self.view)
        self.qtbot = qtbot
        self.show(**{"cursor": Cursor(128, 4, 4), **changes})

    def show(self, **changes: object) -> None:
        self.view.show_snapshot(make_snapshot(**changes))

    def at(self, step: float) -> QPoint:
        return QPoint(round(self.view.x_of(step)), 30)


def test_a_click_goes_to_the_step(qtbot: QtBot) -> None:
    line = Line(qtbot)
    qtbot.mouseClick(line.view, Left, pos=line.at(110))
    assert line.sent == [Seek(110)]


def test_dragging_seeks_at_most_once_a_frame_and_where_it_ends(qtbot: QtBot) -> None:
    line = Line(qtbot)
    QTest.mousePress(line.view, Left, pos=line.at(110))
    for step in (110.1, 110.2, 112, 112, 115):
        QTest.mouseMove(line.view, line.at(step))
    QTest.mouseRelease(line.view, Left, pos=line.at(115))
    QTest.mouseMove(line.view, line.at(90))
    qtbot.wait(40)
    assert line.sent in ([Seek(110), Seek(115)], [Seek(110), Seek(112), Seek(115)])


def test_a_click_near_a_finding_or_mark_means_it(qtbot: QtBot) -> None:
    line = Line(qtbot, findings=make_findings(), marks=(Mark(40, "β₂ 0.999 → 0.95"),))
    qtbot.mouseClick(line.view, Left, pos=line.at(97) + QPoint(3, 0))
    assert line.sent == [Seek(97)]
    assert "8 gradients" in line.view.describe(line.view.x_of(97))
    assert "From step 40: β₂ 0.999 → 0.95" in line.view.describe(line.view.x_of(40))


def test_keys_go_step_by_step(qtbot: QtBot) -> None:
    line = Line(qtbot, findings=make_findings(), marks=())
    line.view.setFocus()
    for key in (Key.Key_Left, Key.Key_Left, Key.Key_Right, Key.Key_PageUp, Key.Key_Home, Key.Key_End):
        qtbot.keyClick(line.view, key)
    qtbot.keyClick(line.view, Key.Key_Left, Qt.KeyboardModifier.ControlModifier)
    steps = [c.step for c in line.sent if isinstance(c, Seek)]
    assert steps == [127, 126, 127, 117, 104, 128, 97]


def test_from_the_middle_of_a_step_back_means_its_start(qtbot: QtBot) -> None:
    line = Line(qtbot, cursor=Cursor(128, 2, 4))
    assert line.view.x_of(127) < line.view.x_of(127.6) < line.view.x_of(128)
    qtbot.mouseClick(line.view, Left, pos=line.at(127))
    assert line.sent == [Seek(127)]


def test_it_shows_how_far_memory_reaches(qtbot: QtBot) -> None:
    line = Line(qtbot)
    assert line.view.earliest == 104
    assert "memory reaches back to step 104" in line.view.accessibleDescription()
    assert "before what memory reaches" in line.view.describe(line.view.x_of(50))
    assert "run on to its end" in line.view.describe(line.view.x_of(140))
    line.show(cursor=Cursor(128, 2, 4))
    assert line.view.earliest == 104, "the start of the step in progress is one of the 24"
    line.show(cursor=Cursor(128, 0, 4))
    assert line.view.earliest == 103
    line.show(cursor=Cursor(128, 2, 4), undo=UndoInfo())
    assert line.view.earliest == 127
    line.show(cursor=Cursor(3, 4, 4), undo=UndoInfo(steps=9))
    assert line.view.earliest == 0


def test_the_end_of_a_source_ends_the_axis(qtbot: QtBot) -> None:
    line = Line(qtbot, last_step=200)
    assert line.view.end == 200
    line.view.setFocus()
    qtbot.mouseClick(line.view, Left, pos=QPoint(999, 30))
    assert line.sent == [Seek(200)]


@pytest.mark.parametrize("mode", ["starting", "lost", "failed"])
def test_nothing_is_sent_while_nothing_can_go_there(qtbot: QtBot, mode: str) -> None:
    line = Line(qtbot, mode=mode)
    qtbot.mouseClick(line.view, Left, pos=line.at(100))
    assert line.sent == []


def test_the_worst_finding_of_a_pixel_is_drawn(qtbot: QtBot) -> None:
    line = Line(qtbot, findings=make_findings(), marks=())
    image = line.view.grab().toImage()
    ratio = image.devicePixelRatio()
    c = theme.colours()
    for step, colour in ((97, c.error), (85, c.warning), (20, c.info)):
        x = round(line.view.x_of(step) * ratio)
        column = [image.pixelColor(x, y) for y in range(image.height())]
        assert QColor(colour) in column


def w_image(request: MapRequest, values: list[list[float]], nonfinite: list[list[float]]) -> MapImage:
    under, counts = np.array(values, np.float32), np.array(nonfinite, np.float32)
    return map_image(request, {"w": map_pixels_of(under, counts, request)})


@pytest.mark.parametrize(
    ("per_pixel", "values", "nonfinite", "scale", "bad"),
    [
        # Two rows of eight elements a column; NaN: no element there.
        (16, [[0, 0, np.nan], [0, 0, np.nan]], [[8, 8, 0], [8, 8, 0]], "", "all non-finite"),
        (16, [[0, 0, 0], [0, 0, 0]], [[8, 8, 8], [8, 3, 8]], "finite: all 0", "43 non-finite"),
        (16, [[0, 0.5, 0], [0, 0, 0]], [[8, 3, 8], [8, 8, 8]], "± 0.5", "43 non-finite"),
        (16, [[0, 0, 0], [0, 0, 0]], [[0, 0, 0], [0, 0, 0]], "all 0", ""),
        # Several columns to an element.
        (1 / 3, [[0, 0, 0], [0, 0, 0]], [[1, 1, 1], [1, 1, 1]], "", "all non-finite"),
        (1 / 2, [[0, 0, 0.5], [0, 0, 0.5]], [[1, 1, 0], [1, 1, 0]], "± 0.5", "1 non-finite"),
    ],
)
def test_the_legend_tells_what_is_not_finite_from_what_is_0(
    per_pixel: float, values: list[list[float]], nonfinite: list[list[float]], scale: str, bad: str
) -> None:
    image = w_image(MapRequest(0, per_pixel, 3, 2, "value"), values, nonfinite)
    assert scale_text(image, "w") == scale
    assert nonfinite_text(image, "w") == bad


def test_where_non_finite_elements_are_shown_the_legend_counts_them() -> None:
    request = MapRequest(0, 16, 2, 1, "nonfinite")
    assert scale_text(w_image(request, [[0, 0]], [[0, 0]]), "w") == "all finite"
    assert nonfinite_text(w_image(request, [[1, 0]], [[1, 0]]), "w") == "1 non-finite"


def test_a_new_run_begins_on_a_short_axis(qtbot: QtBot) -> None:
    line = Line(qtbot, cursor=Cursor(500, 4, 4))
    assert line.view.end > 500
    line.show(run=2, cursor=Cursor(2, 4, 4), history=make_history(2))
    assert line.view.end < 50


@pytest.mark.parametrize("height", [142, 160, 176, 300])
def test_lanes_stay_in_sight_where_the_map_is_low(qtbot: QtBot, height: int) -> None:
    rects = list(lane_rects(QSize(800, height)).values())
    assert all(rect.height() >= 12 for rect in rects)
    assert all(a.bottom() < b.top() for a, b in itertools.pairwise(rects))
    assert rects[-1].bottom() <= height - 16


def test_under_a_lane_that_the_optimizer_has_not_nothing_is_looked_for() -> None:
    image = make_map(MapRequest(0.0, 8.0, 10, 4, "value"))
    assert shown_under(image, "v", 0, 0) is not None
    without = replace(image, values=MappingProxyType({"w": image.values["w"]}))
    assert shown_under(without, "v", 0, 0) is None
