"""What may be plotted over steps: any metric of any param, and what a step says of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

import numpy as np

from inspector.diagnosis.metrics import METRICS, Counted, FromTable
from inspector.floats import F64Array
from inspector.history import History
from inspector.line_store import BoolArray, Waterfall, quantiles
from inspector.param_statistics import ParamStats, ParamTable
from inspector.statistics import BufferStats
from inspector.stores import LANES, Lane

OF_RUN = ("loss", "grad_norm", "clip_scale", "lr", "nonfinite")
"""Metrics of a whole run that its history has anyway."""
PERCENTS = (5, 25, 50, 75, 95, 99)
MOST_LINES, MOST_FALLS = 512, 16
"""Kept at a time: about 60 MB of lines, and 17 MB of waterfalls."""
GRADIENTS = {"w": "weights", "g": "gradients", "m": "first moments", "v": "second moments"}


@dataclass(frozen=True, slots=True, order=True)
class Line:
    """A metric of a param, or of all params together where `param` is ""; of a whole run any name in its history."""

    metric: str
    param: str = ""

    def __str__(self) -> str:
        return f"{self.metric}@{self.param}" if self.param else self.metric

    @classmethod
    def parse(cls, text: str) -> Line:
        """What `str` made of it."""
        metric, _, param = text.partition("@")
        return cls(metric.strip(), param.strip())

    @property
    def in_history(self) -> bool:
        """True of what the history of a run has, so that nothing more is to be kept of it."""
        return not self.param and (self.metric in OF_RUN or "/" in self.metric)

    @property
    def exists(self) -> bool:
        """False of a name that is none of a metric here, as of one that another version had or a person misspelled."""
        return self.in_history or self.metric in MEASURES


@dataclass(frozen=True, slots=True, order=True)
class Fall:
    """Magnitudes of a lane over steps, of a param or of all where it is ""."""

    lane: Lane
    param: str = ""

    def __str__(self) -> str:
        return f"{self.lane}@{self.param}" if self.param else self.lane


@dataclass(frozen=True, slots=True)
class Measure:
    """A metric that may be plotted by param: what is read of a table, float64 [len(rows)]."""

    unit: str
    meaning: str
    read: Callable[[ParamTable, Sequence[int]], F64Array]
    counts: Callable[[BufferStats], float] | None = None
    """Of all gradients, where no params are counted."""


@dataclass(frozen=True, slots=True, eq=False)
class PlotPicture:
    """What is in sight of what was asked for. `share` of a recording is read, None where nothing is being read.

    `since` is the first step from which a run keeps what is not in its history; None of a recording.
    """

    lines: Mapping[Line, History] = field(default_factory=lambda: MappingProxyType({}))
    falls: Mapping[Fall, Waterfall] = field(default_factory=lambda: MappingProxyType({}))
    share: float | None = None
    since: int | None = None


NOTHING_PLOTTED = PlotPicture()


def _column(read: Callable[[ParamTable], object], table: ParamTable, rows: Sequence[int]) -> F64Array:
    return np.asarray(read(table), np.float64)[list(rows)]


def _percentile(lane: Lane, q: float, table: ParamTable, rows: Sequence[int]) -> F64Array:
    of, at = table.lanes[lane], list(rows)
    return quantiles(of.exponents[at], of.zeros[at], of.max_abs[at], q)


def _of_gradients(kind: str, table: ParamTable) -> object:
    return getattr(table.lanes["g"], kind)


def _measures() -> Mapping[str, Measure]:
    found = {}
    for name, metric in METRICS.items():
        origin = metric.each
        if isinstance(origin, Counted) and origin.kind is not None:
            read: Callable[[ParamTable], object] = partial(_of_gradients, origin.kind)
        elif isinstance(origin, FromTable):
            read = origin.read
        else:
            continue
        whole = metric.whole.read if isinstance(metric.whole, Counted) else None
        found[name] = Measure(metric.unit, metric.meaning, partial(_column, read), whole)
    for lane in LANES:
        for percent in PERCENTS:
            what = f"|{lane}| that {percent} % of the {GRADIENTS[lane]} do not exceed, from counts by power of two"
            found[f"{lane}_p{percent:02}"] = Measure(
                f"of {lane}", what, partial(_percentile, lane, percent / 100)
            )
    return MappingProxyType(found)


QUANTILES: Mapping[str, tuple[Lane, float]] = MappingProxyType(
    {f"{lane}_p{percent:02}": (lane, percent / 100) for lane in LANES for percent in PERCENTS}
)
"""Which share of which lane a percentile is of."""
MEASURES = _measures()
"""Of params, by name; of all params together as well."""


def meaning(name: str) -> str:
    """What a metric is; "" of one that is not known here."""
    if name in MEASURES:
        return MEASURES[name].meaning
    return METRICS[name].meaning if name in METRICS else ""


def unit(name: str) -> str:
    """What a metric is counted in, "" for nothing."""
    if name.startswith(("ms/", "cold/")) or name == "lockstep/ms":
        return "ms"
    if name in MEASURES:
        return MEASURES[name].unit
    return METRICS[name].unit if name in METRICS else ""


class Reading:
    """Reads all lines out of a step at once: a metric is looked up once, however many params are plotted of it."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.lines = tuple(lines)
        self._by_metric: dict[str, list[int]] = {}
        for i, line in enumerate(self.lines):
            if line.metric in MEASURES and line.metric not in QUANTILES:
                self._by_metric.setdefault(line.metric, []).append(i)
        shares = [
            (i, *QUANTILES[line.metric]) for i, line in enumerate(self.lines) if line.metric in QUANTILES
        ]
        self._quantiles = {
            lane: [(i, q) for i, of, q in shares if of == lane]
            for lane in dict.fromkeys(of for _, of, _ in shares)
        }
        """By lane, so that all shares of a lane are read at once."""
        self._names: tuple[str, ...] | None = None
        self._rows: dict[str, int] = {}
        self.needs_whole = any(not line.param for line in self.lines)

    def values(
        self, table: ParamTable | None, whole: ParamStats | None, gradients: BufferStats | None = None
    ) -> tuple[F64Array, BoolArray]:
        """A value a line and which are known. Where there is no table, what counts of all gradients tell is."""
        values = np.full(len(self.lines), np.nan)
        known = np.zeros(len(self.lines), np.bool_)
        if table is not None and table.names is not self._names:
            self._names, self._rows = table.names, {name: i for i, name in enumerate(table.names)}
        total = None if whole is None else ParamTable.of([whole])
        for metric, places in self._by_metric.items():
            measure = MEASURES[metric]
            if table is not None:
                there = [i for i in places if self.lines[i].param in self._rows]
                if there:
                    rows = [self._rows[self.lines[i].param] for i in there]
                    values[there], known[there] = measure.read(table, rows), True
            for i in places:
                if self.lines[i].param:
                    continue
                if total is not None:
                    values[i], known[i] = measure.read(total, [0])[0], True
                elif gradients is not None and measure.counts is not None:
                    values[i], known[i] = measure.counts(gradients), True
        for lane, shares in self._quantiles.items():
            for of, of_all in ((table, False), (total, True)):
                asked = [
                    (i, q, 0 if of_all else self._rows[self.lines[i].param])
                    for i, q in shares
                    if (not self.lines[i].param if of_all else self.lines[i].param in self._rows)
                ]
                if of is not None and asked:
                    places, rows = [i for i, _, _ in asked], [row for _, _, row in asked]
                    q, columns = np.array([share for _, share, _ in asked]), of.lanes[lane]
                    values[places] = quantiles(
                        columns.exponents[rows], columns.zeros[rows], columns.max_abs[rows], q
                    )
                    known[places] = True
        return values, known

    def row(self, table: ParamTable, name: str) -> int | None:
        """The place of a param in a table."""
        if table.names is not self._names:
            self._names, self._rows = table.names, {each: i for i, each in enumerate(table.names)}
        return self._rows.get(name)
