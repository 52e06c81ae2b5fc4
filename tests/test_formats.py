"""The reader that docs/formats.md shows, which knows that page and nothing else, reads what the inspector wrote."""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recordings
import test_session_settings

from inspector.errors import UsageError
from inspector.session import jsonform
from inspector.session.database import FORMAT, SCHEMAS
from inspector.session.export import COLUMNS
from inspector.session.reader import Session
from inspector.session.recorder import Recorder
from inspector.session.step_rows import KERNEL, STEP
from inspector.ui import docks
from inspector.ui.options import Options

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
EXAMPLES = sorted((ROOT / "sessions").glob("*.session.zip"))


def code(first: str) -> str:
    """The block of the page that begins with this line."""
    return next(
        block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if block.startswith(first)
    )


def reader(folder: Path) -> Any:
    found: dict[str, Any] = {"__name__": "reader"}
    exec(compile(code("import json"), "docs/formats.md", "exec"), found)
    return found["Reader"](folder)


def unpacked(path: Path, folder: Path) -> Path:
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder)
    return folder


def agrees(folder: Path, path: Path) -> None:
    """The session in `folder` reads as the inspector reads that at `path`."""
    mine = reader(folder)
    with Session.open(path) as session:
        assert list(mine.steps) == list(session.steps)
        assert list(mine.params.items()) == [(p.name, list(p.shape)) for p in session.about.params]
        for name in ("loss", "grad_norm", "clip_scale", "lr"):
            np.testing.assert_array_equal(mine.metric(name), session.metric(name), err_msg=name)
        for step in session.steps:
            kernels = session.step(step).kernels
            assert [name for name, _ in mine.kernel_ms(step)] == [(k.name, k.block) for k in kernels]
            assert [ms for _, ms in mine.kernel_ms(step)] == [k.ms or 0.0 for k in kernels]
        assert [f["message"] for f in mine.findings] == [f.message for f in session.findings()]
        _same_tensors(mine, session)
        _same_statistics(mine, session)
    mine.db.close()


def _same_tensors(mine: Any, session: Session) -> None:
    for kind, lanes in (("gradients", "g"), ("keyframe", "wmv")):
        for step in session.captures(kind):  # type: ignore[arg-type]
            for lane in lanes:
                for name in mine.params:
                    theirs = session.tensor(lane, step, name)  # type: ignore[arg-type]
                    np.testing.assert_array_equal(mine.tensor(lane, step, name), theirs)


def _same_statistics(mine: Any, session: Session) -> None:
    for step in list(session.steps)[::7]:
        table = session.param_statistics(step)
        if table is None:
            continue
        found = mine.statistics(step)
        for (name, lane), (figures, histogram) in found.items():
            place = table.names.index(name)
            columns = table.lanes[lane]
            names = ("nan", "posinf", "neginf", "first", "zeros", "low", "high", "norm")
            theirs = [getattr(columns, each)[place] for each in names]
            np.testing.assert_array_equal(np.array(figures, float), np.array(theirs, float))
            np.testing.assert_array_equal(histogram, columns.exponents[place])
        assert len(found) == 4 * len(table)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name.split(".")[0])
def test_the_reader_of_the_page_reads_an_example(path: Path, tmp_path: Path) -> None:
    agrees(unpacked(path, tmp_path / "folder.session"), path)


def test_it_reads_what_is_written_now(tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    recordings.record(path, 24, "grads:2+keyframes:8")
    agrees(path, path)


def test_it_reads_settings_of_params_past_the_kernels(tmp_path: Path) -> None:
    path = tmp_path / "run.session"
    with Recorder.create(path, recordings.about()) as recorder:
        for step in range(1, 7):
            recorder.offer(test_session_settings.offered(step))
    agrees(path, path)


def test_it_refuses_a_newer_format(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "run.session"
    recordings.record(path, 2)
    with sqlite3.connect(path / "session.sqlite") as connection:
        connection.execute("UPDATE meta SET data = ? WHERE key = 'format'", (str(FORMAT + 1),))
    connection.close()
    with pytest.raises(SystemExit, match="newer"):
        reader(path)
    with pytest.raises(UsageError):
        Session.open(path)


def test_the_page_names_every_table_and_has_the_sizes_of_the_rows() -> None:
    for table in SCHEMAS[FORMAT]:
        assert f"| `{table}` |" in PAGE, table
    assert f"this page is of {FORMAT}" in PAGE
    assert f"{STEP.itemsize} bytes" in PAGE
    assert f"Then {KERNEL.itemsize} bytes" in PAGE


def test_checksums_are_what_the_page_says(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "run.session"
    recordings.record(path, 12, "grads:2")
    connection = sqlite3.connect(path / "session.sqlite")
    for table, key in (
        ("meta", "key"),
        ("steps", "step"),
        ("findings", "id || ':' || step"),
        ("files", "id"),
    ):
        rows = connection.execute(f"SELECT {key}, data, crc FROM {table}").fetchall()
        assert rows
        for which, data, crc in rows:
            raw = data.encode() if isinstance(data, str) else data
            assert crc == zlib.crc32(f"{table}:{which}:".encode() + raw)
    for step, kind, file, crc in connection.execute("SELECT step, kind, file, crc FROM captures"):
        assert crc == zlib.crc32(f"captures:{step}:{kind}:{file}".encode())
    for number, data in connection.execute("SELECT id, data FROM files"):
        entry = json.loads(data)
        raw = (path / entry["name"]).read_bytes()
        assert (len(raw), zlib.crc32(raw)) == (entry["size"], entry["crc32"]), number
    connection.close()


def test_what_about_holds_is_on_the_page() -> None:
    about = json.loads(jsonform.to_text(recordings.about()))
    missing = {key for key in about if f"`{key}`" not in PAGE}
    assert missing <= {"description", "stats", "planned_steps", "foreign", "unreplayable", "added", "run"}


@pytest.mark.gpu
def test_the_state_file_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Any) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code("import numpy as np\nfrom safetensors"), "docs/formats.md", "exec"), {})
    done = call("run", "state.safetensors", "--steps", "1", "--out", "after.safetensors")
    assert done[0] == 0
    from safetensors.numpy import load_file

    before, after = load_file("state.safetensors"), load_file("after.safetensors")
    assert np.any(before["w/head.weight"] != after["w/head.weight"])


def test_columns_of_the_table_and_options_of_the_settings_are_on_the_page() -> None:
    named = [*COLUMNS, *(field.name for field in fields(Options))]
    assert [name for name in named if f"`{name}`" not in PAGE] == []


def test_the_settings_lie_where_the_page_says() -> None:
    path = Path(docks.open_settings(None).fileName())
    assert path.parts[-2:] == ("inspector", "inspector.ini")
    assert "inspector/inspector.ini" in PAGE
