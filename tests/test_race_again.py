"""A saved race runs again as each of its lanes ran: as it was set, wherever it lies, by its steps to the last bit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from test_race import TINY, document_of
from test_race_host import all_at
from test_worker import WAIT_S, Watched

from inspector.cli import run
from inspector.cli.window import RunOpener
from inspector.plan import Variant
from inspector.runtime import commands as c
from inspector.session.race_file import RACE_NAME, RaceFile

pytestmark = pytest.mark.gpu

LANES = ("adamw", "sgd:lr=0.1")


@contextmanager
def recorded(
    path: Path,
    lanes: tuple[str, ...] = LANES,
    variant: Variant | None = None,
    *,
    source: str = TINY,
    seed: int | None = None,
) -> Iterator[Watched]:
    """A race in the window's worker, recorded to `path` for as long as the block runs."""
    made = Watched(RunOpener(None, 64, None, seed, {}), source, variant=variant or Variant())  # type: ignore[arg-type]
    try:
        made.at(1, 0)
        made.worker.send(c.StartRace(lanes))
        made.until(lambda s: s.race is not None and s.mode == "paused")
        made.worker.send(c.StartRecording(str(path), "stats"))
        made.until(lambda s: s.recording is not None)
        yield made
        made.worker.send(c.StopRecording())
        made.until(lambda s: s.recording is None)
    finally:
        assert made.worker.close(WAIT_S)


def run_to(made: Watched, step: int) -> None:
    made.worker.send(c.Run(until=step))
    made.until(lambda s: s.mode == "paused" and all_at(step)(s))


def again(capsys: pytest.CaptureFixture[str], path: Path, code: int = 0) -> Any:
    capsys.readouterr()
    return document_of(capsys, "race", str(path), "--verify", code=code)


def assert_exact_again(capsys: pytest.CaptureFixture[str], path: Path) -> Any:
    document = again(capsys, path)
    assert document["bit_exact"] is True
    return document


@pytest.mark.parametrize(
    ("lanes", "form"),
    [
        (LANES, {"reduce": "two-pass", "dispatch": "per-tensor", "numerics": "precise"}),
        (LANES, {"fused": False}),
        (("adamw", "adam-l2"), {"kernel": "f16"}),
        (("adamw", "adamw:lr=0.1"), {"kernel": "8bit", "codec": "dynamic", "small_state": "8bit"}),
        (("adamw", "shampoo:lr=0.05"), {"root_every": 2, "root_block": 16}),
        (("adamw", "shampoo:lr=0.05"), {"factors": "sum"}),
        (("adamw", "muon:lr=0.05,adamw.lr=1e-3"), {"no_muon": "*qkv*"}),
    ],
    ids=str,
)
def test_a_race_runs_again_in_the_form_that_it_was_started_in(
    lanes: tuple[str, ...], form: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with recorded(tmp_path / "race.session", lanes, Variant(**form)) as made:
        run_to(made, 3)
    assert_exact_again(capsys, tmp_path / "race.session")


@pytest.mark.parametrize("source", [TINY, "synthetic:3000", "surface:noisy"])
def test_a_race_runs_again_from_the_seed_of_the_window(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with recorded(tmp_path / "race.session", source=source, seed=7) as made:
        run_to(made, 4)
    assert_exact_again(capsys, tmp_path / "race.session")


def test_settings_changed_while_it_ran_change_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "race.session"
    with recorded(path) as made:
        run_to(made, 3)
        made.worker.send(c.SetHyper("lr", 0.01))
        made.until(lambda s: s.hyper.lr == 0.01)
        run_to(made, 5)
        made.worker.send(c.SetVariant(Variant(numerics="precise")))
        made.worker.send(c.FrontLane(1))
        made.worker.send(c.SetSchedule("warmup:20"))
        made.until(lambda s: s.schedule == "warmup:20")
        run_to(made, 7)
        # Steps that were gone back behind are as if they had not been.
        made.worker.send(c.Seek(6))
        made.until(all_at(6))
        made.worker.send(c.SetHyper("weight_decay", 0.5))
        made.until(lambda s: s.hyper.weight_decay == 0.5)
        run_to(made, 9)
    assert_exact_again(capsys, path)


def test_lanes_that_ended_after_different_steps_run_as_many_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "race.session"
    with recorded(path) as made:
        run_to(made, 3)
        made.worker.send(c.RaceTogether(False))
        made.worker.send(c.StepIteration())
        made.until(lambda s: s.race is not None and [lane.steps for lane in s.race.lanes] == [4, 3])
        # In the middle of a step the weights are those of no step.
        for dispatch in (1, 2, 3):
            made.worker.send(c.StepDispatch())
            made.at(5, dispatch)
    document = assert_exact_again(capsys, path)
    assert [lane["steps"] for lane in document["lanes"]] == [4, 3]


def test_steps_that_are_not_those_of_the_weights_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What came of one race beside the steps of another one of the same lanes."""
    path, other = tmp_path / "race.session", tmp_path / "other.session"
    lanes = ["--lane", "adamw", "--lane", "sgd:lr=0.1", "--steps", "4", "--save"]
    assert run(["race", TINY, *lanes, str(path)]) == 0
    with recorded(other) as made:
        run_to(made, 2)
        made.worker.send(c.SetHyper("lr", 0.02))
        made.until(lambda s: s.hyper.lr == 0.02)
        run_to(made, 4)
    saved = json.loads((path / RACE_NAME).read_text())
    theirs = json.loads((other / RACE_NAME).read_text())
    theirs["lanes"][0]["result"] = saved["lanes"][0]["result"]
    (other / RACE_NAME).write_text(json.dumps(theirs))
    document = again(capsys, other, code=1)
    assert [lane["bit_exact"] for lane in document["lanes"]] == [False, True]


def state_file(path: Path) -> None:
    """Two params after four steps, and gradients for three more."""
    rng = np.random.default_rng(0)
    tensors = {
        f"{key}/{name}": rng.normal(size=shape).astype(np.float32)
        for key in ("w", "g@5", "g@6", "g@7")
        for name, shape in {"a.weight": (6, 5), "a.bias": (5,)}.items()
    }
    save_file(tensors, path, metadata={"t": "4", "lr": "0.01"})


def test_steps_are_counted_from_where_the_source_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    state_file(tmp_path / "state.safetensors")
    lanes = ["--lane", "adamw", "--lane", "sgd"]
    document = document_of(capsys, "race", "state.safetensors", *lanes, "--steps", "3")
    assert [lane["steps"] for lane in document["lanes"]] == [3, 3]
    assert [row["step"] for row in document["lanes"][0]["history"]] == [5, 6, 7]
    path = tmp_path / "race.session"
    made = Watched(RunOpener(None, 64, None, None, {}), "state.safetensors")  # type: ignore[arg-type]
    try:
        made.at(5, 0)
        made.worker.send(c.StartRace(LANES))
        made.until(lambda s: s.race is not None and s.mode == "paused")
        made.worker.send(c.StartRecording(str(path), "stats"))
        run_to(made, 6)
        made.worker.send(c.StopRecording())
        made.until(lambda s: s.recording is None)
    finally:
        assert made.worker.close(WAIT_S)
    saved = RaceFile.read(path)
    assert (saved.steps, saved.began_at) == (2, 0)
    assert_exact_again(capsys, path)


@pytest.mark.parametrize("moved", [False, True])
def test_a_race_finds_its_source_from_any_folder(
    moved: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    (here / "saved").mkdir(parents=True)
    elsewhere.mkdir()
    monkeypatch.chdir(here)
    state_file(Path("state.safetensors"))
    path = Path("saved/race.session")
    lanes = ["--lane", "adamw", "--lane", "sgd", "--steps", "2"]
    assert run(["race", "state.safetensors", *lanes, "--save", str(path)]) == 0
    monkeypatch.chdir(elsewhere)
    if moved:
        # Another machine: the folder as a whole.
        shutil.move(here, tmp_path / "there")
        here = tmp_path / "there"
    assert_exact_again(capsys, here / path)
    (here / "state.safetensors").unlink()
    capsys.readouterr()
    assert run(["race", str(here / path), "--verify"]) == 2
    said = capsys.readouterr().err
    assert "state.safetensors, which is not there any more" in said
    assert str(here / "state.safetensors") in said


def test_what_each_lane_says_and_what_it_ran_have_to_agree(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "race.session"
    assert run(["race", TINY, "--lane", "adamw", "--lane", "sgd", "--steps", "2", "--save", str(path)]) == 0
    saved = json.loads((path / RACE_NAME).read_text())
    saved["lanes"][0]["spec"] = "lion"
    (path / RACE_NAME).write_text(json.dumps(saved))
    capsys.readouterr()
    assert run(["race", str(path), "--verify"]) == 2
    assert "ran something else" in capsys.readouterr().err


Damage = Callable[[Path], object]


@pytest.mark.parametrize(
    "damage",
    [
        shutil.rmtree,
        lambda lane: (lane / "session.sqlite").write_bytes(b""),
        lambda lane: (lane / "session.sqlite").write_bytes((lane / "session.sqlite").read_bytes()[:9000]),
    ],
)
def test_a_race_with_a_lane_that_is_damaged_is_not_run_again_and_the_lane_is_named(
    damage: Damage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "race.session"
    assert run(["race", TINY, "--lane", "adamw", "--lane", "sgd", "--steps", "2", "--save", str(path)]) == 0
    damage(path / "lane-001.session")
    capsys.readouterr()
    assert run(["race", str(path), "--verify"]) == 2
    said = capsys.readouterr().err
    assert "lane-001.session" in said
    assert said.count("\n") == 1


def test_the_first_step_with_other_numbers_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradients of the second step are others when it runs again."""
    monkeypatch.chdir(tmp_path)
    state_file(Path("state.safetensors"))
    lanes = ["--lane", "adamw", "--lane", "sgd", "--steps", "3", "--save", "race.session"]
    assert run(["race", "state.safetensors", *lanes]) == 0
    tensors = load_file("state.safetensors")
    tensors["g@6/a.bias"][0] *= 2
    save_file(tensors, "state.safetensors", metadata={"t": "4", "lr": "0.01"})
    document = again(capsys, Path("race.session"), code=1)
    assert [lane["first_difference"] for lane in document["lanes"]] == [6, 6]
    capsys.readouterr()
    assert run(["race", "race.session", "--verify"]) == 1
    assert "others from step 6 on" in capsys.readouterr().out


def test_a_race_over_recorded_gradients_runs_as_many_steps_as_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording, path = tmp_path / "run.session", tmp_path / "race.session"
    assert run(["run", TINY, "--steps", "3", "--save", str(recording), "--capture", "all"]) == 0
    capsys.readouterr()
    lanes = ["--lane", "adamw", "--lane", "lion"]
    document = document_of(capsys, "race", str(recording), *lanes)
    assert (document["steps"], [lane["steps"] for lane in document["lanes"]]) == (3, [3, 3])
    # Too many are told before anything runs, and nothing is left of them.
    assert run(["race", str(recording), *lanes, "--steps", "4", "--save", str(path)]) == 2
    assert "gradients of 3, up to step 3" in capsys.readouterr().err
    assert not path.exists()


def test_of_a_race_that_was_killed_the_steps_that_were_recorded_run_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "race.session"
    lanes = ["--lane", "adamw", "--lane", "sgd:lr=0.1", "--lane", "lion", "--steps", "4", "--save", str(path)]
    assert run(["race", TINY, *lanes]) == 0
    saved = json.loads((path / RACE_NAME).read_text())
    # What came of the lanes is written as they end; of the last one nothing had begun.
    for lane in saved["lanes"]:
        lane["result"] = None
    (path / RACE_NAME).write_text(json.dumps(saved))
    shutil.rmtree(path / "lane-002.session")
    document = again(capsys, path)
    assert (document["bit_exact"], document["complete"]) == (True, False)
    assert [lane["steps"] for lane in document["lanes"]] == [4, 4]
    for number in range(2):
        shutil.rmtree(path / f"lane-00{number}.session")
    capsys.readouterr()
    assert run(["race", str(path), "--verify"]) == 2
    assert "before any step of it was recorded" in capsys.readouterr().err
