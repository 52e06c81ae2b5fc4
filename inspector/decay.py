"""The weight decay that each element received, against the size of its gradient: sums over steps, and their histogram.

Adam's m is linear in what it is given, so the part of it that comes from decay can be followed beside it:

    D ← β₁·D + (1-β₁)·λ·w       the part of m that comes from decay, 0 where watching begins
    C ← C + lr·D̂/(√v̂+ε)         L2: what the update took off w because of it; decoupled: lr·λ·w
    W ← W + lr·λ·w              what decoupled decay takes off at the same weights
    S ← S + g'²                 of the gradient of the data, clipped, without decay

D̂ = D/(1-β₁ᵗ) with t of the update, whenever watching began: m̂ = m/(1-β₁ᵗ), and D is a part of that m. Decay that was
in m before watching began is not counted, so C falls short by what about 1/(1-β₁) steps receive; from step 0 on by
nothing.
Source: Loshchilov & Hutter 2019, section 2, for which the share C/W is the claim.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from inspector.floats import F32Array, F64Array
from inspector.hyper import Hyper, Numerics, bias_uniform, hp_uniform
from inspector.optimizers.adamw.oracle import BIAS_FLOOR, update

X_BINS, Y_BINS = 128, 96
WIDTHS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 4.0)
"""Of bins, in octaves: the first that shows what is there is taken."""
TAIL = 1e-4
"""The share of the elements at either end that may lie outside the histogram."""
DECILES = 10
OPTIMIZERS = ("adamw", "adam-l2")

U32Array = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class DecayGrid:
    """The bins: bin i of x holds log2 of the RMS gradient in [x0 + i·dx, x0 + (i+1)·dx), and y so of log2 of the share.

    In octaves. A share of 1 lies in the middle of a bin.
    """

    x0: float
    dx: float
    y0: float
    dy: float

    @property
    def x(self) -> F64Array:
        """Centres, float64 [X_BINS]."""
        return np.asarray(self.x0 + self.dx * (np.arange(X_BINS) + 0.5), np.float64)

    @property
    def y(self) -> F64Array:
        """Centres, float64 [Y_BINS]."""
        return np.asarray(self.y0 + self.dy * (np.arange(Y_BINS) + 0.5), np.float64)


COARSE = DecayGrid(-100.0, 1.0, -48.5, 1.0)
"""Where the elements are looked for before the bins are chosen."""


@dataclass(frozen=True, slots=True, eq=False)
class DecayBins:
    """`counts`, uint32 [X_BINS, Y_BINS], read-only, of elements over so many `steps`; and elements that are in no bin.

    `undecayed`: C or W is 0, or is not finite. `silent`: every gradient was 0. `reversed`: the decay that arrived and
    the decoupled one have opposite signs. `outside`: beyond the bins.
    """

    grid: DecayGrid
    steps: int
    counts: U32Array
    undecayed: int = 0
    silent: int = 0
    reversed: int = 0
    outside: int = 0

    @property
    def total(self) -> int:
        """Elements in bins."""
        return int(self.counts.sum(dtype=np.int64))


class DecayMeter(Protocol):
    """The sums of one run, kept on its device."""

    @property
    def nbytes(self) -> int:
        """Bytes that they take there."""
        ...

    @property
    def elements(self) -> int:
        """How many elements are watched."""
        ...

    def add(self, hyper: Hyper) -> None:
        """Add the update to come; UsageError but between finalize_grad_stats and the update."""
        ...

    def clear(self) -> None:
        """Begin again: all sums 0."""
        ...

    def bins(self, grid: DecayGrid) -> DecayBins:
        """Sort the elements into bins."""
        ...

    def close(self) -> None:
        """Release the sums."""
        ...


# --- the truth


@dataclass(frozen=True, slots=True, eq=False)
class DecaySums:
    """D, C, W and S, an element each, of one shape; float64 as the oracle has them, float32 as read back."""

    m: F64Array | F32Array
    received: F64Array | F32Array
    decoupled: F64Array | F32Array
    squares: F64Array | F32Array

    @classmethod
    def zero(cls, n: int) -> DecaySums:
        """Those of n elements before any step."""
        return cls(*(np.zeros(n) for _ in range(4)))


def add_step(
    sums: DecaySums, w: F64Array, g: F32Array, m: F64Array, v: F64Array, *, scale: float, hyper: Hyper, step: int,
    l2: bool, numerics: Numerics = "published",
) -> DecaySums:  # fmt: skip
    """The sums after the update of step `step` of elements that decay, in float64; w, m and v are those before it.

    `scale` is the clip scale. Where the update is not finite, w stays, and neither kind of decay takes anything off.
    """
    at = update(w, g, m, v, scale=scale, hyper=hyper, step=step, decays=True, numerics=numerics, l2=l2)
    if numerics == "precise":
        lr, beta1, decay = hyper.lr, hyper.beta1, hyper.weight_decay
        left = 1 - beta1**step
    else:
        lr, beta1, _, decay = (float(x) for x in hp_uniform(hyper, decays=True))
        left = max(1 - float(bias_uniform(hyper, step, numerics)[0]), BIAS_FLOOR)
    part = beta1 * sums.m + (1 - beta1) * decay * w
    decoupled = lr * decay * np.asarray(w, np.float64)
    with np.errstate(all="ignore"):
        taken = lr * part / left / at.line("denominator") if l2 else decoupled
    kept = np.isfinite(at.line("update"))
    data = scale * np.where(np.isfinite(g), g, 0.0).astype(np.float64)
    return DecaySums(
        part,
        sums.received + np.where(kept, taken, 0.0),
        sums.decoupled + np.where(kept, decoupled, 0.0),
        sums.squares + data**2,
    )


def binned(sums: DecaySums, steps: int, grid: DecayGrid) -> DecayBins:
    """The sums in bins, as the kernel sorts them, evaluated in float64."""
    c, w, s = (np.asarray(x, np.float64) for x in (sums.received, sums.decoupled, sums.squares))
    with np.errstate(all="ignore"):
        undecayed = ~np.isfinite(c) | ~np.isfinite(w) | (c == 0) | (w == 0)
        silent = ~undecayed & ((s == 0) | ~np.isfinite(s))
        against = ~undecayed & ~silent & ((c < 0) != (w < 0))
        shown = ~(undecayed | silent | against)
        x = np.log2(s[shown] / steps) / 2
        y = np.log2(c[shown] / w[shown])
    i = np.floor((x - grid.x0) / grid.dx)
    j = np.floor((y - grid.y0) / grid.dy)
    inside = (i >= 0) & (i < X_BINS) & (j >= 0) & (j < Y_BINS)
    counts = np.zeros((X_BINS, Y_BINS), np.uint32)
    np.add.at(counts, (i[inside].astype(int), j[inside].astype(int)), 1)
    left = [int(np.count_nonzero(each)) for each in (undecayed, silent, against, ~inside)]
    return DecayBins(grid, steps, counts, *left)


# --- what is read out of bins


def grid_for(coarse: list[DecayBins]) -> DecayGrid:
    """Bins that show all but the tails of what is in `coarse`, which are of COARSE, and a share of 1."""
    low_x, high_x, low_y, high_y = math.inf, -math.inf, 0.0, 0.0
    for bins in coarse:
        if not bins.total:
            continue
        x = _middle(bins.counts.sum(axis=1), COARSE.x0)
        y = _middle(bins.counts.sum(axis=0), COARSE.y0)
        low_x, high_x = min(low_x, x[0]), max(high_x, x[1])
        low_y, high_y = min(low_y, y[0]), max(high_y, y[1])
    if low_x > high_x:
        low_x, high_x = -32.0, 0.0
    dx = _width(high_x - low_x, X_BINS)
    # Half a bin goes below, so that a share of 1 is the middle of one.
    dy = _width(high_y - low_y, Y_BINS - 1)
    x0 = dx * math.floor((low_x + high_x - X_BINS * dx) / 2 / dx)
    y0 = dy * (math.floor((low_y + high_y - (Y_BINS - 1) * dy) / 2 / dy) - 0.5)
    return DecayGrid(x0, dx, y0, dy)


def _middle(counts: npt.NDArray[np.uint64], start: float) -> tuple[float, float]:
    """From where to where all but the tails lie, in whole octaves."""
    reached = np.cumsum(counts, dtype=np.float64)
    first = int(np.searchsorted(reached, TAIL * reached[-1], side="right"))
    last = int(np.searchsorted(reached, (1 - TAIL) * reached[-1], side="left"))
    return start + first, start + last + 1


def _width(span: float, bins: int) -> float:
    return next((width for width in WIDTHS if span <= width * bins), WIDTHS[-1])


@dataclass(frozen=True, slots=True)
class DecayDecile:
    """A tenth of the elements by the size of their gradient, the smallest first.

    `gradient` is the median RMS gradient in it and `share` the median share of the decay that arrived; both to the
    middle of a bin.
    """

    gradient: float
    share: float


def deciles(bins: DecayBins) -> tuple[DecayDecile, ...]:
    """Ten rows, or none where there is nothing in the bins. A column of bins on an edge counts in parts for either."""
    counts = bins.counts.astype(np.float64)
    columns = counts.sum(axis=1)
    total = columns.sum()
    if not total:
        return ()
    upto = np.cumsum(columns)
    below = upto - columns
    rows = []
    for k in range(DECILES):
        low, high = total * k / DECILES, total * (k + 1) / DECILES
        mine = np.clip(np.minimum(upto, high) - np.maximum(below, low), 0, None)
        share = np.divide(mine, columns, out=np.zeros_like(mine), where=columns > 0)
        rows.append(
            DecayDecile(2.0 ** _median(mine, bins.grid.x), 2.0 ** _median(share @ counts, bins.grid.y))
        )
    return tuple(rows)


def median_line(bins: DecayBins) -> F64Array:
    """log2 of the median share by column of bins, float64 [X_BINS]; NaN where a column is empty."""
    return np.array(
        [_median(column, bins.grid.y) if column.any() else math.nan for column in bins.counts], np.float64
    )


def _median(weights: F64Array | U32Array, centres: F64Array) -> float:
    reached = np.cumsum(weights, dtype=np.float64)
    return float(centres[int(np.searchsorted(reached, reached[-1] / 2, side="left"))])
