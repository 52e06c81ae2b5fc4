"""Makes torch_adafactor.json: 50 steps of torch.optim.Adafactor with torch.nn.utils.clip_grad_norm_, in float32.

    python tests/peers/torch_adafactor.py     (where PyTorch is installed)

Weights and gradients are those of torch_adamw.py, and a convolution beside them. PyTorch multiplies its lr by
max(ε₂, RMS(w)): with ε₂ = 10, which no RMS here reaches, a tenth of lr makes the step size lr, and ten times λ the
decay lr·λ. Its ε₁ is the least of √V̂; with the paper's 1e-30 it does nothing here. Stored are w and the states of
every param after some steps; the tests need the file alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch_adamw as model

STEPS = 50
SHOWN_STEPS = (1, 2, 50)
FILE = Path(__file__).with_suffix(".json")
SETTINGS = {"lr": 1e-2, "weight_decay": 0.1, "max_grad_norm": 1.0}
EPS2 = 10.0
SHAPES: dict[str, tuple[int, ...]] = {**model.SHAPES, "conv.weight": (6, 4, 3, 5)}
STATES = ("row_var", "col_var", "variance")
Values = dict[str, dict[str, list[float]]]


def initial_weights() -> dict[str, np.ndarray]:
    """Those of torch_adamw.py, and the convolution's."""
    conv = 0.02 * np.random.default_rng(model.SEED + 1).standard_normal(SHAPES["conv.weight"])
    return {**model.initial_weights(), "conv.weight": conv.astype(np.float32)}


def gradients(step: int) -> dict[str, np.ndarray]:
    """The same; those of the convolution grow along its last dimension, so that columns differ."""
    conv = np.random.default_rng([model.SEED + 1, step]).standard_normal(SHAPES["conv.weight"])
    return {**model.gradients(step), "conv.weight": (conv * 10.0 ** np.arange(-3, 2)).astype(np.float32)}


def run_torch(**options: Any) -> dict[str, Values]:
    """w and each state by step and name, flat."""
    import torch

    params = {name: torch.nn.Parameter(torch.from_numpy(w)) for name, w in initial_weights().items()}
    matrices = [p for p in params.values() if p.dim() >= 2]
    vectors = [p for p in params.values() if p.dim() < 2]
    optimizer = torch.optim.Adafactor(
        [
            {"params": matrices, "weight_decay": SETTINGS["weight_decay"] * EPS2},
            {"params": vectors, "weight_decay": 0.0},
        ],
        lr=SETTINGS["lr"] / EPS2,
        beta2_decay=-0.8,
        eps=(1e-30, EPS2),
        d=1.0,
        **options,
    )
    found: dict[str, Values] = {name: {} for name in ("w", *STATES)}
    for step in range(1, STEPS + 1):
        for key, g in gradients(step).items():
            params[key].grad = torch.from_numpy(g)
        torch.nn.utils.clip_grad_norm_(list(params.values()), SETTINGS["max_grad_norm"])
        optimizer.step()
        if step in SHOWN_STEPS:
            found["w"][str(step)] = {key: p.detach().numpy().ravel().tolist() for key, p in params.items()}
            for state in STATES:
                of = {key: optimizer.state[p].get(state) for key, p in params.items()}
                found[state][str(step)] = {
                    key: values.numpy().ravel().tolist() for key, values in of.items() if values is not None
                }
    return found


def main() -> None:
    """Write the file."""
    import torch

    steps = {
        name: {
            step: {key: [float(str(np.float32(x))) for x in flat] for key, flat in by_name.items()}
            for step, by_name in values.items()
        }
        for name, values in run_torch().items()
    }
    document = {"made_by": f"PyTorch {torch.__version__}", "settings": SETTINGS, "steps": steps}
    FILE.write_text(json.dumps(document, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
