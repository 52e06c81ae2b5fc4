"""Equally shaped matrices that kernels work on together: in the lanes, and stacked in scratch buffers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from inspector.layout import F32_BYTES, Layout, Segment
from inspector.plan import Access, Binding
from inspector.stores import Lane, store_at

VEC = 4


@dataclass(frozen=True, slots=True)
class Stack:
    """`count` matrices of `rows` by `columns`, float32, one after the other from element `start` of `buffer` on.

    Each row is padded with zeros to `width`, whole vec4s; that is how the kernels in this folder take matrices. Where
    numbers are the sum of two floats (`parts` 2) the first floats of all matrices are followed by the second ones.
    """

    buffer: str
    count: int
    rows: int
    columns: int
    start: int = 0
    parts: int = 1

    @property
    def width(self) -> int:
        """Elements from one row to the next."""
        return -(-self.columns // VEC) * VEC

    @property
    def elements(self) -> int:
        """Elements of all, padding counted."""
        return self.parts * self.count * self.rows * self.width

    @property
    def nbytes(self) -> int:
        """Bytes of all, padding counted."""
        return F32_BYTES * self.elements

    def bound(self, slot: int, name: str, access: Access, *, one_way: bool = False) -> Binding:
        """All of them bound."""
        return Binding(slot, name, self.buffer, F32_BYTES * self.start, self.nbytes, access, one_way=one_way)


@dataclass(frozen=True, slots=True)
class Batch:
    """Params that are matrices of one shape, a fixed number of elements `apart` in the lanes.

    A param of more than two dimensions is a matrix of its first by all others, as convolutions are flattened.
    """

    segments: tuple[Segment, ...]
    apart: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return matrix_shape(self.segments[0])

    @property
    def start(self) -> int:
        """The first element in the lanes."""
        return self.segments[0].offset

    @property
    def stop(self) -> int:
        """The element after the last."""
        return self.segments[-1].stop

    @property
    def name(self) -> str:
        """The first by name, and how many others there are."""
        more = len(self.segments) - 1
        return self.segments[0].name + (f" and {more} more" if more else "")


def matrix_shape(segment: Segment) -> tuple[int, int]:
    """Rows and columns of a param of two or more dimensions."""
    shape = segment.param.shape
    return shape[0], math.prod(shape[1:])


def batches(
    layout: Layout, matrices: Iterable[Segment], lane: Lane, *, bound: int, stacked: int, most: int
) -> Iterator[Batch]:
    """The matrices in batches of one shape, in the order of the first of each.

    The elements from the first to the last of several lie on one page of `lane` and can be bound at once, which takes
    at most `bound` of them; they are at most `most`, and have at most `stacked` elements together. A matrix for which
    this is too little is a batch of its own.
    """
    shapes: dict[tuple[int, int], list[Segment]] = {}
    for segment in matrices:
        shapes.setdefault(matrix_shape(segment), []).append(segment)
    found = [batch for each in shapes.values() for batch in _runs(layout, each, lane, bound, stacked, most)]
    yield from sorted(found, key=lambda batch: batch.start)


def _runs(
    layout: Layout, alike: list[Segment], lane: Lane, bound: int, stacked: int, most: int
) -> Iterator[Batch]:
    most = min(max(stacked // max(alike[0].numel, 1), 1), most)
    # As many parts of nearly one size as there have to be: a last one of a single matrix would leave a device idle.
    most = -(-len(alike) // -(-len(alike) // most))
    run: list[Segment] = []
    apart = 0
    for segment in alike:
        fits = run and len(run) < most and segment.stop - run[0].offset <= bound
        fits = fits and segment.stop <= store_at(layout, lane, run[0].offset).stop
        if fits and (len(run) == 1 or segment.offset - run[-1].offset == apart):
            apart = segment.offset - run[-1].offset
            run.append(segment)
            continue
        if run:
            yield Batch(tuple(run), apart)
        run, apart = [segment], 0
    if run:
        yield Batch(tuple(run), apart)
