"""The rows of a session, each held against its checksum as it is read, and kept until the recording changes them."""

from __future__ import annotations

import sqlite3
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from inspector.errors import UsageError
from inspector.findings import Finding
from inspector.floats import F64Array
from inspector.param_statistics import ParamTable
from inspector.plan import Variant
from inspector.session import jsonform, statistics_rows
from inspector.session.database import get_meta, limit_time, reading
from inspector.session.places import Places
from inspector.session.records import (
    About,
    Ending,
    Form,
    Note,
    RecordedLayout,
    RecordedStep,
    State,
    StoredFile,
)
from inspector.session.setting_rows import unpack_settings
from inspector.session.step_rows import (
    HAS_SETTINGS,
    HAS_STATISTICS,
    STEP,
    StepColumns,
    checksum,
    unpack_step,
    without_settings,
)
from inspector.settings import ParamSettings

T = TypeVar("T")
TABLES_KEPT = 8
"""Statistics of as many steps are kept unpacked."""


class Contents:
    """What the database of a session holds, as of the last `look`. UsageError for what is damaged."""

    about: About
    ending: Ending | None
    state: State
    generation: str | None
    """Changes when rows that were read may be others."""
    first_step: int
    last_step: int

    _parts: list[StepColumns]
    _part_times: list[dict[str, F64Array]]
    _tables: OrderedDict[int, ParamTable]
    _named: dict[str, list[Any]]
    _findings: list[tuple[int, Finding]]
    _notes: tuple[Note, ...] | None
    _files: dict[int, StoredFile]
    _captures: dict[tuple[int, str], StoredFile]
    _stale: bool
    """There may be captures that were not read yet."""

    def __init__(self, places: Places) -> None:
        self.path = places.path
        self._places = places
        self._database = places.database()
        self._signature = places.signature
        self._forget()
        try:
            with reading(self.path):
                connection = self._database.connection
                self.generation = get_meta(connection, "generation")
                self._read_about()
                self._look()
        except BaseException:
            self._database.close()
            raise

    @property
    def id(self) -> str:
        """What tells this recording from any other; "" for one of format 1."""
        with reading(self.path):
            return get_meta(self._database.connection, "id") or ""

    @property
    def ended_because(self) -> str | None:
        """Why it ended, where not because it was done: a sentence."""
        return self.ending.reason if self.ending else None

    @property
    def format(self) -> int:
        """The version of the format on disk."""
        return self._database.format

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    def copy(self, target: sqlite3.Connection) -> None:
        """Copy the whole database."""
        self._database.connection.backup(target)

    def look(self) -> bool:
        """See where the recording stands; True where what was read before may have changed."""
        if not self._places.recording and self._signature != self._places.signature:
            # Opened as a file that nobody changes, and somebody has.
            self._database.close()
            self._database = self._places.database()
            self._signature = self._places.signature
        before = self.generation
        with self._snapshot():
            self._notes, self._stale = None, True
            self._look()
        return before != self.generation

    # --- steps

    def scalar(self, name: str) -> F64Array:
        """One of `SCALARS`, a value a step."""
        return np.concatenate([np.empty(0), *(part.scalar(name) for part in self._read_parts())])

    def known(self, name: str) -> npt.NDArray[np.bool_]:
        """Whether one of `SCALARS` is known, a value a step."""
        return np.concatenate([np.empty(0, np.bool_), *(part.known(name) for part in self._read_parts())])

    def of_part(self) -> npt.NDArray[np.bool_]:
        """Whether the norm is of the part of one process, a value a step."""
        return np.concatenate([np.empty(0, np.bool_), *(part.of_part() for part in self._read_parts())])

    def kernel_ms(self, name: str) -> F64Array | None:
        """A kernel's time, "ms/KEY" or "cold/KEY", a value a step; None where there is none of that name."""
        times = self._times()
        if not any(name in found for found in times):
            return None
        missing = (np.full(len(part), np.nan) for part in self._parts)
        return np.concatenate([found.get(name, gap) for found, gap in zip(times, missing, strict=True)])

    def kernel_metrics(self) -> tuple[str, ...]:
        """What `kernel_ms` takes."""
        return tuple(dict.fromkeys(name for found in self._times() for name in found))

    def step(self, step: int) -> RecordedStep:
        """One step."""
        with self._snapshot():
            forms = self._items("forms", Form)
            ran, form = unpack_step(self._step_row(step), forms, self._kernels(), self._settings)
            if form.layout is None:
                return replace(ran, layout=self.about.layout)
            layouts = self._items("layouts", RecordedLayout)
            if not 0 <= form.layout < len(layouts):
                raise ValueError(f"layout {form.layout} of step {step} is missing")
            laid = layouts[form.layout]
            # Where params lay before others joined says nothing of where all of them do.
            return replace(ran, layout=laid if len(laid.offsets) == len(self.about.params) else None)

    def has_own_settings(self) -> bool:
        """True where any step ends with settings of params."""
        return any((part.fixed["has"] & HAS_SETTINGS).any() for part in self._read_parts())

    def forms(self) -> tuple[tuple[int, Variant], ...]:
        """The form of the first step, and each step from which another holds."""
        numbers = np.concatenate([np.empty(0, np.int64), *(p.fixed["form"] for p in self._read_parts())])
        with self._snapshot():
            known = [form.variant for form in self._items("forms", Form)]
            found: list[tuple[int, Variant]] = []
            for i in np.flatnonzero(np.diff(numbers, prepend=-1)):
                variant = known[int(numbers[i])]
                # Another layout alone is no other form.
                if not found or found[-1][1] != variant:
                    found.append((self.first_step + int(i), variant))
            return tuple(found)

    def table(self, step: int) -> ParamTable | None:
        """The statistics of one step, None where they were not counted."""
        table = self._tables.get(step)
        if table is None:
            with self._snapshot():
                data = self._row("statistics", step)
                if data is None:
                    if self._fixed(step)["has"] & HAS_STATISTICS:
                        raise ValueError(f"the statistics of step {step} are missing")
                    return None
                table = statistics_rows.unpack(data, self.about.params)
            self._tables[step] = table
            if len(self._tables) > TABLES_KEPT:
                self._tables.popitem(last=False)
        self._tables.move_to_end(step)
        return table

    # --- beside the steps

    def findings(self) -> tuple[Finding, ...]:
        """In the order of the steps."""
        with self._snapshot():
            count = int(self._fixed(self.last_step)["findings"]) if self.last_step >= self.first_step else 0
            if len(self._findings) < count:
                self._findings += self._events("findings", Finding, after=len(self._findings))
            if len(self._findings) < count:
                raise ValueError("rows of findings are missing")
        # A recording that goes on may have more by now.
        return _by_step(self._findings[:count])

    def notes(self) -> tuple[Note, ...]:
        """In the order of the steps."""
        if self._notes is None:
            with self._snapshot():
                notes = self._events("notes", Note)
                if self.ending and len(notes) != self.ending.notes:
                    raise ValueError("rows of notes are missing")
                self._notes = _by_step(notes)
        return self._notes

    def captures(self) -> dict[tuple[int, str], StoredFile]:
        """The file of each capture, by step and kind."""
        if self._stale:
            with self._snapshot():
                self._read_index()
                self._stale = False
        return self._captures

    # --- inner parts

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """Within the block the database stands still; what was read before a run went back is forgotten."""
        connection = self._database.connection
        with reading(self.path):
            connection.execute("BEGIN")
            try:
                if get_meta(connection, "generation") != self.generation:
                    self._forget()
                    self._look()
                yield
            finally:
                # SQLite ends a transaction itself where the file is damaged.
                with suppress(sqlite3.Error):
                    connection.execute("COMMIT")

    def _forget(self) -> None:
        self._parts, self._part_times = [], []
        self._tables = OrderedDict()
        self._named = {}
        self._findings, self._notes = [], None
        self._files, self._captures, self._stale = {}, {}, True

    def _look(self) -> None:
        connection = self._database.connection
        limit_time(connection)
        recording = self._places.recording
        generation = get_meta(connection, "generation")
        if generation != self.generation:
            # Params may have been added.
            self._read_about()
        self.generation = generation
        ending = get_meta(connection, "end")
        self.ending = None if ending is None else jsonform.from_text(Ending, ending)
        (last,) = connection.execute("SELECT max(step) FROM steps").fetchone()
        (first,) = connection.execute("SELECT min(step) FROM steps").fetchone()
        self.first_step = self.about.finished_steps + 1
        if first is not None and first != self.first_step:
            raise ValueError(f"its first step is {first}, where step {self.first_step} comes next")
        self.last_step = self.first_step - 1 if last is None else int(last)
        if self.ending and self.ending.last != self.last_step:
            raise ValueError(f"it ended after step {self.ending.last}, and its last is {self.last_step}")
        self.state = "complete" if self.ending else "recording" if recording else "interrupted"

    def _read_about(self) -> None:
        self.about = jsonform.from_text(About, get_meta(self._database.connection, "about"))

    def _row(self, table: str, step: int) -> bytes | None:
        for data, crc in self._database.rows(f"SELECT data, crc FROM {table} WHERE step = ?", (step,)):
            if not isinstance(data, bytes) or crc != checksum(table, step, data):
                raise ValueError(f"the row of step {step} in {table} does not match its checksum")
            return data
        return None

    def _step_row(self, step: int) -> bytes:
        data = self._row("steps", step)
        if data is None:
            raise ValueError(f"the row of step {step} is missing")
        without_settings(data)
        return data

    def _fixed(self, step: int) -> Any:
        """The fixed part of a step's row, a record of type STEP."""
        return np.frombuffer(self._step_row(step), STEP, 1)[0]

    def _read_parts(self) -> list[StepColumns]:
        """The columns of all steps, in a few parts: what was read before is not read or copied for each new step."""
        if sum(map(len, self._parts)) < self.last_step + 1 - self.first_step:
            with self._snapshot():
                self._parts.append(StepColumns.of_rows(self._read_rows()))
            while len(self._parts) > 1 and len(self._parts[-2]) <= 2 * len(self._parts[-1]):
                last = self._parts.pop()
                self._parts[-1] = self._parts[-1].followed_by(last)
            del self._part_times[len(self._parts) - 1 :]
        return self._parts

    def _times(self) -> list[dict[str, F64Array]]:
        """Kernel times by name, of each part."""
        parts = self._read_parts()
        if len(self._part_times) < len(parts):
            with self._snapshot():
                keys = [
                    f"{name} {block.replace('_', '-')}" if block else name for name, block in self._kernels()
                ]
                with np.errstate(all="ignore"):
                    self._part_times += [part.kernel_ms(keys) for part in parts[len(self._part_times) :]]
        return self._part_times

    def _read_rows(self) -> list[bytes]:
        """The rows that were not read yet: a loop of its own, since there may be 100,000."""
        rows: list[bytes] = []
        expected = self.first_step + sum(map(len, self._parts))
        sql = "SELECT step, data, crc FROM steps WHERE step >= ? AND step <= ? ORDER BY step"
        for step, data, crc in self._database.rows(sql, (expected, self.last_step)):
            if (
                step != expected
                or type(data) is not bytes
                or crc != zlib.crc32(data, zlib.crc32(b"steps:%d:" % step))
            ):
                raise ValueError(f"the row of step {expected} is missing or does not match its checksum")
            rows.append(data)
            expected += 1
        if expected != self.last_step + 1:
            raise ValueError(f"the row of step {expected} is missing")
        return rows

    def _settings(self, data: bytes) -> ParamSettings:
        return unpack_settings(data, self._items("maps", tuple[int, ...]), len(self.about.params))

    def _kernels(self) -> list[tuple[str, str | None]]:
        return self._items("kernels", tuple[str, str | None])

    def _items(self, table: str, kind: Any) -> list[Any]:
        """Rows numbered from 0, without a gap; they are added to, never changed."""
        known = self._named.setdefault(table, [])
        sql = f"SELECT id, data, crc FROM {table} WHERE id >= ? ORDER BY id"
        for number, data, crc in self._database.rows(sql, (len(known),)):
            if number != len(known) or not isinstance(data, str) or crc != checksum(table, number, data):
                raise ValueError(f"row {len(known)} of {table} is missing or does not match its checksum")
            known.append(jsonform.from_text(kind, data))
        return known

    def _events(self, table: str, kind: type[T], *, after: int = 0) -> list[tuple[int, T]]:
        """Steps, and what was found or noted of them, in the order of writing."""
        found: list[tuple[int, T]] = []
        sql = f"SELECT id, step, data, crc FROM {table} WHERE id > ? ORDER BY id"
        for number, step, data, crc in self._database.rows(sql, (after,)):
            if not isinstance(data, str) or crc != checksum(table, f"{number}:{step}", data):
                raise ValueError(f"row {number} of {table} does not match its checksum")
            found.append((step, jsonform.from_text(kind, data)))
        return found

    def _read_index(self) -> None:
        """The tensor files that were not read yet, and what is in them."""
        last = max(self._files, default=0)
        files: dict[int, StoredFile] = {}
        sql = "SELECT id, data, crc FROM files WHERE id > ? ORDER BY id"
        for number, data, crc in self._database.rows(sql, (last,)):
            if not isinstance(data, str) or crc != checksum("files", number, data):
                raise ValueError(f"row {number} of files does not match its checksum")
            files[number] = jsonform.from_text(StoredFile, data)
        captures: dict[tuple[int, str], StoredFile] = {}
        sql = "SELECT step, kind, file, crc FROM captures WHERE file > ? ORDER BY step, kind"
        for step, kind, file, crc in self._database.rows(sql, (last,)):
            if crc != checksum("captures", f"{step}:{kind}", str(file)) or file not in files:
                raise ValueError(f"the entry of a capture of step {step} does not match its checksum")
            captures[step, kind] = files[file]
        if self.ending and len(captures) + len(self._captures) != self.ending.captures:
            raise ValueError("entries of captures are missing")
        self._files |= files
        self._captures |= captures


def _by_step(found: list[tuple[int, T]]) -> tuple[T, ...]:
    return tuple(item for _, item in sorted(found, key=lambda each: each[0]))


def attempt(problems: list[str], part: Any, *arguments: object) -> None:
    """Call `part`; what it finds damaged is added to `problems`, once."""
    try:
        part(*arguments)
    except UsageError as error:
        if str(error) not in problems:
            problems.append(str(error))
