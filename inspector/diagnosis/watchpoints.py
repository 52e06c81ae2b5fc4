"""Conditions on a step: as text, checked, and judged at a moment of it."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, Literal

import numpy as np

from inspector.coding_error import ParamCodingError, merged_error
from inspector.diagnosis.findings import Finding
from inspector.diagnosis.metrics import ALIASES, METRICS, Counted, FromCoding, FromTable, Kind, Known, Scalar
from inspector.diagnosis.rules import RULE_NAMES, RULES_BY_NAME
from inspector.errors import UsageError
from inspector.floats import F32Array, parse_number, shortest
from inspector.layout import Layout
from inspector.param_statistics import ParamStats, ParamTable
from inspector.statistics import BufferStats, StatsLevel

OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_SPELLINGS = {"=": "==", "≥": ">=", "≤": "<=", "≠": "!="}
FORM = "METRIC OP NUMBER, as in nonfinite > 0 or update_ratio@*.attn.* > 0.01, or finding:RULE"
_COMPARISON = re.compile(
    r"(?P<metric>\w+)\s*(?:@\s*(?P<before>.+?))?\s*(?P<op>>=|<=|==|!=|=|>|<|≥|≤|≠)\s*(?P<number>[^\s@<>=!≥≤≠]+)"
    r"(?:\s*@\s*(?P<after>.+))?"
)
_FINDING = re.compile(r"finding\s*:\s*(?P<rule>[^\s@]*)\s*(?:@\s*(?P<glob>.+))?")
NAMED = 12
"""So many params are named where none is like the one meant."""
_CHUNK = 1 << 20
"""Elements read back at a time while the first of a kind is looked for."""


@dataclass(frozen=True, slots=True)
class Condition:
    """METRIC OP NUMBER, or a finding of a rule; `glob` restricts it to params, of which one is enough.

    Without `glob` a metric is that of all params together. A value that is NaN satisfies != and nothing else. `rule`
    may be a glob itself, which stands for warnings and errors of every rule that it matches.
    """

    metric: str = ""
    op: str = ""
    number: float = 0.0
    glob: str | None = None
    rule: str | None = None

    def __str__(self) -> str:
        at = "" if self.glob is None else f"@{self.glob}"
        if self.rule is not None:
            return f"finding:{self.rule}{at}"
        number = format(self.number, ".17g") if not math.isfinite(self.number) else shortest(self.number)
        return f"{self.metric}{at} {self.op} {number.removesuffix('.0')}"

    @property
    def known(self) -> Known:
        """From which moment of a step on it can be judged at the latest."""
        if self.rule is not None:
            return "finalize"
        return METRICS[self.metric].known(by_param=self.glob is not None)

    @property
    def of_state(self) -> bool:
        """True where it is about w, m or v as they are: every update may make it true."""
        origin = (
            None if self.rule is not None else METRICS[self.metric].origin(by_param=self.glob is not None)
        )
        return isinstance(origin, FromTable) and origin.state

    @property
    def needs(self) -> StatsLevel:
        """How much has to be counted, so that it can be judged at all."""
        if self.rule is not None:
            # Of several rules each sees as much as is counted anyway.
            return "light" if self.several_rules else RULES_BY_NAME[self.rule].needs
        return METRICS[self.metric].needs(by_param=self.glob is not None)

    @property
    def needs_coding(self) -> bool:
        """True where errors of coding m and v have to be measured, which takes 8-bit state."""
        if self.rule is not None:
            return not self.several_rules and RULES_BY_NAME[self.rule].needs_coding
        return isinstance(METRICS[self.metric].whole, FromCoding)

    @property
    def moment(self) -> Literal["m", "v"] | None:
        """The moment that it is about, which not every optimizer keeps; None where it is about neither."""
        if self.metric.startswith("m_"):
            return "m"
        return "v" if self.metric.startswith(("v_", "below_eps")) else None

    @property
    def several_rules(self) -> bool:
        """True where it is about the findings of more rules than one."""
        return self.rule is not None and self.rule not in RULES_BY_NAME

    def is_met_by(self, finding: Finding) -> bool:
        """True where it is about findings and this is one of them."""
        if self.rule is None or not fnmatchcase(finding.rule, self.rule):
            return False
        if self.several_rules and finding.severity == "info":
            return False
        return self.glob is None or bool(finding.param and self.matches([finding.param]))

    def holds_for(self, value: float) -> bool:
        """True where a value of the metric satisfies it."""
        return OPERATORS[self.op](value, self._number)

    @property
    def _number(self) -> float:
        # What the kernels wrote in float32 is held against the float32 of what was typed.
        if self.glob is None and isinstance(origin := METRICS[self.metric].whole, Scalar) and origin.single:
            with np.errstate(over="ignore"):
                return float(np.float32(self.number))
        return self.number

    def matches(self, names: Sequence[str]) -> list[int]:
        """The places of the params it is about; all of them without a glob."""
        glob = self.glob
        if glob is None:
            return list(range(len(names)))
        return [i for i, name in enumerate(names) if name == glob or fnmatchcase(name, glob)]


def parse_condition(text: str) -> Condition:
    """A condition from text; UsageError in one sentence where it is none."""
    plain = text.strip()
    if match := _FINDING.fullmatch(plain):
        rule = match["rule"]
        if not any(name == rule or fnmatchcase(name, rule) for name in RULE_NAMES):
            raise UsageError(f"There is no rule {rule!r} in {plain!r}: {_near(rule, RULE_NAMES)}")
        return Condition(glob=match["glob"], rule=rule)
    match = _COMPARISON.fullmatch(plain)
    if match is None:
        raise UsageError(f"{text!r} is no condition: write {FORM}.")
    metric = ALIASES.get(match["metric"], match["metric"])
    if metric not in METRICS:
        raise UsageError(f"There is no metric {metric!r} in {plain!r}: {_near(metric, METRICS)}")
    if match["before"] and match["after"]:
        raise UsageError(f"{plain!r} names params twice: write it once, as in {metric}@*.attn.* > 0.01.")
    glob = match["before"] or match["after"]
    if glob is not None and METRICS[metric].each is None:
        raise UsageError(
            f"{metric} belongs to the whole step, not to params: leave @{glob} out of {plain!r}."
        )
    return Condition(metric, _SPELLINGS.get(match["op"], match["op"]), _number(match["number"], plain), glob)


def check_params(condition: Condition, names: Sequence[str]) -> None:
    """UsageError where the glob of a condition matches none of these params."""
    glob = condition.glob
    if glob is not None and not condition.matches(names):
        raise UsageError(f"No param matches {glob!r} in {str(condition)!r}: {_near_params(glob, names)}")


def _number(text: str, plain: str) -> float:
    try:
        number = parse_number(text)
    except ValueError:
        raise UsageError(
            f"{text!r} in {plain!r} is no number: write one such as 0.01, 1e-6 or inf."
        ) from None
    if math.isnan(number):
        raise UsageError(
            f"Nothing compares with NaN in {plain!r}: write nan > 0 for gradients, finding:nonfinite-loss for the loss."
        )
    return number


def _near(word: str, known: Iterable[str]) -> str:
    known = list(known)
    near = get_close_matches(word, known, n=3, cutoff=0.6)
    return _did_you_mean(near) if near else f"there are {', '.join(known)}."


def _near_params(glob: str, names: Sequence[str]) -> str:
    """Names are long and alike, so they are held against a glob part by part."""
    parts = {part for name in names for part in name.split(".")}
    words = [word for word in glob.replace("*", ".").split(".") if word]
    near = {part for word in words for part in get_close_matches(word, parts, n=1, cutoff=0.6)}
    alike = {name: len(near & set(name.split("."))) for name in names}
    found = sorted((name for name in names if alike[name]), key=lambda name: -alike[name])
    if found:
        return _did_you_mean(found[:3])
    return f"there are {', '.join(names[:NAMED])}{' …' if len(names) > NAMED else ''}."


def _did_you_mean(near: Sequence[str]) -> str:
    *others, last = near
    return f"did you mean {', '.join(others)} or {last}?" if others else f"did you mean {last}?"


@dataclass(frozen=True)
class Moment:
    """What is known of a step before its first update, or after one of its updates; None is not known yet.

    `counts` are over all gradients, `table` and `whole` of the params and of all as one, `coding` by param with 8-bit
    state. `count` gives the counts of one param's gradients and `read` elements [start, start + count) of them; both
    ask the device. `findings` are those of this step that were not told before. `updated` is true after an update, with
    the lanes in `table` and `whole` as they are then and nothing else to be judged anew.
    """

    layout: Layout
    step: int
    lr: float
    loss: float | None
    counts: BufferStats | None
    count: Callable[[str], BufferStats]
    read: Callable[[int, int], F32Array]
    grad_norm: float | None = None
    clip_scale: float | None = None
    table: ParamTable | None = None
    whole: ParamStats | None = None
    coding: tuple[ParamCodingError, ...] | None = None
    findings: tuple[Finding, ...] = ()
    updated: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a condition came to: the value it was judged by, None for a finding, and the param and element that has it.

    `index` is flat in the param. `several` is how many params satisfy it.
    """

    holds: bool
    value: float | None = None
    param: str | None = None
    index: int | None = None
    several: int = 1
    finding: Finding | None = None


def judge(condition: Condition, moment: Moment, rows: Sequence[int]) -> Verdict | None:
    """What a condition comes to; None while that is not known. `rows` are the places of its params in the layout.

    Of several params that satisfy it the one furthest beyond the number is named, of counts of gradients the first.
    """
    if moment.updated and not condition.of_state:
        return None
    if condition.rule is not None:
        return _judge_findings(condition, moment)
    origin = METRICS[condition.metric].origin(by_param=condition.glob is not None)
    if isinstance(origin, Scalar):
        value = getattr(moment, origin.name)
        return None if value is None else Verdict(condition.holds_for(float(value)), float(value))
    if isinstance(origin, Counted):
        if moment.counts is None:
            return None
        if condition.glob is None:
            return _judge_all_counts(condition, origin, moment, moment.counts)
        return _judge_counts(condition, origin, moment, moment.counts, rows)
    if isinstance(origin, FromTable):
        return _judge_table(condition, origin, moment, rows)
    return _judge_coding(condition, origin, moment, rows)


def _judge_findings(condition: Condition, moment: Moment) -> Verdict:
    for finding in moment.findings:
        if condition.is_met_by(finding):
            return Verdict(True, None, finding.param, finding.index, finding=finding)
    return Verdict(False)


def _judge_all_counts(condition: Condition, origin: Counted, moment: Moment, counts: BufferStats) -> Verdict:
    value = origin.read(counts)
    if not condition.holds_for(value):
        return Verdict(False, value)
    element = None
    if origin.kind is not None and value and counts.nonfinite.first is not None:
        element = _first_of(
            origin.kind, counts, moment, counts.nonfinite.first, moment.layout.padded_elements
        )
    return _at(Verdict(True, value), moment.layout, element)


def _judge_counts(
    condition: Condition, origin: Counted, moment: Moment, counts: BufferStats, rows: Sequence[int]
) -> Verdict:
    """Params before the first element that is not finite have none, so only those from there on are counted."""
    first = counts.nonfinite.first
    segments = moment.layout.segments
    if condition.holds_for(0.0):
        clean = next((i for i in rows if first is None or segments[i].stop <= first), None)
        if clean is not None:
            return Verdict(True, 0.0, segments[clean].name)
    if first is None:
        return Verdict(False, 0.0)
    for i in rows:
        segment = segments[i]
        if segment.stop <= first or not segment.numel:
            continue
        own = moment.count(segment.name)
        value = origin.read(own)
        if condition.holds_for(value):
            element = None
            if origin.kind is not None and value and own.nonfinite.first is not None:
                element = _first_of(origin.kind, own, moment, segment.offset, segment.stop)
            index = None if element is None else element - segment.offset
            return Verdict(True, value, segment.name, index)
    return Verdict(False)


def _first_of(kind: Kind, counts: BufferStats, moment: Moment, start: int, stop: int) -> int | None:
    """The first gradient of a kind in [start, stop), which hold what was counted."""
    kinds = counts.nonfinite
    if kind == "nonfinite" or getattr(kinds, kind) == kinds.total:
        return kinds.first
    tests: dict[str, Callable[..., Any]] = {"nan": np.isnan, "posinf": np.isposinf, "neginf": np.isneginf}
    for low in range(start, stop, _CHUNK):
        for offset in np.flatnonzero(tests[kind](moment.read(low, min(_CHUNK, stop - low)))):
            if moment.layout.at(low + int(offset)) is not None:
                return low + int(offset)
    return None


def _judge_table(
    condition: Condition, origin: FromTable, moment: Moment, rows: Sequence[int]
) -> Verdict | None:
    table = moment.table
    if condition.glob is None:
        table, rows = (ParamTable.of([moment.whole]) if moment.whole is not None else None), [0]
    if table is None:
        return None
    values = np.asarray(origin.read(table), np.float64)[list(rows)]
    with np.errstate(invalid="ignore"):
        true = np.flatnonzero(OPERATORS[condition.op](values, condition.number))  # type: ignore[arg-type]
    if not len(true):
        return Verdict(False, float(values[0]) if len(values) == 1 else None)
    at = _furthest(condition, values, true)
    place = -1 if origin.place is None else int(origin.place(table)[rows[at]])
    verdict = Verdict(True, float(values[at]), several=len(true))
    if condition.glob is None:
        if origin.peak and moment.table is not None:
            owner = moment.table.names[int(np.argmax(origin.read(moment.table)))]
            return replace(verdict, param=owner)
        return _at(verdict, moment.layout, place if place >= 0 else None)
    segment = moment.layout.segments[rows[at]]
    index = place - segment.offset if place >= 0 else None
    return Verdict(True, verdict.value, segment.name, index, len(true))


def _judge_coding(
    condition: Condition, origin: FromCoding, moment: Moment, rows: Sequence[int]
) -> Verdict | None:
    if not moment.coding:
        return None
    if condition.glob is None:
        value = origin.read(merged_error(moment.coding))
        return Verdict(condition.holds_for(value), value)
    wanted = {moment.layout.segments[i].name for i in rows}
    errors = [error for error in moment.coding if error.name in wanted]
    values = np.array([origin.read(error) for error in errors], np.float64)
    true = np.array([i for i, value in enumerate(values) if condition.holds_for(float(value))], np.int64)
    if not len(true):
        return Verdict(False)
    at = _furthest(condition, values, true)
    return Verdict(True, float(values[at]), errors[at].name, several=len(true))


def _furthest(condition: Condition, values: np.ndarray, true: np.ndarray) -> int:
    found = values[true]
    if condition.op in (">", ">="):
        return int(true[np.argmax(found)])
    return int(true[np.argmin(found)]) if condition.op in ("<", "<=") else int(true[0])


def _at(verdict: Verdict, layout: Layout, element: int | None) -> Verdict:
    segment = None if element is None else layout.at(element)
    if segment is None or element is None:
        return verdict
    return Verdict(
        verdict.holds, verdict.value, segment.name, element - segment.offset, verdict.several, verdict.finding
    )
