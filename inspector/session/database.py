"""The database of a session: its schema by version, opened without trust, upgraded where it is older."""

from __future__ import annotations

import mmap
import os
import shutil
import sqlite3
import stat
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from inspector.errors import UsageError
from inspector.files import is_part
from inspector.session.step_rows import checksum

DATABASE_NAME = "session.sqlite"
FORMAT = 3
"""The version of the format that is written. An older one opens; a newer one is refused."""

_META = "CREATE TABLE meta (key TEXT PRIMARY KEY, data TEXT NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID"
_ITEM = "CREATE TABLE {} (id INTEGER PRIMARY KEY, data TEXT NOT NULL, crc INTEGER NOT NULL)"
_EVENT = "CREATE TABLE {} (id INTEGER PRIMARY KEY, step INTEGER NOT NULL, data TEXT NOT NULL, crc INTEGER NOT NULL)"
_STEP = "CREATE TABLE {} (step INTEGER PRIMARY KEY, data BLOB NOT NULL, crc INTEGER NOT NULL)"
_FIRST_SCHEMA = {
    "meta": _META,
    "steps": _STEP.format("steps"),
    "statistics": _STEP.format("statistics"),
    "findings": _EVENT.format("findings"),
    "notes": _EVENT.format("notes"),
    "forms": _ITEM.format("forms"),
    "kernels": _ITEM.format("kernels"),
    "files": _ITEM.format("files"),
    "captures": "CREATE TABLE captures (step INTEGER NOT NULL, kind TEXT NOT NULL, file INTEGER NOT NULL, "
    "crc INTEGER NOT NULL, PRIMARY KEY (step, kind)) WITHOUT ROWID",
}
_SECOND_SCHEMA = {**_FIRST_SCHEMA, "layouts": _ITEM.format("layouts")}
SCHEMAS: dict[int, dict[str, str]] = {
    1: _FIRST_SCHEMA,
    2: _SECOND_SCHEMA,
    3: {**_SECOND_SCHEMA, "maps": _ITEM.format("maps")},
}
"""The text of every table by version: a database that has another text, or anything else, is not opened."""


def _add_layouts(connection: sqlite3.Connection) -> None:
    """From 1 to 2: a form names the layout that it ran with, which was not recorded; a session has an id."""
    connection.execute(SCHEMAS[2]["layouts"])
    for number, data, crc in connection.execute("SELECT id, data, crc FROM forms").fetchall():
        # A row that is damaged stays so, to be told when it is read.
        if isinstance(data, str) and crc == checksum("forms", number, data):
            form = f'{{"variant":{data},"layout":null}}'
            row = (form, checksum("forms", number, form), number)
            connection.execute("UPDATE forms SET data = ?, crc = ? WHERE id = ?", row)


def _add_maps(connection: sqlite3.Connection) -> None:
    """From 2 to 3: params may have settings of their own, and a session says more of what another program made."""
    connection.execute(SCHEMAS[3]["maps"])


MIGRATIONS: dict[int, Callable[[sqlite3.Connection], None]] = {1: _add_layouts, 2: _add_maps}
"""By version, what turns a database of it into one of the next, the format in `meta` left out."""

MAX_VALUE_BYTES = 100 << 20
QUERY_SECONDS = 60.0
BUSY_SECONDS = 5.0
_OPERATIONS = 200_000
"""Between two looks at the clock."""
_CACHE_KIB = 4096
_SLACK = 32 << 20
"""What a log adds while a recording goes on."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what SQLite and damaged rows raise into one sentence that names the session."""
    try:
        yield
    except UsageError:
        raise
    except sqlite3.OperationalError as error:
        if "interrupted" in str(error):
            raise UsageError(f"{path} is damaged: a query of it does not end.") from None
        raise UsageError(f"{path} cannot be read: {error}.") from None
    except sqlite3.Error as error:
        raise UsageError(f"{path} is damaged or no session: {error}.") from None
    except MemoryError:
        raise UsageError(f"{path} is damaged: a value in it takes more memory than there is.") from None
    except (ValueError, IndexError, KeyError, TypeError, OverflowError) as error:
        raise UsageError(f"{path} is damaged: {error}.") from None


def create(path: Path, meta: Mapping[str, str]) -> None:
    """A new database of the present format, with the rows of `meta`."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA page_size = 8192")
        for text in SCHEMAS[FORMAT].values():
            connection.execute(text)
        for key, data in {"format": str(FORMAT), **meta}.items():
            set_meta(connection, key, data)
    finally:
        connection.close()


def set_meta(connection: sqlite3.Connection, key: str, data: str) -> None:
    """Set a row of `meta`."""
    row = (key, data, checksum("meta", key, data))
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?, ?)", row)


def get_meta(connection: sqlite3.Connection, key: str) -> str | None:
    """The text of a row of `meta`, None where there is none; ValueError where it is damaged."""
    row = connection.execute("SELECT data, crc FROM meta WHERE key = ?", (key,)).fetchone()
    if row is None:
        return None
    data, crc = row
    if not isinstance(data, str) or crc != checksum("meta", key, data):
        raise ValueError(f"its entry {key!r} does not match its checksum")
    return data


def check_begun(folder: Path) -> None:
    """UsageError where a folder is as a race leaves it that is killed as it begins: empty, or with a part of a file."""
    try:
        inside = os.listdir(folder)
    except OSError:  # None, or one that may not be looked into: whoever opens it says so.
        return
    if all(is_part(name) for name in inside):
        raise UsageError(
            f"{folder} is no session but an empty folder, as a race leaves it that is killed as it begins: nothing was "
            "recorded, delete it."
        )


def check_files(folder: Path) -> None:
    """UsageError unless the database is an ordinary file, with nothing beside it that no recording leaves."""
    for name in (DATABASE_NAME, *(f"{DATABASE_NAME}-{end}" for end in ("wal", "shm", "journal"))):
        try:
            status = (folder / name).lstat()
        except FileNotFoundError:
            if name == DATABASE_NAME:
                check_begun(folder)
                raise UsageError(f"{folder} is no session: it holds no {DATABASE_NAME}.") from None
            continue
        except OSError as error:
            raise UsageError(f"{folder} cannot be read: {error.strerror or error}.") from None
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"{folder} is not opened: {name} in it is no ordinary file.")
        if name.endswith("-journal") and status.st_size:
            # Rolling it back would follow paths that it holds.
            raise UsageError(f"{folder} is not opened: it holds {name}, which no recording leaves behind.")


class ReadDatabase:
    """A database opened to read: `connection`, of the present format, upgraded in memory where it was older."""

    def __init__(
        self, path: Path, connection: sqlite3.Connection, nbytes: int, scratch: Path | None = None
    ) -> None:
        """Closes the connection where it is refused."""
        self.path = path
        self.nbytes = nbytes
        """Bytes of the database: what is read of one query cannot be more."""
        try:
            with reading(path):
                _defend(connection)
                self.format = check_format(path, connection)
                self.connection = connection
                if self.format < FORMAT:
                    self.connection = _upgraded(connection, self.format)
                    connection.close()
                self.connection.execute("PRAGMA query_only = ON")
        except BaseException:
            _release(connection, scratch)
            raise
        # Whoever forgets to close it leaves nothing behind either.
        self._release = weakref.finalize(self, _release, self.connection, scratch)

    @classmethod
    def of_folder(cls, folder: Path, *, live: bool) -> ReadDatabase:
        """The database of a folder, which nothing is written to; `live` where a recording goes on in it."""
        check_files(folder)
        path = folder / DATABASE_NAME
        with reading(folder):
            wal = folder / f"{DATABASE_NAME}-wal"
            logged = wal.stat().st_size if wal.exists() else 0
            nbytes = path.stat().st_size + logged
            if not live and not logged:
                # Nobody writes and everything is in the one file.
                return cls(folder, _connect(path, "mode=ro&immutable=1"), nbytes)
            try:
                return cls(folder, _connect(path, "mode=ro"), nbytes)
            except UsageError as error:
                if live or "cannot be read" not in str(error):
                    raise
        return cls._of_copy(folder)

    @classmethod
    def _of_copy(cls, folder: Path) -> ReadDatabase:
        """For a folder that cannot be written to and holds a write-ahead log: SQLite has to have an index beside it."""
        scratch = Path(tempfile.mkdtemp(prefix="inspector-"))
        try:
            for end in ("", "-wal"):
                shutil.copyfile(folder / f"{DATABASE_NAME}{end}", scratch / f"{DATABASE_NAME}{end}")
            nbytes = sum(path.stat().st_size for path in scratch.iterdir())
            connection = _connect(scratch / DATABASE_NAME, "mode=ro")
        except OSError as error:
            shutil.rmtree(scratch, ignore_errors=True)
            raise UsageError(f"{folder} cannot be read: {error.strerror or error}.") from None
        return cls(folder, connection, nbytes, scratch)

    @classmethod
    def of_bytes(cls, path: Path, start: int, size: int) -> ReadDatabase:
        """The database that lies uncompressed in the file at `path`."""
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        try:
            with path.open("rb") as file, reading(path):
                page = start // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
                with (
                    mmap.mmap(
                        file.fileno(), start - page + size, access=mmap.ACCESS_COPY, offset=page
                    ) as whole,
                    memoryview(whole) as view,
                    view[start - page :] as content,
                ):
                    if bytes(content[18:20]) == b"\x02\x02":
                        # Written with a log that is empty by now, which a database in memory cannot have. The
                        # change stays in memory.
                        content[18:20] = b"\x01\x01"
                    connection.deserialize(content)
        except BaseException:
            connection.close()
            raise
        return cls(path, connection, size)

    def rows(self, sql: str, arguments: tuple[object, ...] = ()) -> Iterator[tuple[Any, ...]]:
        """The rows of a query, ended where it takes too long or gives more than the file can hold.

        Cells of a hostile file may share the pages that hold their values.
        """
        limit_time(self.connection)
        left = self.nbytes + _SLACK
        for row in self.connection.execute(sql, arguments):
            for value in row:
                left -= len(value) if isinstance(value, (bytes, str)) else 1
            if left < 0:
                raise ValueError("its database holds more than its size")
            yield row

    def close(self) -> None:
        """Let go of the file."""
        self._release()


def _release(connection: sqlite3.Connection, scratch: Path | None) -> None:
    connection.close()
    if scratch is not None:
        shutil.rmtree(scratch, ignore_errors=True)


def open_to_write(folder: Path) -> sqlite3.Connection:
    """The database of a folder, checked throughout, upgraded in place where it is older."""
    check_files(folder)
    connection = _connect(folder / DATABASE_NAME, "mode=rw")
    try:
        with reading(folder):
            _defend(connection)
            found = check_format(folder, connection)
            problem = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if problem != "ok":
                raise UsageError(f"{folder} is damaged: {problem}.")
            # Changing to a log rewrites one page, for which no journal is left behind that names paths.
            if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                connection.execute("PRAGMA journal_mode = MEMORY")
                connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            if found < FORMAT:
                connection.execute("BEGIN IMMEDIATE")
                _migrate(connection, found)
                connection.execute("COMMIT")
            connection.set_progress_handler(None, 0)
    except BaseException:
        connection.close()
        raise
    return connection


def finish(connection: sqlite3.Connection) -> None:
    """Bring everything into the one file, where no reader holds the log."""
    with suppress(sqlite3.Error):
        connection.execute("PRAGMA busy_timeout = 500")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("PRAGMA journal_mode = MEMORY")
    connection.close()


def check_format(path: Path, connection: sqlite3.Connection) -> int:
    """The version of the format; UsageError for another program's database, a newer version or a changed schema."""
    rows = connection.execute("SELECT type, name, sql FROM sqlite_master").fetchmany(64)
    objects = {name: sql for _, name, sql in rows}
    if objects.get("meta") != _META or ("table", "meta", _META) not in rows:
        raise UsageError(f"{path} is no session: its database is another program's.")
    text = get_meta(connection, "format") or ""
    if not (text.isascii() and text.isdigit() and len(text) < 9):
        raise UsageError(f"{path} is damaged: its format is {text[:20]!r}.")
    found = int(text)
    if found > FORMAT:
        raise UsageError(
            f"{path} has format {found}, of a newer version of the inspector; this one reads up to {FORMAT}: update it."
        )
    schema = SCHEMAS.get(found)
    if schema is None:
        raise UsageError(f"{path} has format {found}, which no version of the inspector wrote.")
    if len(rows) != len(schema) or any(kind != "table" for kind, _, _ in rows) or objects != schema:
        raise UsageError(
            f"{path} is not opened: its database has tables or triggers that no recording makes."
        )
    return found


def _connect(path: Path, options: str) -> sqlite3.Connection:
    uri = f"{Path(os.path.abspath(path)).as_uri()}?{options}"
    return sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)


def _defend(connection: sqlite3.Connection) -> None:
    """Make a hostile file harmless: nothing in it is run, no value or query goes beyond all bounds."""
    for limit, value in (
        (sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES),
        (sqlite3.SQLITE_LIMIT_SQL_LENGTH, 100_000),
        (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
        (sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 1),
    ):
        connection.setlimit(limit, value)
    defensive: Any = getattr(sqlite3, "SQLITE_DBCONFIG_DEFENSIVE", None)
    if defensive is not None:  # From Python 3.12 on.
        connection.setconfig(defensive, True)  # type: ignore[attr-defined]
    for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    limit_time(connection)


def limit_time(connection: sqlite3.Connection) -> None:
    """From now on, end a query that takes longer than any sound one."""
    deadline = time.monotonic() + QUERY_SECONDS
    connection.set_progress_handler(lambda: int(time.monotonic() > deadline), _OPERATIONS)


def _upgraded(connection: sqlite3.Connection, found: int) -> sqlite3.Connection:
    """A copy in memory of the present format: an older session that is read stays as it is."""
    memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    try:
        connection.backup(memory)
        _defend(memory)
        _migrate(memory, found)
    except BaseException:
        memory.close()
        raise
    return memory


def _migrate(connection: sqlite3.Connection, found: int) -> None:
    for version in range(found, FORMAT):
        MIGRATIONS[version](connection)
    set_meta(connection, "format", str(FORMAT))
