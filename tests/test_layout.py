"""Layout: order, alignment, gaps, blocks, pages and look-ups, against hand-worked places and naive searches."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inspector.errors import UsageError
from inspector.layout import Layout, Param, make_layout
from inspector.preset import gpt_116m_params, synthetic_params


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
