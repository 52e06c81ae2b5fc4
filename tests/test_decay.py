"""The decay that each element receives: the sums against float64, their bins, and what is read out of bins."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gpu_helpers import make_stepper, normal_state

from inspector.decay import (
    COARSE,
    X_BINS,
    Y_BINS,
    DecayBins,
    DecayGrid,
    DecaySums,
    add_step,
    binned,
    deciles,
    grid_for,
    median_line,
)
from inspector.errors import UsageError
from inspector.gpu.decay import GpuDecayMeter
from inspector.gpu.device import Gpu
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.plan import Variant
from inspector.runtime.breakpoints import norm_known_at
from inspector.stepping import HostGradients

PARAMS = [Param("a", (97, 64)), Param("norm", (300,)), Param("b", (5001,), True)]
HYPER = Hyper(weight_decay=0.1, lr=1e-2, max_grad_norm=2.0)
STEPS = 50
GRID = DecayGrid(-16.0, 0.125, -6.0625, 0.125)


def gradients(step: int) -> dict[str, np.ndarray]:
    """From 2⁻¹² to 2⁻² over the elements of each param, with some zeros and one that is not finite."""
    rng = np.random.default_rng(step)
    found = {}
    for p in PARAMS:
        scale = 2.0 ** np.linspace(-12, -2, p.numel)
        found[p.name] = (scale * rng.standard_normal(p.numel)).astype(np.float32)
        found[p.name][5] = 0.0
    found["a"][77] = np.nan if step == 3 else found["a"][77]
    return found


def watched(
    gpu: Gpu, variant: Variant, steps: int = STEPS, hyper: Hyper = HYPER, **options: int
) -> tuple[GpuStepper, GpuDecayMeter, dict[str, DecaySums]]:
    """A run that is watched from its start, and the sums of the oracle at the weights that the run itself had."""
    w = normal_state(PARAMS)[0]
    w["b"][5] = 0.0
    stepper = make_stepper(gpu, PARAMS, variant, w=w, **options)
    meter = stepper.decay_meter()
    truth = {p.name: DecaySums.zero(p.numel) for p in PARAMS if p.name != "norm"}
    l2 = variant.optimizer == "adam-l2"
    for step in range(1, steps + 1):
        g = gradients(step)
        stepper.begin_step(HostGradients(g))
        stepper.run_until(hyper, norm_known_at(stepper.plan))
        scale, state = stepper.grad_stats().clip_scale, stepper.state()
        meter.add(hyper)
        for name, sums in truth.items():
            truth[name] = add_step(
                sums, state.w[name].astype(np.float64), g[name], state.m[name].astype(np.float64),
                state.v[name].astype(np.float64), scale=scale, hyper=hyper, step=step, l2=l2, numerics=variant.numerics,
            )  # fmt: skip
        stepper.run_to_end(hyper)
    return stepper, meter, truth


@pytest.mark.gpu
@pytest.mark.parametrize("optimizer", ["adamw", "adam-l2"])
@pytest.mark.parametrize(
    "form", [Variant(), Variant(numerics="precise"), Variant(kernel="f16"), Variant(fused=False)]
)
def test_the_sums_are_those_of_the_oracle(gpu: Gpu, optimizer: str, form: Variant) -> None:
    _, meter, truth = watched(gpu, replace(form, optimizer=optimizer))
    for name, sums in truth.items():
        found = meter.read(name)
        # Of float32 terms and sums. Where g' all but cancels λ·w, or w changes its sign, the rounding of either shows.
        for lane in ("m", "received", "decoupled", "squares"):
            got, want = getattr(found, lane), getattr(sums, lane)
            error = np.abs(got - want)
            assert (error <= 2e-4 * np.abs(want) + 1e-9).all(), (name, lane)
            assert np.quantile(error / np.maximum(np.abs(want), 1e-9), 0.99) < 1e-5, (name, lane)
    meter.close()


@pytest.mark.gpu
def test_every_element_of_adamw_receives_all_of_its_decay(gpu: Gpu) -> None:
    _, meter, truth = watched(gpu, Variant(), steps=20)
    for name in truth:
        sums = meter.read(name)
        decayed = sums.decoupled != 0
        np.testing.assert_allclose(sums.received[decayed] / sums.decoupled[decayed], 1.0, rtol=1e-6)
    bins = meter.bins(GRID)
    assert bins.counts.sum() == bins.counts[:, 48].sum() > 10_000
    assert abs(GRID.y[48]) < 1e-12
    assert {row.share for row in deciles(bins)} == {1.0}


@pytest.mark.gpu
def test_adam_with_l2_decays_elements_with_large_gradients_less(gpu: Gpu) -> None:
    # λ·w is small beside the gradients here: else it is λ·w itself that the update is normalised by.
    hyper = Hyper(weight_decay=1e-6, lr=1e-3)
    _, meter, _ = watched(gpu, Variant(optimizer="adam-l2"), hyper=hyper)
    rows = deciles(meter.bins(grid_for([meter.bins(COARSE)])))
    shares, sizes = [row.share for row in rows], [row.gradient for row in rows]
    assert sizes == sorted(sizes)
    assert shares == sorted(shares, reverse=True)
    # Its update is divided by about the RMS gradient, and so is the decay in it.
    assert 0.5 < shares[0] * sizes[0] / (shares[-1] * sizes[-1]) < 2
    assert sizes[-1] > 100 * sizes[0]


@pytest.mark.gpu
@pytest.mark.parametrize("options", [{}, {"max_binding": 1 << 18}, {"groups": 7}])
def test_bins_are_those_of_numpy(gpu: Gpu, options: dict[str, int]) -> None:
    _, meter, truth = watched(gpu, Variant(optimizer="adam-l2"), steps=8, **options)
    sums = [meter.read(name) for name in truth]
    c, w, s = (
        np.concatenate([getattr(each, lane) for each in sums]).astype(np.float64)
        for lane in ("received", "decoupled", "squares")
    )
    shown = (w != 0) & (c != 0) & (s > 0) & ((c < 0) == (w < 0))
    x, y = np.log2(s[shown] / 8) / 2, np.log2(c[shown] / w[shown])
    edges = (
        GRID.x0 + GRID.dx * np.arange(X_BINS + 1),
        GRID.y0 + GRID.dy * np.arange(Y_BINS + 1),
    )
    want, *_ = np.histogram2d(x, y, edges)
    bins = meter.bins(GRID)
    assert want.sum() > 5_000
    # The logarithm of the device errs by some ULP, which moves elements that lie on an edge to the next bin.
    assert np.abs(bins.counts - want).sum() <= 2 * 0.001 * len(x)
    assert (
        bins.total + bins.undecayed + bins.silent + bins.reversed + bins.outside == len(w) == meter.elements
    )
    assert (bins.undecayed, bins.silent) == (1, 1)
    apart = binned(DecaySums(c, c, w, s), 8, GRID)
    assert (bins.undecayed, bins.silent, bins.reversed) == (apart.undecayed, apart.silent, apart.reversed)


@pytest.mark.gpu
def test_what_is_not_followed_is_refused(gpu: Gpu) -> None:
    w = normal_state(PARAMS)[0]
    for variant in (Variant(optimizer="lion"), Variant(kernel="8bit")):
        with pytest.raises(UsageError, match="not followed"):
            make_stepper(gpu, PARAMS, variant, w=w).decay_meter()


@pytest.mark.gpu
def test_sums_take_memory_only_while_they_are_kept(gpu: Gpu) -> None:
    stepper = make_stepper(gpu, PARAMS, w=normal_state(PARAMS)[0])
    before = stepper.memory_bytes
    meter = stepper.decay_meter()
    assert stepper.memory_bytes - before == meter.nbytes >= 16 * (97 * 64 + 5001)
    meter.close()
    assert stepper.memory_bytes == before


def bins_of(x: np.ndarray, y: np.ndarray, grid: DecayGrid = COARSE) -> DecayBins:
    return binned(DecaySums(y, 2.0**y, np.ones(len(y)), 4.0**x), 1, grid)


def test_the_oracle_by_hand() -> None:
    # One element over two steps: β₁ 0.5, β₂ 0, ε 0, λ 0.25, lr 1, w 2 then 1, g 3 and 4, unclipped.
    hyper = Hyper(lr=1.0, beta1=0.5, beta2=0.0, eps=0.0, weight_decay=0.25)
    one = [np.array([x]) for x in (2.0, 0.0, 1.0)]
    first = add_step(
        DecaySums.zero(1), one[0], np.array([3.0], np.float32), one[1], one[1], scale=1.0, hyper=hyper, step=1, l2=True
    )  # fmt: skip
    # D = 0.5·0.5, D̂ = 0.5, √v̂ = |3 + 0.5|
    assert (first.m[0], first.received[0], first.decoupled[0], first.squares[0]) == (0.25, 0.5 / 3.5, 0.5, 9)
    second = add_step(
        first, one[2], np.array([4.0], np.float32), one[1], one[1], scale=1.0, hyper=hyper, step=2, l2=True
    )  # fmt: skip
    # D = 0.5·0.25 + 0.5·0.25, D̂ = D/0.75, √v̂ = |4 + 0.25|
    assert second.m[0] == 0.25
    np.testing.assert_allclose(second.received[0], 0.5 / 3.5 + 0.25 / 0.75 / 4.25, rtol=1e-15)
    assert (second.decoupled[0], second.squares[0]) == (0.75, 25)


def test_deciles_are_tenths_of_the_elements() -> None:
    x = np.repeat(np.arange(10) - 20.0, 100)
    rows = deciles(bins_of(x + 0.5, np.repeat(10.0 - np.arange(10), 100)))
    assert [np.log2(row.share) for row in rows] == [10 - k for k in range(10)]
    assert [np.log2(row.gradient) for row in rows] == [k - 19.5 for k in range(10)]
    assert deciles(bins_of(np.zeros(0), np.zeros(0))) == ()


def test_bins_show_all_but_the_tails_and_the_line_of_one() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-9, -3, 100_000), rng.uniform(2, 7, 100_000)
    x[0], y[1] = -90, 40
    grid = grid_for([bins_of(x, y)])
    assert (grid.dx, grid.dy) == (1 / 16, 1 / 8)
    shown = bins_of(x, y, grid)
    assert shown.outside == 2
    assert np.abs(grid.y).min() == 0
    line = median_line(shown)
    assert np.nanmin(line) > 4
    assert np.isnan(line[0])
