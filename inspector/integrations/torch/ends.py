"""How a script ends that does not say so: by an exception, or by its last line."""

from __future__ import annotations

import atexit
import sys
import weakref
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol


class Closes(Protocol):
    """What is closed then."""

    def close(self, error: BaseException | None = None) -> None:
        """It ends, by `error` if not in order."""


_open: list[weakref.ref[Any]] = []
_previous: Any = None


def follow(recording: Closes) -> None:
    """Close `recording` when the process ends."""
    global _previous  # noqa: PLW0603
    if not _open:
        atexit.register(_at_exit)
        _previous = sys.excepthook
        sys.excepthook = _on_exception
    _open.append(weakref.ref(recording))


def forget(recording: Closes) -> None:
    """It is closed."""
    global _previous
    _open[:] = [each for each in _open if each() is not None and each() is not recording]
    if not _open:
        atexit.unregister(_at_exit)
        # Whoever put their own in its place calls ours, which then has nothing to do.
        if sys.excepthook is _on_exception and _previous is not None:
            sys.excepthook, _previous = _previous, None


def _on_exception(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
    previous = _previous or sys.__excepthook__
    _close_all(value)
    previous(kind, value, trace)


def _at_exit() -> None:
    _close_all(None)


def _close_all(error: BaseException | None) -> None:
    for each in list(_open):
        recording = each()
        if recording is not None:
            with suppress(Exception):
                recording.close(error)
