"""Settings of params in recordings: where two steps differ in them, and what each group had."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from inspector.floats import F64Array
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.session.reader import Session
from inspector.session.records import RecordedStep
from inspector.settings import SETTING_NAMES


def own_differences(
    params: Sequence[Param], a: RecordedStep, b: RecordedStep
) -> dict[str, tuple[object, object]]:
    """What params of either step have of their own and the other has otherwise: each once, with the first param.

    Settings that all params share, and the run's own that follow from them, are told elsewhere.
    """
    if a.hyper.per_param is None and b.hyper.per_param is None:
        return {}
    if a.hyper.per_param == b.hyper.per_param:
        return {}
    first: dict[str, tuple[str, object, object]] = {}
    count: dict[str, int] = {}
    for number, param in enumerate(params):
        x, y = (_named(each.hyper, number, param, each.step) for each in (a, b))
        for name in x:
            if x[name] != y[name]:
                first.setdefault(name, (param.name, x[name], y[name]))
                count[name] = count.get(name, 0) + 1
    found: dict[str, tuple[object, object]] = {}
    for name, (param_name, old, new) in first.items():
        more = f" and {count[name] - 1:,} more" if count[name] > 1 else ""
        found[f"{name} of {param_name}{more}"] = old, new
    return found


def _named(hyper: Hyper, number: int, param: Param, step: int) -> dict[str, object]:
    own = hyper.of_param(number, decays=param.block == "wd")
    return {**{name: getattr(own, name) for name in SETTING_NAMES}, "t": own.t(step), "idle": own.idle}


def group_settings(session: Session) -> list[tuple[str, F64Array]]:
    """Each setting of each group over the steps, as "lr/group 1": those of the first param of the group.

    Nothing where params share their settings throughout. NaN in steps in which they do, or before the group has
    joined the run.
    """
    own = [session.step(step).hyper for step in session.steps] if session.has_own_settings() else []
    params = session.about.params
    found = []
    for group, number in groups_of(params).items() if own else ():
        for name in SETTING_NAMES:
            values = [
                math.nan
                if hyper.per_param is None or number >= len(hyper.per_param.of)
                else getattr(hyper.of_param(number, decays=params[number].block == "wd"), name)
                for hyper in own
            ]
            found.append((f"{name}/group {group}", np.array(values, np.float64)))
    return found


def groups_of(params: Sequence[Param]) -> dict[int, int]:
    """The number of the first param of each group, by group."""
    found: dict[int, int] = {}
    for number, param in enumerate(params):
        found.setdefault(param.group, number)
    return dict(sorted(found.items()))
