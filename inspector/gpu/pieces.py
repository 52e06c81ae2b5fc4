"""Where parts of lanes are on the device, as data: to be bound, to be read, as they were."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from inspector.gpu.coding import Range

Prepare = Callable[[Any], None]
"""Records into a compute pass what has to run before a piece can be read; it sets pipeline and bind group."""


@dataclass(frozen=True, slots=True)
class Piece:
    """`count` float32 elements from mega-buffer element `first` on: in `buffer` from byte `offset`.

    `prepare`, where there is one, puts them there; they stay until the next piece of that lane is prepared.
    """

    buffer: Any
    offset: int
    count: int
    first: int
    prepare: Prepare | None = None


@dataclass(frozen=True, slots=True)
class SavedRange:
    """`count` elements of a lane from `first` on, as they were: where the values, or the codes and scales, are kept."""

    first: int
    count: int
    values: Range
    scales: Range | None = None


@dataclass(frozen=True, slots=True)
class ElementRanges:
    """Where one element is: its float32, or the byte of its code and the scale of its block."""

    value: Range
    scale: Range | None = None

    def reads(self) -> tuple[tuple[Any, int, int], ...]:
        """What to read, in words: the float32, or the word with the code, then the scale."""
        buffer, at = self.value
        word = (buffer, at // 4 * 4, 4)
        return (word,) if self.scale is None else (word, (*self.scale, 4))
