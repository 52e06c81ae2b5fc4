"""Settings of params in a recording: step by step, kept over a resume, refused where damaged; and params that join."""

from __future__ import annotations

import json
import math
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recordings
import replays

from inspector.errors import UsageError
from inspector.gpu.device import Gpu
from inspector.hyper import HYPER_NAMES, Hyper
from inspector.layout import Param, make_layout
from inspector.plan import Limits
from inspector.session import database
from inspector.session.database import FORMAT
from inspector.session.reader import Session
from inspector.session.recorder import Recorder
from inspector.session.records import RecordedLayout, Shard
from inspector.session.step_rows import checksum
from inspector.settings import ParamSettings, Settings
from inspector.sources.recording import Recording
from inspector.statistics import NonFinite

Call = Any
FORMAT_2 = Path(__file__).parent / "formats" / "format-2.session.zip"
"""Three steps of `replays.PARAMS`, recorded by the version that wrote format 2: f32, then 8-bit state (dynamic)."""


def settings(step: int) -> ParamSettings | None:
    """Other classes each step, another map from step 5 on, none in step 3."""
    if step == 3:
        return None
    classes = (
        Settings(1e-3 / step, 0.9, 0.999, 1e-8, 0.1),
        Settings(math.nextafter(2e-4, 1), 0.8, 0.95, 1e-6, 0.0, step // 2, step % 2 == 0),
    )
    return ParamSettings(classes, (0, 1, 1, 0) if step < 5 else (1, 0, 0))


def offered(step: int) -> Any:
    return recordings.recorded(step, hyper=Hyper(lr=1e-3 / step, per_param=settings(step)))


def test_settings_of_params_come_back_step_by_step(tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    with Recorder.create(path, recordings.about()) as recorder:
        for step in range(1, 6):
            recorder.offer(offered(step))
    with Recorder.resume(path) as recorder:
        assert recorder.last_step == 5
        for step in range(6, 9):
            recorder.offer(offered(step))
    with Session.open(path) as session:
        assert [session.step(t).hyper.per_param for t in session.steps] == [settings(t) for t in range(1, 9)]
        assert [session.step(t).kernels for t in session.steps] == [offered(t).kernels for t in range(1, 9)]
        # The columns are those of the rows without them.
        assert session.metric("lr").tolist() == [1e-3 / t for t in range(1, 9)]
        assert session.metric("ms/reduce_norm_sq").tolist() == [0.25] * 8
        # Equal maps are one object, and one row.
        assert session.step(1).hyper.per_param.of is session.step(4).hyper.per_param.of  # type: ignore[union-attr]
        assert session.verify() == []
    with sqlite3.connect(path / "session.sqlite") as connection:
        assert [json.loads(data) for (data,) in connection.execute("SELECT data FROM maps ORDER BY id")] == [
            [0, 1, 1, 0], [1, 0, 0],
        ]  # fmt: skip


def test_settings_that_do_not_fit_the_params_are_not_recorded(tmp_path: Path) -> None:
    one = (Settings(1e-3, 0.9, 0.999, 1e-8, 0.1),)
    for wrong in (
        ParamSettings(one, (0, 0, 0, 0, 0)),
        ParamSettings(one, (0, 1)),
        ParamSettings(one, (0, -1)),
    ):
        with pytest.raises(ValueError, match="param"):
            wrong.check(4)
    with pytest.raises(ValueError, match="ahead"):
        ParamSettings((replace(one[0], behind=-1),), (0,)).check(4)
    assert ParamSettings(one, (0,)).check(4).is_idle(1)


def damaged(path: Path, change: Any) -> None:
    """Change the row of step 2, and its checksum with it."""
    with sqlite3.connect(path / "session.sqlite") as connection:
        (data,) = connection.execute("SELECT data FROM steps WHERE step = 2").fetchone()
        data = change(data)
        row = (data, checksum("steps", 2, data))
        connection.execute("UPDATE steps SET data = ?, crc = ? WHERE step = 2", row)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-1],
        lambda data: data[:-4],
        lambda data: data[: -8 - 2 * 56] + data[-8:],
        lambda data: data[:-8] + (7).to_bytes(4, "little") + data[-4:],
        lambda data: data[:-4] + (0xFFFFFFFF).to_bytes(4, "little"),
        lambda data: data[:-4] + (1).to_bytes(4, "little"),
        lambda data: data[: -8 - 16] + (1 << 63).to_bytes(8, "little") + data[-16:],
    ],
)
def test_settings_that_no_recording_makes_are_refused(tmp_path: Path, change: Any) -> None:
    path = tmp_path / "run.session"
    with Recorder.create(path, recordings.about()) as recorder:
        for step in range(1, 4):
            recorder.offer(offered(step))
    damaged(path, change)
    with Session.open(path) as session:
        assert session.step(1).hyper.per_param == settings(1)
        with pytest.raises(UsageError, match=r"run\.session is damaged"):
            session.step(2)
        assert len(session.verify()) == 1


# --- what another program made


def test_what_another_program_made_is_said(tmp_path: Path, call: Call) -> None:
    path = tmp_path / "run.session"
    facts: dict[str, Any] = {
        "origin": "PyTorch 2.13.0 AdamW (foreach)", "dtypes": ("bf16", "f32", "f32", "f16"), "rank": 1,
        "world_size": 4, "shards": (Shard((8, 160), (0, 40)), None, None, None),
        "unreplayable": "amsgrad keeps a third state that no kernel here has.",
    }  # fmt: skip
    with Recorder.create(path, recordings.about(**facts)) as recorder:
        recorder.offer(recordings.recorded(1))
    with Session.open(path) as session:
        assert {name: getattr(session.about, name) for name in facts} == facts
    code, out, _ = call("info", path, "--json")
    got = json.loads(out)
    assert code == 0
    assert got["origin"] == facts["origin"]
    assert got["unreplayable"] == facts["unreplayable"]
    assert got["dtypes"] == {"bf16": 1, "f32": 2, "f16": 1}
    assert got["rank"] == {"rank": 1, "of": 4, "sharded_params": 1}
    text = call("info", path)[1]
    assert "PyTorch 2.13.0 AdamW (foreach)" in text
    assert "rank 1 of 4" in text
    assert "amsgrad keeps" in text


def test_params_join_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    more = (Param("added.weight", (3, 5), group=2), Param("added.bias", (5,), group=2))
    every = (*recordings.PARAMS, *more)
    with Recorder.create(path, recordings.about("grads:1+keyframes:2")) as recorder:
        recorder.offer_start(recordings.state(0))
        recordings.record_on(recorder, 4)
        with Session.open(path) as follower:
            recorder.flush()
            follower.follow()
            assert len(follower.about.params) == 4
            with pytest.raises(UsageError, match=r"has a param 'h\.0\.norm' already"):
                recorder.add_params(5, [recordings.PARAMS[1]], recordings.state(4, params=every))
            recorder.add_params(5, more, recordings.state(4, params=every), dtypes=("bf16", "bf16"))
            for step in range(5, 8):
                recorder.offer(
                    recordings.recorded(step),
                    gradients=recordings.values(step, "g", every),
                    keyframe=recordings.state(step, params=every) if step % 2 == 0 else None,
                )
            recorder.flush()
            assert follower.follow()
            assert follower.about.params == every
            assert np.array_equal(
                follower.tensor("g", 6, "added.bias"), recordings.values(6, "g", every)["added.bias"]
            )
    with Session.open(path) as session:
        assert session.about.params == every
        assert session.about.dtypes == ("f32",) * 4 + ("bf16",) * 2
        assert [session.about.params_in(t) for t in (1, 4, 5, 7)] == [4, 4, 6, 6]
        assert session.verify() == []
        # The state before step 5 is the one with all params.
        assert session.captures("keyframe") == (0, 2, 4, 6)
        assert np.array_equal(
            session.keyframe(4).w["added.bias"], recordings.state(4, params=every).w["added.bias"]
        )
        assert not session.keyframe(2).w["added.bias"].any()
        with pytest.raises(UsageError, match="takes part from step 5 on"):
            session.tensor("w", 2, "added.bias")
        source = Recording(path)
        assert [(s.first, s.last) for s in source.stretches] == [(1, 4), (5, 7)]
        assert source.starting_for(6).first_step == 5
        assert source.starting_for(4).first_step == 3


def test_a_state_from_before_params_joined_does_not_lead_on(tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    more = (Param("added", (3, 5)),)
    every = (*recordings.PARAMS, *more)
    with Recorder.create(path, recordings.about("grads:1")) as recorder:
        recorder.offer_start(recordings.state(0))
        recordings.record_on(recorder, 2)
        recorder.add_params(3, more, recordings.state(2, params=every))
        recorder.offer(recordings.recorded(3), gradients=recordings.values(3, "g", every))
    with Session.open(path) as session:
        assert session.captures("keyframe") == (0, 2)
    assert [(s.first, s.last) for s in Recording(path).stretches] == [(1, 2), (3, 3)]
    with Recorder.resume(path) as recorder:
        assert recorder.about.params == every
        recorder.offer(recordings.recorded(4), gradients=recordings.values(4, "g", every))
    assert [(s.first, s.last) for s in Recording(path).stretches] == [(1, 2), (3, 4)]


# --- the second format


def test_a_session_of_format_2_opens(call: Call) -> None:
    code, out, err = call("info", FORMAT_2, "--check", "--json")
    got = json.loads(out)
    assert code == 0, err
    assert got["format"] == 2
    assert got["problems"] == []
    # As it printed them when it was recorded.
    assert got["id"] == "1b7c4d6fc0cc4d649cbe95599e2052bd"
    assert got["layout"]["align_bytes"] == 256
    with Session.open(FORMAT_2) as session:
        assert session.metric("grad_norm").tolist() == [
            3.0752930641174316,
            3.075383186340332,
            3.0677013397216797,
        ]
        assert [session.step(t).variant.kernel for t in session.steps] == ["f32", "8bit", "8bit"]
        hyper = session.step(1).hyper
        assert [getattr(hyper, n) for n in HYPER_NAMES] == [0.003 / 4, 0.9, 0.95, 1e-8, 0.1, 1.0]
        assert hyper.per_param is None
        assert session.layout(3) != session.layout(1)
        assert (session.about.origin, session.about.dtypes, session.about.rank) == ("", (), None)
        assert {p.group for p in session.about.params} == {0}


def test_a_session_of_format_2_goes_on_in_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "old.session"
    shutil.unpack_archive(FORMAT_2, path)
    with Recorder.resume(path) as recorder:
        layout = RecordedLayout.of(make_layout(replays.PARAMS), Limits(), replays.PARAMS)
        own = ParamSettings((Settings(1e-3, 0.9, 0.999, 1e-8, 0.1),), (0,) * 6)
        recorder.offer(
            recordings.recorded(
                4, kernels=(), layout=layout, hyper=Hyper(per_param=own), nonfinite=NonFinite()
            )
        )
    with Session.open(path) as session:
        assert session.info()["format"] == FORMAT == 3
        assert [session.step(t).hyper.per_param for t in session.steps] == [None, None, None, own]
        assert session.verify() == []


@pytest.mark.gpu
def test_a_session_of_format_2_replays_as_recorded(gpu: Gpu, call: Call) -> None:
    code, out, err = call("replay", FORMAT_2, "--verify", "--json")
    report = json.loads(out)
    if gpu.info.name == report["recorded_device"]["name"]:
        assert (code, report["bit_exact"]) == (0, True), err
    assert report["compared"] == {"steps": 3, "statistics": 3, "keyframes": 1}


def test_every_format_can_be_made_of_the_one_before() -> None:
    assert sorted(database.MIGRATIONS) == list(range(1, FORMAT))
