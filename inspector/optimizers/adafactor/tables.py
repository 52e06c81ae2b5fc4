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

TILE_ROWS = 64
TILE_COLUMNS = 256
VECTOR_TILE = 4096
"""Elements of a vector that a workgroup works on, as in adafactor.wgsl."""
ENTRIES = 32
"""Means that a workgroup of adafactor_factors makes."""
_WORDS = 8
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
    tables = [np.zeros((0, _WORDS), np.uint32)]
    for number, each in enumerate(p for p in params if window in p.laps):
        (down, across), s = each.tiles, each.stack
        lap, laps = each.laps.index(window), len(each.laps)
        piece, i, j = (
            axis.reshape(-1)
            for axis in np.meshgrid(np.arange(s.slices), np.arange(down), np.arange(across), indexing="ij")
        )
        row, column = i * each.tile[0], j * each.tile[1]
        rows_at = each.row_parts_at + ((piece * laps + lap) * across + j) * s.rows + row
        columns_at = each.column_parts_at + ((piece * laps + lap) * down + i) * s.columns + column
        part_at = each.parts_at + ((piece * laps + lap) * down + i) * across + j
        zero = np.zeros_like(piece)
        columns = (zero + number, piece, row, column, rows_at, columns_at, part_at, zero)
        tables.append(np.stack(columns, axis=1).astype(np.uint32))
    return np.concatenate(tables)


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
    return np.array(rows, np.uint32).reshape(-1, _WORDS)


def entry_table(params: Sequence[Placed]) -> U32:
    """Rows of `Entry`: up to ENTRIES means of one kind each, of rows (kind 0) or columns (1) of one matrix."""
    tables = [np.zeros((0, _WORDS), np.uint32)]
    for p in params:
        (down, across), s, laps = p.tiles, p.stack, len(p.laps)
        for kind, length, of, state_at, parts_at, parts in (
            (0, s.rows, s.columns, p.row_at, p.row_parts_at, laps * across),
            (1, s.columns, s.rows, p.column_at, p.column_parts_at, laps * down),
        ):
            piece, first = (
                axis.reshape(-1)
                for axis in np.meshgrid(np.arange(s.slices), np.arange(0, length, ENTRIES), indexing="ij")
            )
            zero = np.zeros_like(piece)
            columns = (
                state_at + piece * length + first, np.minimum(length - first, ENTRIES),
                parts_at + piece * parts * length + first, zero + length, zero + parts, zero + of, zero + kind, zero,
            )  # fmt: skip
            tables.append(np.stack(columns, axis=1).astype(np.uint32))
    return np.concatenate(tables)


def whole_table(params: Sequence[Placed], *, factored: bool) -> U32:
    """Rows of `Whole`, one a param: where its rows and its sums of squares lie; without rows where not `factored`."""
    rows = [
        (
            p.row_at, p.stack.rows if factored else 0, p.stack.slices, p.parts_at, p.slice_parts, p.scale_at,
            p.segment.numel, 0,
        )
        for p in params
    ]  # fmt: skip
    return np.array(rows, np.uint32).reshape(-1, _WORDS)
