"""Small runs of PyTorch to record, and scripts of them to end in all ways."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

PROJECT = Path(__file__).parent.parent
Step = Callable[[int], None]


class Net(torch.nn.Module):
    """Tied embeddings, a norm, a matrix, a scalar: 6 params, 561 elements."""

    def __init__(self, dtype: Any = torch.float32) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(16, 12)
        self.norm = torch.nn.LayerNorm(12)
        self.mix = torch.nn.Linear(12, 12)
        self.head = torch.nn.Linear(12, 16, bias=False)
        self.head.weight = self.embed.weight
        self.scale = torch.nn.Parameter(torch.ones(()))
        self.to(dtype)

    def forward(self, tokens: Any) -> Any:
        found: Any = self.head(self.scale * torch.tanh(self.mix(self.norm(self.embed(tokens)))))
        return found


def batch(step: int) -> tuple[Any, Any]:
    """Tokens and what follows them."""
    generator = torch.Generator().manual_seed(step)
    tokens = torch.randint(0, 16, (8, 4), generator=generator)
    return tokens, (3 * tokens + 1) % 16


def loss_of(model: Any, step: int) -> Any:
    """Of one batch, in nats."""
    tokens, wanted = batch(step)
    return torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1).float(), wanted.flatten())


def split(model: torch.nn.Module, **more: Any) -> list[dict[str, Any]]:
    """Two groups as people make them: what has two or more dimensions decays."""
    params = list(model.parameters())
    return [
        {"params": [p for p in params if p.dim() >= 2], "weight_decay": 0.1, **more},
        {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0},
    ]


def train(
    model: Any, optimizer: Any, steps: Sequence[int], *, recording: Any = None, clip: float | None = 1.0,
    before: Step | None = None,
) -> list[float]:  # fmt: skip
    """A training loop; the losses."""
    losses = []
    for step in steps:
        loss = loss_of(model, step)
        if recording is not None:
            recording.loss(loss)
        optimizer.zero_grad()
        loss.backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        if before is not None:
            before(step)
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def weights(model: torch.nn.Module) -> dict[str, bytes]:
    """Every bit of the params."""
    return {
        name: param.detach().reshape(-1).view(torch.uint8).numpy().tobytes()
        for name, param in model.named_parameters()
    }


SCRIPT = """
import sys
import torch
from inspector.integrations.torch import record
from torch_runs import Net, loss_of, split, train
torch.manual_seed(0)
torch.set_num_threads(1)
path = sys.argv[1]
model = Net()
optimizer = torch.optim.AdamW(split(model), lr=3e-3)
"""


def script(body: str, *words: object) -> list[str]:
    """The command of a training script; `path`, `model` and `optimizer` are there."""
    return [sys.executable, "-c", SCRIPT + textwrap.dedent(body), *map(str, words)]


def environment() -> dict[str, str]:
    """In which scripts find the package and this file."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(PROJECT), str(PROJECT / "tests")))}


def run_script(body: str, *words: object, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """A training script that was run to its end."""
    return subprocess.run(
        script(body, *words), env=environment(), capture_output=True, text=True, check=False, timeout=timeout
    )
