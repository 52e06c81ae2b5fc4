"""What the tables of the window have in common: names that can be read beside the sign of sorting, and told apart."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QModelIndex, Qt
from PySide6.QtWidgets import QStyleOptionHeader, QStyleOptionViewItem

from inspector.ui import theme
from inspector.ui.tables import AnyIndex, ColumnsModel, dense_table

NAMES = ("transformer.h.0.attn.c_attn.weight", "transformer.h.0.attn.c_proj.weight")


class Rows(ColumnsModel):
    COLUMNS = ("param", "kind", "w ULP")
    FIGURE_COLUMNS = frozenset({2})

    def row_total(self) -> int:
        return len(NAMES)

    def data(self, index: AnyIndex, role: int = 0) -> Any:
        return (NAMES[index.row()], "same", "0")[index.column()] if role == 0 else None


@pytest.fixture
def table(qtbot: Any) -> Any:
    made = dense_table(Rows(), "verified-params")
    qtbot.addWidget(made)
    made.model().setParent(made)
    return made


def test_the_name_of_the_sorted_column_stands_clear_of_the_sign(table: Any) -> None:
    header = table.horizontalHeader()
    table.setSortingEnabled(True)
    header.setSortIndicator(2, Qt.SortOrder.DescendingOrder)
    texts = []
    for column in range(3):
        option = QStyleOptionHeader()
        option.text = Rows.COLUMNS[column]
        header.initStyleOptionForIndex(option, column)
        texts.append(option.text)
    # A space that is no white space to alignment: the style right-aligns the rest against the sign.
    assert texts == ["param", "kind", "w ULP\N{NO-BREAK SPACE}"]


def test_names_of_params_that_do_not_fit_keep_their_end(table: Any) -> None:
    modes = []
    for column in (0, 1):
        index = table.model().index(0, column, QModelIndex())
        option = QStyleOptionViewItem()
        table.itemDelegateForIndex(index).initStyleOption(option, index)
        modes.append(option.textElideMode)
    assert modes[0] == Qt.TextElideMode.ElideLeft
    assert modes[1] != Qt.TextElideMode.ElideLeft


def test_no_list_is_made_of_items_that_qt_deletes_under_python() -> None:
    """What PySide wraps of an item that Qt made is not told of its end, and passes for what is made in its place."""
    ui = Path(theme.__file__).parent
    found = {
        path.name for path in ui.glob("*.py") if re.search(r"Q(List|Tree)Widget", path.read_text("utf-8"))
    }
    assert found == set()
