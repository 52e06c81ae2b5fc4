"""Checksums by parts: those of zlib, and damage that costs no more than the tensors it lies in."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recordings import about

from inspector import Session
from inspector.errors import UsageError
from inspector.layout import Param
from inspector.session import checksums
from inspector.session.checksums import PART_BYTES, part_checksums, whole_checksum
from inspector.session.recorder import Recorder
from inspector.stepping import HostState


@given(st.lists(st.binary(max_size=40), max_size=12), st.integers(1, 16))
@settings(max_examples=200)
def test_parts_and_the_whole_have_the_checksum_zlib_gives(pieces: list[bytes], each: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checksums, "PART_BYTES", each)
        data = b"".join(pieces)
        found = part_checksums(memoryview(piece) for piece in pieces)
        cut = [data[at : at + each] for at in range(0, len(data), each)] or [b""]
        assert found == tuple(map(zlib.crc32, cut))
        assert whole_checksum(found, len(data)) == zlib.crc32(data)


def test_a_file_of_many_parts() -> None:
    data = np.random.default_rng(1).bytes(3 * PART_BYTES + 5)
    found = part_checksums([memoryview(data)])
    assert len(found) == 4
    assert whole_checksum(found, len(data)) == zlib.crc32(data)


PARAMS = tuple(Param(f"p{i}", (1 << 20,)) for i in range(4))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "large.session"
    rng = np.random.default_rng(3)
    w = {p.name: rng.standard_normal(p.numel).astype(np.float32) for p in PARAMS}
    with Recorder.create(path, about("keyframes:5", params=PARAMS)) as recorder:
        recorder.offer_start(HostState(w, {}, {}, 0))
    return path


def _flip(path: Path, at: int) -> None:
    (file,) = (path / "tensors" / "0000").iterdir()
    raw = bytearray(file.read_bytes())
    raw[at] ^= 4
    file.write_bytes(raw)


def test_damage_in_one_tensor_leaves_those_in_other_parts(path: Path) -> None:
    with Session.open(path) as session:
        (file,) = session.files()
        whole = session.tensor("w", 0, "p0").copy()
        assert len(file.parts) == 5
    _flip(path, file.size - 100)
    with Session.open(path) as session:
        np.testing.assert_array_equal(session.tensor("w", 0, "p0"), whole)
        np.testing.assert_array_equal(session.window("w", 0, "p0", 7, 9), whole[7:9])
        with pytest.raises(UsageError, match="does not match its checksum"):
            session.window("w", 0, "p3", (1 << 20) - 50, 1 << 20)
        with pytest.raises(UsageError, match="does not match its checksum"):
            session.tensor("w", 0, "p3")
        with pytest.raises(UsageError, match="does not match its checksum"):
            session.keyframe(0)
        assert len(session.verify()) == 1


def test_a_damaged_header_is_believed_nothing(path: Path) -> None:
    _flip(path, 30)
    with Session.open(path) as session, pytest.raises(UsageError, match="does not match its checksum"):
        session.window("w", 0, "p2", 0, 1)
