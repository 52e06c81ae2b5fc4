"""Arrangements of the panels that a person has saved by name, in the settings of the window."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from PySide6.QtCore import QByteArray, QEvent, QObject, QSettings, Qt, Signal
from PySide6.QtWidgets import QDockWidget, QMainWindow, QWidget

from inspector.ui import theme
from inspector.ui.arrangements import BUILT_IN, STEP, Arrangement, place, topology, topology_of
from inspector.ui.docks import LAYOUT_VERSION, bring_to_front, names, views_in_front
from inspector.ui.fuzzy import Texts
from inspector.ui.palette import Answer, Palette, Row
from inspector.ui.view import View

KEY = "layouts"
SMALL = " small"
MOST_LAYOUTS = 50
MOST_LETTERS = 60
MOST_BYTES = 1 << 16
_SHARE = re.compile(r"([a-z_]{1,40}) ([01]\.\d{4}) ([01]\.\d{4})")


@dataclass(frozen=True, slots=True)
class Kept:
    """An arrangement as it was saved: where the docks are, and the views in front of others.

    `shares` are the width and height of each dock that was to be seen, in parts of the window's, so that it can be put
    into a window of another size.
    """

    name: str
    state: QByteArray
    front: tuple[str, ...]
    shares: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def kept_layouts(settings: QSettings | None) -> tuple[Kept, ...]:
    """What was saved, in the order of their names; what this version cannot read is left out."""
    if settings is None:
        return ()
    found: dict[str, Kept] = {}
    count = min(settings.beginReadArray(KEY), MOST_LAYOUTS)
    for i in range(count):
        settings.setArrayIndex(i)
        name, state, front = settings.value("name"), settings.value("state"), settings.value("front")
        version = str(settings.value("version", ""))
        named = isinstance(name, str) and 0 < len(name.strip()) <= MOST_LETTERS
        if not named or not isinstance(state, QByteArray) or not 0 < state.size() <= MOST_BYTES:
            continue
        if version == str(LAYOUT_VERSION):
            found[name.strip()] = Kept(name.strip(), state, names(front), _shares(settings.value("shares")))
    settings.endArray()
    return tuple(sorted(found.values(), key=lambda kept: kept.name.lower()))


def keep_layouts(settings: QSettings, layouts: tuple[Kept, ...]) -> None:
    """Write these in place of those kept before."""
    settings.remove(KEY)
    settings.beginWriteArray(KEY)
    for i, each in enumerate(layouts):
        settings.setArrayIndex(i)
        settings.setValue("name", each.name)
        settings.setValue("state", each.state)
        settings.setValue("front", list(each.front))
        settings.setValue("shares", [f"{name} {w:.4f} {h:.4f}" for name, (w, h) in each.shares.items()])
        settings.setValue("version", LAYOUT_VERSION)
    settings.endArray()
    settings.sync()


def _shares(value: object) -> dict[str, tuple[float, float]]:
    found = {}
    for text in names(value):
        if match := _SHARE.fullmatch(text):
            found[match[1]] = (float(match[2]), float(match[3]))
    return found


@dataclass(frozen=True, slots=True)
class Placed:
    """The built-in arrangement that the panels were put into, and in which form."""

    arrangement: Arrangement
    form: Arrangement


class Layouts(QObject):
    """Puts the panels as an arrangement has them, and keeps those that a person saves.

    `changed` says that others can be chosen; `told` carries a sentence.
    """

    changed = Signal()
    told = Signal(str)

    def __init__(
        self,
        window: QMainWindow,
        docks: Mapping[str, QDockWidget],
        views: Mapping[str, View],
        palette: Palette,
        settings: Callable[[], QSettings | None],
    ) -> None:
        super().__init__(window)
        self._window, self._docks, self._views = window, docks, views
        self._palette = palette
        self._settings = settings
        self.kept = kept_layouts(settings())
        self._placed: Placed | None = None
        self._placing = False
        for dock in docks.values():
            dock.dockLocationChanged.connect(self._on_moved)
        window.installEventFilter(self)

    def apply(self, arrangement: Arrangement) -> None:
        """Put every panel where a built-in arrangement has it."""
        before = self._window.focusWidget()
        self.place(arrangement)
        bring_to_front(self._views, arrangement.front)
        # What an arrangement is for is worked with by keys; the one with every panel is for nothing of its own.
        front = None if arrangement is STEP else self._views.get(arrangement.front[0])
        self._give_keys(before if front is None else front.key_target())

    def place(self, arrangement: Arrangement) -> None:
        """The same, whatever views are before others and whatever has the keys.

        While no panel is moved, opened or closed, it takes the form that fits the size of the window.
        """
        form = self._fitting(arrangement)
        with self._own_moves():
            place(self._window, self._docks, form)
        self._placed = Placed(arrangement, form)

    def untouched(self) -> str:
        """The name of the built-in arrangement that the panels are in; "" where they were moved since."""
        placed = self._placed
        if placed is None or topology_of(placed.form, self._docks) != topology(self._window, self._docks):
            return ""
        return placed.arrangement.name

    def kept_text(self) -> str:
        """What `take_up` needs to know of the arrangement; "" where panels were moved."""
        name, placed = self.untouched(), self._placed
        return f"{name}{SMALL}" if name and placed is not None and placed.form != placed.arrangement else name

    def take_up(self, text: str) -> None:
        """The panels are as a built-in arrangement had them when `kept_text` told this, in a window of any size."""
        for arrangement in BUILT_IN:
            if text.removesuffix(SMALL) == arrangement.name:
                form = (arrangement.small or arrangement) if text.endswith(SMALL) else arrangement
                self._placed = Placed(arrangement, form)
                if self._fitting(arrangement) != form:
                    self.place(arrangement)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Another form of the arrangement, where the window has become too small for this one or large enough."""
        if event.type() == QEvent.Type.Resize and watched is self._window and self._placed is not None:
            placed = self._placed
            if self._fitting(placed.arrangement) != placed.form and self.untouched():
                before = self._window.focusWidget()
                self.place(placed.arrangement)
                self._give_keys(before)
        return False

    def apply_kept(self, name: str) -> None:
        """Put every panel where it was when the layout was saved, in a window of this size."""
        for each in self.kept:
            if each.name == name:
                before = self._window.focusWidget()
                self._placed = None
                if not self._window.restoreState(each.state, LAYOUT_VERSION):
                    self.told.emit(f"The layout {name} cannot be read; save it anew, or delete it.")
                    return
                bring_to_front(self._views, each.front)
                self._fit(each.shares)
                self._give_keys(before)

    def save(self, name: str) -> None:
        """Keep the panels as they are now, in place of what has this name."""
        state, size = self._window.saveState(LAYOUT_VERSION), self._window.size()
        shares = {
            panel: (min(dock.width() / size.width(), 1.0), min(dock.height() / size.height(), 1.0))
            for panel, dock in self._docks.items()
            if dock.isVisible() and not dock.isFloating()
        }
        self._keep((*self._without(name), Kept(name, state, views_in_front(self._views), shares)))

    def rename(self, old: str, new: str) -> None:
        """Call a layout something else."""
        found = next((each for each in self.kept if each.name == old), None)
        if found is not None and old != new:
            others = (each for each in self.kept if each.name not in (old, new))
            self._keep((*others, replace(found, name=new)))

    def delete(self, name: str) -> None:
        """Forget a layout."""
        self._keep(self._without(name))

    # --- asked for in the palette

    def ask_save(self) -> None:
        """Ask for the name to save under."""
        self._palette.ask("Name of the layout, new or one to save over", self._save_answer)

    def ask_rename(self) -> None:
        """Ask which layout to rename, then what to call it."""
        self._choose("Layout to rename", self._ask_new_name)

    def ask_delete(self) -> None:
        """Ask which layout to delete."""
        self._choose("Layout to delete", self.delete)

    def _fitting(self, arrangement: Arrangement) -> Arrangement:
        """The form for this window: larger text takes more of it."""
        return arrangement.fitting(self._window.size() / theme.font_scale())

    @contextmanager
    def _own_moves(self) -> Iterator[None]:
        self._placing = True
        try:
            yield
        finally:
            self._placing = False

    def _on_moved(self) -> None:
        if not self._placing:
            self._placed = None

    def _give_keys(self, before: QWidget | None) -> None:
        """To what had them, or to a view that is there: never to the bar, where they would change what runs."""
        seen = next((view.key_target() for view in self._views.values() if view.isVisible()), None)
        target = before if before is not None and before.isVisible() else seen
        if target is not None:
            target.setFocus(Qt.FocusReason.OtherFocusReason)

    def _fit(self, shares: Mapping[str, tuple[float, float]]) -> None:
        """Qt gives what is more or less in another window to one of the docks: here each gets its part."""
        seen = [n for n in shares if n in self._docks and not self._docks[n].isFloating()]
        docks, size = [self._docks[n] for n in seen], self._window.size()
        for along, sizes in (
            (Qt.Orientation.Horizontal, [round(shares[n][0] * size.width()) for n in seen]),
            (Qt.Orientation.Vertical, [round(shares[n][1] * size.height()) for n in seen]),
        ):
            self._window.resizeDocks(docks, sizes, along)

    def _save_answer(self, text: str) -> Answer:
        taken = [Row(f"Save over {each.name}", partial(self.save, each.name)) for each in self.kept]
        return self._named(text, "Save as", self.save, taken)

    def _ask_new_name(self, old: str) -> None:
        answer = partial(self._named, what=f"Rename {old} to", act=partial(self.rename, old), others=())
        self._palette.ask(f"New name of {old}", answer, old, replace=True)

    def _choose(self, prompt: str, act: Callable[[str], None]) -> None:
        def answer(text: str) -> Answer:
            found = Texts(each.name for each in self.kept).find(text, MOST_LAYOUTS)
            return Answer([Row(self.kept[i].name, partial(act, self.kept[i].name)) for i in found])

        self._palette.ask(prompt, answer)

    def _named(self, text: str, what: str, act: Callable[[str], None], others: Sequence[Row]) -> Answer:
        name = " ".join(text.split())
        if not name:
            return Answer(others, "Type a name.")
        if len(name) > MOST_LETTERS:
            return Answer((), f"A name has at most {MOST_LETTERS} letters.")
        taken = any(each.name == name for each in self.kept)
        if not taken and len(self.kept) >= MOST_LAYOUTS:
            return Answer((), f"There are {MOST_LAYOUTS} layouts: delete one first.")
        over = ", in place of the one that has this name" if taken else ""
        return Answer((Row(f"{what} {name}{over}", partial(act, name)),))

    def _without(self, name: str) -> tuple[Kept, ...]:
        return tuple(each for each in self.kept if each.name != name)

    def _keep(self, layouts: tuple[Kept, ...]) -> None:
        self.kept = tuple(sorted(layouts, key=lambda kept: kept.name.lower()))
        if (settings := self._settings()) is not None:
            keep_layouts(settings, self.kept)
        self.changed.emit()
