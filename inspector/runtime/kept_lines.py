"""Lines and waterfalls of the steps that were shown: what a run, or the reader of a recording, keeps of them."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from inspector.history import EMPTY_HISTORY, History
from inspector.line_store import FallStore, LineStore, Waterfall
from inspector.param_statistics import ParamStats, ParamTable
from inspector.runtime.commands import ViewLines
from inspector.runtime.plotted import MOST_FALLS, MOST_LINES, Fall, Line, PlotPicture, Reading
from inspector.statistics import BufferStats


class Kept:
    """Lines and waterfalls of the steps that it was shown; nothing is allocated for none."""

    def __init__(self, lines: Sequence[Line] = (), falls: Sequence[Fall] = ()) -> None:
        self._store: LineStore[Line] | None = None
        self._falls: dict[Fall, FallStore] = {}
        self._reading = Reading(())
        self.last_step: int | None = None
        self.first_step: int | None = None
        self.want(lines, falls)

    def __bool__(self) -> bool:
        return self._store is not None or bool(self._falls)

    @property
    def lines(self) -> tuple[Line, ...]:
        """The lines that are kept."""
        return self._reading.lines

    @property
    def falls(self) -> tuple[Fall, ...]:
        """The waterfalls that are kept."""
        return tuple(self._falls)

    @property
    def nbytes(self) -> int:
        """Memory of the lines."""
        return 0 if self._store is None else self._store.nbytes

    def want(self, lines: Sequence[Line], falls: Sequence[Fall]) -> None:
        """Keep these from now on, and forget all others."""
        lines = tuple(dict.fromkeys(lines))
        if lines != self.lines:
            self._reading = Reading(lines)
            if not lines:
                self._store = None
            elif self._store is None:
                self._store = LineStore(lines)
            else:
                self._store.set_keys(lines)
        if tuple(falls) != self.falls:
            self._falls = {fall: self._falls.get(fall) or FallStore() for fall in dict.fromkeys(falls)}

    @property
    def needs_whole(self) -> bool:
        """True where statistics of all params together are read."""
        return self._reading.needs_whole or any(not fall.param for fall in self._falls)

    def take(
        self, step: int, table: ParamTable | None, whole: ParamStats | None, gradients: BufferStats | None
    ) -> None:
        """Take a step in: what its params were counted to be, or what there is of its gradients."""
        if self.first_step is None:
            self.first_step = step
        self.last_step = step
        if self._store is not None:
            self._store.append(step, *self._reading.values(table, whole, gradients))
        for fall, store in self._falls.items():
            counts = self._counts(fall, table, whole)
            if counts is None and gradients is not None and fall == Fall("g"):
                counts = gradients
            if counts is not None:
                store.append(step, counts.exponents, counts.zeros, counts.nonfinite.total)

    def _counts(self, fall: Fall, table: ParamTable | None, whole: ParamStats | None) -> BufferStats | None:
        if not fall.param:
            return None if whole is None else whole.lanes[fall.lane].counts
        row = None if table is None else self._reading.row(table, fall.param)
        return None if table is None or row is None else table[row].lanes[fall.lane].counts

    def truncate(self, last_step: int) -> None:
        """Forget what came after a step."""
        if self._store is not None:
            self._store.truncate(last_step)
        for store in self._falls.values():
            store.truncate(last_step)
        if self.last_step is not None and self.last_step > last_step:
            self.last_step = last_step

    def history(self, line: Line) -> History:
        """A line, as a copy."""
        return EMPTY_HISTORY if self._store is None else self._store.history(line)

    def waterfall(self, fall: Fall) -> Waterfall | None:
        """A waterfall, as a copy; None of one that is not kept or has no step yet."""
        store = self._falls.get(fall)
        return store.picture() if store is not None and store.last_step is not None else None


def bounded(wanted: ViewLines) -> tuple[tuple[Line, ...], tuple[Fall, ...]]:
    """What is kept of what is wanted: so many that memory is bounded, and none that a history has anyway."""
    lines = tuple(dict.fromkeys(each for each in wanted.lines if not each.in_history))
    return lines[:MOST_LINES], tuple(dict.fromkeys(wanted.falls))[:MOST_FALLS]


def in_sight(wanted: ViewLines, kept: Sequence[Kept], share: float | None) -> PlotPicture:
    """Copies of what is looked at."""
    lines: dict[Line, History] = {}
    falls: dict[Fall, Waterfall] = {}
    for batch in kept:
        lines |= {line: batch.history(line) for line in batch.lines if line in wanted.seen}
        for fall in batch.falls:
            picture = batch.waterfall(fall) if fall in wanted.seen else None
            if picture is not None:
                falls[fall] = picture
    return PlotPicture(MappingProxyType(lines), MappingProxyType(falls), share)
