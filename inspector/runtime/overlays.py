"""Recordings laid under a run: read on a thread of their own, reduced to curves and histograms."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np

from inspector.errors import UsageError
from inspector.history import EMPTY_HISTORY, History, HistoryRecorder, Series
from inspector.runtime.background import Background
from inspector.runtime.beside import MAX_OVERLAYS, Overlay, OverlayHistograms
from inspector.runtime.recorded import metric_columns
from inspector.session.coding_errors import coding_errors
from inspector.session.reader import Session
from inspector.statistics import BufferStats, buffer_stats
from inspector.stepping import Cursor
from inspector.stores import Lane

FOLLOW_S = 1.0
"""How often a recording that goes on is looked at."""


@dataclass(frozen=True, slots=True)
class HistogramsWanted:
    """Which histograms are in sight: of a param, None for all, where the run stands."""

    param: str | None
    lanes: tuple[Lane, ...]
    cursor: Cursor


class Overlays:
    """The recordings under a run. `moved` is called, on any thread, when there is another picture.

    `told` takes a sentence for what went wrong.
    """

    def __init__(
        self, moved: Callable[[], None], told: Callable[[str], None], rest: Callable[[], None] = lambda: None
    ) -> None:
        self._moved = moved
        self._told = told
        self._background = Background("overlays", told, rest)
        self._lock = threading.Lock()
        self._shown: tuple[Overlay, ...] = ()
        self._wanted: HistogramsWanted | None = None
        self._sessions: dict[str, Session] = {}
        """On the thread only."""

    # --- called on any thread

    @property
    def picture(self) -> tuple[Overlay, ...]:
        """What is laid under the run, in the order asked for."""
        return self._shown

    def show(self, path: str) -> None:
        """Lay a recording under the run; where there are enough already it takes the place of the oldest."""
        name = _resolved(path)
        with self._lock:
            if any(o.path == name for o in self._shown):
                return
            if len(self._shown) == MAX_OVERLAYS:
                self._shown = self._shown[1:]
            taken = {o.slot for o in self._shown}
            slot = next(i for i in range(MAX_OVERLAYS) if i not in taken)
            self._shown = _named((*self._shown, Overlay(name, "", slot, loading=True)))
        self._background.do(f"show {name}", lambda: self._read(name))
        self._moved()

    def drop(self, path: str | None = None) -> None:
        """Take a recording away, all where `path` is None."""
        name = None if path is None else _resolved(path)
        with self._lock:
            self._shown = _named(tuple(o for o in self._shown if name is not None and o.path != name))
        for each in (name,) if name is not None else tuple(self._sessions):
            self._background.stop(f"coding {each}")
        self._background.do("tidy", self._tidy)
        self._moved()

    def look(self, wanted: HistogramsWanted | None) -> None:
        """Which histograms are in sight from now on; they are read where they are others than before."""
        if wanted != self._wanted:
            self._wanted = wanted
            if wanted is not None and wanted.lanes and self._shown:
                self._background.do("histograms", self._read_histograms)

    def close(self, timeout: float) -> bool:
        """End the thread; False where it did not end within `timeout` seconds."""
        return self._background.close(timeout)

    # --- on the thread

    def _read(self, path: str) -> None:
        try:
            session = self._sessions[path] = Session.open(path)
            history = read_history(session)
        except BaseException:
            self.drop(path)
            raise
        self._put(path, steps=session.steps, history=history, state=session.state, loading=False)
        self._read_histograms()
        self._follow()
        self._background.do(f"coding {path}", lambda: self._read_coding(path))

    def _read_coding(self, path: str) -> None:
        """What takes longest comes last."""
        if (session := self._sessions.get(path)) is not None:
            self._put(path, coding=coding_history(session, self._background.check))

    def _read_histograms(self) -> None:
        wanted = self._wanted
        if wanted is None or not wanted.lanes:
            return
        for overlay in self._shown:
            if (session := self._sessions.get(overlay.path)) is not None:
                self._put(overlay.path, histograms=histograms_at(session, wanted))

    def _follow(self) -> None:
        """Look after recordings that go on, as long as there are any."""
        going = [s for s in self._sessions.values() if s.state == "recording"]
        self._background.while_idle(FOLLOW_S, self._look_again if going else None)

    def _look_again(self) -> None:
        for path, session in self._sessions.items():
            if session.state == "recording" and session.follow():
                self._put(path, steps=session.steps, history=read_history(session), state=session.state)
        self._follow()

    def _tidy(self) -> None:
        kept = {o.path for o in self._shown}
        for path in [p for p in self._sessions if p not in kept]:
            self._sessions.pop(path).close()
        self._follow()

    def _put(self, path: str, **changes: object) -> None:
        with self._lock:
            self._shown = tuple(
                replace(o, **changes) if o.path == path else o  # type: ignore[arg-type]
                for o in self._shown
            )
        self._moved()


def read_history(session: Session) -> History:
    """The metrics of a recording over its steps, in as few buckets as those of a run."""
    recorder = HistoryRecorder()
    recorder.extend(session.steps.start, *metric_columns(session))
    return recorder.freeze()


def coding_history(session: Session, check: Callable[[], None]) -> History:
    """Errors of 8-bit state by step, each step its own bucket."""
    found = coding_errors(session, check)
    columns = {"coding/m": found.m, "coding/v": found.v, "coding/lost": found.lost}
    series = {name: Series(v, v, v, np.isnan(v).astype(np.uint32)) for name, v in columns.items()}
    return History(1, found.steps, MappingProxyType(series), 1) if len(found.steps) else EMPTY_HISTORY


def histograms_at(session: Session, wanted: HistogramsWanted) -> OverlayHistograms:
    """The histograms of a recording at the step at which a run stands."""
    cursor = wanted.cursor
    before = cursor.step + 1 if cursor.at_end else cursor.step
    found: dict[Lane, BufferStats] = {}
    absent = ""
    for lane in wanted.lanes:
        step = max(cursor.step, 1) if lane == "g" else before
        try:
            with np.errstate(all="ignore"):
                found[lane] = _counts(session, lane, step, wanted.param)
        except UsageError as error:
            absent = absent or str(error)
    return OverlayHistograms(wanted.param, before, MappingProxyType(found), absent)


def _counts(session: Session, lane: Lane, step: int, param: str | None) -> BufferStats:
    if step in session.steps or lane == "g":
        return session.histogram(lane, step, param)
    # After the last step there are no statistics any more, but perhaps a keyframe.
    names = [p.name for p in session.about.params] if param is None else [param]
    return buffer_stats(np.concatenate([session.tensor(lane, step - 1, name).reshape(-1) for name in names]))


def _resolved(path: str) -> str:
    return str(Path(path).expanduser().absolute())


def _named(overlays: tuple[Overlay, ...]) -> tuple[Overlay, ...]:
    """Each by its file's name, with the folder where another has the same."""
    names = [Path(o.path).name for o in overlays]
    return tuple(
        replace(o, name=f"{Path(o.path).parent.name}/{name}" if names.count(name) > 1 else name)
        for o, name in zip(overlays, names, strict=True)
    )
