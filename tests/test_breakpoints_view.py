"""Breakpoints in the window: typed with completion and checked, ticked, removed, kept; a stop selects its element."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PySide6.QtCore import QPoint, QPointF, QSettings, Qt
from PySide6.QtGui import QAction, QImage
from PySide6.QtWidgets import QMenu
from pytestqt.qtbot import QtBot
from ui_helpers import FakeWorker, make_snapshot, make_values, small_layout

from inspector.diagnosis.stopping import EACH_TIME, Stopping
from inspector.diagnosis.watchpoints import parse_condition
from inspector.findings import Finding
from inspector.history import HistoryRecorder
from inspector.runtime.commands import (
    CancelSeek,
    Command,
    RemoveBreakpoint,
    RunBack,
    RunToDispatch,
    RunToFinding,
    SetBreakpoint,
)
from inspector.runtime.hits import Breakpoint, Hit
from inspector.runtime.snapshots import Mark, Searching
from inspector.ui import kept_breakpoints, theme
from inspector.ui.app import make_views
from inspector.ui.break_menu import conditions_of
from inspector.ui.breakpoints_model import CONDITION, HITS, LAST, STOPS, completions, last_text, meaning
from inspector.ui.breakpoints_view import BreakpointsView
from inspector.ui.bus import Bus
from inspector.ui.main_window import MainWindow
from inspector.ui.pipeline_view import PipelineView
from inspector.ui.plots_view import PlotsView
from inspector.ui.run_back_dialog import RunBackDialog
from inspector.ui.timeline_view import TimelineView
from inspector.ui.values_view import ValuesView
from inspector.ui.widgets import FewLinesLabel

pytestmark = pytest.mark.qt

PARAM = "h.1.attn.qkv.weight"
SHAPE = small_layout()[PARAM].param.shape
INDEX = 5000


def hit(text: str = "nonfinite > 0", step: int = 128, value: float | None = 3.0) -> Hit:
    return Hit(
        parse_condition(text), value, step, 0, 4, "reduce_norm_sq", "reduce_norm_sq", PARAM, INDEX, SHAPE
    )


BREAKPOINTS = (
    Breakpoint(parse_condition("nonfinite > 0"), hits=2, last=hit()),
    Breakpoint(parse_condition("clip_scale < 0.1"), enabled=False, stopping=Stopping(once=True, hit=3)),
    Breakpoint(parse_condition("v_error@*.attn.* > 0.2"), note="needs 8-bit state (--kernel 8bit)"),
)


@pytest.fixture
def view(qtbot: QtBot) -> BreakpointsView:
    made = BreakpointsView()
    qtbot.addWidget(made)
    made.resize(500, 300)
    with qtbot.waitExposed(made):
        made.show()
    made.show_snapshot(make_snapshot(breakpoints=BREAKPOINTS))
    made.sent = []  # type: ignore[attr-defined]
    made.command.connect(made.sent.append)  # type: ignore[attr-defined]
    return made


def sent(view: BreakpointsView) -> list[Command]:
    return list(view.sent)  # type: ignore[attr-defined]


def test_a_long_refusal_ends_with_an_ellipsis_and_shows_no_half_line(qtbot: QtBot) -> None:
    note = FewLinesLabel(3)
    qtbot.addWidget(note)
    long = "No param matches: there are " + ", ".join(f"h.{n}.attn.qkv.weight" for n in range(40)) + "."
    line = note.fontMetrics().lineSpacing()
    for width in (300, 180, 600):
        note.resize(width, 200)
        note.setText(long)
        assert note.shown_text().endswith("…")
        assert 2 * line < note.heightForWidth(width) <= 3 * line + 4
        assert note.minimumSizeHint().height() == note.heightForWidth(width)
        assert note.text() == note.toolTip() == long
    note.setText("w < 1 is <b>no</b> condition")
    assert note.shown_text() == "w < 1 is <b>no</b> condition"
    assert note.heightForWidth(600) <= line + 4


def test_rows_tell_condition_hits_and_the_last_stop(view: BreakpointsView) -> None:
    def row(i: int) -> list[object]:
        return [view.model.index(i, column).data() for column in (CONDITION, STOPS, HITS, LAST)]

    where = f"{PARAM}[{INDEX // SHAPE[1]}, {INDEX % SHAPE[1]}]"
    assert row(0) == ["nonfinite > 0", "each time", "2", f"step 128: 3 in {where}"]
    assert row(1) == ["clip_scale < 0.1", "at hit 3", "0", ""]
    assert row(2) == ["v_error@*.attn.* > 0.2", "each time", "0", "needs 8-bit state (--kernel 8bit)"]
    check = Qt.ItemDataRole.CheckStateRole
    states = [Qt.CheckState(view.model.index(i, CONDITION).data(check)) for i in range(3)]
    assert states == [Qt.CheckState.Checked, Qt.CheckState.Unchecked, Qt.CheckState.Checked]
    tip = view.model.index(0, LAST).data(Qt.ItemDataRole.ToolTipRole)
    assert tip == (
        f"Stopped in step 128 before reduce_norm_sq (dispatch 0/4) by nonfinite > 0: nonfinite is 3 in {where}."
    )


def test_a_condition_typed_is_sent_and_the_field_is_ready_for_the_next(
    qtbot: QtBot, view: BreakpointsView
) -> None:
    qtbot.keyClicks(view.field, "update_ratio@h.*.weight > .01")
    assert "‖Δw‖/‖w‖" in view.note.text()
    assert "needs statistics full" in view.note.text()
    qtbot.keyClick(view.field, Qt.Key.Key_Return)
    assert sent(view) == [SetBreakpoint(parse_condition("update_ratio@h.*.weight > 0.01"), True, EACH_TIME)]
    assert view.field.text() == ""
    assert view.note.isHidden()
    qtbot.keyClick(view.field, Qt.Key.Key_Return)
    assert len(sent(view)) == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nonfinit > 0", "did you mean nonfinite"),
        ("w_norm@h.9.* > 1", "No param matches"),
        ("x", "METRIC OP NUMBER"),
    ],
)
def test_what_cannot_be_meant_is_told_and_stays_to_be_corrected(
    qtbot: QtBot, view: BreakpointsView, text: str, told: str
) -> None:
    qtbot.keyClicks(view.field, text)
    qtbot.mouseClick(view.add_button, Qt.MouseButton.LeftButton)
    assert sent(view) == []
    assert told in view.note.text()
    assert view.field.text() == text


def test_a_tick_and_keys_enable_disable_and_remove(qtbot: QtBot, view: BreakpointsView) -> None:
    index = view.model.index(1, CONDITION)
    assert not view.model.setData(index, Qt.CheckState.Checked, Qt.ItemDataRole.CheckStateRole)
    assert sent(view)[-1] == SetBreakpoint(BREAKPOINTS[1].condition, True)
    view.table.setFocus()
    view.table.setCurrentIndex(view.model.index(0, LAST))
    qtbot.keyClick(view.table, Qt.Key.Key_Space)
    assert sent(view)[-1] == SetBreakpoint(BREAKPOINTS[0].condition, False)
    qtbot.keyClick(view.table, Qt.Key.Key_Delete)
    assert sent(view)[-1] == RemoveBreakpoint(BREAKPOINTS[0].condition)
    view.show_snapshot(make_snapshot(breakpoints=BREAKPOINTS[1:]))
    assert view.table.currentIndex().row() == 0
    view.show_snapshot(make_snapshot())
    assert view.stack.currentWidget() is view.empty
    assert not view.remove_button.isEnabled()


def test_a_row_is_edited_in_the_field_and_stops_once_by_key_and_click(
    qtbot: QtBot, view: BreakpointsView
) -> None:
    shown = BREAKPOINTS[1]
    view.table.setFocus()
    view.table.setCurrentIndex(view.model.index(1, LAST))
    qtbot.keyClick(view.table, Qt.Key.Key_1)
    assert sent(view)[-1] == SetBreakpoint(shown.condition, False, Stopping(once=False, hit=3))
    spot = view.table.visualRect(view.model.index(0, STOPS)).center()
    qtbot.mouseClick(view.table.viewport(), Qt.MouseButton.LeftButton, pos=spot)
    assert sent(view)[-1] == SetBreakpoint(BREAKPOINTS[0].condition, True, Stopping(once=True))
    view.table.setCurrentIndex(view.model.index(1, LAST))
    qtbot.keyClick(view.table, Qt.Key.Key_F2)
    assert view.field.text() == "clip_scale < 0.1, hit 3, once"
    assert view.field.selectedText() == "0.1"
    before = len(sent(view))
    qtbot.keyClicks(view.field, "0.2")
    qtbot.keyClick(view.field, Qt.Key.Key_Return)
    assert sent(view)[before:] == [
        RemoveBreakpoint(shown.condition),
        SetBreakpoint(parse_condition("clip_scale < 0.2"), False, Stopping(once=True, hit=3)),
    ]
    # Esc gives up, and what is typed next is a new one.
    view.table.setCurrentIndex(view.model.index(0, LAST))
    qtbot.keyClick(view.table, Qt.Key.Key_F2)
    qtbot.keyClick(view.field, Qt.Key.Key_Escape)
    assert view.field.text() == ""
    qtbot.keyClicks(view.field, "nan > 0, once")
    qtbot.keyClick(view.field, Qt.Key.Key_Return)
    assert sent(view)[before + 2 :] == [SetBreakpoint(parse_condition("nan > 0"), True, Stopping(once=True))]


def test_enter_on_a_row_selects_the_param_of_its_last_stop(qtbot: QtBot, view: BreakpointsView) -> None:
    view.table.setFocus()
    view.table.setCurrentIndex(view.model.index(0, CONDITION))
    with qtbot.waitSignal(view.param_selected) as selected:
        qtbot.keyClick(view.table, Qt.Key.Key_Return)
    assert selected.args == [PARAM]


def test_figures_that_change_leave_the_selection(view: BreakpointsView) -> None:
    view.table.setCurrentIndex(view.model.index(2, 0))
    more = (Breakpoint(BREAKPOINTS[0].condition, hits=3, last=hit(step=130)), *BREAKPOINTS[1:])
    view.show_snapshot(make_snapshot(breakpoints=more))
    assert view.table.currentIndex().row() == 2
    assert view.model.index(0, HITS).data() == "3"


def test_a_stop_selects_its_row_once(view: BreakpointsView) -> None:
    view.table.setCurrentIndex(view.model.index(2, 0))
    stop = hit("clip_scale < 0.1", value=0.05)
    view.show_snapshot(make_snapshot(breakpoints=BREAKPOINTS, stop=stop))
    assert view.table.currentIndex().row() == 1
    view.table.setCurrentIndex(view.model.index(0, 0))
    view.show_snapshot(make_snapshot(breakpoints=BREAKPOINTS, stop=stop))
    assert view.table.currentIndex().row() == 0


def test_what_may_be_typed_is_offered() -> None:
    names = ["h.0.attn.w", "h.0.norm", "head"]
    offered = completions("upd", names)
    assert {"update_ratio", "nonfinite", "finding:norm-overflow"} <= set(offered)
    assert completions("w_norm@attn", names) == ["w_norm@* > ", "w_norm@h.0.attn.w > "]
    assert completions("lr@", names) == []
    assert completions("nonsense@", names) == []
    assert "learning rate" in meaning("lr > 1")
    assert meaning("lr@x > 1") == ""
    assert meaning("finding:norm-overflow") == ""
    finding = Finding("norm-overflow", "error", 3, "Overflow.", "")
    stop = Hit(parse_condition("finding:norm-overflow"), None, 3, 3, 4, "k", "k", finding=finding)
    assert last_text(Breakpoint(stop.condition, last=stop)) == "step 3"
    for value, text in ((0.1, "0.1"), (float("inf"), "Infinity"), (float("nan"), "NaN"), (3e4, "30,000")):
        assert hit("grad_norm > 0", value=value).value_text == text
    assert hit("loss != 0", value=float("nan")).value_text == "NaN nats"
    assert hit("update_ratio@* > 0", value=1 / 3).value_text == "0.333333"
    assert stop.sentence == "Stopped in step 3 before k (dispatch 3/4) by finding:norm-overflow: Overflow."


def test_they_are_kept_for_the_next_start(tmp_path: Path) -> None:
    path = str(tmp_path / "window.ini")
    settings = QSettings(path, QSettings.Format.IniFormat)
    kept_breakpoints.keep(settings, BREAKPOINTS)
    settings.sync()
    again = QSettings(path, QSettings.Format.IniFormat)
    found = kept_breakpoints.kept(again)
    assert [(b.condition, b.enabled) for b in found] == [(b.condition, b.enabled) for b in BREAKPOINTS]
    kept_breakpoints.keep(again, BREAKPOINTS[:1])
    assert len(kept_breakpoints.kept(again)) == 1
    again.setValue("breakpoints/1/condition", "of a later version > 1")
    assert kept_breakpoints.kept(again) == ()


def test_the_timeline_has_a_red_dot_where_one_stopped(qtbot: QtBot) -> None:
    view = TimelineView()
    qtbot.addWidget(view)
    view.resize(800, 64)
    with qtbot.waitExposed(view):
        view.show()
    view.show_snapshot(
        make_snapshot(marks=(Mark(60, "stopped by nonfinite > 0: 3", stop=True), Mark(90, "lr")))
    )
    image: QImage = view.grab().toImage()
    red = theme.colours().error.rgb()

    def has_red(step: int) -> bool:
        x = round(view.x_of(step))
        return any(image.pixel(x, y) == red for y in range(view.height()))

    assert view.hasFocus()  # which frames it, and fills nothing
    assert has_red(60)
    assert not has_red(90)
    assert view.describe(view.x_of(60)).splitlines()[0] == "Step 60: stopped by nonfinite > 0: 3"
    assert view.describe(view.x_of(90)).splitlines()[0] == "From step 90: lr"


# --- the window


class Window:
    def __init__(self, qtbot: QtBot, settings: QSettings | None = None) -> None:
        self.worker = FakeWorker(make_snapshot())
        self.bus = Bus(self.worker.send)
        self.window = MainWindow(self.bus, make_views(), settings=settings)
        qtbot.addWidget(self.window)
        self.window.resize(1280, 800)
        with qtbot.waitExposed(self.window):
            self.window.show()
        self.worker.start(self.bus.post_from_worker)
        qtbot.waitUntil(lambda: self.window.snapshot is not None and self.window.at_rest)


@pytest.fixture
def opened(qtbot: QtBot) -> Iterator[Window]:
    made = Window(qtbot)
    yield made
    made.window.close()


def test_a_stop_selects_its_tensor_and_element_once(qtbot: QtBot, opened: Window) -> None:
    window, worker = opened.window, opened.worker
    values = window.views["values"]
    assert isinstance(values, ValuesView)
    stop = hit()
    worker.post(stop=stop, breakpoints=BREAKPOINTS, values=make_values(PARAM, INDEX - 50, 100))
    qtbot.waitUntil(lambda: values.model.param is not None)
    assert values.model.param is not None
    assert values.model.param.name == PARAM
    assert values.model.base + values.table.currentIndex().row() == INDEX
    assert values.paged.top <= INDEX < values.paged.top + values.paged.visible_rows
    window.select_param("norm.weight")
    worker.post(stop=stop)
    qtbot.wait(50)
    assert values.model.param.name == "norm.weight"
    # Stopped again at the same place after going back: another stop.
    worker.post(stop=None)
    qtbot.wait(50)
    worker.post(stop=hit())
    qtbot.waitUntil(lambda: values.model.param is not None and values.model.param.name == PARAM)


def test_keys_come_to_the_field_and_break_on_what_is_not_finite(qtbot: QtBot, opened: Window) -> None:
    window, worker = opened.window, opened.worker
    acts = window.actions_by_name
    acts["breakpoint"].trigger()
    view = window.views["breakpoints"]
    assert isinstance(view, BreakpointsView)
    assert view.isVisible()
    qtbot.waitUntil(view.field.hasFocus)
    findings = window.views["findings"]
    window.findChild(QAction, "go_to_findings").trigger()
    assert findings.isVisible()
    assert not view.isVisible()
    acts["break_nonfinite"].trigger()
    assert worker.of_type(SetBreakpoint) == [SetBreakpoint(parse_condition("nonfinite > 0"), True)]
    worker.post(breakpoints=BREAKPOINTS)
    qtbot.waitUntil(acts["break_nonfinite"].isChecked)
    acts["break_nonfinite"].trigger()
    assert worker.of_type(SetBreakpoint)[-1] == SetBreakpoint(parse_condition("nonfinite > 0"), False)


def test_the_window_sends_those_kept_and_keeps_those_there_are(qtbot: QtBot, tmp_path: Path) -> None:
    path = str(tmp_path / "window.ini")
    settings = QSettings(path, QSettings.Format.IniFormat)
    kept_breakpoints.keep(settings, BREAKPOINTS[:2])
    made = Window(qtbot, settings)
    assert made.worker.of_type(SetBreakpoint) == [
        SetBreakpoint(parse_condition("nonfinite > 0"), True, EACH_TIME),
        SetBreakpoint(parse_condition("clip_scale < 0.1"), False, Stopping(once=True, hit=3)),
    ]
    made.worker.post(breakpoints=BREAKPOINTS[1:])
    qtbot.waitUntil(lambda: made.window.snapshot is not None and len(made.window.snapshot.breakpoints) == 2)
    made.window.close()
    again = kept_breakpoints.kept(QSettings(path, QSettings.Format.IniFormat))
    assert [b.text for b in again] == ["clip_scale < 0.1, hit 3, once", "v_error@*.attn.* > 0.2"]


# --- run to, and breakpoints made of what is seen


def test_a_value_in_a_plot_becomes_a_breakpoint_to_look_over(qtbot: QtBot, opened: Window) -> None:
    window, worker = opened.window, opened.worker
    recorder = HistoryRecorder()
    for step in range(1, 101):
        norm = float(np.float32(0.1)) if step == 50 else 2.0
        recorder.append(step, {"loss": 3.0, "grad_norm": norm, "clip_scale": 0.5, "lr": 1e-3})
    worker.post(history=recorder.freeze(), record=None)
    plots, view = window.views["plots"], window.views["breakpoints"]
    assert isinstance(plots, PlotsView)
    assert isinstance(view, BreakpointsView)
    qtbot.waitUntil(lambda: len(plots._history) == 100)
    window.show_view("plots")
    chart = plots.charts["grad_norm"]

    def spot(step: float, y: float) -> QPoint:
        return chart.mapFromScene(chart.box.mapViewToScene(QPointF(step, y)))

    # The float32 of the step clicked, in the fewest digits that are it; its number is selected to be typed over.
    qtbot.mouseClick(
        chart.viewport(),
        Qt.MouseButton.LeftButton,
        Qt.KeyboardModifier.AltModifier,
        spot(50, math.log10(1.0)),
    )
    assert view.field.text() == "grad_norm > 0.1"
    assert view.field.selectedText() == "0.1"
    qtbot.waitUntil(view.field.hasFocus)
    qtbot.keyClick(view.field, Qt.Key.Key_Return)
    assert worker.of_type(SetBreakpoint)[-1].condition == parse_condition("grad_norm > 0.1")
    # A right click offers both directions, and the height under the mouse.
    window.show_view("plots")
    qtbot.mouseClick(chart.viewport(), Qt.MouseButton.RightButton, pos=spot(20, math.log10(0.5)))
    menu = plots.findChild(QMenu, "break_menu")
    assert menu is not None
    texts = [action.data() for action in menu.actions()]
    assert texts[:2] == ["grad_norm > 2", "grad_norm < 2"]
    assert [float(text.split()[-1]) for text in texts[2:]] == pytest.approx([0.5, 0.5], rel=0.1)
    menu.actions()[1].trigger()
    menu.close()
    assert view.field.text() == "grad_norm < 2"
    # B: one on every metric, at the step on show; of the clip scale one waits for less.
    window.show_view("plots")
    plots.setFocus()
    qtbot.keyClick(plots, Qt.Key.Key_B)
    menus = [m for m in plots.findChildren(QMenu, "break_menu") if m.isVisible()]
    assert [action.data() for action in menus[-1].actions()] == [
        "loss > 3", "grad_norm > 2", "clip_scale < 0.5", "lr > 0.001",
    ]  # fmt: skip
    menus[-1].close()


def test_what_is_not_finite_offers_the_rule_that_looks_for_it() -> None:
    assert conditions_of("loss", math.nan) == ["finding:nonfinite-loss"]
    assert conditions_of("grad_norm", math.inf) == ["finding:norm-overflow"]
    assert conditions_of("lr", math.inf) == []
    assert conditions_of("grad_norm", math.inf, "a") == []
    assert conditions_of("update_ratio", 0.0123456789, "h.0.w") == [
        "update_ratio@h.0.w > 0.0123457", "update_ratio@h.0.w < 0.0123457",
    ]  # fmt: skip


def test_keys_run_to_a_dispatch_the_next_finding_and_back(qtbot: QtBot, opened: Window) -> None:
    window, worker = opened.window, opened.worker
    worker.post(breakpoints=BREAKPOINTS, stop=hit("clip_scale < 0.1", value=0.01))
    acts = window.actions_by_name
    qtbot.waitUntil(acts["run_back"].isEnabled)
    pipeline = window.views["pipeline"]
    assert isinstance(pipeline, PipelineView)
    pipeline.table.selectRow(3)
    acts["run_to_dispatch"].trigger()
    pipeline.table.selectRow(0)
    qtbot.keyClick(pipeline.table, Qt.Key.Key_Return)
    assert worker.of_type(RunToDispatch) == [RunToDispatch(2), RunToDispatch(0)]
    acts["run_to_finding"].trigger()
    assert worker.of_type(RunToFinding) == [RunToFinding()]
    acts["run_back"].trigger()
    dialog = window.findChild(RunBackDialog)
    assert dialog is not None
    # What stopped the run comes first, then the other breakpoints.
    assert [dialog.field.itemText(i) for i in range(dialog.field.count())] == [
        "clip_scale < 0.1", "nonfinite > 0", "v_error@*.attn.* > 0.2", "finding:*",
    ]  # fmt: skip
    dialog.field.setEditText("w_norm@h.9.* > 1")
    dialog.go.click()
    assert "No param matches" in dialog.note.text()
    dialog.field.setEditText("w_norm@h.1.* > 1")
    dialog.go.click()
    assert worker.of_type(RunBack) == [RunBack(parse_condition("w_norm@h.1.* > 1"))]
    view = window.views["breakpoints"]
    assert isinstance(view, BreakpointsView)
    window.show_view("breakpoints")
    qtbot.waitUntil(lambda: view.model.rowCount() == 3)
    view.table.setFocus()
    view.table.setCurrentIndex(view.model.index(0, LAST))
    qtbot.keyClick(view.table, Qt.Key.Key_R)
    assert worker.of_type(RunBack)[-1] == RunBack(parse_condition("nonfinite > 0"))


def test_how_far_a_search_has_come_is_told_and_can_be_ended(qtbot: QtBot, opened: Window) -> None:
    window, worker = opened.window, opened.worker
    acts = window.actions_by_name
    worker.post(searching=Searching("the step before w_norm > 9", 70, 128, 1))
    qtbot.waitUntil(acts["stay"].isEnabled)
    told = "Looking for the step before w_norm > 9: step 70, from 128 towards 1 (Esc ends it)."
    assert window.transport.text.text() == told
    assert window.transport.stay.isVisible()
    assert window.transport.stay.text() == "Stop looking"
    acts["stay"].trigger()
    assert worker.of_type(CancelSeek) == [CancelSeek()]
    worker.post(searching=None)
    qtbot.waitUntil(lambda: not acts["stay"].isEnabled())
