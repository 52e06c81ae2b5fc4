"""Two steppers on one device: one made beside the other goes on as it, and how far their weights drift apart."""

from __future__ import annotations

import math

import numpy as np
import pytest
from gpu_helpers import make_stepper, normal_state
from test_stepper_8bit import HYPER, PARAMS, UNCLIPPED, form, gradients, kept

from inspector.codecs import CODECS, state_bytes
from inspector.drift import drift_between, merged_drift, param_drift
from inspector.errors import UsageError
from inspector.gpu.device import Gpu
from inspector.gpu.stepper import GpuStepper
from inspector.layout import Param, make_layout
from inspector.optimizers import plan_step
from inspector.plan import Limits, Variant, required_placement
from inspector.preset import gpt_116m_params
from inspector.state_memory import lane_bytes
from inspector.stepping import HostGradients

gpu_test = pytest.mark.gpu
PAGES = {"max_buffer": 65_536, "max_binding": 65_536}
"""The least in which a binding of codes can start where any device allows it."""
REL = 2e-6
"""Sums of at most 131,072 float32 squares a chunk in short sums of sums, each off by a few ULP of 6e-8."""


# --- by numpy


def test_drift_of_a_param_by_hand() -> None:
    got = param_drift("p", np.float32([3, 4, 0]), np.float32([3, 1, 4]))
    assert (got.apart, got.norm, got.largest, got.index) == (5.0, 5.0, 4.0, 2)
    assert got.relative == 1.0
    odd = param_drift("p", np.float32([1, np.inf, np.nan]), np.float32([0, np.inf, 0]))
    assert math.isnan(odd.apart)
    assert odd.index == 1
    none = param_drift("p", np.zeros(0, np.float32), np.zeros(0, np.float32))
    assert (none.apart, none.largest) == (0.0, 0.0)
    assert math.isnan(none.relative)


def test_drift_of_params_as_one() -> None:
    parts = [
        param_drift("a", np.float32([3]), np.float32([0])),
        param_drift("b", np.float32([0, 4]), np.float32([0, 8])),
    ]
    got = merged_drift(parts)
    assert (got.apart, got.norm, got.largest, got.param, got.index) == (5.0, 5.0, 4.0, "b", 1)
    odd = param_drift("c", np.float32([np.nan]), np.float32([0]))
    assert merged_drift([*parts, odd]).param == "c"


def test_memory_of_the_reference_model() -> None:
    """116,017,920 elements: 16 bytes each in float32; with codes 8, 2, and 8 a block of 256, but for 19,200 small."""
    params, n, small = gpt_116m_params(), 116_017_920, 25 * 768
    for variant, moments in ((Variant(), 8 * n), (form(), state_bytes(n - small) + 8 * small)):
        layout = make_layout(params, placement=required_placement(variant))
        plan = plan_step(layout, Limits(max_buffer_size=1 << 30), variant)
        got = lane_bytes(params, variant, plan)
        assert (got.computed["w"], got.computed["g"]) == (4 * n, 4 * n)
        assert got.computed["m"] + got.computed["v"] == moments
        assert got.allocated is not None
        assert got.allocated == got.computed, "no gaps in this model"
        assert got.total == got.allocated_total == 8 * n + moments
    assert lane_bytes(params, Variant()).allocated is None
    f16 = lane_bytes(params, Variant(kernel="f16"))
    assert f16.total == 16 * n


# --- on the GPU


def started(gpu: Gpu, variant: Variant, steps: int = 1, **limits: int) -> GpuStepper:
    w, _, m, v = normal_state(PARAMS)
    stepper = make_stepper(gpu, PARAMS, variant, w=w, m=m, v=v, finished_steps=4, **limits)
    for k in range(steps):
        step(stepper, k + 1)
    return stepper


def step(stepper: GpuStepper, seed: int) -> None:
    stepper.begin_step(HostGradients(gradients(seed)))
    stepper.run_to_end(UNCLIPPED)


def assert_drift(one: GpuStepper, other: GpuStepper) -> None:
    found = one.drift_from(other)
    a, b = one.weights(), other.weights()
    assert [each.name for each in found] == [s.name for s in one.layout]
    for each in found:
        want = param_drift(each.name, a[each.name], b[each.name])
        assert each.apart == pytest.approx(want.apart, rel=REL, abs=0)
        assert each.norm == pytest.approx(want.norm, rel=REL, abs=0)
        assert (each.largest, each.index) == (want.largest, want.index)
    total, want_total = merged_drift(found), drift_between(a, a, b, 0)
    assert total.largest == pytest.approx(want_total.max_abs, rel=1e-6)
    assert total.relative == pytest.approx(want_total.relative, rel=1e-5)


@gpu_test
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("limits", [{}, PAGES], ids=["one page", "pages"])
def test_drift_between_layouts_that_place_params_differently(
    gpu: Gpu, codec: str, limits: dict[str, int]
) -> None:
    one = started(gpu, Variant(), **limits)
    other = one.beside(form(codec))  # type: ignore[arg-type]
    assert [s.offset for s in one.layout] != [other.layout[s.name].offset for s in one.layout]
    assert all(each.apart == 0 for each in one.drift_from(other))
    for k in range(3):
        for each in (one, other):
            step(each, 10 + k)
    assert_drift(one, other)
    # Seen from the other side: the same difference beside its own weights.
    back = {each.name: each for each in other.drift_from(one)}
    for each in one.drift_from(other):
        assert back[each.name].apart == pytest.approx(each.apart, rel=REL, abs=0)
    other.release()


@gpu_test
@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_squares_of_differences_neither_overflow_nor_vanish(gpu: Gpu, scale: float) -> None:
    params = [Param("long", (40_003,), True), Param("short", (5,))]
    w, _, m, _ = normal_state(params)
    one = make_stepper(gpu, params, w={k: x * np.float32(scale) for k, x in w.items()})
    other = make_stepper(gpu, params, form(), w={k: (w[k] + m[k]) * np.float32(scale) for k in w}, groups=8)
    assert_drift(one, other)


@gpu_test
def test_what_is_not_finite_has_no_drift_and_is_found(gpu: Gpu) -> None:
    params = [Param("a", (20_000,), True), Param("b", (5,))]
    w = normal_state(params)[0]
    bad = {name: values.copy() for name, values in w.items()}
    bad["a"][[17_003, 19_999]] = np.nan, np.inf
    found = make_stepper(gpu, params, w=w).drift_from(make_stepper(gpu, params, w=bad))
    assert math.isnan(found[0].largest)
    assert found[0].index == 17_003
    assert found[1].apart == 0


@gpu_test
def test_other_params_are_refused(gpu: Gpu) -> None:
    one = make_stepper(gpu, [Param("a", (4,))], w={})
    with pytest.raises(ValueError, match="other params"):
        one.drift_from(make_stepper(gpu, [Param("a", (5,))], w={}))


@gpu_test
@pytest.mark.parametrize("limits", [{}, PAGES], ids=["one page", "pages"])
def test_a_stepper_made_beside_goes_on_as_one_from_the_same_state(gpu: Gpu, limits: dict[str, int]) -> None:
    one = started(gpu, Variant(), **limits)
    state = one.state()
    other = one.beside(form("dynamic"))
    plain = make_stepper(
        gpu, PARAMS, form("dynamic"), w=state.w, m=state.m, v=state.v, finished_steps=5, **limits
    )
    assert (other.cursor.step, other.cursor.at_end) == (plain.cursor.step, True)
    assert kept(other) == kept(plain)
    for each in (other, plain):
        step(each, 7)
    assert kept(other) == kept(plain)
    assert one.cursor.step == 5, "the first one stays where it is"
    assert one.state().w["a"].tobytes() == state.w["a"].tobytes()


@gpu_test
def test_made_at_the_start_of_a_step_it_has_the_gradients_as_well(gpu: Gpu) -> None:
    one, other = started(gpu, Variant()), started(gpu, form("sqrt"))
    for first, variant in ((one, form("linear")), (other, Variant())):
        g = gradients(9)
        first.begin_step(HostGradients(g))
        second = first.beside(variant)
        assert (second.cursor.step, second.cursor.dispatch) == (6, 0)
        for name, values in second.gradients().items():
            assert values.tobytes() == g[name].tobytes()
        first.run_to_end(HYPER)
        second.run_to_end(HYPER)
        # Added up in another order, since params lie elsewhere.
        assert second.grad_stats().grad_norm == pytest.approx(first.grad_stats().grad_norm, rel=1e-6)


@gpu_test
def test_codes_of_the_same_codec_are_taken_as_they_are(gpu: Gpu) -> None:
    one = started(gpu, form("dynamic"))
    assert kept(one.beside(form("dynamic", "per-tensor"))) == kept(one)


@gpu_test
def test_in_the_middle_of_a_step_none_is_made(gpu: Gpu) -> None:
    one = started(gpu, Variant())
    one.begin_step(HostGradients(gradients(9)))
    one.run_dispatch(HYPER)
    with pytest.raises(UsageError, match="only between steps"):
        one.beside(form())


@gpu_test
def test_released_it_gives_its_memory_back_and_leaves_the_device_open(gpu: Gpu) -> None:
    one = started(gpu, Variant())
    before = one.memory_bytes
    other = one.beside(form())
    assert one.memory_bytes > before
    step(other, 3)
    one.drift_from(other)
    other.release()
    # The first one's own kernel and what readback needs may stay.
    assert one.memory_bytes <= before + (1 << 20)
    step(one, 4)


@gpu_test
def test_undo_of_the_second_is_bounded_by_what_it_is_given(gpu: Gpu) -> None:
    one = started(gpu, Variant())
    none, some = one.beside(form()), one.beside(form(), undo_bytes=16 << 20)
    for each in (none, some):
        step(each, 3)
    assert not none.rewind_to(5)
    before = kept(one.beside(form()))
    assert some.rewind_to(5)
    assert kept(some) == before
