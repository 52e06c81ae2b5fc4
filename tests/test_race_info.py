"""`inspector info` of a race and of a sweep: what ran, how much is done, what is best."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from inspector.session.race_file import Kind, LaneResult, RacedLane, RaceFile

Call = Callable[..., tuple[int, str, str]]
Result = tuple[int, float | None, int | None, str]
"""Steps, final loss, the step of divergence, why."""


def saved(folder: Path, kind: Kind, lanes: Sequence[tuple[str, Result | None]], **changes: Any) -> Path:
    folder.mkdir()
    rows = []
    for spec, result in lanes:
        made = None if result is None else LaneResult(result[0], result[1], "0" * 64, *result[2:])
        rows.append(RacedLane(spec, made))
    what: dict[str, Any] = {
        "source": "charlm", "closed_loop": True, "steps": 30, "settings": {"weight_decay": 0.1},
        "form": {"numerics": "precise"}, "schedule": None, "seed": None, "device": "a device",
        "software": "inspector 9", "lanes": tuple(rows), **changes,
    }  # fmt: skip
    RaceFile(kind, **what).write(folder)
    return folder


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Two lanes at two rates and two seeds. Of sgd at 1 a run diverged below all others, one is not done."""
    done = [
        ("adamw:lr=0.01,seed=0", (30, 2.0, None, "")),
        ("adamw:lr=0.01,seed=1", (30, 2.5, None, "")),
        ("adamw:lr=1,seed=0", (30, 3.0, None, "")),
        ("adamw:lr=1,seed=1", (30, 3.5, None, "")),
        ("sgd:lr=0.01,seed=0", (30, 4.0, None, "")),
        ("sgd:lr=0.01,seed=1", (30, 4.0, None, "")),
        ("sgd:lr=1,seed=0", (30, 1.0, 11, "its loss rose")),
    ]
    return saved(tmp_path / "sweep.session", "sweep", [*done, ("sgd:lr=1,seed=1", None)])


def document_of(call: Call, path: Path, *more: str, code: int = 0) -> Any:
    found, out, err = call("info", path, "--json", *more)
    assert found == code, err
    return json.loads(out)


def test_a_sweep_is_told_as_one(call: Call, sweep: Path) -> None:
    found = document_of(call, sweep)
    assert (found["kind"], found["source"], found["steps"]) == ("sweep", "charlm", 30)
    assert (found["bases"], found["learning_rates"], found["seeds"]) == (["adamw", "sgd"], [0.01, 1], [0, 1])
    assert (found["done"], len(found["lanes"]), found["diverged"]) == (7, 8, 1)
    assert [lane["state"] for lane in found["lanes"]] == ["done"] * 7 + ["waiting"]
    assert found["state"] == "incomplete"
    # The means by hand; of sgd the rate at which no run diverged.
    assert [(row["lane"], row["lr"], row["final_loss"]) for row in found["rates"]] == [
        ("adamw", 0.01, 2.25), ("adamw", 1, 3.25), ("sgd", 0.01, 4.0), ("sgd", 1, 1.0),
    ]  # fmt: skip
    assert [(row["lane"], row["lr"]) for row in found["best"]] == [("adamw", 0.01), ("sgd", 0.01)]


def test_a_sweep_is_told_to_people(call: Call, sweep: Path) -> None:
    code, out, err = call("info", sweep)
    assert (code, err) == (0, "")
    lines = dict(line.split(maxsplit=1) for line in reversed(out.splitlines()) if len(line.split()) > 1)
    assert lines["holds"] == "a sweep of 8 runs, 30 steps each"
    assert (lines["lanes"], lines["rates"], lines["seeds"]) == ("adamw, sgd", "0.01, 1.0", "0, 1")
    assert (lines["settings"], lines["variant"]) == ("weight_decay 0.1", "numerics precise")
    assert lines["finished"] == "7 of 8 runs; 1 diverged"
    best = [line.split(maxsplit=1)[1] for line in out.splitlines() if line.startswith("best ")]
    assert best == [
        "adamw at lr 0.01, final loss 2.2500, the mean of 2 seeds from 2.0000 to 2.5000",
        "sgd at lr 0.01, final loss 4.0000, the mean of 2 seeds from 4.0000 to 4.0000",
    ]
    assert lines["sessions"].startswith("lane-000.session to lane-007.session")
    assert lines["state"].startswith("not complete")
    assert lines["state"].endswith(f"inspector sweep {sweep} --resume runs it")
    assert "race of" not in out


def test_a_race_is_told_by_its_lanes(call: Call, tmp_path: Path) -> None:
    lanes: list[tuple[str, Result | None]] = [
        ("adamw", (30, 2.0, None, "")),
        ("sgd:lr=10", (30, math.inf, 8, "its loss is no number")),
        ("lion:lr=0.001,seed=3", (30, 1.5, None, "")),
    ]
    path = saved(tmp_path / "race.session", "race", lanes)
    found = document_of(call, path)
    assert (found["kind"], found["state"], found["done"]) == ("race", "complete", 3)
    assert found["best"] == [{"lane": "lion:lr=0.001,seed=3", "final_loss": 1.5}]
    assert [(lane["steps"], lane["final_loss"], lane["seed"]) for lane in found["lanes"]] == [
        (30, 2.0, None), (30, "Infinity", None), (30, 1.5, 3),
    ]  # fmt: skip
    out = call("info", path)[1]
    assert "a race of 3 lanes, 30 steps each" in out
    assert "3 of 3 lanes; 1 diverged" in out
    assert "diverged at step 8: its loss is no number" in out
    assert f"inspector race {path} --verify runs it again" in out


def test_a_race_that_began_later_is_not_said_to_run_again(call: Call, tmp_path: Path) -> None:
    path = saved(
        tmp_path / "race.session",
        "race",
        [("adamw", (30, None, None, ""))] * 2,
        began_at=7,
        closed_loop=False,
    )
    out = call("info", path)[1]
    assert "from step 8 on" in out
    assert "open loop" in out
    assert "--verify" not in out


@pytest.mark.gpu
@pytest.mark.parametrize("left", [None, ".race.json.4711.part"])
@pytest.mark.parametrize("words", [("info",), ("race", "--verify"), ("sweep", "--resume"), ("replay",)])
def test_of_a_race_that_was_killed_as_it_began_it_is_said_that_nothing_was_recorded(
    call: Call, tmp_path: Path, words: tuple[str, ...], left: str | None
) -> None:
    path = tmp_path / "race.session"
    path.mkdir()
    if left is not None:
        (path / left).mkdir()
    code, out, err = call(words[0], path, *words[1:])
    assert (code, out) == (2, "")
    assert err == (
        f"inspector: {path} is no session but an empty folder, as a race leaves it that is killed as it begins: "
        "nothing was recorded, delete it.\n"
    )


def test_sessions_of_a_sweep_are_counted_and_checked(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "sweep.session"
    swept = call("sweep", "surface:valley", "--lr", "0.1,0.2", "--steps", "3", "--save", path, "--json")
    assert swept[0] == 0, swept[2]
    made = json.loads(swept[1])
    found = document_of(call, path, "--check")
    assert found["problems"] == []
    assert (found["rates"], found["best"]) == (made["rates"], made["best"])
    each = [document_of(call, path / f"lane-00{number}.session")["size"] for number in range(2)]
    assert found["size"] == sum(each) + (path / "race.json").stat().st_size
    (path / "lane-001.session" / "session.sqlite").unlink()
    (problem,) = document_of(call, path, "--check", code=1)["problems"]
    assert "lane-001.session" in problem


def test_other_commands_name_what_it_is(call: Call, sweep: Path) -> None:
    code, _, err = call("diff", sweep, sweep)
    assert code == 2
    assert f"{sweep} is a sweep, which has a session for each run: name one of them, as in" in err
