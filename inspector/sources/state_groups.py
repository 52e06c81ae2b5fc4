"""Settings of params in the metadata of a state file: a list of groups, each with the params it names.

The key `groups` holds JSON: [{"params": [NAME, …], "lr": …, "beta1": …, "beta2": …, "eps": …, "weight_decay": …,
"t": …, "idle": …, "group": …}, …]. What a group does not give is as for the whole file; `t` is the number of steps that
its params have finished, `idle` true where they take no part in the steps to come, `group` its number (its place in the
list). Params that no group names have the settings of the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from inspector.errors import UsageError
from inspector.floats import to_json
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.settings import SETTING_NAMES, ParamSettings, Settings

KEY = "groups"
_KEYS = {"params", *SETTING_NAMES, "t", "idle", "group"}


def read_groups(
    where: str, text: str | None, params: tuple[Param, ...], hyper: Hyper, finished: int
) -> tuple[tuple[Param, ...], Hyper]:
    """The params with their groups, and settings with those of the groups; UsageError for what is no list of them."""
    if text is None:
        return params, hyper
    try:
        groups = json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError(
            f"{where}: groups is not valid JSON: write a list of groups with their params."
        ) from None
    if not isinstance(groups, list) or not all(isinstance(group, dict) for group in groups):
        raise UsageError(
            f'{where}: groups is no list of groups: write [{{"params": [NAME, …], "lr": …}}, …].'
        )
    known = {p.name for p in params}
    own: dict[str, tuple[Settings, int]] = {}
    for place, group in enumerate(groups):
        at = f"{where}: group {place}"
        unknown = sorted(group.keys() - _KEYS)
        if unknown:
            raise UsageError(f"{at} has {unknown[0]!r}: give {', '.join(sorted(_KEYS))}.")
        names = group.get("params")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise UsageError(f'{at} names no params: give "params": [NAME, …].')
        settings, number = _settings(at, group, hyper, finished), _whole(at, group, "group", place)
        for name in names:
            if name not in known:
                raise UsageError(f"{at} names {name!r}, which the file does not hold.")
            if name in own:
                raise UsageError(f"{at} names {name!r}, which another group has: name each param once.")
            own[name] = settings, number
    spare = max((number for _, number in own.values()), default=-1) + 1
    each = [own.get(p.name, (hyper.of_param(0, decays=p.block == "wd"), spare if own else 0)) for p in params]
    classes: dict[Settings, int] = {}
    of = tuple(classes.setdefault(settings, len(classes)) for settings, _ in each)
    grouped = tuple(replace(p, group=number) for p, (_, number) in zip(params, each, strict=True))
    return grouped, replace(hyper, per_param=ParamSettings(tuple(classes), of))


def write_groups(params: Sequence[Param], settings: Mapping[str, Settings], finished: int) -> str:
    """The text of settings by the name of the param."""
    named: dict[tuple[Settings, int], list[str]] = {}
    for param in params:
        named.setdefault((settings[param.name], param.group), []).append(param.name)
    groups: list[dict[str, Any]] = []
    for (own, number), names in named.items():
        group = {"params": names, **{name: getattr(own, name) for name in SETTING_NAMES}}
        groups.append({**group, "t": max(finished - own.behind, 0), "idle": own.idle, "group": number})
    return json.dumps(to_json(groups), ensure_ascii=False, allow_nan=False)


def _settings(at: str, group: Mapping[str, Any], hyper: Hyper, finished: int) -> Settings:
    values = {name: _number(at, group, name, getattr(hyper, name)) for name in SETTING_NAMES}
    t, idle = _whole(at, group, "t", finished), group.get("idle", False)
    if t > finished:
        raise UsageError(f"{at} has finished {t:,} steps, and the file t {finished:,}: t is that of the run.")
    if not isinstance(idle, bool):
        raise UsageError(f"{at}: idle is {str(idle)[:20]!r}: give true or false.")
    return Settings(**values, behind=finished - t, idle=idle)


def _number(at: str, group: Mapping[str, Any], name: str, default: float) -> float:
    value = group.get(name, default)
    # JSON knows no NaN: as elsewhere they are words.
    if value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError(f"{at}: {name} is {str(value)[:20]!r}, which is not a number.")
    return float(value)


def _whole(at: str, group: Mapping[str, Any], name: str, default: int) -> int:
    value = group.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 31:
        raise UsageError(f"{at}: {name} is {str(value)[:20]!r}: give a whole number of 0 or more.")
    return value
