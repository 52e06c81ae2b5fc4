"""Findings: by cause and newest last, gone to by click and key, evidence with units, filtered, copied, never slow."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import QModelIndex, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QAbstractItemModelTester
from pytestqt.qtbot import QtBot
from ui_helpers import make_findings, make_recorded, make_snapshot

from inspector.findings import Finding
from inspector.runtime.commands import Seek, WeighPolicies
from inspector.ui.findings_model import CAUSE, COUNT, MESSAGE, PARAM, SEVERITY, STEP, FindingsModel
from inspector.ui.findings_view import AROUND, FindingsView

pytestmark = pytest.mark.qt


def shown(qtbot: QtBot, findings: tuple[Finding, ...], **changes: object) -> FindingsView:
    view = FindingsView()
    qtbot.addWidget(view)
    view.resize(900, 500)
    with qtbot.waitExposed(view):
        view.show()
    view.show_snapshot(make_snapshot(findings=findings, **changes))
    return view


def row(view: FindingsView, group: int, finding: int | None = None, column: int = MESSAGE) -> QModelIndex:
    above = view.model.index(group, 0 if finding is not None else column)
    return above if finding is None else view.model.index(finding, column, above)


def click(qtbot: QtBot, view: FindingsView, index: QModelIndex) -> None:
    view.tree.scrollTo(index)
    place = view.tree.visualRect(index).center()
    qtbot.mouseClick(view.tree.viewport(), Qt.MouseButton.LeftButton, pos=place)


def finding(step: int, rule: str = "r", **changes: object) -> Finding:
    settings = {"rule": rule, "severity": "info", "step": step, "message": "m", "advice": "a", **changes}
    return Finding(**settings)  # type: ignore[arg-type]


def nonfinite(step: int, **changes: object) -> Finding:
    return finding(
        step, "nonfinite-gradient", severity="error", param="h.0.attn.out.weight", index=9, **changes
    )


def test_a_cause_tells_its_first_step_count_worst_severity_and_params(qtbot: QtBot) -> None:
    some = (
        finding(3, "spike", severity="warning", param="a"),
        finding(4, "reset"),
        finding(9, "spike", severity="error", param="b"),
        finding(11, "spike", param="a"),
    )
    view = shown(qtbot, some)
    assert view.model.rowCount() == 2
    assert [row(view, 0, None, c).data() for c in (CAUSE, SEVERITY, STEP, COUNT, PARAM)] == [
        "Spike", "✖ error", "3", "3", "a, b",
    ]  # fmt: skip
    assert [row(view, 0, i, STEP).data() for i in range(3)] == ["3", "9", "11"]
    assert row(view, 1, None, CAUSE).data() == "Reset"


def test_a_click_goes_to_the_step_dispatch_and_element_of_a_recording(qtbot: QtBot) -> None:
    view = shown(qtbot, make_findings(), recorded=make_recorded())
    with (
        qtbot.waitSignal(view.command) as sent,
        qtbot.waitSignal(view.element_selected) as selected,
        qtbot.waitSignal(view.range_wanted) as zoomed,
    ):
        click(qtbot, view, row(view, 0, 0))
    assert sent.args == [Seek(97, 0)]
    assert selected.args == ["h.1.attn.qkv.weight", 17]
    assert zoomed.args == [97 - AROUND, 97 + AROUND]
    for words in ("step 97", "gradients", "[17]", "Look at the loss scale", "elements"):
        assert words in view.detail.text()


def test_plots_are_not_zoomed_to_steps_before_the_first(qtbot: QtBot) -> None:
    first = replace(make_findings()[0], step=5)
    view = shown(qtbot, (first,), recorded=make_recorded())
    with qtbot.waitSignal(view.range_wanted) as zoomed:
        click(qtbot, view, row(view, 0, 0))
    assert zoomed.args == [0, 2 * AROUND]


def test_a_click_in_a_live_run_drops_nothing_that_has_run(qtbot: QtBot) -> None:
    view = shown(qtbot, make_findings())
    with qtbot.assertNotEmitted(view.command), qtbot.waitSignal(view.element_selected):
        click(qtbot, view, row(view, 0, 0))
    with qtbot.waitSignal(view.command) as sent:
        qtbot.keyClick(view.tree, Qt.Key.Key_Return)
    assert sent.args == [Seek(97, 0)]


def test_a_finding_of_the_step_on_show_is_gone_to_by_a_click(qtbot: QtBot) -> None:
    view = shown(qtbot, (finding(128, dispatch=2),))
    with qtbot.waitSignal(view.command) as sent, qtbot.assertNotEmitted(view.param_selected):
        click(qtbot, view, row(view, 0, 0))
    assert sent.args == [Seek(128, 2)]


def test_a_cause_stands_for_its_first_finding(qtbot: QtBot) -> None:
    view = shown(qtbot, (nonfinite(5), nonfinite(7), nonfinite(9)), recorded=make_recorded())
    with qtbot.waitSignal(view.command) as sent:
        click(qtbot, view, row(view, 0))
    # Where the gradients are still in place.
    assert sent.args == [Seek(5, 0)]
    assert "3 findings, steps 5 to 9" in view.detail.text()


def test_the_finding_that_was_run_to_is_selected_once(qtbot: QtBot) -> None:
    found = (nonfinite(5), nonfinite(97))
    view = shown(qtbot, found, recorded=make_recorded())
    with (
        qtbot.waitSignal(view.element_selected) as selected,
        qtbot.waitSignal(view.range_wanted) as zoomed,
        qtbot.assertNotEmitted(view.command),
    ):
        view.show_snapshot(make_snapshot(findings=found, recorded=make_recorded(), sought=found[1]))
    assert view.current() == found[1]
    assert selected.args == ["h.0.attn.out.weight", 9]
    assert zoomed.args == [97 - AROUND, 97 + AROUND]
    view.tree.setCurrentIndex(row(view, 0, 0))
    with qtbot.assertNotEmitted(view.element_selected):
        view.show_snapshot(make_snapshot(findings=found, recorded=make_recorded(), sought=found[1]))
    assert view.current() == found[0]


def test_every_part_has_a_key(qtbot: QtBot) -> None:
    view = shown(qtbot, (nonfinite(5), nonfinite(7), finding(8, "z")))
    view.tree.setFocus()
    view.tree.setCurrentIndex(row(view, 0, None, CAUSE))
    qtbot.keyClick(view.tree, Qt.Key.Key_Left)
    assert not view.tree.isExpanded(row(view, 0, None, 0))
    qtbot.keyClick(view.tree, Qt.Key.Key_Right)
    assert view.tree.isExpanded(row(view, 0, None, 0))
    qtbot.keyClick(view.tree, Qt.Key.Key_Down)
    qtbot.keyClick(view.tree, Qt.Key.Key_Down)
    assert view.current() == nonfinite(7)
    qtbot.keyClick(view.tree, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert QGuiApplication.clipboard().text().startswith("error: m\n  step 7 · h.0.attn.out.weight[9]")
    qtbot.keyClick(view.tree, Qt.Key.Key_S)
    assert view.bar.least.currentText() == "▲ and ✖"
    qtbot.keyClick(view.tree, Qt.Key.Key_Slash)
    assert view.bar.words.hasFocus()


def test_y_sets_policies_side_by_side_for_non_finite_gradients_alone(qtbot: QtBot) -> None:
    view = shown(qtbot, (nonfinite(5), finding(8, "z")))
    view.tree.setFocus()
    view.tree.setCurrentIndex(row(view, 1, 0))
    assert not view.bar.policies.isEnabled()
    with qtbot.assertNotEmitted(view.command):
        qtbot.keyClick(view.tree, Qt.Key.Key_Y)
    view.tree.setCurrentIndex(row(view, 0, 0))
    with qtbot.waitSignals([view.command, view.policies_wanted]):
        qtbot.keyClick(view.tree, Qt.Key.Key_Y)
    with qtbot.waitSignal(view.command) as sent:
        view.bar.policies.click()
    assert sent.args == [WeighPolicies(5, "h.0.attn.out.weight", 9)]


def test_copying_a_cause_copies_all_its_findings(qtbot: QtBot) -> None:
    view = shown(qtbot, (nonfinite(5), nonfinite(7)))
    view.tree.setCurrentIndex(row(view, 0))
    view.copy()
    text = QGuiApplication.clipboard().text()
    assert text.startswith("Non-finite gradient: 2 from step 5 on")
    assert text.count("error: m") == 2


def test_a_filter_hides_and_says_so_and_keeps_the_selection(qtbot: QtBot) -> None:
    view = shown(qtbot, (*make_findings(), nonfinite(99)))
    view.tree.setCurrentIndex(row(view, 3, 0))
    view.bar.words.setText("attn")
    assert view.model.rowCount() == 2
    assert view.current() == nonfinite(99)
    view.bar.words.setText("no such words")
    assert view.empty.isVisible()
    assert "None of the findings passes" in view.empty.text()
    assert view.bar.words.isVisible()
    view.bar.words.clear()
    view.bar.least.setCurrentIndex(2)
    assert view.model.shown == 2
    view.show_snapshot(
        make_snapshot(findings=(*make_findings(), nonfinite(99), finding(100), nonfinite(101)))
    )
    assert view.model.shown == 3


def test_the_newest_comes_last_and_the_selection_stays(qtbot: QtBot) -> None:
    many = tuple(finding(step) for step in range(1, 101))
    view = shown(qtbot, many)
    view.tree.expand(row(view, 0, None, 0))
    view.tree.scrollToBottom()
    bottom = view.tree.verticalScrollBar()
    assert bottom.value() == bottom.maximum() > 0
    click(qtbot, view, row(view, 0, 99))
    view.show_snapshot(make_snapshot(findings=(*many, finding(200))))
    assert view.model.rowCount(view.model.index(0, 0)) == 101
    assert view.current() == many[99]
    assert bottom.value() == bottom.maximum()


def test_the_same_finding_told_anew_stays_selected(qtbot: QtBot) -> None:
    """The rules here may know more of it than those that recorded it; with NaN in it it does not equal its copy."""
    nan = float("nan")
    view = shown(qtbot, (finding(3), nonfinite(30, evidence={"value": nan})))
    again = (
        finding(3),
        nonfinite(30, dispatch=0, evidence={"value": nan, "count": 3}, message="other words"),
    )
    for index in (row(view, 1, 0), row(view, 1)):
        view.tree.setCurrentIndex(index)
        view.show_snapshot(make_snapshot(findings=again))
        assert view.current() is again[1]
        again = (finding(3), nonfinite(30, evidence={"value": nan, "count": 3}))
    assert not view.tree.currentIndex().internalId(), "a cause stays the cause"
    with qtbot.waitSignal(view.command):
        view.weigh()


def test_a_look_further_up_is_left_alone(qtbot: QtBot) -> None:
    many = tuple(finding(step) for step in range(1, 101))
    view = shown(qtbot, many)
    view.tree.expand(row(view, 0, None, 0))
    view.tree.scrollToTop()
    view.show_snapshot(make_snapshot(findings=(*many, finding(200))))
    assert view.tree.verticalScrollBar().value() == 0


def test_where_the_oldest_are_dropped_what_is_selected_stays(qtbot: QtBot) -> None:
    many = tuple(finding(step) for step in range(1, 101))
    view = shown(qtbot, many)
    view.tree.expand(row(view, 0, None, 0))
    view.tree.setCurrentIndex(row(view, 0, 50))
    view._opened.add("r")
    view.show_snapshot(make_snapshot(findings=(*many[1:], finding(101))))
    assert view.current() == many[50]
    assert view.tree.isExpanded(view.model.index(0, 0))


def test_ten_thousand_are_taken_in_row_by_row_only_where_few_are_new(qtbot: QtBot) -> None:
    many = tuple(finding(step, f"rule-{step % 40}") for step in range(1, 10_001))
    view = shown(qtbot, many)
    resets: list[None] = []
    added: list[tuple[int, int]] = []
    view.model.modelReset.connect(lambda: resets.append(None))
    view.model.rowsInserted.connect(lambda parent, first, last: added.append((first, last)))
    view.show_snapshot(make_snapshot(findings=many))
    view.show_snapshot(make_snapshot(findings=(*many, finding(10_001, "rule-1"), finding(10_002, "new"))))
    assert resets == []
    assert added == [(250, 250), (40, 40)]


def test_the_model_keeps_qts_rules(qtbot: QtBot) -> None:
    model = FindingsModel()
    QAbstractItemModelTester(model, QAbstractItemModelTester.FailureReportingMode.Fatal)
    many = tuple(finding(step, f"rule-{step % 3}") for step in range(1, 50))
    for count in (0, 1, 2, 5, 20, 49, 10, 0, 49):
        model.show_findings(many[:count])
        assert model.shown == count


def test_text_from_a_run_is_not_markup(qtbot: QtBot) -> None:
    view = shown(qtbot, (finding(1, message="<b>x</b> & y", evidence={"<k>": "<v>"}, source="<i>"),))
    view.tree.setCurrentIndex(row(view, 0, 0))
    tip = row(view, 0, 0, MESSAGE).data(Qt.ItemDataRole.ToolTipRole)
    assert tip == "<span>&lt;b&gt;x&lt;/b&gt; &amp; y</span>"
    text = view.detail.text()
    assert "&lt;b&gt;x&lt;/b&gt; &amp; y" in text
    assert "&lt;k&gt;" in text
    assert "&lt;v&gt;" in text
    assert "Threshold: &lt;i&gt;" in text


def test_going_back_takes_findings_away(qtbot: QtBot) -> None:
    view = shown(qtbot, make_findings())
    view.tree.setCurrentIndex(row(view, 2, 0))
    view.show_snapshot(make_snapshot(findings=make_findings()[:1]))
    assert view.model.rowCount() == 1
    assert "Select a finding" in view.detail.text()
    view.show_snapshot(make_snapshot(findings=()))
    assert view.empty.isVisible()


def test_empty_says_what_would_fill_it(qtbot: QtBot) -> None:
    view = shown(qtbot, ())
    assert view.empty.isVisible()
    assert not view.tree.isVisible()
    assert "Nothing found so far" in view.empty.text()


def test_in_a_narrow_panel_the_columns_that_the_detail_tells_make_room(qtbot: QtBot) -> None:
    view = shown(qtbot, make_findings())
    header = view.tree.header()
    view.resize(388, 160)
    assert [c for c in range(header.count()) if header.isSectionHidden(c)] == [COUNT, MESSAGE]
    bar = view.tree.horizontalScrollBar()
    qtbot.waitUntil(lambda: not bar.isVisible(), timeout=2000)  # It would take the room of a row.
    view.resize(760, 160)
    assert not any(header.isSectionHidden(c) for c in range(header.count()))
    qtbot.waitUntil(lambda: not view.tree.horizontalScrollBar().isVisible(), timeout=2000)


def test_the_detail_has_the_room_that_the_list_does_not_need(qtbot: QtBot) -> None:
    view = shown(qtbot, (finding(3),))
    view.resize(500, 700)
    few = view.tree.height()
    assert few < 120, "a cause and its finding"
    assert view.tree.verticalScrollBar().maximum() == 0
    view.show_snapshot(make_snapshot(findings=tuple(finding(step) for step in range(3, 40))))
    many = view.tree.height()
    assert 300 < many < 450, "no more than its part"
    view._splitter.setSizes([200, 500])
    view._splitter.splitterMoved.emit(200, 1)
    view.show_snapshot(make_snapshot(findings=(finding(3),)))
    assert view.tree.height() > few, "what a person chose stays"
