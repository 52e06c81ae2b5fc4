"""Makes torch_adamw.json: 50 steps of torch.optim.AdamW with torch.nn.utils.clip_grad_norm_, in float32.

    python tests/peers/torch_adamw.py

Weights and gradients come from seeded numpy generators, so that only results need to be stored: w of every param
after some steps, the norm before clipping of every step. Needs PyTorch; the tests need the file alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

STEPS = 50
SHOWN_STEPS = (1, 2, 10, 50)
SEED = 46849
SHAPES: dict[str, tuple[int, ...]] = {
    "embed.weight": (61, 8),
    "h.0.attn.weight": (8, 24),
    "h.0.norm.weight": (8,),
    "h.0.ffn.weight": (24, 8),
    "head.bias": (61,),
}
SETTINGS = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01, "max_grad_norm": 1.0}
FILE = Path(__file__).with_suffix(".json")


def initial_weights() -> dict[str, np.ndarray]:
    """Matrices with standard deviation 0.02, gains 1, biases 0."""
    rng = np.random.default_rng(SEED)
    return {
        name: (0.02 * rng.standard_normal(shape)).astype(np.float32)
        if len(shape) > 1
        else np.full(shape, float("norm" in name), np.float32)
        for name, shape in SHAPES.items()
    }


def gradients(step: int) -> dict[str, np.ndarray]:
    """Norm about 3.2 in two of three steps, which are clipped, and about 0.32 in the third."""
    rng = np.random.default_rng([SEED, step])
    scale = 0.01 if step % 3 == 0 else 0.1
    return {name: (scale * rng.standard_normal(shape)).astype(np.float32) for name, shape in SHAPES.items()}


def run_torch(**options: Any) -> tuple[list[float], dict[str, dict[str, list[float]]]]:
    """The norms of all steps, and w by step and name, flat."""
    import torch

    params = {name: torch.nn.Parameter(torch.from_numpy(w)) for name, w in initial_weights().items()}
    optimizer = torch.optim.AdamW(
        [
            {
                "params": [p for p in params.values() if p.dim() >= 2],
                "weight_decay": SETTINGS["weight_decay"],
            },
            {"params": [p for p in params.values() if p.dim() < 2], "weight_decay": 0.0},
        ],
        lr=SETTINGS["lr"],
        betas=(SETTINGS["beta1"], SETTINGS["beta2"]),
        eps=SETTINGS["eps"],
        **options,
    )
    norms: list[float] = []
    weights: dict[str, dict[str, list[float]]] = {}
    for step in range(1, STEPS + 1):
        for name, g in gradients(step).items():
            params[name].grad = torch.from_numpy(g)
        norms.append(float(torch.nn.utils.clip_grad_norm_(params.values(), SETTINGS["max_grad_norm"])))
        optimizer.step()
        if step in SHOWN_STEPS:
            weights[str(step)] = {name: p.detach().numpy().ravel().tolist() for name, p in params.items()}
    return norms, weights


def main() -> None:
    """Write the file."""
    import torch

    norms, weights = run_torch()

    def short(values: list[float]) -> list[float]:
        # The shortest decimals that read back as the same float32.
        return [float(str(np.float32(x))) for x in values]

    document = {
        "made_by": f"PyTorch {torch.__version__}",
        "settings": SETTINGS,
        "grad_norm": short(norms),
        "w": {step: {name: short(w) for name, w in by_name.items()} for step, by_name in weights.items()},
    }
    FILE.write_text(json.dumps(document) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
