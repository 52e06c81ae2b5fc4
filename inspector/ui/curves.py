"""A metric of the history reduced to what a plot can draw, losing neither spikes nor NaN; numpy only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inspector.floats import F64Array
from inspector.history import History, Series

MAX_POINTS = 2048
"""More points than a plot has pixels across; beyond it neighbours are drawn as one."""

NO_STEPS: F64Array = np.empty(0, np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """What to draw of one metric, float64, in the axis' own unit (log10 of the value on a logarithmic axis).

    `x` is the first step of each bucket or group of buckets; `low`, `high` and `last` are NaN where nothing
    can be drawn. The rest are steps to mark at an edge of the plot because their value has no height: `nan`,
    `posinf`, `neginf`, and `below` for what a logarithmic axis cannot hold (0 and less).
    """

    x: F64Array
    low: F64Array
    high: F64Array
    last: F64Array
    nan: F64Array
    posinf: F64Array
    neginf: F64Array
    below: F64Array

    @property
    def drawn(self) -> int:
        """Number of points with a height."""
        return int(np.isfinite(self.last).sum())

    def bounds(self) -> tuple[float, float] | None:
        """The lowest and highest value drawn, None where nothing is."""
        low = np.concatenate([self.low, self.last])
        high = np.concatenate([self.high, self.last])
        low, high = low[np.isfinite(low)], high[np.isfinite(high)]
        if not len(low) or not len(high):
            return None
        return float(low.min()), float(high.max())

    def lonely(self) -> tuple[F64Array, F64Array]:
        """Points without a neighbour to draw a line to: they need a dot to be seen."""
        here = np.isfinite(self.last)
        beside = np.zeros_like(here)
        beside[1:] |= here[:-1]
        beside[:-1] |= here[1:]
        alone = here & ~beside
        return self.x[alone], self.last[alone]

    def envelope(self) -> tuple[F64Array, F64Array]:
        """Vertical strokes from low to high as pairs of points, only where the two differ."""
        spread = np.isfinite(self.low) & np.isfinite(self.high) & (self.high > self.low)
        x = np.repeat(self.x[spread], 2)
        y = np.column_stack([self.low[spread], self.high[spread]]).ravel()
        return x, y


EMPTY_CURVE = Curve(*(NO_STEPS,) * 8)


def has_values(series: Series | None) -> bool:
    """True where anything was recorded, be it NaN."""
    if series is None:
        return False
    return bool(series.gaps.any()) or not bool(np.isnan(series.last).all())


def visible(history: History, start: float, stop: float) -> slice:
    """The buckets that steps [start, stop] touch, and one more on either side: lines reach the edge."""
    first = int(np.searchsorted(history.first, start, side="right")) - 2
    last = int(np.searchsorted(history.first, stop, side="right")) + 1
    return slice(max(first, 0), min(max(last, 0), len(history)))


def curve(
    history: History,
    name: str,
    *,
    start: float = -np.inf,
    stop: float = np.inf,
    log: bool = False,
    max_points: int = MAX_POINTS,
) -> Curve:
    """The metric `name` between steps `start` and `stop` in at most about `max_points` points."""
    series = history.series.get(name)
    if series is None or not len(history):
        return EMPTY_CURVE
    part = visible(history, start, stop)
    x = history.first[part].astype(np.float64)
    low, high, last = series.low[part], series.high[part], series.last[part]
    gaps = series.gaps[part]
    group = -(-len(x) // max_points) if max_points else 1
    if group > 1:
        # Groups start at multiples of their size, so that appending a step moves none of them.
        edges = np.flatnonzero((np.arange(part.start, part.stop) % group) == 0)
        edges = np.unique(np.concatenate([[0], edges]))
        x = x[edges]
        low = np.fmin.reduceat(low, edges)
        high = np.fmax.reduceat(high, edges)
        last = last[np.append(edges[1:], len(last)) - 1]
        gaps = np.add.reduceat(gaps, edges)
    return _drawable(x, low, high, last, gaps, log=log)


def _drawable(
    x: F64Array, low: F64Array, high: F64Array, last: F64Array, gaps: npt.NDArray[np.uint32], *, log: bool
) -> Curve:
    nan = x[gaps > 0]
    posinf, neginf = x[np.isposinf(high)], x[np.isneginf(low)]
    below = NO_STEPS
    if log:
        below = x[np.isfinite(low) & (low <= 0)]
        low, high, last = _log10(low), _log10(high), _log10(last)
    # A bucket that holds an infinity still shows the finite end of its range.
    low, high, last = _finite(low), _finite(high), _finite(last)
    low = np.where(np.isnan(low), last, low)
    high = np.where(np.isnan(high), last, high)
    last = np.where(np.isnan(last) & np.isnan(low), high, last)
    last = np.where(np.isnan(last), low, last)
    return Curve(x, low, high, last, nan, posinf, neginf, below)


def _finite(values: F64Array) -> F64Array:
    return np.where(np.isfinite(values), values, np.nan)


def _log10(values: F64Array) -> F64Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.log10(values), dtype=np.float64)
