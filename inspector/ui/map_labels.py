"""What is written on the map where there is room: gaps between params, and blocks of 8-bit state."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from PySide6.QtCore import QLineF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPen

from inspector.codecs import BLOCK
from inspector.layout import F32_BYTES, Layout
from inspector.stores import MOMENTS, Lane, stores
from inspector.ui import format as fmt
from inspector.ui import theme
from inspector.ui.map_geometry import Strip, Viewport
from inspector.ui.map_rows import fits, sizes, text_width

BLOCK_BORDERS_FROM = 8.0
"""Pixels a block is wide before its borders are drawn."""
ROOMY = 3
"""Lines of text that a lane is high before it has room for long ones."""
MARGIN = 4


@dataclass(frozen=True, slots=True)
class CodedBlock:
    """A block of 256 codes of a lane: elements [start, stop), and its number among the scales of its buffer."""

    start: int
    stop: int
    number: int


def coded_blocks(layout: Layout, lane: Lane, view: Viewport) -> Iterator[CodedBlock]:
    """The blocks in sight of a lane with 8-bit state, where they are wide enough to be told apart."""
    if lane not in MOMENTS or BLOCK / view.per_pixel < BLOCK_BORDERS_FROM:
        return
    for store in stores(layout, lane):
        low, high = max(store.start, math.floor(view.start)), min(store.stop, math.ceil(view.stop))
        if not store.coded or low >= high:
            continue
        for number in range((low - store.origin) // BLOCK, -(-(high - store.origin) // BLOCK)):
            start = store.origin + number * BLOCK
            held = layout.between(start, start + BLOCK)
            if held:
                # The last block of a param may end in the gap behind it.
                yield CodedBlock(start, min(start + BLOCK, held[-1].stop), number)


def paint_blocks(
    painter: QPainter, layout: Layout, lane: Lane, view: Viewport, rect: QRectF, ink: QColor
) -> None:
    """Where each block of codes begins, and its number where there is room for it."""
    line = painter.fontMetrics().height()
    for block in coded_blocks(layout, lane, view):
        left = sizes().left + view.x_of(block.start)
        painter.setPen(QPen(ink, 1, Qt.PenStyle.DotLine))
        painter.drawLine(QLineF(left + 0.5, rect.top(), left + 0.5, rect.bottom()))
        seen = max(left, sizes().left), min(sizes().left + view.x_of(block.stop), sizes().left + view.width)
        texts = [f"8-bit block {block.number:,}", f"{block.number:,}"]
        if rect.height() >= ROOMY * line:
            texts.insert(0, f"8-bit block {block.number:,}, scale at byte {block.number * F32_BYTES:,}")
        text = next((t for t in texts if fits(painter, t, seen[1] - seen[0] - 2 * MARGIN)), "")
        if text and rect.height() >= line:
            box = QRectF(seen[0] + 2, rect.bottom() - line, text_width(painter, text) + MARGIN, line)
            painter.fillRect(box, theme.faded(theme.colours().raised, 0.85))
            painter.setPen(theme.colours().text)
            painter.drawText(box, int(Qt.AlignmentFlag.AlignCenter), text)


def paint_gaps(painter: QPainter, view: Viewport, gaps: list[Strip]) -> None:
    """How long the gaps between params are, in the row of their names."""
    painter.setPen(theme.colours().muted)
    least = text_width(painter, "gap") + 2 * MARGIN
    for gap in gaps:
        if gap.width < least:
            continue
        first, last = sizes().left, sizes().left + view.width
        left, right = max(first + gap.x, first), min(first + gap.x + gap.width, last)
        elements = round(gap.width * view.per_pixel)
        long = f"gap: {fmt.count(elements)} elements, {fmt.count(elements * F32_BYTES)} B"
        texts = (long, f"gap {elements:,}", "gap")
        text = next((t for t in texts if fits(painter, t, right - left - 2 * MARGIN)), "")
        if text:
            area = QRectF(left, sizes().ruler + sizes().blocks + 1, right - left, sizes().names - 2)
            painter.drawText(area, int(Qt.AlignmentFlag.AlignCenter), text)
