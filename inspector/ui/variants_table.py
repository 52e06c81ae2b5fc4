"""Variants of the step against each other: one row each, its kernels below it, those left out with their reason."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields

from PySide6.QtCore import QModelIndex, QRect, QSize, Qt
from PySide6.QtGui import (
    QBrush,
    QFont,
    QFontMetrics,
    QPainter,
    QPaintEvent,
    QStandardItem,
    QStandardItemModel,
)
from PySide6.QtWidgets import QAbstractItemView, QTreeView, QWidget

from inspector.comparison import BenchReport, Comparison
from inspector.cost import KernelCost
from inspector.own_kernels import OwnKernels
from inspector.plan import Variant
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.tables import FIGURES, LEAST_ROWS, WORDS, row_height
from inspector.variants import Skipped

COLUMNS = (
    "variant", "median", "ratio", "through", "min", "p95", "calls", "B/element", "GB/s", "of copy", "of step",
    "warm", "cold",
)  # fmt: skip
RATIO = COLUMNS.index("ratio")
SAMPLES = (
    "reduce atomic, grid published", "88.8 ms", "88.88 ×", "88.8 ms", "88.8 ms", "88.8 ms", "888", "88.8", "8,888",
    "88.8 %", "100.0 %", "888", "888",
)  # fmt: skip
"""Text about as wide as any in its column."""
TOOLTIPS = (
    "Each differs from the first in one factor, or in two where one alone is not allowed; its kernels are below it.",
    "The median of the warm times: of all kernels added up, or of one.",
    "The median over that of the first row.",
    "A step as an engine runs it, by the CPU's clock: many in a row, each in one pass, nothing timed inside.",
    "The shortest warm time.",
    "95 of 100 warm times are no longer.",
    "Dispatches in one step.",
    "Bytes read plus written for each element it works on; n/a where it works on none.",
    "Bytes read plus written over the median, in 10⁹ bytes a second.",
    "GB/s over what a plain copy reaches on this device.",
    "The median over that of the whole step.",
    "Times that count.",
    "Times left out: at low clocks, or of the first step after another variant.",
)
BASE = "the form that runs"
BASE_BEFORE = "the form that ran"
NOTHING_COMPARED = "Compare variants (V) measures this form and those that differ from it in one factor."
SORT_ROLE = Qt.ItemDataRole.UserRole + 1


class VariantsTable(QTreeView):
    """Sorted by a click on a column; what was left out stays last."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("variant-costs")
        self.setAccessibleName("variants")
        self._shown: tuple[Comparison | None, bool] = (None, True)
        self._said = NOTHING_COMPARED
        self._items = QStandardItemModel(0, len(COLUMNS))
        self._items.setSortRole(SORT_ROLE)
        self.setModel(self._items)
        self.setUniformRowHeights(True)
        self.setAllColumnsShowFocus(True)
        self.setAlternatingRowColors(True)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setFrameShape(QTreeView.Shape.NoFrame)
        self.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setIndentation(4 * theme.GRID)
        self.setMinimumHeight(LEAST_ROWS * row_height())
        header = self.header()
        header.setSectionsMovable(False)
        header.setStretchLastSection(False)
        header.setSortIndicator(-1, Qt.SortOrder.AscendingOrder)
        self.setSortingEnabled(True)
        theme.changes().changed.connect(self._fill)
        self._fill()

    def show_comparison(self, comparison: Comparison | None, *, runs_still: bool = True) -> None:
        """Show what was measured; `runs_still` is False where another form runs by now."""
        shown = (comparison, runs_still)
        if shown[0] is not self._shown[0] or shown[1] != self._shown[1]:
            self._shown = shown
            self._fill()

    def say(self, text: str) -> None:
        """What stands in the middle while there are no rows."""
        if text != self._said:
            self._said = text
            self.viewport().update()

    def paintEvent(self, event: QPaintEvent) -> None:
        """The rows, or what would fill them."""
        super().paintEvent(event)
        if self._items.rowCount():
            return
        painter = QPainter(self.viewport())
        painter.setPen(theme.colours().muted)
        area: QRect = self.viewport().rect().adjusted(2 * theme.GRID, 0, -2 * theme.GRID, 0)
        painter.drawText(area, int(Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap), self._said)
        painter.end()

    def _fill(self) -> None:
        comparison, runs_still = self._shown
        model, header = self._items, self.header()
        open_rows = {
            model.item(row).text() for row in range(model.rowCount()) if self.isExpanded(model.index(row, 0))
        }
        model.removeRows(0, model.rowCount())
        self._name_columns()
        self.setHeaderHidden(comparison is None)
        policy = Qt.ScrollBarPolicy
        # The columns are as wide without rows: there is nothing to scroll to.
        self.setHorizontalScrollBarPolicy(
            policy.ScrollBarAlwaysOff if comparison is None else policy.ScrollBarAsNeeded
        )
        if comparison is None:
            return
        for report in comparison.reports:
            base = report is comparison.reports[0]
            name = (BASE if runs_still else BASE_BEFORE) if base else report.name
            model.appendRow(_report_row(report, name, comparison.ratio(report), bold=base))
        for skipped in comparison.skipped:
            model.appendRow([_skipped_item(skipped)])
            self.setFirstColumnSpanned(model.rowCount() - 1, QModelIndex(), True)
        model.sort(header.sortIndicatorSection(), header.sortIndicatorOrder())
        for row in range(model.rowCount()):
            if model.item(row).text() in open_rows:
                self.expand(model.index(row, 0))

    def _name_columns(self) -> None:
        metrics = QFontMetrics(theme.ui_font())
        for column, (name, sample, tip) in enumerate(zip(COLUMNS, SAMPLES, TOOLTIPS, strict=True)):
            item = QStandardItem(name)
            item.setTextAlignment(FIGURES if column else WORDS)
            item.setToolTip(tip)
            new = self._items.horizontalHeaderItem(column) is None
            self._items.setHorizontalHeaderItem(column, item)
            if new:
                width = max(metrics.horizontalAdvance(sample), metrics.horizontalAdvance(name))
                # The sign of the sorting stands beside the name.
                self.setColumnWidth(column, width + (12 if column == 0 else 5) * theme.GRID)


def _report_row(report: BenchReport, name: str, ratio: float, *, bold: bool) -> list[QStandardItem]:
    whole = (ratio, report.through_ms)
    row = _row(name, report.step, whole, tip=in_words(report.variant), bold=bold)
    for kernel in report.kernels:
        row[0].appendRow(_row(kernel.name, kernel, None, tip=kernel.name))
    return row


def _row(
    name: str, cost: KernelCost, whole: tuple[float, float] | None, *, tip: str, bold: bool = False
) -> list[QStandardItem]:
    """`whole` has what only a step has: its ratio, and ms run through."""
    figures: Sequence[tuple[str, float]] = (
        (fmt.milliseconds(cost.median_ms), cost.median_ms),
        ("", math.inf) if whole is None else (fmt.ratio(whole[0]), whole[0]),
        ("", math.inf) if whole is None else (fmt.milliseconds(whole[1]), whole[1]),
        (fmt.milliseconds(cost.min_ms), cost.min_ms),
        (fmt.milliseconds(cost.p95_ms), cost.p95_ms),
        (fmt.count(cost.dispatches), cost.dispatches),
        (fmt.number(cost.bytes_per_element, 3) if cost.elements else fmt.NA, cost.bytes_per_element),
        (fmt.bandwidth(cost.gbps), cost.gbps),
        (fmt.percent(cost.share), cost.share),
        (fmt.percent(cost.share_of_step), cost.share_of_step),
        (fmt.count(cost.samples), cost.samples),
        (fmt.count(cost.cold_samples), cost.cold_samples),
    )
    first = _item(name, name)
    first.setToolTip(tip)
    row = [first]
    for text, value in figures:
        item = _item(text, value if math.isfinite(value) else math.inf)
        item.setTextAlignment(FIGURES)
        row.append(item)
    if bold:
        font = QFont(theme.ui_font())
        font.setBold(True)
        for item in row:
            item.setFont(font)
    return row


def _skipped_item(skipped: Skipped) -> QStandardItem:
    # Alone in its row: without a cell under the sorted column it stays behind the others.
    item = _item(f"{skipped.name}: left out. {skipped.reason}", skipped.name)
    item.setToolTip(skipped.reason)
    item.setForeground(QBrush(theme.colours().muted))
    return item


def _item(text: str, value: str | float) -> QStandardItem:
    item = QStandardItem(text)
    item.setData(value, SORT_ROLE)
    item.setSizeHint(QSize(0, row_height()))
    return item


def in_words(variant: Variant) -> str:
    """Every setting of a form: "optimizer adamw, kernel f32, fused, …"."""
    words = []
    for name in (f.name for f in fields(Variant)):
        value = getattr(variant, name)
        if isinstance(value, OwnKernels):
            words += [f"own {value}"] if value else []
        else:
            words.append(f"{name} {value}" if not isinstance(value, bool) else ("" if value else "un") + name)
    return ", ".join(words)
