"""A session as one zip file, its members stored as they are, so that it opens in place."""

from __future__ import annotations

import sqlite3
import zipfile
from pathlib import Path

from inspector.errors import UsageError
from inspector.files import replacing
from inspector.session.bookmarks import FILE_NAME
from inspector.session.database import DATABASE_NAME, reading
from inspector.session.ranks_file import RANKS_NAME, ranks_text
from inspector.session.reader import Session


def pack(path: Path, out: Path | None = None) -> Path:
    """Write the session in the folder `path` as `out`, NAME.session.zip beside it by default; returns where it is.

    Every tensor file is held against its checksum on the way. UsageError where it is damaged, or still recorded.
    """
    out = out or path.with_name(f"{path.name}.zip")
    with Session.open(path) as session:
        if session.state == "recording":
            raise UsageError(f"{path} is still being recorded: pack it once that has ended.")
        if not path.is_dir():
            raise UsageError(f"{path} is no folder: it is packed already.")
        with replacing(out) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
            if session.ranks:
                archive.writestr(RANKS_NAME, ranks_text(len(session.ranks)))
            for rank in session.ranks:
                _add_session(archive, rank, temporary, f"{rank.path.name}/")
            if not session.ranks:
                _add_session(archive, session, temporary, "")
            if (path / FILE_NAME).is_file():
                session.bookmarks()
                archive.write(path / FILE_NAME, FILE_NAME)
    return out


def _add_session(archive: zipfile.ZipFile, session: Session, temporary: Path, folder: str) -> None:
    """The database and the tensor files, below `folder`; `temporary` is the zip file, beside which there is room."""
    copy = temporary.with_name(DATABASE_NAME)
    with reading(session.path):
        database = sqlite3.connect(copy)
        try:
            session.copy_database(database)
            database.execute("PRAGMA journal_mode = DELETE")
        finally:
            database.close()
    archive.write(copy, f"{folder}{DATABASE_NAME}")
    copy.unlink()
    for file in session.files():
        session.check(file)
        name = f"{folder}{file.name}"
        archive.write(session.path / file.name, name)
        if file.crc32 != archive.getinfo(name).CRC:
            raise UsageError(f"{session.path} is damaged: {file.name} does not match its checksum.")
