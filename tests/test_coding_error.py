"""Errors of coding m and v: the GPU against the float64 update, numpy against numbers worked by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from gpu_helpers import F32, make_stepper, normal_state
from test_stepper_8bit import CODED, HYPER, PAGES, PARAMS, form

from inspector.codecs import CODECS, Codec, ambiguous, blocks
from inspector.coding_error import ParamCodingError, at_most, coded_once, merged_error, param_coding_error
from inspector.errors import UsageError
from inspector.gpu.device import Gpu
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.optimizers.adamw.oracle_8bit import Updated8bit, update_8bit
from inspector.plan import Variant
from inspector.stepping import HostGradients

REL = 2e-4
"""The GPU takes float32 differences of values that are some hundred times larger, each off by a few ULP of 6e-8."""
each_codec = pytest.mark.parametrize("codec", CODECS)


# --- by numpy


def test_errors_of_a_block_by_hand() -> None:
    """linear: scale = 127/127 = 1, so 0.25 → 0, 2.5 → 2 (even), 127 → 127; v = 0.4 → 0 under m = 0.25 → 0."""
    m, v = np.float32([127, 2.5, 0.25, 0]), np.float32([127, 0.4, 0.4, 3])
    got = coded_once("p", "linear", m, v)
    assert (got.m.largest, got.v.largest) == (0.5, pytest.approx(0.4))
    assert got.m.rms == pytest.approx(math.sqrt((0.5**2 + 0.25**2) / 4))
    assert got.m.rms_value == pytest.approx(math.sqrt((127**2 + 2.5**2 + 0.25**2) / 4))
    assert got.v.relative == pytest.approx(math.sqrt(2 * 0.16) / math.sqrt(127**2 + 0.32 + 9))
    # Both v of 0.4 become 0; the second one's m does as well.
    assert got.lost == 1
    assert got.m.log2_range() == (-2, -1)
    assert got.v.exponents.sum() == 2


def test_nothing_lost_and_nothing_to_divide_by() -> None:
    zero = coded_once("p", "dynamic", np.zeros(3, np.float32), np.zeros(3, np.float32))
    assert (zero.m.relative, zero.m.log2_range(), zero.lost) == (0.0, None, 0)
    none = coded_once("p", "linear", np.zeros(0, np.float32), np.zeros(0, np.float32))
    assert (none.numel, none.v.rms) == (0, 0.0)


def test_params_as_one() -> None:
    rng = np.random.default_rng(5)
    m, v = (rng.standard_normal(1024).astype(np.float32) for _ in range(2))
    v = v * v
    m[512:] *= 100
    whole = coded_once("", "sqrt", m, v)
    halves = [coded_once("a", "sqrt", m[:512], v[:512]), coded_once("b", "sqrt", m[512:], v[512:])]
    got = merged_error(halves)
    assert got.m.rms == pytest.approx(whole.m.rms)
    assert got.v.rms_value == pytest.approx(whole.v.rms_value)
    assert got.m.exponents.tolist() == whole.m.exponents.tolist()
    assert got.worst_params[0] == "b"
    assert got.m.worst_block == whole.m.worst_block - 2
    assert merged_error([]).m.rms == 0.0


def test_blocks_are_reduced_by_their_largest() -> None:
    values = np.arange(10, dtype=np.float32)
    assert at_most(values, 4)[0].tolist() == [2, 5, 8, 9]
    assert at_most(values, 4)[1] == 3
    assert at_most(values, 10) == (pytest.approx(values), 1)
    assert at_most(np.zeros(0, np.float32), 10)[0].size == 0


# --- on the GPU


def gradients(seed: int, kind: str) -> dict[str, F32]:
    g = normal_state(PARAMS, seed=seed)[1]
    if kind == "odd":
        g["a"][5], g["b"][0] = np.nan, np.inf
    return g


def stopped(
    gpu: Gpu,
    variant: Variant,
    g: dict[str, F32],
    *,
    scale: float = 1.0,
    hyper: Hyper = HYPER,
    **limits: int,
) -> GpuStepper:
    """A stepper right after finalize_grad_stats, the state being `scale` times that of a training run."""
    w, _, m, v = normal_state(PARAMS)
    m = {name: (values * np.float32(scale)) for name, values in m.items()}
    v = {name: (values * np.float32(scale) ** 2) for name, values in v.items()}
    stepper = make_stepper(gpu, PARAMS, variant, w=w, m=m, v=v, finished_steps=4, **limits)
    stepper.begin_step(HostGradients({name: values * np.float32(scale) for name, values in g.items()}))
    while stepper.plan.dispatches[stepper.cursor.dispatch - 1].kernel != "finalize_grad_stats":
        stepper.run_dispatch(hyper)
    return stepper


def updated(stepper: GpuStepper, g: dict[str, F32], name: str, hyper: Hyper, scale: float) -> Updated8bit:
    state = stepper.state()
    variant = stepper.plan.variant
    return update_8bit(
        state.w[name], g[name] * np.float32(scale), state.coded[name], scale=stepper.grad_stats().clip_scale,
        hyper=hyper, step=5, decays=stepper.layout[name].block == "wd", numerics=variant.numerics,
        l2=variant.optimizer == "adam-l2",
    )  # fmt: skip


def assert_matches(got: ParamCodingError, done: Updated8bit, blocks_got: tuple[F32, F32]) -> None:
    want = param_coding_error(got.name, done.state.codec, done.m, done.v, done.state.m, done.state.v)
    for lane, target, values, each in (
        (got.m, want.m, done.m, blocks_got[0]),
        (got.v, want.v, done.v, blocks_got[1]),
    ):
        # A value halfway between two codes is as far from either.
        assert lane.largest == pytest.approx(target.largest, rel=REL, abs=0)
        assert lane.rms == pytest.approx(target.rms, rel=REL, abs=0)
        assert lane.rms_value == pytest.approx(target.rms_value, rel=1e-5, abs=0)
        assert lane.worst_block_rms == pytest.approx(target.worst_block_rms, rel=REL, abs=0)
        assert len(each) == blocks(values.size)
        assert lane.worst_block_rms == each.max()
        assert lane.worst_block == int(each.argmax())
        # An error near a power of two may fall on its other side, one of a few ULP may be 0 or not.
        moved = np.abs(lane.exponents.astype(np.int64) - target.exponents).sum()
        assert moved <= 2 + 0.02 * values.size
    # A v within rounding of the least one with a code may have it or not.
    assert abs(got.lost - want.lost) <= int(done.ambiguous(8)[1][: done.v.size].sum())


@pytest.mark.gpu
@each_codec
@pytest.mark.parametrize("limits", [{}, PAGES], ids=["one page", "pages"])
def test_the_gpu_measures_what_the_float64_update_says(
    gpu: Gpu, codec: Codec, limits: dict[str, int]
) -> None:
    g = gradients(3, "odd")
    stepper = stopped(gpu, form(codec), g, **limits)
    found = stepper.coding_errors(HYPER)
    assert {each.name for each in found} == CODED
    for each in found:
        done = updated(stepper, g, each.name, HYPER, 1.0)
        assert_matches(each, done, stepper.block_errors(each.name))
        lanes = zip(
            (done.m, done.v), done.state.decoded(done.m.size), stepper.block_errors(each.name), strict=True
        )
        for lane, kept, measured in lanes:
            squares = (lane - kept) ** 2
            per_block = np.sqrt([np.mean(squares[k : k + 256]) for k in range(0, lane.size, 256)])
            # A block of one element is exact but for the rounding of its value.
            np.testing.assert_allclose(measured, per_block, rtol=REL, atol=2e-7 * np.abs(lane).max())


@pytest.mark.gpu
@pytest.mark.parametrize(
    "variant",
    [
        form("dynamic", "per-tensor", "precise"),
        form("sqrt", "single", optimizer="adam-l2"),
        form("linear", fused=False),
    ],
    ids=["precise", "L2", "passes"],
)
def test_forms_of_the_update(gpu: Gpu, variant: Variant) -> None:
    g = gradients(4, "plain")
    stepper = stopped(gpu, variant, g)
    for each in stepper.coding_errors(HYPER):
        assert_matches(each, updated(stepper, g, each.name, HYPER, 1.0), stepper.block_errors(each.name))


@pytest.mark.gpu
@each_codec
@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_squares_neither_overflow_nor_vanish(gpu: Gpu, codec: Codec, scale: float) -> None:
    """v of 1e-22 has errors whose squares a float32 cannot hold, v of 1e14 such whose squares it cannot hold either."""
    hyper = replace(HYPER, max_grad_norm=math.inf)
    g = gradients(6, "plain")
    stepper = stopped(gpu, form(codec), g, scale=scale, hyper=hyper)
    for each in stepper.coding_errors(hyper):
        done = updated(stepper, g, each.name, hyper, scale)
        want = param_coding_error(each.name, codec, done.m, done.v, done.state.m, done.state.v)
        assert each.v.rms == pytest.approx(want.v.rms, rel=REL, abs=0)
        assert each.m.rms_value == pytest.approx(want.m.rms_value, rel=1e-5, abs=0)


@pytest.mark.gpu
@each_codec
def test_what_is_measured_is_what_the_update_then_does(gpu: Gpu, codec: Codec) -> None:
    """The codes that the update leaves, against m and v of a float32 update from the same state."""
    g = gradients(8, "plain")
    stepper = stopped(gpu, form(codec), g)
    found = {each.name: each for each in stepper.coding_errors(HYPER)}
    before = stepper.state()
    scale = stepper.grad_stats().clip_scale
    stepper.run_to_end(HYPER)
    after = stepper.state()
    for name in CODED:
        done = update_8bit(
            before.w[name], g[name], before.coded[name], scale=scale, hyper=HYPER, step=5,
            decays=stepper.layout[name].block == "wd",
        )  # fmt: skip
        codes = after.coded[name]
        want = param_coding_error(name, codec, done.m, done.v, codes.m, codes.v)
        assert found[name].m.rms == pytest.approx(want.m.rms, rel=REL, abs=0)
        assert found[name].v.rms == pytest.approx(want.v.rms, rel=REL, abs=0)
        assert abs(found[name].lost - want.lost) <= int(
            ambiguous(codec, "v", done.v, done.state.v.scales, 8).sum()
        )


@pytest.mark.gpu
def test_many_chunks_and_rows_of_groups(gpu: Gpu) -> None:
    """Params longer than a chunk and a turn, in a grid of several rows; the worst block is found where it is."""
    params = [Param("long", (310_001,), True), Param("short", (4096,), True)]
    w, g, m, v = normal_state(params)
    v["long"][256 * 1000 + 3] = 1.0
    stepper = make_stepper(gpu, params, form("linear"), w=w, m=m, v=v, finished_steps=4, groups=18)
    stepper.begin_step(HostGradients(g))
    while stepper.plan.dispatches[stepper.cursor.dispatch - 1].kernel != "finalize_grad_stats":
        stepper.run_dispatch(HYPER)
    found = {each.name: each for each in stepper.coding_errors(HYPER)}
    assert found["long"].v.worst_block == 1000
    # Beside 1.0 all v of the block are 0: 1e-4 over 127 levels.
    assert found["long"].lost >= 250
    assert stepper.block_errors("long")[1].argmax() == 1000
    done = update_8bit(
        w["long"], g["long"], stepper.state().coded["long"], scale=stepper.grad_stats().clip_scale, hyper=HYPER,
        step=5, decays=True,
    )  # fmt: skip
    assert_matches(found["long"], done, stepper.block_errors("long"))


@pytest.mark.gpu
def test_where_it_cannot_be_measured(gpu: Gpu) -> None:
    stepper = stopped(gpu, form("linear"), gradients(3, "plain"))
    with pytest.raises(UsageError, match="No errors"):
        stepper.block_errors("a")
    stepper.coding_errors(HYPER)
    with pytest.raises(UsageError, match="norm keeps m and v in float32"):
        stepper.block_errors("norm")
    stepper.run_to_end(HYPER)
    with pytest.raises(UsageError, match="between finalize_grad_stats and the first update"):
        stepper.coding_errors(HYPER)
    assert stopped(gpu, Variant(), gradients(3, "plain")).coding_errors(HYPER) == ()
