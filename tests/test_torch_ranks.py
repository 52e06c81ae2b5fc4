"""Runs in several processes over gloo: who records what, and a process whose weights part from the others."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inspector.integrations.torch_files import load_pickled
from inspector.param_statistics import LaneColumns, UpdateColumns
from inspector.runtime.diagnosing import diagnose_session
from inspector.session.reader import Session
from inspector.sources.open import open_source

torch = pytest.importorskip("torch")

import torch_runs as runs  # noqa: E402

pytestmark = [
    pytest.mark.skipif(not torch.distributed.is_available(), reason="needs torch.distributed"),
    pytest.mark.skipif(sys.platform == "win32", reason="gloo over a file"),
]
SCRIPT = Path(__file__).with_name("torch_ranks.py")


def run(kind: str, tmp_path: Path, world: int = 2) -> Path:
    codes, said = said_by(kind, tmp_path, world)
    assert codes == [0] * world, said
    return tmp_path / "run.session"


def said_by(kind: str, tmp_path: Path, world: int = 2) -> tuple[list[int], list[str]]:
    """The exit codes of all processes, and what each said."""
    path = tmp_path / "run.session"
    words = [str(world), str(tmp_path / "store"), str(path)]
    processes = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), kind, str(rank), *words],
            env=runs.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(world)
    ]  # fmt: skip
    try:
        said = [process.communicate(timeout=110)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    return [process.returncode for process in processes], said


@pytest.mark.parametrize("kind", ["ddp", "alone"])
def test_the_first_process_records_what_all_of_them_do_alike(kind: str, tmp_path: Path) -> None:
    """Also where it alone calls record(): the others are not waited for."""
    path = run(kind, tmp_path)
    with Session.open(path) as session:
        assert session.steps == range(1, 11)
        assert (session.about.rank, session.about.world_size) == (0, 2)
        assert session.about.shards == ()
        assert "embed.weight" in {param.name for param in session.about.params}
        assert "parted-rank" not in {finding.rule for finding in session.findings()}
    assert {each.name for each in tmp_path.iterdir()} <= {"run.session", "store"}


def test_a_process_whose_weights_part_is_named(tmp_path: Path) -> None:
    path = run("parts", tmp_path)
    with Session.open(path) as session:
        (finding,) = [finding for finding in session.findings() if finding.rule == "parted-rank"]
        assert finding.severity == "error"
        assert finding.evidence["rank"] == 1
        assert finding.param == "embed.weight"
        assert "After step 4 the weights of rank 1" in finding.message
        # Also once the present rules have looked at every step.
        again = diagnose_session(session, 1, 10)
        assert [each.step for each in again if each.rule == "parted-rank"] == [finding.step]


def test_steps_are_held_against_the_same_steps_where_a_run_begins_in_its_middle(tmp_path: Path) -> None:
    """A process that does not record knows nothing of the steps before: those it tells of are counted from there."""
    for kind, parted in (("late", []), ("late-parts", [9])):
        (tmp_path / kind).mkdir()
        with Session.open(run(kind, tmp_path / kind)) as session:
            assert session.steps == range(6, 16)
            told = [f.step for f in session.findings() if f.rule == "parted-rank"]
            assert told == parted, kind


def test_each_process_records_the_part_that_it_keeps(tmp_path: Path) -> None:
    """Laid together the parts are the weights of the same run in one process."""
    path = run("fsdp", tmp_path)
    told = json.loads((path / "ranks.json").read_text())
    assert told == {"world_size": 2, "ranks": ["rank-0000.session", "rank-0001.session"]}
    parts = [Session.open(path / name) for name in told["ranks"]]
    first = parts[0].about
    names = [param.name for param in first.params]
    torch.manual_seed(0)
    model = runs.Net()
    model.scale = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.AdamW(runs.split(model), lr=3e-3)
    for step in range(1, 11):
        optimizer.zero_grad()
        for rank in range(2):
            (runs.loss_of(model, step * 2 + rank) / 2).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    whole = dict(model.named_parameters())
    for rank, session in enumerate(parts):
        assert (session.about.rank, session.about.world_size, session.steps) == (rank, 2, range(1, 11))
        np.testing.assert_array_equal(session.metric("grad_norm"), parts[0].metric("grad_norm"))
    for number, name in enumerate(names):
        expected = whole[name].detach().numpy()
        together = np.full(expected.shape, np.nan)
        for session in parts:
            shard = session.about.shards[number]
            assert shard is not None
            assert shard.global_shape == expected.shape
            shape = session.about.params[number].shape
            if not np.prod(shape):
                continue
            place = tuple(slice(at, at + size) for at, size in zip(shard.offset, shape, strict=True))
            together[place] = np.asarray(session.tensor("w", step=10, param=name)).reshape(shape)
        np.testing.assert_allclose(together, expected, rtol=2e-5, atol=2e-7)
    for session in parts:
        session.close()


def test_the_parts_open_as_the_run_of_one_process(tmp_path: Path, call: Any) -> None:
    """All ranks see one batch, so that every gradient, and with it w, m and v, has the bits of a run in one process."""
    path = run("same", tmp_path)
    (tmp_path / "one").mkdir()
    alone = run("one", tmp_path / "one", world=1)
    with Session.open(path) as session, Session.open(alone) as single:
        assert session.about.params == single.about.params
        assert session.steps == single.steps == range(1, 11)
        assert len({rank.about.run for rank in session.ranks}) == 1
        assert session.ranks[0].about.run
        np.testing.assert_allclose(session.metric("loss"), single.metric("loss"), rtol=1e-6)
        np.testing.assert_allclose(session.metric("grad_norm"), single.metric("grad_norm"), rtol=1e-6)
        for step in session.steps:
            assert session.parted(step) == ()
            assert session.step(step).hyper == single.step(step).hyper
            for param in session.about.params:
                for lane in "wgmv":
                    mine, theirs = (s.tensor(lane, step, param.name) for s in (session, single))
                    np.testing.assert_array_equal(mine, theirs)
            table, expected = session.param_statistics(step), single.param_statistics(step)
            assert table is not None
            assert expected is not None
            assert table.names == expected.names
            for lane, columns in (*table.lanes.items(), ("", table.update)):
                other = expected.lanes[lane] if lane else expected.update
                for field in fields(LaneColumns if lane else UpdateColumns):
                    np.testing.assert_allclose(
                        getattr(columns, field.name),
                        getattr(other, field.name),
                        rtol=1e-12,
                        err_msg=field.name,
                    )
    replayed = [json.loads(call("replay", str(each), "--verify", "--json")[1]) for each in (path, alone)]
    assert replayed[0]["max_ulp"] == replayed[1]["max_ulp"]
    assert replayed[0]["steps"] == replayed[1]["steps"]
    _, out, _ = call("diff", str(path), str(alone), "--json")
    found = json.loads(out)
    # Norms are added up in parts.
    assert found["first_difference"]["buffer"] in ("gradNorm", "statistics")


@pytest.mark.timeout(300)
def test_a_run_that_is_resumed_is_appended_to_by_each_rank(tmp_path: Path) -> None:
    """Stopped after step 8 and gone on with from the checkpoint of step 6: the weights of one run of 12 steps."""
    path = run("until", tmp_path)
    (tmp_path / "store").unlink()
    assert run("from", tmp_path) == path
    torch.manual_seed(0)
    model = runs.Net()
    model.scale = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.AdamW(runs.split(model), lr=3e-3)
    with Session.open(path) as session:
        assert session.steps == range(1, 13)
        assert session.state == "complete"
        assert len({rank.about.run for rank in session.ranks}) == 1
        marks = [(note.step, note.text) for note in session.notes("mark")]
        assert (7, "gone on after step 6: steps 7 to 8, which had run before, were dropped") in marks
        # The checkpoint, a part by each rank, is the state after step 6.
        held = open_source(str(path.with_suffix(".checkpoint")), load_pickled=load_pickled)
        state, kept = held.initial_state(), session.keyframe(6)
        assert held.finished_steps == 6
        # The tied weights are in it under both names.
        names = {param.name for param in session.about.params}
        assert {param.name for param in held.params} == {*names, "head.weight"}
        for lane in ("w", "m", "v"):
            for name in names:
                values = getattr(state, lane)[name]
                np.testing.assert_array_equal(
                    np.asarray(values).reshape(-1),
                    np.asarray(getattr(kept, lane)[name]).reshape(-1),
                    f"{lane} {name}",
                )
        for step in session.steps:
            runs.train(model, optimizer, [step], clip=None)
            assert session.parted(step) == ()
            for name, param in model.named_parameters():
                kept = np.asarray(session.tensor("w", step=step, param=name))
                np.testing.assert_allclose(
                    kept, param.detach().numpy(), rtol=2e-5, atol=2e-7, err_msg=f"{name}, step {step}"
                )


@pytest.mark.timeout(300)
def test_a_rank_whose_session_is_gone_does_not_go_on_with_the_run(tmp_path: Path) -> None:
    path = run("until", tmp_path)
    (tmp_path / "store").unlink()
    shutil.rmtree(path / "rank-0001.session")
    codes, said = said_by("from", tmp_path)
    assert codes[1] == 1
    words = "holds a session of rank 0 from a run before, and none of rank 1: bring rank-0001.session back"
    assert words in said[1]


def test_joined_ranks_are_gone_on_with_by_their_own_program_alone(tmp_path: Path, call: Any) -> None:
    path = run("same", tmp_path)
    code, out, err = call("run", "charlm", "--steps", 1, "--save", path, "--resume")
    assert (code, out) == (2, "")
    assert "is of 2 processes" in err
    assert "gone on with by the program that recorded it" in err
    # Under other settings it runs again as any recording does, into a session of its own.
    code, _, err = call("replay", path, "--lr", 0.1, "--to", 2, "--save", tmp_path / "other.session")
    assert code in (0, 1), err
    with Session.open(tmp_path / "other.session") as session:
        assert session.steps == range(1, 3)
        assert not session.ranks


def test_a_param_that_is_left_alone_parts(tmp_path: Path) -> None:
    """FSDP averages no gradient of a param that it does not shard: its copies go ways of their own."""
    with Session.open(run("loose", tmp_path)) as session:
        (found,) = [f for f in diagnose_session(session, 1, 10) if f.rule == "parted-rank"]
        assert (found.step, found.param, found.evidence["rank"]) == (1, "scale", 1)
        assert "the norm of the gradient of scale" in found.message
        norm = session.metric("grad_norm")
        assert session.known("grad_norm").all()
        parts = [rank.metric("grad_norm") for rank in session.ranks]
        # The copy of rank 0 counts, that of rank 1 does not.
        copy = np.abs([float(session.ranks[1].tensor("g", step, "scale")[0]) for step in session.steps])
        np.testing.assert_allclose(norm**2, parts[0] ** 2 + parts[1] ** 2 - copy**2, rtol=1e-5)
