"""The worker: commands in their order, the newest of some, none of the others lost; problems told in a sentence."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from inspector.errors import InspectorError, UsageError
from inspector.floats import F32Array
from inspector.gpu.device import Gpu
from inspector.gpu.opener import StepperMaker
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import Hyper
from inspector.layout import Layout, Param
from inspector.mapping import MapRequest
from inspector.plan import Variant
from inspector.runtime import commands as c
from inspector.runtime import publishing, viewer
from inspector.runtime.mailbox import coalesce
from inspector.runtime.snapshots import Heading, Snapshot
from inspector.runtime.worker import Worker
from inspector.schedule import Schedule
from inspector.sources.base import EndOfSourceError, ReadWeights, Source
from inspector.stepping import HostGradients, HostState, State

pytestmark = pytest.mark.gpu

WAIT_S = 60.0


class Tiny:
    """Two params whose gradient at step t is t everywhere, for `last_step` steps."""

    name = "tiny"
    description = "two params"
    params = (Param("a", (4, 3)), Param("b", (5,)))
    hyper = Hyper()
    schedule = Schedule()

    def __init__(self, last_step: int | None = None, fail_at: int | None = None) -> None:
        self.last_step = last_step
        self.fail_at = fail_at

    def initial_state(self) -> HostState:
        return HostState({p.name: np.ones(p.numel, np.float32) for p in self.params}, {}, {})

    def gradients(self, step: int, read_weights: ReadWeights) -> HostGradients:
        if step == self.fail_at:
            raise InspectorError("The gradients of this step are gone.")
        if self.last_step is not None and step > self.last_step:
            raise EndOfSourceError(f"tiny ends with step {self.last_step}.")
        values: Mapping[str, F32Array] = {p.name: np.full(p.numel, step, np.float32) for p in self.params}
        return HostGradients(values, loss=1.0 / step)


@dataclass
class Opener:
    """Makes steppers that report each dispatch they run."""

    source: Callable[[], Source] = Tiny
    ran: list[str] = field(default_factory=list)

    def open_source(self, spec: str) -> Source:
        if spec == "nosuch":
            raise UsageError("'nosuch' is no source.")
        return self.source()

    def hyper(self, source: Source) -> Hyper:
        return source.hyper

    def make_stepper(
        self, source: Source, variant: Variant, state: State, layout: Layout | None = None
    ) -> GpuStepper:
        return StepperMaker().make(source.params, variant, state, layout)


class Watched:
    """A worker and what it sent."""

    def __init__(self, opener: Opener, spec: str = "tiny", **options: Any) -> None:
        self.snapshots: list[Snapshot] = []
        self.all: list[Snapshot] = []
        """With those that are followed by another one of the same moment."""
        self.came = threading.Condition()
        self.worker = Worker(opener, spec, **options)
        self.worker.start(self._take)

    def _take(self, snapshot: Snapshot) -> None:
        with self.came:
            self.all.append(snapshot)
            if not snapshot.looking:
                self.snapshots.append(snapshot)
            self.came.notify_all()

    def until(self, holds: Callable[[Snapshot], bool]) -> Snapshot:
        """The newest snapshot once it is one for which `holds`."""
        deadline = time.monotonic() + WAIT_S
        with self.came:
            while not (self.snapshots and holds(self.snapshots[-1])):
                assert self.came.wait(deadline - time.monotonic()), f"still waiting: {self.snapshots[-1:]}"
            return self.snapshots[-1]

    def at(self, step: int, dispatch: int) -> Snapshot:
        return self.until(
            lambda s: (
                s.mode == "paused"
                and s.cursor is not None
                and (s.cursor.step, s.cursor.dispatch) == (step, dispatch)
            )
        )


@pytest.fixture
def watched() -> Iterator[Watched]:
    made = Watched(Opener())
    made.at(1, 0)
    yield made
    assert made.worker.close(WAIT_S)


def test_of_some_commands_only_the_newest_is_kept_and_of_the_others_all() -> None:
    a, b = MapRequest(0, 1, 10, 1, "value"), MapRequest(5, 1, 10, 1, "value")
    sent: list[c.Command] = [
        c.StepDispatch(), c.Seek(3), c.ViewMap(a), c.StepDispatch(), c.Seek(7), c.ViewMap(b), c.StepDispatch(),
    ]  # fmt: skip
    assert coalesce(sent) == [c.StepDispatch(), c.StepDispatch(), c.Seek(7), c.ViewMap(b), c.StepDispatch()]


def test_it_starts_paused_before_the_first_dispatch_with_the_gradients_in_place(watched: Watched) -> None:
    snapshot = watched.at(1, 0)
    assert watched.snapshots[0].mode == "starting"
    assert snapshot.record is not None
    assert snapshot.record.loss == 1.0
    assert snapshot.record.grad_norm is None


def test_where_the_run_stands_is_told_before_what_takes_long_to_look_at(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.worker.send(c.ViewMap(MapRequest(0, 0.25, 128, 4, "value")))
    watched.worker.send(c.ViewValues("a", 0, 12))
    before = watched.until(lambda s: s.map is not None and s.values is not None)
    monkeypatch.setattr(viewer, "LONG_LOOK_S", -1.0)
    watched.worker.send(c.StepDispatch())
    after = watched.at(1, 1)
    told, whole = [s for s in watched.all if s.cursor == after.cursor]
    assert told.looking
    assert told.map is before.map
    assert told.record == whole.record
    # A number beside the step on show is one of that step.
    assert told.values is whole.values
    assert told.values is not before.values
    assert not whole.looking
    assert whole.map is not None
    assert whole.map is not before.map


def test_in_another_form_nothing_is_told_beside_a_map_of_the_one_before(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.worker.send(c.ViewMap(MapRequest(0, 0.25, 128, 4, "value")))
    watched.until(lambda s: s.map is not None)
    monkeypatch.setattr(viewer, "LONG_LOOK_S", -1.0)
    watched.worker.send(c.SetVariant(Variant(dispatch="single")))
    watched.until(lambda s: s.plan is not None and s.plan.variant.dispatch == "single")
    assert not any(s.looking for s in watched.all)


def test_of_a_key_that_is_held_down_each_answer_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "FRAME_S", 0.0)
    seen: list[Snapshot] = []
    done = threading.Event()

    def take(snapshot: Snapshot) -> None:
        seen.append(snapshot)
        if snapshot.cursor is not None and snapshot.cursor.dispatch == 3:
            done.set()

    worker = Worker(Opener(), "tiny")
    for _ in range(3):
        worker.send(c.StepDispatch())
    worker.start(take)
    assert done.wait(WAIT_S)
    assert worker.close(WAIT_S)
    at = [s.cursor.dispatch for s in seen if s.cursor is not None]
    assert list(dict.fromkeys(at)) == [0, 1, 2, 3]


def test_every_step_is_carried_out_however_fast_they_come(watched: Watched) -> None:
    for _ in range(23):
        watched.worker.send(c.StepDispatch())
    count = watched.snapshots[-1].plan
    assert count is not None
    n = len(count.dispatches)
    watched.at(1 + 23 // n, 23 % n)


def test_iteration_runs_the_rest_of_the_step_then_whole_ones(watched: Watched) -> None:
    watched.worker.send(c.StepDispatch())
    watched.worker.send(c.StepIteration())
    done = watched.at(1, 4)
    assert done.record is not None
    # Seventeen gradients of 1: the norm is √17, clipped to 1.
    assert done.record.grad_norm == pytest.approx(17**0.5, rel=1e-6)
    assert done.record.clip_scale == pytest.approx(17**-0.5, rel=1e-6)
    assert len(done.record.kernels) == 4
    watched.worker.send(c.StepIteration())
    assert list(watched.at(2, 4).history.first) == [1, 2]


def test_run_goes_on_until_paused_and_run_until_stops_there(watched: Watched) -> None:
    watched.worker.send(c.Run())
    watched.until(lambda s: s.cursor is not None and s.cursor.step > 20)
    watched.worker.send(c.Pause())
    paused = watched.until(lambda s: s.mode == "paused")
    assert paused.cursor is not None
    at = paused.cursor.step
    watched.worker.send(c.Run(until=at + 30))
    watched.at(at + 30, 4)


def test_a_copy_is_measured_when_asked_for_and_a_run_goes_on_after_it(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = iter([12.5, 13.5])
    monkeypatch.setattr("inspector.gpu.measures.copy_gbps", lambda gpu: next(measured))
    assert watched.snapshots[-1].copy_gbps is None
    watched.worker.send(c.MeasureCopy())
    first = watched.until(lambda s: s.copy_gbps is not None)
    assert (first.copy_gbps, first.mode) == (12.5, "paused")
    watched.worker.send(c.StepIteration())
    assert watched.at(1, 4).copy_gbps is first.copy_gbps
    watched.worker.send(c.Run())
    watched.worker.send(c.MeasureCopy())
    second = watched.until(lambda s: s.copy_gbps == 13.5)
    assert second.mode == "running"
    # Another run on the same device keeps it.
    watched.worker.send(c.OpenSource("tiny"))
    assert watched.at(1, 0).copy_gbps == 13.5


def test_a_copy_that_cannot_be_measured_is_told_and_the_run_is_kept(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(gpu: Gpu) -> float:
        raise InspectorError("The GPU ran out of memory.")

    monkeypatch.setattr("inspector.gpu.measures.copy_gbps", fail)
    watched.worker.send(c.MeasureCopy())
    told = watched.until(lambda s: s.notice is not None)
    assert (told.copy_gbps, told.mode) == (None, "paused")
    watched.worker.send(c.StepIteration())
    watched.at(1, 4)


def test_a_run_on_its_way_to_a_step_says_where_to_and_from(watched: Watched) -> None:
    watched.worker.send(c.StepIteration())
    watched.at(1, 4)
    watched.worker.send(c.Seek(4))
    there = watched.at(4, 4)
    assert there.heading is None
    watched.worker.send(c.Seek(1_000_000))
    watched.until(lambda s: s.heading == Heading(4, 1_000_000))
    watched.worker.send(c.Pause())
    assert watched.until(lambda s: s.mode == "paused").heading is None


def test_a_setting_holds_from_the_next_step_and_is_marked(watched: Watched) -> None:
    watched.worker.send(c.StepDispatch())
    watched.worker.send(c.SetHyper("lr", 0.5))
    snapshot = watched.until(lambda s: s.hyper.lr == 0.5)
    assert [(m.step, m.text) for m in snapshot.marks] == [(2, "lr 0.001 → 0.5")]
    assert snapshot.record is not None
    assert snapshot.record.lr == 0.001
    watched.worker.send(c.StepIteration())
    watched.at(1, 4)
    watched.worker.send(c.StepIteration())
    done = watched.at(2, 4)
    assert done.record is not None
    assert done.record.lr == 0.5


def test_a_setting_nobody_can_mean_is_refused_in_a_sentence_and_nothing_changes(watched: Watched) -> None:
    watched.worker.send(c.SetHyper("lr", -1.0))
    snapshot = watched.until(lambda s: s.notice is not None)
    assert snapshot.notice is not None
    assert snapshot.notice.severity == "error"
    assert "negative" in snapshot.notice.text
    assert snapshot.hyper.lr == 0.001


def test_seek_goes_back_through_memory_and_forward_by_running(watched: Watched) -> None:
    watched.worker.send(c.Run(until=9))
    at_nine = watched.at(9, 4)
    watched.worker.send(c.Seek(4))
    assert list(watched.at(4, 4).history.first) == [1, 2, 3, 4]
    watched.worker.send(c.Seek(9))
    again = watched.at(9, 4)
    assert at_nine.record is not None
    assert again.record is not None
    assert again.record.grad_norm == at_nine.record.grad_norm
    watched.worker.send(c.Seek(0))
    watched.at(0, 4)


def test_back_from_the_first_step_says_that_there_is_nothing_before(watched: Watched) -> None:
    watched.worker.send(c.UndoDispatch())
    snapshot = watched.until(lambda s: s.notice is not None)
    assert snapshot.notice is not None
    assert "reach" in snapshot.notice.text
    watched.at(1, 0)


def test_the_form_changes_between_steps_and_is_refused_within_one(watched: Watched) -> None:
    watched.worker.send(c.StepDispatch())
    watched.worker.send(c.SetVariant(Variant(reduce="atomic")))
    refused = watched.until(lambda s: s.notice is not None)
    assert refused.plan is not None
    assert refused.plan.variant.reduce == "two-pass"
    watched.worker.send(c.StepIteration())
    watched.worker.send(c.SetVariant(Variant(reduce="atomic")))
    changed = watched.until(lambda s: s.plan is not None and s.plan.variant.reduce == "atomic")
    assert changed.cursor is not None
    assert (changed.cursor.dispatch, changed.cursor.count) == (4, 4)


def test_a_form_that_needs_another_layout_takes_the_state_along(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    # This adapter's alignment would allow it in place; most GPUs' does not.
    monkeypatch.setattr(
        GpuStepper, "can_take", lambda self, variant: self.plan.variant.kernel == variant.kernel
    )
    watched.worker.send(c.Run(until=3))
    before = watched.at(3, 4)
    watched.worker.send(c.ViewValues("a", 0, 12))
    old = watched.until(lambda s: s.values is not None)
    watched.worker.send(c.SetVariant(Variant(kernel="f16")))
    changed = watched.until(lambda s: s.plan is not None and s.plan.variant.kernel == "f16")
    assert changed.cursor == before.cursor
    assert changed.plan is not None
    assert changed.plan.layout.align == 128
    assert [m.text for m in changed.marks] == ["kernel f32 → f16"]
    assert list(changed.history.first) == [1, 2, 3]
    watched.worker.send(c.ViewValues("a", 0, 12))
    new = watched.until(lambda s: s.values is not None and s.values is not old.values)
    assert old.values is not None
    assert new.values is not None
    for lane in ("w", "m", "v"):
        assert list(new.values.after[lane]) == list(old.values.after[lane])
    watched.worker.send(c.StepIteration())
    watched.at(4, 4)
    # In the middle of a step it is refused, as any change of form.
    watched.worker.send(c.StepDispatch())
    watched.worker.send(c.SetVariant(Variant(kernel="f32")))
    refused = watched.until(lambda s: s.notice is not None)
    assert refused.plan is not None
    assert refused.plan.variant.kernel == "f16"


def test_a_form_changed_before_the_first_dispatch_keeps_the_gradients(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        GpuStepper, "can_take", lambda self, variant: self.plan.variant.kernel == variant.kernel
    )
    watched.worker.send(c.SetVariant(Variant(kernel="f16")))
    changed = watched.until(lambda s: s.plan is not None and s.plan.variant.kernel == "f16")
    assert changed.cursor is not None
    assert (changed.cursor.step, changed.cursor.dispatch) == (1, 0)
    watched.worker.send(c.StepIteration())
    done = watched.at(1, 4)
    assert done.record is not None
    assert done.record.grad_norm == pytest.approx(17**0.5, rel=1e-6)


def test_views_are_sent_when_asked_for_and_not_otherwise(watched: Watched) -> None:
    nothing = watched.at(1, 0)
    assert (nothing.map, nothing.values, nothing.histograms) == (None, None, None)
    watched.worker.send(c.ViewMap(MapRequest(0, 1, 128, 4, "value")))
    watched.worker.send(c.ViewValues("a", 2, 3))
    watched.worker.send(c.ViewHistograms(None, ("g",)))
    seen = watched.until(lambda s: s.map is not None and s.values is not None and s.histograms is not None)
    assert seen.map is not None
    assert seen.map.rgba["w"].shape == (4, 128, 4)
    assert seen.values is not None
    assert list(seen.values.after["g"]) == [1.0, 1.0, 1.0]
    assert seen.histograms is not None
    assert seen.histograms.stats["g"].binned == 17
    with pytest.raises(ValueError, match="read-only"):
        seen.map.rgba["w"][0, 0] = 0
    watched.worker.send(c.ViewMap(None))
    watched.until(lambda s: s.map is None)


def test_before_and_after_of_the_last_dispatch(watched: Watched) -> None:
    watched.worker.send(c.ViewValues("b", 0, 5))
    for _ in range(4):
        watched.worker.send(c.StepDispatch())
    watched.at(1, 4)
    seen = watched.until(lambda s: s.values is not None and "w" in s.values.before)
    assert seen.values is not None
    assert list(seen.values.before["w"]) == [1.0] * 5
    assert list(seen.values.before["g"]) == [1.0] * 5
    assert list(seen.values.after["g"]) == [0.0] * 5
    assert all(seen.values.after["w"] < 1.0)


def test_the_end_of_the_source_pauses_and_says_so() -> None:
    watched = Watched(Opener(source=lambda: Tiny(last_step=3)))
    watched.worker.send(c.Run())
    snapshot = watched.until(lambda s: s.notice is not None)
    assert snapshot.notice is not None
    assert snapshot.notice.text == "tiny ends with step 3."
    assert snapshot.mode == "paused"
    watched.at(3, 4)
    assert watched.worker.close(WAIT_S)


def test_a_problem_in_a_step_pauses_with_what_was_computed_kept() -> None:
    watched = Watched(Opener(source=lambda: Tiny(fail_at=4)))
    watched.worker.send(c.Run())
    snapshot = watched.until(lambda s: s.notice is not None)
    assert snapshot.notice is not None
    assert snapshot.notice.text == "The gradients of this step are gone."
    assert list(snapshot.history.first) == [1, 2, 3]
    assert watched.worker.close(WAIT_S)


def test_a_source_that_cannot_be_opened_is_told_and_another_can_be() -> None:
    watched = Watched(Opener(), "nosuch")
    failed = watched.until(lambda s: s.mode == "failed")
    assert failed.notice is not None
    assert "nosuch" in failed.notice.text
    watched.worker.send(c.StepDispatch())
    watched.worker.send(c.OpenSource("tiny"))
    watched.at(1, 0)
    # One that fails leaves the run that is open as it is.
    watched.worker.send(c.OpenSource("nosuch"))
    kept = watched.until(lambda s: s.notice is not None and s.notice.serial > 1)
    assert kept.mode == "paused"
    assert kept.source == "tiny"
    assert watched.worker.close(WAIT_S)


@pytest.mark.parametrize("delay_s", [0.0, 0.05, 0.2, 0.6])
def test_it_closes_at_any_moment(delay_s: float) -> None:
    watched = Watched(Opener())
    watched.worker.send(c.Run())
    time.sleep(delay_s)
    assert watched.worker.close(WAIT_S)
    after = len(watched.snapshots)
    time.sleep(0.05)
    assert len(watched.snapshots) == after


def test_out_of_memory_keeps_the_run(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    from inspector.errors import OutOfMemoryError

    def no_room(self: Gpu, label: str, size: int, usage: int) -> object:
        raise OutOfMemoryError("The GPU ran out of memory.")

    watched.worker.send(c.StepIteration())
    watched.at(1, 4)
    monkeypatch.setattr(Gpu, "buffer", no_room)
    watched.worker.send(c.ViewMap(MapRequest(0, 1, 64, 4, "value")))
    told = watched.until(lambda s: s.notice is not None)
    assert told.notice is not None
    assert told.notice.text == "The GPU ran out of memory."
    monkeypatch.undo()
    watched.worker.send(c.StepIteration())
    watched.at(2, 4)


def test_every_opening_is_another_run(watched: Watched) -> None:
    first = watched.at(1, 0).run
    watched.worker.send(c.StepIteration())
    assert watched.at(1, 4).run == first
    watched.worker.send(c.OpenSource("nosuch"))
    assert watched.until(lambda s: s.notice is not None).run == first
    watched.worker.send(c.OpenSource("tiny"))
    again = watched.until(lambda s: s.run != first and s.mode == "paused")
    assert (again.source, again.cursor and again.cursor.finished_steps) == ("tiny", 0)


def test_the_level_of_statistics_holds_from_the_next_step_and_for_what_is_opened_later(
    watched: Watched,
) -> None:
    assert watched.at(1, 0).stats == "light"
    watched.worker.send(c.SetStats("full"))
    watched.until(lambda s: s.stats == "full")
    watched.worker.send(c.StepIteration())
    done = watched.at(1, 4)
    assert done.counted is not None
    assert (done.counted.step, [p.name for p in done.counted.params]) == (1, ["a", "b"])
    assert done.counted.totals[0].lanes["g"].norm == pytest.approx(17**0.5, rel=1e-6)
    watched.worker.send(c.SetStats("off"))
    watched.worker.send(c.StepIteration())
    assert watched.at(2, 4).counted is None
    watched.worker.send(c.OpenSource("tiny"))
    assert watched.until(lambda s: s.run == 2 and s.mode == "paused").stats == "off"


def test_what_the_form_may_be_changed_to_is_found_for_each_plan(watched: Watched) -> None:
    first = watched.until(lambda s: any(x.field == "fused" and x.value is False for x in s.choices))
    reasons = {(x.field, x.value): x.reason for x in first.choices}
    assert reasons["kernel", "f16"] == reasons["dispatch", "single"] == ""
    assert "--reduce atomic" in reasons["grid", "published"]
    watched.worker.send(c.StepIteration())
    assert watched.at(1, 4).choices is first.choices, "nothing that it hangs on has changed"
    watched.worker.send(c.SetVariant(Variant(reduce="atomic")))
    changed = watched.until(
        lambda s: (
            s.plan is not None
            and s.plan.variant.reduce == "atomic"
            and any(x.field == "fused" and x.value is False for x in s.choices)
        )
    )
    assert {(x.field, x.value): x.reason for x in changed.choices}["grid", "published"] == ""


class Saved(Tiny):
    """What an optimizer saved that ran in a form of its own, taken with two reservations."""

    name = "saved"
    form = Variant(optimizer="adam-l2", numerics="precise", dispatch="per-tensor")
    remarks = ("The order is not verified.", "Something was left out.")


def test_a_source_that_was_saved_is_opened_in_its_own_form_and_what_to_know_of_it_is_told() -> None:
    opener = Opener()
    made = Watched(opener, "tiny", variant=Variant(dispatch="single"))
    try:
        made.at(1, 0)
        opener.source = Saved
        made.worker.send(c.OpenSource("saved"))
        opened = made.until(lambda s: s.source == "saved" and s.mode == "paused")
        assert opened.plan is not None
        form = opened.plan.variant
        # The optimizer and its bias terms; how the update is dispatched is the person's choice.
        assert (form.optimizer, form.numerics, form.dispatch) == ("adam-l2", "precise", "single")
        assert opened.notice is not None
        assert opened.notice.severity == "warning"
        assert opened.notice.text == "The order is not verified. Something was left out."
        opener.source = Tiny
        made.worker.send(c.OpenSource("tiny"))
        back = made.until(lambda s: s.source == "tiny" and s.mode == "paused" and s.plan is not None)
        assert back.plan is not None
        assert back.plan.variant == Variant(dispatch="single")
    finally:
        assert made.worker.close(WAIT_S)
