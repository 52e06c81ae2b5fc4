"""Rules over w, m and v as they are before the update, and over the step counter."""

from __future__ import annotations

import math

import numpy as np

from inspector.diagnosis.facts import StepFacts
from inspector.diagnosis.memory import Memory
from inspector.diagnosis.rules.rule import Seen, Story, alone, element_at, number, of_params
from inspector.diagnosis.rules.transitions import exchanged_moments
from inspector.diagnosis.rules.updates import second_moment_lag
from inspector.floats import F64Array
from inspector.number_words import nonfinite_counts
from inspector.param_statistics import counts_of
from inspector.statistics import BufferStats
from inspector.stores import Lane

LANES: tuple[Lane, ...] = ("w", "m", "v")
NAMES = {"w": "weights", "m": "first moments", "v": "second moments"}
LAST_COUNT = 2**24
"""The largest step up to which float32 counts every one."""
MISFIT = 3.0
"""log₂: v is eight times too large or too small for the gradients, either way."""
FITS = 1.0


def nonfinite_state(facts: StepFacts, memory: Memory) -> Seen | None:
    """Weights or moments that are not finite before the update."""
    counts: dict[Lane, BufferStats] = {}
    for lane in LANES:
        given = facts.initial_state.get(lane)
        counted = None
        if facts.table is not None and facts.table.lanes[lane].nonfinite.any():
            counted = counts_of(facts.table, lane)
        chosen = counted or given
        if chosen is not None:
            counts[lane] = chosen
    if not counts and facts.table is None:
        return None
    total = np.array([counts[lane].nonfinite.total if lane in counts else 0 for lane in LANES])

    def tell(row: int) -> Story:
        lane = LANES[row]
        stats = counts[lane]
        bad = stats.nonfinite
        param, index, where = element_at(facts, bad.first)
        after = (
            "They stay so in every step to come, and spread to all that is computed from them."
            if facts.origin
            else "An update that is not finite leaves its weight as it was, so these elements no longer train."
        )
        return Story(
            f"{bad.total:,} of {stats.count:,} {NAMES[lane]} were not finite before this step ("
            f"{nonfinite_counts(bad.nan, bad.posinf, bad.neginf)})"
            f"{f', the first in {where}' if where else ''}. {after}",
            "Go back to a state from before they appeared.",
            {"lane": lane, "nan": bad.nan, "posinf": bad.posinf, "neginf": bad.neginf, "elements": stats.count},
            param, index, 0,
        )  # fmt: skip

    return Seen(total > 0, total.astype("f8"), tell, names=LANES)


def negative_second_moment(facts: StepFacts, memory: Memory) -> Seen | None:
    """Second moments below 0, of which there is no root."""
    if facts.table is None:
        return None
    low = facts.table.lanes["v"].low
    hit = low < 0

    def tell(row: int) -> Story:
        segment = facts.segment(row)
        return Story(
            f"{segment.name} has second moments below 0, the least is {number(low[row])}: v is a mean of "
            "squares, and the "
            "update takes its root.",
            "Check that m and v were not exchanged when the state was restored, and what writes to v.",
            {"lowest": float(low[row])}, segment.name, None, facts.dispatch_updating(segment.offset),
        )  # fmt: skip

    return of_params(facts, hit, np.where(hit, -low, 0.0), tell)


# --- the counter


def step_counter_reset(facts: StepFacts, memory: Memory) -> Seen | None:
    """Moments of a run that has gone on for long, with a counter that says this is one of its first steps."""
    if facts.step == 1:
        moments = facts.initial_moments
        if facts.table is not None:
            moments = moments or any(bool((facts.table.lanes[x].norm > 0).any()) for x in ("m", "v"))
        return alone(moments, lambda: _reset_at_1(facts))
    if memory.first != facts.step or facts.table is None or facts.clip_scale is None:
        return None
    # Later the bias correction of a counter that is too low makes v̂ too large for the gradients.
    steps = facts.step - 1
    # Params may have β₂ and step counts of their own: the middle one stands for all.
    betas, counts = np.atleast_1d(facts.each("beta2")), np.atleast_1d(facts.each("t")) - 1
    if not ((betas > 0) & (betas < 1)).all() or not len(betas):
        return None
    beta2 = float(np.median(betas))
    correction = float(np.median(1 - betas**counts))
    fit = 1 / second_moment_lag(facts)
    known = fit[np.isfinite(fit)]
    too_large = float(np.median(known)) if len(known) else math.nan
    hit = correction < 0.1 and too_large >= max(10.0, 0.25 / correction)

    def tell() -> Story:
        return Story(
            f"The run begins after step {steps:,}, and v̂ is {number(too_large)} times g² in the middle of the "
            "params: the "
            f"moments belong to a later step, and the bias correction takes v for {number(1 / correction)} "
            "times what it is.",
            "Restore t with the moments, or start with m = v = 0.",
            {"t": facts.step, "ratio": too_large, "beta2": beta2},
        )

    return alone(hit, tell)


def _reset_at_1(facts: StepFacts) -> Story:
    beta2 = facts.hyper.beta2
    factor = number(1 / (1 - beta2)) if beta2 < 1 else "infinitely"
    return Story(
        "The moments m and v are not zero before step 1: the step counter was lost. The bias correction of "
        "step 1 takes v "
        f"for {factor} times what it is.",
        "Restore t with the moments, or start with m = v = 0.",
        {"t": facts.step, "beta1": facts.hyper.beta1, "beta2": beta2},
    )


def step_counter_stuck(facts: StepFacts, memory: Memory) -> Seen | None:
    """A step that float32 cannot count up to: t + 1 = t, so that frameworks that keep t in float32 stand still; or the
    counts of params as a run recorded them, which do."""
    standing = _standing(facts, memory)
    if standing:
        return alone(True, lambda: _counts_stand(facts, standing), len(standing))

    def tell() -> Story:
        return Story(
            f"Step {facts.step:,} is beyond 2^24 = {LAST_COUNT:,}, up to which float32 counts: t + 1 rounds to "
            "t where the "
            "counter is kept in float32, as PyTorch's fused and capturable AdamW do.",
            "Keep t as an integer or in float64; the bias correction is 1 here either way.",
            {"t": facts.step, "float32": float(np.float32(facts.step))},
        )

    return alone(facts.step >= LAST_COUNT, tell)


def _standing(facts: StepFacts, memory: Memory) -> list[int]:
    """The numbers of params that took this step and the one before with the same count."""
    before, now = memory.before.facts, facts.hyper.per_param
    if before is None or before.step != facts.step - 1 or now is None:
        return []
    was = before.hyper.per_param
    # Where all share the settings of the run, their count is that of the run.
    of = (0,) * len(now.of) if was is None else was.of
    pairs = list(zip(now.of, of, strict=False))

    def stands(pair: tuple[int, int]) -> bool:
        here = now.classes[pair[0]]
        behind, idle = (0, False) if was is None else (was.classes[pair[1]].behind, was.classes[pair[1]].idle)
        return not here.idle and not idle and here.t(facts.step) == facts.step - 1 - behind

    bad = {pair for pair in set(pairs) if stands(pair)}
    return [number for number, pair in enumerate(pairs) if pair in bad] if bad else []


def _counts_stand(facts: StepFacts, standing: list[int]) -> Story:
    per_param = facts.hyper.per_param
    assert per_param is not None
    numbered = facts.layout.given
    name = numbered[standing[0]].name
    t = per_param.classes[per_param.of[standing[0]]].t(facts.step)
    more = f" and {len(standing) - 1:,} more" if len(standing) > 1 else ""
    return Story(
        f"The step count of {name}{more} was {t:,} in the step before and is {t:,} in this one: the counter does not "
        "move, and the bias correction stays what it is at that count.",
        "Look at what advances the counter: a count kept in float32 beyond 2^24 or in float16 beyond 2,048, a state "
        "that is loaded again in every step, or a graph that was captured with a constant.",
        {"t": t, "step": facts.step, "params": len(standing)}, name,
    )  # fmt: skip


# --- moments that do not belong to the params


def missing_moments(facts: StepFacts, memory: Memory) -> Seen | None:
    """Params without moments in a run that goes on, while others have theirs."""
    if facts.table is None or memory.first != facts.step or facts.step == 1:
        return None
    lanes, numel = facts.table.lanes, facts.table.numel
    without = (lanes["m"].norm == 0) & (lanes["v"].norm == 0) & (lanes["g"].norm > 0) & (numel > 0)
    some = bool(((lanes["v"].norm > 0) & (numel > 0)).any())
    none = (lanes["m"].norm == 0) != (lanes["v"].norm == 0)
    hit = (without & some) | (none & (numel > 0) & (lanes["g"].norm > 0))

    def tell(row: int) -> Story:
        segment = facts.segment(row)
        what = "m and v" if without[row] else "m" if lanes["m"].norm[row] == 0 else "v"
        return Story(
            f"{what} of {segment.name} are 0 before step {facts.step:,}, while other params have moments: they "
            "were not "
            "restored.",
            "Check that the names in the checkpoint match the params.",
            {"elements": segment.numel, "t": facts.step}, segment.name, None, facts.dispatch_updating(segment.offset),
        )  # fmt: skip

    return of_params(facts, hit, hit.astype("f8"), tell)


def swapped_moments(facts: StepFacts, memory: Memory) -> Seen | None:
    """Moments of params of the same shape exchanged: v of each fits the gradients of another."""
    if facts.table is None or facts.step == 1 or facts.clip_scale is None:
        return None
    if memory.first != facts.step:
        return _exchanged_in_mid_run(facts, memory)
    pairs = _swapped_pairs(facts)
    hit = np.zeros(len(facts.table), bool)
    hit[list(pairs)] = True

    def tell(row: int) -> Story:
        segment, other = facts.segment(row), facts.segment(pairs[row][0])
        own, crossed = pairs[row][1:]
        return Story(
            f"v of {segment.name} is {number(own)} times its g², and {number(crossed)} times that of "
            f"{other.name}, which has "
            "the same shape: their moments seem to be exchanged.",
            "Check the order in which the state was restored: by name, not by position.",
            {"v_over_g2": own, "with_other": crossed, "other": other.name}, segment.name, None,
            facts.dispatch_updating(segment.offset),
        )  # fmt: skip

    rank = np.zeros(len(hit))
    for row, (_, own, _) in pairs.items():
        rank[row] = abs(math.log2(own))
    return of_params(facts, hit, hit.astype("f8"), tell, rank)


def _exchanged_in_mid_run(facts: StepFacts, memory: Memory) -> Seen:
    """Moments that belonged to another param in the step before."""
    assert facts.table is not None
    pairs = exchanged_moments(facts, memory)
    hit = np.zeros(len(facts.table), bool)
    hit[list(pairs)] = True

    def tell(row: int) -> Story:
        segment, other = facts.segment(row), facts.segment(pairs[row])
        assert facts.table is not None
        lanes = facts.table.lanes
        return Story(
            f"m and v of {segment.name} do not follow from what they were before step {facts.step - 1:,}, and do from "
            f"those of {other.name}, which has the same shape: their moments were exchanged in between.",
            "Look at what restored or moved optimizer state there: by name, not by position.",
            {
                "m_norm": float(lanes["m"].norm[row]), "v_norm": float(lanes["v"].norm[row]),
                "other": other.name,
            },
            segment.name, None, facts.dispatch_updating(segment.offset),
        )  # fmt: skip

    return of_params(facts, hit, hit.astype("f8"), tell)


def _swapped_pairs(facts: StepFacts) -> dict[int, tuple[int, float, float]]:
    """Of each param in a pair: the other, v̂/g² as it is, and v̂ over the other's g²."""
    table = facts.table
    assert table is not None
    lag = second_moment_lag(facts)
    squares = table.lanes["g"].norm ** 2
    misfit: F64Array = -np.log2(np.where(lag > 0, lag, np.nan))
    odd = np.flatnonzero(np.abs(misfit) >= MISFIT)
    shapes: dict[tuple[int, ...], list[int]] = {}
    for row in odd:
        shapes.setdefault(facts.segment(int(row)).param.shape, []).append(int(row))
    pairs: dict[int, tuple[int, float, float]] = {}
    for rows in shapes.values():
        found = _reordered(rows, misfit, squares)
        # Where not all of them are, those of two may be.
        pairs |= found or _exchanged(rows, misfit, squares)
    return pairs


def _reordered(rows: list[int], misfit: F64Array, squares: F64Array) -> dict[int, tuple[int, float, float]]:
    """All of the params in another order, the smallest v being that of the smallest g²; {} where they do not fit."""
    kept = misfit[rows] + np.log2(squares[rows])
    of = {rows[a]: rows[b] for a, b in zip(np.argsort(kept), np.argsort(squares[rows]), strict=True)}
    found = {
        row: (
            other,
            2 ** float(misfit[row]),
            2 ** float(misfit[row] + math.log2(squares[row] / squares[other])),
        )
        for row, other in of.items()
    }
    fits = all(other != row and abs(math.log2(across)) <= FITS for row, (other, _, across) in found.items())
    return found if fits else {}


def _exchanged(rows: list[int], misfit: F64Array, squares: F64Array) -> dict[int, tuple[int, float, float]]:
    """Pairs of them: v too large for one is v too small for the other, by as much; the largest with the least."""
    pairs: dict[int, tuple[int, float, float]] = {}
    rows = sorted(rows, key=lambda row: float(misfit[row]))
    low, high = 0, len(rows) - 1
    while low < high:
        a, b = rows[low], rows[high]
        between = math.log2(squares[a] / squares[b])
        across = float(misfit[a]) + between, float(misfit[b]) - between
        if misfit[a] < 0 < misfit[b] and max(abs(x) for x in across) <= FITS:
            pairs[a] = b, 2 ** float(misfit[a]), 2 ** across[0]
            pairs[b] = a, 2 ** float(misfit[b]), 2 ** across[1]
            low, high = low + 1, high - 1
        elif -misfit[a] > misfit[b]:
            low += 1
        else:
            high -= 1
    return pairs
