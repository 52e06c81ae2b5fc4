"""How far something is that takes a while: told from inside it, to whoever watches it from outside.

What is deep inside, a param of so many that is uploaded, says `advanced(done, of)`. Who called it watches by `watched`,
and may raise EndedError there: what goes on is given up at that point, and has to leave things in order. Where nobody
watches nothing happens. What has several parts, each of which tells how far it is, gives each its share by `part`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[int, int], None]
WHOLE = 1000
"""What the parts of a whole are told of."""
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


class EndedError(Exception):
    """What goes on is no longer wanted."""


def advanced(done: int, of: int) -> None:
    """So much is done, of how much, in any unit. EndedError where the rest is no longer wanted."""
    listener = _listener.get()
    if listener is not None:
        listener(done, of)


def counting(of: int) -> Callable[[int], None]:
    """A function that is told of each part as it is begun, by its size, and says how far all of it is."""
    done = 0

    def begun(size: int) -> None:
        nonlocal done
        advanced(done, of)
        done += size

    return begun


@contextmanager
def part(first: float, last: float) -> Iterator[None]:
    """What is inside is of a whole the part from the share `first` to `last`, of 0 to 1, and is told so."""
    listener = _listener.get()

    def told(done: int, of: int) -> None:
        assert listener is not None
        share = min(done / of, 1.0) if of else 0.0
        listener(round(WHOLE * (first + (last - first) * share)), WHOLE)

    with watched(None if listener is None else told):
        yield


@contextmanager
def watched(listener: Listener | None) -> Iterator[None]:
    """On this thread `listener` is told how far what is inside is; None for what has to be done to its end."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
