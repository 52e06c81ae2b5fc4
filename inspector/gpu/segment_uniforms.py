"""What params take a step with, as the uniforms of passes that go over all of them before the update."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inspector.floats import F32Array
from inspector.hyper import Numerics
from inspector.optimizers import optimizer_of
from inspector.optimizers.definition import ADAM_RULE
from inspector.param_hyper import Classes
from inspector.plan import Plan
from inspector.settings import IDLE


@dataclass(frozen=True, slots=True, eq=False)
class SegmentUniforms:
    """`rows` has hp in eight and bias, float32[12], one after the other; `of` the row of each segment.

    Without `of` there is one row, and λ in it is for the block that decays; else λ counts as it stands. `idle` are the
    segments that take no part: theirs is a row that leaves everything as it is.
    """

    rows: F32Array
    of: npt.NDArray[np.intp] | None = None
    idle: npt.NDArray[np.bool_] | None = None

    @property
    def own(self) -> bool:
        """True where params have settings of their own."""
        return self.of is not None


def rules_of(plan: Plan) -> tuple[tuple[tuple[str, ...], ...], npt.NDArray[np.intp] | None]:
    """The WGSL files of each update among the params, and the number of its own by segment; None where there is one.

    Of an update that is not worked out element by element the lanes can be counted, which Adam's does as well.
    """
    found: dict[tuple[str, ...], int] = {}
    steps = (optimizer_of(plan.variant, s.param) for s in plan.layout)
    of = np.array([found.setdefault(each.rule or ADAM_RULE, len(found)) for each in steps], np.intp)
    return tuple(found), of if len(found) > 1 else None


def segment_uniforms(
    values: Mapping[str, F32Array], classes: Classes | None, numerics: Numerics
) -> SegmentUniforms:
    """Made of the uniforms of a step by key, as the optimizer gives them."""
    if classes is None:
        return SegmentUniforms(_row(values["hp:wd"], values["bias"])[None])
    # lr 0, β 1, no decay, and corrections of 1; w times 1.
    one = 0.0 if numerics == "published" else 1.0
    still = np.array([0, 1, 1, 0, 0, 1, 0, 1, one, one, 1, 0], np.float32)
    used = sorted(set(classes) - {IDLE})
    rows = [_row(values[f"hp:{i}"], values[f"bias:{i}"]) for i in used]
    row_of = {of: row for row, of in enumerate(used)} | {IDLE: len(used)}
    of = np.array([row_of[each] for each in classes], np.intp)
    return SegmentUniforms(np.array([*rows, still], np.float32), of, of == len(used))


def _row(hp: F32Array, bias: F32Array) -> F32Array:
    """hp in eight, whatever the optimizer has of it, and bias."""
    return np.concatenate([hp, np.zeros(8 - len(hp), np.float32), bias])
