"""The rows of a session as they are written, dropped when a run goes back, and taken up again after an interruption.

Nothing here begins or ends a transaction: what is written together is decided above.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from inspector.findings import Finding
from inspector.param_statistics import ParamTable
from inspector.session import jsonform, statistics_rows
from inspector.session.database import get_meta, set_meta
from inspector.session.records import (
    About,
    CaptureKind,
    Form,
    Note,
    RecordedLayout,
    RecordedStep,
    StoredFile,
)
from inspector.session.step_rows import HAS_STATISTICS, STEP, checksum, pack_step
from inspector.settings import ParamSettings

Numbers = tuple[
    dict[Any, int], dict[Any, int], dict[Any, int], dict[Any, int], "tuple[int, Note] | None", int
]


@dataclass(slots=True)
class RowWriter:
    """Writes rows, and remembers the numbers that it gave to forms, layouts, kernel names and maps of settings."""

    connection: sqlite3.Connection
    about: About
    _forms: dict[Any, int] = field(default_factory=dict)
    _kernels: dict[Any, int] = field(default_factory=dict)
    _layouts: dict[Any, int] = field(default_factory=dict)
    _maps: dict[Any, int] = field(default_factory=dict)
    _last_map: tuple[tuple[int, ...], int] | None = None
    """The one that the last step had, and its number: it is seldom another one."""
    _same: RecordedLayout | None = None
    """The last layout that was found to be the one it began with."""
    _gap: tuple[int, Note] | None = None
    _found: int = 0
    _places: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._places = {p.name: i for i, p in enumerate(self.about.params)}

    def numbers(self) -> Numbers:
        """What it remembers, for `restore` where the transaction is rolled back."""
        known = (self._forms, self._kernels, self._layouts, self._maps)
        forms, kernels, layouts, maps = map(dict, known)
        return forms, kernels, layouts, maps, self._gap, self._found

    def restore(self, numbers: Numbers) -> None:
        """Remember what `numbers` gave."""
        self._forms, self._kernels, self._layouts, self._maps, self._gap, self._found = numbers
        self._last_map = None

    # --- forward

    def step(self, step: RecordedStep, statistics: ParamTable | None, findings: tuple[Finding, ...]) -> None:
        """A step with its statistics and findings."""
        names = [self._number(self._kernels, "kernels", (k.name, k.block)) for k in step.kernels]
        form = self._number(self._forms, "forms", Form(step.variant, self._layout(step.layout)))
        self._found += len(findings)
        own = step.hyper.per_param
        row = pack_step(
            step, form, names, findings=self._found, statistics=statistics is not None,
            settings_map=None if own is None else self._map(own),
        )  # fmt: skip
        self._insert("steps", step.step, row)
        if statistics is not None:
            self._insert("statistics", step.step, statistics_rows.pack(statistics, self._places))
        for finding in findings:
            self._insert_event("findings", finding.step, jsonform.to_text(finding))

    def params_added(self, about: About) -> None:
        """The recording is of more params from here on; who follows is told."""
        self.about = about
        self._places = {p.name: i for i, p in enumerate(about.params)}
        set_meta(self.connection, "about", jsonform.to_text(about))
        self.renew()

    def note(self, note: Note) -> None:
        """A note; a gap of the step after a gap makes that one longer."""
        before = self._gap
        if note.kind != "gap":
            self._insert_event("notes", note.step, jsonform.to_text(note))
        elif before and before[1].text == note.text and note.step == (before[1].last or before[1].step) + 1:
            number, longer = before[0], replace(before[1], last=note.last or note.step)
            self._replace_note(number, longer)
            self._gap = number, longer
        else:
            self._gap = self._insert_event("notes", note.step, jsonform.to_text(note)), note

    def file(self, number: int, file: StoredFile) -> None:
        """A tensor file that is complete and durable."""
        self._insert("files", number, jsonform.to_text(file))

    def capture(self, number: int, step: int, kind: CaptureKind) -> None:
        """A capture that lies in file `number`."""
        crc = checksum("captures", f"{step}:{kind}", str(number))
        self.connection.execute("INSERT INTO captures VALUES (?, ?, ?, ?)", (step, kind, number, crc))

    def drop_capture(self, step: int, kind: str) -> None:
        """Forget a capture; the file stays, for it may hold others."""
        self.connection.execute("DELETE FROM captures WHERE step = ? AND kind = ?", (step, kind))

    def renew(self) -> None:
        """Tell those who follow that what they have read may have changed."""
        before = int(get_meta(self.connection, "generation") or 0)
        set_meta(self.connection, "generation", str(before + 1))

    # --- back

    def drop_after(self, step: int) -> list[str]:
        """Delete what is later than `step`; returns the names of the tensor files that no row needs any more."""
        run = self.connection.execute
        self._gap = None
        for table in ("steps", "statistics", "findings", "captures"):
            run(f"DELETE FROM {table} WHERE step > ?", (step,))
        (self._found,) = run("SELECT count(*) FROM findings").fetchone()
        # A mark of the next step stays, since the run goes on there; a gap is cut.
        run("DELETE FROM notes WHERE step > ?", (step + 1,))
        gaps = run('SELECT id, data FROM notes WHERE data LIKE \'{"kind":"gap"%\'').fetchall()
        for number, data in gaps:
            note = jsonform.from_text(Note, data)
            if note.step > step:
                run("DELETE FROM notes WHERE id = ?", (number,))
            elif (note.last or note.step) > step:
                self._replace_note(number, replace(note, last=step))
        unused = run("SELECT id, data FROM files WHERE id NOT IN (SELECT file FROM captures)").fetchall()
        for number, _ in unused:
            run("DELETE FROM files WHERE id = ?", (number,))
        return [jsonform.from_text(StoredFile, data).name for _, data in unused]

    # --- after an interruption

    def load(self) -> int:
        """Remember what is there; returns the last step up to which every row is sound."""
        for known, table, kind in (
            (self._forms, "forms", Form),
            (self._layouts, "layouts", RecordedLayout),
            (self._maps, "maps", tuple[int, ...]),
            (self._kernels, "kernels", tuple[str, str | None]),
        ):
            for number, data, crc in self.connection.execute(
                f"SELECT id, data, crc FROM {table} ORDER BY id"
            ):
                if number != len(known) or crc != checksum(table, number, data):
                    raise ValueError(f"row {len(known)} of {table} is missing or does not match its checksum")
                known[jsonform.from_text(kind, data)] = number
        last = self.about.finished_steps
        counted = {step for (step,) in self.connection.execute("SELECT step FROM statistics")}
        for step, data, crc in self.connection.execute("SELECT step, data, crc FROM steps ORDER BY step"):
            sound = step == last + 1 and isinstance(data, bytes) and crc == checksum("steps", step, data)
            if not sound or len(data) < STEP.itemsize:
                break
            has = int.from_bytes(data[STEP.itemsize - 2 : STEP.itemsize], "little")
            if has & HAS_STATISTICS and step not in counted:
                break
            last = step
        return last

    def load_captures(
        self, is_there: Callable[[StoredFile], bool]
    ) -> tuple[dict[int, StoredFile], set[tuple[int, CaptureKind]]]:
        """The tensor files by number, and the captures in them; entries whose file is lost are dropped with a note."""
        run = self.connection.execute
        files: dict[int, StoredFile] = {}
        for number, data, crc in run("SELECT id, data, crc FROM files ORDER BY id").fetchall():
            file = jsonform.from_text(StoredFile, data)
            if crc == checksum("files", number, data) and is_there(file):
                files[number] = file
            else:
                run("DELETE FROM files WHERE id = ?", (number,))
        captures: set[tuple[int, CaptureKind]] = set()
        for step, kind, number, crc in run("SELECT * FROM captures ORDER BY kind, step").fetchall():
            if number in files and crc == checksum("captures", f"{step}:{kind}", str(number)):
                captures.add((step, kind))
            else:
                run("DELETE FROM captures WHERE step = ? AND kind = ?", (step, kind))
                self.note(Note("gap", step, f"{kind} lost, the file is missing or cut off"))
        return files, captures

    # --- inner parts

    def _insert(self, table: str, key: int, data: bytes | str) -> None:
        row = (key, data, checksum(table, key, data))
        self.connection.execute(f"INSERT INTO {table} VALUES (?, ?, ?)", row)

    def _insert_event(self, table: str, step: int, data: str) -> int:
        (last,) = self.connection.execute(f"SELECT max(id) FROM {table}").fetchone()
        number = int(last or 0) + 1
        row = (number, step, data, checksum(table, f"{number}:{step}", data))
        self.connection.execute(f"INSERT INTO {table} VALUES (?, ?, ?, ?)", row)
        return number

    def _replace_note(self, number: int, note: Note) -> None:
        data = jsonform.to_text(note)
        crc = checksum("notes", f"{number}:{note.step}", data)
        self.connection.execute("UPDATE notes SET data = ?, crc = ? WHERE id = ?", (data, crc, number))

    def _map(self, settings: ParamSettings) -> int:
        """The number of the map that says which class each param is of; ValueError where the settings do not fit."""
        settings.check(len(self.about.params))
        if self._last_map is None or self._last_map[0] is not settings.of:
            self._last_map = settings.of, self._number(self._maps, "maps", settings.of)
        return self._last_map[1]

    def _layout(self, layout: RecordedLayout | None) -> int | None:
        """Its number, None for the one that the session began with; compared once, as long as it is."""
        if layout is None or layout is self._same:
            return None
        if layout == self.about.layout:
            self._same = layout
            return None
        return self._number(self._layouts, "layouts", layout)

    def _number(self, known: dict[Any, int], table: str, value: Any) -> int:
        number = known.get(value)
        if number is None:
            number = known[value] = len(known)
            self._insert(table, number, jsonform.to_text(value))
        return number
