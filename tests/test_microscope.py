"""One element under the microscope: at every dispatch, going back, over a recording; and values that are looked for."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from gpu_helpers import make_stepper, normal_state
from replays import PARAMS as RECORDED_PARAMS
from replays import record
from test_looking import EIGHT_BIT
from test_travel import STEPS, arrive, travel
from test_worker import WAIT_S, Opener, Watched

from inspector import Session
from inspector.floats import F32Array
from inspector.gpu.device import Gpu
from inspector.gpu.explain import explain_element
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.plan import Variant
from inspector.runtime import commands as c
from inspector.runtime.engine import Engine
from inspector.runtime.microscope import ElementPicture, Microscope
from inspector.runtime.value_finding import Found
from inspector.schedule import Schedule
from inspector.sources.base import ReadWeights
from inspector.stepping import HostGradients, HostState
from inspector.value_search import exponent_query, parse_query

pytestmark = pytest.mark.gpu

PARAMS = (Param("a", (40, 50)), Param("b", (70,)))
HYPER = Hyper(lr=1e-2, weight_decay=0.1, max_grad_norm=0.5)


class Drawn:
    """Gradients drawn from the step."""

    name, description, params, hyper, schedule = "drawn", "two params", PARAMS, HYPER, Schedule()
    last_step = None

    def initial_state(self) -> HostState:
        w, _, m, v = normal_state(PARAMS)
        return HostState(w, m, v)

    def gradients(self, step: int, read_weights: ReadWeights) -> HostGradients:
        return HostGradients(normal_state(PARAMS, step)[1])


def running(gpu: Gpu, variant: Variant) -> Engine:
    w, _, m, v = normal_state(PARAMS)
    return Engine(Drawn(), make_stepper(gpu, PARAMS, variant, w=w, m=m, v=v), hyper=HYPER)


def seen(engine: Engine, param: str, index: int, scope: Microscope | None = None) -> ElementPicture:
    scope = scope or Microscope()
    scope.ask(param, index)
    scope.moved()
    scope.refresh(engine, running=False)
    assert scope.picture is not None
    return scope.picture


def test_what_a_run_had_no_time_for_is_there_once_it_has_stopped(gpu: Gpu) -> None:
    engine, scope = running(gpu, Variant()), Microscope()
    engine.step_dispatch()
    scope.ask("a", 1301)
    scope.refresh(engine, running=True)
    assert scope.picture is not None
    assert not scope.picture.exact_norm
    scope.refresh(engine, running=False)
    assert scope.picture.exact_norm
    gradients = np.concatenate([g.ravel() for g in normal_state(PARAMS, 1)[1].values()])
    norm = np.linalg.norm(gradients.astype(np.float64))
    assert scope.picture.lines[0].name == "gradNorm"
    assert scope.picture.lines[0].f64 == pytest.approx(norm, rel=2**-24)  # Σg² is a float32


@pytest.mark.parametrize(
    "variant",
    [Variant(), Variant(fused=False, numerics="precise"), Variant(dispatch="per-tensor"), EIGHT_BIT,
     Variant(optimizer="adam-l2"), Variant(optimizer="adam"), Variant(optimizer="lion", numerics="precise"),
     Variant(optimizer="sgd"), Variant(optimizer="momentum", fused=False)],
    ids=lambda v: f"{v.kernel} {v.fused} {v.dispatch} {v.optimizer}",
)  # fmt: skip
@pytest.mark.parametrize(("param", "index"), [("a", 1301), ("b", 69)])
def test_at_every_dispatch_the_lines_are_those_that_explain_gives(
    gpu: Gpu, variant: Variant, param: str, index: int
) -> None:
    # As `inspector explain` gives them, which runs the step.
    twin = running(gpu, variant)
    twin.step_iteration()
    twin.begin()
    wanted = explain_element(twin.stepper, HYPER, param, index)  # type: ignore[arg-type]
    assert wanted.agrees

    engine = running(gpu, variant)
    engine.step_iteration()
    engine.begin()
    stages = []
    while True:
        picture = seen(engine, param, index)
        stages.append(picture.stage)
        assert (picture.step, picture.element) == (2, wanted.element)
        assert picture.missing == ""
        assert [line.name for line in picture.lines] == [line.name for line in wanted.lines]
        assert [line.f32.tobytes() for line in picture.lines] == [line.f32.tobytes() for line in wanted.lines]
        before_scale = not variant.fused and picture.stage in ("ahead", "given")
        for mine, theirs in zip(picture.lines, wanted.lines, strict=True):
            # A gradient that is clipped by a pass is rounded once before the lines in float64 begin.
            assert mine.f64 == pytest.approx(theirs.f64, rel=1e-6 if before_scale else 1e-15)
        place = picture.place
        assert place is not None
        assert (place.dispatch, place.workgroup, place.thread, place.lane) == (
            wanted.dispatch, wanted.workgroup, wanted.thread, wanted.lane,
        )  # fmt: skip
        assert place.block == (index // 256 if variant.kernel == "8bit" else None)
        assert picture.agrees == (True if picture.stage == "done" else None)
        assert bool(picture.coded) == (variant.kernel == "8bit" and picture.stage == "done")
        if engine.stepper.cursor.at_end:
            break
        engine.step_dispatch()
    assert stages[0] == "ahead"
    assert stages[-1] == "done"
    assert stages == sorted(stages, key=("ahead", "given", "done").index)
    # And going back.
    while engine.stepper.cursor.dispatch:
        engine.undo_dispatch()
        stages.pop()
        assert seen(engine, param, index).stage == stages[-1]


def test_looking_leaves_the_run_as_it_is(gpu: Gpu) -> None:
    engine, twin = running(gpu, Variant()), running(gpu, Variant())
    scope = Microscope()
    for _ in range(3):
        for each in (engine, twin):
            each.step_iteration()
        seen(engine, "a", 3, scope)
    mine, theirs = engine.stepper.state(), twin.stepper.state()
    for lane in ("w", "m", "v"):
        for p in PARAMS:
            assert getattr(mine, lane)[p.name].tobytes() == getattr(theirs, lane)[p.name].tobytes()


def test_before_the_first_step_and_without_memory_it_says_what_to_do(gpu: Gpu) -> None:
    engine = running(gpu, Variant())
    picture = seen(engine, "a", 0)
    assert (picture.lines, picture.given) == ((), None)
    assert "F10" in picture.missing
    assert picture.now is not None
    w, _, m, v = normal_state(PARAMS)
    forgetful = Engine(Drawn(), make_stepper(gpu, PARAMS, w=w, m=m, v=v, undo_bytes=0), hyper=HYPER)
    forgetful.step_iteration()
    picture = seen(forgetful, "a", 0)
    assert (picture.stage, picture.lines) == ("done", ())
    assert "--undo-mb" in picture.missing


def test_an_element_that_is_not_there_has_no_picture(gpu: Gpu) -> None:
    scope, engine = Microscope(), running(gpu, Variant())
    for asked in (("a", 2000), ("nosuch", 0), (None, 0)):
        scope.ask(*asked)
        scope.moved()
        scope.refresh(engine, running=False)
        assert scope.picture is None


def test_over_steps_it_remembers_what_memory_had_and_forgets_what_was_taken_back(gpu: Gpu) -> None:
    engine, scope = running(gpu, Variant()), Microscope()
    truth: dict[int, tuple[bytes, bytes]] = {}
    for step in range(1, 7):
        engine.begin()
        element = engine.stepper.layout["b"].offset + 3
        g = engine.stepper.read("g", element, 1).tobytes()
        engine.step_iteration()
        truth[step] = g, engine.stepper.read("w", element, 1).tobytes()
        if step % 2:
            seen(engine, "b", 3, scope)

    def known(picture: ElementPicture) -> dict[int, tuple[bytes, bytes]]:
        (g_steps, g), (w_steps, w) = picture.trail.lanes["g"], picture.trail.lanes["w"]
        by_step = dict(zip(w_steps.tolist(), w, strict=True))
        return {int(s): (x.tobytes(), by_step[int(s)].tobytes()) for s, x in zip(g_steps, g, strict=True)}

    picture = seen(engine, "b", 3, scope)
    assert known(picture) == truth
    assert picture.trail.lanes["w"][0].tolist() == list(range(7))
    engine.rewind_to(4)
    picture = seen(engine, "b", 3, scope)
    assert known(picture) == {step: truth[step] for step in range(1, 5)}


# --- a recording


@pytest.fixture(scope="module")
def session(gpu: Gpu, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("microscope") / "all.session"
    record(gpu, path, STEPS, "all")
    return path


def read_all(scope: Microscope, made: object) -> None:
    while scope.reads_on:
        scope.read_on(made.engine.recorded)  # type: ignore[attr-defined]


def test_a_captured_step_is_explained_while_the_device_stands_elsewhere(gpu: Gpu, session: Path) -> None:
    from inspector.runtime.snapshots import Glance

    made, scope = travel(gpu, session), Microscope()
    name = RECORDED_PARAMS[0].name
    arrive(made, 9, 0)
    scope.ask(name, 5)
    scope.refresh(made.engine, running=False)
    rebuilt = scope.picture
    assert rebuilt is not None
    assert rebuilt.stage == "ahead"
    arrive(made, 2)
    recorded = made.engine.recorded
    assert recorded is not None
    scope.glance(made.engine, recorded, Glance(9))
    picture = scope.picture
    assert picture is not None
    assert (picture.stage, picture.step, picture.missing) == ("captured", 9, "")
    assert [line.f32.tobytes() for line in picture.lines] == [line.f32.tobytes() for line in rebuilt.lines]
    assert picture.agrees
    assert not picture.exact_norm
    assert made.engine.stepper.cursor.step == 2
    truth = Session.open(session)
    read_all(scope, made)
    scope.glance(made.engine, recorded, Glance(9))
    assert scope.picture is not None
    trail = scope.picture.trail
    assert (trail.read, trail.captured, trail.all_captured, trail.problem) == (
        trail.captured, 3 * (STEPS + 1) + STEPS, 3 * (STEPS + 1) + STEPS, "",
    )  # fmt: skip
    for lane in ("w", "m", "v"):
        steps, values = trail.lanes[lane]
        assert steps.tolist() == list(range(STEPS + 1))
        wanted: list[F32Array] = [truth.tensor(lane, int(s), name).reshape(-1)[5:6] for s in steps]
        assert values.tobytes() == np.concatenate(wanted).tobytes()
    assert trail.lanes["g"][0].tolist() == list(range(1, STEPS + 1))


def test_a_step_that_was_not_captured_says_what_is_missing(gpu: Gpu, tmp_path: Path) -> None:
    from inspector.runtime.snapshots import Glance

    record(gpu, tmp_path / "sparse.session", STEPS, "keyframes:5+grads:1")
    made, scope = travel(gpu, tmp_path / "sparse.session"), Microscope()
    scope.ask(RECORDED_PARAMS[0].name, 5)
    recorded = made.engine.recorded
    assert recorded is not None
    scope.glance(made.engine, recorded, Glance(8))
    assert scope.picture is not None
    assert scope.picture.lines == ()
    assert "Its starting state was not captured for step 8" in scope.picture.missing
    scope.glance(made.engine, recorded, Glance(9, "It cannot be rebuilt."))
    assert scope.picture.missing == "It cannot be rebuilt."
    scope.glance(made.engine, recorded, Glance(6))
    assert scope.picture.lines != ()


# --- through the worker


@pytest.fixture
def watched() -> Iterator[Watched]:
    made = Watched(Opener(Drawn))
    made.at(1, 0)
    yield made
    assert made.worker.close(WAIT_S)


def answer(watched: Watched, asked: c.FindValue) -> Found:
    watched.worker.send(asked)
    found = watched.until(
        lambda s: s.closeup.found is not None and s.closeup.found.asked == asked
    ).closeup.found
    assert found is not None
    return found


def test_the_worker_shows_the_element_that_is_asked_for_as_the_run_goes_on(watched: Watched) -> None:
    watched.worker.send(c.ViewElement("b", 3))
    first = watched.until(lambda s: s.closeup.element is not None).closeup.element
    assert first is not None
    assert (first.param, first.index, first.step, first.stage) == ("b", 3, 1, "ahead")
    watched.worker.send(c.StepIteration())
    watched.until(lambda s: s.closeup.element is not None and s.closeup.element.stage == "done")
    watched.worker.send(c.Run(until=5))
    last = watched.until(lambda s: s.mode == "paused" and s.cursor is not None and s.cursor.step == 5)
    assert last.closeup.element is not None
    assert last.closeup.element.trail.span == (0, 5)
    watched.worker.send(c.ViewElement(None))
    watched.until(lambda s: s.closeup.element is None)


def test_searching_goes_on_from_where_it_is_and_round_the_end(watched: Watched) -> None:
    g = normal_state(PARAMS, 1)[1]
    query = parse_query("|x| > 0.05")
    flat = np.concatenate([g["a"], g["b"]])
    where = [("a", i) if i < 2000 else ("b", i - 2000) for i in map(int, np.flatnonzero(np.abs(flat) > 0.05))]
    assert len(where) > 3
    at = None
    for wanted in (*where, where[0]):
        found = answer(watched, c.FindValue(query, "g", None, at))
        assert (found.param, found.index, found.count, found.wrapped) == (
            *wanted, len(where), at is not None and wanted == where[0],
        )  # fmt: skip
        at = wanted
    for wanted in (*reversed(where[1:]), where[0]):
        found = answer(watched, c.FindValue(query, "g", None, at, backwards=True))
        assert (found.param, found.index) == wanted
        at = wanted
    inside = [i for name, i in where if name == "a"]
    found = answer(watched, c.FindValue(query, "g", "a", ("a", inside[-1])))
    assert (found.param, found.index, found.count, found.wrapped) == ("a", inside[0], len(inside), True)
    found = answer(watched, c.FindValue(parse_query("123"), "g", None))
    assert (found.param, found.count) == (None, 0)


def test_zeros_between_params_are_never_found(watched: Watched) -> None:
    watched.worker.send(c.StepIteration())
    watched.until(lambda s: s.cursor is not None and s.cursor.at_end)
    at = None
    seen_params = []
    for _ in range(3):
        found = answer(watched, c.FindValue(parse_query("0"), "g", None, at))
        assert found.count == 2070
        seen_params.append((found.param, found.index))
        at = ("a", 1999)
    assert seen_params[:2] == [("a", 0), ("b", 0)]
    changed = answer(watched, c.FindValue(parse_query("changed"), "m", "b"))
    assert (changed.param, changed.index, changed.count) == ("b", 0, 70)
    # The last dispatch wrote the block without decay alone.
    assert answer(watched, c.FindValue(parse_query("changed"), "m", "a")).count == 0


def test_a_bin_of_a_histogram_is_what_is_found_for_it(watched: Watched) -> None:
    g = normal_state(PARAMS, 1)[1]["a"]
    exponents = np.floor(np.log2(np.abs(g.astype(np.float64))))
    for exponent in (-6, -8, -10):
        found = answer(watched, c.FindValue(exponent_query(exponent), "g", "a"))
        where = np.flatnonzero(exponents == exponent)
        assert (found.count, found.index) == (len(where), int(where[0]))


def test_values_are_written_as_csv(watched: Watched, tmp_path: Path) -> None:
    watched.worker.send(c.StepIteration())
    watched.until(lambda s: s.cursor is not None and s.cursor.at_end)
    path = tmp_path / "values.csv"
    watched.worker.send(c.SaveValues(str(path), "b", ("w", "v"), 60))
    watched.until(lambda s: s.notice is not None and "Wrote 10 rows" in s.notice.text)
    with path.open(encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["flat", "i0", "w_before", "w_after", "v_before", "v_after"]
    assert [row[0] for row in rows[1:]] == [str(i) for i in range(60, 70)]
    w = normal_state(PARAMS)[0]["b"]
    assert np.array([row[2] for row in rows[1:]], np.float32).tobytes() == w[60:].tobytes()
    watched.worker.send(c.SaveValues(str(tmp_path / "no" / "such.csv"), "b", ("w",)))
    watched.until(lambda s: s.notice is not None and s.notice.severity == "error")
    assert list(tmp_path.iterdir()) == [path]


def test_a_search_is_ended_by_the_next_command(monkeypatch: pytest.MonkeyPatch, watched: Watched) -> None:
    from inspector.runtime import value_finding

    asked = c.FindValue(parse_query("1"), "w", None)

    def endless(stepper: object, asked: c.FindValue, progress: value_finding.Progress) -> Found:
        for done in range(10**9):
            progress(done, 10**9)
        raise AssertionError

    monkeypatch.setattr("inspector.runtime.side_work.find_on_device", endless)
    watched.worker.send(asked)
    working = watched.until(lambda s: s.closeup.working is not None).closeup.working
    assert working is not None
    assert "Looking for 1 in w" in working.doing
    watched.worker.send(c.CancelWork())
    found = watched.until(lambda s: s.closeup.found is not None).closeup.found
    assert found is not None
    assert (found.ended, found.param) == (True, None)
    assert watched.snapshots[-1].closeup.working is None
