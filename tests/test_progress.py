"""What takes long says how far it is, and ends where a person says so; what was there before stays."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from state_files import write
from test_report import make_session
from test_worker import WAIT_S, Opener, Tiny, Watched

from inspector.gpu.opener import StepperMaker
from inspector.layout import Layout
from inspector.plan import Variant
from inspector.progress import EndedError, advanced, counting, watched
from inspector.runtime import commands as c
from inspector.runtime.long_work import PROGRESS_S, LongWork
from inspector.runtime.mailbox import Mailbox
from inspector.runtime.reporting import report_of_session
from inspector.runtime.value_finding import Working
from inspector.sources.base import Source
from inspector.sources.statefile import StateFile
from inspector.stepping import State

# --- the core


def test_where_nobody_watches_nothing_happens() -> None:
    advanced(1, 2)


def test_who_watches_is_told_and_nobody_on_another_thread() -> None:
    told: list[tuple[int, int]] = []
    with watched(lambda done, of: told.append((done, of))):
        begun = counting(10)
        for size in (4, 6):
            begun(size)
        other = threading.Thread(target=advanced, args=(7, 7))
        other.start()
        other.join()
        with watched(None):
            advanced(8, 8)
    advanced(9, 9)
    assert told == [(0, 10), (4, 10)]


def test_who_watches_may_end_it() -> None:
    def refuse(done: int, of: int) -> None:
        raise EndedError

    with pytest.raises(EndedError), watched(refuse):
        advanced(0, 1)
    advanced(0, 1)


# --- of the worker


@dataclass
class Long:
    mail: Mailbox = field(default_factory=Mailbox)
    told: list[Working] = field(default_factory=list)
    now: float = 0.0
    closing: bool = False

    def __post_init__(self) -> None:
        self.work = LongWork(self.mail, self.told.append, lambda: self.closing, clock=lambda: self.now)

    def after(self, seconds: float, done: int) -> None:
        self.now += seconds
        advanced(done, 10)


def test_what_is_done_in_a_moment_is_not_told_and_the_rest_at_intervals() -> None:
    long = Long()

    def act() -> str:
        for i, seconds in enumerate((0, PROGRESS_S / 2, PROGRESS_S, PROGRESS_S / 4, PROGRESS_S)):
            long.after(seconds, i)
        return "done"

    assert long.work.run("Opening x", act) == "done"
    assert long.told == [Working("Opening x", 2, 10), Working("Opening x", 4, 10)]


def test_it_ends_at_what_a_person_says_and_other_commands_wait() -> None:
    long = Long()
    long.mail.put(c.Seek(3))
    long.mail.put(c.CancelWork())
    long.mail.put(c.Run())
    with pytest.raises(EndedError):
        long.work.run("Opening x", lambda: long.after(0, 1))
    assert long.mail.look() == (c.Seek(3), c.Run())
    long.work.run("Opening x", lambda: long.after(0, 1))


def test_it_ends_with_the_window_unless_it_has_to_come_to_its_end() -> None:
    long = Long(closing=True)
    with pytest.raises(EndedError):
        long.work.run("Opening x", lambda: long.after(0, 1))
    long.mail.put(c.CancelWork())
    long.work.run("Ending it", lambda: long.after(PROGRESS_S, 1), ends=False)
    assert long.told == [Working("Ending it", 1, 10, ends=False)]


# --- on a device


@dataclass
class Holding(Opener):
    """Stops where it is told how far something is, until it is let go: whatever is sent meanwhile lies in the queue."""

    hold: bool = False
    held: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)

    def open_source(self, spec: str) -> Source:
        self.wait()
        return super().open_source(spec)

    def make_stepper(
        self, source: Source, variant: Variant, state: State, layout: Layout | None = None
    ) -> object:
        self.wait()
        return super().make_stepper(source, variant, state, layout)

    def wait(self) -> None:
        if self.hold:
            self.held.set()
            assert self.go.wait(WAIT_S)
            self.hold = False
            advanced(1, 2)


@pytest.fixture
def long_run() -> Iterator[tuple[Watched, Holding]]:
    opener = Holding()
    made = Watched(opener)
    made.at(1, 0)
    for _ in range(2):
        made.worker.send(c.StepIteration())
    made.until(lambda s: s.cursor is not None and s.cursor.finished_steps == 2)
    yield made, opener
    opener.go.set()
    assert made.worker.close(WAIT_S)


def end(run: tuple[Watched, Holding], command: c.Command) -> None:
    made, opener = run
    opener.hold = True
    opener.held.clear()
    opener.go.clear()
    made.worker.send(command)
    assert opener.held.wait(WAIT_S)
    made.worker.send(c.CancelWork())
    opener.go.set()


@pytest.mark.gpu
def test_the_opening_of_a_source_that_is_ended_leaves_what_was_open(
    long_run: tuple[Watched, Holding],
) -> None:
    made, _ = long_run
    end(long_run, c.OpenSource("another"))
    snapshot = made.until(lambda s: s.notice is not None and "ended" in s.notice.text)
    assert snapshot.notice is not None
    assert snapshot.notice.text == "The opening of another was ended. What was open stays."
    assert (snapshot.mode, snapshot.source) == ("paused", "tiny")
    made.worker.send(c.StepIteration())
    made.until(lambda s: s.cursor is not None and s.cursor.finished_steps == 3)


@pytest.mark.gpu
def test_a_form_that_is_ended_leaves_the_run_as_it_was(long_run: tuple[Watched, Holding]) -> None:
    made, _ = long_run

    def weights() -> np.ndarray:
        made.worker.send(c.ViewValues("a", 0, 4))
        shown = made.until(lambda s: s.values is not None)
        assert shown.values is not None
        return shown.values.after["w"].copy()

    before = weights()
    # 8-bit state lies elsewhere, so that a stepper is made anew.
    end(long_run, c.SetVariant(Variant(kernel="8bit")))
    snapshot = made.until(lambda s: s.notice is not None and "form" in s.notice.text)
    assert snapshot.notice is not None
    assert snapshot.notice.text == "The form of the step stays as it was."
    assert snapshot.plan is not None
    assert snapshot.plan.variant == Variant()
    assert snapshot.cursor is not None
    assert snapshot.cursor.finished_steps == 2
    np.testing.assert_array_equal(weights(), before)


@pytest.mark.gpu
def test_a_slow_step_ends_between_two_dispatches(long_run: tuple[Watched, Holding]) -> None:
    made, _ = long_run
    made.worker._run.pace.step_s = 10.0
    first: list[int] = []

    def told(done: int, of: int) -> None:
        first.append(done)
        if len(first) == 3:
            made.worker.send(c.CancelWork())

    run: Callable[..., None] = made.worker._long._advanced

    def heard(doing: str, ends: bool, outlasts: bool, done: int, of: int) -> None:
        told(done, of)
        run(doing, ends, outlasts, done, of)

    made.worker._long._advanced = heard  # type: ignore[method-assign]
    made.worker.send(c.StepIteration())
    snapshot = made.until(lambda s: s.cursor is not None and (s.cursor.step, s.cursor.dispatch) == (3, 2))
    assert snapshot.mode == "paused"
    assert first == [0, 1, 2]


# --- what says how far it is


def test_a_state_says_how_far_its_reading_is(tmp_path: Path) -> None:
    tensors = {f"{lane}/{name}": np.ones(4, np.float32) for lane in "wg" for name in "abc"}
    source = StateFile(write(tmp_path / "a.safetensors", tensors))
    told: list[tuple[int, int]] = []
    with watched(lambda done, of: told.append((done, of))):
        source.initial_state()
    assert told == [(0, 3), (1, 3), (2, 3)]


def test_a_report_says_how_far_it_is_and_writes_nothing_where_it_is_ended(tmp_path: Path) -> None:
    with make_session(tmp_path / "a.session") as session:
        told: list[tuple[int, int]] = []
        with watched(lambda done, of: told.append((done, of))):
            report_of_session(session)
        assert told == [(i, 8) for i in range(8)]


@pytest.mark.gpu
def test_a_state_is_read_back_in_pieces_between_which_it_can_be_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = Tiny()
    made = StepperMaker().make(source.params, Variant(), source.initial_state())
    whole = made.state()
    monkeypatch.setattr("inspector.gpu.read_back.READ_AT_ONCE", 3)
    in_pieces = made.state()
    for lane in ("w", "m", "v"):
        for name, values in getattr(whole, lane).items():
            np.testing.assert_array_equal(getattr(in_pieces, lane)[name], values)
    made.close()


@pytest.mark.gpu
def test_a_stepper_says_how_far_its_state_is_and_gives_its_device_back_where_it_is_ended() -> None:
    source = Tiny()
    told: list[tuple[int, int]] = []

    def listen(done: int, of: int) -> None:
        told.append((done, of))
        if len(told) == 4:
            raise EndedError

    with pytest.raises(EndedError), watched(listen):
        StepperMaker().make(source.params, Variant(), source.initial_state())
    elements = sum(param.numel for param in source.params)
    assert told[0] == (0, 3 * elements)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    stepper = StepperMaker().make(source.params, Variant(), source.initial_state())
    with watched(lambda done, of: told.append((done, of))):
        stepper.state()
    shares = [done / of for done, of in told[-3:]]
    assert shares == pytest.approx([0, 1 / 3, 2 / 3])
    stepper.close()
