"""Where every param lies in the mega-buffers: segments, the wd and no-wd blocks, gaps and pages."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from inspector.errors import UsageError

BlockName = Literal["wd", "no_wd"]

F32_BYTES = 4
DEFAULT_ALIGN_BYTES = 256
MAX_ALIGN_BYTES = 1 << 20
"""More than any adapter asks for; a larger value is a slip of the hand that would waste all memory."""


@dataclass(frozen=True, slots=True)
class Param:
    """A named tensor. `decay` says whether it is decayed; None takes the usual split by dimensions."""

    name: str
    shape: tuple[int, ...]
    decay: bool | None = None

    @property
    def numel(self) -> int:
        """Number of elements; 1 for a scalar, 0 for an empty tensor."""
        return math.prod(self.shape)

    @property
    def block(self) -> BlockName:
        """The block it goes to: tensors of two or more dimensions decay, norm gains and biases do not."""
        decays = len(self.shape) >= 2 if self.decay is None else self.decay
        return "wd" if decays else "no_wd"


@dataclass(frozen=True, slots=True)
class Segment:
    """A param's place in every mega-buffer, in elements counted from the start of page 0."""

    param: Param
    offset: int
    block: BlockName

    @property
    def name(self) -> str:
        """The param's name."""
        return self.param.name

    @property
    def numel(self) -> int:
        """Number of elements."""
        return self.param.numel

    @property
    def stop(self) -> int:
        """The element after the last."""
        return self.offset + self.param.numel


@dataclass(frozen=True, slots=True)
class Block:
    """A run of segments that share their weight decay: elements [start, stop), trailing gap excluded."""

    name: BlockName
    start: int
    stop: int
    segments: tuple[Segment, ...]

    @property
    def decays(self) -> bool:
        """True where weight decay applies."""
        return self.name == "wd"


@dataclass(frozen=True, slots=True)
class Page:
    """One GPU buffer of a mega-buffer: elements [start, stop) of the whole."""

    index: int
    start: int
    stop: int


@dataclass(frozen=True)
class Layout:
    """The places of all params in the mega-buffers w, g, m and v, which are laid out alike.

    `align` and `page_elements` are in elements. Segments start at multiples of `align`; the gaps
    between them hold zeros. A mega-buffer of more than `page_elements` is cut into pages at multiples of it.
    """

    segments: tuple[Segment, ...]
    blocks: tuple[Block, ...]
    align: int
    page_elements: int | None = None
    _by_name: dict[str, Segment] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {s.name: s for s in self.segments})

    @property
    def params(self) -> tuple[Param, ...]:
        """The params in the order they lie in memory (wd first)."""
        return tuple(s.param for s in self.segments)

    @cached_property
    def elements(self) -> int:
        """Number of elements of all params, gaps not counted."""
        return sum(s.numel for s in self.segments)

    @cached_property
    def padded_elements(self) -> int:
        """Number of elements of a mega-buffer, gaps counted."""
        end = max((s.stop for s in self.segments), default=0)
        return _round_up(end, self.align)

    @cached_property
    def pages(self) -> tuple[Page, ...]:
        """The GPU buffers a mega-buffer consists of, one where the device's limit allows."""
        total = self.padded_elements
        size = self.page_elements or max(total, 1)
        starts = range(0, total, size)
        return tuple(Page(i, start, min(start + size, total)) for i, start in enumerate(starts))

    def __getitem__(self, name: str) -> Segment:
        return self._by_name[name]

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.segments)

    def block(self, name: BlockName) -> Block | None:
        """The block of that name, None where no param is in it."""
        return next((b for b in self.blocks if b.name == name), None)

    @cached_property
    def _offsets(self) -> tuple[int, ...]:
        return tuple(s.offset for s in self.segments)

    def at(self, element: int) -> Segment | None:
        """The segment that holds an element of the mega-buffer; None in a gap or outside."""
        index = bisect_right(self._offsets, element) - 1
        # Empty params share their offset with the next one, so look back past them.
        while index >= 0 and self.segments[index].numel == 0:
            index -= 1
        if index < 0 or element >= self.segments[index].stop or element < 0:
            return None
        return self.segments[index]

    def between(self, start: int, stop: int) -> tuple[Segment, ...]:
        """The segments that overlap elements [start, stop), in order."""
        first = max(bisect_right(self._offsets, start) - 1, 0)
        last = bisect_right(self._offsets, max(stop - 1, start))
        return tuple(s for s in self.segments[first:last] if s.stop > start and s.offset < stop)

    def pieces(self, start: int, stop: int, max_elements: int | None = None) -> Iterator[tuple[int, int]]:
        """Elements [start, stop) cut at page edges and into runs of at most `max_elements`."""
        at = start
        while at < stop:
            end = stop
            if self.page_elements is not None:
                end = min(end, (at // self.page_elements + 1) * self.page_elements)
            if max_elements is not None:
                end = min(end, at + max_elements)
            yield at, end
            at = end


def make_layout(
    params: Iterable[Param],
    *,
    align_bytes: int = DEFAULT_ALIGN_BYTES,
    max_buffer_bytes: int | None = None,
) -> Layout:
    """Lay params out: the wd block first, then no-wd, each in the order given, every segment aligned.

    `align_bytes` counts float32 bytes; a power of two of at least 16. `max_buffer_bytes` is the largest
    buffer of the device; beyond it the mega-buffers have several pages.
    """
    params = tuple(params)
    _check_names(params)
    if align_bytes < 16 or align_bytes > MAX_ALIGN_BYTES or align_bytes & (align_bytes - 1):
        raise UsageError(
            f"An alignment of {align_bytes} bytes cannot be used: give a power of two from 16 to {MAX_ALIGN_BYTES}."
        )
    align = align_bytes // F32_BYTES
    segments: list[Segment] = []
    blocks: list[Block] = []
    end = 0
    for name in ("wd", "no_wd"):
        members = [p for p in params if p.block == name]
        if not members:
            continue
        start = end = _round_up(end, align)
        placed: list[Segment] = []
        for param in members:
            end = _round_up(end, align)
            placed.append(Segment(param, end, param.block))
            end += param.numel
        segments += placed
        blocks.append(Block(members[0].block, start, end, tuple(placed)))
    page_elements = None
    if max_buffer_bytes is not None:
        page_elements = max_buffer_bytes // align_bytes * align
        if page_elements == 0:
            raise UsageError(
                f"A buffer limit of {max_buffer_bytes} bytes is smaller than the alignment of {align_bytes} bytes."
            )
        if _round_up(end, align) <= page_elements:
            page_elements = None
    return Layout(tuple(segments), tuple(blocks), align, page_elements)


def _check_names(params: Sequence[Param]) -> None:
    seen: set[str] = set()
    for param in params:
        if param.name in seen:
            raise UsageError(f"Two params are named {param.name!r}: names have to differ.")
        if any(extent < 0 for extent in param.shape):
            raise UsageError(f"Param {param.name!r} has a negative extent in its shape {list(param.shape)}.")
        seen.add(param.name)


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
