"""The elements of one param as rows: what is at hand is shown, the rest as "…" until it arrives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from PySide6.QtCore import QAbstractTableModel, QModelIndex, Qt
from PySide6.QtGui import QFont

from inspector.floats import F32Array, bits, shortest, ulp_distance
from inspector.layout import Param
from inspector.looking import Moment
from inspector.number_words import MINUS, true_minus
from inspector.runtime.snapshots import ValuesWindow
from inspector.stores import LANES, Lane
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.tables import FIGURES, AnyIndex
from inspector.ui.value_forms import MONO, Form, difference_text, half_text, value_text

PAGE_ROWS = 1 << 16
"""Rows the table holds at a time: a table keeps some bytes a row, and a param may have 2^31 elements."""
PENDING = "…"
FLAT, MULTI, FIRST_LANE = 0, 1, 2
INF_ULP = 1 << 32
INDEX_HELP = (
    "The element by its number in the param, counted row by row from 0.",
    "The same by its place along each dimension of the param.",
)
MOMENT_HELP: dict[Moment, str] = {
    "before": "as it was before the last dispatch",
    "after": "as it is",
    "difference": "after less before: a number, or ULP in the forms of bits",
}


class ValuesModel(QAbstractTableModel):
    """Rows base to base + PAGE_ROWS of a param: two columns of indices, then before, after or difference by lane."""

    def __init__(self) -> None:
        super().__init__()
        self.param: Param | None = None
        self.base = 0
        self.form: Form = "f32"
        self.lanes: tuple[Lane, ...] = LANES
        self.moments: tuple[Moment, ...] = ("before", "after")
        self._window: ValuesWindow | None = None
        self._pending = PENDING
        self._fonts: dict[tuple[bool, bool], QFont] = {}

    # --- what is shown

    def show_param(self, param: Param | None, base: int = 0) -> None:
        """Start over with another param, or another page of it."""
        self.beginResetModel()
        if param is None or self.param is None or param.name != self.param.name:
            self._window = None
        self.param, self.base = param, base
        self.endResetModel()

    def show_window(self, window: ValuesWindow | None) -> None:
        """Take over the values that arrived; those of another param are not shown."""
        if window is self._window:
            return
        self._window = window if self.param and window and window.param == self.param.name else None
        self._refresh()

    def set_pending(self, text: str) -> None:
        """What stands for a value that is not at hand: PENDING, or n/a where none will come."""
        if text != self._pending:
            self._pending = text
            self._refresh()

    def set_form(self, form: Form) -> None:
        """Write numbers in another form."""
        self.form = form
        self._refresh()

    def set_lanes(self, lanes: tuple[Lane, ...]) -> None:
        """Show these lanes only."""
        self.beginResetModel()
        self.lanes = lanes
        self.endResetModel()

    def set_moments(self, moments: tuple[Moment, ...]) -> None:
        """Show these columns of each lane, in their usual order."""
        self.beginResetModel()
        self.moments = tuple(m for m in ("before", "after", "difference") if m in moments)
        self.endResetModel()

    @property
    def raw(self) -> Literal["", "codes", "half"]:
        """What has to be read beside the values for this form."""
        return "codes" if self.form == "i8 code" else "half" if self.form == "f16" else ""

    def has(self, start: int, stop: int) -> bool:
        """True where elements [start, stop) are at hand."""
        if self._window is None:
            return start >= stop
        count = max((len(a) for a in self._window.after.values()), default=0)
        return self._window.start <= start and stop <= self._window.start + count

    def value(self, lane: Lane, element: int, *, before: bool) -> np.float32 | None:
        """A value at hand, None where it is not. A lane that was not written is before what it is after."""
        if self._window is None:
            return None
        source: Mapping[Lane, F32Array] = self._window.after
        if before and lane in self._window.before:
            source = self._window.before
        at = element - self._window.start
        if lane not in source or not 0 <= at < len(source[lane]):
            return None
        return np.float32(source[lane][at])

    def code(self, lane: Lane, element: int, *, before: bool) -> int | None:
        """An 8-bit code at hand; None where it is not, or the lane is float32."""
        if self._window is None:
            return None
        codes = self._window.codes_after.get(lane)
        if before and lane in self._window.before:
            codes = self._window.codes_before.get(lane, codes)
        at = element - self._window.start
        return None if codes is None or not 0 <= at < len(codes) else int(codes[at])

    def half(self, element: int) -> np.float16 | None:
        """The half-precision mirror of w at hand; None where there is none."""
        half = self._window.half if self._window is not None else None
        at = element - self._window.start if self._window is not None else 0
        return None if half is None or not 0 <= at < len(half) else half[at : at + 1].view(np.float16)[0]

    def changed(self, lane: Lane, element: int) -> bool:
        """True where the last dispatch changed the bits of the element."""
        before, after = self.value(lane, element, before=True), self.value(lane, element, before=False)
        return before is not None and after is not None and _raw(before) != _raw(after)

    # --- as a table

    def rowCount(self, parent: AnyIndex = QModelIndex()) -> int:  # noqa: B008 - Qt's own signature
        """The elements of this page."""
        if parent.isValid() or self.param is None:
            return 0
        return max(min(self.param.numel - self.base, PAGE_ROWS), 0)

    def columnCount(self, parent: AnyIndex = QModelIndex()) -> int:  # noqa: B008
        """Two indices, then the chosen moments of each lane."""
        return 0 if parent.isValid() else FIRST_LANE + len(self.moments) * len(self.lanes)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = 0) -> Any:
        """The column's name; the lanes in their colours."""
        if orientation != Qt.Orientation.Horizontal:
            return None
        lane, moment = self._column(section)
        if role == Qt.ItemDataRole.DisplayRole:
            if lane is None:
                return ("flat", "index")[section]
            return f"Δ{lane}" if moment == "difference" else f"{lane} {moment}"
        if role in (Qt.ItemDataRole.ToolTipRole, Qt.ItemDataRole.AccessibleDescriptionRole):
            return INDEX_HELP[section] if lane is None else f"{lane} {MOMENT_HELP[moment]}"
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return FIGURES
        if role == Qt.ItemDataRole.ForegroundRole and lane is not None:
            return theme.ink(theme.LANE_COLOURS[lane], theme.colours().raised)
        return None

    def data(self, index: AnyIndex, role: int = 0) -> Any:
        """The text of a cell; what changed is bold with a mark, what is not finite vermilion."""
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return FIGURES
        if role not in _ROLES:
            return None
        element = self.base + index.row()
        lane, moment = self._column(index.column())
        after = moment == "after"
        if role == Qt.ItemDataRole.DisplayRole:
            return self.text(element, index.column())
        if lane is None:
            return theme.colours().muted if role == Qt.ItemDataRole.ForegroundRole else None
        value = self.value(lane, element, before=moment == "before")
        if role == Qt.ItemDataRole.ForegroundRole:
            bad = value is not None and not np.isfinite(value)
            return theme.ink(theme.NONFINITE) if bad else None
        if role == Qt.ItemDataRole.FontRole:
            return self._font(bold=after and self.changed(lane, element))
        return self._tooltip(lane, element)

    def _font(self, *, bold: bool) -> QFont:
        """Made once each: asking the system for a font takes longer than writing the cell."""
        key = (self.form in MONO, bold)
        if key not in self._fonts:
            font = theme.mono_font() if key[0] else theme.ui_font()
            if bold:
                font.setWeight(QFont.Weight.Bold)
            self._fonts[key] = font
        return self._fonts[key]

    def text(self, element: int, column: int) -> str:
        """What stands in a column for an element; see `set_pending` while it is not at hand."""
        assert self.param is not None
        lane, moment = self._column(column)
        if lane is None:
            return f"{element:,}" if column == FLAT else fmt.multi_index(element, self.param.shape)
        found = self._written(lane, moment, element)
        if found is None:
            return self._pending
        mark = "• " if moment == "after" and self.changed(lane, element) else ""
        return mark + found

    def plain(self, element: int, column: int) -> str:
        """A cell for other programs: no separators, no marks."""
        lane, moment = self._column(column)
        if lane is None:
            return str(element) if column == FLAT else self.text(element, column)
        value = self.value(lane, element, before=moment == "before")
        if value is None:
            return ""
        if self.form == "f32" and moment != "difference":
            return shortest(value)
        return (self._written(lane, moment, element) or "").replace(",", "").replace(MINUS, "-")

    def as_text(self, start: int, stop: int) -> str:
        """Elements [start, stop), which are at hand, as lines with tabs between columns, below their titles."""
        columns = range(self.columnCount())
        role = Qt.ItemDataRole.DisplayRole
        lines = ["\t".join(str(self.headerData(c, Qt.Orientation.Horizontal, role)) for c in columns)]
        lines += ["\t".join(self.plain(e, c) for c in columns) for e in range(start, stop)]
        return "\n".join(lines) + "\n"

    def _written(self, lane: Lane, moment: Moment, element: int) -> str | None:
        """A cell in the form chosen; None where it is not at hand."""
        if self.form == "i8 code":
            codes = [self.code(lane, element, before=was) for was in (True, False)]
            if codes[0] is None or codes[1] is None:
                return None if self.value(lane, element, before=False) is None else fmt.NA
            one = {"before": codes[0], "after": codes[1], "difference": codes[1] - codes[0]}[moment]
            return true_minus(str(one))
        if moment == "difference":
            before, after = (self.value(lane, element, before=was) for was in (True, False))
            return None if before is None or after is None else difference_text(before, after, self.form)
        value = self.value(lane, element, before=moment == "before")
        half = self.half(element) if self.form == "f16" and lane == "w" and moment == "after" else None
        if value is None:
            return None
        return half_text(half) if half is not None else value_text(value, self.form)

    def _column(self, column: int) -> tuple[Lane | None, Moment]:
        if column < FIRST_LANE:
            return None, "after"
        lane, moment = divmod(column - FIRST_LANE, len(self.moments))
        return self.lanes[lane], self.moments[moment]

    def _tooltip(self, lane: Lane, element: int) -> str | None:
        before, after = self.value(lane, element, before=True), self.value(lane, element, before=False)
        if before is None or after is None:
            return None
        if not self.changed(lane, element):
            return f"{lane}: unchanged by the last dispatch"
        ulp = int(ulp_distance(np.array([before], np.float32), np.array([after], np.float32))[0])
        with np.errstate(invalid="ignore"):
            difference = float(np.float64(after) - np.float64(before))
        apart = "a NaN and a number" if ulp == INF_ULP else f"{ulp:,} ULP"
        return (
            f"{lane}: {fmt.exact(before)} → {fmt.exact(after)}\n"
            f"difference {fmt.number(difference, 6)}, {apart} apart"
        )

    def _refresh(self) -> None:
        if self.rowCount():
            last = self.index(self.rowCount() - 1, self.columnCount() - 1)
            self.dataChanged.emit(self.index(0, 0), last)


_ROLES = {
    Qt.ItemDataRole.DisplayRole,
    Qt.ItemDataRole.ForegroundRole,
    Qt.ItemDataRole.FontRole,
    Qt.ItemDataRole.ToolTipRole,
}


def _raw(value: np.float32) -> int:
    return int(bits(np.array([value], np.float32))[0])
