"""How far apart two runs are that began with the same weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
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
