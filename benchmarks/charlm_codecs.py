"""How much worse charlm's loss is after 2,000 steps with m and v in 8 bits, for each codec, and the memory they take.

    python benchmarks/charlm_codecs.py [--steps 2000] [--seeds 3]

Each run trains by itself: same start, same batches, same settings, float32 or 8-bit state, params below 4,096 elements
in float32. The final loss is the mean over the last 100 steps. With the seeds the spread between two runs of the same
kind shows, which is what a difference has to be read against.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np

from inspector.codecs import CODECS
from inspector.floats import F64Array
from inspector.gpu.opener import StepperMaker
from inspector.plan import Variant
from inspector.runtime.engine import Engine
from inspector.sources.open import open_source

LAST = 100
FLOAT32 = "float32"


def final_loss(variant: Variant, source: str, seed: int, steps: int) -> tuple[float, int]:
    """The mean loss of the last 100 steps, in nats a character, and the bytes of m and v."""
    made = open_source(source, seed=seed)
    stepper = StepperMaker(undo_bytes=0).make(made.params, variant, made.initial_state())
    try:
        engine = Engine(made, stepper, keep_checkpoint=False, stats="off")
        losses = []
        for _ in range(steps):
            engine.step_iteration()
            assert engine.record is not None
            losses.append(engine.record.loss)
        state = sum(s.state_bytes for s in stepper.layout)
    finally:
        stepper.close()
    return float(np.mean(np.array(losses[-LAST:], np.float64))), state


def main() -> None:
    """Print a table: final loss by kind of state, its ratio to float32 on the same seed, bytes of m and v."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", default="charlm")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    kinds = {FLOAT32: Variant()} | {codec: Variant(kernel="8bit", codec=codec) for codec in CODECS}
    losses: dict[str, F64Array] = {name: np.zeros(args.seeds) for name in kinds}
    state: dict[str, int] = {}
    began = time.perf_counter()
    for seed in range(args.seeds):
        for name, variant in kinds.items():
            losses[name][seed], state[name] = final_loss(variant, args.source, seed, args.steps)
            spent = time.perf_counter() - began
            print(f"seed {seed}, {name}: {losses[name][seed]:.4f} ({spent:.0f} s)", file=sys.stderr)
    print(f"{args.source}, {args.steps:,} steps, {args.seeds} seeds; loss in nats a character")
    print(
        f"{'state':10} {'loss':>8} {'spread':>8} {'against float32':>22} {'m and v (bytes)':>16} {'saved':>7}"
    )
    for name in kinds:
        ratio = 100 * (losses[name] / losses[FLOAT32] - 1)
        print(
            f"{name:10} {losses[name].mean():8.4f} {np.ptp(losses[name]):8.4f} "
            f"{ratio.mean():+8.2f} % ({ratio.min():+.2f} to {ratio.max():+.2f}) "
            f"{state[name]:12,} {100 * (1 - state[name] / state[FLOAT32]):6.1f} %"
        )


if __name__ == "__main__":
    main()
