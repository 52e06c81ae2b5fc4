"""A run's story as one HTML file that needs nothing else: what was found by cause, and the plots that show it.

All text is escaped, since names of params and messages come from files; the page forbids scripts and loads nothing.
The same report gives the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from inspector.finding_words import ICONS, FindingGroups, Group, cause, evidence_rows, place
from inspector.findings import Finding
from inspector.floats import shortest, significant
from inspector.number_words import nonfinite_counts
from inspector.policies import STATE_LANES, Outcome, PolicyTable
from inspector.report_style import STYLE
from inspector.svg_plot import Event, Line, plot

MAX_OF_A_CAUSE = 50
"""Findings of one rule that are written out; of more the first ones, and how many more there are."""


@dataclass(frozen=True, slots=True, eq=False)
class Plot:
    """Lines over steps with a title; `log` for an axis of powers of ten. `note` says what the lines are."""

    title: str
    lines: tuple[Line, ...]
    log: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """Facts under a heading: name and value, as text."""

    title: str
    facts: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """What a report says. `plots` are of the run, `param_plots` of params that findings name; `policies` of steps with
    non-finite gradients; `notes` are sentences on what could not be shown."""

    title: str
    summary: str
    findings: tuple[Finding, ...] = ()
    plots: tuple[Plot, ...] = ()
    param_plots: tuple[Plot, ...] = ()
    policies: tuple[PolicyTable, ...] = ()
    sections: tuple[Section, ...] = ()
    notes: tuple[str, ...] = ()


def render(report: Report) -> str:
    """The whole page."""
    return "\n".join([*_head(report), *_body(report), "</main>", "</body>", "</html>", ""])


def _head(report: Report) -> Iterator[str]:
    yield "<!DOCTYPE html>"
    yield '<html lang="en">'
    yield "<head>"
    yield '<meta charset="utf-8">'
    yield "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield '<meta name="color-scheme" content="light dark">'
    yield f"<title>{escape(report.title)}: optimizer report</title>"
    yield f"<style>\n{STYLE}</style>"
    yield "</head>"
    yield "<body>"
    yield "<main>"


def _body(report: Report) -> Iterator[str]:
    yield f"<h1>{escape(report.title)}</h1>"
    yield f'<p class="summary">{escape(report.summary)}</p>'
    groups = FindingGroups(report.findings).groups
    yield "<h2>Findings by cause</h2>"
    if groups:
        yield from _overview(groups)
    else:
        yield "<p>Nothing was found to be wrong.</p>"
    events = [Event(f.step, f.severity, f"step {f.step:,}: {f.message}") for f in report.findings]
    yield "<h2>Over steps</h2>"
    if events:
        yield '<p class="note">Vertical lines are findings; point at one to read it.</p>'
    for each in report.plots:
        yield from _plot(each, events)
    if report.param_plots:
        yield "<h2>Params that findings name</h2>"
        for each in report.param_plots:
            yield from _plot(
                each, [e for e, f in zip(events, report.findings, strict=True) if f.param == each.title]
            )
    if groups:
        yield "<h2>Findings in full</h2>"
        for group in groups:
            yield from _group(group)
    for table in report.policies:
        yield from _policies(table)
    for section in report.sections:
        yield from _section(section)
    for note in report.notes:
        yield f'<p class="note">{escape(note)}</p>'


def _overview(groups: Sequence[Group]) -> Iterator[str]:
    yield '<div class="wide"><table>'
    yield (
        '<tr><th>cause</th><th>worst</th><th class="n">first step</th><th class="n">last step</th>'
        '<th class="n">findings</th><th>params</th></tr>'
    )
    for g in groups:
        yield (
            f'<tr><td><a href="#{escape(g.rule, quote=True)}">{escape(cause(g.rule))}</a></td>'
            f'<td class="{g.severity}">{ICONS[g.severity]} {g.severity}</td>'
            f'<td class="n">{g.first_step:,}</td><td class="n">{g.last_step:,}</td>'
            f'<td class="n">{len(g.findings):,}</td><td>{escape(g.params_text)}</td></tr>'
        )
    yield "</table></div>"


def _group(group: Group) -> Iterator[str]:
    count = f"{len(group.findings):,} from step {group.first_step:,} on"
    yield f'<details open id="{escape(group.rule, quote=True)}">'
    yield (
        f'<summary><span class="{group.severity}">{ICONS[group.severity]}</span> {escape(cause(group.rule))}'
        f' <span class="note">{count}</span></summary>'
    )
    for finding in group.findings[:MAX_OF_A_CAUSE]:
        yield from _finding(finding)
    more = len(group.findings) - MAX_OF_A_CAUSE
    if more > 0:
        yield f'<p class="note">And {more:,} more, up to step {group.last_step:,}.</p>'
    yield "</details>"


def _finding(finding: Finding) -> Iterator[str]:
    yield f'<article class="{finding.severity}-edge">'
    yield f"<p><b>{escape(finding.message)}</b></p>"
    yield f'<p class="note">{escape(place(finding))} · rule {escape(finding.rule)}</p>'
    rows = evidence_rows(finding)
    if rows:
        yield '<table class="evidence">'
        for name, value, unit in rows:
            yield (
                f'<tr><td>{escape(name)}</td><td class="n">{escape(value)}</td>'
                f'<td class="note">{escape(unit)}</td></tr>'
            )
        yield "</table>"
    if finding.advice:
        yield f"<p>{escape(finding.advice)}</p>"
    if finding.source:
        yield f'<p class="note">Threshold: {escape(finding.source)}</p>'
    yield "</article>"


def _plot(each: Plot, events: Sequence[Event]) -> Iterator[str]:
    drawn = plot(each.title, each.lines, events, log=each.log)
    if not drawn:
        return
    names = ""
    if len(each.lines) > 1:
        names = " ".join(
            f'<span class="key"><i class="{escape(line.kind, quote=True)}"></i>{escape(line.name)}</span>'
            for line in each.lines
        )
    yield "<figure>"
    note = f' <span class="note">{escape(each.note)}</span>' if each.note else ""
    yield f"<figcaption><b>{escape(each.title)}</b>{note} {names}</figcaption>"
    yield drawn
    yield "</figure>"


def _policies(table: PolicyTable) -> Iterator[str]:
    bad = table.gradients
    yield f"<h2>Policies side by side, step {table.step:,}</h2>"
    yield (
        f"<p>{bad.total:,} of {table.elements:,} gradients are not finite ("
        f"{nonfinite_counts(bad.nan, bad.posinf, bad.neginf)}), in {table.hit_params:,} of {table.params:,} params. "
        "What optimizers that treat them differently make of this step, in float32:</p>"
    )
    yield '<div class="wide"><table>'
    yield (
        '<tr><th rowspan="2">policy</th><th rowspan="2" class="n">gradient norm</th>'
        '<th rowspan="2" class="n">clip scale</th><th rowspan="2">the step</th><th rowspan="2" class="n">‖Δw‖</th>'
        '<th colspan="4">not finite afterwards</th></tr>'
        '<tr><th class="n">w</th><th class="n">m</th><th class="n">v</th><th class="n">params</th></tr>'
    )
    for o in table.outcomes:
        counts = "".join(f'<td class="n">{o.nonfinite[lane]:,}</td>' for lane in STATE_LANES)
        yield (
            f'<tr title="{escape(o.says, quote=True)}"><td>{escape(o.title)}</td>'
            f'<td class="n">{_digits(o.grad_norm)}</td>'
            f'<td class="n">{"none" if o.clip_scale is None else _digits(o.clip_scale)}</td>'
            f"<td>{'counts' if o.counts else 'is skipped'}</td>"
            f'<td class="n">{_digits(o.update_norm)}</td>{counts}<td class="n">{o.params:,}</td></tr>'
        )
    yield "</table></div>"
    if table.param is not None:
        yield from _element(table, table.param)
    yield "<ul>"
    for o in table.outcomes:
        yield f"<li><b>{escape(o.title)}</b>: {escape(o.says)}</li>"
    yield "</ul>"


def _element(table: PolicyTable, param: str) -> Iterator[str]:
    yield f"<p>{escape(param)}[{table.index or 0:,}], gradient {shortest(table.gradient)}:</p>"
    yield '<div class="wide"><table>'
    yield '<tr><th></th><th class="n">w</th><th class="n">m</th><th class="n">v</th></tr>'
    first = table.outcomes[0].element
    if first is not None:
        cells = "".join(f'<td class="n">{_digits(first.before[lane])}</td>' for lane in STATE_LANES)
        yield f"<tr><td>before the step</td>{cells}</tr>"
    for o in table.outcomes:
        yield f"<tr><td>{escape(o.title)}</td>{_after(o)}</tr>"
    yield "</table></div>"


def _after(o: Outcome) -> str:
    if o.element is None:
        return ""
    return "".join(f'<td class="n">{_digits(o.element.after[lane])}</td>' for lane in STATE_LANES)


def _section(section: Section) -> Iterator[str]:
    yield f"<h2>{escape(section.title)}</h2>"
    yield '<table class="facts">'
    for name, value in section.facts:
        yield f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>"
    yield "</table>"


def _digits(value: float) -> str:
    return significant(value, 6) if math.isfinite(value) else shortest(value)
