"""Two runs held against each other: arrays, states and steps, down to the first element whose bits differ."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from inspector.codecs import Moments8bit
from inspector.errors import UsageError
from inspector.floats import F32Array, bits, ulp_distance
from inspector.layout import F32_BYTES, Param
from inspector.param_state import PlacedState
from inspector.param_statistics import ParamTable
from inspector.plan import Dispatch
from inspector.session.records import RecordedStep
from inspector.stepping import HostState
from inspector.stores import MOMENTS, Lane

CHUNK = 1 << 20
"""Elements that are compared at a time."""
ULP_BINS = 34
"""Of the histogram: 0, then [2**(i-1), 2**i) ULP, the last of which holds NaN beside a number."""

_STATE: tuple[Lane, ...] = ("w", *MOMENTS)

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """The first element that differs in one tensor, or one number that does, in the order in which a step runs.

    `dispatch` is the number of the one that wrote it, None for what is there before any: gradients, the state that a
    run starts from. `index` is flat in the param; of grad_stats 0 for the norm and 1 for the scale. `ulp` is how far
    the two are apart there, and `max_ulp` the most in this tensor, at `max_index`, None where they are no floats.
    """

    step: int
    dispatch: int | None
    buffer: str
    what: str
    param: str | None = None
    index: int | None = None
    a: float | int | None = None
    b: float | int | None = None
    ulp: int | None = None
    differing: int = 1
    max_ulp: int | None = None
    max_index: int | None = None


@dataclass(slots=True, eq=False)
class ArrayDifference:
    """Two arrays of float32: how many elements differ in their bits, where, and by how much.

    `change` and `base` are sums of squares in float64, of the difference and of the first array.
    """

    elements: int = 0
    differing: int = 0
    first: int | None = None
    max_ulp: int = 0
    max_index: int | None = None
    change: float = 0.0
    base: float = 0.0
    histogram: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(ULP_BINS, np.int64))

    def add(self, other: ArrayDifference) -> None:
        """Take in the difference of another param; places stay those of this one."""
        self.elements += other.elements
        self.differing += other.differing
        self.max_ulp = max(self.max_ulp, other.max_ulp)
        self.change += other.change
        self.base += other.base
        self.histogram += other.histogram

    @property
    def relative(self) -> float:
        """‖b - a‖ / ‖a‖, 0 where both are 0, infinite where only a is."""
        if self.base == 0:
            return 0.0 if self.change == 0 else math.inf
        return math.sqrt(self.change / self.base)


def compare_arrays(a: F32Array, b: F32Array) -> ArrayDifference:
    """Two flat float32 arrays of one length, taken in chunks so that mapped ones are never whole in memory."""
    found = ArrayDifference(len(a))
    for start in range(0, len(a), CHUNK):
        x, y = a[start : start + CHUNK], b[start : start + CHUNK]
        differs = bits(x) != bits(y)
        count = int(np.count_nonzero(differs))
        with np.errstate(all="ignore"):
            wide = np.asarray(x, np.float64)
            found.base += float(np.dot(wide, wide))
            if count:
                change = np.asarray(y, np.float64) - wide
                # Infinities alike differ by nothing.
                change[~differs] = 0
                found.change += float(np.dot(change, change))
        found.histogram[0] += len(x) - count
        if not count:
            continue
        at = np.flatnonzero(differs)
        ulp = _ulp(x[at], y[at])
        if found.first is None:
            found.first = start + int(at[0])
        worst = int(ulp.argmax())
        if found.max_index is None or ulp[worst] > found.max_ulp:
            found.max_ulp, found.max_index = int(ulp[worst]), start + int(at[worst])
        found.histogram += np.bincount(_ulp_bins(ulp), minlength=ULP_BINS)
        found.differing += count
    return found


def _ulp(a: F32Array, b: F32Array) -> npt.NDArray[np.int64]:
    with np.errstate(all="ignore"):
        return ulp_distance(a, b)


def _ulp_bins(ulp: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    _, exponent = np.frexp(ulp.astype(np.float64))
    return np.minimum(exponent, ULP_BINS - 1).astype(np.int64)


def float_ulp(a: float | None, b: float | None) -> int | None:
    """How many float32 two numbers are apart; None where either is unknown."""
    if a is None or b is None:
        return None
    with np.errstate(all="ignore"):
        return int(_ulp(np.array([a], np.float32), np.array([b], np.float32))[0])


def same_float(a: float | None, b: float | None) -> bool:
    """True where both are unknown, or have the same bits in float32."""
    if a is None or b is None:
        return a is b
    with np.errstate(all="ignore"):
        x, y = np.array([a], np.float32), np.array([b], np.float32)
    return bool((bits(x) == bits(y)).all())


# --- one step


def state_differences(
    a: HostState,
    b: HostState,
    params: Sequence[Param],
    dispatches: Mapping[str, int | None],
    writers: Mapping[tuple[str, str], int | None] | None = None,
) -> tuple[list[Difference], dict[str, ArrayDifference]]:
    """What differs between two states after one step, a Difference a tensor, and each lane's and state's as a whole.

    Where both keep m or v as codes of one codec these are compared byte for byte, with their scales; the ULP are of
    what they stand for. `dispatches` gives the number of the one that writes a param, `writers` that of the one that
    writes a state in a shape of its own, by state and param.
    """
    found: list[Difference] = []
    lanes: dict[str, ArrayDifference] = {lane: ArrayDifference() for lane in _STATE}
    for param in params:
        at = dispatches.get(param.name)
        for lane in _STATE:
            total = lanes[lane]
            x, y = (_lane(state, lane, param) for state in (a, b))
            difference = compare_arrays(x, y)
            total.add(difference)
            coded = _coded_pair(a, b, lane, param.name)
            if coded is not None:
                found += _code_differences(a.finished_steps, at, lane, param.name, *coded, difference)
            elif difference.first is not None:
                found.append(tensor_difference(a.finished_steps, at, lane, param.name, x, y, difference))
        for name in sorted({*a.states, *b.states}):
            mine, theirs = (state.states.get(name, {}).get(param.name) for state in (a, b))
            if mine is None and theirs is None:
                continue
            size = next(each.size for each in (mine, theirs) if each is not None)
            x, y = (np.zeros(size, np.float32) if v is None else v.reshape(-1) for v in (mine, theirs))
            if x.size != y.size:
                raise UsageError(
                    f"{name} of {param.name} has {x.size:,} values on one side, {y.size:,} on the other."
                )
            difference, writer = compare_arrays(x, y), (writers or {}).get((name, param.name), at)
            lanes.setdefault(name, ArrayDifference()).add(difference)
            if difference.first is not None:
                found.append(tensor_difference(a.finished_steps, writer, name, param.name, x, y, difference))
    return sorted(found, key=_order), lanes


def tensor_difference(
    step: int, dispatch: int | None, buffer: str, param: str, x: Array, y: Array, found: ArrayDifference
) -> Difference:
    """The difference of two flat tensors as it is told: where it is first, and where it is largest."""
    i = found.first
    assert i is not None
    return Difference(
        step, dispatch, buffer, buffer, param, i, _number(x[i]), _number(y[i]),
        float_ulp(float(x[i]), float(y[i])), found.differing, found.max_ulp, found.max_index,
    )  # fmt: skip


def _lane(state: HostState, lane: str, param: Param) -> F32Array:
    values = getattr(state, lane).get(param.name)
    return np.zeros(param.numel, np.float32) if values is None else values


def _coded_pair(a: HostState, b: HostState, lane: str, name: str) -> tuple[Moments8bit, Moments8bit] | None:
    x, y = a.coded.get(name), b.coded.get(name)
    if lane not in MOMENTS or x is None or y is None or x.codec != y.codec:
        return None
    return x, y


def _code_differences(
    step: int, dispatch: int | None, lane: str, param: str, a: Moments8bit, b: Moments8bit, values: ArrayDifference
) -> Iterator[Difference]:  # fmt: skip
    x, y = getattr(a, lane), getattr(b, lane)
    pairs = ((f"{lane}_packed", x.codes, y.codes), (f"{lane}_scale", x.scales, y.scales))
    for buffer, p, q in pairs:
        at = np.flatnonzero(p.view(np.uint8) != q.view(np.uint8)) // p.dtype.itemsize
        if len(at):
            i = int(at[0])
            ulp = float_ulp(float(p[i]), float(q[i])) if buffer.endswith("scale") else None
            yield Difference(
                step, dispatch, buffer, f"{lane} {'scale' if ulp is not None else 'code'}", param, i,
                _number(p[i]), _number(q[i]), ulp, len(np.unique(at)), values.max_ulp, values.max_index,
            )  # fmt: skip


def _number(value: Any) -> float | int:
    return int(value) if isinstance(value, np.integer) else float(value)


def step_differences(a: RecordedStep, b: RecordedStep, dispatch: int | None) -> list[Difference]:
    """What differs in the numbers of one step that its gradients and kernels decide; `dispatch` writes grad_stats."""
    found: list[Difference] = []
    for i, name in enumerate(("grad_norm", "clip_scale")):
        x, y = getattr(a, name), getattr(b, name)
        if x is not None and y is not None and not same_float(x, y):
            ulp = float_ulp(x, y)
            found.append(
                Difference(a.step, dispatch, "grad_stats", name, None, i, x, y, ulp, max_ulp=ulp, max_index=i)
            )
    return found


def count_differences(a: RecordedStep, b: RecordedStep, *, places: bool = True) -> list[Difference]:
    """What differs in the counts of gradients that are not finite.

    In another form the first may lie elsewhere: without `places` it is left out in the same form as well.
    """
    at = places and a.variant == b.variant
    names = [f.name for f in fields(a.nonfinite) if f.name != "first" or at]
    pairs = ((name, getattr(a.nonfinite, name), getattr(b.nonfinite, name)) for name in names)
    return [
        Difference(a.step, None, "g", f"non-finite gradients: {name}", a=x, b=y)
        for name, x, y in pairs
        if x != y
    ]


def table_differences(
    step: int, a: ParamTable, b: ParamTable, dispatch: int | None, *, places: bool = True
) -> list[Difference]:
    """What differs in the statistics of params, the first figure of each that does.

    Without `places` the elements that they name are left out: these hang on where the params lie.
    """
    index = {name: i for i, name in enumerate(b.names)}
    mine = [i for i, name in enumerate(a.names) if name in index]
    theirs = [index[a.names[i]] for i in mine]
    found: dict[int, Difference] = {}
    for lane in ("g", "w", "m", "v"):
        columns = a.lanes[lane], b.lanes[lane]
        for f in fields(columns[0]):
            if f.name == "first" and not places:
                continue
            x, y = (getattr(each, f.name) for each in columns)
            _table_column(found, step, dispatch, lane, f.name, a.names, x[mine], y[theirs], mine)
    for f in fields(a.update):
        if f.name == "largest_at" and not places:
            continue
        x, y = getattr(a.update, f.name), getattr(b.update, f.name)
        _table_column(found, step, dispatch, "update", f.name, a.names, x[mine], y[theirs], mine)
    return [found[i] for i in sorted(found)]


def _table_column(
    found: dict[int, Difference], step: int, dispatch: int | None, lane: str, name: str, names: Sequence[str],
    x: Array, y: Array, rows: Sequence[int],
) -> None:  # fmt: skip
    raw = (np.ascontiguousarray(each).reshape(len(rows), -1) for each in (x, y))
    a, b = (each.view(np.uint8) for each in raw)
    for at in np.flatnonzero((a != b).any(axis=1)).tolist() if a.size else ():
        scalar = x.ndim == 1
        difference = Difference(
            step, dispatch, "statistics", f"{lane} {name}", names[rows[at]],
            a=_number(x[at]) if scalar else None, b=_number(y[at]) if scalar else None,
        )  # fmt: skip
        found.setdefault(rows[at], difference)


def _order(difference: Difference) -> tuple[int, int]:
    return (-1 if difference.dispatch is None else difference.dispatch, 0)


def first_of(differences: Sequence[Difference]) -> Difference | None:
    """The one that a step comes to first; of one dispatch the first given."""
    return min(differences, key=_order, default=None)


# --- which dispatch wrote what


def grad_stats_dispatch(dispatches: Sequence[Dispatch]) -> int | None:
    """The number of the dispatch that writes grad_stats."""
    return next((d.index for d in dispatches if any(b.buffer == "grad_stats" for b in d.writes)), None)


def update_dispatches(dispatches: Sequence[Dispatch], places: Mapping[str, int]) -> dict[str, int | None]:
    """The number of the dispatch that updates each param; `places` gives the element where a param begins."""
    updates = [d for d in dispatches if d.updates]
    return {
        name: next((d.index for d in updates if d.elements[0] <= start < d.elements[1]), None)
        for name, start in places.items()
    }


def state_writers(
    dispatches: Sequence[Dispatch], states: Sequence[PlacedState]
) -> dict[tuple[str, str], int | None]:
    """The number of the dispatch that writes each state in a shape of its own, by state and param."""
    writes = [(d.index, b) for d in dispatches for b in d.writes]
    return {
        (each.name, each.param): next(
            (
                index
                for index, b in writes
                if b.buffer == each.buffer and b.offset <= each.start * F32_BYTES < b.stop
            ),
            None,
        )
        for each in states
    }
