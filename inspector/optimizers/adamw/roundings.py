"""What roundings alone may leave between two results of one step: bounds by element, that hold for params of any size.

A rounding to the nearest is off by at most 2⁻²⁴ of what is rounded in float32, half a unit in the last place. How many
there are on the way to m, v and w, and of which terms, depends on the order in which a program computes; the bounds
take the longest that is usual. In a param of millions of elements some come near to them.
"""

from __future__ import annotations

import numpy as np

from inspector.floats import F64Array
from inspector.optimizers.adamw.peers import Given, Lanes
from inspector.step_ulp import LOST_BITS, Dtype, unit

TOLERANCE_ULP = 2.0
"""Of the sum that m, v or w is, and of its terms, in units of `step_ulp`: some three roundings on either side."""
CHANGE_ULP = 4.0
"""Of what w changes by, in units of that; and beside it so many roundings of it:"""
CHANGE_ROUNDINGS = 12
"""lr, β₁ᵗ, m divided; β₂ᵗ, v divided, the root; ε added, the quotient, times lr: nine on either side."""


def allowed(lane: str, given: Given, after: Lanes, dtype: Dtype, *, l2: bool) -> F64Array:
    """By how much two results in `dtype` may differ by rounding, of the shape of the param.

    `after` is one of them; `l2` says that the decay is in the gradient.
    """
    before, there = getattr(given.before, lane), getattr(after, lane)
    slack = TOLERANCE_ULP * unit(before, there, dtype)
    h = given.hyper
    half = 2.0 ** (LOST_BITS[dtype] - 24)
    g = np.abs(given.scale * given.g.astype(np.float64))
    # The clip scale is multiplied by once, and rounded; by squaring that is doubled.
    clip = 0 if given.scale == 1 else 1
    if lane == "w":
        moved = there.astype(np.float64) - before
        change = np.abs(moved).astype(np.float32)
        slack = slack + CHANGE_ULP * unit(change, change, dtype)
        # Decay may take back of the update what both were rounded by.
        slack = slack + CHANGE_ROUNDINGS * half * (
            np.abs(moved) + given.decay * h.lr * np.abs(before.astype(np.float64))
        )
    elif lane == "m":
        # On either side, besides: g - m of an interpolation.
        slack = slack + 2 * (1 + clip) * half * (1 - h.beta1) * g
    else:
        # On either side, besides: (1-β₂)·g before it is multiplied by g.
        slack = slack + 2 * (1 + 2 * clip) * half * (1 - h.beta2) * g * g
    if l2 and lane != "w":
        # Gradient and decay may cancel, which leaves the roundings of the larger.
        decay = np.float32(h.weight_decay) * np.abs(given.before.w)
        size = unit(decay, given.g, dtype)
        slack = slack + size * (
            (1 - h.beta1) if lane == "m" else 2 * (1 - h.beta2) * (np.abs(given.g) + decay)
        )
    return np.asarray(slack, np.float64)
