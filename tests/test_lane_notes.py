"""Lanes as they are written: what of them does nothing is said where they are chosen."""

from __future__ import annotations

import pytest
from pytestqt.qtbot import QtBot
from ui_helpers import make_snapshot

from inspector.layout import Layout, Param, make_layout
from inspector.optimizers import plan_step
from inspector.plan import Limits, Variant
from inspector.ui.lane_notes import LaneNotes
from inspector.ui.race_view import RaceView
from inspector.ui.sweep_view import SweepView

VECTOR, MATRIX = (2,), (8, 8)


def layout_of(*shape: int) -> Layout:
    return make_layout([Param("h.0.weight", shape)])


@pytest.mark.parametrize(
    ("lanes", "words"),
    [
        ("adamw lion:lr=1", ""),
        ("sgd:beta1=0.5", "beta1 does nothing in the lane sgd:beta1=0.5"),
        ("sgd:eps=1,beta2=0", "eps and beta2 do nothing in the lane sgd:eps=1,beta2=0"),
        (
            "adamw:codec=sqrt muon",
            "codec does nothing in the lane adamw:codec=sqrt · muon runs as AdamW: no param is a hidden matrix",
        ),
        ("muon:lr=1 muon:lr=2", "muon runs as AdamW: no param is a hidden matrix"),
        ("sg sgd:bet", ""),
    ],
)  # fmt: skip
def test_what_is_said_of_lanes_over_a_vector(lanes: str, words: str) -> None:
    assert LaneNotes().words(lanes.split(), layout_of(*VECTOR), Variant()) == words


def test_it_is_of_the_params_that_there_are_now() -> None:
    notes = LaneNotes()
    assert (
        notes.words(["shampoo"], layout_of(*VECTOR), Variant())
        == "shampoo runs as AdamW: no param is a matrix"
    )
    assert notes.words(["shampoo"], layout_of(*MATRIX), Variant()) == ""


def test_a_form_that_the_run_has_is_that_of_its_lanes() -> None:
    notes, texts = LaneNotes(), ["adamw:codec=sqrt"]
    assert notes.words(texts, layout_of(*MATRIX), Variant(kernel="8bit")) == ""
    assert (
        notes.words(texts, layout_of(*MATRIX), Variant()) == "codec does nothing in the lane adamw:codec=sqrt"
    )


@pytest.mark.qt
@pytest.mark.parametrize("kind", [RaceView, SweepView])
def test_it_is_said_where_they_are_written(qtbot: QtBot, kind: type[RaceView | SweepView]) -> None:
    view = kind()
    qtbot.addWidget(view)
    view.resize(1200, 400)
    view.show()
    view.show_snapshot(make_snapshot(plan=plan_step(layout_of(*MATRIX), Limits(), Variant())))
    assert view.words.text() == ""
    view.lanes.setEditText("adamw sgd:eps=1")
    assert view.words.text() == "eps does nothing in the lane sgd:eps=1"
    view.lanes.setEditText("adamw sgd")
    assert view.words.text() == ""
