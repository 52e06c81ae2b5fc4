"""One element's update, line by line: as the GPU computes it in float32, and in float64 from the same start."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from inspector.errors import UsageError
from inspector.explaining import (
    CodedLine,
    ExplainedLine,
    coded_line,
    exact_lines,
    explained,
    line_values,
    place_of,
    same_bits,
    written_lanes,
)
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import Hyper
from inspector.optimizers import optimizer
from inspector.optimizers.adamw.oracle import clip_scale, kernel_norm
from inspector.param_hyper import param_step
from inspector.plan import Dispatch
from inspector.settings import Settings
from inspector.stores import MOMENTS


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where an element is worked on, and every line of its update.

    `agrees` is True where w, m and v of the lines are bit for bit what the real dispatch then wrote, or have the
    codes it wrote where the state is coded. `coded` has a line for m and one for v there, else none. `after` is what it
    wrote; neither it nor `before` has a moment that the optimizer does not keep. The lines are those of the built-in
    kernel also where a user's own runs in its place.
    """

    param: str
    index: int
    element: int
    step: int
    dispatch: Dispatch
    workgroup: tuple[int, int, int]
    thread: int
    lane: int
    before: dict[str, np.float32]
    after: dict[str, np.float32]
    lines: tuple[ExplainedLine, ...]
    agrees: bool
    coded: tuple[CodedLine, ...] = ()
    settings: Settings | None = None
    """What the param took the step with, where it has settings of its own."""
    t: int = 0
    """The step count that the step is to the param."""


def explain_element(stepper: GpuStepper, hyper: Hyper, param: str, index: int) -> Explanation:
    """Run the step at the cursor (at its start) to its end, and explain one element of `param` on the way.

    UsageError for a param that takes no part in the step.
    """
    segment = stepper.layout[param]
    if not 0 <= index < segment.numel:
        raise UsageError(
            f"{param} has {segment.numel:,} elements: give an index from 0 to {segment.numel - 1:,}."
        )
    element = segment.offset + index
    optimizer(stepper.plan.variant.optimizer).element_wise()
    own = param_step(hyper, stepper.layout, param, stepper.cursor.step)
    if own.idle:
        raise UsageError(
            f"{param} takes no part in step {stepper.cursor.step:,}: it has no gradient there, and w, m and v stay "
            f"as they are. The last step that it took was number {own.step:,}: explain another step."
        )
    stepper.follow_classes(hyper)
    plan, looker = stepper.plan, stepper.looker
    place = place_of(plan, param, index)
    assert place is not None
    assert place.workgroup is not None
    norm = kernel_norm(stepper.read("g", 0, stepper.layout.segments[-1].stop))
    while stepper.cursor.dispatch < place.dispatch.index:
        stepper.run_dispatch(hyper)
    before = looker.element(element)
    assert before is not None
    variant = plan.variant
    # Not fused, the gradient has been clipped by the pass before.
    clipped, coded = not variant.fused, segment.state == "8bit"
    stats = stepper.grad_stats()
    on_gpu = looker.update_lines(
        before, clip_scale=stats.clip_scale, clipped=clipped, hyper=own.hyper, step=own.step, decays=own.decays,
        coded=coded, variant=variant, param=segment.param,
    )  # fmt: skip
    stepper.run_to_end(hyper)
    after = looker.element(element)
    assert after is not None
    scale = float(clip_scale(norm, hyper.max_grad_norm))
    exact = exact_lines(
        before.as_arrays(), norm=norm, scale=scale, codec=variant.codec if coded else None, clipped=clipped,
        hyper=own.hyper, step=own.step, decays=own.decays, variant=variant, param=segment.param,
    )  # fmt: skip
    lines = explained(exact, line_values(exact, (stats.grad_norm, stats.clip_scale), on_gpu))
    by_name = {line.name: line.f32 for line in lines}
    kept: tuple[CodedLine, ...] = ()
    if after.codes is not None:
        kept = tuple(coded_line(lane, by_name[lane], after.codes) for lane in MOMENTS)
    written = written_lanes(plan, coded=bool(kept))
    agrees = all(each.agrees for each in kept) and all(
        same_bits(by_name[lane], after[lane]) for lane in written
    )
    return Explanation(
        param, index, element, stepper.cursor.step, place.dispatch, place.workgroup, place.thread, place.lane,
        {lane: before[lane] for lane in plan.lanes}, {lane: after[lane] for lane in plan.lanes},
        lines, agrees, kept,
        None if hyper.per_param is None else hyper.of_param(stepper.layout.number_of(param), decays=True), own.step,
    )  # fmt: skip
