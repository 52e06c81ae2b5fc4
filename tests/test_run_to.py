"""Run to a dispatch, to the next finding, and back to before a condition held; nothing is lost by looking."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from adamw_peer import PeerAdamW, PeerParam
from test_worker import WAIT_S, Opener, Tiny, Watched

from inspector.diagnosis.watchpoints import parse_condition
from inspector.hyper import Hyper
from inspector.runtime import commands as c
from inspector.runtime.snapshots import Snapshot
from inspector.sources.recording import Recording as RecordedSource
from inspector.stepping import Cursor, HostGradients

pytestmark = pytest.mark.gpu

LAST = 12
BAD = (4, 9)


class Spiked(Tiny):
    """As Tiny, with a NaN in "a" at steps 4 and 9, and weights that do not decay."""

    hyper = replace(Hyper(), weight_decay=0.0, lr=0.01)

    def gradients(self, step: int, read_weights: Any) -> HostGradients:
        given = super().gradients(step, read_weights)
        values = {name: value.copy() for name, value in given.values.items()}
        if step in BAD:
            values["a"][5] = np.nan
        return HostGradients(values, given.loss)


def norms(steps: int = LAST) -> list[float]:
    """‖w‖ of b after each step, from the start on, in float64."""
    peer = PeerAdamW([PeerParam([1.0] * p.numel, decays=False) for p in Tiny.params], lr=Spiked.hyper.lr)
    made = [math.sqrt(5)]
    for t in range(1, steps + 1):
        given = [[float(t)] * p.numel for p in Tiny.params]
        if t in BAD:
            given[0][5] = math.nan
        peer.step(given)
        made.append(math.hypot(*peer.params[1].w))
    return made


@pytest.fixture
def spiked() -> Iterator[Watched]:
    made = Watched(Opener(Spiked))
    made.at(1, 0)
    yield made
    assert made.worker.close(WAIT_S)


def told(shown: Snapshot) -> str:
    return shown.notice.text if shown.notice is not None else ""


def after(watched: Watched, command: c.Command) -> Snapshot:
    """The moment at which what `command` asks for has been told."""
    before = watched.snapshots[-1].notice
    watched.worker.send(command)
    return watched.until(
        lambda s: (
            s.notice is not None
            and (before is None or s.notice.serial > before.serial)
            and s.mode == "paused"
        )
    )


def run_to(watched: Watched, step: int) -> Snapshot:
    watched.worker.send(c.Run(until=step))
    return watched.at(step, 4)


# --- a dispatch


def test_it_runs_to_before_a_dispatch_in_this_step_or_the_next(spiked: Watched) -> None:
    for dispatch, place in ((2, (1, 2)), (2, (2, 2)), (3, (2, 3)), (0, (3, 0)), (1, (3, 1))):
        spiked.worker.send(c.RunToDispatch(dispatch))
        shown = spiked.at(*place)
        assert shown.cursor == Cursor(*place, 4)
    assert [m for m in shown.marks if m.stop] == []
    shown = after(spiked, c.RunToDispatch(4))
    assert told(shown) == "A step has dispatches 1 to 4, and no 5."
    # A breakpoint on the way comes first.
    spiked.worker.send(c.SetBreakpoint(parse_condition("nonfinite > 0")))
    spiked.worker.send(c.RunToDispatch(1))
    shown = spiked.at(4, 0)
    assert shown.stop is not None
    spiked.worker.send(c.RunToDispatch(1))
    spiked.at(4, 1)


# --- the next finding


def test_a_live_run_goes_on_to_what_is_found_next(spiked: Watched) -> None:
    shown = after(spiked, c.RunToFinding())
    assert shown.cursor == Cursor(4, 0, 4)
    assert told(shown).startswith(
        "Ran on to the next finding, in step 4 before reduce_norm_sq (dispatch 0/4): nonfinite-gradient: 1 of 17"
    )
    assert shown.notice is not None
    assert shown.notice.severity == "info"
    assert shown.breakpoints == ()
    assert [m for m in shown.marks if m.stop] == []
    assert shown.stop is not None
    assert (shown.stop.param, shown.stop.index) == ("a", 5)
    shown = after(spiked, c.RunToFinding())
    assert shown.cursor == Cursor(9, 0, 4)
    # A pause aims at nothing any more.
    spiked.worker.send(c.Seek(3))
    spiked.at(3, 4)
    spiked.worker.send(c.RunToFinding())
    spiked.worker.send(c.Pause())
    spiked.until(lambda s: s.mode == "paused")
    spiked.worker.send(c.Run(until=11))
    spiked.at(11, 4)


# --- back


def test_back_to_before_what_is_remembered(spiked: Watched) -> None:
    """‖g‖ is t·√17 by hand: beyond 26 from step 7 on."""
    run_to(spiked, LAST)
    shown = after(spiked, c.RunBack(parse_condition("grad_norm > 26")))
    assert shown.cursor == Cursor(6, 4, 4)
    assert (
        told(shown)
        == "Back at the end of step 6, the last before grad_norm > 26, which holds from step 7 on."
    )
    # The steps that came later ran again: from there the next one back is looked for.
    run_to(spiked, LAST)
    for place in (8, 3):
        shown = after(spiked, c.RunBack(parse_condition("finding:nonfinite-gradient")))
        assert shown.cursor == Cursor(place, 4, 4)
    shown = after(spiked, c.RunBack(parse_condition("nonfinite > 0")))
    assert (
        told(shown) == "nonfinite > 0 holds in no step from step 3 back to step 1: the run stays where it is."
    )
    assert shown.cursor == Cursor(3, 4, 4)
    shown = after(spiked, c.RunBack(parse_condition("loss > 0")))
    assert (
        told(shown) == "loss > 0 holds in every step from step 1 on, the first there is: none lies before it."
    )


def test_from_a_stop_it_goes_to_before_that(spiked: Watched) -> None:
    spiked.worker.send(c.SetBreakpoint(parse_condition("nonfinite > 0")))
    spiked.worker.send(c.Run())
    spiked.at(4, 0)
    shown = after(spiked, c.RunBack(parse_condition("nonfinite > 0")))
    assert shown.cursor == Cursor(3, 4, 4)


@pytest.mark.parametrize("memory", [True, False])
def test_what_was_not_remembered_runs_again_beside_the_run(
    spiked: Watched, monkeypatch: pytest.MonkeyPatch, memory: bool
) -> None:
    """The norm of b falls in every step: to between those of steps 5 and 6 in float64."""
    if not memory:
        # Nothing but the state that the run began with.
        monkeypatch.setattr("inspector.runtime.checkpoints.MAX_BYTES", 0)
    known = norms()
    level = (known[5] + known[6]) / 2
    shown = run_to(spiked, LAST)
    history = shown.history
    shown = after(spiked, c.RunBack(parse_condition("w_norm@b > 99")))
    assert "holds in no step" in told(shown)
    # Nothing has moved, and nothing was lost.
    assert shown.cursor == Cursor(LAST, 4, 4)
    assert shown.history is history
    shown = after(spiked, c.RunBack(parse_condition(f"w_norm@b < {level}")))
    assert shown.cursor == Cursor(5, 4, 4)
    assert told(shown).endswith("which holds from step 6 on.")
    # What is known before the update is of the step that it belongs to.
    run_to(spiked, LAST)
    shown = after(spiked, c.RunBack(parse_condition("nan@a > 0")))
    assert shown.cursor == Cursor(8, 4, 4)
    run_to(spiked, LAST)
    shown = after(spiked, c.RunBack(parse_condition("grad_max@b > 6.5")))
    assert shown.cursor == Cursor(6, 4, 4)


def test_what_a_change_made_of_a_step_holds_as_it_runs_again(spiked: Watched) -> None:
    run_to(spiked, 6)
    spiked.worker.send(c.SetHyper("lr", 0.5))
    run_to(spiked, LAST)
    # An update of about a learning rate: 0.01·√5 up to step 6, and beyond 0.5 from there on.
    shown = after(spiked, c.RunBack(parse_condition("update_norm@b > 0.5")))
    assert shown.cursor == Cursor(6, 4, 4)


class Held(Spiked):
    """As Spiked; step 2 waits where it runs for the second time."""

    def __init__(self) -> None:
        super().__init__()
        self.times = 0
        self.waits, self.go = threading.Event(), threading.Event()

    def gradients(self, step: int, read_weights: Any) -> HostGradients:
        if step == 2:
            self.times += 1
            if self.times == 2:
                self.waits.set()
                assert self.go.wait(WAIT_S)
        return super().gradients(step, read_weights)


@pytest.mark.parametrize("end", [c.CancelSeek(), c.Pause(), c.StepDispatch()])
def test_a_search_is_ended_by_what_is_asked_for_next(monkeypatch: pytest.MonkeyPatch, end: c.Command) -> None:
    monkeypatch.setattr("inspector.runtime.checkpoints.MAX_BYTES", 0)
    source = Held()
    watched = Watched(Opener(lambda: source))
    try:
        watched.at(1, 0)
        run_to(watched, LAST)
        watched.worker.send(c.RunBack(parse_condition("w_norm@b > 99")))
        assert source.waits.wait(WAIT_S)
        watched.worker.send(end)
        source.go.set()
        shown = watched.until(lambda s: s.searching is None and s.cursor is not None and s.mode == "paused")
        if isinstance(end, c.StepDispatch):
            assert watched.at(LAST + 1, 1)
        else:
            shown = watched.until(lambda s: "was ended at step" in told(s))
            assert shown.cursor == Cursor(LAST, 4, 4)
            assert told(shown).startswith("Looking for the step before w_norm@b > 99 was ended at step ")
        seen = [s.searching for s in watched.snapshots if s.searching is not None]
        assert [(s.start, s.end) for s in seen[:1]] == [(LAST, 1)]
    finally:
        source.go.set()
        assert watched.worker.close(WAIT_S)


# --- recordings


@pytest.fixture(params=["full", "light"])
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Watched]:
    """A recording of Spiked, whose params were counted or not, with gradients and keyframes."""
    path = tmp_path / "run.session"
    made = Watched(Opener(Spiked))
    try:
        made.at(1, 0)
        made.worker.send(c.StartRecording(str(path), "grads:1+keyframes:4", request.param))
        run_to(made, LAST)
        made.worker.send(c.StopRecording())
        made.until(lambda s: s.recording is None and "Recorded" in told(s))
    finally:
        assert made.worker.close(WAIT_S)
    watched = Watched(Opener(lambda: RecordedSource(path)), str(path))
    try:
        watched.until(lambda s: s.mode == "paused" and s.cursor is not None)
        watched.worker.send(c.Seek(LAST))
        watched.until(lambda s: s.glance is None and s.cursor == Cursor(LAST, 4, 4))
        yield watched
    finally:
        assert watched.worker.close(WAIT_S)


def stands_at(cursor: Cursor, snapshot: Snapshot) -> bool:
    return snapshot.glance is None and snapshot.cursor == cursor


def test_a_recording_goes_to_the_next_finding(recorded: Watched) -> None:
    recorded.worker.send(c.Seek(0))
    recorded.until(lambda s: s.glance is None and s.cursor == Cursor(0, 4, 4))
    for step in BAD:
        shown = after(recorded, c.RunToFinding())
        assert told(shown).startswith(f"The next finding is in step {step}, nonfinite-gradient: 1 of 17")
        shown = recorded.until(partial(stands_at, Cursor(step, 0, 4)))
        assert shown.sought is not None
        assert (shown.sought.step, shown.sought.param, shown.sought.index) == (step, "a", 5)
    # Before the dispatch at which it is seen, the finding of the step itself is next.
    recorded.worker.send(c.Seek(8))
    recorded.until(lambda s: s.glance is None and s.cursor == Cursor(8, 4, 4))
    shown = after(recorded, c.RunToFinding())
    recorded.until(lambda s: s.glance is None and s.cursor == Cursor(9, 0, 4))
    shown = after(recorded, c.RunToFinding())
    assert told(shown) == f"Nothing is found after step 9, up to the last step {LAST}."


def test_a_recording_goes_back_to_before_a_condition(recorded: Watched) -> None:
    known = norms()
    level = (known[5] + known[6]) / 2
    for text, step in (
        ("grad_norm > 26", 6),
        ("nonfinite > 0", 8),
        ("nan@a > 0", 8),
        (f"w_norm@b < {level}", 5),
        ("finding:*", 8),
        ("step >= 3", 2),
    ):
        recorded.worker.send(c.Seek(LAST))
        recorded.until(lambda s: s.glance is None and s.cursor == Cursor(LAST, 4, 4))
        shown = after(recorded, c.RunBack(parse_condition(text)))
        assert told(shown).startswith(f"Back at the end of step {step},"), text
        recorded.until(partial(stands_at, Cursor(step, 4, 4)))
    shown = after(recorded, c.RunBack(parse_condition("w_norm@nobody > 0")))
    assert "No param matches 'nobody'" in told(shown)
