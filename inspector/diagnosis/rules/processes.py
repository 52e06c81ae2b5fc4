"""Rules over several processes that train one run."""

from __future__ import annotations

import numpy as np

from inspector.diagnosis.facts import StepFacts
from inspector.diagnosis.memory import Memory
from inspector.diagnosis.rules.rule import NOTHING, Seen, Story, number
from inspector.ranks import Parted


def parted_rank(facts: StepFacts, memory: Memory) -> Seen | None:
    """A rank that has a number otherwise than the others, which all should have alike; each rank is told by itself."""
    if not facts.ranks:
        return NOTHING
    found: dict[int, list[Parted]] = {}
    for each in facts.parted:
        found.setdefault(each.rank, []).append(each)

    def tell(rank: int) -> Story:
        first, *more = found[rank]
        where = f" of {first.param}" if first.param else ""
        others = f" So it is with {len(more):,} more." if more else ""
        theirs = "rank 0" if facts.ranks == 2 and rank else "the others"
        advice = (
            "Look for what one process alone does: params that are not sharded and whose gradients are not averaged, a "
            "seed, a step that one skips."
            if first.param
            else "Look for what one process alone does: a schedule that counts by its own batches, a clipping that does"
            " not see the shards of the others, a step that one skips."
        )
        evidence: dict[str, float | int | str] = {
            "rank": rank, first.what: first.value, f"{first.what}, {theirs}": first.others,
        }  # fmt: skip
        return Story(
            f"Rank {rank} parts from {theirs}: {first.what}{where} is {number(first.value)}, there it is "
            f"{number(first.others)}.{others}",
            advice,
            evidence,
            first.param,
        )

    hit = np.array([rank in found for rank in range(facts.ranks)])
    names = tuple(f"rank {rank}" for rank in range(facts.ranks))
    return Seen(hit, hit.astype("f8"), tell, names=names)
