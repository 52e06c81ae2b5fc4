"""The two threads that write a recording: one its rows, one beside it the tensors that take a disk long."""

from __future__ import annotations

import errno
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from inspector.byte_sizes import size_text
from inspector.progress import EndedError, advanced
from inspector.session.records import Note
from inspector.session.tensor_files import Stored
from inspector.session.tensor_store import Capture
from inspector.session.write_queue import WriteQueue
from inspector.session.writer import AddParams, DropState, Item, Rewind, SessionWriter, StepItem, captures_of

FULL_BYTES = 1 << 20
"""A disk with less left than this is full: SQLite asks for so little at a time."""
LARGE_BYTES = 32 << 20
"""Tensors of so many bytes are written beside the rows; smaller ones are committed together with their step."""
TELL_S = 0.05
"""So often it is told how far the writing is at the end."""
_DISK_FULL = "the disk was full"
_CUT_SHORT = "the recording was ended before it was written"
_FAILED = "it could not be written"

T = TypeVar("T")
FreeBytes = Callable[[Path], int]


class WritingThreads:
    """Writes what is put, in order, but rows before large tensors; rewinds and the like keep their place among both.

    `problem` is a sentence once it has ended before `close`; what is put from then on is dropped.
    """

    def __init__(
        self,
        writer: SessionWriter,
        *,
        queue_bytes: int,
        reserve_bytes: int,
        free: FreeBytes,
        on_problem: Callable[[str], None] | None,
    ) -> None:
        """At most `queue_bytes` of each kind wait, `reserve_bytes` of the disk stay free."""
        self.problem: str | None = None
        self.cut_short = False
        """True where it was ended before all tensors were written."""
        self.on_written: Callable[[], None] | None = None
        """Called on the writing thread whenever more is durable, and when it has ended."""
        self._writer = writer
        self._path = writer.path
        self._reserve = reserve_bytes
        self._free = free
        self._on_problem = on_problem
        self._queue: WriteQueue[Item | _Failed] = WriteQueue(queue_bytes)
        self._reason: str | None = None
        self._tensors: threading.Thread | None = None
        """There once there are large ones."""
        self._rows = threading.Thread(target=self._write_rows, name="session-writer", daemon=True)
        self._rows.start()

    @property
    def waiting_bytes(self) -> int:
        """Bytes of tensors and statistics that are not written yet."""
        return self._queue.nbytes

    def has_room(self, nbytes: int, *, large: bool = False) -> bool:
        """True where so many bytes more may wait."""
        return self._queue.has_room(nbytes, large=large)

    def put(self, item: Item, nbytes: int = 0) -> None:
        """Write this; its tensors together with its row."""
        self._queue.put(item, nbytes, barrier=isinstance(item, (Rewind, AddParams, DropState)))

    def put_tensors(self, captures: Sequence[Capture]) -> None:
        """Write these, which belong to rows that were put before: beside the rows where they are large together."""
        large = is_large(captures)
        if large and self._tensors is None:
            self._tensors = threading.Thread(target=self._write_large, name="session-tensors", daemon=True)
            self._tensors.start()
        for capture in captures:
            self._queue.put(capture, capture.nbytes, large=large)

    def flush(self, timeout_s: float | None) -> bool:
        """Wait until all that was put is durable; False where that takes longer."""
        return self._queue.wait_until_written(timeout_s)

    def close(self, reason: str | None) -> None:
        """End it once all is written, and tell how far that is; where that is ended, without the tensors that wait."""
        self._reason = reason
        self._queue.close()
        waiting = self._queue.nbytes
        try:
            while self._rows.is_alive():
                self._rows.join(TELL_S)
                advanced(waiting - self._queue.nbytes, waiting)
        except EndedError:
            self._queue.lighten(self._cut)
            self._rows.join()

    def _write_rows(self) -> None:
        """The thread of rows, and of tensors that are committed with them."""
        # What is not foreseen here leaves a traceback, and must not pass for an end in order.
        reason: str | None = f"The recording {self._path} has ended by a fault of the inspector."
        try:
            while items := self._queue.take():
                self._write(items)
                self._queue.written()
                if self.on_written is not None:
                    self.on_written()
            reason = self._reason
        except _FullError as end:
            reason = str(end)
        except (OSError, sqlite3.Error) as error:
            reason = self._sentence(error)
        finally:
            if reason != self._reason:
                self.problem = reason
            self._queue.abandon()
            if self._tensors is not None:
                self._tensors.join()
            try:
                self._writer.finish(reason)
            except (OSError, sqlite3.Error) as error:
                self.problem = self.problem or self._sentence(error)
            if self.problem is not None and self._on_problem is not None:
                self._on_problem(self.problem)
            if self.on_written is not None:
                self.on_written()
            self._queue.written()

    def _write(self, items: Sequence[Item | _Failed]) -> None:
        """Rewinds, params added and states dropped are carried out between what came before and after them."""
        batch: list[Item] = []
        for item in items:
            if isinstance(item, (Rewind, AddParams, DropState, _Failed)):
                self._write_batch(batch)
                batch = []
                if isinstance(item, _Failed):
                    raise item.error
                if isinstance(item, Rewind):
                    self._writer.rewind(item.step)
                elif isinstance(item, DropState):
                    self._writer.drop_state(item.step)
                else:
                    self._writer.add_params(item)
            else:
                batch.append(item)
        self._write_batch(batch)

    def _write_batch(self, items: Sequence[Item]) -> None:
        if not items:
            return
        try:
            with self._room_for(captures_of(items)):
                self._writer.write(items)
        except _FullError:
            self._writer.write(_without_captures(items, _DISK_FULL))
            raise

    def _write_large(self) -> None:
        """The thread of large tensors."""
        while items := self._queue.take_large():
            captures = [item for item in items if isinstance(item, Capture)]
            results: Sequence[Stored]
            try:
                with self._room_for(captures):
                    results = self._writer.write_tensors(captures)
            except Exception as error:  # noqa: BLE001 - raised again among the rows, which come first
                why = _DISK_FULL if isinstance(error, _FullError) else _FAILED
                self._queue.failed_large(partial(_without_captures, why=why), items, _Failed(error))
                break
            if not self._queue.written_large(results):
                self._writer.remove_tensors(results)

    @contextmanager
    def _room_for(self, captures: Sequence[Capture]) -> Iterator[None]:
        """Within the block `captures` are written; _FullError where the disk has no room for them."""
        left = self._free(self._path)
        full = self._full(left)
        if left - sum(capture.nbytes for capture in captures) < self._reserve:
            raise _FullError(full)
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise _FullError(full) from None

    def _full(self, left: int) -> str:
        return f"The recording {self._path} has ended, the disk is full: {size_text(left)} were left."

    def _sentence(self, error: Exception) -> str:
        try:
            left = self._free(self._path)
        except OSError:  # Gone, folder and all: then there is room, and the error says what is the matter.
            left = FULL_BYTES
        # SQLite calls it an I/O error where its log or the index of that cannot grow.
        if (
            getattr(error, "sqlite_errorname", "").startswith(("SQLITE_FULL", "SQLITE_IOERR"))
            and left < FULL_BYTES
        ):
            return self._full(left)
        text = getattr(error, "strerror", None) or str(error)
        return f"The recording {self._path} has ended, it cannot be written: {text}."

    def _cut(self, items: Sequence[Item | _Failed]) -> list[Item | _Failed]:
        self.cut_short = any(
            isinstance(i, Capture) or (isinstance(i, StepItem) and i.captures) for i in items
        )
        return _without_captures(items, _CUT_SHORT)


def is_large(captures: Sequence[Capture]) -> bool:
    """Whether they are written beside the rows."""
    return sum(capture.nbytes for capture in captures) >= LARGE_BYTES


@dataclass(frozen=True, slots=True)
class _Failed:
    """Large tensors can be written no longer: the recording ends once the rows before this are written."""

    error: Exception


class _FullError(Exception):
    """The recording has to end, there is no room for more; the text says so."""


def _without_captures(items: Sequence[T], why: str) -> list[T | Note | StepItem]:
    """Of each item itself, or a note in its place."""
    kept: list[T | Note | StepItem] = []
    for item in items:
        if isinstance(item, Capture):
            kept.append(Note("gap", item.step, f"{item.kind} not captured, {why}"))
        elif isinstance(item, StepItem) and item.captures:
            gaps = tuple(Note("gap", c.step, f"{c.kind} not captured, {why}") for c in item.captures)
            kept.append(replace(item, captures=(), notes=(*item.notes, *gaps)))
        else:
            kept.append(item)
    return kept
