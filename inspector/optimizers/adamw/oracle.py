"""The AdamW step in numpy: in float64 as the truth, in float32 as an evaluation without fused operations.

Formulas: KERNELS of the published optimizer; AdamW after Loshchilov & Hutter 2019, algorithm 2, with the
gradient clipped by its global norm (Pascanu et al. 2013) and non-finite gradients taken as 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from inspector.floats import BoolArray, F32Array, F64Array
from inspector.hyper import (
    Hyper,
    Numerics,
    bias_uniform,
    exact_uniform,
    hp_uniform,
    max_grad_norm_uniform,
)
from inspector.layout import Layout
from inspector.optimizers.evaluation import Array, FloatType, Line, Updated
from inspector.param_hyper import param_step

CLIP_FLOOR = 1e-6
BIAS_FLOOR = 1e-12


def true_norm(g: F32Array) -> float:
    """√Σg² over the finite elements, in float64, scaled so that nothing over- or underflows."""
    finite = np.asarray(g, dtype=np.float64).ravel()
    finite = finite[np.isfinite(finite)]
    largest = float(np.max(np.abs(finite), initial=0.0))
    if largest == 0.0:
        return 0.0
    return float(largest * np.sqrt(np.sum((finite / largest) ** 2)))


def kernel_norm(g: F32Array) -> float:
    """The norm a float32 kernel can give: infinite where Σg² overflows float32, 0 where every g² vanishes."""
    values = np.asarray(g, dtype=np.float64).ravel()
    values = values[np.isfinite(values)]
    squares = values**2
    with np.errstate(over="ignore"):
        # A square below half the least denormal rounds to 0 before it is added.
        squares = np.where(squares < 2.0**-150, 0.0, squares)
        norm_sq = np.float64(np.float32(np.sum(squares)))
    return float(np.sqrt(norm_sq))


def clip_scale(grad_norm: float, max_grad_norm: float, dtype: FloatType = np.float64) -> np.floating[Any]:
    """min(1, max_grad_norm / max(grad_norm, 1e-6)) with the limit as rounded to float32."""
    limit = dtype(max_grad_norm_uniform(Hyper(max_grad_norm=max_grad_norm))[0])
    with np.errstate(all="ignore"):
        return dtype(np.minimum(dtype(1), limit / np.maximum(dtype(grad_norm), dtype(CLIP_FLOOR))))


def update(
    w: Array,
    g: Array,
    m: Array,
    v: Array,
    *,
    scale: float | np.floating[Any],
    hyper: Hyper,
    step: int,
    decays: bool | BoolArray,
    numerics: Numerics = "published",
    dtype: FloatType = np.float64,
    l2: bool = False,
) -> Updated:
    """One element-wise update at step `step` (from 1); arrays of one shape, `decays` a bool or mask of it.

    `l2` puts the decay into the gradient instead (Adam with L2 regularisation).

    published: the hyper-parameters as rounded to float32, in either dtype. precise: as rounded in float32,
    and unrounded in float64; and m, v and w in another order, see `peers.torch_fused_cpu`. `scale` is the clip scale.
    """
    if numerics == "precise":
        return _precise(w, g, m, v, scale, hyper, step, decays, dtype, l2)
    lr, beta1, beta2, decay = (dtype(x) for x in hp_uniform(hyper, decays=True))
    first, second, eps, _ = (dtype(x) for x in bias_uniform(hyper, step, numerics))
    one = dtype(1)
    w, g, m, v = (_cast(x, dtype) for x in (w, g, m, v))
    with np.errstate(all="ignore"):
        lam = np.where(decays, decay, dtype(0))
        decayed = lam * w
        grad = dtype(scale) * np.where(np.isfinite(g), g, dtype(0))
        if l2:
            grad = grad + decayed
        m1 = beta1 * m + (one - beta1) * grad
        v1 = beta2 * v + (one - beta2) * (grad * grad)
        m_hat = m1 / np.maximum(one - first, dtype(BIAS_FLOOR))
        v_hat = v1 / np.maximum(one - second, dtype(BIAS_FLOOR))
        denominator = np.sqrt(v_hat) + eps
        ratio = m_hat / denominator
        change = lr * ratio if l2 else lr * (ratio + decayed)
        w1 = np.where(np.isfinite(change), w - change, w)
    lines = (
        Line("g'", _gradient_formula(l2), grad),
        Line("m", "β₁·m + (1-β₁)·g'", m1),
        Line("v", "β₂·v + (1-β₂)·g'²", v1),
        Line("m̂", "m / max(1-β₁ᵗ, 1e-12)", m_hat),
        Line("v̂", "v / max(1-β₂ᵗ, 1e-12)", v_hat),
        Line("denominator", "√v̂ + ε", denominator),
        Line("ratio", "m̂ / denominator", ratio),
        Line("decay", "λ·w", decayed),
        Line("update", "lr·ratio" if l2 else "lr·(ratio + decay)", change),
        Line("w", "w - update (w where the update is not finite)", w1),
    )
    return Updated(w1, m1, v1, lines)


def _precise(
    w: Array, g: Array, m: Array, v: Array, scale: Any, hyper: Hyper, step: int, decays: bool | BoolArray,
    dtype: FloatType, l2: bool,
) -> Updated:  # fmt: skip
    """`update` with precise numerics: in the order in which PyTorch rounds on a CPU (`peers.torch_fused_cpu`)."""
    c = precise_settings(hyper, step, dtype)
    w, g, m, v = (_cast(x, dtype) for x in (w, g, m, v))
    with np.errstate(all="ignore"):
        lam = np.where(decays, c.decay, dtype(0))
        decayed = lam * w
        grad = dtype(scale) * np.where(np.isfinite(g), g, dtype(0))
        if l2:
            grad = _fused(lam, w, grad)
        near = c.rest1 < 0.5
        m1 = _fused(c.rest1, grad - m, m) if near else _fused(c.rest1 - dtype(1), grad - m, grad)
        v1 = _fused(c.rest2 * grad, grad, c.beta2 * v)
        m_hat, v_hat = m1 * c.first, v1 * c.second
        denominator = np.sqrt(v1) / c.root + c.eps
        ratio = m_hat / denominator
        moved = c.rate * m1 / denominator
        w1, change = decayed_and_moved(w, decayed, moved, c, decays, l2)
    decayed_w = "w" if l2 else "w·(1-lr·λ)"
    moves = "lr/(1-β₁ᵗ)·m / denominator"
    lines = (
        Line("g'", _gradient_formula(l2), grad),
        Line("m", "m + (1-β₁)·(g'-m)" if near else "g' - β₁·(g'-m)", m1),
        Line("v", "β₂·v + (1-β₂)·g'·g'", v1),
        Line("m̂", "m · 1/(1-β₁ᵗ)", m_hat),
        Line("v̂", "v · 1/(1-β₂ᵗ)", v_hat),
        Line("denominator", "√v / √(1-β₂ᵗ) + ε", denominator),
        Line("ratio", "m̂ / denominator", ratio),
        Line("decay", "λ·w", decayed),
        Line("update", moves if l2 else f"{moves} + lr·decay", change),
        Line("w", f"{decayed_w} - {moves} (w where the update is not finite)", w1),
    )
    return Updated(w1, m1, v1, lines)


@dataclass(frozen=True, slots=True)
class PreciseSettings:
    """What precise numerics make of the settings, in one type of float; see `precise_settings`."""

    lr: Any
    beta2: Any
    decay: Any
    eps: Any
    first: Any
    """1/(1-β₁ᵗ)"""
    second: Any
    """1/(1-β₂ᵗ)"""
    rest1: Any
    """1-β₁"""
    rest2: Any
    """1-β₂"""
    kept: Any
    """1-lr·λ"""
    rate: Any
    """lr/(1-β₁ᵗ)"""
    root: Any
    """√(1-β₂ᵗ)"""


def precise_settings(hyper: Hyper, step: int, dtype: FloatType) -> PreciseSettings:
    """In float32 as the kernels are given them, in float64 unrounded."""
    if dtype is not np.float64:
        lr, _, beta2, decay = hp_uniform(hyper, decays=True)
        rest1, kept, rate, root = exact_uniform(hyper, step, decays=True)
        first, second, eps, rest2 = bias_uniform(hyper, step, "precise")
        return PreciseSettings(lr, beta2, decay, eps, first, second, rest1, rest2, kept, rate, root)
    lr, beta1, beta2, decay, eps = (
        np.float64(x) for x in (hyper.lr, hyper.beta1, hyper.beta2, hyper.weight_decay, hyper.eps)
    )
    with np.errstate(all="ignore"):
        first, second = 1 / (1 - beta1**step), 1 / (1 - beta2**step)
        return PreciseSettings(
            lr, beta2, decay, eps, first, second, 1 - beta1, 1 - beta2, 1 - lr * decay,
            lr / (1 - beta1**step), np.sqrt(1 - beta2**step),
        )  # fmt: skip


def decayed_and_moved(
    w: Array, decayed: Array, moved: Array, settings: PreciseSettings, decays: bool | BoolArray, l2: bool
) -> tuple[Array, Array]:
    """w after a precise step that takes `moved` from it, and the whole change of it; `decayed` is λ·w."""
    change = moved if l2 else moved + settings.lr * decayed
    kept = w if l2 else w * np.where(decays, settings.kept, w.dtype.type(1))
    return np.where(np.isfinite(change), kept - moved, w), change


def _fused(a: Array, b: Array, c: Array) -> Array:
    """a · b + c, in float32 rounded once: the product of two float32 is exact in float64."""
    dtype = np.result_type(a, b, c)
    return np.asarray(np.asarray(a, np.float64) * b + c, dtype)


def _gradient_formula(l2: bool) -> str:
    return "clipScale · (g if finite else 0)" + (" + λ·w" if l2 else "")


@dataclass(frozen=True, slots=True)
class OracleStep:
    """A whole step over a layout: w, m, v by param name (float64, flat), and the two scalars."""

    w: Mapping[str, F64Array]
    m: Mapping[str, F64Array]
    v: Mapping[str, F64Array]
    grad_norm: float
    clip_scale: float


def oracle_step(
    layout: Layout,
    state: tuple[Mapping[str, Array], Mapping[str, Array], Mapping[str, Array]],
    gradients: Mapping[str, F32Array],
    *,
    hyper: Hyper,
    step: int,
    numerics: Numerics = "published",
    l2: bool = False,
) -> OracleStep:
    """The whole step in float64: norm, clip and update of every param. `state` is (w, m, v) by name, flat.

    An idle param has no gradient, whatever is given for it, and stays as it is.
    """
    taken = {s.name: param_step(hyper, layout, s.name, step) for s in layout}
    everything = [
        np.asarray(gradients[s.name]).ravel()
        for s in layout
        if s.name in gradients and not taken[s.name].idle
    ]
    norm = kernel_norm(np.concatenate(everything) if everything else np.zeros(0, np.float32))
    scale = float(clip_scale(norm, hyper.max_grad_norm))
    w, m, v = state
    new_w: dict[str, F64Array] = {}
    new_m: dict[str, F64Array] = {}
    new_v: dict[str, F64Array] = {}
    for segment in layout:
        name = segment.name
        zero = np.zeros(segment.numel)
        own, before = taken[name], (w[name], m.get(name, zero), v.get(name, zero))
        after = before
        if not own.idle:
            done = update(
                before[0], gradients.get(name, zero), *before[1:],
                scale=scale, hyper=own.hyper, step=own.step, decays=own.decays, numerics=numerics, l2=l2,
            )  # fmt: skip
            after = done.w, done.m, done.v
        for target, value in zip((new_w, new_m, new_v), after, strict=True):
            target[name] = np.asarray(value, dtype=np.float64)
    return OracleStep(new_w, new_m, new_v, grad_norm=norm, clip_scale=scale)


def _cast(values: Array, dtype: FloatType) -> Array:
    return np.asarray(values, dtype=dtype)
