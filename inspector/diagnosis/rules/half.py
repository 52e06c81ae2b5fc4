"""Rules over the half-precision mirror of the weights."""

from __future__ import annotations

import numpy as np

from inspector.diagnosis.facts import StepFacts
from inspector.diagnosis.memory import Memory, Past
from inspector.diagnosis.rules.rule import Seen, Story, are, number, of_params, percent, weights_of
from inspector.diagnosis.rules.updates import at_an_end, moving
from inspector.floats import BoolArray, F64Array
from inspector.statistics import BINS, EXPONENT_BIAS

FLUSHED = 0.01
STUCK_SHARE = 0.5
STUCK_SPAN = 64
"""Steps that all go one way, after which the mirror has to have changed."""
STUCK_STEPS = 8

_EXPONENT = np.arange(BINS) - EXPONENT_BIAS
_HALF_SPACING = np.where(_EXPONENT < 16, 2.0 ** (np.maximum(_EXPONENT, -14) - 11), 0.0)
"""Of float16 at weights of that exponent, below 2^-14 that of denormals; what is infinite there is told otherwise."""


def f16_overflow(facts: StepFacts, memory: Memory) -> Seen | None:
    """Weights beyond 65504 are infinite in the mirror."""
    if facts.table is None or facts.variant.kernel != "f16":
        return None
    table = facts.table
    count = table.update.f16_overflows

    def tell(row: int) -> Story:
        segment = facts.segment(row)
        largest = float(table.lanes["w"].max_abs[row])
        return Story(
            f"{weights_of(int(count[row]), segment.name)} {are(int(count[row]))} infinite in half precision, which "
            f"ends at 65,504; the largest was {number(largest)} before this step.",
            "Keep this param out of the half-precision mirror, use bfloat16, or look for why it grows.",
            {"elements": int(count[row]), "largest": largest, "limit": 65504}, segment.name, None,
            facts.dispatch_updating(segment.offset),
        )  # fmt: skip

    return of_params(facts, count > 0, count.astype("f8"), tell)


def is_behind(facts: StepFacts, past: Past) -> BoolArray:
    """Params whose half-precision mirror stays as it is in most elements, whichever way the master weights go."""
    table = facts.table
    assert table is not None
    if facts.variant.kernel != "f16":
        return np.zeros(len(table), bool)
    moves = moving(facts) & ~at_an_end(facts, past)
    return np.asarray((_stuck(facts) > STUCK_SHARE * table.numel) & (table.lanes["g"].norm > 0) & moves)


def _stuck(facts: StepFacts) -> F64Array:
    """Weights that STUCK_SPAN of the largest update of their param, all one way, take less than half a spacing on."""
    table = facts.table
    assert table is not None
    reach = STUCK_SPAN * table.update.largest * facts.each("lr")
    return np.asarray((table.lanes["w"].exponents * (reach[:, None] < _HALF_SPACING)).sum(axis=1), np.float64)


def stuck_mirror(facts: StepFacts, memory: Memory) -> Seen | None:
    """Updates far below the spacing of float16: the model is run with weights that hardly ever change."""
    if facts.table is None or facts.variant.kernel != "f16":
        return None
    table, runs = facts.table, memory.now.run("mirror")
    stuck = _stuck(facts)
    share = stuck / np.maximum(table.numel, 1)

    def tell(row: int) -> Story:
        segment = facts.segment(row)
        largest = float(table.update.largest[row] * facts.of_row("lr", row))
        stay = "stays as it is" if stuck[row] == 1 else "stay as they are"
        return Story(
            f"{weights_of(int(stuck[row]), segment.name)} ({percent(share[row])}) {stay} in half precision "
            f"for more than {STUCK_SPAN} steps, even if all go one way: the largest update is {number(largest)}, and "
            f"half the spacing of float16 at these weights more than {STUCK_SPAN} times that; for {int(runs[row]):,} "
            "steps. The master weights go on in float32.",
            "Keep this param out of the half-precision mirror, or raise the learning rate; gains near 1 gain most.",
            {
                "elements": int(stuck[row]), "share": float(share[row]), "largest_change": largest,
                "steps": int(runs[row]),
            },
            segment.name, None, facts.dispatch_updating(segment.offset),
        )  # fmt: skip

    # Where float32 itself does not move them, that is told.
    hit = (
        (runs >= STUCK_STEPS)
        & (memory.now.run("stuck") < STUCK_STEPS)
        & (memory.now.run("lost") < STUCK_STEPS)
    )
    return of_params(facts, hit, share * hit, tell)


def f16_underflow(facts: StepFacts, memory: Memory) -> Seen | None:
    """Weights that are 0 in the mirror and not in float32."""
    if facts.table is None or facts.variant.kernel != "f16":
        return None
    count = facts.table.update.f16_underflows
    share = count / np.maximum(facts.table.numel, 1)
    hit = share > FLUSHED

    def tell(row: int) -> Story:
        segment = facts.segment(row)
        return Story(
            f"{weights_of(int(count[row]), segment.name)} ({percent(share[row])}) {are(int(count[row]))} 0 in half "
            "precision and not in float32: below 2^-25 = 2.98e-8.",
            "Keep this param out of the half-precision mirror, or use bfloat16.",
            {"elements": int(count[row]), "share": float(share[row])}, segment.name, None,
            facts.dispatch_updating(segment.offset),
        )  # fmt: skip

    return of_params(facts, hit, share * hit, tell)
