"""An event file holds what was recorded: read back record by record, with checksums of our own."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recordings
from tensorboardX.proto.event_pb2 import Event

from inspector.errors import UsageError
from inspector.hyper import Hyper
from inspector.param_statistics import ParamTable
from inspector.session.reader import Session
from inspector.session.recorder import Recorder
from inspector.session.tensorboard import spread, write_tensorboard

Call = Callable[..., tuple[int, str, str]]


def crc32c(data: bytes) -> int:
    """Bit by bit, as RFC 3720 has it."""
    crc = 0xFFFF_FFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F6_3B78 if crc & 1 else 0)
    return crc ^ 0xFFFF_FFFF


def masked(data: bytes) -> int:
    """As the TFRecord format masks it."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282_EAD8) & 0xFFFF_FFFF


def events(folder: Path, *, checksums: bool = True) -> list[Any]:
    (path,) = folder.iterdir()
    assert ".tfevents." in path.name  # What TensorBoard looks for.
    raw, found, at = path.read_bytes(), [], 0
    while at < len(raw):
        (size,) = struct.unpack_from("<Q", raw, at)
        data = raw[at + 12 : at + 12 + size]
        assert len(data) == size
        if checksums:
            assert struct.unpack_from("<I", raw, at + 8)[0] == masked(raw[at : at + 8])
            assert struct.unpack_from("<I", raw, at + 12 + size)[0] == masked(data)
        found.append(Event.FromString(data))
        at += 16 + size
    return found


def scalars(found: list[Any]) -> dict[str, dict[int, float]]:
    tags: dict[str, dict[int, float]] = {}
    for event in found:
        for value in event.summary.value:
            if value.HasField("simple_value"):
                steps = tags.setdefault(value.tag, {})
                assert event.step not in steps
                steps[event.step] = value.simple_value
    return tags


def histograms(found: list[Any]) -> dict[str, dict[int, Any]]:
    tags: dict[str, dict[int, Any]] = {}
    for event in found:
        for value in event.summary.value:
            if value.HasField("histo"):
                tags.setdefault(value.tag, {})[event.step] = value
    return tags


@pytest.fixture
def session_of(tmp_path: Path) -> Path:
    """Six steps after step 10: a loss that is NaN, one that is not known, an infinite norm, a β₂ that changes."""
    path = tmp_path / "run.session"
    changes: dict[int, dict[str, Any]] = {
        12: {"loss": math.nan},
        13: {"loss": None, "grad_norm": math.inf, "clip_scale": 0.0},
        14: {"hyper": Hyper(beta2=0.5)},
    }
    with Recorder.create(path, recordings.about(finished_steps=10)) as recorder:
        for step in range(11, 17):
            table = recordings.table(step) if step != 15 else None
            recorder.offer(recordings.recorded(step, **changes.get(step, {})), statistics=table)
    return path


def test_scalars_are_as_recorded(session_of: Path, tmp_path: Path, call: Call) -> None:
    out = tmp_path / "board"
    code, text, err = call("export", session_of, "--format", "tensorboard", "--out", out, "--json")
    assert code == 0, err
    report = json.loads(text)
    assert (report["steps"], report["param_steps"], report["histogram_steps"]) == (6, 5, 5)
    assert report["bytes"] == (out / report["file"]).stat().st_size
    found = events(out)
    assert found[0].file_version == "brain.Event:2"
    assert found[0].wall_time == 1.75e9
    assert all(e.wall_time == 1.75e9 + e.step for e in found[1:])
    assert [e.step for e in found[1:]] == sorted(e.step for e in found[1:])
    tags = scalars(found)
    assert list(tags["loss"]) == [11, 12, 14, 15, 16]  # What is not known is left out.
    assert math.isnan(tags["loss"][12])
    assert tags["loss"][16] == np.float32(4.5 - 0.016)
    assert tags["grad_norm"][13] == math.inf
    assert tags["clip_scale"][13] == 0.0
    assert tags["lr"][16] == np.float32(1e-3 / 16)
    assert tags["nonfinite"] == {step: float(step % 3) for step in range(11, 17)}
    assert tags["beta2"][14] == 0.5
    assert "beta1" not in tags  # It never changes.
    assert tags["kernel_ms/reduce_norm_sq"] == dict.fromkeys(range(11, 17), 0.25)
    # Cold where step % 4 == 1, and then in a curve of its own; the last kernel has no times.
    assert tags["kernel_ms/adamw_update wd"] == {s: s + 0.5 for s in (11, 12, 14, 15, 16)}
    assert tags["kernel_ms_cold/adamw_update wd"] == {13: 13.5}
    assert not any(tag.endswith("no-wd") for tag in tags)


def test_params_have_their_norms_and_histograms(session_of: Path, tmp_path: Path) -> None:
    with Session.open(session_of) as session:
        write_tensorboard(session, tmp_path / "board")
    found = events(tmp_path / "board")
    tags, histos = scalars(found), histograms(found)
    name = "h.0.attn.weight"
    for step in (11, 14, 16):
        lanes = {lane: recordings.values(step, lane)[name].astype(np.float64) for lane in "wgmv"}
        lanes["v"] = np.abs(lanes["v"])
        for lane, values in lanes.items():
            norm = math.sqrt(math.fsum(float(x) ** 2 for x in values))
            assert tags[f"norm_{lane}/{name}"][step] == pytest.approx(norm, rel=1e-6)
            value = histos[f"log2_{lane}/{name}"][step]
            limits, counts = list(value.histo.bucket_limit), list(value.histo.bucket)
            # By hand: elements between two powers of two, the sign left out.
            powers = np.floor(np.log2(np.abs(values[values != 0])))
            assert counts[0] == 0
            assert [b - a for a, b in pairwise(limits)] == [1.0] * (len(limits) - 1)
            for limit, count in zip(limits[1:], counts[1:], strict=True):
                assert count == (powers == limit - 1).sum()
            assert value.histo.num == sum(counts) == (values != 0).sum()
            assert (value.histo.min, value.histo.max) == (powers.min(), powers.max() + 1)
            assert value.histo.sum == pytest.approx((powers + 0.5).sum())
            assert value.histo.sum_squares == pytest.approx(((powers + 0.5) ** 2).sum())
        assert tags[f"update_ratio/{name}"][step] == pytest.approx(
            tags[f"norm_update/{name}"][step] / tags[f"norm_w/{name}"][step], rel=1e-6
        )
    # The step without statistics has none; an empty param has neither histogram nor ratio.
    assert list(tags[f"norm_w/{name}"]) == [11, 12, 13, 14, 16]
    assert "log2_w/empty" not in histos
    assert "update_ratio/empty" not in tags


def test_what_is_spread_ends_with_the_last_step() -> None:
    assert spread(range(1, 11), 100) == set(range(1, 11))
    assert spread(range(1, 11), 5) == {2, 4, 6, 8, 10}
    assert spread(range(1, 11), 4) == {1, 4, 7, 10}
    assert spread(range(1, 11), 1) == {10}
    assert spread(range(0), 3) == set()
    for count in range(1, 60):
        assert 1 <= len(spread(range(5, 55), count)) <= count


def test_params_of_a_long_session_are_written_at_some_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inspector.session.tensorboard.MAX_PARAM_STEPS", 10)
    monkeypatch.setattr("inspector.session.tensorboard.MAX_HISTOGRAMS", 5 * 4 * len(recordings.PARAMS))
    path = tmp_path / "run.session"
    recordings.record(path, 95)
    read: list[int] = []

    def counting(session: Session, step: int) -> ParamTable | None:
        read.append(step)
        return session._contents.table(step)

    monkeypatch.setattr(Session, "param_statistics", counting)
    with Session.open(path) as session:
        written = write_tensorboard(session, tmp_path / "board")
    found = events(tmp_path / "board", checksums=False)
    assert (written.steps, written.param_steps, written.histogram_steps) == (95, 10, 5)
    tags = scalars(found)
    assert len(tags["loss"]) == 95
    assert list(tags["norm_w/scalar"]) == list(range(5, 96, 10))
    assert list(histograms(found)["log2_w/scalar"]) == list(range(19, 96, 19))
    # Nothing is read that is not written.
    assert len(read) == 14


def test_a_folder_that_is_taken_is_refused(session_of: Path, tmp_path: Path, call: Call) -> None:
    file, full, empty = tmp_path / "file", tmp_path / "full", tmp_path / "empty"
    file.write_text("kept")
    for folder in (full, empty):
        folder.mkdir()
    (full / "x").write_text("kept")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere")
    for out, sentence in (
        (file, "is a file, where a new folder is to be made: name another."),
        (link, "is a file, where a new folder is to be made: name another."),
        (full, "is not empty: name a new folder."),
        (tmp_path / "none" / "board", "does not exist."),
        (Path("/"), "names no folder."),
    ):
        code, text, err = call("export", session_of, "--format", "tensorboard", "--out", out)
        assert (code, text) == (2, "")
        assert sentence in err
        assert err.count("\n") == 1
    assert file.read_text() == (full / "x").read_text() == "kept"
    code, text, _ = call("export", session_of, "--format", "tensorboard", "--out", empty)
    assert code == 0
    assert "Wrote 6 steps, params at 5 of them and histograms at 5, of" in text
    assert len(list(empty.iterdir())) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty", "file", "full", "link", "run.session"]


def test_one_that_is_stopped_leaves_nothing(session_of: Path, tmp_path: Path) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    with Session.open(session_of) as session:
        with pytest.raises(KeyboardInterrupt):
            write_tensorboard(session, tmp_path / "board", check=stop)
        with pytest.raises(UsageError, match="does not exist"):
            write_tensorboard(session, tmp_path / "no" / "board")
    assert [p.name for p in tmp_path.iterdir()] == ["run.session"]


def test_a_session_without_steps_has_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    recordings.record(path, 0)
    with Session.open(path) as session:
        assert write_tensorboard(session, tmp_path / "board").steps == 0
    (opening,) = events(tmp_path / "board")
    assert opening.file_version == "brain.Event:2"
