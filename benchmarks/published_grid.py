"""The whole step as it runs here against the published grid of ceil(n/256) groups, in one run.

    python benchmarks/published_grid.py [ELEMENTS]

Published: one thread an element in every kernel, the norm added up by a compare-and-swap from every group.
The two forms take turns, so that a machine whose speed drifts does not favour either.
"""

from __future__ import annotations

import sys

from inspector.gpu.bench import bench, copy_gbps
from inspector.gpu.device import Gpu
from inspector.plan import Variant
from inspector.preset import synthetic_params

ROUNDS = 3


def main() -> None:
    """Print both forms' medians for each round, and the ratio."""
    elements = int(sys.argv[1]) if len(sys.argv) > 1 else 8_000_000
    gpu = Gpu()
    copied = copy_gbps(gpu)
    print(f"{elements:,} elements on {gpu.info.name}; a copy moves {copied:.1f} GB/s")
    params = synthetic_params(elements)
    for round_ in range(1, ROUNDS + 1):
        ours, published = (
            bench(gpu, params, variant, samples=15, seconds=20, copy=copied)
            for variant in (Variant(), Variant(reduce="atomic", grid="published"))
        )
        for name, report in (("here", ours), ("published", published)):
            kernels = ", ".join(f"{k.name} {k.median_ms:.2f}" for k in report.kernels)
            print(f"  {round_} {name:>9}: step {report.step.median_ms:8.2f} ms ({kernels})")
        print(f"  {round_}     ratio: {published.step.median_ms / ours.step.median_ms:.1f}")


if __name__ == "__main__":
    main()
