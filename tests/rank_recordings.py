"""Made-up runs of several processes, each with its part of the params, and the same run in one process."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import recordings

from inspector.floats import F32Array
from inspector.hyper import Hyper
from inspector.layout import Layout, Param
from inspector.param_statistics import ParamTable, param_stats
from inspector.plan import Limits, Variant, layout_for
from inspector.session.ranks_file import RANKS_NAME, rank_folder, ranks_text
from inspector.session.reader import Session
from inspector.session.recorder import Recorder
from inspector.session.records import RecordedLayout, RecordedStep, Shard
from inspector.statistics import NonFinite
from inspector.stepping import HostState

PARAMS = (
    Param("norm", (6,), False),
    Param("embed", (7, 5), True),
    Param("cube", (4, 6, 3), True),
    Param("alone", (3, 2), True),
    Param("bias", (5,), False),
    Param("empty", (0, 2), True),
    Param("scalar", (), False),
)
Part = tuple[slice, ...] | None
"""What a rank keeps of a param; None where it keeps all of it."""
Parts = Mapping[str, Part]

TWO: tuple[Parts, ...] = (
    # Uneven rows; a param in one rank alone; copies of three; a scalar.
    {"norm": None, "embed": (slice(0, 4),), "cube": (slice(0, 3),), "bias": (slice(0, 5),), "empty": None,
     "scalar": None},
    {"norm": None, "embed": (slice(4, 7),), "cube": (slice(3, 4),), "alone": None, "bias": (slice(5, 5),),
     "empty": None, "scalar": None},
)  # fmt: skip
FOUR: tuple[Parts, ...] = tuple(
    # Rows and columns, in two copies of two; the last ranks have nothing of a short one.
    {
        "norm": (slice(2 * rank, 2 * rank + 2) if rank < 3 else slice(6, 6),),
        "embed": (slice(0, 7), slice(0, 3) if rank % 2 else slice(3, 5)),
        "cube": (slice(2 * (rank // 2), 2 * (rank // 2) + 2), slice(3 * (rank % 2), 3 * (rank % 2) + 3)),
        "alone": (slice(0, 3),) if rank == 2 else (slice(3, 3),),
        "bias": (slice(rank, rank + 1) if rank < 3 else slice(3, 5),),
        "empty": None,
        "scalar": None,
    }
    for rank in range(4)
)
SHARDED: tuple[Parts, ...] = tuple(
    {p.name: (slice(3 * rank, 3 * rank + 3) if rank < 2 else slice(6, p.shape[0]),) for p in PARAMS[:2]}
    for rank in range(3)
)
"""Everything in three parts, nothing twice."""


def values(step: int, lane: str) -> dict[str, F32Array]:
    """Of the whole params in their shapes: the same for the same step and lane."""
    rng = np.random.default_rng([step, ord(lane)])
    found = {p.name: rng.normal(size=p.shape).astype(np.float32).reshape(p.shape) for p in PARAMS}
    return {name: np.abs(each) if lane == "v" else each for name, each in found.items()}


def spoiled(step: int) -> dict[str, F32Array]:
    """Gradients with elements that are not finite, in pieces of several ranks."""
    found = values(step, "g")
    if step % 3 == 0:
        found["cube"][3, 1, 2], found["cube"][1, 5, 0] = math.nan, -math.inf
        found["embed"][5, 4] = math.inf
        found["norm"][4] = math.nan
    return found


def lanes_at(step: int) -> dict[str, dict[str, F32Array]]:
    """w, g, m, v right before the update of a step."""
    return {
        "w": values(step - 1, "w"),
        "g": spoiled(step),
        "m": values(step - 1, "m"),
        "v": values(step - 1, "v"),
    }


def piece(values: F32Array, part: Part) -> F32Array:
    return values if part is None else values[part]


def table_of(
    step: int, params: tuple[Param, ...], layout: Layout, cut: Callable[[str, F32Array], F32Array]
) -> ParamTable:
    lanes = lanes_at(step)
    return ParamTable.of(
        param_stats(
            p.name, p.block, {lane: cut(p.name, lanes[lane][p.name]).reshape(-1) for lane in "wgmv"},  # type: ignore[misc]
            clip_scale=1.0, hyper=hyper(step), step=step, start=layout[p.name].offset,
        )
        for p in params
    )  # fmt: skip


def hyper(step: int) -> Hyper:
    return Hyper(lr=1e-3 / step, max_grad_norm=math.inf)


def whole_table(step: int, params: tuple[Param, ...] = PARAMS) -> ParamTable:
    """What one process counts that has all params."""
    layout = layout_for(params, Limits(), Variant())
    in_memory = tuple(segment.param for segment in layout)
    return table_of(step, in_memory, layout, lambda name, each: each)


def local_params(
    parts: Parts, params: tuple[Param, ...] = PARAMS
) -> tuple[tuple[Param, ...], tuple[Shard | None, ...]]:
    """As one rank names them."""
    found, shards = [], []
    for p in params:
        if p.name not in parts:
            continue
        part = parts[p.name]
        found.append(replace(p, shape=piece(np.empty(p.shape), part).shape))
        if part is None:
            shards.append(None)
        else:
            every = (*part, *(slice(0, n) for n in p.shape[len(part) :]))
            shards.append(Shard(p.shape, tuple(each.start for each in every)))
    return tuple(found), tuple(shards)


def record(
    path: Path,
    ranks: tuple[Parts, ...],
    steps: int = 6,
    policy: str = "all",
    *,
    params: tuple[Param, ...] = PARAMS,
    change: Callable[[int, RecordedStep], RecordedStep] = lambda rank, step: step,
    count: Callable[[int, ParamTable], ParamTable | None] = lambda rank, table: table,
    lasts: Mapping[int, int] | None = None,
    without: tuple[int, str] | None = None,
    **about: Any,
) -> Path:
    """A session for each rank; `change` and `count` make a step and its statistics others, `lasts` end ranks early.

    `without` is a rank and a param of which it has no gradient.
    """
    path.mkdir()
    (path / RANKS_NAME).write_text(ranks_text(len(ranks)))
    for rank, parts in enumerate(ranks):
        record_rank(
            path / rank_folder(rank), rank, len(ranks), parts, (lasts or {}).get(rank, steps), policy, params=params,
            change=change, count=count, about=about, without=without,
        )  # fmt: skip
    return path


def record_rank(
    path: Path, rank: int, world: int, parts: Parts, steps: int, policy: str, **more: Any
) -> None:  # fmt: skip
    """All steps of one rank; `more` as of `start_rank`."""
    recorder, offer = start_rank(path, rank, world, parts, policy, **more)
    with recorder:
        for step in range(1, steps + 1):
            offer(step)


def start_rank(
    path: Path, rank: int, world: int, parts: Parts, policy: str, *, params: tuple[Param, ...] = PARAMS,
    change: Callable[[int, RecordedStep], RecordedStep] = lambda rank, step: step,
    count: Callable[[int, ParamTable], ParamTable | None] = lambda rank, table: table,
    about: Mapping[str, Any] | None = None,
    without: tuple[int, str] | None = None,
) -> tuple[Recorder, Callable[[int], None]]:  # fmt: skip
    """A recording of one rank that has begun, and what records a step of it."""
    mine, shards = local_params(parts, params)
    layout = layout_for(mine, Limits(), Variant())
    laid = RecordedLayout.of(layout, Limits(), mine)
    described: dict[str, Any] = {
        "params": mine, "shards": shards, "rank": rank, "world_size": world, "layout": laid, "run": "one",
        "origin": "PyTorch 2.13.0 AdamW (for-loop)", "schedule": "constant", "hyper": hyper(1),
    }  # fmt: skip

    def cut(lane: Mapping[str, F32Array]) -> dict[str, F32Array]:
        return {p.name: piece(lane[p.name], parts[p.name]).reshape(-1).copy() for p in mine}

    recorder = Recorder.create(path, recordings.about(policy, **{**described, **(about or {})}))
    if recorder.policy.captures:
        recorder.offer_start(HostState(*(cut(values(0, lane)) for lane in "wmv"), 0))  # type: ignore[arg-type]

    def offer(step: int) -> None:
        table = table_of(step, mine, layout, lambda name, each: piece(each, parts[name]))
        gradients = table.lanes["g"]
        bad = [int(f) for f in gradients.first if f >= 0]
        ran = RecordedStep(
            step, hyper(step), Variant(), 3.0 - step / 100 + rank / 10,
            float(np.float32(np.sqrt(np.square(gradients.norm).sum()))), 1.0,
            NonFinite(
                int(gradients.nan.sum()), int(gradients.posinf.sum()), int(gradients.neginf.sum()),
                min(bad, default=None),
            ),
            (), 1.75e9 + step * (1 + rank / 8), laid, True,
        )  # fmt: skip
        ran, counted = change(rank, ran), count(rank, table)
        given = {name: g for name, g in cut(spoiled(step)).items() if (rank, name) != without}
        recorder.offer(
            ran, statistics=counted, gradients=given,
            keyframe=HostState(*(cut(values(step, lane)) for lane in "wmv"), step),  # type: ignore[arg-type]
        )  # fmt: skip

    return recorder, offer


def split(
    session: Session,
    path: Path,
    ranks: int,
    said_of: Callable[[int, RecordedStep], RecordedStep] = lambda rank, step: step,
) -> Path:
    """A session that captured all as one of so many processes: rows of every param, as even as they go; of its steps
    each rank says `said_of`."""
    path.mkdir()
    (path / RANKS_NAME).write_text(ranks_text(ranks))
    about = session.about
    for rank in range(ranks):
        cuts = {
            p.name: slice(rank * p.shape[0] // ranks, (rank + 1) * p.shape[0] // ranks) for p in about.params
        }
        parts: Parts = {name: (each,) for name, each in cuts.items()}
        mine, shards = local_params(parts, about.params)
        laid = RecordedLayout.of(layout_for(mine, Limits(), about.variant), Limits(), mine)
        one = replace(
            about,
            params=mine,
            shards=shards,
            rank=rank,
            world_size=ranks,
            layout=laid,
            run="one",
            stats="light",
        )

        def part(lane: str, step: int, cuts: Mapping[str, slice] = cuts) -> dict[str, F32Array]:
            return {n: session.tensor(lane, step, n)[cut].reshape(-1) for n, cut in cuts.items()}  # type: ignore[arg-type]

        with Recorder.create(path / rank_folder(rank), one) as recorder:
            recorder.offer_start(HostState(*(part(lane, 0) for lane in "wmv"), 0))  # type: ignore[arg-type]
            for step in session.steps:
                ran = replace(said_of(rank, session.step(step)), kernels=(), layout=laid)
                after = HostState(*(part(lane, step) for lane in "wmv"), step)  # type: ignore[arg-type]
                recorder.offer(ran, gradients=part("g", step), keyframe=after)
    return path
