"""What is plotted of a recording, read out of its rows on a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from inspector.runtime.background import Background
from inspector.runtime.commands import ViewLines
from inspector.runtime.kept_lines import Kept, bounded, in_sight
from inspector.runtime.plotted import PlotPicture
from inspector.session.reader import Session

TELL_S = 0.25
"""How often what has been read is shown while there is more."""
FOLLOW_S = 1.0


class RecordedLines:
    """The same out of a recording. `moved` is called, on any thread, when there is another picture."""

    def __init__(
        self, moved: Callable[[], None], told: Callable[[str], None], rest: Callable[[], None] = lambda: None
    ) -> None:
        self._moved = moved
        self._background = Background("plots", told, rest)
        self._lock = threading.Lock()
        self._path: str | None = None
        self._wanted = ViewLines()
        self._picture = PlotPicture()
        # On the thread only.
        self._session: tuple[str, Session] | None = None
        self._batches: list[Kept] = []
        self._told_at = 0.0

    @property
    def picture(self) -> PlotPicture:
        """What has been read of what is in sight."""
        return self._picture

    def opened(self, path: str | None) -> None:
        """Another recording is open, or None."""
        with self._lock:
            self._path, self._picture = path, PlotPicture()
        self._ask()

    def want(self, wanted: ViewLines) -> None:
        """These from now on."""
        if wanted != self._wanted:
            self._wanted = wanted
            self._ask()

    def close(self, timeout: float) -> bool:
        """End the thread; False where it did not end within `timeout` seconds."""
        return self._background.close(timeout)

    def _ask(self) -> None:
        if (self._path is not None and (self._wanted.lines or self._wanted.falls)) or self._session:
            self._background.do("read", self._read)

    # --- on the thread

    def _read(self) -> None:
        session = self._opened()
        if session is None:
            return
        while True:
            # What is wanted may change at any time.
            self._share_out(self._wanted)
            steps = session.steps
            behind = [b for b in self._batches if (b.last_step or steps.start - 1) + 1 < steps.stop]
            if not behind:
                break
            step = min((b.last_step or steps.start - 1) for b in behind) + 1
            table = session.param_statistics(step)
            for batch in behind:
                if (batch.last_step or steps.start - 1) + 1 == step:
                    whole = table.merged("all") if table is not None and batch.needs_whole else None
                    batch.take(step, table, whole, None)
            if time.perf_counter() - self._told_at > TELL_S:
                self._tell((step - steps.start) / max(len(steps), 1))
            self._background.check()
            if self._path != self._session_path():
                session = self._opened()
                if session is None:
                    return
        self._tell(None)
        going = session.state == "recording" and self._batches
        self._background.while_idle(FOLLOW_S, self._follow if going else None)

    def _session_path(self) -> str | None:
        return self._session[0] if self._session is not None else None

    def _opened(self) -> Session | None:
        path = self._path
        if self._session is not None and self._session[0] != path:
            self._session[1].close()
            self._session, self._batches = None, []
        if path is None:
            self._background.while_idle(FOLLOW_S, None)
            return None
        if self._session is None:
            self._session = path, Session.open(path)
        return self._session[1]

    def _follow(self) -> None:
        session = self._opened()
        if session is None:
            return
        before = session.generation
        if session.follow():
            if session.generation != before:
                # The run that is recorded went back: what was read may be otherwise now.
                self._batches = []
            self._read()

    def _share_out(self, wanted: ViewLines) -> None:
        """Forget what nobody wants any more; what is new is read from the first step on, beside what was read."""
        lines, falls = bounded(wanted)
        for batch in self._batches:
            batch.want(
                [each for each in batch.lines if each in lines], [f for f in batch.falls if f in falls]
            )
        self._batches = [batch for batch in self._batches if batch]
        have = {each for batch in self._batches for each in batch.lines}
        have_falls = {each for batch in self._batches for each in batch.falls}
        new, new_falls = [n for n in lines if n not in have], [f for f in falls if f not in have_falls]
        if new or new_falls:
            self._batches.append(Kept(new, new_falls))

    def _tell(self, share: float | None) -> None:
        self._told_at = time.perf_counter()
        picture = in_sight(self._wanted, self._batches, share)
        with self._lock:
            if self._path == self._session_path():
                self._picture = picture
        self._moved()
