"""A race in the window's worker: commands go to the lane in front, and the others keep up with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from test_race import TINY, started
from test_worker import WAIT_S, Opener, Watched

from inspector.cli import run
from inspector.cli.window import RunOpener
from inspector.runtime import commands as c
from inspector.runtime.race_pictures import RacePicture
from inspector.runtime.saved_race import SavedRace
from inspector.runtime.snapshots import Snapshot
from inspector.session.race_file import RaceFile
from inspector.session.reader import Session
from inspector.sources.open import open_source

pytestmark = pytest.mark.gpu

LANES = ("adamw", "sgd:lr=0.1", "adamw")


@pytest.fixture
def watched() -> Iterator[Watched]:
    made = Watched(Opener(lambda: open_source(TINY)), TINY)
    made.at(1, 0)
    made.worker.send(c.StartRace(LANES))
    made.until(lambda s: s.race is not None and s.mode == "paused")
    yield made
    assert made.worker.close(WAIT_S)


def race_of(snapshot: Snapshot) -> RacePicture:
    assert snapshot.race is not None
    return snapshot.race


def all_at(step: int) -> Callable[[Snapshot], bool]:
    return lambda s: (
        s.race is not None and [lane.steps for lane in s.race.lanes] == [step] * len(s.race.lanes)
    )


def test_a_step_of_the_lane_in_front_is_a_step_of_all(watched: Watched) -> None:
    race = race_of(watched.at(1, 0))
    assert [lane.spec for lane in race.lanes] == list(LANES)
    assert (race.front, race.together, race.closed_loop) == (0, True, True)
    watched.worker.send(c.StepIteration())
    watched.until(all_at(1))
    # By dispatches, the others come once the step is complete.
    watched.worker.send(c.StepDispatch())
    half = watched.until(lambda s: s.cursor is not None and s.cursor.step == 2)
    assert [lane.steps for lane in race_of(half).lanes] == [1, 1, 1]
    watched.worker.send(c.StepIteration())
    watched.until(all_at(2))


def test_running_in_the_window_gives_the_bits_of_a_race_without_it(watched: Watched) -> None:
    watched.worker.send(c.Run(until=12))
    done = watched.until(lambda s: s.mode == "paused" and all_at(12)(s))
    alone = started(*LANES)
    try:
        for _ in range(12):
            alone.step()
        for shown, lane in zip(race_of(done).lanes, alone.lanes, strict=True):
            for metric in ("loss", "grad_norm", "update_norm", "weight_norm"):
                np.testing.assert_array_equal(
                    shown.history.series[metric].last[1:], lane.history.series[metric].last[1:], metric
                )
    finally:
        alone.close()
    first, _, third = race_of(done).lanes
    np.testing.assert_array_equal(first.history.series["loss"].last, third.history.series["loss"].last)


def test_another_lane_comes_to_the_front_and_what_is_shown_is_its_run(watched: Watched) -> None:
    watched.worker.send(c.StepIteration())
    watched.until(all_at(1))
    watched.worker.send(c.FrontLane(1))
    front = watched.until(lambda s: s.race is not None and s.race.front == 1)
    assert front.plan is not None
    assert front.plan.variant.optimizer == "sgd"
    assert front.step_hyper is not None
    assert front.hyper.lr == 0.1
    watched.worker.send(c.SetHyper("lr", 0.2))
    changed = watched.until(lambda s: s.hyper.lr == 0.2)
    watched.worker.send(c.FrontLane(0))
    back = watched.until(lambda s: s.race is not None and s.race.front == 0)
    assert back.hyper.lr != changed.hyper.lr
    assert back.plan is not None
    assert back.plan.variant.optimizer == "adamw"


def test_lanes_that_go_back_go_back_together_and_forward_to_the_same_bits(watched: Watched) -> None:
    watched.worker.send(c.Run(until=5))
    before = race_of(watched.until(lambda s: s.mode == "paused" and all_at(5)(s)))
    watched.worker.send(c.Seek(2))
    back = race_of(watched.until(all_at(2)))
    assert all(list(lane.history.first) == [1, 2] for lane in back.lanes)
    watched.worker.send(c.Run(until=5))
    again = race_of(watched.until(lambda s: s.mode == "paused" and all_at(5)(s)))
    for was, now in zip(before.lanes, again.lanes, strict=True):
        np.testing.assert_array_equal(was.history.series["loss"].last, now.history.series["loss"].last)


def test_one_lane_may_go_on_alone_and_the_others_catch_up_when_asked(watched: Watched) -> None:
    watched.worker.send(c.RaceTogether(False))
    watched.worker.send(c.Run(until=4))
    ahead = watched.until(lambda s: s.mode == "paused" and s.race is not None and s.race.lanes[0].steps == 4)
    assert [lane.steps for lane in race_of(ahead).lanes] == [4, 0, 0]
    watched.worker.send(c.RaceTogether(True))
    watched.until(all_at(4))


def told_after(serial: int, snapshot: Snapshot) -> bool:
    return snapshot.notice is not None and snapshot.notice.serial > serial


def test_lanes_that_cannot_race_are_told_and_the_run_stays(watched: Watched) -> None:
    for lanes in (("adamw",), ("adamw", "nosuch"), ("adamw", "sgd:kernel=8bit"), ("adamw", "sgd:seed=1")):
        serial = watched.snapshots[-1].notice.serial if watched.snapshots[-1].notice else 0
        watched.worker.send(c.StartRace(lanes))
        told = watched.until(partial(told_after, serial))
        assert told.notice is not None
        assert told.notice.severity == "error"
        assert len(race_of(told).lanes) == 3


def test_all_lanes_are_recorded_as_one_session_that_runs_again(
    watched: Watched, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "race.session"
    watched.worker.send(c.StartRecording(str(path), "stats"))
    watched.worker.send(c.Run(until=5))
    watched.until(lambda s: s.mode == "paused" and all_at(5)(s) and s.recording is not None)
    watched.worker.send(c.StopRecording())
    told = watched.until(lambda s: s.recording is None and s.notice is not None)
    assert told.notice is not None
    assert "steps 1 to 5 of 3 lanes" in told.notice.text
    saved = RaceFile.read(path)
    assert (saved.steps, saved.began_at) == (5, 0)
    assert [str(lane) for lane in saved.specs] == list(LANES)
    for number, lane in enumerate(race_of(told).lanes):
        with Session.open(path / f"lane-{number:03d}.session") as session:
            np.testing.assert_array_equal(session.metric("loss"), lane.history.series["loss"].last)
    assert run(["race", str(path), "--verify", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bit_exact"] is True


def test_what_was_recorded_from_its_middle_is_not_run_again(
    watched: Watched, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    watched.worker.send(c.Run(until=2))
    watched.until(lambda s: s.mode == "paused" and all_at(2)(s))
    path = tmp_path / "race.session"
    watched.worker.send(c.StartRecording(str(path), "stats"))
    watched.worker.send(c.StepIteration())
    watched.until(lambda s: all_at(3)(s) and s.recording is not None)
    watched.worker.send(c.StopRecording())
    watched.until(lambda s: s.recording is None)
    assert RaceFile.read(path).began_at == 2
    assert run(["race", str(path), "--verify"]) == 2
    assert "from step 3 on" in capsys.readouterr().err


def test_a_saved_race_opens_with_all_lanes_and_one_of_them_in_front(tmp_path: Path) -> None:
    path = tmp_path / "race.session"
    arguments = [
        "--lane",
        "adamw",
        "--lane",
        "sgd:lr=0.1",
        "--steps",
        "6",
        "--save",
        str(path),
        "--capture",
        "all",
    ]
    assert run(["race", TINY, *arguments]) == 0
    opener = RunOpener(None, 64, None, None, {})
    made = Watched(opener, str(path))  # type: ignore[arg-type]
    try:
        opened = made.until(lambda s: s.mode == "paused" and s.race is not None)
        race = race_of(opened)
        assert [lane.name for lane in race.lanes] == ["adamw", "sgd:lr=0.1"]
        assert (race.live, race.front, race.closed_loop) == (False, 0, True)
        for number, lane in enumerate(race.lanes):
            with Session.open(path / f"lane-{number:03d}.session") as session:
                np.testing.assert_array_equal(lane.history.series["loss"].last, session.metric("loss"))
                # ‖w‖ and ‖Δw‖ as the captured weights say.
                for step in (2, 6):
                    before, after = (
                        np.concatenate([w.ravel() for w in session.keyframe(at).w.values()]).astype(
                            np.float64
                        )
                        for at in (step - 1, step)
                    )
                    found = {name: series.last[step - 1] for name, series in lane.history.series.items()}
                    assert found["weight_norm"] == pytest.approx(np.linalg.norm(before), rel=1e-5)
                    assert found["update_norm"] == pytest.approx(np.linalg.norm(after - before), rel=1e-3)
        # What all lanes are is known: of another one only its recording is read.
        (path / "race.json").rename(path / "elsewhere")
        made.worker.send(c.FrontLane(1))
        second = made.until(lambda s: s.mode == "paused" and s.race is not None and s.race.front == 1)
        assert race_of(second).lanes[0].history is race.lanes[0].history
        assert second.source.endswith("lane-001.session")
        assert second.plan is not None
        assert second.plan.variant.optimizer == "sgd"
        # It is a recording like any other: its steps are gone to.
        made.worker.send(c.Seek(4))
        made.until(lambda s: s.cursor is not None and s.cursor.finished_steps == 4 and s.mode == "paused")
        made.worker.send(c.StartRace(LANES))
        again = made.until(lambda s: s.mode == "paused" and s.race is not None and s.race.live)
        assert again.source == open_source(TINY).name
    finally:
        assert made.worker.close(WAIT_S)


def test_lanes_of_a_race_that_was_interrupted_say_so(tmp_path: Path) -> None:
    path = tmp_path / "race.session"
    assert (
        run(["race", TINY, "--lane", "adamw", "--lane", "sgd:lr=0.1", "--steps", "2", "--save", str(path)])
        == 0
    )
    saved = RaceFile.read(path)
    assert [lane.ended for lane in SavedRace(path).picture.lanes] == [None, None]
    # As it is while the lane runs.
    replace(saved, lanes=(saved.lanes[0], replace(saved.lanes[1], result=None))).write(path)
    first, second = SavedRace(path).picture.lanes
    assert first.ended is None
    assert second.ended == "Stopped before this lane was done."
    result = saved.lanes[0].result
    assert result is not None
    saved.with_result(0, replace(result, steps=1)).write(path)
    assert SavedRace(path).picture.lanes[0].ended == "Stopped before this lane was done."


def test_a_race_with_a_lane_that_is_damaged_opens_with_the_others(tmp_path: Path) -> None:
    path = tmp_path / "race.session"
    assert run(["race", TINY, "--lane", "adamw", "--lane", "sgd", "--steps", "2", "--save", str(path)]) == 0
    (path / "lane-001.session" / "session.sqlite").write_bytes(b"no database")
    race = SavedRace(path).picture
    assert race.lanes[0].ended is None
    assert race.lanes[1].ended is not None
    assert "lane-001.session" in race.lanes[1].ended


def test_commands_for_one_session_name_the_lanes_of_a_race(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "race.session"
    assert run(["race", TINY, "--lane", "adamw", "--lane", "sgd", "--steps", "1", "--save", str(path)]) == 0
    for command in (["diagnose"], ["replay"], ["run", "--steps", "1"], ["diff", str(path)]):
        capsys.readouterr()
        assert run([command[0], str(path), *command[1:]]) == 2
        assert "lane-000.session" in capsys.readouterr().err


def test_ending_the_race_opens_the_source_alone(watched: Watched) -> None:
    watched.worker.send(c.StopRace())
    alone = watched.until(lambda s: s.race is None and s.mode == "paused" and s.cursor is not None)
    assert alone.cursor is not None
    assert (alone.cursor.step, alone.cursor.dispatch) == (1, 0)


def test_the_lanes_of_an_open_loop_have_their_norms() -> None:
    source = "synthetic:2000"
    made = Watched(Opener(lambda: open_source(source)), source)
    try:
        made.at(1, 0)
        made.worker.send(c.StartRace(("lion:lr=1e-3", "lion:lr=2e-3")))
        made.until(lambda s: s.race is not None and s.mode == "paused")
        made.worker.send(c.Run(until=2))
        told = made.until(lambda s: s.mode == "paused" and all_at(2)(s))
        assert told.stats == "full"
        # Every element moves by lr at first, but for decay.
        for lane, lr in zip(race_of(told).lanes, (1e-3, 2e-3), strict=True):
            assert lane.history.series["update_norm"].last[0] == pytest.approx(lr * 2000**0.5, rel=0.05)
            assert lane.history.series["weight_norm"].last[0] > 0
    finally:
        assert made.worker.close(WAIT_S)
