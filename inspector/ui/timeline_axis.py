"""The step axis of the timeline: the stretch in view, its ticks, and where steps lie in it. No Qt."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from inspector.floats import F64Array
from inspector.stepping import Cursor

IntArray = npt.NDArray[np.int64]

LEAST_STEPS = 8.0
"""In view at the closest zoom: each is wide enough to hit."""


def position(cursor: Cursor) -> float:
    """A cursor on the axis: finished steps, and the part of the one in progress."""
    if cursor.at_end or not cursor.count:
        return float(cursor.finished_steps)
    return cursor.finished_steps + cursor.dispatch / cursor.count


def axis_end(known: int) -> int:
    """A round number of steps with some room ahead, so that the axis rarely changes while it runs."""
    room = max(known * 1.1, 20)
    decade = 10 ** math.floor(math.log10(room))
    return int(next(decade * m for m in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if decade * m >= room))


def tick_steps(end: int, most: int, start: int = 0) -> Iterator[int]:
    """Round steps from `start` to `end`, at most about `most`."""
    least = max((end - start) / max(most, 1), 1)
    decade = 10 ** math.floor(math.log10(least))
    step = int(next(decade * m for m in (1, 2, 5, 10) if decade * m >= least * 0.999))
    return iter(range(-(-start // step) * step, end + 1, step))


@dataclass(frozen=True, slots=True)
class Span:
    """What is in view: finished steps `start` to `stop` over `width` pixels from pixel `left` on."""

    start: float
    stop: float
    width: float
    left: float = 0.0

    def x_of(self, step: float) -> float:
        """The pixel of a number of finished steps."""
        return self.left + (step - self.start) * self.pixels_per_step

    def step_of(self, x: float) -> float:
        """The number of finished steps at a pixel."""
        return self.start + (x - self.left) / self.pixels_per_step

    @property
    def pixels_per_step(self) -> float:
        """How wide a step is."""
        return self.width / (self.stop - self.start)

    def zoomed(self, factor: float, x: float, whole: Span) -> Span:
        """Closer by `factor` about pixel `x`, never beyond `whole` nor closer than LEAST_STEPS."""
        most = whole.stop - whole.start
        length = min(max((self.stop - self.start) / factor, min(LEAST_STEPS, most)), most)
        share = min(max((x - self.left) / self.width, 0.0), 1.0)
        start = self.step_of(self.left + share * self.width) - share * length
        return replace(self, start=start, stop=start + length).inside(whole)

    def inside(self, whole: Span) -> Span:
        """Moved, and where it is longer shortened, into `whole`."""
        length = min(self.stop - self.start, whole.stop - whole.start)
        start = min(max(self.start, whole.start), whole.stop - length)
        return replace(self, start=start, stop=start + length)

    def showing(self, step: float, whole: Span) -> Span:
        """The same, or moved so far that `step` is in view, with a tenth of the length before it."""
        if self.start <= step <= self.stop:
            return self
        length = self.stop - self.start
        start = step - length * (0.1 if step > self.stop else 0.9)
        return replace(self, start=start, stop=start + length).inside(whole)


def pixels_of(steps: IntArray, span: Span) -> F64Array:
    """The pixels of those steps that are in view, one a pixel at most: float64, ascending. `steps` are ascending.

    Costs a search a pixel, however many steps there are.
    """
    first, last = np.searchsorted(steps, (span.start, span.stop + 1e-9))
    if last - first > span.width:
        at = np.searchsorted(steps, np.linspace(span.start, span.stop, int(span.width) + 1))
        shown = steps[at[:-1][at[1:] > at[:-1]]]
    else:
        shown = steps[first:last]
    x = np.asarray(span.left + (shown - span.start) * span.pixels_per_step, np.float64)
    return x[np.diff(np.floor(x), prepend=-np.inf) > 0]


def covered(stretches: IntArray, span: Span) -> list[tuple[float, float]]:
    """The pixels that stretches of steps [first, last] cover, as [left, right); int64 [n, 2], ascending and apart.

    A stretch lies from the end of the step before it to the end of its last.
    """
    starts, ends = stretches[:, 0] - 1, stretches[:, 1]
    first = int(np.searchsorted(ends, span.start))
    last = int(np.searchsorted(starts, span.stop, side="right"))
    if last - first <= span.width:
        pairs = zip(starts[first:last].tolist(), ends[first:last].tolist(), strict=True)
        return [(span.x_of(max(a, span.start)), span.x_of(min(b, span.stop))) for a, b in pairs]
    edges = np.linspace(span.start, span.stop, int(span.width) + 1)
    at = np.searchsorted(starts, edges[1:], side="right") - 1
    inside = (at >= 0) & (ends[np.maximum(at, 0)] >= edges[:-1])
    turns = np.flatnonzero(np.diff(inside.astype(np.int8), prepend=0, append=0)).reshape(-1, 2)
    return [(span.left + float(a), span.left + float(b)) for a, b in turns]
