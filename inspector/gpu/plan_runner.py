"""Runs the dispatches of a plan: its pipelines, bind groups, uniforms and times; and beside a step, all put back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

import numpy as np

from inspector.floats import F32Array
from inspector.gpu.class_plans import ClassPlans, Prepared, record_dispatches
from inspector.gpu.device import Gpu, explained
from inspector.gpu.memory import LaneMemory
from inspector.gpu.pipelines import Pipelines
from inspector.gpu.segment_uniforms import SegmentUniforms, segment_uniforms
from inspector.gpu.timing import Clocks, Span, Timer, now
from inspector.gpu.undo import UndoLog, pack
from inspector.hyper import Hyper
from inspector.optimizers import is_between, optimizer
from inspector.param_hyper import segment_classes
from inspector.plan import Plan, Variant
from inspector.settings import IDLE, ParamSettings
from inspector.stepping import Cursor, KernelTime
from inspector.stores import pieces

KEPT_TOGETHER = 64 << 20
"""Bytes of what is put back after a look ahead that are kept in one buffer: ranges may be tens of thousands."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """Dispatches [first, until) of a step that wait to be submitted; `started` in seconds, monotonic."""

    encoder: Any
    first: int
    until: int
    started: float
    cold: bool


class PlanRunner:
    """Runs `plan` over `memory`. Where the plans of a form are cut otherwise from step to step, by classes of params or
    because not all steps do the same, it takes the one that a step asks for. `at` gives the cursor."""

    def __init__(
        self,
        gpu: Gpu,
        pipelines: Pipelines,
        memory: LaneMemory,
        undo: UndoLog,
        plan: Plan,
        at: Callable[[], Cursor],
        clocks: Clocks | None = None,
    ) -> None:
        self._gpu = gpu
        self._pipelines = pipelines
        self._memory = memory
        self._undo = undo
        self._at = at
        self._timer = Timer(gpu, clocks)
        self.plans = ClassPlans(self.prepare)
        self.plan = plan
        """The one that it runs."""
        self.prepared = self.plans.prepared(plan)
        """Its dispatches."""
        self._cut: tuple[ParamSettings, Plan] | None = None
        """The settings of params that were last seen, and the plan that they ask for."""
        self._uniforms_for: tuple[int, Hyper, Variant] | None = None
        self._compiled: set[str] = set()

    @property
    def clocks(self) -> Clocks:
        """Whether the device runs at low clocks."""
        return self._timer.clocks

    def close(self) -> None:
        """Give back what times are measured with."""
        self._timer.close()

    # --- which plan

    def plan_for(self, hyper: Hyper, step: int) -> Plan:
        """The plan of step `step` in this form and layout for the classes of params; UsageError where there is none."""
        own, plan, between = hyper.per_param, self.plan, is_between(self.plan.variant, step)
        if between == plan.between:
            if own is None and plan.classes is None:
                return plan
            if (
                own is not None
                and self._cut is not None
                and self._cut[1] is plan
                and own.cuts_like(self._cut[0])
            ):
                return plan
        found = self.plans.plan(plan, (segment_classes(plan.layout, hyper), between))
        if own is not None:
            self._cut = own, found
        return found

    def use(self, plan: Plan) -> None:
        """Run this plan from here on."""
        if plan is self.plan:
            return
        before = dict(self._memory.buffers)
        self._memory.use(plan)
        if any(self._memory.buffers.get(name) is not buffer for name, buffer in before.items()):
            self.plans.buffers_changed()
        self.plan = plan
        self.prepared = self.plans.prepared(plan)
        self._uniforms_for = None

    def prepare(self, plan: Plan) -> list[Prepared]:
        """Its dispatches with pipelines and bind groups over the buffers there are."""
        buffers, prepared = self._memory.buffers, []
        for dispatch in plan.dispatches:
            slots = tuple((b.slot, b.access) for b in dispatch.bindings)
            pipeline = self._pipelines.get(
                dispatch.kernel, dispatch.entry_point, slots, dispatch.constants, dispatch.own
            )
            ranges = [(buffers[b.buffer], b.offset, b.bound_size) for b in dispatch.bindings]
            group = self._pipelines.bind(slots, ranges)
            writes = tuple((b.buffer, b.offset, b.size) for b in dispatch.writes)
            prepared.append(Prepared(dispatch, pipeline, group, writes))
        return prepared

    def silence_idle(self) -> bool:
        """A param that takes no part in the step has no gradient; False where all take part."""
        classes = self.plan.classes
        if classes is None or IDLE not in classes:
            return False
        layout, encoder = self.plan.layout, self._gpu.encoder()
        for idle, group in groupby(
            zip(layout.segments, classes, strict=True), key=lambda pair: pair[1] == IDLE
        ):
            segments = [s for s, _ in group]
            if idle:
                for store, low, high in pieces(layout, "g", segments[0].offset, segments[-1].stop):
                    start, stop = store.offset(low), store.offset(high)
                    encoder.clear_buffer(self._memory.buffers[store.buffer], start, stop - start)
        self._gpu.submit(encoder)
        return True

    # --- what a step takes beside its lanes

    def uniform_values(self, hyper: Hyper) -> Mapping[str, F32Array]:
        """The uniforms of the step at the cursor, by key."""
        variant = self.plan.variant
        return optimizer(variant.optimizer).uniforms(hyper, self._at().step, variant.numerics)

    def segment_uniforms(self, hyper: Hyper) -> SegmentUniforms:
        """What each param takes that step with."""
        return segment_uniforms(self.uniform_values(hyper), self.plan.classes, self.plan.variant.numerics)

    def write_uniforms(self, hyper: Hyper) -> None:
        """Put the uniforms of the step at the cursor in place, unless they are."""
        wanted = (self._at().step, hyper, self.plan.variant)
        if self._uniforms_for == wanted:
            return
        values = self.uniform_values(hyper)
        buffer = self._memory.buffers["uniforms"]
        block = np.zeros(buffer.size, np.uint8)
        for spec in self.plan.uniforms:
            data = np.array([spec.constant], np.uint32) if spec.constant is not None else values[spec.key]
            raw = data.view(np.uint8)
            block[spec.offset : spec.offset + len(raw)] = raw
        self._gpu.write(buffer, 0, block)
        self._uniforms_for = wanted

    # --- running

    def record(self, hyper: Hyper, until: int) -> Recorded:
        """Record the dispatches from the cursor to `until`, with copies of what they overwrite."""
        at, buffers = self._at(), self._memory.buffers
        first = at.dispatch
        self.write_uniforms(hyper)
        encoder = self._gpu.encoder()
        started = now()
        cold = self._timer.clocks.cold_at(started)
        with explained("running the step"):
            for i in range(first, until):
                prepared = self.prepared[i]
                if self._undo.limit:
                    self._undo.save(encoder, Cursor(at.step, i, at.count), prepared.ranges, buffers)
                for clear in prepared.dispatch.clears:
                    encoder.clear_buffer(buffers[clear.buffer], clear.offset, clear.size)
                compute = encoder.begin_compute_pass(
                    label=prepared.dispatch.label, timestamp_writes=self._timer.writes(i - first)
                )
                compute.set_pipeline(prepared.pipeline)
                compute.set_bind_group(0, prepared.group)
                compute.dispatch_workgroups(*prepared.dispatch.groups)
                compute.end()
            self._timer.resolve(encoder, until - first)
        return Recorded(encoder, first, until, started, cold)

    def submit(self, recorded: Recorded) -> tuple[KernelTime, ...]:
        """Submit what was recorded, and wait for it; one time for each dispatch."""
        count = recorded.until - recorded.first
        if self._gpu.info.timestamps:
            spans: list[Span] = self._timer.spans_ms(count, recorded.encoder)
        else:
            self._gpu.submit(recorded.encoder)
            self._gpu.wait()
            spans = [(None, (now() - recorded.started) * 1e3 / count)] * count
        self._timer.clocks.done_at(now())
        clock: Literal["gpu", "cpu"] = "gpu" if self._gpu.info.timestamps else "cpu"
        times = []
        for i, (began, ms) in zip(range(recorded.first, recorded.until), spans, strict=True):
            dispatch = self.plan.dispatches[i]
            # The first run of a pipeline includes its compilation on drivers that put it off until then.
            fresh = dispatch.kernel not in self._compiled
            self._compiled.add(dispatch.kernel)
            cold = recorded.cold or fresh
            times.append(KernelTime(dispatch.entry_point, dispatch.block, ms, clock, cold, began))
        return tuple(times)

    @contextmanager
    def run_ahead(self, hyper: Hyper, dispatches: range, what: str) -> Iterator[None]:
        """Run dispatches beside the step, and put back what they write once it has been looked at."""
        self.write_uniforms(hyper)
        buffers = self._memory.buffers
        prepared = [self.prepared[i] for i in dispatches]
        ranges = list(dict.fromkeys(r for each in prepared for r in each.ranges))
        packs = pack(ranges, KEPT_TOGETHER)
        kept = []
        try:
            encoder = self._gpu.encoder()
            for size, parts in packs:
                kept.append(self._gpu.storage("kept", size))
                for at, (name, offset, nbytes) in parts:
                    encoder.copy_buffer_to_buffer(buffers[name], offset, kept[-1], at, nbytes)
            with explained(what):
                record_dispatches(encoder, prepared, buffers, "ahead")
            self._gpu.submit(encoder)
            yield
        finally:
            encoder = self._gpu.encoder()
            for (_, parts), copy in zip(packs, kept, strict=False):
                for at, (name, offset, nbytes) in parts:
                    encoder.copy_buffer_to_buffer(copy, at, buffers[name], offset, nbytes)
            self._gpu.submit(encoder)
            for copy in kept:
                self._gpu.release(copy)
