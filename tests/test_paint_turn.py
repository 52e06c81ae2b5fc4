"""What is stale in a window is painted in turns of the event loop that each leave room for a key and the mouse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from PySide6.QtCore import QEvent, QTimer
from PySide6.QtGui import QImage, QPaintEvent, QRegion
from PySide6.QtWidgets import QHBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from inspector.ui import chart as charts
from inspector.ui.chart import Axis, Chart
from inspector.ui.paint_turn import PaintTurn

pytestmark = pytest.mark.qt


class Clock:
    """A clock that so many seconds pass on at each look."""

    def __init__(self) -> None:
        self.now, self.a_look = 0.0, 0.0

    def __call__(self) -> float:
        self.now += self.a_look
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, qtbot: QtBot) -> Iterator[Clock]:
    clock = Clock()
    turn = PaintTurn(budget_s=1.0, clock=clock)
    monkeypatch.setattr(charts, "paint_turn", lambda: turn)
    Window.turn = turn
    yield clock
    turn.deleteLater()


class Plot(Chart):
    """As small as the window likes."""

    def __init__(self) -> None:
        super().__init__(left=Axis("left"), bottom=Axis("bottom"))
        self.setMinimumSize(10, 10)


class Window(QWidget):
    """A window of plots side by side that paints as the main window does."""

    turn: PaintTurn

    def __init__(self, count: int) -> None:
        super().__init__()
        self.plots = [Plot() for _ in range(count)]
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        for plot in self.plots:
            layout.addWidget(plot)
        self.resize(120 * count, 100)

    def event(self, event: QEvent) -> bool:
        if event.type() != QEvent.Type.UpdateRequest:
            return super().event(event)
        with self.turn:
            return super().event(event)

    def turns_of(self, qtbot: QtBot, act: object) -> list[int]:
        """In which turn after `act` each plot was really painted."""
        at: dict[int, int] = {}
        turn = [0]
        timer = QTimer(self, interval=0)

        def tick() -> None:
            turn[0] += 1

        timer.timeout.connect(tick)
        paint = charts.PlotFrame.paintEvent
        plots = self.plots

        def noted(self: Chart, event: QPaintEvent) -> None:
            at.setdefault(plots.index(self), turn[0])  # type: ignore[arg-type]
            paint(self, event)

        charts.PlotFrame.paintEvent = noted  # type: ignore[method-assign]
        try:
            timer.start()
            act()  # type: ignore[operator]
            qtbot.waitUntil(lambda: len(at) == len(plots))
        finally:
            charts.PlotFrame.paintEvent = paint  # type: ignore[method-assign]
            timer.stop()
        return [at[i] for i in range(len(plots))]


def shown(qtbot: QtBot, count: int = 4) -> Window:
    window = Window(count)
    qtbot.addWidget(window)
    with qtbot.waitExposed(window):
        window.show()
    qtbot.wait(20)
    return window


def stale(window: Window) -> None:
    for plot in window.plots:
        plot.viewport().update()


def test_plots_that_fit_in_a_turn_are_painted_in_one(qtbot: QtBot, clock: Clock) -> None:
    window = shown(qtbot)
    clock.a_look = 0.2
    assert max(Counter(window.turns_of(qtbot, lambda: stale(window))).values()) == 4


def test_plots_that_each_take_a_turn_are_painted_one_a_turn_and_all_of_them(
    qtbot: QtBot, clock: Clock
) -> None:
    window = shown(qtbot)
    clock.a_look = 5.0
    turns = window.turns_of(qtbot, lambda: stale(window))
    assert len(set(turns)) == 4, turns


def test_what_waits_for_its_turn_keeps_its_pixels(qtbot: QtBot, clock: Clock) -> None:
    window = shown(qtbot, 2)
    last = window.plots[1]
    item = charts.pg.PlotCurveItem(x=np.arange(2.0), y=np.array([0.5, 0.5]), pen="r")
    last.box.addItem(item)
    qtbot.wait(20)
    before = on_screen(window)
    item.setData(np.arange(2.0), np.array([0.9, 0.9]))
    clock.a_look = 5.0
    seen: list[QImage] = []
    ask = Window.turn._on_end
    Window.turn._end.timeout.disconnect()
    Window.turn._end.timeout.connect(lambda: (seen.append(on_screen(window)), ask()))
    stale(window)
    qtbot.waitUntil(lambda: bool(seen))
    assert seen[0] == before
    qtbot.waitUntil(lambda: on_screen(window) != before)


def test_a_picture_of_the_window_has_all_of_it_whatever_it_takes(qtbot: QtBot, clock: Clock) -> None:
    window = shown(qtbot)
    for plot in window.plots:
        plot.box.addItem(charts.pg.PlotCurveItem(x=np.arange(2.0), y=np.array([0.5, 0.5]), pen="r"))
    clock.a_look = 5.0
    image = window.grab().toImage()
    wide = window.width() // 4
    for i in range(4):
        part = image.copy(i * wide, 0, wide, window.height())
        reds = [
            part.pixelColor(x, y).red() - part.pixelColor(x, y).blue()
            for x in range(0, wide, 3) for y in range(part.height())
        ]  # fmt: skip
        assert max(reds) > 100, f"plot {i} has no line in the picture"


def test_what_was_put_off_is_painted_whatever_else_a_turn_has_taken(qtbot: QtBot) -> None:
    clock = Clock()
    turn = PaintTurn(budget_s=1.0, clock=clock)
    first, second = QWidget(), QWidget()
    part = QRegion(0, 0, 1, 1)
    for widget in (first, second):
        qtbot.addWidget(widget)
    clock.a_look = 9.0
    with turn:
        assert not turn.takes(first, part)
        assert not turn.takes(second, part)
    with turn:
        assert not turn.takes(first, part), "the same turn: a scene had the window painted once more"
    assert turn.takes(first, part), "outside of painting nothing is put off"
    qtbot.wait(5)
    with turn:
        assert turn.takes(second, part)
        assert not turn.takes(first, part)
    qtbot.wait(5)
    with turn:
        assert turn.takes(first, part)


def test_what_a_view_took_before_the_painting_counts(qtbot: QtBot) -> None:
    clock = Clock()
    turn = PaintTurn(budget_s=1.0, clock=clock)
    widget = QWidget()
    qtbot.addWidget(widget)
    turn.begin()
    clock.now = 2.0
    with turn:
        assert not turn.takes(widget, QRegion(0, 0, 1, 1))
    qtbot.wait(5)
    with turn:
        assert turn.takes(widget, QRegion(0, 0, 1, 1))


def on_screen(window: Window) -> QImage:
    """The pixels that the window has shown."""
    return window.screen().grabWindow(window.winId()).toImage()
