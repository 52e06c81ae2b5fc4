"""Where the elements of each lane are kept: GPU buffers, float32 or coded, and the bytes of an element in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from inspector.codecs import BLOCK
from inspector.layout import F32_BYTES, Layout, Page

Lane = Literal["w", "g", "m", "v"]
LANES: tuple[Lane, ...] = ("w", "g", "m", "v")
MOMENTS: tuple[Literal["m", "v"], ...] = ("m", "v")
GIVEN: tuple[Literal["w", "g"], ...] = ("w", "g")
"""The lanes that are float32 whatever the state."""


@dataclass(frozen=True, slots=True)
class Store:
    """Elements [start, stop) of a lane, in `buffer`, whose first element is `origin` of the mega-buffer.

    In float32; or, where `scales` names a second buffer, a byte of code an element in `buffer` and a float32 scale for
    each block of 256 in `scales`.
    """

    lane: Lane
    start: int
    stop: int
    origin: int
    buffer: str
    scales: str | None = None

    @property
    def coded(self) -> bool:
        """True where the elements are 8-bit codes."""
        return self.scales is not None

    @property
    def nbytes(self) -> int:
        """Bytes of `buffer`."""
        return self.offset(self.stop)

    @property
    def scale_bytes(self) -> int:
        """Bytes of `scales`; 0 where there are none."""
        return self.scale_offset(self.stop + BLOCK - 1) if self.coded else 0

    def offset(self, element: int) -> int:
        """The byte in `buffer` where an element begins."""
        return (element - self.origin) * (1 if self.coded else F32_BYTES)

    def scale_offset(self, element: int) -> int:
        """The byte in `scales` where the scale of an element's block begins."""
        return (element - self.origin) // BLOCK * F32_BYTES

    def elements(self, offset: int, size: int) -> tuple[int, int]:
        """The elements [first, stop) of this store that `size` bytes of `buffer` from byte `offset` hold."""
        each = 1 if self.coded else F32_BYTES
        first = self.origin + offset // each
        return max(first, self.start), min(first + size // each, self.stop)


def stores(layout: Layout, lane: Lane) -> tuple[Store, ...]:
    """The stores of a lane, in the order of their elements.

    w and g are float32 throughout. Of m and v each page has up to three: codes, float32, codes.
    """
    known = layout.derived.get(lane)
    if known is None:
        known = layout.derived[lane] = tuple(_stores(layout, lane))
    found: tuple[Store, ...] = known
    return found


def _stores(layout: Layout, lane: Lane) -> Iterator[Store]:
    for page in layout.pages:
        buffer = page_buffer(lane, layout, page.index)
        if lane in MOMENTS and _is_coded(layout):
            yield from _moments(layout, lane, page)
        else:
            yield Store(lane, page.start, page.stop, page.start, buffer)


def store_at(layout: Layout, lane: Lane, element: int) -> Store:
    """The store that holds an element of a lane; IndexError where none does."""
    for store in stores(layout, lane):
        if store.start <= element < store.stop:
            return store
    raise IndexError(f"element {element} of {lane} is kept nowhere")


def pieces(
    layout: Layout, lane: Lane, start: int, stop: int, max_elements: int | None = None
) -> Iterator[tuple[Store, int, int]]:
    """Elements [start, stop) of a lane cut where another store begins and into runs of at most `max_elements`."""
    for store in stores(layout, lane):
        at, end = max(store.start, start), min(store.stop, stop)
        while at < end:
            high = end if max_elements is None else min(end, at + max_elements)
            yield store, at, high
            at = high


def page_buffer(kind: str, layout: Layout, page: int) -> str:
    """The name of the GPU buffer that holds page `page` of mega-buffer `kind`: "w", or "w[1]" of several."""
    return kind if len(layout.pages) <= 1 else f"{kind}[{page}]"


def _is_coded(layout: Layout) -> bool:
    return any(run.state == "8bit" for run in layout.runs)


def _moments(layout: Layout, lane: Lane, page: Page) -> Iterator[Store]:
    plain = [run for run in layout.runs if run.state == "f32" and run.stop > run.start]
    low = plain[0].start if plain else layout.padded_elements
    # The gap behind a run goes with it, up to the next segment.
    coded_after = [run.start for run in layout.runs if run.state == "8bit" and run.start >= low]
    high = min(coded_after, default=layout.padded_elements)
    codes, scales, buffer = (
        page_buffer(name, layout, page.index) for name in (f"{lane}_packed", f"{lane}_scale", lane)
    )
    for start, stop, coded in ((0, low, True), (low, high, False), (high, layout.padded_elements, True)):
        first, last = max(start, page.start), min(stop, page.stop)
        if first < last:
            yield (
                Store(lane, first, last, page.start, codes, scales)
                if coded
                else Store(lane, first, last, first, buffer)
            )
