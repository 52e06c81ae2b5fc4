"""A run under control: settings from the next step on, marks, records, findings, going back and forward exactly."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from gpu_helpers import ATOMIC, host, lanes, make_engine, make_stepper, normal_state, params_of

from inspector.errors import UsageError
from inspector.gpu.device import Gpu
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.runtime.engine import Engine
from inspector.runtime.snapshots import Mark
from inspector.schedule import Schedule
from inspector.sources.base import EndOfSourceError
from inspector.stepping import Cursor, HostGradients

pytestmark = pytest.mark.gpu

PARAMS = [Param("a", (8, 4)), Param("b", (5,))]
W, _, M, V = normal_state(PARAMS)
G = [normal_state(PARAMS, seed=i)[1] for i in range(1, 9)]


def engine_of(gpu: Gpu, **options: object) -> Engine:
    return make_engine(gpu, PARAMS, G, w=W, **options)  # type: ignore[arg-type]


def metric(engine: Engine, name: str) -> list[float]:
    return engine.history().series[name].last.tolist()


def test_a_step_is_recorded_dispatch_by_dispatch(gpu: Gpu) -> None:
    engine = engine_of(gpu, losses={1: 2.5})
    assert engine.record is None
    engine.step_dispatch()
    assert engine.record is not None
    assert (engine.record.step, engine.record.loss, engine.record.lr) == (1, 2.5, 1e-3)
    assert engine.record.grad_norm is None
    engine.step_dispatch()
    norm = math.sqrt(sum(float(np.sum(g.astype(np.float64) ** 2)) for g in G[0].values()))
    assert engine.record.grad_norm == pytest.approx(norm, rel=1e-6)
    assert len(engine.record.kernels) == 2
    assert len(engine.history()) == 0
    engine.step_iteration()
    assert [t is not None for t in engine.dispatch_times] == [True] * 4
    assert engine.stepper.cursor == Cursor(1, 4, 4)
    assert metric(engine, "loss") == [2.5]
    assert metric(engine, "grad_norm") == [engine.record.grad_norm]
    # The first run of a kernel is a cold one, whose time stands apart.
    names = {name.removeprefix("cold/").removeprefix("ms/") for name in engine.history().series}
    assert names == {
        "lr", "nonfinite", "loss", "grad_norm", "clip_scale", "reduce_norm_sq", "finalize_grad_stats",
        "adamw_update wd", "adamw_update no-wd",
    }  # fmt: skip


def test_the_source_is_asked_once_a_step_with_the_weights_of_that_moment(gpu: Gpu) -> None:
    engine = engine_of(gpu)
    for _ in range(3):
        engine.step_iteration()
        after = engine.stepper.weights()
        engine.begin()
        step, seen = engine.source.asked[-1]  # type: ignore[attr-defined]
        assert step == engine.stepper.cursor.step
        for name in ("a", "b"):
            assert seen[name].tobytes() == after[name].tobytes()
            assert seen[name].shape == engine.stepper.layout[name].param.shape
        engine.step_iteration()


def test_the_end_of_the_source_stops_it_and_keeps_the_state(gpu: Gpu) -> None:
    engine = engine_of(gpu)
    for _ in range(8):
        assert not engine.at_source_end
        engine.step_iteration()
    assert engine.at_source_end
    before = lanes(engine.stepper)
    with pytest.raises(EndOfSourceError):
        engine.step_iteration()
    assert engine.stepper.cursor == Cursor(8, 4, 4)
    assert lanes(engine.stepper) == before


# --- settings


def test_a_setting_changed_within_a_step_holds_from_the_next_one(gpu: Gpu) -> None:
    engine = engine_of(gpu)
    engine.step_iteration()
    engine.step_dispatch()
    assert engine.set_hyper("lr", 0.5) == 3
    engine.step_iteration()
    assert metric(engine, "lr") == [1e-3, 1e-3]
    assert engine.set_hyper("beta2", 0.95) == 3
    engine.step_iteration()
    assert metric(engine, "lr") == [1e-3, 1e-3, 0.5]
    assert list(engine.marks.all) == [Mark(3, "lr 0.001 → 0.5"), Mark(3, "beta2 0.999 → 0.95")]
    straight = make_stepper(gpu, PARAMS, w=W)
    for hyper, g in zip((Hyper(), Hyper(), Hyper(lr=0.5, beta2=0.95)), G, strict=False):
        straight.begin_step(engine.source.gradients(1, straight.weights).__class__(g))
        straight.run_to_end(hyper)
    assert lanes(engine.stepper) == lanes(straight)


def test_a_setting_changed_before_the_first_dispatch_holds_for_that_step(gpu: Gpu) -> None:
    engine = engine_of(gpu)
    engine.step_iteration()
    engine.begin()
    assert engine.set_hyper("lr", 0.25) == 2
    assert engine.record is not None
    assert engine.record.lr == 0.25
    assert engine.uniforms()["hp:wd"][0] == 0.25
    engine.step_iteration()
    assert metric(engine, "lr") == [1e-3, 0.25]


def test_going_back_and_forward_again_gives_the_same_bits_after_a_change_at_the_start_of_a_step(
    gpu: Gpu,
) -> None:
    engine = engine_of(gpu)
    engine.step_iteration()
    engine.begin()
    engine.set_hyper("lr", 0.25)
    engine.step_iteration()
    first = lanes(engine.stepper)
    assert engine.undo_iteration()
    assert engine.stepper.cursor == Cursor(2, 0, 4)
    engine.step_iteration()
    assert lanes(engine.stepper) == first
    assert metric(engine, "lr") == [1e-3, 0.25]


def test_a_schedule_multiplies_the_rate_and_can_be_changed(gpu: Gpu) -> None:
    engine = engine_of(gpu, schedule=Schedule(warmup=4))
    for _ in range(3):
        engine.step_iteration()
    assert engine.set_schedule("constant") == 4
    engine.step_iteration()
    assert metric(engine, "lr") == [0.00025, 0.0005, 0.00075, 0.001]
    assert list(engine.marks.all) == [Mark(4, "schedule warmup:4 → constant")]
    with pytest.raises(UsageError, match="not a learning-rate schedule"):
        engine.set_schedule("linear")


def test_what_is_changed_and_undone_before_a_step_leaves_no_mark(gpu: Gpu) -> None:
    engine = engine_of(gpu)
    engine.step_iteration()
    engine.set_hyper("lr", 0.5)
    engine.set_variant(ATOMIC)
    engine.set_schedule("warmup:4")
    engine.set_hyper("lr", 0.25)
    assert [m.text for m in engine.marks.all] == [
        "reduce two-pass → atomic", "schedule constant → warmup:4", "lr 0.001 → 0.25",
    ]  # fmt: skip
    engine.set_hyper("lr", 1e-3)
    engine.set_schedule("constant")
    engine.set_variant(replace(ATOMIC, reduce="two-pass"))
    assert engine.marks.all == ()
    engine.set_hyper("lr", 0.5)
    engine.step_iteration()
    engine.set_hyper("lr", 1e-3)
    assert engine.marks.all == (Mark(2, "lr 0.001 → 0.5"), Mark(3, "lr 0.5 → 0.001")), "a step took it"


def test_a_value_nobody_can_mean_changes_nothing(gpu: Gpu) -> None:
    engine = engine_of(gpu)
    with pytest.raises(UsageError, match="--beta1"):
        engine.set_hyper("beta1", 1.5)
    assert engine.hyper == Hyper()
    assert not engine.marks.all


def test_another_form_runs_from_the_next_step_on_and_is_marked(gpu: Gpu) -> None:
    engine = engine_of(gpu)
    engine.step_dispatch()
    with pytest.raises(UsageError, match="finish this one"):
        engine.set_variant(ATOMIC)
    engine.step_iteration()
    engine.set_variant(ATOMIC)
    assert list(engine.marks.all) == [Mark(2, "reduce two-pass → atomic")]
    engine.step_iteration()
    assert len(engine.dispatch_times) == 4
    assert engine.stepper.cursor == Cursor(2, 4, 4)


# --- going back


def test_states_from_before_another_form_lead_nowhere_past_it(gpu: Gpu) -> None:
    engine = engine_of(gpu)
    engine.step_iteration()
    engine.step_iteration()
    before = engine.way_to(1)
    assert before is not None
    engine.set_variant(ATOMIC)
    engine.step_iteration()
    assert engine.way_to(2) is not None
    # Neither what it began with nor any copy from before: the steps from there ran in the other form.
    assert (engine.way_to(1), engine.way_to(0)) == (None, None)


def test_a_state_that_is_put_back_has_gradients_of_zero(gpu: Gpu) -> None:
    stepper = engine_of(gpu).stepper
    before = stepper.state()
    stepper.begin_step(HostGradients(G[0]))
    stepper.restore(before)
    assert stepper.cursor == Cursor(0, 4, 4)
    assert {name: values.any() for name, values in stepper.gradients().items()} == {"a": False, "b": False}


def test_undo_takes_history_and_record_back_with_it(gpu: Gpu) -> None:
    engine = engine_of(gpu, losses={i: float(i) for i in range(1, 9)})
    for _ in range(4):
        engine.step_iteration()
    assert metric(engine, "loss") == [1, 2, 3, 4]
    assert engine.undo_dispatch()
    assert engine.stepper.cursor == Cursor(4, 3, 4)
    assert metric(engine, "loss") == [1, 2, 3]
    assert engine.record is not None
    assert (engine.record.step, engine.record.loss, len(engine.record.kernels)) == (4, 4.0, 3)
    assert engine.record.grad_norm is not None
    assert engine.undo_dispatch()
    assert engine.undo_dispatch()
    assert (engine.record.grad_norm, engine.record.clip_scale) == (None, None)
    assert engine.undo_iteration()
    assert engine.stepper.cursor == Cursor(4, 0, 4)
    assert engine.undo_iteration()
    assert engine.stepper.cursor == Cursor(3, 0, 4)
    assert metric(engine, "loss") == [1, 2]
    assert engine.rewind_to(1)
    assert metric(engine, "loss") == [1]
    assert engine.record.step == 1
    assert engine.dispatch_times.count(None) == 0
    assert not engine.rewind_to(7)


@pytest.mark.parametrize("moments", [False, True])
def test_any_way_back_and_forward_ends_with_the_same_bits(gpu: Gpu, moments: bool) -> None:
    state = {"m": M, "v": V, "finished_steps": 10} if moments else {}
    start = state.get("finished_steps", 0)
    steps = [G[0]] * start + G

    def make() -> Engine:
        return make_engine(gpu, PARAMS, steps, w=W, **state)  # type: ignore[arg-type]

    straight = make()
    ends = []
    for _ in range(8):
        straight.step_iteration()
        ends.append(lanes(straight.stepper))
    engine = make()
    rng = np.random.default_rng(4)
    for _ in range(60):
        move = rng.integers(0, 5)
        if move == 0:
            engine.undo_dispatch()
        elif move == 1:
            engine.undo_iteration()
        elif not engine.at_source_end:
            engine.step_dispatch() if move == 2 else engine.step_iteration()
        cursor = engine.stepper.cursor
        assert len(engine.history()) == cursor.finished_steps - start
        if cursor.at_end and cursor.step > start:
            assert lanes(engine.stepper) == ends[cursor.step - start - 1]
            assert engine.record is not None
            assert engine.record.step == cursor.step
    while not engine.at_source_end:
        engine.step_iteration()
    assert lanes(engine.stepper) == ends[-1]
    np.testing.assert_array_equal(metric(engine, "grad_norm"), metric(straight, "grad_norm"))


# --- findings and recovery


def test_findings_are_told_once_and_forgotten_when_the_run_goes_back_before_them(gpu: Gpu) -> None:
    bad = [dict(g) for g in G]
    bad[2] = {"a": np.full(32, np.nan, np.float32), "b": G[2]["b"]}
    engine = make_engine(gpu, PARAMS, bad, w=W)
    for _ in range(4):
        engine.step_iteration()
    assert [(f.rule, f.step) for f in engine.findings] == [("nonfinite-gradient", 3)]
    assert engine.undo_iteration()
    assert engine.undo_iteration()
    engine.step_iteration()
    assert [(f.rule, f.step) for f in engine.findings] == [("nonfinite-gradient", 3)]
    assert engine.rewind_to(2)
    assert not engine.findings
    engine.step_iteration()
    assert [f.step for f in engine.take_findings()] == [3]
    assert not engine.findings


def test_a_finding_about_a_setting_is_told_once_and_again_after_going_back_before_it(gpu: Gpu) -> None:
    engine = engine_of(gpu, hyper=Hyper(max_grad_norm=0.0))
    for _ in range(3):
        engine.step_iteration()
    assert [(f.rule, f.step) for f in engine.findings] == [("invalid-max-grad-norm", 1)]
    assert engine.rewind_to(0)
    assert not engine.findings
    engine.step_iteration()
    assert [(f.rule, f.step) for f in engine.findings] == [("invalid-max-grad-norm", 1)]
    engine.set_hyper("max_grad_norm", 1.0)
    engine.step_iteration()
    engine.set_hyper("max_grad_norm", 0.0)
    engine.step_iteration()
    assert [f.step for f in engine.findings] == [1, 3]


def test_a_lost_device_costs_no_complete_step(gpu: Gpu) -> None:
    """The steps since the last copy run again, each with the settings it had."""
    engine, straight = engine_of(gpu), engine_of(gpu)
    for each in (engine, straight):
        each.step_iteration()
        each.checkpoints._made_at = math.inf
        each.step_iteration()
        each.set_hyper("lr", 0.25)
        each.step_iteration()
    assert engine.checkpoint is not None
    kept = engine.checkpoint
    assert kept.finished_steps == 1
    engine.step_dispatch()
    fresh = make_stepper(gpu, PARAMS, w=kept.w, m=kept.m, v=kept.v, finished_steps=kept.finished_steps)
    engine.recover(fresh)
    assert engine.stepper.cursor == Cursor(3, 4, 4)
    assert list(engine.history().first) == [1, 2, 3]
    assert list(engine.history().series["lr"].last) == [0.001, 0.001, 0.25]
    assert (
        engine.record == replace(straight.record, kernels=engine.record.kernels) if engine.record else False
    )
    assert lanes(engine.stepper) == lanes(straight.stepper)


def test_a_device_lost_long_after_the_last_copy_goes_on_from_it(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inspector.runtime.engine.MAX_CATCH_UP", 2)
    engine = engine_of(gpu)
    engine.step_iteration()
    kept = engine.checkpoint
    assert kept is not None
    engine.checkpoints._made_at = math.inf
    for _ in range(3):
        engine.step_iteration()
    engine.recover(make_stepper(gpu, PARAMS, w=kept.w, m=kept.m, v=kept.v, finished_steps=1))
    assert engine.stepper.cursor == Cursor(1, 4, 4)
    assert list(engine.history().first) == [1]


def test_a_copy_from_the_future_is_not_kept_when_the_run_goes_back(gpu: Gpu) -> None:
    engine = engine_of(gpu)
    engine.checkpoints._made_at = math.inf
    for _ in range(3):
        engine.step_iteration()
    engine.checkpoints._made_at = -math.inf
    engine.step_iteration()
    assert engine.checkpoint is not None
    assert engine.rewind_to(2)
    assert engine.checkpoint is None


def test_uniforms_show_the_step_at_the_cursor(gpu: Gpu) -> None:
    engine = make_engine(gpu, params_of(3), host(3), w=host(3))
    assert engine.uniforms()["bias"][0] == pytest.approx(0.9, rel=1e-7)
    engine.step_iteration()
    engine.begin()
    values = engine.uniforms()
    assert values["bias"][0] == pytest.approx(0.81, rel=1e-7)
    assert values["max_grad_norm"] == (1.0,)
    assert values["hp:no_wd"][3] == 0.0
    with pytest.raises(TypeError):
        values["bias"] = (1.0,)  # type: ignore[index]
