"""Kernels edited while a run stands: checked by line, run again from one state, held against before and float64."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gpu_helpers import everything, make_engine, normal_state
from own_wgsl import FINALIZE, NORM, UPDATE, write
from test_worker import Opener, Watched

from inspector.cli.window import RunOpener
from inspector.errors import UsageError
from inspector.gpu.device import Gpu
from inspector.hyper import Hyper
from inspector.kernel_slots import KERNEL_SLOTS
from inspector.layout import Param
from inspector.optimizers.adamw.oracle import update
from inspector.own_kernels import OwnKernel, OwnKernels
from inspector.own_shaders import MAX_FILE_BYTES, load_own_kernels
from inspector.plan import Variant
from inspector.runtime import commands as c
from inspector.runtime.engine import Engine
from inspector.runtime.shaders import Shaders
from inspector.shader_edit import built_in_text, edited_file, fixed, kernels_of, read_edited, starting_text
from inspector.shader_trial import LaneSum, ShaderTrial, shares

ROOT = Path(__file__).parent.parent


def own_kernel(entry_point: str, text: str) -> OwnKernel:
    kernel, messages = read_edited(entry_point, text)
    assert kernel is not None, messages
    return kernel


PARAMS = [Param("a", (30, 50)), Param("b", (71,)), Param("c", (1,))]
OWN_FINALIZE = Variant(own=OwnKernels((own_kernel("finalize_grad_stats", FINALIZE),)))
WRONG = UPDATE.replace("- update;", "- 2.0 * update;")


def test_what_is_wrong_with_a_text_is_told_by_line() -> None:
    _, messages = read_edited("adamw_update", UPDATE.replace("binding(3)", "binding(2)"))
    assert [m.line for m in messages] == [5, UPDATE[: UPDATE.index("fn adamw_update")].count("\n") + 1]
    assert "both 'm' and 'v' at slot 2" in messages[0].text
    kernel, messages = read_edited("finalize_grad_stats", UPDATE)
    assert kernel is None
    assert (messages[0].line, messages[0].text) == (
        1, "a compute entry point finalize_grad_stats is wanted, and it has adamw_update",
    )  # fmt: skip
    assert read_edited("adamw_update", "\n\0")[1][0].line == 2
    assert "over the" in read_edited("adamw_update", " " * (MAX_FILE_BYTES + 1))[1][0].text
    deep = "fn x() {\n" + "(" * 100
    assert read_edited("adamw_update", deep)[1][0].place == "2"
    assert read_edited("adamw_update", "")[1][0].place == "1"
    kernel, messages = read_edited("adamw_update", UPDATE)
    assert messages == ()
    assert kernel is not None
    assert kernel.file == edited_file("adamw_update")


def test_of_more_elements_than_are_compared_each_param_has_its_share() -> None:
    assert shares([10, 20, 30], 60) == [10, 20, 30]
    assert shares([1, 1000, 3000], 400) == [1, 99, 299]


def test_a_lane_adds_up_what_differs_and_where() -> None:
    total = LaneSum("w")
    one, step = np.float32(1), np.float32(2.0**-23)
    given = np.ones(3, np.float32)
    before = np.array([one, one, one])
    now = np.array([one, one + 3 * step, one + step])
    total.add("a", 5, given, before, now, np.array([1.0, 1.0 + 2.0**-23, 1.0]))
    row = total.row
    assert (row.elements, row.changed, row.apart_ulp) == (3, 2, 3.0)
    assert (row.param, row.index, row.before, row.now) == ("a", 6, 1.0, float(one + 3 * step))
    # float64 rounds to 1 + 2⁻²³: the kernel before is one away, the edited one two.
    assert (row.error_before, row.error_now) == (1.0, 2.0)
    total.add("b", 0, given[:1], before[:1], np.array([np.nan], np.float32), None)
    assert (total.row.param, total.row.apart_ulp) == ("b", math.inf)
    assert math.isnan(total.row.exact)


# --- on a device


def started(gpu: Gpu, variant: Variant | None = None, dispatches: int = 0) -> Engine:
    """In its second step, so many dispatches into it."""
    w, g, m, v = normal_state(PARAMS)
    engine = make_engine(gpu, PARAMS, g, w=w, m=m, v=v, finished_steps=4, variant=variant)
    engine.step_iteration()
    engine.begin()
    for _ in range(dispatches):
        engine.step_dispatch()
    return engine


def put(engine: Engine, entry_point: str, text: str | None, shaders: Shaders | None = None) -> ShaderTrial:
    shaders = shaders or Shaders()
    shaders.put(engine, entry_point, text)
    assert shaders.picture.trial is not None, shaders.picture.check
    return shaders.picture.trial


_PASSES = ("scale", "fill_zero")
EDITABLE = [
    (entry, variant)
    for variant, entries in (
        (Variant(), ("adamw_update", "finalize_grad_stats")),
        (OWN_FINALIZE, ("adamw_update", "finalize_grad_stats", "reduce_norm_sq_final")),
        (Variant(kernel="f16", fused=False), ("adamw_update", "cast_f32_to_f16", *_PASSES)),
        (Variant(kernel="f16"), ("adamw_update_f16",)),
        (Variant(kernel="8bit", codec="dynamic", small_state="8bit"), ("adamw_8bit_update",)),
        (Variant(numerics="precise", optimizer="adam-l2", dispatch="single"), ("adamw_update",)),
    )
    for entry in entries
]


@pytest.mark.gpu
@pytest.mark.parametrize(("entry", "variant"), EDITABLE)
def test_the_text_that_an_edit_starts_from_gives_the_bits_of_the_built_in_kernel(
    gpu: Gpu, entry: str, variant: Variant
) -> None:
    engine = started(gpu, variant)
    dispatch = next(d for d in kernels_of(engine.stepper.plan) if d.entry_point == entry)
    assert fixed(dispatch) == ""
    engine.finish_step()
    before = everything(engine.stepper)
    trial = put(engine, entry, starting_text(dispatch))
    assert engine.stepper.cursor.at_end
    after = everything(engine.stepper)
    # The sum is in one number where finalize_grad_stats is an edit, and in a buffer of its own.
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) <= {"norm_sq"}
    assert trial.changed == 0
    assert all(
        (row.changed == 0 and row.error_before == row.error_now) or math.isnan(row.error_now)
        for row in trial.rows
    )
    assert engine.stepper.plan.variant.own.get(entry) is not None


def test_every_kernel_that_can_be_replaced_has_a_text_to_start_from() -> None:
    for entry in KERNEL_SLOTS:
        kernel, messages = read_edited(entry, built_in_text(entry, entry))
        assert messages == ()
        assert kernel is not None


@pytest.mark.gpu
@pytest.mark.parametrize("dispatches", [0, 2, 3, 4, 5])
def test_an_edit_runs_the_step_again_from_the_same_state_and_stands_where_it_stood(
    gpu: Gpu, dispatches: int
) -> None:
    engine = started(gpu, dispatches=min(dispatches, 5))
    stepper, at = engine.stepper, engine.stepper.cursor
    before = {lane: stepper.read(lane, 0, stepper.layout.padded_elements) for lane in ("w", "m", "v")}
    trial = put(engine, "adamw_update", WRONG)
    assert stepper.cursor == at
    rows = {row.lane: row for row in trial.rows}
    assert (rows["m"].changed, rows["v"].changed, rows["g"].changed) == (0, 0, 0)
    total = sum(p.numel for p in PARAMS)
    assert (trial.elements, trial.of) == (total, total)
    # An update of twice the size: all weights differ, and lie one update from float64.
    assert rows["w"].changed > 0.99 * total
    assert rows["w"].error_before <= 2
    assert rows["w"].error_now == pytest.approx(rows["w"].apart_ulp, abs=2)
    worst = rows["w"]
    assert abs((worst.now - worst.exact) - (worst.now - worst.before)) <= 2e-7
    if dispatches == 0:
        same = {lane: stepper.read(lane, 0, stepper.layout.padded_elements) for lane in ("w", "m", "v")}
        assert all(np.array_equal(before[lane], same[lane]) for lane in before)
        engine.finish_step()
    # The buffers are what the edited kernel makes of the step, worked out here by the oracle.
    if engine.stepper.cursor.at_end:
        w, g, m, v = normal_state(PARAMS)
        name = "a"
        first = update(
            w[name], g[name], m[name], v[name], scale=_scale(g), hyper=Hyper(), step=5, decays=True
        )
        args = [np.asarray(x, np.float32) for x in (first.w, g[name], first.m, first.v)]
        second = update(*args, scale=_scale(g), hyper=Hyper(), step=6, decays=True)
        doubled = args[0] - 2 * (args[0] - np.asarray(second.w))
        np.testing.assert_allclose(stepper.state().w[name], doubled, atol=1e-6)


def _scale(g: dict[str, np.ndarray]) -> float:
    norm = math.sqrt(sum(float(np.sum(x.astype(np.float64) ** 2)) for x in g.values()))
    return min(1.0, 1.0 / norm)


@pytest.mark.gpu
def test_going_back_reaches_as_far_as_before_an_edit_and_reverting_gives_the_bits_back(gpu: Gpu) -> None:
    engine = started(gpu)
    start = everything(engine.stepper)
    engine.finish_step()
    end = everything(engine.stepper)
    shaders = Shaders()
    put(engine, "adamw_update", WRONG, shaders)
    assert everything(engine.stepper) != end
    shaders.put(engine, "adamw_update", None)
    assert everything(engine.stepper) == end
    assert not engine.stepper.plan.variant.own
    assert engine.undo_iteration()
    assert everything(engine.stepper) == start
    assert engine.undo_iteration(), "the step before the edit is still reached"
    assert engine.stepper.cursor.step == 5


@pytest.mark.gpu
def test_a_text_that_does_not_compile_leaves_run_and_kernel_as_they_were(gpu: Gpu) -> None:
    engine = started(gpu, dispatches=4)
    shaders = Shaders()
    put(engine, "adamw_update", WRONG, shaders)
    at, before = engine.stepper.cursor, everything(engine.stepper)
    bad = WRONG.replace("2.0 * update", "2.0 * updat")
    shaders.put(engine, "adamw_update", bad)
    check = shaders.picture.check
    assert check is not None
    line = bad[: bad.index("2.0 * updat")].count("\n") + 1
    assert [(m.line, "updat" in m.text) for m in check.messages] == [(line, True)]
    assert check.messages[0].column > 0
    assert "at:" not in check.messages[0].text
    assert (engine.stepper.cursor, everything(engine.stepper)) == (at, before)
    own = engine.stepper.plan.variant.own.get("adamw_update")
    assert own is not None
    assert own.source == WRONG
    # A form that it declares no constant for is told as well.
    assert shaders.check(started(gpu, Variant(numerics="precise")), "adamw_update", UPDATE) is None
    assert "--numerics precise" in shaders.picture.check.messages[0].text


@pytest.mark.gpu
def test_another_norm_is_held_against_before_and_float64(gpu: Gpu) -> None:
    engine = started(gpu, dispatches=4)
    at = engine.stepper.cursor
    shaders = Shaders()
    trial = put(
        engine, "reduce_norm_sq", NORM.replace("grads[i] * grads[i]", "2.0 * grads[i] * grads[i]"), shaders
    )
    norm, scale = trial.rows
    g = normal_state(PARAMS)[1]
    exact = 1 / _scale(g)
    assert (norm.lane, scale.lane) == ("gradNorm", "clipScale")
    assert norm.exact == pytest.approx(max(exact, 0), rel=1e-6) or exact == 1
    assert norm.now == pytest.approx(math.sqrt(2) * norm.before, rel=1e-6)
    assert norm.error_before <= 4 < norm.error_now
    # The step stands behind the same dispatch, of which there are fewer before it now.
    now = engine.stepper.cursor
    assert now.count - now.dispatch == at.count - at.dispatch
    put(engine, "finalize_grad_stats", FINALIZE.replace("limit /", "0.5 * limit /"), shaders)
    shaders.put(engine, "reduce_norm_sq", None)
    shaders.put(engine, "finalize_grad_stats", None)
    assert engine.stepper.cursor == at


@pytest.mark.gpu
def test_without_memory_for_going_back_the_kernel_runs_from_the_next_step_on(gpu: Gpu) -> None:
    w, g, m, v = normal_state(PARAMS)
    engine = make_engine(gpu, PARAMS, g, w=w, m=m, v=v)
    engine.stepper._undo.limit = 0  # type: ignore[attr-defined]
    engine.step_iteration()
    trial = put(engine, "adamw_update", WRONG)
    assert trial.rows == ()
    assert "from the next step on" in trial.note
    engine.begin()
    engine.step_dispatch()
    with pytest.raises(UsageError, match="finish this step first"):
        Shaders().put(engine, "adamw_update", UPDATE)
    assert engine.stepper.cursor.dispatch == 1


@pytest.mark.gpu
def test_an_edited_kernel_parts_from_a_recording_and_reverting_leads_back(tmp_path: Path) -> None:
    opener = RunOpener(adapter=None, undo_mb=64, schedule=None, seed=None, given={})
    watched = Watched(opener, str(ROOT / "sessions" / "healthy.session.zip"))
    try:
        watched.at(1, 0)
        watched.worker.send(c.Seek(30))
        # While the device is on its way the edit waits for it.
        slower = built_in_text("adamw_update", "adamw_update").replace("hp.y * m +", "0.5 * hp.y * m +")
        watched.worker.send(c.TryShader("adamw_update", slower))
        tried = watched.until(lambda s: s.shaders.trial is not None)
        trial = tried.shaders.trial
        assert trial is not None
        assert tried.plan is not None
        assert tried.cursor is not None
        assert (trial.step, tried.cursor.step, tried.cursor.at_end) == (30, 30, True)
        assert {row.lane: row.changed > 0 for row in trial.rows} == {
            "w": True,
            "g": False,
            "m": True,
            "v": False,
        }
        watched.worker.send(c.Seek(10))
        before = watched.until(lambda s: s.cursor is not None and s.cursor.step == 10 and s.glance is None)
        assert before.plan is not None
        assert not before.plan.variant.own, "the steps before went as they were recorded"
        watched.worker.send(c.TryShader("adamw_update", slower))
        watched.until(lambda s: s.shaders.trial is not None and s.shaders.trial.step == 10)
        watched.worker.send(c.TryShader("adamw_update", None))
        back = watched.until(lambda s: s.shaders.trial is not None and s.shaders.trial.now == "built-in")
        assert back.plan is not None
        assert not back.plan.variant.own
    finally:
        assert watched.worker.close(60)


# --- by commands


@pytest.fixture
def watched() -> Iterator[Watched]:
    made = Watched(Opener())
    made.at(1, 0)
    yield made
    assert made.worker.close(60)


@pytest.mark.gpu
def test_the_worker_puts_an_edited_kernel_in_place_and_keeps_it_over_a_restart(watched: Watched) -> None:
    watched.worker.send(c.StepIteration())
    done = watched.until(lambda s: s.cursor is not None and s.cursor.at_end)
    assert done.cursor is not None
    watched.worker.send(c.TryShader("adamw_update", WRONG))
    edited = watched.until(lambda s: s.shaders.trial is not None)
    assert edited.plan is not None
    assert edited.cursor == done.cursor
    assert (edited.shaders.trial.against, edited.shaders.trial.now) == ("built-in", "edited")  # type: ignore[union-attr]
    watched.worker.send(c.CheckShader("adamw_update", "fn"))
    checked = watched.until(lambda s: s.shaders.check is not None and s.shaders.check.text == "fn")
    assert checked.mode == "paused"
    assert checked.plan is not None
    assert checked.plan.variant.own.get("adamw_update") is not None
    watched.worker.send(c.OpenSource("tiny"))
    again = watched.until(lambda s: s.mode == "paused" and s.run == edited.run + 1 and s.cursor is not None)
    assert again.plan is not None
    assert again.plan.variant.own.get("adamw_update").source == WRONG  # type: ignore[union-attr]
    watched.worker.send(c.TryShader("adamw_update", None))
    watched.until(lambda s: s.plan is not None and not s.plan.variant.own)


@pytest.mark.gpu
def test_reverting_leads_to_the_file_that_the_run_was_opened_with(tmp_path: Path) -> None:
    own = load_own_kernels(write(tmp_path, mine=UPDATE))
    watched = Watched(Opener(), variant=replace(Variant(), own=own))
    try:
        watched.at(1, 0)
        watched.worker.send(c.TryShader("adamw_update", WRONG))
        watched.until(lambda s: s.shaders.trial is not None)
        watched.worker.send(c.TryShader("adamw_update", None))
        back = watched.until(lambda s: s.plan is not None and s.plan.variant.own == own)
        assert back.shaders.trial is not None
        assert back.shaders.trial.now == str(tmp_path / "mine.wgsl")
    finally:
        assert watched.worker.close(60)
