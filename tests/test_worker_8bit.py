"""The form of the state changed in mid run, taken along, gone back over, and recovered after a lost device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import Any, TypeVar

import numpy as np
import pytest
from gpu_helpers import lanes, make_engine, make_stepper
from test_worker import WAIT_S, Opener, Watched

from inspector.codecs import CODECS, Codec, Moments8bit, ambiguous, encode, pack
from inspector.floats import F32Array
from inspector.gpu.device import Gpu
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import Hyper
from inspector.layout import Layout, Param
from inspector.plan import Variant
from inspector.runtime import commands as c
from inspector.runtime.engine import Engine
from inspector.runtime.snapshots import Snapshot
from inspector.schedule import Schedule
from inspector.sources.base import ReadWeights, Source
from inspector.stepping import HostGradients, HostState, State
from inspector.stores import MOMENTS

pytestmark = pytest.mark.gpu

PARAMS = (Param("a", (80, 64)), Param("gain", (300,)), Param("b", (5000,)), Param("small", (9, 9)))
CODED = {"a", "b"}
F32 = Variant()
LINEAR = Variant(kernel="8bit")
ALONE = replace(LINEAR, dispatch="per-tensor")
DYNAMIC = Variant(kernel="8bit", codec="dynamic")
SQRT = Variant(kernel="8bit", codec="sqrt", small_state="8bit", fused=False)


T = TypeVar("T")


def gradients(step: int) -> dict[str, F32Array]:
    rng = np.random.default_rng(step)
    return {p.name: (0.01 * rng.standard_normal(p.numel)).astype(np.float32) for p in PARAMS}


class Drawn:
    """Gradients that only the step decides."""

    name = "drawn"
    description = "four params"
    params = PARAMS
    hyper = Hyper(weight_decay=0.1, lr=1e-2)
    schedule = Schedule()
    last_step = None

    def initial_state(self) -> HostState:
        return HostState({p.name: np.ones(p.numel, np.float32) for p in PARAMS}, {}, {})

    def gradients(self, step: int, read_weights: ReadWeights) -> HostGradients:
        return HostGradients(gradients(step))


@dataclass
class Keeping(Opener):
    """Keeps the steppers it made."""

    source: type[Drawn] = Drawn  # type: ignore[assignment]
    steppers: list[GpuStepper] = field(default_factory=list)

    def make_stepper(
        self, source: Source, variant: Variant, state: State, layout: Layout | None = None
    ) -> GpuStepper:
        self.steppers.append(super().make_stepper(source, variant, state))
        return self.steppers[-1]


@dataclass(frozen=True)
class Look:
    """Sent like a command: on the worker's thread, which alone may use the device, what it finds is put in a queue."""

    look: Callable[[], Any]
    found: SimpleQueue[Any] = field(default_factory=SimpleQueue)


class Run:
    def __init__(self) -> None:
        self.opener = Keeping()
        self.watched = Watched(self.opener)
        self.worker = self.watched.worker
        self._drive = self.worker._drive
        self.worker._drive = self._look_or_drive  # type: ignore[method-assign]

    def _look_or_drive(self, engine: Engine, command: c.Command | Look) -> None:
        if isinstance(command, Look):
            command.found.put(command.look())
        else:
            self._drive(engine, command)

    def ask(self, look: Callable[[GpuStepper], T]) -> T:
        """What is found in the stepper once all commands sent are done."""
        asked = Look(lambda: look(self.opener.steppers[-1]))
        self.worker.send(asked)  # type: ignore[arg-type]
        found: T = asked.found.get(timeout=WAIT_S)
        return found

    def state(self) -> HostState:
        return self.ask(lambda stepper: stepper.state())

    def do(self, command: c.Command) -> Snapshot:
        """A snapshot made when the command is done."""
        self.worker.send(command)
        serial = self.ask(lambda stepper: self.worker._publisher.serial)
        return self.watched.until(lambda s: s.serial > serial)

    def step_to(self, step: int) -> Snapshot:
        self.worker.send(c.Run(until=step))
        return self.watched.until(
            lambda s: (
                s.mode == "paused" and s.cursor is not None and s.cursor.at_end and s.cursor.step == step
            )
        )


@pytest.fixture
def run() -> Iterator[Run]:
    made = Run()
    made.watched.at(1, 0)
    yield made
    assert made.worker.close(WAIT_S)


def bytes_of(values: Mapping[str, F32Array]) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in values.items()}


def codes(coded: Mapping[str, Moments8bit]) -> dict[str, tuple[bytes, ...]]:
    return {
        name: tuple(x.tobytes() for lane in (s.m, s.v) for x in (pack(lane.codes), lane.scales))
        for name, s in coded.items()
    }


def assert_coded_as(state: HostState, codec: Codec, values: HostState) -> None:
    """The codes are those of the values, but for a scale that the device rounds otherwise."""
    for name, coded in state.coded.items():
        for which in MOMENTS:
            wanted = encode(codec, which, getattr(values, which)[name])
            got = getattr(coded, which)
            np.testing.assert_allclose(got.scales, wanted.scales, rtol=5e-7)
            unsure = ambiguous(codec, which, getattr(values, which)[name], wanted.scales, 8)
            assert not ((got.codes != wanted.codes) & ~unsure).any()


@pytest.mark.parametrize("at_start", [False, True], ids=["step end", "step start"])
def test_another_type_of_state_in_mid_run_keeps_what_can_be_kept(run: Run, at_start: bool) -> None:
    stands = run.step_to(3)
    if at_start:
        stands = run.do(c.UndoIteration())
    assert stands.cursor is not None
    before = run.state()
    wanted_g = gradients(3) if at_start else {p.name: np.zeros(p.numel, np.float32) for p in PARAMS}

    def changed(variant: Variant) -> HostState:
        shown = run.do(c.SetVariant(variant))
        assert shown.cursor is not None
        assert (shown.cursor.step, shown.cursor.dispatch == 0) == (3, at_start)
        assert shown.cursor.at_end != at_start
        assert bytes_of(run.ask(lambda stepper: stepper.gradients())) == bytes_of(wanted_g)
        state = run.state()
        assert bytes_of(state.w) == bytes_of(before.w)
        assert state.finished_steps == before.finished_steps
        return state

    linear = changed(LINEAR)
    assert set(linear.coded) == CODED
    assert_coded_as(linear, "linear", before)
    # The small ones are float32 still, and those are kept.
    for lane in MOMENTS:
        for name in ("gain", "small"):
            assert getattr(linear, lane)[name].tobytes() == getattr(before, lane)[name].tobytes()
    alone = changed(ALONE)
    assert codes(alone.coded) == codes(linear.coded)
    assert codes(changed(LINEAR).coded) == codes(linear.coded)
    assert codes(changed(replace(LINEAR, fused=False, dispatch="single")).coded) == codes(linear.coded)
    dynamic = changed(DYNAMIC)
    assert_coded_as(dynamic, "dynamic", linear)
    sqrt = changed(SQRT)
    assert set(sqrt.coded) == {p.name for p in PARAMS}
    assert_coded_as(sqrt, "sqrt", dynamic)
    plain = changed(F32)
    assert not plain.coded
    for lane in MOMENTS:
        assert bytes_of(getattr(plain, lane)) == bytes_of(getattr(sqrt, lane))
    texts = [m.text for m in run.watched.snapshots[-1].marks]
    # What rounded the state is not undone by going back to the first form; a dispatch a tensor is.
    assert (len(texts), texts[0]) == (5, "kernel f32 → 8bit")
    assert texts[-1].startswith("kernel 8bit → f32")
    assert run.do(c.StepIteration()).record is not None
    assert run.state().finished_steps == (3 if at_start else 4)


def test_a_change_of_form_is_gone_back_to_and_not_over(run: Run) -> None:
    run.step_to(2)
    run.do(c.SetVariant(LINEAR))
    changed = run.state()
    run.step_to(4)
    at_four = run.state()
    run.do(c.Seek(2))
    back = run.state()
    assert (bytes_of(back.w), codes(back.coded)) == (bytes_of(changed.w), codes(changed.coded))
    told = run.do(c.UndoDispatch())
    assert told.notice is not None
    assert "does not reach" in told.notice.text
    run.step_to(4)
    again = run.state()
    assert (bytes_of(again.w), codes(again.coded)) == (bytes_of(at_four.w), codes(at_four.coded))


def test_a_step_that_is_laid_out_anew_keeps_the_settings_that_it_ran_with(run: Run) -> None:
    run.step_to(2)
    run.do(c.SetHyper("lr", 0.5))
    run.step_to(3)
    run.do(c.UndoIteration())
    back = run.do(c.UndoIteration())
    anew = run.do(c.SetVariant(LINEAR))
    for shown in (back, anew):
        assert shown.cursor is not None
        assert shown.step_hyper is not None
        assert (shown.cursor.step, shown.cursor.dispatch, shown.step_hyper.lr) == (2, 0, 1e-2)
    later = run.step_to(3)
    assert later.step_hyper is not None
    assert later.step_hyper.lr == 0.5


@pytest.mark.parametrize("codec", CODECS)
def test_a_lost_device_loses_no_code(run: Run, codec: Codec) -> None:
    variant = Variant(kernel="8bit", codec=codec)
    run.do(c.SetVariant(variant))
    run.step_to(2)
    kept = run.state()
    run.do(c.StepDispatch())
    run.ask(lambda stepper: stepper._gpu.device.destroy())
    run.worker.send(c.StepDispatch())
    run.watched.until(lambda s: s.mode == "lost")
    run.worker.send(c.RecoverDevice())
    back = run.watched.at(3, 0)
    assert back.notice is not None
    assert "after step 2" in back.notice.text
    state = run.state()
    assert state.finished_steps == 2
    assert bytes_of(state.w) == bytes_of(kept.w)
    assert set(state.coded) == CODED
    assert codes(state.coded) == codes(kept.coded)
    assert bytes_of(run.ask(lambda stepper: stepper.gradients())) == bytes_of(gradients(3))


def test_a_device_that_cannot_take_the_form_says_so_and_goes_on_as_before(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """jsgrad-org/jsgrad#66: six storage buffers where the 8-bit kernel needs seven."""
    opened: list[Gpu] = []

    class Poor(Gpu):
        def __init__(self, name: str | None = None) -> None:
            super().__init__(name)
            self.limits = replace(self.limits, max_storage_buffers_per_shader_stage=6)
            opened.append(self)

        def close(self) -> None:
            super().close()
            opened.remove(self)

    run.step_to(2)
    before = run.state()
    monkeypatch.setattr("inspector.gpu.opener.Gpu", Poor)
    run.worker.send(c.SetVariant(LINEAR))
    told = run.watched.until(lambda s: s.notice is not None)
    assert told.notice is not None
    assert told.notice.text.startswith(
        "Kernel adamw_8bit_update binds 7 storage buffers, over this device's limit"
    )
    assert told.plan is not None
    assert told.plan.variant == F32
    state = run.state()
    for lane in ("w", *MOMENTS):
        assert bytes_of(getattr(state, lane)) == bytes_of(getattr(before, lane))
    run.step_to(3)
    assert len(opened) == 1


def test_steps_lost_with_a_device_are_not_run_again_in_another_form(gpu: Gpu) -> None:
    """The copy is of step 1, step 2 ran as AdamW, step 3 with L2: run again with L2, step 2 would be another."""
    steps = [gradients(t) for t in range(1, 6)]
    w = {p.name: np.ones(p.numel, np.float32) for p in PARAMS}
    engine = make_engine(gpu, PARAMS, steps, w=w)
    engine.step_iteration()
    kept = engine.checkpoint
    assert kept is not None
    engine.checkpoints._made_at = np.inf
    engine.step_iteration()
    engine.set_variant(replace(F32, optimizer="adam-l2"))
    engine.checkpoints._made_at = np.inf
    engine.step_iteration()

    def fresh() -> GpuStepper:
        return make_stepper(
            gpu, PARAMS, engine.stepper.plan.variant, w=kept.w, m=kept.m, v=kept.v, finished_steps=1
        )

    engine.recover(fresh())
    assert engine.stepper.cursor.finished_steps == 1
    assert list(engine.history().first) == [1]
    # From there on all runs in the new form, so a second loss costs nothing.
    engine.checkpoints._made_at = np.inf
    engine.step_iteration()
    engine.step_iteration()
    wanted = lanes(engine.stepper)
    engine.recover(fresh())
    assert engine.stepper.cursor.finished_steps == 3
    assert lanes(engine.stepper) == wanted


def test_leaving_linear_codes_says_how_many_v_they_lost(run: Run) -> None:
    """Gradients of very different sizes in one block: the small squares become 0 beside the large."""
    run.do(c.SetVariant(LINEAR))
    run.step_to(3)
    state = run.state()
    lost = sum(int(np.count_nonzero((state.v[n] == 0) & (state.m[n] != 0))) for n in state.m)
    assert lost > 0
    shown = run.do(c.SetVariant(F32))
    assert shown.notice is not None
    assert shown.notice.severity == "warning"
    assert shown.notice.text.startswith(f"{lost:,} v became 0 in linear codes")


def test_another_form_says_that_what_ran_before_cannot_be_taken_back(run: Run) -> None:
    run.step_to(2)
    shown = run.do(c.SetVariant(DYNAMIC))
    assert shown.undo.dispatches == 0
    assert shown.notice is not None
    assert shown.notice.text == "Another form begins here: what ran before it cannot be taken back."
