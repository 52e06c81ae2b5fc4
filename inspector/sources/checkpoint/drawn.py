"""Gradients for a state that came without any: drawn from what its moments say the gradients looked like.

m̂ = m / (1 - β₁ᵗ) estimates the mean of an element's gradients and v̂ = v / (1 - β₂ᵗ) the mean of their squares
(Kingma and Ba 2015, section 3, arXiv 1412.6980), so that an element's gradient is drawn from a normal distribution of
mean m̂ and variance max(v̂ - m̂², 0). Where there is no state, or none that is finite, the gradient is 0.
"""

from __future__ import annotations

import numpy as np

from inspector.floats import F32Array
from inspector.settings import Settings


def drawn_gradient(
    m: F32Array, v: F32Array, settings: Settings, t: int, *, seed: int, step: int, number: int
) -> F32Array:
    """Gradients of one param, float32 like `m` and `v` (flat), which are those after `t` steps of it.

    The same for the same seed, step and `number` of the param.
    """
    if t < 1 or not m.size:
        return np.zeros(m.size, np.float32)
    with np.errstate(all="ignore"):
        mean = m / np.float32(1 - settings.beta1**t) if settings.beta1 else m.copy()
        square = v / np.float32(1 - settings.beta2**t) if settings.beta2 else v
        deviation = np.sqrt(np.maximum(square - mean * mean, np.float32(0)))
        normal = np.random.default_rng([seed, step, number]).standard_normal(m.size, np.float32)
        gradient = normal * deviation + mean
    gradient[~np.isfinite(gradient)] = 0
    return gradient
