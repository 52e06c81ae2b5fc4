"""What happened at which step, ready to be painted and found at any zoom. No Qt."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from inspector.diagnosis.findings import Severity
from inspector.runtime.snapshots import Snapshot
from inspector.ui.timeline_axis import IntArray, Span

SNAP = 5
"""Pixels within which what happened at a step is meant."""
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "error")


class Signs:
    """What happened where, made once for all paints until there is more of it."""

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        findings = snapshot.findings if snapshot else ()
        marks = snapshot.marks if snapshot else ()
        bookmarks = snapshot.bookmarks if snapshot else ()
        self.of = (findings, marks, bookmarks)
        self.texts = sign_texts(snapshot) if snapshot else {}
        self.steps = _ascending(self.texts)
        self.marks = _ascending(mark.step for mark in marks if not mark.stop)
        self.stops = _ascending(mark.step for mark in marks if mark.stop)
        self.bookmarks = _ascending(mark.step for mark in bookmarks)
        self.findings = {
            severity: _ascending(f.step for f in findings if f.severity == severity)
            for severity in SEVERITIES
        }

    def is_of(self, snapshot: Snapshot) -> bool:
        """True where the snapshot has nothing else."""
        return all(
            a is b
            for a, b in zip(self.of, (snapshot.findings, snapshot.marks, snapshot.bookmarks), strict=True)
        )

    def near(self, x: float, span: Span) -> int | None:
        """The step of the sign nearest to a pixel, None where none is within SNAP of it."""
        at = int(np.searchsorted(self.steps, span.step_of(x)))
        close = [int(step) for step in self.steps[max(at - 1, 0) : at + 1]]
        near = [s for s in close if abs(span.x_of(s) - x) <= SNAP and span.start <= s <= span.stop]
        return min(near, key=lambda step: abs(span.x_of(step) - x), default=None)

    def before(self, step: int) -> int | None:
        """The last step before `step` at which something happened."""
        at = int(np.searchsorted(self.steps, step)) - 1
        return int(self.steps[at]) if at >= 0 else None

    def after(self, step: int) -> int | None:
        """The first step after `step` at which something happened."""
        at = int(np.searchsorted(self.steps, step, side="right"))
        return int(self.steps[at]) if at < len(self.steps) else None


def sign_texts(snapshot: Snapshot) -> dict[int, str]:
    """What happened at a step, by step."""
    texts: dict[int, str] = {}
    for mark in snapshot.marks:
        _add(texts, mark.step, f"{'Step' if mark.stop else 'From step'} {mark.step:,}: {mark.text}")
    for mark in snapshot.bookmarks:
        _add(texts, mark.step, f"Bookmark: {mark.text}")
    for finding in snapshot.findings:
        # One step may have hundreds; the findings view lists them.
        if texts.get(finding.step, "").count("\n") < 4:
            _add(texts, finding.step, finding.message)
    return texts


def _add(texts: dict[int, str], step: int, line: str) -> None:
    texts[step] = f"{texts[step]}\n{line}" if step in texts else line


def _ascending(steps: Iterable[int]) -> IntArray:
    return np.unique(np.fromiter(steps, np.int64))
