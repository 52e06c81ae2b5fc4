"""Statistics of the params of several processes made those of the whole params, and copies held against each other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from inspector.layout import Layout
from inspector.param_statistics import LaneColumns, ParamTable, UpdateColumns
from inspector.ranks import Parted, odd_one
from inspector.session.shards import ShardMap, Whole, global_indices
from inspector.statistics import BINS
from inspector.stores import LANES, Lane

I64Array = npt.NDArray[np.int64]
Array = npt.NDArray[Any]

NOWHERE = np.iinfo(np.int64).max
SUMS_ROUNDING = 1e-9
"""Norms of the same elements differ by less, in whatever order a device adds them up in float64."""
_COUNTS = ("nan", "posinf", "neginf", "zeros")
_UPDATE_COUNTS = ("below_eps", "lost", "skipped", "f16_overflows", "f16_underflows")
_LANE_WORDS = {"w": "w", "g": "the gradient", "m": "m", "v": "v"}


class Places:
    """Mega-buffer elements of one rank's layout as those of the layout of all."""

    def __init__(self, shards: ShardMap, rank: int, local: Layout, whole: Layout) -> None:
        self._shards = shards
        self._rank = rank
        count = len(shards.wholes)
        self._shift = np.zeros(count, np.int64)
        self._start = np.zeros(count, np.int64)
        self._whole_start = np.zeros(count, np.int64)
        self._runs = np.ones(count, np.bool_)
        known = {segment.name for segment in local}
        for number, each in enumerate(shards.wholes):
            piece = next((p for p in each.listed if p.rank == rank), None)
            if piece is None or each.param.name not in known:
                continue
            start, there = local[each.param.name].offset, whole[each.param.name].offset
            self._start[number], self._whole_start[number] = start, there
            self._runs[number] = piece.is_run_of(each.param)
            before = int(np.prod(each.param.shape[1:])) * piece.offset[0] if each.param.shape else 0
            self._shift[number] = there - start + before

    def mapped(self, numbers: I64Array, elements: I64Array) -> I64Array:
        """`elements` of the params of these numbers; -1 becomes NOWHERE."""
        there = elements >= 0
        found = np.where(there, elements + self._shift[numbers], NOWHERE)
        for i in np.flatnonzero(there & ~self._runs[numbers]):
            number = int(numbers[i])
            each = self._shards.wholes[number]
            piece = next(p for p in each.listed if p.rank == self._rank)
            index = elements[i : i + 1] - self._start[number]
            found[i] = global_indices(piece, each.param.shape, index)[0] + self._whole_start[number]
        return found


class _Lane:
    """Sums of one lane over the ranks, an array a figure: [params]."""

    def __init__(self, count: int) -> None:
        self.counts = {name: np.zeros(count, np.int64) for name in _COUNTS}
        self.first = np.full(count, NOWHERE, np.int64)
        self.low = np.full(count, np.nan)
        self.high = np.full(count, np.nan)
        self.squares = np.zeros(count)
        self.exponents = np.zeros((count, BINS), np.uint32)

    def add(self, numbers: I64Array, columns: LaneColumns, rows: Array, first: I64Array) -> None:
        for name in _COUNTS:
            self.counts[name][numbers] += getattr(columns, name)[rows]
        self.first[numbers] = np.minimum(self.first[numbers], first)
        self.low[numbers] = np.fmin(self.low[numbers], columns.low[rows])
        self.high[numbers] = np.fmax(self.high[numbers], columns.high[rows])
        with np.errstate(over="ignore"):
            self.squares[numbers] += np.square(columns.norm[rows])
        self.exponents[numbers] += columns.exponents[rows]

    def columns(self, order: Array) -> LaneColumns:
        first = np.where(self.first == NOWHERE, -1, self.first)
        figures = {name: values[order] for name, values in self.counts.items()}
        return LaneColumns(
            **figures, first=first[order], low=self.low[order], high=self.high[order],
            norm=np.sqrt(self.squares)[order], exponents=self.exponents[order],
        )  # fmt: skip


def merged_tables(
    shards: ShardMap, tables: Sequence[ParamTable], places: Sequence[Places], layout: Layout
) -> ParamTable:
    """One table of the whole params, in the order of memory, of one table a rank; only of params counted in full.

    Norms are the roots of summed squares, counts and histograms sums, ranges the extremes; the first non-finite element
    and the one that moves most are given by their places in `layout`, of equals the first.
    """
    count = len(shards.wholes)
    lanes: dict[Lane, _Lane] = {lane: _Lane(count) for lane in LANES}
    seen = np.zeros(count, np.int64)
    counts = {name: np.zeros(count, np.int64) for name in _UPDATE_COUNTS}
    squares, largest, at = np.zeros(count), np.zeros(count), np.full(count, NOWHERE, np.int64)
    for rank, table in enumerate(tables):
        numbers = np.array([shards.numbers.get(name, -1) for name in table.names], np.int64)
        rows = np.flatnonzero((numbers >= 0) & shards.is_counted[rank][numbers])
        numbers = numbers[rows]
        seen[numbers] += 1
        for lane, total in lanes.items():
            columns = table.lanes[lane]
            total.add(numbers, columns, rows, places[rank].mapped(numbers, columns.first[rows]))
        update = table.update
        for name in _UPDATE_COUNTS:
            counts[name][numbers] += getattr(update, name)[rows]
        with np.errstate(over="ignore"):
            squares[numbers] += np.square(update.norm[rows])
        size = update.largest[rows]
        where = places[rank].mapped(numbers, update.largest_at[rows])
        better = (size > largest[numbers]) | ((size == largest[numbers]) & (where < at[numbers]))
        largest[numbers[better]], at[numbers[better]] = size[better], where[better]
    needed = shards.is_counted.sum(0)
    whole = {shards.wholes[i].param.name: i for i in np.flatnonzero(seen == needed)}
    segments = [segment for segment in layout if segment.name in whole]
    order = np.array([whole[segment.name] for segment in segments], np.int64)
    at = np.where(at == NOWHERE, -1, at)
    return ParamTable(
        tuple(segment.name for segment in segments),
        tuple(segment.block for segment in segments),
        np.array([segment.numel for segment in segments], np.int64),
        MappingProxyType({lane: total.columns(order) for lane, total in lanes.items()}),
        UpdateColumns(
            norm=np.sqrt(squares)[order], largest=largest[order], largest_at=at[order],
            **{name: values[order] for name, values in counts.items()},
        ),
    )  # fmt: skip


def parted_copies(shards: ShardMap, tables: Sequence[ParamTable]) -> Iterator[Parted]:
    """Where ranks that keep the same elements have counted other things in them: each param's first lane."""
    rows = [{name: i for i, name in enumerate(table.names)} for table in tables]
    for each in shards.copied:
        boxes: dict[Any, list[int]] = {}
        for piece in each.listed:
            if piece.numel and each.param.name in rows[piece.rank]:
                boxes.setdefault(piece.box, []).append(piece.rank)
        for ranks in boxes.values():
            found = _parted_lane(each, ranks, tables, rows) if len(ranks) > 1 else None
            if found is not None:
                yield found
                break


def _parted_lane(
    each: Whole, ranks: Sequence[int], tables: Sequence[ParamTable], rows: Sequence[dict[str, int]]
) -> Parted | None:
    name = each.param.name
    for lane in LANES:
        columns = [(rank, tables[rank].lanes[lane], rows[rank][name]) for rank in ranks]
        norm = odd_one([(rank, float(c.norm[row])) for rank, c, row in columns], _norms_differ)
        if norm is not None:
            return Parted(norm[0], f"the norm of {_LANE_WORDS[lane]}", norm[1], norm[2], name)
        for what, figure in (("smallest element", "low"), ("largest element", "high"), ("zeros", "zeros")):
            odd = odd_one([(rank, float(getattr(c, figure)[row])) for rank, c, row in columns])
            if odd is not None:
                words = f"the {what} of {_LANE_WORDS[lane]}" if what != "zeros" else f"zeros in {lane}"
                return Parted(odd[0], words, odd[1], odd[2], name)
        bins = odd_one([(rank, c.exponents[row].tobytes()) for rank, c, row in columns])
        if bins is not None:
            theirs = {rank: c.exponents[row] for rank, c, row in columns}
            other = next(rank for rank in ranks if theirs[rank].tobytes() == bins[2])
            at = int(np.flatnonzero(theirs[bins[0]] != theirs[other])[0])
            what = f"how many elements of {_LANE_WORDS[lane]} are of magnitude 2^{at - 127}"
            return Parted(bins[0], what, float(theirs[bins[0]][at]), float(theirs[other][at]), name)
    return None


def _norms_differ(a: float, b: float) -> bool:
    return not math.isclose(a, b, rel_tol=SUMS_ROUNDING) and not (math.isnan(a) and math.isnan(b))
