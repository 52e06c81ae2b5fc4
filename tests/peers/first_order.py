"""Makes first_order.json: 50 steps each of torch.optim.SGD, SGD with momentum and Adam, and of optax.lion, in float32.

    python tests/peers/first_order.py torch     (where PyTorch is installed)
    python tests/peers/first_order.py optax     (where optax is)

Each writes its part and keeps the other's. The authors of Lion name optax.lion beside their own code
(https://github.com/google/automl/tree/master/lion). Weights and gradients are those of torch_adamw.py, gradients not
clipped. Stored are w and m of every param after some steps; the tests need the file alone.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from torch_adamw import SHAPES, gradients, initial_weights

STEPS = 50
SHOWN_STEPS = (1, 2, 50)
FILE = Path(__file__).with_suffix(".json")
SETTINGS: dict[str, dict[str, float]] = {
    "sgd": {"lr": 0.1, "weight_decay": 0.01},
    "momentum": {"lr": 0.03, "beta1": 0.9, "weight_decay": 0.01},
    "adam": {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8},
    "lion": {"lr": 1e-4, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1},
}
"""λ is of matrices only, as in a run here."""
Values = dict[str, dict[str, list[float]]]


def run_torch(name: str, **options: Any) -> tuple[Values, Values]:
    """w and m by step and name, flat."""
    import torch

    s = SETTINGS[name]
    params = {name: torch.nn.Parameter(torch.from_numpy(w)) for name, w in initial_weights().items()}
    matrices = [p for p in params.values() if p.dim() >= 2]
    others = [p for p in params.values() if p.dim() < 2]
    groups = [
        {"params": matrices, "weight_decay": s.get("weight_decay", 0.0)},
        {"params": others, "weight_decay": 0.0},
    ]
    if name == "adam":
        optimizer: Any = torch.optim.Adam(
            groups, lr=s["lr"], betas=(s["beta1"], s["beta2"]), eps=s["eps"], **options
        )
    else:
        optimizer = torch.optim.SGD(groups, lr=s["lr"], momentum=s.get("beta1", 0.0), **options)
    w: Values = {}
    m: Values = {}
    for step in range(1, STEPS + 1):
        for key, g in gradients(step).items():
            params[key].grad = torch.from_numpy(g)
        optimizer.step()
        if step in SHOWN_STEPS:
            w[str(step)] = {key: p.detach().numpy().ravel().tolist() for key, p in params.items()}
            states = {key: optimizer.state[p] for key, p in params.items()}
            kept = {"momentum": "momentum_buffer", "adam": "exp_avg"}.get(name)
            if kept is not None:
                m[str(step)] = {key: state[kept].numpy().ravel().tolist() for key, state in states.items()}
    return w, m


def run_optax() -> tuple[Values, Values]:
    """The same of optax.lion."""
    import optax

    s = SETTINGS["lion"]
    params: Any = initial_weights()
    mask = {key: len(shape) >= 2 for key, shape in SHAPES.items()}
    optimizer = optax.lion(s["lr"], b1=s["beta1"], b2=s["beta2"], weight_decay=s["weight_decay"], mask=mask)
    state = optimizer.init(params)
    w: Values = {}
    m: Values = {}
    for step in range(1, STEPS + 1):
        updates, state = optimizer.update(gradients(step), state, params)
        params = optax.apply_updates(params, updates)
        if step in SHOWN_STEPS:
            w[str(step)] = {key: np.asarray(p).ravel().tolist() for key, p in params.items()}
            m[str(step)] = {key: np.asarray(p).ravel().tolist() for key, p in state[0].mu.items()}
    return w, m


def main(peer: str) -> None:
    """Write the part of one peer."""
    document = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {"made_by": {}, "steps": {}}
    document["settings"] = SETTINGS
    if peer == "torch":
        import torch

        document["made_by"] |= dict.fromkeys(("sgd", "momentum", "adam"), f"PyTorch {torch.__version__}")
        found = {name: run_torch(name) for name in ("sgd", "momentum", "adam")}
    else:
        import jax
        import optax

        document["made_by"]["lion"] = f"optax {optax.__version__} (JAX {jax.__version__})"
        found = {"lion": run_optax()}
    document["steps"] |= {name: {"w": _short(w), "m": _short(m)} for name, (w, m) in found.items()}
    FILE.write_text(json.dumps(document, sort_keys=True) + "\n", encoding="utf-8")


def _short(values: Values) -> Values:
    """The shortest decimals that read back as the same float32."""
    return {
        step: {key: [float(str(np.float32(x))) for x in flat] for key, flat in by_name.items()}
        for step, by_name in values.items()
    }


if __name__ == "__main__":
    main(sys.argv[1])
