"""Where a new session may be put: at a place where nothing is, and not inside of another."""

from __future__ import annotations

from pathlib import Path

from inspector.errors import UsageError
from inspector.files import anything_at, check_writable
from inspector.session.places import TOP_NAMES
from inspector.session.race_file import is_race, kind_of


def check_new(path: Path, *, lane_of: Path | None = None) -> None:
    """UsageError where no new session can be made at `path`; a lane may lie in its own race, `lane_of`."""
    if anything_at(path):
        what = f", it is a saved {kind_of(path)}" if is_race(path) else ""
        raise UsageError(f"{path} exists{what}: name another session.")
    check_outside(path, lane_of=lane_of)
    check_writable(path)


def check_outside(path: Path, *, lane_of: Path | None = None) -> None:
    """UsageError where `path` lies inside a session, a race or a sweep other than `lane_of`."""
    own = None if lane_of is None else lane_of.absolute()
    for folder in path.absolute().parents:
        if folder != own and any((folder / name).exists() for name in TOP_NAMES):
            what = f"saved {kind_of(folder)}" if is_race(folder) else "session"
            raise UsageError(f"{path} lies inside the {what} {folder}: name a place outside of it.")
