"""Runs a plan on the device, stops between any two dispatches, shows every buffer, and goes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from inspector.codecs import CODEC_NUMBER, Moments8bit
from inspector.coding_error import ParamCodingError
from inspector.decay import OPTIMIZERS as DECAY_OPTIMIZERS
from inspector.drift import ParamDrift
from inspector.errors import InspectorError, UsageError
from inspector.floats import F32Array
from inspector.gpu.class_plans import ClassPlans, Prepared, record_dispatches
from inspector.gpu.coding_error import CodingErrorKernel
from inspector.gpu.copying import copy_gbps
from inspector.gpu.decay import GpuDecayMeter
from inspector.gpu.device import Gpu, explained
from inspector.gpu.drift import DriftKernel
from inspector.gpu.generator import GRADIENT_STREAM, WEIGHT_STREAM, Generator
from inspector.gpu.looking import GpuLooker
from inspector.gpu.mapping import GpuMapper
from inspector.gpu.memory import LaneMemory
from inspector.gpu.param_states import read_states, write_states
from inspector.gpu.param_statistics import ParamStatsKernel
from inspector.gpu.pipelines import Pipelines
from inspector.gpu.segment_uniforms import SegmentUniforms, rules_of, segment_uniforms
from inspector.gpu.statistics import StatsKernel
from inspector.gpu.timing import Clocks, Span, Timer, now
from inspector.gpu.undo import UndoLog, pack
from inspector.gpu.update_ahead import APPLIED, UpdateAhead
from inspector.hyper import Hyper
from inspector.layout import Layout, Param
from inspector.optimizers import is_between, optimizer, plan_step
from inspector.own_kernels import OwnKernel, OwnKernels
from inspector.own_plan import with_own_kernels
from inspector.param_hyper import moved_classes, segment_classes
from inspector.param_statistics import ParamTable
from inspector.plan import Plan, Variant, binding_elements, layout_for, required_placement
from inspector.progress import counting
from inspector.settings import IDLE, ParamSettings
from inspector.statistics import BufferStats, added_up, buffer_stats
from inspector.stepping import (
    Cursor,
    DeviceInfo,
    GeneratedGradients,
    GeneratedState,
    Gradients,
    GradStats,
    HostGradients,
    HostState,
    KernelTime,
    State,
    UndoInfo,
)
from inspector.stores import LANES, MOMENTS, Lane, pieces

DEFAULT_UNDO_BYTES = 1 << 30
KEPT_TOGETHER = 64 << 20
"""Bytes of what is put back after a look ahead that are kept in one buffer: ranges may be tens of thousands."""

READ_AT_ONCE = 1 << 22
"""Elements of a lane that are read back between two looks at whether they are still wanted."""


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
        pipelines: Pipelines | None = None,
    ) -> None:
        if not layout.elements:
            raise UsageError("There is nothing to step: the source holds no elements.")
        self._gpu = gpu
        self._layout = layout
        self._plan = plan_step(layout, gpu.limits, variant)
        self._pipelines = pipelines or Pipelines(gpu)
        self._pipelines.check_own(self._plan)
        self._memory = LaneMemory(gpu, self._pipelines, self._plan)
        self._undo = UndoLog(gpu, undo_bytes)
        self._timer = Timer(gpu, clocks)
        self._stats = StatsKernel(gpu, self._pipelines)
        self.looker = GpuLooker(
            gpu,
            self._pipelines,
            self._memory,
            self._undo,
            lambda: (self._plan, self._cursor),
            self._stats_ahead,
        )
        """Looks at single elements, where values lie, and matrices."""
        self.mapper = GpuMapper(
            gpu, self._pipelines, self._memory, self._undo, lambda: (self._plan, self._cursor)
        )
        """Reduces the mega-buffers to pixels."""
        self._generator: Generator | None = None
        self._param_stats: dict[tuple[str, tuple[tuple[str, float], ...]], ParamStatsKernel] = {}
        self._ahead: UpdateAhead | None = None
        self.param_stats_ms: float | None = None
        """GPU time of the last param statistics."""
        self._coding: dict[tuple[tuple[str, float], ...], CodingErrorKernel] = {}
        self._last_coding: CodingErrorKernel | None = None
        self._drift: tuple[Layout, DriftKernel] | None = None
        self.coding_ms: float | None = None
        """GPU time of the last coding errors."""
        self.drift_ms: float | None = None
        """GPU time of the last drift."""
        self._plans = ClassPlans(self._prepare)
        self._prepared = self._plans.prepared(self._plan)
        self._cut: tuple[ParamSettings, Plan] | None = None
        """The settings of params that were last seen, and the plan that they ask for."""
        self._given: HostState | None = None
        """What coded lanes were made of, until the first step: only who asks has it counted."""
        self._uniforms_for: tuple[int, Hyper, Variant] | None = None
        self._compiled: set[str] = set()
        self._fill(state, counting(3 * layout.elements))
        self._memory.mirror_weights()
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
    def gpu(self) -> Gpu:
        """The device that it runs on."""
        return self._gpu

    @property
    def device(self) -> DeviceInfo:
        """The adapter in use."""
        return self._gpu.info

    @property
    def memory_bytes(self) -> int:
        """Bytes of GPU memory allocated."""
        return self._gpu.memory_bytes

    @property
    def buffer_bytes(self) -> Mapping[str, int]:
        """Bytes of each of the plan's buffers, as the device allocated it."""
        return {name: int(buffer.size) for name, buffer in self._buffers.items()}

    @property
    def undo_info(self) -> UndoInfo:
        """How far it can go back."""
        return self._undo.info

    # --- forward

    def begin_step(self, gradients: Gradients, hyper: Hyper | None = None) -> None:
        """Put the gradients of the next step in place; the cursor moves to (t + 1, 0).

        The plan becomes that of the classes of params in `hyper`, if it is given.
        """
        plan = self._plan if hyper is None else self._plan_for(hyper, self._cursor.step + 1)
        self._given = None
        encoder = self._gpu.encoder()
        pages = [(name, 0, self._buffers[name].size) for name in self._memory.pages("g")]
        self._undo.save(encoder, self._cursor, pages, self._buffers)
        self._gpu.submit(encoder)
        self._load_gradients(gradients)
        self._cursor = Cursor(self._cursor.step + 1, 0, self._cursor.count)
        self._begin_by(plan)
        self.mapper.given_gradients()

    def run_dispatch(self, hyper: Hyper) -> KernelTime:
        """Run the dispatch at the cursor, keeping what it overwrites."""
        self.follow_classes(hyper)
        return self._run(hyper, self._cursor.dispatch + 1)[0]

    def run_until(self, hyper: Hyper, dispatch: int) -> tuple[KernelTime, ...]:
        """Run in one submission until `dispatch` dispatches of the step have run; nothing where they have."""
        self.follow_classes(hyper)
        return self._run(hyper, min(dispatch, self._cursor.count))

    def run_to_end(self, hyper: Hyper) -> tuple[KernelTime, ...]:
        """Run the rest of the step in one submission; one time for each dispatch that ran."""
        self.follow_classes(hyper)
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
        times = self._times(encoder, first, until, started, cold)
        self._tell_map(hyper, first)
        return times

    def _tell_map(self, hyper: Hyper, first: int) -> None:
        """Dispatches from `first` to the cursor have run."""
        ran = self._prepared[first : self._cursor.dispatch]
        self.mapper.wrote(written for each in ran for written in each.ranges)
        update = next((each.dispatch.index for each in ran if each.dispatch.updates), None)
        if update is not None:
            self.mapper.updated(self._cursor.step, hyper, update)
        if self._cursor.at_end:
            self.mapper.finished_step()

    def _times(
        self, encoder: Any, first: int, until: int, started: float, cold: bool
    ) -> tuple[KernelTime, ...]:
        """Submit what was recorded, and wait for it."""
        self._cursor = Cursor(self._cursor.step, until, self._cursor.count)
        if self._gpu.info.timestamps:
            spans: list[Span] = self._timer.spans_ms(until - first, encoder)
        else:
            self._gpu.submit(encoder)
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

        What was kept for going back belongs to the old plan and is forgotten, unless only own kernels are other ones,
        in the same dispatches over the same buffers.
        """
        if not self._cursor.between_steps:
            raise UsageError("The form of the step can change only between steps: finish this one first.")
        if not self.can_take(variant):
            raise UsageError("The params are not laid out for this form of the step: lay them out anew.")
        between = is_between(variant, self._cursor.step)
        plan = plan_step(self._layout, self._gpu.limits, variant, self._plan.classes, between=between)
        self._pipelines.check_own(plan)
        before, count = self._plan, len(plan.dispatches)
        alike = replace(variant, own=before.variant.own) == before.variant
        if alike and plan.buffers == before.buffers and count == len(before.dispatches):
            self._plans.other_kernels()
        else:
            self._undo.clear()
            self._plans.forget(self._cursor.step, plan)
        self._use_plan(plan)
        new = [each for each in plan.states if each not in before.states]
        write_states(self._gpu, self._buffers, new, {})
        self._memory.mirror_weights()
        self._cursor = Cursor(self._cursor.step, count if self._cursor.at_end else 0, count)
        self.mapper.went_back()

    def _plan_for(self, hyper: Hyper, step: int) -> Plan:
        """The plan of step `step` in this form and layout for the classes of params; UsageError where there is none."""
        own, plan, between = hyper.per_param, self._plan, is_between(self._plan.variant, step)
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
        found = self._plans.plan(plan, (segment_classes(self._layout, hyper), between))
        if own is not None:
            self._cut = own, found
        return found

    def follow_classes(self, hyper: Hyper) -> None:
        """Take the plan for these classes of params, before the first dispatch of a step."""
        plan = self._plan_for(hyper, self._cursor.step)
        if plan is self._plan:
            return
        if self._cursor.dispatch:
            raise UsageError(
                "Which params share settings can change only between steps: finish this one first."
            )
        self._begin_by(plan)

    def _begin_by(self, plan: Plan) -> None:
        """Run the step at the cursor, of which nothing has run, by this plan."""
        self._use_plan(plan)
        self._plans.begin(self._cursor.step, plan)
        self._cursor = Cursor(self._cursor.step, 0, len(plan.dispatches))
        self._silence_idle()

    def _use_plan(self, plan: Plan) -> None:
        if plan is self._plan:
            return
        before = dict(self._buffers)
        self._memory.use(plan)
        if any(self._buffers.get(name) is not buffer for name, buffer in before.items()):
            self._plans.buffers_changed()
        self._plan = plan
        self._prepared = self._plans.prepared(plan)
        self._uniforms_for = None

    def _silence_idle(self) -> None:
        """A param that takes no part in the step has no gradient."""
        classes = self._plan.classes
        if classes is None or IDLE not in classes:
            return
        encoder = self._gpu.encoder()
        for idle, group in groupby(
            zip(self._layout.segments, classes, strict=True), key=lambda pair: pair[1] == IDLE
        ):
            segments = [s for s, _ in group]
            if idle:
                for store, low, high in pieces(self._layout, "g", segments[0].offset, segments[-1].stop):
                    start, stop = store.offset(low), store.offset(high)
                    encoder.clear_buffer(self._buffers[store.buffer], start, stop - start)
        self._gpu.submit(encoder)
        self.mapper.wrote_lane("g")

    def can_take(self, variant: Variant) -> bool:
        """True where layout and state allow that form; otherwise both have to be made anew."""
        wanted = required_placement(variant, self._gpu.limits.min_storage_buffer_offset_alignment)
        if not self._layout.placement.covers(wanted):
            return False
        return not self._memory.coded or variant.codec == self._plan.variant.codec

    def check_form(self, params: tuple[Param, ...], variant: Variant) -> None:
        """UsageError where params could not run in that form on this device; own kernels are compiled for it."""
        classes = self._plan.classes
        layout = layout_for(params, self._gpu.limits, variant, alone=classes is not None)
        moved = None if classes is None else moved_classes(classes, self._layout, layout)
        self._pipelines.check_own(plan_step(layout, self._gpu.limits, variant, moved))

    def check_kernel(self, own: OwnKernel) -> None:
        """UsageError with file and line where an own kernel could not run in the present form; it is compiled.

        On one dispatch alone: to plan a step of many takes too long while somebody types.
        """
        variant = replace(self._plan.variant, own=OwnKernels((own,)))
        first = next((d for d in self._plan.dispatches if d.entry_point == own.entry_point), None)
        one = replace(self._plan, dispatches=() if first is None else (first,))
        self._pipelines.check_own(with_own_kernels(one, variant))

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
        return self._undo_to_any(lambda cursor: cursor.step == step and cursor.dispatch == 0)

    def rewind_to(self, step: int) -> bool:
        """Go back to the end of step `step`; False where memory does not reach that far."""
        return self._undo_to_any(lambda cursor: cursor.step == step and cursor.at_end)

    def restore(self, state: State, progress: Callable[[float], None] = lambda share: None) -> None:
        """Go to the end of step `state.finished_steps` with another state, of the same params in the same form.

        Gradients are 0 there, as the update leaves them. What was kept for going back is forgotten. `progress` is told
        the share that is done; what it raises leaves the buffers with parts of either state.
        """
        self._undo.clear()
        done = 0

        def told(elements: int) -> None:
            nonlocal done
            progress(done / (4 * max(self._layout.elements, 1)))
            done += elements

        if isinstance(state, GeneratedState) and not self._memory.coded:
            for moment in MOMENTS:
                self._memory.upload(moment, {}, {}, told)
        self._fill(state, told)
        self._memory.upload("g", {}, {}, told)
        self._memory.mirror_weights()
        self._given = None
        count = len(self._plan.dispatches)
        self._cursor = Cursor(state.finished_steps, count, count)
        self._plans.begin(0, self._plan)
        self.mapper.went_back()

    def _undo_to_any(self, wanted: Callable[[Cursor], bool]) -> bool:
        """Go to the last position that is wanted: how many dispatches a step has may differ from step to step."""
        found = next((cursor for cursor in reversed(self._undo.cursors()) if wanted(cursor)), None)
        return found is not None and self._undo_to(found)

    def _undo_to(self, cursor: Cursor) -> bool:
        if not self._undo.reaches(cursor):
            return False
        encoder = self._gpu.encoder()
        while self._cursor != cursor:
            self._cursor = self._undo.undo(encoder, self._buffers)
        self._gpu.submit(encoder)
        self._use_plan(self._plans.plan(self._plan, self._plans.cut_of(cursor.step)))
        self.mapper.went_back()
        return True

    # --- looking

    def grad_stats(self) -> GradStats:
        """gradNorm and clipScale as they stand in the buffer."""
        norm, scale = self._gpu.read(self._buffers["grad_stats"], 0, 8).view(np.float32)
        return GradStats(float(norm), float(scale))

    def counts(self, lane: Lane) -> BufferStats:
        """Counts over all params in one lane, without the histogram."""
        pieces = self._memory.views(lane, 0, self._memory.end)
        counts = self._stats.run(pieces, histogram=False, padding=self._gaps)
        if counts.nonfinite.total and self._gaps:
            # Some may lie between params, where an own kernel may have written: none of them is of a param.
            runs = self._layout.filled_runs()
            pieces = (piece for start, stop in runs for piece in self._memory.views(lane, start, stop))
            counts = self._stats.run(pieces, histogram=False)
        return counts

    def given_counts(self, lane: Lane) -> BufferStats:
        """Counts over all params of a lane as the run was given it: 8-bit codes hold nothing that is not finite."""
        given = {"m": self._given.m, "v": self._given.v}.get(lane) if self._given is not None else None
        return self.counts(lane) if given is None else _counted(self._layout, given)

    def stats(self, lane: Lane, param: str | None) -> BufferStats:
        """Statistics of a param, or of all, in one lane."""
        if param is None:
            return self._stats.run(self._memory.views(lane, 0, self._memory.end), padding=self._gaps)
        segment = self._layout[param]
        return self._stats.run(self._memory.views(lane, segment.offset, segment.stop))

    def param_stats(self, hyper: Hyper) -> ParamTable:
        """Statistics of every param and of the update to come; UsageError but between finalize and the update."""
        constants = self._before_update("Statistics of the params are counted")
        if optimizer(self._plan.variant.optimizer).rule is None:
            return self._stats_of_result(hyper)
        kernel = self._param_kernel(constants)
        grad_stats, uniforms = self._buffers["grad_stats"], self._segment_uniforms(hyper)
        ahead = range(self._cursor.dispatch, next(d.index for d in self._plan.dispatches if d.updates))
        if any(self._prepared[i].dispatch.entry_point != "scale" for i in ahead):
            # What the updates are given besides the lanes as they are.
            with self._run_ahead(hyper, ahead, "working out the updates"):
                stats = kernel.run(grad_stats, uniforms)
        else:
            stats = kernel.run(grad_stats, uniforms)
        self.param_stats_ms = kernel.ms
        return stats

    def lane_stats(self, hyper: Hyper, elements: tuple[int, int]) -> ParamTable:
        """Statistics of the lanes of the params within `elements` as they are at any moment; nothing of the update."""
        constants = self._constants(clipped=False)
        return self._param_kernel(constants).run(
            self._buffers["grad_stats"], self._segment_uniforms(hyper), elements
        )

    def _stats_of_result(self, hyper: Hyper) -> ParamTable:
        """The same where the update is known by running it alone: the rest of the step runs, and all is put back."""
        uniforms, stats = self._segment_uniforms(hyper), self._buffers["grad_stats"]
        lanes = self._param_kernel(self._constants(clipped=False))
        counted = lanes.run(stats, uniforms)
        self._write_uniforms(hyper)
        rest = self._prepared[self._cursor.dispatch :]
        if self._ahead is None:
            self._ahead = UpdateAhead(self._gpu)
        ahead = self._ahead
        encoder = self._gpu.encoder()
        with explained("working out the update"):
            ahead.keep(
                encoder, dict.fromkeys(name for each in rest for name, *_ in each.ranges), self._buffers
            )
            record_dispatches(encoder, rest, self._buffers, "ahead")
        self._gpu.submit(encoder)
        try:
            kernel = self._param_kernel((), applied=True)
            result = kernel.run(stats, uniforms, views=partial(ahead.views, self._memory))
        finally:
            encoder = self._gpu.encoder()
            ahead.put_back(encoder, self._buffers)
            self._gpu.submit(encoder)
        times = (lanes.ms, kernel.ms)
        self.param_stats_ms = None if None in times else sum(ms for ms in times if ms is not None)
        return replace(counted, update=result.update)

    def _param_kernel(
        self, constants: tuple[tuple[str, float], ...], *, applied: bool = False
    ) -> ParamStatsKernel:
        """Of the updates of this form; with `applied` of what w changed by."""
        variant = self._plan.variant
        name = "applied" if applied else f"{variant.optimizer} {variant.no_muon}"
        kernel = self._param_stats.get((name, constants))
        if kernel is None:
            rules, rule_of = ((APPLIED,), None) if applied else rules_of(self._plan)
            kernel = ParamStatsKernel(
                self._gpu, self._pipelines, self._memory, constants, rules=rules, rule_of=rule_of
            )
            self._param_stats[name, constants] = kernel
        return kernel

    def coding_errors(self, hyper: Hyper) -> tuple[ParamCodingError, ...]:
        """What coding does to m and v of the update to come; UsageError but between finalize and the update."""
        constants = self._before_update("Errors of coding m and v are measured")
        if not self._memory.coded:
            return ()
        kernel, classes = self._coding.get(constants), self._plan.classes
        if kernel is not None and kernel.classes != classes:
            kernel.close()
            kernel = self._last_coding = None
            self.mapper.coded(None)
        if kernel is None:
            kernel = CodingErrorKernel(self._gpu, self._pipelines, self._layout, constants, classes)
            self._coding[constants] = kernel
        found = kernel.run(self._memory, self._segment_uniforms(hyper))
        self._last_coding, self.coding_ms = kernel, kernel.ms
        self.mapper.coded(kernel)
        return found

    def block_errors(self, param: str) -> tuple[F32Array, F32Array]:
        """Rms errors of m and v by block of a param, as last measured by `coding_errors`."""
        if self._last_coding is None:
            raise UsageError("No errors of coding m and v have been measured yet.")
        return self._last_coding.block_errors(param)

    def drift_from(self, other: GpuStepper) -> tuple[ParamDrift, ...]:
        """How far the weights of a stepper made by `beside` are from these, param by param."""
        if self._drift is None or self._drift[0] != other.layout:
            if self._drift is not None:
                self._drift[1].close()
            self._drift = other.layout, DriftKernel(self._gpu, self._pipelines, self._layout, other.layout)
        kernel = self._drift[1]
        found = kernel.run(self._memory, other._memory)
        self.drift_ms = kernel.ms
        return found

    def decay_meter(self) -> GpuDecayMeter:
        """What adds up the decay that each element receives from here on; UsageError where that is not known."""
        name = self._plan.variant.optimizer
        if name not in DECAY_OPTIMIZERS:
            raise UsageError(f"{optimizer(name).title} is not followed: only AdamW and Adam with L2 are.")
        if self._memory.coded:
            raise UsageError("8-bit state is not followed: run in float32 or half precision.")
        if not self._cursor.between_steps:
            raise UsageError("Watching the decay can begin only between steps: finish this one first.")
        return GpuDecayMeter(
            self._gpu,
            self._pipelines,
            self._memory,
            lambda hyper: (self._before_update("Decay is added up"), self._segment_uniforms(hyper)),
            classes=self._plan.classes,
        )

    def beside(self, variant: Variant, *, undo_bytes: int = 0) -> GpuStepper:
        """A second stepper on this device, in another form, with w, m, v and the gradients of this moment."""
        if not self._cursor.between_steps:
            raise UsageError("A second run can start only between steps: finish this one first.")
        alone = self._plan.classes is not None
        layout = layout_for(self._layout.given, self._gpu.limits, variant, alone=alone)
        made = self._made_beside(layout, variant, self.state(), undo_bytes)
        if not self._cursor.at_end:
            made.begin_step(HostGradients(self.gradients()))
        return made

    def another(self, state: State, variant: Variant | None = None, *, undo_bytes: int = 0) -> GpuStepper:
        """A second stepper on this device from another state, in the same form and the same places, or in `variant`."""
        if variant is None or variant == self._plan.variant:
            return self._made_beside(self._layout, self._plan.variant, state, undo_bytes)
        alone = self._plan.classes is not None
        layout = layout_for(self._layout.given, self._gpu.limits, variant, alone=alone)
        return self._made_beside(layout, variant, state, undo_bytes)

    def _made_beside(self, layout: Layout, variant: Variant, state: State, undo_bytes: int) -> GpuStepper:
        used = self._gpu.memory_bytes
        try:
            return GpuStepper(
                self._gpu, layout, variant, state,
                undo_bytes=undo_bytes, clocks=self._timer.clocks, pipelines=self._pipelines,
            )  # fmt: skip
        except InspectorError:
            # What had been allocated for it goes with it.
            self._gpu.memory_bytes = used
            raise

    def _before_update(self, what: str) -> tuple[tuple[str, float], ...]:
        """Constants of a pass that works out the update before it runs; UsageError elsewhere.

        Where clipping is a pass of its own, the gradient is as it stands: before that pass or after it.
        """
        done = self._plan.dispatches[: self._cursor.dispatch]
        clips = [d for d in self._plan.dispatches if d.entry_point == "scale"]
        clipped = [d for d in done if d.entry_point == "scale"]
        if not any(d.entry_point == "finalize_grad_stats" for d in done) or any(d.updates for d in done):
            raise UsageError(f"{what} between finalize_grad_stats and the first update.")
        if clipped and len(clipped) < len(clips):
            raise UsageError("Part of the gradients is clipped: run the rest of the scale passes first.")
        return self._constants(clipped=bool(clipped))

    def _constants(self, *, clipped: bool) -> tuple[tuple[str, float], ...]:
        variant = self._plan.variant
        return (
            ("PRECISE", float(variant.numerics == "precise")),
            ("L2", float(optimizer(variant.optimizer).decay_in_gradient)),
            ("FUSED", float(not clipped)),
            ("CODEC", float(CODEC_NUMBER[variant.codec])),
        )

    def _uniform_values(self, hyper: Hyper) -> Mapping[str, F32Array]:
        variant = self._plan.variant
        return optimizer(variant.optimizer).uniforms(hyper, self._cursor.step, variant.numerics)

    def _segment_uniforms(self, hyper: Hyper) -> SegmentUniforms:
        return segment_uniforms(self._uniform_values(hyper), self._plan.classes, self._plan.variant.numerics)

    def read(self, lane: Lane, start: int, count: int, *, before: bool = False) -> F32Array:
        """`count` elements from `start`; with `before` as they were before the last dispatch."""
        if before:
            return self._memory.read_before(self._undo.top, lane, start, count)
        return self._memory.read(lane, start, count)

    def changed_lanes(self) -> tuple[Lane, ...]:
        """The lanes of which the last dispatch kept what it overwrote."""
        top, end = self._undo.top, self._memory.end
        return tuple(lane for lane in LANES if next(self._memory.saved(top, lane, 0, end), None))

    def state(self) -> HostState:
        """w, m, v by param name, read back; nothing of a moment that the optimizer does not keep."""
        wanted = [lane for lane in ("w", *MOMENTS) if lane in self._plan.lanes]
        end = self._memory.end
        begun = counting(len(wanted) * end)
        lanes: dict[Lane, F32Array] = {}
        for lane in wanted:
            lanes[lane] = np.empty(end, np.float32)
            for start in range(0, end, READ_AT_ONCE):
                count = min(READ_AT_ONCE, end - start)
                begun(count)
                lanes[lane][start : start + count] = self.read(lane, start, count)
        split: dict[str, dict[str, F32Array]] = {"w": {}, "m": {}, "v": {}}
        for lane, values in lanes.items():
            split[lane] = {s.name: values[s.offset : s.stop] for s in self._layout}
        coded = self._memory.coded_state()
        states = read_states(self._gpu, self._buffers, self._plan.states)
        return HostState(split["w"], split["m"], split["v"], self._cursor.finished_steps, coded, states)

    def state_of(self, param: str) -> Moments8bit | None:
        """m and v of a param as codes; None where they are float32."""
        return self._memory.codes_of(self._layout[param])

    def gradients(self) -> dict[str, F32Array]:
        """The gradient buffer by param name, read back."""
        values = self.read("g", 0, self._memory.end)
        return {s.name: values[s.offset : s.stop] for s in self._layout}

    def weights(self) -> dict[str, F32Array]:
        """w by param name, read back, each in its param's shape."""
        values = self.read("w", 0, self._memory.end)
        return {s.name: values[s.offset : s.stop].reshape(s.param.shape) for s in self._layout}

    def _stats_ahead(self, hyper: Hyper) -> GradStats:
        """grad_stats of the step at the cursor: what the dispatches up to finalize_grad_stats will leave.

        They run beside the step: what they write is put back.
        """
        stop = next(d.index for d in self._plan.dispatches if d.entry_point == "finalize_grad_stats") + 1
        first = self._cursor.dispatch
        if first >= stop:
            return self.grad_stats()
        with self._run_ahead(hyper, range(first, stop), "working out the gradient norm"):
            return self.grad_stats()

    @contextmanager
    def _run_ahead(self, hyper: Hyper, dispatches: range, what: str) -> Iterator[None]:
        """Run dispatches beside the step, and put back what they write once it has been looked at."""
        self._write_uniforms(hyper)
        prepared = [self._prepared[i] for i in dispatches]
        ranges = list(dict.fromkeys(r for each in prepared for r in each.ranges))
        packs = pack(ranges, KEPT_TOGETHER)
        kept = []
        try:
            encoder = self._gpu.encoder()
            for size, parts in packs:
                kept.append(self._gpu.storage("kept", size))
                for at, (name, offset, nbytes) in parts:
                    encoder.copy_buffer_to_buffer(self._buffers[name], offset, kept[-1], at, nbytes)
            with explained(what):
                record_dispatches(encoder, prepared, self._buffers, "ahead")
            self._gpu.submit(encoder)
            yield
        finally:
            encoder = self._gpu.encoder()
            for (_, parts), copy in zip(packs, kept, strict=False):
                for at, (name, offset, nbytes) in parts:
                    encoder.copy_buffer_to_buffer(copy, at, self._buffers[name], offset, nbytes)
            self._gpu.submit(encoder)
            for copy in kept:
                self._gpu.release(copy)

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
        kernels = (
            *self._param_stats.values(), *self._coding.values(), self._drift and self._drift[1], self._ahead,
        )  # fmt: skip
        for part in (self._timer, self._stats, self.mapper, self.looker, self._generator, *kernels):
            if part is not None:
                part.close()
        self._memory.close()

    def close(self) -> None:
        """Destroy the device and everything on it."""
        self._gpu.close()

    # --- inside

    @property
    def _buffers(self) -> dict[str, Any]:
        return self._memory.buffers

    @property
    def _gaps(self) -> int:
        return self._memory.end - self._layout.elements

    def half_weights(self) -> dict[str, npt.NDArray[np.float16]]:
        """The half-precision mirror by param name, read back; KeyError where the plan keeps none."""
        return self._memory.half_weights()

    def _prepare(self, plan: Plan) -> list[Prepared]:
        prepared = []
        for dispatch in plan.dispatches:
            slots = tuple((b.slot, b.access) for b in dispatch.bindings)
            pipeline = self._pipelines.get(
                dispatch.kernel, dispatch.entry_point, slots, dispatch.constants, dispatch.own
            )
            ranges = [(self._buffers[b.buffer], b.offset, b.bound_size) for b in dispatch.bindings]
            group = self._pipelines.bind(slots, ranges)
            writes = tuple((b.buffer, b.offset, b.size) for b in dispatch.writes)
            prepared.append(Prepared(dispatch, pipeline, group, writes))
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

    def _fill(self, state: State, told: Callable[[int], None] = lambda elements: None) -> None:
        given = {} if isinstance(state, GeneratedState) else state.states
        write_states(self._gpu, self._buffers, self._plan.states, given)
        if isinstance(state, GeneratedState):
            self._generate("w", state.normal, state.seed, 0, WEIGHT_STREAM)
            if self._memory.coded:
                for moment in MOMENTS:
                    self._memory.upload(moment, {}, {})
            return
        lanes: tuple[tuple[Lane, Mapping[str, F32Array]], ...] = (
            ("w", state.w), ("m", state.m), ("v", state.v),
        )  # fmt: skip
        for lane, values in lanes:
            self._memory.upload(lane, values, state.coded, told)
        if self._memory.coded:
            self._given = state

    def _load_gradients(self, gradients: Gradients) -> None:
        if isinstance(gradients, GeneratedGradients):
            self._generate("g", gradients.normal, gradients.seed, gradients.step, GRADIENT_STREAM)
        else:
            self._memory.upload("g", gradients.values, {})

    def _generate(self, lane: Lane, normal: Any, seed: int, step: int, stream: int) -> None:
        if self._generator is None:
            self._generator = Generator(
                self._gpu, self._pipelines, self._layout, binding_elements(self._layout, self._gpu.limits)
            )
        pages = [self._buffers[name] for name in self._memory.pages(lane)]
        self._generator.fill(pages, lane, normal, seed=seed, step=step, stream=stream)


def _counted(layout: Layout, values: Mapping[str, F32Array]) -> BufferStats:
    """Counts of a lane given by param name; a missing param is 0."""
    parts = []
    for s in layout:
        given = values.get(s.name)
        flat = np.zeros(s.numel, np.float32) if given is None else np.asarray(given, np.float32).reshape(-1)
        parts.append(buffer_stats(flat, start=s.offset))
    return added_up(parts)
