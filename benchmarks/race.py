"""The rate of a race beside that of one run, in turns in one process: steps a second of all lanes together.

    python benchmarks/race.py                         # AdamW, Adam with L2, Lion and SGD on charlm
    python benchmarks/race.py --lanes adamw adamw --rounds 5 --steps 40

A step of a race of N lanes takes as long as N steps of one run where nothing is gained; its gradients are worked out
on as many threads as there are cores, which is what is gained. Printed is each round, and the median of race steps a
second over single steps a second: at least a quarter is wanted of four lanes.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from inspector.gpu.opener import StepperMaker
from inspector.plan import Variant
from inspector.race import LaneSpec
from inspector.runtime.racing import Race
from inspector.sources.open import open_source


def started(texts: list[str], source: str) -> Race:
    """A race of these lanes; one lane is one run."""
    made = open_source(source)
    specs = [LaneSpec.from_text(text) for text in texts]
    maker = StepperMaker(undo_bytes=0)
    return Race.start(
        [made] * len(specs),
        specs,
        lambda source, variant, state: maker.make(source.params, variant, state),
        variant=Variant(),
        hypers=[made.hyper] * len(specs),
    )


def rate(race: Race, steps: int) -> float:
    """Steps a second, all lanes taking each."""
    began = time.perf_counter()
    for _ in range(steps):
        race.step()
    return steps / (time.perf_counter() - began)


def main() -> int:
    """0 where the race keeps up."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", default="charlm")
    parser.add_argument("--lanes", nargs="+", default=["adamw", "adam-l2", "lion:lr=3e-4", "sgd:lr=0.1"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=30)
    options = parser.parse_args()
    single, race = started(["adamw"], options.source), started(options.lanes, options.source)
    try:
        for each in (single, race):
            rate(each, 5)
        shares = []
        for number in range(options.rounds):
            alone, together = rate(single, options.steps), rate(race, options.steps)
            shares.append(together / alone)
            print(
                f"round {number + 1}: one run {alone:6.1f} steps/s, the race {together:6.1f}: {shares[-1]:.3f} of it"
            )
        wanted = 1 / len(options.lanes)
        median = statistics.median(shares)
        print(f"median {median:.3f}, {min(shares):.3f} to {max(shares):.3f}; wanted are {wanted:.3f}")
        return int(median < wanted)
    finally:
        single.close()
        race.close()


if __name__ == "__main__":
    sys.exit(main())
