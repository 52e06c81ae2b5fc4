"""The bar that looks for values: its answer can be read, however narrow the panel is."""

from __future__ import annotations

import pytest
from pytestqt.qtbot import QtBot

from inspector.ui.find_bar import FindBar

pytestmark = pytest.mark.qt


@pytest.mark.parametrize("width", [1400, 540, 900])
def test_what_was_found_is_not_cut_off(qtbot: QtBot, width: int) -> None:
    bar = FindBar()
    qtbot.addWidget(bar)
    bar.resize(width, bar.sizeHint().height())
    bar.show()
    low = bar.sizeHint().height()
    qtbot.waitUntil(lambda: bar.query.width() > width - 260)
    # No param is selected yet, which it says in a sentence.
    bar.look_for(backwards=False, text="> 0.2")
    bar.resize(width, bar.sizeHint().height())
    qtbot.waitUntil(lambda: bar.status.width() > 0)
    qtbot.wait(20)
    said = bar.status.text()
    assert said.startswith("⚠ Select a param")
    assert bar.status.shown_text(bar.status.contentsRect().width()) == said
    assert bar.query.width() > 100
    assert (bar.sizeHint().height() == low) == (bar.status.geometry().left() > bar.query.geometry().right())
