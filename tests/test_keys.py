"""The overview of keys: it fits the width of any screen."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from PySide6.QtCore import QSize
from pytestqt.qtbot import QtBot

from inspector.ui.keys import Group, KeysDialog

pytestmark = pytest.mark.qt

GROUPS: list[Group] = [
    (f"In view {n}", tuple((f"Ctrl+{key}", "what is done with it, in a sentence of some length") for key in "ABC"))
    for n in range(9)
]  # fmt: skip


@pytest.mark.parametrize("width", [3840, 1280, 700])
def test_keys_are_never_wider_than_the_screen(
    qtbot: QtBot, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    dialog = KeysDialog()
    qtbot.addWidget(dialog)
    screen = SimpleNamespace(availableSize=lambda: QSize(width, 800))
    monkeypatch.setattr(KeysDialog, "screen", lambda _: screen)
    dialog.show_groups(GROUPS)
    assert dialog.label.width() < dialog.width() <= width
    assert all(title in dialog.label.text() for title, _ in GROUPS)
    if width == 3840:
        assert dialog.label.height() < 800
