"""The map at scale: the overview under mouse and keys, quantities and their words, what is written where room is."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QStandardItemModel
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot
from test_map_view import Map, calls
from ui_helpers import llama_params, make_map, map_pixels_of, reference_layout, small_layout, wide_layout

from inspector.colormap import DIVERGING, VIRIDIS, colour, colour_range
from inspector.layout import Layout, Param, make_layout
from inspector.mapping import QUANTITIES, MapPixels, MapRequest, Quantity
from inspector.optimizers import plan_step
from inspector.plan import Limits, Variant, required_placement
from inspector.runtime.map_picture import MapImage, map_image
from inspector.stores import LANES
from inspector.ui import theme
from inspector.ui.map_geometry import whole
from inspector.ui.map_labels import coded_blocks
from inspector.ui.map_legend import QUANTITY_HELP, QUANTITY_TEXT, lane_reason, scale_text, under_pixel
from inspector.ui.map_marks import flagged
from inspector.ui.map_overview import element_under, in_sight
from inspector.ui.map_rows import lane_rects, overview_rect, sizes

pytestmark = pytest.mark.qt

Key, Left = Qt.Key, Qt.MouseButton.LeftButton


def overview_point(shown: Map, part: float) -> QPointF:
    """A point of the overview, `part` of it from the left."""
    area = overview_rect(shown.canvas.size())
    return QPointF(round(area.left() + part * area.width()), round(area.center().y()))


def test_the_whole_lanes_are_asked_for_beside_what_is_in_sight(qtbot: QtBot) -> None:
    shown = Map(qtbot)
    shown.wait_for_request(lambda: shown.canvas.zoom(20))
    asked, total = shown.sent[-1], small_layout().padded_elements
    assert asked.overview is not None
    assert (asked.overview.start, asked.overview.height) == (0.0, 1)
    assert asked.overview.width * asked.overview.elements_per_pixel == pytest.approx(total)
    assert asked.overview.quantity == asked.request.quantity  # type: ignore[union-attr]
    shown.wait_for_request(lambda: shown.view.resize(900, 150))
    assert shown.sent[-1].overview is None, "a low map has no room for it"


def test_a_press_on_the_overview_goes_there_and_dragging_follows(qtbot: QtBot) -> None:
    shown = Map(qtbot)
    shown.canvas.zoom(20)
    view = shown.canvas.view
    assert view is not None
    QTest.mousePress(shown.canvas, Left, pos=overview_point(shown, 0.5).toPoint())
    near = shown.canvas.view
    assert near is not None
    assert near.start + near.width * near.per_pixel / 2 == pytest.approx(view.total / 2, rel=2e-3)
    assert near.per_pixel == view.per_pixel
    QTest.mouseMove(shown.canvas, overview_point(shown, 0.75).toPoint())
    QTest.mouseRelease(shown.canvas, Left, pos=overview_point(shown, 0.75).toPoint())
    assert shown.canvas.view is not None
    assert shown.canvas.view.start > near.start
    QTest.mousePress(shown.canvas, Left, pos=overview_point(shown, 0.999).toPoint())
    QTest.mouseRelease(shown.canvas, Left, pos=overview_point(shown, 0.999).toPoint())
    assert shown.canvas.view.stop == pytest.approx(view.total)
    assert shown.picked == [], "nothing is selected there"
    assert "A press goes there" in shown.canvas.describe(overview_point(shown, 0.3))
    QTest.mouseMove(shown.canvas, shown.point(view.total / 2))
    assert shown.canvas.view.stop == pytest.approx(view.total), "once released it follows no more"


def test_pages_are_turned_with_keys(qtbot: QtBot) -> None:
    shown = Map(qtbot)
    shown.canvas.zoom(20)
    shown.canvas.setFocus()
    before = shown.canvas.view
    assert before is not None
    shown.qtbot.keyClick(shown.canvas, Key.Key_PageDown)
    after = shown.canvas.view
    assert after is not None
    assert after.start == pytest.approx(before.stop)
    shown.qtbot.keyClick(shown.canvas, Key.Key_PageUp)
    assert shown.canvas.view == before


def test_the_frame_is_around_the_part_in_sight_and_never_too_narrow_to_see(qtbot: QtBot) -> None:
    shown = Map(qtbot, reference_layout())
    area, view = overview_rect(shown.canvas.size()), shown.canvas.view
    assert view is not None
    assert (in_sight(view, area).left(), in_sight(view, area).right()) == (area.left(), area.right())
    quarter = view.zoomed(4, 0).panned(view.width)
    frame = in_sight(quarter, area)
    assert frame.left() == pytest.approx(area.left() + area.width() / 4, abs=1)
    assert frame.width() == pytest.approx(area.width() / 4, abs=1)
    assert element_under(QPointF(frame.left(), 0), quarter, area) == pytest.approx(quarter.start, rel=0.01)
    for far in (view.zoomed(1e9, 0), view.zoomed(1e9, view.width), view.zoomed(1e9, view.width / 2)):
        frame = in_sight(far, area)
        assert frame.width() == 6
        assert area.left() <= frame.left()
        assert frame.right() <= area.right()


def test_a_nan_out_of_sight_is_seen_in_the_overview(qtbot: QtBot) -> None:
    shown = Map(qtbot)
    shown.canvas.zoom(50, 900)
    shown.qtbot.waitUntil(lambda: shown.asked().start > 0)
    segment = small_layout()["h.0.attn.qkv.weight"]
    over = make_map(shown.sent[-1].overview, small_layout(), nonfinite=[("g", segment.offset)])  # type: ignore[arg-type]
    image = make_map(shown.asked(), small_layout())
    assert shown.asked().start > segment.stop
    pixels = {lane: image.pixels[lane] for lane in image.pixels}
    shown.view.show_snapshot(shown.snapshot(map=map_image(shown.asked(), pixels, overview=over)))
    picture, area = shown.picture(), overview_rect(shown.canvas.size())
    ratio = picture.devicePixelRatio()
    x = area.left() + segment.offset / small_layout().padded_elements * area.width()
    column = {
        picture.pixelColor(round((x + 1) * ratio), y).name()
        for y in range(round(area.top() * ratio), round(area.bottom() * ratio))
    }
    assert theme.NONFINITE.name() in column


# --- quantities


def test_every_quantity_has_a_name_a_definition_and_a_place_in_the_list(qtbot: QtBot) -> None:
    shown = Map(qtbot)
    box = shown.view.quantity
    assert [box.itemData(i) for i in range(box.count())] == list(QUANTITIES)
    for i, quantity in enumerate(QUANTITIES):
        assert box.itemText(i) == QUANTITY_TEXT[quantity]
        assert box.itemData(i, Qt.ItemDataRole.ToolTipRole) == QUANTITY_HELP[quantity]
        request = shown.wait_for_request(partial(box.setCurrentIndex, (i + 1) % box.count()))
        assert request.quantity == QUANTITIES[(i + 1) % box.count()]
        shown.picture()


def test_what_cannot_be_shown_is_greyed_out_with_the_reason(qtbot: QtBot) -> None:
    shown = Map(qtbot)
    reasons: dict[Quantity, str] = {"update": "No update is kept.", "coding_error": "m and v are in float32."}
    image = make_map(shown.asked(), small_layout())
    shown.view.show_snapshot(shown.snapshot(map=map_image(shown.asked(), image.pixels, reasons=reasons)))
    box = shown.view.quantity
    model = box.model()
    assert isinstance(model, QStandardItemModel)
    off = {q for i, q in enumerate(QUANTITIES) if not model.item(i).isEnabled()}
    assert off == {"update", "coding_error"}
    at = QUANTITIES.index("update")
    assert box.itemData(at, Qt.ItemDataRole.ToolTipRole).startswith("No update is kept.\n|w after")
    box.setFocus()
    box.setCurrentIndex(QUANTITIES.index("step_change"))
    shown.qtbot.keyClick(box, Key.Key_Down)
    assert shown.view.shown_quantity() == "age", "keys pass what is greyed out"
    shown.view.show_snapshot(shown.snapshot(map=map_image(shown.asked(), image.pixels)))
    assert all(model.item(i).isEnabled() for i in range(box.count()))


def test_a_quantity_that_is_not_known_at_a_moment_says_so_across_the_lanes(qtbot: QtBot) -> None:
    shown = Map(qtbot)
    shown.answering = False
    request = shown.wait_for_request(
        lambda: shown.view.quantity.setCurrentIndex(QUANTITIES.index("step_change"))
    )
    shown.view.show_snapshot(shown.snapshot(map=map_image(request, {}, reason="No step has begun.")))
    assert shown.canvas.absent.text() == "No step has begun."
    shown.view.show_snapshot(shown.snapshot(map=make_map(request, small_layout())))
    assert shown.canvas.absent.text() == ""
    assert shown.canvas.image is not None


def one_pixel(quantity: Quantity, *, per_pixel: float = 64.0, since: int | None = None) -> MapImage:
    """A column of one pixel: from -3 to 2, mean magnitude 0.5, 60 finite of 64."""
    planes = [np.full((1, 1), x, np.float32) for x in (-3.0, 2.0, 0.5, 60.0, 4.0)]
    pixels = MapPixels(*planes, cell=1, end=1000)
    return map_image(MapRequest(0.0, per_pixel, 1, 1, quantity), {"w": pixels}, since=since)


@pytest.mark.parametrize(
    ("quantity", "words"),
    [
        ("value", "w = −3.0 (largest of 64 here)"),
        ("magnitude", "|w| = 3.0 (largest of 64 here)"),
        ("mean", "mean |w| = 0.5 (over 64 here)"),
        ("change", "change of w = −3.0 (largest of 64 here)"),
        ("step_change", "change of w in the step = −3.0 (largest of 64 here)"),
        ("update", "|update| / lr = 3.0 × lr (largest of 64 here)"),
        ("coding_error", "rms error of coding w = 3.0 (largest of 64 here)"),
        ("age", "last change of w = 3.0 steps (oldest of 64 here)"),
    ],
)
def test_a_pixel_is_told_in_the_words_of_its_quantity(quantity: Quantity, words: str) -> None:
    lines = under_pixel(one_pixel(quantity, since=7), "w", 0, 0)
    assert lines[0] == words
    assert "min −3.0, max 2.0, mean magnitude 0.5" in lines
    assert lines[-1] == "4 non-finite under this pixel"
    assert ("counted from step 7 on" in lines) == (quantity == "age")


def test_lanes_without_a_quantity_say_why() -> None:
    assert lane_reason(one_pixel("update"), "g") == "Only w takes an update."
    assert lane_reason(one_pixel("update"), "w") == ""
    assert lane_reason(one_pixel("coding_error"), "g") == "g is never coded in 8 bits."
    assert lane_reason(one_pixel("coding_error"), "m") == "This optimizer keeps no m."
    assert lane_reason(one_pixel("value"), "v") == "This optimizer keeps no v."


@pytest.mark.parametrize(
    ("quantity", "values", "text"),
    [
        ("value", [-2.0, 1.0, 0.5, 0.0], "± 2"),
        ("update", [0.01, 1.0, 0.5, 0.0], "0.01 … 1 × lr"),
        ("coding_error", [1e-9, 1e-4, 0.0, 0.0], "1e−9 … 1e−4"),
        ("age", [0.0, 3.0, 12.0, 0.0], "0 … 12 steps"),
        ("age", [0.0, 0.0, 0.0, 0.0], "0 … 1 steps"),
        ("update", [0.0, 0.0, 0.0, 0.0], "all 0"),
    ],
)
def test_the_scale_has_its_unit(quantity: Quantity, values: list[float], text: str) -> None:
    request = MapRequest(0.0, 64.0, 4, 1, quantity)
    pixels = map_pixels_of(np.array([values], np.float32), np.zeros((1, 4), np.float32), request)
    assert scale_text(map_image(request, {"w": pixels}), "w") == text


def test_colours_are_where_they_belong_on_their_scale() -> None:
    """Hand-worked: 127.5 is the middle of 256 colours, decades of a logarithmic scale of four are 63.75 apart."""
    none = np.zeros((1, 5), np.float32)

    def at(values: list[float], quantity: Quantity, low: float, high: float) -> list[tuple[int, ...]]:
        row = colour(np.array([values], np.float32), none[:, : len(values)], quantity, low, high)[0]
        return [tuple(pixel) for pixel in row.tolist()]

    signed = at([-2.0, -1.0, 0.0, 1.0, 2.0], "step_change", 0.0, 2.0)
    assert signed == [tuple(DIVERGING[i].tolist()) for i in (0, 63, 127, 191, 255)]
    for quantity in ("update", "mean", "coding_error"):
        got = at([1e-4, 1e-3, 1e-2, 1.0, 0.0], quantity, 1e-4, 1.0)  # type: ignore[arg-type]
        assert got == [tuple(VIRIDIS[i].tolist()) for i in (0, 63, 127, 255, 0)]
    assert at([0.0, 5.0, 10.0], "age", 0.0, 10.0) == [tuple(VIRIDIS[i].tolist()) for i in (0, 127, 255)]
    bad = colour(np.array([[1.0, np.nan]], np.float32), np.array([[1, 0]], np.float32), "age", 0.0, 1.0)
    assert bad[0].tolist() == [[0xD5, 0x5E, 0x00, 255], [0, 0, 0, 0]], "not finite; no element"


def test_the_oldest_cell_is_the_end_of_the_scale_of_ages() -> None:
    """One cell among thousands that stands still is what is looked for: no quantile may hide it."""
    ages = np.zeros((1, 5000), np.float32)
    ages[0, 77] = 40.0
    ages[0, 0] = np.nan
    assert colour_range(ages, "age") == (0.0, 40.0)
    assert colour_range(np.full((1, 3), np.nan, np.float32), "age") == (0.0, 1.0)


# --- labels


def test_blocks_of_codes_are_numbered_as_their_scales_lie() -> None:
    """p0 has 600 elements, so three blocks, the last ending at 600; a param of 100 is in float32."""
    variant = Variant(kernel="8bit")
    params = [Param("p0", (600, 8)), Param("p1", (700, 8)), Param("small", (100,))]
    layout = make_layout(params, placement=required_placement(variant))
    view = whole(layout.padded_elements, 1000)
    assert list(coded_blocks(layout, "w", view)) == []
    blocks = list(coded_blocks(layout, "m", view))
    sizes = [(b.start, b.stop, b.number) for b in blocks]
    assert sizes[0] == (0, 256, 0)
    first, second = layout["p0"], layout["p1"]
    ends = [b.stop for b in blocks]
    assert first.stop in ends
    assert second.stop in ends
    assert next(b.number for b in blocks if b.start >= second.offset) == second.offset // 256
    assert all(b.stop <= layout["small"].offset or layout["small"].state == "8bit" for b in blocks)
    assert list(coded_blocks(layout, "m", whole(100_000_000, 1000))) == [], "too narrow to be told apart"


@pytest.mark.parametrize("layout", [reference_layout(), wide_layout()], ids=["74 params", "20,000 params"])
def test_labels_are_drawn_at_every_zoom_without_looking_at_every_param(qtbot: QtBot, layout: Layout) -> None:
    shown = Map(qtbot, layout)
    for zoom in (1, 30, 1000, 30_000):
        shown.canvas.show_all()
        shown.wait_for_request(partial(shown.canvas.zoom, zoom * 1.01, 333))
        assert calls(shown.canvas.repaint) < 8000


def test_the_gap_behind_a_param_is_measured_in_words(qtbot: QtBot) -> None:
    """36 elements, then 28 up to the next multiple of 64: 112 bytes."""
    layout = make_layout([Param("a", (6, 6)), Param("b", (64, 64))])
    shown = Map(qtbot, layout)
    written: list[str] = []
    shown.wait_for_request(lambda: shown.canvas.zoom_to("a"))
    view = shown.canvas.view
    assert view is not None
    shown.canvas.zoom(0.5)
    from PySide6.QtGui import QImage, QPainter

    from inspector.ui import map_labels

    class Told(QPainter):
        """Keeps what is written."""

        def drawText(self, *given: object) -> None:  # type: ignore[override]
            written.append(str(given[-1]))

    assert shown.canvas.index is not None
    image = QImage(1400, 300, QImage.Format.Format_RGBA8888)
    painter = Told(image)
    map_labels.paint_gaps(painter, shown.canvas.view, shown.canvas.index.gaps(shown.canvas.view))  # type: ignore[arg-type]
    painter.end()
    assert written == ["gap: 28 elements, 112 B"]


def test_another_plan_asks_for_the_map_of_its_lanes(qtbot: QtBot) -> None:
    shown = Map(qtbot)
    shown.layout = make_layout(llama_params(layers=1))
    shown.plan = plan_step(shown.layout, Limits(), Variant())
    shown.wait_for_request(lambda: shown.view.show_snapshot(shown.snapshot()))
    over = shown.sent[-1].overview
    assert over is not None
    assert over.width * over.elements_per_pixel == pytest.approx(shown.layout.padded_elements)
    rects = lane_rects(shown.canvas.size())
    assert overview_rect(shown.canvas.size()).top() > rects["v"].bottom()
    assert overview_rect(shown.canvas.size()).bottom() <= shown.canvas.height()
    assert overview_rect(shown.canvas.size()).left() == sizes().left


# --- marks of what is not finite


def test_what_is_flagged_is_wide_enough_to_see_and_stays_on_the_screen() -> None:
    assert np.flatnonzero(flagged([(5, 6)], 0.0, 1.0, 20)).tolist() == [5, 6, 7]
    assert np.flatnonzero(flagged([(500, 520)], 0.0, 0.01, 20)).tolist() == [5, 6, 7]
    assert np.flatnonzero(flagged([(2, 4)], 10.0, 2.0, 20)).tolist() == [14, 15, 16, 17]
    assert flagged([(0, 1)], -5.0, 1.0, 20).sum() == 0, "left of the screen"
    assert np.flatnonzero(flagged([(0, 8)], -5.0, 1.0, 20)).tolist() == [0, 1, 2]
    assert np.flatnonzero(flagged([(19, 20), (40, 50)], 0.0, 1.0, 20)).tolist() == [19]


def test_an_arrow_points_at_each_that_stands_alone(qtbot: QtBot) -> None:
    shown = Map(qtbot)
    near, far = (small_layout()[f"h.{i}.ffn.down.weight"].offset + 500 for i in (0, 1))
    shown.nonfinite = [("g", near), ("g", near + 200), ("g", far)]
    shown.wait_for_request(lambda: shown.canvas.zoom(1.01))
    picture, rect, view = shown.picture(), lane_rects(shown.canvas.size())["g"], shown.canvas.view
    assert view is not None
    ratio = picture.devicePixelRatio()
    y = round((rect.top() - 4) * ratio)
    found = [x for x in range(picture.width()) if picture.pixelColor(x, y).name() == theme.NONFINITE.name()]
    arrows = 1 + int(np.count_nonzero(np.diff(found) > 8 * ratio))
    assert arrows == 2, "two elements side by side have one"
    for element in (near, far):
        x = (sizes().left + view.x_of(element)) * ratio
        assert min(abs(x - each) for each in found) <= 6 * ratio


def test_half_of_all_columns_not_finite_cost_no_more_to_paint(qtbot: QtBot) -> None:
    shown = Map(qtbot)
    shown.answering = False
    request = shown.wait_for_request(lambda: shown.canvas.zoom(1.01))
    cost = []
    for columns in ([0], range(0, request.width, 2)):
        counts = np.zeros((request.height, request.width), np.float32)
        counts[0, columns] = 1
        pixels = {lane: map_pixels_of(np.zeros_like(counts), counts, request) for lane in LANES}
        shown.view.show_snapshot(shown.snapshot(map=map_image(request, pixels)))
        cost.append(calls(shown.canvas.repaint))
    # Each column by itself would be several calls; how many a paint makes at all hangs on the versions used.
    assert request.width > 500
    assert cost[1] < cost[0] + request.width
