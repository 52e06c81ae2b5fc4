"""Makes torch_policies.json: one step with non-finite gradients, by PyTorch with and without clipping and loss scaler.

    python tests/peers/torch_policies.py

Weights, moments and gradients come from a seeded numpy generator; only results are stored. Each case plants other
values in the gradients. Needs PyTorch; the tests need the file alone.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

SEED = 20260714
STEP = 7
SHAPES: dict[str, tuple[int, ...]] = {"h.0.weight": (5, 6), "h.0.norm": (6,), "head.weight": (3, 6)}
SETTINGS = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.1, "max_grad_norm": 1.0}
CASES: dict[str, tuple[tuple[str, int, float], ...]] = {
    "finite": (),
    "nan": (("h.0.weight", 8, math.nan),),
    "inf": (("h.0.norm", 0, math.inf), ("head.weight", 17, -math.inf)),
    "both": (("h.0.weight", 29, math.inf), ("h.0.weight", 3, -math.inf), ("head.weight", 2, math.nan)),
    "overflow": (("h.0.weight", 4, 3e19),),
}
FILE = Path(__file__).with_suffix(".json")


def lanes(case: str) -> dict[str, dict[str, np.ndarray]]:
    """w, m, v and g by param, float32 in their shapes, with the values of the case planted in g."""
    rng = np.random.default_rng(SEED)
    made: dict[str, dict[str, np.ndarray]] = {lane: {} for lane in "wmvg"}
    for name, shape in SHAPES.items():
        made["w"][name] = (0.1 * rng.standard_normal(shape)).astype(np.float32)
        made["g"][name] = (0.5 * rng.standard_normal(shape)).astype(np.float32)
        made["m"][name] = (0.05 * rng.standard_normal(shape)).astype(np.float32)
        made["v"][name] = (0.01 * rng.random(shape)).astype(np.float32)
    for name, index, value in CASES[case]:
        made["g"][name].reshape(-1)[index] = np.float32(value)
    return made


def run_torch(case: str, *, clips: bool, scales: bool = False) -> dict[str, Any]:
    """w, m, v by param after the step, the norm, t, and the loss scale as a share of what it was."""
    import torch

    given = lanes(case)
    params = {name: torch.nn.Parameter(torch.from_numpy(w.copy())) for name, w in given["w"].items()}
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
    )
    # A scaler works on any device; its scale of 1 leaves the gradients as they are.
    scaler = torch.amp.GradScaler("cpu", init_scale=1.0) if scales else None
    for name, p in params.items():
        p.grad = torch.from_numpy(given["g"][name].copy())
        optimizer.state[p] = {
            "step": torch.tensor(float(STEP - 1)),
            "exp_avg": torch.from_numpy(given["m"][name].copy()),
            "exp_avg_sq": torch.from_numpy(given["v"][name].copy()),
        }
    if scaler is not None:
        scaler.scale(torch.ones(()))
        scaler.unscale_(optimizer)
    norm = math.nan
    if clips:
        norm = float(torch.nn.utils.clip_grad_norm_(params.values(), SETTINGS["max_grad_norm"]))
    if scaler is not None:
        scaler.step(optimizer)
        scaler.update()
    else:
        optimizer.step()
    state = {name: optimizer.state[p] for name, p in params.items()}
    return {
        "norm": norm,
        "t": float(state["h.0.weight"]["step"]),
        "scale": scaler.get_scale() if scaler is not None else 1.0,
        "w": {name: p.detach().numpy().ravel() for name, p in params.items()},
        "m": {name: s["exp_avg"].numpy().ravel() for name, s in state.items()},
        "v": {name: s["exp_avg_sq"].numpy().ravel() for name, s in state.items()},
    }


def plain(value: Any) -> Any:
    """Float32 as the shortest decimals that read back as the same; NaN and infinities by name."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, np.ndarray):
        return [plain(np.float32(each)) for each in value]
    return float(str(np.float32(value))) if math.isfinite(value) else str(float(value))


def main() -> None:
    """Write the file."""
    import torch

    document: dict[str, Any] = {"made_by": f"PyTorch {torch.__version__}", "cases": {}}
    for case in CASES:
        document["cases"][case] = {
            "clip_grad_norm": plain(run_torch(case, clips=True)),
            "loss_scaler": plain(run_torch(case, clips=True, scales=True)),
            "propagate": plain(run_torch(case, clips=False)),
        }
    FILE.write_text(json.dumps(document) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
