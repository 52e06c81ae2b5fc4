"""Statistics of each param right before its update: of w, g, m and v, and of the update; and the same by numpy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from inspector.floats import F32Array, bits, finite_mask
from inspector.hyper import Hyper, Numerics
from inspector.layout import BlockName
from inspector.optimizers.adamw.oracle import update
from inspector.statistics import BufferStats, NonFinite, buffer_stats
from inspector.stores import LANES, Lane

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
) -> ParamStats:
    """By numpy, of a param whose flat w, g, m, v begin at mega-buffer element `start`.

    The update is evaluated in float32 without fused operations, so what hangs on its last bit may differ.
    """
    done = update(
        lanes["w"], lanes["g"], lanes["m"], lanes["v"],
        scale=clip_scale, hyper=hyper, step=step, decays=block == "wd", numerics=numerics, dtype=np.float32,
        l2=l2,
    )  # fmt: skip
    before = np.asarray(lanes["w"], np.float32)
    change, after, v_hat = (np.asarray(done.line(line), np.float32) for line in ("update", "w", "v̂"))
    finite = finite_mask(change)
    with np.errstate(all="ignore"):
        each = np.abs(done.line("ratio") + (np.float32(0) if l2 else done.line("decay")))
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


def merged(name: str, params: Iterable[ParamStats]) -> ParamStats:
    """Several params as one."""
    params = tuple(params)
    blocks = {p.block for p in params}
    updates = [p.update for p in params]
    # Of equals the first in memory.
    largest = max(updates, key=lambda u: (u.largest, -(u.largest_at or 0)), default=None)
    return ParamStats(
        name,
        blocks.pop() if len(blocks) == 1 else None,
        sum(p.numel for p in params),
        MappingProxyType({lane: _merged_lane([p.lanes[lane] for p in params]) for lane in LANES}),
        UpdateStats(
            norm=_root(u.norm for u in updates),
            largest=largest.largest if largest else 0.0,
            largest_at=largest.largest_at if largest else None,
            below_eps=sum(u.below_eps for u in updates),
            lost=sum(u.lost for u in updates),
            skipped=sum(u.skipped for u in updates),
            f16_overflows=sum(u.f16_overflows for u in updates),
            f16_underflows=sum(u.f16_underflows for u in updates),
        ),
    )


def by_block(params: Iterable[ParamStats]) -> dict[BlockName, ParamStats]:
    """The params of each block as one, for the blocks there are."""
    params = tuple(params)
    blocks = dict.fromkeys(p.block for p in params if p.block is not None)
    return {block: merged(block, (p for p in params if p.block == block)) for block in blocks}


def _merged_lane(lanes: list[LaneStats]) -> LaneStats:
    counts = [lane.counts for lane in lanes]
    kinds = [c.nonfinite for c in counts]
    exponents = np.sum(
        [c.exponents for c in counts] or [buffer_stats(np.zeros(0, np.float32)).exponents], axis=0
    )
    exponents = exponents.astype(np.uint32)
    exponents.flags.writeable = False
    return LaneStats(
        BufferStats(
            count=sum(c.count for c in counts),
            zeros=sum(c.zeros for c in counts),
            nonfinite=NonFinite(
                nan=sum(k.nan for k in kinds),
                posinf=sum(k.posinf for k in kinds),
                neginf=sum(k.neginf for k in kinds),
                first=min((k.first for k in kinds if k.first is not None), default=None),
            ),
            max_abs=max((c.max_abs for c in counts), default=0.0),
            exponents=exponents,
        ),
        low=min((lane.low for lane in lanes if lane.low is not None), default=None),
        high=max((lane.high for lane in lanes if lane.high is not None), default=None),
        norm=_root(lane.norm for lane in lanes),
    )


def _norm(values: F32Array) -> float:
    """Of finite float32 values: their squares neither overflow nor vanish in float64."""
    return float(np.sqrt(np.sum(np.square(values.astype(np.float64)))))


def _root(norms: Iterable[float]) -> float:
    return math.sqrt(math.fsum(norm * norm for norm in norms))
