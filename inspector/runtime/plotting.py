"""Keeps what is plotted of a run as it goes, beside what its recording tells."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import MappingProxyType

from inspector.history import EMPTY_HISTORY
from inspector.line_store import joined
from inspector.param_statistics import ParamStats, ParamTable
from inspector.runtime.commands import ViewLines
from inspector.runtime.kept_lines import Kept, bounded, in_sight
from inspector.runtime.plotted import PlotPicture
from inspector.runtime.recorded_lines import TELL_S, RecordedLines
from inspector.statistics import NOT_COUNTED, BufferStats


class Plotting:
    """What is plotted of a run, live or recorded; called on the worker's thread."""

    def __init__(
        self, moved: Callable[[], None], told: Callable[[str], None], rest: Callable[[], None] = lambda: None
    ) -> None:
        self._recorded = RecordedLines(moved, told, rest)
        self._kept = Kept()
        self._wanted = ViewLines()
        self._made: tuple[object, ...] = ()
        self._made_at = -float("inf")
        self._picture = PlotPicture()
        self._of_recording = False

    def want(self, wanted: ViewLines) -> None:
        """What is plotted from now on, and what of it is in sight."""
        self._wanted = wanted
        self._kept.want(*bounded(wanted))
        self._recorded.want(wanted)

    def opened(self, path: str | None) -> None:
        """Another source is open; `path` is that of a recording."""
        self._kept = Kept(*bounded(self._wanted))
        self._of_recording = path is not None
        self._made = ()
        self._recorded.opened(path)

    @property
    def needs_whole(self) -> bool:
        """True where statistics of all params together are plotted."""
        return self._kept.needs_whole

    def __bool__(self) -> bool:
        return bool(self._kept)

    def finished(
        self, step: int, table: ParamTable | None, whole: ParamStats | None, gradients: BufferStats
    ) -> None:
        """A step of the run is complete."""
        if self._kept:
            last = self._kept.last_step
            if last is not None and step <= last:
                self._kept.truncate(step - 1)
            self._kept.take(step, table, whole, None if gradients is NOT_COUNTED else gradients)

    def truncate(self, last_step: int) -> None:
        """The run went back."""
        self._kept.truncate(last_step)

    def picture(self, own_from: int | None, *, running: bool) -> PlotPicture:
        """What is in sight; the same object until there is more. From `own_from` on a recording tells nothing, None
        where it tells all."""
        recorded = self._recorded.picture
        state = (recorded, own_from, self._wanted, self._kept.last_step, len(self._made))
        now = time.perf_counter()
        if state == self._made or (running and self._made and now - self._made_at < TELL_S):
            return self._picture
        self._made, self._made_at = state, now
        if self._of_recording and own_from is None:
            self._picture = recorded
        else:
            own = in_sight(self._wanted, [self._kept], recorded.share)
            if self._of_recording and own_from:
                lines = {
                    line: joined(recorded.lines.get(line, EMPTY_HISTORY), own.lines[line], own_from)
                    for line in own.lines
                }
                own = PlotPicture(MappingProxyType(lines), own.falls, recorded.share)
            else:
                own = PlotPicture(own.lines, own.falls, None, self._kept.first_step)
            self._picture = own
        return self._picture

    def close(self, timeout: float) -> None:
        """End the thread."""
        self._recorded.close(timeout)
