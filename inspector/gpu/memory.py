"""The mega-buffers on the device: what is written to them and read from them, whichever way a lane is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from inspector.codecs import BLOCK, Codec, Encoded, Moments8bit, Which, blocks, decode, pack, unpack
from inspector.errors import UsageError
from inspector.floats import F32Array
from inspector.gpu.coding import Coder, Range
from inspector.gpu.device import Gpu
from inspector.gpu.pieces import ElementRanges, Piece, SavedRange
from inspector.gpu.pipelines import Pipelines
from inspector.gpu.undo import Entry, Saved
from inspector.layout import F32_BYTES, Layout, Segment
from inspector.plan import Plan, binding_elements
from inspector.stores import MOMENTS, Lane, Store, pieces, store_at, stores

U32Array = npt.NDArray[np.uint32]

DECODED_ELEMENTS = 1 << 22
"""Elements of coded state that are decoded at a time: the float32 values of all would take what the codes save."""


class LaneMemory:
    """The buffers of a plan, and w, g, m and v in them as float32 whether coded or not.

    A moment that the plan's optimizer does not keep has no buffer, and reads as 0 throughout.
    """

    def __init__(self, gpu: Gpu, pipelines: Pipelines, plan: Plan) -> None:
        self._gpu = gpu
        self._pipelines = pipelines
        self.buffers: dict[str, Any] = {}
        self._decoded: dict[tuple[Lane, bool], Any] = {}
        self._coder: Coder | None = None
        self._zeros: Any = None
        self.use(plan)

    def use(self, plan: Plan) -> None:
        """Have the buffers of a plan, keeping those that it shares with the one before."""
        self._plan, self._layout = plan, plan.layout
        # Asked for at every look: with tens of thousands of params it is not to be worked out each time.
        self._end = max((s.stop for s in plan.layout.segments), default=0)
        self._absent = frozenset(MOMENTS) - frozenset(plan.lanes) if plan.layout.segments else frozenset()
        wanted = {spec.name for spec in plan.buffers}
        for name in [name for name in self.buffers if name not in wanted]:
            self._gpu.drop(self.buffers.pop(name))
        for spec in plan.buffers:
            have = self.buffers.get(spec.name)
            if have is not None and have.size >= spec.size:
                continue
            if have is not None:
                self._gpu.release(have)
            make = self._gpu.uniform if spec.kind == "uniform" else self._gpu.storage
            self.buffers[spec.name] = make(spec.name, spec.size)
        for spec in plan.buffers:
            if spec.content:
                self._gpu.write(self.buffers[spec.name], 0, np.frombuffer(spec.content, np.uint8))

    def close(self) -> None:
        """Release everything."""
        if self._coder is not None:
            self._coder.close()
        for buffer in (*self.buffers.values(), *self._decoded.values()):
            self._gpu.release(buffer)
        if self._zeros is not None:
            self._gpu.release(self._zeros)
            self._zeros = None
        self.buffers.clear()
        self._decoded.clear()

    @property
    def plan(self) -> Plan:
        """The one whose buffers these are."""
        return self._plan

    @property
    def layout(self) -> Layout:
        """Where every param lies."""
        return self._layout

    @property
    def end(self) -> int:
        """The element after the last of any param."""
        return self._end

    @property
    def coded(self) -> bool:
        """True where any param has 8-bit state."""
        return any(run.state == "8bit" for run in self._layout.runs)

    def pages(self, lane: Lane) -> list[str]:
        """The names of the buffers of w or g, page by page."""
        return [store.buffer for store in stores(self._layout, lane)]

    # --- writing

    def upload(
        self,
        lane: Lane,
        values: Mapping[str, F32Array],
        coded: Mapping[str, Moments8bit],
        told: Callable[[int], None] = lambda elements: None,
    ) -> None:
        """Write every param of a lane; the missing ones become 0. Bits are kept, signalling NaNs included.

        Of 8-bit state, the codes in `coded` are taken as they are where they are of the plan's codec. `told` is called
        at each param with its number of elements.
        """
        if lane in self._absent:
            told(self._layout.elements)
            return
        bits = {s.name: _as_bits(values[s.name], s.numel) for s in self._layout if s.name in values}
        for store in stores(self._layout, lane):
            if store.coded:
                for low, high in self._chunks(store, store.start, store.stop):
                    self._encode(store, low, high, bits)
        for segment in self._layout:
            told(segment.numel)
            if segment.state == "8bit" and lane in MOMENTS:
                codes = coded.get(segment.name)
                if codes is not None and codes.codec == self._codec:
                    self._write_codes(lane, segment, codes.m if lane == "m" else codes.v)
                continue
            data = bits.get(segment.name)
            if data is None:
                data = np.zeros(segment.numel, np.uint32)
            for store, low, high in pieces(self._layout, lane, segment.offset, segment.stop):
                part = data[low - segment.offset : high - segment.offset]
                self._gpu.write(self.buffers[store.buffer], store.offset(low), part)

    def _encode(self, store: Store, low: int, high: int, bits: Mapping[str, U32Array]) -> None:
        """Code elements [low, high) of a store, which a binding may start at, from the params' float32 values."""
        scratch = self._scratch(store.lane, before=False)
        encoder = self._gpu.encoder()
        given = [s for s in self._layout.between(low, high) if s.name in bits]
        if given:
            data = np.zeros(high - low, np.uint32)
            for s in given:
                first, last = max(s.offset, low), min(s.stop, high)
                data[first - low : last - low] = bits[s.name][first - s.offset : last - s.offset]
            self._gpu.write(scratch, 0, data)
        else:
            encoder.clear_buffer(scratch)
        compute = encoder.begin_compute_pass()
        codes, scales = self._coded_at(store, low)
        self._coding.encode(compute, _moment(store.lane), codes, scales, (scratch, 0), high - low)
        compute.end()
        self._gpu.submit(encoder)

    def _write_codes(self, lane: Lane, segment: Segment, coded: Encoded) -> None:
        for store, low, high in pieces(self._layout, lane, segment.offset, segment.stop):
            first, last = (low - segment.offset) // BLOCK, blocks(high - segment.offset)
            codes, scales = self._coded_at(store, low)
            self._gpu.write(*codes, pack(coded.codes[first * BLOCK : last * BLOCK]))
            self._gpu.write(*scales, coded.scales[first:last])

    # --- reading

    def read(self, lane: Lane, start: int, count: int) -> F32Array:
        """`count` elements from `start` as they are."""
        if lane in self._absent:
            return np.zeros(count, np.float32)
        out = np.empty(count, np.float32)
        for store, low, high in pieces(self._layout, lane, start, start + count):
            if store.coded:
                codes, scales = self._coded_at(store, low // BLOCK * BLOCK)
                values = self._read_coded(lane, codes, scales, low, high)
            else:
                raw = self._gpu.read(self.buffers[store.buffer], store.offset(low), (high - low) * F32_BYTES)
                values = raw.view(np.float32)
            out[low - start : high - start] = values
        return out

    def read_before(self, top: Entry | None, lane: Lane, start: int, count: int) -> F32Array:
        """The same as it was before what is kept in `top`."""
        out = self.read(lane, start, count)
        for each in self.saved(top, lane, start, start + count):
            low, high = each.first, each.first + each.count
            if each.scales is None:
                raw = self._gpu.read(*each.values, each.count * F32_BYTES)
                out[low - start : high - start] = raw.view(np.float32)
            else:
                out[low - start : high - start] = self._read_coded(lane, each.values, each.scales, low, high)
        return out

    def coded_state(self) -> dict[str, Moments8bit]:
        """m and v of the params with 8-bit state, as codes."""
        found = {s.name: self.codes_of(s) for s in self._layout}
        return {name: codes for name, codes in found.items() if codes is not None}

    def codes_of(self, segment: Segment) -> Moments8bit | None:
        """m and v of a param as codes; None where they are float32."""
        if segment.state != "8bit":
            return None
        m, v = (self._codes_of(lane, segment) for lane in MOMENTS)
        return Moments8bit(self._codec, m, v)

    def _codes_of(self, lane: Lane, segment: Segment) -> Encoded:
        codes, scales = [], []
        for store, low, high in pieces(self._layout, lane, segment.offset, segment.stop):
            at_codes, at_scales = self._coded_at(store, low)
            n = blocks(high - low)
            codes.append(self._gpu.read(*at_codes, n * BLOCK))
            scales.append(self._gpu.read(*at_scales, n * F32_BYTES).view(np.float32))
        return Encoded(unpack(self._codec, np.concatenate(codes).view(np.uint32)), np.concatenate(scales))

    def _read_coded(self, lane: Lane, codes: Range, scales: Range, low: int, high: int) -> F32Array:
        """Elements [low, high) from codes and scales that begin at the block of `low`; decoded on the host."""
        head = low % BLOCK
        n = blocks(head + high - low)
        raw = self._gpu.read(*codes, n * BLOCK).view(np.uint32)
        scale = self._gpu.read(*scales, n * F32_BYTES).view(np.float32)
        values = decode(self._codec, _moment(lane), unpack(self._codec, raw), scale)
        return np.asarray(values[head : head + high - low], np.float32)

    # --- single elements

    def element_ranges(self, lane: Lane, element: int) -> ElementRanges:
        """Where an element of a lane is kept, to be read with others at once; a zero where none is."""
        if lane in self._absent:
            return ElementRanges((self._nothing(), 0))
        store = store_at(self._layout, lane, element)
        if not store.coded:
            return ElementRanges((self.buffers[store.buffer], store.offset(element)))
        codes, scales = self._coded_at(store, element)
        return ElementRanges(codes, scales)

    def saved_ranges(self, entry: Entry, lane: Lane, element: int) -> ElementRanges | None:
        """Where `entry` keeps an element as it was; None where that is not among what it keeps."""
        each = next(self.saved(entry, lane, element, element + 1), None)
        if each is None:
            return None
        if each.scales is None:
            return ElementRanges(each.values)
        return ElementRanges((each.values[0], each.values[1] + element % BLOCK), each.scales)

    def codes_at(
        self, lane: Lane, start: int, count: int, top: Entry | None = None
    ) -> npt.NDArray[np.int16] | None:
        """Codes of elements from `start` on, as they are or as `top` keeps them; None where any is float32."""
        out = np.zeros(count, np.int16)
        for store, low, high in pieces(self._layout, lane, start, start + count):
            if not store.coded:
                return None
            # Whole words, from the one that holds the first.
            head = low % 4
            (buffer, at), _ = self._coded_at(store, low - head)
            raw = self._gpu.read(buffer, at, -(-(head + high - low) // 4) * 4).view(np.uint32)
            out[low - start : high - start] = unpack(self._codec, raw)[head : head + high - low]
        for each in self.saved(top, lane, start, start + count):
            low, high = each.first, each.first + each.count
            head = low % BLOCK
            raw = self._gpu.read(*each.values, -(-(head + high - low) // 4) * 4).view(np.uint32)
            out[low - start : high - start] = unpack(self._codec, raw)[head : head + high - low]
        return out

    @property
    def codec(self) -> Codec:
        """That of m and v where they are coded."""
        return self._codec

    # --- reading on the device

    def views(self, lane: Lane, start: int, stop: int) -> Iterator[Piece]:
        """Elements [start, stop) as float32 on the device, in pieces that can be bound. `start` begins a segment."""
        for store, low, high in self._bindable(lane, start, stop):
            if lane in self._absent:
                yield Piece(self._nothing(), 0, high - low, low)
            elif store.coded:
                codes, scales = self._coded_at(store, low)
                yield self._decoded_piece(lane, codes, scales, low, max(low, start), high, before=False)
            else:
                yield Piece(self.buffers[store.buffer], store.offset(low), high - low, low)

    def spans(self) -> tuple[tuple[int, int], ...]:
        """Runs of elements [start, stop), up to the last, of which each lane is one piece of `views`."""
        spans: list[tuple[int, int]] = []
        for store in stores(self._layout, "m"):
            spans += self._chunks(store, store.start, min(store.stop, self.end), small=bool(self._absent))
        return tuple(spans)

    def changed_views(self, top: Entry | None, lane: Lane) -> Iterator[tuple[Piece, Piece]]:
        """What is kept in `top` of a lane: pieces as they are now and as they were before, of the same elements."""
        for each in self.saved(top, lane, 0, self.end):
            store = store_at(self._layout, lane, each.first)
            # Kept ranges begin where a binding may.
            for low, high in self._chunks(store, each.first, each.first + each.count):
                shift = low - each.first
                buffer, at = each.values
                if each.scales is None:
                    yield (
                        Piece(self.buffers[store.buffer], store.offset(low), high - low, low),
                        Piece(buffer, at + shift * F32_BYTES, high - low, low),
                    )
                    continue
                codes, scales = self._coded_at(store, low)
                old_codes, old_scales = (
                    (buffer, at + shift),
                    (each.scales[0], each.scales[1] + shift // BLOCK * F32_BYTES),
                )
                yield (
                    self._decoded_piece(lane, codes, scales, low, low, high, before=False),
                    self._decoded_piece(lane, old_codes, old_scales, low, low, high, before=True),
                )

    def saved(self, top: Entry | None, lane: Lane, start: int, stop: int) -> Iterator[SavedRange]:
        """Parts of [start, stop) that are kept in `top` as they were before."""
        if top is None:
            return
        by_buffer: dict[str, list[Saved]] = {}
        for part in top.saved:
            by_buffer.setdefault(part.buffer, []).append(part)
        for store in stores(self._layout, lane):
            for part in by_buffer.get(store.buffer, ()):
                first, last = store.elements(part.offset, part.size)
                low, high = max(first, start), min(last, stop)
                if low >= high:
                    continue
                if store.scales is None:
                    yield SavedRange(low, high - low, (part.copy, part.at + (low - first) * F32_BYTES))
                    continue
                scale = next(s for s in by_buffer[store.scales] if s.offset == store.scale_offset(first))
                skipped = (low - first) // BLOCK
                yield SavedRange(
                    low,
                    high - low,
                    (part.copy, part.at + skipped * BLOCK),
                    (scale.copy, scale.at + skipped * F32_BYTES),
                )

    def _decoded_piece(
        self, lane: Lane, codes: Range, scales: Range, low: int, first: int, high: int, *, before: bool
    ) -> Piece:
        """The piece [first, high) of what is decoded from `low` on."""
        scratch = self._scratch(lane, before=before)

        def prepare(compute: Any) -> None:
            self._coding.decode(compute, _moment(lane), codes, scales, (scratch, 0), high - low)

        return Piece(scratch, (first - low) * F32_BYTES, high - first, first, prepare)

    def _bindable(self, lane: Lane, start: int, stop: int) -> Iterator[tuple[Store, int, int]]:
        """Elements [start, stop), and as many before as the place of a binding asks for, in pieces."""
        for store in stores(self._layout, lane):
            first, last = max(store.start, start), min(store.stop, stop)
            if first < last:
                if store.coded:
                    apart = self._layout.placement.coded_align
                    first = max(store.origin + (first - store.origin) // apart * apart, store.start)
                for low, high in self._chunks(store, first, last, small=lane in self._absent):
                    yield store, low, high

    def _chunks(
        self, store: Store, start: int, stop: int, *, small: bool = False
    ) -> Iterator[tuple[int, int]]:
        """What a binding can hold; `small` where something is bound that holds the elements of a chunk alone."""
        chunk = binding_elements(self._layout, self._gpu.limits, coded=store.coded)
        if store.coded or small:
            apart = max(self._layout.align, self._layout.placement.coded_align)
            chunk = min(chunk or stop - start, max(DECODED_ELEMENTS // apart, 1) * apart)
        for low in range(start, stop, chunk):
            yield low, min(low + chunk, stop)

    def _coded_at(self, store: Store, element: int) -> tuple[Range, Range]:
        assert store.scales is not None
        return (
            (self.buffers[store.buffer], store.offset(element)),
            (self.buffers[store.scales], store.scale_offset(element)),
        )

    def _nothing(self) -> Any:
        """Zeros, as many as a chunk has elements."""
        if self._zeros is None:
            longest = max((high - low for low, high in self.spans()), default=1)
            self._zeros = self._gpu.storage("zeros", longest * F32_BYTES)
        return self._zeros

    def _scratch(self, lane: Lane, *, before: bool) -> Any:
        """Room for the float32 values of a chunk of a coded lane, as it is or as it was before."""
        key = (lane, before)
        if key not in self._decoded:
            longest = max(
                high - low
                for store in stores(self._layout, lane)
                if store.coded
                for low, high in self._chunks(store, store.start, store.stop)
            )
            self._decoded[key] = self._gpu.storage(f"decoded {lane}", longest * F32_BYTES)
        return self._decoded[key]

    @property
    def _codec(self) -> Codec:
        return self._plan.variant.codec

    @property
    def _coding(self) -> Coder:
        if self._coder is None:
            self._coder = Coder(self._gpu, self._pipelines, self._codec)
        return self._coder


def _as_bits(values: F32Array, numel: int) -> U32Array:
    flat = np.ascontiguousarray(values, dtype=np.float32).reshape(-1)
    if flat.size != numel:
        raise UsageError(f"A param of {numel:,} elements was given {flat.size:,} values.")
    return np.asarray(flat.view(np.uint32))


def _moment(lane: Lane) -> Which:
    assert lane in MOMENTS
    return lane
