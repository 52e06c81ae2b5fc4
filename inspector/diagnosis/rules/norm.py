"""Rules over what reduce_norm_sq and finalize_grad_stats wrote, held against float64."""

from __future__ import annotations

import math

import numpy as np

from inspector.diagnosis.facts import StepFacts
from inspector.diagnosis.memory import Memory
from inspector.diagnosis.rules.rule import NOTHING, Seen, Story, alone, exact, number
from inspector.plan import WORKGROUP_SIZE

U32 = 2.0**-24
"""Half the spacing of float32 at 1: the most that one addition is off by, relatively."""
CLIP_FLOOR = 1e-6
ROUNDINGS = 8
"""ULP that a quotient on a GPU may be off by (WGSL §15.7.4: 2.5 for a division), and then some."""


def norm_overflow(facts: StepFacts, memory: Memory) -> Seen | None:
    """The float32 sum of squares overflowed although every gradient that counts is finite."""
    if facts.grad_norm is None:
        return None
    # A peer's norm is of the gradients as they are: infinite as well where one of them is.
    infinite = facts.origin and facts.gradients is not None and facts.gradients.nonfinite.total > 0
    return alone(math.isinf(facts.grad_norm) and not infinite, lambda: _overflow(facts))


def _overflow(facts: StepFacts) -> Story:
    assert facts.grad_norm is not None
    scale = math.nan if facts.clip_scale is None else facts.clip_scale
    evidence: dict[str, float] = {"grad_norm": facts.grad_norm, "clip_scale": scale}
    largest, true = _largest(facts), ""
    if not math.isnan(largest):
        evidence["largest_gradient"] = largest
        true = f"the largest finite gradient is {exact(np.float32(largest))}, "
    wide = wide_norm(facts)
    if wide is not None:
        evidence["true_norm"] = wide
        true += f"the norm is {number(wide)} in float64, "
    # Where no square is infinite, the sum of several parts may be what is.
    added = bool(math.isnan(largest) or largest**2 <= np.finfo(np.float32).max)
    what = "nothing trains in this step" if scale == 0 else "the update is not what it should be"
    return Story(
        f"The sum of squared gradients overflowed float32: {true}in float32 it became infinite and the clip scale "
        f"{exact(scale)}, so {what}.",
        "Scale the loss down, or unscale the gradients before the optimizer sees them.",
        evidence, dispatch=facts.dispatch_adding(whole=added),
    )  # fmt: skip


def norm_underflow(facts: StepFacts, memory: Memory) -> Seen | None:
    """The float32 sum of squares vanished although there are gradients other than zero."""
    if facts.grad_norm is None:
        return None
    largest = _largest(facts)
    hit = facts.grad_norm == 0 and largest > 0

    def tell() -> Story:
        return Story(
            f"The gradient norm reads 0 although the largest gradient is {exact(np.float32(largest))}: its "
            "square is "
            "too small for float32.",
            "Scale the loss up; check that the gradients were not divided twice.",
            {"grad_norm": 0.0, "largest_gradient": largest}, dispatch=facts.dispatch_adding(),
        )  # fmt: skip

    return alone(hit, tell)


def norm_mismatch(facts: StepFacts, memory: Memory) -> Seen | None:
    """The norm differs from that in float64 by more than adding up in float32 can explain."""
    true = wide_norm(facts)
    if facts.origin:  # The norm is of before clipping, the gradients of after it.
        return None
    if true is None or facts.grad_norm is None or not math.isfinite(facts.grad_norm):
        return None
    # Squares that vanish, or a sum that overflows, have rules of their own.
    if not 2.0**-50 < true < 2.0**63:
        return NOTHING
    bound = norm_bound(facts)
    off = abs(facts.grad_norm - true) / true
    squared = abs(facts.grad_norm - true * true) <= 2 * bound * true * true

    def tell() -> Story:
        if squared:
            return Story(
                f"The gradient norm is {number(facts.grad_norm or 0)}, in float64 it is {number(true)}, whose square "
                "that is: the root was not taken.",
                "Check finalize_grad_stats: gradNorm = √normSq.",
                {"grad_norm": facts.grad_norm or 0.0, "true_norm": true, "relative_error": off, "bound": bound},
                dispatch=facts.dispatch_writing("grad_stats"),
            )  # fmt: skip
        return Story(
            f"The gradient norm is {number(facts.grad_norm or 0)}, in float64 it is {number(true)}: they differ by "
            f"{number(off)} of it, and rounding explains {number(bound)}.",
            "Check reduce_norm_sq: elements left out or counted twice, a result that is not set to 0 before, a "
            "size that is "
            "too small.",
            {"grad_norm": facts.grad_norm or 0.0, "true_norm": true, "relative_error": off, "bound": bound},
            dispatch=facts.dispatch_adding(),
        )  # fmt: skip

    return alone(off > bound, tell, off)


def clip_scale_mismatch(facts: StepFacts, memory: Memory) -> Seen | None:
    """The clip scale is not min(1, max_grad_norm / max(gradNorm, 1e-6)) of the norm beside it."""
    norm, scale = facts.grad_norm, facts.clip_scale
    if facts.origin:  # Its limit is not among the settings.
        return None
    limit = float(np.float32(facts.hyper.max_grad_norm))
    if norm is None or scale is None or math.isnan(norm) or math.isnan(limit):
        return None
    wanted = min(1.0, limit / max(norm, CLIP_FLOOR)) if math.isfinite(norm) else 0.0
    if math.isinf(norm) and math.isinf(limit):
        return None
    bound = ROUNDINGS * 2 * U32 * abs(wanted) if math.isfinite(wanted) else 0.0
    hit = scale != wanted and not abs(scale - wanted) <= bound

    def tell() -> Story:
        return Story(
            f"The clip scale is {number(scale)}; from a norm of {number(norm)} and max_grad_norm "
            f"{number(limit)} it should "
            f"be {number(wanted)}.",
            "Check finalize_grad_stats: min(1, max_grad_norm / max(gradNorm, 1e-6)).",
            {"clip_scale": scale, "expected": wanted, "grad_norm": norm, "max_grad_norm": limit},
            dispatch=facts.dispatch_writing("grad_stats"),
        )  # fmt: skip

    return alone(hit, tell)


def wide_norm(facts: StepFacts) -> float | None:
    """√Σg² over the finite gradients in float64, of the norms of the params; None where they were not counted."""
    if facts.table is None:
        return None
    return math.sqrt(math.fsum(np.square(facts.table.lanes["g"].norm).tolist()))


def norm_bound(facts: StepFacts) -> float:
    """The most that the float32 norm can be off by relatively, from how many numbers are added one after the other.

    A sum of positive numbers by additions of depth d is off by at most d·2⁻²⁴ of it (Higham 2002, §4.2), its root by
    half of that. The norms of the params are sums of short sums themselves.
    """
    depth = 2 * WORKGROUP_SIZE
    if facts.plan is not None:
        for dispatch in facts.plan.dispatches:
            if dispatch.entry_point.startswith("reduce_norm_sq"):
                threads = max(dispatch.groups[0] * dispatch.groups[1] * WORKGROUP_SIZE, 1)
                elements = dispatch.elements[1] - dispatch.elements[0]
                # An own kernel may add up group by group in one number, as the published one does.
                groups = (
                    -(-elements // WORKGROUP_SIZE)
                    if dispatch.own
                    else dispatch.groups[0] * dispatch.groups[1]
                )
                depth += -(-elements // threads) + groups
    else:
        depth += -(-facts.layout.padded_elements // WORKGROUP_SIZE)
    return depth * U32


def _largest(facts: StepFacts) -> float:
    return math.nan if facts.gradients is None else facts.gradients.max_abs
