"""Beside a run: recordings laid under it, two of them compared, and a what-if; none of it on the thread of the run."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recordings
import replays
from recordings import NAMES, about, recorded, state, table, values
from test_worker import WAIT_S, Opener, Watched

from inspector.coding_error import merged_error
from inspector.gpu.device import Gpu
from inspector.gpu.opener import StepperMaker
from inspector.hyper import Hyper
from inspector.plan import Reduce, Variant
from inspector.progress import EndedError
from inspector.runtime import commands as c
from inspector.runtime.background import Background
from inspector.runtime.beside import DiffPicture, Overlay
from inspector.runtime.diffing import Diffing
from inspector.runtime.overlays import HistogramsWanted, Overlays
from inspector.runtime.snapshots import Snapshot
from inspector.session.coding_errors import coding_errors
from inspector.session.compare import grad_stats_dispatch
from inspector.session.reader import Session
from inspector.session.recorder import Recorder
from inspector.sources.base import Source
from inspector.sources.open import open_source
from inspector.statistics import buffer_stats
from inspector.stepping import Cursor, HostGradients

Call = Any


class News:
    """Waits for what a thread makes known."""

    def __init__(self) -> None:
        self.came = threading.Condition()
        self.said: list[str] = []

    def moved(self) -> None:
        with self.came:
            self.came.notify_all()

    def told(self, text: str) -> None:
        self.said.append(text)
        self.moved()

    def until(self, holds: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + WAIT_S
        with self.came:
            while not (found := holds()):
                assert self.came.wait(deadline - time.monotonic()), f"still waiting; said {self.said}"
        return found


@pytest.fixture
def news() -> News:
    return News()


# --- the thread


def test_of_what_waits_under_a_name_the_newest_is_done(news: News) -> None:
    background = Background("test", news.told)
    began, go = threading.Event(), threading.Event()
    done: list[int] = []
    background.do("first", lambda: (began.set(), go.wait(WAIT_S), None)[2])
    assert began.wait(WAIT_S)
    for i in range(5):
        background.do("look", partial(done.append, i))
    background.do("after", news.moved)
    go.set()
    news.until(lambda: done)
    assert background.close(WAIT_S)
    assert done == [4]


def test_what_is_stopped_ends_at_its_next_check_and_says_nothing(news: News) -> None:
    background = Background("test", news.told)
    began, ended = threading.Event(), threading.Event()

    def work() -> None:
        try:
            while True:
                began.set()
                background.check()
                time.sleep(0.001)
        except EndedError:
            ended.set()
            raise

    background.do("work", work)
    assert began.wait(WAIT_S)
    background.stop("something else")
    assert not ended.wait(0.05)
    background.stop("work")
    assert ended.wait(WAIT_S)
    background.do("work", lambda: (background.check(), ended.clear(), news.moved(), None)[3])
    news.until(lambda: not ended.is_set())
    assert background.close(WAIT_S)
    assert news.said == []


def test_a_fault_is_told_in_a_sentence_and_the_thread_goes_on(
    news: News, capsys: pytest.CaptureFixture[str]
) -> None:
    background = Background("test", news.told)
    background.do("fault", lambda: {}["key"])
    news.until(lambda: news.said)
    done: list[int] = []
    background.do("next", lambda: (done.append(1), news.moved(), None)[2])
    news.until(lambda: done)
    assert background.close(WAIT_S)
    assert news.said == ["Something went wrong beside the run (KeyError: 'key')."]
    assert "KeyError" in capsys.readouterr().err


# --- overlays


@pytest.fixture
def overlays(news: News) -> Iterator[Overlays]:
    made = Overlays(news.moved, news.told)
    yield made
    assert made.close(WAIT_S)


def shown(overlays: Overlays, news: News, count: int = 1) -> tuple[Overlay, ...]:
    def ready() -> tuple[Overlay, ...]:
        now = overlays.picture
        return now if len(now) == count and not any(o.loading for o in now) else ()

    found: tuple[Overlay, ...] = news.until(ready)
    return found


def test_a_recording_is_reduced_to_its_curves(overlays: Overlays, news: News, tmp_path: Path) -> None:
    recordings.record(tmp_path / "a.session", 12)
    overlays.show(str(tmp_path / "a.session"))
    (overlay,) = shown(overlays, news)
    assert (overlay.name, overlay.slot, overlay.steps) == ("a.session", 0, range(1, 13))
    steps = range(1, 13)
    expected = {
        "loss": [4.5 - t / 1000 for t in steps],
        "grad_norm": [float(np.float32(1 / t)) for t in steps],
        "lr": [1e-3 / t for t in steps],
        "nonfinite": [t % 3 for t in steps],
        "ms/adamw_update wd": [math.nan if t % 4 == 1 else 0.5 + t for t in steps],
        "cold/adamw_update wd": [0.5 + t if t % 4 == 1 else math.nan for t in steps],
    }
    for name, column in expected.items():
        series = overlay.history.series[name]
        np.testing.assert_array_equal(series.last, column)
        assert not series.gaps.any()


def test_a_nan_is_marked_and_a_loss_that_no_step_has_is_none(
    overlays: Overlays, news: News, tmp_path: Path
) -> None:
    for name, losses in (
        ("nan", [2.0, math.nan, 1.0]),
        ("none", [None] * 3),
        ("some", [None, 2.0, math.nan]),
    ):
        with Recorder.create(tmp_path / f"{name}.session", about()) as recorder:
            for step, loss in enumerate(losses, 1):
                recorder.offer(recorded(step, loss=loss))
        overlays.show(str(tmp_path / f"{name}.session"))
    nan, none, some = (o.history.series for o in shown(overlays, news, 3))
    assert nan["loss"].gaps.tolist() == [0, 1, 0]
    assert "loss" not in none
    assert some["loss"].gaps.tolist() == [0, 0, 1]


def test_overlays_are_counted_named_apart_and_removed(overlays: Overlays, news: News, tmp_path: Path) -> None:
    for folder in "abcd":
        (tmp_path / folder).mkdir()
        recordings.record(tmp_path / folder / "run.session", 2)
        overlays.show(str(tmp_path / folder / "run.session"))
    now = shown(overlays, news, 3)
    assert [(o.name, o.slot) for o in now] == [
        ("b/run.session", 1),
        ("c/run.session", 2),
        ("d/run.session", 0),
    ]
    overlays.show(now[0].path)
    assert len(overlays.picture) == 3
    overlays.drop(now[1].path)
    assert [o.slot for o in overlays.picture] == [1, 0]
    overlays.drop()
    assert overlays.picture == ()


def test_what_is_no_recording_is_told_and_leaves_no_overlay(
    overlays: Overlays, news: News, tmp_path: Path
) -> None:
    (tmp_path / "a.session").mkdir()
    overlays.show(str(tmp_path / "a.session"))
    news.until(lambda: news.said)
    assert str(tmp_path / "a.session") in news.said[0]
    assert overlays.picture == ()


@pytest.mark.parametrize("policy", ["stats", "all"])
def test_histograms_are_of_the_step_of_the_run(
    overlays: Overlays, news: News, tmp_path: Path, policy: str
) -> None:
    path = tmp_path / "a.session"
    recordings.record(path, 5, policy, statistics=policy == "stats")
    overlays.show(str(path))
    shown(overlays, news)

    def at(cursor: Cursor, param: str | None = NAMES[0]) -> Any:
        overlays.look(HistogramsWanted(param, ("g", "v"), cursor))
        return news.until(
            lambda: (
                (h := overlays.picture[0].histograms) is not None
                and (h.param, h.step) == (param, cursor.step + cursor.at_end)
                and h
            )
        )

    # Made-up recordings have in the statistics of a step what they capture of it, of v after it.
    after = 0 if policy == "stats" else 1
    found = at(Cursor(3, 1, 4))
    assert found.stats["g"].count == 320
    np.testing.assert_array_equal(
        found.stats["g"].exponents, buffer_stats(values(3, "g")[NAMES[0]]).exponents
    )
    expected = buffer_stats(np.abs(values(3 - after, "v")[NAMES[0]]))
    np.testing.assert_array_equal(found.stats["v"].exponents, expected.exponents)
    # At the end of a step w, m and v are those that the next one begins with.
    found = at(Cursor(3, 4, 4))
    expected = buffer_stats(np.abs(values(4 - after, "v")[NAMES[0]]))
    np.testing.assert_array_equal(found.stats["v"].exponents, expected.exponents)
    found = at(Cursor(5, 4, 4))
    if policy == "all":
        # Nothing was counted after the last step, but its state was captured.
        expected = buffer_stats(np.abs(values(5, "v")[NAMES[0]]))
        np.testing.assert_array_equal(found.stats["v"].exponents, expected.exponents)
    else:
        assert "v" not in found.stats
        assert found.absent
    assert at(Cursor(2, 1, 4), None).stats["g"].count == sum(p.numel for p in recordings.PARAMS)
    assert "no param 'other'" in at(Cursor(2, 1, 4), "other").absent or policy == "all"


def test_a_recording_in_progress_is_followed(
    overlays: Overlays, news: News, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inspector.runtime.overlays.FOLLOW_S", 0.01)
    with Recorder.create(tmp_path / "a.session", about()) as recorder:
        recordings.record_on(recorder, 2, statistics=False)
        assert recorder.flush(WAIT_S)
        overlays.show(str(tmp_path / "a.session"))
        (overlay,) = shown(overlays, news)
        assert (overlay.state, len(overlay.history)) == ("recording", 2)
        recordings.record_on(recorder, 5, statistics=False)
        news.until(lambda: len(overlays.picture[0].history) == 5)
    news.until(lambda: overlays.picture[0].state == "complete")


@pytest.mark.gpu
@pytest.mark.parametrize("codec", ["linear", "dynamic"])
def test_errors_of_8_bit_state_are_those_that_the_device_measures(
    gpu: Gpu, overlays: Overlays, news: News, tmp_path: Path, codec: Any
) -> None:
    form = replays.constant(Variant(kernel="8bit", codec=codec), max_grad_norm=0.5)
    replays.record(gpu, tmp_path / "a.session", 4, "keyframes:2+grads:1", form)
    overlays.show(str(tmp_path / "a.session"))
    shown(overlays, news)
    found = news.until(lambda: len(overlays.picture[0].coding) and overlays.picture[0].coding)
    # There is a state before steps 1 and 3, and none before 2 and 4.
    assert found.first.tolist() == [1, 3]
    stepper = replays.stepper_of(gpu, form(1)[1], replays.start())
    for step in range(1, 4):
        stepper.begin_step(HostGradients(replays.gradients(step)))
        norm_at = grad_stats_dispatch(stepper.plan.dispatches)
        assert norm_at is not None
        for _ in range(norm_at + 1):
            stepper.run_dispatch(form(step)[0])
        if step in (1, 3):
            measured = merged_error(stepper.coding_errors(form(step)[0]))
            at = found.first.tolist().index(step)
            assert found.series["coding/m"].last[at] == pytest.approx(measured.m.relative, rel=1e-3)
            assert found.series["coding/v"].last[at] == pytest.approx(measured.v.relative, rel=1e-3)
            assert measured.m.relative > 0
            assert found.series["coding/lost"].last[at] == measured.lost
        stepper.run_to_end(form(step)[0])


@pytest.mark.gpu
def test_a_recording_of_float32_state_has_no_errors_of_coding(gpu: Gpu, tmp_path: Path) -> None:
    replays.record(gpu, tmp_path / "a.session", 3)
    with Session.open(tmp_path / "a.session") as session:
        assert len(coding_errors(session).steps) == 0


# --- two recordings compared


@pytest.fixture
def diffing(news: News) -> Iterator[Diffing]:
    made = Diffing(news.moved, news.told)
    yield made
    assert made.close(WAIT_S)


def compared(diffing: Diffing, news: News, a: Path, b: Path) -> DiffPicture:
    diffing.start(str(a), str(b))
    found: DiffPicture = news.until(
        lambda: (now := diffing.picture) is not None and now.share is None and now.b == str(b) and now
    )
    return found


def assert_as_the_command_says(diffing: Diffing, news: News, picture: DiffPicture, call: Call) -> None:
    """Every number of the picture against the document of `inspector diff --json`."""
    code, out, err = call("diff", picture.a, picture.b, "--json")
    assert code == 0, err
    document = json.loads(out, parse_constant=float)
    report = picture.report
    assert report is not None
    first = document["first_difference"]
    assert (first is None) == (report.first is None)
    if report.first is not None:
        for name in ("step", "dispatch", "buffer", "what", "param", "index", "ulp", "differing", "max_ulp"):
            assert first[name] == getattr(report.first, name)
    assert len(report.steps) == len(document["steps"])
    assert {lane: list(counts) for lane, counts in report.histograms.items()} == document["ulp_histograms"]
    assert [(s.step, s.name, s.a, s.b) for s in report.settings] == [
        tuple(s.values()) for s in document["settings"]
    ]
    assert [t.kernel for t in report.timings] == [t["kernel"] for t in document["timings"]]
    for row, param in enumerate(document["params"]):
        assert report.params[row] == param["name"]
        for lane, entries in param["tensors"].items():
            worst = report.worst[lane]
            assert worst.ulp[row] == max(e["max_ulp"] for e in entries)
            largest = max(_number(e["relative"]) for e in entries)
            assert worst.relative[row] == largest
            assert worst.relative_step[row] == next(
                e["step"] for e in entries if _number(e["relative"]) == largest
            )
        diffing.view(param["name"])
        news.until(lambda name=param["name"]: (p := diffing.picture) and p.curves and p.curves.param == name)
        assert diffing.picture is not None
        curves = diffing.picture.curves
        assert curves is not None
        for lane, entries in param["tensors"].items():
            assert curves.steps[lane].tolist() == [e["step"] for e in entries]
            assert curves.ulp[lane].tolist() == [e["max_ulp"] for e in entries]
            assert curves.relative[lane].tolist() == [_number(e["relative"]) for e in entries]
        for what, entries in param["norms"].items():
            assert curves.norms[what].tolist() == [abs(_number(e["relative"])) for e in entries]


def _number(value: float | str) -> float:
    return float(value)


def write(path: Path, change: Callable[[int, str, Any], Any] = lambda step, what, value: value) -> None:
    """Eight steps with gradients every two and keyframes every four."""
    with Recorder.create(path, about("grads:2+keyframes:4")) as recorder:
        recorder.offer_start(change(0, "state", state(0)))
        for step in range(1, 9):
            wanted = recorder.wants(step)
            recorder.offer(
                change(step, "step", recorded(step)),
                statistics=change(step, "table", table(step)),
                gradients=change(step, "g", values(step, "g")) if wanted.gradients else None,
                keyframe=change(step, "state", state(step)) if wanted.keyframe else None,
            )


def test_one_ulp_in_one_weight_is_found_where_it_is(
    diffing: Diffing, news: News, tmp_path: Path, call: Call
) -> None:
    a, b = tmp_path / "a.session", tmp_path / "b.session"
    write(a)
    write(b)
    key = f"w@4/{NAMES[0]}"
    replays.flip(b, 4, "keyframe", key, 123, 0)
    picture = compared(diffing, news, a, b)
    report = picture.report
    assert report is not None
    assert report.first is not None
    assert (report.first.step, report.first.what, report.first.param) == (4, "w", NAMES[0])
    assert (report.first.index, report.first.ulp, report.first.differing) == (123, 1, 1)
    elements = sum(p.numel for p in recordings.PARAMS)
    assert report.histograms["w"][:2] == (3 * elements - 1, 1)
    assert sum(report.histograms["w"][2:]) == 0
    worst = report.worst["w"]
    assert worst.ulp.tolist() == [1, 0, 0, 0]
    assert worst.ulp_step[0] == 4
    assert worst.ulp[1:].tolist() == report.worst["m"].ulp[1:].tolist()
    assert_as_the_command_says(diffing, news, picture, call)


def test_the_same_twice_has_no_difference_and_other_params_are_a_sentence(
    diffing: Diffing, news: News, tmp_path: Path, call: Call
) -> None:
    a, b, other = (tmp_path / f"{name}.session" for name in ("a", "b", "other"))
    write(a)
    write(b)
    picture = compared(diffing, news, a, b)
    assert picture.report is not None
    assert picture.report.first is None
    assert_as_the_command_says(diffing, news, picture, call)
    with Recorder.create(other, about(params=recordings.PARAMS[:2])) as recorder:
        recorder.offer(recorded(1))
    picture = compared(diffing, news, a, other)
    assert picture.report is None
    assert picture.problem == f"{a} and {other} cannot be compared: param 'empty' is in {a} alone."
    assert news.said == []


def test_a_comparison_that_is_cancelled_leaves_nothing(
    diffing: Diffing, news: News, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = tmp_path / "a.session"
    write(a)
    looked, go = threading.Event(), threading.Event()
    step = Session.step

    def slow(session: Session, number: int) -> Any:
        looked.set()
        assert go.wait(WAIT_S)
        return step(session, number)

    monkeypatch.setattr(Session, "step", slow)
    diffing.start(str(a), str(a))
    assert looked.wait(WAIT_S)
    diffing.cancel()
    assert diffing.picture is None
    go.set()
    picture = compared(diffing, news, a, a)
    assert picture.report is not None
    assert picture.report.first is None


# --- in the worker


@dataclass
class Recorded(Opener):
    """Opens recordings."""

    def open_source(self, spec: str) -> Source:
        return open_source(spec)

    def replay_maker(self) -> StepperMaker:
        return StepperMaker(undo_bytes=0)


@pytest.fixture
def pair(gpu: Gpu, tmp_path: Path, call: Call) -> tuple[Path, Path]:
    """A recording, and what it would be with another β₂."""
    path, other = tmp_path / "run.session", tmp_path / "if.session"
    replays.record(gpu, path, 5, settings=replays.constant(beta2=0.95))
    assert call("replay", path, "--beta2", 0.5, "--save", other)[0] == 0
    return path, other


@pytest.fixture
def open_at() -> Iterator[Callable[[Path], Watched]]:
    made: list[Watched] = []

    def open_(path: Path) -> Watched:
        made.append(Watched(Recorded(), str(path)))
        made[-1].at(1, 0)
        return made[-1]

    yield open_
    for watched in made:
        assert watched.worker.close(WAIT_S)


def read(snapshot: Snapshot) -> list[str]:
    return [o.name for o in snapshot.beside.overlays if not o.loading]


@pytest.mark.gpu
def test_a_what_if_is_shown_with_its_parent_and_they_differ_from_the_first_update(
    pair: tuple[Path, Path], open_at: Callable[[Path], Watched]
) -> None:
    path, other = pair
    watched = open_at(other)
    shown = watched.until(lambda s: read(s) == ["run.session"])
    assert shown.beside.recording == str(other)
    # The loss of a what-if is not known, which is no NaN.
    assert "loss" not in shown.history.series
    assert len(shown.history.series["grad_norm"].last) == 5
    parent = shown.beside.overlays[0].history.series
    with Session.open(path) as session:
        np.testing.assert_array_equal(parent["grad_norm"].last, session.metric("grad_norm"))
    watched.worker.send(c.DiffSessions("", str(path)))
    diff = watched.until(lambda s: s.beside.diff is not None and s.beside.diff.share is None).beside.diff
    assert diff is not None
    assert diff.report is not None
    assert diff.report.first is not None
    # β₂ first shows in v, after the norm, which another β₂ leaves as it is.
    assert (diff.report.first.step, diff.report.first.what) == (1, "w")
    assert [(s.name, s.a, s.b) for s in diff.report.settings] == [("beta2", 0.5, 0.95)]
    assert diff.report.metric_ulp["grad_norm"] == 0
    # Another source: the parent came with this one, and goes with it.
    watched.worker.send(c.OpenSource(str(path)))
    watched.until(lambda s: s.source == str(path) and s.mode == "paused" and not s.beside.overlays)


@pytest.mark.gpu
def test_a_what_if_whose_parent_is_gone_says_so(
    pair: tuple[Path, Path], open_at: Callable[[Path], Watched]
) -> None:
    path, other = pair
    path.rename(path.with_name("moved.session"))
    watched = open_at(other)
    shown = watched.until(lambda s: s.notice is not None)
    assert shown.notice is not None
    assert "what-if of run.session" in shown.notice.text
    assert "not there" in shown.notice.text
    assert shown.beside.overlays == ()


@pytest.mark.gpu
def test_what_if_runs_under_the_settings_of_now_as_the_command_does(
    pair: tuple[Path, Path], open_at: Callable[[Path], Watched], tmp_path: Path, call: Call
) -> None:
    path, other = pair
    made = tmp_path / "made.session"
    watched = open_at(path)
    assert watched.snapshots[-1].beside.changes == ""
    watched.worker.send(c.WhatIf(str(made)))
    told = watched.until(lambda s: s.notice is not None)
    assert told.notice is not None
    assert "are those of the recording" in told.notice.text
    assert not made.exists()
    watched.worker.send(c.SetHyper("beta2", 0.5))
    assert watched.until(lambda s: s.beside.changes != "").beside.changes == "beta2 0.5"
    watched.worker.send(c.WhatIf(str(made)))
    shown = watched.until(lambda s: read(s) == ["run.session", "made.session"])
    assert shown.cursor is not None
    assert (shown.cursor.step, shown.cursor.dispatch) == (1, 0)
    assert any(s.beside.what_if is not None for s in watched.snapshots)
    code, out, _ = call("diff", other, made, "--json")
    assert code == 0
    assert json.loads(out)["same"]
    with Session.open(made) as session:
        assert session.verify() == []
        assert session.parent_path() is not None
        assert session.about.parent is not None
        assert session.about.parent.changes == (("beta2", "0.5"),)
    # The name is taken now.
    watched.worker.send(c.WhatIf(str(made)))
    watched.until(lambda s: s.notice is not None and "exists" in s.notice.text)


@pytest.mark.gpu
def test_a_what_if_ends_where_something_else_is_asked_for_and_keeps_its_steps(
    pair: tuple[Path, Path],
    open_at: Callable[[Path], Watched],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = tmp_path / "made.session"
    watched = open_at(pair[0])
    from inspector.runtime.saved_replay import SavedReplay

    offer = SavedReplay.offer

    def offered(saved: SavedReplay, ran: Any, findings: Any) -> None:
        offer(saved, ran, findings)
        if ran.step.step == 2:
            watched.worker.send(c.CancelWhatIf())

    monkeypatch.setattr(SavedReplay, "offer", offered)
    watched.worker.send(c.SetHyper("lr", 0.5))
    watched.worker.send(c.WhatIf(str(made), "stats"))
    shown = watched.until(lambda s: s.notice is not None and "ended early" in s.notice.text)
    assert shown.beside.what_if is None
    with Session.open(made) as session:
        assert session.steps == range(1, 3)
        assert session.verify() == []
        assert session.ended_because == "The replay was ended before all of its steps had run."


@pytest.mark.gpu
def test_a_recording_is_laid_under_a_live_run_of_other_params(tmp_path: Path) -> None:
    recordings.record(tmp_path / "a.session", 3)
    watched = Watched(Opener())
    watched.at(1, 0)
    watched.worker.send(c.ShowOverlay(str(tmp_path / "a.session")))
    watched.until(lambda s: read(s) == ["a.session"])
    watched.worker.send(c.ViewHistograms("w", ("v",)))
    shown = watched.until(lambda s: bool(s.beside.overlays and s.beside.overlays[0].histograms))
    histograms = shown.beside.overlays[0].histograms
    assert histograms is not None
    assert histograms.absent.endswith("has no param 'w'.")
    watched.worker.send(c.DiffSessions("", str(tmp_path / "a.session")))
    watched.until(lambda s: s.notice is not None and s.notice.text.startswith("No recording is open"))
    watched.worker.send(c.WhatIf(str(tmp_path / "b.session")))
    watched.until(lambda s: s.notice is not None and s.notice.text.startswith("What if runs a recording"))
    watched.worker.send(c.DropOverlay())
    watched.until(lambda s: not s.beside.overlays)
    assert watched.worker.close(WAIT_S)


@pytest.mark.gpu
def test_two_sums_of_the_norm_are_compared(
    gpu: Gpu, diffing: Diffing, news: News, tmp_path: Path, call: Call
) -> None:
    a, b = tmp_path / "a.session", tmp_path / "b.session"

    def reduced(reduce: Reduce, step: int) -> tuple[Hyper, Variant]:
        hyper, form = replays.constant(max_grad_norm=0.5)(step)
        return hyper, replace(form, reduce=reduce)

    for path, reduce in ((a, "two-pass"), (b, "atomic")):
        replays.record(gpu, path, 4, settings=partial(reduced, reduce))
    picture = compared(diffing, news, a, b)
    report = picture.report
    assert report is not None
    assert [(s.name, s.a, s.b) for s in report.settings] == [("reduce", "two-pass", "atomic")]
    # The gradients are the same bits, and a norm added up in another order is at most a few ULP away.
    assert report.histograms["g"][0] == sum(report.histograms["g"])
    assert 0 <= report.metric_ulp["grad_norm"] < 64
    assert_as_the_command_says(diffing, news, picture, call)


@pytest.mark.gpu
def test_a_run_that_is_recorded_twice_does_not_differ(
    gpu: Gpu, diffing: Diffing, news: News, tmp_path: Path, call: Call
) -> None:
    a, b = tmp_path / "a.session", tmp_path / "b.session"
    for path in (a, b):
        replays.record(gpu, path, 3, settings=replays.constant(max_grad_norm=0.5))
    picture = compared(diffing, news, a, b)
    assert picture.report is not None
    assert picture.report.first is None
    assert picture.report.settings == ()
    assert_as_the_command_says(diffing, news, picture, call)


@pytest.mark.gpu
def test_what_if_runs_in_the_form_of_now(
    pair: tuple[Path, Path], open_at: Callable[[Path], Watched], tmp_path: Path, call: Call
) -> None:
    path, _ = pair
    made, other = tmp_path / "made.session", tmp_path / "other.session"
    watched = open_at(path)
    watched.worker.send(c.SetVariant(Variant(kernel="8bit", codec="dynamic")))
    shown = watched.until(lambda s: s.beside.changes != "" and s.mode == "paused")
    assert shown.beside.changes == "kernel 8bit, codec dynamic"
    # The params are laid out anew for it, and the run goes on in it, whatever was recorded.
    assert shown.plan is not None
    assert (shown.plan.variant.kernel, shown.plan.variant.codec) == ("8bit", "dynamic")
    watched.worker.send(c.StepIteration())
    shown = watched.until(lambda s: s.cursor is not None and s.cursor.finished_steps == 1)
    assert shown.plan is not None
    assert shown.plan.variant.kernel == "8bit"
    watched.worker.send(c.WhatIf(str(made)))
    watched.until(lambda s: "made.session" in read(s))
    assert call("replay", path, "--kernel", "8bit", "--codec", "dynamic", "--save", other)[0] == 0
    code, out, _ = call("diff", other, made, "--json")
    assert code == 0
    assert json.loads(out)["same"]
    with Session.open(made) as session:
        assert session.step(3).variant.kernel == "8bit"
        assert session.codes(3, replays.PARAMS[0].name).codec == "dynamic"
