"""Plans as data, for devices of any limits: every element updated once and counted once, bindings legal."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, groupby, pairwise
from types import FrameType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from plan_interpreter import Run, interpret

from inspector.codecs import CODECS
from inspector.errors import UsageError
from inspector.hyper import NUMERICS
from inspector.layout import Layout, Param, Segment, make_layout
from inspector.optimizers import plan_step
from inspector.plan import (
    DISPATCH_FORMS,
    KERNELS,
    REDUCES,
    STATE_TYPES,
    Dispatch,
    DispatchForm,
    Kernel,
    Limits,
    Plan,
    Variant,
    required_placement,
    split_grid,
)
from inspector.preset import gpt_116m_params
from inspector.stores import LANES, stores

VARIANTS = [
    Variant(),
    Variant(dispatch="per-tensor"),
    Variant(reduce="atomic"),
    Variant(reduce="atomic", dispatch="per-tensor", numerics="precise"),
    Variant(reduce="atomic", grid="published"),
    Variant(reduce="atomic", grid="published", dispatch="per-tensor"),
]
"""Forms of the published float32 kernel."""

ALIGNMENTS = [32, 64, 128, 256, 512, 1024]
numels = st.integers(0, 300) | st.sampled_from([
    1, 255, 256, 257, 4095, 4096, 4097, 5000, 16_383, 16_384, 16_385, 24_900, 65_537,
])  # fmt: skip


@st.composite
def any_params(draw: st.DrawFn) -> list[Param]:
    sizes = draw(st.lists(numels, min_size=1, max_size=7))
    decays = draw(st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes)))
    return [Param(f"p{i}", (n,), d) for i, (n, d) in enumerate(zip(sizes, decays, strict=True))]


@st.composite
def any_limits(draw: st.DrawFn) -> Limits:
    """Of a device that asks for alignments of 32 to 1024 bytes and binds 64 KiB and more."""
    return Limits(
        max_storage_buffer_binding_size=draw(st.integers(64 << 10, 300_000)),
        max_buffer_size=draw(st.integers(64 << 10, 600_000)),
        max_compute_workgroups_per_dimension=draw(st.sampled_from([18, 20, 31, 255, 65_535])),
        min_storage_buffer_offset_alignment=draw(st.sampled_from(ALIGNMENTS)),
        min_uniform_buffer_offset_alignment=draw(st.sampled_from([32, 64, 256])),
    )


def variants_of(kernel: Kernel) -> st.SearchStrategy[Variant]:
    made = st.builds(
        Variant,
        optimizer=st.sampled_from(["adamw", "adam-l2"]),
        kernel=st.just(kernel),
        numerics=st.sampled_from(NUMERICS),
        reduce=st.sampled_from(REDUCES),
        dispatch=st.sampled_from(DISPATCH_FORMS),
        fused=st.booleans(),
        codec=st.sampled_from(CODECS),
        small_state=st.sampled_from(STATE_TYPES),
    )
    return made if kernel != "f32" else made | st.sampled_from(VARIANTS)


def layout_for(params: list[Param], limits: Limits, variant: Variant, apart: int | None = None) -> Layout:
    """The layout for a device, or for any that asks for `apart` bytes of alignment or less."""
    return make_layout(
        params,
        max_buffer_bytes=limits.max_buffer_size,
        placement=required_placement(variant, apart or limits.min_storage_buffer_offset_alignment),
    )


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
        for b in dispatch.bindings:
            if b.access == "uniform":
                assert b.offset % limits.min_uniform_buffer_offset_alignment == 0
                assert plan.uniform_at[b.offset].size == b.size
            else:
                assert b.offset % limits.min_storage_buffer_offset_alignment == 0
                assert b.size > 0
                bound = b.size if b.exact else binding_bytes(b.size)
                assert b.bound_size == bound <= limits.max_storage_buffer_binding_size
            assert b.offset + binding_bytes(b.size) <= binding_bytes(sizes[b.buffer])
        storage = [b for b in dispatch.bindings if b.access != "uniform"]
        for a, b in combinations(storage, 2):
            assert a.buffer != b.buffer or a.access == b.access == "read", (
                f"{dispatch.label} binds {a.buffer} twice, once to write: WebGPU refuses that"
            )


def assert_sound(plan: Plan, seed: int = 0) -> None:
    """Legal; each element updated once, with its own decay, in its own state; the norm counts each element once."""
    assert_legal(plan)
    layout, variant = plan.layout, plan.variant
    gradients = np.zeros(layout.padded_elements)
    rng = np.random.default_rng(seed)
    for segment in layout:
        gradients[segment.offset : segment.stop] = rng.integers(1, 9, segment.numel)
    run = interpret(plan, gradients)
    assert run.norm_sq == np.sum(gradients**2)
    counts = {
        "scaled": (run.scaled, not variant.fused),
        "updated": (run.updated, True),
        "zeroed": (run.zeroed, True),
        "mirrored": (run.mirrored, variant.kernel == "f16"),
    }
    inside = np.zeros(layout.padded_elements, bool)
    for segment in layout:
        here = slice(segment.offset, segment.stop)
        inside[here] = True
        for what, (count, wanted) in counts.items():
            assert (count[here] == wanted).all(), f"{segment.name} {what}"
        assert (run.decayed[here] == (segment.block == "wd")).all()
        assert (run.kernel[here] == kernel_of(segment, variant)).all()
    left = [values for name, values in run.buffers.items() if name[0] == "g" and name != "grad_stats"]
    assert not any(values.any() for values in left)
    # In a gap only what lies between segments that are updated together, and that once.
    for count, _ in counts.values():
        assert count[~inside].max(initial=0) <= 1
        assert variant.dispatch != "per-tensor" or not count[~inside].any()
    assert_kept_together(run, inside)


def is_coded(param: Param, variant: Variant) -> bool:
    """8-bit optimizers keep params of fewer than 4096 elements in float32, unless told otherwise."""
    return variant.kernel == "8bit" and param.numel >= (1 if variant.small_state == "8bit" else 4096)


def kernel_of(segment: Segment, variant: Variant) -> str:
    if variant.kernel == "8bit":
        return "adamw_8bit_update" if is_coded(segment.param, variant) else "adamw_update"
    return "adamw_update_f16" if variant.kernel == "f16" and variant.fused else "adamw_update"


def assert_kept_together(run: Run, inside: npt.NDArray[np.bool_]) -> None:
    """Each element has one place in each lane's buffers, where every look at it finds it; no block holds two params."""
    plan, layout = run.plan, run.plan.layout
    holder = np.full(layout.padded_elements, -1, np.int64)
    for i, segment in enumerate(layout):
        holder[segment.offset : segment.stop] = i
    for lane in LANES:
        seen = np.zeros(layout.padded_elements, np.int64)
        for store in stores(layout, lane):
            owner = run.owners.get(store.buffer)
            if owner is None:
                assert not inside[store.start : store.stop].any()
                continue
            elements = np.flatnonzero(inside[store.start : store.stop]) + store.start
            unit = 1 if store.coded else 4
            at = np.array([store.offset(int(e)) for e in elements[:1]]) + (elements - elements[:1]) * unit
            assert (owner[at // unit] == elements).all()
            seen[elements] += 1
            if store.scales is None:
                continue
            firsts = elements // 256 * 256
            scale = run.owners[store.scales][[store.scale_offset(int(e)) // 4 for e in firsts]]
            assert (scale == firsts).all()
            blocks_ = holder[firsts[0] : firsts[-1] + 256] if elements.size else holder[:0]
            for block in np.pad(blocks_, (0, -blocks_.size % 256), constant_values=-1).reshape(-1, 256):
                assert np.unique(block[block >= 0]).size <= 1
        assert (seen[inside] == 1).all()
    # And no unit stands for an element of another param than those in its block: nothing is written elsewhere.
    known = {name for lane in LANES for s in stores(layout, lane) for name in (s.buffer, s.scales) if name}
    assert {name for name in run.owners if not name.startswith("w_f16")} <= known
    if plan.variant.kernel == "f16":
        mirror = np.concatenate(
            [run.owners["w_f16" if len(layout.pages) == 1 else f"w_f16[{p.index}]"] for p in layout.pages]
        )
        assert (mirror[np.flatnonzero(inside)] == np.flatnonzero(inside)).all()


def updates_of(plan: Plan) -> list[Dispatch]:
    return [d for d in plan.dispatches if d.updates]


@pytest.mark.parametrize("kernel", KERNELS)
@given(data=st.data())
@settings(deadline=None, max_examples=80)
def test_every_element_is_updated_once_and_counted_once_within_any_limits(
    kernel: Kernel, data: st.DataObject
) -> None:
    params, limits, variant = (data.draw(each) for each in (any_params(), any_limits(), variants_of(kernel)))
    assume(any(p.numel for p in params))
    # For this device alone, or as it is done: for all that ask for 256 bytes or less.
    aligned = limits.min_storage_buffer_offset_alignment
    apart = data.draw(st.sampled_from([aligned, max(aligned, 256)]))
    if cannot_be_coded(params, limits, variant, apart):
        with pytest.raises(UsageError, match=r"^A (buffer|binding) limit of [^.]*\.$"):
            plan_step(layout_for(params, limits, variant, apart), limits, variant)
    else:
        assert_sound(plan_step(layout_for(params, limits, variant, apart), limits, variant))


def cannot_be_coded(params: list[Param], limits: Limits, variant: Variant, apart: int) -> bool:
    """True where a device cannot bind 8-bit state: what has to be cut can be cut nowhere.

    A binding may start where the float32 scales of blocks of 256 may: every `apart` / 4 · 256 elements, so every 256 ·
    `apart` bytes of w. What is updated at once has to be cut where w is larger than a binding; the buffer of w where it
    is larger than a buffer.
    """
    if not any(is_coded(p, variant) for p in params):
        return False
    step = 256 * apart
    layout = layout_for(params, replace(limits, max_buffer_size=1 << 40), variant, apart)
    if layout.padded_elements * 4 > limits.max_buffer_size < step:
        return True
    if step <= limits.max_storage_buffer_binding_size:
        return False
    layout = layout_for(params, limits, variant, apart)
    for run in updated_together(layout, variant):
        edges = sorted({run[0].offset, run[-1].stop} | {p.start for p in layout.pages})
        inside = [e for e in edges if run[0].offset <= e <= run[-1].stop]
        if any(
            binding_bytes(4 * (b - a)) > limits.max_storage_buffer_binding_size for a, b in pairwise(inside)
        ):
            return True
    return False


def updated_together(layout: Layout, variant: Variant) -> list[list[Segment]]:
    """The runs of coded params that a form updates in one dispatch where that can be bound."""

    def run_of(s: Segment) -> tuple[bool, str]:
        key = {"per-tensor": s.name, "two-block": s.block, "single": ""}[variant.dispatch]
        return is_coded(s.param, variant), key

    return [list(group) for (coded, _), group in groupby(layout, key=run_of) if coded]


@pytest.mark.parametrize("dispatch", DISPATCH_FORMS)
@pytest.mark.parametrize("n", [24_832, 24_900, 25_000])
def test_8bit_state_that_one_binding_holds_is_never_refused_for_being_cut_nowhere(
    n: int, dispatch: DispatchForm
) -> None:
    """Scales 1024 bytes apart are 256 KiB of w apart; 100,000 bytes hold 25,000 elements, aligned or not."""
    limits = Limits(max_storage_buffer_binding_size=100_000, min_storage_buffer_offset_alignment=1024)
    variant = Variant(kernel="8bit", dispatch=dispatch)
    plan = plan_step(layout_for([Param("p", (n,))], limits, variant), limits, variant)
    assert_sound(plan)
    assert len(updates_of(plan)) == 1
    with pytest.raises(
        UsageError,
        match=r"^A binding limit of 100000 bytes is too small for 8-bit state.*: raise the limit or use another",
    ):
        plan_step(layout_for([Param("p", (25_001,))], limits, variant), limits, variant)


def test_partials_that_overflow_a_binding_are_added_up_in_several_levels() -> None:
    """100 pieces of 16,384 elements, each with partials 1024 bytes apart, take more than a binding of 64 KiB."""
    layout = make_layout([Param("p", (1_640_000,))], align_bytes=1024)
    limits = Limits(max_storage_buffer_binding_size=64 << 10, min_storage_buffer_offset_alignment=1024)
    plan = plan_step(layout, limits, Variant())
    levels = [d for d in plan.dispatches if d.kernel == "reduce_norm_sq_final"]
    assert {d.bindings[1].buffer for d in levels} == {"partials[1]"}
    # The last level is finalize_grad_stats, which takes a number of each of the others, 1024 bytes apart.
    last = next(d for d in plan.dispatches if d.kernel == "finalize_grad_stats")
    assert last.index == levels[-1].index + 1
    parts = last.bindings[0]
    assert (parts.buffer, parts.offset, parts.size) == ("partials[1]", 0, 4 * (256 * (len(levels) - 1) + 1))
    assert len(levels) > 1
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


OTHER_FORMS = [
    Variant(dispatch="single", fused=False),
    Variant(kernel="f16"),
    Variant(kernel="f16", dispatch="per-tensor", fused=False),
    *(Variant(kernel="8bit", dispatch=dispatch) for dispatch in DISPATCH_FORMS),
    Variant(kernel="8bit", small_state="8bit", fused=False),
]


@pytest.mark.parametrize(
    "variant",
    [*VARIANTS, *OTHER_FORMS],
    ids=lambda v: f"{v.kernel} {v.reduce} {v.dispatch} {v.grid} {v.fused} {v.small_state}",
)
def test_the_reference_model_fits_the_limits_webgpu_guarantees(variant: Variant) -> None:
    layout = layout_for(list(gpt_116m_params()), Limits(), variant)
    plan = plan_step(layout, Limits(), variant)
    assert_legal(plan)
    updates = updates_of(plan)
    assert sum(d.elements[1] - d.elements[0] for d in updates) >= layout.elements
    if variant.dispatch == "per-tensor":
        # 74 tensors; the embedding is cut where a page ends.
        assert len({d.label.split(" [")[0] for d in updates}) == 74
    assert len(layout.pages) == 2


@pytest.mark.parametrize(
    "variant", OTHER_FORMS, ids=lambda v: f"{v.kernel} {v.dispatch} {v.fused} {v.small_state}"
)
def test_many_params_take_work_in_proportion(variant: Variant) -> None:
    """20,000 params have to be planned while somebody waits. Lines of Python counted, which no other program moves."""

    def lines(count: int) -> int:
        # Half of them small; coded ones of several blocks.
        params = [Param(f"p{i}", (5000 if i % 4 < 2 else 9,), i % 2 == 0) for i in range(count)]
        limits = Limits(max_buffer_size=1 << 40, max_storage_buffer_binding_size=1 << 40)
        # Twice: another layout that equals the first, as after a device was lost, costs no more than that.
        return count_lines(
            lambda: [plan_step(layout_for(params, limits, variant), limits, variant) for _ in range(2)]
        )

    few, many = lines(100), lines(400)
    assert many < 4.6 * few


def count_lines(act: Callable[[], object]) -> int:
    """Lines that Python runs, each turn of a loop or comprehension counted."""
    count = 0

    def trace(frame: FrameType, event: str, arg: object) -> Callable[..., Any]:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


def test_a_buffer_one_element_over_a_binding_takes_a_second_one() -> None:
    """gfx-rs/wgpu#6221, microsoft/onnxruntime PR#27853: 33,554,433 elements against 128 MiB."""
    layout = make_layout([Param("p", (33_554_433,))])
    plan = plan_step(layout, Limits(max_buffer_size=1 << 30), Variant())
    sizes = [next(b for b in d.bindings if b.slot == 0).size for d in updates_of(plan)]
    assert sizes == [134_217_728, 4]
    reads = [d.bindings[0].size for d in plan.dispatches if d.kernel == "reduce_norm_sq"]
    assert reads == [134_217_728, 4]
    assert_legal(plan)


@pytest.mark.parametrize(
    ("kernel", "chunk"), [("f32", 2_147_483_392), ("f16", 2_147_483_136), ("8bit", 2_147_418_112)]
)
def test_a_binding_limit_that_is_no_multiple_of_the_alignment_is_rounded_down_to_one(
    kernel: Kernel, chunk: int
) -> None:
    """gfx-rs/wgpu#6221: 2,147,483,647 bytes hold 2,147,483,392 that are a multiple of 256. Halves ask for multiples of
    512, scales of blocks for 65,536."""
    limits = Limits(max_storage_buffer_binding_size=2_147_483_647, max_buffer_size=1 << 33)
    variant = Variant(kernel=kernel)
    layout = layout_for([Param("p", (600_000_000,))], limits, variant)
    plan = plan_step(layout, limits, variant)
    assert_legal(plan)
    first, second = updates_of(plan)
    assert first.bindings[0].size == chunk
    assert second.bindings[0].offset == chunk
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


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("elements", "groups"), [(67_107_840, (65_535, 1, 1)), (67_107_841, (32_768, 2, 1))])
def test_so_has_the_one_after_it_where_a_thread_has_four(
    kernel: Kernel, elements: int, groups: tuple[int, int, int]
) -> None:
    """65,535 groups of 256 threads of four elements, in passes of their own as well."""
    limits = Limits(max_storage_buffer_binding_size=1 << 30, max_buffer_size=1 << 30)
    for fused in (True, False):
        variant = Variant(kernel=kernel, fused=fused)
        plan = plan_step(layout_for([Param("p", (elements,))], limits, variant), limits, variant)
        per_element = [d for d in plan.dispatches if "norm" not in d.kernel and "stats" not in d.kernel]
        assert len(per_element) == (1 if fused else 4 if kernel == "f16" else 3)
        assert {d.groups for d in per_element} == {groups}


@pytest.mark.parametrize(
    ("kernel", "name", "needs"),
    [("f32", "adamw_update", 5), ("f16", "adamw_update_f16", 6), ("8bit", "adamw_8bit_update", 7)],
)
def test_more_storage_buffers_than_the_adapter_allows_names_kernel_need_and_limit(
    kernel: Kernel, name: str, needs: int
) -> None:
    """jsgrad-org/jsgrad#66."""
    variant = Variant(kernel=kernel, small_state="8bit")
    for allowed in (needs, needs - 1):
        limits = Limits(max_storage_buffers_per_shader_stage=allowed)
        layout = layout_for([Param("p", (8,))], limits, variant)
        if allowed == needs:
            plan_step(layout, limits, variant)
            continue
        with pytest.raises(UsageError, match=rf"{name} binds {needs} storage buffers.*limit of {allowed}"):
            plan_step(layout, limits, variant)


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
        plan_step(layout, Limits(), Variant(optimizer="nadam"))


def test_the_slots_are_those_of_the_published_kernels() -> None:
    """A person's own WGSL stands on these names and numbers."""
    layout = make_layout([Param("a", (2, 3)), Param("b", (3,))])
    plan = plan_step(layout, Limits(), Variant())
    slots = {d.entry_point: [(b.slot, b.name, b.access) for b in d.bindings] for d in plan.dispatches}
    assert [d.entry_point for d in plan.dispatches] == [
        "reduce_norm_sq",
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
