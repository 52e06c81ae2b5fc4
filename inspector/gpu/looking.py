"""Looks at a run on the device: single elements and over steps, where values lie, matrices as images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from inspector.codecs import CODEC_NUMBER, decode_one, unpack
from inspector.explaining import ElementCodes, ElementValues, dispatch_of
from inspector.floats import F32Array
from inspector.gpu.device import Gpu
from inspector.gpu.element import element_lines
from inspector.gpu.find import FindKernel
from inspector.gpu.half_mirror import half_at
from inspector.gpu.map_parts import without
from inspector.gpu.matrix_image import MatrixKernel, Part
from inspector.gpu.memory import LaneMemory
from inspector.gpu.pieces import ElementRanges
from inspector.gpu.pipelines import Pipelines
from inspector.gpu.undo import Entry, UndoLog
from inspector.hyper import Hyper
from inspector.layout import F32_BYTES, Param
from inspector.looking import Hits, MatrixPixels, MatrixRequest, TrailPart
from inspector.optimizers import optimizer_of
from inspector.param_state import PlacedState
from inspector.plan import Plan, Variant
from inspector.stepping import Cursor, GradStats
from inspector.stores import LANES, MOMENTS, Lane
from inspector.value_search import Query

MAX_TRAIL_READS = 4096
"""Places that are read for the steps of an element at a time."""


class GpuLooker:
    """See `inspector.looking.Looker`. `stands` gives the plan and where it stands, `ahead` the statistics to come."""

    def __init__(
        self,
        gpu: Gpu,
        pipelines: Pipelines,
        memory: LaneMemory,
        undo: UndoLog,
        stands: Callable[[], tuple[Plan, Cursor]],
        ahead: Callable[[Hyper], GradStats],
    ) -> None:
        self._gpu = gpu
        self._pipelines = pipelines
        self._memory = memory
        self._undo = undo
        self._stands = stands
        self.stats_ahead = ahead
        self._find = FindKernel(gpu, pipelines)
        self._matrix = MatrixKernel(gpu, pipelines)

    def close(self) -> None:
        """Release the buffers."""
        self._find.close()
        self._matrix.close()

    # --- single elements

    def element(self, element: int, given_to: int | None = None) -> ElementValues | None:
        """As it is; as a dispatch of the step was given it with `given_to`, None where memory does not reach."""
        _, cursor = self._stands()
        ranges = {lane: self._memory.element_ranges(lane, element) for lane in LANES}
        if given_to is not None and given_to < cursor.dispatch:
            entries = self._undo.back_to(Cursor(cursor.step, given_to, cursor.count))
            if entries is None:
                return None
            for entry in entries:
                ranges |= self._saved(entry, element)
        reads = [read for lane in LANES for read in ranges[lane].reads()]
        words = iter(self._gpu.read_all(reads))
        return self._values({lane: _taken(ranges[lane], words) for lane in LANES}, ranges)

    def trail(self, element: int, since: int = 0) -> TrailPart:
        """The element over the steps from `since` on, as far as memory reaches."""
        plan, cursor = self._stands()
        update = dispatch_of(plan, element)
        now = {lane: self._memory.element_ranges(lane, element) for lane in LANES}
        reads = [read for lane in LANES for read in now[lane].reads()]
        entries: list[tuple[Cursor, dict[Lane, ElementRanges]]] = []
        for entry in self._undo.newest_first():
            saved = self._saved(entry, element)
            more = [read for lane in saved for read in saved[lane].reads()]
            if len(reads) + len(more) > MAX_TRAIL_READS:
                break
            reads += more
            entries.append((entry.cursor, saved))
            if entry.cursor.step < since:
                break
        words = iter(self._gpu.read_all(reads))
        values = {lane: self._value(lane, _taken(now[lane], words), now[lane]) for lane in LANES}
        states, gradients = {}, {}

        def known(at: Cursor, updated: bool) -> None:
            if at.dispatch == 0 and not at.at_end:
                gradients[at.step] = values["g"]
            done = at.step if at.at_end or updated else at.step - 1
            states[done] = (values["w"], values["m"], values["v"])

        known(cursor, update is not None and cursor.dispatch > update.index)
        for at, saved in entries:
            for lane, ranges in saved.items():
                values[lane] = self._value(lane, _taken(ranges, words), ranges)
            if at.at_end or at.dispatch == 0:
                known(at, False)
        return TrailPart(
            {step: found for step, found in states.items() if step >= since},
            {step: found for step, found in gradients.items() if step >= since},
        )

    def gradients_given(self, dispatch: int) -> F32Array | None:
        """All gradients as a dispatch of the step was given them."""
        _, cursor = self._stands()
        entries: tuple[Entry, ...] = ()
        if dispatch < cursor.dispatch:
            reached = self._undo.back_to(Cursor(cursor.step, dispatch, cursor.count))
            if reached is None:
                return None
            entries = reached
        out = self._memory.read("g", 0, self._memory.end)
        for entry in entries:
            for each in self._memory.saved(entry, "g", 0, len(out)):
                raw = self._gpu.read(*each.values, each.count * 4)
                out[each.first : each.first + each.count] = raw.view(np.float32)
        return out

    def _saved(self, entry: Entry, element: int) -> dict[Lane, ElementRanges]:
        found = {lane: self._memory.saved_ranges(entry, lane, element) for lane in LANES}
        return {lane: ranges for lane, ranges in found.items() if ranges is not None}

    def _values(self, raw: dict[Lane, list[Any]], ranges: dict[Lane, ElementRanges]) -> ElementValues:
        values = {lane: self._value(lane, raw[lane], ranges[lane]) for lane in LANES}
        codes = None
        if ranges["m"].scale is not None:
            (m, m_scale), (v, v_scale) = (self._code(raw[lane], ranges[lane]) for lane in MOMENTS)
            codes = ElementCodes(self._memory.codec, m, v, m_scale, v_scale)
        return ElementValues(values["w"], values["g"], values["m"], values["v"], codes)

    def _value(self, lane: Lane, raw: list[Any], ranges: ElementRanges) -> np.float32:
        if ranges.scale is None:
            return np.float32(raw[0].view(np.float32)[0])
        code, scale = self._code(raw, ranges)
        assert lane in MOMENTS
        return decode_one(self._memory.codec, lane, code, scale)

    def _code(self, raw: list[Any], ranges: ElementRanges) -> tuple[int, np.float32]:
        codes = unpack(self._memory.codec, raw[0].view(np.uint32))
        return int(codes[ranges.value[1] % 4]), np.float32(raw[1].view(np.float32)[0])

    def update_lines(
        self,
        values: ElementValues,
        *,
        clip_scale: float,
        clipped: bool,
        hyper: Hyper,
        step: int,
        decays: bool,
        coded: bool,
        variant: Variant,
        param: Param,
    ) -> F32Array:
        """The lines of an element's update from its values, as the GPU computes them."""
        rule = optimizer_of(variant, param)
        uniforms = rule.uniforms(replace(hyper, per_param=None), step, variant.numerics)
        constants = (
            ("PRECISE", float(variant.numerics == "precise")),
            ("L2", float(rule.decay_in_gradient)),
            ("FUSED", float(not clipped)),
            ("CODEC", float(CODEC_NUMBER[variant.codec])),
            ("CODED", float(coded)),
        )
        return element_lines(
            self._gpu,
            self._pipelines,
            values,
            clip_scale=clip_scale,
            hp=uniforms["hp:wd" if decays else "hp:no_wd"],
            bias=uniforms["bias"],
            constants=constants,
            rule=rule.rule,
        )

    # --- values

    def param_state(self, state: PlacedState, count: int, *, before: bool = False) -> F32Array:
        """The first `count` values, flat, of a state in a shape of its own; or as before the last dispatch."""
        count = min(count, state.elements)
        at, size = state.start * F32_BYTES, count * F32_BYTES
        if not count:
            return np.zeros(0, np.float32)
        out = self._gpu.read(self._memory.buffers[state.buffer], at, size).view(np.float32).copy()
        top = self._undo.top if before else None
        for part in top.saved if top is not None else ():
            low, high = max(part.offset, at), min(part.offset + part.size, at + size)
            if part.buffer == state.buffer and low < high:
                kept = self._gpu.read(part.copy, part.at + low - part.offset, high - low)
                out[(low - at) // F32_BYTES : (high - at) // F32_BYTES] = kept.view(np.float32)
        return out

    def find(
        self,
        lane: Lane,
        query: Query,
        start: int,
        stop: int,
        at: int | None = None,
        progress: Callable[[int, int], None] = lambda done, of: None,
    ) -> Hits:
        """Where elements [start, stop) match; of what the last dispatch changed, those whose bits are others now."""
        if query.kind == "changed":
            pairs = self._memory.changed_views(self._undo.top, lane)
        else:
            # From where a binding may start.
            held = self._memory.layout.between(start, stop)
            first = min(held[0].offset, start) if held else start
            pairs = ((piece, piece) for piece in self._memory.views(lane, first, stop))
        return self._find.run(query, pairs, start, stop, at, progress)

    def matrix_pixels(self, request: MatrixRequest) -> MatrixPixels:
        """A rectangle of a param as pixels."""
        plan, _ = self._stands()
        segment = plan.layout[request.param]
        change = request.moment == "difference"
        return self._matrix.run(
            segment, request, self._parts(segment.offset, segment.stop, request), change=change
        )

    def _parts(self, start: int, stop: int, request: MatrixRequest) -> Iterator[Part]:
        """The param in pieces: as it is; where it was kept as it was; or both of what was kept."""
        covered: list[tuple[int, int]] = []
        if request.moment != "after":
            for now, before in self._memory.changed_views(self._undo.top, request.lane):
                low, high = max(start, now.first), min(stop, now.first + now.count)
                if low < high:
                    covered.append((low, high))
                    yield Part(now if request.moment == "difference" else before, before, low, high)
        # What was not kept did not change.
        for piece in self._memory.views(request.lane, start, stop):
            for low, high in without(max(start, piece.first), min(stop, piece.first + piece.count), covered):
                yield Part(piece, piece, low, high)

    def codes(
        self, lane: Lane, start: int, count: int, *, before: bool = False
    ) -> npt.NDArray[np.int16] | None:
        """8-bit codes of elements; None where any of them is float32."""
        if lane not in MOMENTS:
            return None
        return self._memory.codes_at(lane, start, count, self._undo.top if before else None)

    def half(self, start: int, count: int) -> npt.NDArray[np.uint16] | None:
        """The bits of the half-precision mirror of w; None where there is none."""
        return half_at(self._gpu, self._memory, start, count)


def _taken(ranges: ElementRanges, words: Iterator[Any]) -> list[Any]:
    return [next(words) for _ in ranges.reads()]
