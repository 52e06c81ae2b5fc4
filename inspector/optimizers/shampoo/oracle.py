"""The Shampoo step in numpy: of whole matrices what is subtracted, of elements what is made of it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from inspector.floats import BoolArray
from inspector.hyper import Hyper, Numerics, bias_uniform
from inspector.optimizers.element_wise import coefficients, finite_gradient, in_type
from inspector.optimizers.evaluation import Array, FloatType, Line, Scalar, Updated
from inspector.optimizers.shampoo.blocks import LEFT, LEFT_ROOT, RIGHT, RIGHT_ROOT, grid_of

RIDGE = 1e-3
"""What is added to a factor's diagonal before its root is taken, by its largest eigenvalue."""
POWER_ITERATIONS = 20
NOTHING = 1e-30
"""A factor whose largest eigenvalue is below it has seen no gradient: its root is the identity."""


def power_start(side: int) -> Array:
    """The vector that power iteration begins with, float64[side]: numbers from -1 to 1 that follow no pattern.

    Not all ones: the columns of a head's gradient add up to 0. Each is exact in float32.
    """
    bits = (np.arange(1, side + 1, dtype=np.uint64) * 2_654_435_761) % 2**32
    return np.asarray((bits >> np.uint64(24)).astype(np.float64) / 128 - 0.99609375)


def largest_eigenvalue(factor: Array) -> float:
    """That of a symmetric matrix without negative ones, from below: so many power iterations, then the Rayleigh
    quotient. Its definition here, for the ridge hangs on it."""
    x = power_start(factor.shape[0])
    x = x / np.linalg.norm(x)
    for _ in range(POWER_ITERATIONS):
        y = factor @ x
        size = np.linalg.norm(y)
        if not size > 0:
            return 0.0
        x = y / size
    return float(x @ (factor @ x))


def inverse_fourth_root(factor: Array) -> Array:
    """(factor + RIDGE·λ·I)^(-1/4) by eigenvalues, float64[side, side]; λ is the largest eigenvalue."""
    factor = np.asarray(factor, np.float64)
    largest = largest_eigenvalue(factor)
    if largest < NOTHING:
        return np.eye(len(factor))
    values, vectors = np.linalg.eigh(factor)
    roots = (np.maximum(values, 0) + float(np.float32(RIDGE)) * largest) ** -0.25
    return np.asarray((vectors * roots) @ vectors.T)


def direction(
    g: Array,
    m: Array,
    *,
    scale: float | Scalar,
    hyper: Hyper,
    step: int,
    numerics: Numerics = "published",
    dtype: FloatType = np.float64,
) -> Array:
    """m̂ after the step, of any shape: what the roots are multiplied with."""
    return _moments(g, m, scale, hyper, step, numerics, dtype)[2]


def preconditioned(
    g: Array,
    m: Array,
    states: Mapping[str, Array],
    *,
    scale: float | Scalar,
    hyper: Hyper,
    step: int,
    block: int,
    refresh: bool,
    numerics: Numerics = "published",
    summed: bool = False,
) -> tuple[Array, dict[str, Array]]:
    """What stands in v's place of a matrix when it is updated, and its states after the step; float64.

    g and m in the param's shape, the states in theirs. With `refresh` the roots are worked out anew from the factors
    after this step; `summed` where the factors are sums.
    """
    c = coefficients(hyper, numerics, np.float64)
    grad, _, blend = _moments(g, m, scale, hyper, step, numerics, np.float64)
    grid = grid_of(np.shape(g), block)
    assert grid is not None
    grad, blend = grad.reshape(grid.rows, grid.columns), blend.reshape(grid.rows, grid.columns)
    keep, add = (np.float64(1), np.float64(1)) if summed else (c.beta2, c.rest2)
    correction = 1.0 if summed else _bias_corrections(hyper, step, numerics)[1]
    after: dict[str, Array] = {name: np.array(values, np.float64) for name, values in states.items()}
    result = np.zeros_like(blend)
    for i in range(grid.down):
        for j in range(grid.across):
            tall, wide = grid.extent(i, j)
            down, across = i * grid.height, j * grid.width
            at = (slice(down, down + tall), slice(across, across + wide))
            own = np.zeros((grid.height, grid.width))
            own[:tall, :wide] = grad[at]
            for factor, root, gram in ((LEFT, LEFT_ROOT, own @ own.T), (RIGHT, RIGHT_ROOT, own.T @ own)):
                after[factor][i, j] = keep * after[factor][i, j] + add * gram
                if refresh:
                    found = inverse_fourth_root(after[factor][i, j])
                    nothing = largest_eigenvalue(after[factor][i, j]) < NOTHING
                    after[root][i, j] = found if nothing else found * correction**0.25
            left, right = after[LEFT_ROOT][i, j], after[RIGHT_ROOT][i, j]
            result[at] = left[:tall, :tall] @ blend[at] @ right[:wide, :wide]
    return np.asarray(result).reshape(np.shape(g)), after


def _bias_corrections(hyper: Hyper, step: int, numerics: Numerics) -> tuple[float, float]:
    """1-β₁ᵗ and 1-β₂ᵗ, of powers rounded to float32 in published numerics."""
    if numerics == "precise":
        return 1 - hyper.beta1**step, 1 - hyper.beta2**step
    power1, power2 = (float(x) for x in bias_uniform(hyper, step, "published")[:2])
    least = float(np.float32(1e-12))
    return max(1 - power1, least), max(1 - power2, least)


def _moments(
    g: Array,
    m: Array,
    scale: float | Scalar,
    hyper: Hyper,
    step: int,
    numerics: Numerics,
    dtype: FloatType,
) -> tuple[Array, Array, Array]:
    """g', m after the step and m̂."""
    c = coefficients(hyper, numerics, dtype)
    g, m = in_type(g, dtype), in_type(m, dtype)
    with np.errstate(all="ignore"):
        grad = finite_gradient(g, scale, dtype)
        m1 = np.asarray(c.beta1 * m + c.rest1 * grad)
        if dtype is np.float64:
            return grad, m1, np.asarray(m1 / _bias_corrections(hyper, step, numerics)[0])
        bias = bias_uniform(hyper, step, numerics)[0]
        if numerics == "precise":
            return grad, m1, np.asarray(m1 * bias)
        return grad, m1, np.asarray(m1 / np.maximum(dtype(1) - bias, dtype(1e-12)))


def update(
    w: Array,
    g: Array,
    m: Array,
    v: Array,
    *,
    scale: float | Scalar,
    hyper: Hyper,
    step: int,
    decays: bool | BoolArray,
    numerics: Numerics = "published",
    dtype: FloatType = np.float64,
) -> Updated:
    """One update of elements of matrices; arrays of one shape, `scale` the clip scale.

    `v` is what the roots made of m̂ for these elements, given back as it is. Precise numerics have 1-β and 1-βᵗ from
    float64.
    """
    c = coefficients(hyper, numerics, dtype)
    w, v = in_type(w, dtype), in_type(v, dtype)
    grad, m1, blend = _moments(g, m, scale, hyper, step, numerics, dtype)
    with np.errstate(all="ignore"):
        decayed = np.where(decays, c.decay, dtype(0)) * w
        change = c.lr * (v + decayed)
        w1 = np.where(np.isfinite(change), w - change, w)
    hat = "m·(1/(1-β₁ᵗ))" if numerics == "precise" else "m / max(1-β₁ᵗ, 1e-12)"
    lines = (
        Line("g'", "clipScale · (g if finite else 0)", grad),
        Line("m", "β₁·m + (1-β₁)·g'", m1),
        Line("m̂", hat, blend),
        Line("v", "left_root · m̂ · right_root, of the whole block", v),
        Line("decay", "λ·w", decayed),
        Line("update", "lr·(v + decay)", change),
        Line("w", "w - update (w where the update is not finite)", w1),
    )
    return Updated(w1, m1, v, lines)
