"""The tensor files of a recording: what they are numbered by, which captures they hold, and the writing of more."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path, PurePosixPath

from inspector.session.records import CaptureKind, StoredFile
from inspector.session.tensor_store import MAX_TENSORS, Capture, write_file

MAX_FILE_BYTES = 256 << 20
"""Captures are put in one file up to so many bytes; a larger one has a file of its own."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor file that is complete and durable, and the captures in it by step and kind."""

    file: StoredFile
    captures: tuple[tuple[int, CaptureKind], ...]


class TensorFiles:
    """Writes captures below a session's folder, each once. `shapes` are those of the params.

    Two threads may write at a time; nothing else goes on meanwhile.
    """

    def __init__(self, path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
        self.shapes = shapes
        self._path = path
        self._captured: set[tuple[int, CaptureKind]] = set()
        self._serial = 0
        """The number in the name of the last file."""
        self._lock = threading.Lock()

    def write(self, captures: Iterable[Capture]) -> list[Stored]:
        """Write those that were not written before; all of them, or OSError and none."""
        stored: list[Stored] = []
        new: list[Capture] = []
        try:
            new = self._claim(captures)
            for group in _grouped(new):
                with self._lock:
                    self._serial += 1
                    serial = self._serial
                file = write_file(self._path, serial, group, self.shapes)
                stored.append(Stored(file, tuple((capture.step, capture.kind) for capture in group)))
        except BaseException:
            self.remove(stored)
            with self._lock:
                self._captured.difference_update((capture.step, capture.kind) for capture in new)
            raise
        return stored

    def remove(self, stored: Sequence[Stored]) -> None:
        """Delete files that are in no index."""
        for each in stored:
            (self._path / each.file.name).unlink(missing_ok=True)
            with self._lock:
                self._captured.difference_update(each.captures)

    def take_up(self, names: Iterable[str], captured: Iterable[tuple[int, CaptureKind]]) -> None:
        """These are there of a recording that is gone on with."""
        self._serial = max((_serial(name) for name in names), default=0)
        self._captured = set(captured)

    def forget(self, step: int, kind: CaptureKind) -> None:
        """A capture is none any more: one that takes its place is written."""
        self._captured.discard((step, kind))

    def forget_after(self, step: int) -> None:
        """So are all of steps after `step`."""
        self._captured = {(at, kind) for at, kind in self._captured if at <= step}

    def _claim(self, captures: Iterable[Capture]) -> list[Capture]:
        """Those that are new, the last of each step and kind."""
        with self._lock:
            found = {
                (capture.step, capture.kind): capture
                for capture in captures
                if (capture.step, capture.kind) not in self._captured
            }
            self._captured |= found.keys()
        return list(found.values())


def _serial(name: str) -> int:
    return int(PurePosixPath(name).name.split("-")[0])


def _grouped(captures: Sequence[Capture]) -> list[list[Capture]]:
    """Captures of one kind that follow each other, up to MAX_FILE_BYTES and MAX_TENSORS a group."""
    groups: list[list[Capture]] = []
    ordered = sorted(captures, key=lambda c: (c.kind, c.step))
    for _, same in groupby(ordered, key=lambda c: c.kind):
        size, count = MAX_FILE_BYTES + 1, 0
        for capture in same:
            size, count = size + capture.nbytes, count + len(capture.tensors)
            if size > MAX_FILE_BYTES or count > MAX_TENSORS:
                groups.append([])
                size, count = capture.nbytes, len(capture.tensors)
            groups[-1].append(capture)
    return groups
