"""Rules over the half-precision mirror of the weights."""

from __future__ import annotations

import numpy as np

from inspector.diagnosis.facts import StepFacts
from inspector.diagnosis.memory import Memory
from inspector.diagnosis.rules.rule import Seen, Story, number, of_params, percent

FLUSHED = 0.01


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
            f"{int(count[row]):,} weights of {segment.name} are infinite in half precision, which ends at 65,504; the "
            f"largest was {number(largest)} before this step.",
            "Keep this param out of the half-precision mirror, use bfloat16, or look for why it grows.",
            {"elements": int(count[row]), "largest": largest, "limit": 65504}, segment.name, None,
            facts.dispatch_updating(segment.offset),
        )  # fmt: skip

    return of_params(facts, count > 0, count.astype("f8"), tell)


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
            f"{int(count[row]):,} weights of {segment.name} ({percent(share[row])}) are 0 in half precision and not in "
            "float32: they are below 2^-25 = 2.98e-8.",
            "Keep this param out of the half-precision mirror, or use bfloat16.",
            {"elements": int(count[row]), "share": float(share[row])}, segment.name, None,
            facts.dispatch_updating(segment.offset),
        )  # fmt: skip

    return of_params(facts, hit, share * hit, tell)
