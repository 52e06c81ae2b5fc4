"""Which part of a matrix is on screen, and at what size; the request that its pixels come from. No Qt."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from inspector.layout import Param
from inspector.looking import MatrixRequest, Moment
from inspector.stores import Lane

VECTOR_COLUMNS = 256
"""A vector is shown in rows of so many elements, as many as an 8-bit block has."""
LARGEST_PIXELS = 64.0
"""An element takes at most so many pixels."""


def columns_of(param: Param) -> int:
    """How many elements a row of the image has: the last extent, a part of a vector."""
    if len(param.shape) >= 2:
        return max(param.shape[-1], 1)
    return max(min(param.numel, VECTOR_COLUMNS), 1)


@dataclass(frozen=True, slots=True)
class MatrixView:
    """A rectangle of `rows` by `columns` elements on `width` by `height` pixels: pixel (0, 0) begins at (left, top).

    `across` and `down` are elements a pixel.
    """

    rows: int
    columns: int
    width: int
    height: int
    left: float = 0.0
    top: float = 0.0
    across: float = 1.0
    down: float = 1.0

    def zoomed(self, factor: float, x: float, y: float) -> MatrixView:
        """Closer by `factor` about a pixel."""
        across = min(max(self.across / factor, 1 / LARGEST_PIXELS), self._whole_across)
        down = min(max(self.down / factor, 1 / LARGEST_PIXELS), self._whole_down)
        moved = replace(
            self, across=across, down=down,
            left=self.left + x * (self.across - across), top=self.top + y * (self.down - down),
        )  # fmt: skip
        return moved.inside()

    def panned(self, dx: float, dy: float) -> MatrixView:
        """Moved by so many pixels."""
        return replace(self, left=self.left + dx * self.across, top=self.top + dy * self.down).inside()

    def revealing(self, row: int, column: int) -> MatrixView:
        """With an element in sight."""
        left, top = self.left, self.top
        if not left <= column < left + self.width * self.across:
            left = column - self.width * self.across / 2
        if not top <= row < top + self.height * self.down:
            top = row - self.height * self.down / 2
        return replace(self, left=left, top=top).inside()

    def resized(self, width: int, height: int) -> MatrixView:
        """On another number of pixels; whole if it was whole."""
        if (self.across, self.down) == (self._whole_across, self._whole_down):
            return whole(self.rows, self.columns, width, height)
        return replace(self, width=width, height=height).inside()

    def inside(self) -> MatrixView:
        """Moved so that nothing outside the matrix is shown that need not be."""
        left = min(max(self.left, 0.0), max(self.columns - self.width * self.across, 0.0))
        top = min(max(self.top, 0.0), max(self.rows - self.height * self.down, 0.0))
        return replace(self, left=left, top=top)

    @property
    def _whole_across(self) -> float:
        return whole(self.rows, self.columns, self.width, self.height).across

    @property
    def _whole_down(self) -> float:
        return whole(self.rows, self.columns, self.width, self.height).down

    def element_at(self, x: float, y: float) -> tuple[int, int] | None:
        """Row and column of the element under a pixel."""
        column, row = math.floor(self.left + x * self.across), math.floor(self.top + y * self.down)
        inside = 0 <= row < self.rows and 0 <= column < self.columns and x >= 0 and y >= 0
        return (row, column) if inside else None

    def place_of(self, row: float, column: float) -> tuple[float, float]:
        """The pixel where an element begins: x, y."""
        return (column - self.left) / self.across, (row - self.top) / self.down

    def request(
        self, param: str, lane: Lane, moment: Moment, ratio: float, *, logarithmic: bool
    ) -> MatrixRequest:
        """The pixels that are needed: of the screen, or one an element where these are larger.

        `ratio` is of physical to logical pixels.
        """
        left, across, width = _axis(self.left, self.across / ratio, round(self.width * ratio), self.columns)
        top, down, height = _axis(self.top, self.down / ratio, round(self.height * ratio), self.rows)
        return MatrixRequest(
            param, lane, moment, self.columns, left, top, across, down, width, height, logarithmic
        )


def whole(rows: int, columns: int, width: int, height: int) -> MatrixView:
    """All of a matrix, its elements no larger than need be and square where they are larger than a pixel."""
    width, height = max(width, 1), max(height, 1)
    across, down = columns / width, rows / height
    if across < 1 and down < 1:
        across = down = max(across, down, 1 / LARGEST_PIXELS)
    across, down = max(across, 1 / LARGEST_PIXELS), max(down, 1 / LARGEST_PIXELS)
    return MatrixView(rows, columns, width, height, 0.0, 0.0, across, down)


def _axis(start: float, each: float, pixels: int, limit: int) -> tuple[float, float, int]:
    """Start, elements a pixel and pixels along one axis, no more than there are elements of."""
    if each <= 1:
        first = math.floor(start)
        last = min(math.ceil(start + pixels * each), limit)
        return float(first), 1.0, max(last - first, 1)
    return start, each, max(min(pixels, math.ceil((limit - start) / each)), 1)
