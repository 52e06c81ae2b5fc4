"""How the map is painted. Cost grows with the pixels on screen, never with elements or params."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from PySide6.QtCore import QLineF, QRectF, QSize, Qt
from PySide6.QtGui import QBrush, QColor, QFontMetricsF, QImage, QPainter, QPen

from inspector.colormap import LOGARITHMIC
from inspector.runtime.map_picture import MapImage
from inspector.stores import LANES, Lane
from inspector.ui import theme
from inspector.ui.format import number
from inspector.ui.map_geometry import CELL_BORDERS_FROM, Bracket, SegmentIndex, Viewport, ticks
from inspector.ui.map_labels import paint_blocks, paint_gaps
from inspector.ui.map_legend import ALL_NONFINITE, gradient, lane_reason, nonfinite_text, scale_text
from inspector.ui.map_marks import draw_edges, draw_flags, flagged
from inspector.ui.map_overview import Overview
from inspector.ui.map_rows import (
    CELL_TEXT_FROM,
    bracket_height,
    fits,
    lane_rects,
    overview_height,
    shortened,
    sizes,
    span,
    text_width,
    visible,
)

_Centre = Qt.AlignmentFlag.AlignCenter
_LeftMiddle = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter


class MapPainter:
    """Draws one moment of the map; holds the pixels between paints."""

    def __init__(self) -> None:
        self._source: MapImage | None = None
        self._images: dict[Lane, QImage] = {}
        # A QImage made of an array does not keep it alive.
        self._pixels: list[npt.NDArray[np.uint8]] = []
        self._overview = Overview()
        self._scales: dict[Lane, tuple[str, str]] = {}

    def set_image(self, image: MapImage | None) -> None:
        """Take the worker's pixels over, without copying."""
        self._source = image
        self._images, self._scales, self._pixels = {}, {}, []
        self._overview.set_image(image.overview if image is not None else None)
        for lane in image.rgba if image is not None else ():
            assert image is not None
            rgba = np.ascontiguousarray(image.rgba[lane])
            height, width = rgba.shape[:2]
            picture = QImage(rgba.data, width, height, 4 * width, QImage.Format.Format_RGBA8888)
            self._images[lane] = picture
            self._pixels.append(rgba)
            self._scales[lane] = (scale_text(image, lane), nonfinite_text(image, lane))

    def reason(self, lane: Lane) -> str:
        """Why a lane has no pixels; "" where it has, or where none have come."""
        return "" if self._source is None else lane_reason(self._source, lane)

    def paint(
        self,
        painter: QPainter,
        size: QSize,
        view: Viewport,
        index: SegmentIndex,
        brackets: Iterable[Bracket],
        selected: str,
        spot: int | None = None,
    ) -> None:
        """Everything, from back to front."""
        c = theme.colours()
        painter.fillRect(QRectF(0, 0, size.width(), size.height()), c.base)
        rects = lane_rects(size)
        bottom = rects[LANES[-1]].bottom()
        painter.setFont(theme.ui_font(-1))
        painter.setClipRect(QRectF(sizes().left, 0, view.width + 1, size.height()))
        self._rulers(painter, view, bottom)
        self._blocks(painter, view, index)
        edges = index.edges(view)
        gaps = index.gaps(view)
        for lane, rect in rects.items():
            if reason := self.reason(lane):
                painter.fillRect(rect, c.window)
                painter.setPen(c.muted)
                painter.drawText(rect.translated(8, 0), int(_LeftMiddle | Qt.TextFlag.TextDontClip), reason)
                continue
            self._lane(painter, view, index, lane, rect)
            for gap in gaps:
                area = QRectF(sizes().left + gap.x, rect.top(), gap.width, rect.height()).intersected(rect)
                painter.fillRect(area, c.gap)
                painter.fillRect(area, QBrush(c.muted, Qt.BrushStyle.Dense7Pattern))
            draw_edges(painter, edges, view.width, rect, self._over_data(0.5))
            self._flagged(painter, view, lane, rect)
        self._names(painter, view, index, edges)
        paint_gaps(painter, view, gaps)
        self._pages(painter, view, index, bottom)
        for bracket in brackets:
            self._bracket(painter, view, bracket, rects[bracket.lane], bracket_height(size))
        self._selection(painter, view, index, selected, bottom)
        if spot is not None:
            self._spot(painter, view, spot, rects)
        painter.setClipping(False)
        self._overview.paint(painter, size, view)
        self._gutters(painter, size, rects)

    def paint_empty(self, painter: QPainter, size: QSize, text: str) -> None:
        """Say what would be here."""
        c = theme.colours()
        area = QRectF(0, 0, size.width(), size.height())
        painter.fillRect(area, c.base)
        painter.setPen(c.muted)
        inner = area.adjusted(24, 8, -24, -8)
        painter.drawText(inner, int(_Centre | Qt.TextFlag.TextWordWrap), text)

    def paint_focus(self, painter: QPainter, size: QSize) -> None:
        """Show that keys go to the map."""
        painter.setPen(QPen(theme.colours().accent, 1))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRect(QRectF(0.5, 0.5, size.width() - 1, size.height() - 1))

    def _rulers(self, painter: QPainter, view: Viewport, bottom: float) -> None:
        c = theme.colours()
        for unit, y, up in (("bytes", 0.0, 1), ("elements", bottom, -1)):
            for tick in ticks(view, unit):
                x = sizes().left + view.x_of(tick.element)
                edge = y + (sizes().ruler if up > 0 else 0)
                painter.setPen(c.line)
                painter.drawLine(QLineF(x + 0.5, edge, x + 0.5, edge - up * 5))
                width = text_width(painter, tick.text)
                if x + 4 + width <= sizes().left + view.width:
                    painter.setPen(c.muted)
                    painter.drawText(QRectF(x + 4, y, width + 2, sizes().ruler), int(_LeftMiddle), tick.text)

    def _blocks(self, painter: QPainter, view: Viewport, index: SegmentIndex) -> None:
        c = theme.colours()
        for block in index.layout.blocks:
            area = span(view, block.start, block.stop, sizes().ruler, sizes().blocks + sizes().names, least=2)
            painter.fillRect(area, c.raised)
            if not block.decays:
                painter.fillRect(area, QBrush(c.muted, Qt.BrushStyle.BDiagPattern))
            text = "wd: weight decay" if block.decays else "no-wd: no weight decay"
            seen = visible(area, view)
            words = next((t for t in (text, text.split(":")[0]) if fits(painter, t, seen.width() - 8)), "")
            if words:
                box = QRectF(
                    seen.left() + 2, sizes().ruler + 1, text_width(painter, words) + 4, sizes().blocks - 2
                )
            elif not block.decays and 0 < seen.width() < view.width / 2:
                # A few norm gains beside millions of weights: name them next to their sliver.
                words = "no-wd"
                width = text_width(painter, words) + 4
                box = QRectF(seen.left() - width - 1, sizes().ruler + 1, width, sizes().blocks - 2)
            else:
                continue
            painter.fillRect(box, c.raised)
            painter.setPen(c.text)
            painter.drawText(box, int(_Centre), words)

    def _lane(self, painter: QPainter, view: Viewport, index: SegmentIndex, lane: Lane, rect: QRectF) -> None:
        c = theme.colours()
        painter.fillRect(rect, c.window)
        picture, source = self._images.get(lane), self._source
        if picture is not None and source is not None:
            left, width = view.place(source.request)
            # Only the part on screen: after a deep zoom the old pixels may be millions wide.
            first, last = max(left, 0.0), min(left + width, float(view.width))
            if last > first:
                ratio = source.request.width / width
                part = QRectF((first - left) * ratio, 0, (last - first) * ratio, picture.height())
                target = QRectF(sizes().left + first, rect.top(), last - first, rect.height())
                painter.drawImage(target, picture, part)
        no_wd = index.layout.block("no_wd")
        if no_wd is not None:
            area = span(view, no_wd.start, no_wd.stop, rect.top(), rect.height(), least=2)
            painter.fillRect(area, QBrush(self._over_data(0.35), Qt.BrushStyle.BDiagPattern))
        if 1 / view.per_pixel >= CELL_BORDERS_FROM:
            self._cells(painter, view, lane, rect)
        paint_blocks(painter, index.layout, lane, view, rect, self._over_data(0.7))

    def _cells(self, painter: QPainter, view: Viewport, lane: Lane, rect: QRectF) -> None:
        first, last = int(view.start), int(min(view.stop, view.total)) + 1
        painter.setPen(QPen(self._over_data(0.3), 1))
        lines = [sizes().left + view.x_of(e) for e in range(first, last + 1)]
        painter.drawLines([QLineF(x, rect.top(), x, rect.bottom()) for x in lines])
        source = self._source
        if source is None or 1 / view.per_pixel < CELL_TEXT_FROM * theme.font_scale() or rect.height() < 12:
            return
        for element in range(first, last):
            column = int((element + 0.5 - source.request.start) / source.request.elements_per_pixel)
            if not 0 <= column < source.request.width:
                continue
            value = float(source.values[lane][0, column])
            pixel = source.rgba[lane][0, column]
            if pixel[3]:
                painter.setPen(theme.text_on(QColor(*(int(p) for p in pixel[:3]))))
                cell = QRectF(
                    sizes().left + view.x_of(element), rect.top(), 1 / view.per_pixel, rect.height()
                )
                painter.drawText(cell, int(_Centre), number(value, 3))

    def _over_data(self, alpha: float) -> QColor:
        """What can be seen on the data: their colours are the same in the light and the dark scheme."""
        quantity = self._source.request.quantity if self._source is not None else "nonfinite"
        if quantity == "nonfinite":
            return theme.faded(theme.colours().text, alpha)
        return theme.faded(QColor("white" if quantity in (*LOGARITHMIC, "age") else "black"), alpha)

    def _flagged(self, painter: QPainter, view: Viewport, lane: Lane, rect: QRectF) -> None:
        """Marks of the columns where elements are not finite, seen beside data of any colour."""
        if self._source is None or lane not in self._source.summaries:
            return
        left, width = view.place(self._source.request)
        column = width / self._source.request.width
        mask = flagged(self._source.summaries[lane].columns, left, column, view.width)
        draw_flags(painter, mask, rect)

    def _names(
        self, painter: QPainter, view: Viewport, index: SegmentIndex, edges: npt.NDArray[np.int64]
    ) -> None:
        c = theme.colours()
        top = sizes().ruler + sizes().blocks
        row = QRectF(sizes().left, top, view.width, sizes().names)
        draw_edges(painter, edges, view.width, row, c.line)
        metrics = QFontMetricsF(painter.font(), painter.device())
        for segment in index.wide(view, 26):
            seen = visible(span(view, segment.offset, segment.stop, top + 1, sizes().names - 2), view)
            text = shortened(segment.name, metrics, seen.width() - 6)
            if not text:
                continue
            if segment.block == "no_wd":
                wide = min(metrics.horizontalAdvance(text) + 4, seen.width() - 2)
                painter.fillRect(QRectF(seen.left() + 1, seen.top(), wide, seen.height()), c.raised)
            painter.setPen(c.text)
            painter.drawText(seen.adjusted(3, 0, -2, 0), int(_LeftMiddle), text)

    def _pages(self, painter: QPainter, view: Viewport, index: SegmentIndex, bottom: float) -> None:
        c = theme.colours()
        for page in index.layout.pages[1:]:
            x = sizes().left + view.x_of(page.start)
            if sizes().left <= x <= sizes().left + view.width:
                painter.setPen(QPen(c.text, 2, Qt.PenStyle.DashLine))
                painter.drawLine(QLineF(x, sizes().ruler, x, bottom))
                painter.setPen(c.text)
                text = f"buffer [{page.index}]"
                box = QRectF(x + 3, sizes().ruler + 1, text_width(painter, text) + 4, sizes().blocks - 2)
                painter.fillRect(box, c.raised)
                painter.drawText(box, int(_Centre), text)

    def _bracket(
        self, painter: QPainter, view: Viewport, bracket: Bracket, rect: QRectF, height: int
    ) -> None:
        c = theme.colours()
        area = span(view, bracket.start, bracket.stop, rect.top() - height, height, least=3)
        seen = visible(area, view)
        if seen.width() <= 0:
            return
        access = "read, written" if bracket.access == "read_write" else "read"
        text = f"slot {bracket.slot}  {bracket.name}  {access}"
        painter.setPen(QPen(c.accent, 2))
        y = seen.bottom() - 2
        painter.drawLine(QLineF(seen.left() + 1, y, seen.right() - 1, y))
        for x, inside in ((area.left() + 1, area.left() >= sizes().left), (area.right() - 1, True)):
            if inside and x <= sizes().left + view.width:
                painter.drawLine(QLineF(x, y, x, seen.top() + min(3, height // 4)))
        if height < sizes().bracket - 2:
            return
        width = text_width(painter, text) + 6
        # Beside a bracket that is too narrow, on the side where there is room.
        left = seen.left() + 5 if width < seen.width() else seen.left() - width - 2
        if left < sizes().left:
            left = seen.right() + 2
        painter.setPen(c.accent)
        painter.drawText(QRectF(left, seen.top(), width, height - 3), int(_LeftMiddle), text)

    def _spot(self, painter: QPainter, view: Viewport, element: int, rects: dict[Lane, QRectF]) -> None:
        """A frame around one element in every lane, however narrow it is."""
        wide, c = max(1 / view.per_pixel, 3.0), theme.colours()
        painter.setBrush(Qt.BrushStyle.NoBrush)
        for rect in rects.values():
            frame = QRectF(sizes().left + view.x_of(element), rect.top() + 1, wide, rect.height() - 2)
            # Seen on dark data and on light.
            for colour, width in ((c.base, 5), (c.accent, 2)):
                painter.setPen(QPen(colour, width))
                painter.drawRect(frame)

    def _selection(
        self, painter: QPainter, view: Viewport, index: SegmentIndex, name: str, bottom: float
    ) -> None:
        if name not in index.layout:
            return
        c = theme.colours()
        segment = index.layout[name]
        top = sizes().ruler + sizes().blocks
        area = span(view, segment.offset, segment.stop, top, bottom - top, least=3)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        for colour, width in ((c.base, 4), (c.accent, 2)):
            painter.setPen(QPen(colour, width))
            painter.drawRect(area.adjusted(0, 1, 0, -1))

    def _gutters(self, painter: QPainter, size: QSize, rects: dict[Lane, QRectF]) -> None:
        c = theme.colours()
        bottom = rects[LANES[-1]].bottom()
        painter.setPen(c.muted)
        for text, y, height in (
            ("bytes", 0.0, sizes().ruler),
            ("block", sizes().ruler, sizes().blocks),
            ("param", sizes().ruler + sizes().blocks, sizes().names),
            ("elements", bottom, sizes().ruler),
            ("whole", bottom + sizes().ruler, overview_height(size)),
        ):
            if not height:
                continue
            painter.drawText(QRectF(4, y, sizes().left - 8, height), int(_LeftMiddle), text)
        for lane, rect in rects.items():
            painter.fillRect(QRectF(sizes().left - 10, rect.top(), 6, rect.height()), theme.lane_mark(lane))
            font = theme.ui_font(1)
            font.setBold(True)
            painter.setFont(font)
            painter.setPen(c.text)
            name = int(_LeftMiddle | Qt.TextFlag.TextDontClip)
            painter.drawText(QRectF(4, rect.top(), sizes().left - 20, rect.height()), name, lane)
            painter.setFont(theme.ui_font(-1))
            area = QRectF(
                rect.right() + 8, rect.top(), sizes().right - 12, rect.height() + bracket_height(size)
            )
            self._legend(painter, lane, area)

    def _legend(self, painter: QPainter, lane: Lane, area: QRectF) -> None:
        if lane not in self._scales or self._source is None:
            return
        c = theme.colours()
        scale, bad = self._scales[lane]
        if not fits(painter, scale, area.width()):
            scale = scale_text(self._source, lane, 1)
        bar = QRectF(area.left(), area.top(), area.width(), 6)
        quantity = "nonfinite" if bad == ALL_NONFINITE else self._source.request.quantity
        painter.fillRect(bar, QBrush(gradient(quantity, bar)))
        line = painter.fontMetrics().height()
        if bad and 6 + 2 * line > area.height():
            scale = ""  # room for one line: what is wrong matters more
        y = area.top() + 6
        for text, colour in ((scale, c.muted), (bad, theme.ink(theme.NONFINITE, c.base))):
            if text:
                painter.setPen(colour)
                flags = Qt.AlignmentFlag.AlignTop | Qt.TextFlag.TextDontClip
                painter.drawText(QRectF(area.left(), y, area.width(), line), int(flags), text)
                y += line
