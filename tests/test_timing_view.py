"""Kernel times: sums, medians and shares leave out what was not measured, and say which clock it was."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from PySide6.QtCore import QPoint, Qt
from pytestqt.qtbot import QtBot
from ui_helpers import make_history, make_snapshot, small_plan, wide_layout

from inspector.history import EMPTY_HISTORY, History, HistoryRecorder
from inspector.optimizers import plan_step
from inspector.plan import Limits, Variant
from inspector.runtime.snapshots import Snapshot
from inspector.stepping import Cursor, KernelTime
from inspector.ui import theme
from inspector.ui.timing_view import TimingView

pytestmark = pytest.mark.qt

KERNELS = [d.timing_key for d in small_plan().dispatches]


def times(*ms: float | None, clock: str = "gpu", cold: bool = False) -> tuple[KernelTime, ...]:
    return tuple(KernelTime(n, None, t, clock, cold) for n, t in zip(KERNELS, ms, strict=True))  # type: ignore[arg-type]


def history_of(kernel: str, ms: Sequence[float]) -> History:
    recorder = HistoryRecorder()
    for i, value in enumerate(ms):
        recorder.append(i + 1, {f"ms/{kernel}": value})
    return recorder.freeze()


def shown(qtbot: QtBot, snapshot: Snapshot) -> TimingView:
    view = TimingView()
    qtbot.addWidget(view)
    view.resize(600, 500)
    with qtbot.waitExposed(view):
        view.show()
    view.show_snapshot(snapshot)
    return view


def cells(view: TimingView, row: int) -> list[str]:
    return [view.model.index(row, c).data() for c in range(view.model.columnCount())]


def test_last_median_and_share(qtbot: QtBot) -> None:
    history = history_of(KERNELS[0], [1.0, 2.0, 9.0])
    snapshot = replace(make_snapshot(dispatch_times=times(1.0, 1.0, 6.0, 2.0)), history=history)
    view = shown(qtbot, snapshot)
    assert cells(view, 0) == ["reduce_norm_sq", "gpu", "1 ms", "2 ms", "10.0 %"]
    assert cells(view, 2) == [KERNELS[2], "gpu", "6 ms", "n/a", "60.0 %"]
    assert view.total.text() == "Step: 10 ms of GPU time"


def test_not_available_is_left_out_of_medians_and_shares(qtbot: QtBot) -> None:
    history = history_of(KERNELS[0], [math.nan, 3.0, math.nan, 5.0, math.nan])
    snapshot = replace(make_snapshot(dispatch_times=times(None, 1.0, 2.0, 1.0)), history=history)
    view = shown(qtbot, snapshot)
    assert cells(view, 0)[2:] == ["n/a", "4 ms", "n/a"]
    assert cells(view, 1)[4] == "25.0 %"
    assert view.total.text() == "Step: 4 ms of GPU time, 1 kernel n/a"
    assert view.chart.drawn(f"ms/{KERNELS[0]}").drawn == 2


def test_cpu_time_and_cold_are_labelled(qtbot: QtBot) -> None:
    view = shown(qtbot, make_snapshot(dispatch_times=times(1, 1, 1, 1, clock="cpu", cold=True)))
    assert cells(view, 0)[1] == "cpu, cold"
    assert "CPU time" in view.total.text()
    assert view.chart.title.startswith("CPU time (ms)")


def test_dispatches_of_one_kernel_and_block_are_one_row(qtbot: QtBot) -> None:
    plan = plan_step(wide_layout(), Limits(), Variant(dispatch="per-tensor"))
    count = len(plan.dispatches)
    measured = tuple(KernelTime(d.entry_point, d.block, 0.5, "gpu") for d in plan.dispatches)
    view = shown(qtbot, make_snapshot(plan=plan, cursor=Cursor(3, count, count), dispatch_times=measured))
    assert view.model.kernels == tuple(KERNELS)
    assert cells(view, 2)[2] == "7.5 s"
    assert cells(view, 3)[2] == "2.5 s"
    one_missing = (*measured[:-1], replace(measured[-1], ms=None))
    view.show_snapshot(make_snapshot(plan=plan, cursor=Cursor(3, count, count), dispatch_times=one_missing))
    assert cells(view, 3)[2] == "n/a"


def test_a_selected_kernel_is_drawn_in_the_accent_and_read_out(qtbot: QtBot) -> None:
    snapshot = replace(make_snapshot(cursor=Cursor(128, 4, 4)), history=make_history(labels=KERNELS))
    view = shown(qtbot, snapshot)
    place = view.table.visualRect(view.model.index(1, 0)).center()
    qtbot.mouseClick(view.table.viewport(), Qt.MouseButton.LeftButton, pos=place)
    pens = {n: view.chart.pen(n) for n in view.chart.trace_names()}
    chosen = f"ms/{KERNELS[1]}"
    assert pens.pop(chosen).color() == theme.colours().accent
    assert {pen.color().name() for pen in pens.values()} == {theme.colours().text.name()}
    qtbot.mouseMove(view.chart.viewport(), QPoint(200, 60))
    qtbot.mouseMove(view.chart.viewport(), QPoint(300, 60))
    assert KERNELS[1] in view.chart.title
    assert view.chart.title.startswith("step ")


def test_nothing_timed_yet_says_so(qtbot: QtBot) -> None:
    view = shown(qtbot, replace(make_snapshot(dispatch_times=()), history=EMPTY_HISTORY))
    assert "F11" in view.chart.message
    assert cells(view, 0)[2:] == ["n/a", "n/a", "n/a"]


def test_without_a_plan_the_table_is_empty(qtbot: QtBot) -> None:
    view = shown(qtbot, make_snapshot(plan=None, cursor=None))
    assert view.model.rowCount() == 0


def test_every_curve_has_its_line_style_and_the_table_a_sample_of_it(qtbot: QtBot) -> None:
    snapshot = replace(make_snapshot(cursor=Cursor(128, 4, 4)), history=make_history(labels=KERNELS))
    view = shown(qtbot, snapshot)
    patterns = {tuple(view.chart.pen(name).dashPattern()) for name in view.chart.trace_names()}
    assert len(patterns) == len(view.chart.trace_names()) == len(KERNELS)
    decoration = Qt.ItemDataRole.DecorationRole
    samples = [view.model.index(row, 0).data(decoration).toImage() for row in range(len(KERNELS))]
    assert all(a != b for i, a in enumerate(samples) for b in samples[:i])


def test_a_long_run_keeps_the_line_styles(qtbot: QtBot) -> None:
    snapshot = replace(make_snapshot(cursor=Cursor(900, 4, 4)), history=make_history(900, labels=KERNELS))
    view = shown(qtbot, snapshot)
    patterns = {tuple(view.chart.pen(name).dashPattern()) for name in view.chart.trace_names()}
    assert len(patterns) == len(KERNELS)
