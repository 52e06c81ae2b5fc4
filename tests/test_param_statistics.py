"""Statistics of each param before its update: the GPU against numpy, and numpy against numbers worked by hand."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from gpu_helpers import F32, host, lanes, make_engine, make_stepper, normal_state, params_of, whole

from inspector.cli import run
from inspector.codecs import CODECS, Codec
from inspector.errors import UsageError
from inspector.gpu import param_statistics
from inspector.gpu.device import Gpu
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import Hyper
from inspector.layout import Param, StateType
from inspector.param_statistics import (
    LaneStats,
    ParamStats,
    ParamTable,
    by_block,
    lane_stats,
    merged,
    param_stats,
    totals,
)
from inspector.plan import Variant
from inspector.stepping import HostGradients
from inspector.stores import LANES

HYPER = Hyper(weight_decay=0.1, lr=1e-2)
PARAMS = [Param("a", (90, 70)), Param("b", (7,)), Param("none", (0,)), Param("c", (50, 20)), Param("d", (1,))]
SMALL = {"max_buffer": 20_480, "max_binding": 5_120}
State = tuple[Mapping[str, F32], Mapping[str, F32], Mapping[str, F32], Mapping[str, F32]]


def stopped(
    gpu: Gpu, params: Sequence[Param], state: State, variant: Variant | None = None, *, step: int = 5,
    hyper: Hyper = HYPER, **limits: int,
) -> GpuStepper:  # fmt: skip
    """A stepper right after finalize_grad_stats."""
    w, g, m, v = state
    stepper = make_stepper(gpu, params, variant, w=w, m=m, v=v, finished_steps=step - 1, **limits)
    stepper.begin_step(HostGradients(g))
    while stepper.plan.dispatches[stepper.cursor.dispatch - 1].kernel != "finalize_grad_stats":
        stepper.run_dispatch(hyper)
    return stepper


def expected(stepper: GpuStepper, state: State, hyper: Hyper = HYPER) -> list[ParamStats]:
    variant = stepper.plan.variant
    return [
        param_stats(
            s.name, s.block, {lane: values[s.name] for lane, values in zip(LANES, state, strict=True)},
            clip_scale=stepper.grad_stats().clip_scale, hyper=hyper, step=stepper.cursor.step,
            numerics=variant.numerics, l2=variant.optimizer == "adam-l2", start=s.offset,
            codec=variant.codec if s.state == "8bit" else None,
        )
        for s in stepper.layout
    ]  # fmt: skip


def counted(stats: LaneStats) -> tuple[object, ...]:
    c = stats.counts
    return (c.count, c.zeros, c.nonfinite, c.max_abs, c.exponents.tolist(), stats.low, stats.high)


def assert_same(got: Sequence[ParamStats], want: Sequence[ParamStats]) -> None:
    assert [(p.name, p.block, p.numel) for p in got] == [(p.name, p.block, p.numel) for p in want]
    for p, q in zip(got, want, strict=True):
        for lane in LANES:
            assert counted(p.lanes[lane]) == counted(q.lanes[lane]), (p.name, lane)
            assert p.lanes[lane].norm == pytest.approx(q.lanes[lane].norm, rel=1e-6, abs=0), (p.name, lane)
        for name in ("below_eps", "lost", "skipped", "f16_overflows", "f16_underflows", "largest_at"):
            assert getattr(p.update, name) == getattr(q.update, name), (p.name, name)
        # Hangs on the rounding of every line of the update, not only on the adding up.
        assert p.update.norm == pytest.approx(q.update.norm, rel=1e-6, abs=0), p.name
        assert p.update.largest == pytest.approx(q.update.largest, rel=1e-6, abs=0), p.name


def odd_state(params: Sequence[Param]) -> State:
    """As in a training run, with everything that is counted in it."""
    w, g, m, v = normal_state(params)
    w["a"][[3, 70, 71, 72]] = 1e5, 1e-9, -3e-8, 0.0
    w["b"][:4] = 3e4  # too large for what moves them
    m["b"][:4], v["b"][:4], g["b"][:4] = 1e-7, 1.0, 0.0
    g["a"][[5, 17, 6299]] = np.nan, np.inf, -np.inf
    g["c"][:] = 0
    m["c"][:500] = 0
    v["c"][:500] = 0
    m["c"][999] = np.inf
    w["b"][4], m["b"][4], g["b"][4] = 1e-9, 0.0, 0.0
    w["b"][6] = -np.inf
    v["d"][0] = np.nan
    return w, g, m, v


# --- by numpy


def test_a_param_by_hand() -> None:
    """Step 1, g = 3, -4, 0, NaN: m̂ = g, √v̂ = |g|, so the update is lr · sign(g) without decay."""
    w = np.float32([1, -2, 5, np.inf])
    g = np.float32([3, -4, 0, np.nan])
    zero = np.zeros(4, np.float32)
    hyper = Hyper(lr=0.5, eps=1e-8)
    got = param_stats(
        "p", "no_wd", {"w": w, "g": g, "m": zero, "v": zero}, clip_scale=1.0, hyper=hyper, step=1,
        numerics="precise", start=64,
    )  # fmt: skip
    assert got.lanes["w"].norm == pytest.approx(math.sqrt(30))
    assert (got.lanes["w"].low, got.lanes["w"].high) == (-2, 5)
    assert got.lanes["w"].counts.nonfinite.first == 67
    assert got.lanes["g"].norm == 5
    assert got.lanes["m"].counts.zeros == 4
    assert (got.lanes["m"].norm, got.lanes["m"].low, got.lanes["m"].high) == (0, 0, 0)
    assert got.update.norm == pytest.approx(math.sqrt(0.5), rel=1e-6)
    assert got.update.largest == pytest.approx(1, rel=1e-6)
    assert got.update.largest_at in (64, 65)
    assert got.update.below_eps == 2
    # 0 · Inf is no number, and no decay: w stays.
    assert (got.update.lost, got.update.skipped) == (0, 1)


def test_halves_and_lost_updates_by_hand() -> None:
    """lr·sign = 1e-3: nothing beside 1e5, whose neighbours are 0.0078 apart; 65520 is the first infinite half."""
    w = np.float32([1e5, 65520, 65519, 2e-3, 1e-3 + 2.0**-26])
    one, zero = np.ones(5, np.float32), np.zeros(5, np.float32)
    one[1:3] = 0
    got = param_stats(
        "p", "no_wd", {"w": w, "g": one, "m": zero, "v": zero}, clip_scale=1.0, hyper=Hyper(), step=1,
        numerics="precise",
    ).update  # fmt: skip
    assert got.lost == 1
    assert got.f16_overflows == 2
    assert got.f16_underflows == 1
    assert got.below_eps == 2


def test_non_finite_elements_are_in_no_norm_and_no_range() -> None:
    stats = lane_stats(np.float32([np.nan, np.inf, -np.inf]))
    assert (stats.norm, stats.low, stats.high, stats.counts.binned) == (0.0, None, None, 0)
    assert stats.counts.nonfinite.total == 3


def test_params_add_up_to_blocks_and_to_all() -> None:
    state = odd_state(PARAMS)
    each = [
        param_stats(
            p.name, p.block, {lane: values[p.name] for lane, values in zip(LANES, state, strict=True)},
            clip_scale=0.5, hyper=HYPER, step=5, start=10_000 * i,
        )
        for i, p in enumerate(PARAMS)
    ]  # fmt: skip
    everything = merged("all", each)
    assert everything.block is None
    assert everything.numel == sum(p.numel for p in PARAMS)
    for lane, values in zip(LANES, state, strict=True):
        want = lane_stats(np.concatenate([values[p.name] for p in PARAMS]))
        got = everything.lanes[lane]
        assert counted(got)[3:] == counted(want)[3:]
        assert got.counts.zeros == want.counts.zeros
        assert got.counts.nonfinite.total == want.counts.nonfinite.total
        assert got.norm == pytest.approx(want.norm, rel=1e-12)
    assert everything.update.largest == max(p.update.largest for p in each)
    assert everything.lanes["g"].counts.nonfinite.first == 5
    blocks = by_block(each)
    assert set(blocks) == {"wd", "no_wd"}
    assert blocks["wd"].numel == 90 * 70 + 50 * 20
    assert sum(b.update.lost for b in blocks.values()) == everything.update.lost > 0
    assert merged("none", []).lanes["w"].low is None


# --- on the GPU


@pytest.mark.gpu
@pytest.mark.parametrize("limits", [{}, SMALL], ids=["one page", "pages"])
@pytest.mark.parametrize("numerics", ["published", "precise"])
@pytest.mark.parametrize("optimizer", ["adamw", "adam-l2"])
def test_the_gpu_counts_what_numpy_counts(
    gpu: Gpu, optimizer: str, numerics: str, limits: dict[str, int]
) -> None:
    state = odd_state(PARAMS)
    stepper = stopped(gpu, PARAMS, state, Variant(optimizer, numerics=numerics), **limits)  # type: ignore[arg-type]
    if limits:
        assert len(stepper.layout.pages) > 1
    before = lanes(stepper)
    got = stepper.param_stats(HYPER)
    assert_same(got, expected(stepper, state))
    assert sum(p.update.lost for p in got) >= 4
    assert got[0].update.f16_overflows == 1
    assert sum(p.update.f16_underflows for p in got) >= 1
    assert lanes(stepper) == before


@pytest.mark.gpu
@pytest.mark.parametrize(
    "variant",
    [
        Variant(kernel="f16", dispatch="single"),
        Variant(fused=False),
        Variant(dispatch="per-tensor", reduce="atomic"),
        Variant(reduce="atomic", grid="published"),
    ],
    ids=["mirrored", "passes", "tensors", "published"],
)
def test_every_form_of_the_step_has_the_same_statistics(gpu: Gpu, variant: Variant) -> None:
    state = odd_state(PARAMS)
    stepper = stopped(gpu, PARAMS, state, variant, align_bytes=512)
    assert_same(stepper.param_stats(HYPER), expected(stepper, state))


@pytest.mark.gpu
def test_the_form_for_a_gpu_counts_the_same_on_a_cpu(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that it is tested where there is no GPU; zeros and what is not finite take ways of their own there."""
    state = odd_state(PARAMS)
    state[0]["a"][200:400] = 0
    state[0]["a"][[1000, 1001]] = 1e-42, -0.0
    monkeypatch.setitem(param_statistics.FORM, True, {"GROUP": 32.0, "ON_CPU": 0.0})
    stepper = stopped(gpu, PARAMS, state)
    assert_same(stepper.param_stats(HYPER), expected(stepper, state))


@pytest.mark.gpu
def test_after_the_clip_pass_the_gradient_is_not_clipped_again(gpu: Gpu) -> None:
    state = odd_state(PARAMS)
    state[1]["a"][100] = 50.0
    stepper = stopped(gpu, PARAMS, state, Variant(fused=False))
    assert stepper.grad_stats().clip_scale < 0.1
    before = stepper.param_stats(HYPER)
    stepper.run_dispatch(HYPER)
    with pytest.raises(UsageError, match="rest of the scale passes"):
        stepper.param_stats(HYPER)
    while stepper.plan.dispatches[stepper.cursor.dispatch].kernel == "scale":
        stepper.run_dispatch(HYPER)
    after = stepper.param_stats(HYPER)
    assert [p.update for p in after] == [p.update for p in before]
    assert after[0].lanes["g"].norm < 0.1 * before[0].lanes["g"].norm


@pytest.mark.gpu
def test_what_is_foretold_is_what_the_update_then_does(gpu: Gpu) -> None:
    state = odd_state(PARAMS)
    stepper = stopped(gpu, PARAMS, state)
    foretold = stepper.param_stats(HYPER)
    stepper.run_to_end(HYPER)
    after = stepper.state().w
    for stats in foretold:
        w0, w1 = state[0][stats.name], after[stats.name]
        finite = np.isfinite(w1)
        change = w0[finite].astype(np.float64) - w1[finite]
        # The change of w is the update rounded to the spacing of w.
        spacing = float(np.spacing(np.abs(w0[finite]).max(initial=0))) * math.sqrt(max(len(w0), 1))
        assert np.linalg.norm(change) == pytest.approx(stats.update.norm, rel=1e-3, abs=spacing)
        assert stats.update.f16_overflows == int((np.abs(w1[finite]) >= 65520).sum())
        assert stats.update.f16_underflows == int(((w1 != 0) & (np.abs(w1) <= 2.0**-25)).sum())


@pytest.mark.gpu
@pytest.mark.parametrize("numel", [1, 2, 3, 4, 5, 63, 64, 65, 16_385, 70_001])
def test_random_bit_patterns_of_any_number(gpu: Gpu, numel: int) -> None:
    """Every exponent, denormals, zeros of both signs and all kinds of NaN; what is in a gap is nobody's."""
    rng = np.random.default_rng(numel)

    def drawn(low: int, high: int) -> dict[str, F32]:
        raw = rng.integers(0, 2**32, numel, dtype=np.uint32)
        raw = (raw & np.uint32(0x807F_FFFF)) | rng.integers(low, high, numel, dtype=np.uint32) << np.uint32(
            23
        )
        raw[rng.random(numel) < 0.1] = 0x8000_0000
        return {"p0": raw.view(np.float32), "p1": raw[:2].view(np.float32)}

    state = drawn(0, 256), drawn(0, 256), drawn(1, 40), drawn(230, 256)
    params = [Param("p0", (numel, 1)), Param("p1", (min(numel, 2),))]
    got = stopped(gpu, params, state).param_stats(HYPER)
    for stats in got:
        for lane, values in zip(LANES, state, strict=True):
            want = lane_stats(values[stats.name])
            have = stats.lanes[lane]
            assert have.counts.nonfinite.total == want.counts.nonfinite.total
            assert have.counts.exponents.tolist() == want.counts.exponents.tolist()
            assert (have.counts.zeros, have.low, have.high) == (want.counts.zeros, want.low, want.high)
            assert have.norm == pytest.approx(want.norm, rel=1e-6, abs=1e-37)


@pytest.mark.gpu
@pytest.mark.parametrize("value", [0.0, 1.0, 1e-30, 1e30, 3e38, -1e-20])
def test_equal_values_fill_one_bin_and_neither_overflow_nor_vanish(gpu: Gpu, value: float) -> None:
    params = params_of(40_000, decay=True)
    same = host(40_000, value=value)
    got = stopped(gpu, params, (same, same, same, same)).param_stats(HYPER)[0]
    for lane in LANES:
        assert counted(got.lanes[lane]) == counted(lane_stats(same["p0"]))
        assert got.lanes[lane].norm == pytest.approx(200 * abs(float(np.float32(value))), rel=1e-6, abs=0)


@pytest.mark.gpu
def test_one_large_element_does_not_hide_the_small_ones(gpu: Gpu) -> None:
    """Each of the squares is lost beside the first by itself, all of them are a tenth of it."""
    values = host(60_000, value=1.0)
    values["p0"][0] = 775.0
    zero = host(60_000)
    got = stopped(gpu, params_of(60_000), (values, zero, zero, zero)).param_stats(HYPER)[0]
    assert got.lanes["w"].norm == pytest.approx(math.sqrt(775.0**2 + 59_999), rel=1e-6)


@pytest.mark.gpu
def test_thousands_of_tiny_params(gpu: Gpu) -> None:
    numels = [1 + i % 9 for i in range(5_000)]
    params = [Param(f"p{i}", (n, 1) if i % 2 else (n,)) for i, n in enumerate(numels)]
    state = normal_state(params)
    stepper = stopped(gpu, params, state, max_binding=8 << 20)
    got = {p.name: p for p in stepper.param_stats(HYPER)}
    assert len(got) == 5_000
    for i in (0, 1, 2_499, 2_500, 4_999):
        name = f"p{i}"
        for lane, values in zip(LANES, state, strict=True):
            want = lane_stats(values[name])
            assert counted(got[name].lanes[lane]) == counted(want)
            assert got[name].lanes[lane].norm == pytest.approx(want.norm, rel=1e-6)
    total = merged("all", got.values())
    assert total.lanes["g"].norm == pytest.approx(stepper.grad_stats().grad_norm, rel=1e-6)


@pytest.mark.gpu
def test_the_same_bits_every_run(gpu: Gpu) -> None:
    params = params_of(100_000, 3)
    stepper = stopped(gpu, params, normal_state(params))
    first = stepper.param_stats(HYPER)
    for _ in range(3):
        again = stepper.param_stats(HYPER)
        assert [p.update for p in again] == [p.update for p in first]
        assert [[p.lanes[k].norm for k in LANES] for p in again] == [
            [p.lanes[k].norm for k in LANES] for p in first
        ]


@pytest.mark.gpu
def test_anywhere_else_in_the_step_it_says_where(gpu: Gpu) -> None:
    state = normal_state(PARAMS)
    stepper = make_stepper(gpu, PARAMS, w=state[0])
    with pytest.raises(UsageError, match="between finalize_grad_stats and the first update"):
        stepper.param_stats(HYPER)
    stepper.begin_step(HostGradients(state[1]))
    with pytest.raises(UsageError, match="between finalize_grad_stats and the first update"):
        stepper.param_stats(HYPER)
    while not stepper.plan.dispatches[stepper.cursor.dispatch].updates:
        stepper.run_dispatch(HYPER)
    assert len(stepper.param_stats(HYPER)) == len(PARAMS)
    stepper.run_dispatch(HYPER)
    with pytest.raises(UsageError, match="between finalize_grad_stats and the first update"):
        stepper.param_stats(HYPER)
    stepper.run_to_end(HYPER)
    assert not whole(stepper, "g").any()


# --- in a run


@pytest.mark.gpu
@pytest.mark.parametrize("whole_steps", [True, False])
def test_the_engine_counts_the_params_of_each_step(gpu: Gpu, whole_steps: bool) -> None:
    w, g, m, v = odd_state(PARAMS)
    engine = make_engine(gpu, PARAMS, g, w=w, m=m, v=v, finished_steps=4, hyper=HYPER, stats="full")
    plain = make_engine(gpu, PARAMS, g, w=w, m=m, v=v, finished_steps=4, hyper=HYPER)
    for step in (5, 6):
        if whole_steps:
            engine.step_iteration()
        else:
            engine.step_dispatch()
            assert engine.param_stats == ()
            while not engine.stepper.cursor.at_end:
                engine.step_dispatch()
        plain.step_iteration()
        assert [p.name for p in engine.param_stats] == [s.name for s in engine.stepper.layout]
        assert engine.record is not None
        assert plain.record is not None
        assert engine.record.step == step
        assert len(engine.record.kernels) == len(plain.record.kernels)
        assert engine.record.grad_norm == plain.record.grad_norm
    assert lanes(engine.stepper) == lanes(plain.stepper)  # type: ignore[arg-type]
    # Counting params shows more, and nothing that is seen without it is missed.
    full, light = ({(f.rule, f.step, f.severity) for f in each.take_findings()} for each in (engine, plain))
    assert light
    assert light <= full
    assert plain.param_stats == ()
    engine.undo_iteration()
    engine.step_iteration()
    assert len(engine.param_stats) == len(PARAMS)


@pytest.mark.gpu
def test_without_statistics_no_gradient_is_counted(gpu: Gpu) -> None:
    _, g, _, _ = odd_state(PARAMS)
    engine = make_engine(gpu, PARAMS, g, stats="off")
    engine.step_iteration()
    assert engine.record is not None
    assert engine.record.nonfinite.total == 0
    assert engine.take_findings() == []


@pytest.mark.gpu
def test_the_command_prints_them_for_each_param(capsys: pytest.CaptureFixture[str]) -> None:
    documents = {}
    for level in ("off", "light", "full"):
        assert run(["run", "synthetic:5000", "--steps", "2", "--stats", level, "--json"]) == 0
        documents[level] = json.loads(capsys.readouterr().out)
        assert documents[level]["stats"] == level
    norms = {level: [s["grad_norm"] for s in d["steps"]] for level, d in documents.items()}
    assert norms["off"] == norms["light"] == norms["full"]
    assert "params" not in documents["light"]["steps"][0]
    for step in documents["full"]["steps"]:
        squares = sum(p["lanes"]["g"]["norm"] ** 2 for p in step["params"])
        assert math.sqrt(squares) == pytest.approx(step["grad_norm"], rel=1e-6)
        for param in step["params"]:
            lane = param["lanes"]["g"]
            assert sum(lane["histogram"]["counts"]) + lane["zeros"] == param["numel"]
            assert lane["max_abs"] < 2.0 ** (lane["histogram"]["log2"] + len(lane["histogram"]["counts"]))
            assert 0 <= param["update"]["largest_index"] < param["numel"]
            assert "largest_at" not in param["update"]


@pytest.mark.gpu
def test_the_command_adds_them_up_for_each_block(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "charlm", "--steps", "2", "--stats", "full", "--json"]) == 0
    for step in json.loads(capsys.readouterr().out)["steps"]:
        params = {p["name"]: p for p in step["params"]}
        assert [b["name"] for b in step["blocks"]] == ["wd", "no_wd"]
        assert step["stats_ms"] is None or step["stats_ms"] > 0
        for block in step["blocks"]:
            members = [p for p in params.values() if p["block"] == block["name"]]
            assert set(members[0]) == set(block) | {"state"}
            assert block["numel"] == sum(p["numel"] for p in members)
            for lane in LANES:
                got, each = block["lanes"][lane], [p["lanes"][lane] for p in members]
                assert set(each[0]) < set(got)
                for name in ("nan", "posinf", "neginf", "zeros"):
                    assert got[name] == sum(e[name] for e in each)
                assert got["max_abs"] == max(e["max_abs"] for e in each)
                assert got["min"] == min(e["min"] for e in each)
                assert got["norm"] == pytest.approx(math.hypot(*(e["norm"] for e in each)), rel=1e-12)
            update, each = block["update"], [p["update"] for p in members]
            for name in ("below_eps", "lost", "skipped", "f16_overflows", "f16_underflows"):
                assert update[name] == sum(e[name] for e in each)
            most = params[update["largest_param"]]["update"]
            assert (most["largest"], most["largest_index"]) == (update["largest"], update["largest_index"])
            assert update["largest"] == max(e["largest"] for e in each)


@pytest.mark.gpu
def test_for_people_the_params_that_move_most_come_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "charlm", "--steps", "1", "--stats", "full"]) == 0
    out = capsys.readouterr().out
    assert "before the update of step 1, by ‖Δw‖/‖w‖" in out
    rows = [line.split() for line in out.splitlines() if ".weight" in line]
    ratios = [float(row[6]) for row in rows]
    assert len(rows) == 14
    assert ratios == sorted(ratios, reverse=True)
    assert "block no-wd" in out
    assert run(["run", "charlm", "--steps", "1"]) == 0
    assert "‖Δw‖" not in capsys.readouterr().out


# --- as a table


def test_a_table_gives_back_what_was_put_in() -> None:
    state = odd_state(PARAMS)
    each = [
        param_stats(
            p.name, p.block, {lane: values[p.name] for lane, values in zip(LANES, state, strict=True)},
            clip_scale=0.5, hyper=HYPER, step=5, start=10_000 * i,
        )
        for i, p in enumerate(PARAMS)
    ]  # fmt: skip
    table = ParamTable.of(each)
    assert_same(table, each)
    assert_same(table[1:3], each[1:3])
    assert table[-1].name == "d"
    with pytest.raises(IndexError):
        table[5]
    with pytest.raises(ValueError, match="read-only"):
        table.update.lost[0] = 1
    every, wd, no_wd = totals(table)
    assert (every.name, every.block, wd.block, no_wd.block) == ("all", None, "wd", "no_wd")
    assert (wd.numel, no_wd.numel) == (90 * 70 + 50 * 20, 7 + 0 + 1)
    assert_same([merged("none", [])], [ParamTable.of(()).merged("none")])


@pytest.mark.gpu
def test_the_level_changes_within_a_run(gpu: Gpu) -> None:
    _, g, _, _ = odd_state(PARAMS)
    engine = make_engine(gpu, PARAMS, g, stats="off")
    engine.step_iteration()
    assert engine.record is not None
    assert (engine.record.nonfinite.total, engine.counted) == (0, None)
    engine.begin()
    engine.set_stats("full")
    assert engine.record.nonfinite.total == 3, "the step has not started"
    engine.step_iteration()
    counted = engine.counted
    assert counted is not None
    assert (counted.step, len(counted.params), len(counted.totals)) == (2, len(PARAMS), 3)
    # What was counted stays until there is something newer, or the run goes back before it.
    engine.begin()
    assert engine.counted is counted
    assert engine.param_stats == ()
    engine.undo_dispatch()
    assert engine.counted is counted
    engine.undo_iteration()
    assert engine.counted is None
    engine.step_iteration()
    assert engine.counted is not None
    engine.set_stats("light")
    assert engine.counted is not None
    engine.begin()
    assert engine.counted is None
    engine.step_iteration()
    assert engine.param_stats == ()


@pytest.mark.gpu
@pytest.mark.parametrize("before", [1, 2])
def test_going_back_within_the_step_keeps_what_still_holds(gpu: Gpu, before: int) -> None:
    _, g, _, _ = odd_state(PARAMS)
    engine = make_engine(gpu, PARAMS, g, stats="full")
    engine.step_iteration()
    finalize = next(
        d.index for d in engine.stepper.plan.dispatches if d.kernel == "finalize_grad_stats"
    )  # fmt: skip
    while engine.stepper.cursor.dispatch > finalize + 2 - before:
        engine.undo_dispatch()
    assert (engine.counted is not None) == (before == 1)


@pytest.mark.parametrize(
    "limits", [{}, {"max_buffer": 49_152, "max_binding": 16_384}], ids=["one page", "pages"]
)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("small", ["f32", "8bit"])
def test_coded_moments_count_as_what_they_stand_for(
    gpu: Gpu, small: StateType, codec: Codec, limits: dict[str, int]
) -> None:
    """And the update is that of the codec: with linear codes its ratio is limited."""
    params = [*PARAMS, Param("e", (5000,), True), Param("f", (4500,))]
    w, g, m, v = normal_state(params)
    # So small that with linear codes most become 0 under an m that does not.
    v = {name: each * np.float32(1e-6) ** (np.arange(each.size) > 1) for name, each in v.items()}
    variant = Variant(kernel="8bit", codec=codec, small_state=small)
    stepper = stopped(gpu, params, (w, g, m, v), variant, **limits)
    state = stepper.state()
    got = stepper.param_stats(HYPER)
    assert {s.name for s in stepper.layout if s.state == "8bit"} >= {"a", "e", "f"}
    want = expected(stepper, (w, g, state.m, state.v))
    assert_same(got, want)
    if codec == "linear":
        decay = HYPER.weight_decay * max(np.abs(each).max(initial=0) for each in w.values())
        coded = [p.update.largest for p in got if stepper.layout[p.name].state == "8bit"]
        assert max(coded) <= 1.001 + decay


@pytest.mark.gpu
@pytest.mark.parametrize("limits", [{}, SMALL], ids=["one binding", "many bindings"])
@pytest.mark.parametrize("chunks", [65_536, 3], ids=["one submission", "many submissions"])
def test_a_part_of_the_params_is_counted_as_all_are(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int], chunks: int
) -> None:
    """At any moment, whichever params: after the update too, and where the part begins within a binding or batch."""
    monkeypatch.setattr(param_statistics, "MAX_CHUNKS", chunks)
    monkeypatch.setitem(param_statistics.CHUNK, True, 512)
    state = normal_state(PARAMS, seed=4)
    state[1]["c"][77] = np.nan
    stepper = stopped(gpu, PARAMS, state, **limits)
    for when in ("before", "after"):
        if when == "after":
            stepper.run_to_end(HYPER)
        held = stepper.state()
        values = {"w": held.w, "g": stepper.gradients(), "m": held.m, "v": held.v}
        segments = stepper.layout.segments
        for i, segment in enumerate(segments):
            for j in range(i + 1, len(segments) + 1):
                if not segment.numel:
                    continue
                stop = segments[j].offset if j < len(segments) else stepper.layout.padded_elements
                table = stepper.lane_stats(HYPER, (segment.offset, stop))
                for row in range(i, j):
                    if stop <= segments[row].offset:
                        continue
                    for lane in LANES:
                        own = lane_stats(values[lane][segments[row].name], start=segments[row].offset)
                        got = table[row].lanes[lane]
                        assert counted(got) == counted(own), (when, segment.name, segments[row].name, lane)
                        assert got.norm == pytest.approx(own.norm, rel=1e-6)
