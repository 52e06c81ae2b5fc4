"""Runs a plan on the device, stops between any two dispatches, shows every buffer, and goes back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from inspector.codecs import Moments8bit
from inspector.coding_error import ParamCodingError
from inspector.drift import ParamDrift
from inspector.errors import InspectorError, UsageError
from inspector.floats import F32Array
from inspector.gpu.decay import GpuDecayMeter
from inspector.gpu.device import Gpu
from inspector.gpu.filling import Filling
from inspector.gpu.form_checks import can_take, check_form, check_kernel
from inspector.gpu.half_mirror import half_weights, mirror_weights
from inspector.gpu.looking import GpuLooker
from inspector.gpu.mapping import GpuMapper
from inspector.gpu.measures import Measures
from inspector.gpu.memory import LaneMemory
from inspector.gpu.param_states import write_states
from inspector.gpu.pipelines import Pipelines
from inspector.gpu.plan_runner import PlanRunner
from inspector.gpu.read_back import read_params, read_state
from inspector.gpu.timing import Clocks
from inspector.gpu.undo import UndoLog
from inspector.hyper import Hyper
from inspector.layout import Layout, Param
from inspector.optimizers import is_between, plan_step
from inspector.own_kernels import OwnKernel
from inspector.param_statistics import ParamTable
from inspector.plan import Plan, Variant, layout_for
from inspector.progress import EndedError, counting, part
from inspector.statistics import BufferStats
from inspector.stepping import (
    Cursor,
    DeviceInfo,
    Gradients,
    GradStats,
    HostGradients,
    HostState,
    KernelTime,
    State,
    UndoInfo,
)
from inspector.stores import LANES, Lane

DEFAULT_UNDO_BYTES = 1 << 30


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
        plan = plan_step(layout, gpu.limits, variant)
        self._pipelines = pipelines or Pipelines(gpu)
        self._pipelines.check_own(plan)
        count = len(plan.dispatches)
        self._cursor = Cursor(state.finished_steps, count, count)
        self._memory = LaneMemory(gpu, self._pipelines, plan)
        self._undo = UndoLog(gpu, undo_bytes)
        self._runner = PlanRunner(
            gpu, self._pipelines, self._memory, self._undo, plan, lambda: self._cursor, clocks
        )
        self.mapper = GpuMapper(
            gpu, self._pipelines, self._memory, self._undo, lambda: (self.plan, self._cursor)
        )
        """Reduces the mega-buffers to pixels."""
        self._measures = Measures(
            gpu, self._pipelines, self._memory, self._runner, self.mapper, lambda: self._cursor
        )
        self.looker = GpuLooker(
            gpu,
            self._pipelines,
            self._memory,
            self._undo,
            lambda: (self.plan, self._cursor),
            self._measures.grad_stats_ahead,
        )
        """Looks at single elements, where values lie, and matrices."""
        self._filling = Filling(gpu, self._pipelines, self._memory)
        self._filling.fill(plan, state, counting(3 * layout.elements))
        mirror_weights(gpu, self._pipelines, self._memory)

    # --- what it is

    @property
    def layout(self) -> Layout:
        """Where every param lies."""
        return self._layout

    @property
    def plan(self) -> Plan:
        """The plan it runs."""
        return self._runner.plan

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
        return {name: int(buffer.size) for name, buffer in self._memory.buffers.items()}

    @property
    def undo_info(self) -> UndoInfo:
        """How far it can go back."""
        return self._undo.info

    # --- forward

    def begin_step(self, gradients: Gradients, hyper: Hyper | None = None) -> None:
        """Put the gradients of the next step in place; the cursor moves to (t + 1, 0).

        The plan becomes that of the classes of params in `hyper`, if it is given.
        """
        plan = self.plan if hyper is None else self._runner.plan_for(hyper, self._cursor.step + 1)
        self._filling.forget()
        encoder = self._gpu.encoder()
        pages = [(name, 0, self._memory.buffers[name].size) for name in self._memory.pages("g")]
        self._undo.save(encoder, self._cursor, pages, self._memory.buffers)
        self._gpu.submit(encoder)
        self._filling.load_gradients(gradients)
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
        recorded = self._runner.record(hyper, until)
        self._cursor = Cursor(self._cursor.step, until, self._cursor.count)
        times = self._runner.submit(recorded)
        self._tell_map(hyper, first)
        return times

    def _tell_map(self, hyper: Hyper, first: int) -> None:
        """Dispatches from `first` to the cursor have run."""
        ran = self._runner.prepared[first : self._cursor.dispatch]
        self.mapper.wrote(written for each in ran for written in each.ranges)
        update = next((each.dispatch.index for each in ran if each.dispatch.updates), None)
        if update is not None:
            self.mapper.updated(self._cursor.step, hyper, update)
        if self._cursor.at_end:
            self.mapper.finished_step()

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
        plan = plan_step(self._layout, self._gpu.limits, variant, self.plan.classes, between=between)
        self._pipelines.check_own(plan)
        before, count = self.plan, len(plan.dispatches)
        alike = replace(variant, own=before.variant.own) == before.variant
        if alike and plan.buffers == before.buffers and count == len(before.dispatches):
            self._runner.plans.other_kernels()
        else:
            self._undo.clear()
            self._runner.plans.forget(self._cursor.step, plan)
        self._runner.use(plan)
        new = [each for each in plan.states if each not in before.states]
        write_states(self._gpu, self._memory.buffers, new, {})
        mirror_weights(self._gpu, self._pipelines, self._memory)
        self._cursor = Cursor(self._cursor.step, count if self._cursor.at_end else 0, count)
        self.mapper.went_back()

    def follow_classes(self, hyper: Hyper) -> None:
        """Take the plan for these classes of params, before the first dispatch of a step."""
        plan = self._runner.plan_for(hyper, self._cursor.step)
        if plan is self.plan:
            return
        if self._cursor.dispatch:
            raise UsageError(
                "Which params share settings can change only between steps: finish this one first."
            )
        self._begin_by(plan)

    def _begin_by(self, plan: Plan) -> None:
        """Run the step at the cursor, of which nothing has run, by this plan."""
        self._runner.use(plan)
        self._runner.plans.begin(self._cursor.step, plan)
        self._cursor = Cursor(self._cursor.step, 0, len(plan.dispatches))
        if self._runner.silence_idle():
            self.mapper.wrote_lane("g")

    def can_take(self, variant: Variant) -> bool:
        """True where layout and state allow that form; otherwise both have to be made anew."""
        return can_take(self.plan, self._memory, variant)

    def check_form(self, params: tuple[Param, ...], variant: Variant) -> None:
        """UsageError where params could not run in that form on this device; own kernels are compiled for it."""
        check_form(self._pipelines, self.plan, params, variant)

    def check_kernel(self, own: OwnKernel) -> None:
        """UsageError with file and line where an own kernel could not run in the present form; it is compiled."""
        check_kernel(self._pipelines, self.plan, own)

    # --- back

    def undo_dispatch(self) -> bool:
        """Take the last dispatch back, byte for byte; False where memory does not reach back.

        From the start of a step this takes back its gradients and the last dispatch of the step before.
        """
        return self._undo_to_any(lambda cursor: not cursor.at_end)

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
        self._filling.replace(self.plan, state, progress)
        count = len(self.plan.dispatches)
        self._cursor = Cursor(state.finished_steps, count, count)
        self._runner.plans.begin(0, self.plan)
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
            self._cursor = self._undo.undo(encoder, self._memory.buffers)
        self._gpu.submit(encoder)
        self._runner.use(self._runner.plans.plan(self.plan, self._runner.plans.cut_of(cursor.step)))
        self.mapper.went_back()
        return True

    # --- looking

    def grad_stats(self) -> GradStats:
        """gradNorm and clipScale as they stand in the buffer."""
        return self._measures.grad_stats()

    def counts(self, lane: Lane) -> BufferStats:
        """Counts over all params in one lane, without the histogram."""
        return self._measures.counts(lane)

    def given_counts(self, lane: Lane) -> BufferStats:
        """Counts over all params of a lane as the run was given it: 8-bit codes hold nothing that is not finite."""
        given = self._filling.given_counts(lane)
        return self.counts(lane) if given is None else given

    def stats(self, lane: Lane, param: str | None) -> BufferStats:
        """Statistics of a param, or of all, in one lane."""
        return self._measures.stats(lane, param)

    def param_stats(self, hyper: Hyper) -> ParamTable:
        """Statistics of every param and of the update to come; UsageError but between finalize and the update."""
        return self._measures.param_stats(hyper)

    def lane_stats(self, hyper: Hyper, elements: tuple[int, int]) -> ParamTable:
        """Statistics of the lanes of the params within `elements` as they are at any moment; nothing of the update."""
        return self._measures.lane_stats(hyper, elements)

    @property
    def param_stats_ms(self) -> float | None:
        """GPU time of the last param statistics."""
        return self._measures.params_ms

    def coding_errors(self, hyper: Hyper) -> tuple[ParamCodingError, ...]:
        """What coding does to m and v of the update to come; UsageError but between finalize and the update."""
        return self._measures.coding_errors(hyper)

    def block_errors(self, param: str) -> tuple[F32Array, F32Array]:
        """Rms errors of m and v by block of a param, as last measured by `coding_errors`."""
        return self._measures.block_errors(param)

    @property
    def coding_ms(self) -> float | None:
        """GPU time of the last coding errors."""
        return self._measures.coding_ms

    def drift_from(self, other: GpuStepper) -> tuple[ParamDrift, ...]:
        """How far the weights of a stepper made by `beside` are from these, param by param."""
        return self._measures.drift_from(other._memory, other.layout)

    @property
    def drift_ms(self) -> float | None:
        """GPU time of the last drift."""
        return self._measures.drift_ms

    def decay_meter(self) -> GpuDecayMeter:
        """What adds up the decay that each element receives from here on; UsageError where that is not known."""
        return self._measures.decay_meter()

    # --- other steppers on the device

    def beside(self, variant: Variant, *, undo_bytes: int = 0) -> GpuStepper:
        """A second stepper on this device, in another form, with w, m, v and the gradients of this moment."""
        if not self._cursor.between_steps:
            raise UsageError("A second run can start only between steps: finish this one first.")
        alone = self.plan.classes is not None
        layout = layout_for(self._layout.given, self._gpu.limits, variant, alone=alone)
        with part(0, 0.4):
            state = self.state()
        with part(0.4, 1):
            made = self._made_beside(layout, variant, state, undo_bytes)
        if not self._cursor.at_end:
            try:
                made.begin_step(HostGradients(self.gradients()))
            except InspectorError:
                made.release()
                raise
        return made

    def another(self, state: State, variant: Variant | None = None, *, undo_bytes: int = 0) -> GpuStepper:
        """A second stepper on this device from another state, in the same form and the same places, or in `variant`."""
        if variant is None or variant == self.plan.variant:
            return self._made_beside(self._layout, self.plan.variant, state, undo_bytes)
        alone = self.plan.classes is not None
        layout = layout_for(self._layout.given, self._gpu.limits, variant, alone=alone)
        return self._made_beside(layout, variant, state, undo_bytes)

    def _made_beside(self, layout: Layout, variant: Variant, state: State, undo_bytes: int) -> GpuStepper:
        used = self._gpu.memory_bytes
        try:
            return GpuStepper(
                self._gpu, layout, variant, state,
                undo_bytes=undo_bytes, clocks=self._runner.clocks, pipelines=self._pipelines,
            )  # fmt: skip
        except (InspectorError, EndedError):
            # What had been allocated for it goes with it.
            self._gpu.memory_bytes = used
            raise

    # --- reading back

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
        return read_state(self._gpu, self._memory, self.plan, self._cursor.finished_steps)

    def state_of(self, param: str) -> Moments8bit | None:
        """m and v of a param as codes; None where they are float32."""
        return self._memory.codes_of(self._layout[param])

    def gradients(self) -> dict[str, F32Array]:
        """The gradient buffer by param name, read back."""
        return read_params(self._memory, "g")

    def weights(self) -> dict[str, F32Array]:
        """w by param name, read back, each in its param's shape."""
        values = read_params(self._memory, "w")
        return {s.name: values[s.name].reshape(s.param.shape) for s in self._layout}

    def half_weights(self) -> dict[str, npt.NDArray[np.float16]]:
        """The half-precision mirror by param name, read back; KeyError where the plan keeps none."""
        return half_weights(self._gpu, self._memory)

    # --- the device

    def copy_gbps(self) -> float:
        """GB/s, bytes read plus written, that a plain copy reaches on this device; takes seconds."""
        return self._measures.copy_gbps()

    def through_ms(self, plan: Plan, seconds: float, between: Callable[[], None]) -> float:
        """Ms of a step by `plan`, one it ran in this form, of many for `seconds` with no timestamp between.

        `between` is called between submissions. The state that is left is none of a run: nothing goes on from it.
        """
        return self._measures.through_ms(plan, seconds, between)

    def release(self) -> None:
        """Give back the memory of everything on the device, which stays open for another stepper."""
        self._undo.clear()
        for each in (self._runner, self._measures, self.mapper, self.looker, self._filling):
            each.close()
        self._memory.close()

    def close(self) -> None:
        """Destroy the device and everything on it."""
        self._gpu.close()
