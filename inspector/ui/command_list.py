"""Everything that can be done in the window, gathered from its menus and from the keys of its views."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from PySide6.QtCore import QCoreApplication, QEvent, Qt
from PySide6.QtGui import QAction, QKeyEvent, QKeySequence, QShortcut
from PySide6.QtWidgets import QDockWidget, QMenu, QMenuBar

from inspector.runtime.commands import OpenSource
from inspector.ui.palette_entries import Entry
from inspector.ui.view import View

NOT_NOW = "Not now: "
WORDS = {
    "←": "Left", "→": "Right", "↑": "Up", "↓": "Down", "−": "-", "enter": "Return", "delete": "Del", "page up": "PgUp",
    "page down": "PgDown",
}  # fmt: skip
"""Keys as people read them, and as Qt names them."""
MOUSE = ("click", "wheel", "drag")


@dataclass(frozen=True, slots=True)
class Doable:
    """An entry of the palette and what it does."""

    entry: Entry
    do: Callable[[], None]


def of_menus(bar: QMenuBar) -> Iterator[Doable]:
    """Every action that stands in a menu, in the order of the menus."""
    for top in bar.actions():
        menu = top.menu()
        if isinstance(menu, QMenu):
            yield from _of_menu(menu, _plain(top.text()), "")


def of_views(
    views: Mapping[str, View], titles: Mapping[str, str], go: Callable[[str], None]
) -> Iterator[Doable]:
    """The keys that mean something in one view: to choose one goes to the view first, as `go` does."""
    for name, view in views.items():
        for written, what in view.kind().LOCAL_KEYS:
            keys = presses(written)
            for press, each in zip(keys, told_apart(what, len(keys)), strict=True):
                help_text = f"A key of this panel ({written})"
                entry = Entry(f"{name}/{press}", titles[name], each, (readable(press),), help_text)
                yield Doable(entry, _pressing(go, name, view, press))


def told_apart(what: str, keys: int) -> tuple[str, ...]:
    """What each of so many keys does where one line of help is for all: "zoom in or out" is "zoom in", "zoom out"."""
    if keys == 2 and " or " in what:
        first, _, second = what.rpartition(" or ")
        before, _, _ = first.rpartition(" ")
        return first, f"{before} {second}" if len(second.split()) == 1 else second
    if keys == 2 and ", " in what:
        first, _, second = what.partition(", ")
        return first, second
    return (what,) * keys


def of_source(title: str, spec: str, text: str, send: Callable[[OpenSource], None]) -> Doable:
    """A source that can be opened."""
    return Doable(Entry(f"open/{spec}", "Open", title, (), text), lambda: send(OpenSource(spec)))


def presses(written: str) -> tuple[str, ...]:
    """The keys that a line of help names, as Qt names them: "+ / −, wheel" gives + and -; none for the mouse."""
    found: list[str] = []
    for part in written.split(", "):
        if any(word in part.lower() for word in MOUSE):
            continue
        modifiers = ""
        alternatives = [part] if part == "/" else re.split(r" / | (?=[A-Z]\b)", part)
        for i, each in enumerate(alternatives):
            key = each.strip()
            if i == 0:
                match = re.match(r"((?:Ctrl|Shift|Alt)\+)+", key)
                modifiers = match[0] if match else ""
                key = key[len(modifiers) :]
            if alternatives[0].lower().startswith("page") and i:
                key = f"page {key}"
            found.append(modifiers + WORDS.get(key.lower(), key))
    return tuple(found)


def readable(press: str) -> str:
    """A key as Qt writes it."""
    return QKeySequence(press).toString()


def press_in(view: View, press: str) -> bool:
    """Do in `view` what the key would do there; False where it means nothing."""
    sequence = QKeySequence(press)
    for shortcut in view.findChildren(QShortcut):
        if shortcut.key() == sequence and shortcut.isEnabled():
            shortcut.activated.emit()
            return True
    target = view.key_target()
    for action in target.actions():
        if sequence in action.shortcuts():
            action.trigger()
            return True
    combination = sequence[0]  # type: ignore[index]
    text = press if len(press) == 1 else ""
    taken = True
    for kind in (QEvent.Type.KeyPress, QEvent.Type.KeyRelease):
        event = QKeyEvent(kind, combination.key(), combination.keyboardModifiers(), text)
        QCoreApplication.sendEvent(target, event)
        taken &= event.isAccepted() or kind == QEvent.Type.KeyRelease
    return taken


def _of_menu(menu: QMenu, group: str, path: str) -> Iterator[Doable]:
    for action in menu.actions():
        inner = action.menu()
        if isinstance(inner, QMenu):
            yield from _of_menu(inner, group, f"{path}{_plain(action.text())} › ")
        elif not action.isSeparator() and action.text():
            yield Doable(_entry(action, group, path), action.trigger)


def _entry(action: QAction, group: str, path: str) -> Entry:
    text = f"{path}{_plain(action.text())}"
    if isinstance(action.parent(), QDockWidget):
        text = f"Show or close {text}"
    keys = tuple(key.toString(QKeySequence.SequenceFormat.NativeText) for key in action.shortcuts())
    said, _, reason = action.toolTip().partition(NOT_NOW)
    # Without a tooltip of its own an action gives its text.
    said = "" if said.strip() == _plain(action.text()) else said.strip()
    if action.isEnabled():
        reason = ""
    elif not reason:
        said, reason = action.whatsThis(), said or "there is nothing to do it with"
    checked = action.isChecked() if action.isCheckable() else None
    return Entry(action.objectName() or text, group, text, keys, said, reason.strip(), checked)


def _plain(text: str) -> str:
    """Without the mark of the letter that Alt goes to."""
    return re.sub(r"&(.)", r"\1", text)


def _pressing(go: Callable[[str], None], name: str, view: View, press: str) -> Callable[[], None]:
    def act() -> None:
        go(name)
        # Where the view itself cannot take the keys, as while it is empty, nothing is pressed elsewhere.
        view.key_target().setFocus(Qt.FocusReason.ShortcutFocusReason)
        press_in(view, press)

    return act
