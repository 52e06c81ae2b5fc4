"""A finding in full as rich text: message, place, evidence as a table with units, advice, source of its threshold."""

from __future__ import annotations

from html import escape

from inspector.finding_words import ICONS, Group, evidence_rows, place
from inspector.findings import Finding
from inspector.ui import theme
from inspector.ui.findings_model import severity_colour


def detail_html(finding: Finding, group: Group | None = None) -> str:
    """The text; with `group` what is known of its cause as a whole comes first."""
    colour = severity_colour(finding.severity).name()
    muted = theme.colours().muted.name()
    parts = []
    if group is not None and len(group.findings) > 1:
        count = f"{len(group.findings):,} findings, steps {group.first_step:,} to {group.last_step:,}"
        more = f", in {len(group.params):,} params" if len(group.params) > 1 else ""
        parts.append(f'<span style="color:{muted}">{count}{more}; the first:</span>')
    parts += [
        f'<b><span style="color:{colour}">{ICONS[finding.severity]}</span> {escape(finding.message)}</b>',
        f'<span style="color:{muted}">{escape(f"{place(finding)} · rule {finding.rule}")}</span>',
    ]
    text = "".join(f'<p style="margin:2px 0">{part}</p>' for part in parts)
    rows = evidence_rows(finding)
    if rows:
        text += '<table cellspacing="0" cellpadding="1">'
        for name, value, unit in rows:
            text += (
                f'<tr><td>{escape(name)}&nbsp;&nbsp;&nbsp;</td><td align="right">{escape(value)}</td>'
                f'<td><span style="color:{muted}">&nbsp;{escape(unit)}</span></td></tr>'
            )
        text += "</table>"
    if finding.advice:
        text += f'<p style="margin:4px 0 2px 0">{escape(finding.advice)}</p>'
    if finding.source:
        text += f'<p style="margin:2px 0; color:{muted}">Threshold: {escape(finding.source)}</p>'
    return text
