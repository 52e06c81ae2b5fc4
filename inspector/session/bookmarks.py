"""Bookmarks of a person: a step and a note, kept in a small file beside the database of a session."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from inspector.errors import UsageError
from inspector.files import write_text
from inspector.session.places import Places
from inspector.session.records import Note

FILE_NAME = "bookmarks.json"
MAX_BYTES = 1 << 20
MAX_BOOKMARKS = 1000
MAX_TEXT = 500


@dataclass(frozen=True, slots=True, order=True)
class Bookmark:
    """A note at a step."""

    step: int
    text: str


class Bookmarks:
    """Those of one session, one a step, in order. Without a folder they are kept in memory alone."""

    def __init__(self, found: tuple[Bookmark, ...] = (), folder: Path | None = None) -> None:
        self._found = {each.step: each for each in sorted(found)}
        self.folder = folder

    @classmethod
    def of(cls, places: Places, recorded: Iterable[Note] = ()) -> Bookmarks:
        """Those of the session at `places`: of their file, or as `recorded` where there is none.

        UsageError where the file is not one of bookmarks, which is left alone.
        """
        folder = places.path if places.path.is_dir() else None
        data = places.small_file(FILE_NAME, MAX_BYTES)
        if data is None:
            return cls(tuple(Bookmark(note.step, note.text) for note in recorded), folder)
        return cls(_parsed(data, places.path / FILE_NAME), folder)

    @property
    def all(self) -> tuple[Bookmark, ...]:
        """By step."""
        return tuple(self._found[step] for step in sorted(self._found))

    def set(self, step: int, text: str) -> None:
        """Put a bookmark there in place of any other, or take it away where the text is empty.

        UsageError where there are too many; or where the file cannot be written, the bookmark then being kept in
        memory.
        """
        text = " ".join(text.split())[:MAX_TEXT]
        if not text:
            self._found.pop(step, None)
        elif step not in self._found and len(self._found) >= MAX_BOOKMARKS:
            raise UsageError(
                f"There are {MAX_BOOKMARKS:,} bookmarks, which is all there can be: remove one first."
            )
        else:
            self._found[step] = Bookmark(step, text)
        self.save()

    def keep_in(self, folder: Path) -> None:
        """Keep them in that session's folder from now on."""
        self.folder = folder
        if self._found:
            self.save()

    def save(self) -> None:
        """Write the file, whole or not at all."""
        if self.folder is None:
            return
        path = self.folder / FILE_NAME
        if path.is_symlink():
            raise UsageError(f"{path} is a link: bookmarks are kept in an ordinary file, remove the link.")
        document = {"bookmarks": [{"step": each.step, "text": each.text} for each in self.all]}
        write_text(path, json.dumps(document, ensure_ascii=False, indent=1) + "\n")


def _parsed(data: bytes, path: Path) -> tuple[Bookmark, ...]:
    try:
        items = json.loads(data.decode("utf-8"))["bookmarks"]
        found = tuple(Bookmark(each["step"], each["text"]) for each in items[: MAX_BOOKMARKS + 1])
        sound = len(found) <= MAX_BOOKMARKS and all(
            type(each.step) is int and 0 <= each.step < 1 << 62 and type(each.text) is str for each in found
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        sound, found = False, ()
    if not sound:
        raise UsageError(
            f"{path} holds no bookmarks as this program writes them: move it away to set new ones."
        )
    return tuple(Bookmark(each.step, each.text[:MAX_TEXT]) for each in found)
