"""The value table: only what is in sight is fetched, however long the param; what changed is told apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QFont, QGuiApplication
from pytestqt.qtbot import QtBot
from ui_helpers import make_snapshot, make_values, small_plan

from inspector.addresses import parse_index
from inspector.errors import UsageError
from inspector.layout import Param, make_layout
from inspector.plan import Plan
from inspector.runtime.commands import ViewValues
from inspector.runtime.snapshots import Snapshot, ValuesWindow
from inspector.ui import theme
from inspector.ui.value_forms import value_text
from inspector.ui.values_model import PAGE_ROWS, PENDING, ValuesModel
from inspector.ui.values_view import ValuesView

pytestmark = pytest.mark.qt

PARAM = "h.0.attn.qkv.weight"
Key, Control = Qt.Key, Qt.KeyboardModifier.ControlModifier


def sent_by(view: ValuesView) -> list[ViewValues]:
    sent: list[ViewValues] = []
    view.command.connect(sent.append)
    return sent


def shown(qtbot: QtBot, snapshot: Snapshot, param: str = PARAM) -> tuple[ValuesView, list[ViewValues]]:
    view = ValuesView()
    qtbot.addWidget(view)
    sent = sent_by(view)
    view.resize(900, 400)
    with qtbot.waitExposed(view):
        view.show()
    view.show_snapshot(snapshot)
    view.select_param(param)
    if param:
        qtbot.waitUntil(lambda: bool(sent) and sent[-1].param == param)
        # A slow machine draws the view before it has anything to show, and asks for nothing then.
        sent[:] = [command for command in sent if command.param is not None]
    return view, sent


def plan_of(*params: Param) -> Plan:
    return replace(small_plan(), layout=make_layout(params))


def window(param: str, after: list[float], before: list[float] | None = None) -> ValuesWindow:
    values = {"w": np.array(after, np.float32)}
    old = {} if before is None else {"w": np.array(before, np.float32)}
    return ValuesWindow(param, 0, values, old)  # type: ignore[arg-type]


def cell(view: ValuesView, row: int, column: int, role: int = Qt.ItemDataRole.DisplayRole) -> object:
    return view.model.index(row, column).data(role)


def test_only_what_is_in_sight_is_asked_for(qtbot: QtBot) -> None:
    view, sent = shown(qtbot, make_snapshot())
    assert len(sent) == 1
    assert sent[0].start == 0
    assert view.paged.visible_rows < sent[0].count < 200
    assert cell(view, 0, 2) == PENDING
    view.show_snapshot(make_snapshot(values=make_values(PARAM, 0, sent[0].count)))
    assert cell(view, 0, 2) != PENDING
    assert cell(view, 5_000, 2) == PENDING
    qtbot.wait(60)
    assert len(sent) == 1


def test_scrolling_asks_once_it_rests(qtbot: QtBot) -> None:
    view, sent = shown(qtbot, make_snapshot())
    view.table.setFocus()
    view.table.selectRow(0)
    for _ in range(20):
        qtbot.keyClick(view.table, Key.Key_PageDown)
    qtbot.waitUntil(lambda: len(sent) == 2)
    top = view.paged.top
    assert top > 100
    assert sent[1].start <= top
    assert sent[1].start + sent[1].count >= top + view.paged.visible_rows
    assert view.paged.bar.value() == top


def test_before_and_after_and_what_changed(qtbot: QtBot) -> None:
    plan = plan_of(Param("p", (2, 2)))
    values = window("p", [1.5, 2.0, np.nan, 0.0], [1.0, 2.0, 2.0, -0.0])
    view, _ = shown(qtbot, make_snapshot(plan=plan, values=values), "p")
    assert [cell(view, 0, c) for c in range(4)] == ["0", "[0, 0]", "1.0", "• 1.5"]
    assert cell(view, 1, 3) == "2.0"
    assert cell(view, 3, 1) == "[1, 1]"
    assert cell(view, 3, 3) == "• 0.0"  # -0 became 0: another bit pattern
    assert cell(view, 0, 4) == PENDING  # g has not arrived
    fonts = [cell(view, row, 3, Qt.ItemDataRole.FontRole) for row in (0, 1)]
    assert [f.weight() for f in fonts] == [QFont.Weight.Bold, QFont.Weight.Normal]  # type: ignore[attr-defined]
    tip = str(cell(view, 0, 3, Qt.ItemDataRole.ToolTipRole))
    assert "difference 0.5" in tip
    assert "4,194,304 ULP" in tip
    assert "NaN" in str(cell(view, 2, 3, Qt.ItemDataRole.ToolTipRole))
    assert cell(view, 2, 3, Qt.ItemDataRole.ForegroundRole) == theme.ink(theme.NONFINITE)
    assert cell(view, 1, 3, Qt.ItemDataRole.ForegroundRole) is None


def test_a_lane_that_was_not_written_is_before_what_it_is_after(qtbot: QtBot) -> None:
    plan = plan_of(Param("p", (2,)))
    view, _ = shown(qtbot, make_snapshot(plan=plan, values=window("p", [1.5, 2.0])), "p")
    assert [cell(view, 0, c) for c in (2, 3)] == ["1.5", "1.5"]


def test_values_of_another_param_are_not_shown(qtbot: QtBot) -> None:
    view, _ = shown(qtbot, make_snapshot(values=make_values("norm.weight", 0, 64)))
    assert cell(view, 0, 2) == PENDING


def test_forms(qtbot: QtBot) -> None:
    assert value_text(np.float32(0.1), "f32") == "0.1"
    assert value_text(np.float32(1.0), "hex") == "3f800000"
    assert value_text(np.float32(-1.0), "bits") == "1 01111111 " + "0" * 23
    assert value_text(np.float32("nan"), "f32") == "NaN"
    plan = plan_of(Param("p", (1,)))
    view, _ = shown(qtbot, make_snapshot(plan=plan, values=window("p", [1.0])), "p")
    view.form_combo.setFocus()
    for wanted in ("1.0", "n/a", "1,065,353,216", "3f800000", "0 01111111 " + "0" * 23, "0"):
        qtbot.keyClick(view.form_combo, Key.Key_Down)
        assert cell(view, 0, 2) == wanted


@pytest.mark.parametrize(("text", "element"), [("200", 200), ("1, 8", 200), ("[1,8]", 200), ("12287", 12287)])
def test_going_to_an_index(qtbot: QtBot, text: str, element: int) -> None:
    view, sent = shown(qtbot, make_snapshot())
    view.index_field.setFocus()
    qtbot.keyClicks(view.index_field, text)
    qtbot.keyClick(view.index_field, Key.Key_Return)
    assert view.model.base + view.table.currentIndex().row() == element
    assert view.paged.top <= element < view.paged.top + view.paged.visible_rows + 1
    qtbot.waitUntil(lambda: len(sent) == 2)
    assert sent[1].start <= element < sent[1].start + sent[1].count


@pytest.mark.parametrize("text", ["", "x", "12288", "-1", "64, 0", "0, 192", "1, 2, 3", "1.5"])
def test_an_index_that_does_not_exist_is_explained(qtbot: QtBot, text: str) -> None:
    view, _ = shown(qtbot, make_snapshot())
    qtbot.keyClicks(view.index_field, text)
    qtbot.keyClick(view.index_field, Key.Key_Return)
    assert view.note.text().startswith("⚠ ")
    assert view.paged.top == 0


def test_two_billion_elements(qtbot: QtBot) -> None:
    param = Param("huge", (1 << 31,))
    view, sent = shown(qtbot, make_snapshot(plan=plan_of(param)), "huge")
    assert view.model.rowCount() == PAGE_ROWS
    view.table.setFocus()
    qtbot.keyClick(view.table, Key.Key_End, Control)
    last = (1 << 31) - 1
    assert view.model.base + view.table.currentIndex().row() == last
    assert cell(view, last - view.model.base, 0) == "2,147,483,647"
    qtbot.waitUntil(lambda: len(sent) == 2)
    assert sent[1].start + sent[1].count == last + 1
    middle = view.paged.bar.maximum() // 2
    view.paged.bar.setValue(middle)
    assert view.paged.top == pytest.approx(1 << 30, abs=100)
    qtbot.keyClick(view.table, Key.Key_Home, Control)
    assert view.paged.top == 0


def test_keys_turn_the_page_unseen(qtbot: QtBot) -> None:
    view, _ = shown(qtbot, make_snapshot(plan=plan_of(Param("p", (1_000_000,)))), "p")
    view.go_to(PAGE_ROWS - 3)
    view.table.setFocus()
    for _ in range(10):
        qtbot.keyClick(view.table, Key.Key_Down)
    assert view.model.base > 0
    assert view.model.base + view.table.currentIndex().row() == PAGE_ROWS + 7
    for _ in range(10):
        qtbot.keyClick(view.table, Key.Key_PageUp)
    assert view.model.base + view.table.currentIndex().row() < PAGE_ROWS - 50


def test_copying_as_tab_separated_text(qtbot: QtBot) -> None:
    plan = plan_of(Param("p", (2, 2)))
    values = window("p", [1.5, -2.0, np.nan, np.inf], [1.0, -2.0, 2.0, 1.0])
    view, _ = shown(qtbot, make_snapshot(plan=plan, values=values), "p")
    view.table.setFocus()
    qtbot.keyClick(view.table, Key.Key_A, Control)
    qtbot.keyClick(view.table, Key.Key_C, Control)
    lines = QGuiApplication.clipboard().text().splitlines()
    assert lines[0].split("\t")[:4] == ["flat", "index", "w before", "w after"]
    assert lines[2].split("\t")[:4] == ["1", "[0, 1]", "-2.0", "-2.0"]
    assert [line.split("\t")[3] for line in lines[1:]] == ["1.5", "-2.0", "NaN", "Infinity"]
    assert view.note.text() == "Copied 4 rows."


def test_copying_fetches_what_is_not_at_hand(qtbot: QtBot) -> None:
    view, sent = shown(qtbot, make_snapshot(values=make_values(PARAM, 0, 77)))
    QGuiApplication.clipboard().clear()
    view.table.setFocus()
    qtbot.keyClick(view.table, Key.Key_A, Control)
    qtbot.keyClick(view.table, Key.Key_C, Control)
    assert sent[-1] == ViewValues(PARAM, 0, 12_288)
    view.show_snapshot(make_snapshot(values=make_values(PARAM, 0, 12_288)))
    assert len(QGuiApplication.clipboard().text().splitlines()) == 12_289
    qtbot.waitUntil(lambda: sent[-1].count < 200)


def test_hidden_it_asks_for_nothing(qtbot: QtBot) -> None:
    view, sent = shown(qtbot, make_snapshot())
    view.hide()
    assert sent[-1] == ViewValues(None)
    view.select_param("norm.weight")
    qtbot.wait(60)
    assert sent[-1] == ViewValues(None)
    view.show()
    qtbot.waitUntil(lambda: sent[-1].param == "norm.weight")


def test_without_a_param_it_says_what_to_do(qtbot: QtBot) -> None:
    view, _ = shown(qtbot, make_snapshot(), "")
    assert "Select a param" in view.note.text()
    assert view.model.rowCount() == 0
    qtbot.keyClicks(view.index_field, "3")
    qtbot.keyClick(view.index_field, Key.Key_Return)
    assert "Select a param" in view.note.text()


@pytest.mark.parametrize("shape", [(0,), (), (3, 0, 2)])
def test_empty_and_scalar_params(qtbot: QtBot, shape: tuple[int, ...]) -> None:
    param = Param("p", shape)
    view, _ = shown(qtbot, make_snapshot(plan=plan_of(param, Param("q", (4,)))), "")
    view.select_param("p")
    assert view.model.rowCount() == param.numel
    assert not view.grab().isNull()


def test_a_source_without_the_param_shows_none(qtbot: QtBot) -> None:
    view, sent = shown(qtbot, make_snapshot())
    view.show_snapshot(make_snapshot(plan=plan_of(Param("other", (3,)))))
    assert view.model.rowCount() == 0
    qtbot.waitUntil(lambda: sent[-1] == ViewValues(None))


def test_the_index_of_a_vector() -> None:
    assert parse_index(" 3 ", Param("p", (4,))) == 3
    assert parse_index("0", Param("p", ())) == 0
    with pytest.raises(UsageError, match="no element 4"):
        parse_index("4", Param("p", (4,)))


def test_a_model_without_a_param_is_empty() -> None:
    assert ValuesModel().rowCount() == 0
