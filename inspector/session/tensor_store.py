"""Captured tensors as files: several steps a file, written once with their checksum; read only where it matches.

A file is an ordinary safetensors file. Its tensors are g@T/NAME, w@T/NAME, m@T/NAME and v@T/NAME as in state files;
of 8-bit state m_codes@T/NAME, m_scales@T/NAME and so on instead, and codec@T in the metadata. State in shapes of its
own stands there by its name, as row_var@T/NAME.
"""

from __future__ import annotations

import errno
import json
import os
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from inspector.floats import F32Array
from inspector.session.checksums import part_checksums, whole_checksum
from inspector.session.records import CaptureKind, StoredFile
from inspector.stepping import HostState

FOLDER = "tensors"
FILES_A_FOLDER = 1000
NAME = re.compile(r"tensors/[0-9]{4,12}/[0-9]{7,15}-[a-z]{1,20}-[0-9]{1,19}(-[0-9]{1,19})?\.safetensors")
"""What a name in the index may be; nothing else is opened."""

MAX_TENSORS = 4096
"""Of a file with more than one capture: its header is read whole for any of them."""

_CHUNK = 8 << 20
_ASIDE_BYTES = 4 << 20
"""A file of so many bytes is checked on a thread of its own while it is written."""
DTYPES = {"float32": ("F32", "<f4"), "int8": ("I8", "i1"), "uint8": ("U8", "u1")}

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Capture:
    """The tensors of one kind of one step, flat, by what comes before and after the step in their names."""

    step: int
    kind: CaptureKind
    tensors: Mapping[tuple[str, str], Array]
    codec: str | None = None
    """Of the codes among them."""
    nbytes: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "nbytes", sum(a.nbytes for a in self.tensors.values()))

    @classmethod
    def of_gradients(cls, step: int, gradients: Mapping[str, F32Array]) -> Capture:
        """The gradients of a step by param name; one that is missing is 0."""
        return cls(step, "gradients", {("g", name): values for name, values in gradients.items()})

    @classmethod
    def of_state(cls, state: HostState) -> Capture:
        """w, m and v, and states in shapes of their own by their names.

        Of params that are coded their codes and scales, byte for byte, in place of m and v.
        """
        tensors: dict[tuple[str, str], Array] = {("w", name): values for name, values in state.w.items()}
        for lane, moments in (("m", state.m), ("v", state.v)):
            for name, values in moments.items():
                if name not in state.coded:
                    tensors[lane, name] = values
        for name, coded in state.coded.items():
            for lane, encoded in (("m", coded.m), ("v", coded.v)):
                tensors[f"{lane}_codes", name] = encoded.codes
                tensors[f"{lane}_scales", name] = encoded.scales
        for state_name, by_param in state.states.items():
            tensors |= {(state_name, name): values for name, values in by_param.items()}
        codec = next((coded.codec for coded in state.coded.values()), None)
        return cls(state.finished_steps, "keyframe", tensors, codec)


def file_name(serial: int, captures: Sequence[Capture]) -> str:
    """Where the tensors of `captures` go, below the session's folder; `serial` is the number of the file."""
    steps = sorted({capture.step for capture in captures})
    span = str(steps[0]) if len(steps) == 1 else f"{steps[0]}-{steps[-1]}"
    return f"{FOLDER}/{serial // FILES_A_FOLDER:04d}/{serial:07d}-{captures[0].kind}-{span}.safetensors"


def write_file(
    folder: Path, serial: int, captures: Sequence[Capture], shapes: Mapping[str, tuple[int, ...]]
) -> StoredFile:
    """Write `captures` as one file, durable with its folder once this returns; OSError where it cannot be.

    `shapes` gives params their shape; all else keeps the shape that it has: codes and scales are flat. What was written
    of a file that fails is removed.
    """
    name = file_name(serial, captures)
    path = folder / name
    tensors = [
        (f"{lane}@{capture.step}/{param}", lane, param, values)
        for capture in captures
        for (lane, param), values in capture.tensors.items()
    ]
    # As the format has it: the widest items first, so that all are aligned.
    tensors.sort(key=lambda each: -each[3].dtype.itemsize)
    codecs = {f"codec@{capture.step}": capture.codec for capture in captures if capture.codec}
    header: dict[str, Any] = {"__metadata__": codecs} if codecs else {}
    at = 0
    for key, lane, param, values in tensors:
        shape = shapes.get(param) if len(lane) == 1 else None
        header[key] = {
            "dtype": DTYPES[values.dtype.name][0],
            "shape": list(values.shape if shape is None else shape),
            "data_offsets": [at, at + values.nbytes],
        }
        at += values.nbytes
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    parts = [memoryview(len(text).to_bytes(8, "little") + text)]
    parts += [_bytes_of(values) for _, _, _, values in tensors if values.size]
    _make_folder(path.parent)
    try:
        checksums = _write_parts(path, parts)
        _sync(path.parent)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    size = sum(part.nbytes for part in parts)
    return StoredFile(name, size, whole_checksum(checksums, size), checksums if len(checksums) > 1 else ())


def _bytes_of(values: Array) -> memoryview:
    """The elements, little-endian; copied only where they do not lie so."""
    flat = np.ascontiguousarray(values, DTYPES[values.dtype.name][1]).reshape(-1)
    return flat.view(np.uint8).data


def _write_parts(path: Path, parts: Sequence[memoryview]) -> tuple[int, ...]:
    """Write a new file, durable once this returns; gives the CRC-32 of its parts."""
    found: tuple[int, ...] = ()

    def check() -> None:
        nonlocal found
        found = part_checksums(parts)

    # Beside the writing: neither holds the interpreter's lock, and one alone takes half as long as the other.
    thread = threading.Thread(target=check, name="session-checksum")
    aside = sum(part.nbytes for part in parts) >= _ASIDE_BYTES
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    try:
        thread.start() if aside else check()
        for part in parts:
            _write_whole(handle, part)
        os.fsync(handle)
    finally:
        os.close(handle)
        if aside:
            thread.join()
    return found


def _write_whole(handle: int, part: memoryview) -> None:
    while part:
        written = os.write(handle, part[:_CHUNK])
        if not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        part = part[written:]


def remove_strangers(folder: Path, known: Iterable[str]) -> int:
    """Delete tensor files below `folder` that the index does not name: what a killed recording was writing."""
    known = set(known)
    root = folder / FOLDER
    removed = 0
    if root.is_symlink() or not root.is_dir():
        return 0
    for shard in root.iterdir():
        if shard.is_symlink() or not shard.is_dir():
            continue
        for path in shard.iterdir():
            name = f"{FOLDER}/{shard.name}/{path.name}"
            if name not in known and NAME.fullmatch(name) and (path.is_symlink() or path.is_file()):
                path.unlink()
                removed += 1
    return removed


def _make_folder(path: Path) -> None:
    if not path.is_dir():
        # Another thread may make it at the same time.
        path.mkdir(parents=True, exist_ok=True)
        _sync(path.parent)
        _sync(path.parent.parent)


def _sync(folder: Path) -> None:
    """Make new names durable; Windows has no such call and needs none."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
