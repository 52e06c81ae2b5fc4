"""Who records: a lock on a file of the session's folder, which the system lets go of when its holder dies."""

from __future__ import annotations

import os
import stat
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

LOCK_NAME = "recording.lock"
PATIENCE_S = 1.0
"""A reader that looks whether a recording is alive holds the lock for an instant."""

if sys.platform == "win32":
    import msvcrt

    def _try(file: IO[bytes], *, shared: bool) -> bool:
        file.seek(1 << 20)  # Beyond the text, so that others can read it.
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try(file: IO[bytes], *, shared: bool) -> bool:
        # flock, not lockf: a lock of the open file, so that a reader in the same process sees it as well.
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return True  # A file system without locks: nobody can be told from the others.
        return True


class RecordingLock:
    """Held while a session is written to."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    @classmethod
    def take(cls, folder: Path) -> RecordingLock | None:
        """The lock of the session in `folder`, None where somebody else holds it; OSError where it has no place."""
        path = folder / LOCK_NAME
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        file = os.fdopen(os.open(path, flags, 0o666), "r+b", buffering=0)
        deadline = time.monotonic() + PATIENCE_S
        while not _try(file, shared=False):
            if time.monotonic() > deadline:
                file.close()
                return None
            time.sleep(0.01)
        file.seek(0)
        file.truncate()
        file.write(f"recorded by process {os.getpid()}\n".encode())
        return cls(file)

    def release(self) -> None:
        """Let go of it."""
        self._file.close()


def is_recording(folder: Path) -> bool:
    """True where a living process writes to the session in `folder`."""
    path = folder / LOCK_NAME
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return False
        with path.open("rb", buffering=0) as file:
            return not _try(file, shared=True)
    except OSError:
        return False


def recorder_pid(folder: Path) -> int | None:
    """The process that last took the lock, as far as the file says."""
    with suppress(OSError, ValueError), (folder / LOCK_NAME).open("rb") as file:
        return int(file.read(64).rpartition(b" ")[2])
    return None
