"""Many views in one panel: groups by activity, and the tabs of the group that is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QKeyEvent, QResizeEvent
from PySide6.QtWidgets import (
    QButtonGroup,
    QHBoxLayout,
    QMenu,
    QStyle,
    QTabWidget,
    QToolButton,
    QWidget,
)

from inspector.ui.widgets import CheckedLook

SPARE = 12
"""Pixels that stay free beside the tabs, so that none is shortened."""


@dataclass(frozen=True, slots=True)
class TabGroup:
    """Views that serve one activity, by name; `help` says which."""

    title: str
    help: str
    views: tuple[str, ...]


class GroupedTabs(QTabWidget):
    """Shows the tabs of one group beside the names of all groups; too narrow for these, a menu in their place.

    Whatever is made current brings its group with it. A tab that is made invisible is so in its group as well.
    """

    def __init__(self, groups: Sequence[TabGroup], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setDocumentMode(True)
        self._groups = tuple(groups)
        self._of: dict[QWidget, int] = {}
        self._unwanted: set[QWidget] = set()
        self._latest: dict[int, QWidget] = {}
        self._chooser = _Chooser(self._groups, self)
        self._chooser.buttons.idClicked.connect(self._choose)
        self._chooser.menu.aboutToShow.connect(self._fill_menu)
        self.setCornerWidget(self._chooser, Qt.Corner.TopLeftCorner)
        self.currentChanged.connect(self._on_current_changed)

    def add_view(self, name: str, widget: QWidget, title: str) -> int:
        """Add a tab to the group that names it; returns its index."""
        group = next(i for i, each in enumerate(self._groups) if name in each.views)
        self._of[widget] = group
        self._latest.setdefault(group, widget)
        at = self.addTab(widget, title)
        self._show_group()
        return at

    def setTabVisible(self, index: int, visible: bool) -> None:
        """Whether a tab is there when its group is chosen."""
        widget = self.widget(index)
        if widget is None:
            return
        if visible:
            self._unwanted.discard(widget)
        else:
            self._unwanted.add(widget)
            if widget is self.currentWidget() and (others := self._all_members()):
                group = self._of.get(widget)
                self.setCurrentWidget(next((tab for tab in others if self._of[tab] == group), others[0]))
        self._show_group()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Ctrl+Tab goes on through all groups."""
        keys = {Qt.Key.Key_Tab: 1, Qt.Key.Key_Backtab: -1}
        key = Qt.Key(event.key())
        if event.modifiers() & Qt.KeyboardModifier.ControlModifier and key in keys:
            self._go_on(keys[key])
        else:
            super().keyPressEvent(event)

    def members(self, group: int) -> list[QWidget]:
        """The tabs of a group that are there, in their order."""
        tabs = (self.widget(i) for i in range(self.count()))
        return [
            tab
            for tab in tabs
            if tab is not None and self._of.get(tab) == group and tab not in self._unwanted
        ]

    def _all_members(self) -> list[QWidget]:
        return [tab for group in range(len(self._groups)) for tab in self.members(group)]

    def _go_on(self, by: int) -> None:
        tabs = self._all_members()
        if self.currentWidget() in tabs:
            self._bring(tabs[(tabs.index(self.currentWidget()) + by) % len(tabs)])

    def _choose(self, group: int) -> None:
        tabs = self.members(group)
        latest = self._latest.get(group)
        if tabs:
            self._bring(latest if latest in tabs and latest is not None else tabs[0])

    def _bring(self, widget: QWidget) -> None:
        self.setCurrentWidget(widget)
        # For whoever keeps the places visited, it is a tab like any other that was clicked.
        self.tabBarClicked.emit(self.indexOf(widget))

    def _on_current_changed(self, index: int) -> None:
        widget = self.widget(index)
        if widget in self._of:
            self._latest[self._of[widget]] = widget
            self._show_group()

    def _group_at(self, index: int) -> int:
        widget = self.widget(index)
        return self._of.get(widget, 0) if widget is not None else 0

    def _show_group(self) -> None:
        now = self._group_at(self.currentIndex())
        # The current one first, then those beside it: a tab that is shown or hidden while the current one is not
        # to be seen makes Qt choose another.
        current = self.currentIndex()
        for i in sorted(range(self.count()), key=lambda i: (i != current, self._group_at(i) != now)):
            widget = self.widget(i)
            seen = self._group_at(i) == now and widget not in self._unwanted
            if self.isTabVisible(i) != seen:
                super().setTabVisible(i, seen)
        self._chooser.show_group(now, [bool(self.members(i)) for i in range(len(self._groups))])
        self._fit()

    def _fit(self) -> None:
        metrics = self.tabBar().fontMetrics()
        frame = self.style().pixelMetric(QStyle.PixelMetric.PM_TabBarTabHSpace, None, self.tabBar())
        widest = max(
            (
                sum(metrics.horizontalAdvance(self.tabText(self.indexOf(tab))) + frame for tab in tabs)
                for tabs in map(self.members, range(len(self._groups)))
            ),
            default=0,
        )
        # For the widest group: the names do not come and go as one changes between groups.
        self._chooser.set_wide(self._chooser.wide_width() + widest + SPARE <= self.width())

    def _fill_menu(self) -> None:
        menu = self._chooser.menu
        menu.clear()
        for i, group in enumerate(self._groups):
            if tabs := self.members(i):
                menu.addSection(group.title)
            for tab in tabs:
                action = menu.addAction(self.tabText(self.indexOf(tab)))
                action.setCheckable(True)
                action.setChecked(tab is self.currentWidget())
                action.triggered.connect(lambda _checked=False, tab=tab: self._bring(tab))


class _Chooser(QWidget):
    """The names of the groups as buttons, of which one is down; or one button with a menu of all views."""

    def __init__(self, groups: Sequence[TabGroup], parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("tab_groups")
        self._groups = groups
        self.buttons = QButtonGroup(self)
        self.menu = QMenu(self)
        self.menu.setAccessibleName("All views of this panel")
        self._one = QToolButton(self)
        self._one.setObjectName("tab_group_menu")
        self._one.setAccessibleName("Views of this panel")
        self._one.setToolTip("All views of this panel, by what they are for")
        self._one.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self._one.setMenu(self.menu)
        self._one.setAutoRaise(True)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 4, 0)
        row.setSpacing(0)
        row.addWidget(self._one)
        for i, group in enumerate(groups):
            button = QToolButton(self)
            button.setText(group.title)
            button.setToolTip(group.help)
            button.setAccessibleDescription(group.help)
            CheckedLook(button)
            button.setAutoRaise(True)
            self.buttons.addButton(button, i)
            row.addWidget(button)
        self._wide = True
        self._there = [True] * len(groups)
        self._show()

    def show_group(self, group: int, there: list[bool]) -> None:
        """Which one is chosen, and which have any view; with one alone there is nothing to choose."""
        self.buttons.button(group).setChecked(True)
        self._one.setText(self._groups[group].title)
        self._there = there
        self._show()

    def set_wide(self, wide: bool) -> None:
        """Whether there is room for all names."""
        if wide != self._wide:
            self._wide = wide
            self._show()

    def wide_width(self) -> int:
        """What all names take, in pixels."""
        pairs = zip(self.buttons.buttons(), self._there, strict=True)
        return sum(button.sizeHint().width() for button, there in pairs if there) + 4

    def minimumSizeHint(self) -> QSize:
        return self._one.minimumSizeHint()

    def _show(self) -> None:
        some = sum(self._there) > 1
        self._one.setVisible(some and not self._wide)
        for button, there in zip(self.buttons.buttons(), self._there, strict=True):
            button.setVisible(some and self._wide and there)
        self.updateGeometry()
