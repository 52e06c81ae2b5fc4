"""The pipeline: states, times and bindings of every dispatch, for plans of any length."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot
from ui_helpers import make_snapshot, small_layout, wide_layout

from inspector.floats import shortest
from inspector.optimizers import plan_step
from inspector.plan import Limits, Plan, Variant
from inspector.runtime.snapshots import Snapshot, StepRecord
from inspector.stepping import Cursor, GradStats, KernelTime
from inspector.ui.pipeline_view import BLOCK, ELEMENTS, GROUPS, LABEL, STATE, TIME, PipelineView
from inspector.ui.tables import row_height

pytestmark = pytest.mark.qt


def shown(qtbot: QtBot, snapshot: Snapshot) -> PipelineView:
    view = PipelineView()
    qtbot.addWidget(view)
    view.resize(900, 500)
    with qtbot.waitExposed(view):
        view.show()
    view.show_snapshot(snapshot)
    return view


def text(view: PipelineView, row: int, column: int) -> str:
    return str(view.model.index(row, column).data())


def column(view: PipelineView, which: int) -> list[str]:
    return [text(view, row, which) for row in range(view.model.rowCount())]


def click(qtbot: QtBot, view: PipelineView, row: int) -> None:
    place = view.table.visualRect(view.model.index(row, LABEL)).center()
    qtbot.mouseClick(view.table.viewport(), Qt.MouseButton.LeftButton, pos=place)


@lru_cache
def tensor_plan(layout: str = "small") -> Plan:
    chosen = small_layout() if layout == "small" else wide_layout()
    return plan_step(chosen, Limits(), Variant(dispatch="per-tensor"))


def test_states_are_readable_without_colour(qtbot: QtBot) -> None:
    view = shown(qtbot, make_snapshot(cursor=Cursor(128, 2, 4)))
    assert column(view, LABEL)[0] == "gradients"
    assert column(view, STATE) == ["✓ done"] * 3 + ["▶ next", "· pending"]
    assert column(view, BLOCK)[-2:] == ["wd", "no-wd"]
    assert text(view, 3, GROUPS) == "98·1·1"
    assert text(view, 3, ELEMENTS) == "100,352"


@pytest.mark.parametrize(("dispatch", "row"), [(0, 1), (2, 3), (4, 4)])
def test_the_selection_follows_what_runs_next_or_ran_last(qtbot: QtBot, dispatch: int, row: int) -> None:
    view = shown(qtbot, make_snapshot(cursor=Cursor(7, dispatch, 4)))
    assert view.table.currentIndex().row() == row
    assert text(view, row, LABEL) in view.heading.text()


def test_times_say_what_they_are(qtbot: QtBot) -> None:
    times = (
        KernelTime("a", None, 1.5, "gpu"),
        KernelTime("b", None, None, "gpu"),
        KernelTime("c", None, 2.0, "cpu", cold=True),
        None,
    )
    view = shown(qtbot, make_snapshot(dispatch_times=times))
    assert column(view, TIME) == ["", "1.5 ms", "n/a", "2 ms cpu cold", ""]
    assert "low clocks" in view.model.index(3, TIME).data(Qt.ItemDataRole.ToolTipRole)


def test_uniforms_have_names_and_the_values_sent(qtbot: QtBot) -> None:
    snapshot = make_snapshot(cursor=Cursor(2, 2, 4))
    view = shown(qtbot, snapshot)
    names = [line[1].strip() for line in view.bindings.lines]
    norm = ["gradNorm = 0.734", "clipScale = 1"]
    assert names[:8] == ["w", "g", "m", "v", "grad_stats", *norm, "size = 100,352"]
    assert "lr = 0.001" in names
    assert "λ = 0.01" in names
    beta1_squared = snapshot.uniforms["bias"][0]
    assert beta1_squared == pytest.approx(0.81)
    assert "β₁ᵗ = 0.81" in names
    w = view.bindings.lines[0]
    assert w == ("0", "w", "w", "read write", "0", "401,408", "100,352")


def test_precise_numerics_name_the_bias_terms_as_they_are(qtbot: QtBot) -> None:
    plan = plan_step(small_layout(), Limits(), Variant(numerics="precise"))
    snapshot = make_snapshot(plan=plan, cursor=Cursor(1, 2, 4))
    view = shown(qtbot, snapshot)
    names = [line[1].strip() for line in view.bindings.lines]
    assert "1/(1-β₁ᵗ) = 10.0" in names
    assert any(n.startswith("1-β₂ = 0.001") for n in names)


def test_a_dispatch_selected_by_hand_shows_its_bindings_until_the_run_moves_on(qtbot: QtBot) -> None:
    snapshot = make_snapshot(cursor=Cursor(128, 2, 4))
    view = shown(qtbot, snapshot)
    click(qtbot, view, 2)
    limit = shortest(snapshot.hyper.max_grad_norm)
    assert ("2", f"max_grad_norm = {limit}") in [line[:2] for line in view.bindings.lines]
    view.show_snapshot(replace(snapshot, serial=snapshot.serial + 1))
    assert view.table.currentIndex().row() == 2
    view.show_snapshot(replace(snapshot, cursor=Cursor(128, 3, 4)))
    assert view.table.currentIndex().row() == 4


def test_keys_walk_the_dispatches(qtbot: QtBot) -> None:
    view = shown(qtbot, make_snapshot(cursor=Cursor(128, 0, 4)))
    view.table.setFocus()
    qtbot.keyClick(view.table, Qt.Key.Key_Down)
    assert "finalize_grad_stats" in view.heading.text()
    qtbot.keyClick(view.table, Qt.Key.Key_Home, Qt.KeyboardModifier.ControlModifier)
    assert view.bindings.lines == ()
    assert "source" in view.heading.text()


def test_a_click_on_a_dispatch_of_one_tensor_selects_it(qtbot: QtBot) -> None:
    plan = tensor_plan()
    view = shown(qtbot, make_snapshot(plan=plan, cursor=Cursor(1, 0, len(plan.dispatches))))
    with qtbot.waitSignal(view.param_selected) as selected:
        click(qtbot, view, 4)
    assert selected.args == ["h.0.attn.qkv.weight"]


def test_a_click_on_a_dispatch_of_many_selects_none(qtbot: QtBot) -> None:
    view = shown(qtbot, make_snapshot())
    with qtbot.assertNotEmitted(view.param_selected):
        click(qtbot, view, 4)


def test_twenty_thousand_dispatches(qtbot: QtBot) -> None:
    plan = tensor_plan("wide")
    count = len(plan.dispatches)
    assert count > 20_000
    view = shown(qtbot, make_snapshot(plan=plan, cursor=Cursor(1, count - 1, count)))
    assert view.model.rowCount() == count + 1
    assert view.table.visualRect(view.model.index(count, LABEL)).top() < view.table.height()
    assert text(view, count, STATE) == "▶ next"
    assert len(view.findChildren(type(view.heading))) < 20


@pytest.mark.parametrize("height", [*range(200, 260, 7), 300, 341, 500])
@pytest.mark.parametrize("dispatch", [0, 2, 5])
def test_in_a_low_view_no_row_is_cut(qtbot: QtBot, height: int, dispatch: int) -> None:
    view = PipelineView()
    qtbot.addWidget(view)
    view.resize(360, 500)
    with qtbot.waitExposed(view):
        view.show()
    view.show_snapshot(make_snapshot(cursor=Cursor(7, dispatch, 5)))
    view.resize(360, height)

    def whole() -> bool:
        seen, rows = view.table.viewport().height(), view.model.rowCount()
        return seen >= rows * row_height() or seen % row_height() == 0

    qtbot.waitUntil(whole)
    assert view.table.rowViewportPosition(view.table.rowAt(0)) == 0
    assert view.table.viewport().height() >= row_height()
    current = view.table.visualRect(view.table.currentIndex())
    assert view.table.viewport().rect().contains(current.center())


def test_a_list_that_was_low_is_as_high_again_as_it_was(qtbot: QtBot) -> None:
    view = shown(qtbot, make_snapshot(cursor=Cursor(7, 2, 5)))
    qtbot.wait(20)
    before = view.table.height()
    view.resize(900, 220)
    qtbot.waitUntil(lambda: view.table.height() < before)
    qtbot.wait(20)
    view.resize(900, 500)
    qtbot.waitUntil(lambda: view.table.height() == before)


def test_without_a_plan_it_says_what_would_fill_it(qtbot: QtBot) -> None:
    view = shown(qtbot, make_snapshot(plan=None, cursor=None))
    assert view.empty.isVisible()
    assert not view.table.isVisible()
    view.show_snapshot(make_snapshot())
    assert view.table.isVisible()


def test_an_empty_layout_has_only_the_gradients(qtbot: QtBot) -> None:
    plan = plan_step(replace(small_layout(), segments=(), blocks=()), Limits(), Variant())
    view = shown(qtbot, make_snapshot(plan=plan, cursor=Cursor(1, 0, 0)))
    assert column(view, LABEL) == ["gradients"]


def test_the_norm_of_the_step_in_progress_is_shown_once_it_is_known(qtbot: QtBot) -> None:
    snapshot = make_snapshot(cursor=Cursor(501, 1, 4), record=StepRecord(501, 1e-3))
    view = shown(qtbot, snapshot)
    assert not view.results.isVisible()
    record = StepRecord(501, 1e-3, grad_norm=1.042, clip_scale=0.9597)
    view.show_snapshot(replace(snapshot, cursor=Cursor(501, 2, 4), record=record))
    assert view.results.isVisible()
    assert view.results.text() == "Step 501: gradNorm 1.042 · clipScale 0.9597"
    click(qtbot, view, 3)
    assert "gradNorm = 1.042" in [line[1].strip() for line in view.bindings.lines]


def test_it_is_said_which_norm_is_on_show_where_the_program_clipped(qtbot: QtBot) -> None:
    record = StepRecord(128, 1e-3, grad_norm=1.0, clip_scale=1.0, clipped_by=GradStats(16.0, 0.0625))
    view = shown(qtbot, make_snapshot(record=record))
    assert view.results.text() == "Step 128: gradNorm 1 · clipScale 1"
    assert view.clipped.text() == "before clipping: norm 16 · scale 0.0625"
    assert view.clipped.isVisible()
    # Seen without being run, it has the numbers that were recorded.
    view.show_snapshot(make_snapshot(record=replace(record, grad_norm=16.0, clip_scale=0.0625)))
    assert view.clipped.text() == "as recorded, before clipping"
    view.show_snapshot(make_snapshot(record=replace(record, clipped_by=None)))
    assert not view.clipped.isVisible()
