"""Where things lie on the map: pixels and elements, zoom and pan, ruler ticks, visible params. No Qt."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from inspector.byte_sizes import BINARY_UNITS
from inspector.layout import F32_BYTES, Layout, Segment
from inspector.mapping import MapRequest, Quantity
from inspector.plan import Binding, Plan
from inspector.stores import LANES, Lane, stores

MAX_PIXELS_PER_ELEMENT = 64.0
CELL_BORDERS_FROM = 6.0
"""Pixels an element is wide before its borders are drawn."""


@dataclass(frozen=True, slots=True)
class Viewport:
    """The part of the mega-buffers on screen: pixel x shows elements from start + x · per_pixel."""

    start: float
    per_pixel: float
    width: int
    total: int
    """Elements of a mega-buffer."""

    @property
    def stop(self) -> float:
        """The element at the right edge."""
        return self.start + self.width * self.per_pixel

    @property
    def shows_all(self) -> bool:
        """True where nothing lies outside."""
        return self.per_pixel >= self._widest

    @property
    def _widest(self) -> float:
        # A buffer smaller than the screen still does not make cells wider than the closest zoom.
        return max(self.total / max(self.width, 1), 1 / MAX_PIXELS_PER_ELEMENT)

    def x_of(self, element: float) -> float:
        """The pixel at which an element starts."""
        return (element - self.start) / self.per_pixel

    def element_at(self, x: float, part: float = 0.0) -> int | None:
        """The element at pixel x, `part` (0 to 1) of the lane down; None outside the buffer."""
        # The worker cuts the run under a column from top to bottom; finer than a pixel nothing is cut.
        at = self.start + (x if self.per_pixel <= 1 else math.floor(x)) * self.per_pixel
        if self.per_pixel > 1:
            at += min(max(part, 0.0), 1.0) * self.per_pixel
        element = math.floor(at)
        return element if 0 <= element < self.total else None

    def clamped(self) -> Viewport:
        """The nearest viewport within the buffer and the zoom limits."""
        per_pixel = min(max(self.per_pixel, 1 / MAX_PIXELS_PER_ELEMENT), self._widest)
        start = min(max(self.start, 0.0), max(self.total - self.width * per_pixel, 0.0))
        return replace(self, start=start, per_pixel=per_pixel)

    def zoomed(self, factor: float, x: float) -> Viewport:
        """Closer by `factor`, with what is at pixel x staying there as far as the edges allow."""
        held = self.start + x * self.per_pixel
        near = replace(self, per_pixel=self.per_pixel / factor).clamped()
        return replace(near, start=held - x * near.per_pixel).clamped()

    def panned(self, pixels: float) -> Viewport:
        """Moved so that what is on screen goes `pixels` to the left."""
        return replace(self, start=self.start + pixels * self.per_pixel).clamped()

    def resized(self, width: int) -> Viewport:
        """For another width; what showed everything still does."""
        if self.shows_all:
            return whole(self.total, width)
        return replace(self, width=width).clamped()

    def around(self, start: int, stop: int, margin: float = 0.05) -> Viewport:
        """Showing elements [start, stop) and a little on either side."""
        length = max(stop - start, 1)
        per_pixel = length * (1 + 2 * margin) / max(self.width, 1)
        near = replace(self, per_pixel=per_pixel).clamped()
        middle = start + length / 2
        return replace(near, start=middle - self.width * near.per_pixel / 2).clamped()

    def request(self, height: int, quantity: Quantity, ratio: float) -> MapRequest:
        """The pixels to ask for, `height` high on screen, at `ratio` device pixels a pixel."""
        return MapRequest(
            start=self.start,
            elements_per_pixel=self.per_pixel / ratio,
            width=max(round(self.width * ratio), 1),
            height=max(round(height * ratio), 1),
            quantity=quantity,
        )

    def place(self, request: MapRequest) -> tuple[float, float]:
        """Where the pixels of a request lie now: left edge and width."""
        width = request.width * request.elements_per_pixel / self.per_pixel
        return self.x_of(request.start), width


def whole(total: int, width: int) -> Viewport:
    """The viewport that shows a whole mega-buffer of `total` elements."""
    return Viewport(0.0, max(total, 1) / max(width, 1), max(width, 1), max(total, 1)).clamped()


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on a ruler, at an element, and its text."""

    element: float
    text: str


def ticks(view: Viewport, unit: str, spacing: int = 96) -> Iterator[Tick]:
    """Ticks about `spacing` pixels apart: "elements" at 1, 2, 5 · 10ⁿ, "bytes" at powers of two."""
    least = max(view.per_pixel * spacing, 1.0)
    if unit == "bytes":
        step = float(2 ** math.ceil(math.log2(least)))
    else:
        decade = 10 ** math.floor(math.log10(least))
        step = next(decade * m for m in (1, 2, 5, 10) if decade * m >= least * 0.999)
    first = math.ceil(view.start / step)
    last = math.floor(min(view.stop, view.total) / step)
    units, size = (BYTE_UNITS, F32_BYTES) if unit == "bytes" else (COUNT_UNITS, 1)
    for i in range(first, last + 1):
        yield Tick(i * step, _tick_text(int(i * step) * size, int(step) * size, units))


BYTE_UNITS = (*((size, f" {name}") for size, name in BINARY_UNITS), (1, " B"))
COUNT_UNITS = ((1_000_000_000, " G"), (1_000_000, " M"), (1_000, " k"), (1, ""))


def _tick_text(value: int, step: int, units: tuple[tuple[int, str], ...]) -> str:
    """A multiple of `step`, whole in the largest unit that the step fills."""
    size, name = next(u for u in units if step >= u[0] and step % u[0] == 0)
    return f"{value // size:,}{name}" if value or size == 1 else f"0{units[-1][1]}"


@dataclass(frozen=True, slots=True)
class Strip:
    """A run of pixels [x, x + width)."""

    x: float
    width: float


class SegmentIndex:
    """The places of a layout's params as arrays, so that 20,000 are drawn as quickly as ten."""

    def __init__(self, layout: Layout) -> None:
        filled = [s for s in layout.segments if s.numel]
        self.layout = layout
        self._segments = filled
        self._starts = np.array([s.offset for s in filled], np.int64)
        self._stops = np.array([s.stop for s in filled], np.int64)

    def wide(self, view: Viewport, least: float) -> list[Segment]:
        """The visible params that are at least `least` pixels wide, in order."""
        window = self._window(view)
        widths = (self._stops[window] - self._starts[window]) / view.per_pixel
        found = np.flatnonzero(widths >= least) + window.start
        return [self._segments[i] for i in found]

    def edges(self, view: Viewport, least: float = 3.0) -> npt.NDArray[np.int64]:
        """Pixels at which a param of at least `least` pixels starts or ends, each once, in order."""
        window = self._window(view)
        starts, stops = self._starts[window], self._stops[window]
        drawn = (stops - starts) / view.per_pixel >= least
        both = np.concatenate((starts[drawn], stops[drawn]))
        pixels = np.floor((both - view.start) / view.per_pixel + 0.5).astype(np.int64)
        return np.unique(pixels[(pixels >= 0) & (pixels <= view.width)])

    def gaps(self, view: Viewport, least: float = 1.0) -> list[Strip]:
        """The visible gaps between params, and after the last, that are at least `least` pixels wide."""
        if not len(self._starts):
            return []
        window = self._window(view)
        low, high = max(window.start - 1, 0), min(window.stop + 1, len(self._starts))
        stops = self._stops[low:high]
        following = np.append(self._starts[low + 1 : high], 0)
        following[-1] = self._starts[high] if high < len(self._starts) else view.total
        lengths = (following - stops) / view.per_pixel
        left = (stops - view.start) / view.per_pixel
        keep = (lengths >= least) & (left < view.width) & (left + lengths > 0)
        return [Strip(float(x), float(w)) for x, w in zip(left[keep], lengths[keep], strict=True)]

    def neighbour(self, name: str, by: int) -> Segment | None:
        """The param `by` places after `name`; the first where none is selected."""
        if not self._segments:
            return None
        if name not in self.layout:
            return self._segments[0 if by > 0 else -1]
        at = int(np.searchsorted(self._starts, self.layout[name].offset)) + by
        return self._segments[min(max(at, 0), len(self._segments) - 1)]

    def _window(self, view: Viewport) -> slice:
        first = int(np.searchsorted(self._stops, view.start, side="right"))
        last = int(np.searchsorted(self._starts, view.stop, side="left"))
        return slice(first, max(first, last))


@dataclass(frozen=True, slots=True)
class Bracket:
    """A binding on the lane it binds, elements [start, stop)."""

    lane: Lane
    slot: int
    name: str
    access: str
    start: int
    stop: int


def brackets(plan: Plan, dispatch: int) -> tuple[Bracket, ...]:
    """The bindings of a dispatch that lie on a lane; those of other buffers have no place on the map."""
    if not 0 <= dispatch < len(plan.dispatches):
        return ()
    found = (_bracket(plan.layout, binding) for binding in plan.dispatches[dispatch].bindings)
    return tuple(b for b in found if b is not None)


def _bracket(layout: Layout, binding: Binding) -> Bracket | None:
    for lane in LANES:
        for store in stores(layout, lane):
            if binding.buffer == store.buffer:
                start, stop = store.elements(binding.offset, binding.size)
                if start < stop:
                    return Bracket(lane, binding.slot, binding.name, binding.access, start, stop)
    return None
