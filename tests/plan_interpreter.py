"""Runs a plan on the host to see which elements its dispatches touch, in which order, and what its norm adds up.

Written from the contract of the kernels (CONTRACT below: slots, and what thread k does), not from the code that makes
plans. Gradients are small whole numbers in float64, so every sum is exact and an element counted twice or never shows.
An update has no values here: it leaves counts, and in every buffer the number of the element that each unit stands for.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from inspector.plan import Binding, Dispatch, Plan

GROUP = 256
BLOCK = 256
F32 = 4
VEC = 4

Ints = npt.NDArray[np.int64]

RW, R, U = "read_write", "read", "uniform"
LANES = [("w", RW), ("g", RW)]
STATE = [("m", RW), ("v", RW)]
CODED = [("m_packed", RW), ("v_packed", RW), ("m_scale", RW), ("v_scale", RW)]
SETTINGS = [("grad_stats", R), ("size", U), ("hp", U), ("bias", U)]
CONTRACT = {
    "reduce_norm_sq": [("data", R), ("result", RW), ("n", U)],
    "reduce_norm_sq_final": [("data", R), ("result", RW), ("n", U)],
    "finalize_grad_stats": [("norm_sq", R), ("grad_stats", RW), ("max_grad_norm", U)],
    "adamw_update": [*LANES, *STATE, *SETTINGS],
    "adamw_update_f16": [*LANES, *STATE, ("w_f16", RW), *SETTINGS],
    "adamw_8bit_update": [*LANES, *CODED, *SETTINGS],
    "scale": [("data", RW), ("grad_stats", R), ("n", U)],
    "fill_zero": [("data", RW), ("n", U)],
    "cast_f32_to_f16": [("data", R), ("w_f16", RW), ("n", U)],
}
"""The slots of each entry point, from 0 on: name and access."""
UNIT_BYTES = {"w_f16": 2, "m_packed": 1, "v_packed": 1}
"""Bytes of a unit of a buffer: an element, or the scale of a block; 4 where nothing is said."""
DISPATCH_CONSTANTS = {"PRECISE", "L2", "FUSED", "CODEC", "WD_ELEMENTS"}
CODECS = ["linear", "sqrt", "dynamic"]


@dataclass
class Run:
    """What a plan did. Counts are by element of the mega-buffer, gaps included."""

    plan: Plan
    buffers: dict[str, npt.NDArray[np.float64]]
    """Values of g and of the scratch buffers."""
    scaled: Ints
    updated: Ints
    decayed: Ints
    zeroed: Ints
    mirrored: Ints
    kernel: npt.NDArray[np.object_]
    """The entry point that updated each element."""
    of: Ints
    """The class whose settings updated each element, -1 where params share theirs."""
    owners: dict[str, Ints] = field(default_factory=dict)
    """By buffer of w, m, v, codes, scales and mirror: the element that each unit stands for, -1 where none does; for a
    scale the first of its block."""
    norm_sq: float | None = None
    """What finalize_grad_stats was given."""


def interpret(plan: Plan, gradients: npt.NDArray[np.float64]) -> Run:
    """Run every dispatch in order on `gradients` (one value an element of the mega-buffer, gaps zero)."""
    n = plan.layout.padded_elements
    counts = [np.zeros(n, np.int64) for _ in range(5)]
    run = Run(
        plan, {b.name: np.zeros(-(-b.size // F32)) for b in plan.buffers}, *counts, np.full(n, None, object),
        np.full(n, -1, np.int64),
    )  # fmt: skip
    pages = plan.layout.pages
    for page in pages:
        name = "g" if len(pages) == 1 else f"g[{page.index}]"
        run.buffers[name][:] = gradients[page.start : page.stop]
    # What an earlier step left behind: what a dispatch does not clear or overwrite, it must not count.
    if "norm_sq" in run.buffers:
        run.buffers["norm_sq"][:] = 1e9
    for dispatch in plan.dispatches:
        _check_slots(dispatch)
        for clear in dispatch.clears:
            _values(run, clear)[:] = 0
        match dispatch.entry_point:
            case "reduce_norm_sq":
                _reduce(run, dispatch)
            case "reduce_norm_sq_final":
                data, result = _slot(dispatch, "data"), _slot(dispatch, "result")
                _values(run, result)[0] = _values(run, data)[: _constant(plan, dispatch, "n")].sum()
            case "finalize_grad_stats":
                # KERNEL: one workgroup adds up all that is bound; a kernel of a person's takes the one number there is.
                parts = _slot(dispatch, "norm_sq")
                assert parts.exact or dispatch.own is not None
                assert parts.size == F32 or dispatch.own is None
                run.norm_sq = float(_values(run, parts).sum())
            case "scale":
                here = _pass(run, dispatch)
                assert not run.scaled[here].any()
                assert not run.updated[here].any()
                run.scaled[here] += 1
            case "fill_zero":
                here = _pass(run, dispatch)
                assert not run.zeroed[here].any()
                _zero(run, _slot(dispatch, "data"), here)
            case "cast_f32_to_f16":
                here = _pass(run, dispatch)
                _own(run, _slot(dispatch, "w_f16"), here)
                # A copy of what the update will change is none of its result.
                assert (run.updated[here] == 1).all()
                run.mirrored[here] += 1
            case _:
                _update(run, dispatch)
    return run


def _check_slots(dispatch: Dispatch) -> None:
    wanted = CONTRACT[dispatch.entry_point]
    got = [(b.name, b.access) for b in dispatch.bindings]
    assert [b.slot for b in dispatch.bindings] == list(range(len(wanted))), dispatch.label
    assert got == wanted, dispatch.label
    assert {name for name, _ in dispatch.constants} <= DISPATCH_CONSTANTS


# --- kernels


def _reduce(run: Run, dispatch: Dispatch) -> None:
    data, result = (_values(run, _slot(dispatch, name)) for name in ("data", "result"))
    n = _constant(run.plan, dispatch, "n")
    assert run.norm_sq is None
    groups = math.prod(dispatch.groups)
    squares = data[:n] ** 2
    if dispatch.kernel.startswith("published/"):
        # KERNEL: one thread an element, no loop.
        result[0] += squares[: groups * GROUP].sum()
        return
    # KERNEL: threads stride over vec4s; a group owns those whose number, by threads, falls on it.
    owner = (np.arange(n) // VEC) % (groups * GROUP) // GROUP
    shares = np.bincount(owner, weights=squares, minlength=groups)
    if dispatch.kernel == "reduce_norm_sq_atomic":
        result[0] += shares.sum()
    else:
        result[:groups] = shares


def _pass(run: Run, dispatch: Dispatch) -> slice:
    """The elements of a pass over one lane. KERNEL: a vec4 a thread, nothing beyond n."""
    binding = _slot(dispatch, "data")
    n = _constant(run.plan, dispatch, "n")
    assert binding.size >= n * F32
    first = _element(run.plan, binding, "w" if dispatch.entry_point == "cast_f32_to_f16" else "g")
    return slice(first, first + min(n, VEC * GROUP * math.prod(dispatch.groups)))


def _update(run: Run, dispatch: Dispatch) -> None:
    plan, variant = run.plan, run.plan.variant
    # KERNEL: thread k takes elements 4k to 4k+3 of every lane bound; published, element k.
    each = 1 if dispatch.kernel.startswith("published/") else VEC
    n = min(_constant(plan, dispatch, "size"), each * GROUP * math.prod(dispatch.groups))
    assert n > 0
    w, g = (_slot(dispatch, name) for name in ("w", "g"))
    first = _element(plan, w, "w")
    assert _element(plan, g, "g") == first
    here = slice(first, first + n)
    for binding in dispatch.bindings:
        if binding.name in ("w", "g", "m", "v", "w_f16"):
            _own(run, binding, here)
        elif binding.name.endswith("_packed"):
            # KERNEL: a word of four codes a thread.
            _own(run, binding, slice(first, first + -(-n // VEC) * VEC))
        elif binding.name.endswith("_scale"):
            _own(run, binding, slice(first, first + n), every=BLOCK)
    constants = dict(dispatch.constants)
    fused = bool(constants.get("FUSED", 1.0))
    assert fused == variant.fused
    assert run.norm_sq is not None
    assert (run.scaled[here] == (not fused)).all()
    assert not run.zeroed[here].any()
    assert constants.get("PRECISE", 0.0) == (variant.numerics == "precise")
    assert constants.get("L2", 0.0) == (variant.optimizer == "adam-l2")
    if dispatch.entry_point == "adamw_8bit_update":
        assert CODECS[int(constants["CODEC"])] == variant.codec
    if fused:
        _zero(run, g, here)
    run.updated[here] += 1
    run.kernel[here] = dispatch.entry_point
    if dispatch.entry_point == "adamw_update_f16":
        run.mirrored[here] += 1
    # KERNEL: elements from WD_ELEMENTS on take no decay, whatever hp says.
    bias, hp = (_key(plan, dispatch, name) for name in ("bias", "hp"))
    if plan.classes is None:
        assert bias == "bias"
        decays = hp == "hp:wd"
    else:
        of = int(bias.removeprefix("bias:"))
        assert hp == f"hp:{of}"
        # λ counts as it stands.
        decays = True
        run.of[here] = of
    run.decayed[here] += decays & (np.arange(n) < constants.get("WD_ELEMENTS", math.inf))


def _zero(run: Run, g: Binding, here: slice) -> None:
    run.zeroed[here] += 1
    _values(run, g)[: here.stop - here.start] = 0


# --- buffers


def _own(run: Run, binding: Binding, here: slice, *, every: int = 1) -> None:
    """Write units that stand for elements `here`, the first at the start of the binding; each once a step."""
    unit = UNIT_BYTES.get(binding.name, F32)
    assert binding.offset % unit == 0
    spec = next(b for b in run.plan.buffers if b.name == binding.buffer)
    owner = run.owners.setdefault(binding.buffer, np.full(-(-spec.size // unit), -1, np.int64))
    elements = np.arange(here.start, here.stop, every)
    first = binding.offset // unit
    assert elements.size * unit <= binding.size, f"{binding.buffer} is bound for less than is written"
    assert first + elements.size <= owner.size, f"{binding.buffer} is smaller than what is written"
    units = owner[first : first + elements.size]
    assert (units == -1).all(), f"{binding.buffer} is written twice"
    units[:] = elements


def _values(run: Run, binding: Binding) -> npt.NDArray[np.float64]:
    return run.buffers[binding.buffer][binding.offset // F32 : binding.stop // F32]


def _element(plan: Plan, binding: Binding, lane: str) -> int:
    """The element of the mega-buffer that a binding of w or g begins with: page k of a lane is its buffer [k]."""
    match = re.fullmatch(rf"{lane}(?:\[(\d+)\])?", binding.buffer)
    assert match, binding.buffer
    assert binding.offset % F32 == 0
    return plan.layout.pages[int(match[1] or 0)].start + binding.offset // F32


def _slot(dispatch: Dispatch, name: str) -> Binding:
    return next(b for b in dispatch.bindings if b.name == name)


def _key(plan: Plan, dispatch: Dispatch, name: str) -> str:
    return plan.uniform_at[_slot(dispatch, name).offset].key


def _constant(plan: Plan, dispatch: Dispatch, name: str) -> int:
    value = plan.uniform_at[_slot(dispatch, name).offset].constant
    assert value is not None
    return value
