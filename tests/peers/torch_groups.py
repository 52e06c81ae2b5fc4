"""Makes torch_groups.json: 20 steps of torch.optim.AdamW with three param groups, in float32, fused and foreach.

    python tests/peers/torch_groups.py

Each group has settings of its own. "b.weight" has no gradient in steps 3 to 5, "late.weight" is added to the optimizer
before step 7. Weights and gradients come from seeded numpy generators; w, m and v after every step are stored as base64
of little-endian float32. Needs PyTorch; the tests need the file alone.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np

STEPS = 20
SEED = 52117
SILENT = ("b.weight", (3, 4, 5))
ADDED = ("late.weight", 7)
SHAPES: dict[str, tuple[int, ...]] = {
    "a.weight": (9, 7), "a.bias": (7,), "b.weight": (8, 5), "b.scale": (), "c.weight": (6, 7), "late.weight": (5, 6),
}  # fmt: skip
GROUPS: tuple[dict[str, float], ...] = (
    {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.1},
    {"lr": 3e-4, "beta1": 0.85, "beta2": 0.95, "eps": 1e-6, "weight_decay": 0.0},
    {"lr": 5e-4, "beta1": 0.7, "beta2": 0.99, "eps": 1e-7, "weight_decay": 0.3},
)
MEMBERS = (("a.weight", "a.bias"), ("b.weight", "b.scale"), ("c.weight",))
LATE_GROUP = 2
"""Whose settings the added param has, in a group of its own."""
FORMS = ("foreach", "fused")
FILE = Path(__file__).with_suffix(".json")


def initial_weights() -> dict[str, np.ndarray]:
    """Of either sign, 0.1 to 0.3: far larger than what a step changes, whose own roundings then hardly show."""
    rng = np.random.default_rng(SEED)
    return {
        name: np.asarray(rng.choice([-1, 1], shape) * rng.uniform(0.1, 0.3, shape), np.float32)
        for name, shape in SHAPES.items()
    }


def gradients(step: int) -> dict[str, np.ndarray]:
    """Those of a step, about the size that changes from step to step; a param that has none is missing."""
    rng = np.random.default_rng([SEED, step])
    scale = 10.0 ** -(1 + step % 4)
    drawn = {
        name: np.asarray(scale * rng.standard_normal(shape), np.float32) for name, shape in SHAPES.items()
    }
    silent = {SILENT[0]} if step in SILENT[1] else set()
    if step < ADDED[1]:
        silent.add(ADDED[0])
    return {name: g for name, g in drawn.items() if name not in silent}


def run_torch(form: str) -> list[dict[str, dict[str, np.ndarray]]]:
    """w, m and v of every param after each step, by name and lane."""
    import torch

    params = {name: torch.nn.Parameter(torch.from_numpy(w.copy())) for name, w in initial_weights().items()}

    def group(names: tuple[str, ...], number: int) -> dict[str, Any]:
        s = GROUPS[number]
        return {
            "params": [params[n] for n in names], "lr": s["lr"], "betas": (s["beta1"], s["beta2"]), "eps": s["eps"],
            "weight_decay": s["weight_decay"],
        }  # fmt: skip

    optimizer = torch.optim.AdamW([group(names, i) for i, names in enumerate(MEMBERS)], **{form: True})
    seen = []
    for step in range(1, STEPS + 1):
        if step == ADDED[1]:
            optimizer.add_param_group(group((ADDED[0],), LATE_GROUP))
        given = gradients(step)
        for name, p in params.items():
            p.grad = torch.from_numpy(given[name]) if name in given else None
        optimizer.step()
        lanes: dict[str, dict[str, np.ndarray]] = {}
        for name, p in params.items():
            state = optimizer.state.get(p, {})
            zero = np.zeros(p.shape, np.float32)
            lanes[name] = {
                "w": p.detach().numpy().copy(),
                "m": state["exp_avg"].numpy().copy() if state else zero,
                "v": state["exp_avg_sq"].numpy().copy() if state else zero,
            }
        seen.append(lanes)
    return seen


def packed(values: np.ndarray) -> str:
    """As it is stored."""
    return base64.b64encode(np.asarray(values, "<f4").tobytes()).decode("ascii")


def unpacked(text: str) -> np.ndarray:
    """What `packed` stored, flat."""
    return np.frombuffer(base64.b64decode(text), "<f4").astype(np.float32)


def main() -> None:
    """Write the file."""
    import torch

    document = {
        "made_by": f"PyTorch {torch.__version__}",
        "groups": list(GROUPS),
        "steps": {
            form: [
                {name: {lane: packed(x) for lane, x in lanes.items()} for name, lanes in step.items()}
                for step in run_torch(form)
            ]
            for form in FORMS
        },
    }
    FILE.write_text(json.dumps(document) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
