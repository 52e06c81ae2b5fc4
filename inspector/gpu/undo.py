"""What dispatches overwrote, kept on the GPU so that they can be taken back byte for byte."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inspector.errors import OutOfMemoryError
from inspector.gpu.device import Gpu
from inspector.stepping import Cursor, UndoInfo

Range = tuple[str, int, int]
"""Buffer name, byte offset, byte size."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A range as it was, kept in `copy` from byte `at`."""

    buffer: str
    offset: int
    size: int
    copy: Any
    at: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One position to go back to: the cursor there, what was overwritten since, and the buffers it is kept in."""

    cursor: Cursor
    saved: tuple[Saved, ...]
    copies: tuple[Any, ...]

    @property
    def nbytes(self) -> int:
        """Bytes it holds."""
        return sum(copy.size for copy in self.copies)


MAX_ENTRIES = 4096
"""Kept at most: the steps of a tiny model take few bytes, and each entry costs objects on both sides of wgpu."""
PACKED_BYTES = 64 << 20
"""Ranges share a buffer up to this size; a larger one has a buffer of its own."""
ALIGNMENT = 256
"""Where a range may start in a buffer: what any device binds at."""


class UndoLog:
    """A stack of entries, bounded in bytes: the oldest go when a new one needs their room.

    Buffers of dropped entries are used again for later ones of the same size, so a run in which every step
    is alike allocates nothing once the bound is reached.
    """

    def __init__(self, gpu: Gpu, limit: int) -> None:
        self._gpu = gpu
        self.limit = limit
        self._entries: deque[Entry] = deque()
        self._free: dict[int, list[Any]] = {}
        self._nbytes = 0
        self._dispatches = 0
        self._starts = 0

    @property
    def top(self) -> Entry | None:
        """The newest entry."""
        return self._entries[-1] if self._entries else None

    @property
    def info(self) -> UndoInfo:
        """How far it reaches back, and the bytes it takes."""
        oldest = next((e.cursor.step for e in self._entries if e.cursor.at_end), None)
        return UndoInfo(self._dispatches, self._starts, self._nbytes, self.limit, oldest)

    def save(self, encoder: Any, cursor: Cursor, ranges: Sequence[Range], buffers: Mapping[str, Any]) -> bool:
        """Record copies of `ranges` as they are now. False, and empty, where they are over the limit."""
        packs = pack(ranges, min(PACKED_BYTES, self._gpu.limits.max_buffer_size))
        needed = sum(size for size, _ in packs)
        if needed > self.limit:
            self.clear()
            return False
        while self._entries and (self._nbytes + needed > self.limit or len(self._entries) >= MAX_ENTRIES):
            self._drop_oldest()
        copies: list[Any] = []
        try:
            for size, _ in packs:
                copies.append(self._take(size))
        except OutOfMemoryError:
            # Going back is a comfort: without room for it the run goes on, reaching back less far.
            for copy in copies:
                self._gpu.drop(copy)
            self.limit = self._nbytes
            self.clear()
            return False
        saved = [
            Saved(name, offset, size, copy, at)
            for copy, (_, parts) in zip(copies, packs, strict=True)
            for at, (name, offset, size) in parts
        ]
        for part in saved:
            encoder.copy_buffer_to_buffer(
                buffers[part.buffer], part.offset, part.copy, part.at, _padded4(part.size)
            )
        self._entries.append(Entry(cursor, tuple(saved), tuple(copies)))
        self._count(self._entries[-1], 1)
        return True

    def undo(self, encoder: Any, buffers: Mapping[str, Any]) -> Cursor:
        """Record the restoring of the newest entry and drop it; IndexError where there is none."""
        entry = self._entries.pop()
        for part in entry.saved:
            encoder.copy_buffer_to_buffer(
                part.copy, part.at, buffers[part.buffer], part.offset, _padded4(part.size)
            )
        self._forget(entry)
        return entry.cursor

    def reaches(self, cursor: Cursor) -> bool:
        """True where going back far enough ends at that position."""
        return any(e.cursor == cursor for e in self._entries)

    def back_to(self, cursor: Cursor) -> tuple[Entry, ...] | None:
        """The entries to take back to stand at a position, newest first; None where it does not reach that far."""
        found: list[Entry] = []
        for entry in reversed(self._entries):
            found.append(entry)
            if (entry.cursor.step, entry.cursor.dispatch) == (cursor.step, cursor.dispatch):
                return tuple(found)
        return None

    def newest_first(self) -> Iterator[Entry]:
        """All entries, from the one that would be taken back next."""
        return reversed(self._entries)

    def cursors(self) -> tuple[Cursor, ...]:
        """The positions it reaches, oldest first."""
        return tuple(e.cursor for e in self._entries)

    def clear(self) -> None:
        """Forget everything and give the memory back."""
        while self._entries:
            self._drop_oldest()
        for copies in self._free.values():
            for copy in copies:
                self._gpu.drop(copy)
        self._free.clear()

    def _drop_oldest(self) -> None:
        self._forget(self._entries.popleft())

    def _forget(self, entry: Entry) -> None:
        self._count(entry, -1)
        for copy in entry.copies:
            self._free.setdefault(copy.size, []).append(copy)

    def _count(self, entry: Entry, sign: int) -> None:
        self._nbytes += sign * entry.nbytes
        self._dispatches += sign * (not entry.cursor.at_end)
        self._starts += sign * (entry.cursor.dispatch == 0)

    def _take(self, size: int) -> Any:
        free = self._free.get(size)
        if free:
            return free.pop()
        # Free buffers of other sizes may hold the room this one needs.
        held = self._nbytes + sum(s * len(c) for s, c in self._free.items())
        if held + size > self.limit:
            for other in list(self._free):
                for copy in self._free.pop(other):
                    self._gpu.drop(copy)
        return self._gpu.storage("undo", size)


def pack(ranges: Sequence[Range], together: int) -> list[tuple[int, list[tuple[int, Range]]]]:
    """Ranges put into buffers of at most `together` bytes, or one of its own: the size, and what lies where."""
    packs: list[tuple[int, list[tuple[int, Range]]]] = []
    for one in ranges:
        size = max(_padded4(one[2]), ALIGNMENT)
        at = -(-packs[-1][0] // ALIGNMENT) * ALIGNMENT if packs else 0
        if packs and at + size <= together:
            packs[-1] = (at + size, [*packs[-1][1], (at, one)])
        else:
            packs.append((size, [(0, one)]))
    return packs


def _padded4(size: int) -> int:
    return -(-size // 4) * 4
