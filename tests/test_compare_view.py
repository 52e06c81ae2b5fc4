"""The comparison in the window: what is named is compared, what is found is shown as it is, and a click goes there."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recordings
import replays
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractItemView, QLineEdit
from pytestqt.qtbot import QtBot
from recordings import NAMES
from test_beside import write
from ui_helpers import make_snapshot

from inspector.history import EMPTY_HISTORY
from inspector.runtime.beside import BesidePicture, DiffPicture, Overlay
from inspector.runtime.commands import CancelDiff, DiffSessions, Seek, ViewDiff
from inspector.session.compare import Difference
from inspector.session.diff import diff
from inspector.session.diff_report import param_curves, report
from inspector.session.differences import SessionDiff
from inspector.session.reader import Session
from inspector.ui.compare_model import PARAM, RELATIVE, ULP
from inspector.ui.compare_view import CompareView, element_of
from inspector.ui.session_dialog import SessionDialog, recording_of

pytestmark = pytest.mark.qt


class Shown:
    """A view on screen, what it sent, and a comparison to show in it."""

    def __init__(self, qtbot: QtBot, width: int = 1200) -> None:
        self.view = CompareView()
        self.sent: list[Any] = []
        self.params: list[str] = []
        self.elements: list[tuple[str, int]] = []
        self.view.command.connect(self.sent.append)
        self.view.param_selected.connect(self.params.append)
        self.view.element_selected.connect(lambda name, index: self.elements.append((name, index)))
        qtbot.addWidget(self.view)
        self.view.resize(width, 420)
        with qtbot.waitExposed(self.view):
            self.view.show()

    def show(self, **beside: Any) -> None:
        self.view.show_snapshot(make_snapshot(beside=BesidePicture(**beside)))

    def texts(self, column: int) -> dict[str, str]:
        model = self.view.params
        return {
            name: model.data(model.index(row, column), Qt.ItemDataRole.DisplayRole)
            for row, name in enumerate(model.names)
        }


@pytest.fixture
def shown(qtbot: QtBot) -> Shown:
    return Shown(qtbot)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path, SessionDiff]:
    """Two recordings that differ by one ULP in one weight after step 4, and in a setting."""
    a, b = tmp_path / "a.session", tmp_path / "b.session"
    write(a)
    write(b)
    replays.flip(b, 4, "keyframe", f"w@4/{NAMES[0]}", 123, 0)
    with Session.open(a) as x, Session.open(b) as y:
        return a, b, diff(x, y)


def picture(pair: tuple[Path, Path, SessionDiff], param: str = NAMES[0]) -> DiffPicture:
    a, b, found = pair
    return DiffPicture(str(a), str(b), None, report(found, str(a), str(b)), param_curves(found, param))


def test_enter_compares_what_lies_under_the_run(qtbot: QtBot) -> None:
    shown = Shown(qtbot)
    shown.show(recording="a.session", overlays=(Overlay("b.session", "b", 0),))
    shown.view.setFocus()
    qtbot.keyClick(shown.view.table, Qt.Key.Key_Return)
    assert [each for each in shown.sent if isinstance(each, DiffSessions)] == [DiffSessions("", "b.session")]


def test_before_anything_is_named_it_says_what_to_do(shown: Shown) -> None:
    shown.show()
    assert "name them and press Compare" in shown.view.words.text()
    assert not shown.view.bar.button.isEnabled()
    assert "name the first recording" in shown.view.bar.button.toolTip()
    assert not shown.view.go_button.isVisible()


def test_the_open_recording_and_an_overlay_are_what_is_compared_unless_others_are_named(
    shown: Shown, qtbot: QtBot
) -> None:
    overlay = Overlay("/x/parent.session", "parent.session", 0, range(1, 4), EMPTY_HISTORY)
    shown.show(recording="/x/run.session", overlays=(overlay,))
    bar = shown.view.bar
    assert bar.a.placeholderText() == "run.session (open)"
    assert bar.b.text() == "/x/parent.session"
    bar.button.click()
    assert shown.sent == [DiffSessions("", "/x/parent.session")]
    bar.a.setText("/x/third.session")
    qtbot.keyClick(bar.b, Qt.Key.Key_Return)
    assert shown.sent[1:] == [DiffSessions("/x/third.session", "/x/parent.session")]
    # What a person typed stays, whatever is laid under the run.
    bar.b.setText("/x/own.session")
    shown.show(recording="/x/run.session", overlays=(overlay,))
    assert bar.b.text() == "/x/own.session"


def test_a_comparison_shows_how_far_it_is_and_can_be_cancelled(shown: Shown) -> None:
    shown.show(recording="/x/run.session", diff=DiffPicture("/x/run.session", "/x/b.session", 0.25))
    bar = shown.view.bar
    assert bar.progress.isVisible()
    assert bar.progress.value() == 25
    assert bar.button.text() == "Cancel"
    bar.button.click()
    assert shown.sent == [CancelDiff()]
    shown.show(recording="/x/run.session")
    assert not bar.progress.isVisible()
    assert bar.button.text() == "Compare"


def test_recordings_of_other_params_are_one_sentence(shown: Shown) -> None:
    problem = "a and b cannot be compared: param 'x' is in a alone."
    shown.show(diff=DiffPicture("a", "b", None, problem=problem))
    assert shown.view.words.text() == problem
    assert not shown.view.go_button.isVisible()


def test_the_numbers_are_those_of_the_comparison(shown: Shown, pair: tuple[Path, Path, SessionDiff]) -> None:
    shown.show(recording=str(pair[0]), diff=picture(pair))
    first = f"First difference in step 4, w of {NAMES[0]}[123]: "
    assert shown.view.words.text().startswith(first)
    assert "compared 8 steps, 4 captured gradients and 3 states" in shown.view.words.text()
    assert shown.texts(ULP) == {NAMES[0]: "1", **dict.fromkeys(NAMES[1:], "0")}
    # One ULP of one weight, beside the norm of all of them.
    w = recordings.state(4).w[NAMES[0]].astype(np.float64)
    ulp = abs(float(np.spacing(np.float32(w[123]))))
    relative = ulp / float(np.linalg.norm(w))
    assert shown.texts(RELATIVE)[NAMES[0]] == f"{relative:.2e}".replace("e-0", "e-").replace("-", "−")
    charts = shown.view.over_steps.charts
    drawn = charts["ulp"].drawn("ulp")
    assert list(drawn.x) == [0, 4, 8]
    assert drawn.below.tolist() == [0, 8]
    np.testing.assert_allclose(drawn.last[1], 0)
    _, y = shown.view.histogram.bars["w"].getData()
    elements = sum(p.numel for p in recordings.PARAMS)
    np.testing.assert_allclose(y[:2], [np.log10(3 * elements - 1), 0])
    shown.view.histogram.hovered.emit(1.5)
    assert shown.view.histogram.title.startswith("1 ULP: 1")


def test_a_click_goes_to_the_first_difference(
    shown: Shown, pair: tuple[Path, Path, SessionDiff], qtbot: QtBot
) -> None:
    shown.show(recording=str(pair[1]), diff=picture(pair))
    shown.view.go_button.click()
    assert shown.params == [NAMES[0]]
    assert shown.elements == [(NAMES[0], 123)]
    assert Seek(4) in shown.sent
    # Where neither is open, the run is of something else and stays where it is.
    shown.sent.clear()
    shown.show(recording="/x/other.session", diff=picture(pair))
    assert "neither recording is open" in shown.view.go_button.toolTip()
    qtbot.keyClick(shown.view.table, Qt.Key.Key_D)
    assert shown.elements[1:] == [(NAMES[0], 123)]
    assert not [c for c in shown.sent if isinstance(c, Seek)]


def test_the_param_selected_is_the_one_over_steps(shown: Shown, pair: tuple[Path, Path, SessionDiff]) -> None:
    shown.show(diff=picture(pair))
    # The worst one while none is selected.
    assert ViewDiff(NAMES[0]) in shown.sent
    shown.view.select_param(NAMES[1])
    assert shown.sent[-1] == ViewDiff(NAMES[1])
    assert shown.view.over_steps.charts["relative"].message == "Reading …"
    shown.show(diff=picture(pair, NAMES[1]))
    assert shown.view.over_steps.charts["relative"].message == "No difference at any step."
    row = shown.view.params.row_of(NAMES[0])
    assert row is not None
    shown.view.table.setCurrentIndex(shown.view.params.index(row, 0))
    assert shown.params == [NAMES[0]]


def test_another_lane_and_another_order(
    shown: Shown, pair: tuple[Path, Path, SessionDiff], qtbot: QtBot
) -> None:
    shown.show(diff=picture(pair))
    qtbot.keyClick(shown.view.table, Qt.Key.Key_G)
    assert shown.view.lane == "g"
    assert shown.view.lane_buttons["g"].isChecked()
    assert set(shown.texts(ULP).values()) == {"0"}
    shown.view.table.sortByColumn(PARAM, Qt.SortOrder.AscendingOrder)
    assert shown.view.params.names == tuple(sorted(NAMES))
    qtbot.keyClick(shown.view.table, Qt.Key.Key_W)
    shown.view.table.sortByColumn(ULP, Qt.SortOrder.DescendingOrder)
    assert shown.view.params.names[0] == NAMES[0]


def test_without_captures_the_norms_are_drawn(shown: Shown, tmp_path: Path) -> None:
    a, b = tmp_path / "a.session", tmp_path / "b.session"
    for path in (a, b):
        recordings.record(path, 4)
    with Session.open(a) as x, Session.open(b) as y:
        found = diff(x, y)
    shown.show(diff=picture((a, b, found)))
    assert "Every number and tensor in both has the same bits" in shown.view.words.text()
    assert set(shown.texts(ULP).values()) == {"–"}
    charts = shown.view.over_steps.charts
    assert charts["relative"].message == "No difference at any step."
    assert charts["ulp"].message == "w was not captured in both."
    assert shown.view.histogram.message == "w was captured in both at no step."


@pytest.mark.parametrize("width", [420, 700, 1600])
def test_it_is_drawn_at_any_width(qtbot: QtBot, pair: tuple[Path, Path, SessionDiff], width: int) -> None:
    shown = Shown(qtbot, width)
    shown.show(diff=picture(pair))
    assert not shown.view.grab().isNull()


def test_a_scale_stands_for_the_first_element_of_its_block() -> None:
    assert element_of(Difference(1, 3, "m_scale", "m scale", "w", 2)) == 512
    assert element_of(Difference(1, 3, "m_packed", "m code", "w", 300)) == 300
    assert element_of(Difference(1, 2, "grad_stats", "grad_norm", None, 0)) is None


# --- choosing a recording


def test_to_enter_the_folder_of_a_recording_is_to_choose_it(qtbot: QtBot, tmp_path: Path) -> None:
    recordings.record(tmp_path / "a.session", 1)
    (tmp_path / "folder").mkdir()
    chosen: list[str] = []
    parent = CompareView()
    qtbot.addWidget(parent)
    dialog = SessionDialog(parent, "Choose", chosen.append, str(tmp_path))
    assert dialog.directory().absolutePath() == str(tmp_path)
    dialog.directoryEntered.emit(str(tmp_path / "folder"))
    assert chosen == []
    field = dialog.findChild(QLineEdit, "fileNameEdit")
    assert isinstance(field, QLineEdit)
    dialog.currentChanged.emit(str(tmp_path / "a.session"))
    assert field.text() == "a.session"
    dialog.directoryEntered.emit(str(tmp_path / "a.session"))
    assert chosen == [str(tmp_path / "a.session")]


@pytest.mark.parametrize("name", ["a.session", "a.session/session.sqlite"])
def test_a_recording_that_is_typed_is_chosen(qtbot: QtBot, tmp_path: Path, name: str) -> None:
    recordings.record(tmp_path / "a.session", 1)
    chosen: list[str] = []
    parent = CompareView()
    qtbot.addWidget(parent)
    dialog = SessionDialog(parent, "Choose", chosen.append, str(tmp_path))
    dialog.show()
    field = dialog.findChild(QLineEdit, "fileNameEdit")
    assert isinstance(field, QLineEdit)
    field.setText(str(tmp_path / name))
    dialog.accept()
    assert chosen == [str(tmp_path / "a.session")]
    assert recording_of(tmp_path) is None


@pytest.mark.parametrize("name", ["a.session", "checkpoint"])
def test_where_folders_are_chosen_one_of_a_recording_is_chosen_by_entering_it(
    qtbot: QtBot, tmp_path: Path, name: str
) -> None:
    """In the list, with the key Enter: a recording is chosen, in any other folder one looks around."""
    recordings.record(tmp_path / "a.session", 1)
    (tmp_path / "checkpoint" / "inner").mkdir(parents=True)
    chosen: list[str] = []
    parent = CompareView()
    qtbot.addWidget(parent)
    dialog = SessionDialog(parent, "Choose", chosen.append, str(tmp_path), any_folder=True)
    with qtbot.waitExposed(dialog):
        dialog.show()
    listed = dialog.findChild(QAbstractItemView, "treeView") or dialog.findChild(
        QAbstractItemView, "listView"
    )
    assert isinstance(listed, QAbstractItemView)
    qtbot.waitUntil(lambda: listed.model().rowCount(listed.rootIndex()) == 2)
    row = next(
        index for i in range(2) if (index := listed.model().index(i, 0, listed.rootIndex())).data() == name
    )
    listed.setCurrentIndex(row)
    listed.setFocus()
    qtbot.keyClick(listed, Qt.Key.Key_Return)
    if name == "a.session":
        assert chosen == [str(tmp_path / name)]
        return
    assert chosen == []
    assert dialog.directory().absolutePath() == str(tmp_path / name)
    dialog.accept()
    assert chosen == [str(tmp_path / name)]


@pytest.mark.gpu
def test_a_picture_of_a_comparison_is_drawn(
    call: Callable[..., tuple[int, str, str]], gpu: Any, tmp_path: Path
) -> None:
    a, out = tmp_path / "a.session", tmp_path / "a.png"
    replays.record(gpu, a, 2)
    code, _, err = call("screenshot", a, "--view", "compare", "--with", a, "--out", out, "--size", "900x400")
    assert code == 0, err
    assert out.stat().st_size > 5000
    code, _, err = call("screenshot", a, "--with", tmp_path / "nosuch.session", "--out", out)
    assert code == 2
    assert re.search("nosuch.session .*cannot be read", err)
