"""The plots that a person put on the board: what is in each, as data and as text that is kept. No Qt."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from inspector.floats import shortest
from inspector.history import History
from inspector.line_store import Waterfall
from inspector.runtime.commands import ViewLines
from inspector.runtime.plotted import MEASURES, PERCENTS, Fall, Line, meaning, unit
from inspector.runtime.snapshots import Snapshot
from inspector.statistics import BINS, EXPONENT_BIAS
from inspector.stores import LANES, Lane
from inspector.ui import format as fmt

MOST_PLOTS = 500
MOST_IN_ONE = 12
"""Lines in a plot: nobody tells more apart."""
MOST_TAKEN_BACK = 20


@dataclass(frozen=True, slots=True)
class Plot:
    """Lines over one y axis, or the waterfall of a histogram."""

    lines: tuple[Line, ...] = ()
    fall: Fall | None = None
    log: bool = False

    def with_lines(self, lines: Iterable[Line]) -> Plot:
        """With these lines as well, as many as one plot takes."""
        return replace(self, lines=tuple(dict.fromkeys((*self.lines, *lines)))[:MOST_IN_ONE], fall=None)

    def names(self) -> tuple[str, dict[Line, str]]:
        """What all lines have in common, and each by what it has of its own."""
        metrics, params = {line.metric for line in self.lines}, {line.param for line in self.lines}
        if len(self.lines) > 1 and len(metrics) == 1:
            return f"{metrics.pop()} of", {line: line.param or "all params" for line in self.lines}
        if len(self.lines) > 1 and len(params) == 1 and "" not in params:
            return f"{params.pop()}:", {line: line.metric for line in self.lines}
        return "", {line: str(line) for line in self.lines}

    @property
    def title(self) -> str:
        """What it shows, in a few words."""
        if self.fall is not None:
            return f"|{self.fall.lane}| of {self.fall.param or 'all params'}"
        first = str(self.lines[0]) if self.lines else "empty plot"
        return first if len(self.lines) < 2 else f"{first} and {len(self.lines) - 1} more"


def percentiles(lane: Lane, param: str = "") -> tuple[Line, ...]:
    """The lines of all percentiles of a lane."""
    return tuple(Line(f"{lane}_p{percent:02}", param) for percent in PERCENTS)


FIRST = (
    Plot((Line("loss"),)),
    Plot((Line("grad_norm"), Line("w_norm"), Line("update_norm")), log=True),
    Plot(percentiles("g"), log=True),
    Plot(fall=Fall("g")),
)
"""What is there before a person chose anything."""


class Board:
    """The plots in their order, one of which is `current`; what was removed last can be taken back."""

    def __init__(self, plots: Sequence[Plot] = FIRST) -> None:
        self.plots: list[Plot] = list(plots)[:MOST_PLOTS]
        self.current = 0
        self._removed: list[tuple[int, Plot]] = []

    @property
    def plot(self) -> Plot | None:
        """The current plot, None where there is none."""
        return self.plots[self.current] if self.plots else None

    def select(self, index: int) -> None:
        """Make another plot the current one, the nearest there is."""
        self.current = min(max(index, 0), max(len(self.plots) - 1, 0))

    def add(self, plot: Plot) -> bool:
        """Put a plot behind the current one; False where there are as many as there may be."""
        if len(self.plots) >= MOST_PLOTS:
            return False
        at = self.current + 1 if self.plots else 0
        self.plots.insert(at, plot)
        self.current = at
        return True

    def change(self, plot: Plot) -> None:
        """Put another in the place of the current one."""
        if self.plots:
            self.plots[self.current] = plot

    def remove(self) -> None:
        """Take the current plot away."""
        if self.plots:
            self._removed = [*self._removed, (self.current, self.plots.pop(self.current))][-MOST_TAKEN_BACK:]
            self.select(self.current)

    def take_back(self) -> bool:
        """Put the plot that was removed last where it was; False without."""
        if not self._removed:
            return False
        at, plot = self._removed.pop()
        self.plots.insert(min(at, len(self.plots)), plot)
        self.select(at)
        return True

    def wanted(self, seen: Iterable[int]) -> ViewLines:
        """What is to be kept of a run for all plots, and of which those with these indices are in sight."""
        lines = dict.fromkeys(line for plot in self.plots for line in plot.lines if not line.in_history)
        falls = dict.fromkeys(plot.fall for plot in self.plots if plot.fall is not None)
        looked_at = [self.plots[i] for i in seen if i < len(self.plots)]
        inside: set[Line | Fall] = {line for plot in looked_at for line in plot.lines}
        inside |= {plot.fall for plot in looked_at if plot.fall is not None}
        return ViewLines(tuple(lines), tuple(falls), frozenset(inside))

    # --- as text

    def to_text(self) -> str:
        """All plots as JSON, for the settings."""
        return json.dumps(
            [
                {"waterfall": str(p.fall)} if p.fall else {"lines": [str(x) for x in p.lines], "log": p.log}
                for p in self.plots
            ]
        )

    @classmethod
    def from_text(cls, text: str) -> Board:
        """What `to_text` wrote; what this version cannot read is left out, all of it where it is no such text."""
        try:
            given = json.loads(text)
        except ValueError:
            return cls()
        if not isinstance(given, list):
            return cls()
        found = []
        for each in given:
            with suppress(KeyError, TypeError, AttributeError):
                if "waterfall" in each:
                    lane, _, param = each["waterfall"].partition("@")
                    found += [Plot(fall=Fall(lane, param))] if lane in LANES else []
                else:
                    lines = tuple(Line.parse(str(line)) for line in each["lines"])
                    found.append(Plot(log=bool(each["log"])).with_lines(lines))
        return cls(found)


def absence(plot: Plot, snapshot: Snapshot | None) -> str:
    """Why a plot has nothing to draw, and what to do, in a sentence."""
    beside = plot.fall is not None or any(not line.in_history for line in plot.lines)
    if not plot.lines and plot.fall is None:
        return "An empty plot: L chooses what is in it."
    if plot.lines and not any(line.exists for line in plot.lines):
        missing = list(dict.fromkeys(line.metric for line in plot.lines))
        of = " of params" if all(line.param for line in plot.lines) else ""
        return f"There is no metric {' or '.join(missing)}{of}: Del takes the plot away, L chooses what is in it."
    if snapshot is None or snapshot.plan is None:
        return "Metrics of params over steps appear here once a source is open."
    if beside and snapshot.recorded is not None:
        if snapshot.plotted.share is not None or plot_of(plot, snapshot) is None:
            return "Reading the recording …"
        return "This recording holds no statistics of params, and so nothing of this."
    if beside and needs_counting(plot, snapshot):
        return "Params are not counted: “Count params” above does so at each step from the next one on."
    if not len(snapshot.history):
        return "No step has finished yet: F11 runs one."
    return "Kept from the next step on: F11 runs one." if beside else "Nothing of this has been recorded."


def told(board: Board, snapshot: Snapshot, cursors: tuple[float | None, float | None]) -> str:
    """What is to be known of all plots together: the cursors, what is still being read, and since when is kept."""
    a, b = cursors
    words = [f"{name} at step {at:,.0f}" for name, at in (("A", a), ("B", b)) if at is not None]
    if a is not None and b is not None:
        words.append(f"{abs(b - a):,.0f} steps apart")
    plotted = snapshot.plotted
    if plotted.share is not None:
        words.append(f"reading the recording: {fmt.percent(plotted.share, 0)}")
    elif plotted.since is not None and plotted.since > 1:
        words.append(f"metrics of params are kept from step {plotted.since:,} on")
    count = len(board.plots)
    if count > 1:
        words.append(f"plot {board.current + 1} of {count}")
    return " · ".join(words) or " "


def plot_of(plot: Plot, snapshot: Snapshot) -> object:
    """What has been sent of a plot, None for nothing yet."""
    if plot.fall is not None:
        return snapshot.plotted.falls.get(plot.fall)
    return next(
        (found for line in plot.lines if (found := snapshot.plotted.lines.get(line)) is not None), None
    )


def needs_counting(plot: Plot, snapshot: Snapshot) -> bool:
    """True where a run does not count what a plot shows."""
    if snapshot.recorded is not None or snapshot.stats == "full":
        return False
    whole = all(not line.param and (m := MEASURES.get(line.metric)) and m.counts for line in plot.lines
                if line.exists and not line.in_history)  # fmt: skip
    return plot.fall is not None or not whole


# --- what there is to choose


@dataclass(frozen=True, slots=True)
class Choice:
    """An entry of the chooser: a metric, all percentiles of a lane, or its waterfall."""

    text: str
    meaning: str
    metric: str = ""
    percentiles_of: Lane | None = None
    fall_of: Lane | None = None
    of_run: bool = False
    """True of what has no params."""

    def lines(self, params: Sequence[str]) -> tuple[Line, ...]:
        """The lines of it for these params, "" for all together."""
        if self.percentiles_of is not None:
            return tuple(line for param in params for line in percentiles(self.percentiles_of, param))
        return (Line(self.metric),) if self.of_run else tuple(Line(self.metric, param) for param in params)


def choices(names: Iterable[str]) -> tuple[Choice, ...]:
    """Everything that may be plotted: `names` are the metrics in the history of the run."""
    of_run = [n for n in names if n not in MEASURES]
    run = [Choice(n, _told(n) or "of the run", n, of_run=True) for n in of_run]
    lanes = [
        choice
        for lane in LANES
        for choice in (
            Choice(
                f"{lane} percentiles", f"{', '.join(map(str, PERCENTS))} % of |{lane}|", percentiles_of=lane
            ),
            Choice(f"{lane} waterfall", f"histogram of |{lane}| over steps", fall_of=lane),
        )
    ]
    return (*run, *(Choice(name, _told(name), name) for name in MEASURES), *lanes)


def _told(name: str) -> str:
    of = unit(name)
    return meaning(name) + (f" ({of})" if of and of not in meaning(name) else "")


# --- as a file


def lines_csv(histories: Mapping[Line, History]) -> str:
    """A row a step, or a bucket of steps, and line: first step, line, low, high, last and how many NaN.

    Numbers are written so that they read back as they are; what was never recorded has no row.
    """
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(["step", "steps", "line", "unit", "low", "high", "last", "nan"])
    for line, history in histories.items():
        series = history.series.get(str(line))
        if series is None:
            continue
        told = np.flatnonzero(~np.isnan(series.last) | (series.gaps > 0))
        for i in told:
            figures = (shortest(float(values[i])) for values in (series.low, series.high, series.last))
            head = int(history.first[i]), history.stride, str(line), unit(line.metric)
            rows.writerow([*head, *figures, int(series.gaps[i])])
    return out.getvalue()


def waterfall_csv(fall: Fall, of: Waterfall) -> str:
    """A row a step, or a bucket of steps: elements by power of two, from the least to the largest that has any."""
    filled = np.flatnonzero(of.counts.any(axis=0))
    low, high = (int(filled[0]), int(filled[-1])) if len(filled) else (0, -1)
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    powers = [f"2^{b - EXPONENT_BIAS}" if b else "below 2^-126" for b in range(low, min(high, BINS - 1) + 1)]
    rows.writerow(["step", "steps", "lane", "zeros", "nonfinite", *powers])
    for i in range(len(of)):
        counts = (int(count) for count in of.counts[i, low : high + 1])
        rows.writerow(
            [int(of.first[i]), of.stride, str(fall), int(of.zeros[i]), int(of.nonfinite[i]), *counts]
        )
    return out.getvalue()
