"""What waits to be written, bounded by bytes: who offers asks for room, and never waits.

Rows are small and wanted at once, tensors may take a disk seconds. So two threads take: one the rows, one the large
items beside them, and what comes of these joins the rows again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

T = TypeVar("T")

BATCH_BYTES = 256 << 20
"""Taken at once, beyond the first: what waits together is written and made durable together."""


@dataclass(frozen=True, slots=True)
class _Entry(Generic[T]):
    item: T
    nbytes: int
    large: bool
    barrier: bool


class WriteQueue(Generic[T]):
    """Between one thread that puts, one that takes rows and one that takes large items. Bytes count until written.

    Large items are taken in their order, rows in theirs and past large ones. A barrier is taken among the rows once
    every large item before it is written; nothing behind it is taken before it.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: list[_Entry[T]] = []
        self._nbytes = {True: 0, False: 0}
        """Of large items, and of all others."""
        self._taken = {True: 0, False: 0}
        self._taking = {True: False, False: False}
        self._at_barrier = False
        """The rows that were taken last have a barrier among them."""
        self._closed = self._abandoned = False
        self._changed = threading.Condition()

    @property
    def nbytes(self) -> int:
        """Bytes of what is not written yet."""
        return sum(self._nbytes.values())

    def has_room(self, nbytes: int, *, large: bool = False) -> bool:
        """True where so many bytes more of that kind keep within the bound; for nothing, and where nothing waits."""
        with self._changed:
            waiting = self._nbytes[large]
            return not nbytes or not waiting or waiting + nbytes <= self._limit

    def put(self, item: T, nbytes: int, *, large: bool = False, barrier: bool = False) -> None:
        """Add an item, whatever the bound; dropped once the queue is closed."""
        with self._changed:
            if self._closed:
                return
            self._entries.append(_Entry(item, nbytes, large, barrier))
            self._nbytes[large] += nbytes
            self._changed.notify_all()

    # --- who takes

    def take(self) -> list[T]:
        """Rows that wait, as many as belong in a batch, waiting for some; empty once closed and all is written."""
        with self._changed:
            while True:
                if batch := self._batch(large=False):
                    return batch
                if self._closed and not self._entries and not self._taking[True]:
                    return []
                self._changed.wait()

    def written(self) -> None:
        """The rows that were taken last are written."""
        with self._changed:
            self._done(large=False)

    def take_large(self) -> list[T]:
        """The same of large items; empty once the queue is closed and none is left."""
        with self._changed:
            while True:
                if batch := self._batch(large=True):
                    return batch
                if self._closed and not any(entry.large for entry in self._entries):
                    return []
                self._changed.wait()

    def written_large(self, results: Sequence[T]) -> bool:
        """The large items taken last are written, and `results` come before all rows that wait.

        False where the queue was abandoned meanwhile: nobody takes them.
        """
        with self._changed:
            if not self._abandoned:
                self._entries[:0] = [_Entry(item, 0, large=False, barrier=False) for item in results]
            self._done(large=True)
            return not self._abandoned

    def failed_large(self, change: Callable[[Sequence[T]], Sequence[T]], taken: Sequence[T], last: T) -> None:
        """The large items `taken` last could not be written, and no more can be: the queue is closed.

        In place of them and of what waits is what `change` makes of it; `last` comes after it.
        """
        with self._changed:
            self.written_large(taken)
            self.lighten(change)
            if not self._abandoned:
                self._entries.append(_Entry(last, 0, large=False, barrier=False))
            self._closed = True

    # --- who waits, or ends it

    def wait_until_written(self, timeout_s: float | None) -> bool:
        """Wait until nothing waits; False where that takes longer."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._entries and not any(self._taking.values()), timeout_s
            )

    def lighten(self, change: Callable[[Sequence[T]], Sequence[T]]) -> None:
        """Have in place of each that waits what `change` makes of it, a row whose bytes count for nothing."""
        with self._changed:
            items = change([entry.item for entry in self._entries])
            self._entries = [
                replace(entry, item=item, nbytes=0, large=False)
                for entry, item in zip(self._entries, items, strict=True)
            ]
            self._nbytes = dict(self._taken)
            self._changed.notify_all()

    def close(self) -> None:
        """No more is put."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def abandon(self) -> None:
        """Drop what waits: it will not be written. What was taken is still being written until that is said."""
        with self._changed:
            self._closed = self._abandoned = True
            self._entries.clear()
            self._nbytes = dict(self._taken)
            self._changed.notify_all()

    # --- inner parts, with the lock

    def _batch(self, *, large: bool) -> list[T]:
        if large and self._at_barrier:
            return []
        batch: list[_Entry[T]] = []
        left: list[_Entry[T]] = []
        total, passed = 0, self._taking[True]
        for at, entry in enumerate(self._entries):
            held = entry.barrier and (large or passed)
            full = entry.large == large and batch and total + entry.nbytes > BATCH_BYTES
            if held or full:
                left += self._entries[at:]
                break
            if entry.large == large:
                batch.append(entry)
                total += entry.nbytes
            else:
                left.append(entry)
                passed = passed or entry.large
        if batch:
            self._entries = left
            self._taken[large], self._taking[large] = total, True
            self._at_barrier = self._at_barrier or any(entry.barrier for entry in batch)
        return [entry.item for entry in batch]

    def _done(self, *, large: bool) -> None:
        self._nbytes[large] -= self._taken[large]
        self._taken[large], self._taking[large] = 0, False
        self._at_barrier = self._at_barrier and large
        self._changed.notify_all()
