"""Findings: severity in glyph and word, evidence and advice in full, a click selects the param."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot
from ui_helpers import make_findings, make_snapshot

from inspector.diagnosis.findings import Finding
from inspector.runtime.commands import Seek
from inspector.ui.findings_view import MESSAGE, PARAM, SEVERITY, STEP, FindingsView

pytestmark = pytest.mark.qt


def shown(qtbot: QtBot, findings: tuple[Finding, ...]) -> FindingsView:
    view = FindingsView()
    qtbot.addWidget(view)
    view.resize(700, 400)
    with qtbot.waitExposed(view):
        view.show()
    view.show_snapshot(make_snapshot(findings=findings))
    return view


def click(qtbot: QtBot, view: FindingsView, row: int) -> None:
    place = view.table.visualRect(view.model.index(row, MESSAGE)).center()
    qtbot.mouseClick(view.table.viewport(), Qt.MouseButton.LeftButton, pos=place)


def finding(step: int, **changes: object) -> Finding:
    return Finding(
        **{"rule": "r", "severity": "info", "step": step, "message": "m", "advice": "a", **changes}
    )  # type: ignore[arg-type]


def test_rows_tell_severity_step_param_and_message(qtbot: QtBot) -> None:
    view = shown(qtbot, make_findings())
    rows = [[view.model.index(r, c).data() for c in range(4)] for r in range(3)]
    assert rows[0][SEVERITY] == "✖ error"
    assert rows[1][SEVERITY] == "▲ warning"
    assert rows[2][SEVERITY] == "● info"
    assert rows[0][STEP] == "97"
    assert rows[0][PARAM] == "h.1.attn.qkv.weight"
    assert rows[1][MESSAGE].startswith("gradNorm is 7.4")


def test_a_click_selects_the_param_and_shows_the_evidence(qtbot: QtBot) -> None:
    view = shown(qtbot, make_findings())
    with qtbot.waitSignal(view.param_selected) as selected:
        click(qtbot, view, 0)
    assert selected.args == ["h.1.attn.qkv.weight"]
    for words in ("step 97", "gradients", "[17]", "nan = 8", "Look at the loss scale"):
        assert words in view.detail.text()


def test_a_finding_without_param_selects_nothing(qtbot: QtBot) -> None:
    view = shown(qtbot, make_findings())
    with qtbot.assertNotEmitted(view.param_selected):
        click(qtbot, view, 1)
    assert "grad_norm = 7.4" in view.detail.text()


def test_enter_goes_to_the_step(qtbot: QtBot) -> None:
    view = shown(qtbot, make_findings())
    click(qtbot, view, 1)
    with qtbot.waitSignal(view.command) as sent:
        qtbot.keyClick(view.table, Qt.Key.Key_Return)
    assert sent.args == [Seek(85)]


def test_the_newest_comes_last_and_the_selection_stays(qtbot: QtBot) -> None:
    many = tuple(finding(step) for step in range(1, 101))
    view = shown(qtbot, many)
    bottom = view.table.verticalScrollBar()
    assert bottom.value() == bottom.maximum() > 0
    click(qtbot, view, 99)
    view.show_snapshot(make_snapshot(findings=(*many, finding(200))))
    assert view.model.rowCount() == 101
    assert view.table.currentIndex().row() == 99
    assert bottom.value() == bottom.maximum()


def test_a_look_further_up_is_left_alone(qtbot: QtBot) -> None:
    many = tuple(finding(step) for step in range(1, 101))
    view = shown(qtbot, many)
    view.table.scrollToTop()
    view.show_snapshot(make_snapshot(findings=(*many, finding(200))))
    assert view.table.verticalScrollBar().value() == 0


def test_text_from_a_run_is_not_markup(qtbot: QtBot) -> None:
    view = shown(qtbot, (finding(1, message="<b>x</b> & y", evidence={"<k>": "<v>"}),))
    click(qtbot, view, 0)
    assert "&lt;b&gt;x&lt;/b&gt; &amp; y" in view.detail.text()
    assert "&lt;k&gt; = &lt;v&gt;" in view.detail.text()


def test_going_back_takes_findings_away(qtbot: QtBot) -> None:
    view = shown(qtbot, make_findings())
    click(qtbot, view, 2)
    view.show_snapshot(make_snapshot(findings=make_findings()[:1]))
    assert view.model.rowCount() == 1
    assert "Select a finding" in view.detail.text()
    view.show_snapshot(make_snapshot(findings=()))
    assert view.empty.isVisible()


def test_empty_says_what_would_fill_it(qtbot: QtBot) -> None:
    view = shown(qtbot, ())
    assert view.empty.isVisible()
    assert not view.table.isVisible()
    assert "Nothing found so far" in view.empty.text()
