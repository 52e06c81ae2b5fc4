"""Breakpoints in a run: each stops at the dispatch after which it is known, before the update, and once a step."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import foreign_runs
import numpy as np
import pytest
from gpu_helpers import ATOMIC, ListedSource, lanes, normal_state
from replays import pipelines_of
from test_worker import WAIT_S, Opener, Tiny, Watched

from inspector.codecs import CODECS
from inspector.coding_error import coded_once, merged_error
from inspector.diagnosis.stopping import Stopping, parse_breakpoint
from inspector.diagnosis.watchpoints import parse_condition
from inspector.floats import F32Array
from inspector.gpu.device import Gpu
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.param_statistics import lane_stats
from inspector.plan import Variant, layout_for
from inspector.runtime import commands as c
from inspector.runtime.breakpoints import Breakpoints
from inspector.runtime.engine import Engine
from inspector.runtime.hits import Hit
from inspector.runtime.recorded import RecordedRun
from inspector.runtime.recording import Recording
from inspector.session.policy import Policy
from inspector.session.reader import Session
from inspector.sources.recording import Recording as RecordedSource
from inspector.statistics import StatsLevel
from inspector.stepping import Cursor, HostGradients, HostState

pytestmark = pytest.mark.gpu

# Gaps follow "a" and "tiny", and "last" ends within a block of 256.
PARAMS = [Param("a", (9, 7)), Param("mid.norm", (70,)), Param("tiny", (1,)), Param("last.w", (65, 64))]
W, _, M, V = normal_state(PARAMS)
STEPS = 6
Grads = dict[str, F32Array]


def gradients(steps: int = STEPS) -> list[Grads]:
    return [normal_state(PARAMS, seed=i)[1] for i in range(1, steps + 1)]


def planted(step: int, name: str, index: int, value: float, steps: int = STEPS) -> list[Grads]:
    made = gradients(steps)
    made[step - 1][name][index] = value
    return made


def engine_of(
    gpu: Gpu,
    steps: Sequence[Mapping[str, F32Array]],
    *texts: str,
    w: Grads = W,
    moments: bool = True,
    hyper: Hyper | None = None,
    variant: Variant | None = None,
    losses: Mapping[int, float] | None = None,
    stats: StatsLevel = "light",
) -> Engine:
    """Laid out as the commands do, on which the order of sums hangs."""
    start = HostState(w, M if moments else {}, V if moments else {})
    source = ListedSource(PARAMS, steps, state=start, hyper=hyper, losses=losses)
    form = variant or Variant()
    stepper = GpuStepper(gpu, layout_for(PARAMS, gpu.limits, form), form, start, pipelines=pipelines_of(gpu))
    engine = Engine(source, stepper, stats=stats)
    set_breaks(engine, *texts)
    return engine


def set_breaks(engine: Engine, *texts: str) -> None:
    for text in texts:
        engine.breakpoints.set(parse_condition(text))
    engine.breakpoints_changed()


def go(engine: Engine, last: int = STEPS) -> Hit | None:
    """F5: to the next stop or to the end of step `last`."""
    while engine.stepper.cursor.finished_steps < last:
        engine.step_iteration()
        if engine.breakpoints.stop is not None:
            return engine.breakpoints.stop
    return None


def straight(gpu: Gpu, steps: Sequence[Mapping[str, F32Array]], **options: Any) -> list[dict[str, bytes]]:
    """The bytes of w, m and v after each step of a run that nothing stops."""
    engine = engine_of(gpu, steps, **options)
    ends = [state(engine)]
    for _ in steps:
        engine.step_iteration()
        ends.append(state(engine))
    return ends


def state(engine: Engine) -> dict[str, bytes]:
    return {lane: values for lane, values in lanes(engine.stepper).items() if lane != "g"}


@pytest.mark.parametrize("where", ["first", "middle", "last"])
@pytest.mark.parametrize("name", ["a", "last.w", "tiny"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_gradient_that_is_not_finite_stops_before_anything_runs(
    gpu: Gpu, name: str, where: str, value: float
) -> None:
    param = next(p for p in PARAMS if p.name == name)
    index = {"first": 0, "middle": param.numel // 2, "last": param.numel - 1}[where]
    steps = planted(3, name, index, value)
    ends = straight(gpu, steps)
    kind = "nan" if math.isnan(value) else "posinf" if value > 0 else "neginf"
    for text in ("nonfinite > 0", f"{kind}@{name} > 0", "finding:nonfinite-gradient"):
        engine = engine_of(gpu, steps, text)
        hit = go(engine)
        assert hit is not None
        assert (hit.step, hit.dispatch, hit.kernel) == (3, 0, "reduce_norm_sq")
        assert (hit.param, hit.index) == (name, index)
        assert hit.multi_index == tuple(int(i) for i in np.unravel_index(index, param.shape))
        assert hit.value == (None if text.startswith("finding") else 1.0)
        assert engine.stepper.cursor == Cursor(3, 0, 4)
        assert state(engine) == ends[2]
        # The gradient is still there to look at.
        assert engine.stepper.gradients()[name].tobytes() == steps[2][name].tobytes()
        assert [f.step for f in engine.findings if f.rule == "nonfinite-gradient"] == [3]
        # Going on does not stop again, and changes no bit.
        assert go(engine) is None
        assert state(engine) == ends[-1]


def test_what_lies_in_the_padding_counts_for_nothing(gpu: Gpu) -> None:
    engine = engine_of(gpu, gradients(), "nonfinite > 0", "nan@* > 0")
    memory = engine.stepper._memory  # type: ignore[attr-defined]
    used = np.zeros(engine.stepper.layout.padded_elements, bool)
    for segment in engine.stepper.layout:
        used[segment.offset : segment.stop] = True
    assert (~used).any()
    poison = np.where(used, np.float32(0), np.float32(np.nan)).astype(np.float32)
    engine.stepper._gpu.write(memory.buffers["g"], 0, poison)
    assert go(engine) is None


@pytest.mark.parametrize(
    ("variant", "before"),
    [
        (Variant(), 2),
        (ATOMIC, 2),
        (Variant(dispatch="per-tensor"), 2),
        (Variant(fused=False), 2),
        (Variant(kernel="f16"), 2),
        (Variant(kernel="8bit", codec="dynamic"), 2),
    ],
    ids=lambda v: f"{v.kernel} {v.reduce} {v.dispatch} {v.fused}" if isinstance(v, Variant) else "",
)
def test_each_metric_stops_where_it_is_known_and_before_the_update(
    gpu: Gpu, variant: Variant, before: int
) -> None:
    steps = gradients()
    losses = {i: 5.0 - i for i in range(1, STEPS + 1)}
    # The norm of the gradients of step 4 in float64, between those of the others.
    for g in steps[:3]:
        for values in g.values():
            values *= np.float32(0.5)
    ends = straight(gpu, steps, variant=variant)
    norm = math.sqrt(sum(float(np.sum(v.astype(np.float64) ** 2)) for v in steps[3].values()))
    expected = {
        "loss < 1.5": (0, 1.0),
        "step >= 4": (0, 4.0),
        f"grad_max >= {0.999 * max(float(np.abs(v).max()) for v in steps[3].values())}": (0, None),
        f"grad_norm > {0.9 * norm}": (before, pytest.approx(norm, rel=1e-6)),
        f"clip_scale < {1.1 / norm}": (before, pytest.approx(1 / norm, rel=1e-6)),
        f"grad_norm@* > {0.9 * norm}": (before, None),
        "w_norm > 0": (before, None),
    }
    for text, (dispatch, value) in expected.items():
        engine = engine_of(gpu, steps, text, variant=variant, losses=losses)
        hit = go(engine)
        assert hit is not None, text
        step = 1 if text == "w_norm > 0" else 4
        assert (hit.step, hit.dispatch) == (step, dispatch), text
        assert engine.stepper.cursor == Cursor(step, dispatch, engine.stepper.cursor.count)
        assert not any(d.updates for d in engine.stepper.plan.dispatches[:dispatch])
        if value is not None:
            assert hit.value == value
        assert state(engine) == ends[step - 1]
        for name, given in steps[step - 1].items():
            assert engine.stepper.gradients()[name].tobytes() == given.tobytes()
        engine.breakpoints.remove(parse_condition(text))
        assert go(engine) is None
        assert state(engine) == ends[-1]


def test_the_update_is_judged_before_it_is_applied(gpu: Gpu) -> None:
    """From m = v = 0 each first update is lr: ‖Δw‖/‖w‖ of 63 weights of 2 is √63·0.1 / (2·√63) = 0.05."""
    w = {**W, "a": np.full(63, 2, np.float32)}
    options: dict[str, Any] = {
        "w": w,
        "moments": False,
        "hyper": Hyper(lr=0.1, weight_decay=0.0, max_grad_norm=math.inf),
    }
    engine = engine_of(gpu, gradients(), "update_ratio@a > 0.049", **options)
    assert engine.stats_level == "full"
    hit = go(engine)
    assert hit is not None
    assert (hit.step, hit.dispatch, hit.kernel, hit.param) == (1, 2, "adamw_update", "a")
    assert hit.value == pytest.approx(0.05, rel=1e-4)
    assert engine.stepper.weights()["a"].tobytes() == w["a"].tobytes()
    engine = engine_of(gpu, gradients(), "update_ratio@a > 0.051", **options)
    engine.step_iteration()
    assert engine.breakpoints.stop is None


def test_half_precision_that_overflows_is_named_param_by_param(gpu: Gpu) -> None:
    w = {**W, "mid.norm": W["mid.norm"].copy()}
    w["mid.norm"][11] = 70_000
    engine = engine_of(gpu, gradients(), "f16_overflows@*.norm >= 1", w=w)
    hit = go(engine)
    assert hit is not None
    assert (hit.step, hit.dispatch, hit.param, hit.value) == (1, 2, "mid.norm", 1.0)


def test_errors_of_8_bit_state_stop_before_the_codes_are_written(gpu: Gpu) -> None:
    """In the first step m = (1 - β₁)·g and v = (1 - β₂)·g²: what coding them loses is worked out by numpy."""
    variant = Variant(kernel="8bit", codec="linear")
    steps = gradients()
    hyper = Hyper(max_grad_norm=math.inf)
    g = steps[0]["last.w"].astype(np.float64)
    error = coded_once("last.w", "linear", (0.1 * g).astype(np.float32), (0.001 * g * g).astype(np.float32))
    level = merged_error([error]).v.relative
    options: dict[str, Any] = {"variant": variant, "hyper": hyper, "moments": False}
    engine = engine_of(gpu, steps, f"v_error > {0.99 * level}", **options)
    before = state(engine)
    hit = go(engine)
    assert hit is not None
    assert (hit.step, hit.dispatch, hit.kernel) == (1, 2, "adamw_8bit_update")
    assert hit.value == pytest.approx(level, rel=1e-3)
    assert state(engine) == before
    engine = engine_of(gpu, steps, f"v_error@last.* > {1.01 * level}", **options)
    engine.step_iteration()
    assert engine.breakpoints.stop is None


# --- after each update


def moved_weights(step: int = 1) -> Grads:
    """w after the first update of AdamW from m = v = 0, by its definition in float64: m̂ = g, v̂ = g²."""
    g = gradients()[step - 1]
    return {n: (W[n] - 0.5 * v / (np.abs(v.astype("f8")) + 1e-8)).astype(np.float32) for n, v in g.items()}


PLAIN: dict[str, Any] = {
    "moments": False,
    "hyper": Hyper(lr=0.5, weight_decay=0.0, max_grad_norm=math.inf),
}


@pytest.mark.parametrize(
    ("variant", "name", "dispatch", "by_dispatch"),
    [
        (Variant(), "a", 2, False),
        (Variant(), "mid.norm", 3, False),
        (Variant(), "last.w", 2, True),
        (Variant(dispatch="single"), "mid.norm", 2, False),
        (Variant(dispatch="per-tensor"), "last.w", None, False),
        (Variant(fused=False), "a", None, True),
        (Variant(kernel="f16"), "mid.norm", 3, False),
    ],
    ids=lambda v: f"{v.kernel} {v.dispatch} {v.fused}" if isinstance(v, Variant) else str(v),
)
def test_what_an_update_makes_true_stops_right_after_it(
    gpu: Gpu, variant: Variant, name: str, dispatch: int | None, by_dispatch: bool
) -> None:
    moved = moved_weights()[name].astype("f8")
    norm = float(np.sqrt(np.sum(moved**2)))
    was = float(np.sqrt(np.sum(W[name].astype("f8") ** 2)))
    level = (was + norm) / 2
    text = f"w_norm@{name} {'>' if norm > was else '<'} {level}"
    ends = straight(gpu, gradients(), variant=variant, **PLAIN)
    engine = engine_of(gpu, gradients(), text, variant=variant, **PLAIN)
    plan = engine.stepper.plan
    offset = engine.stepper.layout[name].offset
    if dispatch is None:
        dispatch = next(
            d.index for d in plan.dispatches if d.updates and d.elements[0] <= offset < d.elements[1]
        )
    if by_dispatch:
        while engine.breakpoints.stop is None:
            engine.step_dispatch()
        hit: Hit | None = engine.breakpoints.stop
    else:
        hit = go(engine)
    assert hit is not None
    assert (hit.step, hit.dispatch, hit.after, hit.param) == (1, dispatch, True, name)
    assert hit.kernel == plan.dispatches[dispatch].entry_point
    assert engine.stepper.cursor == Cursor(1, dispatch + 1, len(plan.dispatches))
    assert hit.value == pytest.approx(norm, rel=1e-6)
    assert engine.stepper.weights()[name].reshape(-1) == pytest.approx(moved, rel=1e-5, abs=1e-6)
    assert f"after {hit.label} (dispatch {dispatch + 1}/{len(plan.dispatches)})" in hit.sentence
    # It holds on: after the last update of a step it is not judged again before the next one.
    engine.breakpoints.remove(parse_condition(text))
    assert go(engine) is None
    assert state(engine) == ends[-1]


def test_a_weight_that_overflows_is_named_after_the_update_that_did_it(gpu: Gpu) -> None:
    w = {**W, "mid.norm": W["mid.norm"].copy()}
    steps = gradients()
    w["mid.norm"][7], steps[0]["mid.norm"][7] = -3.2e38, 1.0
    options = {**PLAIN, "hyper": Hyper(lr=1e38, weight_decay=0.0, max_grad_norm=math.inf)}
    engine = engine_of(gpu, steps, "w_nonfinite > 0", "w_nonfinite@mid.* > 0", w=w, **options)
    hit = go(engine)
    assert hit is not None
    assert (hit.step, hit.dispatch, hit.after, hit.param, hit.index) == (1, 3, True, "mid.norm", 7)
    assert [str(each.condition) for each in hit.also] == ["w_nonfinite@mid.* > 0"]
    assert engine.stepper.cursor.at_end
    assert engine.stepper.weights()["mid.norm"].reshape(-1)[7] == -math.inf
    # Nothing changes until the next update, so F5 comes to that.
    hit = go(engine)
    assert hit is not None
    assert (hit.step, hit.dispatch, hit.after) == (2, 2, True)
    # Back before the update that did it, it stops there again.
    assert engine.rewind_to(1)
    assert engine.undo_dispatch()
    hit = go(engine)
    assert hit is not None
    assert (hit.step, hit.dispatch, hit.after) == (1, 3, True)


def test_the_largest_of_all_names_the_param_that_has_it(gpu: Gpu) -> None:
    """The weight mid.norm[3] goes from 9 to 9.5 by an update of 0.5, beyond all others."""
    w = {**W, "mid.norm": W["mid.norm"].copy()}
    steps = gradients()
    w["mid.norm"][3], steps[0]["mid.norm"][3] = 9.0, -1.0
    engine = engine_of(gpu, steps, "w_max > 9.25", w=w, **PLAIN)
    hit = go(engine)
    assert hit is not None
    assert (hit.step, hit.dispatch, hit.after, hit.param, hit.index) == (1, 3, True, "mid.norm", None)
    assert hit.value == pytest.approx(9.5, rel=1e-6)


def test_without_one_on_the_state_no_step_is_cut_after_its_updates(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(gpu, gradients(), "update_norm > 1e9")
    ran: list[int] = []
    inner = engine.stepper._run  # type: ignore[attr-defined]
    monkeypatch.setattr(
        engine.stepper, "_run", lambda hyper, until: (ran.append(until), inner(hyper, until))[1]
    )
    engine.step_iteration()
    assert ran == [2, 4]
    set_breaks(engine, "w_max > 1e9")
    engine.step_iteration()
    assert ran == [2, 4, 2, 3, 4]


def test_what_is_counted_after_an_update_is_what_numpy_counts(gpu: Gpu) -> None:
    """Of each update only the params that it wrote are counted; the others are as they were."""
    for variant in (Variant(dispatch="per-tensor"), Variant(kernel="8bit", codec="dynamic")):
        engine = engine_of(gpu, gradients(), "v_norm > 1e30", variant=variant)
        for _ in range(2):
            engine.step_iteration()
            assert engine._judging.held is not None
            step, table = engine._judging.held
            assert step == engine.stepper.cursor.step
            held = engine.stepper.state()
            for lane, values in (("w", held.w), ("m", held.m), ("v", held.v)):
                for row, name in enumerate(table.names):
                    own = lane_stats(values[name])
                    columns = table.lanes[lane]  # type: ignore[index]
                    assert columns.norm[row] == pytest.approx(own.norm, rel=1e-6)
                    assert columns.zeros[row] == own.counts.zeros
                    assert columns.max_abs[row] == own.counts.max_abs


# --- once a step, and again after going back


def test_several_that_hold_count_each_and_stop_once_a_moment(gpu: Gpu) -> None:
    steps = planted(2, "a", 5, math.nan)
    engine = engine_of(gpu, steps, "nan > 0", "nonfinite > 0", "grad_norm > 0")
    stops = []
    while (hit := go(engine)) is not None:
        stops.append((str(hit.condition), hit.step, hit.dispatch))
    assert stops[:3] == [("grad_norm > 0", 1, 2), ("nan > 0", 2, 0), ("grad_norm > 0", 2, 2)]
    assert len(stops) == STEPS + 1
    picture = engine.breakpoints.picture(engine.stepper.plan)
    assert [(str(b.condition), b.hits) for b in picture] == [
        ("nan > 0", 1),
        ("nonfinite > 0", 1),
        ("grad_norm > 0", STEPS),
    ]
    assert picture is engine.breakpoints.picture(engine.stepper.plan)
    assert [(m.step, m.stop) for m in engine.marks.all][:3] == [(1, True), (2, True), (2, True)]


def test_all_that_hold_at_a_moment_are_named_and_marked(gpu: Gpu) -> None:
    engine = engine_of(gpu, planted(2, "a", 5, math.nan), "nan > 0", "posinf > 0", "step == 2", "loss > 0")
    hit = go(engine)
    assert hit is not None
    assert [str(each.condition) for each in (hit, *hit.also)] == ["nan > 0", "step == 2"]
    assert hit.sentence.endswith("by nan > 0: nan is 1 in a[0, 5]. Also by step == 2: step is 2.")
    assert [m.text for m in engine.marks.all] == [
        "stopped by nan > 0: 1 in a[0, 5]",
        "stopped by step == 2: 2",
    ]


def test_one_that_stops_once_is_disabled_then_and_one_from_a_hit_on_waits_for_it(gpu: Gpu) -> None:
    engine = engine_of(gpu, gradients())
    for text in ("grad_norm > 0, once", "clip_scale > 0, hit 3", "lr > 0, hit 2, once"):
        condition, stopping = parse_breakpoint(text)
        engine.breakpoints.set(condition, stopping=stopping)
    stops = []
    while (hit := go(engine)) is not None:
        stops.append((hit.step, [str(each.condition) for each in (hit, *hit.also)]))
    assert stops == [
        (1, ["grad_norm > 0"]), (2, ["lr > 0"]), *((step, ["clip_scale > 0"]) for step in range(3, STEPS + 1)),
    ]  # fmt: skip
    picture = engine.breakpoints.picture(engine.stepper.plan)
    assert [(b.enabled, b.hits) for b in picture] == [(False, 1), (True, STEPS), (False, 2)]
    # Enabled again it stops once more; stopping otherwise counts anew.
    engine.breakpoints.set(picture[0].condition, enabled=True)
    engine.breakpoints.set(picture[1].condition, stopping=Stopping(hit=2))
    assert engine.rewind_to(3)
    hit = go(engine)
    assert hit is not None
    assert (hit.step, str(hit.condition), hit.also) == (4, "grad_norm > 0", ())
    hit = go(engine)
    assert hit is not None
    assert (hit.step, str(hit.condition)) == (5, "clip_scale > 0")


def test_going_back_before_a_stop_makes_it_stop_again(gpu: Gpu) -> None:
    steps = planted(3, "tiny", 0, math.inf)
    engine = engine_of(gpu, steps, "posinf > 0", "clip_scale < 1000")
    assert str(go(engine).condition) == "clip_scale < 1000"  # type: ignore[union-attr]
    assert engine.stepper.cursor == Cursor(1, 2, 4)
    assert engine.undo_dispatch()
    assert engine.breakpoints.stop is None
    assert go(engine).step == 1  # type: ignore[union-attr]
    engine.breakpoints.set(parse_condition("clip_scale < 1000"), enabled=False)
    hit = go(engine)
    assert hit is not None
    assert (hit.step, hit.dispatch) == (3, 0)
    assert go(engine) is None
    assert engine.rewind_to(1)
    hit = go(engine)
    assert hit is not None
    assert (hit.step, hit.dispatch) == (3, 0)
    marks = [m for m in engine.marks.all if m.step == 3]
    assert len(marks) == 1
    assert marks[0].text == "stopped by posinf > 0: 1 in tiny[0]"


def test_dispatch_by_dispatch_it_stops_there_as_well(gpu: Gpu) -> None:
    engine = engine_of(gpu, planted(2, "a", 0, math.nan), "nan > 0", "grad_norm > 0")
    places = []
    for _ in range(11):
        engine.step_dispatch()
        cursor = engine.stepper.cursor
        places.append((cursor.step, cursor.dispatch, engine.breakpoints.stop is not None))
    assert places == [
        (1, 1, False), (1, 2, True), (1, 3, False), (1, 4, False),
        (2, 0, True), (2, 1, False), (2, 2, True), (2, 3, False), (2, 4, False),
        (3, 1, False), (3, 2, True),
    ]  # fmt: skip


def test_one_set_late_stops_where_the_run_stands_unless_the_update_has_begun(gpu: Gpu) -> None:
    steps = [planted(i, "a", 1, math.nan)[i - 1] for i in range(1, STEPS + 1)]
    engine = engine_of(gpu, steps)
    engine.begin()
    set_breaks(engine, "nan > 0")
    hit = go(engine)
    assert hit is not None
    assert (hit.step, hit.dispatch) == (1, 0)
    engine = engine_of(gpu, steps)
    engine.step_dispatch()
    set_breaks(engine, "nan > 0")
    hit = go(engine)
    assert hit is not None
    assert (hit.step, hit.dispatch) == (1, 1)
    engine = engine_of(gpu, steps)
    for _ in range(3):
        engine.step_dispatch()
    set_breaks(engine, "nan > 0")
    hit = go(engine)
    assert hit is not None
    assert (hit.step, hit.dispatch) == (2, 0)


def test_findings_on_settings_stop_once(gpu: Gpu) -> None:
    engine = engine_of(gpu, gradients(), "finding:invalid-max-grad-norm", hyper=Hyper(max_grad_norm=0.0))
    hit = go(engine)
    assert hit is not None
    assert (hit.step, hit.dispatch, hit.value) == (1, 0, None)
    assert "max_grad_norm is 0" in hit.sentence
    assert go(engine) is None


def test_a_finding_that_needs_the_norm_stops_once_that_is_known(gpu: Gpu) -> None:
    steps = gradients()
    steps[3]["last.w"][:2] = 3e19
    engine = engine_of(gpu, steps, "finding:norm-overflow")
    hit = go(engine)
    assert hit is not None
    assert (hit.step, hit.dispatch, hit.kernel) == (4, 2, "adamw_update")
    assert engine.record is not None
    assert engine.record.grad_norm == math.inf


def test_as_much_is_counted_as_they_need_whatever_is_asked_for(gpu: Gpu) -> None:
    steps = planted(3, "a", 2, math.nan)
    engine = engine_of(gpu, steps, "nonfinite > 0", stats="off")
    assert engine.stats_level == "light"
    engine.set_stats("off")
    assert engine.stats_level == "light"
    assert go(engine).step == 3  # type: ignore[union-attr]
    made = Breakpoints([parse_condition("w_norm > 0"), parse_condition("loss > 0")])
    assert (made.needs, made.who_needs("light"), made.who_needs("full")) == ("full", "w_norm > 0", "")
    made.set(parse_condition("w_norm > 0"), enabled=False)
    assert made.needs == "off"


def test_without_breakpoints_a_step_is_one_submission_and_with_one_on_the_norm_two(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(gpu, gradients())
    ran: list[int] = []
    inner = engine.stepper._run  # type: ignore[attr-defined]
    monkeypatch.setattr(
        engine.stepper, "_run", lambda hyper, until: (ran.append(until), inner(hyper, until))[1]
    )
    engine.step_iteration()
    set_breaks(engine, "nonfinite > 0", "loss > 3", "step == 99")
    engine.step_iteration()
    assert ran == [4, 4]
    set_breaks(engine, "clip_scale < 0")
    engine.step_iteration()
    assert ran == [4, 4, 2, 4]


# --- the worker


class Spiked(Tiny):
    """As Tiny, with a NaN in the second row of "a" at step 4."""

    def gradients(self, step: int, read_weights: Any) -> HostGradients:
        given = super().gradients(step, read_weights)
        values = {name: value.copy() for name, value in given.values.items()}
        if step == 4:
            values["a"][5] = np.nan
        return HostGradients(values, given.loss)


@pytest.fixture
def spiked() -> Iterator[Watched]:
    made = Watched(Opener(Spiked))
    made.at(1, 0)
    yield made
    assert made.worker.close(WAIT_S)


@pytest.mark.parametrize("slow", [False, True])
def test_the_worker_pauses_tells_and_goes_on(
    spiked: Watched, monkeypatch: pytest.MonkeyPatch, slow: bool
) -> None:
    if slow:
        monkeypatch.setattr("inspector.runtime.pace.SLOW_STEP_S", -1.0)
    spiked.worker.send(c.SetBreakpoint(parse_condition("nonfinite > 0")))
    spiked.worker.send(c.Run(until=6))
    shown = spiked.at(4, 0)
    assert shown.stop is not None
    assert (shown.stop.param, shown.stop.multi_index) == ("a", (1, 2))
    assert shown.notice is not None
    assert shown.notice.severity == "warning"
    assert shown.notice.text == (
        "Stopped in step 4 before reduce_norm_sq (dispatch 0/4) by nonfinite > 0: nonfinite is 1 in a[1, 2]."
    )
    assert [(b.hits, b.enabled) for b in shown.breakpoints] == [(1, True)]
    assert [(m.step, m.stop) for m in shown.marks] == [(4, True)]
    spiked.worker.send(c.Run(until=6))
    shown = spiked.at(6, 4)
    assert shown.stop is None
    spiked.worker.send(c.Seek(3))
    spiked.at(3, 4)
    spiked.worker.send(c.SetBreakpoint(parse_condition("nonfinite > 0"), enabled=False))
    spiked.worker.send(c.Run(until=7))
    spiked.at(7, 4)
    spiked.worker.send(c.RemoveBreakpoint(parse_condition("nonfinite > 0")))
    spiked.until(lambda s: not s.breakpoints)


def test_opening_a_source_keeps_breakpoints_and_forgets_what_they_came_to(spiked: Watched) -> None:
    spiked.worker.send(c.SetBreakpoint(parse_condition("step == 2")))
    spiked.worker.send(c.SetBreakpoint(parse_condition("w_norm@nobody > 2"), enabled=False))
    spiked.worker.send(c.Run())
    shown = spiked.at(2, 0)
    assert [(b.hits, b.note) for b in shown.breakpoints] == [(1, ""), (0, "no param here matches nobody")]
    spiked.worker.send(c.OpenSource("tiny"))
    shown = spiked.until(lambda s: s.run == 2 and s.mode == "paused")
    assert [(str(b.condition), b.hits) for b in shown.breakpoints] == [
        ("step == 2", 0),
        ("w_norm@nobody > 2", 0),
    ]
    spiked.worker.send(c.Run())
    spiked.at(2, 0)


def test_the_level_rises_for_a_breakpoint_and_stays_while_it_is_enabled(spiked: Watched) -> None:
    spiked.worker.send(c.SetBreakpoint(parse_condition("update_ratio@a > 1e9")))
    shown = spiked.until(lambda s: s.stats == "full")
    assert shown.notice is not None
    assert (
        shown.notice.text
        == "Statistics are full from here on: the breakpoint update_ratio@a > 1000000000 needs them."
    )
    before = shown.notice.serial
    spiked.worker.send(c.SetStats("off"))
    shown = spiked.until(lambda s: s.notice is not None and s.notice.serial > before)
    assert shown.stats == "full"
    spiked.worker.send(c.SetBreakpoint(parse_condition("update_ratio@a > 1e9"), enabled=False))
    spiked.worker.send(c.SetStats("off"))
    spiked.until(lambda s: s.stats == "off")


def test_a_stop_makes_the_flight_recorder_write_and_the_recording_goes_on(
    spiked: Watched, tmp_path: Path
) -> None:
    path = tmp_path / "run.session"
    spiked.worker.send(c.StartRecording(str(path), "flight:2"))
    spiked.worker.send(c.StepIteration())
    spiked.worker.send(c.SetHyper("beta1", 0.8))
    spiked.worker.send(c.SetBreakpoint(parse_condition("step == 6")))
    spiked.worker.send(c.SetBreakpoint(parse_condition("loss < 0.3"), enabled=False))
    spiked.worker.send(c.Run(until=9))
    spiked.at(6, 0)
    spiked.worker.send(c.Run(until=9))
    spiked.at(9, 4)
    spiked.worker.send(c.StopRecording())
    spiked.until(lambda s: s.recording is None and s.notice is not None and "Recorded" in s.notice.text)
    with Session.open(path) as session:
        # Read back, a stop is one still, and what a person does is none.
        assert [(m.step, m.text, m.stop) for m in RecordedRun(RecordedSource(path, session=session)).marks] == [
            (2, "beta1 0.9 → 0.8", False), (6, "stopped by step == 6: 6", True),
        ]  # fmt: skip
        assert session.verify() == []
        assert session.steps == range(1, 10)
        # The finding of step 4 wrote the ring up to there, the breakpoint that of the steps before step 6.
        assert {4, 5} <= set(session.captures("gradients"))


def test_on_the_way_to_a_step_none_stops_and_playing_a_live_run_does(spiked: Watched) -> None:
    spiked.worker.send(c.Run(until=6))
    spiked.at(6, 4)
    spiked.worker.send(c.SetBreakpoint(parse_condition("nonfinite > 0")))
    spiked.worker.send(c.SetBreakpoint(parse_condition("step == 9")))
    # Back to a dispatch of the step that would stop, which runs again to get there.
    spiked.worker.send(c.Seek(5, 2))
    spiked.at(5, 2)
    spiked.worker.send(c.Seek(4, 1))
    shown = spiked.at(4, 1)
    assert [b.hits for b in shown.breakpoints] == [0, 0]
    # Forward from there it is judged where the run stands.
    spiked.worker.send(c.Run(until=7))
    shown = spiked.until(lambda s: s.stop is not None)
    assert shown.cursor == Cursor(4, 1, 4)
    spiked.worker.send(c.Play(steps_per_second=200.0))
    shown = spiked.at(9, 0)
    assert shown.playing is None
    assert shown.stop is not None
    assert str(shown.stop.condition) == "step == 9"


def test_a_recording_that_is_run_stops_and_seeking_through_it_does_not(gpu: Gpu, tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    engine = engine_of(gpu, planted(4, "a", 5, math.nan))
    recording = Recording.start(engine, path, Policy.from_text("grads:1+keyframes:3"))
    assert go(engine) is None
    recording.end()
    watched = Watched(Opener(lambda: RecordedSource(path)), str(path))
    try:
        watched.until(lambda s: s.mode == "paused" and s.cursor is not None)
        watched.worker.send(c.SetBreakpoint(parse_condition("nonfinite > 0")))
        watched.worker.send(c.SetBreakpoint(parse_condition("update_ratio@a > 1e9")))
        watched.worker.send(c.Seek(5))
        watched.until(lambda s: s.glance is None and s.cursor == Cursor(5, 4, 4))
        watched.worker.send(c.Seek(2))
        shown = watched.until(lambda s: s.glance is None and s.cursor == Cursor(2, 4, 4))
        assert [b.hits for b in shown.breakpoints] == [0, 0]
        watched.worker.send(c.Run())
        shown = watched.until(lambda s: s.stop is not None)
        assert shown.cursor == Cursor(4, 0, 4)
        assert shown.stop is not None
        assert (shown.stop.param, shown.stop.index) == ("a", 5)
        watched.worker.send(c.Run())
        watched.until(lambda s: s.mode == "paused" and s.cursor == Cursor(6, 4, 4))
    finally:
        assert watched.worker.close(WAIT_S)


# --- recordings


EIGHT_BIT = [Variant(kernel="8bit", codec=codec) for codec in CODECS]
FORMS = [
    *((form, 36) for form in (Variant(), Variant(kernel="f16"), EIGHT_BIT[-1])),
    *(
        pytest.param(form, 500, marks=pytest.mark.soak)
        for form in (Variant(), Variant(numerics="precise"), Variant(kernel="f16"), *EIGHT_BIT)
    ),
]


@pytest.mark.parametrize(("variant", "last"), FORMS)
def test_a_run_that_was_stopped_changed_and_gone_back_in_replays_bit_for_bit(
    gpu: Gpu, tmp_path: Path, variant: Variant, last: int, call: Any
) -> None:
    path = tmp_path / "run.session"
    steps = planted(21, "last.w", 77, math.nan, steps=last)
    engine = engine_of(
        gpu, steps, "step == 13", "nonfinite > 0", "update_max > 1e9", variant=variant, stats="full"
    )
    recording = Recording.start(engine, path, Policy.from_text("grads:1+keyframes:7"))
    hit = go(engine, last)
    assert hit is not None
    assert (hit.step, hit.dispatch) == (13, 0)
    engine.set_hyper("beta2", 0.95)
    engine.set_hyper("lr", 5e-3)
    assert go(engine, 15) is None
    hit = go(engine, last)
    assert hit is not None
    assert (hit.step, hit.dispatch) == (21, 0)
    engine.step_iteration()
    assert engine.rewind_to(20)
    assert go(engine, last).step == 21  # type: ignore[union-attr]
    engine.set_hyper("max_grad_norm", 0.5)
    assert go(engine, last) is None
    recording.end()
    code, out, err = call("replay", path, "--verify")
    assert code == 0, out + err
    states = last // 7
    assert f"{last} steps, statistics of {last} and {states} captured states were compared: every bit" in out
    code, out, err = call("pack", path)
    assert code == 0, err
    code, out, err = call("diff", path, path.with_name("run.session.zip"), "--json")
    assert code == 0, err
    assert json.loads(out)["first_difference"] is None
    with Session.open(path) as session:
        assert [session.step(t).hyper.beta2 for t in (12, 13)] == [0.999, 0.95]
        assert session.step(21).nonfinite.nan == 1
        assert session.step(21).hyper.max_grad_norm == 0.5


def test_a_run_whose_program_clipped_stops_by_its_norm_and_shows_both(gpu: Gpu, tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    scales = {1: 1.0, 2: 0.25, 3: 0.0625, 4: 0.5}
    foreign_runs.write(path, 4, clip_scale_of=scales.get, grad_norm_of=lambda step: 2.0 / scales[step])
    watched = Watched(Opener(lambda: RecordedSource(path)), str(path))
    try:
        watched.until(lambda s: s.mode == "paused" and s.cursor is not None)
        watched.worker.send(c.SetBreakpoint(parse_condition("clip_scale < 0.1")))
        watched.worker.send(c.Run())
        shown = watched.until(lambda s: s.stop is not None)
        assert shown.record is not None
        assert shown.record.step == 3
        # What the program had, and what the kernels make of the gradients that it left.
        assert shown.record.of_run == (32.0, 0.0625)
        given = np.concatenate(list(foreign_runs.gradients(3).values()))
        assert shown.record.grad_norm == pytest.approx(np.linalg.norm(given.astype(np.float64)), rel=1e-6)
        assert shown.record.clip_scale == 1.0
        # Clipped once more by a limit set here, it is this norm that counts.
        watched.worker.send(c.SetHyper("max_grad_norm", 0.5))
        watched.until(lambda s: s.hyper.max_grad_norm == 0.5)
        watched.worker.send(c.Run())
        shown = watched.until(lambda s: s.record is not None and s.record.step == 4 and s.mode == "paused")
        assert shown.record is not None
        assert shown.record.clipped_by is None
    finally:
        assert watched.worker.close(WAIT_S)


def test_a_run_whose_steps_the_kernels_do_not_take_is_told_to_be_one_as_it_is_opened(
    tmp_path: Path, gpu: Gpu
) -> None:
    path = tmp_path / "run.session"
    why = "The steps of this run are not run again bit for bit: amsgrad divides by the largest v there has been."
    foreign_runs.write(path, 2, unreplayable=why)
    watched = Watched(Opener(lambda: RecordedSource(path)), str(path))
    try:
        shown = watched.until(lambda s: s.notice is not None)
        assert shown.notice is not None
        assert (shown.notice.severity, shown.notice.text) == ("warning", why)
    finally:
        assert watched.worker.close(WAIT_S)
