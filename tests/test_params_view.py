"""The table of params: figures of the statistics, sums above, sorted and filtered, one selection for all views."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QMenu
from pytestqt.qtbot import QtBot
from ui_helpers import lane_values, make_snapshot, small_layout, wide_layout

from inspector.diagnosis.watchpoints import parse_condition
from inspector.hyper import Hyper
from inspector.layout import Layout, Param, make_layout
from inspector.optimizers import plan_step
from inspector.param_hyper import columns
from inspector.param_statistics import ParamStats, ParamTable, param_stats, totals
from inspector.plan import Limits, Variant
from inspector.runtime.commands import SetStats
from inspector.runtime.snapshots import CountedParams, Snapshot
from inspector.settings import ParamSettings, Settings
from inspector.stepping import Cursor
from inspector.stores import LANES
from inspector.ui import theme
from inspector.ui.params_columns import BLOCK, FIRST_FIGURE, NAME, SHAPE, STATE
from inspector.ui.params_model import ParamsModel
from inspector.ui.params_view import ParamsView

pytestmark = pytest.mark.qt

QKV = "h.1.attn.qkv.weight"


def stats_of(layout: Layout, step: int = 128) -> tuple[ParamStats, ...]:
    """By numpy, of made-up values; some gradients of one param are not finite."""
    made = []
    for s in layout.segments:
        elements = s.offset + np.arange(s.numel)
        lanes = {lane: lane_values(lane, layout, elements, step).copy() for lane in LANES}
        if s.name == QKV:
            lanes["g"][[200, 300, 301]] = np.nan, np.inf, -np.inf
        made.append(
            param_stats(s.name, s.block, lanes, clip_scale=0.5, hyper=Hyper(), step=step, start=s.offset)
        )
    return tuple(made)


def counted_of(stats: Sequence[ParamStats], step: int = 128, ms: float | None = 0.71) -> CountedParams:
    table = ParamTable.of(stats)
    return CountedParams(step, table, ms)


@pytest.fixture(scope="module")
def stats() -> tuple[ParamStats, ...]:
    return stats_of(small_layout())


def taken(stats: Sequence[ParamStats], **changes: object) -> Snapshot:
    return make_snapshot(stats="full", counted=counted_of(stats), **changes)


def shown(qtbot: QtBot, snapshot: Snapshot) -> ParamsView:
    view = ParamsView()
    qtbot.addWidget(view)
    view.resize(1000, 300)
    with qtbot.waitExposed(view):
        view.show()
    view.show_snapshot(snapshot)
    return view


def column(model: ParamsModel, title: str) -> int:
    titles = [model.headerData(c, Qt.Orientation.Horizontal) for c in range(model.columnCount())]
    # The last: some stand among the first columns as well.
    return len(titles) - 1 - titles[::-1].index(title)


def cell(view: ParamsView, name: str, title: str) -> str:
    model = view.model
    rows = {model.text(row, NAME): row for row in range(model.rowCount())}
    return model.text(rows[name], column(model, title))


def names(view: ParamsView) -> list[str]:
    return [view.model.name_at(row) for row in range(view.model.total_rows, view.model.rowCount())]


def click_header(qtbot: QtBot, view: ParamsView, title: str) -> None:
    at = column(view.model, title)
    table = view.frozen.names if at == NAME else view.frozen.table
    header = table.horizontalHeader()
    table.scrollTo(view.model.index(0, at))
    point = QPoint(header.sectionViewportPosition(at) + 8, header.height() // 2)
    qtbot.mouseClick(header.viewport(), Qt.MouseButton.LeftButton, pos=point)


# --- figures


def test_a_row_a_param_below_the_sums(qtbot: QtBot, stats: tuple[ParamStats, ...]) -> None:
    view = shown(qtbot, taken(stats))
    assert [view.model.text(row, NAME) for row in range(3)] == ["all", "block wd", "block no-wd"]
    assert names(view) == [s.name for s in small_layout().segments]
    row = view.model.row_of(QKV)
    assert [view.model.text(row, c) for c in (NAME, SHAPE, BLOCK, STATE)] == [
        QKV,
        "64 × 192",
        "wd",
        "float32",
    ]
    assert view.frozen.isVisible()


def test_every_figure_is_that_of_numpy(qtbot: QtBot, stats: tuple[ParamStats, ...]) -> None:
    model = shown(qtbot, taken(stats)).model
    for lane in LANES:
        model.set_lane(lane)
        for one in (*stats, *totals(ParamTable.of(stats))):
            sums = ["all", "wd", "no_wd"]
            row = sums.index(one.name) if one.name in sums else model.row_of(one.name)

            def value(title: str, row: int = row) -> float:
                return model.value(row, column(model, title))

            lane_stats, update = one.lanes[lane], one.update
            kinds = lane_stats.counts.nonfinite
            want = {
                "elements": one.numel,
                "‖Δw‖": update.norm,
                "‖Δw‖ / ‖w‖": update.norm / one.lanes["w"].norm,
                "max |Δw| / lr": update.largest,
                "at": update.largest_at,
                "g non-finite": one.lanes["g"].counts.nonfinite.total,
                "below ε": update.below_eps,
                "lost": update.lost,
                "skipped": update.skipped,
                "f16 over": update.f16_overflows,
                "f16 under": update.f16_underflows,
                f"min {lane}": lane_stats.low,
                f"max {lane}": lane_stats.high,
                f"max |{lane}|": lane_stats.counts.max_abs,
                f"‖{lane}‖": lane_stats.norm,
                f"{lane} zeros": lane_stats.counts.zeros,
                f"{lane} NaN": kinds.nan,
                f"{lane} +Inf": kinds.posinf,
                f"{lane} −Inf": kinds.neginf,
                f"{lane} first": -1 if kinds.first is None else kinds.first,
            }
            assert {title: value(title) for title in want} == want, one.name


def test_elements_are_named_by_their_indices(qtbot: QtBot, stats: tuple[ParamStats, ...]) -> None:
    view = shown(qtbot, taken(stats))
    view.lane_buttons["g"].click()
    assert cell(view, QKV, "g first") == "[1, 8]"  # element 200 of rows of 192
    assert [cell(view, QKV, f"g {kind}") for kind in ("NaN", "+Inf", "−Inf")] == ["1", "1", "1"]
    assert cell(view, "all", "g first") == f"{QKV} [1, 8]"
    assert cell(view, "block no-wd", "g first") == "–"
    model, at = view.model, column(view.model, "g non-finite")
    bad = model.data(model.index(model.row_of(QKV), at), Qt.ItemDataRole.ForegroundRole)
    assert bad == theme.ink(theme.NONFINITE, theme.colours().base)
    quiet = model.data(model.index(model.row_of("norm.weight"), at), Qt.ItemDataRole.ForegroundRole)
    assert quiet == theme.colours().muted


def test_weights_of_zero_have_no_ratio_and_nothing_finite_no_range(qtbot: QtBot) -> None:
    layout = small_layout()
    made = []
    for s in layout.segments:
        lanes = dict.fromkeys(LANES, np.zeros(s.numel, np.float32))
        if s.name == QKV:
            lanes["v"] = np.full(s.numel, np.nan, np.float32)
        made.append(
            param_stats(s.name, s.block, lanes, clip_scale=1.0, hyper=Hyper(), step=1, start=s.offset)
        )
    view = shown(qtbot, taken(made))
    view.lane_buttons["v"].click()
    assert cell(view, QKV, "‖Δw‖ / ‖w‖") == "n/a"
    assert [cell(view, QKV, title) for title in ("min v", "max v", "max |v|", "at")] == [
        "n/a",
        "n/a",
        "0",
        "–",
    ]
    assert cell(view, QKV, "skipped") == "12,288"
    click_header(qtbot, view, "min v")
    assert names(view)[-1] == QKV, "what has no figure comes last"
    click_header(qtbot, view, "min v")
    assert names(view)[-1] == QKV


def test_each_column_says_what_it_counts(qtbot: QtBot, stats: tuple[ParamStats, ...]) -> None:
    model = shown(qtbot, taken(stats)).model
    for c in range(model.columnCount()):
        tip = str(model.headerData(c, Qt.Orientation.Horizontal, Qt.ItemDataRole.ToolTipRole))
        assert len(tip.splitlines()[0]) > 10
    ratio = column(model, "max |Δw| / lr")
    tip = str(model.data(model.index(model.row_of(QKV), ratio), Qt.ItemDataRole.ToolTipRole))
    assert "in units of the learning rate" in tip
    assert QKV in tip
    at = column(model, "g non-finite")
    tip = str(model.data(model.index(model.row_of(QKV), at), Qt.ItemDataRole.ToolTipRole))
    assert "3, 0.0244 % of its elements: 1 NaN, 1 +Inf, 1 −Inf" in tip


# --- order and filter


def test_a_click_on_a_header_sorts_largest_first_then_smallest_then_as_in_memory(
    qtbot: QtBot, stats: tuple[ParamStats, ...]
) -> None:
    view = shown(qtbot, taken(stats))
    memory = names(view)
    by_norm = [p.name for p in sorted(stats, key=lambda p: -p.update.norm)]
    click_header(qtbot, view, "‖Δw‖")
    assert names(view) == by_norm
    assert [view.model.text(row, NAME) for row in range(3)] == ["all", "block wd", "block no-wd"]
    click_header(qtbot, view, "‖Δw‖")
    assert names(view) == by_norm[::-1]
    click_header(qtbot, view, "‖Δw‖")
    assert names(view) == memory
    click_header(qtbot, view, "param")
    assert names(view) == sorted(memory)
    click_header(qtbot, view, "param")
    assert names(view) == sorted(memory)[::-1]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("qkv", ["h.0.attn.qkv.weight", QKV]),
        ("QKV", ["h.0.attn.qkv.weight", QKV]),
        ("h.1.*norm*", ["h.1.attn_norm.weight", "h.1.ffn_norm.weight"]),
        ("h.?.ffn.down.weight", ["h.0.ffn.down.weight", "h.1.ffn.down.weight"]),
        ("nothing", []),
        ("(", []),
    ],
)
def test_the_filter_takes_parts_of_names_and_patterns(
    qtbot: QtBot, stats: tuple[ParamStats, ...], text: str, found: list[str]
) -> None:
    view = shown(qtbot, taken(stats))
    view.filter_field.setText(text)
    assert names(view) == found
    assert f"{len(found)} of 14 params" in view.note.text()
    view.filter_field.clear()
    assert len(names(view)) == 14


@settings(max_examples=40, deadline=None)
@given(
    columns=st.lists(st.tuples(st.integers(0, 24), st.booleans()), max_size=4),
    filters=st.lists(st.sampled_from(["", "h", "*norm*", "0", "zzz"]), max_size=3),
)
def test_whatever_order_and_filter_each_param_keeps_its_row(
    columns: list[tuple[int, bool]], filters: list[str]
) -> None:
    layout = small_layout()
    model = ParamsModel()
    model.show_counted(counted_of(_made()), layout)
    for i in range(max(len(columns), len(filters))):
        if i < len(columns):
            model.sort_by(columns[i][0], largest_first=columns[i][1])
        if i < len(filters):
            model.set_filter(filters[i])
    seen = [model.name_at(row) for row in range(model.total_rows, model.rowCount())]
    assert len(set(seen)) == len(seen) == model.shown
    for s in layout.segments:
        row = model.row_of(s.name)
        assert (row >= 0) == (s.name in seen)
        if row >= 0:
            assert model.value(row, FIRST_FIGURE) == s.numel
    if model.sorted_by and model.sorted_by[0] >= FIRST_FIGURE:
        figures = [model.value(row, model.sorted_by[0]) for row in range(model.total_rows, model.rowCount())]
        known = [f for f in figures if not math.isnan(f)]
        if not model.columns[model.sorted_by[0] - FIRST_FIGURE].is_element:
            assert known == sorted(known, reverse=model.sorted_by[1])


@lru_cache
def _made() -> tuple[ParamStats, ...]:
    return stats_of(small_layout())


# --- selection


def test_a_click_on_a_row_selects_the_param_everywhere(qtbot: QtBot, stats: tuple[ParamStats, ...]) -> None:
    view = shown(qtbot, taken(stats))
    selected: list[str] = []
    view.param_selected.connect(selected.append)
    for table, at in ((view.frozen.table, 4), (view.frozen.names, NAME)):
        for row in (5, 4):
            rect = table.visualRect(view.model.index(row, at))
            qtbot.mouseClick(table.viewport(), Qt.MouseButton.LeftButton, pos=rect.center())
            assert selected[-1] == view.model.name_at(row)
    qtbot.keyClick(view.frozen.names, Qt.Key.Key_Down)
    assert selected[-1] == view.model.name_at(5)
    rect = view.frozen.names.visualRect(view.model.index(0, NAME))
    qtbot.mouseClick(view.frozen.names.viewport(), Qt.MouseButton.LeftButton, pos=rect.center())
    assert selected[-1] == "", "all params"


def test_what_is_selected_elsewhere_is_selected_here_and_nothing_is_sent_back(
    qtbot: QtBot, stats: tuple[ParamStats, ...]
) -> None:
    view = shown(qtbot, taken(stats))
    selected: list[str] = []
    view.param_selected.connect(selected.append)
    view.select_param(QKV)
    assert view.model.name_at(view.frozen.current_row) == QKV
    click_header(qtbot, view, "‖g‖")
    assert view.model.name_at(view.frozen.current_row) == QKV
    view.filter_field.setText("norm")
    assert view.frozen.current_row == -1
    view.filter_field.clear()
    assert view.model.name_at(view.frozen.current_row) == QKV
    # Other figures and so another order: the selection goes with the param.
    others = stats_of(small_layout(), 200)
    view.show_snapshot(make_snapshot(stats="full", counted=counted_of(others, 200), cursor=Cursor(200, 4, 4)))
    assert view.model.name_at(view.frozen.current_row) == QKV
    view.select_param("")
    assert view.frozen.current_row == -1
    assert selected == []


def test_both_halves_scroll_together(qtbot: QtBot, stats: tuple[ParamStats, ...]) -> None:
    view = shown(qtbot, taken(stats))
    view.resize(700, 160)
    view.frozen.table.verticalScrollBar().setValue(6)
    assert view.frozen.names.verticalScrollBar().value() == 6
    view.select_param(small_layout().segments[-1].name)
    assert view.frozen.names.verticalScrollBar().value() == view.frozen.table.verticalScrollBar().value() > 6
    assert view.frozen.names.rowAt(0) == view.frozen.table.rowAt(0)


# --- level


def test_the_level_is_a_command_and_what_is_missing_is_said(qtbot: QtBot) -> None:
    view = shown(qtbot, make_snapshot(stats="light"))
    sent: list[object] = []
    view.command.connect(sent.append)
    assert not view.frozen.isVisible()
    assert "Statistics are counted at level full" in view.empty.text()
    assert "light now" in view.empty.text()
    qtbot.mouseClick(view.count_button, Qt.MouseButton.LeftButton)
    assert sent == [SetStats("full")]
    view.show_snapshot(make_snapshot(stats="full"))
    assert view.level_combo.currentText() == "full"
    assert "F11" in view.empty.text()
    assert not view.count_button.isVisible()
    view.level_combo.setFocus()
    qtbot.keyClick(view.level_combo, Qt.Key.Key_Up)
    assert sent == [SetStats("full"), SetStats("light")]
    view.show_snapshot(Snapshot(0, "starting", "charlm"))
    assert "once a source is open" in view.empty.text()
    assert not view.count_button.isVisible()


def test_the_cost_is_told_and_which_step_it_is(qtbot: QtBot, stats: tuple[ParamStats, ...]) -> None:
    view = shown(qtbot, taken(stats, cursor=Cursor(128, 4, 4)))
    # 11, 22, … 55 µs make up the step.
    assert view.note.text() == "step 128 · counted in 0.71 ms of GPU time (step 0.11 ms)"
    view.show_snapshot(taken(stats, cursor=Cursor(129, 0, 4)))
    assert view.note.text() == "step 128; step 129 is not counted yet · counted in 0.71 ms of GPU time"
    no_clock = replace(taken(stats), counted=counted_of(stats, ms=None))
    view.show_snapshot(no_clock)
    assert "counted, GPU time n/a" in view.note.text()


# --- many params


def test_what_is_written_is_what_is_in_sight_however_many_params(
    qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = wide_layout()
    one = stats_of(small_layout())[0]
    lanes = one.lanes
    many = ParamTable.of(
        ParamStats(s.name, s.block, s.numel, lanes, replace(one.update, largest=float(i % 977)))
        for i, s in enumerate(layout.segments)
    )
    counted = CountedParams(128, many, 1.0)
    plan = replace(make_snapshot().plan, layout=layout)  # type: ignore[type-var]
    view = shown(qtbot, make_snapshot(plan=plan, stats="full", counted=counted))
    written: list[int] = []
    text = ParamsModel.text
    monkeypatch.setattr(ParamsModel, "text", lambda self, row, c: written.append(row) or text(self, row, c))
    again = replace(counted, step=129)
    view.show_snapshot(make_snapshot(plan=plan, stats="full", counted=again))
    view._on_header_clicked(column(view.model, "max |Δw| / lr"))
    view.frozen.table.viewport().repaint()
    view.frozen.names.viewport().repaint()
    assert 0 < len(set(written)) < 40
    assert len(written) < 2_000
    assert view.model.value(1, column(view.model, "max |Δw| / lr")) == 976


def test_a_figure_becomes_a_breakpoint_to_look_over(qtbot: QtBot, stats: tuple[ParamStats, ...]) -> None:
    view = shown(qtbot, taken(stats))
    model = view.model
    row, ratio = model.row_of(QKV), column(model, "‖Δw‖ / ‖w‖")
    given = next(s for s in stats if s.name == QKV)
    level = f"{given.update.norm / given.lanes['w'].norm:.6g}"
    assert [text for text, _ in model.offers(row, ratio)] == [
        f"update_ratio@{QKV} > {level}", f"update_ratio@{QKV} < {level}",
    ]  # fmt: skip
    # Of a name every figure is offered, of all params together without a glob, of the sum of a block nothing.
    offered = [text for text, _ in model.offers(row, NAME)]
    assert f"nonfinite@{QKV} > 3" in offered
    assert len({text.split("@")[0] for text in offered}) == len(offered) > 10
    assert all("@" not in text for text, _ in model.offers(0, NAME))
    assert model.offers(1, ratio) == []
    for text in offered:
        parse_condition(text)
    view.frozen.names.setFocus()
    view.frozen.names.setCurrentIndex(model.index(row, NAME))
    qtbot.keyClick(view.frozen.names, Qt.Key.Key_B)
    menu = view.findChild(QMenu, "break_menu")
    assert menu is not None
    with qtbot.waitSignal(view.condition_wanted) as wanted:
        menu.actions()[1].trigger()
    assert wanted.args == [offered[1]]
    menu.close()


def test_settings_of_params_stand_behind_their_elements_where_they_have_some(
    stats: tuple[ParamStats, ...],
) -> None:
    layout = small_layout()
    model = ParamsModel()
    plain = counted_of(stats)
    model.show_counted(plain, layout)
    titles = [model.headerData(c, Qt.Orientation.Horizontal) for c in range(model.columnCount())]
    assert "λ" not in titles
    of = tuple(i % 2 for i in range(len(layout.segments)))
    own = Hyper(
        per_param=ParamSettings(
            (Settings(1e-3, 0.9, 0.999, 1e-8, 0.1), Settings(2e-4, 0.9, 0.999, 1e-8, 0.0, 28, True)), of
        )
    )
    names = [s.name for s in layout]
    model.show_counted(replace(plain, own=columns(own, layout, names, 128)), layout)
    first = FIRST_FIGURE + 1
    titles = [model.headerData(c, Qt.Orientation.Horizontal) for c in range(first, first + 4)]
    assert titles == ["lr", "λ", "t", "idle"]
    even, odd = (layout.given[number].name for number in (0, 1))
    rows = {
        name: [model.text(model.row_of(name), c) for c in range(first, first + 4)] for name in (even, odd)
    }
    assert rows == {even: ["0.001", "0.1", "128", ""], odd: ["2e−4", "0", "99", "idle"]}
    # Sums have none.
    assert [model.text(0, c) for c in range(first, first + 4)] == ["", "", "", ""]
    model.sort_by(first, largest_first=True)
    assert layout.number_of(model.name_at(model.total_rows)) % 2 == 0
    # Without them the other columns are back where they were, and nothing is sorted by what is gone.
    model.show_counted(plain, layout)
    assert model.sorted_by is None


def test_the_names_have_the_room_that_they_need_up_to_a_share(qtbot: QtBot) -> None:
    """Names of one ending, cut off at their beginning, were all alike."""
    names = [f"model.layers.{i}.self_attn.a_rather_long_name_of_it.weight" for i in range(12)]
    layout = make_layout([Param(name, (4, 4)) for name in names])
    view = shown(qtbot, taken(stats_of(layout), plan=plan_step(layout, Limits(), Variant())))
    view.resize(1400, 300)
    column = view.frozen.names.columnWidth(0)
    assert column >= view.fontMetrics().horizontalAdvance(names[-1])
    assert column <= view.frozen.names.width() + 4
    view.resize(700, 300)
    assert view.frozen.names.width() <= 700 * 2 // 5 + 4
    view.frozen.splitterMoved.emit(150, 1)
    view.frozen.setSizes([150, 550])
    view.resize(1400, 300)
    assert view.frozen.names.columnWidth(0) <= 700 * 2 // 5, "what a person moved stays"
