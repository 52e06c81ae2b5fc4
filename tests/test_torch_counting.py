"""Statistics counted on PyTorch's tensors, by each of the ways, held against numpy in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from inspector.param_statistics import lane_stats
from inspector.stores import LANES

torch = pytest.importorskip("torch")

from emulated_kernel import compile_kernel  # noqa: E402

from inspector.integrations.torch import cpu, kernel, rows  # noqa: E402
from inspector.integrations.torch.counting import Counted, Task, is_dense, numbered, table_of  # noqa: E402

Way = Callable[[list[Task]], Counted]
F32 = np.float32
LR, BETA1, BETA2, EPS, DECAY, T = 1e-3, 0.9, 0.95, 1e-8, 0.1, 7.0
SIZES = (0, 1, 5, 33, 600, 1023, 1024, 9000, 32769, 70001)
KINDS = (torch.float32, torch.bfloat16, torch.float16)


@pytest.fixture(scope="session")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Way:
    """The CUDA kernel, compiled for the CPU."""
    words = compile_kernel(tmp_path_factory.mktemp("kernel"))

    def count(tasks: list[Task]) -> Counted:
        jobs, _made = kernel.jobs_of(tasks)
        return kernel.decode(words(jobs, tuple(task.w.numel() for task in tasks)), len(tasks))

    return count


@pytest.fixture(params=["stretches", "rows", "kernel"])
def way(request: pytest.FixtureRequest) -> Way:
    if request.param == "kernel":
        found: Way = request.getfixturevalue("emulated")
        return found
    if request.param == "rows":
        return lambda tasks: rows.count_rows(tasks, torch.device("cpu")).host()
    return cpu.count


def drawn(size: int, kind: Any, seed: int = 0, **settings: Any) -> Task:
    generator = torch.Generator().manual_seed(seed + size)
    w, g, m = (torch.randn(size, generator=generator) * scale for scale in (0.05, 1e-3, 1e-4))
    v = torch.rand(size, generator=generator) * 1e-6
    return Task(
        *(lane.to(kind) for lane in (w, g, m, v)),
        **{"lr": LR, "beta1": BETA1, "beta2": BETA2, "eps": EPS, "decay": DECAY, "t": T, **settings},
    )


def table(counted: Counted, tasks: list[Task]) -> Any:
    count = len(tasks)
    names, sizes = tuple(map(str, range(count))), [task.w.numel() for task in tasks]
    return table_of(counted, names, ("wd",) * count, sizes, [0] * count, [None] * count)


def widened(tensor: Any) -> Any:
    return tensor.to(torch.float64).numpy()


def update_of(task: Task) -> tuple[Any, Any, Any]:
    """Of PyTorch's AdamW and Adam in float64: √v̂, Δw and Δw/lr."""
    w = widened(task.w)
    g = np.zeros_like(w) if task.g is None else widened(task.g) * task.sign
    if task.scale is not None:
        g = g / float(task.scale)
    m = np.zeros_like(w) if task.m is None else widened(task.m)
    v = np.zeros_like(w) if task.v is None else widened(task.v)
    if task.l2:
        g = g + task.decay * w
    m = task.beta1 * m + (1 - task.beta1) * g
    v = task.beta2 * v + (1 - task.beta2) * g * g
    if task.v_max is not None:
        v = np.maximum(v, widened(task.v_max))
    root = np.sqrt(v / (1 - task.beta2**task.t))
    each = m / (1 - task.beta1**task.t) / (root + task.eps) + (0 if task.l2 else task.decay * w)
    return root, task.lr * each, each


def check_update(found: Any, task: Task) -> None:
    root, change, each = update_of(task)
    assert found.norm == pytest.approx(math.sqrt(float((change**2).sum())), rel=2e-6)
    if len(each):
        assert found.largest == pytest.approx(float(np.abs(each).max()), rel=2e-6)
        assert abs(each[found.largest_at]) == pytest.approx(float(np.abs(each).max()), rel=2e-6)
    else:
        assert (found.largest, found.largest_at) == (0.0, None)
    assert found.below_eps == (root < task.eps).sum()
    assert found.skipped == 0


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_lanes_and_updates_are_those_of_float64(way: Way, kind: Any) -> None:
    tasks = [drawn(size, kind) for size in SIZES]
    for stats, task in zip(table(way(tasks), tasks), tasks, strict=True):
        for lane, tensor in zip(LANES, task.lanes, strict=True):
            expected = lane_stats(tensor.to(torch.float32).numpy())
            found = stats.lanes[lane]
            assert (found.low, found.high) == (expected.low, expected.high)
            # The kernel adds up four neighbours in float32.
            assert found.norm == pytest.approx(expected.norm, rel=2e-7)
            assert found.counts.zeros == expected.counts.zeros
            assert found.counts.nonfinite == expected.counts.nonfinite
            np.testing.assert_array_equal(found.counts.exponents, expected.counts.exponents)
        check_update(stats.update, task)


def test_what_is_not_finite_is_counted_by_kind_with_the_first_of_it(way: Way) -> None:
    """By hand: NaN at 40,000 and 69,999, +Inf at 3, -Inf at 32,768; zeros of either sign; a denormal."""
    task = drawn(70_000, torch.float32)
    assert task.g is not None
    task.g[[40_000, 69_999]] = math.nan
    task.g[3], task.g[32_768] = math.inf, -math.inf
    task.g[[10, 11]], task.g[12], task.g[13] = 0.0, -0.0, 1e-41
    found = table(way([task]), [task])[0]
    kinds = found.lanes["g"].counts.nonfinite
    assert (kinds.nan, kinds.posinf, kinds.neginf, kinds.first) == (2, 1, 1, 3)
    assert found.lanes["g"].counts.zeros == 3
    assert found.lanes["g"].counts.exponents[0] == 1
    assert found.lanes["g"].counts.binned == 70_000 - 4 - 3
    finite = np.delete(task.g.numpy(), [40_000, 69_999, 3, 32_768]).astype(np.float64)
    assert found.lanes["g"].norm == pytest.approx(math.sqrt((finite**2).sum()), rel=2e-7)
    # PyTorch takes them as they are: NaN and infinity over infinity are no update.
    assert found.update.skipped == 4


def test_nothing_finite_at_all(way: Way) -> None:
    tasks = [drawn(size, torch.float32) for size in (3, 2000)]
    for task in tasks:
        assert task.g is not None
        task.g.fill_(math.nan)
    for found, task in zip(table(way(tasks), tasks), tasks, strict=True):
        lane = found.lanes["g"]
        assert (lane.low, lane.high, lane.norm, lane.counts.nonfinite.nan) == (
            None,
            None,
            0.0,
            task.w.numel(),
        )
        assert (found.update.largest_at, found.update.norm) == (None, 0.0)


def test_what_rounding_takes_away_is_of_the_type_of_the_param(way: Way) -> None:
    """w 1, Δw 1e-3: below half of bfloat16's spacing of 2^-7 at 1, above that of float16 (2^-11 = 4.9e-4 below 1)."""
    one = torch.ones(2000)
    for kind, lost in ((torch.float32, 0), (torch.float16, 0), (torch.bfloat16, 2000)):
        lanes = [lane.to(kind) for lane in (one, one, torch.zeros(2000), torch.zeros(2000))]
        task = Task(*lanes, lr=1e-3, beta1=0.9, beta2=0.99, eps=1e-8, decay=0.0, t=1.0)
        assert table(way([task]), [task])[0].update.lost == lost, kind


def test_weights_that_half_precision_cannot_hold(way: Way) -> None:
    w = torch.tensor([65_519.0, 65_520.0, -7e4, 2.0**-25, -(2.0**-26), 3.1e-8, 0.0] * 300)
    nothing = torch.zeros_like(w)
    task = Task(w, nothing, lr=0.0, eps=1e-8, t=1.0)
    found = table(way([task]), [task])[0].update
    assert (found.f16_overflows, found.f16_underflows) == (600, 600)


@pytest.mark.parametrize(
    "settings",
    [
        {"l2": True},
        {"sign": -1.0},
        {"scale": torch.tensor([1024.0])},
        {"t": 1.0},
        {"beta1": 0.0},
        {"decay": 0.0},
        {"eps": 1e-4},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_settings_reach_the_update(way: Way, settings: dict[str, Any]) -> None:
    tasks = [drawn(size, torch.float32, **settings) for size in (700, 40_000)]
    for stats, task in zip(table(way(tasks), tasks), tasks, strict=True):
        check_update(stats.update, task)
        g = widened(task.g) * task.sign / (1.0 if task.scale is None else float(task.scale))
        assert (stats.lanes["g"].low, stats.lanes["g"].high) == pytest.approx((g.min(), g.max()), rel=1e-7)


def test_rate_and_count_that_are_kept_in_tensors(way: Way) -> None:
    given = drawn(700, torch.float32, lr=2e-3, t=12.0)
    held = drawn(
        700, torch.float32, lr=9.0, t=99.0, lr_tensor=torch.tensor(2e-3), step_tensor=torch.tensor(11.0)
    )
    a, b = table(way([given, held]), [given, held])
    assert a.update.norm == pytest.approx(b.update.norm, rel=1e-7)


def test_amsgrad_divides_by_the_largest_v(way: Way) -> None:
    task = drawn(40_000, torch.float32, v_max=torch.rand(40_000) * 1e-4)
    check_update(table(way([task]), [task])[0].update, task)


def test_lanes_that_are_not_there_are_zeros(way: Way) -> None:
    """Before the first step there are no moments; a param that nobody uses has no gradient."""
    first = drawn(5000, torch.float32)
    first = Task(first.w, first.g, lr=LR, beta1=BETA1, beta2=BETA2, eps=EPS, decay=DECAY, t=1.0)
    idle = Task(torch.ones(800), None, lr=LR, beta1=BETA1, beta2=BETA2, eps=EPS, idle=True)
    other = Task(torch.ones(800), torch.ones(800), adam=False)
    a, b, c = table(way([first, idle, other]), [first, idle, other])
    check_update(a.update, first)
    assert a.lanes["m"].counts.zeros == 5000
    assert (a.lanes["v"].low, a.lanes["v"].high) == (0.0, 0.0)
    assert b.lanes["g"].counts.zeros == 800
    for each in (b, c):
        assert (each.update.norm, each.update.largest_at, each.update.lost) == (0.0, None, 0)


@pytest.mark.parametrize(("norm", "counted"), [(1.5, 0), (float("nan"), 3), (float("inf"), 3)])
def test_a_gpu_counts_gradients_before_clipping_only_where_their_norm_is_not_finite(
    norm: float, counted: int, emulated: Way
) -> None:
    gradient = torch.tensor([1.0, float("nan"), 2.0, float("inf"), float("nan")])
    found = emulated([Task(gradient, gradient, unless_finite=torch.tensor(norm), adam=False, idle=True)])
    assert found.records["lanes"][0, 1]["nan"] + found.records["lanes"][0, 1]["posinf"] == counted


def test_a_place_in_memory_is_the_number_of_an_element() -> None:
    tensor = torch.arange(2 * 3 * 4 * 5).view(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert is_dense(tensor)
    memory = torch.as_strided(tensor, (tensor.numel(),), (1,)).tolist()
    found = [numbered(place, tuple(tensor.shape), tensor.stride()) for place in range(tensor.numel())]
    assert found == memory
    assert not is_dense(torch.zeros(4, 6)[:, :3])
    assert is_dense(torch.zeros(4, 6).t())
