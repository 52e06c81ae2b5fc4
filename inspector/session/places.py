"""Where the parts of a session lie: files of a folder, or stored members of one zip file."""

from __future__ import annotations

import stat
import struct
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from inspector.errors import UsageError
from inspector.session import ranks_file
from inspector.session.database import DATABASE_NAME, ReadDatabase
from inspector.session.lock import is_recording
from inspector.session.race_file import RACE_NAME, is_race, kind_of, lane_folder
from inspector.session.ranks_file import RANKS_NAME
from inspector.session.records import StoredFile
from inspector.session.tensor_store import FOLDER, NAME

MAX_DIRECTORY_BYTES = 32 << 20
"""Of a zip file's list of members."""

TOP_NAMES = (DATABASE_NAME, RANKS_NAME, RACE_NAME)
"""What lies at the top of a session: of one process, of several, of a race, whose lanes are sessions in it."""
_ZIP_BEGINS = b"PK\x03\x04"
_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR64 = struct.Struct("<4sIQI")
_MEMBER = struct.Struct("<4s6H3I5H2I")
_LOCAL = struct.Struct("<4s5H3I2H")


@dataclass(frozen=True, slots=True)
class Place:
    """Bytes [start, start + size) of the file at `path`."""

    path: Path
    start: int
    size: int


class Places(Protocol):
    """What a session is read from."""

    @property
    def path(self) -> Path: ...
    @property
    def recording(self) -> bool:
        """True where a living process writes to it."""
        ...

    @property
    def signature(self) -> tuple[int, ...]:
        """Changes when the database's file does."""
        ...

    def database(self) -> ReadDatabase: ...
    def place(self, file: StoredFile) -> Place:
        """Where a tensor file lies; UsageError where it is missing or has another size."""
        ...

    def small_file(self, name: str, most: int) -> bytes | None:
        """What a file beside the database holds, None where it is missing; UsageError where it is over `most` bytes."""
        ...

    def ranks(self) -> tuple[str, ...] | None:
        """The sessions of several processes that lie here, by rank; None where it is one session itself."""
        ...

    def within(self, name: str) -> Places:
        """The places of one of them; UsageError where it is missing."""
        ...

    def nbytes(self) -> int:
        """Bytes of all files."""
        ...


def open_places(path: Path) -> Places:
    """The folder or the zip file at `path`; UsageError for anything else."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    if stat.S_ISDIR(mode):
        if is_race(path):
            kind = kind_of(path)
            each = "run" if kind == "sweep" else "lane"
            raise UsageError(
                f"{path} is a {kind}, which has a session for each {each}: name one of them, as in "
                f"{path / lane_folder(0)}, or open all in the window."
            )
        return FolderPlaces(path)
    if not stat.S_ISREG(mode):
        raise UsageError(f"{path} is no session: it is no folder and no ordinary file.")
    return ZipPlaces(path)


class FolderPlaces:
    """A session's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def recording(self) -> bool:
        """True where a living process writes to it."""
        return is_recording(self.path)

    @property
    def signature(self) -> tuple[int, ...]:
        """Size and time of the database's file."""
        try:
            status = (self.path / DATABASE_NAME).stat()
        except OSError:
            return ()
        return status.st_size, status.st_mtime_ns, status.st_ino

    def database(self) -> ReadDatabase:
        """Opened to read."""
        return ReadDatabase.of_folder(self.path, live=self.recording)

    def place(self, file: StoredFile) -> Place:
        """Where a tensor file lies: an ordinary file inside the folder, reached through no link."""
        _check_name(self.path, file.name)
        path = self.path / file.name
        try:
            for folder in (self.path / FOLDER, path.parent):
                if not stat.S_ISDIR(folder.lstat().st_mode):
                    raise UsageError(f"{folder} is no folder: nothing is read from it.")
            status = path.lstat()
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from None
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"{path} is no ordinary file: nothing is read from it.")
        if status.st_size != file.size:
            raise UsageError(
                f"{path} is damaged: it has {status.st_size:,} bytes, {file.size:,} were written."
            )
        return Place(path, 0, file.size)

    def small_file(self, name: str, most: int) -> bytes | None:
        """What a file beside the database holds, None where it is missing; UsageError where it is over `most` bytes."""
        path = self.path / name
        try:
            status = path.lstat()
            if not stat.S_ISREG(status.st_mode):
                raise UsageError(f"{path} is no ordinary file: nothing is read from it.")
            if status.st_size > most:
                raise UsageError(f"{path} is damaged: it has {status.st_size:,} bytes.")
            with path.open("rb") as file:
                return file.read(most)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from None

    def ranks(self) -> tuple[str, ...] | None:
        """The sessions of several processes in it, by rank; None where it is one session itself."""
        if (self.path / DATABASE_NAME).exists():
            return None
        data = self.small_file(RANKS_NAME, ranks_file.MAX_BYTES)
        return None if data is None else ranks_file.parse(data, self.path)

    def within(self, name: str) -> FolderPlaces:
        """The places of one of them; UsageError where it is missing, or a link."""
        path = self.path / name
        if path.is_symlink() or not path.is_dir():
            raise UsageError(
                f"{self.path} is of several processes, and {name} is missing in it: put it beside the others, or wait "
                "until that process has begun to record."
            )
        return FolderPlaces(path)

    def nbytes(self) -> int:
        """Bytes of all files in it."""
        ranks = self.ranks()
        if ranks is not None:
            return sum(FolderPlaces(self.path / name).nbytes() for name in ranks)
        found = (self.path.glob(f"{DATABASE_NAME}*"), (self.path / FOLDER).glob("*/*.safetensors"))
        return sum(path.lstat().st_size for paths in found for path in paths)


class ZipPlaces:
    """A zip file of a session's folder, its members stored as they are."""

    recording = False
    signature = ()

    def __init__(self, path: Path) -> None:
        self.path = path
        self._folder = ""
        try:
            self._size = path.stat().st_size
            self._members = self._directory()
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from None
        except (struct.error, ValueError, OverflowError) as error:
            raise UsageError(f"{path} is no session: it is a damaged zip file ({error}).") from None
        tops = [name[: -len(top)] for name in self._members for top in TOP_NAMES if _is_called(name, top)]
        if not tops:
            raise UsageError(f"{path} is no session: the zip file holds no {DATABASE_NAME}.")
        self._folder = min(tops, key=len)

    def ranks(self) -> tuple[str, ...] | None:
        """The sessions of several processes in it, by rank; None where it is one session itself."""
        if self._folder + DATABASE_NAME in self._members:
            return None
        data = self.small_file(RANKS_NAME, ranks_file.MAX_BYTES)
        return None if data is None else ranks_file.parse(data, self.path)

    def within(self, name: str) -> ZipPlaces:
        """The places of one of them; UsageError where it is missing."""
        inner = copy(self)
        inner._folder = f"{self._folder}{name}/"
        if inner._folder + DATABASE_NAME not in self._members:
            raise UsageError(
                f"{self.path} is of several processes, and {name} is missing in it: pack it again."
            )
        return inner

    def database(self) -> ReadDatabase:
        """Opened to read, in memory."""
        if self._members.get(f"{self._folder}{DATABASE_NAME}-wal", (0, 0))[1]:
            raise UsageError(
                f"{self.path} holds the log of a recording that had not ended: unpack it, open the folder."
            )
        place = self._place(self._folder + DATABASE_NAME)
        return ReadDatabase.of_bytes(self.path, place.start, place.size)

    def place(self, file: StoredFile) -> Place:
        """Where a tensor file lies in the zip file."""
        _check_name(self.path, file.name)
        place = self._place(self._folder + file.name)
        if place.size != file.size:
            raise UsageError(
                f"{self.path} is damaged: {file.name} has {place.size:,} bytes, {file.size:,} were written."
            )
        return place

    def small_file(self, name: str, most: int) -> bytes | None:
        """What a member beside the database holds, None where it is missing; UsageError where it is over `most`
        bytes."""
        if self._folder + name not in self._members:
            return None
        place = self._place(self._folder + name)
        if place.size > most:
            raise UsageError(f"{self.path} is damaged: {name} has {place.size:,} bytes.")
        try:
            with self.path.open("rb") as file:
                file.seek(place.start)
                return file.read(place.size)
        except OSError as error:
            raise UsageError(f"{self.path} cannot be read: {error.strerror or error}.") from None

    def nbytes(self) -> int:
        """Bytes of the zip file."""
        return self._size

    def _place(self, name: str) -> Place:
        if name not in self._members:
            raise UsageError(f"{self.path} is damaged: {name} is missing in it.")
        header, size = self._members[name]
        try:
            with self.path.open("rb") as file:
                file.seek(header)
                fields = _LOCAL.unpack(file.read(_LOCAL.size))
        except (OSError, struct.error, ValueError, OverflowError) as error:
            raise UsageError(f"{self.path} is damaged: {name} cannot be read ({error}).") from None
        start = header + _LOCAL.size + fields[-2] + fields[-1]
        if fields[0] != _ZIP_BEGINS or start + size > self._size:
            raise UsageError(f"{self.path} is damaged: {name} is not where its list of members says.")
        return Place(self.path, start, size)

    def _directory(self) -> dict[str, tuple[int, int]]:
        """Where each member's header lies, and its size in bytes."""
        with self.path.open("rb") as file:
            tail_at = max(self._size - 66_000, 0)
            file.seek(tail_at)
            tail = file.read(66_000)
            at = tail.rfind(b"PK\x05\x06")
            if at < 0:
                file.seek(0)
                if file.read(len(_ZIP_BEGINS)) == _ZIP_BEGINS:
                    raise UsageError(
                        f"{self.path} is cut off: its list of members is missing, which ends a zip file. "
                        "Copy it again."
                    )
                raise UsageError(f"{self.path} is no session: it is neither a folder nor a zip file of one.")
            _, _, _, _, count, size, start, _ = _END.unpack_from(tail, at)
            if count == 0xFFFF or 0xFFFF_FFFF in (size, start):
                _, _, where, _ = _LOCATOR64.unpack_from(tail, at - _LOCATOR64.size)
                file.seek(where)
                size, start = _END64.unpack(file.read(_END64.size))[-2:]
            if size > MAX_DIRECTORY_BYTES or start + size > self._size:
                raise ValueError("its list of members is too long")
            file.seek(start)
            directory = file.read(size)
        members: dict[str, tuple[int, int]] = {}
        at = 0
        while at < len(directory):
            fields = _MEMBER.unpack_from(directory, at)
            signature, flags, method = fields[0], fields[3], fields[4]
            packed, size, name_bytes, extra_bytes, comment_bytes = fields[8:13]
            header = fields[16]
            if signature != b"PK\x01\x02":
                raise ValueError("its list of members is broken")
            at += _MEMBER.size
            name = directory[at : at + name_bytes].decode("utf-8")
            extra = directory[at + name_bytes : at + name_bytes + extra_bytes]
            at += name_bytes + extra_bytes + comment_bytes
            packed, size, header = _wide(extra, size, packed, header)
            if not (
                _is_called(name.removesuffix("-wal"), DATABASE_NAME)
                or name.endswith((".safetensors", ".json"))
            ):
                continue
            if method or flags & 1 or packed != size:
                raise UsageError(
                    f"{self.path} is compressed or encrypted, so that nothing can be read in place: unpack it, or "
                    "pack it with inspector pack."
                )
            if name in members:
                raise ValueError(f"{name} stands in it twice")
            members[name] = header, size
        return members


def _wide(extra: bytes, size: int, packed: int, header: int) -> tuple[int, int, int]:
    """Packed size, size and place of the header: those that do not fit in 32 bits stand in the zip64 field."""
    values = [size, packed, header]
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, at)
        if kind == 1:
            wide = iter(struct.unpack_from(f"<{length // 8}Q", extra, at + 4))
            values = [next(wide, 0) if value == 0xFFFF_FFFF else value for value in values]
        at += 4 + length
    return values[1], values[0], values[2]


def _is_called(name: str, end: str) -> bool:
    return name == end or name.endswith(f"/{end}")


def _check_name(path: Path, name: str) -> None:
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{path} is damaged: its index names a file {name[:80]!r}, which no recording writes."
        )
