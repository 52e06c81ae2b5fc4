"""The 8-bit kernels on a device against the codecs and the float64 step, at sizes around every edge.

Tolerances. A code may differ from the oracle's where the value lies within 8 ULP of an edge: 1 for the rounding of m
and v, 1 for the scale's and up to 2.5 for each of the divisions that WGSL allows so much; a root's count twice. That is
one value in some ten thousand. Scales: as many ULP of the block's largest term, 4 where only encoded. w as in
test_kernels, with the roundings of decoding added: 16 ULP of the change. Measured over 2^17 elements on llvmpipe: 2, 4
and 2.6 ULP. What follows in dynamic from given values and scales has to be the same bits everywhere.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from harness_8bit import Bench8bit, Outcome

from inspector.codecs import (
    BLOCK,
    CODECS,
    Codec,
    Which,
    ambiguous,
    decode,
    dynamic_map,
    encode,
    zero_code,
)
from inspector.floats import BoolArray, F32Array, F64Array, ulp_size
from inspector.gpu.device import Gpu
from inspector.hyper import NUMERICS, Hyper, Numerics
from inspector.optimizers.adamw.oracle_8bit import Moments8bit, coded_state, update_8bit, zero_state

pytestmark = pytest.mark.gpu

HYPER = Hyper(lr=1e-3, beta2=0.95, weight_decay=0.1)
CODE_ULPS = 8.0
SCALE_ULPS = 4.0
CHANGE_ULPS = 16.0
EDGES = [1, 2, 3, 4, 5, 255, 256, 257, 1023, 1024, 1025, 64 * 256 - 1, 64 * 256, 64 * 256 + 1]
each_codec = pytest.mark.parametrize("codec", CODECS)
each_lane = pytest.mark.parametrize("which", ["m", "v"])


@pytest.fixture(scope="module")
def bench(gpu: Gpu) -> Bench8bit:
    return Bench8bit(gpu)


def normal_lanes(n: int, seed: int = 0) -> tuple[F32Array, F32Array, F32Array, F32Array]:
    """w, g, m, v as in training, sizes differing from element to element."""
    rng = np.random.default_rng(seed)
    size = 0.01 * np.exp(rng.standard_normal(n))
    w, g, m = rng.standard_normal(n), size * rng.standard_normal(n), 0.3 * size * rng.standard_normal(n)
    v = size * size * rng.uniform(0.5, 2, n)
    return w.astype(np.float32), g.astype(np.float32), m.astype(np.float32), v.astype(np.float32)


def assert_stepped(
    got: Outcome,
    w: F32Array,
    g: F32Array,
    before: Moments8bit,
    *,
    hyper: Hyper,
    step: int,
    scale: float = 1.0,
    decays: bool | BoolArray = True,
    numerics: Numerics = "published",
    l2: bool = False,
) -> None:
    """Compare w, g and the state after one step with the float64 oracle."""
    n = w.size
    settings = {"scale": float(np.float32(scale)), "hyper": hyper, "step": step, "numerics": numerics}
    exact = update_8bit(w, g, before, decays=decays, l2=l2, **settings)
    assert not got.g.view(np.uint32).any()
    unsure = exact.ambiguous(CODE_ULPS)
    for which, mine, wanted, values, terms, may_differ in (
        ("m", got.state.m, exact.state.m, exact.m, exact.m_terms, unsure[0]),
        ("v", got.state.v, exact.state.v, exact.v, exact.v_terms, unsure[1]),
    ):
        for k, (scale_, wanted_scale) in enumerate(zip(mine.scales, wanted.scales, strict=True)):
            here = slice(k * BLOCK, (k + 1) * BLOCK)
            cancelled = np.max(terms[here]) / max(np.max(np.abs(values[here])), 1e-30)
            assert scale_ == pytest.approx(wanted_scale, rel=CODE_ULPS * 2.0**-23 * max(cancelled, 1.0))
        differ = mine.codes != wanted.codes
        assert not np.any(differ & ~may_differ), which
        # Where it may differ it is a neighbour; the tolerance excuses next to nothing.
        assert np.all(np.abs(mine.codes[differ].astype(int) - wanted.codes[differ].astype(int)) <= 1)
        assert may_differ.mean() < 1e-3 or n < 5000
        assert (mine.codes[n:] == zero_code(before.codec, which)).all()
    lines = {line.name: np.asarray(line.value, np.float64) for line in exact.lines}
    correction = 1 / (1 - hyper.beta1**step)
    ratio = (exact.m_terms * 2 * correction) / lines["denominator"]
    change = hyper.lr * (ratio + np.abs(lines["decay"]))
    roundings = 1 if numerics == "published" else 3
    half = 0.5 * roundings * ulp_size(np.maximum(np.abs(w), np.abs(exact.w)))
    assert np.all(np.abs(got.w - exact.w) <= CHANGE_ULPS * ulp_size(change) + half)


# --- the codecs on the device


@each_codec
@each_lane
def test_the_device_encodes_and_decodes_as_numpy_does(bench: Bench8bit, codec: Codec, which: Which) -> None:
    for n in (*EDGES, 100_003):
        x = normal_lanes(n, seed=n)[2 if which == "m" else 3]
        wanted, got = encode(codec, which, x), bench.encode(codec, which, x)
        scale_off = np.abs(got.scales - wanted.scales)
        assert np.all(scale_off <= SCALE_ULPS * ulp_size(wanted.scales.astype(np.float64)))
        unsure = ambiguous(codec, which, x, wanted.scales, CODE_ULPS)
        assert np.array_equal(got.codes[~unsure], wanted.codes[~unsure])
        np.testing.assert_allclose(
            bench.decode(codec, which, wanted, n),
            decode(codec, which, wanted.codes, wanted.scales)[:n],
            rtol=1.2e-7 if codec == "sqrt" else 0,
        )


@each_lane
@pytest.mark.parametrize("scale", [1.0, 0.3, 7e-12, 1e-30, 1e20])
def test_dynamic_codes_on_the_device_are_the_same_bits(bench: Bench8bit, which: Which, scale: float) -> None:
    """Every edge, its neighbours, and every value, for a scale: no device may decide one of them differently."""
    table = dynamic_map(which)
    largest = np.float32(scale)
    edges = table.edges * largest
    x = np.concatenate(
        (edges, np.nextafter(edges, largest * 2), np.nextafter(edges, -largest), table.values * largest)
    )
    if which == "m":
        x = np.concatenate((x, -x))
    # Each block holds the scale itself.
    x = np.concatenate([np.append(x[k : k + BLOCK - 1], largest) for k in range(0, x.size, BLOCK - 1)])
    wanted, got = (
        encode("dynamic", which, x.astype(np.float32)),
        bench.encode("dynamic", which, x.astype(np.float32)),
    )
    assert got.scales.tobytes() == wanted.scales.tobytes()
    assert got.codes.tobytes() == wanted.codes.tobytes()
    values = decode("dynamic", which, wanted.codes, wanted.scales)
    assert bench.decode("dynamic", which, wanted, values.size).tobytes() == values.tobytes()


@each_lane
def test_dynamic_codes_are_the_same_bits_anywhere_between_edges(bench: Bench8bit, which: Which) -> None:
    """Near an edge one comparison decides, elsewhere a rough number: densely, over more decades than the map has."""
    rng = np.random.default_rng(0)
    x = np.concatenate((np.exp(rng.uniform(np.log(1e-9), 0, 150_000)), rng.random(150_000)))
    x = np.where(rng.random(x.size) < 0.5, -x, x).astype(np.float32) if which == "m" else x.astype(np.float32)
    x[::BLOCK] = 1
    wanted, got = encode("dynamic", which, x), bench.encode("dynamic", which, x)
    assert np.unique(wanted.codes).size == 256
    assert got.codes.tobytes() == wanted.codes.tobytes()


@each_codec
@each_lane
def test_the_device_limits_what_is_not_finite_as_numpy_does(
    bench: Bench8bit, codec: Codec, which: Which
) -> None:
    x = np.concatenate(
        (np.ones(300, np.float32), np.float32([np.inf, np.nan, -np.inf, 3e38, -1, 0, -0.0, 1e-42]))
    )
    wanted, got = encode(codec, which, x), bench.encode(codec, which, x)
    np.testing.assert_allclose(got.scales, wanted.scales, rtol=5e-7)
    unsure = ambiguous(codec, which, x, wanted.scales, CODE_ULPS)
    assert np.array_equal(got.codes[~unsure], wanted.codes[~unsure])
    assert not unsure[:307].any()
    again = bench.decode(codec, which, got, x.size)
    assert np.isfinite(again).all()


@each_lane
def test_the_device_takes_next_to_nothing_as_a_block_of_zeros(bench: Bench8bit, which: Which) -> None:
    got = bench.encode("dynamic", which, np.float32([1.1e-38, 1e-42, 0, 1e-45]))
    assert got.scales.tolist() == [0]
    assert (got.codes == zero_code("dynamic", which)).all()
    # A new buffer of zero bytes is zeros too, and not -0.
    fresh = type(got)(np.zeros_like(got.codes), got.scales)
    assert not bench.decode("dynamic", which, fresh, BLOCK).view(np.uint32).any()


# --- the step


@each_codec
@pytest.mark.parametrize("numerics", NUMERICS)
def test_a_step_is_the_oracles_at_sizes_around_every_edge(
    bench: Bench8bit, codec: Codec, numerics: Numerics
) -> None:
    for n in EDGES:
        w, g, m, v = normal_lanes(n, seed=n)
        before = coded_state(codec, m, v)
        settings = {
            "hyper": HYPER,
            "step": 1 + n % 7,
            "scale": 0.3,
            "decays": n % 2 == 0,
            "numerics": numerics,
        }
        assert_stepped(bench.update(w, g, before, **settings), w, g, before, **settings)


@each_codec
@pytest.mark.parametrize("step", [1, 2, 10, 1000, 100_000])
def test_a_step_at_any_counter_over_many_magnitudes(bench: Bench8bit, codec: Codec, step: int) -> None:
    n = 16_384
    rng = np.random.default_rng(step)

    def spread(low: int, high: int) -> F32Array:
        x = np.exp2(rng.uniform(low, high, n)) * rng.choice([-1, 1], n)
        return np.where(rng.random(n) < 0.05, 0, x).astype(np.float32)

    w, g, m, v = spread(-20, 10), spread(-18, 6), spread(-18, 6), np.abs(spread(-36, 12))
    before = coded_state(codec, m, v)
    # ε so large that what loses its v stays comparable.
    hyper = Hyper(beta2=0.999, eps=1e-3)
    got = bench.update(w, g, before, hyper=hyper, step=step)
    assert_stepped(got, w, g, before, hyper=hyper, step=step)


@each_codec
@pytest.mark.parametrize("n", [2 * 1024, 3 * 1024 + 1, 7 * 1024 + 700, 8 * 1024 - 255])
def test_a_grid_of_several_rows_gives_the_same_bits(gpu: Gpu, bench: Bench8bit, codec: Codec, n: int) -> None:
    """mrdoob/three.js PR#28846: beyond the groups of one row the last element has to be reached."""
    w, g, m, v = normal_lanes(n)
    before = coded_state(codec, m, v)
    one = bench.update(w, g, before, hyper=HYPER, step=3)
    rows = Bench8bit(gpu, rows=2).update(w, g, before, hyper=HYPER, step=3)
    assert_stepped(rows, w, g, before, hyper=HYPER, step=3)
    assert one.w.tobytes() == rows.w.tobytes()
    assert [x.tobytes() for x in one.words] == [x.tobytes() for x in rows.words]
    assert (
        bench.encode(codec, "v", v).codes.tobytes()
        == Bench8bit(gpu, rows=2).encode(codec, "v", v).codes.tobytes()
    )


@each_codec
def test_ten_steps_follow_the_oracle(bench: Bench8bit, codec: Codec) -> None:
    """Each from what the device left, so that a code that may differ does not add up."""
    w, _, m, v = normal_lanes(3000)
    state = coded_state(codec, m, v)
    for step in range(5, 15):
        g = normal_lanes(3000, seed=step)[1]
        got = bench.update(w, g, state, hyper=HYPER, step=step)
        assert_stepped(got, w, g, state, hyper=HYPER, step=step)
        w, state = got.w, got.state


@each_codec
def test_a_block_of_zeros_stays_as_it_is(bench: Bench8bit, codec: Codec) -> None:
    w = np.float32([1, -0.0, 3.4e38, np.pi] * 128)
    zeros = np.zeros(w.size, np.float32)
    state = zero_state(codec, w.size)
    got = bench.update(w, zeros, state, hyper=Hyper(weight_decay=0.1), step=1, decays=False, steps=3)
    assert got.w.tobytes() == w.tobytes()
    assert got.state.m.codes.tobytes() == state.m.codes.tobytes()
    assert got.state.v.codes.tobytes() == state.v.codes.tobytes()
    assert got.state.m.scales.tobytes() == state.m.scales.tobytes()
    # So does one in a buffer of zero bytes, and one without any ε.
    empty = Moments8bit(
        codec, *(type(x)(np.zeros_like(x.codes), np.zeros_like(x.scales)) for x in (state.m, state.v))
    )
    got = bench.update(w, zeros, empty, hyper=Hyper(eps=0.0), step=1, decays=False)
    assert got.w.tobytes() == w.tobytes()
    assert got.state.m.codes.tobytes() == state.m.codes.tobytes()


@each_codec
def test_an_idle_coordinate_beside_busy_ones_does_not_move(bench: Bench8bit, codec: Codec) -> None:
    """255 gradients of 1 and one of 0 for 500 steps: -0.5 and exactly 0."""
    w, g = np.zeros(BLOCK, np.float32), np.ones(BLOCK, np.float32)
    g[77] = 0
    hyper = Hyper(weight_decay=0.0, max_grad_norm=math.inf)
    got = bench.update(w, g, zero_state(codec, BLOCK), hyper=hyper, step=1, steps=500)
    assert got.w[77] == 0.0
    assert np.delete(got.w, 77) == pytest.approx(-0.5, rel=0.02)
    assert np.ptp(np.delete(got.w, 77)) == 0


@each_codec
def test_gradients_that_are_not_finite_count_as_zero(bench: Bench8bit, codec: Codec) -> None:
    w, g, m, v = normal_lanes(600)
    bad = [0, 3, 255, 256, 511, 599]
    g[bad] = np.float32([np.nan, np.inf, -np.inf, np.nan, np.inf, np.nan])
    before = coded_state(codec, m, v)
    got = bench.update(w, g, before, hyper=HYPER, step=4)
    assert_stepped(got, w, g, before, hyper=HYPER, step=4)
    masked = np.where(np.isfinite(g), g, np.float32(0))
    same = bench.update(w, masked, before, hyper=HYPER, step=4)
    assert got.w.tobytes() == same.w.tobytes()
    assert [x.tobytes() for x in got.words] == [x.tobytes() for x in same.words]


@each_codec
def test_an_update_that_is_not_finite_leaves_w(bench: Bench8bit, codec: Codec) -> None:
    w, g, m, v = normal_lanes(300)
    got = bench.update(w, g, coded_state(codec, m, v), hyper=Hyper(lr=math.inf), step=1)
    assert got.w.tobytes() == w.tobytes()
    nan_scale = coded_state(codec, m, v)
    nan_scale.m.scales[0] = np.nan
    got = bench.update(w, g, nan_scale, hyper=Hyper(), step=2)
    assert got.w[:BLOCK].tobytes() == w[:BLOCK].tobytes()
    assert not np.any(got.w[BLOCK:] == w[BLOCK:])
    assert np.isfinite(got.state.m.scales).all()


@each_codec
@pytest.mark.parametrize("n", [1, 5, 250, 257, 1022])
def test_what_lies_beyond_the_last_element_stays_out_of_it(bench: Bench8bit, codec: Codec, n: int) -> None:
    """w and g beyond it are marked by the harness; codes beyond it are large here and must not set the scale."""
    w, g, m, v = normal_lanes(n)
    clean = coded_state(codec, m, v)
    dirty = coded_state(codec, m, v)
    for lane in (dirty.m, dirty.v):
        lane.codes[n:] = 127 if codec != "dynamic" else 255
    got = bench.update(w, g, dirty, hyper=HYPER, step=3)
    same = bench.update(w, g, clean, hyper=HYPER, step=3)
    assert got.w.tobytes() == same.w.tobytes()
    for mine, wanted in ((got.state.m, same.state.m), (got.state.v, same.state.v)):
        assert mine.scales.tobytes() == wanted.scales.tobytes()
        assert mine.codes[:n].tobytes() == wanted.codes[:n].tobytes()
        # Words with none of its elements are left alone.
        assert (mine.codes[-(-n // 4) * 4 :] == (127 if codec != "dynamic" else 255)).all()


def test_linear_codes_limit_the_ratio_and_the_others_do_not(bench: Bench8bit) -> None:
    m, v = np.zeros((2, BLOCK), np.float32)
    m[:2], v[:2] = [1e-2, 1e-4], [1, 1e-9]
    w, g = np.ones(BLOCK, np.float32), np.zeros(BLOCK, np.float32)
    hyper = Hyper(weight_decay=0.0)
    moved: dict[Codec, F64Array] = {}
    for codec in CODECS:
        before = coded_state(codec, m, v)
        got = bench.update(w, g, before, hyper=hyper, step=2)
        assert_stepped(got, w, g, before, hyper=hyper, step=2)
        moved[codec] = 1 - got.w.astype(np.float64)
    assert moved["linear"][1] == pytest.approx(1e-3, rel=1e-4)
    # The map reaches down to 1.6e-7 of the largest v: what is left below it is ε.
    assert moved["dynamic"][1] == pytest.approx(1e-3 * 4.737e-4 / 1e-8, rel=0.05)
    assert moved["sqrt"][1] == pytest.approx(1e-3 * 4.737e-4 / (math.sqrt(0.999 / 0.001999) / 127), rel=0.25)


@each_codec
def test_the_forms_that_all_updates_share(bench: Bench8bit, codec: Codec) -> None:
    """Decay in the gradient, decay of the first elements only, and a gradient clipped and zeroed by other passes."""
    w, g, m, v = normal_lanes(3000)
    before = coded_state(codec, m, v)
    got = bench.update(w, g, before, hyper=HYPER, step=3, scale=0.5, constants=(("L2", 1),))
    assert_stepped(got, w, g, before, hyper=HYPER, step=3, scale=0.5, l2=True)
    got = bench.update(w, g, before, hyper=HYPER, step=3, scale=0.5, constants=(("WD_ELEMENTS", 1024),))
    assert_stepped(got, w, g, before, hyper=HYPER, step=3, scale=0.5, decays=np.arange(3000) < 1024)
    got = bench.update(w, g, before, hyper=HYPER, step=3, scale=0.5, constants=(("FUSED", 0),))
    assert got.g.tobytes() == g.tobytes()
    got.g[:] = 0
    assert_stepped(got, w, g, before, hyper=HYPER, step=3)
