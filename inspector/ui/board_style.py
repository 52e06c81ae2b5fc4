"""How the lines of one plot are told apart: the colour of their lane, else one of a row; then by dash."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from PySide6.QtGui import QColor

from inspector.runtime.plotted import Line
from inspector.stores import LANES, Lane
from inspector.ui import theme
from inspector.ui.chart import Dash

DASHES: tuple[Dash, ...] = ((), (7, 3), (2, 2), (9, 3, 2, 3), (14, 4), (1, 3))
ROW = ("#4477AA", "#AA3377", "#228833", "#997700", "#33BBEE", "#AAAAAA")
"""Told apart with any colour blindness (Paul Tol, Colour schemes, 2021: "bright", its yellow and red left out)."""


def lane_of(line: Line) -> Lane | None:
    """Whose numbers a metric is of, None for several or none."""
    if line.metric.startswith("grad_"):
        return "g"
    head = line.metric.partition("_")[0]
    return next((lane for lane in LANES if lane == head), None)


def styles(lines: Sequence[Line]) -> list[tuple[QColor, Dash]]:
    """A colour and a dash for each line of a plot, readable on the background of plots."""
    return _styles(tuple(lines), theme.colours().scheme)


@lru_cache(1024)
def _styles(lines: tuple[Line, ...], scheme: str) -> list[tuple[QColor, Dash]]:
    """`scheme` is that of the theme, on which the colours hang."""
    base = theme.colours().base
    lanes = [lane_of(line) for line in lines]
    if len(lines) == 1 and lanes[0] is None:
        return [(theme.colours().text, ())]
    params = {line.param for line in lines}
    if all(lanes) and len(params) == 1:
        return [
            (theme.ink(theme.LANE_COLOURS[lane], base), DASHES[lanes[:i].count(lane) % len(DASHES)])
            for i, lane in enumerate(lanes)
            if lane is not None
        ]
    row = [theme.ink(QColor(colour), base) for colour in ROW]
    return [(row[i % len(row)], DASHES[i // len(row) % len(DASHES)]) for i in range(len(lines))]
