"""Hyper-parameters, their validation, and the per-step bias terms, computed on the host in float64."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np

from inspector.errors import UsageError
from inspector.floats import F32Array, shortest
from inspector.settings import SETTING_NAMES, ParamSettings, Settings

Numerics = Literal["published", "precise"]
NUMERICS: tuple[Numerics, ...] = ("published", "precise")
KERNELS_REVISION = 4
"""Of the bits that the kernels give. 1: precise numerics formed 1-β₁ of a float32 β₁ and rounded in another order.
2: the ridge of Shampoo's roots was 1e-4 of the largest eigenvalue. 3: Muon's iterations were all in float32, and a sum
of two matrices was rounded once more."""


@dataclass(frozen=True, slots=True)
class Hyper:
    """Hyper-parameters of one AdamW step; all dimensionless. Defaults as published.

    Any value is allowed here, also one that makes no sense: settings found in a file run as the kernels
    would run them. `check_hyper` is for what a person types.

    Without `per_param` all params share them, and λ is 0 in the no-wd block. With it each class of params has its own
    in place of all but `max_grad_norm`, and these are what the run is set to: changing one changes the classes, see
    `with_value`.
    """

    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    per_param: ParamSettings | None = None

    def of_param(self, number: int, *, decays: bool) -> Settings:
        """What the param of that number, in the order of the source, takes the step with.

        `decays` says whether it lies in the wd block. One that was not there yet is idle.
        """
        if self.per_param is None:
            decay = self.weight_decay if decays else 0.0
            return Settings(self.lr, self.beta1, self.beta2, self.eps, decay)
        found = self.per_param.of_param(number)
        if found is None:
            return Settings(self.lr, self.beta1, self.beta2, self.eps, 0.0, idle=True)
        return found


HYPER_NAMES: tuple[str, ...] = tuple(f.name for f in fields(Hyper) if f.name != "per_param")
"""The settings of a run, each a number."""


def check_hyper(hyper: Hyper) -> Hyper:
    """Return `hyper`, or raise UsageError naming the first setting that nobody can mean."""
    for name in HYPER_NAMES:
        check_value(name, getattr(hyper, name))
    return hyper


def check_value(name: str, value: float) -> None:
    """Raise UsageError where `value` is outside what the hyper-parameter `name` may be."""
    text = shortest(value)
    option = "--" + name.replace("_", "-")
    if name == "max_grad_norm":
        if math.isnan(value) or value < 0:
            raise UsageError(
                f"{option} {text} is not a clip limit: give a number of 0 or more, or inf for no clipping."
            )
        return
    if not math.isfinite(value):
        raise UsageError(f"{option} {text} is not a finite number.")
    if name in ("beta1", "beta2"):
        if not 0 <= value < 1:
            raise UsageError(f"{option} {text} is outside [0, 1).")
        if np.float32(value) == 1:
            raise UsageError(
                f"{option} {text} is 1 in float32, in which the kernels compute: it has to be below 1."
            )
    elif value < 0:
        raise UsageError(f"{option} {text} is negative: give a number of 0 or more.")
    if abs(value) > float(np.finfo(np.float32).max):
        raise UsageError(f"{option} {text} does not fit in a float32.")


def with_value(hyper: Hyper, name: str, value: float) -> Hyper:
    """`hyper` with one setting changed; KeyError for a name it does not have.

    Where params have settings of their own, a change of lr scales each class's by new/old (sets it where old is 0); any
    other takes the place of the old value in the classes that have it.
    """
    if name not in HYPER_NAMES:
        raise KeyError(name)
    old, own = getattr(hyper, name), hyper.per_param
    if own is not None and name in SETTING_NAMES and value != old:

        def changed(each: Settings) -> Settings:
            if name == "lr":
                return replace(each, lr=each.lr * (value / old) if old else value)
            kept: Any = {name: value} if getattr(each, name) == old else {}
            return replace(each, **kept)

        own = own.each(changed)
    used: Any = {name: value, "per_param": own}
    return replace(hyper, **used)


def with_values(hyper: Hyper, values: Mapping[str, float]) -> Hyper:
    """`hyper` with several settings changed, each as by `with_value`."""
    for name, value in values.items():
        hyper = with_value(hyper, name, value)
    return hyper


def with_settings_of(hyper: Hyper, wanted: Hyper) -> Hyper:
    """`hyper` with the numbers of `wanted`, whose classes do not count: the same however they came to be these."""
    names = (name for name in HYPER_NAMES if getattr(hyper, name) != getattr(wanted, name))
    return with_values(hyper, {name: getattr(wanted, name) for name in names})


def scheduled(hyper: Hyper, factor: float) -> Hyper:
    """`hyper` with every learning rate times `factor`, that of a schedule."""
    own = hyper.per_param
    if own is not None:
        own = own.each(lambda each: replace(each, lr=each.lr * factor))
    return replace(hyper, lr=hyper.lr * factor, per_param=own)


def hp_uniform(hyper: Hyper, *, decays: bool) -> F32Array:
    """The `hp` uniform, float32[4]: lr, β₁, β₂, λ; λ is 0 in the no-wd block."""
    decay = hyper.weight_decay if decays else 0.0
    return _f32(hyper.lr, hyper.beta1, hyper.beta2, decay)


def exact_uniform(hyper: Hyper, step: int, *, decays: bool) -> F32Array:
    """What stands behind `hp` for Adam's kernels, float32[4]: 1-β₁, 1-lr·λ, lr/(1-β₁ᵗ), √(1-β₂ᵗ) at step `step`.

    Each worked out in float64 and then rounded; λ is 0 in the no-wd block. Precise numerics use them.
    """
    if step < 1:
        raise UsageError(f"Step {step} cannot be run: steps count from 1.")
    decay = hyper.weight_decay if decays else 0.0
    with np.errstate(all="ignore"):
        lr, beta1, beta2 = (np.float64(x) for x in (hyper.lr, hyper.beta1, hyper.beta2))
        return _f32(1 - beta1, 1 - lr * decay, lr / (1 - beta1**step), np.sqrt(1 - beta2**step))


def adam_hp_uniform(hyper: Hyper, step: int, *, decays: bool) -> F32Array:
    """The `hp` uniform of Adam's kernels, float32[8]: that of four, and `exact_uniform` behind it."""
    return np.concatenate([hp_uniform(hyper, decays=decays), exact_uniform(hyper, step, decays=decays)])


def bias_uniform(hyper: Hyper, step: int, numerics: Numerics) -> F32Array:
    """The `bias` uniform, float32[4], for step t = `step`, counted from 1.

    published: β₁ᵗ, β₂ᵗ, ε, 0 with the powers in float64 of β in float64, then rounded.
    precise: 1/(1-β₁ᵗ), 1/(1-β₂ᵗ), ε, 1-β₂, all in float64, then rounded.
    """
    if step < 1:
        raise UsageError(f"Step {step} cannot be run: steps count from 1.")
    with np.errstate(all="ignore"):
        power1 = np.float64(hyper.beta1) ** step
        power2 = np.float64(hyper.beta2) ** step
        if numerics == "published":
            return _f32(power1, power2, hyper.eps, 0.0)
        return _f32(1 / (1 - power1), 1 / (1 - power2), hyper.eps, 1 - np.float64(hyper.beta2))


def max_grad_norm_uniform(hyper: Hyper) -> F32Array:
    """The `max_grad_norm` uniform, float32[1]."""
    return _f32(hyper.max_grad_norm)


def _f32(*values: float) -> F32Array:
    with np.errstate(all="ignore"):
        return np.array(values, dtype=np.float64).astype(np.float32)
