"""Lines over steps as SVG text: gaps where a value is NaN, extremes kept, colours left to the page's style sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import numpy.typing as npt

from inspector.floats import BoolArray, F64Array, significant
from inspector.number_words import true_minus

Steps = npt.NDArray[np.int64]

WIDTH, HEIGHT = 720, 190
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 12, 30
COLUMNS = (WIDTH - LEFT - RIGHT) // 2
"""Of steps that share a column the least and the greatest value are drawn."""


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """One value a step, float64 of the same length as `steps` (int64, ascending); NaN is a gap, ±inf a mark at the
    edge. `kind` is its class of the style sheet, which has its colour."""

    name: str
    steps: Steps
    values: F64Array
    kind: str = "plain"


@dataclass(frozen=True, slots=True)
class Event:
    """A vertical line at a step, of a class of the style sheet, with a text that is shown when it is pointed at."""

    step: int
    kind: str
    text: str


def plot(title: str, lines: Sequence[Line], events: Sequence[Event] = (), *, log: bool = False) -> str:
    """An <svg> of the lines on one pair of axes, steps along x; "" where there is nothing to draw.

    With `log` the axis is of powers of ten; values of 0 and below then have no height and stand at the edge.
    """
    spans = [line for line in lines if len(line.steps)]
    if not spans:
        return ""
    first = min(int(line.steps[0]) for line in spans)
    last = max(int(line.steps[-1]) for line in spans)
    across = _Across(first, max(last, first + 1))
    up = _up(spans, log)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title, quote=True)} over steps">',
        f"<title>{escape(title)} over steps</title>",
        *_grid(across, up),
        *_events(across, events),
    ]
    for line in spans:
        parts += _line(across, up, line)
    return "\n".join([*parts, "</svg>"])


@dataclass(frozen=True, slots=True)
class _Across:
    first: int
    last: int

    def at(self, step: float) -> float:
        return LEFT + (step - self.first) / (self.last - self.first) * (WIDTH - LEFT - RIGHT)


@dataclass(frozen=True, slots=True)
class _Up:
    low: float
    high: float
    log: bool
    ticks: tuple[float, ...]

    def at(self, value: float) -> float:
        low, high = self._scaled(self.low), self._scaled(self.high)
        share = min(max((self._scaled(value) - low) / (high - low), 0.0), 1.0)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    def _scaled(self, value: float) -> float:
        # Half of each: the difference of two floats may not be one.
        return math.log10(value) if self.log else value / 2


def _up(lines: Sequence[Line], log: bool) -> _Up:
    values = np.concatenate([line.values for line in lines])
    values = values[np.isfinite(values)]
    if log:
        values = values[values > 0]
    if not len(values):
        return _Up(0.1, 10.0, True, (0.1, 1.0, 10.0)) if log else _Up(0.0, 1.0, False, (0.0, 1.0))
    low, high = float(values.min()), float(values.max())
    if log:
        bottom = min(max(math.floor(math.log10(low)), -307), 307)
        top = max(min(math.ceil(math.log10(high)), 308), bottom + 1)
        stride = max(1, math.ceil((top - bottom) / 4))
        exponents = range(bottom, top + 1, stride)
        return _Up(10.0**bottom, 10.0**top, True, tuple(10.0**e for e in exponents))
    ticks = _ticks(low, high)
    return _Up(min(low, ticks[0]), max(high, ticks[-1]), False, ticks)


def _ticks(low: float, high: float, parts: int = 2) -> tuple[float, ...]:
    """Round numbers around what is drawn, about twice as many as `parts`."""
    # Half of each first: their difference may not be a float.
    span = high / 2 - low / 2
    if not span:
        span = abs(low) / 2 or 0.5
        low, high = low - span, high + span
    power = 10.0 ** math.floor(math.log10(span / parts))
    stride = next(power * k for k in (1, 2, 5, 10, 20) if span / parts <= power * k)
    start, stop = math.floor(low / stride), math.ceil(high / stride)
    return tuple(i * stride for i in range(start, stop + 1))


def _grid(across: _Across, up: _Up) -> list[str]:
    parts = []
    for value in up.ticks:
        y, tick = _n(up.at(value)), true_minus(significant(value, 4))
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 6}" y="{y}" text-anchor="end" dy="0.32em">{tick}</text>')
    for step in _step_ticks(across):
        x = _n(across.at(step))
        parts.append(
            f'<text class="tick" x="{x}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">{step:,}</text>'
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text class="tick" x="{_n(middle)}" y="{HEIGHT - 3}" text-anchor="middle">step</text>')
    return parts


def _step_ticks(across: _Across) -> list[int]:
    whole = [int(t) for t in _ticks(across.first, across.last, 4) if float(t).is_integer()]
    return [t for t in whole if across.first <= t <= across.last]


def _events(across: _Across, events: Sequence[Event]) -> list[str]:
    """One a pixel and kind; the text of the others there goes into its own."""
    columns: dict[tuple[int, str], list[Event]] = {}
    for event in events:
        if across.first <= event.step <= across.last:
            columns.setdefault((round(across.at(event.step)), event.kind), []).append(event)
    parts = []
    for (x, kind), there in sorted(columns.items()):
        more = f" (and {len(there) - 1:,} more here)" if len(there) > 1 else ""
        text = f"<title>{escape(there[0].text + more)}</title>"
        parts.append(
            f'<line class="event {escape(kind, quote=True)}" x1="{x}" y1="{TOP}" x2="{x}" '
            f'y2="{HEIGHT - BOTTOM}">{text}</line>'
        )
    return parts


def _line(across: _Across, up: _Up, line: Line) -> list[str]:
    steps, values = reduced(line.steps, line.values)
    drawn = np.isfinite(values) & ((values > 0) if up.log else True)
    points = [
        f"{_n(across.at(float(s)))},{_n(up.at(float(v)))}" if ok else None
        for s, v, ok in zip(steps, values, drawn, strict=True)
    ]
    parts, run = [], list[str]()
    for point in [*points, None]:
        if point is not None:
            run.append(point)
        elif run:
            parts.append(_stroke(run, line.kind))
            run = []
    for kind, where, y in _edges(line.values, up.log):
        # As often as a pixel can show it.
        marks = sorted({round(across.at(float(s))) for s in line.steps[where]})
        parts += [f'<path class="{kind}" d="M{x} {y}l-4 7h8z"/>' for x in marks]
    return parts


def _stroke(run: list[str], kind: str) -> str:
    if len(run) == 1:
        x, y = run[0].split(",")
        return f'<circle class="dot {kind}" cx="{x}" cy="{y}" r="2"/>'
    return f'<polyline class="line {kind}" points="{" ".join(run)}"/>'


def _edges(values: F64Array, log: bool) -> list[tuple[str, BoolArray, int]]:
    """What has no height: its class in the style sheet, where it is, and the height of its mark."""
    floor = HEIGHT - BOTTOM - 7
    no_power = np.isfinite(values) & (values <= 0) if log else np.zeros(len(values), np.bool_)
    return [
        ("nan", np.isnan(values), floor),
        ("inf", np.isposinf(values), TOP),
        ("inf", np.isneginf(values), floor),
        ("zero", no_power, floor),
    ]


def reduced(steps: Steps, values: F64Array) -> tuple[Steps, F64Array]:
    """At most four points a column: first, least, greatest and last of it, and one NaN where it holds a gap."""
    if len(steps) <= 2 * COLUMNS:
        return steps, values
    column = np.minimum((steps - steps[0]) * COLUMNS // max(int(steps[-1] - steps[0]), 1), COLUMNS - 1)
    starts = np.flatnonzero(np.diff(column, prepend=-1))
    kept: set[int] = set()
    for start, stop in zip(starts, [*starts[1:], len(steps)], strict=True):
        part = values[start:stop]
        finite = np.flatnonzero(np.isfinite(part))
        if len(finite):
            chosen = {finite[0], finite[part[finite].argmin()], finite[part[finite].argmax()], finite[-1]}
            kept |= {int(start + i) for i in chosen}
        bad = np.flatnonzero(~np.isfinite(part))
        if len(bad):
            kept.add(int(start + bad[0]))
    at = np.array(sorted(kept), np.int64)
    return steps[at], values[at]


def _n(value: float) -> str:
    return f"{value:.1f}"
