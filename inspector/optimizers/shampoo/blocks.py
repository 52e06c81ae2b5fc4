"""The blocks that Shampoo splits a matrix into, and what it keeps of each: two Kronecker factors and their roots."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from inspector.errors import UsageError
from inspector.layout import Param
from inspector.optimizers.state_size import StateBuffer
from inspector.param_state import ParamState, Shape
from inspector.plan import DEFAULT_ROOT_BLOCK, Variant

LEFT, RIGHT = "left_factor", "right_factor"
LEFT_ROOT, RIGHT_ROOT = "left_root", "right_root"
SIDE_OF = 8
"""What the side of a factor is a multiple of: its rows are whole vec4s then, and a binding may begin at any factor."""
LEAST_BLOCK, LARGEST_BLOCK = 8, 1024


@dataclass(frozen=True, slots=True)
class BlockGrid:
    """A matrix as `down` by `across` blocks of `height` by `width`; the last ones of a row or column may be smaller."""

    rows: int
    columns: int
    down: int
    across: int
    height: int
    width: int

    def extent(self, i: int, j: int) -> tuple[int, int]:
        """Rows and columns of the matrix that block (i, j) holds; the rest of it is zero."""
        return min(self.height, self.rows - i * self.height), min(self.width, self.columns - j * self.width)


def grid_of(shape: Shape, block: int) -> BlockGrid | None:
    """The blocks of a param of two or more dimensions, flattened to the first by all others; None of any other.

    Sides are cut in as few parts of one size as `block` allows, so that none is much smaller than the others, and
    that size is rounded up to a multiple of SIDE_OF.
    """
    if len(shape) < 2 or not math.prod(shape):
        return None
    rows, columns = shape[0], math.prod(shape[1:])
    (down, height), (across, width) = _parts(rows, block), _parts(columns, block)
    return BlockGrid(rows, columns, down, across, height, width)


def _parts(side: int, block: int) -> tuple[int, int]:
    size = -(-side // -(-side // block))
    size = -(-size // SIDE_OF) * SIDE_OF
    return -(-side // size), size


def takes(param: Param, variant: Variant) -> bool:
    """True for a param of two or more dimensions, which Shampoo steps itself."""
    return len(param.shape) >= 2 and bool(param.numel)


@cache
def states(block: int) -> tuple[ParamState, ...]:
    """What is kept of a matrix: an array [down, across, side, side] of each kind."""

    def left(shape: Shape) -> Shape | None:
        grid = grid_of(shape, block)
        return None if grid is None else (grid.down, grid.across, grid.height, grid.height)

    def right(shape: Shape) -> Shape | None:
        grid = grid_of(shape, block)
        return None if grid is None else (grid.down, grid.across, grid.width, grid.width)

    def sides(shape: Shape) -> Shape:
        grid = grid_of(shape, block)
        return () if grid is None else (grid.height, grid.width)

    def factor(name: str, title: str, shape: Callable[[Shape], Shape | None]) -> ParamState:
        return ParamState(name, title, shape, by_form=True, together=sides)

    def root(name: str, title: str, shape: Callable[[Shape], Shape | None]) -> ParamState:
        return ParamState(name, title, shape, 1.0, diagonal=True, by_form=True, together=sides)

    return (
        factor(LEFT, "Kronecker factor of the rows of each block, from G·Gᵀ", left),
        factor(RIGHT, "Kronecker factor of the columns of each block, from Gᵀ·G", right),
        root(LEFT_ROOT, "inverse fourth root of left_factor", left),
        root(RIGHT_ROOT, "inverse fourth root of right_factor", right),
    )


STATES = states(DEFAULT_ROOT_BLOCK)


def billed(shape: Shape, hidden: bool) -> tuple[StateBuffer, ...]:
    """What a param takes in blocks of the usual size: a matrix m, factors and roots, any other AdamW's m and v."""
    moment = StateBuffer("m", math.prod(shape))
    if grid_of(shape, DEFAULT_ROOT_BLOCK) is None:
        return moment, StateBuffer("v", math.prod(shape))
    shapes = ((each.name, each.shape(shape)) for each in STATES)
    return moment, *(StateBuffer(name, math.prod(own), False) for name, own in shapes if own is not None)


def check_block(variant: Variant) -> None:
    """UsageError for sizes of blocks and intervals that there cannot be."""
    block = variant.root_block
    if not LEAST_BLOCK <= block <= LARGEST_BLOCK or block % SIDE_OF:
        raise UsageError(
            f"--root-block {block} is no size of blocks: give a multiple of {SIDE_OF} from {LEAST_BLOCK} to "
            f"{LARGEST_BLOCK:,}."
        )
    if variant.root_every < 1:
        raise UsageError(f"--root-every {variant.root_every} is no number of steps: give 1 or more.")


def keeps_roots(variant: Variant, step: int) -> bool:
    """True for a step that takes the roots as they are.

    They are worked out anew in each of the first `root_every` steps, in which factors of few gradients change most and
    a root amplifies what they have not seen yet, and in every such step from there on.
    """
    return step > variant.root_every and step % variant.root_every != 0
