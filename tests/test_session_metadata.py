"""What a session says of itself: where its params lay, what it was made of; and a session of the first format."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recordings
import replays

from inspector.codecs import decode
from inspector.errors import UsageError
from inspector.gpu.device import Gpu
from inspector.layout import Param, Placement, make_layout
from inspector.plan import Limits, Variant, layout_for, required_placement
from inspector.session.archive import pack
from inspector.session.database import FORMAT
from inspector.session.plans import recorded_plan
from inspector.session.reader import Session
from inspector.session.recorder import Recorder
from inspector.session.records import RecordedLayout

Call = Any
FORMAT_1 = Path(__file__).parent / "formats" / "format-1.session.zip"
"""Three steps of `replays.PARAMS`, recorded by the version that wrote format 1: f32, then 8-bit state (dynamic)."""


def document(result: tuple[int, str, str], code: int = 0) -> Any:
    got, out, err = result
    assert got == code, err
    return json.loads(out)


# --- the layout


@pytest.mark.parametrize("align_bytes", [256, 4096])
@pytest.mark.parametrize("max_buffer", [1 << 28, 1 << 16])
@pytest.mark.parametrize(
    "form", [Variant(), Variant(kernel="8bit"), Variant(kernel="8bit", small_state="8bit")]
)
def test_a_layout_comes_back_from_what_is_recorded_of_it(
    align_bytes: int, max_buffer: int, form: Variant
) -> None:
    limits = Limits(max_buffer_size=max_buffer)
    given = (*replays.PARAMS, Param("big", (200, 200)), Param("none", (0,)))
    # In the order of another layout, as a run has them whose form changed.
    params = layout_for(given, limits, Variant(kernel="8bit")).params
    layout = layout_for(params, limits, form, align_bytes)
    laid = RecordedLayout.of(layout, limits, given)
    assert (len(layout.pages) > 1) == (max_buffer == 1 << 16)
    assert laid.layout(given) == layout
    assert [laid.offsets[given.index(s.param)] for s in layout] == [s.offset for s in layout]


def test_a_layout_that_cannot_be_is_refused(tmp_path: Path) -> None:
    params = recordings.PARAMS
    sound = RecordedLayout.of(make_layout(params), Limits(), params)
    for broken in (
        replace(sound, offsets=sound.offsets[:-1]),
        replace(sound, offsets=(*sound.offsets[:-1], sound.offsets[-1] + 64)),
        replace(sound, page_elements=-4),
        replace(sound, placement=Placement(0)),
        replace(sound, placement=Placement(3)),
        replace(sound, placement=replace(sound.placement, coded_align=0)),
        replace(sound, placement=Placement(1 << 40)),
    ):
        path = tmp_path / "run.session"
        with Recorder.create(path, recordings.about(layout=broken)) as recorder:
            recordings.record_on(recorder, 2)
        with Session.open(path) as session:
            assert session.step(2).step == 2
            with pytest.raises(UsageError, match=r"run\.session"):
                session.layout()
        shutil.rmtree(path)


def test_a_layout_that_changes_holds_from_its_step_on(tmp_path: Path) -> None:
    path, params = tmp_path / "run.session", recordings.PARAMS
    first, wide = (
        RecordedLayout.of(make_layout(params, align_bytes=align), Limits(), params) for align in (256, 1024)
    )
    with Recorder.create(path, recordings.about(layout=first)) as recorder:
        for step in range(1, 7):
            recorder.offer(recordings.recorded(step, layout=wide if step in (3, 4) else first))
    with Recorder.resume(path) as recorder:
        recorder.offer(recordings.recorded(7, layout=wide))
        recorder.offer(recordings.recorded(8))
    with Session.open(path) as session:
        assert [session.step(t).layout for t in session.steps] == [
            first, first, wide, wide, first, first, wide, first,
        ]  # fmt: skip
        assert session.layout(4) == make_layout(params, align_bytes=1024)
        assert session.forms() == ((1, Variant()),)
        assert session.layout() == make_layout(params)
        assert session.verify() == []


def test_info_says_where_the_params_lie(tmp_path: Path, call: Call) -> None:
    path, params = tmp_path / "run.session", (Param("w", (100, 64)), Param("b", (7,)), Param("s", (3, 3)))
    form = Variant(kernel="8bit")
    laid = RecordedLayout.of(layout_for(params, Limits(), form), Limits(), params)
    with Recorder.create(path, recordings.about(params=params, variant=form, layout=laid)):
        pass
    got = document(call("info", path, "--json"))["layout"]
    # By hand: w has 6,400 elements and is coded; what is aligned to 256 bytes comes after 6,400 in a block of 256.
    assert got["params"] == [
        {"name": "w", "offset": 0, "numel": 6400, "block": "wd", "state": "8bit"},
        {"name": "s", "offset": 6400, "numel": 9, "block": "wd", "state": "f32"},
        {"name": "b", "offset": 6656, "numel": 7, "block": "no_wd", "state": "f32"},
    ]
    assert got["align_bytes"] == 1024
    assert got["max_binding_bytes"] == 128 << 20
    assert got["pages"] == [{"start": 0, "stop": 6912}]
    assert got["blocks"] == [
        {"name": "wd", "start": 0, "stop": 6409},
        {"name": "no_wd", "start": 6656, "stop": 6663},
    ]
    code, text, _ = call("info", path)
    assert code == 0
    assert "aligned to 1,024 bytes, 6,912 elements with gaps in 1 page, wd 0 to 6,409" in text
    assert "m and v of 1 params in 8 bits" in text


@pytest.mark.gpu
def test_a_run_records_its_layout(gpu: Gpu, tmp_path: Path, call: Call) -> None:
    path = tmp_path / "run.session"
    assert call("run", "synthetic:9000", "--steps", 2, "--kernel", "8bit", "--save", path)[0] == 0
    layout = document(call("layout", "synthetic:9000", "--kernel", "8bit", "--json"))
    with Session.open(path) as session:
        mine = session.layout(2)
        assert mine is not None
        assert mine.placement == required_placement(Variant(kernel="8bit"))
        laid = session.about.layout
        assert laid is not None
        assert laid.limits == gpu.limits
    got = document(call("info", path, "--json"))["layout"]["params"]
    assert [(p["name"], p["offset"] * 4) for p in got] == [(p["name"], p["offset"]) for p in layout["params"]]


@pytest.mark.gpu
def test_a_replay_lays_params_out_as_recorded(gpu: Gpu, tmp_path: Path, call: Call) -> None:
    """Wider gaps put other elements into one partial sum of the norm, so that its last bits change."""
    wide, guessed = tmp_path / "wide.session", tmp_path / "guessed.session"
    for path, laid_out in ((wide, True), (guessed, False)):
        replays.record(gpu, path, 4, "grads:1+keyframes:2", laid_out=laid_out, align_bytes=4096)
    assert document(call("replay", wide, "--verify", "--json"))["bit_exact"]
    assert not document(call("replay", guessed, "--verify", "--json"), 1)["bit_exact"]
    # The dispatches that are told are those that ran, in the places that they had.
    with Session.open(wide) as session:
        plan = recorded_plan(session, session.step(1))
        assert plan.layout == layout_for(replays.PARAMS, gpu.limits, Variant(), 4096)
        assert plan.limits == gpu.limits


# --- the parent


@pytest.mark.gpu
def test_a_replay_remembers_what_it_was_made_of(gpu: Gpu, tmp_path: Path, call: Call) -> None:
    path, child = tmp_path / "run.session", tmp_path / "tried" / "b.session"
    child.parent.mkdir()
    replays.record(gpu, path, 4, "grads:1+keyframes:2")
    words = ("--beta2", 0.9, "--kernel", "8bit", "--from", 2, "--save", child)
    document(call("replay", path, *words, "--json"))
    with Session.open(path) as session, Session.open(child) as saved:
        assert session.id != saved.id
        assert saved.about.layout is not None
        assert saved.about.layout.placement == required_placement(Variant(kernel="8bit"))
        mine = session.id
    assert document(call("info", child, "--json"))["parent"] == {
        "path": "../run.session",
        "id": mine,
        "steps": {"first": 2, "last": 4},
        "changes": {"beta2": "0.9", "kernel": "8bit"},
    }
    assert document(call("info", path, "--json"))["parent"] is None
    assert "steps 2 to 4 of ../run.session again, beta2 0.9, kernel 8bit" in call("info", child)[1]
    with Session.open(child) as saved:
        assert saved.parent_path() is not None
        assert saved.parent_path().samefile(path)  # type: ignore[union-attr]
        # Packed it is the same recording; another one in its place is not.
        pack(path)
        shutil.rmtree(path)
        assert saved.parent_path().samefile(tmp_path / "run.session.zip")  # type: ignore[union-attr]
        (tmp_path / "run.session.zip").unlink()
        recordings.record(path, 2)
        assert saved.parent_path() is None


# --- codes


def test_codes_are_given_as_they_were_kept(tmp_path: Path) -> None:
    path, name = tmp_path / "run.session", recordings.NAMES[0]
    with Recorder.create(path, recordings.about("all")) as recorder:
        recorder.offer_start(recordings.state(0))
        state = recordings.state(1, coded=True)
        recorder.offer(recordings.recorded(1), gradients=recordings.values(1, "g"), keyframe=state)
    with Session.open(path) as session:
        codes = session.codes(1, name)
        assert codes.codec == "dynamic"
        for which in ("m", "v"):
            got, was = getattr(codes, which), getattr(state.coded[name], which)
            assert got.codes.tobytes() == was.codes.tobytes()
            assert got.codes.dtype == was.codes.dtype
            assert got.scales.tobytes() == was.scales.tobytes()
            assert not got.codes.flags.writeable
            values = decode("dynamic", which, got.codes, got.scales)[:320]
            assert np.array_equal(values.reshape(8, 40), session.tensor(which, 1, name))
        with pytest.raises(
            UsageError, match=r"holds no codes of 'h\.0\.norm': its m and v are float32 there"
        ):
            session.codes(1, "h.0.norm")
        with pytest.raises(UsageError, match="holds no state after step 2"):
            session.codes(2, name)
        with pytest.raises(UsageError, match="has no param 'x'"):
            session.codes(1, "x")


# --- the first format


def test_a_session_of_format_1_opens(tmp_path: Path, call: Call) -> None:
    got = document(call("info", FORMAT_1, "--check", "--json"))
    assert got["format"] == 1
    assert got["problems"] == []
    assert (got["layout"], got["parent"], got["id"]) == (None, None, "")
    with Session.open(FORMAT_1) as session:
        assert [session.step(t).variant.kernel for t in session.steps] == ["f32", "8bit", "8bit"]
        assert session.layout() is session.layout(2) is None
        # As it printed them when it was recorded.
        assert session.metric("grad_norm").tolist() == [
            3.0752930641174316,
            3.075383186340332,
            3.0677013397216797,
        ]
        given = replays.gradients(2)
        assert all(np.array_equal(v, given[n]) for n, v in session.gradients(2).items())
        assert session.codes(3, "h.0.attn.weight").codec == "dynamic"


def test_a_session_of_format_1_goes_on_in_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "old.session"
    shutil.unpack_archive(FORMAT_1, path)
    with Recorder.resume(path) as recorder:
        layout = RecordedLayout.of(make_layout(replays.PARAMS), Limits(), replays.PARAMS)
        recorder.offer(recordings.recorded(4, kernels=(), layout=layout))
    with Session.open(path) as session:
        assert session.info()["format"] == FORMAT
        assert [session.step(t).variant.kernel for t in session.steps] == ["f32", "8bit", "8bit", "f32"]
        assert [session.step(t).layout for t in session.steps] == [None, None, None, layout]
        assert session.verify() == []


@pytest.mark.gpu
def test_a_session_of_format_1_replays_as_recorded(gpu: Gpu, call: Call) -> None:
    code, out, err = call("replay", FORMAT_1, "--verify", "--json")
    report = json.loads(out)
    if gpu.info.name == report["recorded_device"]["name"]:
        assert (code, report["bit_exact"]) == (0, True), err
    assert report["compared"] == {"steps": 3, "statistics": 3, "keyframes": 1}
