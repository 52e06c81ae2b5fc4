"""The geometry of the map, by hand-worked numbers and for any zoom and place."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ui_helpers import reference_layout, small_layout, wide_layout

from inspector.layout import Param, make_layout
from inspector.optimizers import plan_step
from inspector.plan import Limits, Variant
from inspector.ui.map_geometry import (
    MAX_PIXELS_PER_ELEMENT,
    SegmentIndex,
    Viewport,
    brackets,
    ticks,
    whole,
)

viewports = st.builds(
    lambda total, width, factor, x, pan: whole(total, width).zoomed(factor, x * width).panned(pan),
    st.integers(1, 2_000_000_000),
    st.integers(1, 4000),
    st.floats(0.01, 1e9),
    st.floats(0, 1),
    st.floats(-1e6, 1e6),
)


def test_the_whole_buffer_fits_the_width() -> None:
    view = whole(1000, 500)
    assert (view.start, view.per_pixel) == (0, 2)
    assert view.x_of(500) == 250
    assert view.element_at(250) == 500
    assert view.shows_all


def test_a_column_is_cut_from_top_to_bottom() -> None:
    view = whole(1000, 100)
    assert view.element_at(3, 0.0) == 30
    assert view.element_at(3.9, 0.55) == 35
    assert view.element_at(3, 1.0) == 40


def test_outside_the_buffer_is_no_element() -> None:
    view = whole(10, 1000)
    assert view.per_pixel == 1 / MAX_PIXELS_PER_ELEMENT
    assert view.element_at(639) == 9
    assert view.element_at(640) is None
    assert view.element_at(-1) is None


@given(viewports, st.floats(0, 1), st.floats(1.01, 8))
def test_zooming_keeps_what_is_under_the_pointer(view: Viewport, share: float, factor: float) -> None:
    x = share * view.width
    before = view.start + x * view.per_pixel
    near = view.zoomed(factor, x)
    assert near.start + x * near.per_pixel == pytest.approx(before, rel=1e-9, abs=1e-3)


@given(viewports, st.floats(1e-6, 1e6), st.floats(-1e7, 1e7))
def test_no_zoom_or_pan_leaves_the_buffer(view: Viewport, factor: float, pan: float) -> None:
    for moved in (view.zoomed(factor, view.width / 2), view.panned(pan), view.resized(333)):
        assert moved.start >= 0
        assert moved.stop <= moved.total * (1 + 1e-9) or moved.start == 0
        assert moved.per_pixel >= 1 / MAX_PIXELS_PER_ELEMENT


@given(viewports)
def test_ticks_are_few_and_inside(view: Viewport) -> None:
    for unit in ("bytes", "elements"):
        found = list(ticks(view, unit))
        assert len(found) <= view.width / 96 + 2
        assert all(view.start - 1 <= t.element <= view.stop for t in found)
        assert len({t.text for t in found}) == len(found), "two ticks read the same"


def test_ticks_read_in_their_unit() -> None:
    view = whole(116_000_000, 1200)
    assert [t.text for t in ticks(view, "elements")][:3] == ["0", "10 M", "20 M"]
    assert [t.text for t in ticks(view, "bytes")][:3] == ["0 B", "64 MiB", "128 MiB"]
    near = view.around(1_000_000, 1_000_040)
    assert [t.text for t in ticks(near, "elements")][1] == "1,000,005"


def test_around_a_param_shows_it_whole() -> None:
    view = whole(1_000_000, 1000).around(500_000, 500_100)
    assert view.start <= 500_000
    assert view.stop >= 500_100
    assert view.per_pixel == pytest.approx(0.11)


def test_the_request_is_in_device_pixels() -> None:
    request = whole(1000, 500).request(40, "value", 2.0)
    assert (request.width, request.height, request.elements_per_pixel) == (1000, 80, 1.0)
    assert whole(1000, 500).place(request) == (0, 500)


def test_an_old_picture_is_placed_where_it_belongs() -> None:
    old = whole(1000, 500).request(40, "value", 1.0)
    near = whole(1000, 500).zoomed(2, 0).panned(100)
    assert near.place(old) == (-100, 1000)


def test_gaps_between_params() -> None:
    layout = make_layout([Param("a", (10,)), Param("b", (70,))])
    view = whole(layout.padded_elements, 192)
    assert [(s.x, s.width) for s in SegmentIndex(layout).gaps(view)] == [(10, 54), (134, 58)]


def test_edges_of_dense_params_are_left_out() -> None:
    index = SegmentIndex(wide_layout())
    view = whole(wide_layout().padded_elements, 1200)
    assert len(index.edges(view)) == 0
    near = view.zoomed(2000, 600)
    assert 2 <= len(index.edges(near)) <= 1200


@pytest.mark.parametrize("layout", [reference_layout(), wide_layout(), small_layout()])
def test_wide_params_are_those_on_screen(layout: object) -> None:
    index = SegmentIndex(layout)  # type: ignore[arg-type]
    view = whole(index.layout.padded_elements, 1000).zoomed(50, 400)
    expected = [
        s
        for s in index.layout.segments
        if s.stop > view.start and s.offset < view.stop and s.numel / view.per_pixel >= 10
    ]
    assert index.wide(view, 10) == expected


def test_twenty_thousand_params_are_no_slower_than_a_frame() -> None:
    index = SegmentIndex(wide_layout())
    view = whole(wide_layout().padded_elements, 1920)
    started = time.perf_counter()
    index.wide(view, 28), index.edges(view), index.gaps(view)
    assert time.perf_counter() - started < 0.016


def test_brackets_of_the_norm_and_of_an_update() -> None:
    plan = plan_step(small_layout(), Limits(), Variant())
    assert [(b.lane, b.slot, b.start) for b in brackets(plan, 0)] == [("g", 0, 0)]
    assert brackets(plan, 1) == ()
    update = brackets(plan, 3)
    no_wd = small_layout().block("no_wd")
    assert no_wd is not None
    assert [b.lane for b in update] == ["w", "g", "m", "v"]
    assert {(b.start, b.stop) for b in update} == {(no_wd.start, no_wd.stop)}
    assert brackets(plan, 99) == ()


def test_brackets_on_a_second_page() -> None:
    layout = small_layout(max_buffer_bytes=1 << 17)
    plan = plan_step(layout, Limits(max_buffer_size=1 << 17), Variant())
    assert len(layout.pages) > 1
    on_lanes = [b for d in plan.dispatches for b in brackets(plan, d.index) if b.lane == "w"]
    assert any(b.start >= layout.pages[1].start for b in on_lanes)
    assert all(0 <= b.start < b.stop <= layout.padded_elements for b in on_lanes)


def test_neighbours_stop_at_the_ends() -> None:
    index = SegmentIndex(small_layout())
    first, last = small_layout().segments[0], small_layout().segments[-1]
    assert index.neighbour("", 1) == first
    assert index.neighbour(first.name, 1) == small_layout().segments[1]
    assert index.neighbour(last.name, 1) == last


def test_the_geometry_needs_no_qt() -> None:
    code = "import sys, inspector.ui.map_geometry; assert 'PySide6' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
