"""Problems of two parameters, small enough to be seen whole: what an optimizer does on them is a path on a map.

Each is a function f(x, y) with its gradient by hand, a place to start from, and the window worth drawing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from inspector.floats import F64Array

KIND = "surface"
"""What a source of one of them begins with, as in surface:rosenbrock."""
Values = Callable[[F64Array, F64Array], F64Array]
Slopes = Callable[[float, float], tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Surface:
    """`value` takes arrays, float64; `slope` is the gradient at a point. `noise` is the standard deviation of what is
    added to each part of the gradient, drawn anew each step. `lowest` is the least value, None where there is none.
    """

    name: str
    title: str
    formula: str
    value: Values
    slope: Slopes
    start: tuple[float, float]
    window: tuple[float, float, float, float]
    """x from, x to, y from, y to."""
    minima: tuple[tuple[float, float], ...]
    lowest: float | None = 0.0
    lr: float = 0.01
    lanes: tuple[str, ...] = ()
    """What is worth racing on it, as LaneSpec.from_text reads it."""
    noise: float = 0.0


def _valley(x: F64Array, y: F64Array) -> F64Array:
    return np.asarray(0.5 * (x * x + 50 * y * y))


def _rosenbrock(x: F64Array, y: F64Array) -> F64Array:
    return np.asarray((1 - x) ** 2 + 100 * (y - x * x) ** 2)


def _saddle(x: F64Array, y: F64Array) -> F64Array:
    return np.asarray(0.5 * (x * x - y * y) + 0.05 * y**4)


def _rosenbrock_slope(x: float, y: float) -> tuple[float, float]:
    return -2 * (1 - x) - 400 * x * (y - x * x), 200 * (y - x * x)


SURFACES = MappingProxyType(
    {
        each.name: each
        for each in (
            Surface(
                "valley", "narrow valley", "½(x² + 50y²)", _valley, lambda x, y: (x, 50 * y),
                (-4.0, 1.0), (-5.0, 5.0, -2.0, 2.0), ((0.0, 0.0),), lr=0.03,
                lanes=("sgd:lr=0.035", "momentum:lr=0.01,beta1=0.9", "adam:lr=0.1", "lion:lr=0.05"),
            ),
            Surface(
                # Rosenbrock 1960, "An automatic method for finding the greatest or least value of a function".
                "rosenbrock", "Rosenbrock's valley", "(1-x)² + 100(y-x²)²", _rosenbrock, _rosenbrock_slope,
                (-1.2, 1.0), (-2.0, 2.0, -1.0, 3.0), ((1.0, 1.0),), lr=0.01,
                lanes=("sgd:lr=0.001", "momentum:lr=5e-4,beta1=0.9", "adam:lr=0.02", "lion:lr=0.01"),
            ),
            Surface(
                "saddle", "saddle", "½(x² - y²) + y⁴/20", _saddle, lambda x, y: (x, -y + 0.2 * y**3),
                (-2.0, 1e-3), (-3.0, 3.0, -4.0, 4.0), ((0.0, 5**0.5), (0.0, -(5**0.5))), lowest=-1.25, lr=0.03,
                lanes=("sgd:lr=0.03", "momentum:lr=0.03,beta1=0.9", "adam:lr=0.03", "lion:lr=0.03"),
            ),
            Surface(
                "noisy", "noisy quadratic", "½(x² + 10y²), gradients with noise of deviation 2",
                lambda x, y: np.asarray(0.5 * (x * x + 10 * y * y)), lambda x, y: (x, 10 * y),
                (-4.0, 2.0), (-5.0, 5.0, -3.0, 3.0), ((0.0, 0.0),), lr=0.03,
                lanes=("sgd:lr=0.05", "momentum:lr=0.01,beta1=0.9", "adam:lr=0.05", "lion:lr=0.03"), noise=2.0,
            ),
        )
    }
)  # fmt: skip


def surface_of(source: str) -> Surface | None:
    """The surface that a source's name stands for; None for any other source."""
    kind, _, name = source.partition(":")
    return SURFACES.get(name) if kind == KIND else None
