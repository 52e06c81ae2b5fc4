"""Runs a plan on the device, stops between any two dispatches, shows every buffer, and goes back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from inspector.errors import UsageError
from inspector.floats import F32Array
from inspector.gpu.copying import copy_gbps
from inspector.gpu.device import Gpu, explained
from inspector.gpu.generator import GRADIENT_STREAM, WEIGHT_STREAM, Generator
from inspector.gpu.map_image import MapKernel
from inspector.gpu.param_statistics import ParamStatsKernel
from inspector.gpu.pipelines import Pipelines
from inspector.gpu.statistics import StatsKernel
from inspector.gpu.timing import Clocks, Span, Timer, now
from inspector.gpu.undo import Range, UndoLog
from inspector.hyper import Hyper
from inspector.layout import F32_BYTES, Layout
from inspector.optimizers import optimizer, plan_step
from inspector.param_statistics import ParamTable
from inspector.plan import (
    WORKGROUP_SIZE,
    Access,
    Dispatch,
    Plan,
    Variant,
    binding_elements,
    page_buffer,
    required_align_bytes,
    split_grid,
)
from inspector.statistics import BufferStats
from inspector.stepping import (
    LANES,
    Cursor,
    DeviceInfo,
    GeneratedGradients,
    GeneratedState,
    Gradients,
    GradStats,
    HostState,
    KernelTime,
    Lane,
    MapPixels,
    MapRequest,
    State,
    UndoInfo,
)

DEFAULT_UNDO_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A dispatch with its pipeline and bind group."""

    dispatch: Dispatch
    pipeline: Any
    group: Any
    ranges: tuple[Range, ...]
    """What it may overwrite."""


class GpuStepper:
    """A run of one optimizer on one device. See `inspector.stepping.Stepper` for what each method promises."""

    def __init__(
        self,
        gpu: Gpu,
        layout: Layout,
        variant: Variant,
        state: State,
        *,
        undo_bytes: int = DEFAULT_UNDO_BYTES,
        clocks: Clocks | None = None,
    ) -> None:
        if not layout.elements:
            raise UsageError("There is nothing to step: the source holds no elements.")
        self._gpu = gpu
        self._layout = layout
        self._plan = plan_step(layout, gpu.limits, variant)
        self._pipelines = Pipelines(gpu)
        self._buffers: dict[str, Any] = {}
        self._allocate(self._plan)
        self._undo = UndoLog(gpu, undo_bytes)
        self._timer = Timer(gpu, clocks)
        self._stats = StatsKernel(gpu, self._pipelines)
        self._map = MapKernel(gpu, self._pipelines)
        self._generator: Generator | None = None
        self._param_stats: dict[tuple[tuple[str, float], ...], ParamStatsKernel] = {}
        self.param_stats_ms: float | None = None
        """GPU time of the last param statistics."""
        self._prepared = self._prepare(self._plan)
        self._uniforms_for: tuple[int, Hyper, Variant] | None = None
        self._compiled: set[str] = set()
        self._fill(state)
        self._mirror_weights()
        count = len(self._plan.dispatches)
        self._cursor = Cursor(state.finished_steps, count, count)

    # --- what it is

    @property
    def layout(self) -> Layout:
        """Where every param lies."""
        return self._layout

    @property
    def plan(self) -> Plan:
        """The plan it runs."""
        return self._plan

    @property
    def cursor(self) -> Cursor:
        """Where it stands."""
        return self._cursor

    @property
    def device(self) -> DeviceInfo:
        """The adapter in use."""
        return self._gpu.info

    @property
    def memory_bytes(self) -> int:
        """Bytes of GPU memory allocated."""
        return self._gpu.memory_bytes

    @property
    def undo_info(self) -> UndoInfo:
        """How far it can go back."""
        return self._undo.info

    # --- forward

    def begin_step(self, gradients: Gradients) -> None:
        """Put the gradients of the next step in place; the cursor moves to (t + 1, 0)."""
        encoder = self._gpu.encoder()
        pages = [(name, 0, self._buffers[name].size) for name in self._pages("g")]
        self._undo.save(encoder, self._cursor, pages, self._buffers)
        self._gpu.submit(encoder)
        self._load_gradients(gradients)
        self._cursor = Cursor(self._cursor.step + 1, 0, len(self._plan.dispatches))

    def run_dispatch(self, hyper: Hyper) -> KernelTime:
        """Run the dispatch at the cursor, keeping what it overwrites."""
        return self._run(hyper, self._cursor.dispatch + 1)[0]

    def run_to_end(self, hyper: Hyper) -> tuple[KernelTime, ...]:
        """Run the rest of the step in one submission; one time for each dispatch that ran."""
        return self._run(hyper, self._cursor.count)

    def _run(self, hyper: Hyper, until: int) -> tuple[KernelTime, ...]:
        first = self._cursor.dispatch
        if until <= first:
            return ()
        self._write_uniforms(hyper)
        encoder = self._gpu.encoder()
        started = now()
        cold = self._timer.clocks.cold_at(started)
        with explained("running the step"):
            for i in range(first, until):
                prepared = self._prepared[i]
                cursor = Cursor(self._cursor.step, i, self._cursor.count)
                if self._undo.limit:
                    self._undo.save(encoder, cursor, prepared.ranges, self._buffers)
                for clear in prepared.dispatch.clears:
                    encoder.clear_buffer(self._buffers[clear.buffer], clear.offset, clear.size)
                compute = encoder.begin_compute_pass(
                    label=prepared.dispatch.label, timestamp_writes=self._timer.writes(i - first)
                )
                compute.set_pipeline(prepared.pipeline)
                compute.set_bind_group(0, prepared.group)
                compute.dispatch_workgroups(*prepared.dispatch.groups)
                compute.end()
            self._timer.resolve(encoder, until - first)
        self._gpu.submit(encoder)
        self._cursor = Cursor(self._cursor.step, until, self._cursor.count)
        return self._times(first, until, started, cold)

    def _times(self, first: int, until: int, started: float, cold: bool) -> tuple[KernelTime, ...]:
        if self._gpu.info.timestamps:
            spans: list[Span] = self._timer.spans_ms(until - first)
        else:
            self._gpu.wait()
            spans = [(None, (now() - started) * 1e3 / (until - first))] * (until - first)
        self._timer.clocks.done_at(now())
        clock: Literal["gpu", "cpu"] = "gpu" if self._gpu.info.timestamps else "cpu"
        times = []
        for i, (began, ms) in zip(range(first, until), spans, strict=True):
            dispatch = self._plan.dispatches[i]
            # The first run of a pipeline includes its compilation on drivers that put it off until then.
            fresh = dispatch.kernel not in self._compiled
            self._compiled.add(dispatch.kernel)
            times.append(KernelTime(dispatch.entry_point, dispatch.block, ms, clock, cold or fresh, began))
        return tuple(times)

    def set_variant(self, variant: Variant) -> None:
        """Run the next step in another form; only at the end of a step or at its start.

        What was kept for going back belongs to the old plan and is forgotten.
        """
        if not self._cursor.between_steps:
            raise UsageError("The form of the step can change only between steps: finish this one first.")
        plan = plan_step(self._layout, self._gpu.limits, variant)
        self._undo.clear()
        self._allocate(plan)
        self._plan = plan
        self._prepared = self._prepare(plan)
        self._mirror_weights()
        self._uniforms_for = None
        count = len(plan.dispatches)
        dispatch = count if self._cursor.at_end else 0
        self._cursor = Cursor(self._cursor.step, dispatch, count)

    def can_take(self, variant: Variant) -> bool:
        """True where the layout allows that form; otherwise the params have to be laid out anew."""
        return (
            self._layout.align
            * F32_BYTES
            % required_align_bytes(variant.kernel, self._gpu.limits.min_storage_buffer_offset_alignment)
            == 0
        )

    # --- back

    def undo_dispatch(self) -> bool:
        """Take the last dispatch back, byte for byte; False where memory does not reach back.

        From the start of a step this takes back its gradients and the last dispatch of the step before.
        """
        top = self._undo.top
        if top is None:
            return False
        if top.cursor.at_end:
            target = next((c for c in reversed(self._undo.cursors()) if not c.at_end), None)
            return target is not None and self._undo_to(target)
        return self._undo_to(top.cursor)

    def rewind_step(self) -> bool:
        """Go back to the start of the current step, or from there to the start of the one before."""
        step = self._cursor.step - (self._cursor.dispatch == 0)
        return self._undo_to(Cursor(step, 0, self._cursor.count))

    def rewind_to(self, step: int) -> bool:
        """Go back to the end of step `step`; False where memory does not reach that far."""
        return self._undo_to(Cursor(step, self._cursor.count, self._cursor.count))

    def _undo_to(self, cursor: Cursor) -> bool:
        if not self._undo.reaches(cursor):
            return False
        encoder = self._gpu.encoder()
        while self._cursor != cursor:
            self._cursor = self._undo.undo(encoder, self._buffers)
        self._gpu.submit(encoder)
        return True

    # --- looking

    def grad_stats(self) -> GradStats:
        """gradNorm and clipScale as they stand in the buffer."""
        norm, scale = self._gpu.read(self._buffers["grad_stats"], 0, 8).view(np.float32)
        return GradStats(float(norm), float(scale))

    def counts(self, lane: Lane) -> BufferStats:
        """Counts over all params in one lane, without the histogram."""
        return self._stats.run(self._stat_pieces(lane, 0, self._end), histogram=False, padding=self._gaps)

    def stats(self, lane: Lane, param: str | None) -> BufferStats:
        """Statistics of a param, or of all, in one lane."""
        if param is None:
            return self._stats.run(self._stat_pieces(lane, 0, self._end), padding=self._gaps)
        segment = self._layout[param]
        return self._stats.run(self._stat_pieces(lane, segment.offset, segment.stop))

    def param_stats(self, hyper: Hyper) -> ParamTable:
        """Statistics of every param and of the update to come; UsageError but between finalize and the update.

        Where clipping is a pass of its own, the gradient is as it stands: before that pass or after it.
        """
        done = self._plan.dispatches[: self._cursor.dispatch]
        clips = [d for d in self._plan.dispatches if d.kernel == "scale"]
        clipped = [d for d in done if d.kernel == "scale"]
        if not any(d.kernel == "finalize_grad_stats" for d in done) or any(d.updates for d in done):
            raise UsageError(
                "Statistics of the params are counted between finalize_grad_stats and the first update."
            )
        if clipped and len(clipped) < len(clips):
            raise UsageError("Part of the gradients is clipped: run the rest of the scale passes first.")
        variant = self._plan.variant
        constants = (
            ("PRECISE", float(variant.numerics == "precise")),
            ("L2", float(optimizer(variant.optimizer).decay_in_gradient)),
            ("FUSED", float(not clipped)),
        )
        kernel = self._param_stats.get(constants)
        if kernel is None:
            kernel = ParamStatsKernel(self._gpu, self._pipelines, self._layout, constants)
            self._param_stats[constants] = kernel
        values = optimizer(variant.optimizer).uniforms(hyper, self._cursor.step, variant.numerics)
        stats = kernel.run(
            self._place_buffer, self._buffers["grad_stats"], hp=values["hp:wd"], bias=values["bias"]
        )
        self.param_stats_ms = kernel.ms
        return stats

    def read(self, lane: Lane, start: int, count: int, *, before: bool = False) -> F32Array:
        """`count` elements from `start`; with `before` as they were before the last dispatch."""
        out = np.empty(count, np.float32)
        for low, high in self._layout.pieces(start, start + count):
            name, offset = self._place(lane, low)
            raw = self._gpu.read(self._buffers[name], offset, (high - low) * F32_BYTES)
            out[low - start : high - start] = raw.view(np.float32)
        if before:
            for first, n, copy, copy_offset in self._saved(lane, start, start + count):
                raw = self._gpu.read(copy, copy_offset, n * F32_BYTES)
                out[first - start : first - start + n] = raw.view(np.float32)
        return out

    def changed_lanes(self) -> tuple[Lane, ...]:
        """The lanes of which the last dispatch kept what it overwrote."""
        return tuple(lane for lane in LANES if next(self._saved(lane, 0, self._end), None))

    def map_pixels(self, lane: Lane, request: MapRequest) -> MapPixels:
        """One lane as pixels; "change" is the change by the last dispatch."""
        change = request.quantity == "change"
        start = int(max(request.start, 0))
        stop = min(int(request.start + request.width * request.elements_per_pixel) + 2, self._end)
        pieces: list[tuple[Any, Any, int, int, int, int]] = []
        if change:
            # Whole kept ranges rather than the part in view: their offsets are aligned.
            for first, n, copy, copy_offset in self._saved(lane, 0, self._end):
                for low, high in self._chunks(first, first + n):
                    if high > start and low < stop:
                        name, offset = self._place(lane, low)
                        shift = copy_offset + (low - first) * F32_BYTES
                        pieces.append((self._buffers[name], copy, offset, shift, high - low, low))
        else:
            for low, high in self._chunks(0, self._end):
                if high > start and low < stop:
                    name, offset = self._place(lane, low)
                    buffer = self._buffers[name]
                    pieces.append((buffer, buffer, offset, offset, high - low, low))
        return self._map.run(self._layout, request, pieces, change=change)

    def state(self) -> HostState:
        """w, m, v by param name, read back."""
        lanes = {lane: self.read(lane, 0, self._end) for lane in ("w", "m", "v")}
        split = {
            lane: {s.name: values[s.offset : s.stop] for s in self._layout} for lane, values in lanes.items()
        }
        return HostState(split["w"], split["m"], split["v"], self._cursor.finished_steps)

    def gradients(self) -> dict[str, F32Array]:
        """The gradient buffer by param name, read back."""
        values = self.read("g", 0, self._end)
        return {s.name: values[s.offset : s.stop] for s in self._layout}

    def weights(self) -> dict[str, F32Array]:
        """w by param name, read back, each in its param's shape."""
        values = self.read("w", 0, self._end)
        return {s.name: values[s.offset : s.stop].reshape(s.param.shape) for s in self._layout}

    def explain(self, hyper: Hyper, dispatch: Dispatch, element: int) -> F32Array:
        """The lines of the update of one element, float32[10], as the GPU computes them at the cursor."""
        self._write_uniforms(hyper)
        slots: list[tuple[int, Access]] = [(slot, "read") for slot in range(5)]
        slots += [(5, "uniform"), (6, "uniform"), (7, "uniform"), (8, "read_write")]
        pipeline = self._pipelines.get("explain", "explain", slots, dispatch.constants)
        index = self._gpu.uniform("explained index", 4)
        lines = self._gpu.storage("explained lines", 64)
        self._gpu.write(index, 0, np.array([element - dispatch.elements[0]], np.uint32))
        bound = {b.name: (self._buffers[b.buffer], b.offset, _bound_size(b.size)) for b in dispatch.bindings}
        ranges = [bound[name] for name in (*LANES, "grad_stats")]
        ranges += [(index, 0, 16), bound["hp"], bound["bias"], (lines, 0, 64)]
        encoder = self._gpu.encoder()
        compute = encoder.begin_compute_pass()
        compute.set_pipeline(pipeline)
        compute.set_bind_group(0, self._pipelines.bind(slots, ranges))
        compute.dispatch_workgroups(1)
        compute.end()
        values = self._gpu.read(lines, 0, 40, encoder).view(np.float32)
        self._gpu.release(index)
        self._gpu.release(lines)
        return values

    def copy_gbps(self) -> float:
        """GB/s, bytes read plus written, that a plain copy reaches on this device; takes seconds."""
        clocks = self._timer.clocks
        clocks.cold_at(now())
        measured = copy_gbps(self._gpu)
        # The device was busy all the while: what runs next runs at high clocks.
        clocks.done_at(now())
        return measured

    def release(self) -> None:
        """Give back the memory of everything on the device, which stays open for another stepper."""
        self._undo.clear()
        for part in (self._timer, self._stats, self._map, self._generator, *self._param_stats.values()):
            if part is not None:
                part.close()
        for buffer in self._buffers.values():
            self._gpu.release(buffer)
        self._buffers.clear()

    def close(self) -> None:
        """Destroy the device and everything on it."""
        self._gpu.close()

    # --- inside

    @property
    def _end(self) -> int:
        return max((s.stop for s in self._layout.segments), default=0)

    @property
    def _gaps(self) -> int:
        return self._end - self._layout.elements

    @property
    def _chunk(self) -> int:
        return binding_elements(self._layout, self._gpu.limits)

    def _chunks(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        return self._layout.pieces(start, stop, self._chunk)

    def _stat_pieces(self, lane: Lane, start: int, stop: int) -> Iterator[tuple[Any, int, int, int]]:
        for low, high in self._chunks(start, stop):
            name, offset = self._place(lane, low)
            yield self._buffers[name], offset, high - low, low

    def _place(self, lane: str, element: int) -> tuple[str, int]:
        """The buffer that holds an element of a lane, and the byte offset in it."""
        size = self._layout.page_elements
        page = element // size if size else 0
        return page_buffer(lane, self._layout, page), (element - page * (size or 0)) * F32_BYTES

    def _place_buffer(self, lane: str, element: int) -> tuple[Any, int]:
        name, offset = self._place(lane, element)
        return self._buffers[name], offset

    def _pages(self, lane: str) -> list[str]:
        return [page_buffer(lane, self._layout, page.index) for page in self._layout.pages]

    def _saved(self, lane: str, start: int, stop: int) -> Iterator[tuple[int, int, Any, int]]:
        """Parts of [start, stop) that the last dispatch overwrote: first element, count, copy, byte offset in it."""
        top = self._undo.top
        if top is None:
            return
        origins = {page_buffer(lane, self._layout, page.index): page.start for page in self._layout.pages}
        for part in top.saved:
            if part.buffer not in origins:
                continue
            first = origins[part.buffer] + part.offset // F32_BYTES
            last = min(first + part.size // F32_BYTES, stop)
            low = max(first, start)
            if low < last:
                yield low, last - low, part.copy, part.at + (low - first) * F32_BYTES

    def _mirror_weights(self) -> None:
        """Where the plan keeps a half-precision mirror, make it what the weights are now."""
        if self._plan.variant.kernel != "f16" or not self._layout.elements:
            return
        slots: tuple[tuple[int, Access], ...] = ((0, "read"), (1, "read_write"), (2, "uniform"))
        pipeline = self._pipelines.get("cast_f32_to_f16", "cast_f32_to_f16", slots)
        size = self._gpu.uniform("mirrored elements", 4)
        for low, high in self._chunks(0, self._end):
            name, offset = self._place("w", low)
            mirror, _ = self._place("w_f16", low)
            nbytes = _bound_size((high - low) * F32_BYTES)
            ranges = [
                (self._buffers[name], offset, nbytes),
                (self._buffers[mirror], offset // 2, nbytes // 2),
                (size, 0, 16),
            ]
            self._gpu.write(size, 0, np.array([high - low], np.uint32))
            encoder = self._gpu.encoder()
            compute = encoder.begin_compute_pass()
            compute.set_pipeline(pipeline)
            compute.set_bind_group(0, self._pipelines.bind(slots, ranges))
            groups = -(-(high - low) // (4 * WORKGROUP_SIZE))
            compute.dispatch_workgroups(
                *split_grid(groups, self._plan.limits.max_compute_workgroups_per_dimension)
            )
            compute.end()
            self._gpu.submit(encoder)
        self._gpu.drop(size)

    def half_weights(self) -> dict[str, npt.NDArray[np.float16]]:
        """The half-precision mirror by param name, read back; KeyError where the plan keeps none."""
        out: dict[str, npt.NDArray[np.float16]] = {}
        for segment in self._layout:
            parts = []
            for low, high in self._layout.pieces(segment.offset, segment.stop):
                name, offset = self._place("w_f16", low)
                # Read in whole words: a part may end in the middle of one.
                raw = self._gpu.read(self._buffers[name], offset // 2, -(-(high - low) * 2 // 4) * 4)
                parts.append(raw.view(np.float16)[: high - low])
            out[segment.name] = np.concatenate(parts) if parts else np.zeros(0, np.float16)
        return out

    def _allocate(self, plan: Plan) -> None:
        wanted = {spec.name for spec in plan.buffers}
        for name in [name for name in self._buffers if name not in wanted]:
            self._gpu.drop(self._buffers.pop(name))
        for spec in plan.buffers:
            have = self._buffers.get(spec.name)
            if have is not None and have.size >= spec.size:
                continue
            if have is not None:
                self._gpu.release(have)
            make = self._gpu.uniform if spec.kind == "uniform" else self._gpu.storage
            self._buffers[spec.name] = make(spec.name, spec.size)

    def _prepare(self, plan: Plan) -> list[_Prepared]:
        prepared = []
        for dispatch in plan.dispatches:
            slots = tuple((b.slot, b.access) for b in dispatch.bindings)
            pipeline = self._pipelines.get(dispatch.kernel, dispatch.entry_point, slots, dispatch.constants)
            ranges = [(self._buffers[b.buffer], b.offset, _bound_size(b.size)) for b in dispatch.bindings]
            group = self._pipelines.bind(slots, ranges)
            writes = tuple((b.buffer, b.offset, b.size) for b in dispatch.writes)
            prepared.append(_Prepared(dispatch, pipeline, group, writes))
        return prepared

    def _write_uniforms(self, hyper: Hyper) -> None:
        wanted = (self._cursor.step, hyper, self._plan.variant)
        if self._uniforms_for == wanted:
            return
        values = optimizer(self._plan.variant.optimizer).uniforms(
            hyper, self._cursor.step, self._plan.variant.numerics
        )
        block = np.zeros(self._buffers["uniforms"].size, np.uint8)
        for spec in self._plan.uniforms:
            data = np.array([spec.constant], np.uint32) if spec.constant is not None else values[spec.key]
            raw = data.view(np.uint8)
            block[spec.offset : spec.offset + len(raw)] = raw
        self._gpu.write(self._buffers["uniforms"], 0, block)
        self._uniforms_for = wanted

    def _fill(self, state: State) -> None:
        if isinstance(state, GeneratedState):
            self._generate("w", state.normal, state.seed, 0, WEIGHT_STREAM)
            return
        for lane, values in (("w", state.w), ("m", state.m), ("v", state.v)):
            self._upload(lane, values)

    def _load_gradients(self, gradients: Gradients) -> None:
        if isinstance(gradients, GeneratedGradients):
            self._generate("g", gradients.normal, gradients.seed, gradients.step, GRADIENT_STREAM)
        else:
            self._upload("g", gradients.values)

    def _generate(self, lane: str, normal: Any, seed: int, step: int, stream: int) -> None:
        if self._generator is None:
            self._generator = Generator(self._gpu, self._pipelines, self._layout, self._chunk)
        pages = [self._buffers[name] for name in self._pages(lane)]
        self._generator.fill(pages, lane, normal, seed=seed, step=step, stream=stream)

    def _upload(self, lane: str, values: Any) -> None:
        """Write every param of a lane; the missing ones become 0. Bits are kept, signalling NaNs included."""
        for segment in self._layout:
            data = values.get(segment.name)
            bits = np.zeros(segment.numel, np.uint32) if data is None else _as_bits(data, segment.numel)
            for low, high in self._layout.pieces(segment.offset, segment.stop):
                name, offset = self._place(lane, low)
                self._gpu.write(
                    self._buffers[name], offset, bits[low - segment.offset : high - segment.offset]
                )


def _as_bits(values: F32Array, numel: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    flat = np.ascontiguousarray(values, dtype=np.float32).reshape(-1)
    if flat.size != numel:
        raise UsageError(f"A param of {numel:,} elements was given {flat.size:,} values.")
    return np.asarray(flat.view(np.uint32))


def _bound_size(size: int) -> int:
    """Bytes to bind for a range of `size`: the kernels load whole vec4s, and every range ends in a gap."""
    return -(-size // 16) * 16
