"""Files written so that a reader finds the old content or the whole new one, never a part."""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from inspector.errors import UsageError


def check_writable(path: Path) -> Path:
    """`path`, or UsageError where a file cannot be put there: for asking before any work is done for it."""
    target = _target(path)
    if not target.parent.is_dir():
        raise UsageError(f"{path} cannot be written: the folder {target.parent} does not exist.")
    if not os.access(target.parent, os.W_OK):
        raise UsageError(f"{path} cannot be written: the folder {target.parent} is read-only.")
    return path


def anything_at(path: Path) -> bool:
    """True where there is something at `path`, be it a link to nothing; UsageError where there never can be."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:
        shown = str(path) if len(str(path)) <= 100 else f"{str(path)[:100]}…"
        raise UsageError(f"{shown!r} cannot be used: {getattr(error, 'strerror', None) or error}.") from None
    return True


def named_files(spec: str) -> tuple[Path, ...]:
    """The files that a SOURCE names, several joined by +; () where there is no such file."""
    if anything_at(Path(spec)):
        return (Path(spec),)
    parts = spec.split("+")
    found: list[Path] = []
    begin = 0
    for end in range(1, len(parts) + 1):
        # A name may have a + of its own.
        path = Path("+".join(parts[begin:end]))
        if str(path) != "." and anything_at(path):
            found.append(path)
            begin = end
    return tuple(found) if begin == len(parts) else ()


def path_from(folder: Path, path: Path) -> str:
    """`path` as it is seen from `folder`, with "/" between its parts; in full where it lies on another drive."""
    to = os.path.abspath(path)
    try:
        return Path(os.path.relpath(to, os.path.abspath(folder))).as_posix()
    except ValueError:
        return to


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8 in the place of `path`; UsageError where that cannot be done."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to, which takes the place of `path` once the block ends without an exception.

    A link is followed; a folder or a device is refused. What is written lies in a folder of its own until then,
    which goes whatever happens; one that a killed process left behind goes with the next write of that file.
    UsageError where it cannot be written.
    """
    check_writable(path)
    target = _target(path)
    remove_abandoned(target)
    folder = target.parent / f".{target.name[:100]}.{os.getpid()}.part"
    try:
        folder.mkdir(mode=0o700)
        temporary = folder / "content"
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
        os.replace(temporary, target)
        _sync_folder(target.parent)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}.") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def making_folder(path: Path) -> Iterator[Path]:
    """A folder to write files into, which becomes `path` once the block ends without an exception.

    `path` must not exist, or be an empty folder; UsageError where it cannot be made.
    """
    check_folder_free(path)
    target = path.absolute()
    remove_abandoned(target)
    part = target.parent / f".{target.name[:100]}.{os.getpid()}.part"
    try:
        part.mkdir()
        yield part
        if target.is_dir():
            target.rmdir()
        os.replace(part, target)
        _sync_folder(target.parent)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}.") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)


def check_folder_free(path: Path) -> Path:
    """`path`, or UsageError where no new folder can be made there."""
    if not path.name:
        raise UsageError(f"{str(path)!r} names no folder.")
    try:
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise UsageError(f"{path} is a file, where a new folder is to be made: name another.")
        if path.is_dir() and any(path.iterdir()):
            raise UsageError(f"{path} is not empty: name a new folder.")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}.") from None
    parent = path.absolute().parent
    if not parent.is_dir():
        raise UsageError(f"{path} cannot be written: the folder {parent} does not exist.")
    if not os.access(parent, os.W_OK):
        raise UsageError(f"{path} cannot be written: the folder {parent} is read-only.")
    return path


def _target(path: Path) -> Path:
    """The regular file that `path` names or would name, links followed; UsageError for anything else."""
    if not path.name:
        raise UsageError(f"{str(path)!r} names no file.")
    try:
        target = path.resolve()
        mode = target.stat().st_mode
    except FileNotFoundError:
        return target
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{path} cannot be written: {reason}.") from None
    if stat.S_ISDIR(mode):
        raise UsageError(f"{path} is a folder: name a file.")
    if not stat.S_ISREG(mode):
        raise UsageError(f"{path} is no ordinary file: name another.")
    return target


def remove_abandoned(target: Path) -> None:
    """Remove what writers of this file left that were killed before they could."""
    pattern = re.compile(re.escape(f".{target.name[:100]}.") + r"(\d+)\.part")
    for entry in target.parent.iterdir():
        match = pattern.fullmatch(entry.name)
        if match and not _runs(int(match[1])):
            shutil.rmtree(entry, ignore_errors=True)


def is_part(name: str) -> bool:
    """True of what `replacing` writes in, which only a writer that was killed leaves behind."""
    return re.fullmatch(r"\..+\.\d+\.part", name) is not None


def _runs(pid: int) -> bool:
    if os.name != "posix":
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _sync_folder(folder: Path) -> None:
    """Make the new name durable where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
