"""Going to any step of a recording: held against the states that the run itself had there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recordings import about as made_up_about
from recordings import record_on, state
from replays import PARAMS, constant, gradients, pipelines_of, record
from test_worker import Opener, Tiny, Watched

from inspector import Session
from inspector.errors import OutOfMemoryError, UsageError
from inspector.gpu.device import Gpu
from inspector.gpu.opener import StepperMaker, suits
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import Hyper
from inspector.layout import Layout
from inspector.plan import Variant, layout_for
from inspector.progress import EndedError
from inspector.runtime import commands as c
from inspector.runtime.engine import Engine
from inspector.runtime.opening import opened
from inspector.runtime.snapshots import Snapshot
from inspector.runtime.travel import GivenUpError, Travel
from inspector.session.recorder import Recorder
from inspector.session.writer import SessionWriter
from inspector.sources.base import Source
from inspector.sources.recording import Recording
from inspector.stepping import State

pytestmark = pytest.mark.gpu

STEPS = 17
POLICY = "keyframes:5+grads:1"


class Here:
    """Opens recordings on the device of the tests."""

    def __init__(self, gpu: Gpu, undo_bytes: int = 0) -> None:
        self.gpu, self.undo_bytes = gpu, undo_bytes
        self.made = 0

    def open_source(self, spec: str) -> Source:
        return Recording(Path(spec))

    def hyper(self, source: Source) -> Hyper:
        return source.hyper

    def make_stepper(
        self, source: Source, variant: Variant, state: State, layout: Layout | None = None
    ) -> GpuStepper:
        self.made += 1
        if layout is None or not suits(self.gpu, layout, variant):
            layout = layout_for(source.params, self.gpu.limits, variant)
        return Shared(
            self.gpu, layout, variant, state, undo_bytes=self.undo_bytes, pipelines=pipelines_of(self.gpu)
        )


class Shared(GpuStepper):
    """Its device stays when it is closed."""

    def close(self) -> None:
        self.release()


def travel(
    gpu: Gpu, path: Path, *, undo_bytes: int = 0, stats: Any = "light", said: list[str] | None = None
) -> Travel:
    opener = Here(gpu, undo_bytes)
    source = Recording(path)
    form = source.recorded_variant(source.first_step) or source.session.about.variant
    engine = opened(opener, source, form, stats)  # type: ignore[arg-type]
    made = Travel(
        engine, engine.step_iteration, lambda severity, text: None if said is None else said.append(text)
    )
    made.start()
    return made


def arrive(travel: Travel, step: int, dispatch: int | None = None) -> None:
    travel.seek(step, dispatch)
    while travel.busy:
        travel.advance()


@pytest.fixture(scope="module")
def pair(gpu: Gpu, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Session]:
    """A recording with a keyframe every 5 steps, and one of the same run with every state."""
    folder = tmp_path_factory.mktemp("pair")
    record(gpu, folder / "sparse.session", STEPS, POLICY)
    record(gpu, folder / "all.session", STEPS, "all")
    return folder / "sparse.session", Session.open(folder / "all.session")


def same_state(engine: Engine, session: Session, step: int) -> None:
    found, meant = engine.stepper.state(), session.keyframe(step)
    assert found.finished_steps == meant.finished_steps == step
    for lane in ("w", "m", "v"):
        for p in PARAMS:
            mine = getattr(found, lane)[p.name].view(np.uint32)
            theirs = np.asarray(getattr(meant, lane).get(p.name, np.zeros(p.numel, np.float32)))
            np.testing.assert_array_equal(mine, theirs.view(np.uint32), err_msg=f"{lane} of {p.name}")


def test_every_step_is_rebuilt_to_the_bit_in_any_order(gpu: Gpu, pair: tuple[Path, Session]) -> None:
    path, truth = pair
    made = travel(gpu, path)
    for step in (12, 3, 17, 0, 5, 6, 4, 16, 1, 11, 10, 9):
        arrive(made, step)
        assert made.glance is None
        assert made.engine.stepper.cursor.finished_steps == step
        same_state(made.engine, truth, step)
        if step:
            record_ = made.engine.record
            assert record_ is not None
            assert (record_.step, record_.grad_norm) == (step, truth.step(step).grad_norm)


def test_a_dispatch_that_a_step_does_not_have_is_told_and_ends_at_the_end(
    gpu: Gpu, pair: tuple[Path, Session]
) -> None:
    path, truth = pair
    said: list[str] = []
    made = travel(gpu, path, said=said)
    count = made.engine.stepper.cursor.count
    for step, dispatch in ((7, count), (8, count - 1), (3, 0)):
        arrive(made, step, dispatch)
        cursor = made.engine.stepper.cursor
        assert (cursor.step, cursor.dispatch) == (step, dispatch)
    assert said == []
    arrive(made, 12, 99)
    assert made.engine.stepper.cursor.at_end
    same_state(made.engine, truth, 12)
    assert said == [f"Step 12 has dispatches 1 to {count}, and no dispatch 99: this is the end of the step."]


def test_the_dispatches_of_a_step_are_its_own_not_those_of_the_step_on_show(gpu: Gpu, tmp_path: Path) -> None:
    """Steps of Shampoo in which no roots are taken, here 3 and 5, have fewer."""
    path = tmp_path / "roots.session"
    record(gpu, path, 5, "all", constant(Variant(optimizer="shampoo", root_block=32, root_every=2)))
    said: list[str] = []
    made = travel(gpu, path, said=said)
    counts = {}
    for step in (4, 3):
        arrive(made, step, 0)
        counts[step] = made.engine.stepper.cursor.count
    assert counts[3] < counts[4]
    arrive(made, 3)
    arrive(made, 4, counts[3] + 1)
    assert (made.engine.stepper.cursor.step, made.engine.stepper.cursor.dispatch) == (4, counts[3] + 1)
    assert said == []
    arrive(made, 5, counts[4] - 1)
    assert made.engine.stepper.cursor.at_end
    assert made.engine.stepper.cursor.step == 5
    assert [text.partition(",")[0] for text in said] == [f"Step 5 has dispatches 1 to {counts[3]}"]


def test_the_nearest_state_is_gone_from(gpu: Gpu, pair: tuple[Path, Session]) -> None:
    engine = travel(gpu, pair[0]).engine
    ways = {step: engine.way_to(step) for step in (0, 4, 5, 7, 14)}
    assert {step: (w.start, w.steps) for step, w in ways.items() if w} == {
        0: (0, 0), 4: (0, 4), 5: (5, 0), 7: (5, 2), 14: (10, 4)
    }  # fmt: skip


def test_where_memory_reaches_nothing_runs_again(gpu: Gpu, pair: tuple[Path, Session]) -> None:
    made = travel(gpu, pair[0], undo_bytes=1 << 28)
    arrive(made, 9)
    way = made.engine.way_to(8)
    assert way is not None
    assert (way.steps, way.rewinds) == (0, True)
    arrive(made, 8)
    same_state(made.engine, pair[1], 8)


def test_what_was_recorded_is_on_show_before_anything_runs(gpu: Gpu, pair: tuple[Path, Session]) -> None:
    path, truth = pair
    made = travel(gpu, path)
    made.step_s = 10.0
    made.seek(14)
    assert made.busy
    assert made.glance is not None
    assert (made.glance.step, made.glance.done, made.glance.of, made.glance.missing) == (14, 0, 4, None)
    shown = made.pictured(Snapshot(1, "paused", "x"))
    assert shown.cursor is not None
    assert shown.record is not None
    assert (shown.cursor.step, shown.cursor.at_end) == (14, True)
    assert shown.record.grad_norm == truth.step(14).grad_norm
    assert shown.counted is not None
    assert shown.counted.step == 14
    # lr, β₁, β₂ and λ of that step: the warm-up has ended by then.
    assert shown.uniforms["hp:wd"][:4] == pytest.approx((3e-3, 0.9, 0.95, 0.1), rel=1e-6)
    seen = []
    while made.busy:
        made.advance()
        seen.append(made.glance.done if made.glance else None)
    assert seen == [0, 1, 2, 3, 4, None]
    same_state(made.engine, truth, 14)


def test_giving_up_leaves_what_was_recorded_on_show(gpu: Gpu, pair: tuple[Path, Session]) -> None:
    made = travel(gpu, pair[0])
    made.step_s = 10.0
    made.seek(14)
    made.advance()
    made.advance()
    made.cancel()
    assert not made.busy
    assert made.glance is not None
    assert (made.glance.step, made.glance.of) == (14, 0)
    # What needs the buffers has to wait until they are those of step 14.
    made.step_s = 10.0
    assert made.hold(c.StepIteration())
    while made.busy:
        made.advance()
    assert made.after == [c.StepIteration()]
    same_state(made.engine, pair[1], 14)


def test_dispatch_by_dispatch_back_across_steps(gpu: Gpu, pair: tuple[Path, Session]) -> None:
    """From the end of step 6 to the start of step 4 without any memory: each place is one run forward has."""
    path, truth = pair
    forward = travel(gpu, path)
    places: dict[tuple[int, int], Any] = {}
    arrive(forward, 3)
    for _ in range(3 * forward.engine.stepper.cursor.count):
        if forward.engine.stepper.cursor.at_end:
            forward.engine.begin()
            cursor = forward.engine.stepper.cursor
            places[cursor.step, cursor.dispatch] = _bits(forward.engine)
        forward.engine.step_dispatch()
        cursor = forward.engine.stepper.cursor
        places[cursor.step, cursor.dispatch] = _bits(forward.engine)
    count = cursor.count
    back = travel(gpu, path)
    for step in (6, 5, 4):
        for dispatch in reversed(range(count)):
            arrive(back, step, dispatch)
            cursor = back.engine.stepper.cursor
            assert (cursor.step, cursor.dispatch) == (step, dispatch)
            assert _bits(back.engine) == places[step, dispatch]
    assert truth.steps.stop - 1 == STEPS


def _bits(engine: Engine) -> list[bytes]:
    stepper = engine.stepper
    return [stepper.read(lane, 0, stepper.layout.padded_elements).tobytes() for lane in ("w", "g", "m", "v")]


def test_a_changed_setting_leads_another_way_from_there_on(gpu: Gpu, pair: tuple[Path, Session]) -> None:
    path, truth = pair
    made = travel(gpu, path)
    engine = made.engine
    arrive(made, 7)
    assert engine.course.as_recorded
    assert len(engine.history()) == STEPS
    engine.set_hyper("beta2", 0.5)
    assert engine.course.changed_from == 8
    assert list(engine.history().first) == list(range(1, 8))
    for _ in range(4):
        engine.step_iteration()
    otherwise = engine.stepper.state()
    assert list(engine.history().first) == list(range(1, 12))
    # Before the change all is as recorded, and what comes after it never comes from a captured state.
    way = engine.way_to(13)
    assert way is not None
    assert (way.start, way.to) == (11, 13)
    made.seek(3)
    while made.busy:
        made.advance()
    same_state(engine, truth, 3)
    arrive(made, 11)
    again = engine.stepper.state()
    assert all(np.array_equal(again.w[p.name], otherwise.w[p.name]) for p in PARAMS)
    assert not np.array_equal(again.w["head.bias"], truth.keyframe(11).w["head.bias"])


def test_a_setting_put_back_before_anything_ran_changes_nothing(gpu: Gpu, pair: tuple[Path, Session]) -> None:
    made = travel(gpu, pair[0])
    before = made.engine.hyper.beta2
    arrive(made, 7)
    made.engine.set_hyper("beta2", 0.5)
    made.engine.set_hyper("beta2", before)
    assert made.engine.course.as_recorded
    assert len(made.engine.history()) == STEPS


@pytest.mark.parametrize(
    "forms",
    [
        pytest.param((Variant(), Variant(kernel="f16")), id="f16"),
        pytest.param((Variant(), Variant(kernel="8bit", codec="dynamic")), id="other layout"),
        pytest.param((Variant(kernel="8bit"), Variant(kernel="8bit", codec="sqrt")), id="other codec"),
        pytest.param((Variant(), Variant(dispatch="per-tensor")), id="per tensor"),
    ],
)
def test_where_the_recording_changed_its_form_so_does_the_way(
    gpu: Gpu, tmp_path: Path, forms: tuple[Variant, Variant]
) -> None:
    settings = lambda step: constant(forms[step > 8])(step)  # noqa: E731
    record(gpu, tmp_path / "sparse.session", 12, POLICY, settings)
    record(gpu, tmp_path / "all.session", 12, "all", settings)
    truth = Session.open(tmp_path / "all.session")
    made = travel(gpu, tmp_path / "sparse.session")
    for step in (11, 7, 12, 9, 3, 10):
        arrive(made, step)
        same_state(made.engine, truth, step)
        assert made.engine.stepper.plan.variant == forms[step > 8]
    assert made.engine.course.as_recorded


def test_params_lie_where_they_lay_when_it_was_recorded(gpu: Gpu, tmp_path: Path) -> None:
    """The norm is added up in the order in which they lie, so another layout gives other last bits."""
    for name, policy in (("sparse", POLICY), ("all", "all")):
        record(gpu, tmp_path / f"{name}.session", 12, policy, align_bytes=2048)
    truth = Session.open(tmp_path / "all.session")
    made = travel(gpu, tmp_path / "sparse.session")
    assert made.engine.stepper.layout == truth.layout()
    assert made.engine.stepper.layout.align == 512
    for step in (8, 3, 12):
        arrive(made, step)
        same_state(made.engine, truth, step)


@pytest.mark.parametrize("why", [OutOfMemoryError("The device has no memory."), EndedError()])
def test_where_no_stepper_can_be_made_the_params_lie_as_before(
    gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: Exception
) -> None:
    forms = Variant(), Variant(kernel="8bit", codec="dynamic")
    settings = lambda step: constant(forms[step > 8])(step)  # noqa: E731
    record(gpu, tmp_path / "sparse.session", 12, POLICY, settings)
    record(gpu, tmp_path / "all.session", 12, "all", settings)
    truth = Session.open(tmp_path / "all.session")
    made = travel(gpu, tmp_path / "sparse.session")
    make = made.engine._placing.make
    assert make is not None
    failing = [True]

    def refusing(source: Source, variant: Variant, state: State, layout: Layout | None = None) -> Any:
        if failing and variant.kernel == "8bit":
            failing.clear()
            raise why
        return make(source, variant, state, layout)

    made.engine._placing.make = refusing
    # As of a recording that does not say where its params lay.
    monkeypatch.setattr(made.engine.course, "layout_at", lambda step: None)
    with pytest.raises(type(why)):
        arrive(made, 10)
    for step in (11, 3, 12):
        arrive(made, step)
        same_state(made.engine, truth, step)
        assert made.engine.stepper.plan.variant == forms[step > 8]


def test_what_cannot_be_rebuilt_says_what_is_missing(gpu: Gpu, tmp_path: Path) -> None:
    record(gpu, tmp_path / "few.session", 12, "grads:3+keyframes:6")
    made = travel(gpu, tmp_path / "few.session")
    arrive(made, 6)
    assert made.glance is None
    made.seek(8)
    assert not made.busy
    assert made.glance is not None
    assert made.glance.missing is not None
    assert "step 8" in made.glance.missing.lower()
    assert "gradients were not captured" in made.glance.missing
    # Whole steps go on among what was recorded.
    assert made.hold(c.StepIteration())
    assert made.glance.step == 9
    arrive(made, 12)
    assert made.glance is None


def test_a_recording_of_numbers_alone_is_gone_through(gpu: Gpu, tmp_path: Path) -> None:
    record(gpu, tmp_path / "stats.session", 9, "stats")
    truth = Session.open(tmp_path / "stats.session")
    made = travel(gpu, tmp_path / "stats.session")
    assert made.glance is not None
    assert made.glance.step == 9
    assert made.glance.missing is not None
    for step in (4, 9, 1):
        made.seek(step)
        shown = made.pictured(Snapshot(1, "paused", "x"))
        assert shown.record is not None
        assert shown.record.clip_scale == truth.step(step).clip_scale


def test_a_loop_plays_round_and_round(gpu: Gpu, pair: tuple[Path, Session], monkeypatch: Any) -> None:
    made = travel(gpu, pair[0])
    now = 100.0
    monkeypatch.setattr("inspector.runtime.travel.time.perf_counter", lambda: now)
    made.play(c.Play(10.0, 4, 6))
    seen = []
    for _ in range(7):
        seen.append(made.shown)
        now += 0.1001
        assert made.play_on()
    assert seen == [4, 5, 6, 4, 5, 6, 4]
    made.play(c.Play(10.0))
    now += 50
    assert not made.play_on()
    assert made.shown == STEPS


@pytest.mark.parametrize("wrong", [c.Play(0.0), c.Play(float("nan")), c.Play(5.0, 7, 3), c.Play(5.0, 7)])
def test_a_speed_or_loop_nobody_can_mean_is_refused(
    gpu: Gpu, pair: tuple[Path, Session], wrong: c.Play
) -> None:
    made = travel(gpu, pair[0])
    with pytest.raises(UsageError):
        made.play(wrong)
    assert made.playing is None


# --- as a run on the worker's thread


@pytest.fixture
def watched(gpu: Gpu) -> Iterator[Callable[..., Watched]]:
    open_: list[Watched] = []

    def start(opener: Any, spec: str, **options: Any) -> Watched:
        open_.append(Watched(opener, spec, **options))
        return open_[-1]

    yield start
    for each in open_:
        assert each.worker.close(20.0)


class OpenRecording(Opener):
    def open_source(self, spec: str) -> Source:
        return Recording(Path(spec))


def test_a_recording_shows_all_of_its_steps_at_once(
    watched: Callable[..., Watched], pair: tuple[Path, Session]
) -> None:
    path, truth = pair
    run = watched(OpenRecording(), str(path))
    first = run.at(1, 0)
    assert first.recorded is not None
    assert (first.recorded.first, first.recorded.last, first.last_step) == (1, STEPS, STEPS)
    assert first.recorded.keyframes.tolist() == [0, 5, 10, 15]
    assert first.recorded.rebuildable.tolist() == [[1, STEPS]]
    np.testing.assert_array_equal(first.history.series["grad_norm"].last, truth.metric("grad_norm"))
    run.worker.send(c.Seek(13))
    at = run.until(lambda s: s.cursor is not None and s.cursor.step == 13 and s.glance is None)
    assert at.record is not None
    assert at.record.loss == truth.step(13).loss
    run.worker.send(c.UndoDispatch())
    at = run.until(lambda s: s.cursor is not None and (s.cursor.step, s.cursor.dispatch) == (13, 3))
    assert at.record is not None
    assert len(at.history) == STEPS


def test_values_of_a_captured_step_are_on_show_without_the_device(
    watched: Callable[..., Watched], gpu: Gpu, tmp_path: Path
) -> None:
    record(gpu, tmp_path / "few.session", 12, "keyframes:6")
    truth = Session.open(tmp_path / "few.session")
    run = watched(OpenRecording(), str(tmp_path / "few.session"), stats="full")
    run.until(lambda s: s.mode == "paused")
    run.worker.send(c.ViewValues("head.bias", 100, 50))
    run.worker.send(c.ViewHistograms("head.bias", ("m", "v")))
    run.worker.send(c.Seek(8))
    at = run.until(lambda s: s.glance is not None and s.glance.step == 8)
    assert at.values is None
    assert at.map is None
    assert at.histograms is not None
    shown, meant = at.histograms.stats["v"], truth.histogram("v", 8, "head.bias")
    assert (shown.count, shown.zeros) == (meant.count, meant.zeros)
    np.testing.assert_array_equal(shown.exponents, meant.exponents)
    run.worker.send(c.Seek(6))
    at = run.until(lambda s: s.glance is None and s.values is not None)
    meant = truth.tensor("w", 6, "head.bias")[100:150]
    assert at.values is not None
    np.testing.assert_array_equal(at.values.after["w"], meant)


def test_a_recording_in_progress_is_followed(watched: Callable[..., Watched], tmp_path: Path) -> None:
    path = tmp_path / "growing.session"
    with Recorder.create(path, made_up_about("grads:1")) as recorder:
        recorder.offer_start(state(0))
        record_on(recorder, 3)
        recorder.flush(None)
        run = watched(OpenRecording(), str(path))
        at = run.until(lambda s: s.recorded is not None)
        assert at.recorded is not None
        assert (at.recorded.last, at.recorded.state) == (3, "recording")
        run.worker.send(c.Follow())
        run.until(lambda s: s.following and s.record is not None and s.record.step == 3)
        record_on(recorder, 8)
        recorder.flush(None)
        at = run.until(lambda s: s.record is not None and s.record.step == 8)
        assert at.recorded is not None
        assert len(at.history) == at.recorded.last == 8
        run.worker.send(c.Follow(False))
        run.until(lambda s: not s.following)
        record_on(recorder, 9)
        recorder.flush(None)
        at = run.until(lambda s: s.recorded is not None and s.recorded.last == 9)
        assert at.cursor is not None
        assert at.cursor.step == 8
    at = run.until(lambda s: s.recorded is not None and s.recorded.state == "complete")
    assert not at.following


class OpenEither(OpenRecording):
    """A recording by its path, or the little run of the tests."""

    def open_source(self, spec: str) -> Source:
        return Tiny() if spec == "tiny" else super().open_source(spec)


def test_a_recording_that_is_opened_after_another_source_runs_as_it_was_recorded(
    watched: Callable[..., Watched], gpu: Gpu, tmp_path: Path
) -> None:
    """In the form of the run before it, it would part from what was recorded before its first step."""
    path = tmp_path / "precise.session"
    form = Variant(numerics="precise", dispatch="per-tensor", fused=False)
    record(gpu, path, 4, settings=constant(form))
    truth = Session.open(path)
    run = watched(OpenEither(), "tiny")
    run.at(1, 0)
    run.worker.send(c.OpenSource(str(path)))
    first = run.until(lambda s: s.mode == "paused" and s.recorded is not None)
    assert first.plan is not None
    assert first.plan.variant == form
    assert len(first.history) == 4, "the numbers of all steps are those that were recorded"
    run.worker.send(c.Seek(3))
    at = run.until(lambda s: s.cursor is not None and s.cursor.step == 3 and s.glance is None)
    assert at.record is not None
    assert at.record.grad_norm == truth.step(3).grad_norm
    run.worker.send(c.OpenSource("tiny"))
    back = run.until(lambda s: s.mode == "paused" and s.recorded is None)
    assert back.plan is not None
    assert back.plan.variant == Variant(), "what was chosen before comes back"


def test_a_run_that_parted_from_its_recording_does_not_follow_it(
    watched: Callable[..., Watched], tmp_path: Path
) -> None:
    path = tmp_path / "growing.session"
    with Recorder.create(path, made_up_about("grads:1")) as recorder:
        recorder.offer_start(state(0))
        record_on(recorder, 3)
        recorder.flush(None)
        run = watched(OpenRecording(), str(path))
        run.at(1, 0)
        run.worker.send(c.SetHyper("beta2", 0.5))
        run.worker.send(c.Follow())
        told = run.until(lambda s: s.notice is not None and "otherwise than recorded" in s.notice.text)
        assert told.notice is not None
        assert "step 1 on" in told.notice.text
        assert not told.following
        assert told.glance is None
        run.worker.send(c.StepIteration())
        run.until(lambda s: s.cursor is not None and s.cursor.at_end and s.cursor.step == 1)


@pytest.mark.parametrize(
    ("source", "how"),
    [("tiny", "inspector run … --save {} --resume"), ("pytorch", "record() with the path {}")],
)
def test_a_recording_that_is_interrupted_is_gone_on_with_by_what_made_it(
    watched: Callable[..., Watched], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, how: str
) -> None:
    path = tmp_path / "growing.session"
    # As a process that is killed leaves it.
    monkeypatch.setattr(SessionWriter, "finish", lambda writer, reason: writer.abandon())
    with Recorder.create(path, replace(made_up_about("grads:1"), source=source)) as recorder:
        recorder.offer_start(state(0))
        record_on(recorder, 3)
        recorder.flush(None)
        run = watched(OpenRecording(), str(path))
        run.until(lambda s: s.recorded is not None)
    told = run.until(lambda s: s.notice is not None and "was interrupted" in s.notice.text)
    assert told.notice is not None
    assert how.format(path) in told.notice.text


@pytest.mark.parametrize("records", [True, False])
def test_what_needs_buffers_ends_playing_and_does_not_run_on(
    watched: Callable[..., Watched],
    pair: tuple[Path, Session],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    records: bool,
) -> None:
    monkeypatch.setattr("inspector.runtime.travel.PLAYED_SHARE", 0.0)
    run = watched(OpenRecording(), str(pair[0]))
    run.until(lambda s: s.recorded is not None)
    run.worker.send(c.Play(2.0, 4, 6))
    run.until(lambda s: s.playing is not None and s.glance is not None)
    run.worker.send(
        c.StartRecording(str(tmp_path / "x.session"), "grads:1") if records else c.SetHyper("lr", 0.25)
    )
    at = run.until(lambda s: s.playing is None and s.glance is None)
    assert at.mode == "paused"
    assert at.cursor is not None
    assert at.cursor.finished_steps in range(4, 7)
    assert at.recording is None or at.recording.steps == 0


@pytest.mark.parametrize("command", [c.Seek(2), c.UndoDispatch(), c.UndoIteration()])
def test_whoever_goes_elsewhere_follows_no_longer(
    watched: Callable[..., Watched], tmp_path: Path, command: c.Command
) -> None:
    path = tmp_path / "growing.session"
    with Recorder.create(path, made_up_about("grads:1")) as recorder:
        recorder.offer_start(state(0))
        record_on(recorder, 3)
        recorder.flush(None)
        run = watched(OpenRecording(), str(path))
        run.until(lambda s: s.recorded is not None)
        run.worker.send(c.Follow())
        run.until(lambda s: s.following and s.glance is not None and s.glance.step == 3)
        run.worker.send(command)
        at = run.until(lambda s: not s.following and s.glance is None)
        record_on(recorder, 6)
        recorder.flush(None)
        later = run.until(lambda s: s.recorded is not None and s.recorded.last == 6)
        assert not later.following
        assert later.glance is None
        assert later.cursor == at.cursor


def test_where_a_followed_recording_ends_its_buffers_are_rebuilt(
    watched: Callable[..., Watched], tmp_path: Path
) -> None:
    path = tmp_path / "growing.session"
    with Recorder.create(path, made_up_about("grads:1")) as recorder:
        recorder.offer_start(state(0))
        record_on(recorder, 3)
        recorder.flush(None)
        run = watched(OpenRecording(), str(path))
        run.until(lambda s: s.recorded is not None)
        run.worker.send(c.Follow())
        run.until(lambda s: s.following and s.glance is not None and s.glance.step == 3)
        record_on(recorder, 5)
    at = run.until(lambda s: s.recorded is not None and s.recorded.state == "complete" and s.glance is None)
    assert at.cursor is not None
    assert at.cursor.step == 5
    assert at.cursor.at_end


def test_a_live_run_goes_back_beyond_memory(watched: Callable[..., Watched]) -> None:
    """By running again from where it began or from a state that was kept, with the settings that held then."""

    class Small(Opener):
        def make_stepper(
            self, source: Source, variant: Variant, state: State, layout: Layout | None = None
        ) -> GpuStepper:
            return StepperMaker(undo_bytes=0).make(source.params, variant, state)

    run = watched(Small(), "tiny")
    run.at(1, 0)
    run.worker.send(c.Seek(3))
    run.at(3, 4)
    run.worker.send(c.ViewValues("a", 0, 12))
    third = run.until(lambda s: s.values is not None)
    assert third.values is not None
    run.worker.send(c.SetHyper("beta1", 0.5))
    run.worker.send(c.SetHyper("lr", 0.25))
    run.worker.send(c.Seek(9))
    run.at(9, 4)
    run.worker.send(c.Seek(3))
    back = run.until(
        lambda s: s.cursor is not None and (s.cursor.step, s.cursor.at_end, s.mode) == (3, True, "paused")
    )
    assert back.values is not None
    np.testing.assert_array_equal(back.values.after["w"], third.values.after["w"])
    np.testing.assert_array_equal(back.values.after["m"], third.values.after["m"])
    run.worker.send(c.UndoDispatch())
    run.at(3, 4)
    run.worker.send(c.UndoIteration())
    run.at(3, 0)
    run.worker.send(c.UndoIteration())
    run.at(2, 0)


def test_bookmarks_go_with_the_run_into_its_recording(
    watched: Callable[..., Watched], tmp_path: Path
) -> None:
    path = tmp_path / "kept.session"
    run = watched(Opener(), "tiny")
    run.at(1, 0)
    run.worker.send(c.SetBookmark(1, "the start"))
    at = run.until(lambda s: bool(s.bookmarks))
    assert [(mark.step, mark.text) for mark in at.bookmarks] == [(1, "the start")]
    run.worker.send(c.StartRecording(str(path), "grads:1"))
    run.worker.send(c.SetBookmark(2, "later"))
    run.worker.send(c.Seek(3))
    run.at(3, 4)
    run.worker.send(c.StopRecording())
    run.until(lambda s: s.recording is None)
    again = watched(OpenRecording(), str(path))
    at = again.until(lambda s: bool(s.bookmarks))
    assert [(mark.step, mark.text) for mark in at.bookmarks] == [(1, "the start"), (2, "later")]
    again.worker.send(c.SetBookmark(1, ""))
    again.until(lambda s: len(s.bookmarks) == 1)
    with Session.open(path) as session:
        assert [each.step for each in session.bookmarks().all] == [2]


def test_a_state_on_its_way_to_the_device_can_be_given_up(gpu: Gpu, pair: tuple[Path, Session]) -> None:
    path, truth = pair
    made = travel(gpu, path)
    shares: list[float] = []

    def look_up() -> bool:
        assert made.glance is not None
        assert made.glance.restored is not None
        shares.append(made.glance.restored)
        return len(shares) == 7

    made._look_up = look_up
    made.step_s = 10.0
    made.seek(10)
    with pytest.raises(GivenUpError):
        made.advance()
    assert shares == sorted(shares)
    made.cancel()
    # Parts of two states are no step's: what needs buffers brings a whole one first.
    assert made.engine.nowhere
    made._look_up = lambda: False
    assert made.hold(c.StepIteration())
    while made.busy:
        made.advance()
    same_state(made.engine, truth, 10)
    arrive(made, 0)
    same_state(made.engine, truth, 0)


def test_a_short_way_is_given_up_as_well_and_takes_what_waits_for_it_along(
    gpu: Gpu, pair: tuple[Path, Session]
) -> None:
    """One so short that it is gone at once, when something else is asked for while the state goes to the device."""
    path, truth = pair
    made = travel(gpu, path)
    made._look_up = lambda: True
    made.seek(10)
    assert not made.busy
    assert made.glance is not None
    assert made.glance.step == 10
    assert made.hold(c.StepIteration()), "it would start from parts of two states"
    made._look_up = lambda: False
    arrive(made, 10)
    same_state(made.engine, truth, 10)


def test_the_present_rules_look_at_a_recording_that_knows_no_findings(
    watched: Callable[..., Watched], gpu: Gpu, tmp_path: Path
) -> None:
    def given(step: int) -> dict[str, Any]:
        made = gradients(step)
        if step == 4:
            made["h.1.mlp.weight"][100] = np.nan
        return made

    record(gpu, tmp_path / "old.session", 6, "stats", given=given)
    assert Session.open(tmp_path / "old.session").findings() == ()
    run = watched(OpenRecording(), str(tmp_path / "old.session"))
    at = run.until(lambda s: any(f.rule == "nonfinite-gradient" for f in s.findings))
    (found,) = (f for f in at.findings if f.rule == "nonfinite-gradient")
    assert (found.step, found.param, found.index) == (4, "h.1.mlp.weight", 100)
