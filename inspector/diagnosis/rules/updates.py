"""Rules over the update to come: too large, too small, taken away by ε or by rounding."""

from __future__ import annotations

import math

import numpy as np

from inspector.diagnosis.facts import StepFacts
from inspector.diagnosis.memory import LEAST, Memory, Past
from inspector.diagnosis.metrics import update_ratio
from inspector.diagnosis.rules.rule import Seen, Story, element_at, number, of_params, percent
from inspector.floats import BoolArray, F64Array
from inspector.statistics import BINS, EXPONENT_BIAS

LARGE_RATIO = 0.2
IN_TIMES = 10.0
"""A ratio from here on is told in times, not in percent."""
LEAST_ELEMENTS = 16
LARGEST = 2.0
CALM = 1.5
CALM_STEPS = LEAST
LAG = 4.0
LEAST_NORM = 1e-30
STARVED = 1e-3
STARVED_STEPS = 32
EPS_SHARE = 0.5
EPS_STEPS = 8
LOST_SHARE = 0.5
LOST_STEPS = 8
STUCK_STEPS = 8
RATE_LEFT = 0.01
"""Of the highest learning rate: below it, as at the end of a schedule, weights are meant to come to rest."""

_MIDDLES = 2.0 ** (np.arange(BINS) - EXPONENT_BIAS) * (1 / math.log(2))
"""The mean of a number spread evenly over the logarithm of a bin: [1, 2) has 1 / ln 2."""


def _rms(norm: F64Array, facts: StepFacts) -> F64Array:
    return norm / np.sqrt(np.maximum(facts.numel, 1))


def moving(facts: StepFacts) -> BoolArray:
    """Params whose settings let weights move."""
    return np.asarray((np.asarray(facts.each("lr")) > 0) & (facts.clip_scale != 0) & ~facts.idle)


def large_update(facts: StepFacts, memory: Memory) -> Seen | None:
    """‖Δw‖/‖w‖ far above what trains: the learning rate is too high for weights of that size."""
    table = facts.table
    if table is None:
        return None
    ratio = update_ratio(table)
    # What begins at 0, as biases and adapters do, is small beside its first updates; scalars pass 0 now and then.
    some = (table.lanes["w"].norm > 0) & (memory.now.began > 0) & (table.numel >= LEAST_ELEMENTS)
    hit = (ratio > LARGE_RATIO) & some

    def tell(row: int) -> Story:
        segment = facts.segment(row)
        share = f"{number(ratio[row])} times" if ratio[row] >= IN_TIMES else f"{percent(ratio[row])} of"
        return Story(
            f"The update of {segment.name} is {share} its norm in one step: ‖Δw‖ "
            f"{number(table.update.norm[row])}"
            f", ‖w‖ {number(table.lanes['w'].norm[row])}. About 0.1% is usual.",
            "Lower the learning rate, or lengthen the warm-up; for one param alone check how it was initialised.",
            {
                "update_ratio": float(ratio[row]), "update_norm": float(table.update.norm[row]),
                "w_norm": float(table.lanes["w"].norm[row]), "lr": facts.of_row("lr", row),
            },
            segment.name, None, facts.dispatch_updating(segment.offset),
        )  # fmt: skip

    return of_params(facts, hit, np.where(hit, ratio, 0.0), tell)


# --- v lags behind g²


def is_calm(facts: StepFacts, past: Past) -> BoolArray:
    """Params none of whose elements moves by more than 1.5 learning rates."""
    assert facts.table is not None
    return np.asarray(facts.table.update.largest < CALM)


def lagging_second_moment(facts: StepFacts, memory: Memory) -> Seen | None:
    """An element moves by more than twice the learning rate, since v does not know of the size of g² yet.

    A warning where the param lags without its largest gradient as well. An element alone is no more than a note, and
    that where none has moved so far for long: heavy tails have one now and then, and rows of an embedding that are
    seldom in use at their first gradient after a long time.
    """
    table = facts.table
    if table is None:
        return None
    dense = 2 * table.lanes["g"].zeros < table.numel
    decay = facts.each("weight_decay") * table.lanes["w"].max_abs
    large = table.update.largest - decay > LARGEST
    lag = np.zeros(len(table))
    if large.any():
        lag[large] = second_moment_lag(facts, large)
    g = table.lanes["g"]
    whole = lag * (1 - (g.max_abs / np.maximum(g.norm, LEAST_NORM)) ** 2) >= LAG
    hit = large & (whole | (dense & (memory.before.run("calm") >= CALM_STEPS)))

    def tell(row: int) -> Story:
        segment, at = facts.segment(row), int(table.update.largest_at[row])
        param, index, where = element_at(facts, at)
        behind = f"; over the whole param g² is {number(lag[row])} times v̂" if whole[row] else ""
        return Story(
            f"{where or segment.name} moves by {number(table.update.largest[row])} learning rates in this step: v lags "
            f"behind g², whose size it takes about {number(1 / max(1 - facts.of_row('beta2', row), 1e-12))} steps to "
            f"learn{behind}. "
            f"{'A loss spike often follows.' if whole[row] else 'It is this element alone.'}",
            "Lower β₂ (0.95 is usual for language models), clip, or skip the step; look at the gradient of "
            "this element.",
            {
                "largest_update": float(table.update.largest[row]), "lag": float(lag[row]),
                "beta2": facts.of_row("beta2", row), "lr": facts.of_row("lr", row),
            },
            segment.name, index if param == segment.name else None, facts.dispatch_updating(max(at, 0)),
            severity=None if whole[row] else "info",
        )  # fmt: skip

    # Those that lag as a whole come before elements alone.
    rank = np.where(hit, table.update.largest + 1e3 * whole, 0.0)
    return of_params(facts, hit, np.where(hit, table.update.largest, 0.0), tell, rank)


def second_moment_lag(facts: StepFacts, rows: BoolArray | slice = slice(None)) -> F64Array:
    """Σ(clipScale·g)² over Σv̂ of the steps before, by param: 1 where v knows the size of g², NaN where v is 0.

    Σv is taken from the histogram of v, within a few percent. The square root is RMSₜ of StableAdamW (Wortsman et al.
    2023), taken of the whole param.
    """
    table = facts.table
    assert table is not None
    scale = 1.0 if facts.clip_scale is None else facts.clip_scale
    correction = np.asarray(1 - facts.each("beta2") ** (facts.each("t") - 1))
    if correction.ndim:
        correction = correction[rows]
    sums = table.lanes["v"].exponents[rows] @ _MIDDLES / np.maximum(correction, 1e-12)
    squares = (scale * table.lanes["g"].norm[rows]) ** 2
    return np.where(sums > 0, squares / np.where(sums > 0, sums, 1.0), np.nan)


# --- nothing moves


def is_starved(facts: StepFacts, past: Past) -> BoolArray:
    """Params with gradients whose update is next to nothing in units of the learning rate."""
    table = facts.table
    assert table is not None
    some = (table.lanes["g"].norm > 0) & (table.update.norm > 0)
    return np.asarray(some & (_rms(table.update.norm, facts) < STARVED * facts.each("lr")) & moving(facts))


def starved_update(facts: StepFacts, memory: Memory) -> Seen | None:
    """Updates far below the learning rate: v still holds what gradients were long ago, or ε is too large."""
    if facts.table is None:
        return None
    table, runs = facts.table, memory.now.run("starved")
    rms = _rms(table.update.norm, facts) / np.maximum(facts.each("lr"), 1e-45)

    def tell(row: int) -> Story:
        segment = facts.segment(row)
        return Story(
            f"{segment.name} has moved by {number(rms[row])} learning rates a step (rms) for "
            f"{int(runs[row]):,} steps, about "
            "0.2 to 1 is usual: √v̂ + ε is far larger than its gradients.",
            "Look for a gradient spike before, from which v has not recovered; lower β₂, or reset v of this "
            "param; check ε.",
            {"update_rms": float(rms[row]), "grad_norm": float(table.lanes["g"].norm[row]), "steps": int(runs[row])},
            segment.name, None, facts.dispatch_updating(segment.offset),
        )  # fmt: skip

    hit = runs >= STARVED_STEPS
    return of_params(facts, hit, np.where(hit, 1 / np.maximum(rms, 1e-30), 0.0), tell)


def is_stuck(facts: StepFacts, past: Past) -> BoolArray:
    """Params that have gradients and an update of 0."""
    table = facts.table
    assert table is not None
    rounded = (table.update.lost + table.update.skipped >= table.numel) & ~at_an_end(facts, past)
    still = (table.update.norm == 0) | rounded | (table.update.skipped >= table.numel)
    return np.asarray((table.lanes["g"].norm > 0) & still & moving(facts))


def unchanged_param(facts: StepFacts, memory: Memory) -> Seen | None:
    """A param that never changes although it has a gradient."""
    if facts.table is None:
        return None
    table, runs = facts.table, memory.now.run("stuck")

    def tell(row: int) -> Story:
        segment = facts.segment(row)
        lost, skipped = int(table.update.lost[row]), int(table.update.skipped[row])
        why = (
            f": {skipped:,} updates are not finite"
            if skipped
            else f": {lost:,} updates are rounded away"
            if lost
            else ""
        )
        return Story(
            f"{segment.name} has not changed for {int(runs[row]):,} steps, although its gradient is not 0 (norm "
            f"{number(table.lanes['g'].norm[row])}){why}.",
            "Check the learning rate of this param, and m and v for values that are not finite or far too large.",
            {"grad_norm": float(table.lanes["g"].norm[row]), "lost": lost, "skipped": skipped, "steps": int(runs[row])},
            segment.name, None, facts.dispatch_updating(segment.offset),
        )  # fmt: skip

    hit = runs >= STUCK_STEPS
    return of_params(facts, hit, hit.astype("f8"), tell)


def is_lost(facts: StepFacts, past: Past) -> BoolArray:
    """Params half of whose updates are rounded away."""
    table = facts.table
    assert table is not None
    return np.asarray(
        (table.update.lost > LOST_SHARE * table.numel) & (table.numel > 0) & ~at_an_end(facts, past)
    )


def at_an_end(facts: StepFacts, past: Past) -> BoolArray:
    """Params at either end of a schedule, where the rate is as small as it is meant to be: rising, or nearly gone."""
    lr = np.asarray(facts.each("lr"))
    assert facts.table is not None
    before, peak = past.rates(facts.hyper, facts.layout, facts.table.names)
    return np.asarray((lr > before) | (lr < RATE_LEFT * np.maximum(peak, lr)))


def lost_update(facts: StepFacts, memory: Memory) -> Seen | None:
    """Updates below half a ULP of the weights: they round to nothing."""
    if facts.table is None:
        return None
    table, runs = facts.table, memory.now.run("lost")
    share = table.update.lost / np.maximum(table.numel, 1)

    def tell(row: int) -> Story:
        segment = facts.segment(row)
        return Story(
            f"{percent(share[row])} of the updates of {segment.name} are smaller than half the spacing of "
            "float32 at its "
            f"weights, so these stay as they are; for {int(runs[row]):,} steps.",
            "Raise the learning rate, or keep the weights smaller (decay, initialisation).",
            {"share": float(share[row]), "lost": int(table.update.lost[row]), "steps": int(runs[row])},
            segment.name, None, facts.dispatch_updating(segment.offset),
        )  # fmt: skip

    hit = (runs >= LOST_STEPS) & (memory.now.run("stuck") < STUCK_STEPS)
    return of_params(facts, hit, share * hit, tell)


# --- ε, and v at zero


def below_eps(facts: StepFacts) -> tuple[F64Array, F64Array]:
    """Elements with √v̂ < ε that have a gradient or had one, and all that have, by param; at least that many."""
    table = facts.table
    assert table is not None
    idle = np.minimum(table.lanes["v"].zeros, table.lanes["g"].zeros).astype("f8")
    return np.maximum(table.update.below_eps - idle, 0.0), table.numel - idle


def is_ruled_by_eps(facts: StepFacts, past: Past) -> BoolArray:
    """Params in half of which ε is larger than √v̂."""
    below, active = below_eps(facts)
    return (active > 0) & (below > EPS_SHARE * active)


def eps_dominates(facts: StepFacts, memory: Memory) -> Seen | None:
    """ε and not √v̂ sets the size of the update: Adam has become momentum SGD with a rate of lr/ε."""
    # 8-bit kernels by the linear codec raise ε on purpose.
    if facts.table is None or facts.variant.kernel == "8bit":
        return None
    below, active = below_eps(facts)
    share = below / np.maximum(active, 1)
    runs = memory.now.run("eps")

    def tell(row: int) -> Story:
        segment = facts.segment(row)
        assert facts.table is not None
        return Story(
            f"In {percent(share[row])} of the elements of {segment.name} that get gradients √v̂ is below ε = "
            f"{number(facts.of_row('eps', row))}: ε sets the size of their updates, for {int(runs[row]):,} steps.",
            "Lower ε well below the size of the gradients, or scale the loss up; check that gradients are not "
            "divided twice.",
            {
                "share": float(share[row]), "below_eps": int(below[row]), "eps": facts.of_row("eps", row),
                "grad_norm": float(facts.table.lanes["g"].norm[row]),
            },
            segment.name, None, facts.dispatch_updating(segment.offset),
        )  # fmt: skip

    hit = runs >= EPS_STEPS
    return of_params(facts, hit, share * hit, tell)


ZERO_V_SHARE = 0.01


def zero_second_moment(facts: StepFacts, memory: Memory) -> Seen | None:
    """Second moments at 0 under first moments that are not: the next update divides by ε alone."""
    if facts.table is None or facts.variant.kernel == "8bit":
        return None
    table = facts.table
    count = np.maximum(table.lanes["v"].zeros - table.lanes["m"].zeros, 0)
    share = count / np.maximum(table.numel, 1)
    # Where all of v is 0 under some m, one element is enough.
    hit = (share > ZERO_V_SHARE) & ~facts.idle

    def tell(row: int) -> Story:
        segment = facts.segment(row)
        return Story(
            f"At least {int(count[row]):,} second moments of {segment.name} ({percent(share[row])}) are 0 "
            "under a first "
            f"moment that is not: their update is m̂/ε, with ε {number(facts.of_row('eps', row))}.",
            "Restore v with m, or set both to 0; where g² vanishes in float32, scale the loss up.",
            {"elements": int(count[row]), "share": float(share[row]), "eps": facts.of_row("eps", row)},
            segment.name, None, facts.dispatch_updating(segment.offset),
        )  # fmt: skip

    return of_params(facts, hit, share * hit, tell)
