"""What Adafactor keeps of a param: means over rows and columns of a matrix, the whole second moment of a vector."""

from __future__ import annotations

import math
from dataclasses import dataclass

from inspector.param_state import ParamState, Shape

ROW, COLUMN, VECTOR = "row_var", "col_var", "variance"
"""Named as torch.optim.Adafactor names them."""


def _row(shape: Shape) -> Shape | None:
    return shape[:-1] if len(shape) >= 2 else None


def _column(shape: Shape) -> Shape | None:
    return (*shape[:-2], shape[-1]) if len(shape) >= 2 else None


def _vector(shape: Shape) -> Shape | None:
    return shape if len(shape) < 2 else None


STATES = (
    ParamState(ROW, "second moment, mean over each row", _row),
    ParamState(COLUMN, "second moment, mean over each column", _column),
    ParamState(VECTOR, "second moment of a vector", _vector),
)


@dataclass(frozen=True, slots=True)
class Stack:
    """A param as matrices of `rows` by `columns`, `slices` of them one after the other in memory."""

    slices: int
    rows: int
    columns: int


def stack_of(shape: Shape) -> Stack:
    """The last two dimensions are the matrix; a vector is a matrix of one row."""
    if len(shape) < 2:
        return Stack(1, 1, math.prod(shape))
    return Stack(math.prod(shape[:-2]), shape[-2], shape[-1])
