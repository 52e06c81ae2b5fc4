"""An element under the microscope in words and rows: where it is worked on, its lines, how far it is known. No Qt."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from inspector.addresses import address
from inspector.explaining import CodedLine, ExplainedLine
from inspector.plan import Dispatch
from inspector.runtime.element_trail import ElementTrail
from inspector.runtime.microscope import ElementPicture
from inspector.stores import Lane, store_at
from inspector.ui import format as fmt

CHOOSE = (
    "Pick an element: click on the map or in the values, Enter on a finding, or type its address above, as in "
    "h.0.attn.qkv.weight[3, 17]."
)
SUBSCRIPT = "₀"
F64_DIGITS = 13
"""Three more than any float32 needs: the first that differ from it are seen."""
MEANS = {
    "w₀": "The weight as the update reads it",
    "g₀": "The gradient as the update reads it",
    "m₀": "The first moment as the update reads it, decoded where it is kept in 8 bits",
    "v₀": "The second moment as the update reads it, decoded where it is kept in 8 bits",
    "gradNorm": "The norm of all gradients of the step, non-finite ones left out: of the gradient's unit",
    "clipScale": "What every gradient is multiplied by so that the norm is at most max_grad_norm: no unit, 0 to 1",
    "g'": "The gradient as the update takes it: clipped, 0 where it is not finite",
    "m": "The first moment: a running mean of g'",
    "v": "The second moment: a running mean of g'²",
    "m̂": "m without the bias towards its start at 0",
    "v̂": "v without the bias towards its start at 0",
    "denominator": "What m_hat is divided by: about the size of recent gradients",
    "ratio": "m_hat measured in recent gradients: no unit, about −1 to 1",
    "direction": "The gradient with weight decay added to it: of the gradient's unit",
    "blend": "The gradient blended into the first moment, of which only the sign is used",
    "sign": "The direction of the step, of the same size for every element: −1, 0 or 1",
    "decay": "What weight decay adds, before the learning rate: of the weight's unit",
    "update": "What is taken off the weight: of the weight's unit",
    "w": "The weight after the update: as it was where the update is not finite",
}
"""What each line is, and in what unit."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the update: name, formula, the float32 as this GPU computes it, the float64, and the ULP between.

    `bits` is the float32 in hex; `help` what the line is; `bad` where the float32 is not finite.
    """

    name: str
    formula: str
    f32: str
    f64: str
    ulp: str
    bits: str
    help: str
    bad: bool = False

    @property
    def title(self) -> str:
        """The name as it is written: as in the WGSL where fonts may lack the sign."""
        return plain(self.name)


def rows(picture: ElementPicture | None) -> tuple[Row, ...]:
    """What the update is given, its lines, and what was kept in 8 bits of m and v."""
    if picture is None or not picture.lines:
        return ()
    given = tuple(_given(picture, lane) for lane in picture.plan.lanes) if picture.given is not None else ()
    lines = tuple(_line(line, known=picture.exact_norm or i > 1) for i, line in enumerate(picture.lines))
    return (*given, *lines, *(_coded(line) for line in picture.coded))


def _given(picture: ElementPicture, lane: Lane) -> Row:
    assert picture.given is not None
    value = picture.given[lane]
    store = store_at(picture.plan.layout, lane, picture.element)
    where = f"{store.buffer} at byte {store.offset(picture.element):,}"
    codes = picture.given.codes
    if codes is not None and store.scales is not None:
        code, scale = (codes.m, codes.m_scale) if lane == "m" else (codes.v, codes.v_scale)
        where = f"code {code} · scale {fmt.exact(scale)}"
    name = lane + SUBSCRIPT
    return Row(
        name, where, fmt.exact(value), fmt.number(float(value), F64_DIGITS), "0", _bits(value),
        f"{MEANS[name]}. {_binding(picture, lane)}", not np.isfinite(value),
    )  # fmt: skip


def _line(line: ExplainedLine, *, known: bool) -> Row:
    f64 = fmt.number(line.f64, F64_DIGITS) if known else fmt.NA
    return Row(
        line.name, plain(line.formula), fmt.exact(line.f32), f64, ulp_text(line.ulp) if known else fmt.NA,
        _bits(line.f32), MEANS.get(line.name, ""), not np.isfinite(line.f32),
    )  # fmt: skip


def _coded(line: CodedLine) -> Row:
    error = float(line.stored) - float(line.value)
    says = f"{line.lane} as its block of 256 keeps it: code · scale; the last figure is what coding lost"
    return Row(
        f"{line.lane} kept", f"code {line.code} · scale {fmt.exact(line.scale)}", fmt.exact(line.stored),
        fmt.exact(line.value), f"off by {fmt.number(error, 3)}", _bits(line.stored), says,
        not np.isfinite(line.stored),
    )  # fmt: skip


def ulp_text(ulp: float) -> str:
    """A distance in ULP: two decimals, fewer where it is large."""
    if math.isnan(ulp):
        return "not both NaN"
    if math.isinf(ulp) or ulp >= 1e15:
        return "∞" if math.isinf(ulp) else fmt.number(ulp, 3)
    return f"{ulp:,.2f}" if ulp < 1000 else f"{ulp:,.0f}"


def address_text(picture: ElementPicture) -> str:
    """The element as it is typed."""
    return address(picture.plan.layout[picture.param].param, picture.index)


def where_text(picture: ElementPicture) -> str:
    """Thread, workgroup, dispatch, block of 8-bit state, and place in memory."""
    place = picture.place
    parts = []
    if place is not None:
        dispatch = place.dispatch
        if place.workgroup is not None:
            group = "·".join(str(n) for n in place.workgroup[: 2 if dispatch.groups[1] > 1 else 1])
            lane = f", lane {place.lane} of its vec4" if _vector(dispatch) else ""
            parts.append(f"thread {place.thread}{lane} of workgroup {group}")
        parts.append(f"dispatch {dispatch.index + 1} {dispatch.label}")
        if place.block is not None:
            parts.append(f"8-bit block {place.block:,} of the param")
    parts.append(f"element {picture.element:,} of the mega-buffers")
    return " · ".join(parts)


def _vector(dispatch: Dispatch) -> bool:
    if dispatch.own is not None:
        return dispatch.own.item_elements > 1
    return not dispatch.kernel.startswith("published/")


def bindings_text(picture: ElementPicture) -> str:
    """What of each buffer the dispatch binds, a line a buffer, and where in it the element lies."""
    if picture.place is None:
        return ""
    return "\n".join(_binding(picture, lane) for lane in picture.plan.lanes)


def _binding(picture: ElementPicture, lane: Lane) -> str:
    place = picture.place
    store = store_at(picture.plan.layout, lane, picture.element)
    texts = []
    for name, buffer, at in (
        (f"{lane}_packed" if store.coded else lane, store.buffer, store.offset(picture.element)),
        *((((f"{lane}_scale"), store.scales, store.scale_offset(picture.element)),) if store.scales else ()),
    ):
        bound = next((b for b in place.dispatch.bindings if b.name == name), None) if place else None
        slot = f"slot {bound.slot} {name}: " if bound is not None else f"{name}: "
        span = f" of bytes {bound.offset:,} to {bound.stop - 1:,} that are bound" if bound is not None else ""
        texts.append(f"{slot}byte {at:,} of buffer {buffer}{span}")
    return "; ".join(texts)


def stage_text(picture: ElementPicture) -> str:
    """Where in the step the element is, and what the lines are held against."""
    step = f"step {picture.step:,}"
    if picture.missing:
        return picture.missing
    place = picture.place
    number = place.dispatch.index + 1 if place is not None else 0
    own = place is not None and place.dispatch.own is not None
    if picture.stage == "ahead":
        return f"{step}, before dispatch {number} updates it; gradNorm is worked out ahead of its dispatches"
    if picture.stage == "given":
        return f"{step}, before dispatch {number} updates it"
    start = (
        f"{step} as recorded, its lines worked out from captured values"
        if picture.stage == "captured"
        else (f"{step}, after dispatch {number} updated it")
    )
    if picture.agrees is None:
        return start
    coded = bool(picture.coded)
    what = (
        "w as in the last line and the codes of m and v"
        if coded
        else f"{_listed(picture)} bit for bit as in these lines"
    )
    if picture.agrees:
        return f"{start}: it wrote {what}"
    if own:
        return f"{start}: your own kernel wrote other bits than these lines of the built-in one"
    return f"{start}: it wrote other bits than these lines"


def _listed(picture: ElementPicture) -> str:
    """The lanes that the update writes: "w, m and v"."""
    *others, last = (lane for lane in ("w", "m", "v") if lane in picture.plan.lanes)
    return f"{', '.join(others)} and {last}" if others else last


def wrote_differently(picture: ElementPicture) -> bool:
    """True where what was written is not what the lines say."""
    return picture.agrees is False


def trail_text(trail: ElementTrail) -> str:
    """Which steps are known, and from where."""
    span = trail.span
    if span is None:
        return "Nothing is known of it over steps yet: run a step."
    parts = []
    if trail.from_memory:
        parts.append(f"{fmt.plural(trail.from_memory, 'step')} from memory")
    if trail.captured:
        read = f"{trail.read:,} of {trail.captured:,}" if trail.read < trail.captured else f"{trail.read:,}"
        spread = (
            f", evenly spread among {trail.all_captured:,}" if trail.captured < trail.all_captured else ""
        )
        parts.append(f"{read} captured values{spread}")
    text = f"steps {span[0]:,} to {span[1]:,}: {', '.join(parts)}"
    return f"{text}. {trail.problem}" if trail.problem else text


def plain(text: str) -> str:
    """m̂ and v̂ as the kernels call them: many fonts leave the hat out, and m̂ would read m."""
    return text.replace("m̂", "m_hat").replace("v̂", "v_hat")


def _bits(value: np.float32) -> str:
    return f"{int(np.array([value], np.float32).view(np.uint32)[0]):08x}"
