"""Makes scalable_shampoo.json: 50 steps of ScalableShampoo of the package pytorch_optimizer, in float64.

    pip install pytorch-optimizer; python tests/peers/scalable_shampoo.py

It is a port to PyTorch of the implementation of Anil et al. 2020. Twice: with β₂ = 1, where its factors are sums as in
Gupta et al. 2018, and with β₂ below, where they are averages that nobody corrects for their start. Without grafting and
without momentum, which it applies behind the roots; roots in every step, by its own Newton iterations. These end at an
error of 1e-10, not 1e-3, and not before where the error grows from one to the next, as it may in the first of them. Its
factors begin at 1e-4 · I, so gradients are large enough to make that nothing.
Stored is w of every param after some steps; needs PyTorch, the tests need the file alone.
"""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

STEPS = 50
SHOWN_STEPS = (1, 2, 50)
SEED = 81172
BLOCK = 16
SHAPES: dict[str, tuple[int, ...]] = {"a": (32, 48), "b": (16, 30), "c": (40, 9)}
"""Sides that both split alike: whole blocks, or a last one that is a little smaller."""
SETTINGS = {"lr": 0.02, "weight_decay": 0.1}
RIDGE = 1e-3
BETA2 = {"sum": 1.0, "mean": 0.9}
FILE = Path(__file__).with_suffix(".json")
Values = dict[str, dict[str, list[float]]]


def initial_weights() -> dict[str, np.ndarray]:
    """Standard deviation 0.1 throughout."""
    rng = np.random.default_rng(SEED)
    return {name: (0.1 * rng.standard_normal(shape)).astype(np.float32) for name, shape in SHAPES.items()}


def gradients(step: int) -> dict[str, np.ndarray]:
    """Noise beside a direction that all steps share, as in training: the largest eigenvalue stands out."""
    rng = np.random.default_rng([SEED, step])
    found = {}
    for name, shape in SHAPES.items():
        own = np.random.default_rng([SEED, len(name), *shape])
        left, right = (own.choice([-1.0, 1.0], n) for n in shape)
        shared = np.outer(left, right) * (1 + 0.2 * rng.standard_normal())
        found[name] = (1000 * (rng.standard_normal(shape) + shared)).astype(np.float32)
    return found


def run_torch(factors: str) -> Values:
    """w by step and name, flat."""
    import torch
    from pytorch_optimizer import ScalableShampoo
    from pytorch_optimizer.optimizer.utils import preconditioner
    from pytorch_optimizer.optimizer.utils.graft import LayerWiseGrafting

    newton = preconditioner.compute_power_schur_newton
    torch.manual_seed(SEED)
    params = {name: torch.nn.Parameter(torch.from_numpy(w).double()) for name, w in initial_weights().items()}
    made = ScalableShampoo(
        list(params.values()), lr=SETTINGS["lr"], weight_decay=SETTINGS["weight_decay"],
        decoupled_weight_decay=True, start_preconditioning_step=1, preconditioning_compute_steps=1, block_size=BLOCK,
        shape_interpretation=False, graft_type=LayerWiseGrafting.NONE, nesterov=False, matrix_eps=RIDGE,
    )  # fmt: skip
    # Its constructor takes no β₂ of 1, for which it has sums.
    made.param_groups[0]["betas"] = (0.0, BETA2[factors])
    found: Values = {}
    try:
        preconditioner.compute_power_schur_newton = partial(
            newton, error_tolerance=1e-10, max_error_ratio=math.inf
        )
        for step in range(1, STEPS + 1):
            for name, g in gradients(step).items():
                params[name].grad = torch.from_numpy(g).double()
            made.step()
            if step in SHOWN_STEPS:
                found[str(step)] = {n: _numbers(p.detach()) for n, p in params.items()}
    finally:
        preconditioner.compute_power_schur_newton = newton
    return found


def _numbers(tensor: Any) -> list[float]:
    """Twelve digits, beyond what float32 is held against."""
    return [float(f"{x:.12g}") for x in tensor.numpy().ravel().tolist()]


def main() -> None:
    """Run it and write the file."""
    from importlib.metadata import version

    import torch

    by = f"pytorch_optimizer {version('pytorch_optimizer')}, PyTorch {torch.__version__}"
    runs = {factors: run_torch(factors) for factors in BETA2}
    FILE.write_text(json.dumps({"made_by": by, "settings": SETTINGS, "steps": runs}) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
