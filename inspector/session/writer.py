"""What writes a session: tensor files first, then the rows that name them, in one transaction a batch."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from inspector.errors import UsageError
from inspector.files import anything_at, check_writable, remove_abandoned
from inspector.findings import Finding
from inspector.layout import Param
from inspector.param_statistics import ParamTable
from inspector.session import database, jsonform
from inspector.session.database import get_meta, reading, set_meta
from inspector.session.lock import RecordingLock, recorder_pid
from inspector.session.records import About, Ending, Note, RecordedStep, Shard, StoredFile
from inspector.session.row_writer import RowWriter
from inspector.session.tensor_files import Stored, TensorFiles
from inspector.session.tensor_store import FOLDER, Capture, remove_strangers


@dataclass(frozen=True, slots=True, eq=False)
class StepItem:
    """A step with all that is recorded of it."""

    step: RecordedStep
    statistics: ParamTable | None = None
    findings: tuple[Finding, ...] = ()
    captures: tuple[Capture, ...] = ()
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True, slots=True)
class Rewind:
    """What was recorded after step `step` is dropped."""

    step: int


@dataclass(frozen=True, slots=True)
class AddParams:
    """Params that take part from `step` on, after those there were. `dtypes` and `shards` are theirs, as in About."""

    step: int
    params: tuple[Param, ...]
    dtypes: tuple[str, ...] = ()
    shards: tuple[Shard | None, ...] = ()


@dataclass(frozen=True, slots=True)
class DropState:
    """The state that was captured after `step` is none any more: another was put in its place."""

    step: int


Item = StepItem | Capture | Stored | Note | Rewind | AddParams | DropState


def captures_of(items: Iterable[Item]) -> list[Capture]:
    """Those that are written with the rows of `items`."""
    return [
        capture
        for item in items
        for capture in (item.captures if isinstance(item, StepItem) else (item,))
        if isinstance(capture, Capture)
    ]


class SessionWriter:
    """A session that is being written, by one thread at a time. `last_step` is the last whose row is committed."""

    def __init__(self, path: Path, about: About, connection: sqlite3.Connection, lock: RecordingLock) -> None:
        self.path = path
        self.about = about
        self.last_step = about.finished_steps
        self.bytes_written = 0
        self._connection = connection
        self._rows = RowWriter(connection, about)
        self._lock = lock
        self._files = TensorFiles(path, {p.name: p.shape for p in about.params})
        self._last_file = 0
        """The number in the index of the last tensor file."""

    @classmethod
    def create(cls, path: Path, about: About) -> SessionWriter:
        """A new session at `path`, which must not exist; UsageError where it cannot be made."""
        if anything_at(path):
            raise UsageError(f"{path} exists: name another session, or delete it first.")
        check_writable(path)
        remove_abandoned(path)
        # It appears with all that a reader needs, or not at all.
        part = path.with_name(f".{path.name[:100]}.{os.getpid()}.part")
        try:
            (part / FOLDER).mkdir(parents=True)
            meta = {"about": jsonform.to_text(about), "id": uuid.uuid4().hex, "generation": "0"}
            database.create(part / database.DATABASE_NAME, meta)
            os.replace(part, path)
        except (OSError, sqlite3.Error) as error:
            shutil.rmtree(part, ignore_errors=True)
            raise UsageError(f"{path} cannot be written: {error}.") from None
        lock, connection = cls._open(path)
        return cls(path, about, connection, lock)

    @classmethod
    def resume(cls, path: Path) -> SessionWriter:
        """An interrupted or complete session, to go on with after its last sound step.

        What a killed recording was writing is dropped; so are captures whose file is missing or cut off.
        """
        if not path.is_dir():
            raise UsageError(f"{path} cannot be continued: it is no session folder.")
        database.check_files(path)
        lock, connection = cls._open(path)
        try:
            with reading(path):
                about = jsonform.from_text(About, get_meta(connection, "about"))
                writer = cls(path, about, connection, lock)
                writer._take_up()
        except BaseException:
            connection.close()
            lock.release()
            raise
        return writer

    @staticmethod
    def _open(path: Path) -> tuple[RecordingLock, sqlite3.Connection]:
        try:
            lock = RecordingLock.take(path)
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror or error}.") from None
        if lock is None:
            raise UsageError(f"{path} is being recorded by process {recorder_pid(path)}: wait until it ends.")
        try:
            return lock, database.open_to_write(path)
        except BaseException:
            lock.release()
            raise

    def write(self, items: Sequence[Item]) -> None:
        """Write `items` in order. All of them are committed together, or none: then OSError or sqlite3.Error."""
        stored = [item for item in items if isinstance(item, Stored)]
        numbers, last_file = self._rows.numbers(), self._last_file
        try:
            stored += self._files.write(captures_of(items))
            with self._transaction():
                for each in stored:
                    last_file += 1
                    self._rows.file(last_file, each.file)
                    for step, kind in each.captures:
                        self._rows.capture(last_file, step, kind)
                for item in items:
                    self._write_item(item)
        except BaseException:
            self._rows.restore(numbers)
            self._files.remove(stored)
            raise
        self._last_file = last_file
        self.bytes_written += sum(each.file.size for each in stored)
        steps = [item.step.step for item in items if isinstance(item, StepItem)]
        self.last_step = max(steps, default=self.last_step)

    def write_tensors(self, captures: Sequence[Capture]) -> list[Stored]:
        """Write captures as files, durable once this returns; `write` takes what it gives. OSError where it fails.

        From another thread than the one that writes rows, but not beside a rewind, params added or a state dropped.
        """
        return self._files.write(captures)

    def remove_tensors(self, stored: Sequence[Stored]) -> None:
        """Delete files of `write_tensors` that `write` was not given."""
        self._files.remove(stored)

    def rewind(self, step: int) -> None:
        """Drop what was recorded after step `step`."""
        with self._transaction():
            dropped = self._rows.drop_after(step)
            self._rows.renew()
        self.last_step = min(self.last_step, step)
        self._files.forget_after(step)
        for name in dropped:
            (self.path / name).unlink(missing_ok=True)

    def add_params(self, more: AddParams) -> None:
        """Make it a recording of more params; a state captured right before they came is dropped, it lacks them."""
        about = self.about.with_params(more.step, more.params, more.dtypes, more.shards)
        with self._transaction():
            self._rows.params_added(about)
            self._rows.drop_capture(more.step - 1, "keyframe")
        self.about = about
        self._files.shapes |= {p.name: p.shape for p in more.params}
        self._files.forget(more.step - 1, "keyframe")

    def drop_state(self, step: int) -> None:
        """Forget the state that was captured after `step`."""
        with self._transaction():
            self._rows.drop_capture(step, "keyframe")
            self._rows.renew()
        self._files.forget(step, "keyframe")

    def finish(self, reason: str | None) -> None:
        """Say that the recording is complete, and why it ended if not because it was done; close it."""
        try:
            with self._transaction():
                count = {
                    table: self._connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
                    for table in ("captures", "findings", "notes")
                }
                first = self.about.finished_steps + 1
                ending = Ending(time.time(), first, self.last_step, **count, reason=reason)
                set_meta(self._connection, "end", jsonform.to_text(ending))
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close it as it is: without an ending it counts as interrupted."""
        database.finish(self._connection)
        self._lock.release()

    # --- inner parts

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise

    def _take_up(self) -> None:
        with self._transaction():
            self.last_step = self._rows.load()
            self._rows.drop_after(self.last_step)
            files, captured = self._rows.load_captures(self._is_there)
            self._connection.execute("DELETE FROM meta WHERE key = 'end'")
            self._rows.renew()
        self._last_file = max(files, default=0)
        names = [file.name for file in files.values()]
        remove_strangers(self.path, names)
        self._files.take_up(names, captured)

    def _is_there(self, file: StoredFile) -> bool:
        try:
            return (self.path / file.name).lstat().st_size == file.size
        except (OSError, ValueError):
            return False

    def _write_item(self, item: Item) -> None:
        if isinstance(item, StepItem):
            self._rows.step(item.step, item.statistics, item.findings)
            for note in item.notes:
                self._rows.note(note)
        elif isinstance(item, Note):
            self._rows.note(item)
