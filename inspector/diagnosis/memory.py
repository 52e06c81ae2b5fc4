"""What the rules remember of the steps before: scalars, and of each param norms over a window and lengths of runs.

Values are kept and not sums, so that they come to the same whatever way a run took to a step: going back and on again
finds the same.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from inspector.diagnosis.facts import StepFacts
from inspector.floats import BoolArray, F64Array
from inspector.hyper import Hyper
from inspector.layout import Layout
from inspector.param_hyper import columns
from inspector.param_statistics import ParamTable

WINDOW = 128
"""Steps that a value is held against."""
LEAST = 32
"""Fewer values than that say nothing of what is usual."""
KEPT_BYTES = 64 << 20
"""Of steps that can be gone back to; at least one."""
SCALARS = ("loss", "grad_norm", "clip_scale", "lr")

I64Array = npt.NDArray[np.int64]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """What one step leaves of its params, float64[params] each: norms before the update, and of the update."""

    w: F64Array
    m: F64Array
    v: F64Array
    g: F64Array
    g_max: F64Array
    update: F64Array
    w_places: tuple[npt.NDArray[np.generic], ...]
    """low, high and zeros of w: what tells one set of weights from another of the same norm."""

    @classmethod
    def of(cls, table: ParamTable) -> Columns:
        """Of the statistics of a step."""
        lanes = table.lanes
        w = lanes["w"]
        return cls(
            w.norm, lanes["m"].norm, lanes["v"].norm, lanes["g"].norm, lanes["g"].max_abs, table.update.norm,
            (w.low, w.high, w.zeros),
        )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Past:
    """What holds after a step. Nothing in it changes, so an older one is what to go back to.

    `runs` are int64[params]: for how many counted steps in a row something has held, this one included. `lr_peak`
    is the largest learning rate so far, `own_peaks` that of each param in the order of the source, as long as
    params have rates of their own.
    """

    step: int
    layout: Layout | None = None
    names: tuple[str, ...] = ()
    facts: StepFacts | None = None
    """Of the step itself, without its table."""
    columns: Columns | None = None
    lr_peak: float = 0.0
    own_peaks: F64Array = field(default_factory=lambda: np.zeros(0))
    counted: int = 0
    """Steps whose params were counted."""
    runs: dict[str, I64Array] = field(default_factory=dict)
    began: F64Array = field(default_factory=lambda: np.zeros(0))
    """‖w‖ of each param in the first step that was counted."""

    def rates(
        self, hyper: Hyper, layout: Layout, names: Sequence[str]
    ) -> tuple[F64Array | float, F64Array | float]:
        """The rate in this step, and the largest so far, of params that in the next have the settings `hyper`.

        One number each where they share it. A rate that is not known is infinite: nothing rises above it.
        """
        if self.facts is None:
            return math.inf, self.lr_peak
        if hyper.per_param is None:
            return self.facts.hyper.lr, self.lr_peak
        numbers = layout.numbers_of(names)
        peaks = np.append(self.own_peaks, np.zeros(len(layout.segments)))
        return columns(self.facts.hyper, layout, names, self.facts.step).lr, peaks[numbers]

    def run(self, name: str) -> I64Array:
        """For how many steps in a row something has held, by param."""
        known = self.runs.get(name)
        return np.zeros(len(self.names), np.int64) if known is None else known


Held = Callable[[StepFacts, Past], BoolArray]
"""What may hold for several steps in a row, by param."""


class Memory:
    """The steps so far, in order. `now` includes the step that is judged, `before` is what was known until then."""

    def __init__(self, held: dict[str, Held]) -> None:
        self._held = held
        self._kept: deque[Past] = deque()
        self._bytes = 0
        self._rows: deque[tuple[tuple[str, ...], F64Array]] = deque()
        """log₂ of gradient norms of counted steps, NaN where there is none, the newest last, with the names of the
        params: more than a window, so that one can go back."""
        self._rows_end = 0
        """How many rows there have been."""
        self._scalars: dict[str, list[float]] = {name: [] for name in SCALARS}
        self.before = self.now = Past(0)
        self._shared: dict[str, Any] = {}
        """What several rules ask of the step that is judged."""
        self.first: int | None = None
        """The step that it begins with, None before any."""

    @property
    def last_step(self) -> int | None:
        """The last step that was taken in."""
        return self.now.step if self.first is not None else None

    def shared(self, name: str, make: Callable[[], T]) -> T:
        """What `make` gives, worked out once for all rules that judge this step by it."""
        if name not in self._shared:
            self._shared[name] = make()
        found: T = self._shared[name]
        return found

    def truncate(self, step: int) -> bool:
        """Forget what came after `step`; False where that is too far back to know what was known then, which leaves
        nothing of use."""
        if self.first is None or self.now.step <= step:
            return True
        while self._kept and self._kept[-1].step > step:
            gone = self._kept.pop()
            self._bytes -= _nbytes(gone)
        if not self._kept:
            return False
        self.now = self.before = self._kept[-1]
        keep = step + 1 - self.first
        for values in self._scalars.values():
            del values[keep:]
        while self._rows and self._rows_end > self.now.counted:
            self._rows.pop()
            self._rows_end -= 1
        return True

    def take(self, facts: StepFacts) -> None:
        """The next step, right after the last one that was taken."""
        assert self.first is None or facts.step == self.now.step + 1
        self._shared = {}
        if self.first is None:
            self.first = facts.step
        past = self.now
        if facts.table is not None and past.names and past.names != facts.table.names:
            past = _reordered(past, facts.table.names)
        self.before = past
        for name in SCALARS[:3]:
            value = getattr(facts, name)
            self._scalars[name].append(math.nan if value is None else float(value))
        lr = _rate(facts.hyper)
        self._scalars["lr"].append(lr)
        now = replace(
            past,
            step=facts.step,
            layout=facts.layout,
            facts=replace(facts, table=None, coding=None, gradients=None),
            columns=None,
            lr_peak=max(past.lr_peak, lr) if math.isfinite(lr) else past.lr_peak,
            own_peaks=_own_peaks(past.own_peaks, facts.hyper),
            runs={},
        )
        self.now = now if facts.table is None else self._counted(now, past, facts, facts.table)
        self._kept.append(self.now)
        self._bytes += _nbytes(self.now)
        while self._bytes > KEPT_BYTES and len(self._kept) > 1:
            self._bytes -= _nbytes(self._kept.popleft())
        while len(self._rows) > WINDOW + len(self._kept):
            self._rows.popleft()

    def window(self, name: str, steps: int = WINDOW, *, until: int = 0) -> F64Array:
        """Finite values of a scalar over at most `steps` steps, which end `until` steps before the one judged; float64.

        Without `until` the step that is judged is the last of them.
        """
        values = self._scalars[name]
        stop = len(values) - until
        chosen = np.array(values[max(stop - steps, 0) : max(stop, 0)], np.float64)
        return chosen[np.isfinite(chosen)]

    def latest(self, name: str, steps: int) -> Sequence[float]:
        """The last `steps` values of a scalar, that of the step judged last; NaN where it was not known."""
        return self._scalars[name][-steps:]

    def log2_norms(self, params: BoolArray | slice = slice(None), steps: int = WINDOW) -> F64Array:
        """log₂ of the gradient norms of params over the counted steps before the one judged, the latest last.

        float64[at most `steps`, params chosen], NaN where a norm is 0 or not finite.
        """
        before = self.before.counted
        rows = list(
            islice(
                reversed(self._rows), self._rows_end - before, self._rows_end - before + min(steps, before)
            )
        )
        if not rows:
            return np.zeros((0, len(np.zeros(len(self.now.names))[params])))
        return np.stack([_in_order(*row, self.now.names)[params] for row in reversed(rows)])

    # --- inner parts

    def _counted(self, now: Past, past: Past, facts: StepFacts, table: ParamTable) -> Past:
        if past.names != table.names:
            past = replace(
                past, names=table.names, runs={}, counted=0, columns=None, began=table.lanes["w"].norm,
            )  # fmt: skip
            self._rows.clear()
            self._rows_end = 0
            self.before = past
        self._rows.append((table.names, log2_of(table.lanes["g"].norm)))
        self._rows_end = past.counted + 1
        now = replace(
            now, names=table.names, columns=Columns.of(table), counted=past.counted + 1, began=past.began
        )
        runs = {name: np.where(held(facts, past), past.run(name) + 1, 0) for name, held in self._held.items()}
        return replace(now, runs=runs)


def _reordered(past: Past, names: tuple[str, ...]) -> Past:
    """The same with its params in another order; as it is where they are others."""
    if sorted(names) != sorted(past.names):
        return past
    order = order_of(past.names, names)
    return replace(
        past,
        names=names,
        columns=None,
        runs={name: run[order] for name, run in past.runs.items()},
        began=past.began[order],
    )


def order_of(names: tuple[str, ...], wanted: tuple[str, ...]) -> I64Array:
    """Where each of the `wanted` stands among `names`, which hold the same."""
    places = {name: i for i, name in enumerate(names)}
    return np.array([places[name] for name in wanted], np.int64)


def _in_order(names: tuple[str, ...], row: F64Array, wanted: tuple[str, ...]) -> F64Array:
    return row if names == wanted else row[order_of(names, wanted)]


def log2_of(norms: F64Array) -> F64Array:
    """log₂ of norms; NaN where one is 0 or not finite."""
    some = (norms > 0) & np.isfinite(norms)
    return np.where(some, np.log2(np.where(some, norms, 1.0)), np.nan)


def _nbytes(past: Past) -> int:
    """About how much of memory one step takes."""
    # The row of norms that is kept beside it, too.
    columns = 10 if past.columns is not None else 0
    return 1200 + sum(a.nbytes for a in past.runs.values()) + 8 * columns * len(past.names)


def _rate(hyper: Hyper) -> float:
    """The learning rate of a step: where params have their own, the largest that any takes the step with."""
    if hyper.per_param is None:
        return hyper.lr
    return max((each.lr for each in hyper.per_param.classes if not each.idle), default=hyper.lr)


def _own_peaks(before: F64Array, hyper: Hyper) -> F64Array:
    """The largest rates of params so far, by their numbers; nothing where they share one."""
    own = hyper.per_param
    if own is None:
        return before
    rates = np.array([0.0 if each.idle or not math.isfinite(each.lr) else each.lr for each in own.classes])
    now = rates[np.array(own.of, np.intp)] if own.of else np.zeros(0)
    peaks = now.copy()
    known = min(len(before), len(now))
    peaks[:known] = np.maximum(before[:known], now[:known])
    # Unchanged it stays the same array: thousands of steps are kept.
    if np.array_equal(peaks, before):
        return before
    peaks.flags.writeable = False
    return peaks
