"""Layout: order, alignment, gaps, blocks, pages and look-ups, against hand-worked places and naive searches."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inspector.errors import UsageError
from inspector.layout import Layout, Param, Placement, StateType, make_layout
from inspector.plan import DISPATCH_FORMS, STATE_TYPES, DispatchForm, Variant, required_placement
from inspector.preset import gpt_116m_params, synthetic_params
from inspector.stores import GIVEN, LANES, MOMENTS, Lane, Store, pieces, store_at, stores


def params_of(*numels: int) -> list[Param]:
    return [Param(f"p{i}", (n,)) for i, n in enumerate(numels)]


shapes = st.lists(st.integers(0, 9), max_size=3).map(tuple) | st.tuples(st.integers(0, 700))


@st.composite
def param_lists(draw: st.DrawFn) -> list[Param]:
    drawn = draw(st.lists(st.tuples(shapes, st.sampled_from([None, True, False])), max_size=9))
    return [Param(f"p{i}", shape, decay) for i, (shape, decay) in enumerate(drawn)]


aligns = st.sampled_from([16, 32, 64, 256, 1024])


def test_segments_start_at_multiples_of_256_bytes() -> None:
    """gfx-rs/wgpu#6221: 10, 250 and 3 elements lie at bytes 0, 256 and 1280, and end at 1536."""
    layout = make_layout(params_of(10, 250, 3), align_bytes=256)
    assert [s.offset * 4 for s in layout] == [0, 256, 1280]
    assert layout.padded_elements * 4 == 1536
    assert layout.elements == 263


def test_the_wd_block_comes_first_and_each_keeps_the_order_given() -> None:
    layout = make_layout(
        [
            Param("norm", (4,)),
            Param("a", (2, 3)),
            Param("scalar", ()),
            Param("b", (5, 1)),
            Param("bias2d", (1, 4), decay=False),
            Param("gain", (4,), decay=True),
        ]
    )
    assert [(s.name, s.block) for s in layout] == [
        ("a", "wd"),
        ("b", "wd"),
        ("gain", "wd"),
        ("norm", "no_wd"),
        ("scalar", "no_wd"),
        ("bias2d", "no_wd"),
    ]
    wd, no_wd = layout.blocks
    assert (wd.start, wd.stop, wd.decays) == (0, 132, True)
    assert (no_wd.start, no_wd.stop, no_wd.decays) == (192, 324, False)


@pytest.mark.parametrize("name", ["norm.weight", "ln_f.weight", "post_attention_layernorm.weight", "h.bias"])
def test_norm_gains_and_biases_do_not_decay(name: str) -> None:
    """ServiceNow/Fast-LLM#542."""
    assert Param(name, (8,)).block == "no_wd"
    assert make_layout([Param(name, (8,))]).blocks[0].name == "no_wd"


def test_the_reference_preset_has_its_published_size() -> None:
    layout = make_layout(gpt_116m_params())
    assert len(layout.segments) == 74
    assert layout.elements == 116_017_920
    assert [len(b.segments) for b in layout.blocks] == [49, 25]


@pytest.mark.parametrize("elements", [1, 4095, 4096, 5000, 1 << 20, 33_554_433])
def test_synthetic_params_hold_exactly_the_elements_asked_for(elements: int) -> None:
    assert sum(p.numel for p in synthetic_params(elements)) == elements


@given(params=param_lists(), align_bytes=aligns, page_bytes=st.none() | st.integers(16, 5000))
@settings(deadline=None, max_examples=150)
def test_every_layout_is_aligned_without_overlap_and_its_pages_tile_it(
    params: list[Param], align_bytes: int, page_bytes: int | None
) -> None:
    if page_bytes is not None and page_bytes < align_bytes:
        with pytest.raises(UsageError, match="smaller than the alignment"):
            make_layout(params, align_bytes=align_bytes, max_buffer_bytes=page_bytes)
        return
    layout = make_layout(params, align_bytes=align_bytes, max_buffer_bytes=page_bytes)
    assert sorted(s.name for s in layout) == sorted(p.name for p in params)
    assert all(s.offset * 4 % align_bytes == 0 for s in layout)
    assert all(a.stop <= b.offset for a, b in zip(layout.segments, layout.segments[1:], strict=False))
    assert layout.elements == sum(math.prod(p.shape) for p in params)
    assert layout.padded_elements * 4 % align_bytes == 0
    for block in layout.blocks:
        assert (block.start, block.stop) == (block.segments[0].offset, block.segments[-1].stop)
    ends = [0]
    for page in layout.pages:
        assert page.start == ends[-1]
        assert page.start * 4 % align_bytes == 0
        if page_bytes is not None:
            assert 0 < (page.stop - page.start) * 4 <= page_bytes
        ends.append(page.stop)
    assert ends[-1] == layout.padded_elements


@given(params=param_lists(), align_bytes=aligns, at=st.integers(-3, 2500), count=st.integers(1, 900))
@settings(deadline=None, max_examples=150)
def test_looking_up_an_element_or_a_range_finds_what_a_plain_search_finds(
    params: list[Param], align_bytes: int, at: int, count: int
) -> None:
    layout = make_layout(params, align_bytes=align_bytes)
    holders = [s for s in layout if s.offset <= at < s.stop]
    assert layout.at(at) == (holders[0] if holders else None)
    overlapping = tuple(s for s in layout if max(s.offset, at) < min(s.stop, at + count))
    # A param without elements overlaps nothing; whether it is listed does not matter.
    assert tuple(s for s in layout.between(at, at + count) if s.numel) == overlapping


@given(
    start=st.integers(0, 3000),
    count=st.integers(0, 3000),
    most=st.none() | st.integers(1, 999),
    page_bytes=st.integers(64, 4000),
)
@settings(deadline=None, max_examples=100)
def test_pieces_tile_a_range_and_cross_no_page(
    start: int, count: int, most: int | None, page_bytes: int
) -> None:
    layout = make_layout(params_of(6000), align_bytes=64, max_buffer_bytes=page_bytes)
    pieces = list(layout.pieces(start, start + count, most))
    assert [i for low, high in pieces for i in range(low, high)] == list(range(start, start + count))
    size = page_bytes // 64 * 16
    for low, high in pieces:
        assert low // size == (high - 1) // size
        assert most is None or high - low <= most


def test_a_param_is_found_by_name() -> None:
    layout = make_layout(params_of(3, 4))
    assert layout["p1"].offset == 64
    assert "p1" in layout
    assert "p2" not in layout
    with pytest.raises(KeyError):
        layout["p2"]


@pytest.mark.parametrize("align_bytes", [0, 8, 48, 300, 1 << 21, -256])
def test_an_alignment_nobody_can_bind_at_is_refused(align_bytes: int) -> None:
    with pytest.raises(UsageError, match="power of two from 16"):
        make_layout(params_of(1), align_bytes=align_bytes)


def test_two_params_of_one_name_and_negative_extents_are_refused() -> None:
    with pytest.raises(UsageError, match="'a'"):
        make_layout([Param("a", (1,)), Param("a", (2,))])
    with pytest.raises(UsageError, match="negative extent"):
        make_layout([Param("a", (2, -1))])


def test_nothing_at_all_is_a_layout_too() -> None:
    layout: Layout = make_layout([])
    assert (layout.elements, layout.padded_elements, layout.pages, layout.blocks) == (0, 0, (), ())
    assert layout.at(0) is None
    assert layout.between(0, 10) == ()


# --- places of an 8-bit state


def coded_params(*numels: int) -> list[Param]:
    return [Param(f"p{i}", (n,), i % 2 == 0) for i, n in enumerate(numels)]


@st.composite
def mixed_params(draw: st.DrawFn) -> list[Param]:
    """Of no elements, of few, of the number where coding begins and beside it, and of some blocks."""
    sizes = st.integers(0, 300) | st.sampled_from([4095, 4096, 4097, 5000, 16_384, 16_385, 20_000])
    drawn = draw(st.lists(st.tuples(sizes, st.booleans()), max_size=9))
    return [Param(f"p{i}", (n,), decay) for i, (n, decay) in enumerate(drawn)]


def test_coded_params_lie_first_with_decay_and_last_without() -> None:
    """16,384 elements are where a scale 256 bytes further on begins; float32 states need 256 of them only."""
    layout = make_layout(
        coded_params(9, 9, 5000, 5000, 4096, 4096), placement=required_placement(Variant(kernel="8bit"))
    )
    assert [(s.name, s.block, s.state, s.offset) for s in layout] == [
        ("p2", "wd", "8bit", 0),
        ("p4", "wd", "8bit", 5120),
        ("p0", "wd", "f32", 9216),
        ("p1", "no_wd", "f32", 9472),
        ("p3", "no_wd", "8bit", 16_384),
        ("p5", "no_wd", "8bit", 21_504),
    ]
    assert [(r.block, r.state, r.start, r.stop) for r in layout.runs] == [
        ("wd", "8bit", 0, 9216),
        ("wd", "f32", 9216, 9225),
        ("no_wd", "f32", 9472, 9481),
        ("no_wd", "8bit", 16_384, 25_600),
    ]
    assert stores(layout, "w") == (Store("w", 0, 25_600, 0, "w"),)
    assert stores(layout, "v") == (
        Store("v", 0, 9216, 0, "v_packed", "v_scale"),
        Store("v", 9216, 16_384, 9216, "v"),
        Store("v", 16_384, 25_600, 0, "v_packed", "v_scale"),
    )
    code = stores(layout, "v")[2]
    assert (code.offset(16_384), code.scale_offset(16_384), code.nbytes, code.scale_bytes) == (
        16_384, 256, 25_600, 400,
    )  # fmt: skip


def test_params_bound_alone_each_begin_where_a_scale_can_be_bound() -> None:
    placement = required_placement(Variant(kernel="8bit", dispatch="per-tensor"), 32)
    layout = make_layout(coded_params(9, 9, 5000, 5000, 4096, 4096), placement=placement)
    assert [s.offset for s in layout] == [0, 6144, 10_240, 10_496, 12_288, 18_432]


@given(
    params=mixed_params(),
    apart=st.sampled_from([32, 64, 256, 1024]),
    dispatch=st.sampled_from(DISPATCH_FORMS),
    small=st.sampled_from(STATE_TYPES),
    align_bytes=st.none() | st.sampled_from([16, 256, 4096]),
    page_steps=st.none() | st.integers(1, 3),
    odd=st.integers(0, 5000),
)
@settings(deadline=None, max_examples=150)
def test_every_coded_layout_can_be_bound_and_keeps_each_element_in_one_place(
    params: list[Param],
    apart: int,
    dispatch: DispatchForm,
    small: StateType,
    align_bytes: int | None,
    page_steps: int | None,
    odd: int,
) -> None:
    variant = Variant(kernel="8bit", dispatch=dispatch, small_state=small)
    # A page is no smaller than where bindings may start, nor than the alignment asked for.
    page_bytes = None if page_steps is None else page_steps * max(256 * apart, 4096) + odd
    layout = make_layout(
        params,
        align_bytes=align_bytes,
        max_buffer_bytes=page_bytes,
        placement=required_placement(variant, apart),
    )
    assert sorted(s.name for s in layout) == sorted(p.name for p in params)
    least = 4096 if small == "f32" else 1
    assert all(s.state == ("8bit" if s.numel >= least else "f32") for s in layout)
    order = {("wd", "8bit"): 0, ("wd", "f32"): 1, ("no_wd", "f32"): 2, ("no_wd", "8bit"): 3}
    ranks = [order[s.block, s.state] for s in layout]
    assert ranks == sorted(ranks)
    for rank in range(4):
        names = [s.name for s, r in zip(layout, ranks, strict=True) if r == rank]
        assert names == [p.name for p in params if p.name in names]
    assert all(a.stop <= b.offset for a, b in zip(layout.segments, layout.segments[1:], strict=False))
    step = apart // 4 * 256
    for s, before in zip(layout, (None, *ranks), strict=False):
        unit = 256 * 4
        assert s.offset * 4 % max(align_bytes or 0, unit, apart) == 0
        begins = s.state == "8bit" and (before != order[s.block, s.state] or dispatch == "per-tensor")
        assert not begins or s.offset % step == 0, s.name
    for page in layout.pages:
        assert layout.page_elements is None or page.start == page.index * layout.page_elements
        if any(s.state == "8bit" for s in layout):
            assert page.start % step == 0
        assert page_bytes is None or 0 < (page.stop - page.start) * 4 <= page_bytes
    assert sum(p.stop - p.start for p in layout.pages) == layout.padded_elements
    assert_stored_once(layout)


def assert_stored_once(layout: Layout) -> None:
    """The stores of a lane tile the mega-buffer, and no two elements share bytes of a buffer."""
    for lane in LANES:
        kept = stores(layout, lane)
        assert [s.start for s in kept] == [0, *(s.stop for s in kept)][: len(kept)]
        assert (kept[-1].stop if kept else 0) == layout.padded_elements
        taken: dict[str, list[tuple[int, int]]] = {}
        for store in kept:
            assert not store.coded or lane in MOMENTS
            unit = 1 if store.coded else 4
            first = store.offset(store.start)
            assert store.offset(store.stop) == first + unit * (store.stop - store.start) == store.nbytes
            assert store.elements(first, unit * (store.stop - store.start)) == (store.start, store.stop)
            taken.setdefault(store.buffer, []).append((first, store.nbytes))
            if store.scales is not None:
                assert (store.start - store.origin) % 256 == 0
                low = store.scale_offset(store.start)
                assert low == first // 256 * 4
                assert store.scale_offset(store.stop - 1) + 4 == store.scale_bytes
                taken.setdefault(store.scales, []).append((low, store.scale_bytes))
        for ranges in taken.values():
            ranges.sort()
            assert all(a[1] <= b[0] for a, b in pairwise(ranges))
        for s in layout:
            if not s.numel:
                continue
            found = list(pieces(layout, lane, s.offset, s.stop))
            assert [low for _, low, _ in found] == [s.offset, *(high for _, _, high in found)][:-1]
            assert found[-1][2] == s.stop
            for store, low, _ in found:
                assert store is store_at(layout, lane, low)
                assert store.coded == (s.state == "8bit" and lane in MOMENTS)
        if layout.padded_elements:
            with pytest.raises(IndexError):
                store_at(layout, lane, layout.padded_elements)


@given(params=param_lists(), align_bytes=aligns, page_bytes=st.none() | st.integers(1024, 5000))
@settings(deadline=None, max_examples=100)
def test_a_float32_layout_is_where_recordings_have_it(
    params: list[Param], align_bytes: int, page_bytes: int | None
) -> None:
    """Offsets stand in people's scripts: each param at the next multiple of the alignment, wd first, pages of the
    largest such multiple."""
    layout = make_layout(params, align_bytes=align_bytes, max_buffer_bytes=page_bytes)
    align, end, wanted = align_bytes // 4, 0, []
    for name in ("wd", "no_wd"):
        for p in params:
            if p.block == name:
                wanted.append((p.name, -(-end // align) * align))
                end = wanted[-1][1] + p.numel
    assert [(s.name, s.offset) for s in layout] == wanted
    total = -(-end // align) * align
    page = total if page_bytes is None or total * 4 <= page_bytes else page_bytes // align_bytes * align
    assert [(p.start, p.stop) for p in layout.pages] == [
        (at, min(at + page, total)) for at in range(0, total, page or 1)
    ]
    lanes: tuple[Lane, ...] = (*GIVEN, *MOMENTS)
    for lane in lanes:
        names = [lane] if len(layout.pages) == 1 else [f"{lane}[{p.index}]" for p in layout.pages]
        assert [(s.buffer, s.start, s.origin, s.scales) for s in stores(layout, lane)] == [
            (name, p.start, p.start, None) for name, p in zip(names, layout.pages, strict=True)
        ]
    # What a form without 8-bit state asks for changes nothing where the alignment does.
    same = make_layout(
        params, align_bytes=align_bytes, max_buffer_bytes=page_bytes, placement=Placement(min(align, 64))
    )
    assert align < 64 or (same.segments, same.page_elements) == (layout.segments, layout.page_elements)


def test_the_reference_model_lies_where_it_always_lay() -> None:
    layout = make_layout(gpt_116m_params(), max_buffer_bytes=256 << 20)
    assert [layout[name].offset for name in ("embed.weight", "h.0.attn.qkv.weight", "h.11.ffn.down.weight")] == [
        0, 31_064_064, 114_425_856,
    ]  # fmt: skip
    assert (layout["h.0.attn_norm.weight"].offset, layout["norm.weight"].offset) == (115_998_720, 116_017_152)
    assert (layout.padded_elements, layout.page_elements) == (116_017_920, 67_108_864)
