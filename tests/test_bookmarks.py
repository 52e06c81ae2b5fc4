"""Bookmarks of a session: kept in its folder, packed with it, and refused where the file is somebody else's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from recordings import record

from inspector import Session
from inspector.errors import UsageError
from inspector.session.archive import pack
from inspector.session.bookmarks import FILE_NAME, MAX_BOOKMARKS, Bookmark, Bookmarks


@pytest.fixture
def path(tmp_path: Path) -> Path:
    record(tmp_path / "run.session", 5)
    return tmp_path / "run.session"


def test_they_are_there_when_it_is_opened_again(path: Path) -> None:
    with Session.open(path) as session:
        bookmarks = session.bookmarks()
        bookmarks.set(4, "  where it\nturns ")
        bookmarks.set(2, "before")
        bookmarks.set(2, "well before")
        bookmarks.set(3, "gone again")
        bookmarks.set(3, "")
    with Session.open(path) as session:
        assert session.bookmarks().all == (Bookmark(2, "well before"), Bookmark(4, "where it turns"))


def test_they_are_packed_with_it(path: Path) -> None:
    with Session.open(path) as session:
        session.bookmarks().set(4, "λ → 0")
    with Session.open(pack(path)) as session:
        bookmarks = session.bookmarks()
        assert bookmarks.all == (Bookmark(4, "λ → 0"),)
        # A pack is not written to.
        bookmarks.set(1, "in memory")
    with Session.open(path.with_name("run.session.zip")) as session:
        assert len(session.bookmarks().all) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[" * 100_000,
        '{"bookmarks": 5}',
        '{"bookmarks": [{"step": "4", "text": "x"}]}',
        '{"bookmarks": [{"step": -1, "text": "x"}]}',
        '{"bookmarks": [{"step": 1}]}',
        json.dumps({"bookmarks": [{"step": i, "text": ""} for i in range(MAX_BOOKMARKS + 1)]}),
        "x" * (2 << 20),
    ],
    ids=["empty", "no list", "deep", "number", "text step", "negative", "no text", "too many", "too long"],
)
def test_a_file_of_somebody_else_is_named_and_left_alone(path: Path, text: str) -> None:
    (path / FILE_NAME).write_text(text)
    with Session.open(path) as session:
        with pytest.raises(UsageError, match=FILE_NAME):
            session.bookmarks()
        # The rest of it is as sound as it was.
        assert session.verify() == []
    assert (path / FILE_NAME).read_text() == text


def test_nothing_is_read_or_written_through_a_link(path: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.json"
    outside.write_text("kept")
    (path / FILE_NAME).symlink_to(outside)
    with Session.open(path) as session, pytest.raises(UsageError, match="no ordinary file"):
        session.bookmarks()
    with pytest.raises(UsageError, match="is a link"):
        Bookmarks(folder=path).set(1, "x")
    assert outside.read_text() == "kept"


def test_there_is_an_end_to_them() -> None:
    bookmarks = Bookmarks(tuple(Bookmark(step, "x") for step in range(MAX_BOOKMARKS)))
    bookmarks.set(0, "another text")
    with pytest.raises(UsageError, match="remove one first"):
        bookmarks.set(MAX_BOOKMARKS, "one more")


def test_bookmarks_that_cannot_be_read_leave_the_rest_of_the_session(path: Path, call: Any) -> None:
    (path / FILE_NAME).write_text("not bookmarks")
    code, out, _ = call("info", path, "--json")
    document = json.loads(out)
    assert (code, document["bookmarks"], document["steps"]["count"]) == (1, [], 5)
    (problem,) = document["problems"]
    assert FILE_NAME in problem
    assert call("info", path, "--check")[0] == 1


def test_a_session_inside_another_is_refused(path: Path, call: Any) -> None:
    code, _, err = call("run", "synthetic:100", "--steps", 1, "--save", path / "within.session")
    assert code == 2
    assert "lies inside the session" in err
    assert not (path / "within.session").exists()
