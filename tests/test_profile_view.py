"""The profile: hand-worked costs and shares of a copy, cold samples left out, variants compared, and its files."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QFileDialog
from pytestqt.qtbot import QtBot
from ui_helpers import make_comparison, make_snapshot, small_layout, small_plan, wide_layout

from inspector.history import EMPTY_HISTORY, History, HistoryRecorder
from inspector.optimizers import plan_step
from inspector.plan import Limits, Variant
from inspector.runtime.commands import CancelCompare, CompareVariants, MeasureCopy
from inspector.runtime.snapshots import Comparing, Notice, Snapshot
from inspector.stepping import Cursor, DeviceInfo
from inspector.ui import theme
from inspector.ui.profile_model import COLUMNS, MEASURE_FIRST, RECENT
from inspector.ui.profile_view import NOTHING_TIMED, ProfileView
from inspector.ui.variants_table import COLUMNS as VARIANT_COLUMNS
from inspector.ui.variants_table import RATIO

pytestmark = pytest.mark.qt

KERNELS = list(dict.fromkeys(d.timing_key for d in small_plan().dispatches))
STEP_BYTES = sum(d.moved_bytes for d in small_plan().dispatches)
Row = tuple[float | None, ...]


def history_of(*steps: Row, cold: tuple[int, ...] = (), first: int = 1) -> History:
    """ms of each kernel by step, None where it did not run; steps whose place is in `cold` ran at low clocks."""
    recorder = HistoryRecorder()
    for i, row in enumerate(steps):
        kind = "cold" if i in cold else "ms"
        metrics = {f"{kind}/{k}": ms for k, ms in zip(KERNELS, row, strict=True) if ms is not None}
        recorder.append(first + i, metrics)
    return recorder.freeze()


def moment(history: History, **changes: Any) -> Snapshot:
    # After the last step of the history, before the first dispatch of the next.
    last = int(history.first[-1] + history.stride - 1) if len(history) else 0
    count = len(small_plan().dispatches)
    return replace(make_snapshot(cursor=Cursor(last + 1, 0, count)), history=history, **changes)


def shown(qtbot: QtBot, snapshot: Snapshot, width: int = 900, height: int = 400) -> ProfileView:
    view = ProfileView()
    qtbot.addWidget(view)
    view.resize(width, height)
    with qtbot.waitExposed(view):
        view.show()
    view.show_snapshot(snapshot)
    return view


def cell(view: ProfileView, row: int, column: str) -> str:
    return str(view.model.index(row, COLUMNS.index(column)).data())


def row_of(view: ProfileView, row: int) -> dict[str, str]:
    return {column: cell(view, row, column) for column in COLUMNS}


def test_costs_of_a_kernel_and_of_the_step_worked_by_hand(qtbot: QtBot) -> None:
    history = history_of((1, 1, 6, 2), (3, 1, 6, 2), (2, 1, 6, 2))
    view = shown(qtbot, moment(history, copy_gbps=100.0))
    assert [cell(view, i, "kernel") for i in range(view.model.rowCount())] == [*KERNELS, "step"]
    update = small_plan().dispatches[2]
    gbps = update.moved_bytes / 6e6
    assert row_of(view, 2) == {
        "kernel": "adamw_update wd",
        "median": "6 ms",
        "floor": f"{update.moved_bytes / 100 / 1e3:.1f} µs",
        "of step": "54.5 %",  # 6 of 2 + 1 + 6 + 2
        "GB/s": f"{gbps:.2f}",
        "of copy": f"{gbps:.1f} %",
        "B/element": "32",
        "GFLOP/s": "n/a",
        "calls": "1",
        "last": "6 ms",
        "min": "6 ms",
        "p95": "6 ms",
        "warm": "3",
        "cold": "0",
    }
    assert [cell(view, 0, c) for c in ("last", "min", "median", "p95")] == ["2 ms", "1 ms", "2 ms", "2.9 ms"]
    assert [cell(view, 4, c) for c in ("median", "of step", "calls")] == ["11 ms", "100.0 %", "4"]
    # finalize works on no element.
    assert cell(view, 1, "B/element") == "n/a"
    floor = STEP_BYTES / 100e9 * 1e3
    assert f"the step takes {11 / floor:.3g} × as long" in view.summary.text()
    assert cell(view, 4, "floor") == f"{floor * 1e3:.1f} µs"


def test_until_a_copy_is_measured_shares_of_it_say_so(qtbot: QtBot) -> None:
    view = shown(qtbot, moment(history_of((1, 1, 1, 1))))
    assert cell(view, 2, "of copy") == cell(view, 2, "floor") == "n/a"
    tip = view.model.index(2, COLUMNS.index("of copy")).data(Qt.ItemDataRole.ToolTipRole)
    assert tip == MEASURE_FIRST == view.copy_label.text()
    assert f"Floor {MEASURE_FIRST}" in view.summary.text()
    assert cell(view, 2, "of step") == "25.0 %"


def test_cold_samples_are_counted_and_left_out(qtbot: QtBot) -> None:
    history = history_of((9, 9, 9, 9), (1, 1, 1, 1), (math.nan, 9, 9, 9), (1, 1, 1, 1), cold=(0, 2))
    view = shown(qtbot, moment(history))
    for row in range(5):
        assert (cell(view, row, "warm"), cell(view, row, "cold")) == ("2", "2")
    assert (cell(view, 0, "p95"), cell(view, 4, "p95")) == ("1 ms", "4 ms")
    assert "2 cold steps left out" in view.summary.text()


def test_a_time_that_is_not_available_leaves_its_step_out(qtbot: QtBot) -> None:
    history = history_of((1, 1, 1, 1), (1, 1, math.nan, 1), (3, 3, 3, 3), (1, 1, None, 1))
    view = shown(qtbot, moment(history))
    assert [cell(view, row, "warm") for row in range(5)] == ["4", "4", "2", "4", "2"]
    assert cell(view, 4, "median") == "8 ms"


def test_only_recent_points_count(qtbot: QtBot) -> None:
    rows = [(100, 1, 1, 1)] * 10 + [(1, 1, 1, 1)] * RECENT
    view = shown(qtbot, moment(history_of(*rows)))
    assert (cell(view, 0, "p95"), cell(view, 0, "warm")) == ("1 ms", str(RECENT))


def test_times_of_another_form_of_the_step_are_not_mixed_in(qtbot: QtBot) -> None:
    before = history_of((9, 9, 9, 9), (9, 9, 9, 9))
    view = shown(qtbot, moment(before))
    plan = plan_step(small_layout(), Limits(), Variant(numerics="precise"))
    view.show_snapshot(moment(before, plan=plan))
    assert cell(view, 0, "warm") == "0"
    assert view.summary.text() == NOTHING_TIMED
    after = history_of((9, 9, 9, 9), (9, 9, 9, 9), (2, 2, 2, 2))
    view.show_snapshot(moment(after, plan=plan))
    assert (cell(view, 0, "median"), cell(view, 0, "warm")) == ("2 ms", "1")
    # A source opened anew has a history of its own.
    view.show_snapshot(make_snapshot(plan=None, cursor=None, mode="starting"))
    view.show_snapshot(moment(history_of((3, 3, 3, 3))))
    assert (cell(view, 0, "median"), cell(view, 0, "warm")) == ("3 ms", "1")


def test_a_form_that_changed_while_nobody_looked_is_noticed(qtbot: QtBot) -> None:
    view = ProfileView()
    qtbot.addWidget(view)
    history = history_of((9, 9, 9, 9), (9, 9, 9, 9))
    view.show_snapshot(moment(history))
    plan = plan_step(small_layout(), Limits(), Variant(numerics="precise"))
    view.show_snapshot(moment(history, plan=plan))
    with qtbot.waitExposed(view):
        view.show()
    assert cell(view, 0, "warm") == "0"


@pytest.mark.parametrize("by", ["button", "key"])
def test_measuring_is_asked_for_once_until_there_is_an_answer(qtbot: QtBot, by: str) -> None:
    view = shown(qtbot, moment(history_of((1, 1, 1, 1))))
    sent: list[object] = []
    view.command.connect(sent.append)

    def ask() -> None:
        if by == "button":
            qtbot.mouseClick(view.measure, Qt.MouseButton.LeftButton)
        else:
            view.table.setFocus()
            qtbot.keyClick(view.table, Qt.Key.Key_B)

    ask()
    ask()
    assert sent == [MeasureCopy()]
    assert "Measuring" in view.copy_label.text()
    assert not view.measure.isEnabled()
    before = view._snapshot
    assert before is not None
    view.show_snapshot(replace(before, serial=before.serial + 1))
    assert "Measuring" in view.copy_label.text()
    view.show_snapshot(replace(before, serial=before.serial + 2, copy_gbps=38.64))
    assert view.copy_label.text() == "A copy moves 38.64 GB/s"
    ask()
    view.show_snapshot(replace(before, serial=before.serial + 3, notice=Notice(1, "error", "No memory.")))
    assert view.measure.isEnabled()
    assert sent == [MeasureCopy(), MeasureCopy()]


@pytest.mark.parametrize("mode", ["starting", "lost", "failed"])
def test_nothing_can_be_measured_without_a_device(qtbot: QtBot, mode: str) -> None:
    view = shown(qtbot, moment(EMPTY_HISTORY, mode=mode))
    assert not view.measure.isEnabled()


def test_cpu_time_is_named(qtbot: QtBot) -> None:
    device = DeviceInfo("a GPU", "Metal", software=False, timestamps=False)
    view = shown(qtbot, moment(history_of((1, 1, 1, 1)), device=device))
    assert "wall time seen by the CPU" in view.summary.text()


def test_dispatches_of_a_kernel_are_one_row_with_their_number(qtbot: QtBot) -> None:
    plan = plan_step(wide_layout(500), Limits(), Variant(dispatch="per-tensor"))
    view = shown(qtbot, moment(history_of((1, 1, 4, 1)), plan=plan))
    assert view.model.rowCount() == 5
    assert int(cell(view, 2, "calls")) + int(cell(view, 3, "calls")) == 500


def test_the_table_is_written_as_csv(qtbot: QtBot, tmp_path: Path) -> None:
    history = history_of((1, 1, 6, 2))
    plan = plan_step(small_layout(), Limits(), Variant(numerics="precise"))
    view = shown(qtbot, moment(history, plan=plan))
    view.table.setFocus()
    qtbot.keyClick(view.table, Qt.Key.Key_E)
    dialog = view.findChild(QFileDialog, "export_dialog")
    assert dialog is not None
    dialog.fileSelected.emit(str(tmp_path / "p.csv"))
    dialog.close()
    rows = list(csv.DictReader((tmp_path / "p.csv").read_text(encoding="utf-8").splitlines()))
    assert [r["kernel"] for r in rows] == [*KERNELS, "step"]
    assert {r["variant"] for r in rows} == {"this run: numerics precise"}
    assert float(rows[2]["median_ms"]) == 6.0
    assert rows[2]["share_of_copy_bandwidth"] == "n/a"
    assert "Written to" in view.summary.text()
    view.export_to(str(tmp_path / "none" / "p.csv"))
    assert "does not exist" in view.summary.text()
    view._on_forget()
    assert view.summary.text().startswith("Step 10 ms.")


def test_without_a_plan_or_a_time_it_says_what_to_do(qtbot: QtBot) -> None:
    view = shown(qtbot, make_snapshot(plan=None, cursor=None))
    assert view.model.rowCount() == 0
    assert not view.export.isEnabled()
    view.show_snapshot(moment(EMPTY_HISTORY))
    assert view.summary.text() == NOTHING_TIMED
    assert "F11" in NOTHING_TIMED
    assert set(row_of(view, 2).values()) >= {"n/a", "0"}


# --- variants


def variants_of(view: ProfileView) -> list[dict[str, str]]:
    model = view.variants.model()
    return [
        {name: str(model.index(row, i).data() or "") for i, name in enumerate(VARIANT_COLUMNS)}
        for row in range(model.rowCount())
    ]


def compared(**changes: Any) -> Snapshot:
    return moment(history_of((1, 1, 1, 1)), comparison=make_comparison(), **changes)


def test_variants_beside_the_form_that_runs_worked_by_hand(qtbot: QtBot) -> None:
    view = shown(qtbot, compared())
    base, precise, atomic, left_out = variants_of(view)
    assert base == {
        "variant": "the form that runs",
        "median": "10 ms",
        "ratio": "1.00 ×",
        "through": "9 ms",
        "min": "10 ms",
        "p95": "11.8 ms",  # of 10, 10 and 12
        "calls": "4",
        "B/element": f"{STEP_BYTES / small_layout().elements:.3g}",
        "GB/s": f"{STEP_BYTES / 10e6:.2f}",
        "of copy": f"{STEP_BYTES / 10e6:.1f} %",
        "of step": "100.0 %",
        "warm": "3",
        "cold": "1",
    }
    assert (precise["variant"], precise["median"], precise["ratio"]) == (
        "numerics precise",
        "20 ms",
        "2.00 ×",
    )
    assert (atomic["variant"], atomic["ratio"], atomic["calls"]) == ("reduce atomic", "0.50 ×", "4")
    assert left_out["variant"] == "kernel f16: left out. This adapter has no 16-bit floats."
    model = view.variants.model()
    last = model.index(3, 0)
    assert last.data(Qt.ItemDataRole.ToolTipRole) == "This adapter has no 16-bit floats."
    assert last.data(Qt.ItemDataRole.ForegroundRole).color() == theme.colours().muted
    assert "reduce atomic" in model.index(2, 0).data(Qt.ItemDataRole.ToolTipRole)


def test_the_kernels_of_a_variant_lie_below_it(qtbot: QtBot) -> None:
    view = shown(qtbot, compared())
    model = view.variants.model()
    first = model.index(0, 0)
    rows = [
        [
            model.index(row, VARIANT_COLUMNS.index(name), first).data()
            for name in ("variant", "median", "ratio", "through", "of step")
        ]
        for row in range(model.rowCount(first))
    ]
    assert [row[0] for row in rows] == KERNELS
    assert rows[2] == ["adamw_update wd", "7 ms", "", "", "70.0 %"]
    # Open rows stay open when another comparison comes.
    view.variants.expand(first)
    view.show_snapshot(compared())
    assert view.variants.isExpanded(view.variants.model().index(0, 0))


def test_a_click_on_ratio_sorts_and_what_was_left_out_stays_last(qtbot: QtBot) -> None:
    view = shown(qtbot, compared())
    header = view.variants.header()
    at = QPoint(header.sectionViewportPosition(RATIO) + 5, header.height() // 2)
    seen = []
    for _ in range(2):
        qtbot.mouseClick(header.viewport(), Qt.MouseButton.LeftButton, pos=at)
        seen.append([row["ratio"] for row in variants_of(view)])
    up = ["0.50 ×", "1.00 ×", "2.00 ×"]
    assert sorted(seen) == sorted([[*up, ""], [*reversed(up), ""]])


def test_another_form_by_now_is_said(qtbot: QtBot) -> None:
    view = shown(qtbot, compared())
    plan = plan_step(small_layout(), Limits(), Variant(numerics="precise"))
    view.show_snapshot(replace(compared(), plan=plan))
    assert variants_of(view)[0]["variant"] == "the form that ran"


@pytest.mark.parametrize("by", ["button", "key"])
def test_comparing_is_asked_for_once_and_ended_by_the_same_button(qtbot: QtBot, by: str) -> None:
    view = shown(qtbot, moment(history_of((1, 1, 1, 1))))
    sent: list[object] = []
    view.command.connect(sent.append)

    def act() -> None:
        if by == "button":
            qtbot.mouseClick(view.compare, Qt.MouseButton.LeftButton)
        else:
            view.table.setFocus()
            qtbot.keyClick(view.table, Qt.Key.Key_V)

    act()
    act()
    assert sent == [CompareVariants()]
    before = view._snapshot
    assert before is not None
    view.show_snapshot(replace(before, comparing=Comparing()))
    assert view.compare.text() == "End comparing"
    assert view.copy_label.text() == "Comparing variants: preparing them …"
    assert not view.measure.isEnabled()
    view.show_snapshot(replace(before, comparing=Comparing(34, 1200)))
    assert view.copy_label.text() == "Comparing variants: 34 of 1,200 warm samples …"
    act()
    act()
    assert sent == [CompareVariants(), CancelCompare()]
    view.show_snapshot(before)
    assert view.compare.text() == "Compare variants"
    assert view.compare.isEnabled()


@pytest.mark.parametrize(
    ("mode", "reason"),
    [("running", "pause it first"), ("lost", "recover it"), ("starting", "No run is open")],
)
def test_why_nothing_can_be_compared_is_said(qtbot: QtBot, mode: str, reason: str) -> None:
    view = shown(qtbot, moment(EMPTY_HISTORY, mode=mode))
    assert not view.compare.isEnabled()
    assert reason in view.compare.toolTip()
    sent: list[object] = []
    view.command.connect(sent.append)
    qtbot.keyClick(view.table, Qt.Key.Key_V)
    assert sent == []


def test_both_tables_and_the_last_steps_are_written(qtbot: QtBot, tmp_path: Path) -> None:
    times = make_comparison().reports[0].last_steps
    view = shown(qtbot, compared(last_times=times[:2]))
    view.export_to(str(tmp_path / "p.csv"))
    rows = list(csv.DictReader((tmp_path / "p.csv").read_text(encoding="utf-8").splitlines()))
    assert list(dict.fromkeys(r["variant"] for r in rows)) == [
        "this run: default", "default", "numerics precise", "reduce atomic",
    ]  # fmt: skip
    steps = [float(r["median_ms"]) for r in rows if r["kernel"] == "step"]
    assert steps == [4, 10, 20, 5]
    view.table.setFocus()
    qtbot.keyClick(view.table, Qt.Key.Key_T)
    dialog = view.findChild(QFileDialog, "export_dialog")
    assert dialog is not None
    dialog.fileSelected.emit(str(tmp_path / "t.json"))
    dialog.close()
    events = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))["traceEvents"]
    tracks = [e["args"]["name"] for e in events if e["name"] == "thread_name"]
    assert tracks == ["this run: default", "default", "numerics precise", "reduce atomic"]
    assert sum(e["ph"] == "X" and e["tid"] == 1 for e in events) == 2 * (1 + len(KERNELS))


def test_a_trace_needs_a_step_of_the_form_that_runs(qtbot: QtBot) -> None:
    view = shown(qtbot, moment(EMPTY_HISTORY))
    assert not view.export_trace.isEnabled()
    # Of another form: it has another number of dispatches.
    of_one_update = tuple(times[:3] for times in make_comparison().reports[0].last_steps)
    view.show_snapshot(moment(EMPTY_HISTORY, last_times=of_one_update))
    assert not view.export_trace.isEnabled()
    view.show_snapshot(moment(EMPTY_HISTORY, last_times=make_comparison().reports[0].last_steps))
    assert view.export_trace.isEnabled()
