"""What Adafactor's kernels look up: which part of which matrix a workgroup works on, and where its sums go."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inspector.layout import Segment
from inspector.optimizers.adafactor.state import Stack, stack_of

U32 = npt.NDArray[np.uint32]
I64 = npt.NDArray[np.int64]

TILE_ROWS = 64
TILE_COLUMNS = 256
VECTOR_TILE = 4096
"""Elements of a vector that a workgroup works on, as in adafactor.wgsl."""
ENTRIES = 32
"""Means that a workgroup of adafactor_factors makes."""
WORDS = 8
"""u32 of a row of any table."""


@dataclass(frozen=True, slots=True)
class Placed:
    """One param in a group: where its sums and scales lie, in elements of what the group binds.

    `laps` are the bindings that g is cut into as far as they touch the param: a tile has sums of its own in each.
    """

    segment: Segment
    stack: Stack
    laps: tuple[int, ...]
    tile: tuple[int, int]
    row_at: int
    column_at: int
    row_parts_at: int
    column_parts_at: int
    parts_at: int
    scale_at: int

    @property
    def tiles(self) -> tuple[int, int]:
        """How many tiles there are down and across one of its matrices."""
        return -(-self.stack.rows // self.tile[0]), -(-self.stack.columns // self.tile[1])

    @property
    def slice_parts(self) -> int:
        """Sums of squares of one of its matrices."""
        return math.prod(self.tiles) * len(self.laps)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Elements that it takes of row_parts, column_parts, square_parts and scales."""
        s, (down, across), laps = self.stack, self.tiles, len(self.laps)
        return (
            s.slices * laps * across * s.rows,
            s.slices * laps * down * s.columns,
            s.slices * self.slice_parts,
            2 + s.slices,
        )


def most_parts(segment: Segment) -> int:
    """As many elements as its sums over rows or over columns take, where g is cut in it once."""
    s = stack_of(segment.param.shape)
    return 2 * s.slices * max(-(-s.rows // TILE_ROWS) * s.columns, -(-s.columns // TILE_COLUMNS) * s.rows)


def placed(
    segments: Sequence[Segment],
    windows: Sequence[tuple[int, int]],
    starts: Sequence[tuple[int, int]],
    *,
    factored: bool,
) -> tuple[tuple[Placed, ...], tuple[int, int, int, int]]:
    """The params of a group one behind the other, and the elements that all take as in `Placed.sizes`.

    `windows` are the bindings of g, [start, stop) of the mega-buffer; `starts` the first element of each param's row
    and column state where they are bound.
    """
    found: list[Placed] = []
    at = (0, 0, 0, 0)
    tile = (TILE_ROWS, TILE_COLUMNS) if factored else (1, VECTOR_TILE)
    for segment, (row_at, column_at) in zip(segments, starts, strict=True):
        laps = tuple(
            i for i, (low, high) in enumerate(windows) if low < segment.stop and high > segment.offset
        )
        each = Placed(segment, stack_of(segment.param.shape), laps, tile, row_at, column_at, *at)
        found.append(each)
        at = tuple(a + n for a, n in zip(at, each.sizes, strict=True))  # type: ignore[assignment]
    return tuple(found), at


def tile_table(params: Sequence[Placed], window: int) -> U32:
    """Rows of `Tile` in adafactor.wgsl: all tiles of the params that binding `window` touches."""
    mine = [p for p in params if window in p.laps]
    facts = [
        (
            p.stack.slices, *p.tiles, p.stack.rows, p.stack.columns, *p.tile, p.laps.index(window), len(p.laps),
            p.row_parts_at, p.column_parts_at, p.parts_at,
        )
        for p in mine
    ]  # fmt: skip
    known = np.array(facts, np.int64).reshape(-1, 12)
    owner, number = _each(known[:, 0] * known[:, 1] * known[:, 2])
    _, down, across, rows, columns, tall, wide, lap, laps, rows_at, columns_at, parts_at = known[owner].T
    piece, i, j = number // (down * across), number // across % down, number % across
    row, column, at = i * tall, j * wide, piece * laps + lap
    return _table(
        owner, piece, row, column,
        rows_at + (at * across + j) * rows + row,
        columns_at + (at * down + i) * columns + column,
        parts_at + (at * down + i) * across + j,
    )  # fmt: skip


def matrix_table(params: Sequence[Placed], window: int, start: int, decays: Sequence[bool]) -> U32:
    """Rows of `Matrix`: the same params; `start` is the element that the binding begins at."""
    rows = []
    for p, decayed in zip(params, decays, strict=True):
        if window in p.laps:
            # Before the binding where it begins in the middle: u32 wraps, there and here.
            first = (p.segment.offset - start) % 2**32
            s, (tile_rows, _) = p.stack, p.tile
            rows.append(
                (first, s.rows, s.columns, tile_rows, p.row_at, p.column_at, p.scale_at, int(decayed))
            )
    return np.array(rows, np.uint32).reshape(-1, WORDS)


def entry_table(params: Sequence[Placed]) -> U32:
    """Rows of `Entry`: up to ENTRIES means of one kind each, of rows (kind 0) or columns (1) of one matrix."""
    facts = []
    for p in params:
        (down, across), s, laps = p.tiles, p.stack, len(p.laps)
        facts += [
            (s.slices, s.rows, s.columns, p.row_at, p.row_parts_at, laps * across, 0),
            (s.slices, s.columns, s.rows, p.column_at, p.column_parts_at, laps * down, 1),
        ]
    known = np.array(facts, np.int64).reshape(-1, 7)
    owner, number = _each(known[:, 0] * -(-known[:, 1] // ENTRIES))
    _, length, of, state_at, parts_at, parts, kind = known[owner].T
    each = -(-length // ENTRIES)
    piece, first = number // each, number % each * ENTRIES
    return _table(
        state_at + piece * length + first, np.minimum(length - first, ENTRIES),
        parts_at + piece * parts * length + first, length, parts, of, kind,
    )  # fmt: skip


def _each(counts: I64) -> tuple[I64, I64]:
    """For each of so many of each: whose it is, and its number among those."""
    owner = np.repeat(np.arange(len(counts)), counts)
    return owner, np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)


def _table(*columns: I64) -> U32:
    """Rows of u32, the columns that are left over 0."""
    table = np.zeros((len(columns[0]), WORDS), np.uint32)
    for i, values in enumerate(columns):
        table[:, i] = values
    return table


def whole_table(params: Sequence[Placed], *, factored: bool) -> U32:
    """Rows of `Whole`, one a param: where its rows and its sums of squares lie; without rows where not `factored`."""
    rows = [
        (
            p.row_at, p.stack.rows if factored else 0, p.stack.slices, p.parts_at, p.slice_parts, p.scale_at,
            p.segment.numel, 0,
        )
        for p in params
    ]  # fmt: skip
    return np.array(rows, np.uint32).reshape(-1, WORDS)
