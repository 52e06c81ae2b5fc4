"""Lanes of a race: each is the run that it would be by itself, whatever the others do."""

from __future__ import annotations

import json
import math
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inspector.cli import run
from inspector.errors import UsageError
from inspector.gpu.opener import StepperMaker
from inspector.layout import Param
from inspector.plan import Variant
from inspector.race import LaneSpec, check_forms, lane_names, log_grid, sweep_lanes
from inspector.runtime.racing import JUDGED_STEPS, Race
from inspector.session.race_file import RACE_NAME, LaneResult, RaceFile, is_race
from inspector.session.reader import Session
from inspector.sources.charlm.one_thread import one_blas_thread, openblas
from inspector.sources.charlm.source import CharLm
from inspector.sources.open import open_source

TINY = "charlm:width=16,layers=1,heads=2,ffn=16,context=16,rows=2"


def started(*texts: str, source: str = TINY, **options: Any) -> Race:
    specs = [LaneSpec.from_text(text) for text in texts]
    made = open_source(source)
    maker = StepperMaker(undo_bytes=0)
    return Race.start(
        [made] * len(specs),
        specs,
        lambda source, variant, state: maker.make(source.params, variant, state),
        variant=Variant(),
        hypers=[made.hyper] * len(specs),
        **options,
    )


def document_of(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    assert run([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


# --- what a person writes


def test_a_lane_reads_back_as_it_is_written() -> None:
    lane = LaneSpec.from_text("lion:lr=3e-4,weight-decay=1,kernel=f32,seed=7")
    assert lane.optimizer == "lion"
    assert dict(lane.hyper) == {"lr": 3e-4, "weight_decay": 1.0}
    assert lane.seed == 7
    assert LaneSpec.from_text(str(lane)) == lane
    assert str(LaneSpec.from_text("adamw")) == "adamw"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", "OPTIMIZER"),
        ("adamw:", "OPTIMIZER"),
        ("adamvv", "'adamvv'"),
        ("adamw:lr", "'lr'"),
        ("adamw:lr=", "'lr='"),
        ("adamw:lr=x", "lr=x"),
        ("adamw:lr=-1", "negative"),
        ("adamw:rate=1", "'rate'"),
        ("adamw:lr=1,lr=2", "lr twice"),
        ("adamw:kernel=f64", "kernel=f64"),
        ("muon:no_muon=a++b", "joined by"),
        ("muon:no_muon=+", "joined by"),
        ("muon:no_muon=a,no_muon=b", "no_muon twice"),
        ("adamw:seed=-1", "seed=-1"),
        ("adamw:seed=1.5", "seed=1.5"),
        ("adamw:beta1=1", "outside"),
    ],
)
def test_a_lane_that_is_none_is_told(text: str, names: str) -> None:
    with pytest.raises(UsageError, match=names):
        LaneSpec.from_text(text)


@pytest.mark.parametrize(
    ("text", "idle"),
    [
        ("adamw:beta2=0.9,codec=sqrt", ("codec",)),
        ("adamw:kernel=8bit,codec=sqrt", ()),
        ("sgd:beta2=0.9,lr=1,root_block=64", ("beta2", "root_block")),
        ("adam:weight_decay=1", ("weight_decay",)),
        ("shampoo:root_every=3,factors=sum", ()),
        ("muon:no_muon=*qkv*", ()),
        ("adamw:no_muon=*qkv*", ("no_muon",)),
    ],
)
def test_keys_that_do_nothing_in_a_lane_are_known(text: str, idle: tuple[str, ...]) -> None:
    assert LaneSpec.from_text(text).idle_in(Variant()) == idle


def test_lanes_that_are_alike_have_names_of_their_own() -> None:
    lanes = [LaneSpec.from_text(text) for text in ("adamw", "sgd:lr=1", "adamw")]
    assert lane_names(lanes) == ("adamw (1)", "sgd:lr=1", "adamw (2)")


def test_a_grid_is_even_in_the_logarithm() -> None:
    assert log_grid("1e-4:1e-1:4") == (1e-4, 1e-3, 1e-2, 1e-1)
    assert log_grid("1e-3:1e-2:3") == (1e-3, 3.16e-3, 1e-2)
    assert log_grid("0.1,0.2") == (0.1, 0.2)


@pytest.mark.parametrize("text", ["", "1:2", "2:1:3", "0:1:3", "1e-3:1e-2:1", "a,b", "0.1,0.1", "1:2:3:4"])
def test_a_grid_that_is_none_is_told(text: str) -> None:
    with pytest.raises(UsageError, match="learning rates"):
        log_grid(text)


def test_a_grid_the_wrong_way_round_or_of_too_many_is_told_as_that() -> None:
    reversed_, too_many = "rise from LOW", "from 2 to 1,000"
    for text, says in (("1e-1:1e-4:3", reversed_), ("0:1:3", reversed_), ("1e-4:1:2000", too_many)):
        with pytest.raises(UsageError, match=says):
            log_grid(text)


def test_a_lane_may_leave_matrices_of_muon_to_adamw() -> None:
    lane = LaneSpec.from_text("muon:lr=0.02, no-muon=*qkv* + h.1.*")
    assert str(lane) == "muon:lr=0.02,no_muon=*qkv*+h.1.*"
    assert LaneSpec.from_text(str(lane)) == lane
    assert lane.variant_of(Variant()) == Variant(optimizer="muon", no_muon="*qkv*,h.1.*")
    params = [Param("h.0.qkv.weight", (4, 4)), Param("h.1.out.weight", (4, 4))]
    check_forms([lane], Variant(), params)
    with pytest.raises(UsageError, match=r"no_muon=h\.1\.\*, which names none of the 1 params"):
        check_forms([lane], Variant(), params[:1])


@pytest.mark.gpu
def test_a_lane_with_patterns_steps_as_a_run_with_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "race.session"
    lanes = ["--lane", "muon:no_muon=*qkv*+*out*", "--lane", "muon"]
    raced = document_of(capsys, "race", TINY, *lanes, "--steps", "3", "--save", str(path))
    alone = document_of(
        capsys, "run", TINY, "--optimizer", "muon", "--no-muon", "*qkv*,*out*", "--steps", "3"
    )
    losses = [[row["loss"] for row in lane["history"]] for lane in raced["lanes"]]
    assert losses[0] == [row["loss"] for row in alone["steps"]] != losses[1]
    assert document_of(capsys, "race", str(path), "--verify")["bit_exact"] is True


def test_a_sweep_runs_every_lane_at_every_rate_and_seed() -> None:
    lanes = sweep_lanes([LaneSpec("adamw"), LaneSpec("sgd")], (0.1, 0.2), range(3))
    assert len(lanes) == 12
    assert len(set(map(str, lanes))) == 12
    with pytest.raises(UsageError, match="leave lr and seed out"):
        sweep_lanes([LaneSpec.from_text("sgd:lr=1")], (0.1,), (0,))
    with pytest.raises(UsageError, match="1,000 is the limit"):
        sweep_lanes([LaneSpec()], log_grid("1e-9:1:500"), range(3))


# --- what the lanes do


def test_each_lane_has_every_bit_of_a_run_by_itself(tmp_path: Path) -> None:
    race = started("adamw", "adam-l2", "lion:lr=3e-4", "sgd:lr=0.1", "adamw")
    try:
        for _ in range(6):
            race.step()
        weights = [lane.engine.stepper.weights() for lane in race.lanes]
        assert race.lanes[0].digest() == race.lanes[4].digest()
        assert len({lane.digest() for lane in race.lanes}) == 4
    finally:
        race.close()
    for (optimizer, *more), theirs in zip(
        (["adamw"], ["adam-l2"], ["lion", "--lr", "3e-4"], ["sgd", "--lr", "0.1"]), weights, strict=False
    ):
        out = tmp_path / f"{optimizer}.safetensors"
        assert (
            run(["run", TINY, "--steps", "6", "--optimizer", optimizer, *more, "--out", str(out), "--json"])
            == 0
        )
        alone = open_source(str(out)).initial_state()
        for name, values in theirs.items():
            assert (alone.w[name].view(np.uint32) == values.ravel().view(np.uint32)).all(), (optimizer, name)  # type: ignore[union-attr]


def test_a_lane_that_diverges_says_so_and_stops_no_other() -> None:
    race, calm = started("sgd:lr=1e30,max_grad_norm=inf", "adamw"), started("adamw", "adamw")
    try:
        for _ in range(JUDGED_STEPS + 2):
            race.step()
            calm.step()
        wild, other = race.lanes
        assert wild.diverged is not None
        assert 1 < wild.diverged[0] <= JUDGED_STEPS
        assert "gradients are not finite" in wild.diverged[1]
        assert other.diverged is None
        assert other.steps == wild.steps == JUDGED_STEPS + 2
        assert other.digest() == calm.lanes[0].digest()
    finally:
        race.close()
        calm.close()


def test_a_loss_that_rises_above_its_start_is_divergence() -> None:
    """On the narrow valley by hand: y grows by a hundredth a step, in turns of sign, and x shrinks."""
    rate = 0.0402
    race = started(f"sgd:lr={rate}", "sgd:lr=1e-3", source="surface:valley")
    try:
        for _ in range(60):
            race.step()
        wild, calm = race.lanes
        assert calm.diverged is None
        before = np.arange(60)
        losses = 8 * (1 - rate) ** (2 * before) + 25 * (1 - 50 * rate) ** (2 * before)
        np.testing.assert_allclose(wild.history.series["loss"].last, losses, rtol=1e-4)
        means = [losses[i - JUDGED_STEPS : i].mean() for i in range(JUDGED_STEPS, 61)]
        expected = next(i for i, mean in enumerate(means, start=JUDGED_STEPS) if mean > 1.1 * losses[0])
        assert JUDGED_STEPS < expected < 60
        assert wild.diverged is not None
        assert wild.diverged[0] == expected
        assert "mean of 20 steps" in wild.diverged[1]
    finally:
        race.close()


def test_norms_are_those_of_the_weights_and_of_what_changed() -> None:
    race = started("adamw", "lion:lr=3e-4")
    try:
        race.step()
        for lane in race.lanes:
            before = {name: w.astype(np.float64) for name, w in lane.engine.stepper.weights().items()}
            lane.moved()
            race.round(2, without=next(other for other in race.lanes if other is not lane))
            after = lane.engine.stepper.weights()
            change = np.concatenate([(after[name] - before[name]).ravel() for name in before])
            whole = np.concatenate([w.ravel() for w in before.values()])
            assert lane.latest is not None
            assert lane.latest.weight_norm == pytest.approx(np.linalg.norm(whole), rel=1e-12)
            assert lane.latest.update_norm == pytest.approx(np.linalg.norm(change), rel=1e-12)
    finally:
        race.close()


def test_full_statistics_tell_the_norms_of_an_open_loop() -> None:
    race = started("adamw", "sgd:lr=1", source="synthetic:5000", stats="full")
    try:
        before = [lane.engine.stepper.weights() for lane in race.lanes]
        race.step()
        for lane, was in zip(race.lanes, before, strict=True):
            now = lane.engine.stepper.weights()
            change = np.concatenate([np.float64(now[n]).ravel() - np.float64(was[n]).ravel() for n in was])
            assert lane.latest is not None
            assert lane.latest.update_norm == pytest.approx(np.linalg.norm(change), rel=1e-4)
            whole = np.concatenate([np.float64(w).ravel() for w in was.values()])
            assert lane.latest.weight_norm == pytest.approx(np.linalg.norm(whole), rel=1e-5)
            assert math.isnan(lane.final_loss())
    finally:
        race.close()


def test_threads_that_compute_leave_the_count_of_threads_as_it_was() -> None:
    library = openblas()
    if library is None:
        pytest.skip("numpy was built with another library")
    before = library.scipy_openblas_get_num_threads64_()
    inside, leave = threading.Event(), threading.Event()

    def first() -> None:
        with one_blas_thread():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=first)
    thread.start()
    inside.wait(10)
    with one_blas_thread():
        leave.set()
        thread.join(10)
        assert library.scipy_openblas_get_num_threads64_() == 1
    assert library.scipy_openblas_get_num_threads64_() == before


# --- the commands


def test_a_race_is_saved_as_sessions_that_open_and_runs_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "race.session"
    document = document_of(
        capsys, "race", TINY, "--lane", "adamw", "--lane", "sgd:lr=0.1", "--steps", "12", "--save", str(path)
    )
    assert document["closed_loop"] is True
    assert [lane["name"] for lane in document["lanes"]] == ["adamw", "sgd:lr=0.1"]
    assert is_race(path)
    for number, lane in enumerate(document["lanes"]):
        with Session.open(path / f"lane-{number:03d}.session") as session:
            assert session.steps == range(1, 13)
            np.testing.assert_array_equal(session.metric("loss"), [row["loss"] for row in lane["history"]])
        # The mean over the last tenth: of twelve steps one.
        assert lane["final_loss"] == lane["history"][-1]["loss"]
    again = document_of(capsys, "race", str(path), "--verify")
    assert again["bit_exact"] is True

    saved = RaceFile.read(path)
    result = saved.lanes[1].result
    assert result is not None
    changed = json.loads((path / RACE_NAME).read_text())
    changed["lanes"][1]["result"]["weights_sha256"] = "0" * 64
    (path / RACE_NAME).write_text(json.dumps(changed))
    again = document_of(capsys, "race", str(path), "--verify", code=1)
    assert [lane["bit_exact"] for lane in again["lanes"]] == [True, False]


def test_a_race_with_numbers_that_json_does_not_have_is_saved_and_runs_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "race.session"
    arguments = ["--lane", "adamw", "--lane", "sgd", "--steps", "2", "--max-grad-norm", "inf"]
    document_of(capsys, "race", "surface:valley", *arguments, "--save", str(path))
    saved = RaceFile.read(path)
    assert saved.settings["max_grad_norm"] == math.inf
    assert document_of(capsys, "race", str(path), "--verify")["bit_exact"] is True

    lost = LaneResult(2, math.nan, "0" * 64, 1, "its loss is no number")
    saved.with_result(1, lost).write(path)
    found = RaceFile.read(path).lanes[1].result
    assert found is not None
    assert found.final_loss is not None
    assert math.isnan(found.final_loss)
    assert (found.diverged, found.why) == (lost.diverged, lost.why)


def test_a_sweep_tells_the_mean_over_seeds_by_learning_rate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "sweep.session"
    document = document_of(
        capsys, "sweep", TINY, "--lane", "adamw", "--lr", "1e-5,1e-2", "--seeds", "2", "--steps", "30",
        "--save", str(path),
    )  # fmt: skip
    assert len(document["lanes"]) == 4
    assert len({lane["weights_sha256"] for lane in document["lanes"]}) == 4
    for row in document["rates"]:
        mine = [lane["final_loss"] for lane in document["lanes"] if lane["hyper"]["lr"] == row["lr"]]
        assert (len(mine), row["seeds"]) == (2, 2)
        assert row["final_loss"] == pytest.approx(sum(mine) / 2, rel=1e-15)
        assert (row["low"], row["high"]) == (min(mine), max(mine))
    assert [row["lr"] for row in document["best"]] == [1e-2]
    assert document_of(capsys, "race", str(path), "--verify")["bit_exact"] is True


def test_recorded_gradients_are_an_open_loop(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["race", "synthetic:2000", "--lane", "adamw", "--lane", "lion", "--steps", "2"]) == 0
    assert "Open loop" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--lane", "adamw"], "2 to 8 lanes, not 1"),
        (["--lane", "adamw"] * 9, "2 to 8 lanes, not 9"),
        (["--lane", "adamw", "--lane", "sgd:kernel=8bit"], "8bit kernel, which sgd does not have"),
        (["--lane", "adamw", "--lane", "adamw", "--steps", "-1"], "negative"),
        (
            ["--lane", "adamw", "--lane", "adamw", "--capture", "some", "--save", "x.session"],
            "capture policy",
        ),
        (["--verify"], "is no saved race or sweep"),
        (["--lane", "adamw", "--lane", "lion", "--capture", "all"], "--capture needs a session"),
    ],
)
def test_what_is_no_race_is_told(
    arguments: list[str], names: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "note.txt").write_text("a folder of something else")
    source = str(tmp_path) if "--verify" in arguments else TINY
    assert run(["race", source, *arguments]) == 2
    said = capsys.readouterr().err
    assert names in said
    assert said.count("\n") == 1


def test_norms_of_an_open_loop_are_told_without_being_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """They are all in which its lanes differ."""
    lanes = document_of(
        capsys, "race", "synthetic:2000", "--lane", "lion:lr=1e-3", "--lane", "lion:lr=2e-3", "--weight-decay", "0",
        "--steps", "1",
    )["lanes"]  # fmt: skip
    # Every element moves by lr.
    for lane, lr in zip(lanes, (1e-3, 2e-3), strict=True):
        assert lane["history"][0]["update_norm"] == pytest.approx(lr * math.sqrt(2000), rel=1e-4)
        assert lane["history"][0]["weight_norm"] > 0


def test_a_session_that_exists_is_told_before_anything_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for command in ("race", "sweep"):
        assert run([command, TINY, "--save", str(tmp_path)]) == 2
        said = capsys.readouterr().err
        assert "name another session." in said
        assert "--resume" not in said


def test_a_loss_that_ran_away_keeps_the_table_as_narrow_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(["race", "surface:rosenbrock", "--lane", "sgd:lr=0.01", "--lane", "adam", "--steps", "20"]) == 0
    )
    assert max(len(line) for line in capsys.readouterr().out.splitlines()) < 140


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d.pop("lanes"),
        lambda d: d.update(lanes=[]),
        lambda d: d.update(format=99),
        lambda d: d["lanes"][0].update(spec="rm -rf"),
        lambda d: d["lanes"][0].update(spec=3),
        lambda d: d.update(steps="many"),
        lambda d: d.update(kind="war"),
        lambda d: d.update(settings=[1]),
        lambda d: d.update(settings={"lr": 10**400}),
        lambda d: d.update(settings={"speed": 1}),
        lambda d: d.update(settings={"lr": -1}),
        lambda d: d.update(form={"colour": "red"}),
        lambda d: d.update(form={"kernel": "9bit"}),
        lambda d: d.update(form={"root_block": "x"}),
        lambda d: d.update(files=[1]),
        lambda d: d.update(kind="sweep"),
    ],
)
def test_a_damaged_race_is_refused_by_name(
    tmp_path: Path, damage: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "race.session"
    assert run(["race", TINY, "--lane", "adamw", "--lane", "sgd", "--steps", "1", "--save", str(path)]) == 0
    document = json.loads((path / RACE_NAME).read_text())
    damage(document)
    (path / RACE_NAME).write_text(json.dumps(document))
    capsys.readouterr()
    assert run(["race", str(path), "--verify"]) == 2
    assert RACE_NAME in capsys.readouterr().err


def test_the_live_model_alone_is_a_closed_loop() -> None:
    from inspector.sources.base import is_closed_loop

    assert is_closed_loop(CharLm())
    assert not is_closed_loop(open_source("synthetic:100"))
