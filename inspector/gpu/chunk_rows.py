"""Statistics of params from what the GPU counted of their chunks."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from inspector.floats import BoolArray, F32Array
from inspector.layout import Layout
from inspector.param_statistics import LaneColumns, ParamTable, UpdateColumns
from inspector.statistics import BINS
from inspector.stores import LANES, Lane

U32Array = npt.NDArray[np.uint32]
_NONE = 0xFFFF_FFFF

# The slots of a chunk's row, as in param_stats.wgsl.
ROW_SLOTS = 48
_LANE_SLOTS = 8
_NANS, _POSINFS, _NEGINFS, _FIRST, _LOWEST, _HIGHEST, _TOP = range(7)
_SUMS, _UPDATE_TOP, _LARGEST, _LARGEST_AT, _LOST, _BELOW_EPS, _F16_OVER, _F16_UNDER, _SKIPPED = (
    32,
    *range(37, 45),
)


def assembled(
    layout: Layout,
    histograms: npt.NDArray[np.int64],
    rows: U32Array | None,
    owners: npt.NDArray[Any],
    idle: BoolArray | None,
) -> ParamTable:
    """What was counted of each param of the layout.

    `histograms` has the counts of each param by lane and exponent, [params, 4, 256]; `rows` the uint32 slots of each
    chunk, [chunks, ROW_SLOTS], None where there are none, and `owners` the param that each chunk is of. Chunks of a
    param follow each other, so they are added up in runs, in float64 and in order. Of `idle` params there is no update.
    """
    segments = layout.segments
    table = np.zeros((len(segments), ROW_SLOTS), np.int64)
    sums = np.zeros((len(segments), 5))
    tops = np.zeros((len(segments), 5), np.int64)
    for k in range(4):
        table[:, k * _LANE_SLOTS + _FIRST] = _NONE
        table[:, k * _LANE_SLOTS + _LOWEST] = _NONE
    table[:, _LARGEST_AT] = _NONE
    if rows is not None and len(rows):
        starts = np.flatnonzero(np.diff(owners, prepend=-1))
        who = owners[starts]
        wide = rows.astype(np.int64)
        table[who] = np.add.reduceat(wide, starts)
        for k in range(4):
            for slot, way in ((_FIRST, np.minimum), (_LOWEST, np.minimum), (_HIGHEST, np.maximum)):
                at = k * _LANE_SLOTS + slot
                table[who, at] = way.reduceat(wide[:, at], starts)
        table[who, _LARGEST] = np.maximum.reduceat(wide[:, _LARGEST], starts)
        largest = np.zeros(len(segments), np.int64)
        largest[who] = table[who, _LARGEST]
        places = np.where(wide[:, _LARGEST] == largest[owners], wide[:, _LARGEST_AT], _NONE)
        table[who, _LARGEST_AT] = np.minimum.reduceat(places, starts)
        top_slots = [*(k * _LANE_SLOTS + _TOP for k in range(4)), _UPDATE_TOP]
        tops[who] = np.maximum.reduceat(wide[:, top_slots], starts)
        parts = np.ascontiguousarray(rows[:, _SUMS : _SUMS + 5]).view(np.float32).astype(np.float64)
        sums[who] = np.add.reduceat(np.ldexp(parts, 2 * (wide[:, top_slots] - tops[owners])), starts)
    norms = np.ldexp(np.sqrt(sums), tops - 128)
    lows, highs = (
        _from_keys(table[:, [k * _LANE_SLOTS + slot for k in range(4)]]) for slot in (_LOWEST, _HIGHEST)
    )
    exponents = histograms[:, :, :BINS].astype(np.uint32)
    numel = np.array([s.numel for s in segments], np.int64)
    zeros = numel[:, None] - histograms.sum(axis=2)
    lanes: dict[Lane, LaneColumns] = {}
    for k, lane in enumerate(LANES):
        nan, posinf, neginf, first = (
            table[:, k * _LANE_SLOTS + slot] for slot in (_NANS, _POSINFS, _NEGINFS, _FIRST)
        )
        some = nan + posinf + neginf < numel
        lanes[lane] = LaneColumns(
            nan=nan,
            posinf=posinf,
            neginf=neginf,
            first=_index(first),
            zeros=zeros[:, k],
            low=np.where(some, lows[:, k], np.nan).astype(np.float64),
            high=np.where(some, highs[:, k], np.nan).astype(np.float64),
            norm=norms[:, k],
            exponents=exponents[:, k],
        )
    if idle is not None:
        norms[idle, 4] = 0.0
        for slot in (_LARGEST, _BELOW_EPS, _LOST, _SKIPPED):
            table[idle, slot] = 0
    largest_at = np.where(table[:, _LARGEST] > 0, table[:, _LARGEST_AT], _NONE)
    update = UpdateColumns(
        norm=norms[:, 4],
        largest=table[:, _LARGEST].astype(np.uint32).view(np.float32).astype(np.float64),
        largest_at=_index(largest_at),
        below_eps=table[:, _BELOW_EPS],
        lost=table[:, _LOST],
        skipped=table[:, _SKIPPED],
        f16_overflows=table[:, _F16_OVER],
        f16_underflows=table[:, _F16_UNDER],
    )
    for array in (exponents, zeros, norms, table, numel):
        array.flags.writeable = False
    names, blocks = tuple(s.name for s in segments), tuple(s.block for s in segments)
    return ParamTable(names, blocks, numel, MappingProxyType(lanes), update)


def _index(elements: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """-1 where there is none."""
    return np.where(elements == _NONE, -1, elements)


def _from_keys(keys: npt.NDArray[np.int64]) -> F32Array:
    """Numbers from integers in the order of the numbers."""
    raw = keys.astype(np.uint32)
    raw = np.where(raw & np.uint32(0x8000_0000), raw ^ np.uint32(0x8000_0000), ~raw)
    return np.asarray(raw.view(np.float32))
