"""Blocks of matrices that Shampoo's kernels work on together: which, where they lie, and the tables that say so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from inspector.layout import Layout, Segment
from inspector.optimizers.shampoo.blocks import LEFT, RIGHT, BlockGrid, grid_of
from inspector.param_state import PlacedState
from inspector.stores import store_at

StateAt = Mapping[tuple[str, str], PlacedState]


@dataclass(frozen=True, slots=True)
class Band:
    """Blocks [first, last) of row `number` of those of a matrix; their factors follow each other in their buffers."""

    segment: Segment
    grid: BlockGrid
    number: int
    first: int
    last: int

    @property
    def count(self) -> int:
        """How many blocks there are."""
        return self.last - self.first

    @property
    def start(self) -> int:
        """The first element in the lanes of its rows of the matrix, which follow each other."""
        return self.segment.offset + self.number * self.grid.height * self.grid.columns

    @property
    def stop(self) -> int:
        """The element after the last of these rows."""
        rows, _ = self.grid.extent(self.number, 0)
        return self.start + rows * self.grid.columns

    @property
    def elements(self) -> int:
        """Elements of the matrix in its blocks."""
        extents = (self.grid.extent(self.number, j) for j in range(self.first, self.last))
        return sum(rows * columns for rows, columns in extents)


@dataclass(frozen=True)
class Batch:
    """Bands with blocks of one size, whose factors follow each other in the buffers of the states."""

    bands: tuple[Band, ...]
    left: tuple[str, int]
    """The page of buffers with their left factors and the roots of these, and the element that the first begins at."""
    right: tuple[str, int]

    @property
    def height(self) -> int:
        """Rows of each block."""
        return self.bands[0].grid.height

    @property
    def width(self) -> int:
        """Columns of each block."""
        return self.bands[0].grid.width

    @cached_property
    def count(self) -> int:
        """How many blocks there are."""
        return sum(band.count for band in self.bands)

    @property
    def start(self) -> int:
        """The first element in the lanes."""
        return self.bands[0].start

    @property
    def stop(self) -> int:
        """The element after the last."""
        return self.bands[-1].stop

    @cached_property
    def elements(self) -> int:
        """Elements of the matrices in it."""
        return sum(band.elements for band in self.bands)

    @cached_property
    def name(self) -> str:
        """The first param and which of its blocks, counted from 0 by row, and how many other params there are."""
        first = self.bands[0]
        own = [band for band in self.bands if band.segment is first.segment]
        across = first.grid.across
        low, high = first.number * across + first.first, own[-1].number * across + own[-1].last - 1
        blocks = f"block {low}" if low == high else f"blocks {low}-{high}"
        more = len({band.segment.name for band in self.bands}) - 1
        return f"{first.segment.name} {blocks}" + (f" and {more} more" if more else "")

    def runs(self) -> Iterator[tuple[int, int]]:
        """Its elements [start, stop) in the lanes, without what lies between params."""
        low = high = self.start
        for band in self.bands:
            if band.start > high:
                yield low, high
                low = band.start
            high = band.stop
        yield low, high

    def table(self, start: int) -> npt.NDArray[np.uint32]:
        """Rows of `Block` in the kernels, uint32[count, 4], for lanes that are bound from element `start` on."""
        rows = [
            # Before the binding where it begins in the middle of a block: u32 wraps, there and here.
            (
                (band.start + j * band.grid.width - start) % 2**32,
                band.grid.columns,
                *band.grid.extent(band.number, j),
            )
            for band in self.bands
            for j in range(band.first, band.last)
        ]
        return np.array(rows, np.uint32)


def batches(
    layout: Layout,
    matrices: Iterable[Segment],
    block: int,
    states: StateAt,
    *,
    bound: int,
    stacked: int,
    most: int,
) -> Iterator[Batch]:
    """The bands of the matrices in batches: of blocks of one size those that lie behind each other in the states.

    All elements from the first to the last band of several lie on one page of the lanes and can be bound at once, which
    takes at most `bound` of them. A batch has at most `most` blocks, and no more than `stacked` elements of any kind in
    them; bands are cut where this is too little for one.
    """
    run: list[Band] = []
    count = 0
    grids = [
        (segment, grid) for segment in matrices if (grid := grid_of(segment.param.shape, block)) is not None
    ]
    for segment, grid in sorted(grids, key=lambda pair: (pair[1].height, pair[1].width)):
        together = max(min(stacked // max(grid.height, grid.width) ** 2, most), 1)
        for band in _bands(segment, grid, together):
            if run and not (
                count + band.count <= together and _goes_with(layout, run[0], run[-1], band, states, bound)
            ):
                yield _batch(run, states)
                run, count = [], 0
            run.append(band)
            count += band.count
    if run:
        yield _batch(run, states)


def _bands(segment: Segment, grid: BlockGrid, most: int) -> Iterator[Band]:
    for number in range(grid.down):
        for first in range(0, grid.across, most):
            yield Band(segment, grid, number, first, min(first + most, grid.across))


def _goes_with(layout: Layout, first: Band, last: Band, band: Band, states: StateAt, bound: int) -> bool:
    """True where a band may be in a batch that so begins and ends, as far as its place and its size go."""
    if (first.grid.height, first.grid.width) != (band.grid.height, band.grid.width):
        return False
    low = first.start // layout.align * layout.align
    if band.stop - low > bound or band.stop > store_at(layout, "v", first.start).stop:
        return False
    # What follows in the same param does in its states; of the next the states may begin further on.
    return band.segment is last.segment or all(
        _factor(last, name, states, after=True) == _factor(band, name, states) for name in (LEFT, RIGHT)
    )


def _batch(run: list[Band], states: StateAt) -> Batch:
    return Batch(tuple(run), _factor(run[0], LEFT, states), _factor(run[0], RIGHT, states))


def _factor(band: Band, name: str, states: StateAt, *, after: bool = False) -> tuple[str, int]:
    """The buffer and the element at which the first factor of a band begins; with `after` at which the last ends.

    Roots lie in buffers of their own as factors lie in theirs, since they are as large.
    """
    placed = states[name, band.segment.name]
    side = band.grid.height if name == LEFT else band.grid.width
    number = band.number * band.grid.across + (band.last if after else band.first)
    return placed.buffer.removeprefix(name), placed.start + number * side * side
