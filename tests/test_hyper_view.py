"""Settings: what is typed is checked before it is sent, and never overwritten while it is typed."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot
from ui_helpers import make_snapshot

from inspector.hyper import Hyper
from inspector.layout import Param, make_layout
from inspector.optimizers import plan_step
from inspector.param_hyper import segment_classes
from inspector.plan import Limits, Variant
from inspector.runtime.commands import SetHyper, SetSchedule
from inspector.runtime.snapshots import Notice, StepRecord
from inspector.settings import ParamSettings, Settings
from inspector.stepping import Cursor
from inspector.ui.hyper_view import TYPING_HINT, HyperView, next_step

pytestmark = pytest.mark.qt


@pytest.fixture
def view(qtbot: QtBot) -> HyperView:
    view = HyperView()
    qtbot.addWidget(view)
    view.resize(500, 400)
    with qtbot.waitExposed(view):
        view.show()
    view.show_snapshot(make_snapshot())
    return view


def sent_by(view: HyperView) -> list[object]:
    sent: list[object] = []
    view.command.connect(sent.append)
    return sent


def type_over(qtbot: QtBot, view: HyperView, name: str, text: str, *, enter: bool = True) -> None:
    field = view.fields[name]
    field.setFocus()
    qtbot.keyClick(field, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    qtbot.keyClick(field, Qt.Key.Key_Backspace)
    qtbot.keyClicks(field, text)
    if enter:
        qtbot.keyClick(field, Qt.Key.Key_Return)


def test_fields_show_the_settings_of_the_run(view: HyperView) -> None:
    texts = {name: field.text() for name, field in view.fields.items()}
    assert texts == {
        "lr": "0.001",
        "beta1": "0.9",
        "beta2": "0.999",
        "eps": "1e-8",
        "weight_decay": "0.01",
        "max_grad_norm": "1",
        "schedule": "constant",
    }
    assert view.used_label.text() == "0.001 at step 128"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("lr", " 3e-4 ", 3e-4),
        ("beta2", "0.95", 0.95),
        ("eps", "0", 0.0),
        ("max_grad_norm", "inf", math.inf),
        ("max_grad_norm", "Infinity", math.inf),
    ],
)
def test_enter_sends_what_was_typed(
    qtbot: QtBot, view: HyperView, name: str, text: str, value: float
) -> None:
    sent = sent_by(view)
    type_over(qtbot, view, name, text)
    assert sent == [SetHyper(name, value)]
    assert view.hints[name] == ""


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("beta1", "1.5", "1.5 is outside [0, 1)."),
        ("beta1", "1", "outside"),
        ("lr", "nan", "not a finite number"),
        ("lr", "-1", "negative"),
        ("lr", "0,001", "not a number"),
        ("lr", "", "Give a number"),
        ("eps", "1e60", "does not fit in a float32"),
        ("max_grad_norm", "nan", "not a clip limit"),
        ("schedule", "cosin:4", "not a learning-rate schedule"),
    ],
)
def test_what_cannot_be_used_is_explained_and_not_sent(
    qtbot: QtBot, view: HyperView, name: str, text: str, words: str
) -> None:
    sent = sent_by(view)
    type_over(qtbot, view, name, text)
    assert sent == []
    assert words in view.hints[name]
    assert words in view.note.toolTip()
    assert "--" not in view.hints[name]
    assert view.fields[name].invalid
    assert view.fields[name].styleSheet()


def test_escape_reverts(qtbot: QtBot, view: HyperView) -> None:
    type_over(qtbot, view, "beta1", "1.5")
    qtbot.keyClick(view.fields["beta1"], Qt.Key.Key_Escape)
    assert view.fields["beta1"].text() == "0.9"
    assert not view.fields["beta1"].invalid
    assert view.hints["beta1"] == ""


def test_a_snapshot_does_not_overwrite_what_is_being_typed(qtbot: QtBot, view: HyperView) -> None:
    type_over(qtbot, view, "lr", "3e-", enter=False)
    assert view.hints["lr"] == TYPING_HINT
    assert view.note.text() == f"lr: {TYPING_HINT}"
    view.show_snapshot(make_snapshot(hyper=Hyper(lr=0.5, beta1=0.8)))
    assert view.fields["lr"].text() == "3e-"
    assert view.fields["beta1"].text() == "0.8"
    qtbot.keyClick(view.fields["lr"], Qt.Key.Key_Escape)
    assert view.fields["lr"].text() == "0.5"


def test_what_was_sent_stays_until_the_run_answers(qtbot: QtBot, view: HyperView) -> None:
    snapshot = make_snapshot()
    view.show_snapshot(snapshot)
    type_over(qtbot, view, "lr", "0.25")
    view.show_snapshot(replace(snapshot, serial=snapshot.serial + 1))
    assert view.fields["lr"].text() == "0.25"
    view.show_snapshot(replace(snapshot, hyper=Hyper(lr=0.125)))
    assert view.fields["lr"].text() == "0.125"


def test_typing_the_same_value_sends_nothing(qtbot: QtBot, view: HyperView) -> None:
    sent = sent_by(view)
    type_over(qtbot, view, "lr", "0.001")
    type_over(qtbot, view, "lr", "1e-3")
    assert sent == []
    assert view.fields["lr"].text() == "0.001"


def test_the_schedule_is_sent_as_text(qtbot: QtBot, view: HyperView) -> None:
    sent = sent_by(view)
    type_over(qtbot, view, "schedule", " warmup:100")
    assert sent == [SetSchedule("warmup:100")]
    record = StepRecord(3, 3e-5)
    view.show_snapshot(make_snapshot(schedule="warmup:100", record=record))
    assert view.fields["schedule"].text() == "warmup:100"
    assert view.used_label.text() == "3e-5 at step 3"


@pytest.mark.parametrize(
    ("cursor", "step"),
    [(None, 1), (Cursor(7, 0, 4), 7), (Cursor(7, 1, 4), 8), (Cursor(7, 4, 4), 8), (Cursor(7, 0, 0), 8)],
)
def test_it_says_from_which_step_a_change_applies(view: HyperView, cursor: Cursor | None, step: int) -> None:
    assert next_step(cursor) == step
    view.show_snapshot(replace(make_snapshot(), cursor=cursor))
    assert view.note.text() == f"A change applies from step {step}."


def test_a_rejected_value_gives_way_to_the_one_in_force_once_the_field_is_left(
    qtbot: QtBot, view: HyperView
) -> None:
    type_over(qtbot, view, "lr", "-3")
    assert view.fields["lr"].text() == "-3"
    view.fields["beta1"].setFocus()
    assert view.fields["lr"].text() == "0.001"
    assert not view.fields["lr"].invalid
    assert view.note.toolTip() == "lr: ⚠ -3.0 is negative: give a number of 0 or more. In force: 0.001."
    type_over(qtbot, view, "beta1", "0.8")
    assert view.fields["beta1"].text() == "0.8"


def test_what_was_typed_and_not_entered_goes_with_the_focus(qtbot: QtBot, view: HyperView) -> None:
    type_over(qtbot, view, "lr", "0.5", enter=False)
    view.fields["beta1"].setFocus()
    assert view.fields["lr"].text() == "0.001"
    assert view.note.text().startswith("A change applies")


@pytest.mark.parametrize("changes", [{"source": "synthetic:1000"}, {"run": 2}])
def test_another_run_shows_its_own_settings(
    qtbot: QtBot, view: HyperView, changes: dict[str, object]
) -> None:
    snapshot = make_snapshot()
    view.show_snapshot(snapshot)
    type_over(qtbot, view, "lr", "-3")
    view.show_snapshot(replace(snapshot, **changes))
    assert view.fields["lr"].text() == "0.001"
    assert not view.fields["lr"].invalid
    assert "⚠" not in view.note.text()


def test_a_refused_setting_shows_what_is_in_force(qtbot: QtBot, view: HyperView) -> None:
    snapshot = make_snapshot(mode="lost")
    view.show_snapshot(snapshot)
    type_over(qtbot, view, "lr", "0.25")
    view.show_snapshot(replace(snapshot, notice=Notice(1, "warning", "The GPU device is lost.")))
    assert view.fields["lr"].text() == "0.001"


def test_words_about_a_field_move_no_other(qtbot: QtBot, view: HyperView) -> None:
    before = {name: field.geometry() for name, field in view.fields.items()}
    type_over(qtbot, view, "schedule", "cosin:4")
    type_over(qtbot, view, "lr", "0,001")
    qtbot.wait(10)
    assert {name: field.geometry() for name, field in view.fields.items()} == before


# --- groups of params


def test_groups_stand_below_where_params_have_settings_of_their_own(view: HyperView) -> None:
    assert not view.groups.table.isVisible()
    params = [
        Param("a", (8, 8)),
        Param("b", (8, 8), group=1),
        Param("c", (8,), group=1),
        Param("d", (8,), group=1),
    ]
    layout = make_layout(params)
    one, two = Settings(1e-3, 0.9, 0.999, 1e-8, 0.1), Settings(3e-4, 0.8, 0.95, 1e-6, 0.0, behind=2)
    own = ParamSettings((one, two, replace(two, behind=5, idle=True)), (0, 1, 1, 2))
    plan = plan_step(layout, Limits(), Variant(), segment_classes(layout, Hyper(per_param=own)))
    snapshot = replace(
        make_snapshot(), plan=plan, cursor=Cursor(9, 0, len(plan.dispatches)), step_hyper=Hyper(per_param=own)
    )
    view.show_snapshot(snapshot)
    assert view.groups.table.isVisible()
    model = view.groups.model
    rows = [
        [model.text(row, column) for column in range(model.columnCount())] for row in range(model.rowCount())
    ]
    assert rows == [
        ["0", "1", "9", "0.001", "0.1", "0.9", "0.999", "1e−8"],
        ["1", "2", "7", "3e−4", "0", "0.8", "0.95", "1e−6"],
        ["1", "1", "3 idle", "3e−4", "0", "0.8", "0.95", "1e−6"],
    ]
    assert "b and 1 more" in str(model.data(model.index(1, 0), Qt.ItemDataRole.ToolTipRole))
    assert "lr scales that of every group" in view.note.toolTip()
    # A param that is not in the run yet takes no part either.
    view.show_snapshot(replace(snapshot, step_hyper=Hyper(per_param=replace(own, of=(0, 1, 1)))))
    assert [model.text(row, 2) for row in range(model.rowCount())] == ["9", "0 idle", "7"]
    view.show_snapshot(replace(snapshot, step_hyper=Hyper()))
    assert not view.groups.table.isVisible()


def test_who_goes_to_the_panel_types_into_its_first_field(qtbot: QtBot, view: HyperView) -> None:
    """Not into the area that scrolls, of which nothing is seen and where a key does nothing."""
    takes_keys = [w for w in view.findChildren(QWidget) if w.focusPolicy() & Qt.FocusPolicy.TabFocus]
    assert takes_keys[0] is view.fields["lr"]


def test_a_click_into_a_field_selects_all_of_it_and_a_second_one_places_the_cursor(
    qtbot: QtBot, view: HyperView
) -> None:
    field, sent = view.fields["beta2"], sent_by(view)
    view.setFocus()
    qtbot.mouseClick(field, Qt.MouseButton.LeftButton)
    assert field.selectedText() == field.text()
    qtbot.keyClicks(field, "0.95")
    assert field.text() == "0.95"
    qtbot.keyClick(field, Qt.Key.Key_Return)
    assert sent == [SetHyper("beta2", 0.95)]
    qtbot.mouseClick(field, Qt.MouseButton.LeftButton)
    assert field.selectedText() == "", "it has the keys already"
