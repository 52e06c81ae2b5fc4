"""A second run in lockstep: the same gradients and settings, forward and back, what it costs and why it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from gpu_helpers import F32, make_engine, make_stepper, normal_state
from test_worker import Opener, Watched

from inspector.codecs import CODECS, Codec
from inspector.coding_error import merged_error
from inspector.drift import drift_between
from inspector.errors import InspectorError
from inspector.gpu.device import Gpu
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.plan import Variant
from inspector.runtime import commands as c
from inspector.runtime.engine import Engine
from inspector.runtime.lockstep import METRICS, Asked, EightBit, companion_variant
from inspector.runtime.snapshots import Snapshot
from inspector.schedule import Schedule
from inspector.stepping import HostGradients

pytestmark = pytest.mark.gpu

PARAMS = [Param("a", (97, 64)), Param("norm", (300,)), Param("b", (5000,), True)]
W, _, M, V = normal_state(PARAMS)
G = [normal_state(PARAMS, seed=i)[1] for i in range(1, 12)]
EIGHT = Variant(kernel="8bit", codec="dynamic")
Moments = dict[str, F32]
HYPER = Hyper(weight_decay=0.1, lr=1e-2)


def engine_of(gpu: Gpu, **options: object) -> Engine:
    given = {"m": M, "v": V, **options}
    return make_engine(gpu, PARAMS, G, w=W, hyper=HYPER, **given)  # type: ignore[arg-type]


def with_lockstep(gpu: Gpu, codec: Codec = "dynamic", **options: object) -> Engine:
    engine = engine_of(gpu, **options)
    engine.begin()
    engine.eight_bit.start(engine.stepper, Asked(codec))
    return engine


def second(engine: Engine) -> GpuStepper:
    assert isinstance(engine.eight_bit.companion, GpuStepper)
    return engine.eight_bit.companion


def weights(stepper: GpuStepper) -> bytes:
    return b"".join(stepper.weights()[p.name].tobytes() for p in PARAMS)


def alone(
    gpu: Gpu, variant: Variant, steps: int, hypers: Callable[[int], Hyper], m: Moments = M, v: Moments = V
) -> GpuStepper:
    """What the second run has to be: a run of its own on the same gradients."""
    stepper = make_stepper(gpu, PARAMS, variant, w=W, m=m, v=v)
    for t in range(1, steps + 1):
        stepper.begin_step(HostGradients(G[t - 1]))
        stepper.run_to_end(hypers(t))
    return stepper


def metric(engine: Engine, name: str) -> list[float]:
    return engine.history().series[name].last.tolist()


@pytest.mark.parametrize("codec", CODECS)
def test_the_second_run_is_one_of_its_own_on_the_same_gradients(gpu: Gpu, codec: Codec) -> None:
    engine = with_lockstep(gpu, codec)
    for _ in range(3):
        engine.step_iteration()
    other = alone(gpu, Variant(kernel="8bit", codec=codec), 3, lambda t: HYPER)
    assert weights(second(engine)) == weights(other)
    assert weights(engine.stepper) == weights(alone(gpu, Variant(), 3, lambda t: HYPER))  # type: ignore[arg-type]


def test_settings_and_schedule_hold_for_both(gpu: Gpu) -> None:
    engine = with_lockstep(gpu, schedule=Schedule.from_text("warmup:4"))
    engine.step_iteration()
    engine.set_hyper("lr", 0.05)
    engine.step_iteration()
    lrs = [HYPER.lr / 4, 0.05 / 2]
    assert engine.schedule.factor(1) == 0.25
    other = alone(gpu, EIGHT, 2, lambda t: replace(HYPER, lr=lrs[t - 1]))
    assert weights(second(engine)) == weights(other)


def test_each_step_goes_into_the_history(gpu: Gpu) -> None:
    engine = with_lockstep(gpu)
    start = {name: values.copy() for name, values in engine.stepper.weights().items()}
    for _ in range(3):
        engine.step_iteration()
    one, other = engine.stepper.weights(), second(engine).weights()
    want = drift_between(start, one, other, 3)
    assert metric(engine, "lockstep/drift")[-1] == pytest.approx(want.relative, rel=1e-5)
    assert metric(engine, "lockstep/largest")[-1] == pytest.approx(want.max_abs, rel=1e-6)
    drifts = metric(engine, "lockstep/drift")
    assert drifts[0] < drifts[1] < drifts[2]
    picture = engine.eight_bit.picture(engine.stepper)
    total = merged_error(picture.coding)
    assert metric(engine, "coding/m")[-1] == total.m.relative
    assert metric(engine, "coding/v")[-1] == total.v.relative
    assert metric(engine, "coding/lost")[-1] == total.lost
    # The dynamic map is within a few percent of m, and of v.
    assert 0 < total.m.relative < 0.1
    assert 0 < total.v.relative < 0.1
    assert set(METRICS) <= set(engine.history().series)
    assert (picture.drift_step, picture.coding_step, picture.since) == (3, 3, 0)
    assert (picture.primary, picture.companion, picture.codec) == ("f32", "8bit", "dynamic")
    # Where the device has a clock, so have the steps beside.
    assert (picture.ms is None) != engine.stepper.device.timestamps
    assert {e.name for e in picture.coding} == {"a", "b"}
    assert [d.name for d in picture.drift] == [s.name for s in engine.stepper.layout]


def test_without_it_nothing_is_measured_and_nothing_allocated(gpu: Gpu) -> None:
    engine = engine_of(gpu)
    engine.step_iteration()
    assert not set(METRICS) & set(engine.history().series)
    picture = engine.eight_bit.picture(engine.stepper)
    assert (picture.companion, picture.drift, picture.coding) == (None, (), ())
    assert picture.f32_bytes is not None
    assert picture.coded_bytes is not None
    assert picture.coded_bytes.allocated is None
    n = sum(p.numel for p in PARAMS)
    assert picture.f32_bytes.total == 16 * n
    assert picture.coded_bytes.total < 10.5 * n
    assert engine.eight_bit.picture(engine.stepper) is picture, "made once while nothing changes"


@pytest.mark.parametrize("start", [0, 2])
def test_it_can_start_and_stop_at_any_step(gpu: Gpu, start: int) -> None:
    engine = engine_of(gpu)
    for _ in range(start):
        engine.step_iteration()
    before = engine.stepper.memory_bytes
    engine.eight_bit.start(engine.stepper, Asked("linear"))
    assert engine.eight_bit.picture(engine.stepper).since == start
    assert metric_of_drift(engine) == 0
    engine.step_iteration()
    assert metric_of_drift(engine) > 0
    engine.eight_bit.stop()
    assert engine.eight_bit.picture(engine.stepper).companion is None
    assert engine.stepper.memory_bytes <= before + (1 << 20)
    engine.step_iteration()
    assert len(engine.history()) == start + 2


def metric_of_drift(engine: Engine) -> float:
    total = engine.eight_bit.picture(engine.stepper).drift_total
    assert total is not None
    return total.relative


def test_asked_for_within_a_step_it_starts_at_its_end(gpu: Gpu) -> None:
    engine = engine_of(gpu)
    engine.step_dispatch()
    engine.eight_bit.start(engine.stepper, Asked("sqrt"))
    picture = engine.eight_bit.picture(engine.stepper)
    assert (picture.waiting, picture.companion) == (True, None)
    engine.step_iteration()
    picture = engine.eight_bit.picture(engine.stepper)
    assert (picture.waiting, picture.companion, picture.since) == (False, "8bit", 1)
    engine.step_iteration()
    assert metric_of_drift(engine) > 0


def test_beside_8_bit_state_runs_float32(gpu: Gpu) -> None:
    # From zero: another state is coded when it is loaded, and float32 goes on from what the codes stand for.
    engine = with_lockstep(gpu, "linear", variant=EIGHT, m=None, v=None)
    for _ in range(2):
        engine.step_iteration()
    picture = engine.eight_bit.picture(engine.stepper)
    assert (picture.primary, picture.companion, picture.codec) == ("8bit", "f32", "dynamic")
    assert weights(second(engine)) == weights(alone(gpu, Variant(), 2, lambda t: HYPER, {}, {}))
    # Seen from the other side: the same errors and, beside the other weights, the same drift.
    other = with_lockstep(gpu, m=None, v=None)
    for _ in range(2):
        other.step_iteration()
    assert metric(engine, "coding/v") == metric(other, "coding/v")
    assert metric(engine, "lockstep/largest") == pytest.approx(metric(other, "lockstep/largest"), rel=1e-6)


def test_errors_of_an_8_bit_run_need_no_second_one_but_somebody_who_looks(gpu: Gpu) -> None:
    engine = engine_of(gpu, variant=EIGHT)
    engine.step_iteration()
    assert "coding/m" not in engine.history().series
    engine.eight_bit.look("b", watched=True)
    engine.step_iteration()
    engine.eight_bit.refresh(running=False)
    picture = engine.eight_bit.picture(engine.stepper)
    assert (picture.companion, picture.coding_step) == (None, 2)
    assert metric(engine, "coding/m")[-1] > 0
    assert picture.blocks is not None
    assert (picture.blocks.param, picture.blocks.blocks, picture.blocks.group) == ("b", 20, 1)
    worst = next(e for e in picture.coding if e.name == "b")
    assert picture.blocks.v.max() == np.float32(worst.v.worst_block_rms)
    engine.eight_bit.look("norm", watched=True)
    engine.eight_bit.refresh(running=False)
    assert engine.eight_bit.picture(engine.stepper).blocks is None, "norm has no codes"


def test_it_goes_back_with_the_first_run_byte_for_byte(gpu: Gpu) -> None:
    engine = with_lockstep(gpu)
    after: list[bytes] = [weights(second(engine))]
    for _ in range(4):
        engine.step_iteration()
        after.append(weights(second(engine)))
    drifts = metric(engine, "lockstep/drift")
    assert engine.undo_dispatch()
    assert second(engine).cursor.finished_steps == 3, "within step 4 it stands at its start"
    assert weights(second(engine)) == after[3]
    assert engine.undo_iteration()
    assert engine.undo_iteration()
    assert (engine.stepper.cursor.step, second(engine).cursor.step) == (3, 3)
    assert weights(second(engine)) == after[2]
    assert metric_of_drift(engine) == pytest.approx(drifts[1], rel=1e-6)
    assert engine.rewind_to(1)
    assert weights(second(engine)) == after[1]
    assert metric(engine, "lockstep/drift") == drifts[:1]
    for _ in range(3):
        engine.step_iteration()
    assert weights(second(engine)) == after[4]
    assert metric(engine, "lockstep/drift") == drifts
    assert metric(engine, "coding/v")[0] > 0


def test_where_its_memory_does_not_reach_it_ends_and_says_so(gpu: Gpu) -> None:
    engine = engine_of(gpu)
    engine.step_iteration()
    engine.step_iteration()
    engine.eight_bit.start(engine.stepper, Asked("linear"))
    engine.step_iteration()
    assert engine.rewind_to(1)
    picture = engine.eight_bit.picture(engine.stepper)
    assert picture.companion is None
    assert "does not reach back to step 1" in picture.message
    assert engine.eight_bit.said == picture.message
    engine.step_iteration()
    engine.eight_bit.start(engine.stepper, Asked("linear"))
    assert engine.eight_bit.picture(engine.stepper).message == ""


def test_another_form_of_the_first_run_is_taken_by_the_second(gpu: Gpu) -> None:
    engine = with_lockstep(gpu)
    engine.step_iteration()
    engine.set_variant(Variant(numerics="precise"))
    assert second(engine).plan.variant == Variant(kernel="8bit", codec="dynamic", numerics="precise")
    engine.step_iteration()
    assert metric_of_drift(engine) > 0
    engine.set_variant(Variant(dispatch="per-tensor"))
    assert engine.eight_bit.companion is None, "codes are bound alone there: laid out anew"
    assert "change of form" in engine.eight_bit.picture(engine.stepper).message


def test_what_goes_wrong_in_the_second_run_does_not_end_the_first(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = with_lockstep(gpu)

    def fail(hyper: Hyper) -> None:
        raise InspectorError("The GPU ran out of memory.")

    monkeypatch.setattr(second(engine), "run_to_end", fail)
    engine.step_iteration()
    assert engine.stepper.cursor.at_end
    assert len(engine.history()) == 1
    assert engine.eight_bit.picture(engine.stepper).message == "Lockstep ended: The GPU ran out of memory."


@pytest.mark.parametrize(
    "variant",
    [
        Variant(kernel="f16"),
        Variant(reduce="atomic", grid="published"),
        Variant(dispatch="single", fused=False),
        Variant(optimizer="adam-l2", dispatch="per-tensor"),
        Variant(kernel="8bit", codec="sqrt", small_state="8bit"),
    ],
    ids=["f16", "published", "passes", "L2", "8bit"],
)
def test_forms_that_a_second_run_goes_with(gpu: Gpu, variant: Variant) -> None:
    engine = with_lockstep(gpu, "sqrt", variant=variant)
    for _ in range(2):
        engine.step_iteration()
    assert 0 < metric(engine, "lockstep/drift")[-1] < 0.1
    assert metric(engine, "coding/m")[-1] > 0
    wanted = companion_variant(variant, Asked("sqrt"))
    assert second(engine).plan.variant == wanted


def test_dispatch_by_dispatch_gives_the_same(gpu: Gpu) -> None:
    one, other = with_lockstep(gpu, variant=EIGHT), with_lockstep(gpu, variant=EIGHT)
    one.step_iteration()
    while not other.stepper.cursor.at_end:
        other.step_dispatch()
    for name in METRICS:
        if name != "lockstep/ms":
            assert metric(one, name) == metric(other, name)


def test_at_level_full_params_and_errors_are_both_counted(gpu: Gpu) -> None:
    engine = with_lockstep(gpu, stats="full")
    engine.step_iteration()
    assert len(engine.param_stats) == len(PARAMS)
    assert metric(engine, "coding/m")[0] > 0


def test_nothing_is_read_of_blocks_while_nobody_looks() -> None:
    eight_bit = EightBit()
    eight_bit.look("a", watched=False)
    eight_bit.refresh(running=False)  # would fail: nothing is there to read


# --- through the worker


def test_started_watched_and_stopped_by_commands() -> None:
    watched = Watched(Opener())
    try:
        watched.at(1, 0)
        for command in (
            c.StartLockstep("sqrt", "8bit"), c.ViewEightBit("a"), c.StepIteration(), c.StepIteration()
        ):  # fmt: skip
            watched.worker.send(command)
        shown = watched.until(lambda s: _drift_step(s) == 2)
        assert shown.eight_bit is not None
        assert (shown.eight_bit.codec, shown.eight_bit.companion) == ("sqrt", "8bit")
        assert [e.name for e in shown.eight_bit.coding] == ["a", "b"]
        assert shown.eight_bit.blocks is not None
        assert shown.eight_bit.blocks.blocks == 1
        watched.worker.send(c.StopLockstep())
        shown = watched.until(lambda s: s.eight_bit is not None and s.eight_bit.companion is None)
        assert shown.mode == "paused"
        assert shown.notice is None
    finally:
        assert watched.worker.close(20)


def _drift_step(snapshot: Snapshot) -> int | None:
    return snapshot.eight_bit.drift_step if snapshot.eight_bit else None


def test_a_new_layout_ends_it_with_a_notice() -> None:
    watched = Watched(Opener())
    try:
        watched.at(1, 0)
        watched.worker.send(c.StartLockstep("linear"))
        watched.worker.send(c.SetVariant(Variant(kernel="8bit")))
        shown = watched.until(lambda s: s.plan is not None and s.plan.variant.kernel == "8bit")
        shown = watched.until(lambda s: s.notice is not None)
        assert shown.notice is not None
        assert "Lockstep ended with the old device" in shown.notice.text
        watched.worker.send(c.StartLockstep("linear"))
        watched.worker.send(c.StepIteration())
        shown = watched.until(lambda s: _drift_step(s) == 1)
        assert shown.eight_bit is not None
        assert shown.eight_bit.companion == "f32"
    finally:
        assert watched.worker.close(20)
