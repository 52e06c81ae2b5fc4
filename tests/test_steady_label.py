"""A line of words that change all the time does not have the window laid out anew with each of them."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QEvent, QObject
from PySide6.QtWidgets import QHBoxLayout, QLabel, QWidget
from pytestqt.qtbot import QtBot

from inspector.ui.widgets import ElidedLabel, SteadyLabel

pytestmark = pytest.mark.qt


class LaidOut(QObject):
    """Counts how often a widget was asked to lay itself out."""

    def __init__(self, widget: QWidget) -> None:
        super().__init__(widget)
        self.window, self.count = widget, 0
        widget.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        self.count += event.type() == QEvent.Type.LayoutRequest
        return False


def shown_in_a_row(qtbot: QtBot, label: QLabel) -> LaidOut:
    window = QWidget()
    qtbot.addWidget(window)
    layout = QHBoxLayout(window)
    layout.addWidget(label)
    layout.addWidget(QLabel("beside"))
    window.resize(400, 30)
    with qtbot.waitExposed(window):
        window.show()
    qtbot.wait(5)
    return LaidOut(window)


@pytest.mark.parametrize("kind", [SteadyLabel, ElidedLabel])
def test_words_no_longer_than_before_are_painted_in_the_same_place(
    qtbot: QtBot, kind: type[SteadyLabel]
) -> None:
    label = kind()
    label.setText("step 1,000 of 2,000")
    laid_out = shown_in_a_row(qtbot, label)
    before = label.grab().toImage()
    for step in range(5):
        label.setText(f"step {step}")
        qtbot.wait(2)
    assert laid_out.count == 0
    assert label.text() == label.accessibleName() == "step 4"
    assert label.grab().toImage() != before


def test_longer_words_get_the_room_that_they_take(qtbot: QtBot) -> None:
    label = SteadyLabel("step 1")
    laid_out = shown_in_a_row(qtbot, label)
    long = "step 1,000,000 of 2,000,000, in progress"
    label.setText(long)
    qtbot.wait(5)
    assert laid_out.count > 0
    assert label.width() >= label.fontMetrics().horizontalAdvance(long)


def test_it_looks_as_a_label_does(qtbot: QtBot) -> None:
    steady, plain = SteadyLabel("lr 3e-4 · GPU 1.2 ms"), QLabel("lr 3e-4 · GPU 1.2 ms")
    for label in (steady, plain):
        qtbot.addWidget(label)
        label.setContentsMargins(8, 0, 8, 0)
    assert steady.sizeHint() == plain.sizeHint()
    for label in (steady, plain):
        label.resize(plain.sizeHint())
    assert steady.grab().toImage() == plain.grab().toImage()
