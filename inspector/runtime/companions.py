"""What goes on beside a run: recordings laid under it and recordings compared, asked for by commands."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from inspector.errors import UsageError
from inspector.hyper import Hyper
from inspector.plan import Variant
from inspector.runtime import commands as c
from inspector.runtime.beside import NOT_VERIFIED, BesidePicture, VerifyPicture, WhatIfProgress
from inspector.runtime.diffing import Diffing
from inspector.runtime.engine import Engine
from inspector.runtime.overlays import HistogramsWanted, Overlays
from inspector.runtime.plotting import Plotting
from inspector.runtime.sweeping import Sweeping, options_of
from inspector.runtime.what_if import changes_of
from inspector.schedule import Schedule
from inspector.sources.base import Source
from inspector.sources.recording import Recording
from inspector.stepping import Cursor

CLOSE_S = 5.0

Severity = Literal["info", "warning", "error"]


class Companions:
    """Held by whoever runs the engine, and called on its thread. `wake` is called, on any thread, for news."""

    def __init__(self, wake: Callable[[], None], rest: Callable[[], None] = lambda: None) -> None:
        """`rest` is called, on any thread, between parts of what takes long: it may wait for a busy UI."""
        self._wake = wake
        self._said: deque[tuple[Severity, str]] = deque()
        self._overlays = Overlays(wake, self._complain, rest)
        self._diffing = Diffing(wake, self._complain, rest)
        self.plotting = Plotting(wake, self._complain, rest)
        self._recording: Recording | None = None
        self._by_itself: str | None = None
        """The overlay that came with the open recording, and goes with it."""
        self._settings: tuple[Hyper, Schedule, Variant] | None = None
        self._changes = ""
        self.sweeping = Sweeping(wake)
        self._source = ""
        self._device = ""
        self._options: tuple[str, ...] = ()
        self.what_if: WhatIfProgress | None = None
        self.verify: VerifyPicture = NOT_VERIFIED

    def take(self, command: c.Command) -> bool:
        """Carry out a command that is about what goes on beside the run; False for any other."""
        match command:
            case c.LookBeside():
                pass
            case c.ShowOverlay(path):
                self._overlays.show(path)
            case c.DropOverlay(path):
                self._overlays.drop(path)
            case c.DiffSessions(a, b):
                self._diffing.start(a or self._open_path(), b)
            case c.CancelDiff():
                self._diffing.cancel()
            case c.ViewDiff(param):
                self._diffing.view(param)
            case c.StartSweep():
                self.sweeping.start(command, self._source, self._device, self._options)
            case c.ResumeSweep(path):
                self.sweeping.resume(Path(path), self._device)
            case c.CancelSweep():
                self.sweeping.cancel()
            case c.ViewLines():
                self.plotting.want(command)
            case _:
                return False
        return True

    def opened(self, source: Source, hyper: Hyper, variant: Variant) -> None:
        """Another source is open, set to that: the parent of a what-if is laid under it, where it is found."""
        before, self._by_itself = self._by_itself, None
        self._recording = source if isinstance(source, Recording) else None
        self._source, self._options = source.name, options_of(source, hyper, variant)
        self._settings = None
        self.plotting.opened(None if self._recording is None else str(self._recording.session.path))
        parent: Path | None = None
        if self._recording is not None and (named := self._recording.session.about.parent) is not None:
            parent = self._recording.session.parent_path()
            if parent is None:
                self._said.append(
                    ("info", f"{source.name} is a what-if of {named}; that recording is not there any more, so it is "
                     "shown alone.")
                )  # fmt: skip
        if before is not None and before != str(parent):
            self._overlays.drop(before)
        if parent is not None:
            self._by_itself = str(parent)
            self._overlays.show(self._by_itself)

    def show_both(self, recorded: Path, made: Path) -> None:
        """Lay a recording and what was made of it under the run."""
        for path in (recorded, made):
            self._overlays.show(str(path))

    def look(self, engine: Engine | None, cursor: Cursor | None, wanted: c.ViewHistograms) -> None:
        """The step on show, and whose histograms are in sight."""
        if engine is None or cursor is None:
            self._overlays.look(None)
            return
        self._device = engine.stepper.device.name
        self._overlays.look(HistogramsWanted(wanted.param, wanted.lanes, cursor))
        if self._recording is engine.source:
            settings = engine.hyper, engine.schedule, engine.stepper.plan.variant
            if settings != self._settings:
                self._settings, self._changes = settings, str(changes_of(engine))

    @property
    def picture(self) -> BesidePicture:
        """All that is to be shown."""
        recording = None if self._recording is None else self._recording.name
        return BesidePicture(
            self._overlays.picture,
            self._diffing.picture,
            recording,
            self._changes if recording is not None else "",
            self.what_if,
            self.verify,
            self.sweeping.picture,
        )

    def take_news(self) -> list[tuple[Severity, str]]:
        """Sentences since the last call."""
        said: list[tuple[Severity, str]] = []
        with suppress(IndexError):
            while True:
                said.append(self._said.popleft())
        return said

    def close(self) -> None:
        """End the threads."""
        self._overlays.close(CLOSE_S)
        self._diffing.close(CLOSE_S)
        self.plotting.close(CLOSE_S)
        self.sweeping.close(CLOSE_S)

    def _open_path(self) -> str:
        if self._recording is None:
            raise UsageError("No recording is open: name both that are to be compared.")
        return self._recording.name

    def _complain(self, text: str) -> None:
        self._said.append(("error", text))
        self._wake()
