"""Whoever points at a quantity is told what it is: every column, field, button and legend defines what it shows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractSpinBox,
    QComboBox,
    QHeaderView,
    QLineEdit,
    QTableView,
    QTreeView,
    QWidget,
)
from pytestqt.qtbot import QtBot
from test_accessibility import is_part_of_another, where
from test_palette import Shown

from inspector.ui import theme
from inspector.ui.app import application, make_views
from inspector.ui.board_plot import BoardPlot
from inspector.ui.chart import Chart
from inspector.ui.memory_bars import Legend
from inspector.ui.microscope_trail import TrailPlot

pytestmark = pytest.mark.qt

OF_QT = ("qt_", "ScrollLeftButton", "ScrollRightButton")
"""Names of what Qt puts into its own widgets."""


@pytest.fixture
def whole(qtbot: QtBot) -> Iterator[Shown]:
    theme.apply(application(), "light")
    made = Shown(qtbot, views=make_views())
    yield made
    made.bus.blockSignals(True)


def headers(window: QWidget) -> Iterator[tuple[QWidget, int, str, str]]:
    """Each named column of each table: the table, the column, its title and what is said of it."""
    for table in window.findChildren(QTableView) + window.findChildren(QTreeView):
        header = table.horizontalHeader() if isinstance(table, QTableView) else table.header()
        assert isinstance(header, QHeaderView)
        model = table.model()
        if header.isHidden() or model is None:
            continue
        for column in range(model.columnCount()):
            title = str(model.headerData(column, Qt.Orientation.Horizontal) or "")
            said = model.headerData(column, Qt.Orientation.Horizontal, Qt.ItemDataRole.ToolTipRole)
            if not table.isColumnHidden(column):
                yield table, column, title, str(said or "")


def test_every_column_defines_what_it_shows(whole: Shown) -> None:
    for name in whole.window.views:
        whole.window.ways.go_to_view(name)
    whole.qtbot.wait(20)
    found = list(headers(whole.window))
    assert len({id(table) for table, *_ in found}) >= 15
    missing = [
        f"{title or column} of {where(table)}"
        for table, column, title, said in found
        # To say the title once more defines nothing.
        if len(said.split()) < 2 or said.strip(".").lower() == title.lower()
    ]
    assert missing == [], chr(10).join(missing)


def fields(window: QWidget) -> list[QWidget]:
    kinds = (QAbstractButton, QLineEdit, QComboBox, QAbstractSpinBox)
    return [
        w
        for w in window.findChildren(QWidget)
        if isinstance(w, kinds) and not is_part_of_another(w) and not w.objectName().startswith(OF_QT)
    ]


def test_every_field_and_button_says_what_it_is_for(whole: Shown) -> None:
    for name in whole.window.views:
        whole.window.ways.go_to_view(name)
    found = fields(whole.window)
    assert len(found) > 100
    missing = [where(w) for w in found if not w.toolTip().strip()]
    assert missing == [], chr(10).join(missing)


def test_every_plot_and_legend_says_what_is_drawn(whole: Shown) -> None:
    for name in whole.window.views:
        whole.window.ways.go_to_view(name)
        whole.qtbot.wait(1)
    # Those of the board say it line by line, in their legends.
    drawn = [c for c in whole.window.findChildren(Chart) if not isinstance(c.parent(), BoardPlot)]
    drawn += [*whole.window.findChildren(Legend), *whole.window.findChildren(TrailPlot)]
    assert len(drawn) >= 12
    missing = [where(widget) for widget in drawn if len(widget.toolTip().split()) < 3]
    assert missing == [], chr(10).join(missing)
