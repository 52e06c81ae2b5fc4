"""Damages sessions in numbered ways and opens each; run as a process of its own, with its memory bounded.

    python session_damage.py WORK FROM TO

Prints a line of JSON for every one: what was done to it and what came of it. Ends with a code that is not 0 where any
was opened with a wrong number, took more memory than it may, or raised anything but one sentence.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import struct
import sys
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from recordings import NAMES, finding, recorded, state, table, values

from inspector.errors import UsageError
from inspector.session import database, jsonform
from inspector.session.reader import Session
from inspector.session.records import StoredFile
from inspector.session.step_rows import checksum

SECONDS = 30
EXTRA_BYTES = 200 << 20
LANES = ("w", "g", "m", "v")

# --- damage by chance: every number that is still shown has to be right


def any_file(folder: Path, rng: random.Random) -> Path:
    files = sorted(
        p for p in folder.rglob("*") if p.is_file() and p.stat().st_size and p.name != "recording.lock"
    )
    databases = [p for p in files if p.name.startswith("session.sqlite")]
    return rng.choice(databases if rng.random() < 0.5 else files)


def truncate(folder: Path, rng: random.Random) -> str:
    path = any_file(folder, rng)
    size = rng.randrange(path.stat().st_size)
    os.truncate(path, size)
    return f"{path.name} cut to {size}"


def flip(folder: Path, rng: random.Random) -> str:
    path = any_file(folder, rng)
    raw = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 1, 3, 40))):
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    path.write_bytes(raw)
    return f"bits of {path.name}"


def overwrite(folder: Path, rng: random.Random) -> str:
    path = any_file(folder, rng)
    raw = bytearray(path.read_bytes())
    start, length = rng.randrange(len(raw)), rng.choice((1, 8, 100, 8192))
    raw[start : start + length] = rng.choice((rng.randbytes, bytes))(min(length, len(raw) - start))
    path.write_bytes(raw)
    return f"{length} bytes of {path.name}"


def remove(folder: Path, rng: random.Random) -> str:
    path = any_file(folder, rng)
    path.unlink()
    return f"{path.name} removed"


def swap(folder: Path, rng: random.Random) -> str:
    a, b = rng.sample(sorted(folder.glob("tensors/*/*")), 2)
    one, other = a.read_bytes(), b.read_bytes()
    a.write_bytes(other)
    b.write_bytes(one)
    return "two tensor files swapped"


def append(folder: Path, rng: random.Random) -> str:
    path = any_file(folder, rng)
    with path.open("ab") as file:
        file.write(rng.randbytes(rng.choice((1, 100, 100_000))))
    return f"{path.name} longer"


def foreign(folder: Path, rng: random.Random) -> str:
    path = any_file(folder, rng)
    other = folder.parent / "other.sqlite"
    other.unlink(missing_ok=True)
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE places (url TEXT)")
    connection.commit()
    connection.close()
    path.write_bytes(
        rng.choice(
            (b"\x89PNG\r\n\x1a\n" + bytes(500), b"hello\n", b"", rng.randbytes(5000), other.read_bytes())
        )
    )
    other.unlink()
    return f"{path.name} is another program's"


def rows_gone(folder: Path, rng: random.Random) -> str:
    name = rng.choice(sorted(set(database.SCHEMAS[database.FORMAT]) - {"meta"}))
    with edited(folder) as connection:
        connection.execute(f"DELETE FROM {name} WHERE rowid IN (SELECT rowid FROM {name} ORDER BY random() LIMIT 2)"
                           if name != "captures" else "DELETE FROM captures WHERE step = 6")  # fmt: skip
    return f"rows of {name} deleted"


def rows_moved(folder: Path, rng: random.Random) -> str:
    name = rng.choice(("steps", "statistics"))
    with edited(folder) as connection:
        a, b = rng.sample(range(2, 13, 2), 2)
        data = dict(connection.execute(f"SELECT step, data FROM {name}"))
        connection.execute(f"UPDATE {name} SET data = ? WHERE step = ?", (data[a], b))
    return f"a row of {name} stands for another"


def wrong_types(folder: Path, rng: random.Random) -> str:
    name = rng.choice(sorted(set(database.SCHEMAS[database.FORMAT])))
    column = "file" if name == "captures" else "data"
    value = rng.choice((7, 1.5, "text", b"bytes", "\x00", -(2**63), "9" * 100_000, b"\xff" * 1_000_000))
    with edited(folder) as connection:
        connection.execute(f"UPDATE {name} SET {column} = ?", (value,))
        if rng.random() < 0.3:
            connection.execute(f"UPDATE {name} SET crc = 'x'")
    return f"{name}.{column} is {str(value)[:10]!r}"


# --- damage on purpose, with checksums that fit: nothing may come of it but what a session may hold


def forged(connection: sqlite3.Connection, name: str, key: object, data: str | bytes) -> None:
    column = "key" if name == "meta" else "step" if name in ("steps", "statistics") else "id"
    crc = checksum(name, key, data)  # type: ignore[arg-type]
    connection.execute(f"UPDATE {name} SET data = ?, crc = ? WHERE {column} = ?", (data, crc, key))


def schema(folder: Path, rng: random.Random) -> str:
    text = rng.choice((
        "CREATE TRIGGER t AFTER UPDATE ON steps BEGIN DELETE FROM meta; END",
        "CREATE VIEW v AS SELECT 1",
        "CREATE INDEX i ON steps (length(data))",
        "CREATE TABLE more (x, y AS (hex(zeroblob(1000000000))))",
        "CREATE VIRTUAL TABLE f USING fts3(x)",
        "ALTER TABLE steps ADD COLUMN more",
    ))  # fmt: skip
    with edited(folder) as connection:
        connection.execute(text)
    return text


def view_for_a_table(folder: Path, rng: random.Random) -> str:
    name = rng.choice(("meta", "steps", "files"))
    numbers = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"
    endless = numbers + " SELECT x AS {}, x AS data, x AS crc FROM c"
    with edited(folder) as connection:
        connection.execute(f"DROP TABLE {name}")
        key = "key" if name == "meta" else "step" if name == "steps" else "id"
        connection.execute(f"CREATE VIEW {name} AS {endless.format(key)}")
    return f"{name} is a view without an end"


def false_schema(folder: Path, rng: random.Random) -> str:
    root = rng.choice((1, 2, 3, 100_000, 0))
    with edited(folder) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET rootpage = ? WHERE name = 'steps'", (root,))
    return f"steps begins at page {root}"


def paths(folder: Path, rng: random.Random) -> str:
    name = rng.choice((
        "/etc/passwd", "../../secret", "tensors/../../secret", "tensors/0000/../../../secret", "session.sqlite",
        "tensors/0000/0000001-keyframe-0.safetensors\x00", "", "C:\\x", "tensors/0000/" + "0" * 5000,
    ))  # fmt: skip
    with edited(folder) as connection:
        for number in range(1, 40):
            forged(connection, "files", number, jsonform.to_text(StoredFile(name, 6, zlib.crc32(b"secret"))))
    return f"the index names {name[:30]!r}"


def links(folder: Path, rng: random.Random) -> str:
    which = rng.randrange(4)
    victim = sorted(folder.glob("tensors/*/*"))[0]
    if which == 0:
        shutil.copy(victim, folder.parent / "secret.safetensors")
        victim.unlink()
        victim.symlink_to(folder.parent / "secret.safetensors")
    elif which == 1:
        victim.unlink()
        os.mkfifo(victim)
    elif which == 2:
        shutil.move(folder / "tensors", folder.parent / "moved")
        (folder / "tensors").symlink_to(folder.parent / "moved")
    else:
        name = rng.choice(
            ("session.sqlite", "session.sqlite-wal", "session.sqlite-journal", "recording.lock")
        )
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)
    return f"links and pipes {which}"


def header(folder: Path, rng: random.Random) -> str:
    path = rng.choice(sorted(folder.glob("tensors/*/*")))
    name = str(path.relative_to(folder))
    text = rng.choice((
        b'{"g@1/x":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,8]}}',
        b'{"' + NAMES[0].encode() + b'":{"dtype":"F32","shape":[-1],"data_offsets":[0,0]}}',
        b"[" * 100_000, b"{" + b'"a":{' * 5000, b'{"x":' + b"9" * 100_000 + b"}", b"\xff\xfe",
        b"{" + b",".join(b'"%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}' % i for i in range(30_000)) + b"}",
    ))  # fmt: skip
    length = rng.choice((len(text), 2**63, 2**64 - 1, 10**8, 0))
    raw = struct.pack("<Q", length) + text
    path.write_bytes(raw)
    with edited(folder) as connection:
        for number, data in connection.execute("SELECT id, data FROM files").fetchall():
            if jsonform.from_text(StoredFile, data).name == name:
                stored = StoredFile(name, len(raw), zlib.crc32(raw))
                forged(connection, "files", number, jsonform.to_text(stored))
    return f"a header of {length} bytes"


def blobs(folder: Path, rng: random.Random) -> str:
    kind = rng.choice(("bomb", "empty", "text", "many"))
    raw = {
        "bomb": zlib.compress(bytes(300 << 20)), "empty": b"", "text": zlib.compress(b"x" * 100),
        "many": zlib.compress(struct.pack("<I", 2**32 - 1) + bytes(1000)),
    }[kind]  # fmt: skip
    with edited(folder) as connection:
        for step in range(2, 13):
            forged(connection, rng.choice(("statistics", "steps")), step, raw)
    return f"statistics: {kind}"


def texts(folder: Path, rng: random.Random) -> str:
    name, key = rng.choice(
        (
            ("meta", "about"),
            ("meta", "end"),
            ("meta", "format"),
            ("forms", 0),
            ("kernels", 0),
            ("findings", 1),
        )
    )
    text = rng.choice((
        "[" * 1_000_000, "null", "{}", "1e999", '"\\ud800"', "9" * 10_000, "[]", "NaN", '{"source":1}', "x\x00y",
        '["a","b","c"]', '["\\ud800",null]', "-1", "99", "",
    ))  # fmt: skip
    with edited(folder) as connection:
        forged(connection, name, key, text)
    return f"{name} {key}: {text[:20]!r}"


class edited:  # noqa: N801 - reads as a verb
    """The database of a folder, changed as its owner might."""

    def __init__(self, folder: Path) -> None:
        self._connection = sqlite3.connect(folder / "session.sqlite", isolation_level=None)

    def __enter__(self) -> sqlite3.Connection:
        return self._connection

    def __exit__(self, *error: object) -> None:
        self._connection.close()


Damage = Callable[[Path, random.Random], str]
BY_CHANCE: tuple[Damage, ...] = (
    truncate, truncate, flip, flip, flip, overwrite, overwrite, remove, swap, append, foreign,
    rows_gone, rows_moved, wrong_types,
)  # fmt: skip
ON_PURPOSE: tuple[Damage, ...] = (
    schema, view_for_a_table, false_schema, paths, links, header, blobs, texts,
)  # fmt: skip

# --- what is left of it


def read_all(path: Path, *, trusted: bool, complete: bool) -> list[str]:
    """Open and read everything; returns the sentences. AssertionError for a number that is not the recorded one."""
    problems: list[str] = []

    def attempt(part: Callable[[], None]) -> None:
        try:
            part()
        except UsageError as error:
            problems.append(str(error))

    try:
        session = Session.open(path)
    except UsageError as error:
        return [str(error)]
    with session:
        if trusted and complete:
            assert session.steps == range(1, 14), session.steps

        def metrics() -> None:
            for name in session.metric_names():
                got = session.metric(name)
                if trusted and name in ("loss", "grad_norm"):
                    wanted = [getattr(recorded(t), name) for t in session.steps]
                    assert got.tolist() == wanted, name

        def step(t: int) -> None:
            got = session.step(t)
            assert not trusted or got == recorded(t), t

        def statistics(t: int) -> None:
            got = session.param_statistics(t)
            if trusted:
                wanted = table(t)
                assert got is not None
                assert all(
                    np.array_equal(got.lanes[lane].exponents, wanted.lanes[lane].exponents)  # type: ignore[index]
                    and got.lanes[lane].norm.tobytes() == wanted.lanes[lane].norm.tobytes()  # type: ignore[index]
                    for lane in LANES
                ), t

        def findings() -> None:
            got = session.findings()
            assert not trusted or got == tuple(finding(t) for t in session.steps if t % 10 == 0)

        def captured() -> None:
            for kind in ("gradients", "keyframe"):
                for t in session.captures(kind):  # type: ignore[arg-type]
                    attempt(partial(tensors, t, kind))

        def tensors(t: int, kind: str) -> None:
            got = {"g": session.gradients(t)} if kind == "gradients" else vars_of(session.keyframe(t))
            wanted = {"g": values(t, "g")} if kind == "gradients" else vars_of(state(t))
            for lane, named in got.items():
                for name, each in named.items():
                    assert not trusted or each.tobytes() == wanted[lane][name].tobytes(), (t, lane, name)

        for part in (metrics, findings, captured, lambda: [session.notes("mark"), session.info(), None][2]):
            attempt(part)
        for t in [*session.steps[:20], *session.steps[-3:]]:
            attempt(partial(step, t))
            attempt(partial(statistics, t))
        attempt(lambda: [session.follow(), None][1])
        if len(session.steps) < 100:
            problems += session.verify()
    return problems


def vars_of(whole: object) -> dict[str, dict[str, np.ndarray]]:  # type: ignore[type-arg]
    return {lane: getattr(whole, lane) for lane in ("w", "m", "v")}


def one(work: Path, base: Path, number: int) -> dict[str, object]:
    rng = random.Random(number)
    folder = work / f"case-{number}"
    folder.mkdir()
    (folder / "secret").write_bytes(b"secret")
    kind = rng.choice(("complete", "complete", "interrupted", "packed"))
    damage = rng.choice(BY_CHANCE if kind == "packed" or rng.random() < 0.6 else ON_PURPOSE)
    if kind == "packed":
        path = folder / "run.zip"
        shutil.copy(base / "packed.zip", path)
        raw = bytearray(path.read_bytes())
        if rng.random() < 0.3:
            raw = raw[: rng.randrange(len(raw))]
        for _ in range(rng.choice((1, 3, 100))):
            raw[rng.randrange(len(raw)) if raw else 0 :][:1] = b""
            at = (
                rng.randrange(max(len(raw) - 1, 1))
                if rng.random() < 0.6
                else max(len(raw) - rng.randrange(1, 2000), 0)
            )
            if at < len(raw):
                raw[at] ^= 1 << rng.randrange(8)
        path.write_bytes(raw)
        done = "bits of a zip file"
        damage = flip
    else:
        path = folder / "run.session"
        shutil.copytree(base / f"{kind}.session", path)
        done = damage(path, rng)
    before = sorted(p.name for p in folder.iterdir())
    size = sum(p.lstat().st_size for p in folder.rglob("*"))
    low = peak_bytes(reset=True)
    problems = read_all(path, trusted=damage in BY_CHANCE, complete=kind != "interrupted")
    grown = peak_bytes() - low
    assert grown <= size + EXTRA_BYTES, f"{number}: {grown >> 20} MiB of memory for {size >> 20} MiB"
    assert sorted(p.name for p in folder.iterdir()) == before
    assert (folder / "secret").read_bytes() == b"secret"
    for sentence in problems:
        assert "run." in sentence, f"{number}: {sentence!r} names no file"
        assert len(sentence) < 2000, f"{number}: {sentence[:300]!r}"
    shutil.rmtree(folder)
    return {"case": number, "of": kind, "done": done, "problems": problems[:2], "more_mib": grown >> 20}


def peak_bytes(*, reset: bool = False) -> int:
    """The most memory this process has held, since the last reset where the system can do that."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) << 10
    except OSError:
        pass
    return 0


def main() -> None:
    work, first, last = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    for number in range(first, last):
        signal.alarm(SECONDS)
        try:
            print(json.dumps(one(work, work, number)), flush=True)
        except BaseException:
            print(f"case {number}", file=sys.stderr)
            raise


if __name__ == "__main__":
    main()
