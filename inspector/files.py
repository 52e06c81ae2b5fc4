"""Text files written so that a reader finds the old content or the whole new one, never a part."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from inspector.errors import UsageError


def check_writable(path: Path) -> Path:
    """`path`, or UsageError where a file cannot be put there: for asking before any work is done for it."""
    if not path.parent.is_dir():
        raise UsageError(f"{path} cannot be written: the folder {path.parent} does not exist.")
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    except OSError as error:
        raise _cannot(path, error) from None
    if stat.S_ISDIR(mode):
        raise UsageError(f"{path} is a folder: name a file.")
    if not stat.S_ISREG(mode):
        raise UsageError(f"{path} is no ordinary file: name another.")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"{path} cannot be written: the folder {path.parent} is read-only.")
    return path


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8 in the place of `path`; UsageError where that cannot be done."""
    try:
        handle, temporary = tempfile.mkstemp(prefix=".inspector-", suffix=".part", dir=path.parent)
    except OSError as error:
        raise _cannot(path, error) from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except OSError as error:
        raise _cannot(path, error) from None
    finally:
        Path(temporary).unlink(missing_ok=True)


def _cannot(path: Path, error: OSError) -> UsageError:
    return UsageError(f"{path} cannot be written: {error.strerror or error}.")
