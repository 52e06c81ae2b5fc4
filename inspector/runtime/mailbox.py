"""Commands on their way to the worker: put there by any thread, taken by its own."""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Iterable, Sequence

from inspector.runtime import commands as c


class Mailbox:
    """Commands in the order sent; of those that a newer one of their kind replaces, the newest alone."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[c.Command] = queue.SimpleQueue()
        self._taken: deque[c.Command] = deque()
        """Off the queue and not carried out yet."""

    def put(self, command: c.Command) -> None:
        """Queue a command; called on any thread, returns at once."""
        self._queue.put(command)

    @property
    def first(self) -> c.Command | None:
        """The next one, of those that were taken in."""
        return self._taken[0] if self._taken else None

    def pop(self) -> c.Command:
        """Take the next one; IndexError where none was taken in."""
        return self._taken.popleft()

    def wait(self, wait_s: float | None) -> None:
        """Take in what has come; where nothing has, wait for it so long at most, None for as long as it takes."""
        if wait_s == 0.0 and self._queue.empty():
            return
        try:
            arrived = [self._queue.get(timeout=wait_s), *self._arrived()]
        except queue.Empty:
            return
        self._taken.extend(coalesce(arrived))

    def look(self) -> tuple[c.Command, ...]:
        """Take in what has come without waiting; all that is to be carried out."""
        self._taken = deque(coalesce([*self._taken, *self._arrived()]))
        return tuple(self._taken)

    def take(self, kind: type[c.Command]) -> bool:
        """Take out the first command of a kind from wherever it is in the queue; False where there is none."""
        found = next((command for command in self.look() if isinstance(command, kind)), None)
        if found is not None:
            self._taken.remove(found)
        return found is not None

    def put_first(self, commands: Iterable[c.Command]) -> None:
        """These come before all others."""
        self._taken.extendleft(reversed(list(commands)))

    def _arrived(self) -> list[c.Command]:
        found: list[c.Command] = []
        try:
            while True:
                found.append(self._queue.get_nowait())
        except queue.Empty:
            return found


def coalesce(waiting: Sequence[c.Command]) -> list[c.Command]:
    """Drop each command of the replaceable kinds that a newer one of its kind follows; keep all others."""
    newest: dict[type[c.Command], int] = {
        type(command): i for i, command in enumerate(waiting) if isinstance(command, c.REPLACES_QUEUED)
    }
    return [command for i, command in enumerate(waiting) if newest.get(type(command), i) == i]
