"""A run of several processes opens as one: whole params, merged statistics, tensors put together, ranks that part."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import foreign_runs
import numpy as np
import pytest
import rank_recordings as made
import recordings
from safetensors import safe_open

from inspector.errors import UsageError
from inspector.findings import Finding
from inspector.param_statistics import LaneColumns, ParamTable, UpdateColumns
from inspector.session.archive import pack
from inspector.session.joined_events import joined_findings
from inspector.session.reader import Session
from inspector.session.records import RecordedStep, Shard
from inspector.stores import LANES

WAYS = {"two": made.TWO, "four": made.FOUR}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six steps of two ranks, everything captured; not to be changed."""
    return made.record(tmp_path_factory.mktemp("two") / "run.session", made.TWO)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, two: Path) -> dict[str, Path]:
    """The same of each of `WAYS`."""
    return {"two": two, "four": made.record(tmp_path_factory.mktemp("four") / "run.session", made.FOUR)}


def assert_same_table(found: ParamTable, expected: ParamTable) -> None:
    """Counts and places equal, norms to the rounding of a float64 sum."""
    assert found.names == expected.names
    assert found.blocks == expected.blocks
    pairs: list[tuple[Any, Any, Any]] = [
        *((LaneColumns, found.lanes[lane], expected.lanes[lane]) for lane in LANES),
        (UpdateColumns, found.update, expected.update),
    ]
    for kind, mine, other in pairs:
        for field in fields(kind):
            a, b = getattr(mine, field.name), getattr(other, field.name)
            if field.name == "norm":
                np.testing.assert_allclose(a, b, rtol=1e-14)
            else:
                np.testing.assert_array_equal(a, b, field.name)


@pytest.mark.parametrize("way", WAYS)
def test_statistics_of_parts_are_those_of_the_whole_params(recorded: dict[str, Path], way: str) -> None:
    with Session.open(recorded[way]) as session:
        assert {p.name: p.shape for p in session.about.params} == {p.name: p.shape for p in made.PARAMS}
        assert session.steps == range(1, 7)
        layout = session.layout()
        assert layout is not None
        for step in session.steps:
            table = session.param_statistics(step)
            assert table is not None
            params = session.about.params
            expected = made.whole_table(step, params)
            assert table.names == tuple(segment.name for segment in layout)
            assert_same_table(table, expected)
            bad = [int(f) for f in expected.lanes["g"].first if f >= 0]
            counts = session.step(step).nonfinite
            assert counts.first == min(bad, default=None)
            for name in ("nan", "posinf", "neginf"):
                assert getattr(counts, name) == getattr(expected.lanes["g"], name).sum()
                assert session.metric(name)[step - 1] == getattr(counts, name)


@pytest.mark.parametrize("way", [*WAYS, "sharded"])
def test_the_norm_is_over_all_params_each_element_once(
    tmp_path: Path, recorded: dict[str, Path], way: str
) -> None:
    """Also where ranks keep copies beside parts of their own, which only counts by param tell apart."""
    params, path = made.PARAMS, recorded.get(way)
    if path is None:
        params = made.PARAMS[:2]
        path = made.record(tmp_path / "run.session", made.SHARDED, params=params)
    with Session.open(path) as session:
        norms = []
        for step in session.steps:
            gradients = made.spoiled(step)
            squares = (
                np.square(gradients[p.name][np.isfinite(gradients[p.name])].astype(np.float64)).sum()
                for p in params
            )
            norms.append(math.sqrt(math.fsum(squares)))
        np.testing.assert_allclose(session.metric("grad_norm"), norms, rtol=1e-6)
        assert session.known("grad_norm").all()
        assert session.step(3).grad_norm == session.metric("grad_norm")[2]


def test_a_norm_that_all_ranks_were_told_of_is_taken_as_it_is(tmp_path: Path) -> None:
    path = made.record(
        tmp_path / "run.session", made.TWO,
        change=lambda rank, step: replace(step, grad_norm=2.5, clip_scale=0.4, of_part=step.step == 2),
    )  # fmt: skip
    with Session.open(path) as session:
        found = session.metric("grad_norm").tolist()
        assert found[:1] + found[2:] == [2.5] * 5
        assert found[1] != 2.5
        assert all("norm" not in each.what for step in session.steps for each in session.parted(step))


def test_without_statistics_a_norm_of_parts_with_copies_is_not_known(tmp_path: Path) -> None:
    path = made.record(tmp_path / "run.session", made.TWO, count=lambda rank, table: None)
    with Session.open(path) as session:
        assert not session.known("grad_norm").any()
        assert session.step(2).grad_norm is None
        assert session.param_statistics(2) is None


def test_the_loss_is_the_mean_and_each_rank_keeps_its_own(tmp_path: Path) -> None:
    path = made.record(
        tmp_path / "run.session", made.FOUR, 6, "stats",
        change=lambda rank, step: replace(step, loss=None) if rank == 3 or step.step == 5 else step,
    )  # fmt: skip
    with Session.open(path) as session:
        assert session.metric("loss")[0] == pytest.approx(2.99 + 0.1)
        assert session.known("loss").tolist() == [True] * 4 + [False, True]
        assert session.step(5).loss is None
        assert session.metric("loss/rank 2")[0] == pytest.approx(2.99 + 0.2)
        assert np.isnan(session.metric("loss/rank 3")).all()
        np.testing.assert_allclose(session.metric("seconds/rank 2")[1:], 1.25)
        steps = session.rank_steps(4)
        assert [each.seconds for each in steps] == pytest.approx([1, 1.125, 1.25, 1.375])
        part = made.spoiled(4)["norm"][2:4].astype(np.float64)
        assert steps[1].part_norm is not None
        assert steps[1].part_norm > np.sqrt(np.square(part).sum())
        assert "loss/rank 3" in session.metric_names()
        with pytest.raises(UsageError, match="no metric 'loss/rank 4'"):
            session.metric("loss/rank 4")


@pytest.mark.parametrize("way", WAYS)
def test_captured_tensors_are_put_together(recorded: dict[str, Path], way: str) -> None:
    rng = np.random.default_rng(0)
    with Session.open(recorded[way]) as session:
        assert session.captures("gradients") == (1, 2, 3, 4, 5, 6)
        assert session.captures("keyframe") == (0, 1, 2, 3, 4, 5, 6)
        state, gradients = session.keyframe(4), session.gradients(3)
        for param in session.about.params:
            for lane in "wgmv":
                step = 3 if lane == "g" else 4
                expected = made.spoiled(3)[param.name] if lane == "g" else made.values(4, lane)[param.name]
                found = session.tensor(lane, step, param.name)  # type: ignore[arg-type]
                np.testing.assert_array_equal(found, expected)
                assert not found.flags.writeable
                flat = gradients[param.name] if lane == "g" else getattr(state, lane)[param.name]
                np.testing.assert_array_equal(flat, expected.reshape(-1))
                for _ in range(20):
                    start, stop = sorted(rng.integers(0, param.numel + 1, 2).tolist())
                    window = session.window(lane, step, param.name, start, stop)  # type: ignore[arg-type]
                    np.testing.assert_array_equal(window, expected.reshape(-1)[start:stop])
        assert session.verify() == []


def test_what_one_rank_has_whole_stays_mapped(two: Path) -> None:
    with Session.open(two) as session:
        base: Any = session.tensor("w", 2, "alone")
        while base.base is not None and not isinstance(base, np.memmap):
            base = base.base
        assert isinstance(base, np.memmap)


def test_gradients_that_one_rank_lacks_are_zero_there(tmp_path: Path) -> None:
    path = made.record(tmp_path / "run.session", made.TWO, without=(0, "embed"))
    with Session.open(path) as session:
        expected = made.spoiled(1)["embed"]
        expected[:4] = 0
        np.testing.assert_array_equal(session.tensor("g", 1, "embed"), expected)
        np.testing.assert_array_equal(session.gradients(1)["embed"], expected.reshape(-1))
    path = made.record(tmp_path / "other.session", made.TWO, without=(1, "alone"))
    with Session.open(path) as session:
        assert set(session.gradients(1)) == {p.name for p in made.PARAMS} - {"alone"}
        with pytest.raises(UsageError, match="no gradients of step 9: not all ranks"):
            session.gradients(9)
        with pytest.raises(UsageError, match="no param 'nothing'"):
            session.tensor("w", 1, "nothing")


# --- ranks that part


def differs(rank: int, step: int, **changes: Any) -> Any:
    return lambda r, ran: replace(ran, **changes) if (r, ran.step) == (rank, step) else ran


def test_a_rank_with_another_learning_rate_is_named(tmp_path: Path) -> None:
    path = made.record(
        tmp_path / "run.session", made.FOUR, change=differs(2, 4, hyper=made.hyper(1)), policy="stats"
    )
    with Session.open(path) as session:
        (found,) = session.parted(4)
        assert (found.rank, found.what, found.value, found.others) == (2, "lr", 1e-3, 1e-3 / 4)
        assert session.parted(3) == ()
        assert [each.parted for each in session.rank_steps(4)] == ["", "", "lr", ""]


def test_a_rank_that_was_told_another_norm_is_named(tmp_path: Path) -> None:
    def told(rank: int, ran: Any) -> Any:
        norm = 2.5 * (1 + (1e-7 if rank == 1 else 0))
        return replace(ran, of_part=False, grad_norm=3.0 if (rank, ran.step) == (3, 2) else norm)

    with Session.open(made.record(tmp_path / "run.session", made.FOUR, 2, "stats", change=told)) as session:
        assert [(e.rank, e.what, e.value, e.others) for e in session.parted(2)] == [
            (3, "grad_norm", 3.0, 2.5)
        ]
        assert session.parted(1) == ()


def test_a_rank_whose_copy_of_a_param_is_another_is_named(tmp_path: Path) -> None:
    def count(rank: int, table: ParamTable) -> ParamTable:
        if rank != 1:
            return table
        lane = table.lanes["w"]
        norm = lane.norm.copy()
        norm[table.names.index("norm")] *= 1 + 1e-6
        return replace(table, lanes={**table.lanes, "w": replace(lane, norm=norm)})

    with Session.open(made.record(tmp_path / "run.session", made.TWO, 5, "stats", count=count)) as session:
        (found,) = session.parted(5)
        assert (found.rank, found.what, found.param) == (1, "the norm of w", "norm")
        assert found.value == pytest.approx(found.others * (1 + 1e-6), rel=1e-12)


# --- how far it is, and what is refused


def test_a_run_goes_as_far_as_all_ranks_have_it(tmp_path: Path) -> None:
    path = made.record(tmp_path / "run.session", made.TWO, lasts={1: 4})
    with Session.open(path) as session:
        assert session.steps == range(1, 5)
        assert session.captures("gradients") == (1, 2, 3, 4)
        assert len(session.metric("loss")) == 4
        assert session.state == "complete"
        assert session.ended_because is not None
        assert "Rank 1 ended after step 4, rank 0 has step 6" in session.ended_because
        with pytest.raises(UsageError, match="no step 5"):
            session.step(5)


REFUSED: dict[str, tuple[Any, str]] = {
    "missing": (lambda p: shutil.rmtree(p / "rank-0001.session"), r"rank-0001\.session is missing in it"),
    "more": (
        lambda p: (p / "ranks.json").write_text(made.ranks_text(1)),
        r"for rank 0 of 1 is rank 0 of 2 processes",
    ),
    "swapped": (
        lambda p: [
            (p / "rank-0000.session").rename(p / "x"), (p / "rank-0001.session").rename(p / "rank-0000.session"),
            (p / "x").rename(p / "rank-0001.session"),
        ],
        r"for rank 0 of 2 is rank 1 of 2 processes",
    ),
    "elsewhere": (
        lambda p: (p / "ranks.json").write_text(json.dumps({"world_size": 1, "ranks": ["../other.session"]})),
        r"ranks\.json is damaged",
    ),
    "no json": (lambda p: (p / "ranks.json").write_bytes(b"\xff{"), r"ranks\.json is damaged"),
}  # fmt: skip


@pytest.mark.parametrize("way", REFUSED)
def test_ranks_that_make_no_run_are_refused(tmp_path: Path, way: str) -> None:
    edit, said = REFUSED[way]
    path = made.record(tmp_path / "run.session", made.TWO, 1, "stats")
    edit(path)
    with pytest.raises(UsageError, match=said):
        Session.open(path)


def with_parts(**parts: Any) -> tuple[made.Parts, ...]:
    """Two ranks, the second with other parts."""
    return made.TWO[0], {**made.TWO[1], **parts}


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        (with_parts(embed=(slice(3, 7),)), "ranks 0 and 1 keep parts of 'embed' that overlap"),
        (with_parts(embed=(slice(5, 7),)), "lacks a part of 'embed': its ranks keep 30 of 35 elements"),
        (with_parts(embed=None), "ranks 0 and 1 keep parts of 'embed' that overlap"),
        (with_parts(cube=(slice(1, 4), slice(2, 6))), "parts of 'cube' that overlap"),
    ],
)
def test_parts_that_overlap_or_lack_some_are_refused(
    tmp_path: Path, ranks: tuple[made.Parts, ...], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        Session.open(made.record(tmp_path / "run.session", ranks, 1, "stats"))


def rerecorded(path: Path, rank: int, **about: Any) -> None:
    folder = path / f"rank-{rank:04d}.session"
    shutil.rmtree(folder)
    made.record_rank(folder, rank, 2, made.TWO[rank], 1, "stats", about=about)


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"run": "other"}, "rank 1 was recorded in another run than rank 0"),
        ({"finished_steps": 3}, "rank 1 begins after step 3, rank 0 after step 0"),
        ({"origin": "PyTorch 1.0"}, "rank 1 begins made by PyTorch 1.0"),
        ({"dtypes": ("bf16",) * 7}, r"'norm' is \[6\] in f32.* in rank 0 and \[6\] in bf16.* in rank 1"),
        (
            {"shards": (None, Shard((8, 5), (4, 0)), *[None] * 5)},
            r"'embed' is \[7, 5\].* in rank 0 and \[8, 5\]",
        ),
        ({"shards": (None, Shard((7, 5), (5, 0)), *[None] * 5)}, "lies outside of its shape"),
    ],
)
def test_ranks_of_different_runs_are_refused(tmp_path: Path, about: Any, said: str) -> None:
    path = made.record(tmp_path / "run.session", made.TWO, 0, "stats")
    mine, shards = made.local_params(made.TWO[1])
    if "shards" in about:
        about["shards"] = tuple(given or shard for given, shard in zip(about["shards"], shards, strict=True))
    if "finished_steps" in about:
        rerecorded_empty(path, about)
    else:
        rerecorded(path, 1, **about)
    with pytest.raises(UsageError, match=said):
        Session.open(path)
    assert len(mine) == len(shards)


def rerecorded_empty(path: Path, about: Any) -> None:
    folder = path / "rank-0001.session"
    shutil.rmtree(folder)
    made.record_rank(folder, 1, 2, made.TWO[1], 0, "stats", about=about)


# --- while it is written


def test_the_slowest_rank_leads_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    path.mkdir()
    (path / "ranks.json").write_text(made.ranks_text(2))
    (first, offer), (second, follow) = (
        made.start_rank(path / made.rank_folder(rank), rank, 2, made.TWO[rank], "all") for rank in range(2)
    )
    with first, second:
        for step in (1, 2, 3):
            offer(step)
        follow(1)
        for recorder in (first, second):
            recorder.flush()
        with Session.open(path) as session:
            assert (session.state, session.steps) == ("recording", range(1, 2))
            assert session.ended_because is None
            generation = session.generation
            follow(2)
            second.flush()
            assert session.follow()
            assert session.steps == range(1, 3)
            assert session.generation == generation
            assert session.captures("keyframe") == (0, 1, 2)
            np.testing.assert_array_equal(session.tensor("w", 2, "cube"), made.values(2, "w")["cube"])
            table = session.param_statistics(2)
            assert table is not None
            assert_same_table(table, made.whole_table(2, session.about.params))
            # The run goes back.
            for recorder in (first, second):
                recorder.rewind(1)
                recorder.flush()
            assert session.follow()
            assert session.steps == range(1, 2)
            assert session.generation != generation
            follow(2)
            offer(2)
            second.close("it was told to")
            first.flush()
            assert session.follow()
            assert (session.state, session.steps) == ("recording", range(1, 3))
            offer(3)
            first.close()
            assert session.follow()
            assert session.state == "complete"
            assert session.ended_because == (
                "Rank 1: it was told to Rank 1 ended after step 2, rank 0 has step 3: the run is shown as far as all "
                "ranks have it."
            )


KILLED = """
import os, sys
sys.path[:0] = [{tests!r}, {project!r}]
from pathlib import Path
import rank_recordings as made
import recordings
from safetensors import safe_open
recorder, offer = made.start_rank(Path(sys.argv[1]), 1, 2, made.TWO[1], "all")
for step in range(1, 4):
    offer(step)
recorder.flush()
os._exit(1)
"""


def test_a_rank_that_died_is_named(tmp_path: Path) -> None:
    path = made.record(tmp_path / "run.session", made.TWO, 5)
    folder = path / "rank-0001.session"
    shutil.rmtree(folder)
    tests = Path(__file__).parent
    script = KILLED.format(tests=str(tests), project=str(tests.parent))
    subprocess.run([sys.executable, "-c", script, str(folder)], check=False)
    with Session.open(path) as session:
        assert (session.state, session.steps) == ("interrupted", range(1, 4))
        assert session.ended_because == (
            "Rank 1 was interrupted after step 3, rank 0 has step 5: the run is shown as far as all ranks have it."
        )
        assert [part.state for part in session.rank_parts()] == ["complete", "interrupted"]


def test_findings_and_notes_of_all_ranks_are_told_once(tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    path.mkdir()
    (path / "ranks.json").write_text(made.ranks_text(2))
    for rank in range(2):
        recorder, offer = made.start_rank(path / made.rank_folder(rank), rank, 2, made.TWO[rank], "stats")
        with recorder:
            recorder.mark(1, "it began")
            recorder.gap(1, f"lost {rank}")
            offer(1)
            index = 2 if rank else 3
            found = [
                Finding("zero-eps", "warning", 2, "ε is 0.", "Set it."),
                Finding("nonfinite-gradient", "error", 2, f"{rank} of embed", "Look.", None, "embed", index),
            ]
            ran = replace(recordings.recorded(2), kernels=(), of_part=True)
            recorder.offer(ran, findings=found[rank:] if rank else found)
    with Session.open(path) as session:
        told = session.findings()
        assert [each.message for each in told] == ["Rank 0: ε is 0.", "0 of embed"]
        # Row 0 of rank 0; the third element of rank 1 would be in row 4.
        assert told[1].index == 3
        assert [str(note) for note in session.notes("mark")] == ["Step 1: it began"]
        assert [note.text for note in session.notes("gap")] == ["rank 0: lost 0", "rank 1: lost 1"]


def test_an_element_in_a_finding_of_one_rank_is_that_of_the_whole_param(recorded: dict[str, Path]) -> None:
    with Session.open(recorded["four"]) as session:
        joined: Any = session
        shards = joined._contents.shards
    found = [(), (), (), (Finding("x", "error", 1, "m", "a", None, "cube", 3 * 3 + 4),)]
    (told,) = joined_findings(shards, found, 1)
    # [1, 0, 1 + ...] of the box that begins at [2, 3, 0]: 13 = [1, 1, 1] of 2 × 3 × 3.
    assert told.index == np.ravel_multi_index((2 + 1, 3 + 1, 1), (4, 6, 3))
    assert told.evidence["ranks"] == "3"


def test_what_holds_of_every_element_of_one_part_is_told_once_it_holds_of_all(
    recorded: dict[str, Path],
) -> None:
    """A rank whose rows of an embedding no batch has come to says that all of its gradients are 0."""
    with Session.open(recorded["two"]) as session:
        joined: Any = session
        shards = joined._contents.shards
    name = next(each.param.name for each in shards.by_name.values() if len(each.listed) == 2)

    def dead(step: int) -> Finding:
        return Finding("dead-gradient", "warning", step, "All are 0.", "Look.", None, name, None)

    assert joined_findings(shards, [(), (dead(16),)], 40) == ()
    (told,) = joined_findings(shards, [(dead(20),), (dead(16),)], 40)
    assert (told.step, told.message, "ranks" in told.evidence) == (20, "All are 0.", False)
    assert joined_findings(shards, [(dead(20),), (dead(16),)], 18) == ()


# --- packed, by the commands


def test_a_packed_run_opens_in_place(tmp_path: Path, two: Path) -> None:
    packed = pack(two, tmp_path / "run.session.zip")
    with Session.open(two) as folder, Session.open(packed) as session:
        assert session.id == folder.id
        assert len(session.ranks) == 2
        np.testing.assert_array_equal(session.metric("grad_norm"), folder.metric("grad_norm"))
        np.testing.assert_array_equal(session.tensor("w", 3, "cube"), made.values(3, "w")["cube"])
        assert session.verify() == []


def test_every_command_takes_it_as_one(tmp_path: Path, two: Path, call: Any) -> None:
    path = two
    code, out, _ = call("info", path, "--json", "--check")
    document = json.loads(out)
    assert code == 0
    assert document["problems"] == []
    assert document["elements"] == sum(p.numel for p in made.PARAMS)
    assert [each["last"] for each in document["ranks"]] == [6, 6]
    code, out, _ = call("info", path)
    assert "2 ranks, joined" in out
    code, out, _ = call("diagnose", path, "--json")
    assert code == 1
    (found,) = (
        f for f in json.loads(out)["findings"] if f["rule"] == "nonfinite-gradient" and f["step"] == 3
    )
    assert (found["param"], found["index"]) == ("cube", 33)
    assert call("export", path, "--format", "csv", "--out", tmp_path / "run.csv")[0] == 0
    header, first, *_ = (tmp_path / "run.csv").read_text().splitlines()
    assert header.split(",")[-6:] == [
        f"{kind}/rank {n}" for kind in ("loss", "grad_norm", "seconds") for n in (0, 1)
    ]
    assert [float(each) for each in first.split(",")[-6:-4]] == pytest.approx([2.99, 3.09])
    assert (
        call("export", path, "--format", "safetensors", "--out", tmp_path / "at.safetensors", "--step", 2)[0]
        == 0
    )
    with safe_open(tmp_path / "at.safetensors", "np") as file:
        np.testing.assert_array_equal(file.get_tensor("w/cube"), made.values(2, "w")["cube"])
    assert call("report", path, "--out", tmp_path / "run.html")[0] == 0
    code, out, _ = call("diff", path, path, "--json")
    assert (code, json.loads(out)["first_difference"]) == (0, None)
    code, _, err = call("run", "charlm", "--steps", 9, "--save", path, "--resume")
    assert code == 2
    assert "is of 2 processes" in err
    code, _, err = call("run", "charlm", "--steps", 1, "--save", path / "x.session")
    assert (code, "lies inside the session" in err) == (2, True)


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_run_in_parts_is_replayed_bit_for_bit(tmp_path: Path, call: Any, ranks: int) -> None:
    whole = tmp_path / "whole.session"
    assert call("run", "synthetic:5000", "--steps", 3, "--save", whole, "--capture", "all")[0] == 0
    with Session.open(whole) as session:
        path = made.split(session, tmp_path / "parts.session", ranks)
    code, out, _ = call("replay", path, "--verify", "--json")
    document = json.loads(out)
    assert (code, document["bit_exact"], document["max_ulp"]) == (0, True, 0)
    code, out, _ = call("diff", whole, path, "--json")
    assert json.loads(out)["first_difference"] is None
    assert call("replay", path, "--beta2", 0.9, "--json")[0] == 0
    name = json.loads(call("layout", path, "--json")[1])["params"][0]["name"]
    code, out, _ = call("explain", path, "--param", name, "--index", 0, "--step", 2, "--json")
    assert code == 0


def test_where_processes_part_it_is_said_beside_what_is_not_as_their_settings_say(
    tmp_path: Path, call: Any
) -> None:
    """The weights are those of a rate of 0.003 in all steps, which rank 0 says of step 3 no more."""
    whole = tmp_path / "whole.session"
    foreign_runs.write(whole, 4)

    def said(rank: int, step: RecordedStep) -> RecordedStep:
        other = rank == 0 and step.step == 3
        return replace(step, hyper=replace(step.hyper, lr=0.006)) if other else step

    with Session.open(whole) as session:
        alike = made.split(session, tmp_path / "alike.session", 2)
        path = made.split(session, tmp_path / "parts.session", 2, said)
    code, out, _ = call("replay", alike, "--verify", "--json")
    assert (code, json.loads(out)["parted"]) == (0, [])
    code, out, _ = call("replay", path, "--verify", "--json")
    assert code == 1
    (part,) = json.loads(out)["parted"]
    assert (part["step"], part["rank"], part["what"], part["value"], part["others"]) == (
        3,
        1,
        "lr",
        0.003,
        0.006,
    )
    said_words = " ".join(call("replay", path, "--verify")[1].split())
    assert (
        "Its processes part, first in step 3, where lr is 0.003 in rank 1 and 0.006 in others" in said_words
    )
