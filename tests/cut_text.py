"""What of the texts on screen is cut: those of widgets, and those that are painted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from PySide6.QtCore import QRect, QRectF, QSize, Qt
from PySide6.QtGui import QFontMetricsF, QPainter
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QAbstractSpinBox,
    QCheckBox,
    QComboBox,
    QHeaderView,
    QLabel,
    QLineEdit,
    QRadioButton,
    QStyle,
    QStyleOptionComboBox,
    QTabBar,
    QTableView,
    QWidget,
)

from inspector.ui.widgets import ElidedLabel

SLACK = 1.5
"""Pixels by which a text may be rounded to be larger than its place."""
INDICATOR = 20
"""What the square or the circle of a box that is ticked takes, with the gap beside it."""


def cut_widgets(window: QWidget) -> list[str]:
    """One line a widget on screen whose text does not fit in it; those that shorten it with a tooltip are left out."""
    found: list[str] = []
    for widget in window.findChildren(QWidget):
        if widget.isVisible() and not widget.visibleRegion().isEmpty():
            found += [f"{_where(widget)}: {line}" for line in _cut(widget)]
    return found


def _cut(widget: QWidget) -> Iterator[str]:
    text_of = widget.fontMetrics().boundingRect
    if isinstance(widget, ElidedLabel):
        return
    if isinstance(widget, QLabel) and widget.text():
        if widget.wordWrap():
            needed = QSize(widget.width(), widget.heightForWidth(widget.width()))
        else:
            needed = widget.sizeHint()
        yield from _smaller(widget.size(), needed, widget.text())
    elif isinstance(widget, QAbstractButton) and widget.text() and not _is_icon(widget):
        text = widget.text().replace("&", "")
        beside = INDICATOR if isinstance(widget, QCheckBox | QRadioButton) else 4
        size = widget.fontMetrics().size(Qt.TextFlag.TextShowMnemonic, widget.text())
        yield from _smaller(widget.size(), QSize(size.width() + beside, size.height()), text)
    elif isinstance(widget, QComboBox) and not widget.isEditable():
        option = QStyleOptionComboBox()
        widget.initStyleOption(option)
        place = widget.style().subControlRect(
            QStyle.ComplexControl.CC_ComboBox, option, QStyle.SubControl.SC_ComboBoxEditField, widget
        )
        needed = QSize(
            widget.fontMetrics().horizontalAdvance(widget.currentText()), widget.fontMetrics().height()
        )
        yield from _smaller(place.size(), needed, widget.currentText())
    elif isinstance(widget, QLineEdit):
        text = widget.placeholderText()
        shown = not widget.text() and not widget.toolTip()
        needed = QSize(text_of(text).width() if shown else 0, widget.fontMetrics().height())
        yield from _smaller(widget.size(), needed, text or widget.text())
    elif isinstance(widget, QAbstractSpinBox):
        yield from _smaller(widget.size(), QSize(0, widget.fontMetrics().height()), widget.text())
    elif isinstance(widget, QHeaderView):
        yield from _cut_header(widget)
    elif isinstance(widget, QTabBar):
        for i in range(widget.count()):
            wide = widget.fontMetrics().horizontalAdvance(widget.tabText(i).replace("&", ""))
            needed = QSize(wide, widget.fontMetrics().height())
            if widget.isTabVisible(i):
                yield from _smaller(widget.tabRect(i).size(), needed, widget.tabText(i))
    elif isinstance(widget, QTableView) and widget.model() is not None and widget.model().rowCount():
        needed = QSize(0, widget.fontMetrics().height())
        yield from _smaller(QSize(0, widget.rowHeight(max(widget.rowAt(0), 0))), needed, "a row")


def _cut_header(header: QHeaderView) -> Iterator[str]:
    model, across = header.model(), header.orientation() == Qt.Orientation.Horizontal
    if model is None:
        return
    for section in range(header.count()):
        text = str(model.headerData(section, header.orientation(), Qt.ItemDataRole.DisplayRole) or "")
        if header.isSectionHidden(section) or not text:
            continue
        size = header.sectionSize(section)
        place = QSize(size, header.height()) if across else QSize(header.width(), size)
        needed = QSize(header.fontMetrics().horizontalAdvance(text), header.fontMetrics().height())
        yield from _smaller(place, needed, text)


def _smaller(place: QSize, needed: QSize, text: str) -> Iterator[str]:
    for side, has, wants in (
        ("wide", place.width(), needed.width()),
        ("high", place.height(), needed.height()),
    ):
        if wants > has + SLACK:
            yield f"{text[:60]!r} is {wants} px {side}, in {has} px"


def _is_icon(button: QAbstractButton) -> bool:
    style = getattr(button, "toolButtonStyle", None)
    return (
        style is not None and style() == Qt.ToolButtonStyle.ToolButtonIconOnly and not button.icon().isNull()
    )


def _where(widget: QWidget) -> str:
    names: list[str] = []
    at: QWidget | None = widget
    while at is not None and not isinstance(at, QAbstractItemView) and len(names) < 4:
        names.append(f"{type(at).__name__} {at.objectName()}".strip())
        at = at.parentWidget()
    return " in ".join(names)


@contextmanager
def painted_texts() -> Iterator[list[str]]:
    """Of the texts that Python code paints into a rectangle meanwhile, a line for each that is cut by it."""
    found: list[str] = []
    draw = QPainter.drawText

    def watched(painter: QPainter, *given: Any) -> Any:
        place = given[0] if given else None
        if isinstance(place, QRect | QRectF) and isinstance(given[-1], str) and len(given) == 3:
            flags, text = int(given[1]), given[2]
            line = _cut_painted(painter, QRectF(place), flags, text)
            if line and line not in found:
                found.append(line)
        return draw(painter, *given)

    QPainter.drawText = watched  # type: ignore[method-assign,assignment]
    try:
        yield found
    finally:
        QPainter.drawText = draw  # type: ignore[method-assign]


def _cut_painted(painter: QPainter, place: QRectF, flags: int, text: str) -> str:
    metrics = QFontMetricsF(painter.font(), painter.device())
    needed = metrics.boundingRect(QRectF(0, 0, place.width(), 10_000), flags, text)
    if not text.strip() or "…" in text:
        return ""
    # Ascent and descent of letters that stand upright: what is above and below them is empty.
    high = needed.height() - (metrics.height() - metrics.capHeight() - metrics.descent())
    if flags & Qt.TextFlag.TextDontClip.value:
        return ""
    if needed.width() > place.width() + SLACK or high > place.height() + SLACK:
        return (
            f"{text[:60]!r} is {needed.width():.0f} x {needed.height():.0f} px, painted in "
            f"{place.width():.0f} x {place.height():.0f} px"
        )
    return ""
