"""Findings in words: where each is, its evidence with units, and all of them grouped by cause."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from inspector.findings import Finding, Severity
from inspector.floats import significant
from inspector.number_words import true_minus

SEVERITIES: tuple[Severity, ...] = ("info", "warning", "error")
"""From the least to the worst."""
RANK: Mapping[Severity, int] = MappingProxyType({severity: i for i, severity in enumerate(SEVERITIES)})
ICONS: Mapping[Severity, str] = MappingProxyType({"error": "✖", "warning": "▲", "info": "●"})
SHOWN_PARAMS = 3

UNITS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("nan", "posinf", "neginf", "elements", "in_param"), "elements"),
        **dict.fromkeys(("below_eps", "lost", "skipped", "block_size"), "elements"),
        **dict.fromkeys(("share", "param_share"), "of 1"),
        **dict.fromkeys(("steps", "window", "t"), "steps"),
        **dict.fromkeys(("offset", "align"), "bytes"),
        "params": "params",
        "loss": "nats",
        "largest_update": "× lr",
        "z": "standard deviations",
    }
)
"""Of evidence by name; what is not here has none."""


def number(value: float | int | str) -> str:
    """A figure of the evidence: whole numbers with separators, others in six digits, NaN and infinities by name."""
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return true_minus(f"{value:,}")
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else true_minus("Infinity" if value > 0 else "-Infinity")
    return true_minus(significant(value, 6))


def evidence_rows(finding: Finding) -> tuple[tuple[str, str, str], ...]:
    """Name, value and unit of each piece of evidence; names in words."""
    return tuple(
        (name.replace("_", " "), number(value), "" if isinstance(value, str) else UNITS.get(name, ""))
        for name, value in finding.evidence.items()
    )


def place(finding: Finding) -> str:
    """Step, dispatch, param and element: "step 30 · gradients · h.0.weight[17]"."""
    parts = [f"step {finding.step:,}"]
    if finding.dispatch is not None:
        parts.append("gradients" if finding.dispatch == 0 else f"dispatch {finding.dispatch}")
    if finding.param is not None:
        parts.append(finding.param + (f"[{finding.index}]" if finding.index is not None else ""))
    return " · ".join(parts)


def as_text(finding: Finding) -> str:
    """All of a finding as plain text, for a message or an issue."""
    lines = [f"{finding.severity}: {finding.message}", f"  {place(finding)} · rule {finding.rule}"]
    lines += [f"  {name} = {value} {unit}".rstrip() for name, value, unit in evidence_rows(finding)]
    if finding.advice:
        lines.append(f"  Advice: {finding.advice}")
    if finding.source:
        lines.append(f"  Threshold: {finding.source}")
    return "\n".join(lines)


def cause(rule: str) -> str:
    """A rule's name as a heading: "Non-finite gradient"."""
    words = rule.replace("-", " ").replace("nonfinite", "non-finite")
    return words[:1].upper() + words[1:]


@dataclass(slots=True)
class Group:
    """The findings of one rule, in the order found; a worst severity and the params they name, each once."""

    rule: str
    findings: list[Finding] = field(default_factory=list)
    severity: Severity = "info"
    _params: dict[str, None] = field(default_factory=dict)

    def add(self, finding: Finding) -> None:
        """Take one more in."""
        self.findings.append(finding)
        if RANK[finding.severity] > RANK[self.severity]:
            self.severity = finding.severity
        if finding.param is not None:
            self._params[finding.param] = None

    @property
    def first_step(self) -> int:
        """Of the first that was found."""
        return self.findings[0].step

    @property
    def last_step(self) -> int:
        """Of the latest."""
        return self.findings[-1].step

    @property
    def params(self) -> tuple[str, ...]:
        """Params named by any of them, in the order found."""
        return tuple(self._params)

    @property
    def params_text(self) -> str:
        """The first few of them, and how many more there are."""
        more = len(self._params) - SHOWN_PARAMS
        shown = ", ".join(list(self._params)[:SHOWN_PARAMS])
        return f"{shown} and {more:,} more" if more > 0 else shown

    def as_text(self) -> str:
        """All of the group as plain text."""
        head = f"{cause(self.rule)}: {len(self.findings):,} from step {self.first_step:,} on"
        return "\n\n".join([head, *(as_text(f) for f in self.findings)])


class FindingGroups:
    """Findings by rule, the group that began last at the end; more can be added, which costs nothing for the others."""

    def __init__(self, findings: Iterable[Finding] = ()) -> None:
        self.groups: list[Group] = []
        self._at: dict[str, int] = {}
        for finding in findings:
            self.add(finding)

    def group_of(self, rule: str) -> int | None:
        """The place of the group of that rule, None before there is one."""
        return self._at.get(rule)

    def add(self, finding: Finding) -> None:
        """Take one more in, with a new group at the end where it is the first of its rule."""
        at = self._at.get(finding.rule)
        if at is None:
            at = self._at[finding.rule] = len(self.groups)
            self.groups.append(Group(finding.rule))
        self.groups[at].add(finding)


@dataclass(frozen=True, slots=True)
class Filter:
    """What is shown of findings: `least` and worse, with every word of `text` somewhere in rule, param or message."""

    least: Severity = "info"
    text: str = ""

    def of(self, findings: Sequence[Finding]) -> tuple[Finding, ...]:
        """Those that pass, in their order."""
        least, words = RANK[self.least], self.text.lower().split()
        return tuple(f for f in findings if RANK[f.severity] >= least and (not words or _has(f, words)))


def _has(finding: Finding, words: Sequence[str]) -> bool:
    inside = f"{finding.rule} {finding.param or ''} {finding.message} step {finding.step}".lower()
    return all(word in inside for word in words)
