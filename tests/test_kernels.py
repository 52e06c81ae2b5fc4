"""The kernels on a device against the oracle, at sizes around every edge, in every form the step can take.

Tolerances. A sum of two terms may cancel, so an error is measured in ULP of its largest term or of the sum,
whichever is larger: for m the terms are β₁·m and (1-β₁)·g', for v likewise (both are positive there). A GPU may fuse
a multiplication into an addition, which changes a result by at most 1 such ULP. The change of w goes through √ and
two divisions, which Vulkan allows 2.5 to 3 ULP each: 8 ULP of the change (of its terms added without sign), and half
an ULP of w for the last rounding. Precise numerics decay w before they move it, as PyTorch does, which rounds w three
times: 1-lr·λ, w times it, and the difference. Measured over 2^18 elements on llvmpipe and on an NVIDIA H200 with
published numerics: m and v 0 and 1 ULP from the float32 evaluation, the change of w 4.4 and 5.2; on llvmpipe with
precise numerics: the very bits of the float32 evaluation, the change of w 3.1. The norm 8.3e-8 two-pass,
1.7e-7 atomic, 5.2e-7 with the published grid.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from gpu_helpers import (
    ATOMIC,
    F32,
    PUBLISHED_GRID,
    VARIANTS,
    everything,
    host,
    lanes,
    make_stepper,
    normal_state,
    params_of,
    variant_name,
    whole,
)

from inspector.errors import UsageError
from inspector.floats import F64Array, ulp_size
from inspector.gpu.device import Gpu
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import NUMERICS, Hyper, Numerics
from inspector.layout import Param, make_layout
from inspector.optimizers.adamw.oracle import Updated, update
from inspector.plan import Variant
from inspector.preset import drawn_gradients, drawn_state
from inspector.stepping import Cursor, HostGradients

pytestmark = pytest.mark.gpu

HYPER = Hyper(lr=1e-3, beta2=0.95, weight_decay=0.1, max_grad_norm=0.25)
EDGES = [1, 2, 3, 4, 5, 63, 64, 65, 255, 256, 257, 1023, 1024, 1025, 4095, 4096, 4097]
each_variant = pytest.mark.parametrize("variant", VARIANTS, ids=variant_name)


def ulps(got: F32, exact: F64Array, largest: F64Array) -> float:
    """The largest error in ULP of the largest term."""
    return float(np.max(np.abs(got.astype(np.float64) - exact) / ulp_size(largest), initial=0.0))


def assert_updated(
    stepper: GpuStepper,
    before: dict[str, F32],
    scale: float,
    hyper: Hyper,
    step: int,
    numerics: Numerics,
) -> dict[str, float]:
    """Compare w, g, m, v after a step with both evaluations of the oracle; gives the largest errors in ULP."""
    decays = np.zeros(stepper.layout.padded_elements, np.bool_)
    for segment in stepper.layout:
        decays[segment.offset : segment.stop] = segment.block == "wd"
    w, g, m, v = (before[lane] for lane in "wgmv")
    double, single = (
        update(
            w, g, m, v, scale=np.float32(scale), hyper=hyper, step=step, decays=decays, numerics=numerics, dtype=dtype
        )
        for dtype in (np.float64, np.float32)
    )  # fmt: skip
    after = {lane: whole(stepper, lane) for lane in "wgmv"}
    assert not after["g"].view(np.uint32).any()
    worst = {}
    grad = double.line("g'")
    for lane, beta in (("m", hyper.beta1), ("v", hyper.beta2)):
        new = grad if lane == "m" else grad * grad
        largest = np.maximum(np.abs(beta * before[lane].astype(np.float64)), np.abs((1 - beta) * new))
        # A sum of two terms may lie a power of two higher, where floats are twice as far apart.
        largest = np.maximum(largest, np.abs(_lane(double, lane)))
        worst[lane] = ulps(after[lane], _lane(single, lane), largest)
        assert worst[lane] <= 1
        off = np.abs(after[lane] - _lane(double, lane))
        # Below the least normal number a device may flush to zero.
        assert np.all(off <= 1e-6 * largest + 2**-126)
    # The terms of the change as they would add up if none cancelled another.
    terms = hyper.beta1 * np.abs(m.astype(np.float64)) + (1 - hyper.beta1) * np.abs(grad)
    correction = 1 / (1 - hyper.beta1**step)
    ratio = terms * correction / double.line("denominator")
    change = hyper.lr * (ratio + np.abs(double.line("decay")))
    off = np.abs(after["w"].astype(np.float64) - double.w)
    roundings = 1 if numerics == "published" else 3
    half = 0.5 * roundings * ulp_size(np.maximum(np.abs(w), np.abs(double.w)))
    worst["w"] = float(np.max(np.maximum(off - half, 0) / ulp_size(change), initial=0.0))
    assert np.all(off <= 8 * ulp_size(change) + half)
    return worst


def _lane(done: Updated, lane: str) -> F64Array:
    return np.asarray(getattr(done, lane), np.float64)


def run_one(stepper: GpuStepper, gradients: dict[str, F32], hyper: Hyper = HYPER) -> tuple[float, float]:
    stepper.begin_step(HostGradients(gradients))
    stepper.run_to_end(hyper)
    stats = stepper.grad_stats()
    return stats.grad_norm, stats.clip_scale


def exact_norm(gradients: dict[str, F32]) -> float:
    return math.sqrt(sum(float(np.sum(g.astype(np.float64) ** 2)) for g in gradients.values()))


# --- the update


@each_variant
def test_five_steps_agree_with_the_oracle(gpu: Gpu, variant: Variant) -> None:
    params = [Param("a", (97, 31)), Param("b", (5,)), Param("c", (300,)), Param("d", (64, 4))]
    w, _, m, v = normal_state(params)
    stepper = make_stepper(gpu, params, variant, w=w, m=m, v=v, finished_steps=2)
    for step in range(3, 8):
        g = normal_state(params, seed=step)[1]
        # A clipped step, and one that is not.
        g = {k: x * np.float32(100 if step % 2 else 0.01) for k, x in g.items()}
        before = {lane: whole(stepper, lane) for lane in "wmv"}
        stepper.begin_step(HostGradients(g))
        before["g"] = whole(stepper, "g")
        stepper.run_to_end(HYPER)
        stats = stepper.grad_stats()
        assert stats.grad_norm == pytest.approx(exact_norm(g), rel=1e-6)
        limit = float(np.float32(HYPER.max_grad_norm))
        assert stats.clip_scale == pytest.approx(min(1.0, limit / stats.grad_norm), rel=2e-7)
        assert (stats.clip_scale < 1) == bool(step % 2)
        assert_updated(stepper, before, stats.clip_scale, HYPER, step, variant.numerics)


@pytest.mark.parametrize("numerics", NUMERICS)
@pytest.mark.parametrize("step", [1, 2, 10, 1000, 100_000])
@pytest.mark.parametrize("published", [False, True], ids=["vec4", "published"])
def test_one_step_at_any_counter_over_all_magnitudes(
    gpu: Gpu, numerics: Numerics, step: int, published: bool
) -> None:
    """w, g, m and v each over many powers of two, with zeros among them."""
    n = 4096
    rng = np.random.default_rng(step)

    def spread(low: int, high: int) -> F32:
        x = np.exp2(rng.uniform(low, high, n)) * rng.choice([-1, 1], n)
        return np.where(rng.random(n) < 0.05, 0, x).astype(np.float32)

    params = params_of(n, decay=True)
    w, g, m, v = spread(-20, 10), spread(-18, 6), spread(-18, 6), np.abs(spread(-36, 12))
    variant = replace(PUBLISHED_GRID if published else Variant(), numerics=numerics)
    hyper = replace(HYPER, beta2=0.999)
    state = {"w": {"p0": w}, "m": {"p0": m}, "v": {"p0": v}}
    stepper = make_stepper(gpu, params, variant, **state, finished_steps=step - 1)
    _, scale = run_one(stepper, {"p0": g}, hyper)
    assert_updated(stepper, {"w": w, "g": g, "m": m, "v": v}, scale, hyper, step, numerics)


def test_the_first_step_moves_by_the_learning_rate(gpu: Gpu) -> None:
    """tracel-ai/burn#834: w = g = 1 gives 0.99900000001, of which float32 shows 0.999."""
    stepper = make_stepper(gpu, params_of(1), Variant(numerics="precise"), w=host(1, value=1))
    assert run_one(stepper, host(1, value=1), Hyper()) == (1.0, 1.0)
    assert stepper.state().w["p0"].tolist() == [np.float32(0.99900000001)]


@pytest.mark.parametrize("variant", [Variant(), PUBLISHED_GRID], ids=variant_name)
def test_an_update_that_is_not_finite_leaves_w(gpu: Gpu, variant: Variant) -> None:
    m = {"p0": np.float32([np.inf, 1, 0, np.nan])}
    v = {"p0": np.float32([1, np.inf, 0, 1])}
    stepper = make_stepper(gpu, params_of(4), variant, w=host(4, value=3), m=m, v=v)
    run_one(stepper, host(4), Hyper(eps=0.0))
    assert stepper.state().w["p0"].tolist() == [3, 3, 3, 3]


@each_variant
def test_zero_gradients_and_moments_keep_every_bit_without_decay(gpu: Gpu, variant: Variant) -> None:
    """google-deepmind/optax#1754, ServiceNow/Fast-LLM#542: norm gains and biases stay exactly as they are."""
    w = {"p0": np.float32([1, -0.0, 1e-40, 3.4e38, np.pi])}
    stepper = make_stepper(gpu, params_of(5), variant, w=w)
    for _ in range(3):
        run_one(stepper, host(5), Hyper(weight_decay=0.1))
    # A denormal may be flushed where it passes through arithmetic; everything else keeps its bits.
    got, wanted = stepper.state().w["p0"], w["p0"]
    assert got[[0, 3, 4]].tobytes() == wanted[[0, 3, 4]].tobytes()
    assert got[[1, 2]] == pytest.approx(wanted[[1, 2]], abs=1.2e-38)


# --- the norm, at sizes around every edge


@pytest.mark.parametrize("variant", [Variant(), ATOMIC, PUBLISHED_GRID], ids=variant_name)
def test_the_norm_counts_every_element_once_at_sizes_around_every_edge(gpu: Gpu, variant: Variant) -> None:
    for n in EDGES:
        g = (np.arange(n) % 7 - 3).astype(np.float32)
        stepper = make_stepper(gpu, params_of(n), variant, w=host(n), undo_bytes=0)
        norm, _ = run_one(stepper, {"p0": g})
        assert norm == pytest.approx(exact_norm({"p0": g}), rel=1e-6), n
        # Only the last element: neither lost nor counted twice.
        g = np.zeros(n, np.float32)
        g[-1] = 3
        assert run_one(stepper, {"p0": g})[0] == 3.0, n
        assert not whole(stepper, "g").any()


@pytest.mark.parametrize("variant", [Variant(), ATOMIC], ids=variant_name)
@pytest.mark.parametrize("n", [512 * 4096 - 1, 512 * 4096, 512 * 4096 + 1, 3 << 20])
def test_the_norm_where_the_grid_is_full_and_threads_take_several_turns(
    gpu: Gpu, variant: Variant, n: int
) -> None:
    g = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    stepper = make_stepper(gpu, params_of(n), variant, w=host(n), undo_bytes=0)
    assert run_one(stepper, {"p0": g})[0] == pytest.approx(exact_norm({"p0": g}), rel=1e-6)


@pytest.mark.parametrize("n", [32 * 256 - 1, 32 * 256, 32 * 256 + 1, 3 * 32 * 256 + 77, 20_000])
@pytest.mark.parametrize("variant", [Variant(), PUBLISHED_GRID], ids=variant_name)
def test_a_grid_of_several_rows_reaches_the_last_element(gpu: Gpu, variant: Variant, n: int) -> None:
    """mrdoob/three.js PR#28846, on a device that takes 32 groups a dimension."""
    params = params_of(n)
    w, g, m, v = normal_state(params)
    stepper = make_stepper(gpu, params, variant, w=w, m=m, v=v, groups=32)
    plain = make_stepper(gpu, params, variant, w=w, m=m, v=v)
    norm, scale = run_one(stepper, g)
    assert norm == pytest.approx(exact_norm(g), rel=1e-6)
    before = {lane: np.zeros(stepper.layout.padded_elements, np.float32) for lane in "wgmv"}
    for lane, values in zip("wgmv", (w, g, m, v), strict=True):
        before[lane][:n] = values["p0"]
    assert_updated(stepper, before, scale, HYPER, 1, variant.numerics)
    if variant.reduce == "two-pass":
        run_one(plain, g)
        assert lanes(stepper) == lanes(plain)


@pytest.mark.parametrize("n", [65_535 * 256 - 1, 65_535 * 256, 65_535 * 256 + 1, 16_777_217])
def test_a_real_grid_beyond_65535_groups_reaches_the_last_element(gpu: Gpu, n: int) -> None:
    """mrdoob/three.js PR#28846: all zero but the last, which is 3."""
    stepper = make_stepper(gpu, params_of(n), PUBLISHED_GRID, w={}, undo_bytes=0)
    g = np.zeros(n, np.float32)
    g[-1] = 3
    assert run_one(stepper, {"p0": g}, Hyper(max_grad_norm=3.0)) == (3.0, 1.0)
    assert stepper.read("m", n - 4, 4).tolist() == [0, 0, 0, pytest.approx(0.3, rel=1e-6)]
    assert stepper.read("w", n - 4, 4).tolist() == [0, 0, 0, pytest.approx(-1e-3, rel=1e-6)]
    assert stepper.read("g", n - 4, 4).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("variant", [Variant(), ATOMIC, PUBLISHED_GRID], ids=variant_name)
def test_one_element_over_a_binding_takes_a_second_dispatch(gpu: Gpu, variant: Variant) -> None:
    n = 16_385
    params = params_of(n)
    w, g, m, v = normal_state(params)
    stepper = make_stepper(gpu, params, variant, w=w, m=m, v=v, max_binding=64 << 10)
    assert sum(d.block is not None for d in stepper.plan.dispatches) == 2
    assert run_one(stepper, g)[0] == pytest.approx(exact_norm(g), rel=1e-6)
    reference = make_stepper(gpu, params, replace(variant), w=w, m=m, v=v)
    run_one(reference, g)
    np.testing.assert_allclose(stepper.state().w["p0"], reference.state().w["p0"], rtol=1e-6, atol=2e-7)
    assert not whole(stepper, "g").any()


def test_partial_sums_of_several_levels_add_up(gpu: Gpu) -> None:
    """Pieces of 64 KiB whose partials lie 1024 bytes apart need a binding of more than that for them all."""
    n = 1_100_000
    g = np.random.default_rng(1).standard_normal(n).astype(np.float32)
    stepper = make_stepper(gpu, params_of(n), w=host(n), max_binding=64 << 10, align_bytes=1024, undo_bytes=0)
    levels = sum(d.kernel == "reduce_norm_sq_final" for d in stepper.plan.dispatches)
    assert (levels > 0) == (stepper._gpu.limits.min_storage_buffer_offset_alignment >= 1024)
    assert run_one(stepper, {"p0": g})[0] == pytest.approx(exact_norm({"p0": g}), rel=1e-6)


def test_ones_over_a_real_binding_limit_do_not_saturate(gpu: Gpu) -> None:
    """pytorch/pytorch#68326: one float32 accumulator stops at 4096; gfx-rs/wgpu#6221: a second binding of 4 bytes.

    33,554,432 ones and one more element beyond 128 MiB.
    """
    n = 33_554_433
    stepper = make_stepper(gpu, params_of(n), w={}, max_binding=128 << 20, undo_bytes=0)
    g = np.ones(n, np.float32)
    g[-1] = 0
    assert run_one(stepper, {"p0": g})[0] == pytest.approx(5792.618751480198, rel=1e-6)
    g[-1] = 5000
    norm, scale = run_one(stepper, {"p0": g}, Hyper(max_grad_norm=100.0))
    assert norm == pytest.approx(math.sqrt(33_554_432 + 25e6), rel=1e-6)
    last = stepper.read("v", n - 2, 2).astype(np.float64)
    assert last[1] == pytest.approx((1 - np.float32(0.999)) * (scale * 5000) ** 2, rel=1e-4)
    assert not stepper.read("g", 0, n).any()


# --- exactness


@pytest.mark.parametrize("dispatch", ["two-block", "per-tensor"])
def test_two_pass_gives_the_same_bits_on_every_run(gpu: Gpu, dispatch: str) -> None:
    params = [Param("a", (700, 300)), Param("b", (17,)), Param("c", (90, 90))]
    w, g, m, v = normal_state(params)
    seen = set()
    for _ in range(20):
        stepper = make_stepper(gpu, params, Variant(dispatch=dispatch), w=w, m=m, v=v)
        run_one(stepper, g)
        seen.add(tuple(everything(stepper).values()))
    assert len(seen) == 1


def test_both_dispatch_forms_give_the_same_bits(gpu: Gpu) -> None:
    params = [Param("a", (70, 30)), Param("b", (17,)), Param("c", (9, 9)), Param("e", (0, 4))]
    w, g, m, v = normal_state(params)
    seen = set()
    for form in ("two-block", "per-tensor"):
        stepper = make_stepper(gpu, params, Variant(dispatch=form), w=w, m=m, v=v)
        run_one(stepper, g)
        seen.add(tuple(lanes(stepper).values()))
    assert len(seen) == 1


@pytest.mark.parametrize("variant", [Variant(), Variant(dispatch="per-tensor")], ids=variant_name)
def test_many_pages_give_the_same_bits_as_one(gpu: Gpu, variant: Variant) -> None:
    """Same pieces of the norm: a page edge where the binding limit cuts the one page as well."""
    params = [Param("a", (300, 200)), Param("b", (4000,)), Param("c", (17, 90))]
    w, g, m, v = normal_state(params)
    one = make_stepper(gpu, params, variant, w=w, m=m, v=v, max_binding=80_000 // 256 * 256)
    many = make_stepper(gpu, params, variant, w=w, m=m, v=v, max_buffer=80_000, max_binding=80_000)
    assert (len(one.layout.pages), len(many.layout.pages)) == (1, 4)
    for _ in range(3):
        run_one(one, g)
        run_one(many, g)
        assert lanes(one) == lanes(many)
        assert one.grad_stats() == many.grad_stats()
    for _ in range(3):
        assert many.rewind_step()
    assert np.array_equal(many.weights()["a"].ravel(), w["a"])


def test_numbers_drawn_on_the_device_do_not_depend_on_pages_or_grids(gpu: Gpu) -> None:
    params = [Param("a", (300, 200)), Param("b", (4001,))]
    state, drawn = drawn_state(params, 5), drawn_gradients(params, 5, 3)
    seen = []
    for limits in ({}, {"max_buffer": 80_000, "max_binding": 66_000, "groups": 16}):
        stepper = make_stepper(gpu, params, w={}, **limits)
        stepper._filling.fill(stepper.plan, state)
        stepper.begin_step(drawn)
        seen.append(lanes(stepper))
        w, g = stepper.weights()["a"], stepper.gradients()["a"]
        assert w.std() == pytest.approx(0.02, rel=0.02)
        assert abs(w.mean()) < 4 * 0.02 / math.sqrt(w.size)
        assert g.std() == pytest.approx(1e-2 / math.sqrt(60_000), rel=0.02)
        assert (stepper.weights()["b"] == 1).all()
    assert seen[0] == seen[1]
    stepper.begin_step(replace(drawn, step=4))
    assert lanes(stepper)["g"] != seen[0]["g"]


@each_variant
def test_the_gaps_between_params_stay_zero(gpu: Gpu, variant: Variant) -> None:
    sizes = (1, 2, 3, 5, 63, 65, 130)
    params = [Param(f"p{i}", (n,), i % 2 == 0) for i, n in enumerate(sizes)]
    w, g, m, v = normal_state(params)
    g["p2"][1] = np.nan
    stepper = make_stepper(gpu, params, variant, w=w, m=m, v=v)
    gaps = np.ones(stepper.layout.padded_elements, np.bool_)
    for segment in stepper.layout:
        gaps[segment.offset : segment.stop] = False
    for _ in range(3):
        run_one(stepper, g)
        for lane in "wgmv":
            assert not whole(stepper, lane)[gaps].view(np.uint32).any()


PER_TENSOR = [replace(v, dispatch="per-tensor") for v in (Variant(), ATOMIC, PUBLISHED_GRID)]


@pytest.mark.parametrize("variant", PER_TENSOR, ids=variant_name)
def test_what_lies_beyond_a_dispatch_is_left_alone(gpu: Gpu, variant: Variant) -> None:
    """A vec4, or a group of threads, that reaches over the end of a tensor must not write there."""
    stepper = make_stepper(gpu, params_of(5, 6), variant, w=host(5, 6, value=1))
    marks = np.arange(1, 60, dtype=np.float32)
    for lane in "wmv":
        stepper._gpu.write(stepper._memory.buffers[lane], 5 * 4, marks)
    stepper.begin_step(HostGradients(host(5, 6, value=0.1)))
    stepper._gpu.write(stepper._memory.buffers["g"], 5 * 4, marks)
    stepper.run_to_end(HYPER)
    for lane in "wgmv":
        assert stepper.read(lane, 5, 59).tolist() == marks.tolist()


@pytest.mark.parametrize("n", [1, 5, 1022, 3093, 4095, 4098])
@pytest.mark.parametrize("variant", [Variant(), ATOMIC, PUBLISHED_GRID], ids=variant_name)
def test_the_norm_counts_nothing_beyond_the_last_element(gpu: Gpu, variant: Variant, n: int) -> None:
    stepper = make_stepper(gpu, params_of(n), variant, w=host(n))
    stepper.begin_step(HostGradients(host(n, value=1)))
    gap = stepper.layout.padded_elements - n
    stepper._gpu.write(stepper._memory.buffers["g"], 4 * n, np.full(gap, 1000, np.float32))
    stepper.run_to_end(HYPER)
    assert stepper.grad_stats().grad_norm == pytest.approx(math.sqrt(n), rel=1e-6)


def test_the_clip_scale_divides_by_no_norm_below_a_millionth(gpu: Gpu) -> None:
    stepper = make_stepper(gpu, params_of(1), w=host(1))
    norm, scale = run_one(stepper, host(1, value=1e-9), Hyper(max_grad_norm=1e-7))
    assert (norm, scale) == (pytest.approx(1e-9, rel=1e-6), pytest.approx(0.1, rel=1e-6))


# --- going back


BACK = [Variant(), ATOMIC, PUBLISHED_GRID, Variant(dispatch="per-tensor", numerics="precise")]
back_variant = pytest.mark.parametrize("variant", BACK, ids=variant_name)


@back_variant
@pytest.mark.parametrize(
    "limits", [{}, {"max_buffer": 70_000, "max_binding": 66_000}], ids=["plain", "pages"]
)
def test_undo_restores_every_byte_of_every_buffer(gpu: Gpu, variant: Variant, limits: dict[str, int]) -> None:
    params = [Param("a", (100, 200)), Param("b", (17,)), Param("c", (9,))]
    w, _, m, v = normal_state(params)
    stepper = make_stepper(gpu, params, variant, w=w, m=m, v=v, **limits)
    seen: list[tuple[Cursor, dict[str, bytes]]] = []
    for step in range(1, 4):
        stepper.begin_step(HostGradients(normal_state(params, seed=step)[1]))
        seen.append((stepper.cursor, everything(stepper)))
        while not stepper.cursor.at_end:
            stepper.run_dispatch(HYPER)
            seen.append((stepper.cursor, everything(stepper)))
    assert stepper.undo_info.dispatches == 3 * len(stepper.plan.dispatches)
    assert stepper.undo_info.steps == 3
    end = everything(stepper)
    stops = [(c, b) for c, b in seen[:-1] if not c.at_end]
    for cursor, buffers in reversed(stops):
        assert stepper.undo_dispatch()
        assert stepper.cursor == cursor
        assert everything(stepper) == buffers
    assert not stepper.undo_dispatch()
    assert stepper.rewind_to(0)
    assert np.array_equal(stepper.weights()["a"].ravel(), w["a"])
    if variant.reduce == "two-pass":
        for step in range(1, 4):
            run_one(stepper, normal_state(params, seed=step)[1])
        assert everything(stepper) == end


@back_variant
def test_rewinding_goes_to_the_start_of_the_step_then_to_the_one_before(gpu: Gpu, variant: Variant) -> None:
    params = params_of(500)
    w, g, _, _ = normal_state(params)
    stepper = make_stepper(gpu, params, variant, w=w)
    starts = []
    for _ in range(3):
        stepper.begin_step(HostGradients(g))
        starts.append(lanes(stepper))
        stepper.run_to_end(HYPER)
    for step in (3, 2, 1):
        assert stepper.rewind_step()
        assert (stepper.cursor.step, stepper.cursor.dispatch) == (step, 0)
        assert lanes(stepper) == starts[step - 1]
    assert not stepper.rewind_step()
    stepper.run_to_end(HYPER)
    stepper.begin_step(HostGradients(g))
    assert stepper.rewind_to(1)
    assert (stepper.cursor.step, stepper.cursor.at_end) == (1, True)
    assert not stepper.rewind_to(5)


def test_what_the_last_dispatch_overwrote_can_be_looked_at(gpu: Gpu) -> None:
    params = [Param("a", (10, 20)), Param("b", (7,))]
    w, g, m, v = normal_state(params)
    stepper = make_stepper(gpu, params, w=w, m=m, v=v)
    stepper.begin_step(HostGradients(g))
    assert stepper.changed_lanes() == ("g",)
    before = {lane: whole(stepper, lane) for lane in "wgmv"}
    while stepper.cursor.dispatch < 3:
        stepper.run_dispatch(HYPER)
        if stepper.cursor.dispatch < 3:
            assert stepper.changed_lanes() == ()
    a = stepper.layout["a"]
    assert stepper.changed_lanes() == ("w", "g", "m", "v")
    for lane in "wgmv":
        here = slice(a.offset + 3, a.offset + 150)
        assert np.array_equal(stepper.read(lane, here.start, 147, before=True), before[lane][here])
        assert not np.array_equal(stepper.read(lane, here.start, 147), before[lane][here])
    # The block without decay has not run yet: before is what is there.
    b = stepper.layout["b"]
    assert np.array_equal(stepper.read("w", b.offset, 7, before=True), w["b"])
    stepper.run_dispatch(HYPER)
    assert np.array_equal(stepper.read("w", b.offset, 7, before=True), w["b"])
    assert np.array_equal(stepper.read("w", a.offset, 200, before=True), stepper.read("w", a.offset, 200))


@pytest.mark.parametrize("one_by_one", [False, True], ids=["whole steps", "dispatches"])
@pytest.mark.parametrize("limit", [0, 16, 100, 5_000, 20_000, 40_000, 100_000, 1 << 20])
def test_going_back_is_bounded_in_bytes_and_exact_as_far_as_it_reaches(
    gpu: Gpu, limit: int, one_by_one: bool
) -> None:
    """A step overwrites 16 bytes an element and the gradients 4 before it: 20,160 bytes here."""
    params = [Param("a", (900, 1)), Param("b", (70,))]
    w, g, m, v = normal_state(params)
    made = gpu.memory_bytes
    stepper = make_stepper(gpu, params, w=w, m=m, v=v, undo_bytes=limit)
    without = make_stepper(gpu, params, w=w, m=m, v=v, undo_bytes=0)
    run_one(without, g)
    assert lanes(without)
    stops: dict[Cursor, dict[str, bytes]] = {}
    for _ in range(7):
        stepper.begin_step(HostGradients(g))
        stops[stepper.cursor] = lanes(stepper)
        if not one_by_one:
            stepper.run_to_end(HYPER)
        while not stepper.cursor.at_end:
            stepper.run_dispatch(HYPER)
            stops[stepper.cursor] = lanes(stepper)
        assert stepper.undo_info.nbytes <= limit
        assert stepper.undo_info.limit == limit
        assert stepper.memory_bytes - made <= without.memory_bytes + limit
    assert lanes(stepper)
    back = 0
    while stepper.undo_dispatch():
        back += 1
        if stepper.cursor in stops:
            assert lanes(stepper) == stops[stepper.cursor]
    assert back == {0: 0, 1 << 20: 28}.get(limit, back)
    assert stepper.undo_info.dispatches == 0
    stepper.run_to_end(HYPER)


def test_another_variant_forgets_what_belongs_to_the_old_plan_and_says_so(gpu: Gpu) -> None:
    params = params_of(100)
    w, g, _, _ = normal_state(params)
    stepper = make_stepper(gpu, params, w=w)
    run_one(stepper, g)
    assert stepper.undo_info.dispatches == 3
    stepper.set_variant(ATOMIC)
    assert stepper.undo_info.dispatches == 0
    assert not stepper.undo_dispatch()
    assert not stepper.rewind_step()
    assert not stepper.rewind_to(0)
    assert stepper.cursor == Cursor(1, 3, 3)
    before = lanes(stepper)
    stepper.begin_step(HostGradients(g))
    stepper.set_variant(Variant(numerics="precise"))
    assert stepper.cursor == Cursor(2, 0, 3)
    stepper.run_dispatch(HYPER)
    with pytest.raises(UsageError, match="only between steps"):
        stepper.set_variant(ATOMIC)
    assert stepper.undo_dispatch()
    assert lanes(stepper)["w"] == before["w"]
    stepper.run_to_end(HYPER)
    assert stepper.grad_stats().grad_norm == pytest.approx(exact_norm(g), rel=1e-6)


@each_variant
def test_changing_to_any_variant_goes_on_from_the_same_state(gpu: Gpu, variant: Variant) -> None:
    params = [Param("a", (30, 40)), Param("b", (9,))]
    w, g, m, v = normal_state(params)
    changed = make_stepper(gpu, params, w=w, m=m, v=v)
    run_one(changed, g)
    middle = changed.state()
    changed.set_variant(variant)
    run_one(changed, g)
    straight = make_stepper(gpu, params, variant, w=middle.w, m=middle.m, v=middle.v, finished_steps=1)
    run_one(straight, g)
    for name in ("a", "b"):
        np.testing.assert_allclose(changed.state().w[name], straight.state().w[name], rtol=1e-6)
        np.testing.assert_allclose(changed.state().v[name], straight.state().v[name], rtol=1e-6)


def test_values_of_the_wrong_number_and_a_source_of_nothing_are_refused(gpu: Gpu) -> None:
    with pytest.raises(UsageError, match=r"5 elements was given 4 values"):
        make_stepper(gpu, params_of(5), w=host(4))
    with pytest.raises(UsageError, match="nothing to step"):
        make_stepper(gpu, params_of(0, 0), w={})
    layout = make_layout(params_of(1))
    assert layout.elements == 1
