"""Views that share a panel stand in groups: each is reached by key, by mouse and by name, at any width."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QAbstractButton, QLabel, QTabWidget, QToolButton
from pytestqt.qtbot import QtBot
from test_palette import Shown

from inspector.ui import docks, theme
from inspector.ui.app import application, make_views
from inspector.ui.docks import PANELS, TAB_TITLES, VIEW_GROUPS
from inspector.ui.tab_groups import GroupedTabs, TabGroup

pytestmark = pytest.mark.qt

GROUPS = (
    TabGroup("Near", "What is near", ("a", "b", "c")),
    TabGroup("Far", "What is far", ("d", "e")),
    TabGroup("None", "What nobody has", ("z",)),
)


def made(qtbot: QtBot, width: int = 900) -> tuple[GroupedTabs, dict[str, QLabel]]:
    theme.apply(application(), "light")
    tabs = GroupedTabs(GROUPS)
    qtbot.addWidget(tabs)
    labels = {name: QLabel(name) for name in "abcde"}
    for name, label in labels.items():
        label.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        tabs.add_view(name, label, f"tab {name}")
    tabs.resize(width, 200)
    tabs.show()
    qtbot.waitExposed(tabs)
    return tabs, labels


def seen(tabs: QTabWidget) -> list[str]:
    return [tabs.tabText(i)[-1] for i in range(tabs.count()) if tabs.isTabVisible(i)]


def names(tabs: GroupedTabs) -> dict[str, QAbstractButton]:
    return {b.text(): b for b in tabs.findChildren(QToolButton) if b.isVisible() and b.isCheckable()}


def the_menu(tabs: GroupedTabs) -> QToolButton:
    button = tabs.findChild(QToolButton, "tab_group_menu")
    assert isinstance(button, QToolButton)
    return button


def test_only_the_tabs_of_the_chosen_group_are_there(qtbot: QtBot) -> None:
    tabs, labels = made(qtbot)
    assert (seen(tabs), tabs.currentWidget()) == (["a", "b", "c"], labels["a"])
    # A group without any view has no name there.
    assert list(names(tabs)) == ["Near", "Far"]
    qtbot.mouseClick(names(tabs)["Far"], Qt.MouseButton.LeftButton)
    assert (seen(tabs), tabs.currentWidget()) == (["d", "e"], labels["d"])
    assert [name for name, button in names(tabs).items() if button.isChecked()] == ["Far"]


def test_a_group_comes_back_with_the_view_that_was_in_front(qtbot: QtBot) -> None:
    tabs, labels = made(qtbot)
    visited: list[int] = []
    tabs.tabBarClicked.connect(visited.append)
    tabs.setCurrentWidget(labels["b"])
    qtbot.mouseClick(names(tabs)["Far"], Qt.MouseButton.LeftButton)
    qtbot.mouseClick(names(tabs)["Near"], Qt.MouseButton.LeftButton)
    assert tabs.currentWidget() is labels["b"]
    # Places visited are kept by whoever listens to the tabs.
    assert visited == [3, 1]


def test_what_is_made_current_brings_its_group(qtbot: QtBot) -> None:
    tabs, labels = made(qtbot)
    tabs.setCurrentWidget(labels["e"])
    assert (seen(tabs), tabs.currentWidget()) == (["d", "e"], labels["e"])
    assert labels["e"].isVisible()


def test_a_view_that_is_not_wanted_has_no_tab_in_its_group(qtbot: QtBot) -> None:
    tabs, labels = made(qtbot)
    tabs.setTabVisible(1, False)
    tabs.setTabVisible(3, False)
    assert seen(tabs) == ["a", "c"]
    qtbot.mouseClick(names(tabs)["Far"], Qt.MouseButton.LeftButton)
    assert seen(tabs) == ["e"]
    tabs.setTabVisible(4, False)
    # Its group is empty now, and another takes its place.
    assert (seen(tabs), list(names(tabs))) == (["a", "c"], [])
    tabs.setTabVisible(3, True)
    assert seen(tabs) == ["a", "c"]
    assert list(names(tabs)) == ["Near", "Far"]
    docks_show = labels["d"]
    tabs.setCurrentWidget(docks_show)
    assert seen(tabs) == ["d"]


def test_too_narrow_for_the_names_a_menu_has_every_view(qtbot: QtBot) -> None:
    tabs, labels = made(qtbot, 900)
    assert not the_menu(tabs).isVisible()
    tabs.resize(220, 200)
    qtbot.waitUntil(lambda: the_menu(tabs).isVisible())
    assert names(tabs) == {}
    assert the_menu(tabs).text() == "Near"
    menu = the_menu(tabs).menu()
    menu.aboutToShow.emit()
    entries = {action.text(): action for action in menu.actions() if not action.isSeparator()}
    assert list(entries) == ["tab a", "tab b", "tab c", "tab d", "tab e"]
    assert [text for text, action in entries.items() if action.isChecked()] == ["tab a"]
    entries["tab e"].trigger()
    assert tabs.currentWidget() is labels["e"]
    assert the_menu(tabs).text() == "Far"
    tabs.resize(900, 200)
    qtbot.waitUntil(lambda: not the_menu(tabs).isVisible())
    assert list(names(tabs)) == ["Near", "Far"]


def test_ctrl_tab_goes_on_through_all_groups(qtbot: QtBot) -> None:
    tabs, labels = made(qtbot)
    order = []
    for _ in range(6):
        tabs.currentWidget().setFocus()
        qtbot.keyClick(tabs.currentWidget(), Qt.Key.Key_Tab, Qt.KeyboardModifier.ControlModifier)
        order.append(tabs.currentWidget().text())  # type: ignore[attr-defined]
    assert order == ["b", "c", "d", "e", "a", "b"]
    ctrl_shift = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier
    qtbot.keyClick(tabs.currentWidget(), Qt.Key.Key_Backtab, ctrl_shift)
    assert tabs.currentWidget() is labels["a"]


def test_every_view_of_a_panel_with_groups_is_in_one_of_them() -> None:
    for panel in PANELS:
        if panel.groups:
            assert [view for group in panel.groups for view in group.views] == list(panel.views)
    assert len({group.title for group in VIEW_GROUPS}) == len(VIEW_GROUPS)
    assert set(TAB_TITLES) <= {view for panel in PANELS for view in panel.views}


@pytest.mark.parametrize("width", [900, 1280, 1920])
def test_no_tab_of_the_window_has_to_be_scrolled_to(qtbot: QtBot, width: int) -> None:
    theme.apply(application(), "light")
    whole = Shown(qtbot, views=make_views())
    window = whole.window
    window.resize(width, 800)
    qtbot.wait(20)
    for name, view in window.views.items():
        window.ways.go_to_view(name)
        qtbot.wait(1)
        tabs = docks.tabs_of(view)
        if tabs is not None:
            bar = tabs.tabBar()
            buttons = [b for b in bar.findChildren(QToolButton) if b.isVisible()]
            assert buttons == [], f"{name} at {width}"
            place = bar.mapTo(tabs, QPoint(bar.tabRect(tabs.indexOf(view)).right(), 0))
            assert place.x() <= tabs.width(), f"{name} at {width}"
    whole.clear()
