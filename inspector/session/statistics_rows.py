"""Statistics of the params of one step in few bytes: empty histogram bins left out, the rest deflated."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from inspector.layout import BlockName, Param
from inspector.param_statistics import LaneColumns, ParamTable, UpdateColumns
from inspector.statistics import BINS
from inspector.stores import LANES

_BLOCKS: tuple[BlockName | None, ...] = ("wd", "no_wd", None)
_WHOLE = ("nan", "posinf", "neginf", "first", "zeros")
_REAL = ("low", "high", "norm")
_UPDATE_WHOLE = ("largest_at", "below_eps", "lost", "skipped", "f16_overflows", "f16_underflows")
_UPDATE_REAL = ("norm", "largest")
_ROW_BYTES = 4 + 1 + len(LANES) * (8 * len(_WHOLE + _REAL) + 1) + 8 * len(_UPDATE_WHOLE + _UPDATE_REAL)
_BIN_BYTES = 1 + 4

Array = npt.NDArray[Any]


def pack(table: ParamTable, places: dict[str, int]) -> bytes:
    """`table` as bytes; `places` is the index of each param among those of the recording."""
    exponents = np.concatenate([np.asarray(table.lanes[lane].exponents) for lane in LANES])
    rows, bins = np.nonzero(exponents)
    parts: list[Array] = [
        np.array([len(table)], "<u4"),
        np.array([places[name] for name in table.names], "<u4"),
        np.array([_BLOCKS.index(block) for block in table.blocks], "u1"),
    ]
    for lane in LANES:
        columns = table.lanes[lane]
        parts += [np.asarray(getattr(columns, name), "<i8") for name in _WHOLE]
        parts += [np.asarray(getattr(columns, name), "<f8") for name in _REAL]
    parts += [np.asarray(getattr(table.update, name), "<i8") for name in _UPDATE_WHOLE]
    parts += [np.asarray(getattr(table.update, name), "<f8") for name in _UPDATE_REAL]
    # At most 255 bins, so their number fits in a byte.
    parts.append(np.bincount(rows, minlength=len(exponents)).astype("u1"))
    parts += [bins.astype("u1"), exponents[rows, bins].astype("<u4")]
    return zlib.compress(b"".join(part.tobytes() for part in parts), 1)


def unpack(data: bytes, params: Sequence[Param]) -> ParamTable:
    """The table that `pack` made; ValueError where the bytes hold none, without taking more memory than one would."""
    most = 4 + len(params) * (_ROW_BYTES + len(LANES) * BINS * _BIN_BYTES)
    inflate = zlib.decompressobj()
    try:
        raw = inflate.decompress(data, most + 1)
    except zlib.error as error:
        raise ValueError(f"its statistics cannot be inflated ({error})") from None
    if len(raw) > most or not inflate.eof:
        raise ValueError("its statistics are larger than they can be")
    read = _Reader(raw)
    count = int(read.take("<u4", 1)[0])
    index, block = read.take("<u4", count), read.take("u1", count)
    if count > len(params) or (index >= len(params)).any() or (block >= len(_BLOCKS)).any():
        raise ValueError("its statistics name a param that is not there")
    figures = [
        {name: read.take("<i8" if name in _WHOLE else "<f8", count) for name in _WHOLE + _REAL} for _ in LANES
    ]
    update = {name: read.take("<i8", count) for name in _UPDATE_WHOLE}
    update |= {name: read.take("<f8", count) for name in _UPDATE_REAL}
    filled = read.take("u1", len(LANES) * count).astype(np.intp)
    bins, counts = read.take("u1", int(filled.sum())), read.take("<u4", int(filled.sum()))
    if read.left or (bins >= BINS).any():
        raise ValueError("its statistics do not add up")
    exponents = np.zeros((len(LANES) * count, BINS), np.uint32)
    exponents[np.repeat(np.arange(len(filled)), filled), bins] = counts
    exponents.flags.writeable = False
    return ParamTable(
        tuple(params[i].name for i in index),
        tuple(_BLOCKS[i] for i in block),
        np.array([params[i].numel for i in index], np.int64),
        MappingProxyType(
            {
                lane: LaneColumns(**figures[i], exponents=exponents[i * count : (i + 1) * count])
                for i, lane in enumerate(LANES)
            }
        ),
        UpdateColumns(**update),
    )


class _Reader:
    """Arrays off the front of bytes, read-only; ValueError where too few are left."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._raw) - self._at

    def take(self, kind: str, count: int) -> Array:
        size = np.dtype(kind).itemsize * count
        if size > self.left:
            raise ValueError("its statistics are cut off")
        values = np.frombuffer(self._raw, kind, count, self._at)
        self._at += size
        return values
