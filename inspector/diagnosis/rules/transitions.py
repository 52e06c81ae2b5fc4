"""Rules over two steps in a row: what the kernels left has to follow from what they were given.

Of norms alone, by the triangle inequality: what a sum of two vectors can come to. Elements are compared where a user's
own kernels run (`own_kernels.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from inspector.diagnosis.facts import StepFacts
from inspector.diagnosis.memory import Columns, Memory
from inspector.diagnosis.rules.rule import Seen, Story, number, of_params
from inspector.floats import BoolArray, F64Array
from inspector.optimizers import optimizer
from inspector.param_hyper import columns
from inspector.stores import Lane

SLACK = 1e-4
"""Of the norms: rounding of elements comes to a thousandth of it."""
LEAST_NORM = 1e-30
"""Below it squares and moments leave the normal float32 numbers."""
MOMENTS: tuple[Lane, ...] = ("m", "v")
SEEN = 1e-5
"""An update of that share of the weights cannot leave norm, least and largest of them as they are."""


@dataclass(frozen=True, slots=True, eq=False)
class _Pair:
    """A step and the one before, where nothing else came between."""

    was: StepFacts
    old: Columns
    new: Columns
    clean: BoolArray
    """Params without anything that is not finite, of which norms therefore tell all."""


def _pair(facts: StepFacts, memory: Memory) -> _Pair | None:
    return memory.shared("pair of steps", lambda: _paired(facts, memory))


def _paired(facts: StepFacts, memory: Memory) -> _Pair | None:
    before, now = memory.before, memory.now
    was, old, new = before.facts, before.columns, now.columns
    if facts.table is None or was is None or old is None or new is None or was.step != facts.step - 1:
        return None
    if (
        facts.put_in_place
        or was.variant != facts.variant
        or before.layout is None
        or before.names != now.names
    ):
        return None
    lanes = facts.table.lanes
    clean = (lanes["w"].nonfinite + lanes["m"].nonfinite + lanes["v"].nonfinite) == 0
    finite = np.isfinite(old.update) & np.isfinite(old.w)
    return _Pair(was, old, new, clean & finite & (facts.table.numel > 0))


def update_not_applied(facts: StepFacts, memory: Memory) -> Seen | None:
    """Weights that are as before, although the update was not 0."""
    pair = _pair(facts, memory)
    if pair is None or facts.table is None:
        return None
    same = pair.new.w == pair.old.w
    for a, b in zip(pair.new.w_places, pair.old.w_places, strict=True):
        same &= a == b
    hit = pair.clean & same & (pair.old.update > SEEN * pair.old.w) & (pair.old.update > LEAST_NORM)

    def tell(row: int) -> Story:
        segment = facts.segment(row)
        return Story(
            f"The weights of {segment.name} are as they were before step {pair.was.step:,}, whose update has a norm of "
            f"{number(pair.old.update[row])}: no dispatch applied it.",
            "Check that the update kernel's bindings, size and grid cover this param, and that it writes w.",
            {"update_norm": float(pair.old.update[row]), "w_norm": float(pair.new.w[row])},
            segment.name, None, facts.dispatch_updating(segment.offset),
        )  # fmt: skip

    return of_params(
        facts, hit, np.where(hit, pair.old.update / np.maximum(pair.old.w, LEAST_NORM), 0.0), tell
    )


def unexplained_weights(facts: StepFacts, memory: Memory) -> Seen | None:
    """Weights whose norm changed by more than the update's."""
    pair = _pair(facts, memory)
    if pair is None:
        return None
    off = np.abs(pair.new.w - pair.old.w)
    hit = pair.clean & (off > pair.old.update * (1 + SLACK) + SLACK * pair.old.w + LEAST_NORM)

    def tell(row: int) -> Story:
        segment = facts.segment(row)
        return Story(
            f"‖w‖ of {segment.name} went from {number(pair.old.w[row])} to {number(pair.new.w[row])} in step "
            f"{pair.was.step:,}, whose update has a norm of {number(pair.old.update[row])} only: something "
            "else wrote to "
            "the weights, or the update kernel does not compute AdamW.",
            "Explain an element of this param in that step (inspector explain), and look for other writers of w.",
            {
                "w_norm": float(pair.new.w[row]), "before": float(pair.old.w[row]),
                "update_norm": float(pair.old.update[row]),
            },
            segment.name, None, facts.dispatch_updating(segment.offset),
        )  # fmt: skip

    return of_params(facts, hit, np.where(hit, off / np.maximum(pair.old.update, LEAST_NORM), 0.0), tell)


@dataclass(frozen=True, slots=True, eq=False)
class _Bounds:
    """What norms of m and v can come to in a step, by lane and param."""

    low: dict[Lane, F64Array]
    high: dict[Lane, F64Array]

    def outside(self, lane: Lane, norm: F64Array, rows: Any = slice(None)) -> F64Array:
        """How far beyond them the norms are, at these rows; at most 0 within."""
        return np.asarray(np.maximum(norm - self.high[lane][rows], self.low[lane][rows] - norm))

    def slack(self, lane: Lane) -> F64Array:
        """What rounding may add."""
        return SLACK * self.high[lane] + LEAST_NORM


def _bounds(facts: StepFacts, pair: _Pair, memory: Memory) -> _Bounds | None:
    return memory.shared("bounds of moments", lambda: _bounded(facts, pair))


def _bounded(facts: StepFacts, pair: _Pair) -> _Bounds | None:
    """None where norms alone do not tell, or settings are not those of AdamW."""
    if facts.table is None or pair.was.clip_scale is None or not np.isfinite(pair.was.clip_scale):
        return None
    # Codes round m and v by far more; the decay in the gradient adds to it.
    if facts.variant.kernel == "8bit" or optimizer(facts.variant.optimizer).decay_in_gradient:
        return None
    scale = 1.0 if facts.origin else abs(pair.was.clip_scale)
    # As rounded to float32, in which 1 - 0.99999 is 1.4e-3 too large.
    used = columns(pair.was.hyper, pair.was.layout, facts.table.names, pair.was.step)
    beta1, beta2 = (np.asarray(x.astype(np.float32), np.float64) for x in (used.beta1, used.beta2))
    if not ((beta1 >= 0) & (beta1 < 1) & (beta2 >= 0) & (beta2 < 1)).all():
        return None
    rest2 = np.asarray(1 - (beta2 if facts.variant.numerics == "published" else used.beta2))
    if pair.was.hyper.per_param is not None:
        # What takes no part stays as it is.
        beta1, beta2 = (np.where(used.idle, 1.0, beta) for beta in (beta1, beta2))
        rest2 = np.where(used.idle, 0.0, rest2)
    m_old, m_new = beta1 * pair.old.m, (1 - beta1) * scale * pair.old.g
    v_old = beta2 * pair.old.v
    v_new = rest2 * scale**2 * pair.old.g_max * pair.old.g
    return _Bounds({"m": np.abs(m_old - m_new), "v": v_old}, {"m": m_old + m_new, "v": v_old + v_new})


def exchanged_moments(facts: StepFacts, memory: Memory) -> dict[int, int]:
    """Pairs of params of one shape, both ways, whose m and v follow from those of the other and not from their own."""
    pair = _pair(facts, memory)
    bounds = _bounds(facts, pair, memory) if pair is not None else None
    if pair is None or bounds is None:
        return {}
    norms = {lane: getattr(pair.new, lane) for lane in MOMENTS}
    off = np.zeros(len(pair.clean), bool)
    for lane in MOMENTS:
        off |= bounds.outside(lane, norms[lane]) > bounds.slack(lane)
    odd = np.flatnonzero(off & pair.clean)
    shapes: dict[tuple[int, ...], list[int]] = {}
    for row in odd.tolist():
        shapes.setdefault(facts.segment(row).param.shape, []).append(row)
    found: dict[int, int] = {}
    for rows in shapes.values():
        for a in rows:
            others = np.array([b for b in rows if b not in found and b != a], np.int64)
            if a in found or not len(others):
                continue
            fits = np.ones(len(others), bool)
            for lane in MOMENTS:
                slack = bounds.slack(lane)
                fits &= bounds.outside(lane, norms[lane][a], others) <= slack[others]
                fits &= bounds.outside(lane, norms[lane][others], a) <= slack[a]
            if fits.any():
                b = int(others[np.flatnonzero(fits)[0]])
                found[a], found[b] = b, a
    return found


def unexplained_moments(facts: StepFacts, memory: Memory) -> Seen | None:
    """m or v whose norm cannot follow from the moments and gradients of the step before."""
    pair = _pair(facts, memory)
    bounds = _bounds(facts, pair, memory) if pair is not None else None
    if pair is None or bounds is None:
        return None
    lows, highs = bounds.low, bounds.high
    off: dict[Lane, F64Array] = {}
    for lane in MOMENTS:
        outside = bounds.outside(lane, getattr(pair.new, lane))
        off[lane] = np.where(
            pair.clean & (outside > bounds.slack(lane)), outside / np.maximum(highs[lane], LEAST_NORM), 0.0
        )
    hit = (off["m"] > 0) | (off["v"] > 0)

    def tell(row: int) -> Story:
        segment = facts.segment(row)
        lane: Lane = "m" if off["m"][row] >= off["v"][row] else "v"
        formula = "β₁·m + (1-β₁)·g'" if lane == "m" else "β₂·v + (1-β₂)·g'²"
        norm = float(getattr(pair.new, lane)[row])
        return Story(
            f"‖{lane}‖ of {segment.name} is {number(norm)} after step {pair.was.step:,}; {formula} of what was "
            "there lies "
            f"between {number(lows[lane][row])} and {number(highs[lane][row])}.",
            f"Check the line of {lane} in the update kernel, and that nothing else writes to it.",
            {"lane": lane, "norm": norm, "least": float(lows[lane][row]), "most": float(highs[lane][row])},
            segment.name, None, facts.dispatch_updating(segment.offset),
        )  # fmt: skip

    return of_params(facts, hit, np.maximum(off["m"], off["v"]), tell)
