"""How a script ends that does not say so: by an exception, by its last line, or by SIGTERM.

SIGTERM is what a scheduler sends before it kills. Its handler is Python's, so that it runs between any two lines of the
main thread, those of a hook among them, which hold locks: then it waits for the end of that.
"""

from __future__ import annotations

import atexit
import signal
import sys
import threading
import weakref
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol


class Closes(Protocol):
    """What is closed then."""

    def close(self, error: BaseException | None = None) -> None:
        """It ends, by `error` if not in order."""

    @property
    def busy(self) -> bool:
        """True while one of its own methods runs, which must not be cut in upon."""

    def terminated(self, *, going_on: bool) -> None:
        """The process was asked to end. Where the script has a handler of its own for that, it is `going_on`."""


_open: list[weakref.ref[Any]] = []
_previous: Any = None
_previous_term: Any = None
"""What handled SIGTERM before; None where nothing of ours does."""
_term_due = False
"""True where SIGTERM came while a recording was busy."""


def follow(recording: Closes, *, sigterm: bool = True) -> None:
    """Close `recording` when the process ends; by `sigterm` too, where this is the main thread."""
    global _previous  # noqa: PLW0603
    if not _open:
        atexit.register(_at_exit)
        _previous = sys.excepthook
        sys.excepthook = _on_exception
    _open.append(weakref.ref(recording))
    if sigterm:
        _handle_term()


def forget(recording: Closes) -> None:
    """It is closed."""
    global _previous
    _open[:] = [each for each in _open if each() is not None and each() is not recording]
    if not _open:
        atexit.unregister(_at_exit)
        # Whoever put their own in its place calls ours, which then has nothing to do.
        if sys.excepthook is _on_exception and _previous is not None:
            sys.excepthook, _previous = _previous, None
        _leave_term()


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


# --- SIGTERM


def settle() -> None:
    """A recording is busy no more: a signal that came meanwhile is handled now."""
    global _term_due  # noqa: PLW0603
    if _term_due:
        _term_due = False
        signal.raise_signal(signal.SIGTERM)


def _in_main() -> bool:
    """True on the thread that may set handlers, and on which they run."""
    return threading.current_thread() is threading.main_thread()


def _handle_term() -> None:
    """Put our handler in the place of another; a signal that is ignored, or handled outside Python, is left alone."""
    global _previous_term  # noqa: PLW0603
    if _previous_term is not None or not _in_main():
        return
    found = signal.getsignal(signal.SIGTERM)
    if found is signal.SIG_DFL or callable(found):
        _previous_term = found
        signal.signal(signal.SIGTERM, _on_term)


def _leave_term() -> None:
    """Put the handler back that was there; where a script has set another since, that one stays."""
    global _previous_term  # noqa: PLW0603
    if _previous_term is None or not _in_main():
        return
    if signal.getsignal(signal.SIGTERM) is _on_term:
        signal.signal(signal.SIGTERM, _previous_term)
        _previous_term = None


def _on_term(number: int, frame: Any) -> None:
    global _term_due  # noqa: PLW0603
    held = [recording for each in list(_open) if (recording := each()) is not None]
    if any(recording.busy for recording in held):
        _term_due = True
        return
    previous = _previous_term
    going_on = callable(previous)
    for recording in held:
        with suppress(Exception):
            recording.terminated(going_on=going_on)
    if going_on:
        previous(number, frame)
        return
    # As if nobody had handled it: who waits for the process is to see that the signal ended it.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.raise_signal(signal.SIGTERM)
