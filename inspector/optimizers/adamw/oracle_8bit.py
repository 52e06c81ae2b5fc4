"""The AdamW step over an 8-bit state, in float64: decode m and v, update, encode.

w is updated from m and v as they are before they are encoded, as in the published kernel and in Dettmers et al. 2022
(arXiv 2110.02861). With linear codes a small v beside an outlier becomes 0 under an m that does not, so there, as
published, ε is at least 1e-6 and m̂/(√v̂+ε) at most 1 in magnitude. With sqrt that cannot happen, and 8-bit optimizers
with the dynamic map, where it can, take ε as given and limit nothing: so do these two here. `StateError.lost` counts
such elements.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from inspector.codecs import Codec, FloatType, Moments8bit, StateError, Values, ambiguous, encode, state_error
from inspector.floats import BoolArray, F32Array, F64Array
from inspector.hyper import Hyper, Numerics, hp_uniform
from inspector.optimizers.adamw.oracle import decayed_and_moved, precise_settings, update
from inspector.optimizers.evaluation import Line, Updated

LINEAR_EPS_FLOOR = 1e-6
LINEAR_RATIO_LIMIT = 1.0


@dataclass(frozen=True, slots=True)
class Updated8bit:
    """One step: w, and m and v before encoding (float64, flat), with every line; then the state it leaves.

    `m_terms` and `v_terms` are the largest term of the sums that m and v are: the magnitude that a float32
    evaluation has its errors in.
    """

    w: F64Array
    m: F64Array
    v: F64Array
    lines: tuple[Line, ...]
    state: Moments8bit
    m_terms: F64Array
    v_terms: F64Array

    def ambiguous(self, ulps: float = 1.0) -> tuple[BoolArray, BoolArray]:
        """For m and v, where a value within so many float32 ULP of the exact one has another code (whole blocks).

        Anywhere else a kernel's code has to be the one of `state`. 1 covers the rounding of m and v alone; a division
        by the scale may add 2.5 on a GPU, the scale the same, and a root's errors count twice.
        """
        codec, state = self.state.codec, self.state
        return (
            ambiguous(codec, "m", self.m, state.m.scales, ulps, self.m_terms),
            ambiguous(codec, "v", self.v, state.v.scales, ulps, self.v_terms),
        )

    def error(self) -> StateError:
        """What encoding did to m and v in this step."""
        return state_error(self.state.codec, self.m, self.v, self.state.m, self.state.v)


def zero_state(codec: Codec, elements: int) -> Moments8bit:
    """m and v before the first step."""
    zeros = np.zeros(elements, np.float32)
    return Moments8bit(codec, encode(codec, "m", zeros), encode(codec, "v", zeros))


def coded_state(codec: Codec, m: F32Array, v: F32Array) -> Moments8bit:
    """The codes of a float32 state (flat)."""
    return Moments8bit(codec, encode(codec, "m", m), encode(codec, "v", v))


def kernel_eps(codec: Codec, eps: float) -> float:
    """The ε that the kernel adds: at least 1e-6 with linear codes, as published."""
    return max(eps, LINEAR_EPS_FLOOR) if codec == "linear" else eps


def update_8bit(
    w: F32Array | F64Array,
    g: F32Array,
    state: Moments8bit,
    *,
    scale: float,
    hyper: Hyper,
    step: int,
    decays: bool | BoolArray,
    numerics: Numerics = "published",
    l2: bool = False,
) -> Updated8bit:
    """One step of one param at step `step` (from 1); w and g flat, of any size up to the state's.

    `scale` is the clip scale; the settings are rounded, and `l2` is, as in `oracle.update`.
    """
    m0, v0 = state.decoded(w.size)
    done, lines = update_decoded(
        w,
        g,
        m0,
        v0,
        codec=state.codec,
        scale=scale,
        hyper=hyper,
        step=step,
        decays=decays,
        numerics=numerics,
        l2=l2,
    )
    w1, m1, v1 = (np.asarray(x, np.float64) for x in (lines[-1].value, done.m, done.v))
    grad = np.asarray(done.line("g'"), np.float64)
    new = Moments8bit(state.codec, encode(state.codec, "m", m1), encode(state.codec, "v", v1))
    with np.errstate(over="ignore"):
        m_terms = np.maximum(np.abs(hyper.beta1 * m0), np.abs((1 - hyper.beta1) * grad))
        v_terms = np.maximum(np.abs(hyper.beta2 * v0), np.abs((1 - hyper.beta2) * grad * grad))
    return Updated8bit(w1, m1, v1, lines, new, m_terms, v_terms)


def update_decoded(
    w: F32Array | F64Array,
    g: F32Array,
    m: F32Array | F64Array,
    v: F32Array | F64Array,
    *,
    codec: Codec,
    scale: float,
    hyper: Hyper,
    step: int,
    decays: bool | BoolArray,
    numerics: Numerics = "published",
    l2: bool = False,
    dtype: FloatType = np.float64,
) -> tuple[Updated, tuple[Line, ...]]:
    """One step from m and v as decoded, before they are coded again; and its lines as the codec has them.

    Calculated in `dtype`, as in `oracle.update`.
    """
    used = replace(hyper, eps=kernel_eps(codec, hyper.eps))
    done = update(
        w, g, m, v, scale=scale, hyper=used, step=step, decays=decays, numerics=numerics, l2=l2, dtype=dtype
    )
    if codec != "linear":
        return done, done.lines
    return done, _limited(np.asarray(w, dtype), done, hyper, step, decays, numerics, l2)


def _limited(
    w: Values, done: Updated, hyper: Hyper, step: int, decays: bool | BoolArray, numerics: Numerics, l2: bool
) -> tuple[Line, ...]:
    """The lines with the ratio limited, and what follows from it, in the type of `w`."""
    precise = precise_settings(hyper, step, w.dtype.type) if numerics == "precise" else None
    lr = w.dtype.type(hp_uniform(hyper, decays=True)[0]) if precise is None else precise.lr
    with np.errstate(all="ignore"):
        limit = w.dtype.type(LINEAR_RATIO_LIMIT)
        ratio = np.clip(done.line("ratio"), -limit, limit)
        if precise is None:
            change = lr * (ratio if l2 else ratio + done.line("decay"))
            w1 = np.where(np.isfinite(change), w - change, w)
        else:
            w1, change = decayed_and_moved(w, done.line("decay"), lr * ratio, precise, decays, l2)
    values = {"ratio": ratio, "update": change, "w": w1}
    formulas = {"ratio": "m̂ / denominator, limited to [-1, 1]", "denominator": "√v̂ + max(ε, 1e-6)"}
    if precise is not None:
        formulas |= {
            "denominator": "√v / √(1-β₂ᵗ) + max(ε, 1e-6)",
            "update": "lr·ratio" if l2 else "lr·(ratio + decay)",
            "w": ("w" if l2 else "w·(1-lr·λ)") + " - lr·ratio (w where the update is not finite)",
        }
    return tuple(
        Line(line.name, formulas.get(line.name, line.formula), values.get(line.name, line.value))
        for line in done.lines
    )
