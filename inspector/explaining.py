"""One element's update as data: where it is worked on, every line in float32 and float64, and what was coded of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from inspector.codecs import BLOCK, Codec, ambiguous, decode_one, encode_with
from inspector.floats import F32Array, ulp_size
from inspector.hyper import Hyper
from inspector.layout import Param
from inspector.optimizers import optimizer_of
from inspector.optimizers.adamw.oracle_8bit import update_decoded
from inspector.optimizers.definition import LINE_SLOTS
from inspector.optimizers.evaluation import Line
from inspector.plan import WORKGROUP_SIZE, Dispatch, Plan, Variant
from inspector.stores import LANES, MOMENTS, Lane, store_at

LINES = 10
"""Lines of the update itself, from the gradient as clipped to w; gradNorm and clipScale stand before them."""


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
class ElementCodes:
    """An element's m and v as kept in 8 bits: the code of each, and the scale of its block of 256."""

    codec: Codec
    m: int
    v: int
    m_scale: np.float32
    v_scale: np.float32


@dataclass(frozen=True, slots=True)
class ElementValues:
    """An element of w, g, m and v at one moment, m and v decoded where they are kept in 8 bits as `codes`."""

    w: np.float32
    g: np.float32
    m: np.float32
    v: np.float32
    codes: ElementCodes | None = None

    def __getitem__(self, lane: Lane) -> np.float32:
        value: np.float32 = getattr(self, lane)
        return value

    def as_arrays(self) -> dict[Lane, F32Array]:
        """Each lane as float32[1]."""
        return {lane: np.array([self[lane]], np.float32) for lane in LANES}


@dataclass(frozen=True, slots=True)
class Place:
    """What works on an element: the dispatch that updates it, and in that the workgroup, the thread and its lane.

    `lane` is the place in the vec4 of the thread, 0 where each takes one element. `block` counts the 8-bit blocks of
    256 within the param, None where m and v are float32. `workgroup` is None where tables say who works on what.
    """

    dispatch: Dispatch
    workgroup: tuple[int, int, int] | None
    thread: int
    lane: int
    block: int | None = None


def dispatch_of(plan: Plan, element: int) -> Dispatch | None:
    """The dispatch that updates an element of the mega-buffer; None in a gap."""
    for dispatch in plan.dispatches:
        if dispatch.updates and dispatch.elements[0] <= element < dispatch.elements[1]:
            return dispatch
    return None


def prepared_by(plan: Plan, element: int) -> Dispatch | None:
    """The last dispatch before the update of an element that puts in m's or v's place what the update takes from there.

    None where it takes them as the step found them.
    """
    update = dispatch_of(plan, element)
    lanes = [lane for lane in MOMENTS if lane in plan.lanes]
    places = [
        (store.buffer, store.offset(element)) for store in (store_at(plan.layout, n, element) for n in lanes)
    ]
    found = None
    for dispatch in plan.dispatches[: update.index] if update else ():
        if not dispatch.updates and any(
            b.buffer == buffer and b.offset <= at < b.stop for b in dispatch.writes for buffer, at in places
        ):
            found = dispatch
    return found


def place_of(plan: Plan, param: str, index: int) -> Place | None:
    """Where element `index`, flat, of a param is worked on; None where no dispatch updates it."""
    segment = plan.layout[param]
    dispatch = dispatch_of(plan, segment.offset + index)
    if dispatch is None:
        return None
    if dispatch.by_tables:
        return Place(dispatch, None, 0, 0)
    group, thread, lane = placed(dispatch, segment.offset + index)
    return Place(dispatch, group, thread, lane, index // BLOCK if segment.state == "8bit" else None)


def placed(dispatch: Dispatch, element: int) -> tuple[tuple[int, int, int], int, int]:
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


def exact_lines(
    before: Mapping[Lane, F32Array],
    *,
    norm: float,
    scale: float,
    codec: Codec | None,
    clipped: bool,
    hyper: Hyper,
    step: int,
    decays: bool,
    variant: Variant,
    param: Param,
) -> tuple[Line, ...]:
    """All lines in float64 from the values before: gradNorm, clipScale, then the update's.

    `norm` is that of all gradients, `scale` the clip scale; `clipped` where a pass before has multiplied g by that
    already. `codec` is that of m and v, None where they are float32; `variant` the form that runs, `param` the one that
    the element is of.
    """
    values = (before["w"], before["g"], before["m"], before["v"])
    used, rule, numerics = 1.0 if clipped else scale, optimizer_of(variant, param), variant.numerics
    if codec is None:
        lines = rule.element_wise()(
            *values, scale=used, hyper=hyper, step=step, decays=decays, numerics=numerics
        ).lines
    else:
        lines = update_decoded(
            *values, codec=codec, scale=used, hyper=rule.as_used(hyper), step=step, decays=decays, numerics=numerics,
            l2=rule.decay_in_gradient,
        )[1]  # fmt: skip
    return (
        Line("gradNorm", "√Σg² over finite g", np.array([norm])),
        Line("clipScale", "min(1, max_grad_norm / max(gradNorm, 1e-6))", np.array([scale])),
        *lines,
    )


def explained(exact: Sequence[Line], values: F32Array) -> tuple[ExplainedLine, ...]:
    """Each line beside the value that was computed for it, float32, one a line."""
    return tuple(_explained(line, value) for line, value in zip(exact, values, strict=True))


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


def coded_line(lane: Literal["m", "v"], value: np.float32, codes: ElementCodes) -> CodedLine:
    """What a value became when its block was coded, and whether that is its code."""
    code = codes.m if lane == "m" else codes.v
    scale = codes.m_scale if lane == "m" else codes.v_scale
    values = np.zeros(BLOCK, np.float32)
    values[0] = value
    one_scale = np.array([scale], np.float32)
    stored = decode_one(codes.codec, lane, code, scale)
    wanted = encode_with(codes.codec, lane, values, one_scale)[0]
    # A division on the device may be off by 2.5 ULP (WGSL §15.7), and that of the scale as well.
    near = ambiguous(codes.codec, lane, values, one_scale, ulps=8)[0]
    return CodedLine(lane, value, code, np.float32(scale), stored, bool(code == wanted or near))


def same_bits(a: np.float32, b: np.float32) -> bool:
    """True where two numbers have the same bits, or are both NaN."""
    one, other = np.array([a], np.float32), np.array([b], np.float32)
    return bool(one.view(np.uint32)[0] == other.view(np.uint32)[0]) or bool(np.isnan(a) and np.isnan(b))


def line_values(exact: Sequence[Line], stats: tuple[float, float], update_lines: F32Array) -> F32Array:
    """The values of lines: gradNorm and clipScale, then those of the update, of what the kernels give, float32[10]."""
    slots = [LINE_SLOTS[line.name] for line in exact[2:]]
    return np.concatenate([np.array(stats, np.float32), update_lines[slots]])


def written_lanes(plan: Plan, *, coded: bool) -> tuple[Lane, ...]:
    """The lanes whose values the update leaves as they are in its lines: not codes, and no moment that is not kept."""
    return tuple(lane for lane in plan.lanes if lane != "g" and not (coded and lane in MOMENTS))
