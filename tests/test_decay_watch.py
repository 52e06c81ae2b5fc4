"""Watching the decay beside a run: what is in the sums, what going back does, races, and what the command prints."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from gpu_helpers import make_engine, normal_state
from test_race import TINY, started
from test_worker import WAIT_S, Opener, Watched

from inspector.decay import DecaySums, add_step
from inspector.gpu.decay import GpuDecayMeter
from inspector.gpu.device import Gpu
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import Hyper, Numerics
from inspector.layout import Param
from inspector.param_hyper import alone
from inspector.plan import Variant, layout_for
from inspector.runtime import commands as c
from inspector.runtime.breakpoints import norm_known_at
from inspector.runtime.decay_watch import DecayPicture, read_bins
from inspector.runtime.engine import Engine
from inspector.settings import ParamSettings, Settings
from inspector.sources.open import open_source
from inspector.stepping import HostGradients, HostState

pytestmark = pytest.mark.gpu

PARAMS = [Param("a", (97, 64)), Param("norm", (300,))]
W = normal_state(PARAMS)[0]
G = [normal_state(PARAMS, seed=i)[1] for i in range(1, 12)]
HYPER = Hyper(weight_decay=0.1, lr=1e-2)


def watched(gpu: Gpu, optimizer: str = "adam-l2", *, steps: int = 0) -> Engine:
    engine = make_engine(gpu, PARAMS, G, w=W, hyper=HYPER, variant=Variant(optimizer=optimizer))
    for _ in range(steps):
        engine.step_iteration()
    engine.decay.start(engine.stepper)
    return engine


def sums(engine: Engine) -> bytes:
    meter = engine.decay.meter
    assert isinstance(meter, GpuDecayMeter)
    found = meter.read("a")
    return b"".join(each.tobytes() for each in (found.m, found.received, found.decoupled, found.squares))


def picture(engine: Engine) -> DecayPicture:
    read_bins([engine.decay])
    return engine.decay.picture("run", engine.stepper)


def test_each_step_is_added_once_however_it_is_run(gpu: Gpu) -> None:
    whole = watched(gpu)
    for _ in range(3):
        whole.step_iteration()
    parts = watched(gpu)
    while parts.stepper.cursor.step < 3 or not parts.stepper.cursor.at_end:
        parts.step_dispatch()
    assert sums(whole) == sums(parts)
    shown = picture(whole)
    assert (shown.since, shown.step, shown.elements, shown.again) == (0, 3, 97 * 64, False)
    assert shown.bins is not None
    assert shown.bins.steps == 3


def test_the_run_is_the_same_watched_or_not(gpu: Gpu) -> None:
    on, off = (
        watched(gpu),
        make_engine(gpu, PARAMS, G, w=W, hyper=HYPER, variant=Variant(optimizer="adam-l2")),
    )
    for _ in range(3):
        on.step_iteration()
        off.step_iteration()
    assert on.stepper.weights()["a"].tobytes() == off.stepper.weights()["a"].tobytes()


def test_going_back_begins_again_from_there(gpu: Gpu) -> None:
    engine = watched(gpu)
    for _ in range(4):
        engine.step_iteration()
    assert engine.rewind_to(2)
    shown = picture(engine)
    assert (shown.since, shown.bins, shown.again) == (2, None, True)
    engine.step_iteration()
    again = watched(gpu, steps=2)
    again.step_iteration()
    assert sums(engine) == sums(again)
    assert picture(engine).step == 3


def test_going_back_within_what_is_not_measured_yet_changes_nothing(gpu: Gpu) -> None:
    engine = watched(gpu)
    for _ in range(2):
        engine.step_iteration()
    before = sums(engine)
    engine.step_dispatch()
    assert engine.undo_dispatch()
    assert sums(engine) == before
    assert not picture(engine).again
    # Into the update of the step and out of it again: the step is in the sums, and its update has not happened.
    while not engine.stepper.cursor.at_end:
        engine.step_dispatch()
    while engine.stepper.cursor.dispatch > 2:
        assert engine.undo_dispatch()
    engine.finish_step()
    shown = picture(engine)
    assert (shown.since, shown.again) == (3, True)
    engine.step_iteration()
    assert picture(engine).step == 4


def test_begun_within_a_step_it_counts_from_the_next(gpu: Gpu) -> None:
    engine = make_engine(gpu, PARAMS, G, w=W, hyper=HYPER)
    engine.step_dispatch()
    engine.decay.start(engine.stepper)
    assert picture(engine).since is None
    engine.step_iteration()
    assert picture(engine).since == 1
    engine.step_iteration()
    assert picture(engine).step == 2


def test_what_cannot_be_followed_says_why_and_the_run_goes_on(gpu: Gpu) -> None:
    engine = watched(gpu, "lion")
    engine.step_iteration()
    assert "not followed" in picture(engine).reason
    engine = watched(gpu)
    engine.step_iteration()
    engine.set_variant(Variant(optimizer="adamw"))
    assert picture(engine).since == 1
    engine.decay.stop()
    assert not engine.decay.asked
    assert picture(engine).nbytes == 0


def decay_of(count: int) -> Callable[..., bool]:
    return lambda s: len([p for p in s.decay if p.bins is not None and p.bins.steps == count]) == 2


def test_lanes_of_a_race_are_watched_together_with_the_same_bins() -> None:
    made = Watched(Opener(lambda: open_source(TINY)), TINY)
    made.at(1, 0)
    made.worker.send(c.StartRace(("adamw", "adam-l2", "lion")))
    made.worker.send(c.WatchDecay())
    first = made.until(lambda s: len(s.decay) == 3)
    assert [p.bins for p in first.decay] == [None] * 3
    made.worker.send(c.Run(until=5))
    done = made.until(lambda s: s.mode == "paused" and decay_of(5)(s))
    adamw, l2, lion = done.decay
    assert adamw.bins is not None
    assert l2.bins is not None
    assert adamw.bins.grid == l2.bins.grid
    assert "not followed" in lion.reason
    assert [p.name for p in done.decay] == ["adamw", "adam-l2", "lion"]
    made.worker.send(c.WatchDecay(on=False))
    off = made.until(lambda s: s.decay == ())
    assert off.memory_bytes == done.memory_bytes - adamw.nbytes - l2.nbytes
    assert made.worker.close(WAIT_S)


def test_the_command_prints_medians_by_decile(call: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = call(
        "race", TINY, "--lane", "adamw", "--lane", "adam-l2", "--lane", "lion", "--steps", "5", "--decay", "--json"
    )  # fmt: skip
    assert code == 0
    adamw, l2, lion = (lane["decay"] for lane in json.loads(out)["lanes"])
    assert [row["share"] for row in adamw["deciles"]] == [1.0] * 10
    sizes = [row["rms_gradient"] for row in l2["deciles"]]
    assert sizes == sorted(sizes)
    assert (l2["steps"], l2["since"]) == (5, 0)
    parts = ("in_bins", "without_decay", "without_gradient", "opposite_sign", "outside")
    assert sum(l2[part] for part in parts) == l2["elements"]
    assert lion["deciles"] == []
    assert "not followed" in lion["reason"]
    code, out, _ = call("race", TINY, "--lane", "adamw", "--lane", "adam-l2", "--steps", "2", "--decay")
    assert "adam-l2 share" in out


def test_without_it_nothing_is_said_or_allocated() -> None:
    race = started("adamw", "adam-l2")
    try:
        # What reading back takes is allocated with the first step.
        race.step()
        before = race.lanes[0].engine.stepper.memory_bytes
        race.step()
        assert not any(lane.engine.decay.asked for lane in race.lanes)
        assert race.lanes[0].engine.stepper.memory_bytes == before
    finally:
        race.close()


@pytest.mark.parametrize("numerics", ["published", "precise"])
def test_params_with_settings_of_their_own_are_added_up_by_them(gpu: Gpu, numerics: Numerics) -> None:
    """Two classes that change places after two steps; in the last step one takes no part."""
    one, two = Settings(1e-2, 0.9, 0.95, 1e-8, 0.1), Settings(3e-3, 0.8, 0.9, 1e-8, 0.02)
    idle = replace(one, idle=True)
    params = [Param("a", (97, 64)), Param("b", (40, 30))]
    w = normal_state(params)[0]
    variant = Variant(optimizer="adam-l2", numerics=numerics)
    layout = layout_for(tuple(params), gpu.limits, variant, alone=True)
    stepper = GpuStepper(gpu, layout, variant, HostState(w, {}, {}))
    truth = {p.name: DecaySums.zero(p.numel) for p in params}
    meter: GpuDecayMeter | None = None
    for step in range(1, 6):
        classes = (one, two, idle)
        of = (2, 0) if step == 5 else (0, 1) if step < 3 else (1, 0)
        hyper = Hyper(max_grad_norm=1.0, per_param=ParamSettings(classes, of))
        g = normal_state(params, seed=step)[1]
        stepper.begin_step(HostGradients(g), hyper)
        meter = meter or stepper.decay_meter()
        stepper.run_until(hyper, norm_known_at(stepper.plan))
        scale, state = stepper.grad_stats().clip_scale, stepper.state()
        meter.add(hyper)
        for p, number in zip(params, of, strict=True):
            if number < 2:
                wide = [getattr(state, lane)[p.name].astype(np.float64) for lane in ("w", "m", "v")]
                truth[p.name] = add_step(
                    truth[p.name], wide[0], g[p.name], wide[1], wide[2], scale=scale,
                    hyper=alone(hyper, classes[number]), step=step, l2=True, numerics=numerics,
                )  # fmt: skip
        stepper.run_to_end(hyper)
    assert meter is not None
    for name, sums in truth.items():
        found = meter.read(name)
        for lane in ("m", "received", "decoupled", "squares"):
            got, want = getattr(found, lane), getattr(sums, lane)
            assert np.quantile(np.abs(got - want) / np.maximum(np.abs(want), 1e-9), 0.99) < 1e-5, (name, lane)
