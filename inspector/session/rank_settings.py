"""The settings that several processes took a step with: those of the whole params, and where a process had others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from inspector.hyper import HYPER_NAMES, Hyper
from inspector.ranks import Parted, odd_one
from inspector.session.shards import ShardMap
from inspector.settings import SETTING_NAMES, ParamSettings, Settings


def joined_hyper(shards: ShardMap, hypers: Sequence[Hyper]) -> Hyper:
    """What the whole params took a step with, of what each rank took it with."""
    first = hypers[0]
    own = first.per_param
    if all(each.per_param is None for each in hypers):
        return first
    if shards.numbered_alike and all(each.per_param == own for each in hypers):
        return first
    classes: dict[Settings, int] = {}
    of = []
    for each in shards.wholes:
        piece = each.first
        used = hypers[piece.rank].of_param(piece.number, decays=each.param.block == "wd")
        of.append(classes.setdefault(used, len(classes)))
    return replace(first, per_param=ParamSettings(tuple(classes), tuple(of)))


def parted_settings(shards: ShardMap, hypers: Sequence[Hyper], step: int) -> Iterator[Parted]:
    """Settings of the run that ranks took a step with otherwise; and those and step counts of params, each once."""
    for name in HYPER_NAMES:
        odd = odd_one([(rank, float(getattr(each, name))) for rank, each in enumerate(hypers)])
        if odd is not None:
            yield Parted(odd[0], name, odd[1], odd[2])
    own = hypers[0].per_param
    if shards.numbered_alike and all(each.per_param == own for each in hypers):
        return
    told: set[str] = set()
    for each in shards.wholes:
        if len(each.listed) < 2:
            continue
        decays = each.param.block == "wd"
        used = [(p.rank, hypers[p.rank].of_param(p.number, decays=decays)) for p in each.listed if p.numel]
        if all(settings == used[0][1] for _, settings in used[1:]):
            continue
        for name in (*SETTING_NAMES, "step count", "idle"):
            odd = None if name in told else odd_one([(rank, _value(s, name, step)) for rank, s in used])
            if odd is not None:
                told.add(name)
                yield Parted(odd[0], name, odd[1], odd[2], each.param.name)


def _value(settings: Settings, name: str, step: int) -> float:
    if name == "step count":
        return float(settings.t(step))
    return float(getattr(settings, name))
