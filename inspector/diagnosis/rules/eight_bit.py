"""Rules over m and v in 8 bits."""

from __future__ import annotations

import math
from functools import cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from inspector.codecs import BLOCK, SCALE_FLOOR, Codec, dynamic_map
from inspector.coding_error import LaneCodingError
from inspector.diagnosis.facts import StepFacts
from inspector.diagnosis.memory import Memory
from inspector.diagnosis.rules.rule import Seen, Story, alone, number, of_params, once, percent
from inspector.floats import F64Array
from inspector.optimizers import optimizer
from inspector.plan import SMALL_ELEMENTS, required_placement
from inspector.statistics import EXPONENT_BIAS

ZEROED: dict[Codec, float] = {"linear": 0.9, "sqrt": 0.05, "dynamic": 0.05}
"""Of the elements: linear codes lose half of v in the first steps of a healthy run, and limit the update for it."""
TOLD = 0.1
OUTLIER = 508.0
"""The largest m over the median of the param: a typical m is then a quarter of a code in the block of the largest."""
FEW = 8
ISOLATED = 4
"""So few elements within so many powers of two of the largest are outliers, more of them rows that are in use."""


def coded(facts: StepFacts) -> bool:
    """True with 8-bit state."""
    return facts.variant.kernel == "8bit"


def zeroed_second_moment(facts: StepFacts, memory: Memory) -> Seen | None:
    """v that rounds to 0 under an m that does not: the update of these elements is set by ε or by the limit alone."""
    if not coded(facts) or facts.table is None:
        return None
    table = facts.table
    state = np.array([facts.layout[name].state == "8bit" for name in table.names])
    lost = np.maximum(table.lanes["v"].zeros - table.lanes["m"].zeros, 0)
    share = np.where(state, lost / np.maximum(table.numel, 1), 0.0)
    codec = facts.variant.codec
    least = ZEROED[codec] if codec != "linear" else TOLD
    hit = share > least

    def tell(row: int) -> Story:
        segment = facts.segment(row)
        linear = codec == "linear"
        how = "the kernel limits their update to the learning rate" if linear else "their update is m̂/ε"
        return Story(
            f"At least {int(lost[row]):,} v of {segment.name} ({percent(share[row])}) have rounded to 0 in "
            f"{codec} codes "
            f"under an m that is not 0: {how}.",
            "Use the dynamic codec (--codec dynamic), or keep v of this param in float32.",
            {"elements": int(lost[row]), "share": float(share[row]), "codec": codec}, segment.name, None,
            facts.dispatch_updating(segment.offset),
            severity="info" if linear and share[row] <= ZEROED[codec] else "warning",
        )  # fmt: skip

    return of_params(facts, hit, share * hit, tell)


def block_outlier(facts: StepFacts, memory: Memory) -> Seen | None:
    """A block of 256 in which one element is so large that all others fall below the first codes."""
    if not facts.coding or facts.table is None or facts.variant.codec != "linear":
        return None
    table = facts.table
    blocks = {error.name: error.m.worst_block for error in facts.coding}
    m = table.lanes["m"]
    ratio = np.zeros(len(table))
    for row, name in enumerate(table.names):
        counts = m.exponents[row].astype(np.int64)
        filled = np.flatnonzero(counts if name in blocks else ())
        if len(filled) and counts[max(int(filled[-1]) - ISOLATED, 0) :].sum() <= FEW:
            ratio[row] = m.max_abs[row] / _median(counts)

    def tell(row: int) -> Story:
        segment = facts.segment(row)
        block = blocks[segment.name]
        return Story(
            f"{segment.name} has an m {number(ratio[row])} times the median of the param, in block {block:,} (elements "
            f"{block * BLOCK:,} to {min((block + 1) * BLOCK, segment.numel) - 1:,}): in linear codes its neighbours "
            "in the block round to 0.",
            "Use the dynamic codec (--codec dynamic), and look at the gradient of the outlier.",
            {"block": block, "ratio": float(ratio[row]), "block_size": BLOCK}, segment.name, block * BLOCK,
            facts.dispatch_updating(segment.offset),
        )  # fmt: skip

    return of_params(facts, ratio >= OUTLIER, np.where(ratio >= OUTLIER, ratio, 0.0), tell)


def _median(counts: npt.NDArray[np.int64]) -> float:
    """The median of magnitudes in bins by powers of two, within a factor of 1.5."""
    until = np.cumsum(counts)
    return 1.5 * 2.0 ** (int(np.searchsorted(until, (until[-1] + 1) // 2)) - EXPONENT_BIAS)


def coding_error_too_large(facts: StepFacts, memory: Memory) -> Seen | None:
    """Errors of coding beyond what the codec can give for values of that size."""
    if not facts.coding or facts.table is None or facts.clip_scale is None:
        return None
    table, scale = facts.table, abs(facts.clip_scale)
    beta1, beta2 = facts.each("beta1"), facts.each("beta2")
    if not math.isfinite(scale):
        return None
    rows = {name: row for row, name in enumerate(table.names)}
    g_max = scale * table.lanes["g"].max_abs
    if optimizer(facts.variant.optimizer).decay_in_gradient:
        g_max = g_max + facts.each("weight_decay") * table.lanes["w"].max_abs
    m_max = beta1 * table.lanes["m"].max_abs + (1 - beta1) * g_max
    v_max = beta2 * table.lanes["v"].max_abs + (1 - beta2) * g_max**2
    ratio: F64Array = np.zeros(len(rows))
    worst: dict[int, tuple[str, LaneCodingError, float]] = {}
    for error in facts.coding:
        row = rows.get(error.name)
        if row is None:
            continue
        lanes: tuple[tuple[Literal["m", "v"], LaneCodingError, float], ...] = (
            ("m", error.m, m_max[row]),
            ("v", error.v, v_max[row]),
        )
        for lane, of, largest in lanes:
            bound = largest_error(facts.variant.codec, lane) * float(largest) * (1 + 1e-3)
            bound += least_error(facts.variant.codec, lane) + 1e-14
            if of.largest / bound > ratio[row]:
                ratio[row] = of.largest / bound
                worst[row] = lane, of, bound

    def tell(row: int) -> Story:
        segment, (lane, of, bound) = facts.segment(row), worst[row]
        return Story(
            f"Coding {lane} of {segment.name} is off by up to {number(of.largest)}; the {facts.variant.codec} "
            "codec errs by "
            f"{number(bound)} at most for values of that size.",
            "Check the codec: its table, the scale of the block, and rounding.",
            {"lane": lane, "largest_error": of.largest, "bound": bound}, segment.name, None,
            facts.dispatch_updating(segment.offset),
        )  # fmt: skip

    return of_params(facts, ratio > 1, np.where(ratio > 1, ratio, 0.0), tell)


@cache
def largest_error(codec: Codec, lane: Literal["m", "v"]) -> float:
    """The most that a codec is off by, as a share of the largest value of the block.

    Linear codes are 1/127 apart, those of the square root of v 2/127 at its upper end; the dynamic map is taken as it
    stands.
    """
    if codec == "linear":
        return 0.5 / 127
    if codec == "sqrt" and lane == "v":
        return 1.0 / 127 + 0.25 / 127**2
    if codec == "sqrt":
        return 0.5 / 127
    return float(np.diff(dynamic_map(lane).values.astype(np.float64)).max()) / 2


def least_error(codec: Codec, lane: Literal["m", "v"]) -> float:
    """The most that a codec is off by however small all values of the block are: half the least scale of its codes.

    Of v in sqrt it is that of √v, whose square is beneath notice; the dynamic map has no least scale.
    """
    return 0.0 if codec == "dynamic" or (codec == "sqrt" and lane == "v") else SCALE_FLOOR / 2


def wrong_state_type(facts: StepFacts, memory: Memory) -> Seen | None:
    """m and v kept otherwise than the form of the step asks for, or no param that is large enough for 8 bits."""
    variant = facts.variant
    wanted = required_placement(variant)
    wrong, any_coded = once(
        facts.layout,
        f"diagnosis: states as for {variant.kernel} {variant.small_state}",
        lambda layout: (
            [s for s in layout if s.state != wanted.state_of(s.param)],
            any(s.state == "8bit" for s in layout),
        ),
    )
    none = coded(facts) and bool(facts.layout.segments) and not any_coded
    kept = "8 bits" if wrong and wrong[0].state == "8bit" else "float32"

    def tell() -> Story:
        if not wrong:
            return Story(
                f"8-bit state was asked for and no param has it: all are below {SMALL_ELEMENTS:,} elements, "
                "which keep m and v "
                "in float32.",
                "Ask for --small-state 8bit, or take the f32 kernel.",
                {"params": len(facts.layout.segments), "least": SMALL_ELEMENTS},
            )
        return Story(
            f"m and v of {len(wrong):,} params, {wrong[0].name} among them, are kept in {kept}, which is not "
            "what the form of "
            "the step asks for.",
            "Lay the params out for this form.",
            {"params": len(wrong)}, wrong[0].name, dispatch=facts.dispatch_updating(wrong[0].offset),
        )  # fmt: skip

    return alone(bool(wrong) or none, tell)


def left_linear_codes(facts: StepFacts, memory: Memory) -> Seen | None:
    """A run that goes on from linear codes in a form without their limit on the update."""
    was = memory.before.facts
    if facts.table is None or was is None or was.step != facts.step - 1:
        return None
    left = (was.variant.kernel, was.variant.codec) == ("8bit", "linear")
    left &= (facts.variant.kernel, facts.variant.codec) != ("8bit", "linear")
    lost = np.maximum(facts.table.lanes["v"].zeros - facts.table.lanes["m"].zeros, 0)
    hit = (lost > 0) & left
    share = lost / np.maximum(facts.table.numel, 1)

    def tell(row: int) -> Story:
        segment = facts.segment(row)
        form = (
            facts.variant.kernel
            if facts.variant.kernel != "8bit"
            else f"8bit with {facts.variant.codec} codes"
        )
        return Story(
            f"At least {int(lost[row]):,} v of {segment.name} ({percent(share[row])}) are 0 under an m that is "
            "not, as linear "
            f"codes left them, and {form} does not limit the update: they move by m̂/ε in this step.",
            "Go on in linear codes, or set m to 0 where v is 0.",
            {"elements": int(lost[row]), "share": float(share[row])}, segment.name, None,
            facts.dispatch_updating(segment.offset),
        )  # fmt: skip

    return of_params(facts, hit, share * hit, tell)
