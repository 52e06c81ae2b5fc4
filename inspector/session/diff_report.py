"""What two sessions differ in, reduced to what a screen shows: each param at its worst, and one param over steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from inspector.floats import F64Array, shortest
from inspector.session.compare import Difference
from inspector.session.differences import I64Array, ParamDifference, SessionDiff, Setting, Timing, histogram
from inspector.stores import LANES, Lane

Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True, slots=True, eq=False)
class Worst:
    """The largest differences of each param over all steps, read-only arrays of one value a param.

    `ulp` is int64, the most that any element of the captured tensors is apart, -1 where none were compared; `relative`
    float64, ‖b - a‖ / ‖a‖, NaN where none were. `ulp_step` and `relative_step` are the first steps at which they are
    so large, -1 where there is none.
    """

    ulp: I64Array
    ulp_step: I64Array
    relative: F64Array
    relative_step: I64Array


@dataclass(frozen=True, slots=True, eq=False)
class ParamCurves:
    """One param over the steps that were compared, read-only arrays.

    By lane `steps` int64, `relative` float64 and `ulp` int64 of captured tensors; by name of a norm `norm_steps` and
    `norms`, |b - a| / |a| float64.
    """

    param: str
    steps: Mapping[Lane, I64Array]
    relative: Mapping[Lane, F64Array]
    ulp: Mapping[Lane, I64Array]
    norm_steps: Mapping[str, I64Array]
    norms: Mapping[str, F64Array]


@dataclass(frozen=True, slots=True, eq=False)
class DiffReport:
    """What `a` and `b` differ in, over the steps that both hold. `histograms` has the lanes that were compared.

    A histogram counts elements by ULP, 0 and then [2**(i-1), 2**i), over all steps at which both were captured.
    """

    a: str
    b: str
    steps: range
    first: Difference | None
    params: tuple[str, ...]
    worst: Mapping[Lane, Worst]
    histograms: Mapping[Lane, tuple[int, ...]]
    settings: tuple[Setting, ...]
    timings: tuple[Timing, ...]
    keyframes: int
    gradients: int
    metric_ulp: Mapping[str, int]
    """The most that loss, norm and scale of a step are apart, -1 where no step has them in both."""


def report(found: SessionDiff, a: str, b: str) -> DiffReport:
    """The whole, to be shown."""
    compared: tuple[Lane, ...] = tuple(
        lane for lane in LANES if (found.gradients if lane == "g" else found.keyframes)
    )
    return DiffReport(
        a,
        b,
        found.steps,
        found.first,
        tuple(p.name for p in found.params),
        MappingProxyType({lane: worst(found.params, lane) for lane in compared}),
        MappingProxyType({lane: tuple(histogram(found, lane)) for lane in compared}),
        tuple(found.settings),
        tuple(found.timings),
        len(found.keyframes),
        len(found.gradients),
        MappingProxyType({name: int(ulp.max(initial=-1)) for name, ulp in found.ulp.items()}),
    )


def worst(params: Iterable[ParamDifference], lane: str) -> Worst:
    """The largest differences of each param in a lane; NaN counts as larger than any number."""
    rows = [(*_largest(p.ulps.get(lane, {}), -1), *_largest(p.tensors.get(lane, {}), np.nan)) for p in params]
    ulp, ulp_step, relative, relative_step = zip(*rows, strict=True) if rows else ((),) * 4
    return Worst(
        _frozen(np.array(ulp, np.int64)),
        _frozen(np.array(ulp_step, np.int64)),
        _frozen(np.array(relative, np.float64)),
        _frozen(np.array(relative_step, np.int64)),
    )


def param_curves(found: SessionDiff, name: str) -> ParamCurves | None:
    """One param over steps; None where there is none of that name."""
    mine = next((p for p in found.params if p.name == name), None)
    if mine is None:
        return None
    lanes = [lane for lane in LANES if lane in mine.tensors]
    return ParamCurves(
        name,
        MappingProxyType({lane: _frozen(np.array([*mine.tensors[lane]], np.int64)) for lane in lanes}),
        MappingProxyType({lane: _frozen(np.array([*mine.tensors[lane].values()])) for lane in lanes}),
        MappingProxyType({lane: _frozen(np.array([*mine.ulps[lane].values()], np.int64)) for lane in lanes}),
        MappingProxyType({what: _frozen(np.array([*v], np.int64)) for what, v in mine.norms.items()}),
        MappingProxyType({what: _frozen(np.abs([*v.values()])) for what, v in mine.norms.items()}),
    )


def difference_words(first: Difference) -> str:
    """Where two recordings differ, and what each has there, without an end."""
    at = "" if first.dispatch is None else f", dispatch {first.dispatch}"
    where = f" of {first.param}" if first.param else ""
    index = f"[{first.index}]" if first.param and first.index is not None else ""
    values = (
        ""
        if first.a is None and first.b is None
        else f": {value_text(first.a)} in a, {value_text(first.b)} in b"
    )
    return f"in step {first.step:,}{at}, {first.what}{where}{index}{values}"


def value_text(value: float | int | None) -> str:
    """A number of a recording in words, in full."""
    if value is None:
        return "n/a"
    return f"{value:,}" if isinstance(value, int) else shortest(value)


def _largest(by_step: Mapping[int, float], missing: float) -> tuple[float, int]:
    if not by_step:
        return missing, -1
    step = max(by_step, key=lambda s: np.inf if by_step[s] != by_step[s] else by_step[s])
    return by_step[step], step


def _frozen(array: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    array.flags.writeable = False
    return array
