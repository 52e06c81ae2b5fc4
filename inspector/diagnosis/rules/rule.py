"""What a rule is, what it sees in a step, and how places and numbers are written in a message."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from inspector.diagnosis.facts import StepFacts
from inspector.diagnosis.memory import Memory
from inspector.findings import Severity
from inspector.floats import BoolArray, F64Array, shortest, significant
from inspector.layout import Layout
from inspector.number_words import true_minus
from inspector.statistics import StatsLevel

T = TypeVar("T")
Evidence = Mapping[str, float | int | str]


@dataclass(frozen=True, slots=True)
class Story:
    """A finding but for the rule and the step: `index` is flat in `param`, `dispatch` the number in the plan."""

    message: str
    advice: str
    evidence: Evidence = field(default_factory=dict)
    param: str | None = None
    index: int | None = None
    dispatch: int | None = None
    severity: Severity | None = None
    """In place of that of the rule."""


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """What a rule sees in a step, an element a subject: the params of the table, lanes, settings, or the step alone.

    `size` is how bad it is, larger being worse and never negative; `tell` makes the finding about one subject. Of
    several that begin in one step, the one with the largest `rank` is told, of equals the first in memory. `names` are
    the subjects.
    """

    hit: BoolArray
    size: F64Array
    tell: Callable[[int], Story]
    rank: F64Array | None = None
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule by name. `judge` gives None where a step does not hold the numbers it needs.

    `needs` is the level of statistics below which it sees less or nothing, `needs_coding` that it looks at errors of
    coding 8-bit state. `beyond_rows` are the rules that look at more than a recording holds of a step, so that what
    they found is read from it. `source` says where its threshold comes from.
    """

    name: str
    severity: Severity
    says: str
    source: str
    judge: Callable[[StepFacts, Memory], Seen | None]
    needs: StatsLevel = "light"
    needs_coding: bool = False
    beyond_rows: bool = False
    beyond_light_rows: bool = False
    """The same of steps whose params were not counted: there what was recorded of a step is what is told of it."""
    each: bool = False
    """Every subject is told by itself, not the foremost for all: settings, lanes."""


NOTHING = Seen(np.zeros(1, bool), np.zeros(1), lambda _: Story("", ""))
"""Of a rule about the step itself that does not hold."""


def alone(hit: bool, tell: Callable[[], Story], size: float = 1.0) -> Seen:
    """Of a rule about the step itself."""
    if not hit:
        return NOTHING
    return Seen(np.array([hit]), np.array([size], np.float64), lambda _: tell())


def of_params(
    facts: StepFacts,
    hit: BoolArray,
    size: F64Array,
    tell: Callable[[int], Story],
    rank: F64Array | None = None,
) -> Seen:
    """Of a rule about the params of the table."""
    assert facts.table is not None
    return Seen(hit, size, tell, size if rank is None else rank, facts.table.names)


def once(layout: Layout, name: str, work_out: Callable[[Layout], T]) -> T:
    """What follows from a layout alone, worked out once and kept with it under `name`."""
    if name not in layout.derived:
        layout.derived[name] = work_out(layout)
    made: T = layout.derived[name]
    return made


def multi_index(index: int, shape: tuple[int, ...]) -> str:
    """A flat index as people write it for that shape: "[3, 17]"."""
    if not shape:
        return "[]"
    return str([int(i) for i in np.unravel_index(index, shape)])


def element_at(facts: StepFacts, element: int | None) -> tuple[str | None, int | None, str]:
    """Param, flat index and place in words of an element of the mega-buffer; None, None, "" where there is none."""
    segment = facts.layout.at(element) if element is not None and element >= 0 else None
    if segment is None or element is None:
        return None, None, ""
    index = element - segment.offset
    return segment.name, index, f"{segment.name}{multi_index(index, segment.param.shape)}"


NAMED = 3
"""So many other params are named in a finding that holds for many."""


def the_same_in(others: Sequence[str]) -> str:
    """Which other params a finding holds for, as a sentence."""
    more = f" and {len(others) - NAMED:,} more" if len(others) > NAMED else ""
    return f"The same in {', '.join(others[:NAMED])}{more}."


def number(value: float) -> str:
    """A number as a message has it: four digits, whole ones with their separators."""
    value = float(value)
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else true_minus("Infinity" if value > 0 else "-Infinity")
    if value.is_integer() and abs(value) < 1e6:
        return true_minus(f"{int(value):,}")
    return true_minus(significant(value, 4))


def exact(value: float | np.floating[Any]) -> str:
    """A number as a message has it where every bit of it counts."""
    return true_minus(shortest(value))


def two_numbers(one: float, other: float) -> tuple[str, str]:
    """Two float32 that differ as a message has them: four digits, or as many as it takes to tell them apart."""
    if number(one) != number(other):
        return number(one), number(other)
    for digits in range(5, 10):
        written = true_minus(significant(one, digits)), true_minus(significant(other, digits))
        if written[0] != written[1]:
            return written
    return number(one), number(other)


def are(count: int) -> str:
    """The verb after a count of things."""
    return "is" if count == 1 else "are"


def weights_of(count: int, param: str) -> str:
    """A count of weights and whose they are."""
    return f"{count:,} weight{'s' * (count != 1)} of {param}"


def percent(share: float) -> str:
    """A share as a message has it; what is there is never 0%."""
    if 0 < share < 1e-5:
        return "less than 0.001%"
    return f"{100 * share:,.0f}%" if share >= 1 else f"{significant(100 * share, 3)}%"
