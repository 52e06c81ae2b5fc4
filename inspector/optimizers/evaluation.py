"""What an oracle gives: the state after an update, and every line that led there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.floating[Any]]
FloatType = type[np.float32] | type[np.float64]
Scalar = np.floating[Any]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the update: what is computed, the formula as a person reads it, and its value."""

    name: str
    formula: str
    value: Array


@dataclass(frozen=True, slots=True)
class Updated:
    """w, m, v after one step (same shape and dtype as the evaluation), and every line that led there."""

    w: Array
    m: Array
    v: Array
    lines: tuple[Line, ...]

    def line(self, name: str) -> Array:
        """The value of the line of that name."""
        return next(line.value for line in self.lines if line.name == name)


@dataclass(frozen=True, slots=True)
class UpdatedParam:
    """A param after one step (w in its shape, states in theirs), and every line that led there, in any shape."""

    w: Array
    states: Mapping[str, Array]
    lines: tuple[Line, ...]

    def line(self, name: str) -> Array:
        """The value of the line of that name."""
        return next(line.value for line in self.lines if line.name == name)
