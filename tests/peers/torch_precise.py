"""Makes torch_precise.json: w, m and v of torch.optim after some of 50 steps whose gradients turn m round.

    python tests/peers/torch_precise.py

Where m all but cancels, every rounding shows in it, and in a w that is no larger than its change. Weights and gradients
are made in float64 from seeds, so that only results need to be stored. Needs PyTorch; the tests need the file alone.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

STEPS = 50
SHOWN_STEPS = (1, 2, 10, 50)
SEED = 20417
SHAPES: dict[str, tuple[int, ...]] = {"weight": (24, 32), "tiny.weight": (16, 16), "bias": (64,)}
"""Whole vectors: PyTorch rounds the elements behind the last whole one otherwise."""
LIMIT = 1.0
RUNS: dict[str, dict[str, Any]] = {
    "AdamW fused": {"fused": True},
    "AdamW for-loop": {"foreach": False},
    "AdamW fused, β₁ 0.3": {"fused": True, "betas": (0.3, 0.95)},
    "Adam fused, decay in the gradient": {"fused": True},
}
SETTINGS: dict[str, Any] = {"lr": 6e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
FILE = Path(__file__).with_suffix(".json")
Lanes = dict[str, dict[str, np.ndarray]]
"""By lane and param, flat float32."""


def settings(run: str) -> dict[str, Any]:
    """lr, betas, eps and weight_decay of a run."""
    return {name: RUNS[run].get(name, value) for name, value in SETTINGS.items()}


def initial_weights() -> dict[str, np.ndarray]:
    """Matrices as they are drawn, and some far smaller than a change; biases 0."""
    rng = np.random.default_rng(SEED)
    size = {"weight": 0.02, "tiny.weight": 1e-6, "bias": 0.0}
    return {
        name: (size[name] * rng.standard_normal(shape)).astype(np.float32) for name, shape in SHAPES.items()
    }


def gradients(beta1: float) -> Iterator[dict[str, np.ndarray]]:
    """Of one step after the other, as clipping leaves them; in every third step half of the m all but vanish."""
    m = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    for step in range(1, STEPS + 1):
        rng = np.random.default_rng([SEED, step])
        given = {name: 0.1 * rng.standard_normal(shape) for name, shape in SHAPES.items()}
        norm = np.sqrt(sum(float((g**2).sum()) for g in given.values()))
        given = {name: g * min(1.0, LIMIT / norm) for name, g in given.items()}
        if step % 3 == 0:
            for name, g in given.items():
                turns = rng.random(g.shape) < 0.5
                rest = np.exp2(rng.uniform(-24, -4, g.shape))
                g[turns] = (-beta1 / (1 - beta1) * m[name] * (1 + rest))[turns]
        single = {name: g.astype(np.float32) for name, g in given.items()}
        m = {name: beta1 * m[name] + (1 - beta1) * g.astype(np.float64) for name, g in single.items()}
        yield single


def run_torch(run: str, **options: Any) -> Iterator[tuple[dict[str, np.ndarray], Lanes, Lanes]]:
    """The gradient of each step, w, m and v before it and after it."""
    import torch

    torch.set_num_threads(1)
    params = {name: torch.nn.Parameter(torch.from_numpy(w)) for name, w in initial_weights().items()}
    kind = torch.optim.AdamW if run.startswith("AdamW") else torch.optim.Adam
    used = {**settings(run), **{k: v for k, v in RUNS[run].items() if k in ("fused", "foreach")}, **options}
    groups = [
        {"params": [p for p in params.values() if p.dim() > 1]},
        {"params": [p for p in params.values() if p.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = kind(groups, **used)

    def lanes() -> Lanes:
        kept = {name: optimizer.state.get(p, {}) for name, p in params.items()}
        zero = {name: torch.zeros_like(p) for name, p in params.items()}
        found = {
            "w": {name: p.detach() for name, p in params.items()},
            "m": {name: kept[name].get("exp_avg", zero[name]) for name in params},
            "v": {name: kept[name].get("exp_avg_sq", zero[name]) for name in params},
        }
        return {
            lane: {name: x.numpy().ravel().copy() for name, x in of.items()} for lane, of in found.items()
        }

    before = lanes()
    for given in gradients(used["betas"][0]):
        for name, g in given.items():
            params[name].grad = torch.from_numpy(g)
        optimizer.step()
        after = lanes()
        yield {name: g.ravel() for name, g in given.items()}, before, after
        before = after


def stored() -> dict[str, dict[int, Lanes]]:
    """What the file has: by run and step, w, m and v after it."""

    def values(text: str) -> np.ndarray:
        return np.frombuffer(base64.b64decode(text), "<f4")

    document = json.loads(FILE.read_text(encoding="utf-8"))
    assert document["seed"] == SEED
    return {
        run: {
            int(step): {lane: {name: values(text) for name, text in of.items()} for lane, of in lanes.items()}
            for step, lanes in steps.items()
        }
        for run, steps in document["runs"].items()
    }


def main() -> None:
    """Write the file."""
    import torch

    runs: dict[str, Any] = {}
    for run in RUNS:
        runs[run] = {
            step: {
                lane: {name: base64.b64encode(x.astype("<f4").tobytes()).decode() for name, x in of.items()}
                for lane, of in after.items()
            }
            for step, (_, _, after) in enumerate(run_torch(run), start=1)
            if step in SHOWN_STEPS
        }
    document = {"made_by": f"PyTorch {torch.__version__}", "seed": SEED, "runs": runs}
    FILE.write_text(json.dumps(document) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
