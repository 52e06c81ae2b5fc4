"""The view of kernels: what is asked for as a person types, what is told of it, and that no text is lost."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from own_wgsl import UPDATE
from PySide6.QtCore import QEvent, QPoint, QPointF, QSettings, Qt
from PySide6.QtGui import QGuiApplication, QMouseEvent, QTextDocument
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot
from test_palette import Shown
from ui_helpers import make_snapshot, small_layout, small_plan

from inspector.optimizers import plan_step
from inspector.own_kernels import NO_OWN_KERNELS, OwnKernels
from inspector.own_shaders import load_own_kernels
from inspector.plan import Limits, Plan, Variant
from inspector.runtime.commands import CheckShader, TryShader
from inspector.runtime.shaders import ShaderCheck, ShadersPicture
from inspector.runtime.snapshots import Snapshot
from inspector.shader_edit import ShaderMessage, built_in_text, read_edited
from inspector.shader_trial import LaneChange, ShaderTrial
from inspector.ui import kept_drafts, theme
from inspector.ui.app import application, make_views
from inspector.ui.pipeline_view import PipelineView
from inspector.ui.reversal import change_of
from inspector.ui.shaders_editor import WgslEditor
from inspector.ui.shaders_model import ShaderTexts, trial_text, ulp_text
from inspector.ui.shaders_view import ShadersView
from inspector.ui.wgsl_colours import WgslColours

pytestmark = pytest.mark.qt

PARAM = "h.0.attn.qkv.weight"
Key, Mod = Qt.Key, Qt.KeyboardModifier
BUILT_IN = built_in_text("adamw_update", "adamw_update")


def plan_with(text: str) -> Plan:
    kernel, messages = read_edited("adamw_update", text)
    assert kernel is not None, messages
    return plan_step(small_layout(), Limits(), Variant(own=OwnKernels((kernel,))))


def shown(qtbot: QtBot, **changes: object) -> tuple[ShadersView, list[object]]:
    view = ShadersView()
    qtbot.addWidget(view)
    sent: list[object] = []
    view.command.connect(sent.append)
    view.resize(950, 220)
    with qtbot.waitExposed(view):
        view.show()
    view.show_snapshot(make_snapshot(**changes))
    return view, sent


def post(view: ShadersView, **changes: object) -> Snapshot:
    snapshot = make_snapshot(plan=view.texts.plan, **changes)
    view.show_snapshot(snapshot)
    return snapshot


TRIAL = ShaderTrial(
    "adamw_update", 128,
    (
        LaneChange("w", 22_000, 21_000, 812.5, 0.5, 812.0, PARAM, 130, 0.25, 0.5, 0.25),
        LaneChange("m", 22_000, 0, 0.0, 0.5, 0.5, PARAM, 0, 1.0, 1.0, 1.0),
    ),
    22_000, 22_000, "", "built-in", "edited",
)  # fmt: skip


def test_the_kernels_of_the_step_are_offered_and_the_update_is_shown_where_it_is_computed(
    qtbot: QtBot,
) -> None:
    view, sent = shown(qtbot)
    names = [view.kernel.itemText(i) for i in range(view.kernel.count())]
    assert names == ["reduce_norm_sq", "finalize_grad_stats", "adamw_update"]
    assert view.entry == "adamw_update"
    assert view.editor.text == BUILT_IN
    assert "to.grad =" in view.editor.textCursor().block().text()
    assert view.state.text() == "built-in, runs"
    assert not view.bar.back.isEnabled()
    assert sent == []
    # The published sum is what an edit of the norm starts from, and it is said not to be what runs.
    view.show_kernel("reduce_norm_sq")
    assert "atomicCompareExchangeWeak" in view.editor.text
    assert "another form" in view.state.text()
    assert sent == []


def test_what_is_typed_is_checked_after_a_pause_and_kept(qtbot: QtBot) -> None:
    view, sent = shown(qtbot)
    kept: list[dict[str, str]] = []
    view.drafts_changed.connect(kept.append)
    QTest.keyClicks(view.editor, "xy")
    assert sent == []
    qtbot.waitUntil(lambda: bool(sent))
    text = view.editor.text
    assert text != BUILT_IN
    assert sent == [CheckShader("adamw_update", text)]
    assert kept == [{"adamw_update": text}]
    assert "not saved" in view.state.text()
    line = view.editor.textCursor().blockNumber() + 1
    message = ShaderMessage(line, 3, "no definition in scope for identifier: 'xy'")
    post(view, shaders=ShadersPicture(ShaderCheck("adamw_update", text, (message,))))
    assert view.editor.wrong_lines == {line}
    assert view.editor.said_at(line) == message.text
    assert view.state.text() == "⚠ 1 problem: the built-in kernel stays in place, not saved"
    assert view.problems.isVisible()
    assert view.messages.index(0, 0).data() == f"{line}:3"
    # An answer to an older text says nothing of this one.
    QTest.keyClicks(view.editor, "z")
    assert view.editor.wrong_lines == frozenset()
    QTest.keySequence(view.editor, "Ctrl+Z")
    QTest.keySequence(view.editor, "Ctrl+Z")
    assert view.editor.text == BUILT_IN
    qtbot.waitUntil(lambda: kept[-1] == {})


def test_f4_goes_to_problems_in_turn(qtbot: QtBot) -> None:
    view, _ = shown(qtbot)
    QTest.keyClicks(view.editor, "x")
    messages = (ShaderMessage(30, 2, "b"), ShaderMessage(3, 7, "a"), ShaderMessage(0, 0, "of all"))
    post(view, shaders=ShadersPicture(ShaderCheck("adamw_update", view.editor.text, messages)))
    view.editor.go_to(1)
    places = []
    for keys in ("F4", "F4", "F4", "Shift+F4"):
        QTest.keySequence(view.editor, keys)
        cursor = view.editor.textCursor()
        places.append((cursor.blockNumber() + 1, cursor.positionInBlock() + 1))
    assert places == [(3, 7), (30, 2), (3, 7), (30, 2)]


def test_ctrl_enter_runs_the_text_on_show_and_the_answer_is_told_lane_by_lane(qtbot: QtBot) -> None:
    view, sent = shown(qtbot)
    picked: list[tuple[str, int]] = []
    view.element_selected.connect(lambda name, index: picked.append((name, index)))
    # The first key reaches the command at once, typed or not.
    view.editor.setPlainText(UPDATE)
    QTest.keyClick(view.editor, Key.Key_Return, Mod.ControlModifier)
    assert view.editor.text == UPDATE
    assert sent == [CheckShader("adamw_update", UPDATE), TryShader("adamw_update", UPDATE)]
    picture = ShadersPicture(ShaderCheck("adamw_update", UPDATE), TRIAL)
    view.show_snapshot(make_snapshot(plan=plan_with(UPDATE), shaders=picture))
    assert view.state.text() == "edited, runs, not saved"
    assert view.says.text() == "Step 128 again, edited against built-in: w differs (all 22,000 elements)."
    cells = [view.trial.index(0, column).data() for column in range(view.trial.columnCount())]
    columns = small_layout()[PARAM].param.shape[1]
    where = f"{PARAM}[{130 // columns}, {130 % columns}]"
    assert cells == ["w", "21,000", "812.50", "0.50", "812.00", where, "0.25", "0.5", "0.25"]
    view.lanes.selectRow(0)
    view.lanes.activated.emit(view.trial.index(0, 0))
    assert picked == [(PARAM, 130)]
    QTest.keySequence(view.editor, "Ctrl+J")
    assert picked == [(PARAM, 130)] * 2
    QTest.keySequence(view.editor, "Ctrl+Shift+C")
    assert "w\t21,000\t812.50" in QGuiApplication.clipboard().text()


def test_reverting_goes_back_to_the_built_in_kernel_and_can_itself_be_undone(qtbot: QtBot) -> None:
    view, sent = shown(qtbot)
    view.show_snapshot(make_snapshot(plan=plan_with(UPDATE)))
    assert view.editor.text == UPDATE
    edited = BUILT_IN.replace("to.m = hp.y", "to.m = 0.5 * hp.y") + "// 𝛽₁ \U0001f600\n"
    view.editor.setPlainText(edited)
    assert view.bar.back.isEnabled()
    QTest.keyClick(view.editor, Key.Key_Return, Mod.ControlModifier | Mod.ShiftModifier)
    assert sent[-1] == TryShader("adamw_update", None)
    assert view.editor.text == BUILT_IN
    view.show_snapshot(make_snapshot())
    assert view.state.text() == "built-in, runs"
    QTest.keySequence(view.editor, "Ctrl+Z")
    assert view.editor.text == edited
    assert "not saved" in view.state.text()


def test_a_saved_kernel_is_one_that_shaders_takes(qtbot: QtBot, tmp_path: Path) -> None:
    view, _ = shown(qtbot)
    kept: list[dict[str, str]] = []
    view.drafts_changed.connect(kept.append)
    view.editor.setPlainText(UPDATE)
    view.save_to(tmp_path / "mine.wgsl", "adamw_update")
    own = load_own_kernels(tmp_path).get("adamw_update")
    assert own is not None
    assert own.source == UPDATE
    assert view.state.text() == f"saved as {tmp_path / 'mine.wgsl'}: use it with --shaders {tmp_path}"
    assert kept in ([], [{}])
    # A second one of that name beside it is refused by --shaders, which is said; it is written all the same.
    view.save_to(tmp_path / "other.wgsl", "adamw_update")
    assert view.state.text().startswith("⚠ saved, but")
    assert (tmp_path / "other.wgsl").read_text() == UPDATE
    view.editor.setPlainText(UPDATE + "\n")
    view.save_to(tmp_path / "nowhere" / "mine.wgsl", "adamw_update")
    assert "nowhere" in view.state.text()
    assert view.texts.is_draft("adamw_update")


def test_drafts_are_there_again_when_the_window_is_opened_next(qtbot: QtBot, tmp_path: Path) -> None:
    settings = QSettings(str(tmp_path / "a.ini"), QSettings.Format.IniFormat)
    drafts = {"adamw_update": UPDATE, "scale": "@ByteArray(x)", "fill_zero": "", "x": 'a, "b";\\n\n\ttab\n'}
    kept_drafts.keep(settings, drafts)
    del settings
    again = QSettings(str(tmp_path / "a.ini"), QSettings.Format.IniFormat)
    assert kept_drafts.kept(again) == drafts
    view = ShadersView()
    qtbot.addWidget(view)
    joined = kept_drafts.KeptDrafts(view, lambda: again, view)
    assert joined.parent() is view
    sent: list[object] = []
    view.command.connect(sent.append)
    view.resize(950, 220)
    with qtbot.waitExposed(view):
        view.show()
    view.show_snapshot(make_snapshot())
    assert view.editor.text == UPDATE
    assert sent == [CheckShader("adamw_update", UPDATE)]
    view.editor.setPlainText("fn other() {}")
    qtbot.waitUntil(lambda: kept_drafts.kept(again)["adamw_update"] == "fn other() {}")
    # Those of kernels that this run has not are kept as they were.
    assert kept_drafts.kept(again)["scale"] == drafts["scale"]


def test_what_was_typed_right_before_the_window_closes_is_kept(qtbot: QtBot) -> None:
    view, _ = shown(qtbot)
    kept: list[dict[str, str]] = []
    view.drafts_changed.connect(kept.append)
    QTest.keyClicks(view.editor, "q")
    view.close()
    assert kept == [{"adamw_update": view.editor.text}]


def test_a_kernel_of_another_optimizer_is_to_be_read_only(qtbot: QtBot) -> None:
    view, sent = shown(qtbot, plan=plan_step(small_layout(), Limits(), Variant(optimizer="lion")))
    view.show_kernel(view.texts.kernels[-1])
    assert view.editor.isReadOnly()
    assert "read only" in view.state.text()
    assert not view.bar.run.isEnabled()
    QTest.keyClick(view.editor, Key.Key_Return, Mod.ControlModifier)
    assert sent == []


def test_the_keys_of_an_editor(qtbot: QtBot) -> None:
    view, _ = shown(qtbot)
    view.editor.setPlainText("fn a() {")
    view.editor.go_to(1, 9)
    QTest.keyClick(view.editor, Key.Key_Return)
    QTest.keyClicks(view.editor, "x")
    QTest.keyClick(view.editor, Key.Key_Return)
    assert view.editor.text == "fn a() {\n    x\n    "
    QTest.keyClick(view.editor, Key.Key_Tab)
    assert not view.editor.hasFocus()


def test_other_kernels_keep_what_was_typed_and_what_can_be_undone(qtbot: QtBot) -> None:
    view, _ = shown(qtbot)
    QTest.keyClicks(view.editor, "q")
    typed = view.editor.text
    view.show_kernel("finalize_grad_stats")
    assert "fn finalize_grad_stats" in view.editor.text
    view.show_kernel("adamw_update")
    assert view.editor.text == typed
    QTest.keySequence(view.editor, "Ctrl+Z")
    assert view.editor.text == BUILT_IN


def test_a_file_of_the_users_is_what_an_edit_goes_back_to(tmp_path: Path) -> None:
    (tmp_path / "mine.wgsl").write_text(UPDATE)
    own = load_own_kernels(tmp_path)
    texts = ShaderTexts()
    texts.show_plan(plan_step(small_layout(), Limits(), Variant(own=own)), own)
    assert texts.text("adamw_update") == UPDATE
    assert texts.state("adamw_update", ShadersPicture()) == f"{tmp_path / 'mine.wgsl'}, runs"
    texts.edit("adamw_update", UPDATE + "\n")
    assert texts.drafts == {"adamw_update": UPDATE + "\n"}
    texts.revert("adamw_update")
    assert texts.drafts == {}
    assert texts.show_plan(small_plan(), NO_OWN_KERNELS)
    assert texts.text("adamw_update") == BUILT_IN


def test_a_kernel_that_was_put_in_place_is_taken_back_by_undo_and_one_that_was_not_is_no_change() -> None:
    edited = make_snapshot(plan=plan_with(UPDATE))
    change = change_of(TryShader("adamw_update", BUILT_IN), edited)
    assert change is not None
    assert change.undo == (TryShader("adamw_update", UPDATE),)
    wrong = ShaderCheck("adamw_update", "fn", (ShaderMessage(1, 1, "no"),))
    assert change_of(TryShader("adamw_update", "fn"), make_snapshot(shaders=ShadersPicture(wrong))) is None


def test_the_kernel_of_the_dispatch_that_is_selected_is_gone_to(qtbot: QtBot) -> None:
    made = Shown(qtbot, views=make_views())
    made.show(make_snapshot())
    window = made.window
    pipeline, view = window.views["pipeline"], window.views["shaders"]
    assert isinstance(pipeline, PipelineView)
    assert isinstance(view, ShadersView)
    pipeline.table.selectRow(2)
    QTest.keySequence(window, "Ctrl+Shift+T")
    assert view.entry == "finalize_grad_stats"
    assert view.isVisible()
    assert view.editor.hasFocus()
    made.bus.blockSignals(True)


def test_words() -> None:
    texts = [ulp_text(x) for x in (math.nan, math.inf, 0.5, 12_345.0, 4e9)]
    assert texts == ["n/a", "not finite", "0.50", "12,345", "4.0e9"]
    part = replace(TRIAL, of=44_000)
    assert "22,000 of 44,000 elements, from the start of each param" in trial_text(part, "adamw_update")
    same = replace(TRIAL, rows=TRIAL.rows[1:])
    assert "no bit differs" in trial_text(same, "adamw_update")
    assert "Ctrl+Enter" in trial_text(TRIAL, "scale")


def test_block_comments_are_coloured_over_lines_and_nest(qtbot: QtBot) -> None:
    theme.apply(application(), "light")
    document = QTextDocument()
    colours = WgslColours(document)
    document.setPlainText("let a = 1; /* one\n /* two */ let\n */ let b // let")
    colours.rehighlight()
    muted = theme.colours().muted

    def muted_at(line: int) -> list[tuple[int, int]]:
        formats = document.findBlockByNumber(line).layout().formats()
        return [(f.start, f.length) for f in formats if f.format.foreground().color() == muted]

    assert muted_at(0) == [(11, 6)]
    assert muted_at(1) == [(0, 14)]
    assert muted_at(2) == [(0, 3), (10, 6)]


# --- kernels from files


def test_kernels_of_files_are_shown_checked_and_can_be_undone(qtbot: QtBot, tmp_path: Path) -> None:
    view, sent = shown(qtbot)
    text = BUILT_IN.replace("let decay", "let  decay")
    assert text != BUILT_IN
    file = tmp_path / "mine.wgsl"
    file.write_text(text)
    view.show_kernel("reduce_norm_sq")
    view.take_files([file])
    assert view.entry == "adamw_update"
    assert view.editor.text == text
    assert f"from {file}" in view.state.text()
    assert sent[-1] == CheckShader("adamw_update", text)
    # It lies in a file: there is nothing to lose.
    assert view.texts.drafts == {}
    view.run_again()
    assert sent[-1] == TryShader("adamw_update", text)
    view.editor.undo()
    assert view.editor.text == BUILT_IN


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("@compute @workgroup_size(1) fn other() {}", "other is no kernel of this step"),
        ("fn f() {}", "has no compute entry point"),
        ("", "is empty"),
        (None, "cannot be read"),
    ],
)
def test_a_file_without_a_kernel_of_the_step_changes_nothing(
    qtbot: QtBot, tmp_path: Path, text: str | None, told: str
) -> None:
    view, sent = shown(qtbot)
    before = view.editor.text
    file = tmp_path / "x.wgsl"
    if text is not None:
        file.write_text(text)
    sent.clear()
    view.take_files([file])
    assert told in view.state.text()
    assert (view.editor.text, sent) == (before, [])


@pytest.mark.parametrize("first", ["fn xyz\n", "fn aaa bbb ccc\n" * 30])
def test_a_word_clicked_in_one_kernel_is_not_selected_on_from_in_another(
    qtbot: QtBot, qtlog: Any, first: str
) -> None:
    """Qt warned of a place out of range, and selected from where the word stood in the other text."""
    editor = WgslEditor()
    qtbot.addWidget(editor)
    editor.resize(600, 400)
    with qtbot.waitExposed(editor):
        editor.show()
    editor.show_text("one", first, read_only=False)
    word = editor.cursorRect().center() + QPoint(editor.fontMetrics().horizontalAdvance("fn x") + 4, 0)
    press, button, none = QEvent.Type.MouseButtonPress, Qt.MouseButton.LeftButton, Qt.MouseButton.NoButton

    def mouse(kind: QEvent.Type, at: QPoint, held: Qt.MouseButton, *, shift: bool = False) -> None:
        keys = Qt.KeyboardModifier.ShiftModifier if shift else Qt.KeyboardModifier.NoModifier
        place = QPointF(editor.viewport().mapToGlobal(at))
        QApplication.sendEvent(editor.viewport(), QMouseEvent(kind, QPointF(at), place, button, held, keys))

    for kind in (press, QEvent.Type.MouseButtonRelease, QEvent.Type.MouseButtonDblClick):
        mouse(kind, word, none if kind == QEvent.Type.MouseButtonRelease else button)
    assert editor.textCursor().selectedText() in ("xyz", "aaa")
    editor.show_text("two", "fn ddd eee fff\n" * 20, read_only=False)
    far = QPoint(100, 200)
    mouse(QEvent.Type.MouseMove, far, button)
    mouse(QEvent.Type.MouseButtonRelease, far, none)
    mouse(press, far, button, shift=True)
    assert [record.message for record in qtlog.records if "QTextCursor" in record.message] == []
    assert editor.textCursor().anchor() == 0, "from where the caret stood in this text"
