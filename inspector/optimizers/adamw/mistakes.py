"""Updates that are not quite AdamW, as people write them: what else m, v and w may have been computed by.

Each is evaluated in float64 and rounded once. What m and v became says which gradient and which β were used; what w
became is judged by the m and v that were really there after the step, so that either is told without the other. Where
a number can be worked out of the result (the lr that was used, a factor on the gradient), it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from inspector.floats import F64Array, shortest, significant
from inspector.optimizers.adamw.kinds import Named
from inspector.optimizers.adamw.peers import Given, Lanes
from inspector.step_ulp import rounded, unit

LEAST_FITTED = 8
"""Elements that a number has to account for: any one is accounted for by some number."""
POW_ULP = 8
"""What a `pow` in float32 may be off by besides, in units in the last place."""
NORM_RTOL = 1e-3
"""What a norm over many elements may lose where squares are added up in float32."""
WHOLE = 1e-4
"""A factor on the gradient this near to a power of two, relative, is one: loss scales are."""

Array = npt.NDArray[Any]
Make = Callable[[Given, Lanes], tuple[Array, ...]]
"""m and v, or w alone, of a step as given and as the other program left it; float64, or as the type keeps them."""
Candidate = tuple[Named, Make]


# --- m and v


def moments(
    given: Given, g: Array | None = None, beta1: float | None = None, beta2: float | None = None
) -> tuple[F64Array, F64Array]:
    """m and v in float64 after a step with that gradient and these β, by default its own."""
    grad = gradient(given) if g is None else g
    b1 = given.hyper.beta1 if beta1 is None else beta1
    b2 = given.hyper.beta2 if beta2 is None else beta2
    m, v = given.before.m.astype(np.float64), given.before.v.astype(np.float64)
    return np.asarray(b1 * m + (1 - b1) * grad), np.asarray(b2 * v + (1 - b2) * grad * grad)


def own_moments(given: Given, after: Lanes) -> tuple[Array, ...]:
    """AdamW's m and v."""
    return moments(given)


def gradient(given: Given, factor: float = 1.0) -> F64Array:
    """The gradient as it enters m and v, float64: times the clip scale, with the decay in it for Adam with L2."""
    g = factor * given.scale * given.g.astype(np.float64)
    if given.l2 and given.decay:
        g = g + given.decay * given.before.w.astype(np.float64)
    return g


def moment_candidates(given: Given, after: Lanes) -> Iterator[Candidate]:
    """What else m and v may have been computed by, the likeliest first."""
    scale, h = given.scale, given.hyper
    yield Named("moments-skipped"), lambda x, _: (x.before.m, x.before.v)
    yield Named("sign"), _by_factor(-1.0)
    if scale not in (0, 1):
        yield Named("clip-missing"), _by_factor(1 / scale)
        yield Named("clip-twice"), _by_factor(scale)
    if not given.l2:
        for decay in decays(given):
            yield Named("l2", "" if decay == given.decay else f"λ {shortest(decay)}"), _with_decay(decay)
    elif given.decay:
        yield Named("l2-missing"), lambda x, _: moments(x, x.scale * x.g.astype(np.float64))
    yield Named("betas-swapped"), _with_betas(h.beta2, h.beta1)
    yield (
        Named("no-dampening"),
        lambda x, _: (h.beta1 * x.before.m.astype(np.float64) + gradient(x), moments(x)[1]),
    )
    if not given.narrow:
        yield Named("float32-betas"), _with_betas(float(np.float32(h.beta1)), float(np.float32(h.beta2)))
    yield Named("moments-bf16"), lambda x, _: tuple(rounded(each, "bf16") for each in moments(x))
    yield Named("moments-f16"), lambda x, _: tuple(rounded(each, "f16") for each in moments(x))
    yield from _fitted_moments(given, after)


def _fitted_moments(given: Given, after: Lanes) -> Iterator[Candidate]:
    h, scale = given.hyper, given.scale
    g, m0, v0 = gradient(given), given.before.m.astype(np.float64), given.before.v.astype(np.float64)
    m1, v1 = after.m.astype(np.float64), after.v.astype(np.float64)
    by = 1 / unit(given.before.m, after.m)
    c = _fit(g * (1 - h.beta1) * by, (m1 - h.beta1 * m0) * by)
    if c and scale not in (0, 1) and abs(c - 1) < NORM_RTOL:
        yield Named("clip-norm", f"{_number(1e6 * (c - 1))} ppm"), _by_factor(c)
    if c and _is_other(c, 1.0) and not (given.l2 and given.decay):
        power = float(2.0 ** np.round(np.log2(abs(c))))
        whole = abs(abs(c) / power - 1) < WHOLE
        c = float(np.copysign(power, c)) if whole else c
        yield Named("unscaled-missing" if whole and c > 1 else "gradient-factor", _number(c)), _by_factor(c)
    b1 = _fit((m0 - g) * by, (m1 - g) * by)
    by = 1 / unit(given.before.v, after.v)
    b2 = _fit((v0 - g * g) * by, (v1 - g * g) * by)
    if b1 is not None and 0 <= b1 < 1 and _is_other(b1, h.beta1):
        yield Named("beta1", _number(b1)), _with_betas(b1, h.beta2)
    if b2 is not None and 0 <= b2 < 1 and _is_other(b2, h.beta2):
        yield Named("beta2", _number(b2)), _with_betas(h.beta1, b2)


def _by_factor(c: float) -> Make:
    return lambda x, _: moments(x, gradient(x, c))


def _with_decay(decay: float) -> Make:
    return lambda x, _: moments(x, gradient(x) + decay * x.before.w.astype(np.float64))


def _with_betas(beta1: float, beta2: float) -> Make:
    return lambda x, _: moments(x, None, beta1, beta2)


# --- w


@dataclass(frozen=True, slots=True)
class Rule:
    """How w follows from m and v after the step; the defaults are AdamW's."""

    lr: float
    decay: float
    t: int
    eps: Literal["outside", "inside", "before"] = "outside"
    correct_m: bool = True
    correct_v: bool = True
    narrow: bool = False
    """1-βᵗ formed in float32."""
    times: float = 1.0
    """A factor on √(1-β₂ᵗ), and so on the change, of a βᵗ that is a little off."""
    when: Literal["with", "after"] = "with"
    scaled: bool = True
    """The decay is multiplied by lr."""


def own_rule(given: Given) -> Rule:
    """AdamW's with the settings of the step; with L2 the decay is in the gradient already."""
    return Rule(given.hyper.lr, 0.0 if given.l2 else given.decay, given.t, narrow=given.narrow)


def weights(given: Given, after: Lanes, rule: Rule, v: Array | None = None) -> F64Array:
    """w in float64 by a rule, from the w before the step and the m and v after it."""
    w = given.before.w.astype(np.float64)
    change = rule.lr * _ratio(given, after, rule, v)
    decay = rule.decay * (rule.lr if rule.scaled else 1.0)
    if rule.when == "after":
        return np.asarray((w - change) * (1 - decay))
    return np.asarray(w - change - decay * w)


def by_rule(rule: Rule) -> Make:
    """The w of a rule."""
    return lambda x, after: (weights(x, after, rule),)


def _ratio(given: Given, after: Lanes, rule: Rule, v: Array | None = None) -> F64Array:
    first, second = replace(given, t=rule.t).corrections
    if rule.narrow:
        h = given.hyper
        powers = (np.float32(np.float64(b) ** rule.t) for b in (h.beta1, h.beta2))
        first, second = (max(float(np.float32(1) - p), 1e-12) for p in powers)
    first, second = first if rule.correct_m else 1.0, second if rule.correct_v else 1.0
    second *= rule.times**2
    m1 = after.m.astype(np.float64)
    v1 = (after.v if v is None else v).astype(np.float64)
    eps = given.hyper.eps
    if rule.eps == "inside":
        denominator = np.sqrt(v1 / second + eps)
    elif rule.eps == "before":
        denominator = (np.sqrt(v1) + eps) / np.sqrt(second)
    else:
        denominator = np.sqrt(v1 / second) + eps
    return np.asarray(m1 / first / denominator)


def weight_candidates(given: Given, after: Lanes) -> Iterator[Candidate]:
    """What else w may have been computed by from m and v after the step, the likeliest first."""
    own = own_rule(given)

    def rule(key: str, value: str = "", **changes: Any) -> Candidate:
        return Named(key, value), by_rule(replace(own, **changes))

    yield Named("weights-skipped"), lambda x, _: (x.before.w,)
    yield rule("eps-inside", eps="inside")
    yield rule("eps-before", eps="before")
    yield rule("no-correction", correct_m=False, correct_v=False)
    yield rule("no-correction-m", correct_m=False)
    yield rule("no-correction-v", correct_v=False)
    if own.t > 1:
        yield rule("t-behind", f"{own.t - 1:,}", t=own.t - 1)
    yield rule("t-ahead", f"{own.t + 1:,}", t=own.t + 1)
    if own.decay:
        yield rule("decay-after", when="after")
        yield rule("decay-unscaled", scaled=False)
        yield rule("decay-off", decay=0.0)
    else:
        key = "decay-decoupled" if given.l2 and given.decay else "decay-on"
        for decay in decays(given):
            yield rule(key, f"λ {shortest(decay)}", decay=decay)
    for what, lr in given.lrs.items():
        if lr != own.lr:
            yield rule("lr-of", f"{shortest(lr)}, that of {what}", lr=lr)
    for what, t in given.counts.items():
        if t >= 1 and abs(t - own.t) > 1:
            yield rule("t-other", f"{t:,}, that of {what}", t=t)
    if not given.narrow:
        yield rule("float32-corrections", narrow=True)
        # 1-βᵗ of such a β, formed exactly.
        yield Named("float32-betas"), lambda x, after: (weights(x.narrowed(), after, own),)
    yield from _inexact_powers(given, after, own)
    if given.max_v is not None:
        yield Named("amsgrad"), lambda x, after: (weights(x, after, own, _largest(x, after)),)
    yield Named("weights-bf16"), lambda x, after: (rounded(weights(x, after, own), "bf16"),)
    yield Named("weights-f16"), lambda x, after: (rounded(weights(x, after, own), "f16"),)
    yield from _fitted_weights(given, after, own)


def _inexact_powers(given: Given, after: Lanes, own: Rule) -> Iterator[Candidate]:
    """βᵗ in float32 as many form it: multiplied up step by step, or by a `pow` that is off by some ULP.

    All elements then change by one factor, but for ε, which is worked out and held against what t roundings of βᵗ may
    do. It is taken for one of 1-β₂ᵗ, which is the smaller and so the farther off.
    """
    narrow = replace(own, narrow=True)
    w0 = given.before.w.astype(np.float64)
    by = 1 / unit(given.before.w, after.w)
    change = (own.decay * own.lr * w0 - w0 + after.w.astype(np.float64)) * -by
    times = _fit(own.lr * _ratio(given, after, narrow) * by, change)
    if times is None:
        return
    h = given.hyper
    parts = ((h.beta1, 1.0), (h.beta2, 0.5))
    most = sum(half * b**own.t / max(1 - b**own.t, 1e-12) for b, half in parts) * (own.t + POW_ULP) * 2.0**-24
    if abs(times - 1) <= most:
        yield Named("float32-corrections"), by_rule(replace(narrow, times=times))


def _largest(given: Given, after: Lanes) -> Array:
    return after.v if given.max_v is None else np.fmax(given.max_v, after.v)


def _fitted_weights(given: Given, after: Lanes, own: Rule) -> Iterator[Candidate]:
    w0, w1 = given.before.w.astype(np.float64), after.w.astype(np.float64)
    by = 1 / unit(given.before.w, after.w)
    ratio = _ratio(given, after, own)
    lr = _fit((ratio + own.decay * w0) * by, (w0 - w1) * by)
    if lr is not None and _is_other(lr, own.lr):
        yield Named("lr-other", _number(lr)), by_rule(replace(own, lr=lr))
    decay = _fit(own.lr * w0 * by, (w0 - own.lr * ratio - w1) * by)
    if decay is not None and _is_other(decay, own.decay):
        yield Named("decay-other", f"λ {_number(decay)}"), by_rule(replace(own, decay=decay))


def moved_too_little(given: Given, after: Lanes) -> bool:
    """True where w moved as with a v larger than the one there is, or as large, and never as with a smaller one.

    Which is what amsgrad does, whose largest v so far is nowhere recorded. Some elements have to move as AdamW's, and
    one in a hundred less by far more than rounding, that of 1-β₂ᵗ included: float32 may lose 2⁻²⁴ of it, which is at
    most 2⁻²⁴/(1-β₂) of the correction, and takes all elements alike.
    """
    own = own_rule(given)
    w0 = given.before.w.astype(np.float64)
    rest = w0 - own.lr * own.decay * w0
    full = rest - weights(given, after, own)
    moved = rest - after.w.astype(np.float64)
    lost = 1e-6 + 2.0**-24 / max(1 - given.hyper.beta2, 2.0**-24)
    slack = 2 * unit(given.before.w, after.w) + lost * np.abs(full)
    told = np.isfinite(full) & np.isfinite(moved) & (np.abs(full) > 32 * slack)
    if np.count_nonzero(told) < 32:
        return False
    full, moved, slack = full[told], moved[told], slack[told]
    same = np.abs(full - moved) <= slack
    less = (moved * full >= 0) & (np.abs(moved) < np.abs(full) - slack)
    return bool((same | less).all() and less.mean() > 0.01 and same.mean() > 0.01)


# --- numbers out of results


def decays(given: Given) -> list[float]:
    """λ that may have been used: the own one, the one of params that decay, those of others."""
    wanted = (given.decay, given.hyper.weight_decay, *given.decays_of)
    return list(dict.fromkeys(d for d in wanted if d))


def _fit(x: F64Array, y: F64Array) -> float | None:
    """c of y = c·x by least squares, each already in units of its own error; None where x says nothing."""
    told = np.isfinite(x) & np.isfinite(y)
    x, y = x[told], y[told]
    if np.count_nonzero(x) < LEAST_FITTED:
        return None
    power = float(np.dot(x, x))
    return float(np.dot(x, y)) / power if power > 0 and np.isfinite(power) else None


def _is_other(found: float, own: float) -> bool:
    """False where a number that was worked out is the setting itself but for roundings."""
    return abs(found - own) > 1e-5 * abs(own)


def _number(value: float) -> str:
    return significant(value, 5)
