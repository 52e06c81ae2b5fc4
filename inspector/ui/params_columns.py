"""The columns of the table of params: what each figure is, where it comes from, and how it is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from inspector.diagnosis.metrics import update_ratio
from inspector.param_statistics import ParamTable
from inspector.stores import Lane
from inspector.ui import format as fmt

Figures = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of figures, one a param. `write` makes text of one of them, `elements` says that it is an element."""

    title: str
    help: str
    sample: str
    figures: Callable[[ParamTable], Figures]
    write: Callable[[float], str] = fmt.number
    lane: Lane | None = None
    alarm: bool = False
    """Drawn in vermilion where it is not 0."""
    is_element: bool = False
    own: str = ""
    """The setting of the param that it is, which the statistics do not hold."""
    metric: str = ""
    """What a condition calls it, "" where none is about it."""


def count_text(value: float) -> str:
    return fmt.count(int(value))


def _known(value: float) -> str:
    return fmt.NA if np.isnan(value) else fmt.number(value)


UPDATE = (
    Column("elements", "Elements of the param.", "116,017,920", lambda t: t.numel, count_text),
    Column("‖w‖", "L2 norm of the weights before the update, over the finite ones.", "8.888e−8",
           lambda t: t.lanes["w"].norm, lane="w", metric="w_norm"),
    Column("‖g‖", "L2 norm of the gradient before clipping, over the finite elements.", "8.888e−8",
           lambda t: t.lanes["g"].norm, lane="g", metric="grad_norm"),
    Column("‖Δw‖", "L2 norm of the update, lr · (m̂/(√v̂ + ε) + λ·w) with m and v after bias correction, over the "
           "finite elements: in units of w.", "8.888e−8", lambda t: t.update.norm, metric="update_norm"),
    Column("‖Δw‖ / ‖w‖", "The update beside the weights it changes; n/a where all weights are 0.", "8.888e−8",
           update_ratio, _known, metric="update_ratio"),
    Column("max |Δw| / lr", "The largest update of one element, in units of the learning rate.", "8.888e−8",
           lambda t: t.update.largest, metric="update_max"),
    Column("at", "The first element that has the largest update.", "[40,447, 767]",
           lambda t: t.update.largest_at, is_element=True),
    Column("g non-finite", "Gradients that are NaN or infinite: the kernels take them as 0.", "88,888,888",
           lambda t: t.lanes["g"].nonfinite, count_text, "g", alarm=True, metric="nonfinite"),
    Column("g first", "The first gradient that is not finite.", "[40,447, 767]", lambda t: t.lanes["g"].first,
           lane="g", is_element=True),
    Column("below ε", "Elements whose √v̂, with the bias correction of this step, is below ε: there ε sets the size of "
           "the update, not the gradient.", "116,017,920", lambda t: t.update.below_eps, count_text,
           metric="below_eps"),
    Column("lost", "Updates that are not 0 and leave w as it is: rounded away in float32.", "116,017,920",
           lambda t: t.update.lost, count_text, metric="lost"),
    Column("skipped", "Updates that are not finite: w stays as it is.", "88,888,888", lambda t: t.update.skipped,
           count_text, alarm=True, metric="skipped"),
    Column("f16 over", "Weights after the update that are infinite in half precision: 65,520 and more.",
           "88,888,888", lambda t: t.update.f16_overflows, count_text, alarm=True, metric="f16_overflows"),
    Column("f16 under", "Weights after the update that are not 0 and become 0 in half precision: 2⁻²⁵ = 2.98e−8 and "
           "less.", "116,017,920", lambda t: t.update.f16_underflows, count_text, metric="f16_underflows"),
)  # fmt: skip


def _setting(title: str, own: str, help_: str, sample: str, write: Callable[[float], str]) -> Column:
    return Column(title, help_, sample, lambda t: np.full(len(t), np.nan), write, own=own)


def _setting_text(value: float) -> str:
    return "" if np.isnan(value) else fmt.number(value)


OWN = (
    _setting("lr", "lr", "Learning rate of the param as used, with the schedule applied.", "8.888e−8", _setting_text),
    _setting("λ", "weight_decay", "Weight decay of the param.", "0.888", _setting_text),
    _setting("t", "t", "The step that this one is to the param: its bias correction counts by it.", "888,888",
             lambda value: "" if np.isnan(value) else count_text(value)),
    _setting("idle", "idle", "Without a gradient a param takes no part in the step: w, m, v and t stay as they are.",
             "idle", lambda value: "idle" if value == 1 else ""),
)  # fmt: skip
"""Beside the figures where params have settings of their own."""
RANKS = Column("ranks", "The processes that keep the param: how many parts of which size, or which one has all of it.",
               "8 × 1,024 rows", lambda t: np.full(len(t), np.nan), own="ranks")  # fmt: skip
"""Beside the figures where several processes keep parts of them: how many."""
STEPPED = Column("optimizer", "What steps the param, of an optimizer that leaves some of them to another.", "adamw",
                 lambda t: np.full(len(t), np.nan), own="optimizer")  # fmt: skip
"""Beside the figures where not all params are stepped by the same."""
NAME, SHAPE, BLOCK, STATE, FIRST_FIGURE = range(5)
WORD_COLUMNS = (
    (
        "param",
        "The param; above all others the sums over all and over each block.",
        "h.11.ffn.gate_up.weight",
    ),
    ("shape", "Extents of the param.", "40,448 × 768"),
    ("block", "wd: weight decay applies. no-wd: it does not.", "no-wd"),
    ("state", "How m and v are kept: in float32, or as 8-bit codes with a scale for each 256.", "float32"),
)


def lane_columns(lane: Lane) -> tuple[Column, ...]:
    """The figures that every lane has, for one of them."""
    when = "after the backward pass" if lane == "g" else "before the update"

    def column(
        title: str,
        what: str,
        figures: Callable[[ParamTable], Figures],
        write: Callable[[float], str] = count_text,
        sample: str = "88,888,888",
        *,
        metric: str = "",
        **more: Any,
    ) -> Column:
        return Column(title, f"{what} of {lane} {when}.", sample, figures, write, lane, metric=metric, **more)

    of = "grad" if lane == "g" else lane

    def kind(name: str) -> str:
        """What a condition calls elements of this kind, of which it knows those of the gradients."""
        return name if lane == "g" else ""

    return (
        column(f"min {lane}", "Smallest finite value", lambda t: t.lanes[lane].low, _known, "−8.888e−8"),
        column(f"max {lane}", "Largest finite value", lambda t: t.lanes[lane].high, _known, "−8.888e−8"),
        column(f"max |{lane}|", "Largest finite magnitude", lambda t: t.lanes[lane].max_abs, _known, "8.888e−8",
               metric=f"{of}_max"),
        column(f"‖{lane}‖", "L2 norm over the finite elements", lambda t: t.lanes[lane].norm, _known, "8.888e−8",
               metric=f"{of}_norm"),
        column(f"{lane} zeros", "Elements that are 0, of either sign,", lambda t: t.lanes[lane].zeros,
               sample="116,017,920", metric=f"{of}_zeros"),
        column(f"{lane} NaN", "Elements that are NaN", lambda t: t.lanes[lane].nan, alarm=True, metric=kind("nan")),
        column(f"{lane} +Inf", "Elements that are +Inf", lambda t: t.lanes[lane].posinf, alarm=True,
               metric=kind("posinf")),
        column(f"{lane} −Inf", "Elements that are −Inf", lambda t: t.lanes[lane].neginf, alarm=True,
               metric=kind("neginf")),
        column(f"{lane} first", "The first element that is not finite", lambda t: t.lanes[lane].first,
               sample="[40,447, 767]", is_element=True),
    )  # fmt: skip
