"""Single steps of PyTorch's AdamW and Adam, stored beside, to hold against what is said of their roundings.

    python tests/peers/torch_kinds.py [cuda [FILE]]

writes torch_kinds.json, or torch_kinds_cuda.json on a GPU, with what PyTorch made of each case: w, m and v after one
step as base64 of float32, which holds bfloat16 as it is.
"""

from __future__ import annotations

import base64
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).with_suffix(".json")
CUDA_FILE = FILE.with_name("torch_kinds_cuda.json")
ELEMENTS = 112


@dataclass(frozen=True)
class Case:
    """One step."""

    optimizer: str = "AdamW"
    kind: str = "loop"
    lr: float = 3e-4
    beta2: float = 0.95
    decay: float = 0.1
    t: int = 7
    magnitude: float = 1e-3
    dtype: str = "float32"
    amsgrad: bool = False
    maximize: bool = False

    @property
    def name(self) -> str:
        """What tells it from the others."""
        return " ".join(str(value) for value in asdict(self).values())


SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"lr": 1e-2, "beta2": 0.999, "decay": 0.0, "t": 1},
    {"lr": 1e-3, "beta2": 0.999, "decay": 0.01, "t": 2, "magnitude": 1e-8},
    {"lr": 6e-5, "decay": 1.0, "t": 4000, "magnitude": 30.0},
)
CASES = tuple(
    Case(optimizer, kind, **{**settings, **more})
    for kind in ("loop", "foreach", "fused")
    for optimizer in ("AdamW", "Adam")
    for settings in SETTINGS
    for more in (
        ({}, {"amsgrad": True}, {"maximize": True}, {"dtype": "bfloat16", "magnitude": 0.05})
        if not settings
        else ({},)
    )
)


def inputs(case: Case) -> dict[str, np.ndarray]:
    """w, g, m, v and the largest v so far, float32; a seventh of w is 0, and m and v are at the first step."""
    rng = np.random.default_rng([11, case.t])
    w = 0.02 * rng.standard_normal(ELEMENTS)
    w[::7] = 0
    g = case.magnitude * rng.standard_normal(ELEMENTS)
    m = 0.3 * case.magnitude * rng.standard_normal(ELEMENTS) * (case.t > 1)
    v = case.magnitude**2 * rng.gamma(1.0, size=ELEMENTS) * (case.t > 1)
    largest = v * rng.uniform(0.5, 2.0, ELEMENTS)
    lanes = {"w": w, "g": g, "m": m, "v": v, "largest": largest}
    return {name: lane.astype(np.float32) for name, lane in lanes.items()}


def run_torch(case: Case, device: str = "cpu") -> dict[str, np.ndarray]:
    """What PyTorch as installed makes of it."""
    import torch

    dtype = getattr(torch, case.dtype)
    given = {name: torch.tensor(lane).to(device, dtype) for name, lane in inputs(case).items()}
    param = torch.nn.Parameter(given["w"])
    options: dict[str, bool] = {
        "loop": {"foreach": False},
        "foreach": {"foreach": True},
        "fused": {"fused": True},
    }[case.kind]
    optimizer = getattr(torch.optim, case.optimizer)(
        [param], lr=case.lr, betas=(0.9, case.beta2), eps=1e-8, weight_decay=case.decay,
        amsgrad=case.amsgrad, maximize=case.maximize, **options,
    )  # fmt: skip
    state = {
        "step": torch.tensor(float(case.t - 1), device=device if case.kind == "fused" else "cpu"),
        "exp_avg": given["m"],
        "exp_avg_sq": given["v"],
    }
    if case.amsgrad:
        state["max_exp_avg_sq"] = given["largest"]
    optimizer.state[param] = state
    param.grad = given["g"]
    optimizer.step()
    made = {"w": param.detach(), "m": state["exp_avg"], "v": state["exp_avg_sq"]}
    return {name: lane.float().cpu().numpy() for name, lane in made.items()}


def stored(file: Path = FILE) -> dict[str, dict[str, np.ndarray]]:
    """What is stored, by case."""
    document = json.loads(file.read_text(encoding="utf-8"))
    return {
        name: {lane: np.frombuffer(base64.b64decode(text), np.float32).copy() for lane, text in lanes.items()}
        for name, lanes in document["cases"].items()
    }


def main() -> None:
    """Write the file."""
    import torch

    device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    made = {case.name: run_torch(case, device) for case in CASES}
    cases = {
        name: {lane: base64.b64encode(values.tobytes()).decode() for lane, values in lanes.items()}
        for name, lanes in made.items()
    }
    where = "a CPU" if device == "cpu" else torch.cuda.get_device_name()
    document = {"made_by": f"PyTorch {torch.__version__} on {where}", "cases": cases}
    file = Path(sys.argv[2]) if len(sys.argv) > 2 else FILE if device == "cpu" else CUDA_FILE
    file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
