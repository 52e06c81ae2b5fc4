"""A surface as a source: two elements that go through the same kernels as any model."""

from __future__ import annotations

import numpy as np

from inspector.errors import UsageError
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.schedule import Schedule
from inspector.sources.base import ReadWeights
from inspector.stepping import HostGradients, HostState
from inspector.surfaces import KIND, SURFACES, Surface

PARAM = "xy"


class SurfaceSource:
    """One of SURFACES as a source: the loss is f at the weights, the gradient that of f, with its noise.

    Noise depends on the seed and the step alone. Weights beyond float32 give what float64 gives, be it infinite.
    """

    closed_loop = True

    def __init__(self, surface: Surface, *, seed: int = 0, schedule: Schedule | None = None) -> None:
        self.surface = surface
        self.name = f"{KIND}:{surface.name}"
        self.description = f"{surface.title}: {surface.formula}, two elements"
        self.params = (Param(PARAM, (2,), decay=True),)
        self.hyper = Hyper(lr=surface.lr, beta2=0.99, weight_decay=0.0, max_grad_norm=float("inf"))
        self.last_step: int | None = None
        self.schedule = schedule or Schedule()
        self.seeded = bool(surface.noise)
        self.seed = seed

    @classmethod
    def from_text(cls, spec: str, *, seed: int = 0, schedule: Schedule | None = None) -> SurfaceSource:
        """`surface:NAME`; UsageError, naming those there are, for another."""
        name = spec.partition(":")[2].strip()
        if name not in SURFACES:
            known = ", ".join(f"{KIND}:{each}" for each in SURFACES)
            raise UsageError(f"{spec!r} is no surface: give {known}.")
        return cls(SURFACES[name], seed=seed, schedule=schedule)

    def initial_state(self) -> HostState:
        """The place to start from."""
        return HostState({PARAM: np.array(self.surface.start, np.float32)}, {}, {})

    def gradients(self, step: int, read_weights: ReadWeights) -> HostGradients:
        """f and its gradient, worked out in float64 and rounded."""
        x, y = (float(each) for each in read_weights()[PARAM].ravel())
        slope = np.array(self._slope(x, y))
        if self.surface.noise:
            slope += self.surface.noise * np.random.default_rng([self.seed, step]).standard_normal(2)
        with np.errstate(all="ignore"):
            loss = float(self.surface.value(np.float64(x), np.float64(y)))  # type: ignore[arg-type]
            return HostGradients({PARAM: slope.astype(np.float32)}, loss)

    def _slope(self, x: float, y: float) -> tuple[float, float]:
        with np.errstate(all="ignore"):
            dx, dy = self.surface.slope(np.float64(x), np.float64(y))
            return float(dx), float(dy)
