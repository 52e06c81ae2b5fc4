"""The SGD step in numpy, element by element: in float64 as the truth, in float32 without fused operations."""

from __future__ import annotations

import numpy as np

from inspector.floats import BoolArray
from inspector.hyper import Hyper, Numerics
from inspector.optimizers.element_wise import coefficients, finite_gradient, in_type
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
    """One update at any step; arrays of one shape, `scale` the clip scale. m and v are given back as they are.

    `numerics` make no difference: the settings count as rounded to float32 in either."""
    c = coefficients(hyper, "published", dtype)
    w, g, m, v = (in_type(x, dtype) for x in (w, g, m, v))
    with np.errstate(all="ignore"):
        grad = finite_gradient(g, scale, dtype)
        decayed = np.where(decays, c.decay, dtype(0)) * w
        direction = grad + decayed
        change = c.lr * direction
        w1 = np.where(np.isfinite(change), w - change, w)
    lines = (
        Line("g'", "clipScale · (g if finite else 0)", grad),
        Line("decay", "λ·w", decayed),
        Line("direction", "g' + decay", direction),
        Line("update", "lr·direction", change),
        Line("w", "w - update (w where the update is not finite)", w1),
    )
    return Updated(w1, m, v, lines)
