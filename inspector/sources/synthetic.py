"""Sources whose weights and gradients are drawn on the device: the reference preset and plain sizes."""

from __future__ import annotations

import math

from inspector.errors import UsageError
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.preset import GPT_116M, gpt_116m_params
from inspector.schedule import Schedule
from inspector.sources.base import ReadWeights
from inspector.stepping import GeneratedGradients, GeneratedState

MAX_ELEMENTS = 1 << 32
"""Positions in a mega-buffer are 32-bit on the device."""
ELEMENTS_A_PARAM = 1 << 20


class Synthetic:
    """Normal gradients of a scale of its own for each param, the same for the same seed and step.

    Matrices are drawn as a model is at its start (standard deviation 0.02), norm gains are 1. The gradient
    scale falls with the param's size as a mean over more elements does.
    """

    def __init__(self, name: str, params: tuple[Param, ...], *, seed: int = 0, schedule: Schedule | None = None) -> None:
        self.name = name
        self.params = params
        self.hyper = Hyper(beta2=0.95, weight_decay=0.1)
        self.last_step: int | None = None
        self._seed = seed
        self.schedule = schedule or Schedule()
        self._weights = {p.name: (0.0, 0.02) if len(p.shape) >= 2 else (1.0, 0.0) for p in params}
        self._gradients = {p.name: (0.0, 1e-2 / math.sqrt(max(p.numel, 1))) for p in params}
        elements = sum(p.numel for p in params)
        self.description = f"{elements:,} elements in {len(params):,} params, gradients drawn on the device"

    @classmethod
    def gpt_116m(cls, *, seed: int = 0, schedule: Schedule | None = None) -> Synthetic:
        """The reference layout of 74 params."""
        return cls(GPT_116M, gpt_116m_params(), seed=seed, schedule=schedule)

    @classmethod
    def of_size(cls, elements: int, *, seed: int = 0, schedule: Schedule | None = None) -> Synthetic:
        """`elements` elements: matrices of up to 2**20 elements and one vector for the rest."""
        if not 1 <= elements < MAX_ELEMENTS:
            raise UsageError(f"synthetic:{elements} cannot be made: give 1 to {MAX_ELEMENTS - 1:,} elements.")
        return cls(f"synthetic:{elements}", synthetic_params(elements), seed=seed, schedule=schedule)

    def initial_state(self) -> GeneratedState:
        """Weights to draw on the device; m = v = 0, no finished step."""
        return GeneratedState(self._seed, self._weights)

    def gradients(self, step: int, read_weights: ReadWeights) -> GeneratedGradients:
        """What to draw for `step`; the weights do not matter."""
        return GeneratedGradients(self._seed, step, self._gradients)


def synthetic_params(elements: int) -> tuple[Param, ...]:
    """Params of `elements` elements in all: a few matrices with decay, then a vector without."""
    if elements < 4096:
        return (Param("layer.0.bias", (elements,)),)
    vector = max(elements // 1024, 1)
    rest = elements - vector
    count = max(rest // ELEMENTS_A_PARAM, 1)
    count = min(count, 256)
    rows = rest // count // 1024 or 1
    columns = rest // count // rows
    params = [Param(f"layer.{i}.weight", (rows, columns)) for i in range(count)]
    left = elements - count * rows * columns
    params.append(Param("bias", (left,)))
    return tuple(params)
