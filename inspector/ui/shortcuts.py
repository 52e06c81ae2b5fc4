"""Keys that mean something in some widgets only."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QWidget

Keys = Iterable[tuple[str | QKeySequence.StandardKey, Callable[[], object]]]


def bind(widget: QWidget, keys: Keys, *, inside: bool = False) -> None:
    """Have keys act while a widget has them; `inside` while anything in it has."""
    context = Qt.ShortcutContext
    for key, act in keys:
        shortcut = QShortcut(QKeySequence(key), widget)
        shortcut.setContext(context.WidgetWithChildrenShortcut if inside else context.WidgetShortcut)
        shortcut.activated.connect(act)
