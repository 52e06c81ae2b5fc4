"""Variants compared beside a run: progress, what ends it, the run untouched; and on a device what it measures."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from gpu_helpers import lanes, make_stepper, params_of
from test_worker import WAIT_S, Opener, Tiny, Watched
from ui_helpers import make_comparison

from inspector.cli.window import RunOpener
from inspector.comparison import Comparison
from inspector.errors import InspectorError, OutOfMemoryError, UsageError
from inspector.gpu.bench import compare
from inspector.gpu.device import Gpu
from inspector.gpu.stepper import GpuStepper
from inspector.layout import Layout
from inspector.plan import Variant
from inspector.runtime import commands as c
from inspector.sources.base import Source
from inspector.stepping import State, Stepper

pytestmark = pytest.mark.gpu

MADE = make_comparison()


@dataclass
class Comparing(Opener):
    """Compares by telling `steps` steps, each once `go` is set; keeps what it was asked."""

    steps: int = 3
    error: InspectorError | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    go: threading.Event = field(default_factory=threading.Event)
    steppers: list[GpuStepper] = field(default_factory=list)

    def make_stepper(
        self, source: Source, variant: Variant, state: State, layout: Layout | None = None
    ) -> GpuStepper:
        self.steppers.append(super().make_stepper(source, variant, state))
        return self.steppers[-1]

    def compare(
        self, source: Source, stepper: Stepper, *, progress: Callable[[int, int], None], **asked: Any
    ) -> Comparison:
        self.asked.append({"source": source.name, "variant": stepper.plan.variant, **asked})
        try:
            progress(0, 0)
            if self.error is not None:
                raise self.error
            done = 0
            while done < self.steps:
                done += self.go.wait(0.01)
                progress(done, self.steps)
        except Exception as error:
            self.ended.append(type(error).__name__)
            raise
        self.ended.append("")
        return MADE


@pytest.fixture
def opener() -> Comparing:
    return Comparing()


@pytest.fixture
def watched(opener: Comparing) -> Iterator[Watched]:
    made = Watched(opener)
    made.at(1, 0)
    yield made
    opener.go.set()
    assert made.worker.close(WAIT_S)


def begin(watched: Watched) -> None:
    watched.worker.send(c.CompareVariants(7, 1.5))
    watched.until(lambda s: s.comparing is not None and s.comparing.of > 0)


def test_progress_is_told_and_the_result_stays_with_the_run(watched: Watched, opener: Comparing) -> None:
    watched.worker.send(c.StepIteration())
    before = watched.at(1, 4)
    state = lanes(opener.steppers[0])
    begin(watched)
    opener.go.set()
    done = watched.until(lambda s: s.comparison is not None and s.comparing is None)
    assert done.comparison is MADE
    assert opener.asked == [
        {"source": "tiny", "variant": Variant(), "samples": 7, "seconds": 1.5, "copy_gbps": None}
    ]
    # The bandwidth of a copy came with it, and is not measured another time.
    assert done.copy_gbps == MADE.reports[0].copy_gbps
    assert (done.mode, done.cursor, done.record, done.notice) == (
        "paused",
        before.cursor,
        before.record,
        None,
    )
    assert lanes(opener.steppers[0]) == state
    watched.worker.send(c.CompareVariants())
    watched.until(lambda s: len(opener.asked) == 2 and s.comparing is None)
    assert opener.asked[1]["copy_gbps"] == MADE.reports[0].copy_gbps
    watched.worker.send(c.OpenSource("tiny"))
    watched.until(lambda s: s.run == 2 and s.mode == "paused" and s.comparison is None)


def test_it_ends_when_it_is_cancelled_and_nothing_is_said(watched: Watched, opener: Comparing) -> None:
    begin(watched)
    watched.worker.send(c.CancelCompare())
    ended = watched.until(lambda s: s.comparing is None)
    assert (ended.comparison, ended.notice, ended.mode) == (None, None, "paused")
    assert opener.ended == ["EndedError"]
    # One that comes when nothing is compared does nothing.
    watched.worker.send(c.CancelCompare())
    watched.worker.send(c.StepIteration())
    assert watched.at(1, 4).notice is None


@pytest.mark.parametrize("queued", [False, True], ids=["during", "right after"])
def test_stepping_ends_it_and_is_carried_out(watched: Watched, queued: bool) -> None:
    if queued:
        watched.worker.send(c.CompareVariants())
    else:
        begin(watched)
    watched.worker.send(c.StepDispatch())
    watched.worker.send(c.StepDispatch())
    stepped = watched.at(1, 2)
    assert (stepped.comparing, stepped.comparison) == (None, None)
    assert stepped.notice is not None
    assert "ended early" in stepped.notice.text


def test_looking_and_setting_go_on_while_it_measures(watched: Watched, opener: Comparing) -> None:
    begin(watched)
    watched.worker.send(c.ViewValues("a", 0, 12))
    watched.worker.send(c.SetHyper("lr", 0.5))
    seen = watched.until(lambda s: s.values is not None and s.hyper.lr == 0.5)
    assert seen.comparing is not None
    opener.go.set()
    watched.until(lambda s: s.comparison is MADE)


def test_closing_ends_it(opener: Comparing) -> None:
    watched = Watched(opener)
    watched.at(1, 0)
    begin(watched)
    assert watched.worker.close(WAIT_S)
    assert opener.ended == ["EndedError"]


def test_nothing_is_compared_while_a_run_goes_on(watched: Watched, opener: Comparing) -> None:
    watched.worker.send(c.Run())
    watched.worker.send(c.CompareVariants())
    told = watched.until(lambda s: s.notice is not None)
    assert told.notice is not None
    assert "pause it first" in told.notice.text
    assert told.mode == "running"
    assert opener.asked == []
    watched.worker.send(c.Pause())
    watched.until(lambda s: s.mode == "paused")


@pytest.mark.parametrize(
    ("error", "words"),
    [(OutOfMemoryError("No room."), "no memory for a second copy"), (UsageError("Not here."), "Not here.")],
)
def test_what_goes_wrong_is_told_and_the_run_goes_on(
    watched: Watched, opener: Comparing, error: InspectorError, words: str
) -> None:
    opener.error = error
    watched.worker.send(c.CompareVariants())
    told = watched.until(lambda s: s.notice is not None and s.comparing is None)
    assert told.notice is not None
    assert words in told.notice.text
    assert told.mode == "paused"
    watched.worker.send(c.StepIteration())
    watched.at(1, 4)


# --- on the device


def test_a_comparison_leaves_the_run_as_it_was(gpu: Gpu) -> None:
    source = Tiny()
    stepper = make_stepper(gpu, list(source.params), w=source.initial_state().w)
    state, used = lanes(stepper), gpu.memory_bytes
    opener = RunOpener(adapter=None, undo_mb=None, schedule=None, seed=None, given={})
    told: list[tuple[int, int]] = []
    made = opener.compare(
        source, stepper, samples=2, seconds=20.0, copy_gbps=10.0, progress=lambda *at: told.append(at)
    )
    assert made.reports[0].variant == stepper.plan.variant
    assert {"reduce atomic", "unfused", "dispatch single"} <= {r.name for r in made.reports}
    assert all(r.copy_gbps == 10.0 and r.step.samples == 2 for r in made.reports)
    assert made.ratio(made.reports[0]) == 1.0
    assert told[0] == (0, 0)
    assert told[-1] == (2 * len(made.reports), 2 * len(made.reports))
    assert lanes(stepper) == state
    assert gpu.memory_bytes - used < 1 << 20
    with pytest.raises(UsageError, match="on a GPU"):
        opener.compare(source, object(), samples=1, seconds=1.0, copy_gbps=1.0, progress=print)  # type: ignore[arg-type]


@pytest.mark.parametrize("calls", [1, 40, 70])
def test_what_progress_raises_ends_it_and_memory_comes_back(gpu: Gpu, calls: int) -> None:
    class EnoughError(Exception):
        pass

    told = 0

    def progress(done: int, of: int) -> None:
        nonlocal told
        told += 1
        if told == calls:
            raise EnoughError

    used = gpu.memory_bytes
    with pytest.raises(EnoughError):
        compare(gpu, tuple(params_of(700, 5)), Variant(), samples=5, copy=10.0, progress=progress)
    assert told == calls
    assert gpu.memory_bytes - used < 1 << 20


def test_the_last_steps_of_a_form_are_kept_for_a_trace(watched: Watched) -> None:
    watched.worker.send(c.Run(until=7))
    done = watched.at(7, 4)
    assert [len(times) for times in done.last_times] == [4] * 5
    assert done.record is not None
    assert done.last_times[-1] == done.record.kernels
    watched.worker.send(c.SetVariant(replace(Variant(), reduce="atomic")))
    watched.until(lambda s: s.plan is not None and s.plan.variant.reduce == "atomic" and s.last_times == ())
    watched.worker.send(c.StepIteration())
    assert [len(times) for times in watched.at(8, 4).last_times] == [4]
