"""Statistics of each param right before its update: of w, g, m and v, and of the update; added up; and by numpy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from inspector.codecs import Codec
from inspector.floats import F32Array, F64Array, bits, finite_mask
from inspector.hyper import Hyper, Numerics
from inspector.layout import BlockName
from inspector.optimizers.adamw.oracle import update
from inspector.optimizers.adamw.oracle_8bit import update_decoded
from inspector.statistics import BINS, BufferStats, NonFinite, buffer_stats
from inspector.stores import LANES, Lane

I64Array = npt.NDArray[np.int64]

F16_INFINITE = np.float32(65520)
"""The least magnitude that rounds to infinity in half precision."""
F16_ZERO = np.float32(2.0**-25)
"""The largest magnitude that rounds to 0 in half precision."""


@dataclass(frozen=True, slots=True, eq=False)
class LaneStats:
    """One lane of a param. `norm` is the L2 norm of its finite elements; low and high are None where there are none."""

    counts: BufferStats
    low: float | None
    high: float | None
    norm: float


@dataclass(frozen=True, slots=True)
class UpdateStats:
    """What the update does to a param: w becomes w - update, and stays where the update is not finite.

    `largest` is the largest |update| / lr and `largest_at` the first mega-buffer element that has it, None where
    nothing moves. `below_eps` counts √v̂ < ε. `lost` counts updates that are not 0 and leave w as it is, rounded
    away; `skipped` those that are not finite. `f16_overflows` counts w afterwards that are infinite in half
    precision, `f16_underflows` those that are not 0 and become 0.
    """

    norm: float
    largest: float
    largest_at: int | None
    below_eps: int
    lost: int
    skipped: int
    f16_overflows: int
    f16_underflows: int


@dataclass(frozen=True, slots=True, eq=False)
class ParamStats:
    """Statistics of a param, or of several as one. `block` is None where they are of both blocks."""

    name: str
    block: BlockName | None
    numel: int
    lanes: Mapping[Lane, LaneStats]
    update: UpdateStats


def lane_stats(values: F32Array, *, start: int = 0) -> LaneStats:
    """By numpy, of a flat array that begins at mega-buffer element `start`."""
    flat = np.ascontiguousarray(values, dtype=np.float32).reshape(-1)
    finite = flat[finite_mask(flat)]
    return LaneStats(
        buffer_stats(flat, start=start),
        float(finite.min()) if len(finite) else None,
        float(finite.max()) if len(finite) else None,
        _norm(finite),
    )


def param_stats(
    name: str,
    block: BlockName,
    lanes: Mapping[Lane, F32Array],
    *,
    clip_scale: float,
    hyper: Hyper,
    step: int,
    numerics: Numerics = "published",
    l2: bool = False,
    start: int = 0,
    codec: Codec | None = None,
) -> ParamStats:
    """By numpy, of a param whose flat w, g, m, v begin at mega-buffer element `start`; m and v are of `codec` if any.

    The update is evaluated in float32 without fused operations, so what hangs on its last bit may differ.
    """
    settings: dict[str, Any] = {
        "scale": clip_scale, "hyper": hyper, "step": step, "decays": block == "wd", "numerics": numerics,
        "dtype": np.float32, "l2": l2,
    }  # fmt: skip
    values = (lanes["w"], lanes["g"], lanes["m"], lanes["v"])
    if codec is None:
        lines = update(*values, **settings).lines
    else:
        lines = update_decoded(*values, codec=codec, **settings)[1]
    line = {each.name: np.asarray(each.value, np.float32) for each in lines}
    before = np.asarray(lanes["w"], np.float32)
    change, after, v_hat = (line[name] for name in ("update", "w", "v̂"))
    finite = finite_mask(change)
    with np.errstate(all="ignore"):
        each = np.abs(line["ratio"] + (np.float32(0) if l2 else line["decay"]))
        each = np.where(finite & np.isfinite(each), each, np.float32(0))
        size = np.where(finite_mask(after), np.abs(after), np.float32(0))
        below = np.sqrt(v_hat) < np.float32(hyper.eps)
    kept = finite & (change != 0) & finite_mask(before) & (bits(before) == bits(after))
    at = int(each.argmax()) if len(each) else 0
    moves = len(each) > 0 and each[at] > 0
    return ParamStats(
        name,
        block,
        len(before),
        MappingProxyType({lane: lane_stats(lanes[lane], start=start) for lane in LANES}),
        UpdateStats(
            norm=_norm(change[finite]),
            largest=float(each[at]) if moves else 0.0,
            largest_at=start + at if moves else None,
            below_eps=int(below.sum()),
            lost=int(kept.sum()),
            skipped=int((~finite).sum()),
            f16_overflows=int((size >= F16_INFINITE).sum()),
            f16_underflows=int(((size > 0) & (size <= F16_ZERO)).sum()),
        ),
    )


@dataclass(frozen=True, slots=True, eq=False)
class LaneColumns:
    """One lane of many params, an array a figure: [params], and exponents [params, BINS].

    `first` is -1 where every element is finite; low and high are NaN where no element is.
    """

    nan: I64Array
    posinf: I64Array
    neginf: I64Array
    first: I64Array
    zeros: I64Array
    low: F64Array
    high: F64Array
    norm: F64Array
    exponents: npt.NDArray[np.uint32]

    @property
    def nonfinite(self) -> I64Array:
        """All elements that are not finite."""
        return self.nan + self.posinf + self.neginf

    @property
    def max_abs(self) -> F64Array:
        """The largest finite magnitude; 0 where there is none."""
        return np.fmax(np.fmax(np.abs(self.low), np.abs(self.high)), 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class UpdateColumns:
    """The updates of many params, an array a figure, as in UpdateStats; `largest_at` is -1 where nothing moves."""

    norm: F64Array
    largest: F64Array
    largest_at: I64Array
    below_eps: I64Array
    lost: I64Array
    skipped: I64Array
    f16_overflows: I64Array
    f16_underflows: I64Array


@dataclass(frozen=True, eq=False)
class ParamTable(Sequence[ParamStats]):
    """Statistics of many params by column, so that nothing is made for a param that nobody looks at."""

    names: tuple[str, ...]
    blocks: tuple[BlockName | None, ...]
    numel: I64Array
    lanes: Mapping[Lane, LaneColumns]
    update: UpdateColumns

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, index: int) -> ParamStats: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[ParamStats, ...]: ...
    def __getitem__(self, index: int | slice) -> ParamStats | tuple[ParamStats, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        lanes = {lane: _lane_at(columns, index, self.numel) for lane, columns in self.lanes.items()}
        u = self.update
        at = int(u.largest_at[index])
        return ParamStats(
            self.names[index],
            self.blocks[index],
            int(self.numel[index]),
            MappingProxyType(lanes),
            UpdateStats(
                norm=float(u.norm[index]),
                largest=float(u.largest[index]),
                largest_at=at if at >= 0 else None,
                below_eps=int(u.below_eps[index]),
                lost=int(u.lost[index]),
                skipped=int(u.skipped[index]),
                f16_overflows=int(u.f16_overflows[index]),
                f16_underflows=int(u.f16_underflows[index]),
            ),
        )

    def __iter__(self) -> Iterator[ParamStats]:
        return (self[i] for i in range(len(self)))

    @classmethod
    def of(cls, params: Iterable[ParamStats]) -> ParamTable:
        """The table of statistics that are at hand one by one."""
        params = tuple(params)
        return cls(
            tuple(p.name for p in params),
            tuple(p.block for p in params),
            _whole(p.numel for p in params),
            MappingProxyType({lane: _lane_columns([p.lanes[lane] for p in params]) for lane in LANES}),
            UpdateColumns(
                norm=_real(p.update.norm for p in params),
                largest=_real(p.update.largest for p in params),
                largest_at=_whole(p.update.largest_at for p in params),
                below_eps=_whole(p.update.below_eps for p in params),
                lost=_whole(p.update.lost for p in params),
                skipped=_whole(p.update.skipped for p in params),
                f16_overflows=_whole(p.update.f16_overflows for p in params),
                f16_underflows=_whole(p.update.f16_underflows for p in params),
            ),
        )

    def with_lanes(self, now: ParamTable, rows: npt.NDArray[np.intp]) -> ParamTable:
        """With the lanes of the params in these rows as they are in `now`, a table of the same params."""
        lanes: dict[Lane, LaneColumns] = {}
        for lane, columns in self.lanes.items():
            made = {}
            for each in fields(LaneColumns):
                made[each.name] = getattr(columns, each.name).copy()
                made[each.name][rows] = getattr(now.lanes[lane], each.name)[rows]
            lanes[lane] = LaneColumns(**made)
        return replace(self, lanes=MappingProxyType(lanes))

    def merged(self, name: str, block: BlockName | None = None) -> ParamStats:
        """The params of a block as one; all of them without `block`."""
        rows = slice(None) if block is None else _rows([b == block for b in self.blocks])
        blocks = {block} if block is not None else set(self.blocks)
        u = self.update
        largest = float(u.largest[rows].max(initial=0.0))
        # Of equals the first in memory.
        places = u.largest_at[rows][(u.largest[rows] == largest) & (u.largest_at[rows] >= 0)]
        return ParamStats(
            name,
            blocks.pop() if len(blocks) == 1 else None,
            int(self.numel[rows].sum()),
            MappingProxyType(
                {lane: _merged_lane(c, rows, int(self.numel[rows].sum())) for lane, c in self.lanes.items()}
            ),
            UpdateStats(
                norm=_root(u.norm[rows]),
                largest=largest,
                largest_at=int(places.min()) if len(places) else None,
                below_eps=int(u.below_eps[rows].sum()),
                lost=int(u.lost[rows].sum()),
                skipped=int(u.skipped[rows].sum()),
                f16_overflows=int(u.f16_overflows[rows].sum()),
                f16_underflows=int(u.f16_underflows[rows].sum()),
            ),
        )


def merged(name: str, params: Iterable[ParamStats]) -> ParamStats:
    """Several params as one."""
    return ParamTable.of(params).merged(name)


def counts_of(table: ParamTable, lane: Lane) -> BufferStats:
    """Counts over one lane of all params."""
    return _merged_lane(table.lanes[lane], slice(None), int(table.numel.sum())).counts


def totals(table: ParamTable) -> tuple[ParamStats, ...]:
    """All params as one, called "all", then those of each block as one."""
    return table.merged("all"), *by_block(table).values()


def by_block(params: Iterable[ParamStats]) -> dict[BlockName, ParamStats]:
    """The params of each block as one, for the blocks there are."""
    table = params if isinstance(params, ParamTable) else ParamTable.of(params)
    blocks = dict.fromkeys(block for block in table.blocks if block is not None)
    return {block: table.merged(block, block) for block in blocks}


def _lane_at(columns: LaneColumns, index: int, numel: I64Array) -> LaneStats:
    first, low, high = int(columns.first[index]), float(columns.low[index]), float(columns.high[index])
    some = not math.isnan(low)
    kinds = NonFinite(
        int(columns.nan[index]),
        int(columns.posinf[index]),
        int(columns.neginf[index]),
        first if first >= 0 else None,
    )
    counts = BufferStats(
        int(numel[index]),
        int(columns.zeros[index]),
        kinds,
        max(abs(low), abs(high)) if some else 0.0,
        columns.exponents[index],
    )
    return LaneStats(counts, low if some else None, high if some else None, float(columns.norm[index]))


def _lane_columns(lanes: list[LaneStats]) -> LaneColumns:
    kinds = [lane.counts.nonfinite for lane in lanes]
    exponents = np.array([lane.counts.exponents for lane in lanes], np.uint32).reshape(-1, BINS)
    exponents.flags.writeable = False
    return LaneColumns(
        nan=_whole(k.nan for k in kinds),
        posinf=_whole(k.posinf for k in kinds),
        neginf=_whole(k.neginf for k in kinds),
        first=_whole(k.first for k in kinds),
        zeros=_whole(lane.counts.zeros for lane in lanes),
        low=_real(lane.low for lane in lanes),
        high=_real(lane.high for lane in lanes),
        norm=_real(lane.norm for lane in lanes),
        exponents=exponents,
    )


def _rows(wanted: list[bool]) -> slice | npt.NDArray[np.intp]:
    """The places of what is wanted; as a slice, which copies nothing, where they follow each other as blocks do."""
    places = np.flatnonzero(wanted)
    if len(places) and places[-1] - places[0] + 1 == len(places):
        return slice(int(places[0]), int(places[-1]) + 1)
    return places


def _merged_lane(columns: LaneColumns, rows: slice | npt.NDArray[np.intp], count: int) -> LaneStats:
    first = columns.first[rows]
    low = float(np.fmin.reduce(columns.low[rows], initial=math.inf))
    high = float(np.fmax.reduce(columns.high[rows], initial=-math.inf))
    some = low <= high
    exponents = columns.exponents[rows].sum(axis=0, dtype=np.int64).astype(np.uint32)
    exponents.flags.writeable = False
    return LaneStats(
        BufferStats(
            count=count,
            zeros=int(columns.zeros[rows].sum()),
            nonfinite=NonFinite(
                nan=int(columns.nan[rows].sum()),
                posinf=int(columns.posinf[rows].sum()),
                neginf=int(columns.neginf[rows].sum()),
                first=min((int(f) for f in first[first >= 0]), default=None),
            ),
            max_abs=max(abs(low), abs(high)) if some else 0.0,
            exponents=exponents,
        ),
        low=low if some else None,
        high=high if some else None,
        norm=_root(columns.norm[rows]),
    )


def _whole(values: Iterable[int | None]) -> I64Array:
    array = np.array([-1 if v is None else v for v in values], np.int64)
    array.flags.writeable = False
    return array


def _real(values: Iterable[float | None]) -> F64Array:
    array = np.array([math.nan if v is None else v for v in values], np.float64)
    array.flags.writeable = False
    return array


def _norm(values: F32Array) -> float:
    """Of finite float32 values: their squares neither overflow nor vanish in float64."""
    return float(np.sqrt(np.sum(np.square(values.astype(np.float64)))))


def _root(norms: F64Array) -> float:
    return math.sqrt(math.fsum(np.square(norms).tolist()))
