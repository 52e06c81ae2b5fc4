"""What element-wise optimizers with fewer moments than Adam have in common: plan, uniforms, settings as rounded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from inspector.errors import UsageError
from inspector.floats import F32Array
from inspector.hyper import Hyper, Numerics, hp_uniform, max_grad_norm_uniform
from inspector.layout import Layout
from inspector.optimizers.evaluation import Array, FloatType, Scalar
from inspector.optimizers.planning.update import UpdatePlan, UpdateRange
from inspector.optimizers.update_form import UpdateForm
from inspector.param_hyper import Classes, alone
from inspector.plan import Limits, Plan, Variant

ZEROS = np.zeros(4, np.float32)


def planner(form: UpdateForm) -> Callable[[Layout, Limits, Variant, Classes | None], Plan]:
    """`Optimizer.plan` of an optimizer with this update."""

    def plan(layout: Layout, limits: Limits, variant: Variant, classes: Classes | None = None) -> Plan:
        return ElementWisePlan(layout, limits, variant, classes, form).build()

    return plan


class ElementWisePlan(UpdatePlan):
    """The norm, and the update kernel of `form`; float32 only."""

    def __init__(
        self,
        layout: Layout,
        limits: Limits,
        variant: Variant,
        classes: Classes | None,
        form: UpdateForm,
    ) -> None:
        self.form = form
        super().__init__(layout, limits, variant, classes, form.moments)

    def kernel(self, range_: UpdateRange) -> tuple[str, str]:
        return self.form.kernel, self.form.entry_point


def uniforms_with_bias(hyper: Hyper, step: int, bias: Callable[[Hyper], F32Array]) -> Mapping[str, F32Array]:
    """The uniforms of a step by key, as AdamW's, with `bias` of the settings of each class in place of its own."""
    if step < 1:
        raise UsageError(f"Step {step} cannot be run: steps count from 1.")
    values = {"max_grad_norm": max_grad_norm_uniform(hyper)}
    if hyper.per_param is None:
        return values | {
            "hp:wd": hp_uniform(hyper, decays=True),
            "hp:no_wd": hp_uniform(hyper, decays=False),
            "bias": bias(hyper),
        }
    for i, each in enumerate(hyper.per_param.classes):
        if not each.idle:
            own = alone(hyper, each)
            values |= {f"hp:{i}": hp_uniform(own, decays=True), f"bias:{i}": bias(own)}
    return values


def uniforms_without_bias(hyper: Hyper, step: int, numerics: Numerics) -> Mapping[str, F32Array]:
    """`Optimizer.uniforms` of an optimizer to which all steps are alike: nothing stands in `bias`."""
    return uniforms_with_bias(hyper, step, lambda each: ZEROS)


@dataclass(frozen=True, slots=True)
class Coefficients:
    """Settings in one type of float, with 1 - β as the kernel has it."""

    lr: Scalar
    beta1: Scalar
    beta2: Scalar
    decay: Scalar
    rest1: Scalar
    rest2: Scalar


def coefficients(hyper: Hyper, numerics: Numerics, dtype: FloatType) -> Coefficients:
    """published: settings as rounded to float32, and 1 - β of the rounded β, in either type.

    precise: 1 - β worked out in float64 and rounded; in float64 nothing is rounded.
    """
    if numerics == "precise" and dtype is np.float64:
        given = (hyper.lr, hyper.beta1, hyper.beta2, hyper.weight_decay)
        lr, beta1, beta2, decay = (np.float64(x) for x in given)
        return Coefficients(lr, beta1, beta2, decay, 1 - beta1, 1 - beta2)
    lr_, beta1_, beta2_, decay_ = (dtype(x) for x in hp_uniform(hyper, decays=True))
    rest1, rest2 = dtype(1) - beta1_, dtype(1) - beta2_
    if numerics == "precise":
        rest1, rest2 = (dtype(x) for x in rest_uniform(hyper)[:2])
    return Coefficients(lr_, beta1_, beta2_, decay_, rest1, rest2)


def rest_uniform(hyper: Hyper) -> F32Array:
    """A `bias` uniform, float32[4]: 1-β₁ and 1-β₂ worked out in float64, 0, 0."""
    return np.array([1 - np.float64(hyper.beta1), 1 - np.float64(hyper.beta2), 0, 0]).astype(np.float32)


def finite_gradient(g: Array, scale: float | Scalar, dtype: FloatType) -> Array:
    """The gradient clipped, elements that are not finite taken as 0."""
    return np.asarray(dtype(scale) * np.where(np.isfinite(g), g, dtype(0)))


def in_type(values: Array, dtype: FloatType) -> Array:
    """`values` in that type of float."""
    return np.asarray(values, dtype=dtype)
