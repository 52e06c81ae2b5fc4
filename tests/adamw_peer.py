"""A second AdamW in float64, written from the published formulas with plain Python floats, to judge the oracle by.

Loshchilov & Hutter 2019, algorithm 2, gradients clipped by their global norm. Imports nothing of the product.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class PeerParam:
    """One param: its values and moments, and whether it decays."""

    w: list[float]
    decays: bool
    m: list[float] = field(default_factory=list)
    v: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.m = self.m or [0.0] * len(self.w)
        self.v = self.v or [0.0] * len(self.w)


@dataclass
class PeerAdamW:
    """The optimizer; `step` returns gradNorm and clipScale."""

    params: Sequence[PeerParam]
    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    t: int = 0

    def step(self, gradients: Sequence[Sequence[float]]) -> tuple[float, float]:
        self.t += 1
        finite = [[x if math.isfinite(x) else 0.0 for x in g] for g in gradients]
        norm = math.hypot(*(x for g in finite for x in g))
        scale = min(1.0, self.max_grad_norm / max(norm, 1e-6))
        for param, g in zip(self.params, finite, strict=True):
            for i, x in enumerate(g):
                self._element(param, i, scale * x)
        return norm, scale

    def _element(self, p: PeerParam, i: int, g: float) -> None:
        p.m[i] += (1 - self.beta1) * (g - p.m[i])
        p.v[i] += (1 - self.beta2) * (g * g - p.v[i])
        m_hat = p.m[i] / (1 - self.beta1**self.t)
        v_hat = p.v[i] / (1 - self.beta2**self.t)
        decay = self.weight_decay * p.w[i] if p.decays else 0.0
        p.w[i] -= self.lr * (m_hat / (math.sqrt(v_hat) + self.eps) + decay)
