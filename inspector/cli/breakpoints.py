"""`--break`: conditions that stop a run or a replay, checked before anything runs, and how a stop is told."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from inspector.diagnosis.stopping import Stopping, parse_breakpoint
from inspector.diagnosis.watchpoints import Condition, check_params
from inspector.errors import UsageError
from inspector.layout import Param
from inspector.optimizers import optimizer
from inspector.plan import Variant
from inspector.runtime.breakpoints import Breakpoints, higher
from inspector.runtime.hits import Hit
from inspector.statistics import StatsLevel


def make_conditions(
    texts: Sequence[str] | None, params: Sequence[Param], variant: Variant
) -> tuple[tuple[Condition, Stopping], ...]:
    """The conditions, each with when it stops; UsageError where one cannot be meant for these params in this form."""
    made = tuple(parse_breakpoint(text) for text in texts or ())
    for condition, _ in made:
        check_params(condition, [param.name for param in params])
        if condition.needs_coding and variant.kernel != "8bit":
            raise UsageError(
                f"{condition.metric} in {str(condition)!r} is of 8-bit state: give --kernel 8bit, or break on another "
                "metric."
            )
        if condition.moment is not None and condition.moment not in optimizer(variant.optimizer).state:
            raise UsageError(
                f"{condition.metric} in {str(condition)!r} is of {condition.moment}, which "
                f"{variant.optimizer} does not keep: break on another metric."
            )
    return made


def raised(level: StatsLevel, breakpoints: Breakpoints) -> StatsLevel:
    """What is counted: `level`, or what the breakpoints need, which is told then."""
    made = higher(level, breakpoints.needs)
    if made != level:
        print(
            f"inspector: statistics are {made} instead of {level}: the breakpoint "
            f"{breakpoints.who_needs(level)} needs them.",
            file=sys.stderr,
        )
    return made


def tell_never_judged(breakpoints: Breakpoints, steps: int) -> None:
    """One line for each breakpoint that could not fire in any of the steps that ran."""
    if steps:
        for condition in breakpoints.never_judged():
            what = "a loss" if condition.metric == "loss" else condition.metric
            print(f"inspector: {condition} never held, since no step had {what}.", file=sys.stderr)


def stop_document(stop: Hit | None) -> dict[str, Any] | None:
    """A stop as JSON: the run stands `where` of `dispatch`, which counts from 0 and whose entry point is `kernel`."""
    if stop is None:
        return None
    return {
        **_why(stop),
        "step": stop.step,
        "dispatch": stop.dispatch,
        "kernel": stop.kernel,
        "where": "after" if stop.after else "before",
        "message": stop.sentence,
        "also": [_why(each) for each in stop.also],
    }


def _why(stop: Hit) -> dict[str, Any]:
    index = stop.multi_index
    return {
        "condition": str(stop.condition),
        "value": stop.value,
        "param": stop.param,
        "index": None if index is None else list(index),
    }
