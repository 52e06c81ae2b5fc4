"""One element's update, line by line: as the GPU computes it in float32, and in float64 from the same start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from inspector.codecs import BLOCK, Codec, ambiguous, decode, encode_with
from inspector.errors import UsageError
from inspector.floats import F32Array, ulp_size
from inspector.gpu.stepper import GpuStepper
from inspector.hyper import Hyper
from inspector.layout import Segment
from inspector.optimizers import optimizer
from inspector.optimizers.adamw.oracle import clip_scale, kernel_norm
from inspector.optimizers.adamw.oracle_8bit import update_decoded
from inspector.optimizers.definition import LINE_SLOTS, Optimizer
from inspector.optimizers.evaluation import Line
from inspector.param_hyper import param_step
from inspector.plan import WORKGROUP_SIZE, Dispatch
from inspector.settings import Settings
from inspector.stores import LANES, MOMENTS, Lane


@dataclass(frozen=True, slots=True)
class ExplainedLine:
    """`f32` as the GPU computed it; `ulp` is its distance from `f64`, in units of float32's spacing there."""

    name: str
    formula: str
    f32: np.float32
    f64: float
    ulp: float


@dataclass(frozen=True, slots=True)
class CodedLine:
    """A moment as it was calculated and as it is kept: its 8-bit code, the scale of its block, and what they stand for.

    `agrees` is True where the code is the one that the value has at that scale.
    """

    lane: Literal["m", "v"]
    value: np.float32
    code: int
    scale: np.float32
    stored: np.float32
    agrees: bool


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
    own = param_step(hyper, stepper.layout, param, stepper.cursor.step)
    if own.idle:
        raise UsageError(
            f"{param} takes no part in step {stepper.cursor.step:,}: it has no gradient there, and w, m and v stay "
            f"as they are. The last step that it took was number {own.step:,}: explain another step."
        )
    stepper.follow_classes(hyper)
    plan = stepper.plan
    dispatch = next(d for d in plan.dispatches if d.updates and d.elements[0] <= element < d.elements[1])
    norm = kernel_norm(stepper.read("g", 0, stepper.layout.segments[-1].stop))
    while stepper.cursor.dispatch < dispatch.index:
        stepper.run_dispatch(hyper)
    before = {lane: stepper.read(lane, element, 1) for lane in LANES}
    on_gpu = stepper.explain(hyper, dispatch, element)
    stats = stepper.grad_stats()
    stepper.run_to_end(hyper)
    after = {lane: stepper.read(lane, element, 1) for lane in LANES}

    scale = clip_scale(norm, hyper.max_grad_norm)
    variant = plan.variant
    rule = optimizer(variant.optimizer)
    exact = _exact_lines(
        rule, before, codec=variant.codec if segment.state == "8bit" else None,
        # Not fused, the gradient has been clipped by the pass before.
        scale=scale if variant.fused else 1.0, hyper=rule.as_used(own.hyper), step=own.step,
        decays=own.decays, numerics=variant.numerics,
    )  # fmt: skip
    lines = [
        Line("gradNorm", "√Σg² over finite g", np.array([norm])),
        Line("clipScale", "min(1, max_grad_norm / max(gradNorm, 1e-6))", np.array([scale])),
        *exact,
    ]
    computed = on_gpu[[LINE_SLOTS[line.name] for line in exact]]
    values = np.concatenate([np.array([stats.grad_norm, stats.clip_scale], np.float32), computed])
    explained = tuple(_explained(line, value) for line, value in zip(lines, values, strict=True))
    kept: tuple[Lane, ...] = tuple(lane for lane in ("m", "v", "w") if lane in plan.lanes)
    written: dict[Lane, np.float32] = {lane: on_gpu[LINE_SLOTS[lane]] for lane in kept}
    coded: tuple[CodedLine, ...] = ()
    if segment.state == "8bit":
        coded = tuple(_coded_line(stepper, segment, index, lane, written.pop(lane)) for lane in MOMENTS)
    agrees = all(c.agrees for c in coded) and all(
        _same_bits(np.array([value]), after[lane]) for lane, value in written.items()
    )
    group, thread, lane = _placed(dispatch, element)
    return Explanation(
        param, index, element, stepper.cursor.step, dispatch, group, thread, lane,
        {lane: before[lane][0] for lane in plan.lanes}, {lane: after[lane][0] for lane in plan.lanes},
        explained, agrees, coded,
        None if hyper.per_param is None else hyper.of_param(stepper.layout.number_of(param), decays=True), own.step,
    )  # fmt: skip


def _exact_lines(
    rule: Optimizer, before: dict[Lane, F32Array], *, codec: Codec | None, **settings: Any
) -> tuple[Line, ...]:
    """The lines in float64, from the values before."""
    values = (before["w"], before["g"], before["m"], before["v"])
    if codec is None:
        return rule.update(*values, **settings).lines
    return update_decoded(*values, codec=codec, l2=rule.decay_in_gradient, **settings)[1]


def _coded_line(
    stepper: GpuStepper, segment: Segment, index: int, lane: Literal["m", "v"], value: np.float32
) -> CodedLine:
    """What a value became when its block was coded, and whether that is its code."""
    state = stepper.state_of(segment.name)
    assert state is not None
    coded = state.m if lane == "m" else state.v
    block = index // BLOCK
    code, scale = coded.codes[index], coded.scales[block]
    stored = decode(
        state.codec, lane, coded.codes[block * BLOCK : (block + 1) * BLOCK], coded.scales[block : block + 1]
    )
    values = np.zeros(BLOCK, np.float32)
    values[index % BLOCK] = value
    one_scale = coded.scales[block : block + 1]
    wanted = encode_with(state.codec, lane, values, one_scale)[index % BLOCK]
    # A division on the device may be off by 2.5 ULP (WGSL §15.7), and that of the scale as well.
    near = ambiguous(state.codec, lane, values, one_scale, ulps=8)[index % BLOCK]
    got = np.float32(stored[index % BLOCK])
    return CodedLine(lane, value, int(code), np.float32(scale), got, bool(code == wanted or near))


def _explained(line: Line, value: np.float32) -> ExplainedLine:
    exact = float(line.value[0])
    with np.errstate(all="ignore"):
        if np.isnan(exact) or np.isnan(value):
            ulp = 0.0 if np.isnan(exact) and np.isnan(value) else float("nan")
        elif np.float32(exact) == value:
            ulp = abs(float(value) - exact) / float(ulp_size(exact)) if np.isfinite(value) else 0.0
        else:
            ulp = abs(float(value) - exact) / float(ulp_size(exact))
    return ExplainedLine(line.name, line.formula, np.float32(value), exact, ulp)


def _same_bits(a: F32Array, b: F32Array) -> bool:
    return bool(np.all(a.view(np.uint32) == b.view(np.uint32))) or bool(
        np.isnan(a).all() and np.isnan(b).all()
    )


def _placed(dispatch: Dispatch, element: int) -> tuple[tuple[int, int, int], int, int]:
    """Workgroup, thread in it and lane of its vec4 that work on an element."""
    at = element - dispatch.elements[0]
    if dispatch.own is not None:
        flat, lane = divmod(at, dispatch.own.item_elements)
        group, thread = divmod(flat, dispatch.own.threads)
        return (group % dispatch.groups[0], group // dispatch.groups[0], 0), thread, lane
    lane = 0 if dispatch.kernel.startswith("published/") else at % 4
    flat = at if dispatch.kernel.startswith("published/") else at // 4
    group, thread = divmod(flat, WORKGROUP_SIZE)
    return (group % dispatch.groups[0], group // dispatch.groups[0], 0), thread, lane
