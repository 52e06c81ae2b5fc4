"""What takes longer than a moment on the worker's thread: told while it goes on, and ended where a person says so."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from inspector.progress import EndedError, part, watched
from inspector.runtime import commands as c
from inspector.runtime.mailbox import Mailbox
from inspector.runtime.value_finding import Working

T = TypeVar("T")
PROGRESS_S = 0.1
"""At most so often it is told how far it is."""


class LongWork:
    """One thing at a time. `tell` shows how far it is; `closing` says that the thread has to end."""

    def __init__(
        self,
        mail: Mailbox,
        tell: Callable[[Working], None],
        closing: Callable[[], bool],
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._mail = mail
        self._tell = tell
        self._closing = closing
        self._clock = clock
        self._told_at = 0.0

    def run(
        self,
        doing: str,
        act: Callable[[], T],
        *,
        ends: bool = True,
        outlasts: bool = False,
        share: tuple[float, float] | None = None,
    ) -> T:
        """Do something that says how far it is by `progress.advanced`; its answer.

        EndedError where it `ends` and a person ended it, or the window is closed, unless it `outlasts` the window.
        Other commands wait. `share` says which part of a whole it is, None for all of it.
        """
        self._told_at = self._clock()
        with watched(partial(self._advanced, doing, ends, outlasts)):
            if share is None:
                return act()
            with part(*share):
                return act()

    def _advanced(self, doing: str, ends: bool, outlasts: bool, done: int, of: int) -> None:
        if ends and ((self._closing() and not outlasts) or self._mail.take(c.CancelWork)):
            raise EndedError
        now = self._clock()
        if now - self._told_at >= PROGRESS_S:
            self._told_at = now
            self._tell(Working(doing, done, of, ends))
