"""The metrics that a condition may be about: unit, meaning, and from which moment of a step on each is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from inspector.coding_error import ParamCodingError
from inspector.param_statistics import ParamTable
from inspector.statistics import BufferStats, StatsLevel
from inspector.stores import Lane

Kind = Literal["nonfinite", "nan", "posinf", "neginf"]
Known = Literal["gradients", "finalize"]
"""Once the gradients are in place, before any dispatch; or after finalize_grad_stats, before any update."""
Figures = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number of the step itself, an attribute of Moment. `single` are float32."""

    name: str
    known: Known = "gradients"
    single: bool = False

    needs: ClassVar[StatsLevel] = "off"


@dataclass(frozen=True, slots=True)
class Counted:
    """From the counts of gradients, of all params or of one; `kind` names the elements that it counts."""

    read: Callable[[BufferStats], float]
    kind: Kind | None = None

    known: ClassVar[Known] = "gradients"
    needs: ClassVar[StatsLevel] = "light"


@dataclass(frozen=True, slots=True)
class FromTable:
    """From the statistics of params: one figure a param. `place` gives the element that has it, -1 for none.

    `state` are of w, m or v as they are, which an update changes; `peak` is that of all params the largest of theirs.
    """

    read: Callable[[ParamTable], Figures]
    place: Callable[[ParamTable], Figures] | None = None
    state: bool = False
    peak: bool = False

    known: ClassVar[Known] = "finalize"
    needs: ClassVar[StatsLevel] = "full"


@dataclass(frozen=True, slots=True)
class FromCoding:
    """From the errors of coding m and v of a param with 8-bit state."""

    read: Callable[[ParamCodingError], float]

    known: ClassVar[Known] = "finalize"
    needs: ClassVar[StatsLevel] = "off"


Origin = Scalar | Counted | FromTable | FromCoding


@dataclass(frozen=True, slots=True)
class Metric:
    """`whole` is what it is of all params together, `each` of a single one; None where it has no params."""

    name: str
    unit: str
    meaning: str
    whole: Origin
    each: Origin | None = None

    def origin(self, *, by_param: bool) -> Origin:
        """Where it comes from; KeyError for a param of a metric that has none."""
        if not by_param:
            return self.whole
        if self.each is None:
            raise KeyError(self.name)
        return self.each

    def known(self, *, by_param: bool) -> Known:
        """From which moment on it can be judged."""
        return self.origin(by_param=by_param).known

    def needs(self, *, by_param: bool) -> StatsLevel:
        """How much has to be counted for it."""
        return self.origin(by_param=by_param).needs


def _both(name: str, unit: str, meaning: str, origin: Origin) -> Metric:
    return Metric(name, unit, meaning, origin, origin)


def _kind(name: Kind, meaning: str) -> Metric:
    def read(counts: BufferStats) -> float:
        kinds = counts.nonfinite
        return float(kinds.total if name == "nonfinite" else getattr(kinds, name))

    return _both(name, "elements", meaning, Counted(read, name))


def _lane(lane: Lane, of: str) -> tuple[Metric, ...]:
    unit = {"w": "of w", "m": "of g", "v": "of g²"}[lane]
    return (
        _both(f"{lane}_norm", unit, f"L2 norm of {of}, over the finite elements",
              FromTable(lambda t: t.lanes[lane].norm, state=True)),
        _both(f"{lane}_max", unit, f"largest finite magnitude of {of}",
              FromTable(lambda t: t.lanes[lane].max_abs, state=True, peak=True)),
        _both(f"{lane}_zeros", "elements", f"{of} that are 0",
              FromTable(lambda t: t.lanes[lane].zeros, state=True)),
        _both(f"{lane}_nonfinite", "elements", f"{of} that are NaN or infinite",
              FromTable(lambda t: t.lanes[lane].nonfinite, lambda t: t.lanes[lane].first, state=True)),
    )  # fmt: skip


def update_ratio(table: ParamTable) -> Figures:
    """‖Δw‖ / ‖w‖ of each param, float64; NaN where all weights are 0."""
    weights = table.lanes["w"].norm
    some = weights > 0
    return np.where(some, table.update.norm / np.where(some, weights, 1.0), np.nan)


def _below_eps_share(table: ParamTable) -> Figures:
    some = table.numel > 0
    return np.where(some, table.update.below_eps / np.maximum(table.numel, 1), np.nan)


_ALL = (
    Metric("step", "", "t, counted from 1", Scalar("step")),
    Metric("lr", "", "learning rate as used, the schedule applied", Scalar("lr")),
    Metric("loss", "nats", "loss of the step, where the source gives one", Scalar("loss")),
    _kind("nonfinite", "gradients that are NaN or infinite"),
    _kind("nan", "gradients that are NaN"),
    _kind("posinf", "gradients that are +Inf"),
    _kind("neginf", "gradients that are −Inf"),
    Metric("grad_max", "of g", "largest finite magnitude of the gradients",
           Counted(lambda c: c.max_abs), FromTable(lambda t: t.lanes["g"].max_abs)),
    Metric("grad_zeros", "elements", "gradients that are 0",
           Counted(lambda c: float(c.zeros)), FromTable(lambda t: t.lanes["g"].zeros)),
    Metric("grad_norm", "of g", "L2 norm of the gradients before clipping: gradNorm of the kernel, or of a param over "
           "its finite elements", Scalar("grad_norm", "finalize", single=True),
           FromTable(lambda t: t.lanes["g"].norm)),
    Metric("clip_scale", "", "what the gradients are multiplied by", Scalar("clip_scale", "finalize", single=True)),
    *_lane("w", "the weights"),
    *_lane("m", "the first moments"),
    *_lane("v", "the second moments"),
    _both("update_norm", "of w", "‖Δw‖, L2 norm of the update", FromTable(lambda t: t.update.norm)),
    _both("update_ratio", "", "‖Δw‖/‖w‖, NaN where all weights are 0", FromTable(update_ratio)),
    _both("update_max", "lr", "largest |Δw| of an element, in units of the learning rate",
          FromTable(lambda t: t.update.largest, lambda t: t.update.largest_at)),
    _both("below_eps", "elements", "√v̂ < ε, so that ε sets the size of the update",
          FromTable(lambda t: t.update.below_eps)),
    _both("below_eps_share", "", "the same as a share of the elements", FromTable(_below_eps_share)),
    _both("lost", "elements", "updates that are not 0 and leave w as it is, rounded away",
          FromTable(lambda t: t.update.lost)),
    _both("skipped", "elements", "updates that are not finite, so w stays as it is",
          FromTable(lambda t: t.update.skipped)),
    _both("f16_overflows", "elements", "weights after the update that are infinite in half precision",
          FromTable(lambda t: t.update.f16_overflows)),
    _both("f16_underflows", "elements", "weights after the update that are not 0 and become 0 in half precision",
          FromTable(lambda t: t.update.f16_underflows)),
    _both("m_error", "", "with 8-bit state: rms error of coding m over the rms of m",
          FromCoding(lambda e: e.m.relative)),
    _both("v_error", "", "with 8-bit state: rms error of coding v over the rms of v",
          FromCoding(lambda e: e.v.relative)),
    _both("v_zeroed", "elements", "with 8-bit state: v that decodes to 0 under an m that does not",
          FromCoding(lambda e: float(e.lost))),
)  # fmt: skip

METRICS = {metric.name: metric for metric in _ALL}
ALIASES = {"gradNorm": "grad_norm", "clipScale": "clip_scale"}
"""Other spellings, those of the kernels."""
