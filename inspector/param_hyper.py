"""What each param takes a step with: one of them, all of them as columns, and the classes that cut a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from inspector.floats import BoolArray, F64Array
from inspector.hyper import Hyper
from inspector.layout import BlockName, Layout
from inspector.settings import IDLE, Settings

Classes = tuple[int, ...]
"""The class of each segment of a layout, in the order of memory, the first of equal ones; IDLE for those that take no
part."""


def segment_classes(layout: Layout, hyper: Hyper) -> Classes | None:
    """The classes by which a plan of this step is cut; None where all params share their settings."""
    own = hyper.per_param
    if own is None:
        return None
    kinds, known = own.kinds(), len(own.of)
    return tuple(kinds[own.of[n]] if n < known else IDLE for n in layout.numbers)


def moved_classes(classes: Classes, before: Layout, after: Layout) -> Classes:
    """The classes of the segments of one layout, in the order of another of the same params."""
    by_name = {s.name: of for s, of in zip(before, classes, strict=True)}
    return tuple(by_name[s.name] for s in after)


@dataclass(frozen=True, slots=True)
class ParamStep:
    """What one param takes a step with, as the oracle takes it: settings of its own, its step count t, whether decayed.

    Where `idle`, w, m and v stay as they are, and `step` is the count of the last step it took.
    """

    hyper: Hyper
    step: int
    decays: bool
    idle: bool = False


def param_step(hyper: Hyper, layout: Layout, name: str, step: int) -> ParamStep:
    """What the param of that name takes the run's step `step` with."""
    return step_of(hyper, layout.number_of(name), layout[name].block, step)


def step_of(hyper: Hyper, number: int, block: BlockName, step: int) -> ParamStep:
    """The same of a param by its number among those of the source, and the block it lies in."""
    decays = block == "wd"
    if hyper.per_param is None:
        return ParamStep(hyper, step, decays)
    own = hyper.of_param(number, decays=decays)
    return ParamStep(alone(hyper, own), own.t(step), True, own.idle)


def placing(hyper: Hyper) -> dict[str, bool]:
    """What a run with these settings asks of the one who lays its params out: that any can be bound by itself."""
    return {} if hyper.per_param is None else {"alone": True}


def alone(hyper: Hyper, own: Settings) -> Hyper:
    """The settings of a class of params as those of a run that has no other."""
    return Hyper(own.lr, own.beta1, own.beta2, own.eps, own.weight_decay, hyper.max_grad_norm)


@dataclass(frozen=True, slots=True, eq=False)
class HyperColumns:
    """The settings of several params in one step, an array [params] each; 0-d where they all share one.

    float64; `weight_decay` is 0 for params that are not decayed. `t` is the step count of each, of idle ones that of
    the last step they took.
    """

    lr: F64Array
    beta1: F64Array
    beta2: F64Array
    eps: F64Array
    weight_decay: F64Array
    t: npt.NDArray[np.int64]
    idle: BoolArray

    def at(self, row: int) -> Settings:
        """Those of one of them, with `behind` counted from its own t."""
        lr, beta1, beta2, eps = (
            float(x if x.ndim == 0 else x[row]) for x in (self.lr, self.beta1, self.beta2, self.eps)
        )
        return Settings(lr, beta1, beta2, eps, float(self.weight_decay[row]), 0, bool(self.idle[row]))

    def t_at(self, row: int) -> int:
        """The step count of one of them."""
        return int(self.t if self.t.ndim == 0 else self.t[row])


def columns(hyper: Hyper, layout: Layout, names: Sequence[str], step: int) -> HyperColumns:
    """What the params of these names take the run's step `step` with."""
    own = hyper.per_param
    if own is None:
        shared = (np.float64(x) for x in (hyper.lr, hyper.beta1, hyper.beta2, hyper.eps))
        lr, beta1, beta2, eps = (np.asarray(x) for x in shared)
        decays = np.array([layout[name].block == "wd" for name in names], np.bool_)
        decay = np.where(decays, np.float64(hyper.weight_decay), 0.0)
        idle = np.zeros(len(names), np.bool_)
        return HyperColumns(lr, beta1, beta2, eps, decay, np.asarray(step, np.int64), idle)
    return numbered_columns(hyper, layout.numbers_of(names), step)


def numbered_columns(
    hyper: Hyper, of_params: Sequence[int] | npt.NDArray[np.intp], step: int
) -> HyperColumns:
    """The same of params by their numbers, where they have settings of their own."""
    own = hyper.per_param
    assert own is not None
    # One that was not there yet is idle, as of a class of its own.
    classes = (*own.classes, hyper.of_param(len(own.of), decays=False))
    numbers = np.asarray(of_params, np.intp)
    of = _classes_of(own.of, len(own.classes))[np.minimum(numbers, len(own.of))]
    figures = np.array([(c.lr, c.beta1, c.beta2, c.eps, c.weight_decay) for c in classes])[of]
    t = np.array([*(c.t(step) for c in own.classes), 0], np.int64)[of]
    idle = np.array([c.idle for c in classes], np.bool_)[of]
    lr, beta1, beta2, eps, decay = figures.T
    return HyperColumns(lr, beta1, beta2, eps, decay, t, idle)


@lru_cache(maxsize=8)
def _classes_of(of: tuple[int, ...], beyond: int) -> npt.NDArray[np.intp]:
    """`of` as an array that ends with the number `beyond`; the same step after step, so that it is kept."""
    found = np.array((*of, beyond), np.intp)
    found.flags.writeable = False
    return found
