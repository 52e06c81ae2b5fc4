"""`--break`: conditions that stop a run or a replay, checked before anything runs, and how a stop is told."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from inspector.diagnosis.watchpoints import Condition, check_params, parse_condition
from inspector.errors import UsageError
from inspector.layout import Param
from inspector.plan import Variant
from inspector.runtime.breakpoints import Breakpoints, Hit, higher
from inspector.statistics import StatsLevel


def make_conditions(
    texts: Sequence[str] | None, params: Sequence[Param], variant: Variant
) -> tuple[Condition, ...]:
    """The conditions; UsageError where one cannot be meant for these params in this form."""
    made = tuple(parse_condition(text) for text in texts or ())
    for condition in made:
        check_params(condition, [param.name for param in params])
        if condition.needs_coding and variant.kernel != "8bit":
            raise UsageError(
                f"{condition.metric} in {str(condition)!r} is of 8-bit state: give --kernel 8bit, or break on another "
                "metric."
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
    """A stop as JSON: `dispatch` counts from 0 and `kernel` is its entry point, which has not run."""
    if stop is None:
        return None
    index = stop.multi_index
    return {
        "condition": str(stop.condition),
        "value": stop.value,
        "step": stop.step,
        "dispatch": stop.dispatch,
        "kernel": stop.kernel,
        "param": stop.param,
        "index": None if index is None else list(index),
        "message": stop.sentence,
    }
