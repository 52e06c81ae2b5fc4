"""Plans as data, for devices of any limits: every element updated once and counted once, bindings legal."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from plan_interpreter import interpret, whole_lane

from inspector.errors import UsageError
from inspector.layout import Layout, Param, make_layout
from inspector.optimizers import plan_step
from inspector.plan import Dispatch, Limits, Plan, Variant, split_grid
from inspector.preset import gpt_116m_params

VARIANTS = [
    Variant(),
    Variant(dispatch="per-tensor"),
    Variant(reduce="atomic"),
    Variant(reduce="atomic", dispatch="per-tensor", numerics="precise"),
    Variant(reduce="atomic", grid="published"),
    Variant(reduce="atomic", grid="published", dispatch="per-tensor"),
]

numels = st.integers(0, 300) | st.sampled_from([1, 255, 256, 257, 16_383, 16_384, 16_385, 65_537])


@st.composite
def layouts_and_limits(draw: st.DrawFn) -> tuple[Layout, Limits]:
    sizes = draw(st.lists(numels, min_size=1, max_size=7))
    decays = draw(st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes)))
    params = [Param(f"p{i}", (n,), d) for i, (n, d) in enumerate(zip(sizes, decays, strict=True))]
    align = draw(st.sampled_from([32, 64, 256, 1024]))
    limits = Limits(
        max_storage_buffer_binding_size=draw(st.integers(64 << 10, 300_000)),
        max_buffer_size=draw(st.integers(64 << 10, 600_000)),
        max_compute_workgroups_per_dimension=draw(st.sampled_from([18, 20, 31, 255, 65_535])),
        min_storage_buffer_offset_alignment=draw(
            st.sampled_from([a for a in (32, 64, 256, 1024) if a <= align])
        ),
        min_uniform_buffer_offset_alignment=draw(st.sampled_from([32, 64, 256])),
    )
    return make_layout(params, align_bytes=align, max_buffer_bytes=limits.max_buffer_size), limits


def binding_bytes(size: int) -> int:
    """What is bound for a range: whole vec4s."""
    return -(-size // 16) * 16


def assert_legal(plan: Plan) -> None:
    """Everything WebGPU asks of buffers, bindings and grids (W3C WebGPU §3.6.2, §8.4, §23)."""
    limits = plan.limits
    sizes = {b.name: b.size for b in plan.buffers}
    assert len(sizes) == len(plan.buffers)
    assert all(0 < size <= limits.max_buffer_size for size in sizes.values())
    for index, dispatch in enumerate(plan.dispatches):
        assert dispatch.index == index
        assert all(1 <= n <= limits.max_compute_workgroups_per_dimension for n in dispatch.groups)
        assert dispatch.storage_bindings <= limits.max_storage_buffers_per_shader_stage
        slots = [b.slot for b in dispatch.bindings]
        assert slots == list(range(len(slots)))
        for b in dispatch.bindings:
            if b.access == "uniform":
                assert b.offset % limits.min_uniform_buffer_offset_alignment == 0
                assert plan.uniform_at[b.offset].size == b.size
            else:
                assert b.offset % limits.min_storage_buffer_offset_alignment == 0
                assert 0 < binding_bytes(b.size) <= limits.max_storage_buffer_binding_size
            assert b.offset + binding_bytes(b.size) <= binding_bytes(sizes[b.buffer])
        storage = [b for b in dispatch.bindings if b.access != "uniform"]
        for a, b in combinations(storage, 2):
            assert a.buffer != b.buffer or a.access == b.access == "read", (
                f"{dispatch.label} binds {a.buffer} twice, once to write: WebGPU refuses that"
            )


def assert_sound(plan: Plan, seed: int = 0) -> None:
    """Legal; each element updated once, with its own decay; the norm counts each element once."""
    assert_legal(plan)
    layout = plan.layout
    gradients = np.zeros(layout.padded_elements)
    rng = np.random.default_rng(seed)
    for segment in layout:
        gradients[segment.offset : segment.stop] = rng.integers(1, 9, segment.numel)
    run = interpret(plan, gradients)
    assert run.buffers["norm_sq"][0] == np.sum(gradients**2)
    updates = whole_lane(plan, run.updates, "w")
    decayed = whole_lane(plan, run.decayed, "w")
    for segment in layout:
        here = slice(segment.offset, segment.stop)
        assert np.all(updates[here] == 1)
        assert np.all(decayed[here] == (segment.block == "wd"))
    assert updates.max(initial=0) <= 1


def updates_of(plan: Plan) -> list[Dispatch]:
    return [d for d in plan.dispatches if d.block is not None]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: f"{v.reduce} {v.dispatch} {v.grid}")
@given(made=layouts_and_limits())
@settings(deadline=None, max_examples=60)
def test_every_element_is_updated_once_and_counted_once_within_any_limits(
    variant: Variant, made: tuple[Layout, Limits]
) -> None:
    layout, limits = made
    assume(layout.elements)
    assert_sound(plan_step(layout, limits, variant))


def test_partials_that_overflow_a_binding_are_added_up_in_several_levels() -> None:
    """100 pieces of 16,384 elements, each with partials 1024 bytes apart, take more than a binding of 64 KiB."""
    layout = make_layout([Param("p", (1_640_000,))], align_bytes=1024)
    limits = Limits(max_storage_buffer_binding_size=64 << 10, min_storage_buffer_offset_alignment=1024)
    plan = plan_step(layout, limits, Variant())
    assert sum(d.kernel == "reduce_norm_sq_final" for d in plan.dispatches) > 1
    assert_sound(plan)


@pytest.mark.parametrize("variant", [Variant(), Variant(reduce="atomic")], ids=lambda v: v.reduce)
def test_the_norm_takes_no_more_groups_than_the_device_allows(variant: Variant) -> None:
    layout = make_layout([Param("p", (300_000,))])
    plan = plan_step(layout, Limits(max_compute_workgroups_per_dimension=40), variant)
    assert plan.dispatches[0].groups == (40, 1, 1)
    assert_sound(plan)


def test_a_binding_too_small_to_add_up_the_partials_is_refused_and_does_not_hang() -> None:
    """Partials lie an alignment apart: where a binding is no larger, adding them up makes them no fewer."""
    layout = make_layout([Param("p", (10_000,))])
    with pytest.raises(UsageError, match="binding limit of 256 bytes is too small"):
        plan_step(layout, Limits(max_storage_buffer_binding_size=256), Variant())


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: f"{v.reduce} {v.dispatch} {v.grid}")
def test_the_reference_model_fits_the_limits_webgpu_guarantees(variant: Variant) -> None:
    layout = make_layout(gpt_116m_params(), max_buffer_bytes=Limits().max_buffer_size)
    plan = plan_step(layout, Limits(), variant)
    assert_legal(plan)
    updates = updates_of(plan)
    assert sum(d.elements[1] - d.elements[0] for d in updates) >= layout.elements
    if variant.dispatch == "per-tensor":
        # 74 tensors; the embedding is cut where a page ends.
        assert len({d.label.split(" [")[0] for d in updates}) == 74
    assert len(layout.pages) == 2


def test_a_buffer_one_element_over_a_binding_takes_a_second_one() -> None:
    """gfx-rs/wgpu#6221, microsoft/onnxruntime PR#27853: 33,554,433 elements against 128 MiB."""
    layout = make_layout([Param("p", (33_554_433,))])
    plan = plan_step(layout, Limits(max_buffer_size=1 << 30), Variant())
    sizes = [next(b for b in d.bindings if b.slot == 0).size for d in updates_of(plan)]
    assert sizes == [134_217_728, 4]
    reads = [d.bindings[0].size for d in plan.dispatches if d.kernel == "reduce_norm_sq"]
    assert reads == [134_217_728, 4]
    assert_legal(plan)


def test_a_binding_limit_that_is_no_multiple_of_the_alignment_is_rounded_down_to_one() -> None:
    """gfx-rs/wgpu#6221: 2,147,483,647 bytes hold 2,147,483,392 that are a multiple of 256."""
    layout = make_layout([Param("p", (600_000_000,))])
    limits = Limits(max_storage_buffer_binding_size=2_147_483_647, max_buffer_size=1 << 33)
    first, second = updates_of(plan_step(layout, limits, Variant()))
    assert first.bindings[0].size == 2_147_483_392
    assert second.bindings[0].offset == 2_147_483_392
    assert second.bindings[0].stop == 2_400_000_000


@pytest.mark.parametrize("groups", [1, 65_535, 65_536, 65_537, 1 << 20, 65_535**2])
def test_a_grid_beyond_one_dimension_gets_rows_and_loses_no_group(groups: int) -> None:
    """mrdoob/three.js PR#28846: a grid cut off at 65,535 groups loses the tail."""
    grid = split_grid(groups, 65_535)
    assert max(grid) <= 65_535
    assert groups <= math.prod(grid) < groups + grid[1]


def test_a_grid_too_large_for_two_dimensions_is_refused() -> None:
    with pytest.raises(UsageError, match="do not fit in a grid"):
        split_grid(17, 4)


def test_the_element_after_the_last_full_row_has_a_thread() -> None:
    layout = make_layout([Param("p", (16_777_217,))])
    plan = plan_step(layout, Limits(), Variant(grid="published", reduce="atomic"))
    for dispatch in plan.dispatches:
        if dispatch.kernel.startswith("published/"):
            assert dispatch.groups == (32_769, 2, 1)


def test_more_storage_buffers_than_the_adapter_allows_names_kernel_need_and_limit() -> None:
    """jsgrad-org/jsgrad#66."""
    layout = make_layout([Param("p", (8,))])
    with pytest.raises(UsageError, match=r"adamw_update binds 5 storage buffers.*limit of 4"):
        plan_step(layout, Limits(max_storage_buffers_per_shader_stage=4), Variant())


def test_a_buffer_over_the_limit_is_refused_by_name() -> None:
    layout = make_layout([Param("p", (1 << 20,))])  # one page: the limit was not told to the layout
    with pytest.raises(UsageError, match=r"Buffer w needs 4,194,304 bytes.*1,000,000"):
        plan_step(layout, Limits(max_buffer_size=1_000_000), Variant())


def test_a_layout_that_the_device_cannot_bind_says_which_alignment_would_do() -> None:
    layout = make_layout([Param("p", (8,))], align_bytes=64)
    with pytest.raises(UsageError, match="--align 256"):
        plan_step(layout, Limits(), Variant())


def test_a_binding_limit_below_the_alignment_is_refused() -> None:
    layout = make_layout([Param("p", (8,))], align_bytes=1024)
    with pytest.raises(UsageError, match="binding limit of 1000 bytes"):
        plan_step(layout, Limits(max_storage_buffer_binding_size=1000), Variant())


def test_the_published_grid_needs_the_atomic_norm_and_an_unknown_optimizer_names_those_there_are() -> None:
    layout = make_layout([Param("p", (8,))])
    with pytest.raises(UsageError, match="--reduce atomic"):
        plan_step(layout, Limits(), Variant(grid="published"))
    with pytest.raises(UsageError, match="adamw"):
        plan_step(layout, Limits(), Variant(optimizer="sgd"))


def test_the_slots_are_those_of_the_published_kernels() -> None:
    """A person's own WGSL stands on these names and numbers."""
    layout = make_layout([Param("a", (2, 3)), Param("b", (3,))])
    plan = plan_step(layout, Limits(), Variant())
    slots = {d.entry_point: [(b.slot, b.name, b.access) for b in d.bindings] for d in plan.dispatches}
    assert [d.entry_point for d in plan.dispatches] == [
        "reduce_norm_sq",
        "reduce_norm_sq_final",
        "finalize_grad_stats",
        "adamw_update",
        "adamw_update",
    ]
    assert slots["reduce_norm_sq"] == [(0, "data", "read"), (1, "result", "read_write"), (2, "n", "uniform")]
    assert slots["finalize_grad_stats"] == [
        (0, "norm_sq", "read"),
        (1, "grad_stats", "read_write"),
        (2, "max_grad_norm", "uniform"),
    ]
    assert slots["adamw_update"] == [
        *((i, name, "read_write") for i, name in enumerate("wgmv")),
        (4, "grad_stats", "read"),
        (5, "size", "uniform"),
        (6, "hp", "uniform"),
        (7, "bias", "uniform"),
    ]


def test_per_tensor_dispatches_bear_the_names_of_their_tensors() -> None:
    layout = make_layout([Param("a", (2, 3)), Param("empty", (0, 2)), Param("b", (3,))])
    plan = plan_step(layout, Limits(), Variant(dispatch="per-tensor"))
    assert [d.label for d in updates_of(plan)] == ["adamw_update a", "adamw_update b"]
    assert [d.timing_key for d in updates_of(plan)] == ["adamw_update wd", "adamw_update no-wd"]


def test_the_first_atomic_dispatch_clears_the_sum_and_the_others_do_not() -> None:
    layout = make_layout([Param("p", (40_000,))])
    limits = replace(Limits(), max_storage_buffer_binding_size=64 << 10)
    plan = plan_step(layout, limits, Variant(reduce="atomic"))
    norms = [d for d in plan.dispatches if d.entry_point == "reduce_norm_sq"]
    assert [bool(d.clears) for d in norms] == [True, False, False]
