"""Policies side by side in the window: the table, what is asked of the worker, how far it is, copied as text."""

from __future__ import annotations

import math

import numpy as np
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QLineEdit, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot
from ui_helpers import make_snapshot

from inspector.hyper import Hyper
from inspector.policies import PolicyTable, Tensor, weigh
from inspector.runtime.commands import CancelPolicies, WeighPolicies
from inspector.runtime.weighing import Weighing
from inspector.stepping import Cursor
from inspector.ui import theme
from inspector.ui.policies_view import M_BAD, NORM, PARAMS, POLICY, SCALE, PoliciesView, W

pytestmark = pytest.mark.qt

PARAM = "h.0.attn.out.weight"


def made(step: int = 128) -> PolicyTable:
    """3, 4 and NaN: a norm of 5 with the NaN taken as 0."""
    lanes = {"w": [1, 1, 1], "m": [0, 0, 0], "v": [0, 0, 0], "g": [3, 4, math.nan]}
    return weigh(
        [Tensor(PARAM, 3, True)],
        lambda lane, name, start, stop: np.array(lanes[lane][start:stop], np.float32),
        hyper=Hyper(),
        step=step,
    )


def shown(qtbot: QtBot, **changes: object) -> PoliciesView:
    view = PoliciesView()
    qtbot.addWidget(view)
    view.resize(900, 320)
    with qtbot.waitExposed(view):
        view.show()
    view.show_snapshot(make_snapshot(**changes))
    return view


def test_the_table_has_every_policy_and_the_element_before_the_step(qtbot: QtBot) -> None:
    view = shown(qtbot, policies=made())
    assert view.model.rowCount() == 6
    first, torch, before = ([view.model.text(row, c) for c in range(12)] for row in (0, 1, 5))
    assert (first[NORM], first[SCALE], first[M_BAD]) == ("5", "0.2", "0")
    assert (torch[NORM], torch[SCALE], torch[M_BAD], torch[PARAMS]) == ("NaN", "NaN", "3", "1")
    assert (before[POLICY], before[NORM], before[W]) == ("Before the step", "", "1")
    assert "1 of 3 gradients not finite, in 1 param" in view.what.text()
    assert "h.0.attn.out.weight[0, 2], g = NaN" in view.what.text()
    view.table.selectRow(1)
    assert "NaN and multiplies every gradient" in view.says.text()


def test_what_is_not_finite_has_its_colour(qtbot: QtBot) -> None:
    model = shown(qtbot, policies=made()).model
    colour = theme.ink(theme.NONFINITE)
    assert model.index(1, NORM).data(Qt.ItemDataRole.ForegroundRole) == colour
    assert model.index(1, M_BAD).data(Qt.ItemDataRole.ForegroundRole) == colour
    assert model.index(0, M_BAD).data(Qt.ItemDataRole.ForegroundRole) is None


def test_it_asks_for_the_step_and_the_element_on_show(qtbot: QtBot) -> None:
    view = shown(qtbot, cursor=Cursor(7, 4, 4))
    with qtbot.waitSignal(view.command) as sent:
        view.work_out.click()
    assert sent.args == [WeighPolicies(7)]
    view.select_element(PARAM, 2)
    # The param of an element that is selected already changes nothing.
    view.select_param(PARAM)
    with qtbot.waitSignal(view.command) as sent:
        view.work_out.click()
    assert sent.args == [WeighPolicies(7, PARAM, 2)]


@pytest.mark.parametrize("table", [None, made()], ids=["empty", "filled"])
def test_its_key_works_from_the_first_moment(qtbot: QtBot, table: PolicyTable | None) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    column, other, view = QVBoxLayout(window), QLineEdit(), PoliciesView()
    column.addWidget(other)
    column.addWidget(view)
    with qtbot.waitActive(window):
        window.show()
        window.activateWindow()
    view.show_snapshot(make_snapshot(policies=table))
    other.setFocus()
    view.setFocus()
    assert view.isAncestorOf(QApplication.focusWidget())
    with qtbot.waitSignal(view.command) as sent:
        qtbot.keyClick(QApplication.focusWidget(), Qt.Key.Key_Y)
    assert sent.args == [WeighPolicies(128)]


def test_how_far_it_is_and_that_it_can_be_ended(qtbot: QtBot) -> None:
    view = shown(qtbot, weighing=Weighing(30, 25, 100))
    assert view.what.text() == "Working out step 30: 25 % …"
    with qtbot.waitSignal(view.command) as sent:
        view.work_out.click()
    assert sent.args == [CancelPolicies()]


def test_empty_says_what_it_is_for_and_nothing_works_without_a_run(qtbot: QtBot) -> None:
    view = shown(qtbot, mode="lost")
    assert view.empty.isVisible()
    assert not view.table.isVisible()
    assert not view.work_out.isEnabled()
    with qtbot.assertNotEmitted(view.command):
        qtbot.keyClick(view, Qt.Key.Key_Y)


def test_it_is_copied_as_a_table(qtbot: QtBot) -> None:
    view = shown(qtbot, policies=made())
    view.copy()
    rows = [line.split("\t") for line in QGuiApplication.clipboard().text().splitlines()]
    assert [len(cells) for cells in rows] == [12] * 7
    assert rows[0][:2] == ["policy", "the step"]
    assert rows[2][0] == "PyTorch clip_grad_norm_ + AdamW"
