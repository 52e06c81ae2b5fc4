"""Sources whose weights and gradients are drawn on the device: the reference preset and plain sizes."""

from __future__ import annotations

from dataclasses import replace

from inspector.errors import UsageError
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.preset import GPT_116M, drawn_gradients, drawn_state, gpt_116m_params, synthetic_params
from inspector.schedule import Schedule
from inspector.sources.base import ReadWeights
from inspector.stepping import GeneratedGradients, GeneratedState

MAX_ELEMENTS = 1 << 32
"""Positions in a mega-buffer are 32-bit on the device."""


class Synthetic:
    """Normal gradients of a scale of its own for each param, the same for the same seed and step.

    What is drawn is described in inspector.preset.
    """

    seeded = True

    def __init__(
        self, name: str, params: tuple[Param, ...], *, seed: int = 0, schedule: Schedule | None = None
    ) -> None:
        self.name = name
        self.params = params
        self.hyper = Hyper(beta2=0.95, weight_decay=0.1)
        self.last_step: int | None = None
        self.seed = seed
        self.schedule = schedule or Schedule()
        self._gradients = drawn_gradients(params, seed, 1)
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
        return drawn_state(self.params, self.seed)

    def gradients(self, step: int, read_weights: ReadWeights) -> GeneratedGradients:
        """What to draw for `step`; the weights do not matter."""
        return replace(self._gradients, step=step)
