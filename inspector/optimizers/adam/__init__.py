"""Adam (Kingma & Ba 2015, algorithm 1) without any weight decay, whatever λ is set to.

The kernels, the plan and the oracle are AdamW's with λ 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from inspector.floats import F32Array
from inspector.hyper import Hyper, Numerics
from inspector.optimizers.adamw import oracle, plan
from inspector.optimizers.definition import ADAM_RULE, Optimizer
from inspector.optimizers.evaluation import Array, Updated


def without_decay(hyper: Hyper) -> Hyper:
    """The same settings with λ 0, those of classes of params included."""
    own = hyper.per_param
    if own is not None:
        own = own.each(lambda each: replace(each, weight_decay=0.0))
    return replace(hyper, weight_decay=0.0, per_param=own)


def uniforms(hyper: Hyper, step: int, numerics: Numerics) -> Mapping[str, F32Array]:
    """AdamW's, λ 0."""
    return plan.uniforms(without_decay(hyper), step, numerics)


def update(w: Array, g: Array, m: Array, v: Array, *, hyper: Hyper, **given: Any) -> Updated:
    """AdamW's, λ 0."""
    return oracle.update(w, g, m, v, hyper=without_decay(hyper), **given)


ADAM = Optimizer(
    name="adam",
    title="Adam",
    state=("m", "v"),
    plan=plan.plan_adamw,
    uniforms=uniforms,
    update=update,
    rule=ADAM_RULE,
    settings=("lr", "beta1", "beta2", "eps", "max_grad_norm"),
    as_used=without_decay,
    adam=True,
)
