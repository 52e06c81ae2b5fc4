"""The Lion step in numpy, element by element: in float64 as the truth, in float32 without fused operations."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from inspector.floats import BoolArray, F32Array
from inspector.hyper import Hyper, Numerics
from inspector.optimizers.element_wise import (
    coefficients,
    finite_gradient,
    in_type,
    rest_uniform,
    uniforms_with_bias,
)
from inspector.optimizers.evaluation import Array, FloatType, Line, Scalar, Updated


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
    """One update at any step; arrays of one shape, `scale` the clip scale. v is given back as it is.

    Where the blend is 0 but for rounding, its sign in float32 may be another.
    """
    c = coefficients(hyper, numerics, dtype)
    w, g, m, v = (in_type(x, dtype) for x in (w, g, m, v))
    with np.errstate(all="ignore"):
        grad = finite_gradient(g, scale, dtype)
        blend = c.beta1 * m + c.rest1 * grad
        sign = np.sign(blend)
        decayed = np.where(decays, c.decay, dtype(0)) * w
        change = c.lr * (sign + decayed)
        m1 = c.beta2 * m + c.rest2 * grad
        w1 = np.where(np.isfinite(change), w - change, w)
    lines = (
        Line("g'", "clipScale · (g if finite else 0)", grad),
        Line("blend", "β₁·m + (1-β₁)·g'", blend),
        Line("sign", "sign(blend)", sign),
        Line("decay", "λ·w", decayed),
        Line("update", "lr·(sign + decay)", change),
        Line("w", "w - update (w where the update is not finite)", w1),
        Line("m", "β₂·m + (1-β₂)·g'", m1),
    )
    return Updated(w1, m1, v, lines)


def uniforms(hyper: Hyper, step: int, numerics: Numerics) -> Mapping[str, F32Array]:
    """See `Optimizer.uniforms`; precise numerics take 1-β from float64."""
    return uniforms_with_bias(
        hyper, step, lambda each: rest_uniform(each) if numerics == "precise" else np.zeros(4, np.float32)
    )
