"""How far apart two runs are that began with the same weights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from inspector.floats import F32Array


@dataclass(frozen=True, slots=True)
class Drift:
    """The difference of two sets of weights, worked out in float64.

    `max_abs` is the largest |Δw|, at `param`[`index`] (flat). `relative` is ‖Δw‖ over ‖w‖ of the first run;
    `relative_to_path` is ‖Δw‖ over ‖w - w₀‖ of it: the part of what was trained that the two disagree on. Both
    are NaN where there is nothing to divide by. A NaN in either set of weights makes all of them NaN.
    """

    steps: int
    max_abs: float
    param: str
    index: int
    relative: float
    relative_to_path: float


def drift_between(
    start: Mapping[str, F32Array], one: Mapping[str, F32Array], other: Mapping[str, F32Array], steps: int
) -> Drift:
    """The difference after `steps` steps from `start`; all three hold the same params."""
    largest, param, index = -1.0, "", 0
    apart = size = path = 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        for name, values in one.items():
            if not values.size:
                continue
            a = values.ravel().astype(np.float64)
            away = np.abs(a - other[name].ravel())
            at = int(np.argmax(away))  # the first NaN where there is one
            if away[at] > largest or (np.isnan(away[at]) and not math.isnan(largest)):
                largest, param, index = float(away[at]), name, at
            apart += float(away @ away)
            size += float(a @ a)
            moved = a - start[name].ravel()
            path += float(moved @ moved)
    return Drift(
        steps,
        largest if param else 0.0,
        param,
        index,
        math.sqrt(apart / size) if size else math.nan,
        math.sqrt(apart / path) if path else math.nan,
    )


@dataclass(frozen=True, slots=True)
class ParamDrift:
    """The difference Δw of one param in two runs, or of several as one.

    `apart` is ‖Δw‖₂, `norm` ‖w‖₂ of the first run, `largest` the largest |Δw|, at `param`[`index`] (flat, the first of
    equals). A difference that is not finite makes all three NaN, and `index` is that of the first.
    """

    name: str
    apart: float
    norm: float
    largest: float
    param: str
    index: int

    @property
    def relative(self) -> float:
        """‖Δw‖ over ‖w‖; NaN where there is nothing to divide by."""
        return self.apart / self.norm if self.norm else math.nan


def param_drift(name: str, one: F32Array, other: F32Array) -> ParamDrift:
    """By numpy, in float64 from float32 differences as the GPU takes them."""
    a = one.ravel().astype(np.float32, copy=False)
    with np.errstate(invalid="ignore", over="ignore"):
        away = np.abs(a - other.ravel().astype(np.float32, copy=False)).astype(np.float64)
    odd = np.flatnonzero(~np.isfinite(away))
    if len(odd):
        return ParamDrift(name, math.nan, math.nan, math.nan, name, int(odd[0]))
    at = int(np.argmax(away)) if away.size else 0
    wide = a.astype(np.float64)
    return ParamDrift(
        name,
        math.sqrt(float(away @ away)),
        math.sqrt(float(wide @ wide)),
        float(away[at]) if away.size else 0.0,
        name,
        at,
    )


def merged_drift(params: Iterable[ParamDrift], name: str = "") -> ParamDrift:
    """Several params as one."""
    params = tuple(params)
    # A NaN counts as more than any number.
    worst = max(params, key=lambda p: math.inf if math.isnan(p.largest) else p.largest, default=None)
    return ParamDrift(
        name,
        math.sqrt(math.fsum(p.apart * p.apart for p in params)),
        math.sqrt(math.fsum(p.norm * p.norm for p in params)),
        worst.largest if worst else 0.0,
        worst.param if worst else "",
        worst.index if worst else 0,
    )
