"""Two recordings held against each other beside a run, on a thread of its own, with progress and an end on demand."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from inspector.errors import InspectorError
from inspector.progress import EndedError
from inspector.runtime.background import Background
from inspector.runtime.beside import DiffPicture
from inspector.session.diff import diff
from inspector.session.diff_report import param_curves, report
from inspector.session.differences import SessionDiff
from inspector.session.reader import Session

PROGRESS_S = 0.25


class Diffing:
    """One comparison at a time; another one takes its place. `moved` is called, on any thread, as it goes on."""

    def __init__(
        self, moved: Callable[[], None], told: Callable[[str], None], rest: Callable[[], None] = lambda: None
    ) -> None:
        self._moved = moved
        self._background = Background("diff", told, rest)
        self._picture: DiffPicture | None = None
        self._found: SessionDiff | None = None
        self._param = ""
        self._moved_at = 0.0

    # --- called on any thread

    @property
    def picture(self) -> DiffPicture | None:
        """The comparison that goes on or the latest one; None before the first and after one that was cancelled."""
        return self._picture

    def start(self, a: str, b: str) -> None:
        """Compare two recordings."""
        self._background.stop("diff")
        self._picture = DiffPicture(a, b)
        self._background.do("diff", lambda: self._compare(a, b))
        self._moved()

    def cancel(self) -> None:
        """End the comparison that goes on; what it found is dropped."""
        if self._picture is not None and self._picture.share is not None:
            self._background.stop("diff")
            self._picture = None
            self._moved()

    def view(self, param: str) -> None:
        """Whose curves are wanted, "" for nobody's."""
        if param != self._param:
            self._param = param
            self._background.do("curves", self._take_curves)

    def close(self, timeout: float) -> bool:
        """End the thread; False where it did not end within `timeout` seconds."""
        return self._background.close(timeout)

    # --- on the thread

    def _compare(self, a: str, b: str) -> None:
        begun = DiffPicture(a, b)
        self._found = None
        try:
            with Session.open(a) as x, Session.open(b) as y:
                self._found = diff(
                    x, y, check=self._background.check, progress=lambda share: self._progress(begun, share)
                )
                made = report(self._found, a, b)
        except EndedError:
            raise
        except InspectorError as error:
            self._put(replace(begun, share=None, problem=str(error)))
            return
        self._background.check()
        self._put(replace(begun, share=None, report=made))
        self._take_curves()

    def _progress(self, begun: DiffPicture, share: float) -> None:
        if time.perf_counter() - self._moved_at > PROGRESS_S:
            self._moved_at = time.perf_counter()
            self._put(replace(begun, share=share))

    def _take_curves(self) -> None:
        now = self._picture
        if self._found is None or now is None or now.report is None:
            return
        curves = param_curves(self._found, self._param) if self._param else None
        self._put(replace(now, curves=curves))

    def _put(self, picture: DiffPicture) -> None:
        # What was cancelled, or replaced by another, stays so.
        self._background.check()
        now = self._picture
        if now is not None and (now.a, now.b) == (picture.a, picture.b):
            self._picture = picture
            self._moved()
