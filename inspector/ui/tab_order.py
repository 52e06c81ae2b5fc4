"""Where Tab goes: through everything that takes keys, panel by panel, as one reads.

Qt's own chain follows the order in which widgets were made, and leaves out what was put into a panel before the widget
that has its keys.
"""

from __future__ import annotations

from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QDockWidget, QMainWindow, QScrollArea, QToolBar, QWidget

ROW = 16
"""Pixels: what begins so near each other stands in one row."""
LINE = 24


def go_on(window: QMainWindow, *, forward: bool) -> bool:
    """Give the keys to the next widget, or the one before; False where there is none."""
    order = in_reading_order(window)
    now = window.focusWidget()
    if not order:
        return False
    if now in order:
        at = (order.index(now) + (1 if forward else -1)) % len(order)
    else:
        # What had them is gone: not to the bars, where the next key would change what runs.
        in_panels = (i for i, widget in enumerate(order) if _panel(widget, window)[0])
        at = next(in_panels, 0)
    reason = Qt.FocusReason.TabFocusReason if forward else Qt.FocusReason.BacktabFocusReason
    order[at].setFocus(reason)
    if (area := _area_around(order[at])) is not None:
        area.ensureWidgetVisible(order[at])
    # What was moved to by keys shows it, until the mouse is used.
    window.setAttribute(Qt.WidgetAttribute.WA_KeyboardFocusChange)
    return True


def in_reading_order(window: QMainWindow) -> list[QWidget]:
    """What Tab reaches: bars first, then panels from top to bottom and left to right, and so within each."""
    found = [w for w in window.findChildren(QWidget) if takes_tab(w) and w.window() is window]
    return sorted(found, key=lambda w: (_panel(w, window), _place(w, window)))


def takes_tab(widget: QWidget) -> bool:
    """True where Tab may give a widget the keys now."""
    return (
        bool(widget.focusPolicy().value & Qt.FocusPolicy.TabFocus.value)
        and widget.isVisible()
        and widget.isEnabled()
        and widget.focusProxy() is None
        # An empty view has nothing to do with keys.
        and not widget.size().isEmpty()
    )


def _panel(widget: QWidget, window: QWidget) -> tuple[int, int, int]:
    """Which panel a widget is in: bars come before docks."""
    above: QWidget | None = widget
    while above is not None and above is not window:
        if isinstance(above, QDockWidget | QToolBar):
            place = above.mapTo(window, QPoint())
            return int(isinstance(above, QDockWidget)), place.y(), place.x()
        above = above.parentWidget()
    return 0, 0, 0


Place = tuple[int, int]


def _place(widget: QWidget, window: QWidget) -> tuple[Place, Place]:
    """Where a widget stands; of one that can be scrolled away, where it stands in what is scrolled."""
    area = _area_around(widget)
    scrolled = area.widget() if area is not None else None
    if area is None or scrolled is None:
        return _row_and_x(widget, window), (-1, -1)
    return _row_and_x(area, window), _row_and_x(widget, scrolled)


def _row_and_x(widget: QWidget, within: QWidget) -> Place:
    place = widget.mapTo(within, QPoint())
    # A box and the field beside it are of different heights, and stand in one row.
    return (place.y() + min(widget.height(), LINE) // 2) // ROW, place.x()


def _area_around(widget: QWidget) -> QScrollArea | None:
    above = widget.parentWidget()
    while above is not None and not isinstance(above, QScrollArea):
        above = above.parentWidget()
    return above
