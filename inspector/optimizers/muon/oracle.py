"""The Muon step in numpy: of whole matrices the orthogonalised update, of elements what is made of it."""

from __future__ import annotations

import math

import numpy as np

from inspector.floats import BoolArray
from inspector.hyper import Hyper, Numerics
from inspector.optimizers.element_wise import Coefficients, coefficients, finite_gradient, in_type
from inspector.optimizers.evaluation import Array, FloatType, Line, Scalar, Updated

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5
EPS = 1e-7


def newton_schulz(x: Array, dtype: FloatType = np.float64) -> Array:
    """A matrix, rows x columns, with its singular values brought near 1: from about 0.7 to 1.2 where not too small.

    Five quintic iterations X ← aX + (bA + cA²)X with A = XXᵀ, of a tall matrix on its transpose, from X over its
    Frobenius norm + 1e-7. The coefficients count as rounded to float32.
    """
    a, b, c = (dtype(np.float32(each)) for each in COEFFICIENTS)
    x = np.asarray(x, dtype=dtype)
    tall = x.shape[0] > x.shape[1]
    if tall:
        x = x.T
    with np.errstate(all="ignore"):
        x = x / (np.sqrt(np.sum(x * x)) + dtype(np.float32(EPS)))
        for _ in range(ITERATIONS):
            gram = x @ x.T
            x = a * x + (b * gram + c * (gram @ gram)) @ x
    return x.T if tall else x


def shape_factor(rows: int, columns: int) -> np.float32:
    """What the orthogonalised update of a matrix is multiplied by: √max(1, rows / columns)."""
    return np.float32(math.sqrt(max(1.0, rows / columns)))


def direction(
    g: Array,
    m: Array,
    *,
    scale: float | Scalar,
    hyper: Hyper,
    numerics: Numerics = "published",
    dtype: FloatType = np.float64,
) -> Array:
    """What is orthogonalised, of any shape: Nesterov's blend of the gradient, clipped, and the momentum after it."""
    c = coefficients(hyper, numerics, dtype)
    return _blend(in_type(g, dtype), in_type(m, dtype), scale, c, dtype)[2]


def _blend(
    g: Array, m: Array, scale: float | Scalar, c: Coefficients, dtype: FloatType
) -> tuple[Array, Array, Array]:
    """The gradient, clipped and finite, the momentum after it, and Nesterov's blend of the two."""
    with np.errstate(all="ignore"):
        grad = finite_gradient(g, scale, dtype)
        m1 = c.beta1 * m + c.rest1 * grad
        return grad, m1, np.asarray(c.beta1 * m1 + c.rest1 * grad)


def orthogonalised(
    g: Array,
    m: Array,
    *,
    scale: float | Scalar,
    hyper: Hyper,
    numerics: Numerics = "published",
    dtype: FloatType = np.float64,
) -> Array:
    """What stands in v's place of a hidden matrix when it is updated; g and m in its shape."""
    blend = direction(g, m, scale=scale, hyper=hyper, numerics=numerics, dtype=dtype)
    matrix = blend.reshape(blend.shape[0], -1)
    return np.asarray(dtype(shape_factor(*matrix.shape)) * newton_schulz(matrix, dtype)).reshape(blend.shape)


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
    """One update of elements of hidden matrices at any step; arrays of one shape, `scale` the clip scale.

    `v` is the orthogonalised update of these elements, given back as it is. μ is β₁; precise numerics have 1-μ
    from float64.
    """
    c = coefficients(hyper, numerics, dtype)
    w, g, m, v = (in_type(x, dtype) for x in (w, g, m, v))
    grad, m1, blend = _blend(g, m, scale, c, dtype)
    with np.errstate(all="ignore"):
        decayed = np.where(decays, c.decay, dtype(0)) * w
        change = c.lr * (v + decayed)
        w1 = np.where(np.isfinite(change), w - change, w)
    lines = (
        Line("g'", "clipScale · (g if finite else 0)", grad),
        Line("m", "β₁·m + (1-β₁)·g'", m1),
        Line("direction", "β₁·m + (1-β₁)·g'  with the new m (Nesterov)", blend),
        Line("v", "√max(1, rows/columns) · Newton-Schulz of the whole matrix of directions", v),
        Line("decay", "λ·w", decayed),
        Line("update", "lr·(v + decay)", change),
        Line("w", "w - update (w where the update is not finite)", w1),
    )
    return Updated(w1, m1, v, lines)
