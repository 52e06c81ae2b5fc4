"""What an optimizer keeps in shapes of its own, as it is read from a run and as the window shows it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_helpers import F32, make_stepper, normal_state
from pytestqt.qtbot import QtBot
from ui_helpers import make_snapshot

from inspector.gpu.device import Gpu
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import Hyper
from inspector.layout import Param, make_layout
from inspector.optimizers import plan_step
from inspector.param_state import PlacedState
from inspector.plan import Limits, Plan, Variant
from inspector.runtime.commands import ViewStates
from inspector.runtime.snapshots import CloseUp
from inspector.runtime.states_look import StateShown, StatesLook, StatesPicture
from inspector.statistics import buffer_stats
from inspector.stepping import Cursor, HostGradients
from inspector.ui.states_model import COLUMNS
from inspector.ui.states_view import CHOOSE, NOTHING, StatesView

PARAMS = [Param("a", (64, 32)), Param("b", (5,)), Param("c", (4, 4))]
ADAFACTOR = Variant(optimizer="adafactor")


def stepped(gpu: Gpu) -> GpuStepper:
    """After one step and up to the clip of the second: the factors are those of step 2."""
    stepper = make_stepper(gpu, PARAMS, ADAFACTOR, w=normal_state(PARAMS)[0])
    for step in (1, 2):
        stepper.begin_step(HostGradients(normal_state(PARAMS, seed=step)[1]))
        if step == 1:
            stepper.run_to_end(Hyper())
    return stepper


def index_of(stepper: GpuStepper, entry_point: str) -> int:
    return next(d.index for d in stepper.plan.dispatches if d.entry_point == entry_point)


@pytest.mark.gpu
def test_what_is_read_is_the_state_and_what_the_last_dispatch_made_of_it(gpu: Gpu) -> None:
    stepper, look = stepped(gpu), StatesLook()
    kept = stepper.state().states
    look.ask("a")
    look.refresh(stepper, running=False)
    assert look.picture is not None
    assert [s.placed.name for s in look.picture.states] == ["row_var", "col_var"]
    factors = index_of(stepper, "adafactor_factors")
    for _ in range(factors):
        stepper.run_dispatch(Hyper())
    stepper.run_dispatch(Hyper())
    look.moved()
    look.refresh(stepper, running=False)
    row, column = look.picture.states
    now = stepper.state().states
    for each in (row, column):
        name = each.placed.name
        assert each.values.tobytes() == now[name]["a"].tobytes()
        assert each.before.tobytes() == kept[name]["a"].tobytes()
        assert each.values.tobytes() != each.before.tobytes()
        assert (each.low, each.high) == (float(each.values.min()), float(each.values.max()))
        assert each.mean == pytest.approx(float(each.values.astype(np.float64).mean()))
        assert each.whole
    # The next dispatch changes neither.
    stepper.run_dispatch(Hyper())
    look.moved()
    look.refresh(stepper, running=False)
    for each in look.picture.states:
        assert each.values.tobytes() == each.before.tobytes()
    look.ask("b")
    look.refresh(stepper, running=False)
    assert [s.placed.name for s in look.picture.states] == ["variance"]
    look.ask(None)
    assert look.picture is None


@pytest.mark.gpu
def test_of_a_large_state_the_first_values_are_read(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inspector.runtime.states_look.MOST_VALUES", 10)
    stepper, look = stepped(gpu), StatesLook()
    look.ask("a")
    look.refresh(stepper, running=False)
    assert look.picture is not None
    row, _ = look.picture.states
    assert row.values.tobytes() == stepper.state().states["row_var"]["a"][:10].tobytes()
    assert not row.whole


# --- the view


def adafactor_plan() -> Plan:
    return plan_step(make_layout(PARAMS), Limits(), ADAFACTOR)


def shown(
    name: str, values: F32, before: F32 | None = None, shape: tuple[int, ...] | None = None
) -> StateShown:
    placed = PlacedState(name, "a", shape or values.shape, name, 64, 0.0)
    finite = values[np.isfinite(values)]
    ends = (
        (float(finite.min()), float(finite.mean()), float(finite.max()))
        if len(finite)
        else (None, None, None)
    )
    return StateShown(
        placed, "in words", values, values if before is None else before, buffer_stats(values), *ends
    )


def picture(*states: StateShown) -> StatesPicture:
    return StatesPicture("a", Cursor(2, 5, 11), states)


def made(qtbot: QtBot, *, param: str = "a") -> tuple[StatesView, list[Any]]:
    view, sent = StatesView(), []
    qtbot.addWidget(view)
    view.command.connect(sent.append)
    view.resize(900, 320)
    with qtbot.waitExposed(view):
        view.show()
    view.select_param(param)
    return view, sent


def cell(view: StatesView, row: int, name: str) -> str:
    return str(view.model.index(row, COLUMNS.index(name)).data())


@pytest.mark.qt
def test_the_tab_comes_and_goes_with_what_is_kept(qtbot: QtBot) -> None:
    view, sent = made(qtbot, param="")
    wanted: list[bool] = []
    view.wanted.connect(wanted.append)
    view.show_snapshot(make_snapshot())
    assert view.said.text() == NOTHING
    view.show_snapshot(make_snapshot(plan=adafactor_plan()))
    assert view.said.text() == CHOOSE
    assert sent == []
    view.select_param("a")
    assert sent == [ViewStates("a")]
    view.show_snapshot(make_snapshot())
    assert wanted == [True, False]
    view.hide()
    assert sent[-1] == ViewStates(None)


@pytest.mark.qt
def test_a_row_a_state_and_the_values_of_the_one_that_is_chosen(qtbot: QtBot) -> None:
    view, _ = made(qtbot)
    row = shown("row_var", np.array([1e-6, 2e-6, 0], np.float32), np.array([1e-6, 1e-6, 0], np.float32))
    bad = shown("col_var", np.array([np.nan, 3, -np.inf, 4], np.float32), shape=(2, 2))
    bad = StateShown(
        bad.placed, bad.title, bad.values.reshape(-1), bad.before, bad.counts, bad.low, bad.mean, bad.high
    )
    closeup = CloseUp(states=picture(row, bad))
    view.show_snapshot(make_snapshot(plan=adafactor_plan(), closeup=closeup))
    assert [cell(view, 0, c) for c in ("state", "values", "bytes", "zeros", "not finite")] == [
        "row_var", "3", "12", "1", "0",
    ]  # fmt: skip
    assert (cell(view, 1, "shape"), cell(view, 1, "not finite"), cell(view, 1, "least")) == (
        "2 × 2",
        "2",
        "3",
    )
    assert cell(view, 0, "buffer") == "row_var from byte 256"
    values = [[str(view.values_model.index(i, k).data()) for k in range(4)] for i in range(3)]
    assert values[1] == ["1", "[1]", "1e−6", "2e−6"]
    assert view.said.text().startswith("a in step 2, after dispatch 5")
    assert not view.chart.message
    view.table.selectRow(1)
    assert view.values_model.row_total() == 4
    assert str(view.values_model.index(3, 1).data()) == "[1, 1]"
    assert view.chart.title.startswith("col_var")


@pytest.mark.qt
def test_values_above_0_are_drawn_by_their_powers_of_ten_and_peaks_stay(qtbot: QtBot) -> None:
    view, _ = made(qtbot)
    values = np.full(100_000, 1e-6, np.float32)
    values[54_321] = 10.0
    view.show_snapshot(
        make_snapshot(plan=adafactor_plan(), closeup=CloseUp(states=picture(shown("row_var", values))))
    )
    x, y = view._after.getData()
    assert len(x) <= 4096
    assert float(y.max()) == pytest.approx(1.0)
    assert abs(float(x[int(y.argmax())]) - 54_321) < 100
    none = CloseUp(states=picture(shown("row_var", np.full(3, np.nan, np.float32))))
    view.show_snapshot(make_snapshot(plan=adafactor_plan(), closeup=none))
    assert view.chart.message == "None of its values is finite."
