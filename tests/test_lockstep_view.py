"""The 8-bit view: what it asks for, its tables and plots from snapshots made by hand, its keys and its words."""

from __future__ import annotations

import math
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot
from ui_helpers import make_snapshot, small_layout, small_plan, wide_layout

from inspector.byte_sizes import size_text
from inspector.coding_error import ParamCodingError, coded_once, merged_error
from inspector.drift import ParamDrift, merged_drift
from inspector.history import EMPTY_HISTORY, HistoryRecorder
from inspector.plan import Variant
from inspector.runtime.commands import StartLockstep, StopLockstep, ViewEightBit
from inspector.runtime.lockstep import BlockErrors, EightBitPicture
from inspector.runtime.snapshots import Snapshot
from inspector.state_memory import lane_bytes
from inspector.stepping import Cursor
from inspector.ui import theme
from inspector.ui.lockstep_grid import NEXT_STEP, START
from inspector.ui.lockstep_model import DRIFT, LOST, PARAM, V_ERROR, percent
from inspector.ui.lockstep_view import LockstepView

pytestmark = pytest.mark.qt

QKV, OUT, NORM = "h.0.attn.qkv.weight", "h.0.attn.out.weight", "h.0.attn_norm.weight"


def error_of(name: str, spread: float) -> ParamCodingError:
    """Errors of a param of three blocks; the larger `spread`, the worse."""
    rng = np.random.default_rng(4)
    m = rng.standard_normal(700).astype(np.float32) * 1e-3
    v = (10 ** rng.uniform(-8 - spread, -8, 700)).astype(np.float32)
    return coded_once(name, "linear", m, v)


def picture(**changes: Any) -> EightBitPicture:
    """A float32 run with 8-bit linear beside it, three params of which one has float32 state."""
    drift = (
        ParamDrift(QKV, 0.5, 10.0, 0.03, QKV, 17),
        ParamDrift(OUT, 0.2, 1.0, 0.01, OUT, 3),
        ParamDrift(NORM, 0.0, 8.0, 0.0, NORM, 0),
    )
    coding = (error_of(QKV, 1), error_of(OUT, 5))
    params = small_layout().params
    made = EightBitPicture(
        codec="linear",
        primary="f32",
        companion="8bit",
        since=120,
        drift_step=128,
        drift=drift,
        drift_total=merged_drift(drift),
        coding_step=128,
        coding=coding,
        coding_total=merged_error(coding),
        f32_bytes=lane_bytes(params, Variant(), small_plan()),
        coded_bytes=lane_bytes(params, Variant(kernel="8bit")),
        ms=0.31,
    )
    return replace(made, **changes)


def off(**changes: Any) -> EightBitPicture:
    params = small_layout().params
    bytes_ = [lane_bytes(params, Variant(kernel=k)) for k in ("f32", "8bit")]  # type: ignore[arg-type]
    return replace(EightBitPicture("linear", "f32", f32_bytes=bytes_[0], coded_bytes=bytes_[1]), **changes)


def history(steps: int = 8, first: int = 121) -> Any:
    recorder = HistoryRecorder()
    for t in range(1, first):
        recorder.append(t, {"lr": 1e-3})
    for t in range(first, first + steps):
        recorder.append(
            t, {"lockstep/drift": 1e-4 * (t - first + 1), "coding/m": 0.01, "coding/v": 0.03 + 0.001 * t}
        )
    return recorder.freeze()


def moment(eight_bit: EightBitPicture | None, **changes: Any) -> Snapshot:
    changes.setdefault("history", history())
    history_ = changes.pop("history")
    return replace(make_snapshot(cursor=Cursor(128, 4, 4)), history=history_, eight_bit=eight_bit, **changes)


class Sent(list[Any]):
    def of(self, kind: type) -> list[Any]:
        return [c for c in self if isinstance(c, kind)]


def shown(
    qtbot: QtBot, snapshot: Snapshot | None, width: int = 1000, height: int = 300
) -> tuple[LockstepView, Sent]:
    view, sent = LockstepView(), Sent()
    qtbot.addWidget(view)
    view.command.connect(sent.append)
    view.resize(width, height)
    with qtbot.waitExposed(view):
        view.show()
    if snapshot is not None:
        view.show_snapshot(snapshot)
    return view, sent


def column(view: LockstepView, which: int) -> list[str]:
    return [str(view.params.index(row, which).data()) for row in range(view.params.rowCount())]


def memory(view: LockstepView) -> list[list[str]]:
    model = view.memory
    return [[str(model.index(r, c).data()) for c in range(model.columnCount())] for r in range(2)]


def test_params_stand_worst_first_and_float32_ones_say_so(qtbot: QtBot) -> None:
    view, _ = shown(qtbot, moment(picture()))
    assert column(view, PARAM) == [OUT, QKV, NORM]
    assert column(view, DRIFT) == ["0.2", "0.05", "0"]
    worst = error_of(OUT, 5)
    assert column(view, V_ERROR)[0] == percent(worst.v.relative)
    assert column(view, LOST) == [f"{worst.lost:,}", f"{error_of(QKV, 1).lost:,}", "–"]


def test_a_click_on_a_column_sorts_by_it(qtbot: QtBot) -> None:
    view, _ = shown(qtbot, moment(picture()))
    view.table.sortByColumn(PARAM, Qt.SortOrder.AscendingOrder)
    assert column(view, PARAM) == [OUT, QKV, NORM] if OUT < QKV else [QKV, OUT, NORM]
    broken = replace(picture(), drift=(replace_nan(picture().drift[2]), *picture().drift[:2]))
    view.table.sortByColumn(DRIFT, Qt.SortOrder.DescendingOrder)
    view.show_snapshot(moment(broken))
    assert column(view, PARAM)[0] == NORM, "what is not a number is the worst"


def replace_nan(drift: ParamDrift) -> ParamDrift:
    return replace(drift, apart=math.nan, norm=math.nan, largest=math.nan)


def test_a_click_on_a_param_selects_it_everywhere_and_asks_for_its_blocks(qtbot: QtBot) -> None:
    view, sent = shown(qtbot, moment(picture()))
    assert sent.of(ViewEightBit)[-1] == ViewEightBit(OUT), "nothing selected: the worst"
    with qtbot.waitSignal(view.param_selected) as selected:
        view.table.selectRow(1)
    assert selected.args == [QKV]
    assert sent.of(ViewEightBit)[-1] == ViewEightBit(QKV)
    view.select_param(NORM)
    assert sent.of(ViewEightBit)[-1] == ViewEightBit(OUT), "float32 state has no blocks"
    assert view.table.currentIndex().row() == 2
    # The selection stays with its param when the order changes.
    view.table.sortByColumn(DRIFT, Qt.SortOrder.AscendingOrder)
    view.show_snapshot(moment(picture(ms=1.0)))
    assert view.table.currentIndex().row() == 0


def test_hidden_it_asks_for_nothing(qtbot: QtBot) -> None:
    view, sent = shown(qtbot, moment(picture()))
    view.hide()
    assert sent[-1] == ViewEightBit(None, watched=False)
    count = len(sent)
    view.show_snapshot(moment(picture()))
    assert len(sent) == count
    view.show()
    assert sent[-1] == ViewEightBit(OUT)


def test_memory_in_float32_and_in_8_bits(qtbot: QtBot) -> None:
    view, _ = shown(qtbot, moment(picture()))
    n = small_layout().elements
    rows = memory(view)
    assert rows[0][:6] == ["float32", *4 * [size_text(4 * n)], size_text(16 * n)]
    assert rows[0][6] == "100 %"
    assert rows[1][6] == percent(picture().coded_bytes.total / (16 * n))  # type: ignore[union-attr]
    assert rows[1][7] == "–", "no such buffers"
    assert rows[0][7].endswith("B")
    assert view.memory.index(0, 5).data(Qt.ItemDataRole.ToolTipRole) == f"{16 * n:,} bytes"
    assert [size_text(x) for x in (999, 464_071_680, 1_856_286_720)] == ["999 B", "464 MB", "1.86 GB"]


def test_before_it_starts_the_plots_say_what_would_fill_them(qtbot: QtBot) -> None:
    view, sent = shown(qtbot, moment(off(), history=EMPTY_HISTORY))
    charts = (view.plots.drift, view.plots.errors, view.plots.blocks, view.plots.histogram)
    assert {chart.message for chart in charts} == {START}
    assert memory(view)[1][6].endswith("%"), "what it would take is known before"
    view.button.click()
    assert sent[-1] == StartLockstep("linear")
    view.show_snapshot(moment(off(companion="8bit", since=0), history=EMPTY_HISTORY))
    assert {chart.message for chart in charts} == {NEXT_STEP}
    assert view.button.text() == "Stop"
    view.show_snapshot(moment(off(waiting=True), history=EMPTY_HISTORY))
    assert view.words.text() == "Starts at the end of this step."
    view.button.click()
    assert sent[-1] == StopLockstep()


def test_without_a_source_nothing_can_start(qtbot: QtBot) -> None:
    view, _ = shown(qtbot, None)
    assert not view.button.isEnabled()
    assert view.plots.drift.message == "No source is open."
    view.show_snapshot(
        replace(make_snapshot(), plan=None, cursor=None, eight_bit=None, history=EMPTY_HISTORY)
    )
    assert not view.button.isEnabled()


def test_keys_start_stop_and_change_the_codec(qtbot: QtBot) -> None:
    view, sent = shown(qtbot, moment(off()))
    view.table.setFocus()
    qtbot.keyClick(view.table, Qt.Key.Key_C)
    assert view.codec.currentText() == "sqrt"
    assert not sent.of(StartLockstep), "nothing runs yet"
    qtbot.keyClick(view.table, Qt.Key.Key_L)
    assert sent[-1] == StartLockstep("sqrt")
    view.show_snapshot(moment(picture(codec="sqrt")))
    qtbot.keyClick(view.table, Qt.Key.Key_C)
    assert sent[-1] == StartLockstep("dynamic"), "another codec is another run"
    qtbot.keyClick(view.table, Qt.Key.Key_L)
    assert sent[-1] == StopLockstep()


def test_a_run_with_8_bit_state_needs_no_second_one(qtbot: QtBot) -> None:
    alone = picture(
        primary="8bit", companion=None, since=None, drift=(), drift_total=None, codec="dynamic", ms=None
    )
    view, _ = shown(qtbot, moment(alone))
    assert column(view, PARAM) == [OUT, QKV]
    assert not view.codec.isEnabled()
    assert view.codec.currentText() == "dynamic"
    assert "8-bit state (dynamic)" in view.words.text()
    assert view.plots.errors.message == ""
    empty = moment(replace(alone, coding=(), coding_total=None), history=EMPTY_HISTORY)
    view.show_snapshot(empty)
    assert view.plots.drift.message == "L starts float32 state beside."
    assert view.plots.errors.message == NEXT_STEP


def test_what_it_costs_and_that_the_loop_is_open_is_said(qtbot: QtBot) -> None:
    view, _ = shown(qtbot, moment(picture()))
    text = view.words.text()
    assert text.startswith("Float32 and 8-bit since step 120, on gradients of the first (open loop)")
    assert "costs 0.31 ms a step" in text
    assert f"max |Δw| 0.03 at {QKV}[17]" in text
    assert "Open loop" in view.words.toolTip()
    view.show_snapshot(moment(off(message="Lockstep ended: the GPU ran out of memory.")))
    assert view.words.text() == "Lockstep ended: the GPU ran out of memory."


def test_a_step_without_a_second_run_reads_out_as_not_known(qtbot: QtBot) -> None:
    recorder = HistoryRecorder()
    recorder.append(1, {"lockstep/drift": 1e-4, "coding/m": 0.01, "coding/v": 0.03})
    recorder.append(2, {"loss": 1.0})
    view, _ = shown(qtbot, moment(off(), history=recorder.freeze()))
    assert view.plots.drift.title.endswith("  n/a")
    assert "m n/a  v n/a" in view.plots.errors.title
    recorder.append(3, {"lockstep/drift": math.nan})
    view.show_snapshot(moment(off(), history=recorder.freeze()))
    assert view.plots.drift.title.endswith("  NaN"), "the weights are"


def test_drift_and_errors_over_steps(qtbot: QtBot) -> None:
    view, _ = shown(qtbot, moment(picture()))
    drift = view.plots.drift.drawn("lockstep/drift")
    assert len(drift.x[np.isfinite(drift.last)]) == 8
    assert 10 ** drift.last[np.isfinite(drift.last)][-1] == pytest.approx(8e-4)
    assert view.plots.errors.trace_names() == ["coding/m", "coding/v"]
    assert view.plots.errors.pen("coding/m").color() == theme.lane_mark("m")
    assert view.plots.errors.pen("coding/v").color() == theme.lane_mark("v")
    assert view.plots.drift.pen("lockstep/drift").color() == theme.lane_mark("w")
    start, stop = view.plots.drift.box.viewRange()[0]
    assert 120 <= start < 121, "from where it was first measured"
    assert 128 < stop < 129
    assert "8e−4" in view.plots.drift.title
    assert f"v {percent(0.158)}" in view.plots.errors.title


def test_blocks_of_a_param_and_their_worst(qtbot: QtBot) -> None:
    m, v = np.float32([1e-5, 3e-5, 0]), np.float32([1e-9, 1e-9, 4e-9])
    blocks = BlockErrors(OUT, 3, 1, m, v)
    view, _ = shown(qtbot, moment(picture(blocks=blocks)), width=1800)
    chart = view.plots.blocks
    x, y = chart.worst["m"].getData()
    assert (x.tolist(), y.tolist()) == ([1.0], [pytest.approx(math.log10(3e-5))])
    assert chart.worst["v"].getData()[0].tolist() == [2.0]
    assert OUT in chart.title
    chart.hovered.emit(2.2)
    assert chart.title == "block 2: m 0  v 4e−9"
    # Those of another param wait unseen.
    view.select_param(QKV)
    assert chart.message == "Reading …"
    many = BlockErrors(QKV, 5000, 3, np.linspace(1, 2, 1667, dtype=np.float32), np.ones(1667, np.float32))
    view.show_snapshot(moment(picture(blocks=many)))
    assert chart.message == ""
    chart.hovered.emit(4999.0)
    assert chart.title.startswith("worst of blocks 4,998 to 4,999: m 2")
    view.show_snapshot(moment(picture(blocks=replace(blocks, param=QKV, m=m * 0, v=v * 0))))
    assert chart.message == "No element has an error."


def test_the_histogram_is_of_the_selected_param_or_of_all(qtbot: QtBot) -> None:
    view, _ = shown(qtbot, moment(picture()), width=1800)
    assert view.plots.histogram.error is not None
    assert view.plots.histogram.error.numel == 1400
    assert "all params" in view.plots.histogram.title
    view.select_param(QKV)
    assert view.plots.histogram.error.numel == 700
    assert QKV in view.plots.histogram.title
    _, high = view.plots.histogram.error.m.log2_range() or (0, 0)
    view.plots.histogram.hovered.emit(high + 0.5)
    assert f"m {int(view.plots.histogram.error.m.exponents[high + 127]):,}" in view.plots.histogram.title
    view.plots.histogram.hovered.emit(1e9)
    assert QKV in view.plots.histogram.title, "no number is as large"


@pytest.mark.parametrize("size", [(300, 500), (620, 150), (1600, 600)])
def test_any_size_holds_titles_that_fit(qtbot: QtBot, size: tuple[int, int]) -> None:
    view, _ = shown(qtbot, moment(picture()), *size)
    for chart in (view.plots.drift, view.plots.errors, view.plots.blocks, view.plots.histogram):
        assert chart.title
        room = chart.width() - 56
        assert chart._title.boundingRect().width() <= max(
            room, chart._title.boundingRect().width() * (room < 90)
        )


def test_tens_of_thousands_of_params(qtbot: QtBot) -> None:
    drift = tuple(
        ParamDrift(s.name, float(i % 97), 100.0, 0.1, s.name, 0) for i, s in enumerate(wide_layout())
    )
    many = picture(drift=drift, drift_total=merged_drift(drift), coding=(), coding_total=None)
    view, _ = shown(qtbot, moment(many))
    assert view.params.rowCount() == len(drift)
    view.table.sortByColumn(DRIFT, Qt.SortOrder.DescendingOrder)
    assert column_head(view) == "0.96"


def column_head(view: LockstepView) -> str:
    return str(view.params.index(0, DRIFT).data())


def test_another_run_forgets_what_was_moved_by_hand(qtbot: QtBot) -> None:
    view, sent = shown(qtbot, moment(picture()))
    view.plots.drift.box.setXRange(3, 4, padding=0)
    view.plots.drift.box.sigRangeChangedManually.emit(None)
    view.show_snapshot(moment(picture(ms=2.0)))
    assert view.plots.drift.box.viewRange()[0] == [3, 4]
    sent.clear()
    view.show_snapshot(moment(picture(ms=3.0), run=7))
    assert view.plots.drift.box.viewRange()[0][1] > 100
    assert sent.of(ViewEightBit), "the new run does not know what is looked at"


def test_both_themes_draw(qtbot: QtBot) -> None:
    from PySide6.QtWidgets import QApplication

    app = QApplication.instance()
    assert isinstance(app, QApplication)
    view, _ = shown(qtbot, moment(picture()))
    try:
        theme.apply(app, "dark")
        assert not view.grab().isNull()
        assert theme.ink(theme.LANE_COLOURS["m"], theme.colours().window).name() in view.key_label.text()
    finally:
        theme.apply(app, "light")


def test_lane_bytes_are_read_only() -> None:
    assert isinstance(lane_bytes(small_layout().params, Variant()).computed, MappingProxyType)
