"""Where every param lies in the mega-buffers: segments, the wd and no-wd blocks, gaps and pages."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from inspector import codecs
from inspector.errors import UsageError

BlockName = Literal["wd", "no_wd"]
StateType = Literal["f32", "8bit"]
"""How m and v of a param are kept: in float32, or coded in 8 bits."""

F32_BYTES = 4
DEFAULT_ALIGN_BYTES = 256
KEPT_ORDERS = 8
"""Orders of params whose numbers a layout keeps."""
MAX_ALIGN_BYTES = 1 << 20
"""More than any adapter asks for; a larger value is a slip of the hand that would waste all memory."""


@dataclass(frozen=True, slots=True)
class Param:
    """A named tensor. `decay` says whether it is decayed; None takes the usual split by dimensions.

    `group` is the group of settings that it belongs to; params of one group lie next to each other in a block.
    """

    name: str
    shape: tuple[int, ...]
    decay: bool | None = None
    group: int = 0

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
class Placement:
    """What a form of the step asks of the places of params; all in elements.

    Segments start at multiples of `align`. Params of at least `coded_from` elements keep m and v coded in 8 bits, none
    where it is None. A binding of coded state may start at multiples of `coded_align`: there begin the runs of coded
    params, and with `bound_alone` every coded param.
    """

    align: int = DEFAULT_ALIGN_BYTES // F32_BYTES
    coded_from: int | None = None
    coded_align: int = 1
    bound_alone: bool = False

    def state_of(self, param: Param) -> StateType:
        """How m and v of a param are kept."""
        coded = self.coded_from is not None and param.numel >= max(self.coded_from, 1)
        return "8bit" if coded else "f32"

    def covers(self, other: Placement) -> bool:
        """True where what is placed this way suits a form that asks for `other`."""
        if self.coded_from != other.coded_from or self.align % other.align:
            return False
        if other.coded_from is None:
            return True
        return self.coded_align % other.coded_align == 0 and self.bound_alone >= other.bound_alone


@dataclass(frozen=True, slots=True)
class Segment:
    """A param's place in every mega-buffer, in elements counted from the start of page 0."""

    param: Param
    offset: int
    block: BlockName
    state: StateType = "f32"

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

    @property
    def state_bytes(self) -> int:
        """Bytes that its m and v take."""
        return codecs.state_bytes(self.numel) if self.state == "8bit" else 2 * F32_BYTES * self.numel


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
class Run:
    """Neighbouring segments of one block and one type of state: elements [start, stop), trailing gap excluded."""

    block: BlockName
    state: StateType
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Page:
    """One GPU buffer of a mega-buffer: elements [start, stop) of the whole."""

    index: int
    start: int
    stop: int


@dataclass(frozen=True)
class Layout:
    """The places of all params in the mega-buffers w, g, m and v, which are laid out alike.

    Segments start at multiples of `placement.align` elements; the gaps between them hold zeros. A mega-buffer of
    more than `page_elements` is cut into pages at multiples of it. Params with state in float32 lie next to each
    other, those with coded state before them in the wd block and behind them in the no-wd block.
    """

    segments: tuple[Segment, ...]
    blocks: tuple[Block, ...]
    placement: Placement
    page_elements: int | None = None
    numbers: tuple[int, ...] = field(default=(), compare=False)
    """The number of each segment's param among those that were laid out, in the order in which they were given."""
    _by_name: dict[str, Segment] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {s.name: s for s in self.segments})
        if len(self.numbers) != len(self.segments):
            object.__setattr__(self, "numbers", tuple(range(len(self.segments))))

    @cached_property
    def derived(self) -> dict[str, Any]:
        """What other modules work out from it once, by name. Looked up in a table by layout instead, an equal layout
        would have to be compared param by param each time."""
        return {}

    @property
    def align(self) -> int:
        """Segments start at multiples of so many elements."""
        return self.placement.align

    @property
    def params(self) -> tuple[Param, ...]:
        """The params in the order they lie in memory (wd first)."""
        return tuple(s.param for s in self.segments)

    @cached_property
    def given(self) -> tuple[Param, ...]:
        """The params in the order in which they were given."""
        pairs = sorted(zip(self.numbers, self.segments, strict=True), key=lambda pair: pair[0])
        return tuple(s.param for _, s in pairs)

    @cached_property
    def _number_by_name(self) -> dict[str, int]:
        return {s.name: n for n, s in zip(self.numbers, self.segments, strict=True)}

    def number_of(self, name: str) -> int:
        """The number of a param among those that were laid out, in the order in which they were given."""
        return self._number_by_name[name]

    @cached_property
    def _numbers_by_names(self) -> dict[tuple[str, ...], npt.NDArray[np.intp]]:
        return {}

    def numbers_of(self, names: Sequence[str]) -> npt.NDArray[np.intp]:
        """The same of several, intp[names], read-only; asked for again with every step, so that it is kept."""
        key = tuple(names)
        found = self._numbers_by_names.get(key)
        if found is None:
            found = np.array([self._number_by_name[name] for name in key], np.intp)
            found.flags.writeable = False
            if len(self._numbers_by_names) >= KEPT_ORDERS:
                self._numbers_by_names.clear()
            self._numbers_by_names[key] = found
        return found

    def numbered_as(self, params: Sequence[Param]) -> Layout:
        """The same places, the params numbered in the order of `params`."""
        places = {p.name: i for i, p in enumerate(params)}
        return replace(self, numbers=tuple(places[s.name] for s in self.segments))

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """The runs of segments that share block and state, in order."""
        runs: list[Run] = []
        for s in self.segments:
            if runs and (runs[-1].block, runs[-1].state) == (s.block, s.state):
                runs[-1] = Run(s.block, s.state, runs[-1].start, s.stop)
            else:
                runs.append(Run(s.block, s.state, s.offset, s.stop))
        return tuple(runs)

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

    def filled_runs(self) -> Iterator[tuple[int, int]]:
        """Elements [start, stop) of params that follow each other without a gap, in order."""
        start = stop = 0
        for segment in self.segments:
            if segment.offset != stop:
                if stop > start:
                    yield start, stop
                start = segment.offset
            stop = max(segment.stop, segment.offset)
        if stop > start:
            yield start, stop

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
    align_bytes: int | None = None,
    max_buffer_bytes: int | None = None,
    placement: Placement | None = None,
) -> Layout:
    """Lay params out: the wd block first, then no-wd, each in the order given but for types of state and groups.

    `align_bytes` counts float32 bytes; a power of two of at least 16. The segments are aligned to it and to what
    `placement` asks for. `max_buffer_bytes` is the largest buffer of the device; beyond it the mega-buffers have
    several pages.
    """
    params = tuple(params)
    _check_names(params)
    placed = placement or Placement(1)
    if align_bytes is None:
        align_bytes = DEFAULT_ALIGN_BYTES if placement is None else max(placed.align * F32_BYTES, 16)
    if align_bytes < 16 or align_bytes > MAX_ALIGN_BYTES or align_bytes & (align_bytes - 1):
        raise UsageError(
            f"An alignment of {align_bytes} bytes cannot be used: give a power of two from 16 to {MAX_ALIGN_BYTES}."
        )
    placed = replace(placed, align=max(placed.align, align_bytes // F32_BYTES))
    segments: list[Segment] = []
    blocks: list[Block] = []
    numbers: list[int] = []
    end = 0
    order = sorted(range(len(params)), key=lambda i: params[i].group)
    kinds = [(p.block, placed.state_of(p)) for p in params]
    for name, states in _ORDER:
        places = [(i, state) for state in states for i in order if kinds[i] == (name, state)]
        members = [(params[i], state) for i, state in places]
        numbers += [i for i, _ in places]
        if not members:
            continue
        before: StateType = "f32"
        begun = len(segments)
        for param, state in members:
            coded_start = state == "8bit" and (
                before != state or placed.bound_alone or len(segments) == begun
            )
            end = _round_up(end, max(placed.align, placed.coded_align) if coded_start else placed.align)
            segments.append(Segment(param, end, name, state))
            end += param.numel
            before = state
        blocks.append(Block(name, segments[begun].offset, end, tuple(segments[begun:])))
    page_elements = None
    if max_buffer_bytes is not None:
        coded = any(s.state == "8bit" for s in segments)
        unit = max(placed.align, placed.coded_align) if coded else placed.align
        if _round_up(end, placed.align) * F32_BYTES > max_buffer_bytes:
            page_elements = max_buffer_bytes // (unit * F32_BYTES) * unit
        if page_elements == 0 or max_buffer_bytes < placed.align * F32_BYTES:
            raise UsageError(
                f"A buffer limit of {max_buffer_bytes} bytes is smaller than the alignment of {unit * F32_BYTES} bytes."
            )
    return Layout(tuple(segments), tuple(blocks), placed, page_elements, tuple(numbers))


_ORDER: tuple[tuple[BlockName, tuple[StateType, ...]], ...] = (
    ("wd", ("8bit", "f32")),
    ("no_wd", ("f32", "8bit")),
)
"""Float32 state in the middle, so that it is one run of elements across both blocks."""


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
