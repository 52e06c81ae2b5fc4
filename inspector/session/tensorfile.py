"""Safetensors files read without trust: every byte accounted for, tensors memory-mapped, bfloat16 widened.

Format: https://github.com/huggingface/safetensors, "Format". The library's numpy reader knows no bfloat16 and
says little about a damaged file, so the header is checked here; writing is left to the library.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from inspector.codecs import Codes
from inspector.errors import UsageError
from inspector.files import replacing
from inspector.floats import F32Array

MAX_HEADER_BYTES = 100_000_000
"""The format's own bound."""

MAX_DIMENSIONS = 64
MAX_ELEMENTS = 1 << 60
"""What numpy can address, an empty tensor's other extents included."""

_ITEM_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
    "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8,
}  # fmt: skip
FLOAT_TYPES = ("F32", "F16", "BF16")
_NUMPY = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "I16": "<i2", "U16": "<u2", "I32": "<i4", "U32": "<u4",
    "I64": "<i8", "U64": "<u8", "F64": "<f8",
}  # fmt: skip


def _e4m3() -> F32Array:
    """The values of 8-bit floats of 4 and 3 bits: exponents from 2^-6, no infinities (arXiv 2209.05433)."""
    code = np.arange(256)
    exponent, fraction = (code >> 3) & 15, code & 7
    magnitude = np.where(exponent == 0, fraction / 8 * 2.0**-6, (1 + fraction / 8) * np.exp2(exponent - 7.0))
    values = np.where(code & 0x7F == 0x7F, np.nan, np.where(code & 0x80, -magnitude, magnitude))
    return values.astype(np.float32)


_E4M3 = _e4m3()
TensorData = F32Array | Codes
"""What is written."""


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """A tensor in the file: `start` and `stop` in bytes from the start of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


class TensorFile:
    """An opened safetensors file: `entries` by name in the order they lie in it, and its text metadata."""

    def __init__(
        self,
        path: Path,
        *,
        within: tuple[int, int] | None = None,
        max_tensors: int | None = None,
        max_signs: int = 0,
    ) -> None:
        """`within` is (start, size) in bytes of a safetensors file that lies inside a larger one, unchanged.

        With `max_tensors` a header that could hold more is refused before it takes memory; a name in it may have
        `max_signs` commas and brackets.
        """
        self.path = path
        self.entries, self.metadata = _read_header(path, within, max_tensors, max_signs)

    @cached_property
    def _bytes(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The whole file in one map: one a tensor would take a file descriptor each."""
        return np.asarray(np.memmap(self.path, dtype=np.uint8, mode="r"))

    def codes(self, name: str) -> Codes:
        """An I8 or U8 tensor in its shape, read-only and mapped."""
        entry = self.entries[name]
        if entry.dtype not in ("I8", "U8"):
            raise UsageError(f"{self.path}: tensor {name!r} is {entry.dtype}, where codes are I8 or U8.")
        raw: np.ndarray[Any, np.dtype[Any]] = np.zeros(0, np.uint8)
        if entry.start != entry.stop:
            raw = self._bytes[entry.start : entry.stop]
        kind: Any = np.int8 if entry.dtype == "I8" else np.uint8
        values: Codes = raw.view(kind).reshape(entry.shape)
        values.flags.writeable = False
        return values

    def values(self, name: str) -> np.ndarray[Any, np.dtype[Any]]:
        """A tensor of any type in its shape, read-only: as `floats` where that takes it, 8-bit floats widened to
        float32, all others as they are."""
        entry = self.entries[name]
        if entry.dtype in FLOAT_TYPES:
            return self.floats(name)
        raw: np.ndarray[Any, np.dtype[Any]] = np.zeros(0, np.uint8)
        if entry.start != entry.stop:
            raw = self._bytes[entry.start : entry.stop]
        if entry.dtype == "F8_E5M2":
            values = (raw.astype(np.uint16) << np.uint16(8)).view(np.float16).astype(np.float32)
        elif entry.dtype == "F8_E4M3":
            values = _E4M3[raw]
        else:
            values = raw.view(_NUMPY[entry.dtype])
        values = values.reshape(entry.shape)
        values.flags.writeable = False
        return values

    def floats(self, name: str) -> F32Array:
        """A float tensor as float32, in its shape, read-only; float32 is mapped, not read."""
        entry = self.entries[name]
        if entry.dtype not in FLOAT_TYPES:
            raise UsageError(
                f"{self.path}: tensor {name!r} is {entry.dtype}; give float32, float16 or bfloat16 (F32, F16, BF16)."
            )
        kind = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}[entry.dtype]
        count = math.prod(entry.shape)
        if count == 0:
            return np.zeros(entry.shape, np.float32)
        # A map that is not aligned to the item is fine for numpy, and headers need not be padded.
        raw: np.ndarray[Any, np.dtype[Any]] = self._bytes[entry.start : entry.stop].view(kind)
        if entry.dtype == "BF16":
            values = (raw.astype(np.uint32) << np.uint32(16)).view(np.float32)
        else:
            with np.errstate(all="ignore"):
                values = raw.astype(np.float32, copy=False)
        values = values.reshape(entry.shape)
        values.flags.writeable = False
        return values


def _read_header(
    path: Path, within: tuple[int, int] | None, max_tensors: int | None, max_signs: int
) -> tuple[dict[str, TensorEntry], dict[str, str]]:
    try:
        start, size = within or (0, path.stat().st_size)
        with path.open("rb") as file:
            file.seek(start)
            prefix = file.read(8)
            foreign = _foreign_format(prefix)
            if foreign:
                raise UsageError(f"{path} is {foreign}")
            if len(prefix) < 8:
                raise UsageError(
                    f"{path} is not a safetensors file: it has {size} bytes, its header alone takes 8."
                )
            length = int.from_bytes(prefix, "little")
            if length > min(MAX_HEADER_BYTES, size - 8):
                raise UsageError(
                    f"{path} is not a safetensors file, or is cut off: its header would take {length:,} "
                    f"bytes of {size:,}."
                )
            raw = file.read(length)
        if max_tensors is not None:
            for sign, most in ((b"{", 1), (b"[", 2), (b",", 4 + MAX_DIMENSIONS // 4), (b":", 4)):
                if raw.count(sign) > (max_tensors + 2) * (most + max_signs):
                    raise UsageError(f"{path} is damaged: its header lists more tensors than there can be.")
    except IsADirectoryError:
        raise UsageError(f"{path} is a folder: name a safetensors file.") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from None
    try:
        header = json.loads(raw.decode("utf-8"), object_pairs_hook=_no_duplicates)
    except RecursionError:
        raise UsageError(f"{path} is not a safetensors file: its header is nested too deep.") from None
    except ValueError as error:
        raise UsageError(
            f"{path} is not a safetensors file: its header is not valid JSON ({error})."
        ) from None
    if not isinstance(header, dict):
        raise UsageError(f"{path} is not a safetensors file: its header is no JSON object.")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise UsageError(f"{path}: __metadata__ has to map names to strings.")
    data_start = start + 8 + length
    entries = sorted((_entry(path, name, item, data_start) for name, item in header.items()), key=_place)
    end = data_start
    for entry in entries:
        if entry.start != end:
            raise UsageError(
                f"{path} is damaged: tensor {entry.name!r} does not start where the one before ends."
            )
        end = entry.stop
    missing = end - (start + size)
    if missing > 0:
        raise UsageError(f"{path} is cut off: {missing:,} bytes are missing at its end.")
    if missing < 0:
        raise UsageError(f"{path} is damaged: it has {-missing:,} bytes too many at its end.")
    return {entry.name: entry for entry in entries}, metadata


def _place(entry: TensorEntry) -> tuple[int, int]:
    return entry.start, entry.stop


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands in it twice")
    return found


def _entry(path: Path, name: str, item: Any, data_start: int) -> TensorEntry:
    def whole(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_ELEMENTS

    try:
        name.encode("utf-8")  # JSON can spell half a character, which no terminal or file takes.
        dtype, shape, (start, stop) = item["dtype"], item["shape"], item["data_offsets"]
        sound = dtype in _ITEM_BYTES and isinstance(shape, list) and all(map(whole, [*shape, start, stop]))
        sound = sound and len(shape) <= MAX_DIMENSIONS and math.prod(max(n, 1) for n in shape) < MAX_ELEMENTS
    except (TypeError, KeyError, ValueError):
        sound = False
    if not sound:
        raise UsageError(f"{path}: the header entry of tensor {name!r} is not valid.")
    if stop - start != math.prod(shape) * _ITEM_BYTES[dtype]:
        raise UsageError(
            f"{path} is damaged: tensor {name!r} of shape {shape} and type {dtype} needs "
            f"{math.prod(shape) * _ITEM_BYTES[dtype]:,} bytes, the header gives it {stop - start:,}."
        )
    return TensorEntry(name, dtype, tuple(shape), data_start + start, data_start + stop)


def _foreign_format(prefix: bytes) -> str | None:
    """What another program's file is, and how to open it, told by its first bytes."""
    if prefix.startswith(b"PK\x03\x04"):
        return (
            "a PyTorch archive (.pt), not a safetensors file: give it a name that ends in .pt and open that (it is "
            "read as by torch.load(…, weights_only=True)), or save its tensors with safetensors.torch.save_file."
        )
    # A header of 640, 896, 1152 or 1408 bytes begins like a pickle; only a pickle's next bytes are no zeros.
    long = len(prefix) < 8 or int.from_bytes(prefix, "little") > MAX_HEADER_BYTES
    if long and prefix[:1] == b"\x80" and prefix[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return "a Python pickle, not a safetensors file: it is not opened, since pickles can run code."
    if prefix.startswith(b"\x93NUMPY"):
        return "a numpy array file, not a safetensors file: save it with safetensors.numpy.save_file."
    if prefix.startswith(b"GGUF"):
        return "a GGUF model, which holds no gradients: give a safetensors file."
    if prefix.startswith(b"SQLite "):
        return "an SQLite database: give a safetensors state file."
    return None


def write_tensors(path: Path, tensors: Mapping[str, TensorData], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file so that `path` holds the old content or the whole new one at every instant.

    UsageError where it cannot be written.
    """
    with replacing(path) as temporary:
        try:
            save_file(
                {k: np.asarray(v, order="C") for k, v in tensors.items()}, str(temporary), dict(metadata)
            )
        except SafetensorError as error:
            # The library's own exception, for a full disk among others.
            raise UsageError(f"{path} cannot be written: {error}.") from None
