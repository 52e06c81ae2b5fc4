"""Several processes in the window: their lines and rows, the parts of params, and a tab that comes with them."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QTabWidget
from pytestqt.qtbot import QtBot
from ui_helpers import make_snapshot

from inspector.history import HistoryRecorder
from inspector.ranks import Held, RankPart, RankStep
from inspector.runtime.snapshots import Recorded, Snapshot
from inspector.ui import theme
from inspector.ui.docks import PANELS, _tabs, show_tab
from inspector.ui.rank_words import holders, parts_list, parts_text
from inspector.ui.ranks_model import PARTED
from inspector.ui.ranks_view import RanksView

pytestmark = pytest.mark.qt

PARTS = (
    RankPart(0, 128, "complete", 1000),
    RankPart(1, 120, "interrupted", 900, "The disk is full."),
    RankPart(2, 128, "complete", 900),
)
STEPS = (
    RankStep(2.0, 0.5, 0.125),
    RankStep(2.5, 0.25, 0.25, "lr"),
    RankStep(3.0, None, None),
)


def moment(parts: tuple[RankPart, ...] = PARTS, steps: tuple[RankStep, ...] = STEPS, **more: Any) -> Snapshot:
    recorder = HistoryRecorder()
    for step in range(1, 11):
        recorder.append(step, {f"loss/rank {r}": 2.0 + r / 2 + step / 100 for r in range(3)})
    nothing = np.empty(0, np.int64)
    recorded = Recorded(1, 120, nothing, nothing.reshape(-1, 2), "stats", "interrupted", parts)
    return replace(make_snapshot(), recorded=recorded, rank_steps=steps, history=recorder.freeze(), **more)


def shown(qtbot: QtBot, snapshot: Snapshot) -> RanksView:
    view = RanksView()
    qtbot.addWidget(view)
    view.resize(1060, 400)
    with qtbot.waitExposed(view):
        view.show()
    view.show_snapshot(snapshot)
    return view


def cells(view: RanksView, row: int) -> list[str]:
    return [view.model.index(row, column).data() for column in range(view.model.columnCount())]


def test_a_row_has_what_a_rank_holds_and_its_numbers_of_the_step(qtbot: QtBot) -> None:
    view = shown(qtbot, moment())
    assert cells(view, 0) == ["0", "1,000", "128", "2", "−0.5", "0.5", "125 ms", ""]
    assert cells(view, 1) == ["1", "900", "120 interrupted", "2.5", "0", "0.25", "250 ms", "lr"]
    assert cells(view, 2)[3:] == ["3", "0.5", "n/a", "n/a", ""]
    assert (
        view.words.text()
        == "3 ranks · step 128 · loss 2.5 (2 to 3) · the slowest took 250 ms · rank 1 parts in lr"
    )
    alarm = Qt.ItemDataRole.ForegroundRole
    assert [view.model.index(1, column).data(alarm) is not None for column in (2, 3, 7)] == [
        True,
        False,
        True,
    ]
    assert "The disk is full." in view.model.index(1, 2).data(Qt.ItemDataRole.ToolTipRole)


def test_each_rank_has_a_line_and_the_selected_one_the_accent(qtbot: QtBot) -> None:
    view = shown(qtbot, moment())
    assert view.chart.trace_names() == [f"loss/rank {rank}" for rank in range(3)]
    assert len({tuple(view.chart.pen(name).dashPattern()) for name in view.chart.trace_names()}) == 3
    view.table.selectRow(1)
    assert view.chart.pen("loss/rank 1").color() == theme.colours().accent
    assert view.chart.pen("loss/rank 0").color() == theme.colours().text
    view._on_hovered(5.0)
    assert view.chart.title == "step 5  rank 1 2.55  2.05 (rank 0) to 3.05 (rank 2)"
    qtbot.keyClick(view.table, Qt.Key.Key_G)
    assert view.buttons["grad_norm"].isChecked()
    assert view.chart.trace_names() == []
    assert "one norm over all parts" in view.chart.message


def test_the_tab_comes_with_several_processes(qtbot: QtBot) -> None:
    view, other = RanksView(), RanksView()
    panel = next(panel for panel in PANELS if "ranks" in panel.views)
    tabs = _tabs(panel, {"plots": other, "ranks": view})
    assert isinstance(tabs, QTabWidget)
    qtbot.addWidget(tabs)
    assert not tabs.isTabVisible(1)
    show_tab(view)
    assert tabs.isTabVisible(1)
    assert "line and a row for each" in view.chart.message
    view.show_snapshot(moment(parts=(), steps=()))
    view.show_snapshot(moment())
    assert tabs.isTabVisible(1)
    view.show_snapshot(moment(parts=(), steps=()))
    assert not tabs.isTabVisible(1)


def held(*boxes: tuple[tuple[int, ...], tuple[int, ...]]) -> tuple[Held, ...]:
    return tuple(Held(rank, *box) for rank, box in enumerate(boxes))


@pytest.mark.parametrize(
    ("parts", "text", "listed"),
    [
        (held(((0, 0), (4, 5)), ((4, 0), (3, 5))), "rows 4 + 3", "rank 1: rows 4 to 6 of shape 3 × 5"),
        (held(((0,), (4,)), ((4,), (4,))), "2 × 4 rows", "rank 1: elements 4 to 7"),
        (held(((0, 0), (4, 5)), ((4, 0), (0, 5))), "rank 0", "rank 1: nothing"),
        (held(((0, 0), (4, 5)), ((0, 0), (4, 5))), "2 copies", "rank 1: rows 0 to 3 of shape 4 × 5"),
        (held(((0, 0), (4, 2)), ((0, 2), (4, 3))), "2 parts", "rank 1: elements [0 to 3, 2 to 4]"),
        (held(((), ())), "rank 0", "rank 0: the scalar"),
        ((), "", ""),
    ],
)
def test_parts_in_words(parts: tuple[Held, ...], text: str, listed: str) -> None:
    assert parts_text(parts) == text
    assert parts_list(parts).splitlines()[-1:] == ([listed] if listed else [])
    assert holders(parts) == len([each for each in parts if np.prod(each.shape)])


def test_the_table_of_params_says_who_keeps_what() -> None:
    from test_params_view import _made, counted_of
    from ui_helpers import small_layout

    from inspector.ui.params_columns import FIRST_FIGURE
    from inspector.ui.params_model import ParamsModel

    model, layout = ParamsModel(), small_layout()
    counted = counted_of(_made())
    name = layout.segments[1].name
    parts = MappingProxyType({name: held(((0,), (32,)), ((32,), (32,)))})
    model.show_counted(counted, layout)
    assert "ranks" not in [column.title for column in model.columns]
    model.show_counted(counted, layout, parts)
    at = [column.title for column in model.columns].index("ranks") + FIRST_FIGURE
    assert model.text(model.row_of(name), at) == "2 × 32 rows"
    assert "rank 1: elements 32 to 63" in model.index(model.row_of(name), at).data(
        Qt.ItemDataRole.ToolTipRole
    )
    assert model.text(0, at) == ""


def test_all_columns_are_seen_in_the_smallest_panel_that_has_the_table_beside_the_curves(
    qtbot: QtBot,
) -> None:
    """As wide as it is in a window of 1280 × 800: what a rank parts in stands last."""
    view = shown(qtbot, moment())
    view.resize(946, 190)
    bar, header = view.table.horizontalScrollBar(), view.table.horizontalHeader()
    qtbot.waitUntil(lambda: not bar.isVisible(), timeout=2000)
    assert header.sectionSize(PARTED) >= view.fontMetrics().horizontalAdvance("max_grad_norm")
    assert view.chart.width() >= 250
