"""Makes torch_muon.json: 50 steps of torch.optim.Muon on hidden matrices with torch.optim.AdamW on the rest.

    python tests/peers/torch_muon.py

Twice: as it is, where the Newton-Schulz iterations run in bfloat16, and with `Tensor.bfloat16` replaced by a copy, so
that the same code runs them in float32. Gradients are not clipped. Stored are w of every param after some steps, and
the momentum of matrices; needs PyTorch 2.9 or newer, the tests need the file alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

STEPS = 50
SHOWN_STEPS = (1, 2, 50)
SEED = 70861
SHAPES: dict[str, tuple[int, ...]] = {
    "embed.weight": (31, 12),
    "h.0.attn.weight": (12, 37),
    "h.0.norm.weight": (12,),
    "h.0.ffn.weight": (30, 12),
    "h.0.square.weight": (20, 20),
}
HIDDEN = ("h.0.attn.weight", "h.0.ffn.weight", "h.0.square.weight")
MUON = {"lr": 0.02, "beta1": 0.95, "weight_decay": 0.1}
ADAMW = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.0}
FILE = Path(__file__).with_suffix(".json")
Values = dict[str, dict[str, list[float]]]


def initial_weights() -> dict[str, np.ndarray]:
    """Standard deviation 0.1 throughout."""
    rng = np.random.default_rng(SEED)
    return {name: (0.1 * rng.standard_normal(shape)).astype(np.float32) for name, shape in SHAPES.items()}


def gradients(step: int) -> dict[str, np.ndarray]:
    """Elements about 0.1, one in three steps about 0.01."""
    rng = np.random.default_rng([SEED, step])
    scale = 0.01 if step % 3 == 0 else 0.1
    return {name: (scale * rng.standard_normal(shape)).astype(np.float32) for name, shape in SHAPES.items()}


@contextmanager
def iterations_in(dtype: str) -> Iterator[None]:
    """ "bfloat16" as PyTorch has them, or "float32"."""
    import torch

    kept = torch.Tensor.bfloat16
    if dtype == "float32":
        torch.Tensor.bfloat16 = torch.Tensor.clone  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        torch.Tensor.bfloat16 = kept  # type: ignore[method-assign]


def run_torch(dtype: str) -> dict[str, Values]:
    """w and m by step and name, flat."""
    import torch

    params = {name: torch.nn.Parameter(torch.from_numpy(w)) for name, w in initial_weights().items()}
    muon = torch.optim.Muon(
        [params[name] for name in HIDDEN],
        lr=MUON["lr"], momentum=MUON["beta1"], weight_decay=MUON["weight_decay"], nesterov=True,
    )  # fmt: skip
    adamw = torch.optim.AdamW(
        [p for name, p in params.items() if name not in HIDDEN],
        lr=ADAMW["lr"], betas=(ADAMW["beta1"], ADAMW["beta2"]), eps=ADAMW["eps"], weight_decay=ADAMW["weight_decay"],
    )  # fmt: skip
    found: dict[str, Values] = {"w": {}, "m": {}}
    with iterations_in(dtype):
        for step in range(1, STEPS + 1):
            for name, g in gradients(step).items():
                params[name].grad = torch.from_numpy(g)
            muon.step()
            adamw.step()
            if step in SHOWN_STEPS:
                found["w"][str(step)] = {n: _numbers(p.detach()) for n, p in params.items()}
                found["m"][str(step)] = {
                    n: _numbers(muon.state[params[n]]["momentum_buffer"]) for n in HIDDEN
                }
    return found


def _numbers(tensor: Any) -> list[float]:
    """Nine digits are a float32's, whichever it is."""
    return [float(f"{x:.9g}") for x in tensor.numpy().ravel().tolist()]


def main() -> None:
    """Run it and write the file."""
    import torch

    runs: dict[str, Any] = {dtype: run_torch(dtype) for dtype in ("float32", "bfloat16")}
    document = {"made_by": f"PyTorch {torch.__version__}", "muon": MUON, "adamw": ADAMW, "steps": runs}
    FILE.write_text(json.dumps(document) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
