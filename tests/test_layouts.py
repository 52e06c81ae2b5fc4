"""Arrangements of the panels, built in and saved by name: kept between starts, and fit for any size of window."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QByteArray, QSettings, QSize, Qt
from PySide6.QtGui import QAction
from pytestqt.qtbot import QtBot
from test_window import Recording, Shown

from inspector.ui import docks, theme
from inspector.ui.app import application, make_views
from inspector.ui.arrangements import BUILT_IN, STEP, Arrangement
from inspector.ui.docks import LAYOUT_VERSION, PANELS, views_in_front
from inspector.ui.layouts import MOST_LAYOUTS, MOST_LETTERS, kept_layouts

pytestmark = pytest.mark.qt

SMALLEST = 60
"""Pixels: a panel that is lower or narrower shows nothing."""


def open_window(qtbot: QtBot, settings: QSettings | None = None) -> Shown:
    theme.apply(application(), "light")
    return Shown(qtbot, settings)


@pytest.fixture
def shown(qtbot: QtBot) -> Iterator[Shown]:
    made = open_window(qtbot)
    yield made
    made.bus.blockSignals(True)


def seen(shown: Shown) -> set[str]:
    """The panels that are there, be it as a tab behind another."""
    return {name for name, dock in shown.window.docks.items() if dock.isVisible()}


def in_sight(shown: Shown) -> set[str]:
    return {name for name, dock in shown.window.docks.items() if not dock.visibleRegion().isEmpty()}


def resize(shown: Shown, width: int, height: int) -> None:
    shown.window.resize(width, height)
    shown.qtbot.waitUntil(lambda: (shown.window.width(), shown.window.height()) == (width, height))


def check_places(shown: Shown) -> None:
    """Every panel that is there lies in the window, is large enough, and covers no other."""
    docks = {n: d for n, d in shown.window.docks.items() if n in in_sight(shown) and not d.isFloating()}
    frames = {name: dock.geometry() for name, dock in docks.items()}
    for name, frame in frames.items():
        assert shown.window.rect().contains(frame), name
        assert min(frame.width(), frame.height()) >= SMALLEST, (name, frame)
        assert not [n for n, other in frames.items() if n != name and frame.intersects(other)], name


def test_every_panel_has_its_place_in_the_first_arrangement() -> None:
    assert {name for name, _, _ in STEP.places} == {panel.name for panel in PANELS}


@pytest.mark.parametrize("arrangement", BUILT_IN, ids=lambda a: a.name)
def test_an_arrangement_names_panels_and_views_that_there_are(arrangement: Arrangement) -> None:
    placed = [name for name, _, _ in arrangement.places]
    assert len(set(placed)) == len(placed)
    for i, (_, beside, _) in enumerate(arrangement.places):
        assert (beside in placed[:i]) == bool(i)
    assert {name for shares, _ in arrangement.shares for name in shares} <= set(placed)
    if arrangement.small is not None:
        # The same panels, and what is behind another has that before it.
        assert {name for name, _, _ in arrangement.small.places} == set(placed)
        assert arrangement.small.front == arrangement.front
    views = {view for panel in PANELS if panel.name in placed for view in panel.views}
    assert set(arrangement.front) <= views


def test_arrangements_built_in_and_saved_fit_every_size(qtbot: QtBot) -> None:
    """In a window with all its views, since what they need at least decides what fits."""
    whole = Shown(qtbot, views=make_views())
    resize(whole, 1600, 1000)
    arrange(whole)
    qtbot.wait(50)
    whole.window.ways.layouts.save("mine")
    shares = {n: whole.window.docks[n].width() / 1600 for n in ("pipeline", "plots")}
    here = seen(whole)
    for size in ((900, 600), (1280, 800), (1920, 1080), (3840, 2160)):
        resize(whole, *size)
        for arrangement in BUILT_IN:
            whole.window.actions_by_name[f"layout_{arrangement.name}"].trigger()
            assert seen(whole) == {name for name, _, _ in arrangement.places}
            assert set(arrangement.front) <= set(views_in_front(whole.window.views))
            check_places(whole)
        whole.window.ways.layouts.apply_kept("mine")
        assert seen(whole) == here
        check_places(whole)
        # In the smallest one what a panel needs at least comes first.
        for name, share in shares.items() if size[0] >= 1280 else ():
            assert whole.window.docks[name].width() / size[0] == pytest.approx(share, abs=0.05), (name, size)
    resize(whole, 1280, 800)
    for arrangement in BUILT_IN:
        whole.window.ways.layouts.apply(arrangement)
        for name, dock in whole.window.docks.items():
            whole.window.ways.go_to(name)
            qtbot.wait(10)
            assert not dock.visibleRegion().isEmpty(), f"{name} can be opened in {arrangement.name}"
        resize(whole, 1280, 800)
    whole.bus.blockSignals(True)


def untabbed(shown: Shown) -> bool:
    return in_sight(shown) == seen(shown)


def test_a_small_window_has_panels_as_tabs_until_it_is_large_again(shown: Shown) -> None:
    resize(shown, 1440, 900)
    shown.window.ways.layouts.apply(STEP)
    assert untabbed(shown)
    resize(shown, 900, 600)
    assert seen(shown) == set(shown.window.docks)
    assert in_sight(shown) == {"map", "pipeline", "plots", "timeline"}
    assert shown.window.ways.layouts.untouched() == "step"
    # Each is still a key away, and stays before the others.
    shown.window.ways.go_to("values")
    assert {"values"} == in_sight(shown) - {"map", "pipeline", "timeline"}
    resize(shown, 1000, 640)
    assert "values" in in_sight(shown)
    resize(shown, 1440, 900)
    assert untabbed(shown)


def test_a_window_that_opens_small_has_them_side_by_side_once_it_is_large(qtbot: QtBot) -> None:
    """Nothing was chosen yet: it is as the window itself put them."""
    made = open_window(qtbot)
    made.window.resize(900, 600)
    qtbot.wait(50)
    resize(made, 1440, 900)
    assert made.window.ways.layouts.untouched() == "step"
    assert untabbed(made)
    made.bus.blockSignals(True)


def test_with_larger_text_a_window_is_small_sooner(qtbot: QtBot) -> None:
    app = application()
    theme.apply(app, "light", 1.5)
    try:
        made = Shown(qtbot)
        resize(made, 1280, 800)
        made.window.ways.layouts.apply(STEP)
        assert not untabbed(made)
        resize(made, 1800, 1100)
        assert untabbed(made)
        made.bus.blockSignals(True)
    finally:
        theme.apply(app, "light", 1.0)


@pytest.mark.parametrize("arrangement", BUILT_IN, ids=lambda a: a.name)
def test_what_comes_of_an_arrangement_is_what_it_says(shown: Shown, arrangement: Arrangement) -> None:
    for size in ((1440, 900), (900, 600)):
        resize(shown, *size)
        shown.window.ways.layouts.apply(arrangement)
        shown.qtbot.wait(20)
        assert shown.window.ways.layouts.untouched() == arrangement.name, size


def test_panels_that_somebody_moved_stay_where_they_are(shown: Shown) -> None:
    resize(shown, 1440, 900)
    shown.window.ways.layouts.apply(STEP)
    shown.window.docks["hyper"].close()
    assert shown.window.ways.layouts.untouched() == ""
    resize(shown, 900, 600)
    assert in_sight(shown) == set(shown.window.docks) - {"hyper"}
    shown.window.ways.layouts.apply(STEP)
    shown.window.addDockWidget(Qt.DockWidgetArea.BottomDockWidgetArea, shown.window.docks["values"])
    shown.window.docks["values"].show()
    shown.qtbot.waitUntil(lambda: "values" in in_sight(shown))
    assert shown.window.ways.layouts.untouched() == ""
    resize(shown, 1440, 900)
    assert shown.window.dockWidgetArea(shown.window.docks["values"]) == Qt.DockWidgetArea.BottomDockWidgetArea


@pytest.mark.parametrize(("before", "after"), [((900, 600), (1440, 900)), ((1440, 900), (900, 600))])
def test_the_next_window_knows_which_arrangement_it_is_in(
    qtbot: QtBot, tmp_path: Path, before: tuple[int, int], after: tuple[int, int]
) -> None:
    path = str(tmp_path / "kept.ini")
    first = open_window(qtbot, QSettings(path, QSettings.Format.IniFormat))
    resize(first, *before)
    first.window.ways.layouts.apply(STEP)
    qtbot.wait(20)
    first.window.close()
    first.bus.blockSignals(True)
    again = open_window(qtbot, QSettings(path, QSettings.Format.IniFormat))
    qtbot.wait(20)
    assert again.window.ways.layouts.untouched() == "step"
    resize(again, *after)
    assert again.window.ways.layouts.untouched() == "step"
    assert untabbed(again) == (after == (1440, 900))
    again.bus.blockSignals(True)


def test_a_view_that_is_shown_comes_before_the_panels_in_its_place(shown: Shown) -> None:
    resize(shown, 900, 600)
    shown.window.ways.layouts.apply(STEP)
    shown.window.ways.go_to("findings")
    assert "plots" not in in_sight(shown)
    shown.window.show_view("plots")
    assert "plots" in in_sight(shown)


def save_as(shown: Shown, name: str) -> None:
    """Through the palette, as a person does."""
    shown.press(Qt.Key.Key_S, Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.AltModifier)
    shown.window.ways.finder.field.setText(name)
    shown.qtbot.keyClick(shown.window.ways.finder.field, Qt.Key.Key_Return)


def own(shown: Shown) -> list[str]:
    menu = [a for a in shown.window.findChildren(QAction) if a.objectName().startswith("kept_layout_")]
    return sorted(a.text() for a in menu if a in shown.window.menus._kept)


def arrange(shown: Shown) -> None:
    """As none of the built-in ones is."""
    shown.window.ways.layouts.apply(STEP)
    shown.window.docks["findings"].close()
    shown.window.docks["hyper"].close()
    shown.window.show_view("params")
    shown.window.resizeDocks(
        [shown.window.docks["pipeline"], shown.window.docks["plots"]], [640, 640], Qt.Orientation.Horizontal
    )


def test_a_layout_is_saved_chosen_renamed_and_deleted(shown: Shown) -> None:
    arrange(shown)
    here = seen(shown)
    save_as(shown, "  my   own ")
    assert own(shown) == ["my own"]
    shown.window.restore_default_layout()
    assert seen(shown) == set(shown.window.docks)
    action = shown.window.findChild(QAction, "kept_layout_my own")
    assert isinstance(action, QAction)
    action.trigger()
    assert seen(shown) == here
    assert "params" in views_in_front(shown.window.views)

    finder = shown.window.ways.finder
    shown.window.actions_by_name["rename_layout"].trigger()
    assert [row.text for row in finder.model.rows] == ["my own"]
    finder.choose()
    shown.qtbot.keyClicks(finder.field, "another")
    assert [row.text for row in finder.model.rows] == ["Rename my own to another"]
    finder.choose()
    assert own(shown) == ["another"]
    shown.window.actions_by_name["delete_layout"].trigger()
    finder.choose()
    assert own(shown) == []
    assert not shown.window.actions_by_name["delete_layout"].isEnabled()


def test_the_keys_stay_in_a_panel_when_the_layout_changes_or_theirs_is_closed(shown: Shown) -> None:
    """In the toolbar the next arrow would choose another source."""
    window = shown.window
    for name in ("profile", "step", "compare", "diagnose"):
        window.actions_by_name[f"layout_{name}"].trigger()
        now = window.focusWidget()
        assert any(dock.isAncestorOf(now) and dock.isVisible() for dock in window.docks.values()), name
    window.restore_default_layout()
    window.ways.go_to("timeline")
    window.docks["timeline"].close()
    shown.qtbot.wait(10)
    now = window.focusWidget()
    assert any(dock.isAncestorOf(now) and dock.isVisible() for dock in window.docks.values())
    window.ways.go_to("map")
    window.actions_by_name["layout_step"].trigger()
    assert window.views["map"].isAncestorOf(window.focusWidget()), "they stay where they were"


def test_what_a_layout_is_for_has_the_keys(shown: Shown) -> None:
    window = shown.window
    window.ways.go_to("timeline")
    for name, view in (("profile", "profile"), ("compare", "compare"), ("diagnose", "findings")):
        window.actions_by_name[f"layout_{name}"].trigger()
        assert window.focusWidget() is window.views[view].key_target(), name


def test_a_name_that_is_taken_is_saved_over_and_said_to_be(shown: Shown) -> None:
    save_as(shown, "mine")
    arrange(shown)
    here = seen(shown)
    shown.window.ways.layouts.ask_save()
    finder = shown.window.ways.finder
    assert [row.text for row in finder.model.rows] == ["Save over mine"]
    shown.qtbot.keyClicks(finder.field, "mine")
    assert "in place of" in finder.model.rows[0].text
    finder.choose()
    assert own(shown) == ["mine"]
    shown.window.restore_default_layout()
    shown.window.ways.layouts.apply_kept("mine")
    assert seen(shown) == here


def test_names_and_their_number_are_bounded_in_words(shown: Shown) -> None:
    layouts, finder = shown.window.ways.layouts, shown.window.ways.finder
    layouts.ask_save()
    finder.field.setText(" ")
    assert (finder.model.rowCount(), finder.note.text()) == (0, "Type a name.")
    finder.field.setText("x" * (MOST_LETTERS + 1))
    assert f"{MOST_LETTERS} letters" in finder.note.text()
    for i in range(MOST_LAYOUTS):
        layouts.save(str(i))
    layouts.ask_save()
    finder.field.setText("one more")
    assert "delete one first" in finder.note.text()


def test_layouts_and_what_is_in_front_are_there_at_the_next_start(qtbot: QtBot, tmp_path: Path) -> None:
    path = str(tmp_path / "w.ini")
    first = open_window(qtbot, docks.open_settings(path))
    arrange(first)
    here = seen(first)
    save_as(first, "Größe & Maß")
    first.window.close()
    second = open_window(qtbot, docks.open_settings(path))
    assert seen(second) == here
    assert "params" in views_in_front(second.window.views)
    assert own(second) == ["Größe && Maß"]
    second.window.restore_default_layout()
    second.window.ways.layouts.apply_kept("Größe & Maß")
    assert seen(second) == here
    for each in (first, second):
        each.bus.blockSignals(True)


def test_layouts_that_cannot_be_meant_are_left_out(tmp_path: Path) -> None:
    settings = docks.open_settings(str(tmp_path / "w.ini"))
    good, long = QByteArray(b"x" * 100), QByteArray(b"x" * 100_000)
    entries: list[tuple[object, object, object]] = [
        ("good", good, LAYOUT_VERSION),
        ("", good, LAYOUT_VERSION),
        ("y" * 1000, good, LAYOUT_VERSION),
        ("other version", good, LAYOUT_VERSION + 1),
        ("no bytes", "text", LAYOUT_VERSION),
        ("too long", long, LAYOUT_VERSION),
        (["a", "list"], good, LAYOUT_VERSION),
    ]
    settings.beginWriteArray("layouts")
    for i, (name, state, version) in enumerate(entries):
        settings.setArrayIndex(i)
        for key, value in (("name", name), ("state", state), ("version", version), ("shares", "map nan 7")):
            settings.setValue(key, value)
    settings.endArray()
    settings.setValue("layouts/size", 2_000_000_000)
    settings.sync()
    kept = kept_layouts(docks.open_settings(str(tmp_path / "w.ini")))
    assert [each.name for each in kept] == ["good"]
    assert kept[0].shares == {}


def test_a_layout_that_qt_cannot_read_is_told_and_changes_nothing(qtbot: QtBot, tmp_path: Path) -> None:
    settings = docks.open_settings(str(tmp_path / "w.ini"))
    settings.beginWriteArray("layouts")
    settings.setArrayIndex(0)
    for key, value in (("name", "bad"), ("state", QByteArray(b"nothing")), ("version", LAYOUT_VERSION)):
        settings.setValue(key, value)
    settings.endArray()
    shown = open_window(qtbot, settings)
    before = seen(shown)
    shown.window.ways.layouts.apply_kept("bad")
    assert "cannot be read" in shown.window.banner.text
    assert seen(shown) == before
    assert any(isinstance(view, Recording) for view in shown.window.views.values())
    shown.bus.blockSignals(True)


def test_in_a_low_window_the_map_leaves_room_to_what_is_read_below_it() -> None:
    """At 1280 × 800, with a message above, three rows of values and one line of a finding were left."""

    def share(arrangement: Arrangement, panel: str) -> float:
        sizes = next(sizes for sizes, _ in arrangement.shares if "map" in sizes)
        return sizes[panel] / sum(sizes.values())

    low, high = STEP.fitting(QSize(1280, 800)), STEP.fitting(QSize(1920, 1080))
    assert share(low, "map") < share(high, "map") == share(STEP, "map")
    assert low.places == high.places
    assert STEP.fitting(QSize(900, 600)).places != low.places
