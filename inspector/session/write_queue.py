"""What waits to be written, bounded by bytes: who offers asks for room, and never waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

BATCH_BYTES = 256 << 20
"""Taken at once, beyond the first: what waits together is written and made durable together."""


class WriteQueue(Generic[T]):
    """Between one thread that puts and one that takes. Bytes count until they are written."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._items: list[tuple[T, int]] = []
        self._nbytes = 0
        self._taken = 0
        self._taking = False
        self._closed = False
        self._changed = threading.Condition()

    @property
    def nbytes(self) -> int:
        """Bytes of what is not written yet."""
        return self._nbytes

    def has_room(self, nbytes: int) -> bool:
        """True where so many bytes more keep within the bound; always for nothing, and where nothing waits."""
        with self._changed:
            return not nbytes or not self._nbytes or self._nbytes + nbytes <= self._limit

    def put(self, item: T, nbytes: int) -> None:
        """Add an item, whatever the bound; dropped once the queue is closed."""
        with self._changed:
            if self._closed:
                return
            self._items.append((item, nbytes))
            self._nbytes += nbytes
            self._changed.notify_all()

    def take(self) -> list[T]:
        """What waits, as much as belongs in a batch, waiting for something; empty once closed and drained."""
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._closed)
            count = total = 0
            for _, nbytes in self._items:
                if count and total + nbytes > BATCH_BYTES:
                    break
                count, total = count + 1, total + nbytes
            batch, self._items = self._items[:count], self._items[count:]
            self._taken, self._taking = total, bool(batch)
            return [item for item, _ in batch]

    def written(self) -> None:
        """What was taken last is written."""
        with self._changed:
            self._nbytes -= self._taken
            self._taken, self._taking = 0, False
            self._changed.notify_all()

    def wait_until_written(self, timeout_s: float | None) -> bool:
        """Wait until nothing waits; False where that takes longer."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._items and not self._taking, timeout_s)

    def lighten(self, change: Callable[[Sequence[T]], Sequence[T]]) -> None:
        """Have in place of what waits what `change` makes of it, whose bytes count for nothing."""
        with self._changed:
            self._items = [(item, 0) for item in change([item for item, _ in self._items])]
            self._nbytes = self._taken

    def close(self) -> None:
        """No more is put."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def abandon(self) -> None:
        """Drop what waits: it will not be written."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._nbytes = self._taken = 0
            self._taking = False
            self._changed.notify_all()
