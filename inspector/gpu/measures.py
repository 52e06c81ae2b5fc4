"""What is measured of the step that a stepper stands in: counts, statistics of params, errors of coding, drift."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from inspector.codecs import CODEC_NUMBER
from inspector.coding_error import ParamCodingError
from inspector.decay import OPTIMIZERS as DECAY_OPTIMIZERS
from inspector.drift import ParamDrift
from inspector.errors import UsageError
from inspector.floats import F32Array
from inspector.gpu.class_plans import record_dispatches, record_step
from inspector.gpu.coding_error import CodingErrorKernel
from inspector.gpu.copying import copy_gbps
from inspector.gpu.decay import GpuDecayMeter
from inspector.gpu.device import Gpu, explained
from inspector.gpu.drift import DriftKernel
from inspector.gpu.mapping import GpuMapper
from inspector.gpu.memory import LaneMemory
from inspector.gpu.param_statistics import ParamStatsKernel
from inspector.gpu.pipelines import Pipelines
from inspector.gpu.plan_runner import PlanRunner
from inspector.gpu.repeating import seconds_each
from inspector.gpu.segment_uniforms import rules_of
from inspector.gpu.statistics import StatsKernel
from inspector.gpu.timing import now
from inspector.gpu.update_ahead import APPLIED, UpdateAhead
from inspector.hyper import Hyper
from inspector.layout import Layout
from inspector.optimizers import optimizer
from inspector.param_statistics import ParamTable
from inspector.plan import Plan
from inspector.statistics import BufferStats
from inspector.stepping import Cursor, GradStats
from inspector.stores import Lane


class Measures:
    """Leaves the step as it is: what has to run for a measure is put back, but by `through_ms`.

    `at` gives the cursor; `mapper` is told of errors of coding, which the map can show.
    """

    def __init__(
        self,
        gpu: Gpu,
        pipelines: Pipelines,
        memory: LaneMemory,
        runner: PlanRunner,
        mapper: GpuMapper,
        at: Callable[[], Cursor],
    ) -> None:
        self._gpu = gpu
        self._pipelines = pipelines
        self._memory = memory
        self._runner = runner
        self._mapper = mapper
        self._at = at
        self._stats = StatsKernel(gpu, pipelines)
        self._params: dict[tuple[str, tuple[tuple[str, float], ...]], ParamStatsKernel] = {}
        self._ahead: UpdateAhead | None = None
        self._coding: dict[tuple[tuple[str, float], ...], CodingErrorKernel] = {}
        self._last_coding: CodingErrorKernel | None = None
        self._drift: tuple[Layout, DriftKernel] | None = None
        self.params_ms: float | None = None
        """GPU time of the last param statistics."""
        self.coding_ms: float | None = None
        """GPU time of the last coding errors."""
        self.drift_ms: float | None = None
        """GPU time of the last drift."""

    @property
    def _layout(self) -> Layout:
        return self._runner.plan.layout

    def close(self) -> None:
        """Give back the memory of all kernels."""
        kernels = (
            self._stats, *self._params.values(), *self._coding.values(), self._drift and self._drift[1], self._ahead,
        )  # fmt: skip
        for kernel in kernels:
            if kernel is not None:
                kernel.close()

    # --- a lane

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

    def stats(self, lane: Lane, param: str | None) -> BufferStats:
        """Statistics of a param, or of all, in one lane."""
        if param is None:
            return self._stats.run(self._memory.views(lane, 0, self._memory.end), padding=self._gaps)
        segment = self._layout[param]
        return self._stats.run(self._memory.views(lane, segment.offset, segment.stop))

    @property
    def _gaps(self) -> int:
        return self._memory.end - self._layout.elements

    # --- the gradient norm

    def grad_stats(self) -> GradStats:
        """gradNorm and clipScale as they stand in the buffer."""
        norm, scale = self._gpu.read(self._memory.buffers["grad_stats"], 0, 8).view(np.float32)
        return GradStats(float(norm), float(scale))

    def grad_stats_ahead(self, hyper: Hyper) -> GradStats:
        """grad_stats of the step at the cursor: what the dispatches up to finalize_grad_stats will leave.

        They run beside the step: what they write is put back.
        """
        dispatches = self._runner.plan.dispatches
        stop = next(d.index for d in dispatches if d.entry_point == "finalize_grad_stats") + 1
        first = self._at().dispatch
        if first >= stop:
            return self.grad_stats()
        with self._runner.run_ahead(hyper, range(first, stop), "working out the gradient norm"):
            return self.grad_stats()

    # --- params, and the update to come

    def param_stats(self, hyper: Hyper) -> ParamTable:
        """Statistics of every param and of the update to come; UsageError but between finalize and the update."""
        constants = self._before_update("Statistics of the params are counted")
        runner, plan = self._runner, self._runner.plan
        if optimizer(plan.variant.optimizer).rule is None:
            return self._stats_of_result(hyper)
        kernel = self._param_kernel(constants)
        grad_stats, uniforms = self._memory.buffers["grad_stats"], runner.segment_uniforms(hyper)
        ahead = range(self._at().dispatch, next(d.index for d in plan.dispatches if d.updates))
        if any(plan.dispatches[i].entry_point != "scale" for i in ahead):
            # What the updates are given besides the lanes as they are.
            with runner.run_ahead(hyper, ahead, "working out the updates"):
                stats = kernel.run(grad_stats, uniforms)
        else:
            stats = kernel.run(grad_stats, uniforms)
        self.params_ms = kernel.ms
        return stats

    def lane_stats(self, hyper: Hyper, elements: tuple[int, int]) -> ParamTable:
        """Statistics of the lanes of the params within `elements` as they are at any moment; nothing of the update."""
        kernel = self._param_kernel(self._constants(clipped=False))
        uniforms = self._runner.segment_uniforms(hyper)
        return kernel.run(self._memory.buffers["grad_stats"], uniforms, elements)

    def _stats_of_result(self, hyper: Hyper) -> ParamTable:
        """The same where the update is known by running it alone: the rest of the step runs, and all is put back."""
        runner, buffers = self._runner, self._memory.buffers
        uniforms, stats = runner.segment_uniforms(hyper), buffers["grad_stats"]
        lanes = self._param_kernel(self._constants(clipped=False))
        counted = lanes.run(stats, uniforms)
        runner.write_uniforms(hyper)
        rest = runner.prepared[self._at().dispatch :]
        if self._ahead is None:
            self._ahead = UpdateAhead(self._gpu)
        ahead = self._ahead
        encoder = self._gpu.encoder()
        with explained("working out the update"):
            ahead.keep(encoder, dict.fromkeys(name for each in rest for name, *_ in each.ranges), buffers)
            record_dispatches(encoder, rest, buffers, "ahead")
        self._gpu.submit(encoder)
        try:
            kernel = self._param_kernel((), applied=True)
            result = kernel.run(stats, uniforms, views=partial(ahead.views, self._memory))
        finally:
            encoder = self._gpu.encoder()
            ahead.put_back(encoder, buffers)
            self._gpu.submit(encoder)
        times = (lanes.ms, kernel.ms)
        self.params_ms = None if None in times else sum(ms for ms in times if ms is not None)
        return replace(counted, update=result.update)

    def _param_kernel(
        self, constants: tuple[tuple[str, float], ...], *, applied: bool = False
    ) -> ParamStatsKernel:
        """Of the updates of this form; with `applied` of what w changed by."""
        plan = self._runner.plan
        name = "applied" if applied else f"{plan.variant.optimizer} {plan.variant.no_muon}"
        kernel = self._params.get((name, constants))
        if kernel is None:
            rules, rule_of = ((APPLIED,), None) if applied else rules_of(plan)
            kernel = ParamStatsKernel(
                self._gpu, self._pipelines, self._memory, constants, rules=rules, rule_of=rule_of
            )
            self._params[name, constants] = kernel
        return kernel

    # --- what is done to the state

    def coding_errors(self, hyper: Hyper) -> tuple[ParamCodingError, ...]:
        """What coding does to m and v of the update to come; UsageError but between finalize and the update."""
        constants = self._before_update("Errors of coding m and v are measured")
        if not self._memory.coded:
            return ()
        kernel, classes = self._coding.get(constants), self._runner.plan.classes
        if kernel is not None and kernel.classes != classes:
            kernel.close()
            kernel = self._last_coding = None
            self._mapper.coded(None)
        if kernel is None:
            kernel = CodingErrorKernel(self._gpu, self._pipelines, self._layout, constants, classes)
            self._coding[constants] = kernel
        found = kernel.run(self._memory, self._runner.segment_uniforms(hyper))
        self._last_coding, self.coding_ms = kernel, kernel.ms
        self._mapper.coded(kernel)
        return found

    def block_errors(self, param: str) -> tuple[F32Array, F32Array]:
        """Rms errors of m and v by block of a param, as last measured by `coding_errors`."""
        if self._last_coding is None:
            raise UsageError("No errors of coding m and v have been measured yet.")
        return self._last_coding.block_errors(param)

    def drift_from(self, memory: LaneMemory, layout: Layout) -> tuple[ParamDrift, ...]:
        """How far the weights in another memory are from these, param by param."""
        if self._drift is None or self._drift[0] != layout:
            if self._drift is not None:
                self._drift[1].close()
            self._drift = layout, DriftKernel(self._gpu, self._pipelines, self._layout, layout)
        kernel = self._drift[1]
        found = kernel.run(self._memory, memory)
        self.drift_ms = kernel.ms
        return found

    def decay_meter(self) -> GpuDecayMeter:
        """What adds up the decay that each element receives from here on; UsageError where that is not known."""
        name = self._runner.plan.variant.optimizer
        if name not in DECAY_OPTIMIZERS:
            raise UsageError(f"{optimizer(name).title} is not followed: only AdamW and Adam with L2 are.")
        if self._memory.coded:
            raise UsageError("8-bit state is not followed: run in float32 or half precision.")
        if not self._at().between_steps:
            raise UsageError("Watching the decay can begin only between steps: finish this one first.")
        return GpuDecayMeter(
            self._gpu,
            self._pipelines,
            self._memory,
            lambda hyper: (self._before_update("Decay is added up"), self._runner.segment_uniforms(hyper)),
            classes=self._runner.plan.classes,
        )

    # --- the device

    def copy_gbps(self) -> float:
        """GB/s, bytes read plus written, that a plain copy reaches on this device; takes seconds."""
        clocks = self._runner.clocks
        clocks.cold_at(now())
        measured = copy_gbps(self._gpu)
        # The device was busy all the while: what runs next runs at high clocks.
        clocks.done_at(now())
        return measured

    def through_ms(self, plan: Plan, seconds: float, between: Callable[[], None]) -> float:
        """Ms of a step by `plan`, of many one behind the other with no timestamp between; leaves other buffers."""
        prepared, buffers = self._runner.plans.prepared(plan), self._memory.buffers

        def steps(encoder: Any, count: int) -> None:
            for _ in range(count):
                record_step(encoder, prepared, buffers)

        return 1e3 * seconds_each(self._gpu, steps, seconds, 0.0, between)

    # --- where in the step

    def _before_update(self, what: str) -> tuple[tuple[str, float], ...]:
        """Constants of a pass that works out the update before it runs; UsageError elsewhere.

        Where clipping is a pass of its own, the gradient is as it stands: before that pass or after it.
        """
        dispatches = self._runner.plan.dispatches
        done = dispatches[: self._at().dispatch]
        clips = [d for d in dispatches if d.entry_point == "scale"]
        clipped = [d for d in done if d.entry_point == "scale"]
        if not any(d.entry_point == "finalize_grad_stats" for d in done) or any(d.updates for d in done):
            raise UsageError(f"{what} between finalize_grad_stats and the first update.")
        if clipped and len(clipped) < len(clips):
            raise UsageError("Part of the gradients is clipped: run the rest of the scale passes first.")
        return self._constants(clipped=bool(clipped))

    def _constants(self, *, clipped: bool) -> tuple[tuple[str, float], ...]:
        variant = self._runner.plan.variant
        return (
            ("PRECISE", float(variant.numerics == "precise")),
            ("L2", float(optimizer(variant.optimizer).decay_in_gradient)),
            ("FUSED", float(not clipped)),
            ("CODEC", float(CODEC_NUMBER[variant.codec])),
        )
