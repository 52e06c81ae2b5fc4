"""The Adafactor step of a param in numpy: in float64 as the truth, in float32 without fused operations."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from inspector.errors import UsageError
from inspector.floats import F32Array
from inspector.hyper import Hyper, Numerics
from inspector.optimizers.adafactor.state import COLUMN, ROW, VECTOR
from inspector.optimizers.element_wise import coefficients, finite_gradient, in_type
from inspector.optimizers.evaluation import Array, FloatType, Line, Scalar, UpdatedParam

EPS1 = 1e-30
"""ε₁: what is added to g'² (§10, the paper's own)."""
CLIP_AT = 1.0
"""d: the RMS from which on an update is scaled down (§6)."""
DECAY_EXPONENT = -0.8
"""β̂₂ₜ = 1 - t^-0.8 (§7.2)."""


def decay_uniform(step: int) -> F32Array:
    """The `bias` uniform, float32[4]: 1-β̂₂ₜ and β̂₂ₜ of step t from float64, ε₁, d."""
    if step < 1:
        raise UsageError(f"Step {step} cannot be run: steps count from 1.")
    rest = np.float64(step) ** DECAY_EXPONENT
    return np.array([rest, 1 - rest, EPS1, CLIP_AT]).astype(np.float32)


def update_param(
    w: Array,
    g: Array,
    states: Mapping[str, Array],
    *,
    scale: float | Scalar,
    hyper: Hyper,
    step: int,
    decays: bool,
    numerics: Numerics = "published",
    dtype: FloatType = np.float64,
) -> UpdatedParam:
    """One update; w and g in the param's shape. `states` has row_var and col_var of a matrix, variance of a vector.

    published: the settings and 1-β̂₂ₜ as rounded to float32, in either type; precise: unrounded in float64.
    """
    c = coefficients(hyper, numerics, dtype)
    rest, beta, eps1, limit = (dtype(x) for x in decay_uniform(step))
    if numerics == "precise" and dtype is np.float64:
        rest = np.float64(step) ** DECAY_EXPONENT
        beta, eps1 = 1 - rest, np.float64(EPS1)
    w, g = in_type(w, dtype), in_type(g, dtype)
    kept = {name: in_type(values, dtype) for name, values in states.items()}
    with np.errstate(all="ignore"):
        grad = finite_gradient(g, scale, dtype)
        square = grad * grad
        after: dict[str, Array] = {}
        told: list[Line] = []
        if w.ndim < 2:
            after[VECTOR] = beta * kept[VECTOR] + rest * (square + eps1)
            told.append(Line(VECTOR, "β̂₂ₜ·V + (1-β̂₂ₜ)·(g'² + ε₁)", after[VECTOR]))
            second = after[VECTOR]
        else:
            for name, axis, of in ((ROW, -1, "row"), (COLUMN, -2, "column")):
                after[name] = beta * kept[name] + rest * (square.mean(axis=axis, dtype=dtype) + eps1)
                told.append(Line(name, f"β̂₂ₜ·{name} + (1-β̂₂ₜ)·(mean of g'² over a {of} + ε₁)", after[name]))
            row, column = after[ROW], after[COLUMN]
            mean = row.mean(axis=-1, dtype=dtype)[..., None, None]
            second = (row[..., :, None] / mean) * column[..., None, :]
        direction = grad / np.sqrt(second)
        rms = np.sqrt((direction * direction).mean(dtype=dtype)) if direction.size else dtype(0)
        clipped = direction / np.maximum(dtype(1), rms / limit)
        decayed = (c.decay if decays else dtype(0)) * w
        change = c.lr * (clipped + decayed)
        w1 = np.where(np.isfinite(change), w - change, w)
    lines = (
        Line("g'", "clipScale · (g if finite else 0)", grad),
        *told,
        Line("V̂", "variance" if w.ndim < 2 else "row_var · col_varᵀ / mean(row_var)", second),
        Line("u", "g' / √V̂", direction),
        Line("RMS(u)", "√(mean of u² over the param)", np.asarray(rms)),
        Line("û", "u / max(1, RMS(u)/d)", clipped),
        Line("decay", "λ·w", decayed),
        Line("update", "lr·(û + decay)", change),
        Line("w", "w - update (w where the update is not finite)", w1),
    )
    return UpdatedParam(np.asarray(w1), after, lines)
