"""Where a session may be saved: not over one that is there, and not inside of another; nothing there is touched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from inspector.errors import UsageError
from inspector.session.new_place import check_new, check_outside
from inspector.session.race_file import Kind, RacedLane, RaceFile, kind_of

Call = Callable[..., tuple[int, str, str]]
SESSIONS = Path(__file__).parent.parent / "sessions"
EXAMPLE = SESSIONS / "nan-gradient.session.zip"
SAVES: tuple[tuple[object, ...], ...] = (
    ("run", "synthetic:64", "--steps", "1"),
    ("race", "surface:valley", "--lane", "adamw", "--lane", "lion", "--steps", "1"),
    ("sweep", "surface:valley", "--lr", "0.1,0.2", "--steps", "1"),
    ("replay", EXAMPLE, "--from", "25", "--to", "25"),
    ("import", "nothing.safetensors"),
)


def saved(folder: Path, kind: Kind) -> Path:
    folder.mkdir()
    lanes = (RacedLane("adamw:lr=0.1,seed=0"), RacedLane("adamw:lr=0.2,seed=0"))
    RaceFile(kind, "surface:valley", True, 5, {}, {}, None, None, "a device", "a test", lanes).write(folder)
    return folder


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("kind", ["race", "sweep"])
@pytest.mark.parametrize("words", SAVES, ids=lambda words: str(words[0]))
def test_nothing_is_saved_over_or_inside_a_race_or_a_sweep(
    call: Call, tmp_path: Path, words: tuple[object, ...], kind: Kind
) -> None:
    folder = saved(tmp_path / "there.session", kind)
    before = files_of(folder)
    for path, said in (
        (folder, f"{folder} exists, it is a saved {kind}: name another session."),
        (
            folder / "lane-000.session",
            f"{folder / 'lane-000.session'} lies inside the saved {kind} {folder}: name a place outside of it.",
        ),
    ):
        assert call(*words, "--save", path) == (2, "", f"inspector: {said}\n")
    assert files_of(folder) == before


def test_a_lane_may_lie_in_its_own_race_alone(tmp_path: Path) -> None:
    own, other = saved(tmp_path / "own.session", "race"), saved(tmp_path / "other.session", "race")
    check_new(own / "lane-000.session", lane_of=own)
    with pytest.raises(UsageError, match="lies inside the saved race"):
        check_new(own / "lane-000.session", lane_of=other)
    inner = saved(own / "inner.session", "race")
    with pytest.raises(UsageError, match="lies inside the saved race"):
        check_new(inner / "lane-000.session", lane_of=inner)
    check_outside(own)


def test_a_race_that_cannot_be_read_is_not_written_over_either(tmp_path: Path) -> None:
    folder = saved(tmp_path / "there.session", "sweep")
    (folder / "race.json").write_text("{")
    assert kind_of(folder) == "race"
    with pytest.raises(UsageError, match="exists, it is a saved race"):
        check_new(folder)


@pytest.mark.gpu
def test_a_lane_of_a_race_is_not_gone_on_with(call: Call, tmp_path: Path) -> None:
    folder = tmp_path / "race.session"
    lanes = ("--lane", "adamw", "--lane", "lion")
    made = call("race", "surface:valley", *lanes, "--steps", 2, "--capture", "all", "--save", folder)
    assert made[0] == 0, made[2]
    before, lane = files_of(folder), folder / "lane-000.session"
    code, _, err = call("run", "surface:valley", "--steps", 4, "--save", lane, "--resume")
    assert (code, err) == (
        2,
        f"inspector: {lane} is a lane of the saved race {folder}, which tells what it ran: save to another session.\n",
    )
    assert files_of(folder) == before
