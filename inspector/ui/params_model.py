"""The params as rows and their statistics as columns: sorted, filtered, and written only where they are seen."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import translate
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
from PySide6.QtCore import QAbstractTableModel, QModelIndex, Qt
from PySide6.QtGui import QColor, QFont

from inspector.layout import Layout
from inspector.number_words import nonfinite_counts
from inspector.param_statistics import ParamTable
from inspector.ranks import Held
from inspector.runtime.snapshots import CountedParams
from inspector.stores import Lane
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.break_menu import Offer, conditions_of
from inspector.ui.params_columns import (
    BLOCK,
    FIRST_FIGURE,
    NAME,
    OWN,
    RANKS,
    SHAPE,
    STATE,
    STEPPED,
    UPDATE,
    WORD_COLUMNS,
    Column,
    Figures,
    count_text,
    lane_columns,
)
from inspector.ui.rank_words import holders, parts_list, parts_text
from inspector.ui.tables import FIGURES, WORDS, AnyIndex

NO_PARTS: Mapping[str, tuple[Held, ...]] = MappingProxyType({})
NO_STEPS: Mapping[str, str] = MappingProxyType({})
NONE = "–"
"""Where there is no such element."""
BLOCKS = {"wd": "wd", "no_wd": "no-wd", None: ""}


class ParamsModel(QAbstractTableModel):
    """Rows: all params and each block as one, then the params that the filter lets through, in the chosen order."""

    def __init__(self) -> None:
        super().__init__()
        self.lane: Lane = "w"
        self._own: tuple[Column, ...] = ()
        self._set_columns()
        self.sorted_by: tuple[int, bool] | None = None
        """Column, and whether the largest comes first; None for the order in memory."""
        self._filter = ""
        self._layout: Layout | None = None
        self._held: Mapping[str, tuple[Held, ...]] = NO_PARTS
        self._stepped: Mapping[str, str] = NO_STEPS
        self._counted: CountedParams | None = None
        self._totals = ParamTable.of(())
        self._order: npt.NDArray[np.intp] = np.empty(0, np.intp)
        self._row_of: npt.NDArray[np.intp] = np.empty(0, np.intp)
        self._numbers: dict[str, int] = {}
        self._lowered: list[str] = []
        self._figures: dict[tuple[str, bool], Figures] = {}
        """By title, of the sums or of the params: worked out where a column is first looked at."""
        self._inks: dict[object, QColor] = {}
        self._bold = QFont(theme.ui_font())
        self._bold.setBold(True)

    # --- what is shown

    def show_counted(
        self,
        counted: CountedParams | None,
        layout: Layout | None,
        held: Mapping[str, tuple[Held, ...]] = NO_PARTS,
        stepped: Mapping[str, str] = NO_STEPS,
    ) -> None:
        """Take over the statistics of this moment; `held` are the parts of params that several processes keep.

        `stepped` has the optimizer of each param, where they are not all stepped by the same.
        """
        if counted is None or layout is None or len(counted.params) != len(layout.segments):
            counted = layout = None
        shown = (self._counted, self._layout, self._held, self._stepped)
        if all(new is old for new, old in zip((counted, layout, held, stepped), shown, strict=True)):
            return
        self._held, self._stepped = held, stepped
        fresh = layout is not self._layout or (counted is None) != (self._counted is None)
        own = OWN if counted is not None and counted.own is not None else ()
        own = (RANKS, *own) if held else own
        own = (STEPPED, *own) if stepped else own
        fresh = fresh or own != self._own
        if fresh:
            self.beginResetModel()
        if own != self._own:
            self._own = own
            self._set_columns()
            if self.sorted_by is not None and self.sorted_by[0] > FIRST_FIGURE:
                # Other columns stand there now.
                self.sorted_by = None
        if layout is not self._layout:
            self._layout = layout
            names = [s.name for s in layout.segments] if layout else []
            self._numbers = {name: i for i, name in enumerate(names)}
            self._lowered = [name.lower() for name in names]
        self._counted = counted
        self._figures.clear()
        self._totals = ParamTable.of(counted.totals if counted else ())
        # In another order only where the figures are what it is sorted by.
        if fresh or (self.sorted_by is not None and self.sorted_by[0] >= FIRST_FIGURE):
            self._put_in_order()
        if fresh:
            self.endResetModel()
        else:
            self._changed()

    def set_lane(self, lane: Lane) -> None:
        """Whose ranges, zeros and non-finite elements stand in the last columns."""
        if lane == self.lane:
            return
        self.lane = lane
        self._set_columns()
        if self.sorted_by is not None and self.sorted_by[0] >= FIRST_FIGURE + len(self._own) + len(UPDATE):
            self._put_in_order()
        self._changed()
        self.headerDataChanged.emit(Qt.Orientation.Horizontal, 0, self.columnCount() - 1)

    def _set_columns(self) -> None:
        self.columns = (*UPDATE[:1], *self._own, *UPDATE[1:], *lane_columns(self.lane))

    def set_filter(self, text: str) -> None:
        """Show the params whose name holds `text`, or matches it where it has * or ?."""
        if text == self._filter:
            return
        self.beginResetModel()
        self._filter = text
        self._put_in_order()
        self.endResetModel()

    def sort_by(self, column: int | None, *, largest_first: bool = False) -> None:
        """Sort by a column; None for the order in memory. What has no figure comes last."""
        self.sorted_by = None if column is None else (column, largest_first)
        self._put_in_order()
        self._changed()

    @property
    def shown(self) -> int:
        """How many params the filter lets through."""
        return len(self._order)

    @property
    def total_rows(self) -> int:
        """Rows above the params, which are sums."""
        return len(self._totals)

    def name_at(self, row: int) -> str:
        """The param of a row; "" for a sum."""
        at = row - self.total_rows
        if self._counted is None or not 0 <= at < len(self._order):
            return ""
        return self._counted.params.names[int(self._order[at])]

    def row_of(self, name: str) -> int:
        """The row of a param, -1 where it is not shown."""
        number = self._numbers.get(name, -1)
        if number < 0 or self._counted is None:
            return -1
        at = int(self._row_of[number])
        return at + self.total_rows if at >= 0 else -1

    # --- order

    def _put_in_order(self) -> None:
        kept = self._sorted() if self._counted else np.empty(0, np.intp)
        if self._filter and self._counted:
            kept = kept[self._passes()[kept]]
        self._order = kept
        self._row_of = np.full(len(self._numbers), -1, np.intp)
        self._row_of[kept] = np.arange(len(kept))

    def _sorted(self) -> npt.NDArray[np.intp]:
        assert self._counted is not None
        if self.sorted_by is None:
            return np.arange(len(self._counted.params))
        column, largest_first = self.sorted_by
        keys = self._keys(column).astype(np.float64)
        # NaN comes last either way; of equals the first in memory.
        return np.argsort(-keys if largest_first else keys, kind="stable")

    def _keys(self, column: int) -> Figures:
        assert self._counted is not None
        if column >= FIRST_FIGURE:
            figures = self.columns[column - FIRST_FIGURE]
            keys = self._column(figures, sums=False).astype(np.float64)
            return np.where(keys < 0, np.nan, keys) if figures.is_element else keys
        assert self._layout is not None
        segments = self._layout.segments
        words: list[Any] = [(s.name, s.param.shape, s.block, s.state)[column] for s in segments]
        ranks = {word: rank for rank, word in enumerate(sorted(set(words)))}
        return np.array([ranks[word] for word in words])

    def _passes(self) -> npt.NDArray[np.bool_]:
        text = self._filter.lower()
        if "*" in text or "?" in text:
            matches = re.compile(translate(text)).match
            return np.array([matches(name) is not None for name in self._lowered], bool)
        return np.array([text in name for name in self._lowered], bool)

    # --- as a table

    def rowCount(self, parent: AnyIndex = QModelIndex()) -> int:  # noqa: B008 - Qt's own signature
        """The sums, then the params."""
        return 0 if parent.isValid() else self.total_rows + len(self._order)

    def columnCount(self, parent: AnyIndex = QModelIndex()) -> int:  # noqa: B008
        """Four columns of words, then the figures."""
        return 0 if parent.isValid() else FIRST_FIGURE + len(self.columns)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = 0) -> Any:
        """The column's name, what it means, and the colour of its lane."""
        if orientation != Qt.Orientation.Horizontal:
            return None
        figures = self.columns[section - FIRST_FIGURE] if section >= FIRST_FIGURE else None
        if role == Qt.ItemDataRole.DisplayRole:
            return figures.title if figures else WORD_COLUMNS[section][0]
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return FIGURES if figures else WORDS
        if role == Qt.ItemDataRole.ToolTipRole:
            help_ = figures.help if figures else WORD_COLUMNS[section][1]
            return f"{help_}\nA click sorts by it; the third brings back the order in memory."
        if role == Qt.ItemDataRole.ForegroundRole and figures and figures.lane:
            return self._ink(theme.LANE_COLOURS[figures.lane], theme.colours().raised)
        return None

    def data(self, index: AnyIndex, role: int = 0) -> Any:
        """The text of a cell; sums are bold, zeros stand back, what must not be is vermilion."""
        column = index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            return self.text(index.row(), column)
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return FIGURES if column >= FIRST_FIGURE else WORDS
        if role == Qt.ItemDataRole.FontRole:
            return self._bold if index.row() < self.total_rows else None
        if role == Qt.ItemDataRole.ForegroundRole and column >= FIRST_FIGURE:
            return self._colour(index.row(), self.columns[column - FIRST_FIGURE])
        if role == Qt.ItemDataRole.ToolTipRole:
            return self._tooltip(index.row(), column)
        return None

    def value(self, row: int, column: int) -> float:
        """The figure of a cell: an element of the mega-buffer where the column names one, -1 for none."""
        return self._value(row, self.columns[column - FIRST_FIGURE])

    def _value(self, row: int, column: Column) -> float:
        sums = row < self.total_rows
        at = row if sums else self._order[row - self.total_rows]
        return self._column(column, sums=sums)[at].item()  # type: ignore[no-any-return]

    def _column(self, column: Column, *, sums: bool) -> Figures:
        key = (column.title, sums)
        if key not in self._figures:
            assert self._counted is not None
            table, own = self._totals if sums else self._counted.params, self._counted.own
            if column is RANKS and not sums:
                self._figures[key] = np.array(
                    [holders(self._held.get(n, ())) for n in table.names], np.float64
                )
            elif column is STEPPED and not sums:
                names = sorted(set(self._stepped.values()))
                self._figures[key] = np.array(
                    [names.index(self._stepped[n]) if n in self._stepped else np.nan for n in table.names]
                )
            elif column.own and own is not None and not sums:
                self._figures[key] = np.broadcast_to(
                    np.asarray(getattr(own, column.own), np.float64), (len(table),)
                )
            else:
                self._figures[key] = column.figures(table)
        return self._figures[key]

    def offers(self, row: int, column: int) -> list[Offer]:
        """Conditions on the figure of a cell; of a word, on every figure of its row. None on the sum of a block."""
        if not 0 <= row < self.rowCount() or self._is_block(row):
            return []
        param = self.name_at(row) or None
        cells = [column] if column >= FIRST_FIGURE else range(FIRST_FIGURE, self.columnCount())
        offers: list[Offer] = []
        for cell in cells:
            figures = self.columns[cell - FIRST_FIGURE]
            made = conditions_of(figures.metric, self.value(row, cell), param) if figures.metric else []
            offers += [(text, "") for text in (made if column >= FIRST_FIGURE else made[:1])]
        return list(dict.fromkeys(offers))

    def text(self, row: int, column: int) -> str:
        """What stands in a cell."""
        table, at = self._place(row)
        if column == NAME:
            name = table.names[at]
            return f"block {BLOCKS[table.blocks[at]]}" if self._is_block(row) else name
        if column == BLOCK:
            return BLOCKS[table.blocks[at]]
        if column in (SHAPE, STATE):
            if row < self.total_rows or self._layout is None:
                return ""
            segment = self._layout[table.names[at]]
            return fmt.shape(segment.param.shape) if column == SHAPE else fmt.STATES[segment.state]
        figures = self.columns[column - FIRST_FIGURE]
        if figures is STEPPED:
            return self._stepped.get(self.name_at(row), "")
        if figures is RANKS:
            return parts_text(self._held.get(self.name_at(row), ()))
        value = self.value(row, column)
        return self._element(int(value), row) if figures.is_element else figures.write(value)

    def _is_block(self, row: int) -> bool:
        return 0 < row < self.total_rows

    def _place(self, row: int) -> tuple[ParamTable, int]:
        if row < self.total_rows:
            return self._totals, row
        assert self._counted is not None
        return self._counted.params, int(self._order[row - self.total_rows])

    def _element(self, element: int, row: int) -> str:
        segment = self._layout.at(element) if self._layout is not None and element >= 0 else None
        if segment is None:
            return NONE
        index = fmt.multi_index(element - segment.offset, segment.param.shape)
        return f"{segment.name} {index}" if row < self.total_rows else index

    def _colour(self, row: int, column: Column) -> QColor | None:
        value = self._value(row, column)
        if column.alarm and value > 0:
            return self._ink(theme.NONFINITE, theme.colours().base)
        quiet = value < 0 if column.is_element else value == 0
        return theme.colours().muted if quiet else None

    def _ink(self, colour: QColor, ground: QColor) -> QColor:
        key = (colour.rgb(), ground.rgb())
        if key not in self._inks:
            self._inks[key] = theme.ink(colour, ground)
        return self._inks[key]

    def _tooltip(self, row: int, column: int) -> str:
        if column < FIRST_FIGURE:
            return self.text(row, column) if column == NAME else WORD_COLUMNS[column][1]
        figures, text = self.columns[column - FIRST_FIGURE], self.text(row, column)
        if figures is STEPPED:
            return f"{text}\n{figures.help}".lstrip()
        if figures is RANKS:
            return f"{parts_list(self._held.get(self.name_at(row), ()))}\n{figures.help}".lstrip()
        value = self.value(row, column)
        if figures.write is count_text and column > FIRST_FIGURE:
            elements = self.value(row, FIRST_FIGURE)
            share = f", {fmt.number(100 * value / elements, 3)} % of its elements" if elements else ""
            text = f"{text}{share}{self._kinds(row, figures)}"
        elif not figures.is_element and not np.isnan(value):
            text = fmt.number(value, 9)
        return f"{figures.title} of {self.text(row, NAME)}: {text}\n{figures.help}"

    def _kinds(self, row: int, column: Column) -> str:
        """Which of those that are not finite are what."""
        if column.title != "g non-finite" or not self._value(row, column):
            return ""
        table, at = self._place(row)
        g = table.lanes["g"]
        return f": {nonfinite_counts(g.nan[at], g.posinf[at], g.neginf[at])}"

    def _changed(self) -> None:
        if self.rowCount():
            last = self.index(self.rowCount() - 1, self.columnCount() - 1)
            self.dataChanged.emit(self.index(0, 0), last)
