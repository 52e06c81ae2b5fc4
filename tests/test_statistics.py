"""Counts and the log₂ histogram: by hand, against a naive count, and the same from the GPU."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from gpu_helpers import host, make_stepper, params_of
from hypothesis import given, settings
from hypothesis import strategies as st

from inspector.gpu.device import Gpu
from inspector.statistics import BufferStats, buffer_stats, quantile_log2
from inspector.stepping import HostGradients


def from_bits(*raw: int) -> np.ndarray:
    return np.array(raw, np.uint32).view(np.float32)


def as_tuple(stats: BufferStats) -> tuple[object, ...]:
    return (stats.count, stats.zeros, stats.nonfinite, stats.max_abs, stats.exponents.tolist())


def test_nothing_throws_on_nan_and_equal_values_fill_one_bin() -> None:
    """wandb/wandb PR#984, PR#10770: 10 × 0.5, 3 NaN, 2 Inf, 1 -Inf."""
    stats = buffer_stats(np.float32([0.5] * 10 + [np.nan] * 3 + [np.inf] * 2 + [-np.inf]))
    assert stats.binned == 10
    assert stats.exponents[126] == 10
    assert (stats.nonfinite.nan, stats.nonfinite.posinf, stats.nonfinite.neginf) == (3, 2, 1)
    assert stats.nonfinite.first == 10
    assert stats.nonfinite.total == 6
    assert stats.log2_range() == (-1, -1)


def test_every_kind_of_bit_pattern_is_told_apart() -> None:
    """pygfx/wgpu-py PR#473, gpuweb/gpuweb#2270."""
    values = from_bits(
        0x7FC00000, 0xFFC00000, 0x7F800001, 0x7FFFFFFF, 0x7F800000, 0xFF800000, 0x40400000, 0x40800000,
        0x80000000,
    )  # fmt: skip
    stats = buffer_stats(values, start=100)
    assert (stats.nonfinite.nan, stats.nonfinite.posinf, stats.nonfinite.neginf) == (4, 1, 1)
    assert stats.nonfinite.first == 100
    assert (stats.zeros, stats.binned, stats.max_abs) == (1, 2, 4.0)


def test_bins_begin_at_powers_of_two_and_denormals_share_the_first() -> None:
    stats = buffer_stats(np.float32([1.0, 1.999, 2.0, -4.0, 1e-45, 1e-39, 0.0, -0.0]))
    assert {int(i): int(stats.exponents[i]) for i in np.flatnonzero(stats.exponents)} == {
        0: 2,
        127: 2,
        128: 1,
        129: 1,
    }
    assert stats.zeros == 2
    assert stats.log2_range() == (-127, 2)
    assert not stats.exponents.flags.writeable


def test_of_nothing_there_is_nothing() -> None:
    stats = buffer_stats(np.zeros(0, np.float32))
    assert (stats.count, stats.zeros, stats.binned, stats.max_abs) == (0, 0, 0, 0.0)
    assert stats.log2_range() is None
    assert math.isnan(quantile_log2(stats, 0.5))


def test_quantiles_fall_on_the_bin_of_that_rank() -> None:
    stats = buffer_stats(np.float32([1] * 50 + [2] * 40 + [1024] * 10))
    assert [quantile_log2(stats, q) for q in (0, 0.5, 0.51, 0.9, 0.91, 1)] == [0, 0, 1, 1, 10, 10]


@given(st.lists(st.integers(0, 2**32 - 1), max_size=60))
@settings(deadline=None)
def test_numpy_counts_as_a_plain_loop_does(raw: list[int]) -> None:
    values = [struct.unpack("<f", struct.pack("<I", x))[0] for x in raw]
    stats = buffer_stats(from_bits(*raw))
    finite = [abs(x) for x in values if math.isfinite(x)]
    assert stats.zeros == sum(x == 0 for x in finite)
    assert stats.nonfinite.nan == sum(math.isnan(x) for x in values)
    assert stats.nonfinite.posinf == sum(x == math.inf for x in values)
    assert stats.nonfinite.neginf == sum(x == -math.inf for x in values)
    assert stats.max_abs == max(finite, default=0.0)
    for exponent in range(255):
        low = 0.0 if exponent == 0 else 2.0 ** (exponent - 127)
        inside = [x for x in finite if x and low <= x < 2.0 ** (exponent - 126)]
        assert stats.exponents[exponent] == len(inside)


@pytest.mark.gpu
@pytest.mark.parametrize("numel", [1, 3, 4, 5, 255, 4097, 70_001])
def test_the_gpu_counts_what_numpy_counts(gpu: Gpu, numel: int) -> None:
    """Random bit patterns: every exponent, denormals, zeros of both signs and all kinds of NaN."""
    rng = np.random.default_rng(numel)
    raw = rng.integers(0, 2**32, numel, dtype=np.uint32)
    raw[rng.random(numel) < 0.1] = 0x8000_0000
    raw[rng.random(numel) < 0.05] = 0xFF80_0000
    raw[rng.random(numel) < 0.05] = 0x7F80_0001
    values = raw.view(np.float32)
    extra = np.float32([1, np.nan, 0])
    stepper = make_stepper(gpu, params_of(numel, 3), w=host(numel, 3))
    stepper.begin_step(HostGradients({"p0": values, "p1": extra}))
    assert as_tuple(stepper.stats("g", "p0")) == as_tuple(buffer_stats(values))
    start = stepper.layout["p1"].offset
    assert as_tuple(stepper.stats("g", "p1")) == as_tuple(buffer_stats(extra, start=start))
    # Over all params: the gap between them holds no element.
    first = buffer_stats(values).nonfinite.first
    expected = buffer_stats(np.concatenate([values, extra]))
    both = stepper.stats("g", None)
    assert as_tuple(both)[:2] == as_tuple(expected)[:2]
    assert both.exponents.tolist() == expected.exponents.tolist()
    assert both.nonfinite.total == expected.nonfinite.total
    assert both.nonfinite.first == (start + 1 if first is None else first)
    counts = stepper.counts("g")
    assert (counts.count, counts.zeros, counts.nonfinite) == (both.count, both.zeros, both.nonfinite)
    assert counts.binned == 0


@pytest.mark.gpu
def test_the_gpu_counts_over_pages_and_bindings(gpu: Gpu) -> None:
    rng = np.random.default_rng(7)
    values = rng.standard_normal(100_000).astype(np.float32)
    values[[40_000, 99_999]] = np.nan, -np.inf
    stepper = make_stepper(gpu, params_of(100_000), w=host(100_000), max_buffer=150_000, max_binding=64 << 10)
    assert len(stepper.layout.pages) == 3
    stepper.begin_step(HostGradients({"p0": values}))
    assert as_tuple(stepper.stats("g", None)) == as_tuple(buffer_stats(values))
